from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats

from pytest_vlmrobust.metrics.statistics.clusters import Clusters
from pytest_vlmrobust.metrics.statistics.groups import GroupMeans, largest_gap_interval
from pytest_vlmrobust.metrics.statistics.proportions import exact_interval


def _two(first: int, of: int, second: int, total: int) -> GroupMeans:
    scores = np.concatenate([np.arange(of) < first, np.arange(total) < second]).astype(float)
    return GroupMeans.of(scores, ["a"] * of + ["b"] * total, Clusters.of(None, of + total))


def test_limits_of_independent_groups_are_combined() -> None:
    """By integration over one limit: the other is beyond the difference with the tail of a beta distribution."""
    lower, upper = _two(56, 70, 48, 80).differences(0.95)
    chances = (np.arange(4000) + 0.5) / 4000
    high, low = stats.beta.ppf(chances, 57, 14), stats.beta.ppf(chances, 56, 15)
    assert stats.beta.cdf(high - float(upper[0, 1]), 48, 33).mean() == pytest.approx(0.025, rel=0.01)
    assert stats.beta.sf(low - float(lower[0, 1]), 49, 32).mean() == pytest.approx(0.025, rel=0.01)
    lower, upper = _two(10, 10, 0, 10).differences(0.90)
    assert float(upper[0, 1]) == pytest.approx(1.0)


def test_a_group_without_a_mistake_leaves_the_limit_of_the_other() -> None:
    _, upper = _two(25, 25, 22, 25).differences(0.90)
    assert float(upper[0, 1]) == pytest.approx(1.0 - exact_interval(22, 25, 0.90)[0], abs=2e-4)


SHARES = np.unique(np.concatenate([np.linspace(0.0, 0.1, 11), np.linspace(0.1, 0.9, 9), np.linspace(0.9, 1.0, 11)]))


@pytest.mark.study
@pytest.mark.parametrize("sizes", [(8, 8), (25, 25), (10, 40)])
def test_gaps_err_as_rarely_as_declared(sizes: tuple[int, int]) -> None:
    """Exact, over all outcomes and a grid of 961 truths: with Wilson's limits the upper end erred in up to 20 %."""
    ends = np.array(
        [[largest_gap_interval(_two(a, sizes[0], b, sizes[1]), 0.90) for b in range(sizes[1] + 1)] for a in range(sizes[0] + 1)]
    )
    first, second = (stats.binom.pmf(np.arange(n + 1), n, SHARES[:, None]) for n in sizes)
    gaps = np.abs(SHARES[:, None] - SHARES)
    for missed in (
        ends[None, None, ..., 1] < gaps[..., None, None] - 1e-9,
        ends[None, None, ..., 0] > gaps[..., None, None] + 1e-9,
    ):
        assert np.einsum("ia,jb,ijab->ij", first, second, missed).max() <= 0.05


@pytest.mark.study
@pytest.mark.parametrize("n", [25, 100, 200])
def test_gaps_hold_where_one_group_makes_no_mistake(n: int) -> None:
    """Exact, at means of 1.0 and 0.9: .072, .058 and .057 with Wilson's limits."""
    chances = stats.binom.pmf(np.arange(n + 1), n, 0.9)
    high = np.array([largest_gap_interval(_two(n, n, right, n), 0.90)[1] for right in range(n + 1)])
    assert chances[high < 0.1 - 1e-9].sum() <= 0.05


@pytest.mark.study
def test_gaps_of_graded_scores_hold() -> None:
    """Of 60 overlaps of 0.9 in each group, 4 in 100 of one group are lost: a world in which few of them are seen."""
    rng, truth = np.random.default_rng(4), 0.9 * 0.04
    highs = []
    for _ in range(100):
        scores = np.append(np.full(60, 0.9), np.where(rng.random(60) < 0.04, 0.0, 0.9))
        highs.append(largest_gap_interval(GroupMeans.of(scores, ["a"] * 60 + ["b"] * 60, Clusters.of(None, 120)), 0.90)[1])
    assert np.mean(np.array(highs) < truth) < 0.05 + 3.0 * math.sqrt(0.05 * 0.95 / 100)


def test_positions_of_one_image_move_together() -> None:
    """Each image is shown at both places and is easy or hard: the difference is known better than from independent ones."""
    rng = np.random.default_rng(2)
    easy = np.repeat(rng.random(200) < 0.5, 2)
    scores = np.where(rng.random(400) < 0.9, easy, ~easy).astype(float)
    labels, images = ["left", "right"] * 200, [str(index // 2) for index in range(400)]
    together = GroupMeans.of(scores, labels, Clusters.of(images, 400))
    apart = GroupMeans.of(scores, labels, Clusters.of(None, 400))
    assert together.correlation[0, 1] > 0.5
    assert apart.correlation[0, 1] == pytest.approx(0.0)
    widths = [float((upper - lower)[0, 1]) for lower, upper in (together.differences(0.9), apart.differences(0.9))]
    assert widths[0] < 0.75 * widths[1]


def test_a_correlation_known_from_few_images_widens_the_difference() -> None:
    scores, labels = np.tile([1.0, 1.0, 1.0, 0.0, 0.0, 1.0], 5), ["left", "right"] * 15
    together = GroupMeans.of(scores, labels, Clusters.of([str(index // 2) for index in range(30)], 30))
    apart = GroupMeans.of(scores, labels, Clusters.of(None, 30))
    assert (together.df, apart.df) == (14, math.inf)
    assert together.limits(0.9).tolist() == apart.limits(0.9).tolist(), "each mean on its own is known as well"
    normal = dataclasses.replace(together, df=math.inf)
    for student, plain in zip(together.differences(0.9), normal.differences(0.9), strict=True):
        assert abs(float(student[0, 1])) > abs(float(plain[0, 1]))


def test_clusters_within_a_group_are_counted_anew() -> None:
    within = Clusters.of(["a", "b", "b", "c"], 4).within(np.array([1, 2, 3]))
    assert (within.codes.tolist(), within.count) == ([0, 0, 1], 2)


def test_graded_scores_have_limits_within_the_scale() -> None:
    groups = GroupMeans.of(np.array([0.9, 1.0, 0.1, 0.0, 0.5]), list("aabbc"), Clusters.of(None, 5))
    assert groups.limits(0.99).min() == 0.0
    assert groups.limits(0.99).max() == 1.0


def test_the_largest_gap_is_bounded_over_all_pairs() -> None:
    scores = np.concatenate([np.arange(100) < right for right in (90, 60, 88)]).astype(float)
    groups = GroupMeans.of(scores, ["a"] * 100 + ["b"] * 100 + ["c"] * 100, Clusters.of(None, 300))
    low, high = largest_gap_interval(groups, 0.90)
    lower, upper = groups.differences(0.90)
    assert high == pytest.approx(float(upper[0, 1]))
    assert 0.0 < low < float(lower[0, 1]) < 0.3 < high


def test_alike_groups_may_have_no_gap() -> None:
    low, high = largest_gap_interval(_two(20, 20, 20, 20), 0.90)
    assert low == 0.0
    assert 0.05 < high < 0.25


def test_one_cluster_shows_nothing() -> None:
    groups = GroupMeans.of(np.array([1.0, 1.0, 0.0, 0.0]), list("aabb"), Clusters.of(["one"] * 4, 4))
    assert largest_gap_interval(groups, 0.90) == (0.0, 1.0)
