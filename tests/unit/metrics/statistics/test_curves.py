from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from pytest_vlmrobust.metrics.statistics.clusters import Clusters
from pytest_vlmrobust.metrics.statistics.curves import (
    ContrastTest,
    flat_variation,
    sign_contrasts,
    simulated_wobbles,
    slope_weights,
    step_errors,
    step_sums,
    unfolded,
    variation,
    wobble,
)


@pytest.mark.parametrize("seed", range(20))
def test_variation_and_its_parts_are_largest_contrasts(seed: int) -> None:
    rng = np.random.default_rng(seed)
    curve = rng.random(int(rng.integers(2, 8)))
    steps = [after - before for before, after in itertools.pairwise(curve.tolist())]
    rises, falls = sum(step for step in steps if step > 0), -sum(step for step in steps if step < 0)
    assert float(variation(curve)) == pytest.approx(rises + falls)
    assert float(wobble(curve)) == pytest.approx(2 * min(rises, falls))
    assert float(variation(curve)) == pytest.approx(abs(curve[-1] - curve[0]) + float(wobble(curve)))
    assert float((sign_contrasts(curve.size) @ curve).max()) == pytest.approx(rises + falls)
    assert max(float((step_sums(curve.size) @ curve).max()), 0.0) == pytest.approx(rises)
    assert max(float((-step_sums(curve.size) @ curve).max()), 0.0) == pytest.approx(falls)


def test_contrasts_are_enumerated() -> None:
    assert sign_contrasts(12).shape == (2048, 12)
    assert step_sums(12).shape == (2047, 12)
    assert np.unique(sign_contrasts(5), axis=0).shape == (16, 5)
    assert not sign_contrasts(6).sum(axis=1).any()


def test_many_curves_at_once() -> None:
    curves = np.random.default_rng(0).random((5, 3, 12))
    assert variation(curves).shape == wobble(curves).shape == (5, 3)
    assert float(wobble(curves)[4, 2]) == pytest.approx(float(wobble(curves[4, 2])))


@pytest.mark.parametrize(("true", "error"), [(0.0, 1.0), (0.3, 0.5), (0.02, 0.01), (1.0, 0.0), (0.5, 0.05)])
def test_unfolding_inverts_the_mean_of_a_folded_normal(true: float, error: float) -> None:
    grid = np.linspace(-12, 12, 200_001)
    density = np.exp(-(grid**2) / 2) / math.sqrt(2 * math.pi)
    mean = float((np.abs(true + error * grid) * density).sum() * (grid[1] - grid[0]))
    assert float(unfolded(np.array([mean]), np.array([error]))[0]) == pytest.approx(true, abs=2e-4 + 0.01 * (true == 0.0))


def test_what_noise_alone_shows_counts_nothing() -> None:
    assert unfolded(np.array([0.0, 0.79]), np.array([1.0, 1.0])).tolist() == [0.0, 0.0]


def test_slopes() -> None:
    positions = np.array([1.0, 2.0, 4.0, 7.0])
    values = np.array([0.2, 0.1, 0.5, 0.9])
    assert float(slope_weights(positions) @ values) == pytest.approx(np.polyfit(positions, values, 1)[0])


def test_a_flat_curve_varies_as_much_as_its_steps_err() -> None:
    """Independent answers at four resolutions: sqrt(2/pi) * 3 * sqrt(2 p (1 - p) / N)."""
    points = (np.random.default_rng(3).random((20_000, 4)) < 0.6).astype(float)
    expected = math.sqrt(2 / math.pi) * 3 * math.sqrt(2 * 0.24 / 20_000)
    assert flat_variation(step_errors(points, Clusters.of(None, 20_000))) == pytest.approx(expected, rel=0.02)


def test_contrasts_that_no_sample_departs_from_keep_an_error() -> None:
    """The rule of three, times what one sample can add: for alternating signs of six points twice five."""
    test = ContrastTest.of(np.ones((100, 6)), sign_contrasts(6), Clusters.of(None, 100))
    assert test.errors.max() == pytest.approx(2 * 5 / 100)
    assert test.errors.min() == pytest.approx(2 / 100)
    assert test.upper(0.05) > 0.16
    assert test.lower(0.05, np.random.default_rng(0)) == pytest.approx(-1.66 * 0.02, abs=1e-3)


def test_a_step_of_all_samples_is_not_known_to_be_one_of_all() -> None:
    points = np.zeros((100, 3))
    points[:, 1:] = 1.0
    test = ContrastTest.of(points, sign_contrasts(3), Clusters.of(None, 100))
    assert test.lower(0.05, np.random.default_rng(0)) == pytest.approx(0.967, abs=1e-3)


def test_one_cluster_shows_nothing() -> None:
    test = ContrastTest.of(np.eye(4), sign_contrasts(4), Clusters.of(["a"] * 4, 4))
    assert test.upper(0.05) == math.inf
    assert test.lower(0.05, np.random.default_rng(0)) == -math.inf
    assert test.ratio_upper(np.full(4, 0.25), 0.05) == math.inf


def test_a_ratio_to_a_mean_that_may_be_0_has_no_upper_bound() -> None:
    points = np.zeros((30, 3))
    points[0, 1] = 1.0
    test = ContrastTest.of(points, sign_contrasts(3), Clusters.of(None, 30))
    assert test.ratio_upper(np.full(3, 1 / 3), 0.05) == math.inf


def test_simultaneous_bounds_are_wider_than_single_ones() -> None:
    points = (np.random.default_rng(5).random((300, 5)) < 0.5).astype(float)
    clusters = Clusters.of(None, 300)
    one = ContrastTest.of(points, sign_contrasts(5)[:1], clusters)
    every = ContrastTest.of(points, sign_contrasts(5), clusters)
    chosen = int(every.values.argmax())
    single = float(every.values[chosen]) - 1.65 * float(every.errors[chosen])
    assert every.lower(0.05, np.random.default_rng(0)) < single
    assert one.lower(0.05, np.random.default_rng(0)) == pytest.approx(
        float(one.values[0]) - 1.65 * float(one.errors[0]), abs=0.15 * float(one.errors[0])
    )


def test_monotone_curves_wobble_by_noise_alone() -> None:
    """Steps of ten standard errors leave no room for a fall; equal points leave all."""
    clusters, rng = Clusters.of(None, 4000), np.random.default_rng(1)
    steep = (rng.random((4000, 4)) < np.array([0.1, 0.4, 0.6, 0.9])).astype(float)
    assert not simulated_wobbles(steep, clusters, rng, 200).any()
    assert not simulated_wobbles(steep[:, ::-1], clusters, rng, 200).any()
    flat = (rng.random((4000, 4)) < 0.5).astype(float)
    assert (simulated_wobbles(flat, clusters, rng, 200) > 0).mean() > 0.6
