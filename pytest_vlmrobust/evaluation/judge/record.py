"""Judging: from a measurement to a Record with its verdict. It counts failed and unreadable answers."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import Any, TypeAlias

from pytest_vlmrobust.core.cell import Cell
from pytest_vlmrobust.core.decision import NOT_SHOWN, WARNING, WORST_FIRST, Outcome, Verdict
from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.core.record import Measure, Record
from pytest_vlmrobust.core.words import first_few, on_one_line
from pytest_vlmrobust.evaluation.run.results import CellResult
from pytest_vlmrobust.policies import JudgedBy, MetricKey, Policy

from .budgets import budget_measures, failure_measures, too_many_unread
from .measure import Measurement
from .measurements import quantities
from .strata import sub_task_of

Verdicts: TypeAlias = Mapping[MetricKey, Mapping[str, Verdict]]
"""The verdicts decided by a part of the answers: for each estimate, by rule."""


def judge(measurement: Measurement, policy: Policy, today: date, decided: Verdicts | None = None) -> Record:
    """Returns the record of a test, with its measures and worst verdict."""
    draft = measurement.draft
    measures = [measure for _, _, measure in judge_estimates(measurement, policy, today, decided)]
    measures += [*judge_budgets(measurement, policy, today), *draft.measures]
    verdict = decisive(measures)
    only_measured = draft.not_asked and verdict.outcome is Outcome.MEASURED
    reason = on_one_line(
        verdict.reason if verdict.rule or verdict.outcome is Outcome.ERROR else draft.not_asked or verdict.reason
    )
    if not isinstance(measurement.planned, Cell):
        reason = reason or measurement.estimates[0][1].reason
    if others := [m.reason for m in measures if m is not verdict and m.outcome is verdict.outcome is Outcome.FAIL]:
        reason += f"; also broken: {on_one_line(first_few(others, 1))}"
    return dataclasses.replace(
        draft,
        outcome=Outcome.NOT_APPLICABLE if only_measured else verdict.outcome,
        reason=reason,
        measures=tuple(map(_in_unit, measures)),
        policy_sha256=policy.sha256,
    )


def judge_estimates(
    measurement: Measurement, policy: Policy, today: date, decided: Verdicts | None
) -> list[tuple[MetricKey, Estimate, Measure]]:
    """Judges each estimate and returns it as judged.

    One that keeps its bound without need of images is not valid. One against answers that are no bar has no value, nor has one
    of a category or slice that keeps its bound where it cannot be read: nothing is lost where nothing was right. Nor has a value
    that keeps its bound on few questions, because the earlier run lacks the others.
    """
    judged, known = [], quantities()
    unread_then, unread_clean = (_unread_then(then, policy, today) for then in (measurement.earlier, measurement.earlier_clean))
    for test, estimate in measurement.estimates:
        if unread_then and test.metric in known and known[test.metric].compares_with_earlier_run:
            estimate = Estimate(math.nan, estimate.n, reason=f"the baseline is no bar: {unread_then}")  # noqa: PLW2901
        elif unread_clean and test.metric in known and known[test.metric].reads_earlier_clean:
            estimate = Estimate(math.nan, estimate.n, reason=f"the baseline is no bar: clean: {unread_clean}")  # noqa: PLW2901
        measure = _judged(policy, test, estimate, today, None if decided is None else decided[test])
        if measure.outcome is Outcome.PASS and _rests_on_few(measurement, measure):
            estimate = Estimate(math.nan, estimate.n, reason=f"{measurement.few_compared}. Judge the interval instead")  # noqa: PLW2901
            measure = _judged(policy, test, estimate, today, None if decided is None else {})
        elif measure.outcome is Outcome.PASS and measurement.why_not_passed:
            estimate = dataclasses.replace(estimate, valid=False, reason=measurement.why_not_passed)  # noqa: PLW2901
            measure = _judged(policy, test, estimate, today, None if decided is None else {})
        elif measure.outcome is Outcome.PASS and (unread := _unread_in(measurement, test, policy, today)):
            estimate = Estimate(math.nan, estimate.n, reason=unread)  # noqa: PLW2901
            measure = _judged(policy, test, estimate, today, None if decided is None else {})
        judged.append((test, estimate, measure))
    return judged


def _rests_on_few(measurement: Measurement, measure: Measure) -> bool:
    """Whether the value about a few questions was judged that the earlier run also has."""
    known = quantities().get(measure.metric)
    compared = known is not None and known.compares_with_earlier_run
    return bool(measurement.few_compared) and compared and measure.target == JudgedBy.POINT.target


def _unread_then(results: Sequence[CellResult], policy: Policy, today: date) -> str:
    """Returns that too many answers of the earlier run cannot be read, in one of its cells: they would count as gains since."""
    for result in results:
        if unread := too_many_unread(policy, [result], today):
            return f"{result.cell.setting}: {unread}" if len(results) > 1 else unread
    return ""


def _unread_in(measurement: Measurement, test: MetricKey, policy: Policy, today: date) -> str:
    """Returns that too many answers about a category or slice cannot be read, which hardly shows in all of them."""
    if not test.category or measurement.excused:
        return ""
    groups = [measurement.results]
    if measurement.clean is not None and quantities()[test.metric].may_compare_with_clean:
        groups.append([measurement.clean])
    unread = [results for results in groups if any(result.count("unparsed") for result in results)]  # in most runs none
    reasons = (too_many_unread(policy, _of_stratum(results, test.category), today) for results in unread)
    return next(filter(None, reasons), "")


def _of_stratum(results: Iterable[CellResult], stratum: str) -> list[CellResult]:
    """Returns the answers about a category, sub-task or slice."""
    parts = []
    for result in results:
        places = range(len(result.samples)) if result.places is None else result.places
        named = [(*sample.strata, sub_task_of(sample)) for sample in result.samples]
        kept = [place for place, names in zip(places, named, strict=True) if stratum in names]
        parts += [result.part(kept)] if kept else []
    return parts


def judge_budgets(measurement: Measurement, policy: Policy, today: date) -> list[Measure]:
    """Judges the failed and unreadable answers of a test."""
    planned, results = measurement.planned, measurement.results
    if measurement.draft.not_asked and (isinstance(planned, Cell) or not results):
        return _baseline_failures(policy, results)
    if isinstance(planned, Cell):
        return budget_measures(policy, results, today, excused=measurement.excused)
    return failure_measures(policy.budgets, results)


def _baseline_failures(policy: Policy, baselines: Iterable[CellResult]) -> list[Measure]:
    """Returns the broken budget of failed inferences on original images, or without any.

    Whether the model does the task is then unknown: its inferences failed.
    """
    for result in baselines:
        broken = failure_measures(policy.budgets, [result])
        if failed := [measure for measure in broken if measure.outcome is Outcome.ERROR]:
            return [dataclasses.replace(measure, reason=f"{result.cell}: {measure.reason}") for measure in failed]
    return []


def _judged(policy: Policy, test: MetricKey, estimate: Estimate, today: date, decided: Mapping[str, Verdict] | None) -> Measure:
    measure = policy.measure(test, estimate, today=today, decided=decided)
    shown: dict[str, Any] = {"category": test.category}
    if decided is not None or not estimate.valid:  # its interval ignores an early stop, or its number does not apply
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
