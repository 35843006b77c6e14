"""What an audit says about each of its cells, at the moment it is asked."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust.core.verdict import Outcome

from .target import Reason

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Verdicts:
    """Verdicts of m cells at declared error rates; arrays have shape (m,).

    Each holds for its own cell. A gate over several cells is judged by :mod:`.combination`, whose error rates hold for the gate.
    """

    alpha_pass: float
    """Probability of passing a cell that all its answers fail, at most."""
    alpha_fail: float
    """Probability of failing a cell that all its answers pass, at most."""
    certain_pass: Flags
    """Where the answers still missing cannot prevent a PASS."""
    certain_fail: Flags
    log_pass: Array
    """Natural logarithm of the e-value against "the gate fails"."""
    log_fail: Array
    """Natural logarithm of the e-value against "the gate passes"."""
    used: NDArray[np.intp]
    """How many answers were used, missing ones included."""
    sizes: NDArray[np.intp]
    """How many there are."""

    def __post_init__(self) -> None:
        for alpha in (self.alpha_pass, self.alpha_fail):
            needed_log(alpha)

    @property
    def passed(self) -> Flags:
        """Where the verdict is PASS; contradictory evidence decides nothing."""
        return self.certain_pass | (self._open & self._enough_to_pass & ~self._enough_to_fail)

    @property
    def failed(self) -> Flags:
        """Where the verdict is FAIL; contradictory evidence decides nothing."""
        return self.certain_fail | (self._open & self._enough_to_fail & ~self._enough_to_pass)

    @property
    def undecided(self) -> Flags:
        """Where there is no verdict yet, or, after the last answer, none at all."""
        return ~(self.passed | self.failed)

    @property
    def exhausted(self) -> Flags:
        """Where every sample was used."""
        return self.used >= self.sizes

    @property
    def unfinished(self) -> Flags:
        """Where a further answer may still matter to a gate over all cells: not passed, no certain FAIL, and samples left.

        A cell that failed on its own evidence is among them: one of many cells will, so the gate may ask for more.
        """
        return ~(self.passed | self.certain_fail | self.exhausted)

    @property
    def log10_pass(self) -> Array:
        """Decimal logarithm of the e-value against "the gate fails"; 1.3 suffices for a risk of 5 %."""
        return self.log_pass / math.log(10.0)

    @property
    def log10_fail(self) -> Array:
        """Decimal logarithm of the e-value against "the gate passes"."""
        return self.log_fail / math.log(10.0)

    @property
    def sure_log_pass(self) -> Array:
        """``log_pass``, infinite where PASS is certain, and negatively so where FAIL is."""
        return np.where(self.certain_pass, np.inf, np.where(self.certain_fail, -np.inf, self.log_pass))

    @property
    def sure_log_fail(self) -> Array:
        """``log_fail``, infinite where FAIL is certain, and negatively so where PASS is."""
        return np.where(self.certain_fail, np.inf, np.where(self.certain_pass, -np.inf, self.log_fail))

    def outcome(self, cell: int) -> Outcome:
        """Returns PASS, FAIL or INCONCLUSIVE."""
        return outcome(passed=bool(self.passed[cell]), failed=bool(self.failed[cell]))

    def reason(self, cell: int) -> Reason:
        """Returns what decided."""
        if self.certain_pass[cell] or self.certain_fail[cell]:
            return Reason.CERTAIN
        return Reason.UNDECIDED if self.undecided[cell] else Reason.EVIDENCE

    @property
    def _open(self) -> Flags:
        return ~(self.certain_pass | self.certain_fail)

    @property
    def _enough_to_pass(self) -> Flags:
        return self.log_pass >= needed_log(self.alpha_pass)

    @property
    def _enough_to_fail(self) -> Flags:
        return self.log_fail >= needed_log(self.alpha_fail)


def outcome(*, passed: bool, failed: bool) -> Outcome:
    """Returns PASS, FAIL, or INCONCLUSIVE where neither or both hold."""
    if passed == failed:
        return Outcome.INCONCLUSIVE
    return Outcome.PASS if passed else Outcome.FAIL


def needed_log(alpha: float) -> float:
    """Returns the logarithm of the e-value that suffices at the error rate ``alpha``: 1 / alpha, by Ville's inequality.

    Raises:
        ValueError: an error rate outside (0, 1).
    """
    if not 0.0 < alpha < 1.0:
        raise ValueError(f"the error rate is {alpha!r}: expected a number between 0 and 1, such as 0.05")
    return -math.log(alpha)
