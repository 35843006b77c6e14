from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import special

from pytest_vlmrobust.metrics import minimum_detectable_drop, samples_needed, undecided_zone
from pytest_vlmrobust.metrics.statistics.clusters import critical_value
from pytest_vlmrobust.metrics.statistics.paired import tango_statistic

Rows = list[dict[str, str]]

laws = settings(deadline=None, derandomize=True, database=None, max_examples=60)
rates = st.floats(0.001, 0.1)


def _tolerance(printed: str) -> float:
    """Returns what rounding to the printed decimals allows, and 0.02 percentage points."""
    return 0.5 * 10.0 ** -len(printed.partition(".")[2]) + 0.02


def test_golden_detectable_drops(golden: Callable[[str], Rows]) -> None:
    for row in golden("detectable_drops"):
        for column, power in (("power80", 0.80), ("power95", 0.95)):
            if printed := row[column]:
                drop = minimum_detectable_drop(int(row["n"]), float(row["helpful_rate"]), 0.05 / int(row["levels"]), power)
                assert 100 * drop == pytest.approx(float(printed), abs=_tolerance(printed)), row


def test_golden_undecided_zones(golden: Callable[[str], Rows]) -> None:
    for row in golden("undecided_zones"):
        zone = undecided_zone(int(row["n"]), float(row["bound"]), 0.015, alpha=0.05 / int(row["levels"]))
        for printed, distance in ((row["pass"], zone.passes), (row["fail"], zone.fails)):
            assert 100 * distance == pytest.approx(float(printed), abs=_tolerance(printed)), row


def test_golden_sample_sizes(golden: Callable[[str], Rows]) -> None:
    for row in golden("samples_needed"):
        bound, margin = float(row["bound"]), float(row["margin"])
        assert samples_needed(bound - margin, bound, 0.015) == int(row["pass"]), row
        assert samples_needed(bound + margin, bound, 0.015) == int(row["fail"]), row


def test_clusters_cost_what_the_design_effect_says() -> None:
    """4 329 rows of 1 164 questions, intraclass correlation 0.5: worth 1 834 rows."""
    deff = 4329 / 1834
    assert minimum_detectable_drop(4329, 0.015, deff=deff) == minimum_detectable_drop(1834, 0.015)
    assert 100 * minimum_detectable_drop(4329, 0.015, deff=deff) == pytest.approx(1.2, abs=0.05)
    alone, together = samples_needed(0.03, 0.05, 0.015), samples_needed(0.03, 0.05, 0.015, deff=deff)
    assert (alone, together) == (1098, math.ceil(1097.3 * deff))


@pytest.mark.parametrize(("n", "drop", "power"), [(324, 0.035, 0.8), (869, 0.019, 0.8), (869, 0.026, 0.95)])
def test_the_power_is_what_an_enumeration_says(n: int, drop: float, power: float) -> None:
    """Exact power of Tango's test of "no drop" over every likely pair of flip counts."""
    assert _exact_power(n, drop, 0.0) == pytest.approx(power, abs=0.03)


def test_the_margin_decides_as_often_as_it_says() -> None:
    n = samples_needed(0.08, 0.05, 0.015)
    assert n is not None
    assert _exact_power(n, 0.08, 0.05) == pytest.approx(0.8, abs=0.04)


def _exact_power(n: int, drop: float, bound: float) -> float:
    harmful_rate, helpful_rate = drop + 0.015, 0.015
    grid = np.arange(min(n, int(n * harmful_rate + 9 * math.sqrt(n * harmful_rate))) + 1)
    harmful, helpful = (axis.ravel().astype(float) for axis in np.meshgrid(grid, grid))
    rest = n - harmful - helpful
    harmful, helpful, rest = harmful[rest >= 0], helpful[rest >= 0], rest[rest >= 0]
    logs = special.gammaln(n + 1) - special.gammaln(harmful + 1) - special.gammaln(helpful + 1) - special.gammaln(rest + 1)
    logs += harmful * math.log(harmful_rate) + helpful * math.log(helpful_rate) + rest * math.log(1 - harmful_rate - helpful_rate)
    statistic = tango_statistic(harmful, helpful, np.full(harmful.shape, float(n)), np.full(harmful.shape, bound))
    return float(np.exp(logs)[statistic > critical_value(0.05)].sum())


@laws
@given(st.integers(50, 5000), st.floats(0.01, 0.2), rates)
def test_the_zone_is_the_inverse_of_the_sample_size(n: int, bound: float, p01: float) -> None:
    zone = undecided_zone(n, bound, p01)
    for distance, side in ((zone.passes, -1), (zone.fails, 1)):
        assume(not math.isnan(distance))
        needed = samples_needed(bound + side * distance, bound, p01)
        assert needed is not None
        assert abs(needed - n) <= 1


@laws
@given(st.integers(50, 5000), rates)
def test_more_samples_detect_less(n: int, p01: float) -> None:
    assert minimum_detectable_drop(2 * n, p01) < minimum_detectable_drop(n, p01)
    assert minimum_detectable_drop(n, p01) < minimum_detectable_drop(n, 2 * p01)
    assert minimum_detectable_drop(n, p01) < minimum_detectable_drop(n, p01, alpha=0.01)


def test_on_the_bound_no_number_of_samples_decides() -> None:
    assert samples_needed(0.05, 0.05, 0.015) is None


def test_too_few_samples_decide_nothing() -> None:
    assert math.isnan(minimum_detectable_drop(2, 0.015))
    assert math.isnan(undecided_zone(1, 0.05, 0.015, alpha=1e-4).fails)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"theta": 2.0}, "a drop of 2 with a helpful flip rate of 0.015 is impossible"),
        ({"p01": -0.1}, "a drop of 0.05 with a helpful flip rate of -0.1 is impossible"),
        ({"alpha": 5.0}, "alpha is 5.0: expected an error probability between 0 and 0.5"),
        ({"power": 80.0}, "power is 80.0: expected a probability of at least 0.5"),
        ({"deff": 0.0}, "deff is 0.0: expected a positive number, 1 for independent samples"),
    ],
)
def test_what_cannot_be_is_refused(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        samples_needed(**{"theta": 0.03, "bound": 0.05, "p01": 0.015} | arguments)


def test_no_samples_are_refused() -> None:
    with pytest.raises(ValueError, match="n is 0: expected at least one sample"):
        minimum_detectable_drop(0, 0.015)
