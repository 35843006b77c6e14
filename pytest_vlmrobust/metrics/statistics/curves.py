"""Curves of R means over the same samples: their variation, linear contrasts of their points, and what noise does to both."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from .clusters import Clusters
from .isotonic import rising_fit
from .quantiles import critical_value

Array = NDArray[np.float64]

MOST_POINTS = 16
"""Contrasts of all sets of steps are enumerated: 2^15 of them."""
DRAWS = 2000
_BLOCK = 200
_HALVINGS = 60
_ROUNDING = 1e-15
"""Variances below this are float rounding: that of the rarest event among a million samples is 1e-12."""


def variation(curves: Array) -> Array:
    """Returns the sum of absolute steps of each curve, shape (..., R) to (...)."""
    total: Array = np.abs(np.diff(curves, axis=-1)).sum(axis=-1)
    return total


def wobble(curves: Array) -> Array:
    """Returns what of the variation is no net change: twice the smaller of all rises and all falls, shape (..., R) to (...)."""
    steps = np.diff(curves, axis=-1)
    both: Array = 2.0 * np.minimum(steps.clip(min=0.0).sum(axis=-1), (-steps).clip(min=0.0).sum(axis=-1))
    return both


def flat_variation(errors: Array) -> float:
    """Returns the expected variation of a curve without any true step: sqrt(2/pi) times the sum of the steps' standard errors."""
    return math.sqrt(2.0 / math.pi) * float(errors.sum())


def step_errors(points: Array, clusters: Clusters) -> Array:
    """Returns the standard error of each step, (N, R) to (R - 1,); infinite for fewer than two clusters."""
    return np.sqrt(clusters.variances(np.diff(points, axis=1)))


def unfolded(sizes: Array, errors: Array) -> Array:
    """Returns the true absolute steps whose measured absolute sizes would average ``sizes``, all of shape (k,).

    The absolute value of a normal variable with mean d and standard deviation s averages
    ``s sqrt(2/pi) exp(-d^2 / 2 s^2) + d (1 - 2 Phi(-d/s))``, at least d. That is solved for d by bisection; 0 where noise alone
    gives more.
    """
    low, high = np.zeros_like(sizes), sizes.copy()
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        above = _folded_mean(middle, errors) > sizes
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return np.where(sizes <= errors * math.sqrt(2.0 / math.pi), 0.0, low)


def simulated_wobbles(points: Array, clusters: Clusters, rng: np.random.Generator, draws: int) -> Array:
    """Returns wobbles of curves that are monotone but for sampling noise, shape (draws,).

    The truth is the nearest curve that is monotone in the direction of the net change; the noise is normal with the covariance of
    the measured points, from at least two clusters.

    Args:
        points: float64, shape (N, R).
        clusters: which of the N samples move together.
        rng: draws the noise.
        draws: how many curves.
    """
    means = points.mean(axis=0)
    falling = means[-1] < means[0]
    fit = -rising_fit(-means) if falling else rising_fit(means)
    return wobble(fit + _noise(clusters.covariance(points), draws, rng))


def slope_weights(positions: Array) -> Array:
    """Returns the weights of the values at ``positions`` (R,) in their least-squares slope; the positions must differ."""
    centred = positions - positions.mean()
    weights: Array = centred / float(centred @ centred)
    return weights


def sign_contrasts(points: int) -> Array:
    """Returns the contrasts whose largest value is the variation: all sums of plus or minus each step, shape (2^(R-1), R)."""
    contrasts: Array = (2.0 * _subsets(points - 1) - 1.0) @ _steps(points)
    return contrasts


def step_sums(points: int) -> Array:
    """Returns the contrasts whose largest value is the sum of all rises, if there is one: the sums of any steps."""
    contrasts: Array = _subsets(points - 1)[1:] @ _steps(points)
    return contrasts


@dataclass(frozen=True, slots=True, eq=False)
class ContrastTest:
    """What M linear contrasts of the R points of a curve show about the largest true one."""

    weights: Array
    """Shape (M, R)."""
    means: Array
    """Shape (R,)."""
    covariance: Array
    """Of the means, shape (R, R)."""
    errors: Array
    """Standard errors of the contrasts, shape (M,)."""
    df: float

    @classmethod
    def of(cls, points: Array, weights: Array, clusters: Clusters) -> ContrastTest:
        """Returns the test for ``weights`` (M, R) of the columns of ``points`` (N, R), N > 0.

        A contrast that is the same for all samples has no sample variance, yet G clusters cannot show more than "rarer than about
        3 in G": its standard error is 2/G, times the largest contrast that one sample can have.
        """
        count = clusters.count
        means, covariance = points.mean(axis=0), clusters.covariance(points)
        if count < 2:
            return cls(weights, means, covariance, np.full(len(weights), np.inf), clusters.degrees_of_freedom)
        variances = np.einsum("mr,rs,ms->m", weights, covariance, weights, optimize=True)
        largest = np.maximum(weights.clip(min=0.0).sum(axis=1), (-weights).clip(min=0.0).sum(axis=1))
        errors = np.where(variances <= _ROUNDING, 2.0 * largest / count, np.sqrt(variances.clip(min=0.0)))
        return cls(weights, means, covariance, errors, clusters.degrees_of_freedom)

    @property
    def values(self) -> Array:
        """The contrasts as measured, shape (M,)."""
        measured: Array = self.weights @ self.means
        return measured

    def upper(self, tail: float) -> float:
        """Returns an upper bound of the largest contrast: the largest of the bounds of each one (intersection-union)."""
        return float((self.values + critical_value(tail, self.df) * self.errors).max())

    def lower(self, tail: float, rng: np.random.Generator) -> float:
        """Returns a lower bound of the largest contrast, simultaneous over all (max-t)."""
        return float(self.lowers(tail, rng).max())

    def lowers(self, tail: float, rng: np.random.Generator) -> Array:
        """Returns lower bounds of all contrasts, shape (M,), which hold together (max-t); minus infinity for a single cluster."""
        if self.df <= 0:
            return np.full(len(self.weights), -np.inf)
        bounds: Array = self.values - self._simultaneous(tail, rng) * self.errors
        return bounds

    def ratio_upper(self, denominator: Array, tail: float) -> float:
        """Returns an upper bound of the largest contrast over the contrast ``denominator`` (R,), known to be positive.

        A ratio t is above the bound when every contrast minus t times the denominator is shown to be below 0 (Fieller);
        infinite where the denominator cannot be told from 0.
        """
        if self.df <= 0:
            return math.inf
        square = critical_value(tail, self.df) ** 2
        bottom = float(denominator @ self.means)
        a = bottom**2 - square * float(denominator @ self.covariance @ denominator)
        b = self.values * bottom - square * (self.weights @ self.covariance @ denominator)
        c = self.values**2 - square * self.errors**2
        if a <= 0.0:
            return math.inf
        return float(((b + np.sqrt(np.maximum(b * b - a * c, 0.0))) / a).max())

    def _simultaneous(self, tail: float, rng: np.random.Generator) -> float:
        """Returns what the largest studentised deviation of all contrasts exceeds with probability ``tail``, by simulation.

        At least what a single one exceeds: contrasts that no sample departs from do not deviate in the simulation.
        """
        noise = _noise(self.covariance, DRAWS, rng) / np.sqrt(rng.chisquare(self.df, size=(DRAWS, 1)) / self.df)
        scaled = (self.weights / self.errors[:, None]).T
        largest = [(noise[start : start + _BLOCK] @ scaled).max(axis=1) for start in range(0, DRAWS, _BLOCK)]
        return max(float(np.quantile(np.concatenate(largest), 1.0 - tail)), critical_value(tail, self.df))


def _folded_mean(true: Array, errors: Array) -> Array:
    ratio = np.divide(true, errors, out=np.full(true.shape, np.inf), where=errors > 0.0)
    mean: Array = errors * math.sqrt(2.0 / math.pi) * np.exp(-(ratio**2) / 2.0) + true * (1.0 - 2.0 * special.ndtr(-ratio))
    return mean


def _noise(covariance: Array, draws: int, rng: np.random.Generator) -> Array:
    """Draws normal deviations of R means, shape (draws, R)."""
    # the symmetric root changes continuously with the covariance, so that the order of the samples leaves no trace
    values, vectors = np.linalg.eigh(covariance)
    root = (vectors * np.sqrt(values.clip(min=0.0))) @ vectors.T
    noise: Array = rng.standard_normal((draws, len(covariance))) @ root
    return noise


def _subsets(count: int) -> Array:
    """Returns which of ``count`` things belong to each of their sets, shape (2^count, count); the first set is empty."""
    return ((np.arange(2**count)[:, None] >> np.arange(count)) & 1).astype(np.float64)


def _steps(points: int) -> Array:
    return np.diff(np.eye(points), axis=0)
