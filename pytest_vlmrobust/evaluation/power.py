"""Power: how likely a policy says GO, NO-GO or INCONCLUSIVE of a model whose true behaviour is known.

Answers are drawn from a :class:`~.profiles.Truth`, metrics are estimated and judged by the code of a real run
(``metrics.estimate``, the policy with its risk shared by all planned tests, ``core.verdict.decide``), and decisions are counted.
Inference never fails and every answer can be read; waivers hold as on the day of the simulation.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, NamedTuple

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.cell import CLEAN_NAME, NO_IMAGE_NAME, Cell, Setting
from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.core.verdict import Decision, Outcome, decide
from pytest_vlmrobust.metrics.selections import low_settings
from pytest_vlmrobust.metrics.statistics.contrasts import ratio_p_values
from pytest_vlmrobust.metrics.statistics.differences import BoundTest, TangoTest
from pytest_vlmrobust.metrics.statistics.guarded import BoundedMeanTest
from pytest_vlmrobust.metrics.statistics.quantiles import one_sided
from pytest_vlmrobust.policies import Extent, Judge, JudgedTest, OnNotApplicable, Policy, Rule, Tier
from pytest_vlmrobust.policies.policy import WORST_FIRST

from .judged import judged_tests
from .known_tests import suite_tests
from .policy_files import is_relative

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pytest_vlmrobust.metrics.statistics.clusters import Clusters
    from pytest_vlmrobust.metrics.table import ScoreTable

    from .profiles import Truth

    Array = NDArray[np.float64]

SIMULATED = ("corruptions", "patches", "resolution")
"""Suites whose answers can be drawn."""
DECIDED = 0.8
"""The share of runs that should end GO or NO-GO."""
_MOST_SAMPLES = 30_000
_NEAR = 1e-3
"""P-values and risks that differ by less, relatively, are compared by the real interval."""
_LARGEST: dict[str, Callable[[Iterable[str]], tuple[str, ...]]] = {"worst_case_drop": tuple, "worst_at_low": low_settings}
"""Metrics that are the largest drop, and over which settings."""
_WORST_FIRST = (*(one for one in WORST_FIRST if one is not Outcome.PASS), Outcome.PASS)
"""What counts of the tests of one rule: a warning of one of them is said although all others pass."""
_LOSSES: dict[str, Callable[[ScoreTable, Sequence[str]], Array]] = {
    "accuracy_drop": lambda table, names: table.clean[:, None] - _now(table, names),
    "baseline_drop": lambda table, names: _earlier(table, names) - _now(table, names),
    "drop_increase": lambda table, names: (
        table.clean[:, None] - _now(table, names) - _earlier(table, [CLEAN_NAME]) + _earlier(table, names)
    ),
    "harmful_flip_rate": lambda table, names: (table.clean[:, None] - _now(table, names)).clip(min=0.0),
}
"""Metrics of a cell that are the mean of one difference of each sample: these differences, shape (N, m)."""


@dataclass(frozen=True, slots=True)
class Planned:
    """What of a policy is simulated: the tests of each blocking rule, and why others have none."""

    policy: Policy
    """With its risk shared by the tests of the run."""
    tests: Mapping[str, tuple[tuple[str, JudgedTest], ...]]
    """Rule id to (suite, test)."""
    left_out: Mapping[str, str]
    """Rule id to why it is not simulated. What is found holds given that these rules are kept."""
    idle: Mapping[str, str]
    """Rule id to why it has no say: it warns, or is about other data."""
    shortfalls: tuple[str, ...] = ()
    """Why such a run is never GO, whatever is measured."""

    @property
    def suites(self) -> tuple[str, ...]:
        """Suites whose answers are needed, in a fixed order."""
        needed = {suite for tests in self.tests.values() for suite, _ in tests}
        return tuple(suite for suite in SIMULATED if suite in needed)


@dataclass(frozen=True, slots=True)
class Power:
    """How often a policy ended how, over simulated runs with ``n`` samples each."""

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
        """Returns the share of runs that ended so."""
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
        """Returns the power of a run about several such models, which are taken as independent: all have to be GO."""
        go = self.share(Decision.GO) ** models
        no_go = 1.0 - (1.0 - self.share(Decision.NO_GO)) ** models
        several = {Decision.GO: go, Decision.NO_GO: no_go, Decision.INCONCLUSIVE: max(1.0 - go - no_go, 0.0)}
        return replace(self, decisions=several)


def plan(policy: Policy, truth: Truth) -> Planned:
    """Returns what a simulated run of the suites that a policy asks for judges; of ``corruptions`` where it asks for none."""
    asked = policy.coverage.suites or SIMULATED[:1]
    by_suite = {suite: _tests(suite, truth) for suite in asked if suite in SIMULATED}
    known = [test for tests in by_suite.values() for test in tests]
    judged = policy.planned(known)
    found: dict[str, tuple[tuple[str, JudgedTest], ...]] = {}
    left_out: dict[str, str] = {}
    idle: dict[str, str] = {}
    shortfalls = []
    for rule in policy.rules:
        own = {test: suite for suite, tests in by_suite.items() for test in tests if rule.applies(test)}
        if rule.treatment.tier is Tier.WARN:
            idle[rule.id] = "only warns"
        elif is_relative(rule) and not truth.has_baseline:
            idle[rule.id] = "compares with an earlier run, and there is none"
            if rule.treatment.on_not_applicable is OnNotApplicable.INCONCLUSIVE:
                shortfalls.append(f"rule {rule.id} asks for --vlm-baseline")
        elif own:
            found[rule.id] = tuple((suite, test) for test, suite in own.items())
        elif why := _not_simulated(rule, truth.dataset, asked):
            left_out[rule.id] = why
        else:
            idle[rule.id] = f"no test of a run on {truth.dataset} is in its scope"
            measured = any(test.metric == rule.metric for test in known)
            if measured and policy.coverage.rules is Extent.WHOLE:
                shortfalls.append(f"rule {rule.id} meets no test, and coverage asks that all rules do")
    left_out |= {
        suite: "a suite that the policy asks for, and that is not simulated" for suite in asked if suite not in SIMULATED
    }
    return Planned(judged, found, left_out, idle, tuple(shortfalls))


def _not_simulated(rule: Rule, dataset: str, suites: Sequence[str]) -> str:
    if rule.where.category:
        return "is about a category, and profiles have none"
    if rule.metric not in metrics.names():
        return f"{rule.metric} is not simulated"
    about = metrics.get(rule.metric)
    if about.suite == "observatory":
        return "the Observatory is not simulated" if about.suite in suites else ""
    if not rule.where.admits("dataset", dataset):
        return ""
    return f"{rule.metric} is not simulated" if about.suite in suites else ""


def _tests(suite: str, truth: Truth) -> list[JudgedTest]:
    settings = truth.settings(suite)
    whole = (CLEAN_NAME, NO_IMAGE_NAME) if suite == SIMULATED[0] else ()
    cells = [Cell(truth.name, truth.dataset, Setting.parse(name)) for name in (*whole, *settings)] if settings else []
    found = [test for cell in cells for test in judged_tests(cell, baseline=truth.has_baseline)]
    sweeps = metrics.names(scope="sweep")
    found += [
        replace(test, model=truth.name, dataset=truth.dataset)
        for test in sorted(suite_tests(suite), key=str)
        if test.metric in sweeps and (truth.has_baseline or metrics.get(test.metric).suite != "baseline")
    ]
    simulated = set(metrics.names())
    return [test for test in found if test.metric in simulated]


@dataclass(eq=False)
class Simulation:
    """Draws runs of one truth and judges them by one policy."""

    policy: Policy
    truth: Truth
    today: date

    @cached_property
    def planned(self) -> Planned:
        """What is simulated."""
        return plan(self.policy, self.truth)

    def run(self, n: int, runs: int, rng: np.random.Generator, progress: Callable[[int], None] = lambda _: None) -> Power:
        """Simulates ``runs`` runs with ``n`` samples each."""
        decisions: Counter[Decision] = Counter()
        outcomes: dict[str, Counter[Outcome]] = {name: Counter() for name in self.planned.tests}
        alone: Counter[str] = Counter()
        for number in range(runs):
            found = self.outcomes(self.truth.draw(n, self.planned.suites, rng))
            decisions[decide(found.values(), shortfalls=len(self.planned.shortfalls))] += 1
            for name, outcome in found.items():
                outcomes[name][outcome] += 1
            against = [name for name, outcome in found.items() if outcome in _AGAINST]
            if len(against) == 1:
                alone[against[0]] += 1
            progress(number + 1)
        return Power(
            self.truth.name,
            n,
            runs,
            {one: decisions[one] / runs for one in Decision},
            {name: {one: count / runs for one, count in counted.items()} for name, counted in outcomes.items()},
            {name: count / runs for name, count in alone.items()},
        )

    def outcomes(self, tables: Mapping[str, ScoreTable]) -> dict[str, Outcome]:
        """Returns what each rule concludes of drawn scores: the worst of its tests."""
        rules = {rule.id: rule for rule in self.planned.policy.rules}
        known: dict[tuple[object, ...], Estimate] = {}
        return {
            name: min(self._decisive(rules[name], tests, tables, known), key=_WORST_FIRST.index)
            for name, tests in self.planned.tests.items()
        }

    def _decisive(
        self,
        rule: Rule,
        tests: Sequence[tuple[str, JudgedTest]],
        tables: Mapping[str, ScoreTable],
        known: dict[tuple[object, ...], Estimate],
    ) -> Iterator[Outcome]:
        """Yields outcomes of the tests that can decide a rule: of each suite the furthest from PASS, and the nearest to FAIL.

        All tests of a rule are judged at the same risk, so that the p-values at its bound, which come from one pass over all
        settings, put them in order.
        """
        for suite, test, place, found in _telling(rule, tests, tables):
            real = partial(self._estimate, suite, test, tables, known, point=rule.treatment.judge is Judge.POINT)
            estimate = found.estimate(place, rule, test, tables[suite], real) if found and found.exact else real()
            yield self._judged(rule, test, estimate)

    def decisive(self, name: str, tables: Mapping[str, ScoreTable]) -> list[Estimate]:
        """Returns the estimates of the tests that can decide a rule, by its id."""
        rule = next(rule for rule in self.planned.policy.rules if rule.id == name)
        return [self._estimate(suite, test, tables, {}) for suite, test, *_ in _telling(rule, self.planned.tests[name], tables)]

    def _judged(self, rule: Rule, test: JudgedTest, estimate: Estimate) -> Outcome:
        return self.planned.policy.outcome(rule, test, estimate, today=self.today)

    def _estimate(
        self,
        suite: str,
        test: JudgedTest,
        tables: Mapping[str, ScoreTable],
        known: dict[tuple[object, ...], Estimate],
        *,
        point: bool = False,
    ) -> Estimate:
        about = suite, test.metric, test.setting, point
        if about not in known:
            cell = metrics.get(test.metric).scope == "cell"
            found = metrics.estimate(_bare(test.metric, point=point), tables[suite], setting=test.setting if cell else None)
            known[about] = replace(found, at=_remembering(found))
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
        """Returns between which sizes 80 % of runs are decided: ``(too few, enough)``; None for more than ``most``.

        By doubling from ``n``, or halving, then by two steps between; each size has ``runs`` runs, so that the ends are rough.
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

    def remembered(level: float) -> tuple[float, float]:
        if level not in known:
            known[level] = at(level)
        return known[level]

    return remembered


@cache
def _bare(metric: str, *, point: bool) -> metrics.Metric:
    """Returns a metric without what nobody reads here: its note, which may cost a cross-validation; of a point its interval."""
    about = replace(metrics.get(metric), note=None)
    return replace(about, interval=None) if point else about


class _PValues(NamedTuple):
    """How surely each test of a rule breaks its upper bound, and keeps it; shape (m,) each."""

    above: Array
    """P-values of "at most the bound": small ones break it."""
    below: Array
    """P-values of "at least the bound": small ones keep it."""
    exact: bool
    """Whether the real interval ends beyond the bound just where its tail is larger; otherwise only their order counts."""

    def estimate(self, place: int, rule: Rule, test: JudgedTest, table: ScoreTable, real: Callable[[], Estimate]) -> Estimate:
        """Returns an estimate whose intervals lie on the side of the bound on which the real ones do, with ends that say no more.

        Where a p-value and a tail are so near that rounding could tell, it is the real interval.
        """
        about, bound = metrics.get(test.metric), rule.bound.high
        if about.gate and about.gate(table, test.setting):
            return real()
        above, below = float(self.above[place]), float(self.below[place])

        def at(level: float) -> tuple[float, float]:
            tail = one_sided(level)
            if min(abs(above - tail), abs(below - tail)) <= _NEAR * tail:
                return real().interval(level)
            return bound + (1.0 if above < tail else -2.0), bound + (-1.0 if below < tail else 2.0)

        return Estimate(values(test.metric, table, test.setting), table.samples, at=at)


def _telling(
    rule: Rule, tests: Sequence[tuple[str, JudgedTest]], tables: Mapping[str, ScoreTable]
) -> Iterator[tuple[str, JudgedTest, int, _PValues | None]]:
    """Yields the tests that can decide a rule: suite, test, its place among those of the suite, and p-values where it has any."""
    for suite in dict.fromkeys(suite for suite, _ in tests):
        own = [test for where, test in tests if where == suite]
        point = rule.treatment.judge is Judge.POINT
        found = None if point else _p_values(rule, tables[suite], [test.setting for test in own])
        places = range(len(own)) if found is None else sorted({int(found.below.argmax()), int(found.above.argmin())})
        yield from ((suite, own[place], place, found) for place in places)


def _p_values(rule: Rule, table: ScoreTable, settings: Sequence[str]) -> _PValues | None:
    """Returns the p-values of tests of 0/1 scores at the upper bound of a rule, for a metric that has them; otherwise None."""
    if rule.metric not in {*_LOSSES, *_LARGEST, "relative_corruption_error"} or math.isfinite(rule.bound.low):
        return None
    names = _LARGEST[rule.metric](table.by_setting) if rule.metric in _LARGEST else settings
    if not names or not (_whole(table.clean) and _whole(_now(table, names))):
        return None
    if rule.metric == "relative_corruption_error":
        gained = table.clean - table.scores(NO_IMAGE_NAME)
        told = _whole(gained) and table.clusters.independent
        lost = table.clean[:, None] - _now(table, names)
        return _PValues(*ratio_p_values(lost, gained, rule.bound.high), exact=True) if told else None
    losses = _LOSSES["accuracy_drop" if rule.metric in _LARGEST else rule.metric](table, names)
    return _of_losses(rule, losses, table.clusters) if _whole(losses) else None


def _of_losses(rule: Rule, losses: Array, clusters: Clusters) -> _PValues | None:
    bound = rule.bound.high
    if not -1.0 < bound < 1.0:
        return None
    if rule.metric == "harmful_flip_rate":
        more = losses.sum(axis=0)  # of a proportion of independent samples, the count alone says how sure
        return _PValues(-more, more, exact=False) if clusters.independent else None
    of = BoundedMeanTest.of_losses if rule.metric == "drop_increase" else TangoTest.of
    test: BoundTest = of(losses, clusters)
    above, below = test.p_above(bound), test.p_below(bound)
    if rule.metric in _LARGEST:  # one is shown to be above it, or all to be below
        return _PValues(above.min(keepdims=True) * above.size, below.max(keepdims=True), exact=True)
    return _PValues(above, below, exact=rule.metric != "drop_increase")


def _whole(scores: Array) -> bool:
    return bool((scores == scores.round()).all())


def _now(table: ScoreTable, names: Sequence[str]) -> Array:
    import numpy as np

    return np.stack([table.scores(name) for name in names], axis=1)


def _earlier(table: ScoreTable, names: Sequence[str]) -> Array:
    import numpy as np

    return np.stack([(table.baseline_by_setting or {})[name] for name in names], axis=1)


def values(metric: str, table: ScoreTable, setting: str) -> float:
    """Returns the value of a metric on a table, NaN where it is undefined; ``setting`` counts for metrics of a cell."""
    about = metrics.get(metric)
    key = setting if about.scope == "cell" else None
    value = about.function(*(table.argument(need, key) for need in about.needs))
    return float(value)
