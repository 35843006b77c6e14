"""What of ACE and wobble is sampling noise: a debiased point, a lower bracket and a p-value.

The measured ACE of Res-Bench (equation 4) adds up absolute values of noisy steps, so that it is too large on average. All of
these companions are ours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from .curve_intervals import NULL_DRAWS, exceedance
from .scores import Scores, as_scores
from .sources import clusters_of
from .statistics.clusters import Clusters
from .statistics.curves import simulated_wobbles, step_errors, unfolded, wobble

SPLITS = 100


def debiased_continuous_error(rungs: ArrayLike, groups: Sequence[str] | None = None) -> float:
    """ACE with each step's noise taken out: the true step whose measured size would on average be the one found.

    Steps smaller than noise alone would show count 0. What is left of the bias is about half of it on a flat curve and next to
    nothing where steps stand out from the noise.

    Args:
        rungs: shape (N, R), scores in [0, 1], resolutions in ascending order.
        groups: source image of each sample; None when all samples are independent.

    Returns:
        At least 0 and at most the measured ACE; NaN for fewer than two samples, groups or resolutions, or a missing score.

    Raises:
        ValueError: a score outside [0, 1], or another shape.

    Source: Res-Bench equation 4, corrected by the mean of a folded normal variable (ours).

    >>> debiased_continuous_error([[0, 1], [1, 0], [1, 1], [0, 0], [1, 1]])
    0.0
    """
    known = _known(rungs, groups)
    if known is None:
        return math.nan
    points, clusters = known
    sizes = np.abs(np.diff(points.mean(axis=0)))
    return float(unfolded(sizes, step_errors(points, clusters)).sum())


def split_continuous_error(
    rungs: ArrayLike, generator: np.random.Generator, groups: Sequence[str] | None = None, splits: int = SPLITS
) -> float:
    """ACE with the sign of each step taken from one half of the samples and its size from the other: a lower bracket.

    ``sum_k sign(dA_k) dB_k`` averaged over random halves and both directions. A wrong sign only lowers it, so that in expectation
    it is at most the true ACE, and the measured ACE is at least that: ``split <= truth <= measured``.

    Args:
        rungs: shape (N, R), scores in [0, 1], resolutions in ascending order.
        generator: draws the halves.
        groups: source image of each sample, which are not torn apart; None when all samples are independent.
        splits: how many random halves, at least 1.

    Returns:
        At most about the measured ACE, possibly below 0; NaN for fewer than two samples, groups or resolutions, or a missing
        score.

    Raises:
        ValueError: no split, a score outside [0, 1], or another shape.

    Source: Res-Bench equation 4, with sample splitting (ours).
    """
    if splits < 1:
        raise ValueError(f"splits is {splits!r}: expected at least 1")
    known = _known(rungs, groups)
    if known is None:
        return math.nan
    points, clusters = known
    return float(np.mean([_split_once(points, clusters, generator) for _ in range(splits)]))


def wobble_p_value(
    rungs: ArrayLike, generator: np.random.Generator, groups: Sequence[str] | None = None, draws: int = NULL_DRAWS
) -> float:
    """Probability that a monotone curve shows at least as much wobble by sampling noise alone.

    The null is the monotone curve nearest to the measured one (isotonic regression in the direction of the net change), with
    normal noise of the measured covariance.

    Args:
        rungs: shape (N, R), scores in [0, 1], resolutions in ascending order.
        generator: draws the noise.
        groups: source image of each sample; None when all samples are independent.
        draws: how many curves to draw, at least 1; no p-value is below 1 / (1 + draws).

    Returns:
        A probability in (0, 1]; NaN for fewer than two samples, groups or resolutions, or a missing score.

    Raises:
        ValueError: no draw, a score outside [0, 1], or another shape.

    Source: wobble is ours, see :func:`resolution_wobble`; parametric bootstrap of Res-Bench's curves.
    """
    if draws < 1:
        raise ValueError(f"draws is {draws!r}: expected at least 1")
    known = _known(rungs, groups)
    if known is None:
        return math.nan
    points, clusters = known
    return exceedance(simulated_wobbles(points, clusters, generator, draws), float(wobble(points.mean(axis=0))))


def _known(rungs: ArrayLike, groups: Sequence[str] | None) -> tuple[Scores, Clusters] | None:
    """Returns the scores and their clusters, or None when they are too few or one is missing."""
    points = as_scores(rungs, "rungs", axes=2)
    clusters = clusters_of(groups, len(points))
    return None if clusters.count < 2 or points.shape[1] < 2 or np.isnan(points).any() else (points, clusters)


def _split_once(points: Scores, clusters: Clusters, generator: np.random.Generator) -> float:
    half = np.zeros(clusters.count, dtype=np.bool_)
    half[generator.permutation(clusters.count)[: clusters.count // 2]] = True
    chosen = half[clusters.codes]
    first, second = (np.diff(points[rows].mean(axis=0)) for rows in (chosen, ~chosen))
    return float((np.sign(first) * second + np.sign(second) * first).sum() / 2.0)
