from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from pytest_vlmrobust.metrics.statistics.clusters import Clusters
from pytest_vlmrobust.metrics.statistics.groups import GroupMeans, largest_gap_interval


def _two(first: int, of: int, second: int, total: int) -> GroupMeans:
    scores = np.concatenate([np.arange(of) < first, np.arange(total) < second]).astype(float)
    return GroupMeans.of(scores, ["a"] * of + ["b"] * total, Clusters.of(None, of + total))


def test_independent_groups_have_newcombes_interval() -> None:
    """Newcombe 1998 (Statistics in Medicine 17, 873-890), table II: 56/70 against 48/80, method 10, 95 %."""
    lower, upper = _two(56, 70, 48, 80).differences(0.95)
    assert float(lower[0, 1]) == pytest.approx(0.0524, abs=5e-5)
    assert float(upper[0, 1]) == pytest.approx(0.3339, abs=5e-5)
    lower, upper = _two(10, 10, 0, 10).differences(0.95)
    assert (float(lower[0, 1]), float(upper[0, 1])) == pytest.approx((0.6075, 1.0), abs=5e-5)


@pytest.mark.parametrize(
    ("sizes", "rates"), [((10, 10), (0.5, 0.5)), ((15, 15), (0.8, 0.6)), ((20, 10), (0.9, 0.9)), ((25, 25), (0.95, 0.8))]
)
def test_bounds_of_a_difference_err_seldom(sizes: tuple[int, int], rates: tuple[float, float]) -> None:
    """Exact, over all outcomes, nominal 5 % on either side."""
    high = low = 0.0
    for first in range(sizes[0] + 1):
        for second in range(sizes[1] + 1):
            weight = math.prod(
                math.comb(n, count) * rate**count * (1 - rate) ** (n - count)
                for n, count, rate in zip(sizes, (first, second), rates, strict=True)
            )
            lower, upper = _two(first, sizes[0], second, sizes[1]).differences(0.90)
            high += weight * (float(lower[0, 1]) > rates[0] - rates[1] + 1e-12)
            low += weight * (float(upper[0, 1]) < rates[0] - rates[1] - 1e-12)
    assert max(high, low) <= 0.067


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
