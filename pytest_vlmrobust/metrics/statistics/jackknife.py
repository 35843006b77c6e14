"""Intervals of any smooth function of sums over clusters, from what it becomes without each of them: the jackknife.

Each bound is guarded as those of ratios are, by one more cluster that argues against it: few wrong answers, or none, then do not
pass for certainty. Simulated one-sided errors at 5 % are in the tests of this module.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from .clusters import UNSEEN, Clusters
from .quantiles import critical_value, one_sided

Array = NDArray[np.float64]
Function = Callable[[Array], Array]

SMALLEST = 2
"""Clusters below which nothing is shown."""


def guarded_jackknife_interval(
    sums: Array, function: Function, confidence: float, *, against_low: Array, against_high: Array, effective: float | None = None
) -> tuple[float, float]:
    """Bounds ``function(sums.sum(axis=0))`` by Student's t with as many degrees of freedom as clusters, G, count for.

    The variance is ``(G - 1) / G`` times the sum of squared deviations of the G values without one cluster each. The usual
    conditions hold: the function is smooth, and no single cluster decides it.

    Args:
        sums: what each of G independent clusters adds, shape (G, k).
        function: takes sums of shape (..., k), returns shape (...).
        confidence: two-sided level in (0, 1).
        against_low: what the cluster adds that argues most against a low bound, shape (k,).
        against_high: the same for the high one.
        effective: how many clusters of one size count as much as these (:attr:`Clusters.effective`); None for G.

    Returns:
        ``(low, high)`` around the value; infinite for fewer than two clusters; NaN where the function is undefined, or is so
        without one of the clusters.

    Raises:
        ValueError: a level outside (0, 1).

    Source: R. G. Miller, The jackknife - a review, Biometrika 61 (1974) 1-15; the guard is ours.
    """
    tail = one_sided(confidence)
    if len(sums) < SMALLEST:
        return -math.inf, math.inf
    value = float(function(sums.sum(axis=0)))
    critical = critical_value(tail, len(sums) if effective is None else effective)  # one more cluster argues against each bound
    below, above = (_centre_and_margin(np.vstack([sums, extra]), function, critical) for extra in (against_low, against_high))
    low, high = below[0] - below[1], above[0] + above[1]
    return (math.nan, math.nan) if math.isnan(low + high + value) else (min(low, value), max(high, value))


def _centre_and_margin(sums: Array, function: Function, critical: float) -> tuple[float, float]:
    total, clusters = sums.sum(axis=0), len(sums)
    without = function(total - sums)
    error = math.sqrt((clusters - 1) / clusters * float(((without - without.mean()) ** 2).sum()))
    return float(function(total)), critical * (2.0 / clusters if error < UNSEEN else error)


def joined(groups: Sequence[str], units: Iterable[Sequence[int]]) -> Clusters:
    """Returns the finest clusters that keep samples of one group together, and those of one unit.

    Args:
        groups: the source image of each of N samples; one without a name stands alone.
        units: samples that something is computed from together, by index.
    """
    own = Clusters.of(groups, len(groups))
    edges = [(sample, own.count + number) for number, unit in enumerate(units) for sample in unit]
    size = own.count + 1 + max((node for _, node in edges), default=own.count)
    rows, columns = own.codes[[sample for sample, _ in edges]], np.array([node for _, node in edges], int)
    graph = coo_array((np.ones(len(edges)), (rows, columns)), shape=(size, size))
    labels = connected_components(graph, directed=False)[1][own.codes]
    names, codes = np.unique(labels, return_inverse=True)
    return Clusters(codes.reshape(-1), len(names))
