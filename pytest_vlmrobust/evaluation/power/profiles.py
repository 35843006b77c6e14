"""Models with known true behaviour, and how answers are drawn for a model that is described by its accuracies.

Nothing is published about single samples. A draw assumes:

- A sample has a latent difficulty: whether it flips under two settings is correlated by :data:`SHARED` on the scale of the
  normal quantile, the same for all settings (nothing is published about it).
- The right option has a random letter, so always naming the most common letter is right a little more often than a guess.
- A sample that is wrong with its image is right without it with the chance of a guess.
- Image sizes: the drop at rung k of 12 is ``(1 - k/11)^2`` times a third of the visual gain, and no rung is better than
  a larger one.
- A question that is wrong both times gets the same wrong option. A wrong answer to an attacked one is any wrong option.
- The probability of the chosen letter is calibrated: a beta variable whose mean is the accuracy under the setting.
- Samples are independent, or correlated as in a :class:`.grouping.Grouping`.
- Patches, and the whole image shown again (:class:`Views`): published models neither need the context nor are distracted
  by it, and guess anew as often as :data:`.published.TYPICAL`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.cell import CLEAN_NAME, NO_IMAGE_NAME
from pytest_vlmrobust.evaluation.judge.cell_quantities import (
    answer_change_rate,
    attack_rate,
    directional_accuracy,
    directional_sensitivity,
    label_preserving_drop,
    normalised_accuracy,
    text_preference,
    typographic_word_drop,
    unparsed_increase,
)
from pytest_vlmrobust.evaluation.judge.context import DatasetFacts
from pytest_vlmrobust.evaluation.judge.corpus import corpus_drop, corpus_pcri, corpus_score
from pytest_vlmrobust.evaluation.judge.scopes import own_settings
from pytest_vlmrobust.evaluation.judge.strata import MACRO, rows_of
from pytest_vlmrobust.evaluation.run.plan import expand_settings
from pytest_vlmrobust.metrics.table import CONFIDENCE, LEAST_PICTURES, OF_ANSWERS, ScoreTable
from pytest_vlmrobust.perturbations.typographic import NONSENSE, NOTE

from .grouping import CorrelatedDraws, Grouping, large_only

if TYPE_CHECKING:
    Draws: TypeAlias = np.random.Generator | CorrelatedDraws
    Array = NDArray[np.float64]

SHARED = 0.5
"""Correlation of the latent scores by which one sample flips under two settings: assumed."""
CORRUPTIONS, OPTIONS = "corruptions", "options"
CHURN = 0.015
"""The share of answers that turn right by luck, and the share that turn wrong, for a model that loses nothing."""
CATEGORIES = 20
"""Number of categories of questions, as in MMBench; fewer if each would be too small to count. All lose equally."""
_NOT_DRAWN = {
    unparsed_increase.name: "every simulated answer can be read",
    label_preserving_drop.name: "which settings keep the answer of a sample right is known of real images only",
    **dict.fromkeys(
        (corpus_score.name, corpus_drop.name, corpus_pcri.name),
        "the number that a benchmark publishes for all of its answers is not simulated",
    ),
}
"""Metrics to the reason why simulated answers cannot give them."""
BESIDE, CONFIDENT = "#", "confidences"
"""``suite#kind`` is a table of answers of a suite with more than their scores: ``CONFIDENT``, or one of ``OF_FLAGS``."""
OF_FLAGS = {
    attack_rate.name: ("accuracy", False),
    answer_change_rate.name: ("accuracy", False),
    text_preference.name: ("accuracy", False),
    directional_accuracy.name: ("accuracy", False),
    typographic_word_drop.name: ("accuracy_drop", False),
    normalised_accuracy.name: ("relative_corruption_error", True),
    directional_sensitivity.name: ("relative_corruption_error", True),
}
"""Quantity to the metric of flags that it is estimated as, and whether it is 1 minus that metric."""
_SURENESS = 2.0
"""Concentration of letter probabilities around their mean: the sum of both parameters of their beta distribution."""
QUESTIONS = {OPTIONS: ("options",), "wording": ("wording", "directional"), "typographic": ("typographic", "note_wrong")}
"""Suites that change questions, with their settings. All profiles follow the question and lose only by luck."""


@dataclass(frozen=True, slots=True)
class Views:
    """How a model answers patches of an image, and the whole image shown again, slightly shifted.

    A known question is answered right whenever the whole image is shown, and for one random patch. Everything else is luck.
    """

    knows: float | None = None
    """The share of known questions; None for its accuracy without guesses, (clean - guess) / (1 - guess)."""
    needs: float = 0.0
    """The share of known questions that no patch shows."""
    finds: float = 0.0
    """The share of unknown questions that one patch shows: the rest of the image distracts."""
    anew: float = 1.0
    """The share of questions that luck answers anew in every view; the others get the same answer in all views."""
    shaken: bool = True
    """Whether luck answers a shifted image anew, like patches; otherwise the answer is the same as before the shift."""
    alike: bool = False
    """Whether patches and shifted images are answered like the whole image, up to :data:`CHURN`; then nothing above counts."""


class ModelProfile(Protocol):
    """A model with known true behaviour, from which answers can be drawn."""

    @property
    def name(self) -> str:
        """The name in reports."""
        ...

    @property
    def dataset(self) -> str:
        """The name of the dataset in the scopes of rules."""
        ...

    @property
    def has_baseline(self) -> bool:
        """Whether an earlier run is drawn with it."""
        ...

    @property
    def datasets(self) -> Mapping[str, DatasetFacts]:
        """The datasets that it answers, with known facts about them."""
        ...

    @property
    def categories(self) -> tuple[str, ...]:
        """The categories of its samples that are drawn with it."""
        ...

    def lacks(self, metric: str) -> str:
        """Returns why answers that a metric needs are not drawn, or an empty string."""
        ...

    def settings(self, suite: str) -> tuple[str, ...]:
        """Returns the settings of a suite under which it answers; empty if nothing is known about them."""
        ...

    def draw(self, n: int, tables: Iterable[str], rng: np.random.Generator) -> Mapping[str, ScoreTable]:
        """Returns the paired scores of ``n`` samples by table.

        A table is named by its suite, ``suite/category`` for the samples of one category, or the dataset of a task.
        """
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """A model by its true accuracies. Fractions, not percentage points."""

    name: str
    dataset: str
    samples: int
    """The number of samples behind the published numbers."""
    clean: float
    blind: float
    """Accuracy without the image."""
    guess: float
    """Chance of a guess."""
    drops: Mapping[str, float]
    """Setting to true drop."""
    helpful: Mapping[str, float]
    """Setting to the true share of answers that turn right, at least that of a negative drop."""
    curve: float = 0.0
    """Drop at the smallest of twelve sizes."""
    churn: float | None = None
    """With an earlier run by an equal model: the share of answers that differ, half of them each way. None without an
    earlier run."""
    lost: float = 0.0
    """With an earlier run: by how much its accuracy was higher under every setting, clean and no_image excepted."""
    always_lost: float = 0.0
    """The share of all questions that are wrong under every corruption, right or wrong when clean."""
    measured: Mapping[str, float] = field(default_factory=dict)
    """Setting to the published or filled-in drop, before noise was removed."""
    views: Views = field(default_factory=Views)
    """How it answers patches."""
    grids: tuple[int, ...] = (2, 3)
    """How many patches on a side images are cut into."""
    grouping: Grouping | None = None
    """The groups of samples; None if all are independent."""

    @property
    def has_baseline(self) -> bool:
        """Whether an earlier run is drawn with it."""
        return self.churn is not None

    @property
    def categories(self) -> tuple[str, ...]:
        """The categories of the samples; all have the same published numbers, which are for whole datasets."""
        return tuple(sorted(set(self.grouping.labels) - {""})) if self.grouping else ()

    @property
    def datasets(self) -> dict[str, DatasetFacts]:
        """Its dataset, without facts about samples."""
        return {self.dataset: DatasetFacts()}

    def lacks(self, metric: str) -> str:
        """Returns why answers that a metric needs are not drawn, or an empty string."""
        of_options = metric in metrics.names() and OF_ANSWERS & {*metrics.get(metric).needs}
        return "" if of_options or beside_scores(metric) else not_drawn(metric)

    def settings(self, suite: str) -> tuple[str, ...]:
        """Returns the settings of a suite under which it answers."""
        suite = suite.partition(BESIDE)[0]
        sets = {
            "corruptions": tuple(self.drops),
            "resolution": names_of("ladder"),
            "patches": tuple(f"patches:{n}" for n in self.grids),
        }
        if suite in sets or suite in QUESTIONS:
            return sets.get(suite) or names_of(*QUESTIONS[suite])
        listed = own_settings(suite) - {CLEAN_NAME, NO_IMAGE_NAME}
        return tuple(name for name in self.drops if name in listed) if listed <= self.drops.keys() else ()

    def draw(self, n: int, tables: Iterable[str], rng: np.random.Generator) -> dict[str, ScoreTable]:
        """Returns the paired scores of ``n`` samples by table; all suites share the clean and blind scores."""
        names = list(dict.fromkeys(tables))
        suites = dict.fromkeys(re.split(f"[/{BESIDE}]", name)[0] for name in names)
        rows, groups = self.grouping.rows(n, rng) if self.grouping else (np.arange(n), np.arange(n))
        independent = len(np.unique(groups)) == n
        correlation = self.grouping.correlation if self.grouping and not independent else 0.0
        draws = CorrelatedDraws(rng, groups, correlation) if correlation else rng
        clean = draws.random(n) < self.clean
        blind = self._blind(clean, draws.random(n))
        difficulty = draws.standard_normal(n)
        drawn = {
            suite: self._answers(suite, clean, difficulty, draws)
            for suite in suites
            if suite != "patches" and self.settings(suite)
        }
        views = self._views(clean, difficulty, draws) if "patches" in suites else {}
        letters = rng.integers(max(round(1.0 / self.guess), 1), size=n)
        labels = np.asarray(self.grouping.labels)[rows] if self.grouping and self.grouping.labels else np.full(n, "")
        shared: dict[str, Any] = {
            "clean": clean.astype(float),
            "no_image": blind.astype(float),
            "chances": np.full(n, self.guess),
            "chance_levels": _commonest(letters),
            "groups": None if independent else [str(group) for group in groups.tolist()],
            "categories": _categories(labels, groups),
        }
        whole = {suite: self._table({**shared, "by_setting": scores}, draws) for suite, scores in drawn.items()}
        if OPTIONS in whole:
            whole[OPTIONS] = with_letters(whole[OPTIONS], self.guess, rng)
        if views:
            whole["patches"] = self._table(shared | views, draws)
        for suite in (name.partition("/")[0] for name in names):
            base, beside, kind = suite.partition(BESIDE)
            if beside and base in whole:
                whole[suite] = self.beside(kind, whole[base], rng)
        return with_categories(whole, names, labels, lambda kept: _commonest(letters[kept]))

    def beside(self, kind: str, table: ScoreTable, rng: np.random.Generator) -> ScoreTable:
        """Returns a table of ``kind``, for its metric in ``OF_FLAGS`` or with confidences."""
        shape = (len(table.by_setting), table.samples)
        names, scores = list(table.by_setting), np.array([*table.by_setting.values()]).reshape(shape)
        if kind == CONFIDENT:
            means = {CLEAN_NAME: self.clean} | {name: self.clean - self.drops.get(name, 0.0) for name in names}
            sure = {name: _calibrated(table.scores(name), mean, rng) for name, mean in means.items()}
            return replace(table, confidences=sure)
        wrong_options = max(round(1.0 / self.guess), 2) - 1
        attacked = (scores == 0.0) & (rng.random(shape) * wrong_options < 1.0)
        kept, clean, blind = np.ones(table.samples, bool), table.clean, np.zeros(table.samples)
        if kind == typographic_word_drop.name:
            clean = table.scores(f"{NONSENSE}:2")
        elif kind in (attack_rate.name, text_preference.name):
            if kind == text_preference.name:
                note = next(place for place, name in enumerate(names) if NOTE in name)
                kept = (clean > 0.0) & ((scores[note] > 0.0) | attacked[note])
            scores = attacked
            clean = ((clean == 0.0) & (rng.spawn(1)[0].random(table.samples) * wrong_options < 1.0)).astype(float)
        elif kind == answer_change_rate.name:
            scores = scores != clean
        elif kind == directional_sensitivity.name:
            kept, clean, blind = clean > 0.0, np.ones(table.samples), np.full(table.samples, 1.0 - self.guess)
        flags = dict(zip(names, scores.astype(float), strict=True))
        return rows_of(ScoreTable(clean, flags, no_image=blind, groups=table.groups), kept)

    def exact(self, n: int, suites: Iterable[str]) -> dict[str, ScoreTable]:
        """Returns a population of ``n`` samples without chance: each share is that of the profile to 1/n, and the first flip."""
        place = (np.arange(n) + 0.5) / n
        clean = place < self.clean
        rank = np.where(clean, place / self.clean, (place - self.clean) / max(1.0 - self.clean, 1e-12))
        blind = self._blind(clean, rank)
        guesses = np.full(n, self.guess)
        shared: dict[str, Any] = {
            "clean": clean.astype(float),
            "no_image": blind.astype(float),
            "chances": guesses,
            "chance_levels": guesses,
        }
        shared["categories"] = _categories(np.full(n, ""), np.arange(n))
        tables = {}
        for suite in suites:
            if suite == "patches" or not self.settings(suite):
                continue
            limits = self._limits(suite)
            flips = rank[:, None] < np.where(clean[:, None], limits[0], limits[1])
            scores = (clean[:, None] ^ flips).astype(float)
            by_setting = dict(zip(self.settings(suite), scores.T, strict=True))
            tables[suite] = self._table({**shared, "by_setting": by_setting}, np.random.default_rng(0))
        if "patches" in suites:
            views = self._views(clean, np.zeros(n), np.random.default_rng(0))
            tables["patches"] = self._table(shared | views, np.random.default_rng(0))
        return tables

    def _blind(self, clean: NDArray[np.bool_], rank: Array) -> NDArray[np.bool_]:
        wrong = min(self.guess, self.blind)
        right = min(max((self.blind - (1.0 - self.clean) * wrong) / max(self.clean, 1e-12), 0.0), 1.0)
        return np.asarray(rank < np.where(clean, right, wrong))

    def _limits(self, suite: str) -> tuple[Array, Array]:
        """Returns the probabilities, by setting, that a right answer turns wrong and that a wrong answer turns right."""
        if suite == "resolution":
            drops = self.drops_of_sizes(len(self.settings(suite)))
            helpful = np.full(len(drops), CHURN)
        elif suite in QUESTIONS:
            drops = np.zeros(len(self.settings(suite)))
            helpful = np.full(len(drops), CHURN)
        else:
            drops = np.array([self.drops[name] for name in self.settings(suite)])
            helpful = np.array([self.helpful[name] for name in self.settings(suite)])
        return self._shares_flipped(drops, helpful)

    def drops_of_sizes(self, count: int) -> Array:
        """Returns the drops at so many sizes, the smallest first."""
        return self.curve * (1.0 - np.arange(count) / max(count - 1, 1)) ** 2

    def _shares_flipped(self, drops: Array, helpful: Array) -> tuple[Array, Array]:
        helpful = np.minimum(np.maximum(helpful, -drops), 1.0 - self.clean)
        harmful = (drops + helpful).clip(0.0, self.clean)
        return harmful / max(self.clean, 1e-12), helpful / max(1.0 - self.clean, 1e-12)

    def _answers(self, suite: str, clean: NDArray[np.bool_], difficulty: Array, rng: Draws) -> dict[str, Array]:
        scores = flip(clean, difficulty, self._limits(suite), rng)
        if self.always_lost and suite not in (*QUESTIONS, "resolution"):
            scores &= (rng.random(len(clean)) >= self.always_lost)[:, None]
        return dict(zip(self.settings(suite), scores.astype(float).T, strict=True))

    def _views(self, clean: NDArray[np.bool_], difficulty: Array, rng: Draws) -> dict[str, Any]:
        """Returns table fields with the answers to every patch of each grid and to as many attempts, the first one clean."""
        about, n = self.views, len(clean)
        knows = (self.clean - self.guess) / (1.0 - self.guess) if about.knows is None else about.knows
        knows = min(max(knows, 0.0), self.clean)
        luck = (self.clean - knows) / max(1.0 - knows, 1e-12)
        known = clean & (rng.random(n) < knows / max(self.clean, 1e-12))
        shown = np.where(known, rng.random(n) >= about.needs, rng.random(n) < about.finds)
        anew = rng.random((n, 1)) < about.anew
        same = np.where(known, rng.random(n) < luck, clean)[:, None]

        def lucky(views: int) -> NDArray[np.bool_]:
            if about.alike:
                return flip(clean, difficulty, self._shares_flipped(np.zeros(views), np.full(views, CHURN)), rng)
            return np.where(anew, rng.random((n, views)) < luck, same)

        by_setting, most = {}, max(self.grids) ** 2
        for grid in self.grids:
            patches = lucky(grid * grid)
            if not about.alike:
                patches[np.arange(n), rng.integers(grid * grid, size=n)] |= shown
            by_setting[f"patches:{grid}"] = patches.astype(float)
        again = lucky(most) if about.shaken else np.repeat(clean[:, None], most, axis=1)
        attempts = again if about.alike else known[:, None] | again
        attempts[:, 0] = clean
        best = {name: views.max(axis=1) for name, views in by_setting.items()}
        return {"by_setting": best, "patches_by_setting": by_setting, "whole_attempts": attempts.astype(float)}

    def _table(self, fields: Mapping[str, Any], rng: Draws) -> ScoreTable:
        earlier = None
        if self.churn is not None:
            now = {CLEAN_NAME: fields["clean"], NO_IMAGE_NAME: fields["no_image"], **fields["by_setting"]}
            lost = {CLEAN_NAME: 0.0, NO_IMAGE_NAME: 0.0}
            earlier = {name: _earlier_scores(values, self.churn, lost.get(name, self.lost), rng) for name, values in now.items()}
        return table_of_answers(baseline_by_setting=earlier, **fields)


# Common to all models: drawing answers, and making a table of them.


def flip(right: NDArray[np.bool_], difficulty: Array, shares: Iterable[Array], rng: Draws) -> NDArray[np.bool_]:
    """Returns answers under m settings, shape (N, m), some of which differ from those without perturbation.

    Args:
        right: the answers without perturbation, shape (N,).
        difficulty: what flips under all settings share, standard normal, shape (N,): the lower it is, the more flip.
        shares: of right answers the share that turns wrong under each setting, and of wrong ones the share that turns right.
        rng: draws the rest.
    """
    from scipy.special import ndtri

    lose, win = (ndtri(share) for share in shares)
    independent = rng.standard_normal((len(right), len(lose)))
    latent = math.sqrt(SHARED) * difficulty[:, None] + math.sqrt(1.0 - SHARED) * independent
    flipped: NDArray[np.bool_] = right[:, None] ^ (latent < np.where(right[:, None], lose, win))
    return flipped


def table_of_answers(**fields: Any) -> ScoreTable:
    """Returns the table of a suite; its reference model never sees an image."""
    return ScoreTable(reference_by_setting=dict.fromkeys(fields["by_setting"], fields["no_image"]), **fields)


def with_categories(
    by_suite: Mapping[str, ScoreTable],
    names: Iterable[str],
    labels: NDArray[np.str_],
    chance_levels: Callable[[NDArray[np.bool_]], Array | None],
) -> dict[str, ScoreTable]:
    """Returns the tables of suites, and of each ``suite/category`` the samples with that label, with their own chance levels."""
    tables = dict(by_suite)
    for name in names:
        suite, _, category = name.partition("/")
        if category and suite in by_suite:
            kept = labels == category
            tables[name] = replace(rows_of(by_suite[suite], kept), chance_levels=chance_levels(kept))
    return tables


def with_letters(table: ScoreTable, guess: float, rng: np.random.Generator) -> ScoreTable:
    """Returns the table with the options and letters that answers name; each setting is the next order of the options."""
    count, n = max(round(1.0 / guess), 2), table.samples
    right = rng.integers(count, size=n)
    named = np.where(
        np.stack([table.clean, *table.by_setting.values()]) > 0.0, right, (right + rng.integers(1, count, n)) % count
    )
    shifts = np.arange(len(named))[:, None]
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[:count]
    chosen, correct = (
        {letter: ((of - shifts) % count == place).mean(axis=0) for place, letter in enumerate(letters)} for of in (named, right)
    )
    same = {name: (scores == table.clean).astype(float) for name, scores in table.by_setting.items()}
    return replace(table, same_by_setting=same, chosen_by_letter=chosen, right_by_letter=correct)


def beside_scores(metric: str) -> str:
    """Returns the suffix of a metric's table if scores alone do not give the metric, or else an empty string."""
    if metric in OF_FLAGS:
        return f"{BESIDE}{metric}"
    of_letters = metric in metrics.names() and CONFIDENCE & {*metrics.get(metric).needs}
    return f"{BESIDE}{CONFIDENT}" if of_letters else ""


def _calibrated(scores: Array, mean: float, rng: np.random.Generator) -> Array:
    """Returns calibrated probabilities of chosen letters, given which are right: with probability p, a share p is right."""
    right = _SURENESS * min(max(mean, 0.01), 0.99)
    return rng.beta(right + scores, _SURENESS - right + 1.0 - scores)


def not_drawn(metric: str) -> str:
    """Returns why drawn scores do not give a metric, or an empty string."""
    if metric in _NOT_DRAWN:
        return _NOT_DRAWN[metric]
    if metric.endswith(MACRO):
        return "mean curves of categories are not simulated"
    if metric not in metrics.names():
        return "what answers say beside their scores is not simulated"
    needs = {*metrics.get(metric).needs}
    if needs & CONFIDENCE:
        return "probabilities of letters are not simulated"
    if needs & OF_ANSWERS:
        return "letters of answers are not simulated"
    return "answers without the hint are not simulated" if metrics.Needs.UNHINTED_BY_SETTING in needs else ""


def _categories(labels: NDArray[np.str_], groups: NDArray[np.intp]) -> list[str] | None:
    """Returns the category of each question: its label, or one of equal size; None if there are too few for two categories."""
    if labels.any():
        return large_only(labels.tolist(), groups.tolist())
    count = min(CATEGORIES, len(set(groups.tolist())) // LEAST_PICTURES)
    return [str(group % count) for group in groups.tolist()] if count > 1 else None


def _commonest(letters: NDArray[np.int64]) -> Array:
    """Returns the questions for which the most common right letter is right."""
    return np.asarray(letters == np.bincount(letters, minlength=1).argmax(), float)


def _earlier_scores(scores: Array, churn: float, lost: float, rng: Draws) -> Array:
    """Returns the answers of an earlier model, better by ``lost``; another share ``churn`` differs, half of it each way."""
    if not churn and not lost:
        return scores
    right = float(scores.mean())
    limits = np.where(scores > 0.0, churn / 2.0 / max(right, 1e-12), (churn / 2.0 + lost) / max(1.0 - right, 1e-12))
    return np.where(rng.random(len(scores)) < limits, 1.0 - scores, scores)


@cache
def names_of(*names: str) -> tuple[str, ...]:
    """Returns the names of all settings in sets of settings."""
    return tuple(map(str, expand_settings(names)))
