from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.metrics import ScoreTable, estimate, gain_interval, hint_gain, thinking_gain
from pytest_vlmrobust.metrics.statistics.paired import TangoTest

Box = tuple[float, float, float, float]


@pytest.mark.parametrize("gap", [metrics.position_gap, metrics.group_gap])
def test_one_group_is_no_comparison(gap: Callable[..., float]) -> None:
    assert math.isnan(gap([1, 0], ["a", "a"]))
    assert math.isnan(gap([], []))
    assert math.isnan(gap([1, math.nan, 0], ["a", "a", "b"]))
    assert math.isnan(gap([1, 0, 1], [math.nan, math.nan, "b"]))  # a missing label is no group


def test_gap_names_lengths() -> None:
    with pytest.raises(ValueError, match="scores has 2 values and positions has 1: expected one for each sample"):
        metrics.position_gap([1, 0], ["a"])


def test_retention_of_nothing_is_undefined() -> None:
    assert math.isnan(metrics.transfer_retention([0.5], [0.0]))
    assert math.isnan(metrics.transfer_retention([], []))


@pytest.mark.cases(
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


def test_identity_drops_by_split() -> None:
    by_setting = {"fog:low": [1, 1, 0, 1], "blur:low": [1, 1, 1, 1], "dunes": [0, 0, 0, 1]}
    splits = {"fog:low": "id", "blur:low": "id", "dunes": "ood", "never:measured": "ood"}
    drops = metrics.identity_drop_by_split([1, 1, 1, 1], by_setting, splits)
    assert drops == {"id": 0.125, "ood": 0.75}
    assert metrics.identity_drop([1, 1, 1, 1], by_setting) == pytest.approx((0.25 + 0 + 0.75) / 3)


def test_a_setting_belongs_to_a_split() -> None:
    with pytest.raises(ValueError, match="splits does not say to which split 'dunes' belongs: name one for each setting"):
        metrics.identity_drop_by_split([1], {"dunes": [1]}, {"dune": "ood"})


def test_identity_drops_of_a_sweep_have_intervals() -> None:
    clean = np.ones(100)
    sweep = {f"dunes{index}": (np.arange(100) >= 10 * index).astype(float) for index in range(5)}
    result = metrics.estimate("identity_drop", metrics.ScoreTable(clean, sweep, no_image=np.zeros(100)))
    assert result.value == pytest.approx(0.2)
    assert result.low < 0.2 < result.high
    assert (result.valid, result.reason) == (True, "over 5 settings")


def test_the_gap_of_two_groups_has_a_sign() -> None:
    scores, groups = [1, 1, 0, 1, 1], ["F", "F", "M", "M", "unknown"]
    assert metrics.signed_group_gap(scores, groups, "M", "F") == -0.5
    assert metrics.signed_group_gap(scores, groups, "F", "M") == 0.5
    assert abs(metrics.signed_group_gap(scores[:4], groups[:4], "M", "F")) == metrics.group_gap(scores[:4], groups[:4])


def test_the_gap_to_an_absent_group_is_unknown() -> None:
    for scores, groups in (([1, 1], ["F", "F"]), ([], []), ([1, math.nan], ["F", "M"])):
        assert math.isnan(metrics.signed_group_gap(scores, groups, "M", "F"))
    with pytest.raises(ValueError, match="both groups are 'F': expected two different ones"):
        metrics.signed_group_gap([1, 1], ["F", "M"], "F", "F")


def test_means_by_position_have_wilsons_interval() -> None:
    means = metrics.group_means([1] * 13 + [0] * 3 + [1] * 5, ["top"] * 16 + ["low"] * 5, 0.95)
    assert list(means) == ["top", "low"]
    assert means["top"] == pytest.approx((13 / 16, 0.5699, 0.9341, 16), abs=5e-5)
    assert means["low"].high == 1.0
    assert means["low"].low == pytest.approx(0.5655, abs=5e-5)
    assert metrics.group_means([], []) == {}


def test_means_by_position_need_every_score() -> None:
    with pytest.raises(ValueError, match=r"scores\[1\] is missing \(NaN\): leave out samples without a score"):
        metrics.group_means([1, math.nan], ["a", "b"])
    with pytest.raises(ValueError, match="scores has 2 values and labels has 1: expected one for each sample"):
        metrics.group_means([1, 0], ["a"])


def test_gaps_and_retention_have_intervals() -> None:
    rng = np.random.default_rng(6)
    labels = ["a", "b", "c", "d"] * 50
    rates = np.tile([0.9, 0.8, 0.8, 0.4], 50)
    table = metrics.ScoreTable(
        np.full(200, 0.8),
        {"fog:low": (rng.random(200) < rates).astype(float), "iou": rng.random(200) / 2},
        no_image=np.zeros(200),
        positions=labels,
        people=labels,
    )
    gap = metrics.estimate("position_gap", table, "fog:low")
    assert 0.2 < gap.low < gap.value < gap.high < 0.75
    assert metrics.estimate("group_gap", table, "fog:low") == gap
    retention = metrics.estimate("transfer_retention", table, "iou")
    assert 0.25 < retention.low < retention.value < retention.high < 0.4


def test_samples_of_unknown_groups_are_left_out_and_counted() -> None:
    people = ["f", "m", "", ""] * 25
    scores = np.tile([1.0, 0.0, 1.0, 1.0], 25)
    table = metrics.ScoreTable(np.ones(100), {"fog:low": scores}, no_image=np.zeros(100), people=people, positions=people)
    assert metrics.group_gap(scores, people) == metrics.position_gap(scores, people) == 1.0
    for name in ("group_gap", "split_group_gap"):
        result = metrics.estimate(name, table, "fog:low" if name == "group_gap" else None)
        assert (result.value, result.n) == (1.0, 50)
        assert result.reason.startswith("left out 50 of 100 samples of unknown group of people")
    known = metrics.ScoreTable(np.ones(50), {"fog:low": np.tile([1.0, 0.0], 25)}, no_image=np.zeros(50), people=["f", "m"] * 25)
    wanted = metrics.estimate("group_gap", known, "fog:low")
    gap = metrics.estimate("group_gap", table, "fog:low")
    assert (gap.low, gap.high) == (wanted.low, wanted.high)
    assert metrics.estimate("position_gap", table, "fog:low").reason == "left out 50 of 100 samples of unknown position"


def test_no_known_group_is_no_comparison() -> None:
    table = metrics.ScoreTable(np.ones(20), {"fog:low": np.ones(20)}, no_image=np.zeros(20), people=[""] * 20)
    result = metrics.estimate("group_gap", table, "fog:low")
    assert math.isnan(result.value)
    assert result.n == 0
    assert result.reason.startswith("undefined: needs at least two groups")


Array = NDArray[np.float64]
OF_A_SPLIT = {
    "split_position_gap": "position_gap",
    "split_group_gap": "group_gap",
    "split_transfer_retention": "transfer_retention",
    "identity_accuracy": "accuracy",
}


def table(seed: int, settings: tuple[str, ...] = ("clean",), *, blind: float = 0.2) -> ScoreTable:
    """Returns scores of 40 identities with the target in each of four cells; a target at the first one is found more often."""
    rng = np.random.default_rng(seed)
    rates = np.tile([0.9, 0.7, 0.7, 0.7], 40)
    return ScoreTable(
        (rng.random(160) < 0.9).astype(float),
        {name: (rng.random(160) < rates).astype(float) for name in settings},
        no_image=(rng.random(160) < blind).astype(float),
        groups=[f"identity {index // 4}" for index in range(160)],
        positions=["[0,0]", "[0,1]", "[1,0]", "[1,1]"] * 40,
        people=["f"] * 80 + ["m"] * 80,
    )


@pytest.mark.parametrize(("name", "single"), OF_A_SPLIT.items())
def test_a_split_of_one_setting_is_that_setting(name: str, single: str) -> None:
    scores = table(1, ("fog:low",))
    whole, of_setting = estimate(name, scores), estimate(single, scores, "fog:low")
    assert (whole.value, whole.low, whole.high, whole.n, whole.valid) == (
        of_setting.value,
        of_setting.low,
        of_setting.high,
        of_setting.n,
        of_setting.valid,
    )
    assert whole.reason == "over 1 setting"
    assert estimate(name, table(1)).reason == "on original images"


def test_scores_are_averaged_before_they_are_compared() -> None:
    """Two settings with opposite gaps have none together, and their own gaps would average 1."""
    opposite = {"fog:low": [1, 0], "dunes": [0, 1]}
    assert metrics.split_position_gap(opposite, ["left", "right"]) == 0.0
    assert metrics.split_group_gap(opposite, ["f", "m"]) == 0.0
    assert metrics.identity_accuracy(opposite) == 0.5
    assert metrics.split_transfer_retention(opposite, [1, 0.25]) == pytest.approx(0.8)


@pytest.mark.cases("name", [*OF_A_SPLIT, "identity_drop"])
def test_more_settings_narrow_the_interval_and_keep_its_value(name: str) -> None:
    settings = tuple(f"kind{index}" for index in range(15))
    few, many = estimate(name, table(2, settings[:1])), estimate(name, table(2, settings))
    assert many.low <= many.value <= many.high
    assert many.high - many.low < few.high - few.low
    assert many.reason == "over 15 settings"


DEPENDENT = ("identity_drop", "split_position_gap", "split_group_gap", "split_transfer_retention")


@pytest.mark.parametrize("name", DEPENDENT)
def test_what_is_not_shown_to_be_done_has_no_properties(name: str) -> None:
    guessing = table(3, ("fog:low",), blind=0.9)
    result = estimate(name, guessing)
    clean, blind = guessing.clean.mean(), np.mean(guessing.scores("no_image"))
    assert not result.valid
    assert result.reason.startswith(f"cannot do the task: {clean:.2f} with the images, {blind:.2f} without, n=160")
    assert estimate(name, table(3, ("fog:low",))).valid
    assert estimate("identity_accuracy", guessing).valid


def test_the_gate_is_the_lower_end_of_the_paired_interval() -> None:
    clean, blind = np.array([1.0] * 36 + [0.0] * 964), np.array([0.0] * 36 + [1.0] * 24 + [0.0] * 940)
    assert metrics.paired_drop_interval(36, 24, 1000)[0] < 0.0
    assert metrics.does_the_task(ScoreTable(clean, no_image=blind)) == (
        "cannot do the task: 0.04 with the images, 0.02 without, n=1000"
    )
    fewer = np.array([0.0] * 36 + [1.0] * 20 + [0.0] * 944)
    assert metrics.paired_drop_interval(36, 20, 1000)[0] > 0.0
    assert metrics.does_the_task(ScoreTable(clean, no_image=fewer)) == ""
    alike = [f"image {index // 10}" for index in range(1000)]
    assert metrics.does_the_task(ScoreTable(clean, no_image=fewer, groups=alike)) != ""


def test_what_was_answered_blindly_has_to_be_known() -> None:
    unknown = "there are no scores without the images, so it is unknown whether the model does the task"
    assert metrics.does_the_task(ScoreTable(np.ones(9))) == unknown
    assert metrics.does_the_task(ScoreTable(np.ones(0), no_image=np.ones(0))) == unknown
    result = estimate("identity_drop", ScoreTable(np.ones(9), {"fog:low": np.ones(9)}))
    assert (result.valid, result.reason) == (False, f"{unknown}; over 1 setting")


def test_missing_scores_count_against_the_model() -> None:
    blind = np.array([math.nan] * 30 + [0.0] * 70)
    assert metrics.does_the_task(ScoreTable(np.ones(100), no_image=blind)) == ""
    blind[30:98] = math.nan
    assert metrics.does_the_task(ScoreTable(np.ones(100), no_image=blind)) == (
        "cannot do the task: 1.00 with the images, 0.98 without, n=100, 98 missing scores count against the model"
    )


def test_where_all_scores_are_missing_none_is_named() -> None:
    missing, zeros = np.full(100, math.nan), np.zeros(100)
    seen = metrics.does_the_task(ScoreTable(missing, no_image=zeros))
    assert seen == "there are no scores with the images, so it is unknown whether the model does the task"
    blind = metrics.does_the_task(ScoreTable(zeros, no_image=missing))
    assert blind == "there are no scores without the images, so it is unknown whether the model does the task"
    assert metrics.exceeds_the_prompt(ScoreTable(missing), zeros) == seen


def test_only_what_a_table_can_tell_is_applicable() -> None:
    scores = table(4, ("fog:low",))
    of_cells = metrics.applicable(scores, "fog:low", "observatory")
    assert {"position_gap", "group_gap", "transfer_retention", "accuracy", "accuracy_drop"} <= set(of_cells)
    assert {metrics.get(name).scope for name in of_cells} == {"cell"}
    of_sweeps = metrics.applicable(scores, suite="observatory")
    assert {"split_position_gap", "split_group_gap", "identity_accuracy"} <= set(of_sweeps)
    assert not {"hint_gain", "thinking_gain"} & set(of_sweeps)
    without = ScoreTable(np.ones(2), {"fog:low": np.ones(2)}, people=["f", ""], unhinted_by_setting={"fog:low": np.ones(2)})
    assert not {"position_gap", "group_gap"} & set(metrics.applicable(without, "fog:low"))
    assert "transfer_retention" in metrics.applicable(without, "fog:low")
    assert "hint_gain" in metrics.applicable(without)
    assert "pcri_matched" not in metrics.applicable(without, "fog:low")


@pytest.mark.parametrize(
    ("gain", "message"),
    [
        (thinking_gain, "base_by_setting lacks dunes: measure the model without thinking under the same settings"),
        (hint_gain, "unhinted_by_setting lacks dunes: measure the task without the hint under the same settings"),
    ],
)
def test_a_setting_that_cannot_be_compared_is_named(gain: Callable[..., float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        gain({"dunes": [1]}, {"clean": [1]})
    with pytest.raises(ValueError, match=r"clean has 2 scores and \w+_by_setting\['clean'\] has 1"):
        gain({"clean": [1, 1]}, {"clean": [1]})


@pytest.mark.parametrize(("name", "field"), [("thinking_gain", "base_by_setting"), ("hint_gain", "unhinted_by_setting")])
def test_gains_are_estimated_from_a_table(name: str, field: str) -> None:
    after, before = np.array([1.0] * 30 + [0.0] * 10 + [1.0] * 60), np.array([0.0] * 30 + [1.0] * 70)

    def of(*settings: str) -> Estimate:
        swept = {setting: after if setting == "clean" else before for setting in settings}
        others: dict[str, Any] = {field: {"clean": before, "fog:low": before}}
        return estimate(name, ScoreTable(before, swept, **others))

    original, both, lacking = of("clean"), of("clean", "fog:low"), of("clean", "dunes")
    assert original.value == pytest.approx(0.2)
    assert (original.low, original.high) == pytest.approx(_bounds_of_flips(30, 10, 100))
    assert original.reason == "on original images"
    assert both.value == pytest.approx(0.1)
    assert both.reason == "over 2 settings"
    assert both.low < 0.1 < both.high < original.high
    assert math.isnan(lacking.value)
    assert lacking.reason.endswith("measured under dunes")


def _bounds_of_flips(harmful: int, helpful: int, n: int) -> tuple[float, float]:
    test = TangoTest(np.array([float(harmful)]), np.array([float(helpful)]), np.array([float(n)]), math.inf)
    return float(test.lower(0.05)[0]), float(test.upper(0.05)[0])


def test_gains_of_right_answers_have_the_bounds_of_flips() -> None:
    after, before = [1] * 30 + [0] * 10 + [1] * 60, [0] * 30 + [1] * 70
    assert gain_interval(after, before) == pytest.approx(_bounds_of_flips(30, 10, 100))
    low, high = gain_interval(before, after)
    assert (-high, -low) == pytest.approx(_bounds_of_flips(30, 10, 100))


def test_gains_of_overlaps_have_the_bounds_of_losses() -> None:
    """Below Student's t with a further loss of 1, above random weights and a further gain of 1."""
    after, before = np.array([0.9, 0.5, 0.4, 0.6]), np.array([0.5, 0.4, 0.4, 0.3])
    lost = np.append(after - before, -1.0)
    low, high = gain_interval(after, before)
    assert low == pytest.approx(max(lost.mean() - 2.353363434801823 * float(np.std(lost, ddof=1)) / 5**0.5, -1.0))
    weights = np.random.default_rng(0).dirichlet(np.ones(5), 200_000)
    assert (weights @ np.append(after - before, 1.0) > high).mean() == pytest.approx(0.05, abs=0.003)


def test_copies_of_one_image_count_once() -> None:
    after, before = [1] * 30 + [0] * 10 + [1] * 60, [0] * 30 + [1] * 70
    images = [str(index) for index in range(100)] * 4
    low, high = gain_interval(after * 4, before * 4, source_images=images)
    naive = gain_interval(after * 4, before * 4)
    assert high - low > 1.8 * (naive[1] - naive[0])
    with pytest.raises(ValueError, match="1 source images for 100 samples"):
        gain_interval(after, before, source_images=["a"])


def test_gains_of_nothing_have_no_interval() -> None:
    assert all(map(math.isnan, gain_interval([], [])))
    assert all(map(math.isnan, gain_interval([1.0, math.nan], [1.0, 0.0])))
    with pytest.raises(ValueError, match="confidence is 90"):
        gain_interval([1], [0], confidence=90)
