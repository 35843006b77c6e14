"""Laws of the verdicts on a metric, on generated tables of scores: one check for each law."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

from hypothesis import strategies as st

from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.metrics import Metric, ScoreTable
from pytest_vlmrobust.policies import Bound, JudgedBy, Rule, Treatment
from pytest_vlmrobust.policies.judge import judge_rule

from .cases import Table, tables
from .properties import Property, fails, try_examples

_RANK = {Outcome.FAIL: 0, Outcome.INCONCLUSIVE: 1, Outcome.PASS: 2}
_RISKS = (0.01, 0.05, 0.2)
_TODAY = date(2000, 1, 1)
_STEPS = 20


@dataclass(frozen=True)
class Trial:
    """A table, its estimate, and two bounds in ascending order, near the ends of its interval."""

    record: Metric
    table: Table
    estimate: Estimate
    lower: float
    higher: float

    def verdict(self, bound: Bound, estimate: Estimate | None = None, tests: int = 1, **treatment: Any) -> Outcome:
        """Returns the outcome of one rule."""
        usual = JudgedBy.INTERVAL if self.record.interval else JudgedBy.POINT
        rule = Rule("law", self.record.name, bound, "generated", treatment=Treatment(**{"judge": usual, **treatment}))
        return judge_rule(rule, estimate or self.estimate, (), _TODAY, tests).outcome

    def measure(self, scores: ScoreTable) -> Estimate:
        """Returns the estimate of other scores."""
        return _measure(self.record, self.table, scores)

    @property
    def bounds(self) -> tuple[Bound, ...]:
        """Bounds of each kind, made from the two numbers."""
        return (*_one_sided(self.lower), *_one_sided(self.higher), Bound(self.lower, self.higher))

    def refuse(self, problem: str) -> None:
        """Raises an AssertionError that shows the table."""
        __tracebackhide__ = True
        fails(self.record.name, problem, self.table.describe())


def trials(record: Metric, check: Callable[[Trial], None], examples: int) -> None:
    """Runs ``check`` on generated tables, each with two bounds that its interval may or may not decide."""
    __tracebackhide__ = True
    steps = st.integers(-_STEPS // 2, 3 * _STEPS // 2)

    def attempt(drawn: tuple[Table, int, int]) -> None:
        table, *ends = drawn
        estimate = _measure(record, table)
        low, high = _range(estimate)
        lower, higher = sorted(low + (high - low) * end / _STEPS for end in ends)
        check(Trial(record, table, estimate, lower, higher))

    try_examples(record.name, st.tuples(tables(record), steps, steps), attempt, examples)


def _on_trials(check: Callable[[Trial], None]) -> Callable[[Metric, int], None]:
    def hold(record: Metric, examples: int) -> None:
        __tracebackhide__ = True
        trials(record, check, max(1, examples // 2))  # each example judges many rules

    return hold


def _tighter_bound(trial: Trial) -> None:
    tight_and_loose = [(Bound(high=trial.lower), Bound(high=trial.higher)), (Bound(low=trial.higher), Bound(low=trial.lower))]
    both = Bound(trial.lower, trial.higher)
    for tight, loose in [*tight_and_loose, (both, Bound(high=trial.higher)), (both, Bound(low=trial.lower))]:
        stricter, laxer = trial.verdict(tight), trial.verdict(loose)
        # a second end shares the risk of failing with the first: a FAIL may become undecided, but never a PASS
        turned = stricter is Outcome.PASS and laxer is not Outcome.PASS
        if turned or (tight is not both and _better(stricter, laxer)):
            trial.refuse(
                f"is {laxer} with the bound {_describe_bound(loose)} and {stricter} with the tighter {_describe_bound(tight)}"
            )


def _more_samples(trial: Trial) -> None:
    for times in (2, 5):
        more = trial.measure(trial.table.repeat_samples(times))
        for bound in trial.bounds:
            few, many = trial.verdict(bound), trial.verdict(bound, more)
            if {few, many} == {Outcome.PASS, Outcome.FAIL}:
                trial.refuse(f"is {few} with the bound {_describe_bound(bound)}, and {many} with {times} times the same samples")


def _more_risk(trial: Trial) -> None:
    for bound in trial.bounds:
        for less, more in itertools.pairwise(_RISKS):
            if trial.verdict(bound, alpha_pass=less) is Outcome.PASS is not trial.verdict(bound, alpha_pass=more):
                trial.refuse(f"passes {_describe_bound(bound)} at the risk {less} and not at the larger risk {more}")
            if trial.verdict(bound, alpha_fail=less) is Outcome.FAIL is not trial.verdict(bound, alpha_fail=more):
                trial.refuse(f"fails {_describe_bound(bound)} at the risk {less} and not at the larger risk {more}")
        if trial.verdict(bound, tests=9) is Outcome.FAIL is not trial.verdict(bound):
            trial.refuse(f"fails {_describe_bound(bound)} as one of 9 tests and not as the only one")


def _point_value(trial: Trial) -> None:
    for bound in trial.bounds:
        population, dataset = trial.verdict(bound), trial.verdict(bound, judge=JudgedBy.POINT)
        if population in {Outcome.PASS, Outcome.FAIL} and population is not dataset:
            low, high = trial.estimate.low, trial.estimate.high
            trial.refuse(
                f"is {population} with the bound {_describe_bound(bound)}, and its value {trial.estimate.value!r} alone is "
                f"{dataset}: is it outside its interval, {low!r} to {high!r} at 90 %?"
            )


def _unknown(trial: Trial) -> None:
    anything = Bound(low=-1e9)
    unknown = {"a missing score": trial.table.with_gap(), "no samples": trial.table.without_samples()}
    if trial.record.blind is not None and math.isnan(trial.record.blind):
        unknown["images that add nothing"] = trial.table.blind()
    for what, scores in unknown.items():
        if (outcome := trial.verdict(anything, trial.measure(scores))) not in {Outcome.INCONCLUSIVE, Outcome.NOT_APPLICABLE}:
            trial.refuse(f"is {outcome} with {what}: it has to be undecided")
    if not trial.estimate.valid and (outcome := trial.verdict(anything)) is not Outcome.NOT_APPLICABLE:
        trial.refuse(f"is {outcome} although it does not apply: {trial.estimate.reason}")


def _measure(record: Metric, table: Table, scores: ScoreTable | None = None) -> Estimate:
    estimate = table.measure(record, scores)
    return replace(estimate, at=functools.cache(estimate.at)) if estimate.at else estimate


def _range(estimate: Estimate) -> tuple[float, float]:
    """Returns the range to draw bounds from: around the interval, or around the value, or around 0."""
    centre = estimate.value if estimate.finite else 0.0
    low, high = (end if math.isfinite(end) else centre + far for end, far in ((estimate.low, -0.5), (estimate.high, 0.5)))
    return (low, high) if high - low > 0.01 else (low - 0.05, high + 0.05)


def _one_sided(end: float) -> tuple[Bound, Bound]:
    return Bound(high=end), Bound(low=end)


def _better(outcome: Outcome, than: Outcome) -> bool:
    return outcome in _RANK and than in _RANK and _RANK[outcome] > _RANK[than]


def _describe_bound(bound: Bound) -> str:
    if math.isinf(bound.low):
        return f"max {bound.high!r}"
    return f"min {bound.low!r}" if math.isinf(bound.high) else f"within {bound.low!r} and {bound.high!r}"


def _no_interval(record: Metric) -> str:
    return "" if record.interval else "it has no interval: its verdicts hold for the samples at hand only"


LAWS = {
    "tighter_bound": Property("a tighter bound never gives a better verdict", _on_trials(_tighter_bound)),
    "more_samples": Property(
        "more samples of the same kind never turn a PASS into a FAIL, or a FAIL into a PASS",
        _on_trials(_more_samples),
        unclaimed=_no_interval,
    ),
    "more_risk": Property(
        "a larger risk of being wrong, shared by fewer tests, never undoes a PASS or a FAIL",
        _on_trials(_more_risk),
        unclaimed=_no_interval,
    ),
    "point_value": Property(
        "a PASS or FAIL about all such questions is also one about the samples",
        _on_trials(_point_value),
        unclaimed=_no_interval,
    ),
    "unknown": Property("what is missing, or does not apply, never passes and never fails", _on_trials(_unknown)),
}
"""All laws of verdicts, by their name in test ids."""
