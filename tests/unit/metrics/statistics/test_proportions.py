from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from pytest_vlmrobust.metrics.statistics.clusters import Clusters, critical_value, upper_tail
from pytest_vlmrobust.metrics.statistics.proportions import (
    exact_interval,
    is_binary,
    judged_proportion_interval,
    proportion_interval,
    wilson_interval,
)

laws = settings(deadline=None, derandomize=True, database=None, max_examples=100)


def test_clopper_pearson_of_the_golden_table() -> None:
    assert exact_interval(13, 16, 0.95) == pytest.approx((0.543543, 0.959526), abs=5e-7)


@pytest.mark.parametrize(("successes", "n"), [(1, 5), (13, 16), (0, 9), (9, 9), (30, 869)])
def test_clopper_pearson_bounds_have_the_tails_they_promise(successes: int, n: int) -> None:
    low, high = exact_interval(successes, n, 0.90)
    if successes:
        assert special.bdtrc(successes - 1, n, low) == pytest.approx(0.05)
    if successes < n:
        assert special.bdtr(successes, n, high) == pytest.approx(0.05)


def test_wilson_by_hand() -> None:
    """13 of 16 at 95 %: z^2 = 3.841459; centre (13 + z^2/2) / (16 + z^2), half z sqrt(13*3/16 + z^2/4) / (16 + z^2)."""
    centre, half = (13 + 1.9207294) / 19.841459, 1.959964 * math.sqrt(2.4375 + 0.96036470) / 19.841459
    outcomes = np.array([1.0] * 13 + [0.0] * 3)
    assert proportion_interval(outcomes, Clusters.of(None, 16), 0.95) == pytest.approx((centre - half, centre + half), abs=1e-6)


def test_wilson_of_all_right_ends_at_one() -> None:
    low, high = proportion_interval(np.ones(50), Clusters.of(None, 50), 0.90)
    assert low == pytest.approx(50 / (50 + 2.7055434541))
    assert high == 1.0


def test_wilson_of_clustered_outcomes_is_wider() -> None:
    outcomes = np.repeat([1.0, 1.0, 0.0, 1.0, 0.0], 10)
    alone = proportion_interval(outcomes, Clusters.of(None, 50), 0.90)
    together = proportion_interval(outcomes, Clusters.of([str(index // 10) for index in range(50)], 50), 0.90)
    assert together[0] < alone[0]
    assert alone[1] < together[1]


def test_all_right_in_clusters_is_as_uncertain_as_their_number() -> None:
    clusters = Clusters.of([str(index // 10) for index in range(50)], 50)
    low, _ = proportion_interval(np.ones(50), clusters, 0.90)
    square, trials = critical_value(0.05, 4) ** 2, 5 * 50 / 59  # one more image of 10 goes into the variance, of 60 then
    assert low == pytest.approx(trials / (trials + square))


def test_one_cluster_shows_nothing() -> None:
    assert proportion_interval(np.ones(50), Clusters.of(["a"] * 50, 50), 0.90) == (0.0, 1.0)


def test_judged_ends_are_exact() -> None:
    for successes in range(41):
        outcomes = (np.arange(40) < successes).astype(float)
        found = judged_proportion_interval(outcomes, Clusters.of(None, 40), 0.90)
        assert found == pytest.approx(exact_interval(successes, 40, 0.90), rel=1e-9)


def test_judged_ends_rise_with_every_success() -> None:
    for confidence in (0.5, 0.9, 0.999, 1.0 - 1e-6):
        ends = [
            judged_proportion_interval((np.arange(40) < k).astype(float), Clusters.of(None, 40), confidence) for k in range(41)
        ]
        assert (np.diff(np.array(ends), axis=0) >= 0.0).all()


@pytest.mark.parametrize(("tail", "tests"), [(0.05, 1), (0.05 / 133, 133)])
@pytest.mark.parametrize(("n", "rate"), [(20, 0.01), (20, 0.05), (40, 0.02), (128, 0.01), (200, 0.1)])
def test_rare_errors_are_not_found_too_many_too_often(n: int, rate: float, tail: float, tests: int) -> None:
    """Exactly: how often a bound that is true fails, at one risk and at a share of it; Wilson's bound alone fails 18 %."""
    chances = stats.binom.pmf(np.arange(n + 1), n, rate)
    outcomes, alone = [(np.arange(n) < count).astype(float) for count in range(n + 1)], Clusters.of(None, n)
    ends = np.array([judged_proportion_interval(one, alone, 1.0 - 2.0 * tail) for one in outcomes])
    assert tests * chances[ends[:, 0] > rate].sum() <= 0.05
    assert tests * chances[ends[:, 1] < rate].sum() <= 0.05
    wilson = [proportion_interval(one, alone, 0.90)[0] > rate for one in outcomes]
    if (n, rate) == (20, 0.01):
        assert chances[wilson].sum() > 0.18


def test_judged_ends_of_clusters_are_those_of_effective_counts() -> None:
    outcomes = np.repeat((np.arange(30) < 2).astype(float), 4)
    clusters = Clusters.of([str(index // 4) for index in range(120)], 120)
    low, high = judged_proportion_interval(outcomes, clusters, 0.90)
    effect = float(clusters.design_effects(outcomes[:, None], (0.0, 1.0))[0])
    tail = stats.norm.sf(critical_value(0.05, 29))
    assert low == pytest.approx(stats.beta.ppf(tail, 8 / effect, 112 / effect + 1))
    assert high == pytest.approx(stats.beta.isf(tail, 8 / effect + 1, 112 / effect))
    assert judged_proportion_interval(np.ones(50), Clusters.of(["a"] * 50, 50), 0.90) == (0.0, 1.0)


@laws
@given(st.integers(1, 300), st.floats(0, 1), st.floats(0.5, 0.99))
def test_intervals_hold_the_estimate(n: int, share: float, confidence: float) -> None:
    successes = round(share * n)
    for low, high in (
        exact_interval(successes, n, confidence),
        wilson_interval(successes, n, critical_value((1 - confidence) / 2)),
    ):
        assert 0.0 <= low <= successes / n <= high <= 1.0


def test_impossible_counts_are_refused() -> None:
    with pytest.raises(ValueError, match="successes=7 of n=5: expected 0 <= successes <= n"):
        exact_interval(7, 5)
    assert all(math.isnan(bound) for bound in exact_interval(0, 0))


@pytest.mark.parametrize(("tail", "df", "value"), [(0.05, math.inf, 1.6448536), (0.05, 9, 1.8331129), (0.025, 1, 12.7062047)])
def test_critical_values(tail: float, df: float, value: float) -> None:
    assert critical_value(tail, df) == pytest.approx(value)
    assert upper_tail(np.array([value]), df)[0] == pytest.approx(tail)


def test_no_degrees_of_freedom_show_nothing() -> None:
    assert math.isinf(critical_value(0.05, 0))
    assert upper_tail(np.array([50.0]), 0)[0] == 1.0


def test_binary_means_right_or_wrong() -> None:
    assert is_binary(np.array([0.0, 1.0]), np.array([[1.0]]))
    assert not is_binary(np.array([0.0, 0.5]))
    assert not is_binary(np.array([math.nan]))


def test_wilson_by_hand_where_few_succeed() -> None:
    """1 of 10 at z = 2: centre (1 + 2) / 14, half 2 / 14 * sqrt(.9 + 1)."""
    low, high = wilson_interval(1.0, 10.0, 2.0)
    assert (low, high) == pytest.approx((3 / 14 - math.sqrt(1.9) / 7, 3 / 14 + math.sqrt(1.9) / 7))
    assert wilson_interval(0.0, 10.0, 2.0)[0] == 0.0
