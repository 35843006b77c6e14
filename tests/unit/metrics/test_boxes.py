from __future__ import annotations

import math

import pytest

from pytest_vlmrobust import metrics

Box = tuple[float, float, float, float]

LEFT, RIGHT = (0.0, 0.0, 2.0, 2.0), (6.0, 0.0, 8.0, 2.0)


def test_what_was_not_found_counts_as_nothing() -> None:
    found = metrics.mean_overlap([LEFT, None, (6, 0, 7, 2), None], [LEFT, LEFT, RIGHT, RIGHT])
    assert found == pytest.approx((1.5 / 4, 0.5, 0.75))
    assert all(type(part) is float for part in found)


def test_giving_no_box_never_helps() -> None:
    """The published mean over found attributes rewards it: 0.25 becomes 0.5."""
    bad = (1.0, 0.0, 3.0, 2.0)
    given, silent = (metrics.mean_overlap([(0, 0, 1, 2), box], [LEFT, RIGHT]) for box in (bad, None))
    assert silent.mean_iou == given.mean_iou
    assert silent.mean_iou_of_found > given.mean_iou_of_found
    assert silent.coverage < given.coverage


def test_a_predicted_box_turned_inside_out_covers_nothing() -> None:
    assert metrics.mean_overlap([(2, 2, 0, 0)], [LEFT]) == (0.0, 1.0, 0.0)
    with pytest.raises(ValueError, match="expected finite"):
        metrics.mean_overlap([LEFT], [(2, 2, 0, 0)])
    with pytest.raises(ValueError, match="expected four numbers"):
        metrics.mean_overlap([(0, 0, 2)], [LEFT])


def test_overlap_of_nothing_is_unknown() -> None:
    assert all(math.isnan(part) for part in metrics.mean_overlap([], []))
    found = metrics.mean_overlap([None], [LEFT])
    assert (found.mean_iou, found.coverage) == (0.0, 0.0)
    assert math.isnan(found.mean_iou_of_found)
    assert math.isnan(metrics.mean_overlap([(0, 0, 2, math.nan)], [LEFT]).mean_iou)


def test_boxes_are_counted() -> None:
    with pytest.raises(ValueError, match="1 predicted and 2 true boxes: expected one, or None, for each true box"):
        metrics.mean_overlap([LEFT], [LEFT, RIGHT])


@pytest.mark.parametrize(
    ("predicted", "matched"),
    [
        ((LEFT, RIGHT), (LEFT, RIGHT)),
        ((RIGHT, LEFT), (LEFT, RIGHT)),
        ((None, LEFT), (None, LEFT)),
        ((RIGHT, None), (RIGHT, None)),
        ((None, None), (None, None)),
        (((20, 0, 21, 1), (30, 0, 31, 1)), ((20, 0, 21, 1), (30, 0, 31, 1))),
        (((8, 2, 6, 0), LEFT), (LEFT, (8, 2, 6, 0))),  # the first is turned inside out
    ],
)
def test_eyes_may_be_swapped(predicted: tuple[Box | None, Box | None], matched: tuple[Box | None, Box | None]) -> None:
    assert metrics.match_eyes(predicted, (LEFT, RIGHT)) == matched
