"""The largest of m means: its winner's curse undone by cross-validation, and a simultaneous lower bound by max-t."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from .clusters import Clusters

Array = NDArray[np.float64]

FOLDS = 5
DRAWS = 2000


def cross_validated_maximum(values: Array, clusters: Clusters, rng: np.random.Generator, folds: int = FOLDS) -> float:
    """Returns the mean of the column that is largest on the other folds, over all folds.

    The largest of m noisy means is biased upwards by up to sqrt(2 ln m) standard errors. Samples that did not choose the column
    judge it without that bias; what they judge is the column that would be chosen, at most the true maximum.

    Args:
        values: float64, shape (N, m) with m > 0.
        clusters: which of the N samples move together: a cluster stays in one fold.
        rng: deals the clusters out to the folds.
        folds: into how many parts the clusters are split; no more than there are clusters.

    Returns:
        The mean over samples; NaN for fewer than two clusters.
    """
    parts = min(folds, clusters.count)
    if parts < 2:
        return math.nan
    fold_of_cluster = np.empty(clusters.count, dtype=np.intp)
    fold_of_cluster[rng.permutation(clusters.count)] = np.arange(clusters.count) % parts
    fold = fold_of_cluster[clusters.codes]
    sums = np.stack([values[fold == part].sum(axis=0) for part in range(parts)])
    sizes = np.bincount(fold, minlength=parts)[:, None]
    elsewhere = (sums.sum(axis=0) - sums) / (len(values) - sizes)
    chosen = elsewhere.argmax(axis=1)
    return float(sums[np.arange(parts), chosen].sum() / len(values))


def max_t_lower(values: Array, clusters: Clusters, tail: float, rng: np.random.Generator, draws: int = DRAWS) -> float:
    """Bounds the largest of m true means from below, wrong with probability about ``tail``, taking their dependence into account.

    Whole clusters are drawn with replacement ``draws`` times; the ``1 - tail`` quantile q of the largest studentised deviation
    gives the bound ``max(mean - q * standard error)``.

    Args:
        values: float64, shape (N, m) with N, m > 0.
        clusters: which of the N samples move together.
        tail: error probability; ``draws`` should be many times its inverse.
        rng: draws the clusters.
        draws: number of resamples.

    Returns:
        The bound; minus infinity for fewer than two clusters.

    Source: J. P. Romano and M. Wolf, Econometrica 73 (2005) 1237-1282 (single step).
    """
    if clusters.count < 2:
        return -math.inf
    means, errors = values.mean(axis=0), clusters.standard_errors(values)
    weights = rng.multinomial(clusters.count, np.full(clusters.count, 1.0 / clusters.count), size=draws).astype(np.float64)
    sizes = np.bincount(clusters.codes, minlength=clusters.count).astype(np.float64)
    resampled = weights @ clusters.sums(values) / (weights @ sizes)[:, None]
    largest = ((resampled - means) / errors).max(axis=1)
    return float((means - np.quantile(largest, 1.0 - tail) * errors).max())
