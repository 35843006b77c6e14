"""Ratios of two means over the same samples, bounded by a linear contrast: no division by an uncertain number."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from .clusters import UNSEEN, Clusters
from .quantiles import critical_value, one_sided

Array = NDArray[np.float64]


def ratio_interval(numerator: Array, denominator: Array, clusters: Clusters, confidence: float) -> tuple[float, float]:
    """Bounds mean(numerator) / mean(denominator), known to have a positive denominator.

    A ratio t belongs to the interval unless the mean of the contrast ``numerator - t * denominator`` differs from 0 (Student's t,
    G - 1 degrees of freedom). Where the denominator itself cannot be told from 0, one side or both are infinite.

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
    ratio = float(numerator.sum() / denominator.sum())
    covariance = clusters.covariance(np.stack([numerator, denominator], axis=1))
    top_variance = float(covariance[0, 0]) + _unseen_variance(numerator - ratio * denominator, clusters)
    square = critical_value(tail, clusters.degrees_of_freedom) ** 2
    top, bottom = float(numerator.mean()), float(denominator.mean())
    a = bottom**2 - square * float(covariance[1, 1])
    b = top * bottom - square * float(covariance[0, 1])
    c = top**2 - square * top_variance
    return _solution(a, b, c, ratio)


def _unseen_variance(residual: Array, clusters: Clusters) -> float:
    """Returns the variance of what G clusters cannot have shown, when no cluster departs from the ratio; else 0."""
    unseen = math.sqrt(float(clusters.variances(residual[:, None])[0])) < UNSEEN
    return float(clusters.standard_errors(residual[:, None])[0]) ** 2 if unseen else 0.0


def _solution(a: float, b: float, c: float, ratio: float) -> tuple[float, float]:
    """Returns where ``a t^2 - 2 b t + c <= 0``, given that ``ratio`` is a solution and the denominator is positive."""
    discriminant = b * b - a * c
    if a == 0.0 or (a < 0.0 and discriminant < 0.0):
        return -math.inf, math.inf
    root = math.sqrt(max(discriminant, 0.0))
    first, second = sorted(((b - root) / a, (b + root) / a))
    if a > 0.0:
        return min(first, ratio), max(second, ratio)
    # everything between the roots is rejected, hence, with a positive denominator, everything beyond them as seen from the ratio
    return (second, math.inf) if ratio >= second else (-math.inf, first)
