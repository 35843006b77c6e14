"""Judging: from a measurement to a Record with its verdict. This module knows no answers."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from typing import Any, TypeAlias

from pytest_vlmrobust.core.cell import Cell
from pytest_vlmrobust.core.decision import NOT_SHOWN, WARNING, WORST_FIRST, Outcome, Verdict
from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.core.record import Measure, Record
from pytest_vlmrobust.core.words import on_one_line
from pytest_vlmrobust.policies import MetricKey, Policy

from .measure import Measurement
from .measurements import quantities

Verdicts: TypeAlias = Callable[[MetricKey, Estimate], Mapping[str, Verdict]]
"""Returns the verdicts decided by a part of the answers, by rule."""


def judge(measurement: Measurement, policy: Policy, today: date, decided: Verdicts | None = None, *, task: str = "") -> Record:
    """Returns the record of a test, with its measures and worst verdict."""
    facts = measurement.facts()
    not_asked = facts.get("not_asked")
    judged = judge_estimates(measurement, policy, today, decided)
    measures = [measure for _, _, measure in judged]
    measures += [*measurement.budgets(policy, today), *facts.pop("measures", ())]
    verdict, results, planned = decisive(measures), measurement.results, measurement.planned
    only_measured = not_asked and verdict.outcome is Outcome.MEASURED
    reason = on_one_line(verdict.reason if verdict.rule or verdict.outcome is Outcome.ERROR else not_asked or verdict.reason)
    if not isinstance(planned, Cell):
        reason = reason or measurement.estimates[0][1].reason
    return Record(
        id=str(planned),
        model=planned.model,
        dataset=planned.dataset,
        task=task,
        outcome=Outcome.NOT_APPLICABLE if only_measured else verdict.outcome,
        reason=reason,
        n_requested=sum(result.n_requested for result in results),
        n_unparsed=sum(result.n_unparsed for result in results),
        n_refused=sum(result.n_refused for result in results),
        n_guessed=sum(result.n_guessed for result in results),
        n_errors=sum(result.count("error") for result in results),
        measures=tuple(map(_in_unit, measures)),
        policy_sha256=policy.sha256,
        **facts,
    )


def judge_estimates(
    measurement: Measurement, policy: Policy, today: date, decided: Verdicts | None
) -> list[tuple[MetricKey, Estimate, Measure]]:
    """Judges each estimate and returns it as judged: an estimate that keeps its bound without need of images is not valid."""
    judged = []
    for test, estimate in measurement.estimates:
        measure = _judged(policy, test, estimate, today, decided)
        if measure.outcome is Outcome.PASS and measurement.why_not_passed:
            estimate = dataclasses.replace(estimate, valid=False, reason=measurement.why_not_passed)  # noqa: PLW2901
            measure = _judged(policy, test, estimate, today, decided)
        judged.append((test, estimate, measure))
    return judged


def _judged(policy: Policy, test: MetricKey, estimate: Estimate, today: date, decided: Verdicts | None) -> Measure:
    measure = policy.measure(test, estimate, today=today, decided=decided(test, estimate) if decided else None)
    shown: dict[str, Any] = {"category": test.category}
    if decided or not estimate.valid:  # an interval that ignores an early stop is not shown, nor a number that does not apply
        shown |= {"low": math.nan, "high": math.nan}
    if not estimate.valid:
        shown["value"] = math.nan
    return dataclasses.replace(measure, **shown)


def _in_unit(measure: Measure) -> Measure:
    """Returns a measure that no rule bounds in the unit of its metric."""
    known = None if measure.unit or measure.bound else quantities().get(measure.metric)
    return dataclasses.replace(measure, unit=known.unit) if known and known.unit else measure


def decisive(measures: Sequence[Measure]) -> Measure:
    """Returns the measure with the worst outcome, the first among equals.

    Among measures without a verdict, warnings come first, and measures without a rule last.
    """
    return min(measures, key=_rank)


def is_broken(measures: Iterable[Measure]) -> bool:
    """Whether a rule is broken: further verdicts cannot mend the test."""
    return any(measure.outcome is Outcome.FAIL for measure in measures)


def _rank(measure: Measure) -> tuple[int, bool, bool]:
    only_measured = measure.outcome is Outcome.MEASURED
    unwarned = only_measured and not measure.reason.startswith((WARNING, NOT_SHOWN))
    return WORST_FIRST.index(measure.outcome), unwarned, only_measured and not measure.rule
