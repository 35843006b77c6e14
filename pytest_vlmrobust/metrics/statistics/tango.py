"""Tango's score interval for the difference of two paired proportions.

Source: T. Tango, "Equivalence test and confidence interval for the difference in proportions for the paired-sample design",
Statistics in Medicine 17 (1998) 891-908. Unlike Wald, bootstrap or BCa intervals it stays honest when hardly any answer flips.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from .quantiles import critical_value, one_sided

Array = NDArray[np.float64]

_HALVINGS = 50


def tango_statistic(harmful: Array, helpful: Array, n: Array, drop: Array) -> Array:
    """Returns the score statistic of "the drop is ``drop``": standard normal when it is, falling in ``drop``.

    Args:
        harmful: counts of right-to-wrong answers, any shape; fractions are allowed (effective counts).
        helpful: counts of wrong-to-right answers.
        n: numbers of pairs.
        drop: hypothesised differences, inside (-1, 1).
    """
    a = 2.0 * n
    b = -harmful - helpful + (a - harmful + helpful) * drop
    c = -helpful * drop * (1.0 - drop)
    nuisance = (np.sqrt(np.maximum(b * b - 4.0 * a * c, 0.0)) - b) / (2.0 * a)
    variance = n * (2.0 * nuisance + drop * (1.0 - drop))
    excess = harmful - helpful - n * drop
    return np.divide(excess, np.sqrt(np.maximum(variance, 0.0)), out=np.zeros_like(excess), where=variance > 0)


def tango_lower(harmful: Array, helpful: Array, n: Array, critical: float) -> Array:
    """Returns the smallest drop that the score test does not reject, by bisection; all arrays of one shape."""
    if math.isinf(critical):
        return np.full(harmful.shape, -1.0)
    low, high = np.full(harmful.shape, -1.0), (harmful - helpful) / n
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        rejected = tango_statistic(harmful, helpful, n, middle) > critical
        low, high = np.where(rejected, middle, low), np.where(rejected, high, middle)
    return low


def tango_upper(harmful: Array, helpful: Array, n: Array, critical: float) -> Array:
    """Returns the largest drop that the score test does not reject: the lower bound with the two models swapped."""
    return -tango_lower(helpful, harmful, n, critical)


def paired_drop_interval(harmful: float, helpful: float, n: float, confidence: float = 0.90) -> tuple[float, float]:
    """Bounds the true drop behind ``harmful`` right-to-wrong and ``helpful`` wrong-to-right answers among ``n`` paired samples.

    The level is two-sided: each bound of a 0.90 interval is a one-sided 95 % bound. Without samples both bounds are NaN.

    Args:
        harmful: count of samples right when clean and wrong when perturbed.
        helpful: count of samples wrong when clean and right when perturbed.
        n: number of samples in all.
        confidence: two-sided level in (0, 1).

    Returns:
        ``(low, high)``, fractions in [-1, 1].

    Raises:
        ValueError: a negative count, more flips than samples, or a level outside (0, 1).

    Source: Tango 1998 (score interval).

    >>> low, high = paired_drop_interval(36, 13, 869)
    >>> round(low, 4), round(high, 4)
    (0.0136, 0.0405)
    """
    tail = one_sided(confidence)
    if any(math.isnan(count) for count in (harmful, helpful, n)):
        return math.nan, math.nan
    if min(harmful, helpful) < 0 or harmful + helpful > n:
        raise ValueError(
            f"harmful={harmful} and helpful={helpful} of n={n}: expected counts of at least 0 that together do not exceed n"
        )
    if n == 0:
        return math.nan, math.nan
    counts = (np.array([float(harmful)]), np.array([float(helpful)]), np.array([float(n)]))
    critical = critical_value(tail)
    return float(tango_lower(*counts, critical)[0]), float(tango_upper(*counts, critical)[0])
