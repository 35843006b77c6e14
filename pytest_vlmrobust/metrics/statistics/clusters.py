"""Clusters: samples of one source image are not independent, and count together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

UNSEEN = 1e-12
"""A standard error below this is rounding: clusters that do not differ."""


@dataclass(frozen=True, slots=True, eq=False)
class Clusters:
    """A partition of N samples into G clusters that are independent of each other.

    Source of the variance: the sandwich ``G/(G-1) * sum over clusters of (sum of deviations)^2 / N^2``; with every sample its own
    cluster it is the ordinary variance of a mean.
    """

    codes: NDArray[np.intp]
    """The cluster of each sample, shape (N,), numbered from 0."""
    count: int

    @classmethod
    def of(cls, groups: Sequence[str] | None, samples: int) -> Clusters:
        """Returns the clusters of samples with equal group names; a sample without one (an empty name) stands alone."""
        if groups is None:
            return cls(np.arange(samples), samples)
        keys = [f"group {name}" if name else f"sample {index}" for index, name in enumerate(groups)]
        names, codes = np.unique(np.asarray(keys, dtype=np.str_), return_inverse=True)
        return cls(codes.reshape(-1), len(names))

    def within(self, rows: NDArray[np.intp]) -> Clusters:
        """Returns the clusters of some of the samples."""
        present, codes = np.unique(self.codes[rows], return_inverse=True)
        return Clusters(codes.reshape(-1), len(present))

    @property
    def independent(self) -> bool:
        """Whether no two samples share a cluster."""
        return self.count == self.codes.size

    @property
    def degrees_of_freedom(self) -> int:
        """One less than the number of clusters."""
        return self.count - 1

    def covariance(self, values: Array) -> Array:
        """Returns the covariance of the means of ``values``, shape (N, k) to (k, k); infinite for fewer than two clusters."""
        if self.count < 2:
            return np.full((values.shape[1], values.shape[1]), np.inf)
        sums = self.sums(values - values.mean(axis=0))
        result: Array = sums.T @ sums * (self.count / (self.count - 1) / len(values) ** 2)
        return result

    def variances(self, values: Array) -> Array:
        """Returns the variance of the mean of each column of ``values``, shape (N, k) to (k,)."""
        if self.count < 2:
            return np.full(values.shape[1], np.inf)
        sums = self.sums(values - values.mean(axis=0))
        result: Array = (sums**2).sum(axis=0) * (self.count / (self.count - 1) / len(values) ** 2)
        return result

    def standard_errors(self, values: Array) -> Array:
        """Returns the standard error of each column's mean, shape (N, k) to (k,).

        Where no sample differs from the others, or all that differ cancel within their cluster, the sample variance is 0, yet G
        clusters cannot show more than "rarer than about 3 in G" (the rule of three): there the standard error is 2/G, whose
        one-sided 95 % bound is 3.3/G.
        """
        errors = np.sqrt(self.variances(values))
        return np.where(errors < UNSEEN, 2.0 / max(self.count, 1), errors)

    def design_effects(self, values: Array) -> Array:
        """Returns by how much clustering inflates the variance of each column's mean, shape (N, k) to (k,), at least 1.

        A column without variance tells nothing about its clusters: it gets the largest effect, that of identical cluster members.
        """
        if self.independent:
            return np.ones(values.shape[1])
        samples = len(values)
        largest = float((np.bincount(self.codes) ** 2).sum() / samples)
        if self.count < 2:
            return np.full(values.shape[1], largest)
        plain = values.var(axis=0) / (samples - 1)
        effects = np.divide(self.variances(values), plain, out=np.full(plain.shape, largest), where=plain > 0)
        capped: Array = np.maximum(effects, 1.0)
        return capped

    def sums(self, values: Array) -> Array:
        """Returns the sum of each column of ``values`` over each cluster, shape (N, k) to (G, k)."""
        if self.independent:
            return values
        order = np.argsort(self.codes, kind="stable")
        starts = np.searchsorted(self.codes[order], np.arange(self.count))
        sums: Array = np.add.reduceat(values[order], starts, axis=0)
        return sums
