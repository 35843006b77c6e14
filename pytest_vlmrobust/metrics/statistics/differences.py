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
from .quantiles import normal_tail, student_tail
from .tango import chance_of_excess, exact_lower, exact_upper

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
    """What flips show about m true drops: the tails of their own distribution, at Tango's share of helpful flips.

    Of independent samples no bound errs more often than it says, whatever the drop and the share of helpful flips, nor at a risk
    that 133 settings share: counted over all outcomes of 50, 200, 324 and 853 samples (``benchmarks/verdict_tails.py``). Tango's
    interval itself errs up to 1.6 times as often at 5 %, and 3.6 times at 5 %/133.

    Counts are effective ones when samples come in clusters: divided by each setting's guarded design effect, with Student's
    quantile in the place of the normal one that the tail stands for.
    """

    harmful: Array
    helpful: Array
    n: Array
    df: float
    """Degrees of freedom of the design effects; infinite for independent samples, 0 where nothing is shown."""

    @classmethod
    def of(cls, differences: Array, clusters: Clusters) -> TangoTest:
        """Returns the test for ``differences`` clean - perturbed, each -1, 0 or 1, shape (N, m) with N > 0."""
        effects = clusters.design_effects(differences, (-1.0, 1.0))
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
        return exact_lower(self.harmful, self.helpful, self.n, normal_tail(tail, self.df))

    def upper(self, tail: float) -> Array:
        """Returns upper bounds of the drops, shape (m,)."""
        return exact_upper(self.harmful, self.helpful, self.n, normal_tail(tail, self.df))

    def p_above(self, bound: float) -> Array:
        """Returns p-values of "the drop is at most ``bound``", shape (m,), for ``bound`` inside (-1, 1)."""
        return student_tail(chance_of_excess(self.harmful, self.helpful, self.n, np.full(self.n.shape, bound)), self.df)

    def p_below(self, bound: float) -> Array:
        """Returns p-values of "the drop is at least ``bound``", shape (m,), for ``bound`` inside (-1, 1)."""
        return student_tail(chance_of_excess(self.helpful, self.harmful, self.n, np.full(self.n.shape, -bound)), self.df)


def drop_test(clean: Array, perturbed: Array, clusters: Clusters) -> BoundTest:
    """Returns the test for the drops of m settings: the tails of flips for 0/1 scores, Student's guarded t for graded ones.

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
    shown to be (intersection-union). The lower bound is the largest of their lower bounds, each at a ``count``-th of the error
    (Bonferroni).
    """
    return max(float(test.lower(tail / count).max()) for test in tests), max(float(test.upper(tail).max()) for test in tests)
