from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from pytest_vlmrobust.metrics import scale_consistency, scale_gain


def test_the_gain_is_per_doubling() -> None:
    assert scale_gain([4, 16], [0.5, 0.7]) == pytest.approx(0.1)
    assert scale_gain([16e9, 4e9], [0.7, 0.5]) == pytest.approx(0.1)
    assert scale_gain([1, 2, 4, 8], [0.5, 0.6, 0.6, 0.8]) == pytest.approx((-1.5 * 0.5 - 0.5 * 0.6 + 0.5 * 0.6 + 1.5 * 0.8) / 5)
    assert type(scale_gain([1, 2], [0, 1])) is float


def test_each_loss_breaks_consistency() -> None:
    assert scale_consistency([3, 7, 72], [0.5, 0.7, 0.6]) == 0.5
    assert scale_consistency([72, 3, 7], [0.9, 0.5, 0.7]) == 1.0
    assert scale_consistency([3, 7, 72], [0.5, 0.5, 0.5]) == 1.0
    assert scale_consistency([3, 7], [0.6, 0.5]) == 0.0


@pytest.mark.parametrize("summary", [scale_gain, scale_consistency])
def test_one_model_shows_nothing(summary: Callable[..., float]) -> None:
    assert math.isnan(summary([], []))
    assert math.isnan(summary([3], [0.5]))
    assert math.isnan(summary([3, 7], [0.5, math.nan]))


@pytest.mark.parametrize("summary", [scale_gain, scale_consistency])
def test_nonsense_is_refused(summary: Callable[..., float]) -> None:
    with pytest.raises(ValueError, match="2 sizes and 1 scores: expected one score for each size"):
        summary([3, 7], [0.5])
    with pytest.raises(ValueError, match=r"parameters has 0\.0: expected a number of parameters above 0"):
        summary([0, 7], [0.5, 0.6])


def test_two_models_of_one_size() -> None:
    assert math.isnan(scale_gain([7, 7], [0.5, 0.6]))
    assert scale_gain([7, 7, 14], [0.5, 0.7, 0.7]) == pytest.approx(0.1)
    with pytest.raises(ValueError, match=r"parameters are \[7\.0, 7\.0\]: expected models of different sizes"):
        scale_consistency([7, 7], [0.5, 0.6])
