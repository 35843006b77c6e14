"""Intervals of corpus metrics: of a value, and of what is computed from two values over the same samples.

Clusters are source images, joined where a metric judges questions about several images together. Clean and perturbed answers
are taken together, cluster by cluster, so that what they share cancels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.metrics.statistics.clusters import Clusters, guarded_jackknife_interval, joined
from pytest_vlmrobust.scoring import Sums

Array = NDArray[np.float64]
Bounds = Callable[[float], tuple[float, float]]
"""``confidence -> (low, high)``"""


def bounds_of_value(own: Sums, samples: Sequence[Sample]) -> Bounds:
    """Returns what bounds a corpus metric."""
    clusters = _clusters(samples, own)
    size = _size(clusters, own)

    def bounds(confidence: float) -> tuple[float, float]:
        return guarded_jackknife_interval(
            _by_cluster(own, clusters),
            own.value,
            confidence,
            against_low=size * own.worst,
            against_high=size * own.best,
            effective=clusters.effective,
        )

    return _cut(bounds, 0.0, own.highest)


def bounds_of_drop(clean: Sums, own: Sums, samples: Sequence[Sample]) -> Bounds:
    """Returns what bounds the drop of a corpus metric from the clean answers to others."""
    highest = max(clean.highest, own.highest)
    return _cut(_bounds_of_change(clean, own, samples, lambda before, after: before - after), -highest, highest)


def bounds_of_index(clean: Sums, own: Sums, samples: Sequence[Sample]) -> Bounds:
    """Returns what bounds one less the ratio of a corpus metric of the best patches to that of the whole pictures."""

    def index(before: Array, after: Array) -> Array:
        ratio: Array = np.divide(after, before, out=np.full(np.shape(before), np.nan), where=before > 0)
        return 1.0 - ratio

    return _cut(_bounds_of_change(clean, own, samples, index), -np.inf, 1.0)


def _bounds_of_change(clean: Sums, own: Sums, samples: Sequence[Sample], change: Callable[[Array, Array], Array]) -> Bounds:
    """Returns what bounds a change that grows when the clean value grows, and when the other one falls."""
    clusters = _clusters(samples, clean, own)
    size, width = _size(clusters, clean), clean.rows.shape[1]

    def function(sums: Array) -> Array:
        return change(clean.value(sums[..., :width]), own.value(sums[..., width:]))

    def bounds(confidence: float) -> tuple[float, float]:
        return guarded_jackknife_interval(
            np.hstack([_by_cluster(clean, clusters), _by_cluster(own, clusters)]),
            function,
            confidence,
            against_low=size * np.concatenate([clean.worst, own.best]),
            against_high=size * np.concatenate([clean.best, own.worst]),
            effective=clusters.effective,
        )

    return bounds


def _clusters(samples: Sequence[Sample], *parts: Sums) -> Clusters:
    return joined([sample.group or sample.id for sample in samples], [unit for part in parts for unit in part.members])


def _size(clusters: Clusters, part: Sums) -> int:
    """Returns how many units a cluster has, if all had one size and counted as much."""
    return max(1, round(min(len(part.rows), clusters.codes.size) / clusters.effective))


def _by_cluster(part: Sums, clusters: Clusters) -> Array:
    sums = np.zeros((clusters.count, part.rows.shape[1]))
    np.add.at(sums, clusters.codes[[members[0] for members in part.members]], part.rows)
    return sums


def _cut(bounds: Bounds, smallest: float, largest: float) -> Bounds:
    """Returns bounds inside the possible values."""

    def cut(confidence: float) -> tuple[float, float]:
        low, high = bounds(confidence)
        return max(low, smallest), min(high, largest)

    return cut
