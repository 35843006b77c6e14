from __future__ import annotations

import math

import pytest

from pytest_vlmrobust.core.estimate import Estimate


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_only_numbers_are_finite(value: float) -> None:
    assert not Estimate(value, 3).finite
    assert Estimate(0.0, 3).finite


def test_a_complement_is_cut_at_both_ends_and_keeps_what_is_missing() -> None:
    whole = Estimate(0.5, 9, low=-1.0, high=3.0, at=lambda level: (-level, 2 * level)).complement(least=0.0, most=1.5)
    assert (whole.value, whole.low, whole.high) == (0.5, 0.0, 1.5)
    assert whole.at is not None
    assert whole.at(0.9) == (0.0, 1.5)
    assert math.isnan(Estimate(math.nan, 0).complement(least=0.0).low)
