"""Laws of the interval of a metric, and of the verdicts on it: one check for each law.

The first checks compare the intervals of generated tables. The last two count how often an interval misses a known truth: by
exact enumeration if all samples are of two kinds, and by simulation if many settings cost the same.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cache
from typing import Any

import numpy as np
from hypothesis import strategies as st

from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.metrics import Metric, Needs, ScoreTable
from pytest_vlmrobust.metrics.table import LABELS
from pytest_vlmrobust.policies import Bound, JudgedBy, Rule, Treatment
from pytest_vlmrobust.policies.judge import judge_rule

from . import oracles
from .cases import SETTINGS, Scores, Table, make_table, plain, tables
from .properties import BUILT_IN, Property, fails, try_examples

LEVELS = (0.5, 0.9, 0.99)
USUAL = 0.9
"""The level of gates: the truth lies beyond each end with a risk of 5 %."""
ON_AVERAGE, ANYWHERE = 1.5, 5.0
"""An approximate interval may miss the truth this many times as often as declared: on average over several truths, and at the
worst one."""
SURPRISING = 1e-4
"""A simulation fails if its number of misses has less than this probability at the tolerated risk."""

_CLOSE = 1e-7
"""Tolerance for equal ends found by bisection."""
_NEARLY = 0.85
"""Tolerance for widths, as a ratio: some intervals use seeded draws. Without clusters, doubled samples shrink the width to 0.71
or less."""
_SIZES, _PARTS, _TRIES = (30, 60, 40, 90), 20, 100
"""Numbers of samples of two kinds, parts of a true mixture, and the number of pairs of kinds to try."""
_TRUTHS = (1, 4, 7, 10, 13, 16, 19)
"""Parts of the first kind."""
_TWO, _SAME = 2, 2e-8
"""Arrays of a difference, and the tolerance for equal ends, which detects a shift by a millionth."""
_LIKE, _LIKE_KINDS = 5, 4
"""Number of equal samples, and the number of pairs of kinds to try."""
_PAIRS, _CLEARLY = 200, 0.9
"""Number of unchanged samples, and the largest ratio of their interval's width to that of unpaired scores."""
_FEW = SETTINGS[:2]
"""Few enough settings that some samples are right when clean and wrong under all of them after mixing their scores."""
_QUESTIONS, _SAMPLES, _SHARE = 240, 60, 0.6
_ALIKE = tuple(f"kind{kind}:{level}" for kind in range(7) for level in ("low", "mid", "high"))
_PAIRED = {Needs.CLEAN, Needs.PERTURBED, Needs.PERTURBED_BY_SETTING, Needs.BASELINE, Needs.BASELINE_BY_SETTING}

Bounds = tuple[float, float]


def _on_tables(check: Callable[[Metric, Table], None]) -> Callable[[Metric, int], None]:
    def hold(record: Metric, examples: int) -> None:
        __tracebackhide__ = True
        try_examples(record.name, tables(record), lambda table: check(record, table), max(1, examples // 3))

    return hold


def _check_ordered(record: Metric, table: Table) -> None:
    estimate = table.measure(record)
    ends = {level: estimate.interval(level) for level in LEVELS} if math.isfinite(estimate.value) else {}
    for level, (low, high) in ends.items():
        if math.isnan(low) != math.isnan(high):
            fails(record.name, f"has half an interval at {level:.0%}: {_format_ends((low, high))}", table.describe())
        if not math.isnan(low) and not low - _CLOSE <= estimate.value <= high + _CLOSE:
            problem = (
                f"has the interval {_format_ends((low, high))} at {level:.0%}, which does not hold its value {estimate.value!r}"
            )
            fails(record.name, problem, table.describe())
    for less, more in itertools.pairwise(ends):
        if not _holds(ends[more], ends[less]):
            fails(
                record.name,
                f"has {_format_ends(ends[less])} at {less:.0%}, and {_format_ends(ends[more])} at {more:.0%}",
                table.describe(),
            )


def _check_doubtful(record: Metric, examples: int) -> None:  # noqa: ARG001  the signature of a property
    __tracebackhide__ = True
    for seed in range(_LIKE_KINDS):
        rng = np.random.default_rng(seed)
        kinds = make_table(record, 2, lambda rows, columns=0, rng=rng: _draw_scores(rng, rows, columns, 0.5))
        for kind in (0, 1):
            alike = dataclasses.replace(kinds, scores=kinds.of([kind] * _LIKE))
            low, high = _ends(alike.measure(record))
            if low == high:
                fails(record.name, f"is certain of {low!r}: {_LIKE} samples that are alike leave a doubt", alike.describe())


def _check_duplicated(record: Metric, table: Table) -> None:
    alone = dataclasses.replace(table.scores, groups=None)
    once, twice = (_ends(table.measure(record, scores)) for scores in (alone, table.duplicate_samples()))
    if twice[1] - twice[0] < _NEARLY * (once[1] - once[0]) - _CLOSE:
        ends = f"{_format_ends(once)}, and {_format_ends(twice)}"
        fails(record.name, f"has {ends} when every sample is there twice, both of one source image", table.describe())


def _check_reference(record: Metric, table: Table) -> None:
    right_or_wrong = table.map_scores(_round_scores)
    alone = dataclasses.replace(right_or_wrong, scores=dataclasses.replace(right_or_wrong.scores, groups=None))
    estimate = alone.measure(record)
    arguments = [plain(alone.scores.argument(need, alone.setting)) for need in record.needs]
    for level in LEVELS:
        got, expected = estimate.interval(level), oracles.interval(record.name, arguments, level)
        close = oracles.CLOSE[record.name]
        if not all(abs(end - exact_end) <= close for end, exact_end in zip(got, expected, strict=True)):
            problem = f"has {_format_ends(got)} at {level:.0%}: expected {_format_ends(expected)}, by exact calculation"
            fails(record.name, problem, alone.describe())


def _check_symmetric(record: Metric, examples: int) -> None:
    __tracebackhide__ = True
    totals = _mirror_totals(record)
    try_examples(
        record.name,
        tables(record),
        lambda table: _check_mirrored(record, table.map_scores(_round_scores), totals),
        max(1, examples // 2),
    )


def _check_mirrored(record: Metric, table: Table, totals: Sequence[float]) -> None:
    estimate, other = table.measure(record), table.map_scores(_flip_scores).measure(record)
    for total in totals if math.isfinite(estimate.value + other.value) else ():
        low, high = _ends(estimate)
        expected, turned = (total - high, total - low), _ends(other)
        if not (_holds(turned, expected, _SAME) and _holds(expected, turned, _SAME)):
            ends = (
                f"{_format_ends((low, high))}, and {_format_ends(turned)} with right answers for wrong ones and wrong for right"
            )
            fails(record.name, f"has {ends}: expected {_format_ends(expected)}, as its value is mirrored", table.describe())


@cache
def _mirror_totals(record: Metric) -> tuple[float, ...]:
    """Returns the constant sum of a value and its value with right and wrong exchanged; empty if there is none.

    It is found from ten tables. The sum is 1 for a mean of one array of scores and 0 for the difference of two. With more arrays,
    and for means over settings, an interval may treat losses and gains differently although the value does not.
    """
    if set(record.needs) & {Needs.PERTURBED_BY_SETTING, *LABELS} or len(record.needs) > _TWO:
        return ()
    rng = np.random.default_rng(0)
    probes = [make_table(record, 12, lambda rows, columns=0: _draw_scores(rng, rows, columns, 0.5)) for _ in range(10)]
    sums = [probe.measure(record).value + probe.map_scores(_flip_scores).measure(record).value for probe in probes]
    return tuple(total for total in (0.0, 1.0) if all(abs(value_sum - total) < _CLOSE for value_sum in sums))


def _flip_scores(scores: Scores) -> Scores:
    return 1.0 - scores


def _round_scores(scores: Scores) -> Scores:
    rounded: Scores = np.round(scores)
    return rounded


def _check_pairing(record: Metric, examples: int) -> None:  # noqa: ARG001  the signature of a property
    """Compares unchanged scores with the same scores in a different order for each setting."""
    __tracebackhide__ = True
    rng = np.random.default_rng(0)
    for share in (0.5, 0.8):
        answers = _draw_scores(rng, _PAIRS, 0, share)
        narrow, wide, same = _unchanged_and_mixed(record, answers, SETTINGS, rng)
        if not (
            _is_clearly_narrower(narrow, wide) or _is_clearly_narrower(*_unchanged_and_mixed(record, answers, _FEW, rng)[:2])
        ):
            ends = f"{_format_ends(narrow)} for scores that nothing changes, and {_format_ends(wide)}"
            fails(
                record.name, f"has {ends} for the same ones in another order: which belong together says nothing", same.describe()
            )


def _is_clearly_narrower(narrow: Bounds, wide: Bounds) -> bool:
    return narrow[1] - narrow[0] < _CLEARLY * (wide[1] - wide[0])


def _unchanged_and_mixed(
    record: Metric, answers: Scores, settings: Sequence[str], rng: np.random.Generator
) -> tuple[Bounds, Bounds, Table]:
    """Returns the intervals for unchanged scores and for the same scores in other orders, and the first table."""

    def same_scores(rows: int, columns: int = 0) -> Scores:
        return np.repeat(answers[:rows, None], columns, axis=1) if columns else answers[:rows]

    same = make_table(record, _PAIRS, same_scores, settings)
    if same.scores.no_image is not None:
        same = dataclasses.replace(same, scores=dataclasses.replace(same.scores, no_image=np.zeros(_PAIRS)))
    shuffled = same.map_scores(lambda scores: scores[rng.permutation(len(scores))])
    return _ends(same.measure(record)), _ends(shuffled.measure(record)), same


def _check_binomial(record: Metric, examples: int) -> None:
    """Counts misses exactly: with samples of two kinds, the number of each kind is binomial."""
    __tracebackhide__ = True
    pairs = itertools.islice(_pairs(record), max(1, examples // 12))
    for kinds, size in zip(pairs, itertools.cycle(_SIZES), strict=False):
        risks = _misses(record, kinds, size)
        for side, rates in zip(("low", "high"), risks, strict=True):
            risk = (1.0 - USUAL) / 2.0
            average, most = float(rates.mean()), float(rates.max())
            if average > ON_AVERAGE * risk or most > ANYWHERE * risk:
                problem = (
                    f"has a {side} end at {USUAL:.0%} that the truth misses with probability {average:.3f} on average and "
                    f"{most:.3f} at most, instead of {risk:.3f}: of {size} samples of two kinds, mixed in {rates.size} ways"
                )
                fails(record.name, problem, kinds.describe())


def _pairs(record: Metric) -> Iterator[Table]:
    """Yields tables of two samples whose mixtures give different values."""
    for seed in range(_TRIES):
        rng = np.random.default_rng(seed)
        kinds = make_table(record, 2, lambda rows, columns=0, rng=rng: _draw_scores(rng, rows, columns, 0.5))
        few, many = (_value(record, kinds, part) for part in (1, _PARTS - 1))
        if math.isfinite(few + many) and abs(few - many) > _CLOSE:
            yield kinds


def _misses(record: Metric, kinds: Table, size: int) -> tuple[Scores, Scores]:
    """Returns the probabilities that the truth lies below the low end and above the high end, for each of several truths.

    An undefined interval, or one that does not apply, never counts as a miss.
    """
    low, high = np.array([_ends(kinds.measure(record, kinds.of(_mixture(count, size)))) for count in range(size + 1)]).T
    truths = {part: _value(record, kinds, part) for part in _TRUTHS}
    defined = [(truth, _chances(part, size)) for part, truth in truths.items() if math.isfinite(truth)]
    above = np.array([chances[low > truth + _CLOSE].sum() for truth, chances in defined])
    below = np.array([chances[high < truth - _CLOSE].sum() for truth, chances in defined])
    return above, below


def _value(record: Metric, kinds: Table, part: int) -> float:
    return kinds.measure(dataclasses.replace(record, interval=None), kinds.of(_mixture(part, _PARTS))).value


def _mixture(first: int, of: int) -> list[int]:
    return [0] * first + [1] * (of - first)


@cache
def _chances(part: int, size: int) -> Scores:
    """Returns the probability of each number of samples of the first kind.

    The binomial distribution is written out: ``scipy.stats`` takes 23 MB, and nothing else needs it.
    """
    from scipy import special  # imported here, because a gate with remembered checks does not need it

    first, share = np.arange(size + 1), part / _PARTS
    ways = special.gammaln(size + 1) - special.gammaln(first + 1) - special.gammaln(size - first + 1)
    chances: Scores = np.exp(ways + special.xlogy(first, share) + special.xlog1py(size - first, -share))
    return chances


def _ends(estimate: Estimate) -> Bounds:
    return (estimate.low, estimate.high) if estimate.finite and estimate.valid else (math.nan, math.nan)


def _check_coverage(record: Metric, examples: int) -> None:
    """Simulates samples from a population in which all settings cost the same."""
    __tracebackhide__ = True
    from scipy import special

    rng, runs = np.random.default_rng(0), 3 * examples
    population = make_table(record, _QUESTIONS, lambda rows, columns=0: _quota(rng, rows, columns, _SHARE), _ALIKE)
    truth = population.measure(record).value
    if not math.isfinite(truth):
        return
    drawn = [population.of(rng.integers(_QUESTIONS, size=_SAMPLES)) for _ in range(runs)]
    low, high = np.array([_ends(population.measure(record, scores)) for scores in drawn]).T
    risk = (1.0 - USUAL) / 2.0
    for side, misses in (("low", int((low > truth + _CLOSE).sum())), ("high", int((high < truth - _CLOSE).sum()))):
        if special.bdtrc(misses - 1, runs, ON_AVERAGE * risk) < SURPRISING:
            problem = f"has a {side} end at {USUAL:.0%} that the truth {truth:.4f} misses in {misses} of {runs} simulated runs"
            fails(
                record.name, problem, f"{_SAMPLES} samples at a time of a population of {_QUESTIONS}, in which settings are alike"
            )


def _draw_scores(rng: np.random.Generator, rows: int, columns: int, share: float) -> Scores:
    return (rng.random((rows, columns) if columns else rows) < share).astype(np.float64)


def _quota(rng: np.random.Generator, rows: int, columns: int, share: float) -> Scores:
    """Returns scores with an exact share of ones, in a different order in each column."""
    right = np.repeat((np.arange(rows) < share * rows).astype(np.float64)[:, None], max(columns, 1), axis=1)
    mixed: Scores = rng.permuted(right, axis=0)
    return mixed if columns else mixed[:, 0]


def _holds(wide: Bounds, narrow: Bounds, close: float = _CLOSE) -> bool:
    """Whether an interval contains another; a missing interval counts as contained and containing."""
    if any(map(math.isnan, (*wide, *narrow))):
        return True
    return wide[0] <= narrow[0] + close and wide[1] >= narrow[1] - close


def _format_ends(ends: Sequence[float]) -> str:
    return f"[{ends[0]!r}, {ends[1]!r}]"


def _no_interval(record: Metric) -> str:
    return "" if record.interval else "it has no interval"


def _no_reference(record: Metric) -> str:
    has_oracle = record.function.__module__.startswith(BUILT_IN) and record.name in oracles.INTERVALS
    return _no_interval(record) or ("" if has_oracle else "no exact calculation of its interval is known")


def _not_paired(record: Metric) -> str:
    if why := _no_interval(record):
        return why
    return "" if record.unchanged == 0.0 else "its record claims no value of 0 for scores that nothing changes (unchanged=)"


def _compares(record: Metric) -> bool:
    return len(set(record.needs) & _PAIRED) > 1


def _unsymmetric(record: Metric) -> str:
    return _no_interval(record) or ("" if _mirror_totals(record) else "it is no mean of scores, and no difference of two")


def _of_scores_alone(record: Metric) -> bool:
    return not set(record.needs) & LABELS


def _of_several(record: Metric) -> bool:
    return bool(set(record.needs) & {Needs.PERTURBED_BY_SETTING, *LABELS})


INTERVALS = {
    "ordered": Property(
        "its interval holds its value, and is not narrower at a higher level", _on_tables(_check_ordered), unclaimed=_no_interval
    ),
    "doubtful": Property(
        "its interval has a width although all of a few samples are alike", _check_doubtful, _of_scores_alone, _no_interval
    ),
    "duplicated": Property(
        "its interval is not narrower when every sample is there twice, both of one source image",
        _on_tables(_check_duplicated),
        unclaimed=_no_interval,
    ),
    "reference": Property(
        "its interval is that of an exact calculation in plain Python", _on_tables(_check_reference), unclaimed=_no_reference
    ),
    "symmetric": Property("its interval is mirrored where its value is", _check_symmetric, unclaimed=_unsymmetric),
    "pairing": Property(
        "its interval is narrower for scores that nothing changes than for the same ones in another order",
        _check_pairing,
        _compares,
        _not_paired,
    ),
    "binomial": Property(
        "the truth misses its interval as rarely as it says, counted exactly for samples of two kinds",
        _check_binomial,
        _of_scores_alone,
        _no_interval,
    ),
    "coverage": Property(
        "the truth misses its interval as rarely as it says, simulated for settings that are alike",
        _check_coverage,
        _of_several,
        _no_interval,
    ),
}
"""All laws of intervals, by their name in test ids."""


# Laws of the verdicts on a metric, on generated tables of scores: one check for each law.


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


def _no_population(record: Metric) -> str:
    return "" if record.interval else "it has no interval: its verdicts hold for the samples at hand only"


LAWS = {
    "tighter_bound": Property("a tighter bound never gives a better verdict", _on_trials(_tighter_bound)),
    "more_samples": Property(
        "more samples of the same kind never turn a PASS into a FAIL, or a FAIL into a PASS",
        _on_trials(_more_samples),
        unclaimed=_no_population,
    ),
    "more_risk": Property(
        "a larger risk of being wrong, shared by fewer tests, never undoes a PASS or a FAIL",
        _on_trials(_more_risk),
        unclaimed=_no_population,
    ),
    "point_value": Property(
        "a PASS or FAIL about all such questions is also one about the samples",
        _on_trials(_point_value),
        unclaimed=_no_population,
    ),
    "unknown": Property("what is missing, or does not apply, never passes and never fails", _on_trials(_unknown)),
}
"""All laws of verdicts, by their name in test ids."""
