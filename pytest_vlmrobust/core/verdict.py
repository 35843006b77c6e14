"""Verdict of a test, Decision of a run, and the exception that carries a breach."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

WARNING = "warning: "
"""How the reason of a verdict begins that speaks up and does not block."""


class Outcome(StrEnum):
    """What the gate concluded about one test."""

    PASS = "PASS"  # noqa: S105 - no password
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"
    NOT_APPLICABLE = "NOT_APPLICABLE"
    ERROR = "ERROR"
    WAIVED = "WAIVED"
    MEASURED = "MEASURED"
    """No rule applies, or what applies only warns: a number was measured and is reported. Never counts as a pass."""


class Decision(StrEnum):
    """What the gate concluded about a whole run."""

    GO = "GO"
    NO_GO = "NO-GO"
    INCONCLUSIVE = "INCONCLUSIVE"
    INCOMPLETE = "INCOMPLETE"


@dataclass(frozen=True, slots=True)
class Verdict:
    """An outcome with its reason, and the rule that was applied.

    ``rule`` and ``source`` (``file:line``) are empty when no rule applied; ``threshold`` is the bound as written. ``target`` is
    what the verdict speaks about: ``population``, the questions that the samples stand for, or ``dataset``, these samples alone.
    With about ``samples_needed`` samples in all, what is undecided is decided in nine of ten cases, and with
    ``samples_needed_least`` in half of them, if the value that was seen is the true one; None where that cannot be told.
    """

    outcome: Outcome
    reason: str
    metric: str = ""
    rule: str = ""
    source: str = ""
    threshold: str = ""
    waiver: str = ""
    target: str = ""
    samples_needed: int | None = None
    samples_needed_least: int | None = None


class ThresholdExceeded(AssertionError):
    """A measured value broke its bound; the first line carries the key numbers."""

    __module__ = "pytest_vlmrobust"


class NotDecided(AssertionError):
    """Nothing was breached, but the evidence does not decide."""

    __module__ = "pytest_vlmrobust"


EXIT_CODES = {Decision.GO: 0, Decision.NO_GO: 1, Decision.INCONCLUSIVE: 10, Decision.INCOMPLETE: 11}


def decide(outcomes: Iterable[Outcome], *, missing: int = 0, shortfalls: int = 0, stopped: bool = False) -> Decision:
    """Returns the decision of a run: Kleene's AND over its verdicts, where a breach outranks everything.

    ``missing`` counts tests that were to run and left no verdict (the run was stopped or killed): with any, a run is never GO.
    ``stopped`` says that something ended pytest before its end, even where every test had left its verdict: likewise.
    ``shortfalls`` counts what the policy asks of a run and this one lacks: with any, what would be GO is INCONCLUSIVE.
    A run without a single PASS or WAIVED verdict has gated nothing and is never GO either.

    >>> decide([Outcome.PASS, Outcome.ERROR]).value
    'INCOMPLETE'
    >>> decide([Outcome.MEASURED]).value
    'INCONCLUSIVE'
    >>> decide([Outcome.PASS], shortfalls=1).value
    'INCONCLUSIVE'
    """
    seen = set(outcomes)
    if Outcome.FAIL in seen:
        return Decision.NO_GO
    if Outcome.ERROR in seen or missing > 0 or stopped:
        return Decision.INCOMPLETE
    if Outcome.INCONCLUSIVE in seen or Outcome.NOT_APPLICABLE in seen or shortfalls > 0:
        return Decision.INCONCLUSIVE
    return Decision.GO if seen & {Outcome.PASS, Outcome.WAIVED} else Decision.INCONCLUSIVE
