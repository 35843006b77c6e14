"""Bounds of means that hold for any bounded values: random weights, one of them for a value at the extreme.

Give n independent values, plus one at the end of their range, weights from a flat Dirichlet distribution. The weighted
mean is beyond the true mean with at least the probability that a confidence bound needs, so its quantiles are bounds. For 0 and 1
they are those of Clopper and Pearson. For n equal values the bound moves by ``1 - tail^(1/n)`` of the way to the end, about 3 / n
at 5 %, and no valid bound moves less. For spread values it is as wide as Student's t.

Source: N. Gaffke, Mathematical Methods of Statistics 14 (2005) 451-467; E. Learned-Miller and P. S. Thomas, A new confidence
interval for the mean of a bounded random variable, arXiv:1905.06208. It is proved for two values, a conjecture for others: no
counterexample is known, and ``tests/contract/test_declared_risks.py`` looks for one.

Each cluster has one weight for all its samples, and the further one has the size of an average cluster.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from .clusters import Clusters

Array = NDArray[np.float64]

_ROUNDS, _CLOSE, _INSIDE = 60, 1e-9, 0.05
_STEP, _NODES, _NEGLIGIBLE = 0.15, 100, 1e-9
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
    for node in range(_NODES):
        sine, cosine = np.sinh(node * _STEP), np.cosh(node * _STEP)
        path, along = turn * (cosine - 1.0) + 1j * up * sine, turn * sine + 1j * up * cosine
        with np.errstate(over="ignore", invalid="ignore"):
            terms = along / (np.prod(1.0 - path * tilted, axis=0) * (pole + path))
        terms = np.where(np.isfinite(terms), terms, 0.0)  # overflow counts as 0
        total += terms.imag * (0.5 if node == 0 else 1.0)
        if (np.abs(terms) < _NEGLIGIBLE).all():
            break
    result: Array = np.exp(-np.log1p(-saddle * weights).sum(axis=0)) * total * _STEP / np.pi
    return result
