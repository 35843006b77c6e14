from __future__ import annotations

import itertools
import math

import pytest

from pytest_vlmrobust.metrics import fixation_rate, grid_error, position_gap

CELLS = ["[0,0]", "[0,1]", "[1,0]", "[1,1]"]


def test_the_same_answer_everywhere_is_fixation() -> None:
    assert fixation_rate([["[0,0]"] * 4, CELLS, ["[0,0]", "[0,0]", "[0,0]", "[1,1]"]]) == pytest.approx(1 / 3)
    assert fixation_rate([[(0, 0)] * 4]) == 1.0
    assert math.isnan(fixation_rate([]))


def test_silence_is_no_fixation() -> None:
    assert fixation_rate([[None] * 4, ["[0,0]"] * 3 + [None]]) == 0.0


def test_guessing_is_fixation_once_in_64() -> None:
    assert fixation_rate(list(itertools.product(CELLS, repeat=4))) == 1 / 64


def test_one_placement_cannot_show_it() -> None:
    with pytest.raises(ValueError, match=r"answers\[1\] has 1 placements: expected one for each cell, at least two"):
        fixation_rate([CELLS, ["[0,0]"]])


def test_distances_of_wrong_answers() -> None:
    found = grid_error([(0, 0), (0, 1), (1, 1), None], [(0, 0), (0, 0), (0, 0), (1, 1)])
    assert found == (1.5, 2, 1)
    assert grid_error([(2, 0)], [(0, 1)]).distance == 3.0


def test_without_wrong_answers_there_is_no_distance() -> None:
    assert math.isnan(grid_error([(0, 0), None], [(0, 0), (1, 1)]).distance)
    assert grid_error([], [])[1:] == (0, 0)


def test_answers_are_counted() -> None:
    with pytest.raises(ValueError, match="1 answers and 2 targets: expected one answer, or None, for each target"):
        grid_error([(0, 0)], [(0, 0), (1, 1)])


def test_unreadable_answers_widen_the_position_gap() -> None:
    """Read only at the left, always right: leaving silence out would show no gap."""
    assert position_gap([1, 1, 0, 0], ["left", "left", "right", "right"]) == 1.0
