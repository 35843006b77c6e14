from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from pytest_vlmrobust import metrics
from pytest_vlmrobust.metrics import FAMILY_METRICS, ScoreTable, estimate, gain_interval, get, scale_consistency, scale_gain
from pytest_vlmrobust.metrics import scale_consistency_interval as consistency_interval
from pytest_vlmrobust.metrics import scale_gain_interval as gain_per_doubling
from pytest_vlmrobust.metrics.estimation import describe
from pytest_vlmrobust.metrics.statistics.curves import slope_weights

GAIN, CONSISTENCY = FAMILY_METRICS["scale_gain"], FAMILY_METRICS["scale_consistency"]


def right(count: int, of: int = 100) -> list[float]:
    return [1.0] * count + [0.0] * (of - count)


def test_the_gain_of_two_models_is_that_of_a_pair() -> None:
    smaller, larger = right(60), [0.0] * 10 + [1.0] * 80 + [0.0] * 10
    low, high = gain_interval(larger, smaller)
    assert gain_per_doubling([3, 12], [smaller, larger]) == pytest.approx((low / 2, high / 2))
    assert gain_per_doubling([12, 3], [larger, smaller]) == pytest.approx((low / 2, high / 2))


def test_the_slope_of_the_means_is_the_mean_of_the_slopes() -> None:
    rng = np.random.default_rng(3)
    scores, sizes = rng.random((3, 50)), [3.0, 7.0, 72.0]
    slopes = np.array([scale_gain(sizes, column.tolist()) for column in scores.T])
    steepest = float(np.clip(slope_weights(np.log2(sizes)), 0.0, None).sum())
    bounds = []
    for sign in (-1.0, 1.0):  # one more sample argues against each; Student's 95 % quantile with 49 degrees of freedom
        grown = np.append(slopes, sign * steepest)
        bounds.append(float(grown.mean()) + sign * 1.676550892617 * float(np.std(grown, ddof=1)) / math.sqrt(51))
    result = GAIN.estimate(sizes, scores)
    assert result.value == pytest.approx(slopes.mean())
    assert (result.low, result.high) == pytest.approx(tuple(bounds))
    assert result.interval(0.5)[0] > result.low


def test_identical_models_are_not_shown_to_be_equal() -> None:
    low, high = gain_per_doubling([7, 8, 9], [right(60)] * 3)
    assert low < -0.05
    assert high == pytest.approx(-low)


def test_copies_of_one_image_count_once() -> None:
    scores, images = [right(50) * 4, right(60) * 4, right(70) * 4], [str(index) for index in range(100)] * 4
    for sizes in ([1, 2, 4], [1, 2]):
        chosen = scores[: len(sizes)]
        apart, together = gain_per_doubling(sizes, chosen), gain_per_doubling(sizes, chosen, source_images=images)
        assert together[1] - together[0] > 1.8 * (apart[1] - apart[0])
    with pytest.raises(ValueError, match="1 source images for 400 samples"):
        gain_per_doubling([1, 2, 4], scores, source_images=["a"])


def test_a_step_is_lost_only_where_that_is_shown() -> None:
    assert consistency_interval([1, 2, 4], [right(50), right(90), right(50)]) == (0.5, 0.5)
    assert consistency_interval([1, 4, 2], [right(50), right(50), right(90)]) == (0.5, 0.5)
    assert consistency_interval([1, 2, 4], [right(50), right(51), right(50)]) == (0.0, 1.0)
    assert consistency_interval([1, 2, 4], [right(50), right(51), right(90)]) == (0.5, 1.0)
    result = CONSISTENCY.estimate([1, 2, 4], [right(50), right(90), right(50)])
    assert (result.value, result.low, result.high, result.confidence) == (0.5, 0.5, 0.5, 0.90)
    assert result.reason == "loses 40.0 pp from 2 to 4"
    assert result.interval(1.0 - 1e-12) == (0.0, 1.0)


def test_what_is_missing_is_said() -> None:
    for one in FAMILY_METRICS.values():
        broken = one.estimate([1, 2], [right(50), [math.nan, *right(49, 99)]])
        assert math.isnan(broken.value)
        assert (broken.n, broken.reason) == (99, "scores of 1 of 100 samples are missing")
        assert all(map(math.isnan, broken.interval(0.9)))
        assert one.estimate([], []).reason == one.estimate([1, 2], [[], []]).reason == "no samples"
        alone = one.estimate([1], [right(50)])
        assert (math.isnan(alone.value), alone.reason) == (True, "undefined: needs at least two sizes")
        assert all(map(math.isnan, one.interval([1], [right(50)], 0.9, None)))
    assert all(map(math.isnan, gain_per_doubling([7, 7], [right(5), right(6)])))


def test_nonsense_is_refused() -> None:
    with pytest.raises(ValueError, match="3 sizes and 2 scores: expected one score for each size"):
        GAIN.estimate([1, 2, 4], [right(5), right(6)])
    with pytest.raises(ValueError, match=r"scores\[0\] has 2 scores and scores\[1\] has 1"):
        GAIN.estimate([1, 2], [[1, 0], [1]])
    with pytest.raises(ValueError, match=r"parameters are \[7\.0, 7\.0\]: expected models of different sizes"):
        consistency_interval([7, 7], [right(5), right(6)])
    with pytest.raises(ValueError, match="confidence is 90"):
        GAIN.estimate([1, 2], [[1], [0]], confidence=90)


@pytest.mark.parametrize("name", FAMILY_METRICS)
def test_a_property_is_described(name: str) -> None:
    about = describe(FAMILY_METRICS[name])
    facts = dict(about.facts)
    assert about.name == name
    assert about.formula
    assert facts["of"] == "a family of models of different sizes on a data set"
    assert facts["interval"].startswith("Bounds the ")
    assert "Args:" not in facts["interval"]
    assert facts["published"].startswith("The Perceptual Observatory")
    assert max(map(len, about.text(80).splitlines())) <= 80
    assert list(dict(describe(get("identity_drop")).facts))[:3] == list(facts)[:3] == ["of", "suite", "reads"]


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
def test_nonsense_is_refused_scaling(summary: Callable[..., float]) -> None:
    with pytest.raises(ValueError, match="2 sizes and 1 scores: expected one score for each size"):
        summary([3, 7], [0.5])
    with pytest.raises(ValueError, match=r"parameters has 0\.0: expected a number of parameters above 0"):
        summary([0, 7], [0.5, 0.6])


def test_two_models_of_one_size() -> None:
    assert math.isnan(scale_gain([7, 7], [0.5, 0.6]))
    assert scale_gain([7, 7, 14], [0.5, 0.7, 0.7]) == pytest.approx(0.1)
    with pytest.raises(ValueError, match=r"parameters are \[7\.0, 7\.0\]: expected models of different sizes"):
        scale_consistency([7, 7], [0.5, 0.6])


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
    whole, one = estimate(name, scores), estimate(single, scores, "fog:low")
    assert (whole.value, whole.low, whole.high, whole.n, whole.valid) == (one.value, one.low, one.high, one.n, one.valid)
    assert whole.reason == "over 1 setting"
    assert estimate(name, table(1)).reason == "on original pictures"


def test_scores_are_averaged_before_they_are_compared() -> None:
    """Two settings with opposite gaps have none together, and their own gaps would average 1."""
    opposite = {"fog:low": [1, 0], "dunes": [0, 1]}
    assert metrics.split_position_gap(opposite, ["left", "right"]) == 0.0
    assert metrics.split_group_gap(opposite, ["f", "m"]) == 0.0
    assert metrics.identity_accuracy(opposite) == 0.5
    assert metrics.split_transfer_retention(opposite, [1, 0.25]) == pytest.approx(0.8)


@pytest.mark.parametrize("name", OF_A_SPLIT)
def test_without_settings_nothing_is_known(name: str) -> None:
    function: Callable[..., float] = metrics.get(name).function
    more = () if name == "identity_accuracy" else ([1.0],)
    assert math.isnan(function({}, *more))
    assert math.isnan(function({"fog:low": [math.nan, 1.0]}, *([[1.0, 1.0]] if more else [])))


@pytest.mark.parametrize("name", [*OF_A_SPLIT, "identity_drop"])
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
    assert result.reason.startswith(f"not shown to do the task: {clean:.2f} with the pictures, {blind:.2f} without, n=160")
    assert estimate(name, table(3, ("fog:low",))).valid
    assert estimate("identity_accuracy", guessing).valid


def test_the_gate_is_the_lower_end_of_the_paired_interval() -> None:
    clean, blind = np.array([1.0] * 36 + [0.0] * 964), np.array([0.0] * 36 + [1.0] * 24 + [0.0] * 940)
    assert metrics.paired_drop_interval(36, 24, 1000)[0] < 0.0
    assert metrics.does_the_task(ScoreTable(clean, no_image=blind)) == (
        "not shown to do the task: 0.04 with the pictures, 0.02 without, n=1000"
    )
    fewer = np.array([0.0] * 36 + [1.0] * 20 + [0.0] * 944)
    assert metrics.paired_drop_interval(36, 20, 1000)[0] > 0.0
    assert metrics.does_the_task(ScoreTable(clean, no_image=fewer)) == ""
    alike = [f"image {index // 10}" for index in range(1000)]
    assert metrics.does_the_task(ScoreTable(clean, no_image=fewer, groups=alike)) != ""


def test_what_was_answered_blindly_has_to_be_known() -> None:
    unknown = "there are no scores without the pictures: whether the task is done at all cannot be told"
    assert metrics.does_the_task(ScoreTable(np.ones(9))) == unknown
    assert metrics.does_the_task(ScoreTable(np.ones(0), no_image=np.ones(0))) == unknown
    result = estimate("identity_drop", ScoreTable(np.ones(9), {"fog:low": np.ones(9)}))
    assert (result.valid, result.reason) == (False, f"{unknown}; over 1 setting")


def test_missing_scores_count_against_the_model() -> None:
    blind = np.array([math.nan] * 30 + [0.0] * 70)
    assert metrics.does_the_task(ScoreTable(np.ones(100), no_image=blind)) == ""
    blind[30:98] = math.nan
    assert metrics.does_the_task(ScoreTable(np.ones(100), no_image=blind)) == (
        "not shown to do the task: 1.00 with the pictures, 0.98 without, n=100, 98 missing scores count against the model"
    )


def test_where_all_scores_are_missing_none_is_named() -> None:
    missing, zeros = np.full(100, math.nan), np.zeros(100)
    seen = metrics.does_the_task(ScoreTable(missing, no_image=zeros))
    assert seen == "there are no scores with the pictures: whether the task is done at all cannot be told"
    blind = metrics.does_the_task(ScoreTable(zeros, no_image=missing))
    assert blind == "there are no scores without the pictures: whether the task is done at all cannot be told"
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
