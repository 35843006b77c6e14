"""Models whose true numbers are known: finite populations of answers, from which runs of a benchmark are drawn.

A population is a table of some thousand questions with every score that a metric may read. A run draws questions from it with
replacement, so that the metric of the whole table is the true value, exactly and for any formula. Questions are drawn
independently, or so that one picture holds a fifth of them.
"""

from __future__ import annotations

import functools
import itertools
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.core.prediction import Prediction, Score
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.evaluation.judge.corpus import bounds_of_drop, bounds_of_index, bounds_of_value
from pytest_vlmrobust.evaluation.judge.strata import MACRO, has_macro, macro_estimate, rows_of
from pytest_vlmrobust.metrics import ScoreTable
from pytest_vlmrobust.scoring import Sums, corpus_score

Array = NDArray[np.float64]
Labels = NDArray[np.str_]
Generator = np.random.Generator

QUESTIONS = 10_080
"""Of each population: a multiple of 9 positions, 2 groups of people and 8 options of rounding."""
KINDS, LEVELS = 14, ("low", "mid", "high")
SETTINGS = tuple(f"kind{kind}:{level}" for kind in range(KINDS) for level in LEVELS)
"""42 settings stand for the published 133, which take three times as long and have the same means."""
HARSH, PATCHES = f"kind{KINDS - 1}:high", "patches:3"
EDGES = (112, 168, 224, 336, 448, 672, 896, 1344)
RUNGS = tuple(f"resolution:{edge}" for edge in EDGES)
SIZES = (2.0, 7.0, 72.0)
POSITIONS = tuple(f"[{row},{column}]" for row in range(3) for column in range(3))

_BY_SETTING = {"by_setting", "reference_by_setting", "baseline_by_setting", "unhinted_by_setting", "base_by_setting"}
_BY_PATCHES = {"patches_by_setting"}
_PLAIN = {"clean", "no_image", "chance_levels", "chances", "whole_attempts"}
_NAMES = {"positions", "people", "categories"}


@dataclass(frozen=True)
class Layout:
    """How the questions of a run belong to pictures."""

    n: int
    sizes: tuple[int, ...] = ()
    """Questions of each picture; empty where each question has a picture of its own."""
    likeness: float = 0.8
    """Correlation of any two scores of one picture (ICC)."""

    @property
    def clusters(self) -> int:
        """How many pictures there are."""
        return len(self.sizes) or self.n

    def drawn(self, rng: Generator, questions: int) -> tuple[NDArray[np.intp], list[str] | None]:
        """Returns which questions of a population a run has, shape (n,), and the picture of each.

        Each question of a picture is one that all of them share with probability sqrt(ICC), and otherwise one of its own.
        """
        drawn = rng.integers(questions, size=self.n)
        if not self.sizes:
            return drawn, None
        picture = np.repeat(np.arange(len(self.sizes)), self.sizes)
        common = rng.integers(questions, size=len(self.sizes))[picture]
        shares = rng.random(self.n) < np.sqrt(self.likeness)
        return np.where(shares, common, drawn), [f"picture {number}" for number in picture]


UNEQUAL = Layout(324, (65, *[1] * 259))
"""One picture of 260 holds 20 % of the questions."""


@dataclass(frozen=True)
class Population:
    """The scores of every question, by the name of the field of a table; what no table has a field for stands beside them."""

    scores: Mapping[str, Array]
    names: Mapping[str, Labels] = field(default_factory=dict)
    settings: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """How many questions there are."""
        return len(next(iter(self.scores.values())))


@dataclass(frozen=True)
class Draw:
    """The questions of one run."""

    population: Population
    index: NDArray[np.intp]
    groups: list[str] | None = None

    def scores(self, name: str) -> Array:
        """Returns some scores of these questions."""
        scores: Array = self.population.scores[name][self.index]
        return scores

    def names(self, name: str) -> list[str]:
        """Returns some labels of these questions."""
        return [str(label) for label in self.population.names[name][self.index]]

    @cached_property
    def table(self) -> ScoreTable:
        """The table that a gate would have of them."""
        given: dict[str, Any] = {"groups": self.groups}
        for name in self.population.scores.keys() & (_BY_SETTING | _BY_PATCHES | _PLAIN):
            scores = self.scores(name)
            if name in _BY_SETTING:
                given[name] = dict(zip(self.population.settings, scores.T, strict=True))
            else:
                given[name] = {PATCHES: scores} if name in _BY_PATCHES else scores
        if "baseline_clean" in self.population.scores:
            given["baseline_by_setting"]["clean"] = self.scores("baseline_clean")
        given |= {name: self.names(name) for name in self.population.names.keys() & _NAMES}
        return ScoreTable(**given)

    @cached_property
    def samples(self) -> list[Sample]:
        """The questions themselves, as far as metrics of whole datasets read them."""
        groups = self.groups or [""] * len(self.index)
        targets = self.names("target") if "target" in self.population.names else ["yes"] * len(self.index)
        categories = self.names("category") if "category" in self.population.names else [""] * len(self.index)
        return [_sample(*about) for about in zip(itertools.count(), targets, categories, groups, strict=False)]


@functools.lru_cache(maxsize=100_000)
def _sample(number: int, target: str, category: str, group: str) -> Sample:
    return Sample(str(number), (), "", target, "yes_no", category=category, group=group)


Measure: TypeAlias = Callable[[Draw], Estimate]


@dataclass(frozen=True)
class World:
    """A population, and what is measured in it: the label of a row to how."""

    name: str
    about: str
    make: Callable[[Generator], Population]
    measures: Mapping[str, Measure]
    clustered: bool = True
    """Whether its questions may share pictures."""

    @cached_property
    def population(self) -> Population:
        """The population, always the same one."""
        return self.make(np.random.default_rng(zlib.crc32(self.name.encode())))

    @cached_property
    def whole(self) -> Draw:
        """Every question of the population once."""
        return Draw(self.population, np.arange(self.population.size))

    def drawn(self, rng: Generator, layout: Layout) -> Draw:
        """Returns one run."""
        return Draw(self.population, *layout.drawn(rng, self.population.size))


# What is measured


def registered(name: str, setting: str | None = None) -> Measure:
    """Returns a registered metric, without the note for readers, which decides nothing and may take long."""
    return lambda draw: metrics.estimate(replace(metrics.get(name), note=None), draw.table, setting)


def _several(names: Sequence[str], setting: str | None = None) -> dict[str, Measure]:
    return {name: registered(name, setting) for name in names}


def _of(value: float, n: int, at: Callable[[float], tuple[float, float]]) -> Estimate:
    return Estimate(value, n, *at(0.90), 0.90, at=at)


def _label_preserving(draw: Draw) -> Estimate:
    return metrics.estimate("accuracy_drop", rows_of(draw.table, draw.scores("preserved") > 0.0), HARSH)


def _unparsed(draw: Draw) -> Estimate:
    table = ScoreTable(draw.scores("clean_read"), {HARSH: draw.scores("read")}, groups=draw.groups)
    return metrics.estimate("accuracy_drop", table, HARSH)


def _preprocessing(draw: Draw) -> Estimate:
    before, after = draw.scores("by_setting")[:, :2].T
    value = float((after - before).mean())
    return _of(value, len(after), lambda level: metrics.gain_interval(after, before, level, draw.groups))


def _stratum(name: str) -> Measure:
    def measure(draw: Draw) -> Estimate:
        kept = [category == "a" for category in draw.names("category")]
        return metrics.estimate(replace(metrics.get(name), note=None), rows_of(draw.table, kept))

    return measure


def _macro(name: str) -> Measure:
    def measure(draw: Draw) -> Estimate:
        estimate = macro_estimate(name, draw.table, draw.samples)
        if estimate is None:
            raise ValueError(f"{name} has no mean curve of categories")
        return estimate

    return measure


def _family(name: str) -> Measure:
    return lambda draw: metrics.FAMILY_METRICS[name].estimate(SIZES, draw.scores("models").T, draw.groups)


def _cells(codes: Array) -> list[tuple[int, int]]:
    return [divmod(int(code), 3) for code in codes]


def _fixation(draw: Draw) -> Estimate:
    return metrics.fixation(draw.scores("placements").tolist())


def _distance(draw: Draw) -> Estimate:
    return metrics.grid_distance(_cells(draw.scores("pointed")), _cells(draw.scores("wanted")), source_images=draw.groups)


def _coverage(draw: Draw) -> Estimate:
    return metrics.coverage(draw.scores("given"), source_images=draw.groups)


def _corpus(metric: str) -> dict[str, Measure]:
    def value_and_sums(draw: Draw, name: str) -> tuple[float, Sums]:
        answer = Prediction("", "generate")
        scores = [Score(float(value), "simulated") for value in draw.scores(name)]
        chosen = draw.samples, [answer] * len(scores), scores
        whole = corpus_score(metric, *chosen)
        if whole.sums is None:
            raise ValueError(f"{metric} is not known as a function of sums")
        return whole.value, whole.sums

    def score(draw: Draw) -> Estimate:
        value, sums = value_and_sums(draw, "perturbed")
        return _of(value, len(draw.samples), bounds_of_value(sums, draw.samples))

    def drop(draw: Draw) -> Estimate:
        (clean, before), (value, after) = value_and_sums(draw, "clean"), value_and_sums(draw, "perturbed")
        return _of(clean - value, len(draw.samples), bounds_of_drop(before, after, draw.samples))

    def index(draw: Draw) -> Estimate:
        (clean, before), (value, after) = value_and_sums(draw, "clean"), value_and_sums(draw, "perturbed")
        return _of(1.0 - value / clean, len(draw.samples), bounds_of_index(before, after, draw.samples))

    return {"corpus_score": score, "corpus_drop": drop, "corpus_pcri": index}


SHARES = ("benign_at_low", "severe_failure_rate", "catastrophic_rate")
"""Shares of settings, whose value is a cliff; policies judge them by the interval or by the value."""

CELL = _several(
    (
        *("accuracy", "accuracy_drop", "baseline_drop", "baseline_flip_rate", "drop_increase"),
        *("harmful_flip_rate", "helpful_flip_rate"),
    ),
    HARSH,
)
OF_GAIN = {**_several(("relative_corruption_error",), HARSH), **_several(("mean_relative_corruption_error",))}
RETAINED = {**_several(("transfer_retention",), HARSH), **_several(("split_transfer_retention",))}
BLIND = _several(("clean_accuracy", "visual_gain", "accuracy_above_chance"))
MEANS = _several(
    (
        *(
            "mean_drop",
            "mean_drop_at_low",
            "mean_harmful_flip_rate",
            "mean_helpful_flip_rate",
            "mean_corruption_error",
            "mean_baseline_drop",
        ),
        *("hint_gain", "thinking_gain", "identity_drop", "identity_accuracy"),
    )
)
LARGEST = {**_several(("worst_case_drop", "worst_at_low", "worst_tenth_drop")), **_several(SHARES)}
HIDDEN = _several(("worst_category_drop", "worst_category_accuracy", "worst_group_drop", "always_lost_rate"))
HIDDEN |= _several(("circular_accuracy", "wording_range"))
GAPS = {**_several(("position_gap", "group_gap"), HARSH), **_several(("split_position_gap", "split_group_gap"))}
BY_VALUE = _several(("tail_share", "mean_severity_violation", "mean_severity_correlation"))
BESIDE: dict[str, Measure] = {"label_preserving_drop": _label_preserving, "unparsed_increase": _unparsed}
PATCH = _several(("pcri", "rci", "pcri_excess", "pcri_matched"), PATCHES)
CURVE = _several(
    (
        *("resolution_accuracy", "absolute_continuous_error", "relative_continuous_error", "resolution_correlation"),
        *("resolution_net", "resolution_wobble", "largest_downward_step", "resolution_slope", "resolution_noise_floor"),
    )
)
STRATA: dict[str, Measure] = {
    **{f"{name}{MACRO}": _macro(name) for name in CURVE if has_macro(metrics.get(name))},
    **{f"{name} (of one category)": _stratum(name) for name in ("resolution_accuracy", "resolution_net")},
    "preprocessing_gain": _preprocessing,
}
FAMILY = {name: _family(name) for name in metrics.FAMILY_METRICS}
POINTING: dict[str, Measure] = {"grid_distance": _distance, "box_coverage": _coverage}


# Populations


def _flip(rng: Generator, shape: tuple[int, ...], chance: float | Array) -> NDArray[np.bool_]:
    return rng.random(shape) < chance


def _quota(rng: Generator, share: float, size: int = QUESTIONS) -> Array:
    """Returns ones for exactly that share of the questions, at random places."""
    ones = np.zeros(size)
    ones[rng.permutation(size)[: round(share * size)]] = 1.0
    return ones


def _level(rng: Generator, scores: Array, share: float) -> Array:
    """Returns 0/1 scores with as many ones in each column, by flipping as few as that takes."""
    levelled, wanted = scores.copy(), round(share * len(scores))
    for column in levelled.T:
        surplus = int(column.sum()) - wanted
        rows = rng.permutation(np.flatnonzero(column == float(surplus > 0)))[: abs(surplus)]
        column[rows] = float(surplus < 0)
    return levelled


def _labels(rng: Generator) -> dict[str, Labels]:
    places, people = rng.choice(POSITIONS, QUESTIONS), rng.choice(("f", "m"), QUESTIONS)
    return {"positions": places, "people": people, "categories": rng.choice(list("abbccc"), QUESTIONS)}


def _beside(rng: Generator) -> dict[str, Array]:
    read = _flip(rng, (QUESTIONS,), 0.995)
    return {
        "preserved": _quota(rng, 0.8),
        "chance_levels": _quota(rng, 0.3),
        "clean_read": read.astype(float),
        "read": np.where(_flip(rng, (QUESTIONS,), 0.02), 0.0, read),
    }


def _blind(rng: Generator, clean: Array) -> Array:
    return _flip(rng, clean.shape, np.where(clean > 0.5, 0.45, 0.15)).astype(float)


def _strengths() -> Array:
    """Returns the share of vulnerable answers that each setting costs: from 0.3 % to 30 %, low before mid before high."""
    rising = 0.003 * np.exp(4.6 * np.linspace(0.0, 1.0, len(SETTINGS)) ** 1.5)
    return rising.reshape(len(LEVELS), KINDS).T.ravel()


def _spread(rng: Generator) -> Population:
    clean, vulnerable = _quota(rng, 0.85), rng.gamma(0.5, 2.0, QUESTIONS)
    shape = QUESTIONS, len(SETTINGS)

    def under(before: Array, strengths: Array, gained: float = 0.02) -> Array:
        lost = _flip(rng, shape, 1.0 - np.exp(-vulnerable[:, None] * strengths))
        return np.where(before[:, None] > 0.5, ~lost, _flip(rng, shape, gained)).astype(float)

    by_setting = under(clean, _strengths())
    baseline_clean = np.where(_flip(rng, (QUESTIONS,), 0.02), 1.0 - clean, clean)
    scores = {
        "clean": clean,
        "by_setting": by_setting,
        "no_image": _blind(rng, clean),
        "reference_by_setting": under(_quota(rng, 0.6), 1.5 * _strengths()),
        "baseline_clean": baseline_clean,
        "baseline_by_setting": under(baseline_clean, 0.8 * _strengths()),
        "unhinted_by_setting": np.where(_flip(rng, shape, 0.03), 0.0, by_setting),
        "base_by_setting": np.where(_flip(rng, shape, 0.05), 1.0 - by_setting, by_setting),
        **_beside(rng),
    }
    return Population(scores, _labels(rng), SETTINGS)


def _rare(items: float, settings: float) -> Callable[[Generator], Population]:
    """Returns what makes questions of which a few are lost under most settings, and nothing else changes."""

    def make(rng: Generator) -> Population:
        clean, shape = _quota(rng, 0.9), (QUESTIONS, len(SETTINGS))
        fragile = np.zeros(QUESTIONS, dtype=bool)
        fragile[rng.permutation(np.flatnonzero(clean))[: round(items * QUESTIONS)]] = True
        lost = fragile[:, None] & _flip(rng, shape, settings)
        same = np.repeat(clean[:, None], len(SETTINGS), axis=1)
        by_setting = np.where(lost, 0.0, same)
        scores = {
            "clean": clean,
            "by_setting": by_setting,
            "no_image": _blind(rng, clean),
            "reference_by_setting": np.repeat(_quota(rng, 0.7)[:, None], len(SETTINGS), axis=1),
            "baseline_clean": clean,
            "baseline_by_setting": same,
            "unhinted_by_setting": same,
            "base_by_setting": same,
            **_beside(rng),
        }
        return Population(scores, _labels(rng), SETTINGS)

    return make


def _graded(rng: Generator) -> Population:
    steps, shape = np.array([0.0, 0.3, 0.6, 0.9, 1.0]), (QUESTIONS, len(SETTINGS))
    place = rng.choice(5, QUESTIONS, p=(0.1, 0.05, 0.1, 0.15, 0.6))

    def under(lost: float) -> Array:
        moved = place[:, None] + rng.choice((-1, 0, 1), shape, p=(0.06, 0.91, 0.03))
        scores: Array = np.where(_flip(rng, (QUESTIONS, 1), lost), 0.0, steps[moved.clip(0, 4)])
        return scores

    clean = steps[place]
    scores = {
        "clean": clean,
        "by_setting": under(0.03),
        "no_image": clean * _flip(rng, (QUESTIONS,), 0.3),
        "reference_by_setting": under(0.3),
        "baseline_clean": clean,
        "baseline_by_setting": under(0.01),
        "unhinted_by_setting": under(0.05),
        "base_by_setting": under(0.0),
        **_beside(rng),
    }
    return Population(scores, _labels(rng), SETTINGS)


def _churn(rng: Generator) -> Population:
    """Answers that change under each setting and lose nothing, alike for all positions and people."""
    copies = len(POSITIONS) * 2
    size = QUESTIONS // copies

    def tiled(scores: Array) -> Array:
        return np.tile(scores, (copies, *[1] * (scores.ndim - 1)))

    clean = _quota(rng, 0.8, size)

    def under() -> Array:
        changed = np.repeat(clean[:, None], len(SETTINGS), axis=1)
        return tiled(_level(rng, np.where(_flip(rng, changed.shape, 0.05), 1.0 - changed, changed), float(clean.mean())))

    labels = [(position, person) for position in POSITIONS for person in "fm" for _ in range(size)]
    positions, people = np.array(labels).T
    scores = {
        "clean": tiled(clean),
        "by_setting": under(),
        "no_image": _blind(rng, tiled(clean)),
        "reference_by_setting": under(),
        "baseline_clean": tiled(clean),
        "baseline_by_setting": under(),
        "unhinted_by_setting": under(),
        "base_by_setting": under(),
        **_beside(rng),
    }
    return Population(scores, {"positions": positions, "people": people}, SETTINGS)


def _views(rng: Generator, whole: Array, patches: Array, blind: Array) -> Population:
    """Returns answers that are right with these chances, each view on its own."""
    return Population(
        {
            "clean": _flip(rng, whole.shape, whole).astype(float),
            "whole_attempts": _flip(rng, patches.shape, whole[:, None]).astype(float),
            "patches_by_setting": _flip(rng, patches.shape, patches).astype(float),
            "no_image": _flip(rng, whole.shape, blind).astype(float),
            "chances": np.full(whole.shape, 0.25),
        }
    )


def _local(rng: Generator) -> Population:
    """Half of the questions can be answered from one patch, the others need the whole picture."""
    patches = np.full((QUESTIONS, 9), 0.05)
    patches[np.arange(QUESTIONS), rng.integers(9, size=QUESTIONS)] = np.where(_quota(rng, 0.5) > 0.5, 0.9, 0.05)
    return _views(rng, np.full(QUESTIONS, 0.85), patches, np.full(QUESTIONS, 0.1))


def _neutral(rng: Generator) -> Population:
    """Every view is right with probability 0.7, whatever the others are."""
    return _views(rng, np.full(QUESTIONS, 0.7), np.full((QUESTIONS, 9), 0.7), np.full(QUESTIONS, 0.25))


def _identical(rng: Generator) -> Population:
    """Every view is right where the whole picture is, but for one question in 50 that only the whole picture answers."""
    whole = _quota(rng, 0.9)
    return _views(rng, whole, np.repeat((whole * (1.0 - _quota(rng, 0.02)))[:, None], 9, axis=1), np.full(QUESTIONS, 0.25))


def _curve(shape: str) -> Callable[[Generator], Population]:
    def make(rng: Generator) -> Population:
        size = QUESTIONS, len(RUNGS)
        if shape == "rising":
            needed = rng.integers(0, 12, QUESTIONS)
            right = (np.arange(2, 2 + len(RUNGS)) >= needed[:, None]).astype(float)
            scores = np.where(_flip(rng, size, 0.04), 1.0 - right, right)
        else:
            right = np.repeat(_quota(rng, 0.75)[:, None], len(RUNGS), axis=1)
            scores = _level(rng, np.where(_flip(rng, size, 0.05), 1.0 - right, right), 0.75)
        if shape == "zigzag":
            scores[:, 1::2] *= ~_flip(rng, (QUESTIONS, len(RUNGS) // 2), 0.04)
        return Population(
            {"clean": scores[:, -1], "by_setting": scores}, {"category": rng.choice(list("abbccc"), QUESTIONS)}, RUNGS
        )

    return make


def _answers(rng: Generator) -> Population:
    """Questions of which 80 % want "no", in three categories, asked with clean and with changed pictures."""
    size = QUESTIONS // 2
    clean = _quota(rng, 0.9, size)
    perturbed = np.where(clean > 0.5, ~_flip(rng, (size,), 0.05), _flip(rng, (size,), 0.1)).astype(float)
    names = {"target": rng.choice(("yes", "no"), size, p=(0.2, 0.8)), "category": rng.choice(list("abbccc"), size)}
    return Population({"clean": clean, "perturbed": perturbed}, names)


def _models(rng: Generator) -> Population:
    """Three sizes: the second answers 4 % more than the first, the third as much as the second."""
    first = _quota(rng, 0.7)
    second = np.where(_flip(rng, first.shape, 0.06), 1.0 - first, first)
    second = _level(rng, second[:, None], 0.74)[:, 0]
    third = _level(rng, np.where(_flip(rng, first.shape, 0.06), 1.0 - second, second)[:, None], 0.74)[:, 0]
    return Population({"models": np.stack([first, second, third], axis=1)})


def _pointing(rng: Generator) -> Population:
    wanted = rng.integers(9, size=QUESTIONS)
    pointed = np.where(_flip(rng, (QUESTIONS,), 0.2), rng.integers(9, size=QUESTIONS), wanted)
    fixed = _flip(rng, (QUESTIONS, 1), 0.1)
    placements = np.where(fixed, 0, np.argsort(rng.random((QUESTIONS, 4)), axis=1))
    given = rng.choice((0.0, 0.5, 1.0), QUESTIONS, p=(0.01, 0.04, 0.95))
    return Population(
        {"wanted": wanted.astype(float), "pointed": pointed.astype(float), "placements": placements.astype(float), "given": given}
    )


# a metric stands in the worlds that could mislead it: each one more costs minutes
_EVERYTHING = {**CELL, **OF_GAIN, **RETAINED, **BLIND, **MEANS, **LARGEST, **HIDDEN, **GAPS, **BESIDE, **BY_VALUE}
_GRADED = {**CELL, **OF_GAIN, **RETAINED, **BLIND, **MEANS, **GAPS}
_RARE = {**CELL, **RETAINED, **MEANS, **HIDDEN, "mean_relative_corruption_error": OF_GAIN["mean_relative_corruption_error"]}

WORLDS = (
    World("spread", "42 settings cost 0.3 % to 30 % of the vulnerable answers", _spread, _EVERYTHING),
    World("rare 3 %", "3 % of the questions are lost under 90 % of 42 settings", _rare(0.03, 0.9), _RARE),
    World("rare 1 %", "1 % of the questions are lost under all of 42 settings", _rare(0.01, 1.0), {**_RARE, **LARGEST}),
    World("graded", "graded scores, 3 % of the questions lost under all of 42 settings", _graded, _GRADED),
    World("churn", "answers change and nothing is lost, alike for all positions and people", _churn, {**LARGEST, **GAPS}),
    World("local", "half of the questions are answered by one patch of 9", _local, PATCH),
    World("neutral", "every view is right with probability 0.7 on its own", _neutral, PATCH),
    World("identical", "every view answers alike but for 2 % of the questions", _identical, PATCH),
    World("rising", "a curve that rises over 8 resolutions", _curve("rising"), CURVE),
    World("flat", "a curve that is flat over 8 resolutions", _curve("flat"), CURVE),
    World("zigzag", "a curve of which every other of 8 resolutions loses 4 %", _curve("zigzag"), {**CURVE, **STRATA}),
    World("POPE", "F1 of yes, 20 % of the questions", _answers, _corpus("pope_f1")),
    World("categories", "the mean accuracy of three categories", _answers, _corpus("category_accuracy")),
    World("family", "three sizes of one model; the two larger ones are equal", _models, FAMILY),
    World("pointing", "answers that point to a cell, boxes that are given", _pointing, POINTING),
    World(
        "fixation", "a tenth of the items is always seen in one cell", _pointing, {"fixation_rate": _fixation}, clustered=False
    ),
)
