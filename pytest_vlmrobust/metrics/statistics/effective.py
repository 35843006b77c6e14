"""How many independent samples clustered ones are worth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .clusters import Clusters

Array = NDArray[np.float64]


class EffectiveSize(NamedTuple):
    """What clusters cost: ``effective = samples / design_effect``; ``correlation`` is NaN where no cluster has two members."""

    samples: int
    clusters: int
    correlation: float
    design_effect: float
    effective: float


def effective_size(values: ArrayLike, groups: Sequence[str] | None) -> EffectiveSize:
    """Returns how many independent samples the mean of ``values`` is worth when samples of one group resemble each other.

    Args:
        values: shape (N,), one number for each sample, such as clean - perturbed.
        groups: the group of each sample; one with an empty name stands alone. None when all are independent.

    Returns:
        ``correlation`` within groups from a one-way analysis of variance, ``design_effect = 1 + (sum m^2 / sum m - 1) *
        correlation`` for group sizes m, at least 1, and ``effective``. Without any variance nothing is known of the correlation:
        then it is NaN, and the design effect that of identical members. NaN throughout for no samples or a missing value.

    Raises:
        ValueError: not one group for each sample, or values of another shape.

    >>> effective_size([1, 1, 0, 0, 1, 1, 0, 0], list("aabbccdd")).effective
    4.0
    """
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or (groups is not None and len(groups) != array.size):
        found = "no groups" if groups is None else f"{len(groups)} groups"
        raise ValueError(f"found values of shape {array.shape} and {found}: expected shape (N,) and one group for each")
    clusters = Clusters.of(groups, array.size)
    if not array.size or np.isnan(array).any():
        return EffectiveSize(array.size, clusters.count, math.nan, math.nan, math.nan)
    sizes = np.bincount(clusters.codes)
    weighted_size = float((sizes**2).sum() / array.size)
    correlation = intraclass_correlation(array, clusters)
    assumed = 1.0 if math.isnan(correlation) else correlation
    effect = max(1.0 + (weighted_size - 1.0) * assumed, 1.0)
    return EffectiveSize(array.size, clusters.count, correlation, effect, array.size / effect)


def intraclass_correlation(values: Array, clusters: Clusters) -> float:
    """Returns the correlation of two members of a cluster, from a one-way analysis of variance.

    ``(B - W) / (B + (m0 - 1) W)`` with the mean squares B between and W within clusters and the average size ``m0 = (N -
    sum m^2 / N) / (G - 1)``.

    Args:
        values: float64, shape (N,).
        clusters: which of the N samples form a cluster.

    Returns:
        At most 1; NaN for fewer than two clusters, clusters of one member each, or values without variance.

    Source: A. Donner, Int. Statist. Rev. 54 (1986) 67-82, the analysis-of-variance estimator.
    """
    between_df, within_df = clusters.count - 1, values.size - clusters.count
    if between_df < 1 or within_df < 1 or float(np.ptp(values)) == 0.0:
        return math.nan
    sizes = np.bincount(clusters.codes)
    sums = clusters.sums((values - values.mean())[:, None])[:, 0]
    explained = float((sums**2 / sizes).sum())
    total = float(((values - values.mean()) ** 2).sum())
    between, within = explained / between_df, max(total - explained, 0.0) / within_df
    average_size = (values.size - float((sizes**2).sum()) / values.size) / between_df
    return (between - within) / (between + (average_size - 1.0) * within)
