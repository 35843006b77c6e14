from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pytest_vlmrobust.core.errors import UsageError
from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.metrics import (
    ScoreTable,
    accuracy_drop,
    baseline_drop,
    changed_samples,
    drop_increase,
    estimate,
    gain_interval,
    hint_gain,
    intervals,
    mean_baseline_drop,
    names,
    thinking_gain,
)
from pytest_vlmrobust.metrics.statistics.paired import TangoTest

THEN = np.array([1.0] * 80 + [0.0] * 20)
NOW = np.array([0.0] * 6 + [1.0] * 74 + [1.0] * 2 + [0.0] * 18)


def test_a_regression_is_paired() -> None:
    """6 of 100 broke and 2 were fixed."""
    table = ScoreTable(np.ones(100), {"fog:low": NOW}, baseline_by_setting={"fog:low": THEN})
    result = estimate("baseline_drop", table, "fog:low")
    assert result.value == baseline_drop(THEN, NOW) == 0.04
    test = TangoTest(np.array([6.0]), np.array([2.0]), np.array([100.0]), math.inf)
    assert (result.low, result.high) == (test.lower(0.05)[0], test.upper(0.05)[0])


def test_the_clean_scores_regress_too() -> None:
    table = ScoreTable(NOW, baseline_by_setting={"clean": THEN})
    assert estimate("baseline_drop", table, "clean").value == 0.04


def test_the_increase_of_a_drop_leaves_the_clean_loss_out() -> None:
    """Clean lost 4 pp and fog 4 pp: robustness is what it was."""
    odd = np.arange(100.0) % 2.0
    fog_then, fog_now = THEN * odd, NOW * odd
    table = ScoreTable(NOW, {"fog:low": fog_now}, baseline_by_setting={"clean": THEN, "fog:low": fog_then})
    result = estimate("drop_increase", table, "fog:low")
    expected = accuracy_drop(NOW, fog_now) - accuracy_drop(THEN, fog_then)
    assert result.value == pytest.approx(expected)
    assert drop_increase(NOW, fog_now, THEN, fog_then) == pytest.approx(expected)
    assert result.low < expected < result.high


def test_a_loss_of_clean_accuracy_alone_is_no_increase() -> None:
    table = ScoreTable(NOW, {"fog:low": NOW}, baseline_by_setting={"clean": THEN, "fog:low": THEN})
    result = estimate("drop_increase", table, "fog:low")
    assert result.value == 0.0
    assert 0.0 < result.high < 0.04


def test_bounds_of_an_increase_by_hand() -> None:
    """Differences of differences 1, 0, 0, -1, 1 and a further 1 or -1 against each bound, t(0.95; 4) = 2.131847."""
    clean, fog = [1, 1, 1, 1, 1], [0, 1, 0, 1, 0]
    then_clean, then_fog = [1, 1, 1, 1, 1], [1, 1, 0, 0, 1]
    arrays = [np.array(values, float) for values in (clean, fog, then_clean, then_fog)]
    table = ScoreTable(arrays[0], {"fog:low": arrays[1]}, baseline_by_setting={"clean": arrays[2], "fog:low": arrays[3]})
    result = estimate("drop_increase", table, "fog:low")
    margins = [2.131847 * deviation / math.sqrt(6) for deviation in (0.894427, 0.816497)]
    assert (result.low, result.high) == pytest.approx((0.0 - margins[0], 1 / 3 + margins[1]), abs=1e-5)


def test_only_the_baseline_suite_asks_for_a_baseline() -> None:
    assert set(names(suite="baseline")) >= {"baseline_drop", "drop_increase"}
    assert not {"baseline_drop", "drop_increase"} & set(names(scope="cell", suite="corruptions"))


def test_broken_and_fixed_samples_are_listed_in_order() -> None:
    changes = changed_samples([f"q{index}" for index in range(100)], THEN, NOW)
    assert changes.broken == ("q0", "q1", "q2", "q3", "q4", "q5")
    assert changes.fixed == ("q80", "q81")
    assert changes.unknown == ()
    assert len(changes.broken) - len(changes.fixed) == round(100 * baseline_drop(THEN, NOW))


def test_graded_and_missing_scores() -> None:
    changes = changed_samples("abcde", [0.5, 0.5, math.nan, 1.0, 1.0], [0.25, 0.75, 1.0, math.nan, 1.0])
    assert changes == (("a",), ("b",), ("c", "d"))


def test_names_and_scores_belong_together() -> None:
    with pytest.raises(ValueError, match="baseline has 2 scores and ids has 1"):
        changed_samples(["a"], [1, 0], [1, 0])


def test_an_interval_needs_the_earlier_run() -> None:
    with pytest.raises(UsageError, match="the table has no scores of an earlier run under 'fog:low': pass baseline_by_setting"):
        intervals.baseline_drop(ScoreTable(np.ones(2), {"fog:low": np.ones(2)}), "fog:low", 0.9)


def test_the_mean_over_settings_is_of_the_samples_own_means() -> None:
    """By hand, of differences per sample 0.5, 0.5, 0, 0 and a further -1/4 or 1 against each bound, t(0.95; 3) = 2.353363."""
    now = {"fog:low": np.array([0.0, 1.0, 1.0, 1.0]), "fog:mid": np.array([1.0, 0.0, 1.0, 0.0])}
    then = {"fog:low": np.ones(4), "fog:mid": np.array([1.0, 1.0, 1.0, 0.0])}
    assert mean_baseline_drop(now, then) == 0.25
    result = estimate("mean_baseline_drop", ScoreTable(np.ones(4), now, baseline_by_setting=then))
    below, above = (2.353363 * deviation / math.sqrt(5) for deviation in (0.335410, 0.418330))
    assert (result.value, result.low, result.high) == pytest.approx((0.25, 0.15 - below, 0.4 + above), abs=1e-5)


def test_the_mean_over_one_setting_is_the_loss_under_it() -> None:
    table = ScoreTable(np.ones(100), {"fog:low": NOW}, baseline_by_setting={"fog:low": THEN})
    mean, single = estimate("mean_baseline_drop", table), estimate("baseline_drop", table, "fog:low")
    assert (mean.value, mean.low, mean.high) == pytest.approx((single.value, single.low, single.high))


def test_the_mean_needs_every_setting_in_the_earlier_run() -> None:
    table = ScoreTable(np.ones(2), {"fog:low": np.ones(2), "fog:mid": np.ones(2)}, baseline_by_setting={"fog:low": np.ones(2)})
    result = estimate("mean_baseline_drop", table)
    assert math.isnan(result.value)
    assert result.reason == "the earlier run did not measure fog:mid"
    without = ScoreTable(np.ones(1), {"fog:low": np.ones(1)})
    assert estimate("mean_baseline_drop", without).reason == "there are no scores of an earlier run"


both_gains = pytest.mark.parametrize("gain", [thinking_gain, hint_gain])


@both_gains
def test_gains_have_a_sign(gain: Callable[..., float]) -> None:
    assert gain({"clean": [1, 1, 0, 0]}, {"clean": [1, 0, 0, 0]}) == 0.25
    assert gain({"fog:low": [0.25, 0.5]}, {"fog:low": [0.5, 0.75]}) == -0.25
    assert math.isnan(gain({"clean": []}, {"clean": []}))
    assert math.isnan(gain({}, {}))
    assert math.isnan(gain({"clean": [1, math.nan]}, {"clean": [1, 0]}))


@both_gains
def test_gains_are_averaged_over_the_settings_that_are_compared(gain: Callable[..., float]) -> None:
    after, before = {"fog:low": [1, 1], "dunes": [1, 0]}, {"clean": [0, 0], "dunes": [0, 0], "fog:low": [1, 0]}
    assert gain(after, before) == pytest.approx((0.5 + 0.5) / 2)


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
    assert original.reason == "on original pictures"
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


def test_gains_of_overlaps_have_t_bounds() -> None:
    after, before = np.array([0.9, 0.5, 0.4, 0.6]), np.array([0.5, 0.4, 0.4, 0.3])
    low, high = (np.append(after - before, against) for against in (-1.0, 0.4))  # the largest gain is 0.4
    below, above = (2.353363434801823 * float(np.std(grown, ddof=1)) / 5**0.5 for grown in (low, high))
    assert gain_interval(after, before) == pytest.approx((max(low.mean() - below, -1.0), high.mean() + above))


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
