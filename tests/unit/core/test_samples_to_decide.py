from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_vlmrobust.core.estimate import Estimate, samples_to_decide

laws = settings(deadline=None, derandomize=True, database=None, max_examples=100)


def _estimate(value: float, low: float, high: float, n: int = 869) -> Estimate:
    return Estimate(value, n, low, high, 0.90)


def test_by_hand() -> None:
    """Half-width 2.5 pp towards the bound, 2 pp away: 869 * ((1.644854 + 0.841621) / 1.644854 * 1.25)^2 = 3102.8."""
    assert samples_to_decide(_estimate(0.03, 0.015, 0.055), 0.05) == (3103, "")
    assert samples_to_decide(_estimate(0.03, 0.015, 0.055), 0.05, power=0.5) == (math.ceil(869 * 1.25**2), "")


def test_only_the_side_towards_the_bound_counts() -> None:
    assert samples_to_decide(_estimate(0.07, 0.045, 0.5), 0.05) == (3103, "")


def test_what_is_decided_needs_no_more() -> None:
    assert samples_to_decide(_estimate(0.03, 0.015, 0.045), 0.05) == (869, "")


def test_inside_a_range_both_ends_must_be_left_behind() -> None:
    near, far = samples_to_decide(_estimate(0.1, 0.0, 0.2), 0.06), samples_to_decide(_estimate(0.1, 0.0, 0.2), 0.19)
    assert samples_to_decide(_estimate(0.1, 0.0, 0.2), 0.06, 0.19) == near
    assert (near.samples or 0) > (far.samples or 0) > 869


def test_outside_a_range_the_nearer_end_counts() -> None:
    assert samples_to_decide(_estimate(0.25, 0.1, 0.4), -0.2, 0.2) == samples_to_decide(_estimate(0.25, 0.1, 0.4), 0.2)


@pytest.mark.parametrize(
    ("estimate", "reason"),
    [
        (_estimate(0.05, 0.02, 0.08), "the value lies on the bound, which no number of samples decides"),
        (_estimate(math.nan, math.nan, math.nan), "the value is undefined"),
        (Estimate(0.03, 869), "there is no interval"),
        (_estimate(0.03, 0.01, 0.06, n=0), "there is no sample"),
        (_estimate(0.03, 0.01, math.inf), "the interval has no end towards the bound"),
    ],
)
def test_what_cannot_be_told_comes_with_a_reason(estimate: Estimate, reason: str) -> None:
    assert samples_to_decide(estimate, 0.05) == (None, reason)


def test_one_end_that_cannot_be_left_behind_is_enough() -> None:
    assert samples_to_decide(_estimate(0.1, -math.inf, 0.2), 0.06, 0.19).samples is None


@pytest.mark.parametrize("ends", [(), (math.inf,), (0.1, math.nan)])
def test_a_bound_needs_finite_ends(ends: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="expected at least one, each a finite number"):
        samples_to_decide(_estimate(0.1, 0.0, 0.2), *ends)


@pytest.mark.parametrize("power", [0.4, 1.0, 80])
def test_an_impossible_power_is_refused(power: float) -> None:
    with pytest.raises(ValueError, match=r"power is .*: expected a probability of at least 0\.5 and below 1"):
        samples_to_decide(_estimate(0.1, 0.0, 0.2), 0.05, power=power)


@laws
@given(st.floats(0, 0.2), st.floats(0.001, 0.2), st.integers(1, 5000), st.floats(0, 0.4))
def test_with_that_many_the_scaled_interval_is_decisive(value: float, half: float, n: int, bound: float) -> None:
    needed = samples_to_decide(_estimate(value, value - half, value + half, n), bound)
    if needed.samples is None:
        assert abs(value - bound) <= 1e-9
    else:
        assert needed.samples >= n
        assert half * math.sqrt(n / needed.samples) <= abs(value - bound) + 1e-9
