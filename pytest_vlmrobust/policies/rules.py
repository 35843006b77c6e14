"""Rule, Waiver and Scope: one bound, one dated exception, and the tests they speak about."""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass, fields, replace
from datetime import date
from enum import StrEnum

from .bound import Bound

_STEP_LEVEL = re.compile(r":[^+]*")

NO_LEVEL = "none"
"""How a scope spells the level of settings that have none."""


class Judge(StrEnum):
    """What is compared with the bound."""

    INTERVAL = "interval"
    """The interval: a verdict on the questions that the samples stand for, at declared risks of being wrong."""
    POINT = "point"
    """The value: a verdict on these samples alone. Another sample of the same questions may well give another one."""

    @property
    def target(self) -> str:
        """What the verdict speaks about."""
        return "population" if self is Judge.INTERVAL else "dataset"


class Multiplicity(StrEnum):
    """What is done about many tests that share a rule, of which chance breaks some."""

    BONFERRONI = "bonferroni"
    """FAIL in any of them errs at ``alpha_fail`` in all. PASS needs no correction: every one of them has to pass."""
    NONE = "none"
    """Each test errs at ``alpha_fail``."""


class Tier(StrEnum):
    """Whether a breach blocks the release or is only said."""

    BLOCK = "block"
    WARN = "warn"


class OnInconclusive(StrEnum):
    """What becomes of evidence that does not decide: a test that fails, or a warning."""

    FAIL = "fail"
    WARN = "warn"


class OnNotApplicable(StrEnum):
    """What becomes of a metric whose validity gate failed: an undecided run, or a warning."""

    INCONCLUSIVE = "inconclusive"
    WARN = "warn"


ALPHA = 0.05


@dataclass(frozen=True, slots=True)
class Treatment:
    """How a rule judges, and what its outcomes lead to.

    ``alpha_pass`` is the risk of passing what breaks the bound, ``alpha_fail`` that of failing what keeps it; both are one-sided
    and concern intervals only.
    """

    judge: Judge = Judge.INTERVAL
    alpha_pass: float = ALPHA
    alpha_fail: float = ALPHA
    multiplicity: Multiplicity = Multiplicity.BONFERRONI
    tier: Tier = Tier.BLOCK
    on_inconclusive: OnInconclusive = OnInconclusive.FAIL
    on_not_applicable: OnNotApplicable = OnNotApplicable.INCONCLUSIVE


@dataclass(frozen=True, slots=True)
class JudgedTest:
    """What an estimate is about: the names that scopes are matched with.

    ``setting`` of a sweep is its split, where it has one; ``family`` and ``level`` are empty for a sweep; ``category`` is empty
    unless the estimate is about one stratum of the data set.
    """

    model: str
    dataset: str
    metric: str
    setting: str = ""
    family: str = ""
    level: str = ""
    category: str = ""
    strata: int = 1
    """How many strata of the data set are judged like this one."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Globs by field; a field without globs admits everything, and of several globs one has to match.

    Matching is case-sensitive. A setting's glob without ``:`` admits every level: ``*_blur`` is ``*_blur:*``.
    """

    model: tuple[str, ...] = ()
    dataset: tuple[str, ...] = ()
    setting: tuple[str, ...] = ()
    family: tuple[str, ...] = ()
    level: tuple[str, ...] = ()
    category: tuple[str, ...] = ()

    def matches(self, test: JudgedTest) -> bool:
        """Whether every field that has globs matches the test's."""
        return (
            _any_glob(self.model, test.model)
            and _any_glob(self.dataset, test.dataset)
            and _any_setting_glob(self.setting, test.setting)
            and _any_glob(self.family, test.family)
            and _any_glob(self.level, test.level or NO_LEVEL)
            and _any_glob(self.category, test.category)
        )

    def admits(self, field: str, name: str) -> bool:
        """Whether one field matches ``name``, whatever the others ask for."""
        globs: tuple[str, ...] = getattr(self, field)
        return _any_setting_glob(globs, name) if field == "setting" else _any_glob(globs, name)

    def __bool__(self) -> bool:
        """Whether anything is narrowed down."""
        return any(getattr(self, field.name) for field in fields(self))


@dataclass(frozen=True, slots=True)
class Rule:
    """One bound on one metric, for the tests in its scope.

    ``source`` is ``file:line``; ``evidence`` says where the number is from (``source:`` in the file).
    """

    id: str
    metric: str
    bound: Bound
    source: str
    where: Scope = Scope()
    unless: Scope | None = None
    treatment: Treatment = Treatment()
    reason: str = ""
    evidence: str = ""

    @property
    def blocks_where_not_applicable(self) -> bool:
        """Whether a run is not GO where the metric says nothing."""
        treatment = self.treatment
        return treatment.tier is Tier.BLOCK and treatment.on_not_applicable is OnNotApplicable.INCONCLUSIVE

    def applies(self, test: JudgedTest) -> bool:
        """Whether the rule bounds this test.

        A rule that names no category bounds whole data sets only, so that it does not meet strata of ten samples by accident.
        """
        excluded = self.unless is not None and self.unless.matches(test)
        return self.metric == test.metric and _covers(self.where, test) and not excluded

    def bounds(self, test: JudgedTest) -> bool:
        """Whether the rule bounds this test, or strata of its data set."""
        excluded = self.unless is not None and not self.unless.category and self.unless.matches(test)
        return self.metric == test.metric and replace(self.where, category=()).matches(test) and not excluded


@dataclass(frozen=True, slots=True)
class Waiver:
    """A breach that somebody answers for, up to a cap and including a day."""

    id: str
    owner: str
    reason: str
    expires: date
    metric: str
    where: Scope
    cap: float
    source: str
    ticket: str = ""

    def applies(self, test: JudgedTest) -> bool:
        """Whether the waiver speaks about this test; whether it still holds is another question."""
        return self.metric == test.metric and _covers(self.where, test)

    def reaches(self, bound: Bound, value: float) -> bool:
        """Whether a value that breaks ``bound``, or does not decide it, is no worse than the cap."""
        capped = Bound(low=self.cap) if bound.nearest_end(value) == bound.low else Bound(high=self.cap)
        return capped.admits(value)

    def expired(self, today: date) -> bool:
        """Whether the last day is over."""
        return today > self.expires


def _covers(where: Scope, test: JudgedTest) -> bool:
    return bool(where.category) == bool(test.category) and where.matches(test)


def _any_glob(globs: tuple[str, ...], name: str) -> bool:
    return not globs or any(fnmatch.fnmatchcase(name, glob) for glob in globs)


def _any_setting_glob(globs: tuple[str, ...], setting: str) -> bool:
    bare = _STEP_LEVEL.sub("", setting)
    return not globs or any(fnmatch.fnmatchcase(setting if ":" in glob else bare, glob) for glob in globs)
