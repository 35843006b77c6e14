"""Drops of many settings against the same clean scores: the test that fits the scores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from .clusters import Clusters
from .guarded import BoundedMeanTest
from .quantiles import critical_value, upper_tail
from .tango import tango_lower, tango_statistic, tango_upper

Array = NDArray[np.float64]


class BoundTest(Protocol):
    """One-sided bounds and p-values for m true values at once."""

    def lower(self, tail: float) -> Array:
        """Returns lower bounds, shape (m,), each wrong with probability ``tail``."""
        ...

    def upper(self, tail: float) -> Array:
        """Returns upper bounds, shape (m,), each wrong with probability ``tail``."""
        ...

    def p_above(self, bound: float) -> Array:
        """Returns p-values, shape (m,), of "the true value is at most ``bound``"."""
        ...

    def p_below(self, bound: float) -> Array:
        """Returns p-values, shape (m,), of "the true value is at least ``bound``"."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class TangoTest:
    """What flips show about m true drops; counts are effective ones when samples come in clusters.

    With clusters, counts are divided by each setting's design effect and quantiles are Student's with G - 1 degrees of freedom.
    One-sided errors simulated at 5 % then stay within 7.5 %; those of a t interval exceed 25 % when flips are few.
    """

    harmful: Array
    helpful: Array
    n: Array
    df: float

    @classmethod
    def of(cls, differences: Array, clusters: Clusters) -> TangoTest:
        """Returns the test for ``differences`` clean - perturbed, each -1, 0 or 1, shape (N, m) with N > 0."""
        effects = clusters.design_effects(differences)
        harmful, helpful = (differences > 0).sum(axis=0) / effects, (differences < 0).sum(axis=0) / effects
        df = math.inf if clusters.independent else clusters.degrees_of_freedom
        return cls(harmful, helpful, len(differences) / effects, df)

    @classmethod
    def joined(cls, tests: Sequence[TangoTest]) -> TangoTest:
        """Returns one test about the drops of several, in their order: much faster than each one; the fewest df count for all."""
        harmful, helpful, n = (np.concatenate(one) for one in zip(*((t.harmful, t.helpful, t.n) for t in tests), strict=True))
        return cls(harmful, helpful, n, min(test.df for test in tests))

    def lower(self, tail: float) -> Array:
        """Returns lower bounds of the drops, shape (m,)."""
        return tango_lower(self.harmful, self.helpful, self.n, critical_value(tail, self.df))

    def upper(self, tail: float) -> Array:
        """Returns upper bounds of the drops, shape (m,)."""
        return tango_upper(self.harmful, self.helpful, self.n, critical_value(tail, self.df))

    def p_above(self, bound: float) -> Array:
        """Returns p-values of "the drop is at most ``bound``", shape (m,), for ``bound`` inside (-1, 1)."""
        return upper_tail(self._statistic(bound), self.df)

    def p_below(self, bound: float) -> Array:
        """Returns p-values of "the drop is at least ``bound``", shape (m,), for ``bound`` inside (-1, 1)."""
        return upper_tail(-self._statistic(bound), self.df)

    def _statistic(self, bound: float) -> Array:
        return tango_statistic(self.harmful, self.helpful, self.n, np.full(self.n.shape, bound))


def drop_test(clean: Array, perturbed: Array, clusters: Clusters) -> BoundTest:
    """Returns the test for the drops of m settings: Tango's for 0/1 scores, Student's guarded t for graded ones.

    The guard of graded scores expects that a further sample loses all, and gains about as much as those that gained. For a gain
    take the scores the other way round, and change the signs of its bounds.

    Args:
        clean: float64, shape (N,) with N > 0.
        perturbed: float64, shape (N, m).
        clusters: which of the N samples move together.
    """
    differences = clean[:, None] - perturbed
    binary = all(bool(((scores == 0.0) | (scores == 1.0)).all()) for scores in (clean, perturbed))
    return TangoTest.of(differences, clusters) if binary else BoundedMeanTest.of_losses(differences, clusters)


def largest_bounds(tests: Sequence[BoundTest], count: int, tail: float) -> tuple[float, float]:
    """Bounds the largest of ``count`` true values, which the tests are about.

    The upper bound is the largest of their upper bounds, without correction: all values are below a threshold only if each one is
    shown to be (intersection-union). The lower bound is the largest of their lower bounds, each at a 2 ``count``-th of the error:
    Bonferroni, halved because far out in its tail Tango's test errs up to 2.7 times as often as it says when helpful flips are
    rare.
    """
    shares = 1 if count == 1 else 2 * count
    return max(float(test.lower(tail / shares).max()) for test in tests), max(float(test.upper(tail).max()) for test in tests)
