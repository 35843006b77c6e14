"""Sample size: finds rules that the samples of a run can hardly decide, before any inference.

Answers are drawn from a model that keeps a rule as clearly as possible, and judged as in a real run (see :mod:`.power`). A rule
that does not pass in a fifth of these simulated runs is too tight for these few samples, whatever the real model answers.
Rules of confidence are tried with a calibrated model of typical accuracy: one that is always right and sure needs fewer samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, overload

import numpy as np

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.cell import CLEAN_NAME
from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.words import first_few, number, question_count
from pytest_vlmrobust.evaluation.judge.cell_quantities import label_preserving_drop, typographic_word_drop
from pytest_vlmrobust.evaluation.judge.scopes import ANY
from pytest_vlmrobust.evaluation.judge.strata import SUITE as RESOLUTION
from pytest_vlmrobust.evaluation.run.plan import LADDER, ORDERS, PATCHES
from pytest_vlmrobust.evaluation.tasks.dataset import GRIDS
from pytest_vlmrobust.metrics.table import OF_ANSWERS
from pytest_vlmrobust.perturbations.typographic import NONSENSE
from pytest_vlmrobust.policies import JudgedBy, MetricKey, OnInconclusive, Policy, Rule, Scope, Tier

from . import profiles, published
from .grouping import Grouping
from .simulation import SimulatedTests, Simulation

if TYPE_CHECKING:
    from pytest_vlmrobust.metrics.table import ScoreTable


POWER = 0.8
"""The required probability that a model that clearly keeps a rule passes all of its tests."""
_RUNS = 20
_CLEARLY = 8
"""This number of runs is enough if all pass."""
_SHOWN = 3
"""Number of simulated runs from which the end of an interval is reported."""
_MOST_SAMPLES = 8_000
"""The largest number of samples tried in the search for a sufficient one; time grows in proportion."""
_SIZES = tuple(round(10.0 ** (1.0 + step % 12 / 12)) * 10 ** (step // 12) for step in range(35))
"""The numbers of samples tried, 10 to 6,800, each about a fifth more: the same ones for every run."""
_COARSE = (*range(0, len(_SIZES), 4), len(_SIZES) - 1)
"""The places in them that are tried first, each about twice the one before."""
_STEPS = 7
_NAMES = 3
_NOT_DRAWN = {metrics.Needs.UNHINTED_BY_SETTING, metrics.Needs.BASE_BY_SETTING, metrics.Needs.CATEGORIES}
"""Scores and labels that no simulated model has."""
_WITHOUT_SETTINGS = {metrics.Needs.CLEAN, metrics.Needs.NO_IMAGE, metrics.Needs.CHANCES, metrics.Needs.CHANCE_LEVELS}
_TAKEN_AS = {label_preserving_drop.name: "accuracy_drop"}
"""Metrics over some of the samples are simulated over all of them; fewer samples decide less."""
_PEOPLE = ("a", "b")
_MILD = "fog:low"
ChangedSizes: TypeAlias = Callable[[MetricKey], "tuple[int, int] | None"]
_PASSES = frozenset({Outcome.PASS, Outcome.MEASURED, Outcome.WAIVED})


class _RuleTests(NamedTuple):
    """A rule, and the tests that it bounds."""

    rule: Rule
    tests: tuple[MetricKey, ...]


class _Model(NamedTuple):
    """A model that clearly keeps rules, and its description in sentences."""

    called: str
    truth: profiles.Profile


@cache
def _models() -> tuple[_Model, ...]:
    """Returns models that keep rules: without losses, with a curve that rises like the published curves, and always right."""
    nothing = published.nothing_lost(churn=0.0)
    rising = replace(nothing, curve=published.typical().curve)
    right = replace(nothing, name="always-right", clean=1.0, blind=nothing.guess)
    return (
        _Model("that loses nothing", nothing),
        _Model("that loses what the published ones do on small images, and nothing else", rising),
        _Model("that is always right", right),
    )


@dataclass(frozen=True, slots=True)
class TooFew:
    """A rule that the samples of a dataset hardly decide."""

    rule: Rule
    samples: int
    shown: str
    """What the samples show about a model that clearly keeps the rule."""
    enough: int | None
    """The approximate number of samples that would decide it; None if no number tried is enough."""
    tried: int
    """The largest number of samples that was tried."""
    each: int = 1
    """Questions about each source image."""
    dataset: str = ""
    """Empty for any."""
    questions: int = 0
    """How many there are, where that is known."""

    def __str__(self) -> str:
        rule = self.rule
        about = f"rule {rule.id} ({rule.metric} {rule.bound.condition}, {rule.source})"
        loosen = ": loosen the bound" if 2 * self.tried > _MOST_SAMPLES else ""  # else more than were tried might do
        least = images_needed(rule, self.each) if self.each > 1 else None
        unchanged = f", and at least {self._questions(least)} even if no answer changes" if least else ""
        others = " about as many images" if self.each == 1 and self.questions > self.samples else ""
        enough = f"needs about {self._questions(self.enough)}{others} to pass it{unchanged}" if self.enough else ""
        count = question_count(self.questions or self.samples * self.each, self.samples)
        return f"with {count} {self.shown}; {about} {enough or f'is not decided by {self._questions(self.tried)} either{loosen}'}"

    def _questions(self, images: int) -> str:
        return question_count(images * self.each, images)


@cache
def images_needed(rule: Rule, each: int = 1) -> int | None:
    """Returns the least number of source images for a rule: fewer cannot pass it, even if no answer changes.

    Another image may lose all its questions under all settings, and no answer about the others rules this out.

    Returns: The number; None if a rule is not about a change, is not judged by an interval, or no number up to 8,000 passes.
    """
    metric = _TAKEN_AS.get(rule.metric, rule.metric)
    known = not _unknown(rule) and not profiles.beside_scores(metric) and rule.treatment.judge is JudgedBy.INTERVAL
    if not known or metrics.get(metric).unchanged != 0.0 or not math.isfinite(rule.bound.high):
        return None

    def passes(images: int) -> bool:
        table = _unchanged_table(images, each)
        setting = None if metrics.get(metric).scope == "sweep" else _MILD
        high = metrics.estimate(metric, table, setting).interval(1.0 - 2.0 * rule.treatment.alpha_pass)[1]
        return math.isfinite(high) and not rule.bound.is_exceeded_by(high)

    few, enough = 1, 2
    while not passes(enough):
        few, enough = enough, 2 * enough
        if few >= _MOST_SAMPLES:
            return None
    while enough - few > 1:
        middle = (few + enough) // 2
        few, enough = (few, middle) if passes(middle) else (middle, enough)
    return enough


def _unchanged_table(images: int, each: int) -> ScoreTable:
    """Returns the scores of a model that is always right, also in the earlier run, except without the images."""
    from pytest_vlmrobust.metrics.table import ScoreTable

    right = np.ones(images * each)
    scores = {_MILD: right, CLEAN_NAME: right}
    groups = [str(place // each) for place in range(images * each)]
    return ScoreTable(right, {_MILD: right}, no_image=0.0 * right, groups=groups, baseline_by_setting=scores)


def undecidable(
    policy: Policy,
    tests: Iterable[MetricKey],
    sizes: Mapping[str, int],
    *,
    today: date,
    questions: Mapping[str, int] | None = None,
    changed: ChangedSizes = lambda _test: None,
) -> list[TooFew]:
    """Returns the rules that the samples hardly decide, dataset by dataset, in the order of the policy.

    Considers only rules that judge intervals and keep a run from GO if these do not decide, and only tests that no waiver
    covers.

    ``sizes`` are the numbers of independent samples by dataset; others are left out. ``questions`` are those of questions, if
    several are asked about one image: at best their answers are independent. ``changed`` returns the numbers of images and
    questions of a test whose settings change only a part of the questions.
    """
    undecided = []
    for part in _parts(policy, tests, sizes, today=today, questions=questions or {}, changed=changed):
        too_few = _too_few(part.rules, part.settings, part.positions, part.images, part.each)
        undecided += [replace(entry, dataset=part.dataset, questions=part.questions) for entry in too_few]
    return undecided


def undecided_ids(
    policy: Policy, tests: Iterable[MetricKey], sizes: Mapping[str, int], *, today: date, questions: Mapping[str, int]
) -> set[str]:
    """Returns the ids of the rules of :func:`undecidable` without the search for numbers that would do."""
    parts = _parts(policy, tests, sizes, today=today, questions=questions)
    return {name for part in parts for name in part.plan.too_few(part.images, part.plan.rules)}


class _Part(NamedTuple):
    """The rules about the same samples of a dataset."""

    dataset: str
    images: int
    questions: int
    """How many there are, where that is known, else 0."""
    rules: tuple[_RuleTests, ...]
    settings: tuple[str, ...]

    @property
    def each(self) -> int:
        return max(round(self.questions / self.images), 1)

    @property
    def positions(self) -> int:
        return _positions(self.dataset)

    @property
    def plan(self) -> _Plan:
        return _Plan({entry.rule.id: entry for entry in self.rules}, self.settings, self.positions, self.each)


def _parts(
    policy: Policy,
    tests: Iterable[MetricKey],
    sizes: Mapping[str, int],
    *,
    today: date,
    questions: Mapping[str, int],
    changed: ChangedSizes = lambda _test: None,
) -> Iterator[_Part]:
    """Yields the rules that samples decide and that can be simulated, of each dataset and each number of its samples."""
    waivers = [waiver for waiver in policy.waivers if not waiver.is_expired(today)]
    planned: dict[str, set[MetricKey]] = {}
    for test in tests:
        if test.dataset in sizes:
            planned.setdefault(test.dataset, set()).add(test)
    for dataset, tests_of_dataset in planned.items():
        controls = {f"{NONSENSE}:2"} if any(test.metric == typographic_word_drop.name for test in tests_of_dataset) else set()
        settings = tuple(sorted({test.setting for test in tests_of_dataset if test.family} | controls))
        whole = sizes[dataset], questions.get(dataset, 0)
        by_size: dict[tuple[int, int], list[_RuleTests]] = {}
        for rule in policy.rules:
            bounded = [test for test in tests_of_dataset if rule.bounds(test)]
            tried = {_plain(test) for test in bounded if not any(waiver.applies(test) for waiver in waivers)}
            if tried and _is_decided_by_samples(rule) and not _unknown(rule):
                plain = replace(_plain(rule), reason="", evidence="")
                size = min(changed(test) or whole for test in bounded)
                by_size.setdefault(size, []).append(_RuleTests(plain, tuple(sorted(tried, key=str))))
        for (images, count), rules in by_size.items():
            yield _Part(dataset, images, count, tuple(rules), settings)


def rules_without_sample_size(policy: Policy) -> list[Rule]:
    """Returns the rules that samples may leave undecided, but whose sample size cannot be simulated."""
    return [rule for rule in policy.rules if _is_decided_by_samples(rule) and _unknown(rule)]


def sentences(too_few: Iterable[TooFew]) -> list[tuple[str, str]]:
    """Returns for each rule its source and a sentence with the names of its datasets and what the smallest dataset shows."""
    by_rule: dict[tuple[str, str], list[TooFew]] = {}
    for entry in too_few:
        by_rule.setdefault((entry.rule.source, entry.rule.id), []).append(entry)
    texts = []
    for (source, _), of_rule in by_rule.items():
        datasets = list(dict.fromkeys(entry.dataset for entry in of_rule))
        names = f"{first_few(datasets, _NAMES)}: " if all(datasets) else ""
        fewest = min(of_rule, key=lambda entry: entry.samples)
        several = "at the fewest, " if len({entry.samples for entry in of_rule}) > 1 else ""
        texts.append((source, f"{names}{several}{fewest}"))
    return texts


def sample_warnings(
    policies: Mapping[str, Policy],
    planned: Mapping[str, Iterable[MetricKey]],
    sizes: Mapping[str, tuple[int, int]],
    *,
    today: date,
    changed: ChangedSizes = lambda _test: None,
) -> list[str]:
    """Returns a sentence for each rule that the samples of a run hardly decide, with its models."""
    pictures = {dataset: count for dataset, (count, _) in sizes.items()}
    questions = {dataset: count for dataset, (_, count) in sizes.items()}
    models: dict[str, list[str]] = {}
    for name, tests in planned.items():
        if name not in policies:
            continue  # a family of models: their dependence is not simulated
        few = undecidable(policies[name], tests, pictures, today=today, questions=questions, changed=changed)
        for _, sentence in sentences(few):
            models.setdefault(sentence, []).append(name)
    return [f"{', '.join(names)}: {sentence}" for sentence, names in models.items()]


def _is_decided_by_samples(rule: Rule) -> bool:
    treatment = rule.treatment
    blocks = treatment.tier is Tier.BLOCK and treatment.on_inconclusive is not OnInconclusive.WARN
    return blocks and treatment.judge is JudgedBy.INTERVAL


def _unknown(rule: Rule) -> bool:
    """Whether answers that keep a rule are unknown: it is about a category, undrawn answers or a user's metric."""
    metric = _TAKEN_AS.get(rule.metric, rule.metric)
    if not rule.where.category and metric in profiles.OF_FLAGS:
        return False
    if rule.where.category or metric not in metrics.names():
        return True
    record = metrics.get(metric)
    ours = record.function.__module__.startswith("pytest_vlmrobust.")
    return not ours or record.interval is None or not _NOT_DRAWN.isdisjoint(record.needs)


@overload
def _plain(item: Rule) -> Rule: ...
@overload
def _plain(item: MetricKey) -> MetricKey: ...
def _plain(item: Rule | MetricKey) -> Rule | MetricKey:
    """Returns a rule for all tests, or a test of any model and dataset, of the metric that it is simulated by."""
    metric = _TAKEN_AS.get(item.metric, item.metric)
    if isinstance(item, Rule):
        return replace(item, metric=metric, where=Scope(), unless=None)
    return MetricKey(ANY, ANY, metric, item.setting, item.family, item.level)


def _positions(dataset: str) -> int:
    """Returns the number of possible positions of a target."""
    return GRIDS.get(dataset.rpartition(".")[2], 2) ** 2


@cache
def _too_few(rules: tuple[_RuleTests, ...], settings: tuple[str, ...], positions: int, n: int, each: int) -> list[TooFew]:
    """Returns the rules that ``n`` samples hardly decide, with a number of samples that does."""
    plan = _Plan({entry.rule.id: entry for entry in rules}, settings, positions, each)
    left: Iterable[str] = plan.rules
    if n > _MOST_SAMPLES:  # if these decide a rule, more samples do too
        left = plan.undecided_rules(_MOST_SAMPLES, left)
    first = left = plan.too_few(n, left)
    enough: dict[str, int] = {}
    tried = n
    for low, high in [pair for pair in pairwise((-1, *_COARSE)) if _SIZES[pair[1]] > n][:_STEPS]:
        if not left:
            break
        tried = _SIZES[high]
        still = plan.undecided_rules(tried, left)
        enough |= plan.enough_for([name for name in left if name not in still], n, low, high)
        left = still
    return [TooFew(plan.rules[name].rule, n, plan.what_samples_show(n, name), enough.get(name), tried, each) for name in first]


@dataclass(frozen=True, eq=False)
class _Plan:
    """The tests of a run on one dataset."""

    rules: Mapping[str, _RuleTests]
    """By the id of the rule."""
    settings: tuple[str, ...]
    positions: int
    each: int
    """Questions about each image."""

    def undecided_rules(self, n: int, names: Iterable[str]) -> list[str]:
        """Returns the rules among ``names`` that pass too rarely, for every model that may keep them."""
        return list(self._not_kept(n, names))

    def enough_for(self, names: Sequence[str], n: int, low: int, high: int) -> dict[str, int]:
        """Returns the sizes from which rules are decided, between that at place ``low``, which is too small, and at ``high``."""
        if not names or high - low == 1:
            return dict.fromkeys(names, _SIZES[high])
        middle = (low + high) // 2
        still = names if _SIZES[middle] <= n else self.undecided_rules(_SIZES[middle], names)
        decided = [name for name in names if name not in still]
        return self.enough_for(decided, n, low, middle) | self.enough_for(still, n, middle, high)

    def too_few(self, n: int, names: Iterable[str]) -> list[str]:
        """Returns the undecided rules that do not break either; more samples cannot help if no model keeps the bound."""
        return [name for name, outcomes in self._not_kept(n, names).items() if not _breaks(outcomes)]

    def _not_kept(self, n: int, names: Iterable[str]) -> dict[str, list[Outcome]]:
        """Returns the outcomes of rules that pass too rarely, for the first model that does not break them, or the last."""
        left: dict[str, list[Outcome]] = {name: [] for name in names}
        for place, model in enumerate(_models()):
            tried = [name for name, seen in left.items() if place == 0 or self._lies_beyond(name) or _breaks(seen)]
            for name, outcomes in self._outcomes(n, tried, model).items():
                if _passes(outcomes):
                    del left[name]
                elif not left[name] or _breaks(left[name]):
                    left[name] = outcomes
        return left

    def _lies_beyond(self, name: str) -> bool:
        """Whether a model without losses may still break a rule, because the rule requires accuracy or a rising curve."""
        rule = self.rules[name].rule
        if _is_of_confidence(rule):
            return False  # who is always right and sure is calibrated on a few questions already
        unchanged = _unchanged(rule)
        return unchanged is None or not rule.bound.admits(unchanged)

    def _outcomes(self, n: int, names: Sequence[str], model: _Model) -> dict[str, list[Outcome]]:
        """Returns the outcomes of rules in simulated runs; stops once enough runs decided."""
        outcomes: dict[str, list[Outcome]] = {name: [] for name in names}
        for run in range(_RUNS):
            simulated = self._simulation([name for name in names if not _is_clear(outcomes[name])], model)
            if not simulated.planned.tests:
                break
            for name, outcome in simulated.outcomes(self._tables(n, simulated, run, model)).items():
                outcomes[name].append(outcome)
        return outcomes

    def what_samples_show(self, n: int, name: str) -> str:
        """Returns what ``n`` samples show about a model that clearly keeps a rule."""
        rule = self.rules[name].rule
        model = _models()[-1 if _unchanged(rule) is None else 0]
        if _is_of_confidence(rule):
            model = _models()[0]._replace(called=f"that is right in {100 * _models()[0].truth.clean:.0f} % and as sure as that")
        simulated = self._simulation([name], model)
        level = 1.0 - 2.0 * rule.treatment.alpha_pass
        ends, refused = [], []
        for run in range(_SHOWN):
            estimates = list(simulated.decisive(name, self._tables(n, simulated, run, model)))
            refused += [estimate.reason.partition(";")[0] for estimate in estimates if not estimate.valid][:1]
            intervals = [estimate.interval(level) for estimate in estimates]
            ends.append((min(low for low, _ in intervals), max(high for _, high in intervals)))
        low, high = min(low for low, _ in ends), max(high for _, high in ends)
        shown = f"even a model {model.called} is only shown to have {rule.metric}"
        if len(refused) > (1.0 - POWER) * _SHOWN:
            return f"nothing is shown of a model {model.called}: {refused[0]}"
        if math.isfinite(high) and rule.bound.is_exceeded_by(high):
            return f"{shown} <= {number(high, rule.bound.unit)}"
        if math.isfinite(low) and rule.bound.is_undercut_by(low):
            return f"{shown} >= {number(low, rule.bound.unit)}"
        if not (math.isfinite(low) and math.isfinite(high)):
            return f"a model {model.called} has no interval"
        return f"a model {model.called} passes in too few of {_RUNS} simulated runs"

    def _simulation(self, names: Sequence[str], model: _Model) -> Simulation:
        chosen = {name: self.rules[name] for name in names}
        tests = {name: tuple((self._table_name(test), test) for test in tests) for name, (_, tests) in chosen.items()}
        shared_by = {name: len(tests) for name, (_, tests) in chosen.items()}
        policy = Policy(tuple(rule for rule, _ in chosen.values()), shared_by=shared_by)
        return Simulation(policy, model.truth, date.min, SimulatedTests(policy, tests, {}, {}))

    def _table_name(self, test: MetricKey) -> str:
        """Returns the name of the table that a test reads."""
        beside = profiles.beside_scores(test.metric)
        if test.metric in profiles.OF_FLAGS:
            return f"{CLEAN_NAME if test.setting == CLEAN_NAME else ''}{beside}"
        return f"{self._scores_of(test)}{beside}"

    def _scores_of(self, test: MetricKey) -> str:
        """Returns the name of the table of the scores that a test reads."""
        record = metrics.get(test.metric)
        if test.family == PATCHES:
            return test.setting
        if _WITHOUT_SETTINGS.issuperset(record.needs) or test.setting == CLEAN_NAME:
            return CLEAN_NAME
        if OF_ANSWERS.intersection(record.needs):
            return ORDERS
        if record.suite == RESOLUTION or test.family.startswith(LADDER):
            return RESOLUTION
        return test.setting if record.scope == "sweep" and test.setting else ""

    def _tables(self, n: int, simulated: Simulation, run: int, model: _Model) -> dict[str, ScoreTable]:
        names = simulated.planned.tables
        return {name: self._draw(n, name, model, np.random.default_rng([run, n, *name.encode()])) for name in names}

    def _draw(self, n: int, table_name: str, model: _Model, rng: np.random.Generator) -> ScoreTable:
        """Draws one table, with position and group labels that are unrelated to the scores."""
        scores, beside, kind = table_name.partition(profiles.BESIDE)
        suite = PATCHES if scores.startswith(PATCHES) else ORDERS if scores == ORDERS else profiles.CORRUPTIONS
        name, samples = f"{suite}{beside}{kind}", n * self.each
        table = self._profile(scores, model, samples).draw(samples, [name], rng)[name]
        if suite == PATCHES or beside:
            return table
        places = [str(place) for place in np.arange(samples) % self.positions]
        people = [_PEOPLE[place] for place in np.arange(samples) // self.positions % len(_PEOPLE)]
        return replace(table, positions=places, people=people)

    def _profile(self, table_name: str, model: _Model, samples: int) -> profiles.Profile:
        """Returns the model as one that answers under the settings of one table."""
        truth = replace(model.truth, grouping=Grouping.equal(samples, samples // self.each, 0.0) if self.each > 1 else None)
        if table_name.startswith(PATCHES):
            return replace(truth, views=profiles.Views(alike=True), grids=(_size(table_name),))
        names = [CLEAN_NAME] if table_name == CLEAN_NAME else self._settings_of(table_name)
        rungs = [name for name in names if name.startswith("resolution:") and "+" not in name] if table_name == RESOLUTION else []
        drops = dict.fromkeys(names, 0.0) | dict(zip(rungs, truth.drops_of_sizes(len(rungs)).tolist(), strict=True))
        if table_name not in ("", RESOLUTION):  # the Observatory: without images the model only guesses
            truth = replace(truth, blind=truth.guess)
        return replace(truth, drops=drops, helpful={name: 0.0 if name == CLEAN_NAME else profiles.CHURN for name in drops})

    def _settings_of(self, table_name: str) -> Sequence[str]:
        if table_name and table_name != RESOLUTION:
            return profiles.names_of(table_name)
        of_sizes = [name for name in self.settings if name.startswith("resolution:")]
        settings = (
            sorted(of_sizes, key=_size)
            if table_name
            else [name for name in self.settings if name not in of_sizes and not name.startswith(PATCHES)]
        )
        return settings or profiles.names_of(LADDER if table_name else "robustbench")


def _is_of_confidence(rule: Rule) -> bool:
    return profiles.beside_scores(rule.metric).endswith(profiles.CONFIDENT)


def _unchanged(rule: Rule) -> float | None:
    """Returns the value of a rule's metric for a model that loses nothing; ``None`` if there is none."""
    return None if rule.metric in profiles.OF_FLAGS else metrics.get(rule.metric).unchanged


def _breaks(outcomes: Sequence[Outcome]) -> bool:
    return 2 * outcomes.count(Outcome.FAIL) > len(outcomes)


def _passes(outcomes: Sequence[Outcome]) -> bool:
    """Whether a rule passes in enough of the simulated runs."""
    return sum(outcome in _PASSES for outcome in outcomes) >= POWER * len(outcomes)


def _is_clear(outcomes: Sequence[Outcome]) -> bool:
    """Whether no further runs are needed to decide whether a rule passes in enough of them."""
    passes = sum(outcome in _PASSES for outcome in outcomes)
    return passes == len(outcomes) >= _CLEARLY or passes >= POWER * _RUNS or len(outcomes) - passes > (1.0 - POWER) * _RUNS


def _size(setting: str) -> int:
    """Returns the number in a setting: the long edge of ``resolution:448``, the grid of ``patches:3``."""
    return int(setting.partition(":")[2].partition("+")[0])
