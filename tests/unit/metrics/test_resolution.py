from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from pytest_vlmrobust import metrics


def test_ace_is_the_sum_of_absolute_steps() -> None:
    assert metrics.absolute_continuous_error([0.2, 0.5, 0.4, 0.4]) == pytest.approx(0.3 + 0.1)


def test_a_flat_curve_has_no_error() -> None:
    assert metrics.absolute_continuous_error([0.4] * 12) == 0.0
    assert metrics.relative_continuous_error([0.4] * 12) == 0.0


@pytest.mark.parametrize("error", [metrics.absolute_continuous_error, metrics.relative_continuous_error])
@pytest.mark.parametrize("curve", [[], [0.4], [0.4, math.nan, 0.5]])
def test_a_curve_that_is_none_is_unknown(error: Callable[..., float], curve: list[float]) -> None:
    assert math.isnan(error(curve))


def test_a_model_that_solves_nothing_has_no_relative_error() -> None:
    assert math.isnan(metrics.relative_continuous_error([0.0, 0.0]))


def test_correlation_ranks_ties_on_average() -> None:
    """Ranks of accuracy: 1, 2.5, 2.5, 4. Not the d-squared formula, which gives 0.95."""
    correlation = metrics.resolution_correlation([112, 224, 336, 448], [0.1, 0.2, 0.2, 0.3])
    assert correlation == pytest.approx(4.5 / math.sqrt(5 * 4.5))


def test_correlation_needs_no_order() -> None:
    assert metrics.resolution_correlation([448, 112, 224], [0.3, 0.1, 0.2]) == 1.0


@pytest.mark.parametrize(("edges", "curve"), [([], []), ([112], [0.5]), ([112, 224], [0.5, 0.5]), ([112, 224], [0.5, math.nan])])
def test_correlation_of_a_constant_or_unknown_curve_is_undefined(edges: list[float], curve: list[float]) -> None:
    assert math.isnan(metrics.resolution_correlation(edges, curve))


def test_accuracies_are_fractions() -> None:
    with pytest.raises(ValueError, match=r"accuracies\[0\] is 42\.0"):
        metrics.absolute_continuous_error([42.0, 48.2])


def test_lengths_are_named() -> None:
    with pytest.raises(ValueError, match="2 resolutions and 1 accuracies: expected one accuracy for each resolution"):
        metrics.resolution_correlation([112, 224], [0.5])


def test_ace_is_net_change_and_wobble() -> None:
    curve = [0.2, 0.5, 0.4, 0.45, 0.3]
    assert metrics.resolution_net(curve) == pytest.approx(0.1)
    assert metrics.resolution_wobble(curve) == pytest.approx(2 * (0.1 + 0.15))
    assert metrics.absolute_continuous_error(curve) == pytest.approx(0.1 + 0.5)


def test_monotone_curves_do_not_wobble() -> None:
    for curve in ([0.1, 0.2, 0.2, 0.9], [0.9, 0.2, 0.1]):
        assert metrics.resolution_wobble(curve) == 0.0
    assert metrics.resolution_net([0.9, 0.2, 0.1]) == pytest.approx(-0.8)


def test_the_largest_downward_step_may_span_several_resolutions() -> None:
    assert metrics.largest_downward_step([0.5, 0.6, 0.58, 0.59, 0.52, 0.7]) == pytest.approx(0.08)
    assert metrics.largest_downward_step([0.1, 0.1, 0.4]) == 0.0


@pytest.mark.parametrize(
    "metric", [metrics.resolution_net, metrics.resolution_wobble, metrics.largest_downward_step, metrics.resolution_accuracy]
)
def test_parts_of_a_curve_that_is_none_are_unknown(metric: Callable[..., float]) -> None:
    assert math.isnan(metric([]))
    assert math.isnan(metric([0.4, math.nan, 0.5]))
    assert type(metric([0.4, 0.5])) is float


def test_the_mean_accuracy_counts_each_resolution_once() -> None:
    assert metrics.resolution_accuracy([0.4]) == 0.4
    assert metrics.resolution_accuracy([0.4, 0.6, 0.5]) == pytest.approx(0.5)


def test_slopes_are_per_doubling() -> None:
    assert metrics.resolution_slope([112, 224, 448, 896], [0.1, 0.2, 0.3, 0.4]) == pytest.approx(0.1)
    assert metrics.resolution_slope([896, 112], [0.4, 0.1]) == pytest.approx(0.1)


def test_the_line_of_the_paper_is_per_pixel() -> None:
    edges, curve = [112.0, 224.0, 448.0, 1344.0], [0.30, 0.45, 0.40, 0.80]
    slope, intercept = np.polyfit(edges, curve, 1)
    assert metrics.linear_trend(edges, curve) == pytest.approx((float(slope), float(intercept)))


@pytest.mark.parametrize(("edges", "curve"), [([], []), ([112], [0.5]), ([112, 112], [0.5, 0.6]), ([112, 224], [0.5, math.nan])])
def test_a_line_through_one_point_is_undefined(edges: list[float], curve: list[float]) -> None:
    assert math.isnan(metrics.resolution_slope(edges, curve))
    assert all(math.isnan(part) for part in metrics.linear_trend(edges, curve))


def test_a_line_needs_pixels() -> None:
    with pytest.raises(ValueError, match=r"resolutions has 0\.0: expected long edges in pixels, above 0"):
        metrics.resolution_slope([0, 112], [0.5, 0.6])
    with pytest.raises(ValueError, match="1 resolutions and 2 accuracies: expected one accuracy for each resolution"):
        metrics.linear_trend([112], [0.5, 0.6])


def test_the_noise_floor_adds_up_step_errors() -> None:
    """Steps +1, -1, 0 and 0: variance 2/3 and standard error 0.408; two resolutions have one step."""
    expected = math.sqrt(2 / math.pi) * math.sqrt(2 / 3 / 4)
    assert metrics.resolution_noise_floor([[0, 1], [1, 0], [1, 1], [0, 0]]) == pytest.approx(expected)
    assert metrics.resolution_noise_floor([[1, 1, 1], [0, 0, 0]]) == 0.0


@pytest.mark.parametrize("rungs", [[[1, 0]], [[1], [0]], [[1, 0], [math.nan, 0]]])
def test_the_noise_floor_of_too_little_is_unknown(rungs: list[list[float]]) -> None:
    assert math.isnan(metrics.resolution_noise_floor(rungs))


def test_categories_count_the_same() -> None:
    rungs = [[1, 1], [1, 0], [1, 0], [0, 1]]
    assert metrics.macro_accuracies(rungs, ["a", "a", "a", "b"]) == pytest.approx((0.5, 2 / 3))
    assert metrics.macro_accuracies(rungs, ["a", "a", "b", "b"]) == pytest.approx((0.75, 0.5))
    assert all(math.isnan(mean) for mean in metrics.macro_accuracies(np.zeros((0, 2)), []))
    assert [math.isnan(mean) for mean in metrics.macro_accuracies([[1.0, math.nan], [1.0, 0.0]], ["a", "b"])] == [False, True]
    with pytest.raises(ValueError, match="rungs has 4 samples and categories has 1: expected one for each sample"):
        metrics.macro_accuracies(rungs, ["a"])
