"""Grouping: samples that share a source image, and random numbers that are correlated within such a group.

Answers of one group are drawn with a Gaussian copula: every random number that decides an answer (right or wrong, with the image
and without, under each setting, for each patch) comes from a normal variable, and those of two samples of a group have the same
correlation, which does not affect the share of right answers.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust.evaluation.judge.reads import groups_of
from pytest_vlmrobust.metrics.statistics.clusters import Clusters
from pytest_vlmrobust.metrics.table import LEAST_PICTURES

if TYPE_CHECKING:
    from pytest_vlmrobust.core.sample import Sample

    Array = NDArray[np.float64]
    Codes = NDArray[np.intp]

CORRELATION = 0.5
"""Default latent correlation within a group: assumed, because nothing is published about it."""


@dataclass(frozen=True, slots=True, eq=False)
class Grouping:
    """The groups and categories of samples, and the correlation of answers within a group."""

    codes: Codes
    """The group of each sample, shape (N,), numbered from 0."""
    correlation: float = CORRELATION
    """Correlation within a group, on the scale of the normal quantile, in [0, 1]."""
    labels: tuple[str, ...] = ()
    """The category of each sample, empty if none."""

    @classmethod
    def equal(cls, samples: int, groups: int, correlation: float = CORRELATION) -> Grouping:
        """Returns groups of equal size, up to one sample."""
        return cls(np.arange(samples) * groups // samples, correlation)

    @classmethod
    def of(cls, samples: Sequence[Sample], correlation: float = CORRELATION) -> Grouping:
        """Returns the groups and categories of the samples of a dataset."""
        codes = Clusters.of(groups_of(samples), len(samples)).codes
        return cls(codes, correlation, tuple(sample.category for sample in samples))

    @property
    def groups(self) -> int:
        """The number of groups."""
        return int(self.codes.max()) + 1

    @property
    def independent(self) -> bool:
        """Whether each sample is its own group."""
        return self.groups == len(self.codes)

    def rows(self, n: int, rng: np.random.Generator) -> tuple[Codes, Codes]:
        """Returns the rows of ``n`` samples and the group of each: all samples, or resampled groups for another ``n``."""
        return (np.arange(n), self.codes) if n == len(self.codes) else draw_groups(self.codes, n, rng)


def draw_groups(codes: Codes, n: int, rng: np.random.Generator) -> tuple[Codes, Codes]:
    """Returns the rows of groups drawn with replacement until there are ``n`` samples, and the group of each row."""
    sizes = np.bincount(codes)
    members = np.split(np.argsort(codes, kind="stable"), np.cumsum(sizes)[:-1])
    drawn: list[int] = []
    total = 0
    while total < n:
        drawn.append(int(rng.integers(len(members))))
        total += len(members[drawn[-1]])
    return np.concatenate([members[group] for group in drawn])[:n], np.repeat(np.arange(len(drawn)), sizes[drawn])[:n]


def large_only(labels: Sequence[str], groups: Sequence[Hashable]) -> list[str]:
    """Returns the labels of samples, empty for categories with too few source images to be compared."""
    counts = Counter(label for label, _ in set(zip(labels, groups, strict=True)))
    return [label if counts[label] >= LEAST_PICTURES else "" for label in labels]


class CorrelatedDraws:
    """The random numbers of a generator, correlated within groups by a Gaussian copula; the first axis is the samples."""

    def __init__(self, rng: np.random.Generator, groups: Codes, correlation: float) -> None:
        self._rng, self._groups, self._correlation = rng, groups, correlation

    def standard_normal(self, size: int | tuple[int, ...]) -> Array:
        """Returns standard normal numbers."""
        independent = self._rng.standard_normal(size)
        shared = self._rng.standard_normal((int(self._groups.max()) + 1, *independent.shape[1:]))[self._groups]
        result: Array = math.sqrt(self._correlation) * shared + math.sqrt(1.0 - self._correlation) * independent
        return result

    def random(self, size: int | tuple[int, ...]) -> Array:
        """Returns uniform numbers between 0 and 1."""
        from scipy.special import ndtr

        result: Array = ndtr(self.standard_normal(size))
        return result

    def integers(self, high: int, size: int) -> Codes:
        """Returns uniform integers from 0 to ``high`` - 1."""
        return np.minimum(self.random(size) * high, high - 1).astype(np.intp)
