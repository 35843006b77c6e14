"""Stratified samples: means weighted by the size of each stratum, less uncertain the more of it was drawn."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .clusters import Clusters
from .differences import TangoTest
from .guarded import BoundedMeanTest, expected_losses

Array = NDArray[np.float64]
Codes = NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class Strata:
    """A sample of n_h out of the N_h members of each stratum h, and what it says about all of them.

    ``mean = sum W_h dbar_h`` with ``W_h = N_h / sum N``; its variance is ``sum W_h^2 s_h^2 / n_h (1 - n_h / N_h)``, without the
    last factor when the members themselves stand for something larger. In clusters the deviations are summed over each one first.
    A stratum with a single sample has no s_h: its distance from the overall mean stands in, which is too much rather than too
    little. The formula has no resampling in it; a bootstrap would have to draw n_h - 1 from each stratum (J. N. K. Rao and
    C. F. J. Wu, JASA 83 (1988) 231-241), or come out too narrow for small strata.

    Source: W. G. Cochran, Sampling Techniques (1977), theorem 5.3.
    """

    codes: Codes
    """The stratum of each sample, shape (N,), numbered from 0; every stratum has at least one sample."""
    population: Array
    """How many members each stratum has, N_h."""
    clusters: Clusters
    finite: bool
    """Whether the members of the strata are all there is."""

    @property
    def exhausted(self) -> bool:
        """Whether every member was drawn and there is nothing else: then the mean is known."""
        return self.finite and bool((self._drawn == self.population).all())

    def means(self, values: Array) -> Array:
        """Returns the weighted mean of each column of ``values``, shape (N, k) to (k,)."""
        result: Array = self._weights @ self._stratum_means(values)
        return result

    def variances(self, values: Array) -> Array:
        """Returns the variance of each weighted mean, shape (N, k) to (k,); infinite for fewer than two clusters."""
        if self.clusters.count < 2:
            return np.full(values.shape[1], np.inf)
        single = self._drawn == 1
        centres = np.where(single[:, None], self.means(values), self._stratum_means(values))
        correction = np.where(single, 1.0, self._drawn / np.maximum(self._drawn - 1.0, 1.0))
        scale = self._weights / self._drawn * np.sqrt(correction * self._undrawn)
        parts = scale[self.codes, None] * (values - centres[self.codes])
        result: Array = (self.clusters.sums(parts) ** 2).sum(axis=0)
        return result

    def test_of_differences(self, differences: Array) -> TangoTest | BoundedMeanTest:
        """Returns the test of the weighted means of ``differences``, shape (N, m): Tango's for -1, 0 and 1, else guarded t.

        Tango's counts are effective ones: those of the simple random sample with the same variance. It is never taken for larger
        than what was drawn, but for the share of the population that is known; the guard is one of as many.
        """
        df = math.inf if self.clusters.independent else self.clusters.degrees_of_freedom
        if not np.isin(differences, (-1.0, 0.0, 1.0)).all():
            count = self.clusters.effective / float(self._weights @ self._undrawn)
            means, variances = self.means(differences), self.variances(differences)
            return BoundedMeanTest.from_variances(means, variances, count, self._degrees_of_freedom, expected_losses(differences))
        n = self._effective(differences)
        harmful, helpful = (self.means((sign * differences > 0).astype(np.float64)) for sign in (1.0, -1.0))
        return TangoTest(harmful * n, helpful * n, n, df)

    def _effective(self, differences: Array) -> Array:
        samples = len(differences)
        largest = samples / float(self._weights @ self._undrawn)
        spread = (self.means(differences**2) - self.means(differences) ** 2) * samples / max(samples - 1, 1)
        variances = self.variances(differences)
        members = samples / self.clusters.effective
        unknown = np.full(spread.shape, largest / members)
        known = (variances > 0.0) & np.isfinite(variances)
        result: Array = np.minimum(np.divide(spread, variances, out=unknown, where=known), largest)
        return result

    @property
    def _degrees_of_freedom(self) -> float:
        estimated = int((self._drawn > 1).sum())
        return max(self.clusters.effective - estimated, 1.0) if self.clusters.count > 1 else 0

    @property
    def _drawn(self) -> Array:
        return np.bincount(self.codes, minlength=self.population.size).astype(np.float64)

    @property
    def _weights(self) -> Array:
        weights: Array = self.population / self.population.sum()
        return weights

    @property
    def _undrawn(self) -> Array:
        return 1.0 - self._drawn / self.population if self.finite else np.ones(self.population.size)

    def _stratum_means(self, values: Array) -> Array:
        strata = Clusters(self.codes, self.population.size)
        means: Array = strata.sums(values) / self._drawn[:, None]
        return means
