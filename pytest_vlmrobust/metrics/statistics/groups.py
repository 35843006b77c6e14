"""Differences between the means of groups of samples that may share clusters."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .clusters import Clusters
from .means import BoundedMeanTest
from .paired import interval_of
from .proportions import is_binary, proportion_interval

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class GroupMeans:
    """The means of k groups of scores in [0, 1], and their correlation."""

    names: tuple[Hashable, ...]
    """In order of appearance."""
    members: tuple[Array, ...]
    """The scores of each group."""
    clusters: tuple[Clusters, ...]
    """The clusters within each group."""
    correlation: Array
    """Of the means, shape (k, k): 0 between groups that share no cluster."""
    df: float
    """Degrees of freedom that the correlation rests on: infinite when no group shares a cluster with another."""

    @classmethod
    def of(cls, scores: Array, labels: Sequence[Hashable], clusters: Clusters) -> GroupMeans:
        """Returns the groups of ``scores`` (N,) with equal labels, N > 0."""
        names = tuple(dict.fromkeys(labels))
        numbers = {name: number for number, name in enumerate(names)}
        codes = np.array([numbers[label] for label in labels])
        rows = [np.flatnonzero(codes == number) for number in range(len(names))]
        influences = np.zeros((len(scores), len(names)))
        for number, members in enumerate(rows):
            influences[members, number] = (scores[members] - scores[members].mean()) / members.size
        within = tuple(clusters.within(members) for members in rows)
        shared = sum(part.count for part in within) > clusters.count
        df = clusters.degrees_of_freedom if shared else math.inf
        return cls(names, tuple(scores[members] for members in rows), within, _correlation(influences, clusters), df)

    @property
    def means(self) -> Array:
        """Shape (k,)."""
        return np.array([float(scores.mean()) for scores in self.members])

    def limits(self, confidence: float, most_df: float = math.inf) -> Array:
        """Returns the interval of each mean, shape (k, 2): Wilson's for 0/1 scores, guarded Student's t for graded ones."""
        members = zip(self.members, self.clusters, strict=True)
        return np.array([_limits(scores, clusters, confidence, most_df) for scores, clusters in members]).clip(0.0, 1.0)

    def differences(self, confidence: float) -> tuple[Array, Array]:
        """Returns lower and upper bounds of mean a - mean b, each of shape (k, k).

        The distances of the groups' own bounds add up as standard errors do. Where groups share clusters, their correlation is
        known from so many clusters only: quantiles are Student's (of 25 identities at four places that are alike, the largest gap
        was else shown to be above 0 in 9 % of simulated runs instead of 5 %).

        Source: R. G. Newcombe, Statistics in Medicine 17 (1998) 873-890 (method 10), with the correlation of G. Y. Zou and
        A. Donner, Statistics in Medicine 27 (2008) 1693-1702.
        """
        means, limits = self.means, self.limits(confidence, self.df)
        below, above = means - limits[:, 0], limits[:, 1] - means
        distance = means[:, None] - means[None, :]
        return distance - self._combine(below, above), distance + self._combine(above, below)

    def _combine(self, first: Array, second: Array) -> Array:
        squares = first[:, None] ** 2 + second[None, :] ** 2 - 2.0 * self.correlation * first[:, None] * second[None, :]
        combined: Array = np.sqrt(squares.clip(min=0.0))
        return combined


def largest_gap_interval(groups: GroupMeans, confidence: float) -> tuple[float, float]:
    """Bounds the largest minus the smallest true mean of at least two groups, in [0, 1].

    The gap is the largest of k (k - 1) ordered differences: above it is bounded by the largest of their upper bounds, without
    correction (intersection-union), below by the largest of lower bounds, each at a k (k - 1)-th of the error (Bonferroni).
    """
    count = len(groups.names)
    others = ~np.eye(count, dtype=np.bool_)
    _, upper = groups.differences(confidence)
    lower, _ = groups.differences(1.0 - (1.0 - confidence) / (count * (count - 1)))
    return max(float(lower[others].max()), 0.0), min(float(upper[others].max()), 1.0)


def _limits(scores: Array, clusters: Clusters, confidence: float, most_df: float) -> tuple[float, float]:
    if is_binary(scores):
        return proportion_interval(scores, clusters, confidence, most_df)
    return interval_of(BoundedMeanTest.of(scores[:, None], clusters, 0.0, 1.0), confidence)


def _correlation(influences: Array, clusters: Clusters) -> Array:
    if clusters.count < 2:
        return np.zeros((influences.shape[1], influences.shape[1]))
    covariance = clusters.covariance(influences)
    scale = np.sqrt(np.outer(covariance.diagonal(), covariance.diagonal()))
    correlation: Array = np.divide(covariance, scale, out=np.zeros_like(covariance), where=scale > 0.0).clip(-1.0, 1.0)
    return correlation
