from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from pytest_vlmrobust import metrics

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


def test_identity_drops_by_split() -> None:
    by_setting = {"fog:low": [1, 1, 0, 1], "blur:low": [1, 1, 1, 1], "dunes": [0, 0, 0, 1]}
    splits = {"fog:low": "id", "blur:low": "id", "dunes": "ood", "never:measured": "ood"}
    found = metrics.identity_drop_by_split([1, 1, 1, 1], by_setting, splits)
    assert found == {"id": 0.125, "ood": 0.75}
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
    found = metrics.group_means([1] * 13 + [0] * 3 + [1] * 5, ["top"] * 16 + ["low"] * 5, 0.95)
    assert list(found) == ["top", "low"]
    assert found["top"] == pytest.approx((13 / 16, 0.5699, 0.9341, 16), abs=5e-5)
    assert found["low"].high == 1.0
    assert found["low"].low == pytest.approx(0.5655, abs=5e-5)
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
    found = metrics.estimate("group_gap", table, "fog:low")
    assert (found.low, found.high) == (wanted.low, wanted.high)
    assert metrics.estimate("position_gap", table, "fog:low").reason == "left out 50 of 100 samples of unknown position"


def test_no_known_group_is_no_comparison() -> None:
    table = metrics.ScoreTable(np.ones(20), {"fog:low": np.ones(20)}, no_image=np.zeros(20), people=[""] * 20)
    result = metrics.estimate("group_gap", table, "fog:low")
    assert math.isnan(result.value)
    assert result.n == 0
    assert result.reason.startswith("undefined: needs at least two groups")
