"""Observers: models with known true behaviour in the Observatory's tasks, from which paired answers are drawn.

The Perceptual Observatory prints its results as figures. *Published* in its text: people exceed 95 % in matching and pointing,
and reach an overlap of 81 % (section 5.8); augmentations cost models next to nothing (5.1), and illusions half (5.4). *Assumed*:

- Samples, positions and groups of people are those of the embedded collections, and so is the information in the prompts about
  boxes. A larger dataset has more such identities.
- Clean accuracy, and the gaps between cells and between groups of people, are those of :data:`OBSERVERS`.
- How easily an identity is lost is the same in all tasks and under all settings, as for a sample in :mod:`~.profiles`, and so is,
  in all cells of a grid, whether it is found at all; the two are independent.
- All augmentations cost the same, and so do all illusions. If nothing is lost, as many answers turn right as turn wrong.
- Without the images a model guesses, and for boxes it uses only the prompt.
- The overlap of boxes varies by :data:`SPREAD` between samples, and by half of that between settings; what is lost overlaps by 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.cell import CLEAN_NAME, NO_IMAGE_NAME
from pytest_vlmrobust.core.errors import UnknownName
from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.evaluation.judge import observatory
from pytest_vlmrobust.evaluation.judge.context import OBSERVATORY, DatasetFacts
from pytest_vlmrobust.evaluation.judge.corpus import MEAN
from pytest_vlmrobust.evaluation.judge.reads import labels
from pytest_vlmrobust.evaluation.run.data import COLLECTIONS, RunData
from pytest_vlmrobust.evaluation.run.prompts import prompt_leakage_ious
from pytest_vlmrobust.evaluation.tasks.dataset import GRIDS
from pytest_vlmrobust.metrics.table import ScoreTable
from pytest_vlmrobust.policies import MetricKey

from .grouping import CorrelatedDraws
from .profiles import CHURN, SHARED, flip, names_of, not_drawn

if TYPE_CHECKING:
    Array = NDArray[np.float64]

TASKS = ("matching", "pointing", "guided", "semi_guided")
AUGMENTED, ILLUSIONS = "observatory_id", "observatory_ood"
SPREAD = 0.1
"""Standard deviation of the overlap of found boxes."""
_GUESS = 0.25
_CORNER = "[0,0]"


@dataclass(frozen=True, eq=False)
class TaskTable(ScoreTable):
    """The scores of one task under all its settings, with further inputs of its tests."""

    prompt_overlaps: Array | None = None
    """The box overlap from the prompts alone, shape (N,); None for tasks without boxes."""
    pointed: tuple[tuple[str, ...], ...] = ()
    """For each identity the grid cells that answers named for the original images; empty without a grid."""

    @cached_property
    def refusal(self) -> str:
        """Why the model is not shown to do the task, or an empty string."""
        return observatory.why_scores_do_not_show(self, self.prompt_overlaps)

    @cached_property
    def not_looking(self) -> str:
        """Why a test on original images must not pass, or an empty string."""
        return observatory.why_prompt_suffices(self, self.prompt_overlaps)

    def estimate(self, test: MetricKey, metric: metrics.Metric | None) -> Estimate:
        """Estimates the quantity of a test, as a run does; ``metric`` is None if it is computed from more than scores."""
        if self.refusal and test.setting not in (CLEAN_NAME, NO_IMAGE_NAME):
            return Estimate.invalid(self.refusal, self.samples)
        if metric is None:
            return metrics.fixation(self.pointed)
        if metric.scope == "cell":
            return metrics.estimate(metric, self, setting=test.setting)
        table = self._split(test.setting)
        estimate = metrics.estimate(metric, table)
        missing = observatory.why_not_offered(metric.name, table)
        return replace(estimate, valid=False, reason=missing) if missing else estimate

    def _split(self, name: str) -> ScoreTable:
        if name not in self._splits:
            scores = {setting: self.scores(setting) for setting in names_of(name)}
            self._splits[name] = ScoreTable(
                clean=self.clean,
                by_setting=scores,
                no_image=self.no_image,
                groups=self.groups,
                positions=self.positions,
                people=self.people,
            )
        return self._splits[name]

    @cached_property
    def _splits(self) -> dict[str, ScoreTable]:
        return {}


@dataclass(frozen=True, slots=True, eq=False)
class Observer:
    """A model by its scores on original images, and the share that is kept. Fractions."""

    name: str
    clean: Mapping[str, float]
    """Task to accuracy, or mean overlap of boxes, with original images."""
    kept: Mapping[str, float] = field(default_factory=lambda: {AUGMENTED: 1.0, ILLUSIONS: 1.0})
    """Split to the share of these scores that is kept."""
    position_gap: float = 0.0
    """How much better pointing is in the first cell of the grid than in the last."""
    group_gap: float = 0.0
    """How much better scores are for the first group of people than for the last."""
    fixed: float = 0.0
    """The share of identities for which the first cell is named, regardless of their cell."""
    collections: tuple[str, ...] = COLLECTIONS
    samples: int = 100
    """Identities of each embedded collection."""
    has_baseline: bool = False
    categories: tuple[str, ...] = ()

    @property
    def dataset(self) -> str:
        """The collections for a reader."""
        return " + ".join(self.collections)

    @property
    def datasets(self) -> dict[str, DatasetFacts]:
        """The datasets that tasks make of the collections."""
        return {f"{name}.{task}": _context_of_task(name, task) for name in self.collections for task in TASKS}

    def lacks(self, metric: str) -> str:
        """Returns why answers that a metric needs are not drawn, or an empty string."""
        return "" if metric == observatory.fixation_rate.name else not_drawn(metric)

    def settings(self, suite: str) -> tuple[str, ...]:
        """Returns the settings under which it answers."""
        return (*names_of(AUGMENTED), *names_of(ILLUSIONS)) if suite == OBSERVATORY else ()

    def draw(self, n: int, tables: Iterable[str], rng: np.random.Generator) -> dict[str, ScoreTable]:
        """Returns the scores of ``n`` identities of each collection, by dataset."""
        wanted, drawn = set(tables), {}
        for collection in self.collections:
            difficulty = rng.standard_normal(n)
            for task in TASKS:
                if f"{collection}.{task}" in wanted:
                    drawn[f"{collection}.{task}"] = self._draw_table(collection, task, difficulty, rng)
        return drawn

    def _draw_table(self, collection: str, task: str, difficulty: Array, rng: np.random.Generator) -> ScoreTable:
        about = _material(collection, task)
        rows, identities = about.rows(len(difficulty))
        labels: dict[str, Any] = {name: [values[row] for row in rows] for name, values in about.labels.items()}
        prompt_overlaps = None if about.prompt_overlaps is None else about.prompt_overlaps[rows]
        better = np.zeros(len(rows))
        for name, gap in (("positions", self.position_gap), ("people", self.group_gap)):
            better += _slope(labels.get(name, []), gap) if labels.get(name) else 0.0
        hard = difficulty[identities]
        pointed: tuple[tuple[str, ...], ...] = ()
        if prompt_overlaps is None:
            right = CorrelatedDraws(rng, identities, SHARED).random(len(rows)) < self.clean[task] + better
            scores = self._draw_answers(right, self.clean[task], hard, rng)
            if task in GRIDS:
                fixed = (rng.random(len(difficulty)) < self.fixed)[identities]
                there = np.asarray(labels["positions"]) == _CORNER
                right = np.where(fixed, there, right)
                scores = {name: np.where(fixed, there, answers) for name, answers in scores.items()}
                pointed = _draw_named_cells(labels["positions"], identities, right, fixed, rng)
            clean, blind = right.astype(float), (rng.random(len(rows)) < _GUESS).astype(float)
        else:
            mean = (self.clean[task] + better)[:, None] + SPREAD * rng.standard_normal((len(rows), 1))
            settings = self.settings(OBSERVATORY)
            overlaps = (mean + SPREAD / 2.0 * rng.standard_normal((len(rows), len(settings) + 1))).clip(0.0, 1.0)
            kept = flip(np.ones(len(rows), bool), -hard, (1.0 - self._kept_shares(), np.zeros(len(settings))), rng)
            clean, blind = overlaps[:, -1], prompt_overlaps
            scores = dict(zip(settings, np.where(kept, overlaps[:, :-1], 0.0).T, strict=True))
        groups = [str(identity) for identity in identities]
        return TaskTable(
            clean=clean,
            by_setting={name: values.astype(float) for name, values in scores.items()},
            no_image=blind,
            groups=groups,
            prompt_overlaps=prompt_overlaps,
            pointed=pointed,
            **labels,
        )

    def _draw_answers(self, right: NDArray[np.bool_], clean: float, hard: Array, rng: np.random.Generator) -> dict[str, Any]:
        """Returns the answers under each setting: losses turn wrong, and luck turns as many answers right as wrong."""
        settings = self.settings(OBSERVATORY)
        luck = min(CHURN, 1.0 - clean)
        lose = (1.0 - self._kept_shares() + luck / clean).clip(0.0, 1.0)
        win = np.full(len(settings), luck / max(1.0 - clean, 1e-12))
        difficulty = np.where(right, -hard, hard)  # a hard identity is lost more often, and turns right by luck more rarely
        return dict(zip(settings, flip(right, difficulty, (lose, win), rng).T, strict=True))

    def _kept_shares(self) -> Array:
        return np.array([self.kept[split] for split in (AUGMENTED, ILLUSIONS) for _ in names_of(split)])


_PEOPLE = {"matching": 0.97, "pointing": 0.97, "guided": 0.81, "semi_guided": 0.81}
_TYPICAL = Observer(
    "typical",
    {"matching": 0.95, "pointing": 0.9, "guided": 0.75, "semi_guided": 0.75},
    {AUGMENTED: 0.99, ILLUSIONS: 0.5},
    position_gap=0.1,
    group_gap=0.03,
)
OBSERVERS = {
    observer.name: observer
    for observer in (
        Observer("nothing-lost", _PEOPLE),
        _TYPICAL,
        replace(_TYPICAL, name="fragile", kept={AUGMENTED: 0.85, ILLUSIONS: 0.5}),
        replace(_TYPICAL, name="illusion-blind", kept={AUGMENTED: 0.99, ILLUSIONS: 0.1}),
        replace(_TYPICAL, name="one-cell", fixed=1.0),
        replace(_TYPICAL, name="one-sided", clean={**_TYPICAL.clean, "pointing": 0.6}, position_gap=0.8),
        replace(_TYPICAL, name="one-group", clean={**_TYPICAL.clean, "matching": 0.8, "pointing": 0.8}, group_gap=0.35),
        Observer("not-looking", {"matching": _GUESS, "pointing": _GUESS, "guided": 0.0, "semi_guided": 0.0}),
    )
}
"""Models by name. The first reaches human scores and loses nothing; the second keeps the share that models keep in the paper's
text. The others break one more thing: augmentations cost 15 %, illusions all but a tenth, one cell is named for all identities,
cells differ by 80 pp, groups of people by 35 pp, and the last does no task."""


def observer(name: str, collections: Iterable[str] = ()) -> Observer:
    """Returns an observer by its name, of some embedded collections, or of all."""
    if name not in OBSERVERS:
        raise UnknownName("profile", name, OBSERVERS, more="A policy that asks for the Observatory is about its tasks")
    chosen = tuple(collections) or COLLECTIONS
    for collection in chosen:
        if collection not in COLLECTIONS:
            raise UnknownName("collection", collection, COLLECTIONS, more="Answers are drawn for the embedded ones")
    return replace(OBSERVERS[name], collections=chosen)


@dataclass(frozen=True, slots=True, eq=False)
class _Material:
    """The samples of a task: their labels, the overlaps of their prompts, and the samples of each identity."""

    labels: Mapping[str, list[str]]
    prompt_overlaps: Array | None
    members: tuple[tuple[int, ...], ...]

    def rows(self, n: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Returns the rows of the samples of ``n`` identities, and the identity of each row; identities repeat cyclically."""
        identities = [self.members[place % len(self.members)] for place in range(n)]
        rows = np.array([row for identity in identities for row in identity], np.intp)
        return rows, np.repeat(np.arange(n), [len(identity) for identity in identities])


@cache
def _data(collection: str) -> RunData:
    """Returns the data of a collection; its tasks share the identities."""
    return RunData((collection,))


@cache
def _context_of_task(collection: str, task: str) -> DatasetFacts:
    return DatasetFacts(task, MEAN, _data(collection).open(f"{collection}.{task}").samples())


@cache
def _material(collection: str, task: str) -> _Material:
    samples = _context_of_task(collection, task).samples or ()
    members: dict[str, list[int]] = {}
    for row, sample in enumerate(samples):
        members.setdefault(sample.source_image, []).append(row)
    return _Material(labels(samples), prompt_leakage_ious(samples), tuple(map(tuple, members.values())))


def _slope(labels: list[str], gap: float) -> Array:
    """Returns how much better each sample is than the mean: half the gap for the first label, minus that for the last."""
    names = sorted(set(labels) - {""})
    places = dict(zip(names, np.linspace(gap / 2.0, -gap / 2.0, len(names)).tolist(), strict=True))
    return np.array([places.get(label, 0.0) for label in labels])


def _draw_named_cells(
    positions: Sequence[str],
    identities: NDArray[np.intp],
    right: NDArray[np.bool_],
    fixed: NDArray[np.bool_],
    rng: np.random.Generator,
) -> tuple[tuple[str, ...], ...]:
    """Returns the named cells of each identity: the right cell, the first cell, or a random other cell."""
    cells = sorted(set(positions))
    named: list[list[str]] = [[] for _ in range(int(identities.max()) + 1)]
    others = rng.integers(1, len(cells), size=len(positions))
    for row, (position, identity) in enumerate(zip(positions, identities.tolist(), strict=True)):
        other = cells[(cells.index(position) + int(others[row])) % len(cells)]
        named[identity].append(_CORNER if fixed[row] else position if right[row] else other)
    return tuple(map(tuple, named))
