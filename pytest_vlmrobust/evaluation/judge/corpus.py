"""Corpus metrics: the number that a benchmark publishes, if it is not a mean of scores, with its interval."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust import scoring
from pytest_vlmrobust.core.estimate import LEVEL, Estimate
from pytest_vlmrobust.core.prediction import Prediction, Score
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.core.words import quantity
from pytest_vlmrobust.evaluation.run.results import CellResult
from pytest_vlmrobust.metrics import best_patches
from pytest_vlmrobust.metrics.patches import whole_is_above_chance
from pytest_vlmrobust.metrics.statistics.clusters import Clusters, guarded_jackknife_interval, join_clusters
from pytest_vlmrobust.scoring import CorpusScore, Sums

from .context import CellScores, PlannedTest, cell_quantity
from .reads import chance_levels, groups_of, score_table

# Intervals of corpus metrics: of a value, and of functions of two values over the same samples.
#
# Clusters are source images, merged if a metric judges questions about several images together. Clean and perturbed answers
# are paired by cluster, so that shared variation cancels.


Array = NDArray[np.float64]
Bounds = Callable[[float], tuple[float, float]]
"""``confidence -> (low, high)``"""


def bounds_of_value(sums: Sums, samples: Sequence[Sample]) -> Bounds:
    """Returns the function for the interval of a corpus metric."""
    clusters = _clusters(samples, sums)
    size = _size(clusters, sums)

    def bounds(confidence: float) -> tuple[float, float]:
        return guarded_jackknife_interval(
            _by_cluster(sums, clusters),
            sums.value,
            confidence,
            against_low=size * sums.worst,
            against_high=size * sums.best,
            effective=clusters.effective,
        )

    return _cut(bounds, 0.0, sums.highest)


def bounds_of_drop(clean: Sums, perturbed: Sums, samples: Sequence[Sample]) -> Bounds:
    """Returns the function for the interval of the drop of a corpus metric."""
    highest = max(clean.highest, perturbed.highest)
    return _cut(_bounds_of_change(clean, perturbed, samples, lambda before, after: before - after), -highest, highest)


def bounds_of_index(clean: Sums, patches: Sums, samples: Sequence[Sample]) -> Bounds:
    """Returns the function for the interval of ``1 - best patches / whole images`` of a corpus metric."""

    def index(before: Array, after: Array) -> Array:
        ratio: Array = np.divide(after, before, out=np.full(np.shape(before), np.nan), where=before > 0)
        return 1.0 - ratio

    return _cut(_bounds_of_change(clean, patches, samples, index), -np.inf, 1.0)


def _bounds_of_change(clean: Sums, other: Sums, samples: Sequence[Sample], change: Callable[[Array, Array], Array]) -> Bounds:
    """Returns the interval function of a change that grows with the clean value and falls with the other value."""
    clusters = _clusters(samples, clean, other)
    size, width = _size(clusters, clean), clean.rows.shape[1]

    def function(sums: Array) -> Array:
        return change(clean.value(sums[..., :width]), other.value(sums[..., width:]))

    def bounds(confidence: float) -> tuple[float, float]:
        return guarded_jackknife_interval(
            np.hstack([_by_cluster(clean, clusters), _by_cluster(other, clusters)]),
            function,
            confidence,
            against_low=size * np.concatenate([clean.worst, other.best]),
            against_high=size * np.concatenate([clean.best, other.worst]),
            effective=clusters.effective,
        )

    return bounds


def _clusters(samples: Sequence[Sample], *parts: Sums) -> Clusters:
    return join_clusters(groups_of(samples), [unit for part in parts for unit in part.members])


def _size(clusters: Clusters, part: Sums) -> int:
    """Returns the number of units in a cluster, if all had the same size and weight."""
    return max(1, round(min(len(part.rows), clusters.codes.size) / clusters.effective))


def _by_cluster(part: Sums, clusters: Clusters) -> Array:
    sums = np.zeros((clusters.count, part.rows.shape[1]))
    np.add.at(sums, clusters.codes[[members[0] for members in part.members]], part.rows)
    return sums


def _cut(bounds: Bounds, smallest: float, largest: float) -> Bounds:
    """Returns the interval function, clipped to the possible values."""

    def cut(confidence: float) -> tuple[float, float]:
        low, high = bounds(confidence)
        return max(low, smallest), min(high, largest)

    return cut


# Estimates: a benchmark's published number for a cell, and numbers derived from it.
#
# Of several views, the best view of each sample counts, the first among equals. With a missing answer the value is
# unknown. Parts have no interval, and neither has a metric without known sums.


MEAN = "accuracy"
"""The corpus metric that is a mean of scores, which cell metrics cover already."""


_CORPUS_INTERVAL = (
    "Guarded jackknife over source images, clean and perturbed answers together; none for a metric of a benchmark that is no "
    "known function of sums over samples."
)
_CORPUS_SOURCE = "the publication of the benchmark, see the corpus metrics"


def _has_own_metric(test: PlannedTest) -> bool:
    """Whether a dataset publishes another number than the mean of scores, or may do so."""
    return test.setting is not None and test.dataset_facts.corpus_metric != MEAN


def part_estimates(scores: CellScores) -> dict[str, Estimate]:
    """Returns the parts of the dataset's own metric, such as precision and recall, by full name."""
    corpus = _corpus_value(scores, scores.result)
    return {f"{corpus_score.name}.{part}": corpus.estimate(value, None) for part, value in corpus.score.parts.items()}


@cell_quantity(
    _has_own_metric,
    parts=part_estimates,
    reads="the answers of all samples together",
    unit="benchmark's own",
    better="higher",
    reference=_CORPUS_SOURCE,
    validity="the dataset names a metric of its own",
    unsuited="It has the scale of its benchmark: neither values nor bounds carry over to another dataset. Where it "
    "has no interval, bound `accuracy`, the mean of the samples' own scores.",
    interval=_CORPUS_INTERVAL,
)
def corpus_score(scores: CellScores) -> Estimate:
    """The dataset's own metric (F1, CIDEr, accuracy over groups of questions), where that is no mean of scores.

    Its parts, such as ``corpus_score.recall``, are in records; no rule may bound them.

    Formula: ``the dataset's metric of all its answers``

    Returns: In the unit of the benchmark; NaN where an answer is missing.
    """
    corpus = _corpus_value(scores, scores.result)
    bounds = bounds_of_value(corpus.score.sums, scores.samples) if corpus.score.sums else None
    return corpus.estimate(corpus.score.value, bounds)


@cell_quantity(
    lambda test: _has_own_metric(test) and test.perturbed,
    reads="the answers of all samples together, clean and perturbed",
    unit="benchmark's own",
    better="lower",
    reference=_CORPUS_SOURCE,
    validity="the dataset names a metric of its own",
    unsuited="It cannot be compared between benchmarks, each of which has a scale of its own, and does not show "
    "which samples lost. Use `accuracy_drop`, the loss of the mean score, and `harmful_flip_rate` for both.",
    interval=_CORPUS_INTERVAL,
)
def corpus_drop(scores: CellScores) -> Estimate:
    """What the dataset's own metric loses from clean images to a setting, where that is no mean of scores.

    Formula: ``corpus_score(clean) - corpus_score(perturbed)``

    Returns: In the unit of the benchmark; NaN where an answer is missing.
    """
    clean, result = _corpus_value(scores, scores.clean), _corpus_value(scores, scores.result)
    before, after = clean.score.sums, result.score.sums
    bounds = bounds_of_drop(before, after, scores.samples) if before and after else None
    return result.estimate(clean.score.value - result.score.value, bounds)


@cell_quantity(
    lambda test: _has_own_metric(test) and test.views > 1,
    reads="the answers of all samples together, about whole images and about patches",
    unit="ratio",
    bounds=(-math.inf, 1.0),
    suite="patches",
    reference="PCRI section 3, equation 1, of the metric that the benchmark publishes",
    validity="the dataset names a metric of its own; the full-image score is at least chance + max(1 pp, 2 standard errors)",
    unsuited="It has the luck of raw `pcri`: the best of several patches counts, and the whole image has one "
    "attempt. A corpus metric has no corrected form; bound `pcri_matched`, which reads the samples' own "
    "scores.",
    interval=_CORPUS_INTERVAL,
)
def corpus_pcri(scores: CellScores) -> Estimate:
    """One less the ratio of the dataset's own metric of the best patches to that of whole images.

    Formula: ``1 - corpus_score(best patch of each sample) / corpus_score(clean)``

    Returns: At most 1; NaN where an answer is missing, and where the metric of whole images is 0.
    """
    clean, patches = _corpus_value(scores, scores.clean), _corpus_value(scores, scores.result)
    if invalid := _why_invalid(scores.clean):
        return Estimate.invalid(invalid, patches.score.n)
    ratio = 1.0 - patches.score.value / clean.score.value if clean.score.value > 0.0 else math.nan
    before, after = clean.score.sums, patches.score.sums
    bounds = bounds_of_index(before, after, scores.samples) if before and after else None
    return patches.estimate(ratio, bounds)


def _why_invalid(clean: CellResult) -> str:
    """Returns why PCRI is undefined for the full-image score, by the rule for means of scores; empty if it is defined."""
    kept = [number for number, value in enumerate(clean.values) if math.isfinite(value)]
    samples = [clean.samples[number] for number in kept]
    table = score_table(samples, clean.values[kept], **chance_levels(samples))
    return whole_is_above_chance(table, None) if kept else ""


@dataclass(frozen=True, slots=True)
class _CorpusValue:
    """The corpus metric of a cell."""

    name: str
    score: CorpusScore

    def estimate(self, value: float, bounds: Bounds | None) -> Estimate:
        missing = f"; {quantity(self.score.n_failed, 'inference')} failed" if self.score.n_failed else ""
        reason = f"{self.name} of the whole dataset{missing}"
        if bounds is None or not math.isfinite(value):
            return Estimate(value, self.score.n, reason=reason)
        low, high = bounds(LEVEL)
        known = math.nan if math.isnan(low) else LEVEL
        return Estimate(value, self.score.n, low, high, known, reason=reason, at=bounds)


def _corpus_value(scores: CellScores, result: CellResult) -> _CorpusValue:
    return _value_of(scores.answers.corpus_metric(scores.cell.dataset), result)


@lru_cache(maxsize=2)  # several quantities of a cell read it, and that of the clean images
def _value_of(name: str, result: CellResult) -> _CorpusValue:
    if failed := int(np.isnan(result.values).sum()):  # of what is left, nobody knows whether it is easier
        return _CorpusValue(name, CorpusScore(math.nan, {}, len(result.samples) - failed, failed))
    chosen = result.samples, *_answers(result)
    return _CorpusValue(name, scoring.corpus_score(name, *chosen))


def _answers(result: CellResult) -> tuple[tuple[Prediction, ...], tuple[Score, ...]]:
    """Returns the answer to each sample: that of its best view, the first of equals."""
    if result.views == 1:
        return result.predictions, result.scores
    chosen = [sample * result.views + view for sample, view in enumerate(best_patches(result.attempts))]
    return tuple(result.predictions[index] for index in chosen), tuple(result.scores[index] for index in chosen)
