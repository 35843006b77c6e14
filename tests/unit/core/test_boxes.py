"""Boxes: overlap, which eye is which, and the coordinates in which models speak."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_vlmrobust.core.boxes import CONVENTIONS, Box, are_swapped, box_space, overlap
from pytest_vlmrobust.core.errors import UnknownName

UNIT = (0.0, 0.0, 2.0, 2.0)
AWAY = (6.0, 0.0, 8.0, 2.0)
numbers = st.floats(-1e4, 1e4)
any_box = st.tuples(numbers, numbers, numbers, numbers)


@pytest.mark.cases(
    ("box", "value"),
    [
        (UNIT, 1.0),
        ((1, 0, 3, 2), 1 / 3),
        ((0, 0, 1, 2), 0.5),
        ((2, 0, 4, 2), 0.0),
        (AWAY, 0.0),
        ((1, 1, 1, 1), 0.0),
        ((2, 0, 0, 2), 0.0),
        ((2, 2, 0, 0), 0.0),
        ((-1, -1, 3, 3), 0.25),
    ],
)
def test_overlap(box: Box, value: float) -> None:
    assert overlap(box, UNIT) == overlap(UNIT, box) == pytest.approx(value)


@pytest.mark.parametrize(
    ("box", "other"), [((1, 1, 1, 1), (1, 1, 1, 1)), ((0, 0, math.nan, 2), UNIT), ((math.nan, 9, 0, 0), UNIT)]
)
def test_overlap_of_nothing_is_unknown(box: Box, other: Box) -> None:
    assert math.isnan(overlap(box, other))


@given(any_box, any_box)
def test_overlap_is_a_share_either_way_round(box: Box, other: Box) -> None:
    value = overlap(box, other)
    assert math.isnan(value) or 0.0 <= value <= 1.0
    assert value == pytest.approx(overlap(other, box), nan_ok=True)


def test_eyes_are_swapped_when_they_then_overlap_more() -> None:
    assert are_swapped((AWAY, UNIT), (UNIT, AWAY))
    assert not are_swapped((UNIT, AWAY), (UNIT, AWAY))
    assert not are_swapped(((20, 0, 21, 1), (30, 0, 31, 1)), (UNIT, AWAY))
    assert are_swapped(((8, 2, 6, 0), UNIT), (UNIT, AWAY))


@pytest.mark.cases("convention", CONVENTIONS)
def test_what_is_written_in_a_space_is_read_back(convention: str) -> None:
    space, size = box_space(convention, (200, 100), (280, 56)), (200, 100)
    box = (10.0, 20.0, 30.0, 90.0)
    assert space.read(space.write(box, size), size) == pytest.approx(box)
    right, bottom = space.write((0, 0, 200, 100), size)[2:]
    expected = (space.width, space.height) if space.order == "xy" else (space.height, space.width)
    assert (right, bottom) == pytest.approx(expected)


def test_an_unknown_convention() -> None:
    with pytest.raises(UnknownName, match=r"unknown box convention 'pixel'\. Did you mean 'pixels'\?"):
        box_space("pixel", (2, 2))
