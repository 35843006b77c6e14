"""Grouping: which samples share a source image, and random numbers that are correlated within such a group.

Answers of one group are drawn by a Gaussian copula: every random number that decides an answer (right or wrong, with the image
and without, under each setting, of each patch) comes from a normal variable, and those of two samples of one group have the same
correlation. The share of right answers does not depend on it.
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
"""The latent correlation within a group where none is given: assumed. Nothing is published about it."""


@dataclass(frozen=True, slots=True, eq=False)
class Grouping:
    """The groups and categories of samples, and how far the answers of a group go together."""

    codes: Codes
    """The group of each sample, shape (N,), numbered from 0."""
    correlation: float = CORRELATION
    """Correlation within a group, on the scale of the normal quantile, in [0, 1]."""
    labels: tuple[str, ...] = ()
    """The category of each sample, empty for none."""

    @classmethod
    def equal(cls, samples: int, groups: int, correlation: float = CORRELATION) -> Grouping:
        """Returns groups of one size, or of two sizes that differ by one."""
        return cls(np.arange(samples) * groups // samples, correlation)

    @classmethod
    def of(cls, samples: Sequence[Sample], correlation: float = CORRELATION) -> Grouping:
        """Returns the groups and categories of the samples of a dataset."""
        codes = Clusters.of(groups_of(samples), len(samples)).codes
        return cls(codes, correlation, tuple(sample.category for sample in samples))

    @property
    def groups(self) -> int:
        """How many groups there are."""
        return int(self.codes.max()) + 1

    @property
    def independent(self) -> bool:
        """Whether each sample is a group of its own."""
        return self.groups == len(self.codes)

    def rows(self, n: int, rng: np.random.Generator) -> tuple[Codes, Codes]:
        """Returns which samples are asked, and the group of each: all samples, or for another number groups drawn again."""
        return (np.arange(n), self.codes) if n == len(self.codes) else draw_groups(self.codes, n, rng)


def draw_groups(codes: Codes, n: int, rng: np.random.Generator) -> tuple[Codes, Codes]:
    """Returns the rows of groups that are drawn with replacement until there are ``n`` samples, and the group of each."""
    sizes = np.bincount(codes)
    members = np.split(np.argsort(codes, kind="stable"), np.cumsum(sizes)[:-1])
    drawn: list[int] = []
    total = 0
    while total < n:
        drawn.append(int(rng.integers(len(members))))
        total += len(members[drawn[-1]])
    return np.concatenate([members[group] for group in drawn])[:n], np.repeat(np.arange(len(drawn)), sizes[drawn])[:n]


def large_only(labels: Sequence[str], groups: Sequence[Hashable]) -> list[str]:
    """Returns the labels of samples without those of categories of too few source images to be compared, which are empty."""
    counts = Counter(label for label, _ in set(zip(labels, groups, strict=True)))
    return [label if counts[label] >= LEAST_PICTURES else "" for label in labels]


class CorrelatedDraws:
    """The random numbers of a generator, correlated within groups by a Gaussian copula; the first axis is that of samples."""

    def __init__(self, rng: np.random.Generator, groups: Codes, correlation: float) -> None:
        self._rng, self._groups, self._correlation = rng, groups, correlation

    def standard_normal(self, size: int | tuple[int, ...]) -> Array:
        """Returns standard normal numbers."""
        own = self._rng.standard_normal(size)
        shared = self._rng.standard_normal((int(self._groups.max()) + 1, *own.shape[1:]))[self._groups]
        result: Array = math.sqrt(self._correlation) * shared + math.sqrt(1.0 - self._correlation) * own
        return result

    def random(self, size: int | tuple[int, ...]) -> Array:
        """Returns numbers between 0 and 1, all equally likely."""
        from scipy.special import ndtr

        result: Array = ndtr(self.standard_normal(size))
        return result

    def integers(self, high: int, size: int) -> Codes:
        """Returns whole numbers from 0 to ``high`` - 1, all equally likely."""
        return np.minimum(self.random(size) * high, high - 1).astype(np.intp)
