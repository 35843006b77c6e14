"""Ratios of two means over the same samples, bounded by a linear contrast: no division by an uncertain number."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from .clusters import Clusters
from .quantiles import critical_value, one_sided

Array = NDArray[np.float64]


def ratio_interval(numerator: Array, denominator: Array, clusters: Clusters, confidence: float) -> tuple[float, float]:
    """Bounds mean(numerator) / mean(denominator), known to have a positive denominator.

    A ratio t belongs to the interval unless the contrast ``numerator - t * denominator`` has a mean that differs from 0 (Student's
    t, G - 1 degrees of freedom). Where the denominator itself cannot be told from 0, the interval is unbounded: that side is infinite.

    Args:
        numerator: float64, shape (N,) with N > 0.
        denominator: float64, shape (N,), with a positive mean.
        clusters: which of the N samples move together.
        confidence: two-sided level in (0, 1).

    Returns:
        ``(low, high)``, each possibly infinite.

    Source: E. C. Fieller, J. R. Statist. Soc. B 16 (1954) 175-185.
    """
    tail = one_sided(confidence)
    if clusters.count < 2:
        return -math.inf, math.inf
    top, bottom = float(numerator.mean()), float(denominator.mean())
    covariance = clusters.covariance(np.stack([numerator, denominator], axis=1))
    top_variance = float(clusters.standard_errors(numerator[:, None])[0]) ** 2
    square = critical_value(tail, clusters.degrees_of_freedom) ** 2
    a = bottom**2 - square * float(covariance[1, 1])
    b = top * bottom - square * float(covariance[0, 1])
    c = top**2 - square * top_variance
    return _solution(a, b, c)


def _solution(a: float, b: float, c: float) -> tuple[float, float]:
    """Returns the hull of ``a t^2 - 2 b t + c <= 0``, cut on the side that a positive denominator rules out."""
    discriminant = b * b - a * c
    if discriminant < 0.0 or a == 0.0:
        return -math.inf, math.inf
    root = math.sqrt(discriminant)
    first, second = sorted(((b - root) / a, (b + root) / a))
    if a > 0.0:
        return first, second
    # outside of [first, second] nothing is rejected; inside, the numerator has the sign of the middle
    return (second, math.inf) if first + second > 0.0 else (-math.inf, first)
