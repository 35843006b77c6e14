from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from pytest_vlmrobust.metrics import gain_interval, hint_gain, paired_drop_interval, thinking_gain


@pytest.mark.parametrize("gain", [thinking_gain, hint_gain])
def test_gains_have_a_sign(gain: Callable[..., float]) -> None:
    assert gain([1, 1, 0, 0], [1, 0, 0, 0]) == 0.25
    assert gain([0.25, 0.5], [0.5, 0.75]) == -0.25
    assert math.isnan(gain([], []))
    assert math.isnan(gain([1, math.nan], [1, 0]))
    with pytest.raises(ValueError, match=r"has 2 scores and .* has 1"):
        gain([1, 1], [1])


def test_gains_of_right_answers_have_tangos_interval() -> None:
    after, before = [1] * 30 + [0] * 10 + [1] * 60, [0] * 30 + [1] * 70
    assert gain_interval(after, before) == pytest.approx(paired_drop_interval(30, 10, 100))
    low, high = gain_interval(before, after)
    assert (-high, -low) == pytest.approx(paired_drop_interval(30, 10, 100))


def test_gains_of_overlaps_have_t_bounds() -> None:
    after, before = np.array([0.9, 0.5, 0.4, 0.6]), np.array([0.5, 0.4, 0.4, 0.3])
    margin = 2.353363434801823 * float(np.std(after - before, ddof=1)) / 2
    assert gain_interval(after, before) == pytest.approx((0.2 - margin, 0.2 + margin))


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
