"""The largest of m means: its winner's curse undone by cross-validation, and a simultaneous lower bound by max-t.

The same for the mean of the largest few of them: bounds that hold whichever they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from .clusters import Clusters
from .guarded import BoundedMeanTest, Ends

Array = NDArray[np.float64]

FOLDS = 5
ROUNDS = 4
DRAWS = 2000
_ROUNDING = 1e-12


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
    fold = _folds(clusters, parts, rng)
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


def largest_few_lower(losses: Array, clusters: Clusters, few: int, tail: float, rng: np.random.Generator) -> float:
    """Bounds the mean of the ``few`` largest of m true mean losses from below, wrong with probability about ``tail``.

    Samples that did not choose the columns judge them, as in :func:`cross_validated_maximum`; the mean of the columns that are
    chosen is at most that of the largest ones. Several rounds of folds are averaged, so that no single one decides.

    Args:
        losses: float64, shape (N, m) with N, m > 0, in [-1, 1].
        clusters: which of the N samples move together: a cluster stays in one fold.
        few: how many columns, 1 to m.
        tail: error probability.
        rng: deals the clusters out to the folds.

    Returns:
        The bound; minus infinity for fewer than two clusters.
    """
    parts = min(FOLDS, clusters.count)
    if parts < 2:
        return -math.inf
    judged = np.zeros(len(losses))
    for _ in range(ROUNDS):
        fold = _folds(clusters, parts, rng)
        for part in range(parts):
            chosen = np.argsort(-losses[fold != part].mean(axis=0), kind="stable")[:few]
            judged[fold == part] += losses[np.ix_(fold == part, chosen)].mean(axis=1) / ROUNDS
    return float(BoundedMeanTest.of_losses(judged[:, None], clusters).lower(tail)[0])


def largest_few_upper(losses: Array, clusters: Clusters, few: int, tail: float) -> float:
    """Bounds the mean of the ``few`` largest of m true mean losses from above, wrong with probability at most about ``tail``.

    The mean of the largest few is the largest of the means over any ``few`` columns, so it is bounded by the largest of their
    upper bounds, without correction (intersection-union). There are too many such sets to try them all. From the columns with the
    largest means, and from those with the largest bounds, one column is exchanged for another for as long as that raises the
    bound of the set. Adding up the bounds of single columns instead would ignore that their errors partly cancel.

    Args:
        losses: float64, shape (N, m) with N, m > 0, in [-1, 1].
        clusters: which of the N samples move together.
        few: how many columns, 1 to m.
        tail: error probability.

    Returns:
        The bound; infinity for fewer than two clusters.
    """
    if clusters.count < 2:
        return math.inf
    means, covariance = losses.mean(axis=0), clusters.covariance(losses)
    count, df = clusters.effective, clusters.degrees_of_freedom

    def bounds(sums: Array, variances: Array) -> Array:
        squares = variances.clip(min=0.0) / few**2
        return BoundedMeanTest.from_variances(sums / few, squares, count, df, Ends(-1.0, 1.0)).upper(tail)

    alone = BoundedMeanTest.from_variances(means, covariance.diagonal(), count, df, Ends(-1.0, 1.0)).upper(tail)
    return max(_best_exchange(np.argsort(-order, kind="stable"), few, means, covariance, bounds) for order in (means, alone))


def _best_exchange(
    order: NDArray[np.intp], few: int, means: Array, covariance: Array, bounds: Callable[[Array, Array], Array]
) -> float:
    """Returns the bound of the set that no exchange of one column improves, from the first ``few`` of ``order``."""
    inside, outside = order[:few].copy(), order[few:].copy()
    single = covariance.diagonal()
    while True:
        among = covariance[np.ix_(inside, inside)]
        total, variance = means[inside].sum(), among.sum()
        best = float(bounds(total, variance))
        if not outside.size:
            return best
        shared = covariance[np.ix_(inside, outside)]
        leaving = single[inside] - 2.0 * among.sum(axis=1)
        entering = single[outside] + 2.0 * shared.sum(axis=0)
        sums = total - means[inside][:, None] + means[outside]
        found = bounds(sums, variance + leaving[:, None] + entering - 2.0 * shared)
        if not float(found.max()) > best + _ROUNDING:
            return best
        leaves, enters = np.unravel_index(int(found.argmax()), found.shape)
        inside[leaves], outside[enters] = outside[enters], inside[leaves]


def _folds(clusters: Clusters, parts: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Returns the fold of each sample, shape (N,); clusters are dealt out whole."""
    fold_of_cluster = np.empty(clusters.count, dtype=np.intp)
    fold_of_cluster[rng.permutation(clusters.count)] = np.arange(clusters.count) % parts
    return fold_of_cluster[clusters.codes]
