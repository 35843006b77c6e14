"""Proportions of 0/1 outcomes: Wilson's score interval, Clopper and Pearson's exact one, and that of a finite population."""

from __future__ import annotations

import math

import numpy as np
import scipy
from numpy.typing import NDArray

from .clusters import Clusters, critical_value, normal_shares, one_sided

Array = NDArray[np.float64]


def is_binary(*arrays: Array) -> bool:
    """Whether every score is 0 or 1."""
    return all(bool(((array == 0.0) | (array == 1.0)).all()) for array in arrays)


def proportion_interval(outcomes: Array, clusters: Clusters, confidence: float) -> tuple[float, float]:
    """Bounds the true share of ones in ``outcomes``, shape (N,) with N > 0, by Wilson's score interval.

    With clusters the counts are divided by the design effect and the normal quantile becomes Student's with G - 1 degrees of
    freedom, as in surveys (J. N. K. Rao and A. J. Scott, Annals of Statistics 12 (1984) 46-60): the same cluster-robust variance
    as a t interval, but without its width of 0 if all answers are right.

    Source: E. B. Wilson, JASA 22 (1927) 209-212.
    """
    successes, n, df = _effective(outcomes, clusters)
    return wilson_interval(successes, n, critical_value(one_sided(confidence), df))


def judged_proportion_interval(outcomes: Array, clusters: Clusters, confidence: float) -> tuple[float, float]:
    """Bounds the true share of ones in ``outcomes``, shape (N,) with N > 0, so that no verdict errs more often than declared.

    Clopper and Pearson's bounds: for independent samples neither is wrong more often than promised, for any share and however
    many tests divide the risk. Wilson's are right on average only: a true accuracy of 99 % shows 1 error in 20 samples in 18 % of
    runs, for which its bound at 5 % claims more than 1 in 100. With clusters, both use effective counts, and the
    normal tail that corresponds to Student's quantile.

    Source: C. J. Clopper and E. S. Pearson, Biometrika 26 (1934) 404-413.
    """
    successes, n, df = _effective(outcomes, clusters)
    critical = critical_value(one_sided(confidence), df)
    return (0.0, 1.0) if math.isinf(critical) else _exact(successes, n, float(scipy.special.ndtr(-critical)))


def exact_limits(outcomes: Array, clusters: Clusters, levels: Array, most_df: float) -> tuple[Array, Array]:
    """Returns the lower and upper limits of :func:`judged_proportion_interval` at many levels, both rising with the level.

    - ``outcomes``: shape (N,) with N > 0.
    - ``levels``: normal quantiles, shape (m,): at 1.645 the upper limit is that at 95 %, at -1.645 the lower one.
    - ``most_df``: the largest number of degrees of freedom, for callers that combine several proportions.
    """
    successes, n, df = _effective(outcomes, clusters)
    if (df := min(df, most_df)) <= 0:
        return np.zeros(levels.size), np.ones(levels.size)
    shares = normal_shares(levels, df)
    low = np.zeros(levels.size) if successes <= 0.0 else scipy.special.betaincinv(successes, n - successes + 1.0, shares)
    high = np.ones(levels.size) if successes >= n else scipy.special.betaincinv(successes + 1.0, n - successes, shares)
    return low, high


def _effective(outcomes: Array, clusters: Clusters) -> tuple[float, float, float]:
    """Returns successes and trials over the design effect, and the degrees of freedom of that effect."""
    effect = float(clusters.design_effects(outcomes[:, None], (0.0, 1.0))[0])
    df = math.inf if clusters.independent else clusters.degrees_of_freedom
    return float(outcomes.sum()) / effect, outcomes.size / effect, df


def wilson_interval(successes: float, n: float, critical: float) -> tuple[float, float]:
    """Returns Wilson's bounds for ``successes`` of ``n`` > 0, effective counts allowed; (0, 1) for an infinite critical value."""
    if math.isinf(critical):
        return 0.0, 1.0
    square = critical * critical
    centre = (successes + square / 2.0) / (n + square)
    failures = max(n - successes, 0.0)
    half = critical / (n + square) * math.sqrt(successes * failures / n + square / 4.0)
    low = 0.0 if successes == 0.0 else max(centre - half, 0.0)
    high = 1.0 if failures == 0.0 else min(centre + half, 1.0)
    return low, high


def exact_interval(successes: int, n: int, confidence: float = 0.90) -> tuple[float, float]:
    """Bounds the true share behind ``successes`` of ``n`` independent trials, exactly; NaN without trials.

    Source: C. J. Clopper and E. S. Pearson, Biometrika 26 (1934) 404-413.

    >>> low, high = exact_interval(13, 16, 0.95)
    >>> round(low, 6), round(high, 6)
    (0.543543, 0.959526)
    """
    tail = one_sided(confidence)
    if not 0 <= successes <= n:
        raise ValueError(f"successes={successes} of n={n}: expected 0 <= successes <= n")
    if n == 0:
        return math.nan, math.nan
    return _exact(successes, n, tail)


def _exact(successes: float, n: float, tail: float) -> tuple[float, float]:
    low = 0.0 if successes <= 0.0 else float(scipy.special.betaincinv(successes, n - successes + 1.0, tail))
    high = 1.0 if successes >= n else float(scipy.special.betainccinv(successes + 1.0, n - successes, tail))
    return low, high
