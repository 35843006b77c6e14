"""What a run says about its policy: waivers that can go, and rules that met no test. Pure: facts from records, no counters."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date
from enum import StrEnum

from pytest_vlmrobust.core.record import Measure, Record
from pytest_vlmrobust.core.verdict import Outcome

from .bound import Bound
from .policy import Policy
from .rules import JudgedTest, Rule, Scope, Waiver


class WaiverState(StrEnum):
    """What became of a waiver in a run."""

    USED = "used"
    EXPIRED = "expired"
    UNNEEDED = "unneeded"
    """It speaks about tests of this run, and none of them needed it."""
    EXCEEDED = "exceeded"
    """It speaks about tests that broke their bounds by more than its cap, and none of the others needed it."""
    UNMATCHED = "unmatched"
    """It speaks about no test of this run."""


class Missed(StrEnum):
    """What a waiver that met no test came near to."""

    CATEGORY = "category"
    """Tests of its metric, models, data and settings were there, and none of its categories."""
    SETTING = "setting"
    """Tests of its metric, models and data were there, and none of its settings."""
    ALL = "all"
    """Its metric was not measured for its models on its data."""


_ADVICE = {
    WaiverState.USED: "waived {used} of {matched} tests it speaks about",
    WaiverState.EXPIRED: "expired on {expires}: renew or remove it",
    WaiverState.EXCEEDED: (
        "covers breaches up to {cap:g}, and {exceeded} of the {matched} tests it speaks about are worse: mend what it covers, or "
        "have somebody answer for a larger cap"
    ),
    WaiverState.UNNEEDED: "was not needed by the {matched} tests it speaks about: remove it, or lower its cap",
    WaiverState.UNMATCHED: "speaks about no test of this run: look for a misspelt {missed}",
}


_MISSPELT = {Missed.CATEGORY: "category", Missed.SETTING: "setting, family or level", Missed.ALL: "scope", None: ""}


@dataclass(frozen=True, slots=True)
class WaiverUse:
    """A waiver and what a run made of it; ``matched``, ``used`` and ``exceeded`` count tests."""

    waiver: Waiver
    state: WaiverState
    matched: int
    used: int
    exceeded: int = 0
    missed: Missed | None = None
    """Of an unmatched one, what it came near to."""

    def __str__(self) -> str:
        waiver = self.waiver
        advice = _ADVICE[self.state].format(
            used=self.used,
            matched=self.matched,
            exceeded=self.exceeded,
            cap=waiver.cap,
            expires=waiver.expires.isoformat(),
            missed=_MISSPELT[self.missed],
        )
        return f"{waiver.source}: waiver {waiver.id} of {waiver.owner} {advice}"


def waiver_report(policy: Policy, records: Iterable[Record], *, today: date) -> tuple[WaiverUse, ...]:
    """Returns, for each waiver of the policy, what these records made of it.

    A run over a selection of tests leaves waivers unmatched that a whole run would use: the caller knows which it was.
    """
    measured = judged(records)
    bounds = {rule.id: rule.bound for rule in policy.rules}
    return tuple(_use(waiver, measured, bounds, today) for waiver in policy.waivers)


def unmatched_rules(policy: Policy, records: Iterable[Record]) -> tuple[Rule, ...]:
    """Returns the rules that applied to no test of these records; in a whole run, a sign of a misspelt scope."""
    tests = [test for _, test in judged(records)]
    return tuple(rule for rule in policy.rules if not any(rule.applies(test) for test in tests))


def judged(records: Iterable[Record]) -> list[tuple[Measure, JudgedTest]]:
    """Returns each measure with the test that rules and waivers are matched with."""
    return [
        (
            measure,
            JudgedTest(
                record.model,
                record.dataset,
                measure.metric,
                record.setting or record.split,
                record.family,
                record.level,
                measure.category,
            ),
        )
        for record in records
        for measure in record.measures
    ]


def _use(waiver: Waiver, measured: list[tuple[Measure, JudgedTest]], bounds: Mapping[str, Bound], today: date) -> WaiverUse:
    matched = [measure for measure, test in measured if waiver.applies(test)]
    used = sum(measure.outcome is Outcome.WAIVED and measure.waiver == waiver.id for measure in matched)
    exceeded = sum(_exceeds(measure, waiver, bounds) for measure in matched)
    missed = None if matched else _missed(waiver, [test for _, test in measured])
    return WaiverUse(waiver, _state(waiver, len(matched), used, exceeded, today), len(matched), used, exceeded, missed)


def _exceeds(measure: Measure, waiver: Waiver, bounds: Mapping[str, Bound]) -> bool:
    """Whether a test is not waived because it is worse than the cap."""
    unwaived = measure.outcome in (Outcome.FAIL, Outcome.INCONCLUSIVE) and math.isfinite(measure.value)
    return unwaived and measure.rule in bounds and not waiver.reaches(bounds[measure.rule], measure.value)


def _missed(waiver: Waiver, tests: list[JudgedTest]) -> Missed:
    near = [test for test in tests if test.metric == waiver.metric]
    if any(replace(waiver.where, category=()).matches(test) for test in near):
        return Missed.CATEGORY
    elsewhere = Scope(model=waiver.where.model, dataset=waiver.where.dataset)
    return Missed.SETTING if any(elsewhere.matches(test) for test in near) else Missed.ALL


def _state(waiver: Waiver, matched: int, used: int, exceeded: int, today: date) -> WaiverState:
    if waiver.expired(today):
        return WaiverState.EXPIRED
    if used:
        return WaiverState.USED
    if exceeded:
        return WaiverState.EXCEEDED
    return WaiverState.UNNEEDED if matched else WaiverState.UNMATCHED
