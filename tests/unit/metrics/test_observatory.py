from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from pytest_vlmrobust import metrics

Box = tuple[float, float, float, float]


def test_position_gap_is_largest_minus_smallest() -> None:
    scores = [1, 1, 1, 0, 0, 0, 1, 0]
    positions = [(0, 0), (0, 0), (0, 1), (0, 1), (1, 0), (1, 0), (1, 1), (1, 1)]
    assert metrics.position_gap(scores, positions) == 1.0


def test_group_gap_has_no_sign() -> None:
    assert metrics.group_gap([1, 1, 0, 1], ["F", "F", "M", "M"]) == metrics.group_gap([1, 1, 0, 1], ["M", "M", "F", "F"]) == 0.5


@pytest.mark.parametrize("gap", [metrics.position_gap, metrics.group_gap])
def test_one_group_is_no_comparison(gap: Callable[..., float]) -> None:
    assert math.isnan(gap([1, 0], ["a", "a"]))
    assert math.isnan(gap([], []))
    assert math.isnan(gap([1, math.nan, 0], ["a", "a", "b"]))


def test_gap_names_lengths() -> None:
    with pytest.raises(ValueError, match="scores has 2 values and positions has 1: expected one for each sample"):
        metrics.position_gap([1, 0], ["a"])


def test_retention_is_a_ratio_of_means_not_a_mean_of_ratios() -> None:
    assert metrics.transfer_retention([0.5, 0.0], [1.0, 0.25]) == pytest.approx(0.5 / 1.25)


def test_retention_of_nothing_is_undefined() -> None:
    assert math.isnan(metrics.transfer_retention([0.5], [0.0]))
    assert math.isnan(metrics.transfer_retention([], []))


@pytest.mark.parametrize(
    ("box", "other", "overlap"),
    [
        ((0, 0, 2, 2), (0, 0, 2, 2), 1.0),
        ((0, 0, 2, 2), (1, 1, 3, 3), 1 / 7),
        ((0, 0, 2, 2), (2, 0, 4, 2), 0.0),  # they touch
        ((0, 0, 2, 2), (5, 5, 6, 6), 0.0),
        ((0, 0, 4, 4), (1, 1, 3, 3), 0.25),
        ((0, 0, 2, 2), (1, 1, 1, 1), 0.0),  # an empty box
        ((0.1, 0.1, 0.4, 0.4), (0.1, 0.1, 0.4, 0.4), 1.0),
    ],
)
def test_overlap(box: Box, other: Box, overlap: float) -> None:
    value = metrics.intersection_over_union(box, other)
    assert value == pytest.approx(overlap)
    assert value == metrics.intersection_over_union(other, box)
    assert type(value) is float


def test_two_empty_boxes_have_no_overlap_to_speak_of() -> None:
    assert math.isnan(metrics.intersection_over_union((1, 1, 1, 1), (1, 1, 1, 1)))
    assert math.isnan(metrics.intersection_over_union((0, 0, 1, math.nan), (0, 0, 1, 1)))


def test_a_box_turned_inside_out_is_refused() -> None:
    with pytest.raises(ValueError, match=r"box is \[2\.0, 0\.0, 1\.0, 1\.0\]: expected finite \(x1, y1, x2, y2\) with x1 <= x2"):
        metrics.intersection_over_union((2, 0, 1, 1), (0, 0, 1, 1))
    with pytest.raises(ValueError, match="other is "):
        metrics.intersection_over_union((0, 0, 1, 1), (0, 0, 1, math.inf))
    with pytest.raises(ValueError, match=r"box: found shape \(3,\), expected four numbers"):
        metrics.intersection_over_union((0, 0, 1), (0, 0, 1, 1))
