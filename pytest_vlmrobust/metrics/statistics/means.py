"""Means, proportions, ratios and sums: Student's t for clusters, and bounds that hold with few samples and rare answers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from .clusters import UNSEEN, Clusters, critical_value, normal_shares, one_sided, upper_tail
from .ratios import ratio_interval

Array = NDArray[np.float64]

# Bounds of means that hold for any bounded values: random weights, one of them for a value at the extreme.
#
# Give n independent values, plus one at the end of their range, weights from a flat Dirichlet distribution. The weighted mean is
# beyond the true mean with at least the probability that a confidence bound needs, so its quantiles are bounds. For 0 and 1 they
# are those of Clopper and Pearson. For n equal values the bound moves by ``1 - tail^(1/n)`` of the way to the end, about 3 / n at
# 5 %, and no valid bound moves less. For spread values it is as wide as Student's t.
#
# Source: N. Gaffke, Mathematical Methods of Statistics 14 (2005) 451-467; E. Learned-Miller and P. S. Thomas, A new confidence
# interval for the mean of a bounded random variable, arXiv:1905.06208. It is proved for two values, a conjecture for others: no
# counterexample is known, and ``tests/contract/test_declared_risks.py`` looks for one.
#
# Each cluster has one weight for all its samples, and the further one has the size of an average cluster.


_ROUNDS, _CLOSE, _INSIDE = 60, 1e-9, 0.05
_STEP, _NODES, _NEGLIGIBLE = 0.15, 100, 1e-9
_AT_ONCE = 8_000
"""Numbers computed in one step: few weights have many nodes at once."""
_FARTHEST = 100.0
"""Beyond this many standard errors, a bound of a ratio is useless."""
_AWAY = 0.8
"""How far from 0, in standard deviations, the path of integration stays."""
_TURN = 0.25
"""How much the path turns towards the skewed side: half of the turn for an exponential distribution."""


@dataclass(frozen=True, slots=True, eq=False)
class DirichletMeans:
    """Distribution of the mean of each column of values under random weights, with one more value at an end."""

    sums: Array
    """Sum of each cluster, shape (G + 1, m); the last is the further one."""
    sizes: Array
    """Samples of each cluster, shape (G + 1, 1)."""
    low: float | Array
    """The smallest possible value."""
    high: float | Array

    @classmethod
    def of(cls, values: Array, clusters: Clusters, further: float | Array, other: float | Array) -> DirichletMeans:
        """Returns the distribution for ``values``, shape (N, m) with N > 0.

        - ``values``: in [further, other], or in [other, further].
        - ``further``: the end with the one more value.
        - ``other``: the other end.
        """
        size = clusters.codes.size / clusters.effective
        sums = np.vstack([clusters.sums(values), np.full((1, values.shape[1]), further) * size])
        low, high = np.minimum(further, other), np.maximum(further, other)
        return cls(sums, np.append(clusters.sizes, size)[:, None].astype(np.float64), low, high)

    def below(self, bound: Array) -> Array:
        """Returns the probabilities of a mean below ``bound``, shape (m,)."""
        return _positive(self.sizes * bound - self.sums)

    def quantile(self, probability: float | Array) -> Array:
        """Returns the quantiles of the means at ``probability`` in (0, 1), shape (m,)."""
        low, high = (np.full(self.sums.shape[1], end) for end in (self.low, self.high))
        wanted = scipy.special.ndtri(np.broadcast_to(probability, low.shape))
        mean, error = self._centre()
        at = np.clip(mean + wanted * error, low + _INSIDE * (mean - low), high - _INSIDE * (high - mean))
        slope, last = np.maximum(error, _CLOSE), (at.copy(), np.full(low.shape, np.nan))
        left = np.arange(at.size)  # the columns still to solve
        for _ in range(_ROUNDS):
            here = at[left]
            excess = scipy.special.ndtri(_positive(self.sizes * here - self.sums[:, left])) - wanted[left]
            with np.errstate(invalid="ignore", divide="ignore"):
                secant = (here - last[0][left]) / (excess - last[1][left])
            slope[left] = np.where(np.isfinite(secant) & (secant > 0.0), secant, slope[left])
            low[left], high[left] = np.where(excess < 0.0, here, low[left]), np.where(excess < 0.0, high[left], here)
            guess = here - excess * slope[left]
            inside = (guess > low[left]) & (guess < high[left])
            last[0][left], last[1][left] = here, excess
            at[left] = np.where(inside, guess, (low[left] + high[left]) / 2.0)
            left = left[np.abs(at[left] - here) > _CLOSE]
            if not left.size:
                break
        result: Array = at
        return result

    def at_levels(self, levels: Array, steps: Array) -> Array:
        """Returns the means of one column at normal levels, interpolated between points about ``steps`` errors off."""
        mean, error = self._centre()
        at = np.unique(np.clip(mean + 2.0 * error * np.sinh(steps / 2.0), self.low, self.high))
        reached = scipy.special.ndtri(_positive(self.sizes * at - self.sums))
        known = np.isfinite(reached)
        result: Array = np.interp(levels, reached[known], at[known], float(self.low), float(self.high))
        return result

    def _centre(self) -> tuple[Array, Array]:
        """Returns the mean of the distribution of each column, and its approximate standard error."""
        mean = self.sums.sum(axis=0) / self.sizes.sum()
        return mean, np.sqrt(((self.sums - mean * self.sizes) ** 2).sum(axis=0)) / self.sizes.sum()


def ratio_below(parts: Array, clusters: Clusters, further: tuple[float, float], tail: float) -> float:
    """Returns the lower bound of mean(numerator) / mean(denominator), minus infinity if the denominator may be 0.

    Each candidate bound is tested by the mean of ``numerator - bound * denominator``.

    - ``parts``: numerator and denominator of each sample, shape (N, 2), with a positive mean denominator.
    - ``further``: numerator and denominator of one more value, the one most against a lower bound.
    """
    sums = np.vstack([clusters.sums(parts), np.array(further) * clusters.codes.size / clusters.effective])
    ratio = float(parts[:, 0].sum() / parts[:, 1].sum())
    error = float(np.sqrt(((sums[:, 0] - ratio * sums[:, 1]) ** 2).sum())) / float(parts[:, 1].sum())
    lowest = ratio - _FARTHEST * error
    means = DirichletMeans(sums[:, :1], sums[:, 1:], lowest, ratio)
    return float(means.quantile(tail)[0]) if float(means.below(np.array([lowest]))[0]) < tail else -np.inf


def _positive(weights: Array) -> Array:
    """Returns the probability that ``sum of weights * E > 0`` for independent exponential E, shape (G, m) to (m,).

    The inverse Laplace transform of ``prod 1 / (1 - s w) / s``, summed along a hyperbola through the saddle point, which
    decays fastest: precise to nine digits from ten clusters on, to seven from two.
    """
    turned = weights.sum(axis=0) > 0.0  # computes the smaller side
    signed = np.where(turned, -weights, weights)
    largest = signed.max(axis=0)
    result = np.zeros(largest.shape)
    if (some := largest > 0.0).any():
        result[some] = _right_tail(signed[:, some] / largest[some])
    both: Array = np.where(turned, 1.0 - result, result)
    return both


def _right_tail(weights: Array) -> Array:
    """Returns the same as :func:`_positive` for weights with a sum of at most 0 and a maximum of 1."""
    least = np.minimum(_AWAY / np.sqrt((weights**2).sum(axis=0)), 0.5)
    saddle, low, high = least, least, np.ones_like(least)
    for _ in range(_ROUNDS):
        tilted = weights / (1.0 - saddle * weights)
        slope = tilted.sum(axis=0)
        low, high = np.where(slope < 0.0, saddle, low), np.where(slope < 0.0, high, saddle)
        guess = saddle - slope / (tilted**2).sum(axis=0)
        following = np.where(guess < high, np.maximum(guess, low), (saddle + high) / 2.0)
        moved, saddle = np.abs(following - saddle), following
        if (moved <= 1e-3 * (1.0 - saddle)).all():
            break
    tilted = weights / (1.0 - saddle * weights)
    spread = np.sqrt((tilted**2).sum(axis=0))
    tilted = tilted / spread
    turn, pole = _TURN * 2.0 * (tilted**3).sum(axis=0), saddle * spread
    up = np.sqrt(1.0 - turn**2)
    total = np.zeros_like(saddle)
    at_once = max(min(_AT_ONCE // weights.size, _NODES), 1)
    for first in range(0, _NODES, at_once):
        angles = _STEP * np.arange(first, min(first + at_once, _NODES))[:, None]
        sine, cosine = np.sinh(angles), np.cosh(angles)
        path, along = turn * (cosine - 1.0) + 1j * up * sine, turn * sine + 1j * up * cosine
        with np.errstate(over="ignore", invalid="ignore"):
            terms = along / (np.prod(1.0 - path[:, None] * tilted, axis=1) * (pole + path))
        terms = np.where(np.isfinite(terms), terms, 0.0)  # overflow counts as 0
        negligible = (np.abs(terms) < _NEGLIGIBLE).all(axis=1)
        terms[:1] *= 0.5 if first == 0 else 1.0
        for term in terms[: int(negligible.argmax()) + 1 if negligible.any() else None]:
            total += term.imag
        if negligible.any():
            break
    result: Array = np.exp(-np.log1p(-saddle * weights).sum(axis=0)) * total * _STEP / np.pi
    return result


# Proportions of 0/1 outcomes: Wilson's score interval, Clopper and Pearson's exact one, and that of a finite population.


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


# Means of graded or averaged scores: Student's t with cluster-robust standard errors.


@dataclass(frozen=True, slots=True, eq=False)
class MeanTest:
    """Test of the true means of the columns of a table; G - 1 degrees of freedom for G clusters."""

    means: Array
    errors: Array
    df: float

    @classmethod
    def of(cls, values: Array, clusters: Clusters) -> MeanTest:
        """Returns the test of the mean of each column of ``values``, shape (N, m) with N > 0."""
        return cls(values.mean(axis=0), clusters.standard_errors(values), clusters.degrees_of_freedom)

    def lower(self, tail: float) -> Array:
        """Returns one-sided lower bounds, shape (m,); minus infinity for a single cluster."""
        return self.means - self._margin(tail)

    def upper(self, tail: float) -> Array:
        """Returns one-sided upper bounds, shape (m,); infinity for a single cluster."""
        return self.means + self._margin(tail)

    def p_above(self, bound: float) -> Array:
        """Returns p-values of "the true mean is at most ``bound``", shape (m,): small ones show a mean above it."""
        return upper_tail((self.means - bound) / self.errors, self.df)

    def p_below(self, bound: float) -> Array:
        """Returns p-values of "the true mean is at least ``bound``", shape (m,): small ones show a mean below it."""
        return upper_tail((bound - self.means) / self.errors, self.df)

    def _margin(self, tail: float) -> Array:
        if self.df <= 0:
            return np.full(self.means.shape, np.inf)
        margin: Array = critical_value(tail, self.df) * self.errors
        return margin


# Bounds of means and ratios that hold with few samples and rare answers: each is computed with one more sample against it.
#
# A contrast with rare large values has too small a variance in most samples, because the rare ones are missing. One further
# sample of the kind most against a bound compensates for it. For means see :class:`BoundedMeanTest`. For a ratio with
# clusters it is a cluster with as many samples as the design effect. For the contrast of luck, plain t
# bounds at 5 % err up to 50 % of the time (two options, or nine patches, 100 samples); with the further sample no error above
# 5 % was found in the tried combinations of 2, 4 and 10 options, 4 and 9 patches, and 20 to 1000 samples.


class Ends(NamedTuple):
    """The smallest and the largest value that a sample can have, each for all columns of a table or of shape (m,)."""

    smallest: float | Array
    largest: float | Array


@dataclass(frozen=True, slots=True, eq=False)
class BoundedMeanTest:
    """Test of the true means of the columns of a table of bounded values, by Student's t with G - 1 degrees of freedom.

    The upper bound assumes one more cluster of average size with the largest value, the lower one with the
    smallest. Without it the variance reflects only the few observed losses. For n samples that sometimes lose 1,
    the t bound at 5 % is below the truth in up to 19 % of runs, in 28 % if the others lose a little; and no loss at all
    would need a special rule that makes it look worse than one loss. With the cluster, k losses of 1, k small, have the bound
    ``(k + 1 + t sqrt(k + 1)) / n``: 2.6 / n for none (tails of flips: 3.0 / n), and it rises. For 20 to 869 samples and
    any probability of a loss up to 1/2 it errs in at most 7.1 % of runs (exact), and less often if losses are below 1.

    The weight of one sample gives the width of Tango's own interval if nothing is lost. With half a sample the bound would be
    1.3 / n then and err in up to 27 % of runs; with one and a half it would err in at most 5 % and be 4 / n. No other method
    does much better: if a share p of samples loses all, none of n is among them with probability ``(1 - p)^n``, and a bound
    that errs in at most 5 % of runs must then be at least ``1 - 0.05^(1/n)``, about 3 / n.

    Source: ours, after the pseudo-observations of A. Agresti and B. A. Coull, The American Statistician 52 (1998)
    119-126.

    The lower bound of losses (:meth:`of_losses`), which decides a FAIL and may share its risk with many tests, is that of
    :class:`DirichletMeans` instead: it errs no more often than declared at any risk; Student's t with one more cluster errs
    up to 34 times as often at a 133rd of 5 %.
    """

    means: Array
    below: MeanTest
    """With one more cluster that has the smallest value."""
    above: MeanTest
    """With one more cluster that has the largest value."""
    weighted: DirichletMeans | None = None
    """The basis of lower bounds; None to use ``below``."""

    @classmethod
    def of(cls, values: Array, clusters: Clusters, smallest: float, largest: float) -> BoundedMeanTest:
        """Returns the test of the mean of each column of ``values``, shape (N, m) with N > 0, each in [smallest, largest]."""
        means, variances = values.mean(axis=0), clusters.variances(values)
        return cls.from_variances(means, variances, clusters.effective, clusters.degrees_of_freedom, Ends(smallest, largest))

    @classmethod
    def of_losses(cls, losses: Array, clusters: Clusters, most: float = 1.0, largest: float = 1.0) -> BoundedMeanTest:
        """Returns the test of mean losses, negative for gains, with lower bounds that hold for any losses.

        - ``losses``: shape (N, m) with N > 0.
        - ``most``: the largest gain that a sample can have.
        - ``largest``: the largest loss.
        """
        test = cls.of(losses, clusters, -most, largest)
        return replace(test, weighted=DirichletMeans.of(losses, clusters, -most, largest))

    @classmethod
    def of_increases(cls, increases: Array, clusters: Clusters) -> BoundedMeanTest:
        """Returns the test of mean increases of losses, each in [-2, 2]: the further one is 1 or -2."""
        return cls.of_losses(increases, clusters, most=2.0)

    @classmethod
    def from_variances(cls, means: Array, variances: Array, count: float, df: float, ends: Ends) -> BoundedMeanTest:
        """Returns the test of m means whose variances are known from clusters.

        Args:
            means: shape (m,).
            variances: of the means, shape (m,); infinite for a single cluster.
            count: number of clusters, or effective number.
            df: degrees of freedom of the variances; 0 if nothing is shown.
            ends: the extreme values of a further sample.
        """
        below, above = (_one_more(means, variances, count, df, end) for end in ends)
        return cls(means, below, above)

    @classmethod
    def mean(cls, tests: Sequence[BoundedMeanTest], df: float) -> BoundedMeanTest:
        """Returns the test of the plain means over independent datasets."""
        ends = zip(*((test.below, test.above) for test in tests), strict=True)
        below, above = (_average(end, df) for end in ends)
        return cls(np.mean([test.means for test in tests], axis=0), below, above)

    def lower(self, tail: float) -> Array:
        """Returns one-sided lower bounds, shape (m,); minus infinity for a single cluster."""
        if self.df <= 0:
            return np.full(self.means.shape, -np.inf)
        lower = self.weighted.quantile(tail) if self.weighted else self.below.lower(tail)
        return np.minimum(lower, self.means)

    def upper(self, tail: float) -> Array:
        """Returns one-sided upper bounds, shape (m,); infinity for a single cluster."""
        return np.maximum(self.above.upper(tail), self.means)

    def p_above(self, bound: float) -> Array:
        """Returns p-values of "the true mean is at most ``bound``", shape (m,): small ones show a mean above it."""
        if self.weighted is None or self.df <= 0:
            return self.below.p_above(bound)
        return self.weighted.below(np.full(self.means.shape, bound))

    def p_below(self, bound: float) -> Array:
        """Returns p-values of "the true mean is at least ``bound``", shape (m,): small ones show a mean below it."""
        return self.above.p_below(bound)

    @property
    def df(self) -> float:
        """Degrees of freedom."""
        return self.above.df


def guarded_ratio_interval(
    parts: Array,
    clusters: Clusters,
    confidence: float,
    *,
    against_low: tuple[float, float],
    against_high: tuple[float, float],
    gains: Literal["low", "high"] | None = None,
) -> tuple[float, float]:
    """Bounds mean(numerator) / mean(denominator) of ``parts`` (N, 2), known to have a positive denominator.

    The end threatened by rare gains, which decides a FAIL, holds for any values (:func:`ratio_below`).

    - ``parts``: numerator and denominator of each sample, N > 0.
    - ``against_low``: numerator and denominator of the sample most against a low bound.
    - ``against_high``: the same for the high one.
    - ``gains``: the end threatened by gains: low for a share that is lost, high for one that is kept; None if no FAIL
      depends on rare gains.

    Returns ``(low, high)``, each possibly infinite, around the ratio itself.
    """
    if clusters.count < 2:
        return -math.inf, math.inf
    ratio = float(parts[:, 0].sum() / parts[:, 1].sum())
    size = _size(parts[:, 0] - ratio * parts[:, 1], clusters)
    bounds = [_interval(*_with(parts, clusters, extra, size), confidence) for extra in (against_low, against_high)]
    low, high = bounds[0][0], bounds[1][1]
    if gains == "low":
        low = ratio_below(parts, clusters, against_low, one_sided(confidence))
    elif gains == "high":
        high = -ratio_below(parts * (-1.0, 1.0), clusters, (-against_high[0], against_high[1]), one_sided(confidence))
    return min(low, ratio), max(high, ratio)


def _one_more(means: Array, variances: Array, count: float, df: float, end: float | Array) -> MeanTest:
    """Returns the test with one more cluster of average size and value ``end``.

    This moves a mean by ``d = (end - mean) / (G + 1)`` and changes its variance to ``(G - 1) / (G + 1) variance + d^2``.
    """
    moves = (end - means) / (count + 1.0)
    grown = variances * (max(count - 1.0, 1.0) / (count + 1.0)) + moves**2
    return MeanTest(means + moves, np.maximum(np.sqrt(grown), UNSEEN), df)


def _average(tests: Sequence[MeanTest], df: float) -> MeanTest:
    errors = np.sqrt(np.sum([test.errors**2 for test in tests], axis=0)) / len(tests)
    return MeanTest(np.mean([test.means for test in tests], axis=0), errors, df)


def _interval(parts: Array, clusters: Clusters, confidence: float) -> tuple[float, float]:
    return ratio_interval(parts[:, 0], parts[:, 1], clusters, confidence) if parts[:, 1].sum() > 0.0 else (-math.inf, math.inf)


def _size(contrast: Array, clusters: Clusters) -> int:
    """Returns how many samples of a cluster are worth one independent sample, at most the size of a cluster."""
    effect = float(clusters.design_effects(contrast[:, None])[0])
    return max(round(min(effect, contrast.size / clusters.effective)), 1)


def _with(values: Array, clusters: Clusters, extra: tuple[float, ...], size: int) -> tuple[Array, Clusters]:
    """Returns the values, shape (N, k), with one more cluster of ``size`` samples equal to ``extra``."""
    grown = np.concatenate([values, np.tile(np.array(extra), (size, 1))])
    return grown, Clusters(np.concatenate([clusters.codes, np.full(size, clusters.count)]), clusters.count + 1)
