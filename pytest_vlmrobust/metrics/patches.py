"""Metrics that compare the whole image with its best patch.

Sources: PCRI (arXiv 2509.23879) and RCI (arXiv 2509.23673), which read the same quantity as a property of the model and of the
dataset.
"""

from __future__ import annotations

import math

from numpy.typing import ArrayLike

from . import intervals, validity
from .record import Needs
from .registry import metric
from .scores import ROUNDING, Scores, as_scores, require_equal_lengths


@metric(
    needs=(Needs.CLEAN, Needs.PATCHES),
    unit="ratio",
    better="none",
    bounds=(-math.inf, 1.0),
    perfect=0.0,
    reference="PCRI section 3, equation 1",
    validity="the full-image score is at least chance + max(1 pp, 2 standard errors)",
    suite="patches",
    interval=intervals.patch_index,
    gate=validity.whole_is_above_chance,
)
def pcri(whole: ArrayLike, patches: ArrayLike) -> float:
    """Patch Context Robustness Index: 1 - (score of the best patch of each sample) / (score of the whole image).

    Below 0 the best patch does better than the whole image. Part of that is luck: n*n attempts beat one even for a model that
    guesses.

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
    full, best = _whole_and_best(whole, patches)
    total = float(full.sum())
    return 1.0 - float(best.sum()) / total if total > ROUNDING else math.nan


@metric(
    needs=(Needs.CLEAN, Needs.PATCHES),
    unit="ratio",
    better="none",
    bounds=(-math.inf, 1.0),
    perfect=0.0,
    reference="RCI section 3.2, equation 1",
    validity="the full-image score is at least chance + max(1 pp, 2 standard errors)",
    suite="patches",
    interval=intervals.patch_index,
    gate=validity.whole_is_above_chance,
)
def rci(whole: ArrayLike, patches: ArrayLike) -> float:
    """Region Comprehension Index: :func:`pcri` of a reference model, read as a property of the dataset.

    Args:
        whole: shape (N,), each in [0, 1].
        patches: shape (N, n*n), the same samples, each patch alone.

    Returns:
        At most 1: above 0 the dataset needs the whole image, below 0 a region is enough. NaN if the full-image score is 0
        (undefined), for no samples, no patches or a missing score.

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


def _whole_and_best(whole: ArrayLike, patches: ArrayLike) -> tuple[Scores, Scores]:
    full, views = as_scores(whole, "whole"), as_scores(patches, "patches", axes=2)
    require_equal_lengths({"whole": len(full), "patches": len(views)})
    # numpy's max keeps NaN: a missing patch might have been the best one
    best: Scores = views.max(axis=1, initial=0.0) if views.shape[1] else full * math.nan
    return full, best
