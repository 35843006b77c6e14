from __future__ import annotations

import itertools
import math

import pytest

from pytest_vlmrobust.metrics import coverage, fixation, fixation_rate, grid_distance, grid_error, human_reference, position_gap

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


def test_fixation_has_wilsons_interval_over_items() -> None:
    result = fixation([["[0,0]"] * 4] * 13 + [CELLS] * 3, 0.95)
    assert (result.value, result.n, result.reason) == (13 / 16, 16, "")
    assert (result.low, result.high) == pytest.approx((0.5699, 0.9341), abs=5e-5)
    assert result.interval(0.5)[0] > result.low


def test_items_with_fewer_placements_are_left_out() -> None:
    result = fixation([["[0,0]"] * 4, CELLS, ["[0,0]"], ["[0,1]"] * 2, [None] * 4])
    assert result.n == 3
    assert result.value == pytest.approx(1 / 3)
    assert result.reason == "left out 2 of 5 items with fewer than 4 placements"


@pytest.mark.parametrize("answers", [[], [["[0,0]"]], [[], []]])
def test_fixation_needs_placements_to_compare(answers: list[list[str | None]]) -> None:
    result = fixation(answers)
    assert math.isnan(result.value)
    assert (result.n, result.reason) == (0, "no item is asked about with its target in two cells or more")


def test_distances_of_wrong_answers_have_an_interval() -> None:
    targets = [(0, 0)] * 100
    result = grid_distance([(0, 0)] * 40 + [(0, 1)] * 36 + [(1, 1)] * 20 + [None] * 4, targets)
    assert result.value == pytest.approx(76 / 56)
    assert result.n == 56
    assert 1.0 <= result.low < result.value < result.high < 1.6
    assert result.reason == "4 of 100 answers could not be read"
    same = grid_distance([(0, 1)] * 100, targets)
    assert (same.low, same.value) == (1.0, 1.0)
    assert same.high < 1.1


def test_without_wrong_answers_the_distance_is_undefined() -> None:
    result = grid_distance([(0, 0), None], [(0, 0), (1, 1)])
    assert math.isnan(result.value)
    assert (result.n, result.reason) == (0, "no readable answer is wrong; 1 of 2 answers could not be read")


def test_coverage_has_an_interval() -> None:
    every = coverage([1.0] * 100)
    assert (every.value, every.high) == (1.0, 1.0)
    assert 0.97 < every.low < 0.98, "Wilson's: none of 100 was left out"
    half = coverage([0.5, 1.0] * 50, source_images=[str(index // 2) for index in range(100)])
    assert half.low < half.value == 0.75 < half.high
    missing = coverage([0.5, math.nan])
    assert math.isnan(missing.value)
    assert (missing.n, missing.reason) == (1, "shares of 1 of 2 samples are missing")
    assert coverage([]).reason == "no samples"
    with pytest.raises(ValueError, match=r"given\[0\] is 2\.0"):
        coverage([2.0])


def test_levels_are_checked() -> None:
    with pytest.raises(ValueError, match="confidence is 90"):
        fixation([], 90)
    with pytest.raises(ValueError, match="confidence is 90"):
        grid_distance([], [], 90)
    with pytest.raises(ValueError, match="confidence is 90"):
        coverage([], 90)


def test_people_are_quoted_with_their_source() -> None:
    known = {"matching": 0.95, "pointing": 0.95, "guided_published": 0.81}
    people = {task: human_reference(task) for task in (*known, "guided", "semi_guided", "pointing_3x3")}
    assert {task: one.value for task, one in people.items() if one} == known
    assert all("section 5.8" in one.text and "the paper's own" in one.text for one in people.values() if one)
