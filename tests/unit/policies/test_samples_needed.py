from __future__ import annotations

import math
from dataclasses import replace
from statistics import NormalDist

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.policies.samples_needed import samples_to_decide

laws = settings(deadline=None, derandomize=True, database=None, max_examples=100)


def _estimate(value: float, low: float, high: float, n: int = 869) -> Estimate:
    return Estimate(value, n, low, high, 0.90)


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ((0.03, 0.015, 0.055), (1358, 4298, "")),
        ((0.07, 0.045, 0.5), (1358, 4298, "")),  # only the side towards the bound counts
        ((0.03, 0.015, 0.045), (869, 869, "")),  # decided already
    ],
)
def test_by_hand(ends: tuple[float, float, float], expected: tuple[int, int, str]) -> None:
    """Half-width 2.5 pp, 2 pp to the bound: 869 * 1.25^2 = 1357.8, times ((1.644854 + 1.281552) / 1.644854)^2 = 4297.8."""
    assert samples_to_decide(_estimate(*ends), 0.05) == expected


def test_inside_a_range_both_ends_must_be_left_behind() -> None:
    near, far = samples_to_decide(_estimate(0.1, 0.0, 0.2), 0.06), samples_to_decide(_estimate(0.1, 0.0, 0.2), 0.19)
    assert samples_to_decide(_estimate(0.1, 0.0, 0.2), 0.06, 0.19) == near
    assert (near.least or 0) > (far.least or 0) > 869
    assert (near.most or 0) > (far.most or 0) > 869


def test_outside_a_range_the_nearer_end_counts() -> None:
    assert samples_to_decide(_estimate(0.25, 0.1, 0.4), -0.2, 0.2) == samples_to_decide(_estimate(0.25, 0.1, 0.4), 0.2)


@pytest.mark.parametrize(
    ("estimate", "reason"),
    [
        (_estimate(0.05, 0.02, 0.08), "the value lies on the bound, which no number of questions decides"),
        (_estimate(0.0501, 0.02, 0.08), "the value is at the bound: no practical number of questions decides it"),
        (_estimate(math.nan, math.nan, math.nan), "the value is undefined"),
        (Estimate(0.03, 869), "there is no interval"),
        (_estimate(0.03, 0.01, 0.06, n=0), "there is no sample"),
        (_estimate(0.03, 0.01, math.inf), "the interval has no end towards the bound"),
        (
            replace(_estimate(0.03, 0.015, 0.055), counts_settings=True),
            "not known for a share of settings, which noise carries across its line",
        ),
    ],
)
def test_what_cannot_be_told_comes_with_a_reason(estimate: Estimate, reason: str) -> None:
    assert samples_to_decide(estimate, 0.05) == (None, None, reason)


def test_one_end_that_cannot_be_left_behind_is_enough() -> None:
    assert samples_to_decide(_estimate(0.1, -math.inf, 0.2), 0.06, 0.19)[:2] == (None, None)


@pytest.mark.parametrize("ends", [(), (math.inf,), (0.1, math.nan)])
def test_a_bound_needs_finite_ends(ends: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="expected at least one, each a finite number"):
        samples_to_decide(_estimate(0.1, 0.0, 0.2), *ends)


@laws
@given(st.floats(0, 0.2), st.floats(0.001, 0.2), st.integers(1, 5000), st.floats(0, 0.4))
def test_with_that_many_the_scaled_interval_is_decisive(value: float, half: float, n: int, bound: float) -> None:
    needed = samples_to_decide(_estimate(value, value - half, value + half, n), bound)
    if needed.least is None or needed.most is None:
        assert abs(value - bound) <= 1e-9 or needed.reason.startswith("the value is at the bound")
    else:
        assert needed.most >= needed.least >= n
        assert half * math.sqrt(n / needed.least) <= abs(value - bound) + 1e-9


def test_the_two_counts_decide_as_often_as_they_say() -> None:
    """Means of standard normal values, 0.1 from the bound: the share of them whose 95 % bound keeps it, with each count."""
    normal = NormalDist()
    half = normal.inv_cdf(0.95) / math.sqrt(100)
    needed = samples_to_decide(_estimate(0.0, -half, half, 100), 0.1)
    for count, power in ((needed.least, 0.5), (needed.most, 0.9)):
        assert count is not None
        assert normal.cdf(0.1 * math.sqrt(count) - normal.inv_cdf(0.95)) == pytest.approx(power, abs=0.01)
