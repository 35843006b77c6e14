from __future__ import annotations

import math
from collections.abc import Callable

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
