from __future__ import annotations

import math

import numpy as np
import pytest

from pytest_vlmrobust.metrics.statistics.clusters import Clusters
from pytest_vlmrobust.metrics.statistics.means import MeanTest
from pytest_vlmrobust.metrics.statistics.quantiles import critical_value
from pytest_vlmrobust.metrics.statistics.ratios import ratio_interval


@pytest.mark.parametrize("seed", range(20))
def test_a_ratio_is_inside_unless_its_contrast_is_rejected(seed: int) -> None:
    """The definition, tried on a grid: t is inside if and only if numerator - t * denominator may have mean 0."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(20, 200))
    top, bottom = (rng.random(n) < 0.2) - (rng.random(n) < 0.1) * 1.0, (rng.random(n) < 0.8) - (rng.random(n) < 0.2) * 1.0
    clusters = Clusters.of([str(name) for name in rng.integers(0, n // 2, n)], n) if seed % 2 else Clusters.of(None, n)
    low, high = ratio_interval(top, bottom, clusters, 0.90)
    assert low < top.mean() / bottom.mean() < high
    for ratio in np.linspace(-1, 2, 61):
        contrast = MeanTest.of((top - ratio * bottom)[:, None], clusters)
        inside = contrast.lower(0.05)[0] <= 0.0 <= contrast.upper(0.05)[0]
        assert inside == (low <= ratio <= high), ratio


def test_a_doubtful_denominator_leaves_a_side_open() -> None:
    """The loss is certain and the gain is not: the ratio is large, and nobody knows how large."""
    top = np.array([1.0] * 50 + [0.0] * 50)
    bottom = np.array([1.0, -1.0] * 49 + [1.0, 0.0])
    low, high = ratio_interval(top, bottom, Clusters.of(None, 100), 0.90)
    assert 0.0 < low < top.mean() / bottom.mean()
    assert high == math.inf
    low, high = ratio_interval(-top, bottom, Clusters.of(None, 100), 0.90)
    assert low == -math.inf
    assert -top.mean() / bottom.mean() < high < 0.0


def test_a_doubtful_denominator_and_no_loss_leave_both_sides_open() -> None:
    top = np.array([1.0, -1.0] * 49 + [0.0, 0.0])
    bottom = np.array([1.0, -1.0] * 49 + [1.0, 0.0])
    assert ratio_interval(np.roll(top, 1), bottom, Clusters.of(None, 100), 0.90) == (-math.inf, math.inf)


@pytest.mark.parametrize("factor", [0.0, 1.0])
def test_a_ratio_that_every_sample_shows_is_not_certain(factor: float) -> None:
    bottom = np.array([1.0] * 60 + [0.0] * 40)
    low, high = ratio_interval(factor * bottom, bottom, Clusters.of(None, 100), 0.90)
    assert low < factor - 0.02
    assert factor + 0.02 < high < factor + 0.1


def test_one_cluster_shows_nothing() -> None:
    assert ratio_interval(np.ones(3), np.ones(3), Clusters.of(["a"] * 3, 3), 0.90) == (-math.inf, math.inf)


def test_intervals_err_as_seldom_as_they_promise() -> None:
    """MMMU-Pro-like: 324 samples, visual gain 12 pp, drop 6 pp; each bound is wrong in about 5 % of 1000 runs."""
    rng = np.random.default_rng(7)
    above = below = 0
    for _ in range(1000):
        clean, blind, kept = ((rng.random(324) < rate).astype(np.float64) for rate in (0.36, 0.24, 0.30 / 0.36))
        low, high = ratio_interval(clean - clean * kept, clean - blind, Clusters.of(None, 324), 0.90)
        above, below = above + (low > 0.5), below + (high < 0.5)
    assert 25 <= above <= 75
    assert 25 <= below <= 75


def test_a_ratio_that_no_cluster_departs_from_is_not_certain() -> None:
    """Samples depart from the ratio 2 and cancel within their images."""
    numerator, denominator = np.array([1.0, 1.0, 0.0]), np.array([0.0, 1.0, 0.0])
    clusters = Clusters.of(["a", "a", "b"], 3)
    bounds = [ratio_interval(numerator, denominator, clusters, confidence) for confidence in (0.5, 0.9, 0.99)]
    assert all(low <= 2.0 < high for low, high in bounds)
    assert [low for low, _ in bounds] == sorted((low for low, _ in bounds), reverse=True)
    assert [high for _, high in bounds] == sorted(high for _, high in bounds)


def test_the_contrast_keeps_its_level_where_a_normal_ratio_does_not() -> None:
    """MMMU-Pro-like: 324 samples, a visual gain of 7 pp, half of it lost. Wrong verdicts at a threshold of one half, 3000 times.

    The delta method divides by a gain that is uncertain itself: it calls the ratio too low or too high far less often than the
    5 % it could afford, so decides less; the contrast uses its whole level on each side.
    """
    rng = np.random.default_rng(9)
    shape = (3000, 324)
    clean = rng.random(shape) < 0.36
    blind = np.where(clean, rng.random(shape) < 0.70, rng.random(shape) < 0.0592)
    perturbed = np.where(clean, rng.random(shape) < 0.80, rng.random(shape) < 0.0571)
    loss, gain = clean - perturbed * 1.0, clean - blind * 1.0
    contrast = loss - 0.5 * gain
    t = contrast.mean(axis=1) / (contrast.std(axis=1, ddof=1) / math.sqrt(324))
    ratio = loss.mean(axis=1) / gain.mean(axis=1)
    residual = loss - ratio[:, None] * gain
    delta = (ratio - 0.5) / (residual.std(axis=1, ddof=1) / math.sqrt(324) / gain.mean(axis=1))
    critical = critical_value(0.05, 323)
    linear_sizes = (t < -critical).mean(), (t > critical).mean()
    delta_sizes = (delta < -critical).mean(), (delta > critical).mean()
    assert linear_sizes == pytest.approx((0.05, 0.05), abs=0.015)
    assert min(delta_sizes) < 0.03
