from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.boxes import overlap
from pytest_vlmrobust.metrics import (
    ScoreTable,
    coverage,
    fixation,
    fixation_rate,
    grid_distance,
    grid_error,
    human_reference,
    position_gap,
    prompt_leakage_iou,
)

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
    errors = grid_error([(0, 0), (0, 1), (1, 1), None], [(0, 0), (0, 0), (0, 0), (1, 1)])
    assert errors == (1.5, 2, 1)
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
    assert {task: quote.value for task, quote in people.items() if quote} == known
    assert all("section 5.8" in quote.text and "the paper's own" in quote.text for quote in people.values() if quote)


Box = tuple[float, float, float, float]

LEFT, RIGHT = (0.0, 0.0, 2.0, 2.0), (6.0, 0.0, 8.0, 2.0)


def test_what_was_not_found_counts_as_nothing() -> None:
    overlap = metrics.mean_overlap([LEFT, None, (6, 0, 7, 2), None], [LEFT, LEFT, RIGHT, RIGHT])
    assert overlap == pytest.approx((1.5 / 4, 0.5, 0.75))
    assert all(type(part) is float for part in overlap)


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
    overlap = metrics.mean_overlap([None], [LEFT])
    assert (overlap.mean_iou, overlap.coverage) == (0.0, 0.0)
    assert math.isnan(overlap.mean_iou_of_found)
    assert math.isnan(metrics.mean_overlap([(0, 0, 2, math.nan)], [LEFT]).mean_iou)


def test_boxes_are_counted() -> None:
    with pytest.raises(ValueError, match="1 predicted and 2 true boxes: expected one, or None, for each true box"):
        metrics.mean_overlap([LEFT], [LEFT, RIGHT])


Array = NDArray[np.float64]
REFUSAL = "cannot do the task: "


def hinted(samples: int, seed: int = 0, *, noise: float = 0.01) -> tuple[dict[str, Array], dict[str, Array]]:
    """Returns noses that are told, and mouths below them that follow from the noses but for ``noise``."""
    rng = np.random.default_rng(seed)
    corners, sizes = rng.uniform(0.1, 0.5, (samples, 2)), rng.uniform(0.08, 0.12, (samples, 1))
    nose = np.c_[corners, corners + sizes]
    mouth = np.c_[corners - 0.5 * sizes, corners + 1.5 * sizes] + np.array([0.0, 0.2, 0.0, 0.2])
    return {"nose": nose}, {"mouth": mouth + rng.uniform(-noise, noise, mouth.shape)}


def looked(boxes: Array, off: float, seed: int = 9) -> Array:
    """Returns the overlaps of boxes that are shifted by up to ``off`` of their size."""
    shifts = np.random.default_rng(seed).uniform(-off, off, (len(boxes), 2)) * (boxes[:, 2:] - boxes[:, :2])
    return overlaps(boxes + np.tile(shifts, 2), boxes)


def overlaps(boxes: Array, others: Array) -> Array:
    return np.array([overlap(tuple(first), tuple(second)) for first, second in zip(boxes.tolist(), others.tolist(), strict=True)])


def by_hand(hints: Array, targets: Array) -> Array:
    """Returns each box as ordinary least squares on all other samples foretells it."""
    inputs = np.c_[hints, np.ones(len(hints))]
    left_out = [np.delete(np.arange(len(hints)), left) for left in range(len(hints))]
    return np.array([inputs[i] @ np.linalg.lstsq(inputs[r], targets[r], rcond=None)[0] for i, r in enumerate(left_out)])


def test_it_is_the_overlap_of_least_squares_on_the_others() -> None:
    hints, targets = hinted(400)
    expected = overlaps(by_hand(hints["nose"], targets["mouth"]), targets["mouth"])
    assert prompt_leakage_iou(hints, targets) == pytest.approx(expected, abs=0.02)
    assert expected.mean() > 0.8


def test_without_anything_told_it_is_the_mean_box_of_the_others() -> None:
    _, targets = hinted(30)
    boxes = targets["mouth"]
    means = np.array([np.delete(boxes, row, axis=0).mean(axis=0) for row in range(30)])
    assert prompt_leakage_iou({}, targets) == pytest.approx(overlaps(means, boxes), abs=1e-9)


def test_a_few_samples_give_a_box_that_moves_with_the_hint() -> None:
    hints, targets = hinted(4)
    assert prompt_leakage_iou(hints, targets).mean() > 0.5 > prompt_leakage_iou({}, targets).mean() + 0.1


def test_names_of_groups_and_the_order_of_samples_change_nothing() -> None:
    hints, targets = hinted(40)
    plain = prompt_leakage_iou(hints, targets)
    order = np.random.default_rng(1).permutation(40)
    names = [f"identity {row}" for row in order]
    assert prompt_leakage_iou(hints, targets, names) == pytest.approx(plain, abs=1e-12)
    turned = prompt_leakage_iou({"nose": hints["nose"][order]}, {"mouth": targets["mouth"][order]}, names)
    assert turned == pytest.approx(plain[order], abs=1e-12)


def test_nothing_is_learned_from_the_own_group() -> None:
    """Two twins with boxes of their own would foretell each other."""
    hints, targets = hinted(20)
    twice = ({"nose": np.repeat(hints["nose"], 2, axis=0)}, {"mouth": np.repeat(targets["mouth"], 2, axis=0)})
    twins = [f"identity {row // 2}" for row in range(40)]
    odd = np.array([[0.8, 0.9, 0.95, 1.0]])
    alone = ({"nose": np.r_[hints["nose"], hints["nose"][:1]]}, {"mouth": np.r_[targets["mouth"], odd]})
    assert prompt_leakage_iou(*alone)[-1] == 0.0
    assert prompt_leakage_iou(*twice, twins)[::2] == pytest.approx(prompt_leakage_iou(hints, targets), abs=0.05)


def test_each_sample_counts_what_it_is_asked_and_two_eyes_may_change_places() -> None:
    hints, targets = hinted(40)
    unknown = targets["mouth"].copy()
    unknown[::2] = np.nan
    both = prompt_leakage_iou(hints, {"mouth": targets["mouth"], "chin": unknown})
    assert both[::2] == pytest.approx(prompt_leakage_iou(hints, targets)[::2])
    eyes = np.where(np.arange(40)[:, None] % 8 == 0, targets["mouth"] + 0.3, targets["mouth"])
    others = np.where(np.arange(40)[:, None] % 8 == 0, targets["mouth"], targets["mouth"] + 0.3)
    named = prompt_leakage_iou(hints, {"left_eye": eyes, "right_eye": others})
    unnamed = prompt_leakage_iou(hints, {"left": eyes, "right": others})
    assert (named >= unnamed).all()
    assert (named[::8] > unnamed[::8] + 0.1).all()


@pytest.mark.parametrize("samples", [0, 1, 2, 3])
def test_hardly_any_samples_are_no_error(samples: int) -> None:
    hints, targets = hinted(samples)
    ious = prompt_leakage_iou(hints, targets)
    assert ious.shape == (samples,)
    assert ((ious >= 0.0) & (ious <= 1.0)).all()
    assert samples != 1 or ious[0] == 0.0


def test_what_is_no_box_of_each_sample_is_refused() -> None:
    with pytest.raises(ValueError, match=r"hinted boxes of 'nose': found shape \(2, 2\), expected \(N, 4\): \(x1, y1, x2, y2\)"):
        prompt_leakage_iou({"nose": np.ones((2, 2))}, {"mouth": np.ones((2, 4))})
    with pytest.raises(ValueError, match="nose has 3 scores and mouth has 2"):
        prompt_leakage_iou({"nose": np.ones((3, 4))}, {"mouth": np.ones((2, 4))})


def test_who_reads_the_prompt_is_not_shown_to_look_and_who_looks_is() -> None:
    hints, targets = hinted(100, noise=0.05)
    foretold, mouths = prompt_leakage_iou(hints, targets), targets["mouth"]
    rule = overlaps(by_hand(hints["nose"], mouths), mouths)
    reads = ScoreTable(rule, no_image=np.zeros(100))
    assert metrics.does_the_task(reads) == ""
    assert metrics.exceeds_the_prompt(reads, foretold) == (
        f"{REFUSAL}{rule.mean():.2f} with the images, {foretold.mean():.2f} from what the prompt tells alone, n=100"
    )
    sees = looked(mouths, 0.1)
    assert 0.75 < sees.mean() < 0.9
    assert metrics.exceeds_the_prompt(ScoreTable(sees), foretold) == ""
    assert metrics.exceeds_the_prompt(ScoreTable(np.ones(100)), foretold) == ""


@pytest.mark.study
def test_a_rule_from_many_other_samples_is_no_look_either() -> None:
    hints, targets = hinted(3000, noise=0.03)
    inputs = np.c_[hints["nose"], np.ones(3000)]
    rule = np.linalg.lstsq(inputs, targets["mouth"], rcond=None)[0]
    shown = 0
    for first in range(0, 2400, 24):
        part = slice(first, first + 24)
        scores = overlaps(inputs[part] @ rule, targets["mouth"][part])
        foretold = prompt_leakage_iou({"nose": hints["nose"][part]}, {"mouth": targets["mouth"][part]})
        shown += metrics.exceeds_the_prompt(ScoreTable(scores), foretold) == ""
    assert shown <= 5


def test_an_answer_that_is_missing_counts_against_the_model() -> None:
    hints, targets = hinted(30, noise=0.03)
    scores = np.ones(30)
    assert metrics.exceeds_the_prompt(ScoreTable(scores), prompt_leakage_iou(hints, targets)) == ""
    scores[:15] = np.nan
    assert metrics.exceeds_the_prompt(ScoreTable(scores), prompt_leakage_iou(hints, targets)).startswith(REFUSAL)
