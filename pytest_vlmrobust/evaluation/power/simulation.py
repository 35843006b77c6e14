"""Power: how likely a policy decides GO, NO-GO or INCONCLUSIVE for a model whose true behaviour is known.

Answers are drawn from a :class:`~.profiles.ModelProfile`, metrics are estimated and judged with the code of a real run
(``metrics.estimate``, the policy with its risk shared by all planned tests, ``core.decision.decide``), and decisions are counted.
Inference never fails and every answer can be parsed; waivers apply as on the day of the simulation.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cache, cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.cell import CLEAN_NAME, NO_IMAGE_NAME, Cell, Setting
from pytest_vlmrobust.core.decision import WORST_FIRST, Decision, Outcome, decide
from pytest_vlmrobust.core.errors import UsageError
from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.evaluation.judge.context import BASELINE, OBSERVATORY
from pytest_vlmrobust.evaluation.judge.measurements import metric_keys
from pytest_vlmrobust.evaluation.judge.reads import attempts_of
from pytest_vlmrobust.evaluation.judge.scopes import is_relative, own_settings, suite_tests
from pytest_vlmrobust.evaluation.judge.strata import MACRO
from pytest_vlmrobust.evaluation.run.plan import needs_counterpart
from pytest_vlmrobust.metrics.statistics.means import BoundedMeanTest
from pytest_vlmrobust.metrics.statistics.paired import BoundTest, TangoTest
from pytest_vlmrobust.metrics.statistics.ratios import ratio_p_values
from pytest_vlmrobust.metrics.table import LEAST_PICTURES
from pytest_vlmrobust.policies import Extent, JudgedBy, MetricKey, OnNotApplicable, Policy, Rule, Tier

from .observers import TASKS, TaskTable
from .profiles import CONFIDENT, OF_FLAGS, QUESTIONS, Profile, Views, beside_scores

if TYPE_CHECKING:
    from pytest_vlmrobust.metrics.statistics.clusters import Clusters
    from pytest_vlmrobust.metrics.table import ScoreTable

    from .profiles import ModelProfile

    Array = NDArray[np.float64]

SIMULATED = ("corruptions", "patches", "resolution", *QUESTIONS, OBSERVATORY)
"""Suites whose answers can be drawn: of questions, or of the Observatory's tasks."""
DECIDED = 0.8
"""Required share of runs that end GO or NO-GO."""
_MOST_SAMPLES = 30_000
_WORST_FIRST = (*(outcome for outcome in WORST_FIRST if outcome is not Outcome.PASS), Outcome.PASS)
"""Which outcome of a rule's tests counts: a warning of one test is reported although all others pass."""
_LOSSES: dict[str, Callable[[ScoreTable, Sequence[str]], Array]] = {
    "accuracy_drop": lambda table, names: table.clean[:, None] - _now(table, names),
    "baseline_drop": lambda table, names: _earlier(table, names) - _now(table, names),
    "baseline_flip_rate": lambda table, names: abs(_earlier(table, names) - _now(table, names)),
    "drop_increase": lambda table, names: (
        table.clean[:, None] - _now(table, names) - _earlier(table, [CLEAN_NAME]) + _earlier(table, names)
    ),
    "harmful_flip_rate": lambda table, names: (table.clean[:, None] - _now(table, names)).clip(min=0.0),
}
"""For metrics of a cell that are a mean of per-sample differences: these differences, shape (N, m)."""


@dataclass(frozen=True, slots=True)
class SimulatedTests:
    """The simulated part of a policy: the tests of each blocking rule, and why other rules have none."""

    policy: Policy
    """With its risk shared by the tests of the run."""
    tests: Mapping[str, tuple[tuple[str, MetricKey], ...]]
    """Rule id to (table, test); see :meth:`~.profiles.ModelProfile.draw` for the names of tables."""
    left_out: Mapping[str, str]
    """Rule id, or suite, to why it is not simulated. Results assume that these are kept."""
    idle: Mapping[str, str]
    """Rule id to why it does not count: it only warns, or is about other data."""
    shortfalls: tuple[str, ...] = ()
    """Why such a run is never GO, regardless of its measurements."""

    @property
    def tables(self) -> tuple[str, ...]:
        """Tables whose answers are needed, in a fixed order."""
        needed = {table for tests in self.tests.values() for table, _ in tests}
        return (*(suite for suite in SIMULATED if suite in needed), *sorted(needed - set(SIMULATED)))

    @property
    def given(self) -> str:
        """The assumption behind shares of decisions, such as ``given that context-helps is kept``; empty if all is simulated."""
        left = [name for name in self.left_out if name not in SIMULATED] or list(self.left_out)
        return f"given that {', '.join(left)} {'is' if len(left) == 1 else 'are'} kept" if left else ""


@dataclass(frozen=True, slots=True)
class Power:
    """Shares of the decisions of a policy over simulated runs with ``n`` samples each."""

    profile: str
    n: int
    runs: int
    decisions: Mapping[Decision, float]
    """Share of runs."""
    outcomes: Mapping[str, Mapping[Outcome, float]]
    """Rule id to the share of runs with each outcome, the worst of its tests; MEASURED is a warning."""
    alone: Mapping[str, float] = field(default_factory=dict)
    """Rule id to the share of runs in which it alone kept the run from GO."""

    def share(self, decision: Decision) -> float:
        """Returns the share of runs that ended with this decision."""
        return self.decisions.get(decision, 0.0)

    @property
    def decided(self) -> float:
        """The share of runs that ended GO or NO-GO."""
        return self.share(Decision.GO) + self.share(Decision.NO_GO)

    def error(self, decision: Decision) -> float:
        """Returns the Monte Carlo standard error of a share: that of (k + 1) / (runs + 2), so that it is never 0."""
        share = (self.share(decision) * self.runs + 1.0) / (self.runs + 2.0)
        return math.sqrt(share * (1.0 - share) / self.runs)

    def of_models(self, models: int) -> Power:
        """Returns the power of a run with several such models, assumed independent: all must be GO."""
        go = self.share(Decision.GO) ** models
        no_go = 1.0 - (1.0 - self.share(Decision.NO_GO)) ** models
        several = {Decision.GO: go, Decision.NO_GO: no_go, Decision.INCONCLUSIVE: max(1.0 - go - no_go, 0.0)}
        return replace(self, decisions=several)


def plan(policy: Policy, truth: ModelProfile) -> SimulatedTests:
    """Returns the tests of a simulated run of the suites that a policy requires; of ``corruptions`` if it requires none."""
    required = policy.coverage.suites or SIMULATED[:1]
    answered = [suite for suite in required if truth.settings(suite)]
    every = {test: table for suite in answered for test, table in _tests(suite, truth, policy).items()}
    others = [test for suite in required if suite not in answered for test in suite_tests(suite)]
    others += [test for suite in required if suite not in answered for task in TASKS for test in suite_tests(suite, task)]
    tests: dict[str, tuple[tuple[str, MetricKey], ...]] = {}
    left_out: dict[str, str] = {}
    idle: dict[str, str] = {}
    shortfalls = []
    for rule in policy.rules:
        met = {test: table for test, table in every.items() if rule.applies(test)}
        simulated = tuple((table, test) for test, table in met.items() if not truth.lacks(test.metric))
        if rule.treatment.tier is Tier.WARN:
            idle[rule.id] = "only warns"
        elif is_relative(rule) and not truth.has_baseline:
            idle[rule.id] = "compares with an earlier run, and there is none (--profile equal-to-baseline has one)"
            if rule.treatment.on_not_applicable is OnNotApplicable.INCONCLUSIVE:
                shortfalls.append(f"rule {rule.id} asks for --vlm-baseline")
        elif met:
            if simulated:
                tests[rule.id] = simulated
            else:
                left_out[rule.id] = truth.lacks(rule.metric)
        elif rule.where.category and any(rule.bounds(test) for test in every):
            of = ", ".join(truth.categories) or "none"
            left_out[rule.id] = f"is about the category {' or '.join(rule.where.category)}, and {truth.name} has {of}"
        elif any(rule.bounds(test) for test in others):
            left_out[rule.id] = "is about a suite that is not simulated here"
        else:
            idle[rule.id] = f"no test of a run on {truth.dataset} is in its scope"
            measured = any(test.metric == rule.metric for test in every)
            if measured and policy.coverage.rules is Extent.WHOLE:
                shortfalls.append(f"rule {rule.id} meets no test, and coverage asks that all rules do")
    left_out |= {suite: _why_unanswered(suite) for suite in required if suite not in answered}
    whole = [test for test in every if not test.category]
    return SimulatedTests(policy.for_tests(whole), tests, left_out, idle, tuple(shortfalls))


def _why_unanswered(suite: str) -> str:
    if suite == OBSERVATORY:
        return "profiles answer questions; models at the Observatory's tasks are simulated where a policy asks for no other suite"
    return "a suite that the policy asks for, and of which no answers are drawn"


def _tests(suite: str, truth: ModelProfile, policy: Policy) -> dict[MetricKey, str]:
    """Returns the tests of a run of one suite, each with its table."""
    table_of: dict[MetricKey, str] = {}
    ends = () if suite in ("patches", "resolution") else (CLEAN_NAME, NO_IMAGE_NAME)
    whole = [name for name in ends if suite in SIMULATED or name in own_settings(suite)]
    for dataset, facts in truth.datasets.items():
        table = dataset if facts.task else suite
        keys = []
        for name in (*whole, *truth.settings(suite)):
            cell = Cell(truth.name, dataset, Setting.parse(name))
            tried = not facts.task and attempts_of(cell, policy, always=False) is not None
            keys += metric_keys(cell, facts, baseline=truth.has_baseline, attempts=tried)
        sweeps = [test for test in sorted(suite_tests(suite, facts.task), key=str) if _is_summary(test.metric, truth)]
        keys += [replace(test, model=truth.name, dataset=dataset) for test in sweeps]
        table_of |= {test: f"{table}{beside_scores(test.metric)}" for test in keys}
        for category in truth.categories:
            part = {
                replace(test, category=category, strata=len(truth.categories)): f"{table_of[test]}/{category}" for test in keys
            }
            table_of |= {test: where for test, where in part.items() if _by_category(test, suite)}
    return table_of


def _is_summary(metric: str, truth: ModelProfile) -> bool:
    """Whether a run of one model has a test of a metric over several settings: one that needs no other model."""
    plain = metric.removesuffix(MACRO)
    if plain not in metrics.REGISTRY or metrics.get(plain).scope != "sweep" or needs_counterpart(plain):
        return False
    return truth.has_baseline or metrics.get(plain).suite != BASELINE


def _by_category(test: MetricKey, suite: str) -> bool:
    """Whether a run judges a metric by category too: cell metrics from their scores, and metrics of curves over sizes."""
    if test.metric not in metrics.names():
        return False
    about = metrics.get(test.metric)
    return about.suite != BASELINE and (about.scope == "cell" or suite == about.suite == "resolution")


@dataclass(eq=False)
class Simulation:
    """Draws runs of one true model and judges them by one policy."""

    policy: Policy
    truth: ModelProfile
    today: date
    chosen: SimulatedTests | None = None
    """The simulated part; ``None`` for everything that the policy requires."""

    @cached_property
    def planned(self) -> SimulatedTests:
        """The simulated part of the policy."""
        return self.chosen or plan(self.policy, self.truth)

    def run(self, n: int, runs: int, rng: np.random.Generator, progress: Callable[[int], None] = lambda _: None) -> Power:
        """Simulates ``runs`` runs with ``n`` samples each."""
        decisions: Counter[Decision] = Counter()
        outcomes: dict[str, Counter[Outcome]] = {name: Counter() for name in self.planned.tests}
        alone: Counter[str] = Counter()
        for number in range(runs):
            results = self.outcomes(self.truth.draw(n, self.planned.tables, rng))
            decisions[decide(results.values(), shortfalls=len(self.planned.shortfalls))] += 1
            for name, outcome in results.items():
                outcomes[name][outcome] += 1
            against = [name for name, outcome in results.items() if outcome in _AGAINST]
            if len(against) == 1:
                alone[against[0]] += 1
            progress(number + 1)
        return Power(
            self.truth.name,
            n,
            runs,
            {decision: decisions[decision] / runs for decision in Decision},
            {name: {outcome: count / runs for outcome, count in counted.items()} for name, counted in outcomes.items()},
            {name: count / runs for name, count in alone.items()},
        )

    def outcomes(self, tables: Mapping[str, ScoreTable]) -> dict[str, Outcome]:
        """Returns the outcome of each rule on drawn scores: the worst of its tests."""
        rules = {rule.id: rule for rule in self.planned.policy.rules}
        known: dict[tuple[object, ...], Estimate] = {}
        return {
            name: min(self._decisive(rules[name], tests, tables, known), key=_WORST_FIRST.index, default=Outcome.NOT_APPLICABLE)
            for name, tests in self.planned.tests.items()
        }

    def _decisive(
        self,
        rule: Rule,
        tests: Sequence[tuple[str, MetricKey]],
        tables: Mapping[str, ScoreTable],
        known: dict[tuple[object, ...], Estimate],
    ) -> Iterator[Outcome]:
        """Yields outcomes of the tests that can decide a rule."""
        for name, test in _decisive_tests(rule, tests, tables):
            estimate = self._estimate(name, test, tables, known, point=rule.treatment.judge is JudgedBy.POINT)
            yield self._outcome(rule, test, estimate, tables[name])

    def decisive(self, name: str, tables: Mapping[str, ScoreTable]) -> list[Estimate]:
        """Returns the estimates of the tests that can decide a rule, by its id."""
        rule = next(rule for rule in self.planned.policy.rules if rule.id == name)
        return [
            self._estimate(table, test, tables, {}) for table, test in _decisive_tests(rule, self.planned.tests[name], tables)
        ]

    def _outcome(self, rule: Rule, test: MetricKey, estimate: Estimate, table: ScoreTable) -> Outcome:
        needs = metrics.get(test.metric).needs if test.metric in metrics.names() else ()
        if metrics.Needs.CATEGORIES in needs and len({*(table.categories or ())} - {""}) < 2:
            estimate = replace(estimate, valid=False, reason=f"no two categories of {LEAST_PICTURES} or more source images")
        outcome = self.planned.policy.outcome(rule, test, estimate, today=self.today)
        if outcome is Outcome.PASS and isinstance(table, TaskTable) and test.setting == CLEAN_NAME and table.not_looking:
            refused = replace(estimate, valid=False, reason=table.not_looking)
            return self.planned.policy.outcome(rule, test, refused, today=self.today)
        return outcome

    def _estimate(
        self,
        name: str,
        test: MetricKey,
        tables: Mapping[str, ScoreTable],
        known: dict[tuple[object, ...], Estimate],
        *,
        point: bool = False,
    ) -> Estimate:
        about, table = (name, test.metric, test.setting, point), tables[name]
        if about not in known:
            bare = _without_note(test.metric, point=point) if test.metric in metrics.names() else None
            if isinstance(table, TaskTable):
                estimate = table.estimate(test, bare)
            else:
                metric, turned = OF_FLAGS.get(test.metric, (test.metric, False))
                cell = metrics.get(metric).scope == "cell"
                estimate = metrics.estimate(bare or metric, table, setting=test.setting if cell else None)
                estimate = estimate.complement() if turned else estimate
            known[about] = replace(estimate, at=_remembering(estimate))
        return known[about]

    def samples_to_decide(
        self,
        n: int,
        runs: int,
        rng: np.random.Generator,
        *,
        most: int = _MOST_SAMPLES,
        progress: Callable[[str], None] = lambda _: None,
    ) -> tuple[int, int | None]:
        """Returns the sizes between which 80 % of runs become decided, ``(too few, enough)``; None for more than ``most``.

        Doubles or halves ``n``, then takes two steps between; each size has ``runs`` runs, so the ends are rough.
        """

        def enough(size: int) -> bool:
            progress(f"{size} samples")
            return self.run(size, runs, rng).decided >= DECIDED

        low, high = n, n
        if enough(n):
            while low > 25 and enough(low // 2):
                low //= 2
            low, high = low // 2, low
        else:
            while not enough(high * 2):
                high *= 2
                if high * 2 > most:
                    return high, None
            low, high = high, high * 2
        for _ in range(2):
            middle = round(math.sqrt(low * high))
            low, high = (low, middle) if enough(middle) else (middle, high)
        return low, high


_AGAINST = {Outcome.FAIL, Outcome.INCONCLUSIVE, Outcome.NOT_APPLICABLE, Outcome.ERROR}


def _remembering(estimate: Estimate) -> Callable[[float], tuple[float, float]] | None:
    known = {estimate.confidence: (estimate.low, estimate.high)}
    at = estimate.at
    if at is None:
        return None

    def interval(level: float) -> tuple[float, float]:
        if level not in known:
            known[level] = at(level)
        return known[level]

    return interval


@cache
def _without_note(metric: str, *, point: bool) -> metrics.Metric:
    """Returns a metric without its note, which may cost a cross-validation, and for points without its interval."""
    about = replace(metrics.get(metric), note=None)
    return replace(about, interval=None) if point else about


class _PValues(NamedTuple):
    """How surely each test of a rule breaks or keeps its upper bound; shape (m,) each. Only the order matters."""

    above: Array
    """Small values break it."""
    below: Array
    """Small values keep it."""


def _decisive_tests(
    rule: Rule, tests: Sequence[tuple[str, MetricKey]], tables: Mapping[str, ScoreTable]
) -> Iterator[tuple[str, MetricKey]]:
    """Yields the tests that can decide a rule: of each suite the one furthest from PASS and the one nearest to FAIL.

    All tests of a rule are judged at the same risk, so the p-values at its bound, computed in one pass over all
    settings, give their order.
    """
    for suite in dict.fromkeys(suite for suite, _ in tests):
        if not tables[suite].samples:  # a category without drawn samples, as in a run without questions of it
            continue
        keys = [test for where, test in tests if where == suite]
        point = rule.treatment.judge is JudgedBy.POINT
        p_values = None if point else _p_values(rule, tables[suite], [test.setting for test in keys])
        places = range(len(keys)) if p_values is None else sorted({int(p_values.below.argmax()), int(p_values.above.argmin())})
        yield from ((suite, keys[place]) for place in places)


def _p_values(rule: Rule, table: ScoreTable, settings: Sequence[str]) -> _PValues | None:
    """Returns the p-values of tests of 0/1 scores at the upper bound of a rule, or None if the metric has none.

    Metrics of confidence are ordered by their values, because their intervals are too expensive for every setting.
    """
    if beside_scores(rule.metric).endswith(CONFIDENT) and not math.isfinite(rule.bound.low):
        observed = np.array([values(rule.metric, table, setting) for setting in settings])
        return _PValues(-observed, observed)
    if rule.metric not in {*_LOSSES, "relative_corruption_error"} or math.isfinite(rule.bound.low):
        return None
    if not (_whole(table.clean) and _whole(_now(table, settings))):
        return None
    if rule.metric == "relative_corruption_error":
        gained = table.clean - table.scores(NO_IMAGE_NAME)
        lost = table.clean[:, None] - _now(table, settings)
        return _of_gain_shares(lost, gained, rule.bound.high, table.clusters) if _whole(gained) else None
    losses = _LOSSES[rule.metric](table, settings)
    return _of_losses(rule, losses, table.clusters) if _whole(losses) else None


def _of_gain_shares(lost: Array, gained: Array, bound: float, clusters: Clusters) -> _PValues:
    """Returns the p-values of shares of the visual gain; for clusters, means in standard errors instead."""
    if clusters.independent:
        return _PValues(*ratio_p_values(lost, gained, bound))
    contrasts = lost - bound * gained[:, None]
    errors = contrasts.mean(axis=0) / np.sqrt(np.maximum(clusters.variances(contrasts), 1e-300))
    return _PValues(-errors, errors)


def _of_losses(rule: Rule, losses: Array, clusters: Clusters) -> _PValues | None:
    bound = rule.bound.high
    if not -1.0 < bound < 1.0:
        return None
    if rule.metric in ("harmful_flip_rate", "baseline_flip_rate"):
        more = losses.sum(axis=0)  # for a proportion of independent samples, the count alone gives the order
        return _PValues(-more, more) if clusters.independent else None
    of = BoundedMeanTest.of_increases if rule.metric == "drop_increase" else TangoTest.of
    test: BoundTest = of(losses, clusters)
    return _PValues(test.p_above(bound), test.p_below(bound))


def _whole(scores: Array) -> bool:
    return bool((scores == scores.round()).all())


def _now(table: ScoreTable, names: Sequence[str]) -> Array:
    return np.stack([table.scores(name) for name in names], axis=1)


def _earlier(table: ScoreTable, names: Sequence[str]) -> Array:
    return np.stack([(table.baseline_by_setting or {})[name] for name in names], axis=1)


def values(metric: str, table: ScoreTable, setting: str) -> float:
    """Returns the value of a metric on a table, NaN if undefined; ``setting`` is used for metrics of a cell."""
    about = metrics.get(metric)
    key = setting if about.scope == "cell" else None
    value = about.function(*(table.argument(need, key) for need in about.needs))
    return float(value)


# Shift: models for which one metric has a given value.


_OPEN = 0.6
"""Accuracy of a model that context distracts: with a higher one, too little is left for patches to do better."""
_POPULATION = 4_000
_STEPS = 26

_Move = Callable[[Profile, float, Sequence[str]], Profile]


def _set_clean(profile: Profile, value: float, _: Sequence[str]) -> Profile:
    clean = min(max(value, 0.01), 0.999)
    return replace(profile, clean=clean, blind=max(profile.blind + clean - profile.clean, 0.0))


def _set_gain(profile: Profile, value: float, _: Sequence[str]) -> Profile:
    return replace(profile, blind=min(max(profile.clean - value, 0.0), 1.0))


def _scale_drops(profile: Profile, factor: float, _: Sequence[str]) -> Profile:
    drops = {name: min(drop * factor, profile.clean) if drop > 0.0 else drop for name, drop in profile.drops.items()}
    return replace(profile, drops=drops)


def _move_worst_drop(profile: Profile, value: float, among: Sequence[str]) -> Profile:
    worst = max(among, key=profile.drops.__getitem__)
    return replace(profile, drops={**profile.drops, worst: value})


def _move_most_flips(profile: Profile, value: float, among: Sequence[str]) -> Profile:
    worst = max(among, key=lambda name: profile.drops[name] + profile.helpful[name])
    helpful = min(max(value - profile.drops[worst], 0.0), 1.0 - profile.clean)
    return replace(profile, helpful={**profile.helpful, worst: helpful}, drops={**profile.drops, worst: value - helpful})


def _add_flips(profile: Profile, value: float, _: Sequence[str]) -> Profile:
    return replace(profile, helpful={name: share + value for name, share in profile.helpful.items()})


def _set_lost(profile: Profile, value: float, _: Sequence[str]) -> Profile:
    return replace(profile, lost=value)


def _distract(profile: Profile, value: float, _: Sequence[str]) -> Profile:
    return replace(profile, clean=min(profile.clean, _OPEN), blind=min(profile.blind, profile.guess), views=Views(finds=value))


_MOVES: dict[str, tuple[_Move, float, float]] = {
    "clean_accuracy": (_set_clean, 0.01, 0.999),
    "accuracy": (_set_clean, 0.01, 0.999),
    "accuracy_above_chance": (_set_clean, 0.01, 0.999),
    "visual_gain": (_set_gain, -0.2, 0.999),
    "accuracy_drop": (_move_worst_drop, -0.2, 0.9),
    "relative_corruption_error": (_move_worst_drop, -0.2, 0.9),
    "worst_case_drop": (_move_worst_drop, -0.2, 0.9),
    "worst_at_low": (_move_worst_drop, -0.2, 0.9),
    "harmful_flip_rate": (_move_most_flips, 0.0, 0.9),
    "mean_harmful_flip_rate": (_add_flips, -0.05, 0.3),
    "baseline_drop": (_set_lost, 0.0, 0.5),
    "mean_baseline_drop": (_set_lost, 0.0, 0.5),
    "baseline_flip_rate": (_set_lost, 0.0, 0.5),
    "drop_increase": (_set_lost, 0.0, 0.5),
    "pcri_matched": (_distract, 0.0, 1.0),
}
"""How a profile is moved until a metric has a value, and the range. Any other metric of perturbed answers moves with the
factor of all drops."""
_FACTOR: tuple[_Move, float, float] = (_scale_drops, 0.0, 40.0)


def _suite(metric: str) -> str:
    """Returns the suite whose answers a metric is simulated from."""
    return "patches" if metrics.get(metric).suite == "patches" else "corruptions"


def shift(profile: Profile, metric: str, value: float) -> Profile:
    """Returns the profile with the true value of one metric moved to ``value``; for a cell metric, that of its worst setting."""
    about = metrics.get(metric)
    move, low, high = _MOVES.get(metric, _FACTOR)
    if metric not in _MOVES and about.suite not in ("", "corruptions"):
        raise UsageError(
            f"--shift {metric}: profiles have nothing that moves it. They move: {', '.join(_MOVES)}, and what follows from drops"
        )
    among = _scope(metric, profile)
    worst = min if move is _distract else max
    if move is _set_lost and profile.churn is None:
        profile = replace(profile, churn=0.0)

    def at(place: float) -> float:
        moved = move(profile, place, among)
        table = moved.exact(_POPULATION, (_suite(metric),))[_suite(metric)]
        settings = among if about.scope == "cell" else [""]
        return worst(values(metric, table, setting) for setting in settings) - value

    if at(low) * at(high) > 0.0:
        raise UsageError(
            f"--shift {metric}={value:g}: it cannot be moved there: from {at(low) + value:.3g} to {at(high) + value:.3g}"
        )
    rising = at(high) > at(low)
    for _ in range(_STEPS):
        middle = (low + high) / 2.0
        low, high = (low, middle) if (at(middle) > 0.0) is rising else (middle, high)
    return replace(move(profile, (low + high) / 2.0, among), name=f"{profile.name} with {metric} {value:g}")


def _scope(metric: str, profile: Profile) -> list[str]:
    if _suite(metric) == "patches":
        return list(profile.settings("patches"))
    return [name for name in profile.drops if metric != "worst_at_low" or name.endswith(":low")]
