"""Means of graded or averaged scores: Student's t with cluster-robust standard errors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .clusters import Clusters
from .quantiles import critical_value, upper_tail

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class MeanTest:
    """What the columns of a table of values show about their true means; G - 1 degrees of freedom for G clusters."""

    means: Array
    errors: Array
    df: float

    @classmethod
    def of(cls, values: Array, clusters: Clusters) -> MeanTest:
        """Returns the test of the mean of each column of ``values``, shape (N, m) with N > 0."""
        return cls(values.mean(axis=0), clusters.standard_errors(values), clusters.degrees_of_freedom)

    def lower(self, tail: float) -> Array:
        """Returns one-sided lower bounds, shape (m,); minus infinity where a single cluster shows nothing."""
        return self.means - self._margin(tail)

    def upper(self, tail: float) -> Array:
        """Returns one-sided upper bounds, shape (m,); infinity where a single cluster shows nothing."""
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
