"""GO: the verdict of a test, the decision of a run from its verdicts, and the exit code. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

ENDINGS = ("SIGTERM", "SIGHUP", "SIGXCPU", "SIGUSR1", "SIGUSR2")
"""Signals of batch systems that end a run. The run still ends with a decision, as after Ctrl-C. Windows only has the first."""

# The verdict of one test.

WARNING = "warning: "
"""Prefix of the reason of a verdict that warns without blocking."""
NOT_SHOWN = "not shown: "
"""Prefix of the reason if a blocking rule is undecided or did not apply, and its policy allows that."""


class Outcome(StrEnum):
    """The conclusion of the gate about a test."""

    PASS = "PASS"  # noqa: S105 - no password
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"
    NOT_APPLICABLE = "NOT_APPLICABLE"
    ERROR = "ERROR"
    WAIVED = "WAIVED"
    MEASURED = "MEASURED"
    """No rule applies, or only warnings do: a number was measured and reported. Never counts as a pass."""

    @property
    def counted(self) -> str:
        """The word for a count of tests."""
        return "not judged" if self is Outcome.MEASURED else self.value


WORST_FIRST = (
    Outcome.FAIL,
    Outcome.ERROR,
    Outcome.INCONCLUSIVE,
    Outcome.NOT_APPLICABLE,
    Outcome.WAIVED,
    Outcome.PASS,
    Outcome.MEASURED,
)
"""The order of severity, on the same test and in reports."""
ENDS_AS_FAILURE = frozenset({Outcome.FAIL, Outcome.INCONCLUSIVE, Outcome.ERROR})
"""The outcomes of tests that pytest counts as failed or as errors."""


@dataclass(frozen=True, slots=True)
class NotShown:
    """A rule that blocks when it is broken, and is not shown to hold: its policy lets that pass.

    Numbers that are undefined are NaN.
    """

    rule: str
    """Its id."""
    outcome: Outcome
    """INCONCLUSIVE: the questions do not decide it. NOT_APPLICABLE: it did not apply."""
    bound: str
    """Its bound: ``<= 0.15``."""
    reason: str
    """The sentence behind the outcome: value, interval, bound, and how many questions would decide."""
    source: str = ""
    """Its location, ``file:line``."""
    low: float = math.nan
    """Lower end of the interval compared with the bound."""
    high: float = math.nan
    """Upper end of that interval."""
    beyond: float = math.nan
    """The share of that interval beyond the bound."""
    samples_needed: int | None = None
    """About this many questions decide it in nine of ten cases, if the measured value is the true one; else ``null``."""
    samples_needed_least: int | None = None
    """About this many questions decide it in half of all cases."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """Something that a run did not measure or show, and the line of the policy that allows it."""

    fact: str
    """``30 of 128 samples of shapes were asked``."""
    allowed_by: str
    """``p.yaml:2, coverage samples: partial``."""

    def __str__(self) -> str:
        return f"{self.fact} (allowed by {self.allowed_by})"


@dataclass(frozen=True, slots=True)
class Verdict:
    """An outcome with its reason, and the rule that was applied.

    ``rule`` and ``source`` (``file:line``) are empty when no rule applied; ``bound`` is as its author wrote it. ``target`` is
    the scope of the verdict: ``population``, the questions that the samples represent, or ``dataset``, only these samples.
    With about ``samples_needed`` samples in total, an undecided rule is decided in nine of ten cases, and with
    ``samples_needed_least`` in half of them, if the measured value is the true one; None if unknown.
    """

    outcome: Outcome
    reason: str
    metric: str = ""
    rule: str = ""
    source: str = ""
    bound: str = ""
    unit: str = ""
    """The unit of the bound: ``pp``, ``%``, or empty for plain numbers."""
    ends: tuple[float, ...] = ()
    """The finite ends of the bound as plain numbers, low before high."""
    waiver: str = ""
    target: str = ""
    samples_needed: int | None = None
    samples_needed_least: int | None = None
    low: float = math.nan
    """Lower end of the interval that explains the outcome; NaN if no interval was compared with the bound."""
    high: float = math.nan
    """Upper end of it."""
    not_shown: NotShown | None = None
    """Details of a rule that is not shown to hold but passes; None for every other verdict."""


class ThresholdExceeded(AssertionError):
    """A measured value broke its bound; the first line carries the key numbers."""

    __module__ = "pytest_vlmrobust"


class NotDecided(AssertionError):
    """Nothing was breached, but the evidence does not decide."""

    __module__ = "pytest_vlmrobust"


# The decision of a run.


class Decision(StrEnum):
    """The conclusion of the gate about a whole run."""

    GO = "GO"
    NO_GO = "NO-GO"
    INCONCLUSIVE = "INCONCLUSIVE"
    INCOMPLETE = "INCOMPLETE"


EXIT_CODES = {Decision.GO: 0, Decision.NO_GO: 1, Decision.INCONCLUSIVE: 10, Decision.INCOMPLETE: 11}


def decide(outcomes: Iterable[Outcome], *, missing: int = 0, shortfalls: int = 0, stopped: bool = False) -> Decision:
    """Returns the decision of a run: Kleene's AND over its verdicts, where a breach outranks everything.

    ``missing`` counts selected tests without a verdict (the run was stopped or killed): with any, a run is never GO.
    ``stopped`` says that pytest ended early, even if every test had its verdict: then it is never GO either.
    ``shortfalls`` counts unmet requirements of the policy: with any, GO becomes INCONCLUSIVE.
    A run without a single PASS or WAIVED verdict gated nothing and is never GO.

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
