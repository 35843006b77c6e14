from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import special
from scipy.optimize import isotonic_regression

from pytest_vlmrobust.metrics.statistics.clusters import Clusters
from pytest_vlmrobust.metrics.statistics.curves import (
    ContrastTest,
    StepTest,
    falls,
    flat_variation,
    rising_fit,
    sign_contrasts,
    simulated_wobbles,
    slope_weights,
    step_errors,
    step_sums,
    variation,
    wobble,
)

Array = NDArray[np.float64]


@pytest.mark.cases("seed", range(20))
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
    points, clusters = np.ones((100, 6)), Clusters.of(None, 100)
    test = ContrastTest.of(points, sign_contrasts(6), clusters)
    assert test.errors.max() == pytest.approx(2 * 5 / 100)
    assert test.errors.min() == pytest.approx(2 / 100)
    assert StepTest.of(points, clusters).upper(sign_contrasts(6), 0.05) > 0.16
    assert StepTest.of(points, clusters).lower(0.05) < 0.0


def test_a_step_of_all_samples_is_not_known_to_be_one_of_all() -> None:
    points = np.zeros((100, 3))
    points[:, 1:] = 1.0
    assert 0.94 < StepTest.of(points, Clusters.of(None, 100)).lower(0.05) < 0.97


def test_one_cluster_shows_nothing() -> None:
    clusters = Clusters.of(["a"] * 4, 4)
    assert not np.isfinite(ContrastTest.of(np.eye(4), sign_contrasts(4), clusters).lowers(0.05, np.random.default_rng(0))).any()
    test, average = StepTest.of(np.eye(4), clusters), np.full(4, 0.25)
    assert test.upper(sign_contrasts(4), 0.05) == test.ratio_upper(sign_contrasts(4), average, 0.05) == math.inf
    assert test.lower(0.05) == test.ratio_lower(average, 0.05) == -math.inf


def test_a_ratio_to_a_mean_that_may_be_0_has_no_bounds() -> None:
    points = np.zeros((30, 3))
    points[0, 1] = 1.0
    test, average = StepTest.of(points, Clusters.of(None, 30)), np.full(3, 1 / 3)
    assert test.ratio_upper(sign_contrasts(3), average, 0.05) == math.inf
    assert test.ratio_lower(average, 0.05) == -math.inf


def test_steps_that_stand_out_are_bounded_as_their_signed_sum() -> None:
    """A zig-zag of 20 standard errors a step, whose signs are known: the lower bound is Student's of one contrast."""
    points = _zigzag(4000, 0.3, 0)
    signs = np.array([1.0, -1.0, 1.0, -1.0, 1.0])
    sums = np.diff(points, axis=1) @ signs
    by_hand = sums.mean() - 1.6959 * sums.std(ddof=1) / math.sqrt(4000)  # normal quantile of 1 - 0.9 * 0.05
    test = StepTest.of(points, Clusters.of(None, 4000))
    assert test.lower(0.05) == pytest.approx(by_hand, abs=1e-4)
    assert test.lower(0.05, net=1.0) + test.lower(0.05, net=-1.0) == pytest.approx(2 * by_hand, abs=0.01)


def test_a_rise_by_small_steps_is_bounded_by_its_net_change() -> None:
    """Steps of half a standard error: what counts is the change from the first to the last point, at both signs."""
    points = _answers(np.linspace(0.4, 0.6, 12), 120, 1)
    change = points[:, -1] - points[:, 0]
    by_hand = change.mean() - float(-special.stdtrit(119, 0.9 * 0.05 / 2)) * change.std(ddof=1) / math.sqrt(120)
    assert StepTest.of(points, Clusters.of(None, 120)).lower(0.05) == pytest.approx(by_hand)


@pytest.mark.parametrize("ratio", [0.0, 0.7, 1.5, 4.0])
def test_what_a_step_counts_is_the_average_over_halves(ratio: float) -> None:
    """Of two halves whose steps average 1: the sign of one times the size of the other, for all ways to split."""
    deviations = np.random.default_rng(2).standard_normal(400_000)
    averaged = (np.sign(ratio + deviations) * (ratio - deviations)).mean()
    points = np.array([[0.0, 1.0], [0.0, 0.0], [1.0, 0.0], [1.0, 1.0]])  # only its covariance counts
    error = float(np.diff(points, axis=1).std(ddof=1)) / 2
    test = StepTest(np.array([0.0, ratio * error]), Clusters.of(None, 4).covariance(points), 4, math.inf)
    ((value, _, _), *_) = test._below(0.05, 0.0)
    assert value / error == pytest.approx(averaged, abs=0.01)


@pytest.mark.study
@pytest.mark.parametrize(
    ("rates", "n"),
    [
        (np.full(12, 0.55), 200),
        (np.linspace(0.36, 0.60, 12), 200),
        (np.array([0.53, 0.58] * 6), 400),
        (np.array([0.5] * 6 + [0.6] * 6), 200),
    ],
    ids=["flat", "rise", "zig-zag", "one step"],
)
def test_both_ends_err_seldom(rates: Array, n: int) -> None:
    """Nominal 5 %; in 200 runs more than 9 % has a probability below 1 % where 5 % is true."""
    truth, signs, average = float(variation(rates)), sign_contrasts(12), np.full(12, 1 / 12)
    errors = np.zeros(4)
    for seed in range(200):
        test = StepTest.of(_answers(rates, n, seed), Clusters.of(None, n))
        ratio = truth / float(rates.mean())
        errors[:2] += (test.lower(0.05) > truth, test.upper(signs, 0.05) < truth)
        errors[2:] += (test.ratio_lower(average, 0.05) > ratio, test.ratio_upper(signs, average, 0.05) < ratio)
    assert errors.max() / 200 <= 0.09, errors


def test_falls_are_the_contrasts_of_the_largest_downward_step() -> None:
    curve = np.array([0.5, 0.6, 0.58, 0.59, 0.52, 0.7])
    assert falls(6).shape == (15, 6)
    assert float((falls(6) @ curve).max()) == pytest.approx(0.08)


def test_the_share_of_one_test_among_many() -> None:
    """Of one contrast all of the error; of 66 pairs of 12 points less, and more than Bonferroni's 66th."""
    points, clusters = _answers(np.full(12, 0.5), 1200, 3), Clusters.of(None, 1200)
    share = ContrastTest.of(points, falls(12)[:1], clusters).share(0.05, np.random.default_rng(0))
    every = ContrastTest.of(points, falls(12), clusters).share(0.05, np.random.default_rng(0))
    assert share == pytest.approx(0.05, abs=0.012)
    assert 0.05 / 66 < every < 0.05 / 20


def test_monotone_curves_wobble_by_noise_alone() -> None:
    """Steps of ten standard errors leave no room for a fall; equal points leave all."""
    clusters, rng = Clusters.of(None, 4000), np.random.default_rng(1)
    steep = (rng.random((4000, 4)) < np.array([0.1, 0.4, 0.6, 0.9])).astype(float)
    assert not simulated_wobbles(steep, clusters, rng, 200).any()
    assert not simulated_wobbles(steep[:, ::-1], clusters, rng, 200).any()
    flat = (rng.random((4000, 4)) < 0.5).astype(float)
    assert (simulated_wobbles(flat, clusters, rng, 200) > 0).mean() > 0.6


def _answers(rates: Array, n: int, seed: int) -> Array:
    """Answers of n samples that are mostly the same at each point."""
    rng = np.random.default_rng(seed)
    ease = np.where(rng.random((n, rates.size)) < 0.1, rng.random((n, rates.size)), rng.random(n)[:, None])
    return (ease < rates).astype(float)


def _zigzag(n: int, height: float, seed: int) -> Array:
    return _answers(0.5 + height / 2 * np.array([-1.0, 1.0] * 3), n, seed)


@settings(deadline=None, derandomize=True, database=None)
@given(st.lists(st.integers(0, 20), min_size=1, max_size=12))
def test_it_agrees_with_scipy(values: list[int]) -> None:
    curve = np.array(values, dtype=np.float64)
    assert rising_fit(curve).tolist() == pytest.approx(isotonic_regression(curve).x.tolist())


def test_a_rising_curve_is_its_own_fit() -> None:
    curve = np.array([0.1, 0.1, 0.3])
    assert rising_fit(curve).tolist() == curve.tolist()


def test_a_falling_curve_is_flat() -> None:
    assert rising_fit(np.array([3.0, 2.0, 1.0])).tolist() == [2.0, 2.0, 2.0]
