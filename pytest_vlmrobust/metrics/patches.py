"""Metrics that compare the whole image with its best patch.

Sources: PCRI (arXiv 2509.23879) and RCI (arXiv 2509.23673), which read the same quantity as a property of the model and of the
dataset.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from . import luck, patch_intervals, validity
from .patch_intervals import best, index_reach, whole_and_patches
from .record import Needs
from .registry import metric
from .scores import ROUNDING, as_scores, require_equal_lengths
from .severity import spearman

Item = TypeVar("Item")

RCI_BANDS = ("strong local", "moderate local", "balanced", "moderate global", "strong global")


@metric(
    needs=(Needs.CLEAN, Needs.PATCHES),
    unit="ratio",
    better="none",
    bounds=(-math.inf, 1.0),
    perfect=0.0,
    reference="PCRI section 3, equation 1",
    validity="the full-image score is at least chance + max(1 pp, 2 standard errors)",
    suite="patches",
    interval=patch_intervals.index,
    gate=validity.whole_is_above_chance,
    note=luck.luck_envelope,
    unchanged=0.0,
    monotone={Needs.CLEAN: 1, Needs.PATCHES: -1},
    best_patch_is_enough=True,
    reach=index_reach,
)
def pcri(whole: ArrayLike, patches: ArrayLike) -> float:
    """Patch Context Robustness Index: 1 - (score of the best patch of each sample) / (score of the whole image).

    Below 0 the best patch does better than the whole image, which the paper reads as distraction. A value below 0 alone shows
    none: n*n attempts beat one even for a model that guesses, and one that needs the whole image can have a raw index below 0.
    See :func:`pcri_neutral` for what luck gives and :func:`pcri_excess` for what is left.

    Formula: ``1 - mean_i(max_j patches_ij) / mean_i(whole_i)``

    Args:
        whole: shape (N,), each in [0, 1].
        patches: shape (N, n*n), the same samples, each patch alone.

    Returns:
        At most 1; NaN if the full-image score is 0 (undefined), for no samples, no patches or a missing score.

    Raises:
        ValueError: unequal lengths, a score outside [0, 1], or another shape.

    >>> pcri([1, 1, 0, 0], [[0, 1], [0, 0], [0, 1], [1, 1]])
    -0.5
    """
    full, views = whole_and_patches(whole, patches=patches)
    total = float(full.sum())
    return 1.0 - float(best(views).sum()) / total if total > ROUNDING else math.nan


@metric(
    needs=(Needs.CLEAN, Needs.PATCHES),
    unit="ratio",
    better="none",
    bounds=(-math.inf, 1.0),
    perfect=0.0,
    reference="RCI section 3.2, equation 1",
    validity="the full-image score is at least chance + max(1 pp, 2 standard errors)",
    suite="patches",
    interval=patch_intervals.index,
    gate=validity.whole_is_above_chance,
    note=luck.luck_envelope,
    unchanged=0.0,
    monotone={Needs.CLEAN: 1, Needs.PATCHES: -1},
    best_patch_is_enough=True,
    reach=index_reach,
)
def rci(whole: ArrayLike, patches: ArrayLike) -> float:
    """Region Comprehension Index: :func:`pcri` of a reference model, read as a property of the dataset.

    Formula: ``1 - mean_i(max_j patches_ij) / mean_i(whole_i)``

    Args:
        whole: shape (N,), each in [0, 1].
        patches: shape (N, n*n), the same samples, each patch alone.

    Returns:
        At most 1: above 0 the dataset needs the whole image, below 0 a region is enough, or luck explains it (see :func:`pcri`).
        NaN if the full-image score is 0 (undefined), for no samples, no patches or a missing score.

    Raises:
        ValueError: unequal lengths, a score outside [0, 1], or another shape.
    """
    return pcri(whole, patches)


def patch_contribution(patches: ArrayLike) -> tuple[float, ...]:
    """Share of all correct answers that each patch position gives when it is seen alone: the map of spatial bias.

    Args:
        patches: shape (N, n*n), each in [0, 1], positions row by row.

    Returns:
        n*n fractions that add up to 1; all NaN without any correct answer, for no samples or a missing score.

    Raises:
        ValueError: a score outside [0, 1], or another shape.

    Source: RCI section 3.3.

    >>> patch_contribution([[1, 0], [1, 1], [1, 0]])
    (0.75, 0.25)
    """
    by_position: list[float] = as_scores(patches, "patches", axes=2).sum(axis=0).tolist()
    total = sum(by_position)
    return tuple(right / total if total > 0.0 else math.nan for right in by_position)


def rci_band(value: float) -> str:
    """Names the band of a Region Comprehension Index.

    ``strong local`` up to -0.30, ``moderate local`` up to -0.10, ``balanced`` up to 0.10, ``moderate global`` below 0.30 and
    ``strong global`` from 0.30. The paper puts 0.30 into two bands; here it is strong, as -0.30 is. Bands of raw indices inherit
    their luck: on a choice among four, guessing alone is "strong local".

    Args:
        value: an index, at most 1.

    Returns:
        One of :data:`RCI_BANDS`.

    Raises:
        ValueError: NaN (an unknown index has no band), or a value above 1.

    Source: RCI section 3.2, "Guidance for RCI".

    >>> rci_band(-0.30), rci_band(0.30)
    ('strong local', 'strong global')
    """
    if math.isnan(value):
        raise ValueError("the index is NaN: an index that is unknown has no band. Check for NaN first")
    if value > 1.0 + ROUNDING:
        raise ValueError(f"the index is {value!r}: expected at most 1, the value of patches that never help")
    if value >= 0.30 - ROUNDING:
        return RCI_BANDS[-1]
    return next(
        (band for band, end in zip(RCI_BANDS, (-0.30, -0.10, 0.10), strict=False) if value <= end + ROUNDING), RCI_BANDS[3]
    )


def best_patches(scores: ArrayLike) -> tuple[int, ...]:
    """Chooses the best patch of each sample, the first one where several are equally good.

    Ties do not matter for scores that are averaged; they do for corpus metrics, so that one rule must hold.

    Args:
        scores: shape (N, n*n), score of each patch by the benchmark's own scorer for single answers.

    Returns:
        N positions, counted row by row from 0.

    Raises:
        ValueError: no patches, a missing score (a missing patch might have been the best one), a score outside [0, 1], or
            another shape.

    Source: RCI appendix A.1; the tie rule is ours.

    >>> best_patches([[0, 1, 1], [0, 0, 0]])
    (1, 0)
    """
    views = as_scores(scores, "scores", axes=2)
    if not views.shape[1]:
        raise ValueError(f"scores has shape {views.shape}: expected at least one patch for each sample")
    if (holes := np.isnan(views).any(axis=1)).any():
        sample = int(holes.argmax())
        raise ValueError(f"scores[{sample}] has a missing score (NaN): which patch is best is unknown. Leave out such samples")
    return tuple(views.argmax(axis=1).tolist())


def corpus_pcri(
    corpus_metric: Callable[[Sequence[Item]], float], whole: Sequence[Item], patches: Sequence[Sequence[Item]], scores: ArrayLike
) -> float:
    """PCRI or RCI under a metric of the whole corpus: 1 - M(answers of the best patches) / M(answers of the whole images).

    For metrics that are no mean over samples: CIDEr, F1, accuracy by group of questions. The patch is chosen for each sample by
    its own score; the metric then sees all chosen answers together.

    Args:
        corpus_metric: computes a score from N items; any scale on which 0 is the worst.
        whole: N items, whatever the metric reads (an answer with its references, say), from the whole images.
        patches: N lists of n*n items, from each patch alone.
        scores: shape (N, n*n), score of each of these in [0, 1], by which the patch is chosen.

    Returns:
        The index; NaN if the metric of the whole images is not above 0 (undefined), or NaN.

    Raises:
        ValueError: unequal lengths, or what :func:`best_patches` refuses.

    Source: RCI appendix A.1; PCRI section 3.

    >>> corpus_pcri(lambda answers: answers.count("cat"), ["cat", "dog"], [["dog", "cat"], ["cat", "dog"]], [[0, 1], [1, 0]])
    -1.0
    """
    chosen = best_patches(scores)
    require_equal_lengths({"whole": len(whole), "patches": len(patches), "scores": len(chosen)})
    if wrong := [sample for sample, views in enumerate(patches) if len(views) != np.shape(scores)[1]]:
        raise ValueError(
            f"patches[{wrong[0]}] has {len(patches[wrong[0]])} items and scores has {np.shape(scores)[1]} for each sample: "
            "expected one item for each score"
        )
    full = float(corpus_metric(whole))
    selected = float(corpus_metric([views[position] for views, position in zip(patches, chosen, strict=True)]))
    return 1.0 - selected / full if full > ROUNDING else math.nan


class Correlation(NamedTuple):
    """How the indices of two models agree over datasets."""

    pearson: float
    spearman: float
    datasets: int


def rci_correlation(first: Mapping[str, float], second: Mapping[str, float]) -> Correlation:
    """Correlates the indices that two reference models give to the same datasets.

    A high value says that the index ranks datasets alike whichever model reads it. Luck does so, too: it depends on the number of
    options, which all models share.

    Args:
        first: dataset to index, under one model.
        second: the same datasets under another model.

    Returns:
        Pearson's and Spearman's correlation in [-1, 1] and the number of datasets; correlations are NaN for fewer than two
        datasets, where one side is constant, or for an index that is NaN.

    Raises:
        ValueError: a dataset that only one of them has.

    Source: RCI section 4.2.1 and figure 2 (Pearson); ranks are ours.

    >>> rci_correlation({"a": -0.3, "b": 0.0, "c": 0.2}, {"a": -0.2, "b": 0.1, "c": 0.3}).spearman
    1.0
    """
    if alone := sorted(set(first) ^ set(second)):
        raise ValueError(f"only one of the two models was measured on {alone[0]!r}: leave it out of both, or measure it")
    pairs = np.array([[first[name], second[name]] for name in first], dtype=np.float64).reshape(-1, 2).T
    return Correlation(_pearson(pairs), spearman(*pairs.tolist()), pairs.shape[1])


def _pearson(pairs: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> float:
    if pairs.shape[1] < 2 or np.isnan(pairs).any() or not np.ptp(pairs, axis=1).all():
        return math.nan
    deviations = pairs - pairs.mean(axis=1, keepdims=True)
    spread = math.sqrt(float((deviations[0] ** 2).sum() * (deviations[1] ** 2).sum()))
    return min(max(float(deviations[0] @ deviations[1]) / spread, -1.0), 1.0)
