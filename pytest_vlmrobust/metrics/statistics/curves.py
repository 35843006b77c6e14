"""Curves of R means over the same samples: their variation, linear contrasts of their points, and the effect of noise."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from .clusters import Clusters, critical_value, upper_tail

Array = NDArray[np.float64]


def rising_fit(values: Array) -> Array:
    """Returns the non-decreasing sequence with the smallest sum of squared distances from ``values``, shape (k,).

    Falling neighbours are pooled to their mean until none is left. (scipy.optimize has it too, but is slow to import.)

    Source: M. Ayer et al., Ann. Math. Statist. 26 (1955) 641-647 (pool adjacent violators).

    >>> rising_fit(np.array([1.0, 3.0, 2.0, 4.0])).tolist()
    [1.0, 2.5, 2.5, 4.0]
    """
    pools: list[tuple[float, int]] = []
    for value in values.tolist():
        mean, size = value, 1
        while pools and pools[-1][0] > mean:
            before, count = pools.pop()
            mean, size = (before * count + mean * size) / (count + size), count + size
        pools.append((mean, size))
    return np.repeat([mean for mean, _ in pools], [size for _, size in pools])


MOST_POINTS = 16
"""Contrasts of all sets of steps are enumerated: 2^15 of them."""
DRAWS = 2000
_BLOCK = 200
_HALVINGS = 60
_PART = 0.9
"""Share of the error for each of two bounds, the larger of which is used; studies/verdicts/curves.py measures their errors."""
_ROUNDING = 1e-15
"""Variances below this are float rounding: that of the rarest event among a million samples is 1e-12."""


def variation(curves: Array) -> Array:
    """Returns the sum of absolute steps of each curve, shape (..., R) to (...)."""
    total: Array = np.abs(np.diff(curves, axis=-1)).sum(axis=-1)
    return total


def wobble(curves: Array) -> Array:
    """Returns the variation beyond the net change: twice the smaller of all rises and all falls, shape (..., R) to (...)."""
    steps = np.diff(curves, axis=-1)
    both: Array = 2.0 * np.minimum(steps.clip(min=0.0).sum(axis=-1), (-steps).clip(min=0.0).sum(axis=-1))
    return both


def flat_variation(errors: Array) -> float:
    """Returns the expected variation of a curve without any true step: sqrt(2/pi) times the sum of the steps' standard errors."""
    return math.sqrt(2.0 / math.pi) * float(errors.sum())


def step_errors(points: Array, clusters: Clusters) -> Array:
    """Returns the standard error of each step, (N, R) to (R - 1,); infinite for fewer than two clusters."""
    return np.sqrt(clusters.variances(np.diff(points, axis=1)))


def simulated_wobbles(points: Array, clusters: Clusters, rng: np.random.Generator, draws: int) -> Array:
    """Returns wobbles of curves that are monotone except for sampling noise, shape (draws,).

    The truth is the nearest curve that is monotone in the direction of the net change; the noise is normal with the covariance of
    the measured points, from at least two clusters.
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
    """Returns the contrasts with the variation as their largest value: all signed sums of the steps, shape (2^(R-1), R)."""
    contrasts: Array = (2.0 * _subsets(points - 1) - 1.0) @ _steps(points)
    return contrasts


def step_sums(points: int) -> Array:
    """Returns the contrasts with the sum of all rises, if any, as their largest value: the sums of any steps."""
    contrasts: Array = _subsets(points - 1)[1:] @ _steps(points)
    return contrasts


def falls(points: int) -> Array:
    """Returns the contrasts with the largest downward step as largest value: each point less a later one, (R (R - 1) / 2, R)."""
    unit = np.eye(points)
    earlier, later = np.triu_indices(points, 1)
    contrasts: Array = unit[earlier] - unit[later]
    return contrasts


@dataclass(frozen=True, slots=True, eq=False)
class ContrastTest:
    """Test of the largest of M linear contrasts of the R points of a curve."""

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

        A contrast that is equal for all samples has no sample variance, yet G clusters cannot show more than "rarer than about
        3 in G": its standard error is 2/G times the largest possible contrast of one sample.
        """
        means, covariance = points.mean(axis=0), clusters.covariance(points)
        if clusters.count < 2:
            return cls(weights, means, covariance, np.full(len(weights), np.inf), clusters.degrees_of_freedom)
        errors = _contrast_errors(weights, covariance, clusters.effective)
        return cls(weights, means, covariance, errors, clusters.degrees_of_freedom)

    @property
    def values(self) -> Array:
        """The contrasts as measured, shape (M,)."""
        measured: Array = self.weights @ self.means
        return measured

    def upper(self, tail: float) -> float:
        """Returns an upper bound of the largest contrast: the largest of the single bounds (intersection-union)."""
        return float((self.values + critical_value(tail, self.df) * self.errors).max())

    def lowers(self, tail: float, rng: np.random.Generator) -> Array:
        """Returns simultaneous lower bounds of all contrasts (max-t), shape (M,); minus infinity for a single cluster."""
        if self.df <= 0:
            return np.full(len(self.weights), -np.inf)
        bounds: Array = self.values - self._simultaneous(tail, rng) * self.errors
        return bounds

    def share(self, tail: float, rng: np.random.Generator) -> float:
        """Returns the error of each lower bound if all of them together err with probability ``tail`` (max-t)."""
        if self.df <= 0:
            return tail
        return float(upper_tail(np.array(self._simultaneous(tail, rng)), self.df))

    def _simultaneous(self, tail: float, rng: np.random.Generator) -> float:
        """Returns the value that the largest studentised deviation of all contrasts exceeds with probability ``tail``, simulated.

        It is at least the value for a single contrast: constant contrasts do not deviate in the simulation.
        """
        noise = _noise(self.covariance, DRAWS, rng) / np.sqrt(rng.chisquare(self.df, size=(DRAWS, 1)) / self.df)
        scaled = (self.weights / self.errors[:, None]).T
        largest = [(noise[start : start + _BLOCK] @ scaled).max(axis=1) for start in range(0, DRAWS, _BLOCK)]
        return max(float(np.quantile(np.concatenate(largest), 1.0 - tail)), critical_value(tail, self.df))


@dataclass(frozen=True, slots=True, eq=False)
class StepTest:
    """Test of the sum of absolute steps of a curve of R means, and of the sums of all rises and of all falls.

    *Below.* The sum of ``|step|`` is at least ``sum_k sign(a_k) b_k`` for any signs, including those of other samples' steps
    ``a_k``. Averaged over all splits that take the signs from one half of the samples and the sizes from the other, a step d with
    standard error s counts ``d (2 Phi(d/s) - 1) - 2 s phi(d/s)``: -0.8 s for a step of 0, which offsets the noise, and |d|
    for a clear step. Student's t bounds the sum. It shows little if steps are smaller than the noise; the net change stays
    visible longer and is also a lower bound. The larger of both is used, each at nine tenths of the error: in simulated runs they
    seldom err together, because the first errs if steps turn and are clear, the second if they do not turn.

    *Above.* The sum is below a threshold only if each of its 2^(R-1) linear contrasts is (intersection-union), so the
    largest of their bounds needs no correction. Each is computed with one more cluster against it, as in
    :class:`BoundedMeanTest`, here with the root of the largest possible value of one sample: 1 for the net change, 3.3 for a
    zig-zag of twelve points.
    """

    means: Array
    """Shape (R,)."""
    covariance: Array
    """Of the means, shape (R, R); infinite for a single cluster."""
    count: float
    """Effective number of clusters."""
    df: float

    @classmethod
    def of(cls, points: Array, clusters: Clusters) -> StepTest:
        """Returns the test for the columns of ``points``, (N, R) with N > 0 and R > 1."""
        return cls(points.mean(axis=0), clusters.covariance(points), clusters.effective, clusters.degrees_of_freedom)

    def lower(self, tail: float, net: float = 0.0) -> float:
        """Returns a lower bound of all sizes plus ``net`` times the net change.

        - ``net``: 0, or 1 for twice the sum of all rises, or -1 for twice that of all falls.
        """
        if self.df <= 0:
            return -math.inf
        return max(
            value - critical_value(part, self.df) * self._error(weights) for value, weights, part in self._below(tail, net)
        )

    def lower_with_one_more(self, tail: float) -> float:
        """Returns a lower bound of all sizes with one more cluster against it, of samples that take one step of at most 1.

        Samples that hardly differ show little of the rare ones that do: without the further cluster 30 answers, all
        right and each a little surer than another, would show that confidence of 0.9 is too low.
        """
        if self.df <= 0:
            return -math.inf
        bounds = []
        for value, weights, part in self._below(tail, 0.0):
            largest = float(np.abs(weights[:0:-1].cumsum()).max())
            move = -(largest + float(weights @ self.means)) / (self.count + 1.0)
            error = math.sqrt(self._kept * self._error(weights) ** 2 + move**2)
            bounds.append(value + move - critical_value(part, self.df) * error)
        return max(bounds)

    def upper(self, weights: Array, tail: float) -> float:
        """Returns an upper bound of the largest of the contrasts ``weights``, shape (M, R)."""
        if self.df <= 0:
            return math.inf
        values, variances, _ = self._with_one_more(weights)
        return float(np.maximum(values + critical_value(tail, self.df) * np.sqrt(variances), weights @ self.means).max())

    def ratio_lower(self, denominator: Array, tail: float) -> float:
        """Returns a lower bound of all sizes over the contrast ``denominator`` (R,), known to be positive (Fieller)."""
        if self.df <= 0:
            return -math.inf
        bottom, variance = float(denominator @ self.means), float(denominator @ self.covariance @ denominator)
        bounds = []
        for value, weights, part in self._below(tail, 0.0):
            square = critical_value(part, self.df) ** 2
            a = bottom**2 - square * variance
            b = value * bottom - square * float(weights @ self.covariance @ denominator)
            c = value**2 - square * self._error(weights) ** 2
            bounds.append((b - math.sqrt(max(b * b - a * c, 0.0))) / a if a > 0.0 else -math.inf)
        return max(bounds)

    def ratio_upper(self, weights: Array, denominator: Array, tail: float) -> float:
        """Returns an upper bound of the largest contrast over the contrast ``denominator`` (R,), known to be positive.

        A ratio t is above the bound if each contrast minus t times the denominator is shown to be below 0 (Fieller);
        infinite if the denominator may be 0. The one more cluster has 0 in the denominator.
        """
        if self.df <= 0:
            return math.inf
        square = critical_value(tail, self.df) ** 2
        values, variances, moves = self._with_one_more(weights)
        bottom = float(denominator @ self.means)
        move = -bottom / (self.count + 1.0)
        a = (bottom + move) ** 2 - square * (self._kept * float(denominator @ self.covariance @ denominator) + move**2)
        if a <= 0.0:
            return math.inf
        b = values * (bottom + move) - square * (self._kept * (weights @ self.covariance @ denominator) + moves * move)
        c = values**2 - square * variances
        return float(((b + np.sqrt(np.maximum(b * b - a * c, 0.0))) / a).max())

    def _below(self, tail: float, net: float) -> list[tuple[float, Array, float]]:
        """Returns value, weights of the R points and tail of each bound; the largest bound is used."""
        steps = _steps(len(self.means))
        ends = steps.sum(axis=0)
        change = float(ends @ self.means)
        counted, slopes = _split_half_sizes(steps @ self.means, self._errors(steps))
        shares = [
            share for share in (net + 1.0, net - 1.0) if share
        ]  # all sizes are at least the net change, and at least its negative
        return [
            (float(counted.sum()) + net * change, slopes @ steps + net * ends, _PART * tail),
            *((share * change, share * ends, _PART * tail / len(shares)) for share in shares),
        ]

    def _with_one_more(self, weights: Array) -> tuple[Array, Array, Array]:
        """Returns values and variances of contrasts (M, R) with one more cluster against them, and the shifts it causes."""
        values = weights @ self.means
        moves = (np.sqrt(_largest(weights)) - values) / (self.count + 1.0)
        return values + moves, self._kept * self._errors(weights) ** 2 + moves**2, moves

    @property
    def _kept(self) -> float:
        """Factor for variances and covariances of means with one more cluster, without that cluster's deviation."""
        return max(self.count - 1.0, 1.0) / (self.count + 1.0)

    def _error(self, weights: Array) -> float:
        return float(self._errors(weights[None])[0])

    def _errors(self, weights: Array) -> Array:
        return _contrast_errors(weights, self.covariance, self.count)


def _contrast_errors(weights: Array, covariance: Array, clusters: float) -> Array:
    """Returns the standard errors of contrasts, (M, R) to (M,), see :meth:`ContrastTest.of`."""
    variances = ((weights @ covariance) * weights).sum(axis=1)
    return np.where(variances <= _ROUNDING, 2.0 * _largest(weights) / clusters, np.sqrt(variances.clip(min=0.0)))


def _largest(weights: Array) -> Array:
    """Returns the largest possible absolute value of one sample in each contrast, (M, R) to (M,)."""
    largest: Array = np.maximum(weights.clip(min=0.0).sum(axis=1), (-weights).clip(min=0.0).sum(axis=1))
    return largest


def _split_half_sizes(steps: Array, errors: Array) -> tuple[Array, Array]:
    """Returns the sizes of steps with signs and sizes from different halves of the samples, and their slopes."""
    ratio = steps / errors
    density = np.exp(-(ratio**2) / 2.0) / math.sqrt(2.0 * math.pi)
    surer = 1.0 - 2.0 * scipy.special.ndtr(-ratio)
    return steps * surer - 2.0 * errors * density, surer + 4.0 * ratio * density


def _noise(covariance: Array, draws: int, rng: np.random.Generator) -> Array:
    # the symmetric root is continuous in the covariance, so the order of the samples has no effect
    """Draws normal deviations of R means, shape (draws, R)."""
    values, vectors = np.linalg.eigh(covariance)
    root = (vectors * np.sqrt(values.clip(min=0.0))) @ vectors.T
    noise: Array = rng.standard_normal((draws, len(covariance))) @ root
    return noise


def _subsets(count: int) -> Array:
    """Returns the membership of ``count`` items in each of their subsets, shape (2^count, count); the first subset is empty."""
    return ((np.arange(2**count)[:, None] >> np.arange(count)) & 1).astype(np.float64)


def _steps(points: int) -> Array:
    return np.diff(np.eye(points), axis=0)
