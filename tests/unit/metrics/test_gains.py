from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.metrics import ScoreTable, estimate, gain_interval, hint_gain, thinking_gain
from pytest_vlmrobust.metrics.statistics.differences import TangoTest

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
