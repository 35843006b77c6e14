from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import optimize, special, stats

from pytest_vlmrobust.metrics import paired_drop_interval
from pytest_vlmrobust.metrics.statistics import paired
from pytest_vlmrobust.metrics.statistics.clusters import Clusters, critical_value, normal_tail, upper_tail
from pytest_vlmrobust.metrics.statistics.means import BoundedMeanTest, DirichletMeans, exact_interval
from pytest_vlmrobust.metrics.statistics.paired import (
    GroupMeans,
    TangoTest,
    chance_of_excess,
    drop_interval,
    drop_test,
    exact_lower,
    exact_upper,
    excess_tail,
    interval_of,
    largest_bounds,
    largest_gap_interval,
    likeliest_helpful,
    mean_interval,
    tango_lower,
    tango_statistic,
    tango_upper,
)

Rows = list[dict[str, str]]
Array = NDArray[np.float64]

counts = st.tuples(st.integers(0, 40), st.integers(0, 40), st.integers(1, 200)).map(lambda c: (c[0], c[1], c[0] + c[1] + c[2]))
laws = settings(deadline=None, derandomize=True, database=None, max_examples=30)


def _arrays(*values: float) -> list[Array]:
    return [np.array([float(value)]) for value in values]


def _test(harmful: float, helpful: float, n: float) -> TangoTest:
    return TangoTest(np.array([harmful]), np.array([helpful]), np.array([n]), math.inf)


def _sums(n: int, harmful_share: float, helpful_share: float) -> Array:
    """Returns how often harmful minus helpful flips are k or more, k from -n to n, sample by sample."""
    single, sums = np.array([helpful_share, 1.0 - harmful_share - helpful_share, harmful_share]), np.ones(1)
    for _ in range(n):
        sums = np.convolve(sums, single)
    tails: Array = sums[::-1].cumsum()[::-1]
    return tails


def _tails(excess: Array, n: float, harmful_share: float, helpful_share: float) -> Array:
    return excess_tail(excess, *(np.full(excess.shape, value) for value in (float(n), harmful_share, helpful_share)))


def _likelihood(case: tuple[float, float, float], drop: float, share: float) -> float:
    harmful, helpful, n = case
    pairs = ((harmful, share + drop), (helpful, share), (n - harmful - helpful, 1.0 - drop - 2.0 * share))
    return float(sum(special.xlogy(max(count, 0.0), max(chance, 0.0)) for count, chance in pairs))


def _every_count(n: int) -> list[tuple[int, int, int]]:
    return [(harmful, helpful, n) for harmful in range(n + 1) for helpful in range(n + 1 - harmful)]


def _chances(cases: list[tuple[int, int, int]], harmful_share: float, helpful_share: float) -> Array:
    shares = [harmful_share, helpful_share, max(1.0 - harmful_share - helpful_share, 0.0)]
    chances: Array = stats.multinomial.pmf([(a, b, n - a - b) for a, b, n in cases], cases[0][2], shares)
    assert chances.sum() == pytest.approx(1.0)
    return chances


def _test_of(cases: Sequence[tuple[float, float, float]], df: float = math.inf) -> TangoTest:
    harmful, helpful, n = np.array(cases, dtype=float).reshape(-1, 3).T
    return TangoTest(harmful, helpful, n, df)


# Tails of the flips.


@pytest.mark.parametrize(
    "shares", [(Fraction(3, 10), Fraction(1, 5)), (Fraction(1, 20), Fraction(1, 6)), (Fraction(1), Fraction(0))]
)
def test_tails_of_four_samples_add_up_what_can_happen_to_each(shares: tuple[Fraction, Fraction]) -> None:
    chances = {1: shares[0], -1: shares[1], 0: 1 - shares[0] - shares[1]}
    outcomes = [(sum(flips), math.prod(chances[flip] for flip in flips)) for flips in product(chances, repeat=4)]
    expected = [float(sum(chance for total, chance in outcomes if total >= excess)) for excess in range(-4, 5)]
    assert _tails(np.arange(-4.0, 5.0), 4, float(shares[0]), float(shares[1])) == pytest.approx(expected, abs=1e-12)


RARE = [(0.0, 0.0), (0.0, 0.3), (0.3, 0.0), (1.0, 0.0), (0.0, 1.0), (0.004, 0.6), (0.6, 0.004), (0.004, 0.996), (0.002, 0.002)]
"""One kind of flip is expected less than once of 249 samples or fewer."""


@pytest.mark.cases("shares", RARE)
@pytest.mark.cases("n", [1, 2, 11, 12, 13, 14, 249])
def test_tails_with_a_rare_flip_are_sums_and_never_too_small(n: int, shares: tuple[float, float]) -> None:
    """Beyond 12 flips where less than one is expected, whatever happens counts as an excess: a chance of at most 1e-10."""
    tails, expected = _tails(np.arange(-n, n + 1.0), n, *shares), _sums(n, *shares)
    assert tails.dtype == np.float64
    assert (tails <= 1.0).all()
    assert (tails - expected >= -1e-13).all()
    assert (tails - expected <= 1e-10).all()


@pytest.mark.cases(
    "shares",
    [(0.3, 0.2), (0.2, 0.3), (0.1, 0.05), (0.02, 0.02), (0.02, 0.01), (0.33, 0.33), (0.05, 0.3), (0.004, 0.6), (0.6, 0.004)],
)
@pytest.mark.cases("n", [324, 869])
def test_tails_by_the_formula_are_sums_far_out_as_well(n: int, shares: tuple[float, float]) -> None:
    """Within 0.3 % down to 1e-12."""
    excess, expected = np.arange(-n, n + 1.0), _sums(n, *shares)
    tails = _tails(excess, n, *shares)
    assert (tails <= 1.0).all()
    seen = expected > 1e-12
    assert tails[seen] == pytest.approx(expected[seen], rel=0.003)


@pytest.mark.cases("shares", [(0.1, 0.05), (0.05, 0.1), (0.1, 0.1), (0.3, 0.6), (0.7, 0.1), (0.1, 0.7)])
def test_the_middle_of_a_tail_is_the_sum(shares: tuple[float, float]) -> None:
    """Where the excess is what was expected the formula itself divides 0 by 0."""
    n, mean = 600, 600 * (shares[0] - shares[1])
    assert _tails(np.array([mean]), n, *shares)[0] == pytest.approx(_sums(n, *shares)[n + round(mean)], abs=5e-5)


@pytest.mark.parametrize("n", [600, 10_000, 1_000_000, 100_000_000])
def test_a_tail_is_one_half_around_the_middle_however_many_samples_there_are(n: int) -> None:
    """Rounding made it anything from 0 to 1 a thousandth of a standard deviation off the mean of 100,000 samples."""
    for up, down in ((0.1, 0.05), (0.3, 0.3), (0.02, 0.9)):
        deviations = np.sort(np.concatenate([sign * np.geomspace(1e-6, 1e-2, 200) for sign in (-1.0, 1.0)]))
        spread = math.sqrt(n * (up + down - (up - down) ** 2))
        tails = _tails(n * (up - down) + deviations * spread, n, up, down)
        assert (np.diff(tails) <= 2e-4).all()
        assert tails == pytest.approx(np.full(400, 0.5), abs=0.01 + 0.3 / spread)
        ends = stats.norm.sf(deviations[[0, -1]])
        assert tails[0] - tails[-1] == pytest.approx(float(ends[0] - ends[1]), rel=0.05)


@pytest.mark.cases("drop", [-0.2, 0.0, 0.05, 0.4])
@pytest.mark.cases("n", [5, 10, 101])
def test_where_every_sample_flips_the_harmful_ones_are_binomial(n: int, drop: float) -> None:
    """Every flip more changes the excess by two; of no drop this is the sign test."""
    harmful, law = np.arange(n + 1.0), stats.binom(n, (1.0 + drop) / 2.0)
    test = TangoTest(harmful, n - harmful, np.full(n + 1, float(n)), math.inf)
    assert test.p_above(drop) == pytest.approx(law.sf(harmful - 1.0), abs=1e-9)
    assert test.p_below(drop) == pytest.approx(law.cdf(harmful), abs=1e-9)


@pytest.mark.parametrize(
    ("n", "shares"), [(5.96797, (0.7358, 0.2642)), (17.296, (0.74, 0.178)), (13.0, (0.42, 0.145)), (28.4367, (0.306, 0.237))]
)
def test_no_tail_is_above_chernoffs_bound(n: float, shares: tuple[float, float]) -> None:
    """The least of E[exp(t X)] / exp(t excess), whatever t: it holds the formula where a part of a sample is left to flip."""
    up, down = shares
    for excess in n - np.array([0.3, 0.1, 0.04, 0.01]):

        def logarithm(tilt: float, excess: float = excess) -> float:
            return n * math.log1p(up * math.expm1(tilt) + down * math.expm1(-tilt)) - tilt * excess

        bound = math.exp(optimize.minimize_scalar(logarithm, bounds=(0.0, 40.0), method="bounded", options={"xatol": 1e-9}).fun)
        assert 0.0 < _tails(np.array([excess]), n, up, down)[0] <= bound * (1.0 + 1e-6)


@laws
@given(st.integers(30, 400), st.floats(0.0005, 0.45), st.floats(0.0005, 0.45), st.floats(-0.3, 0.3))
def test_more_excess_is_rarer_and_more_harmful_flips_make_it_likelier(n: int, up: float, down: float, at: float) -> None:
    """Of parts of samples, too: clusters leave effective counts."""
    excess = np.round(n * (up - down + at)) + np.arange(0.0, 4.0, 0.25)
    tails = _tails(excess, n, up, down)
    assert (np.diff(tails) <= 1e-9).all()
    whole, tails = excess[::4], tails[::4]
    assert (_tails(whole, n, up * 1.05, down) >= tails - 0.01).all()
    assert (_tails(whole, n, up, down * 1.05) <= tails + 0.01).all()


@pytest.mark.parametrize("n", [3, 60])
def test_ends_of_the_tail(n: int) -> None:
    """All or more than all samples help: certain. All have to harm: the share to the power of n, whichever way it is computed."""
    for up, down in ((0.4, 0.1), (0.4, 0.0), (0.4, 0.5), (1.0, 0.0)):
        ends = _tails(np.array([-n - 1.0, -n, n]), n, up, down)
        assert ends[:2].tolist() == [1.0, 1.0]
        assert ends[2] == pytest.approx(math.prod([up] * n))


def test_sure_flips_leave_no_chance() -> None:
    assert _tails(np.array([-3.0, 2.0, 5.0]), 5, 1.0, 0.0).tolist() == [1.0, 1.0, 1.0]
    assert _tails(np.array([-5.0, -4.0, 0.0]), 5, 0.0, 1.0).tolist() == [1.0, 0.0, 0.0]
    assert _tails(np.array([-1.0, 0.0, 1.0]), 5, 0.0, 0.0).tolist() == [1.0, 1.0, 0.0]


CASES = [(6, 0, 40), (12, 1, 40), (3, 0, 200), (0, 2, 60), (1, 1, 30), (0, 0, 25), (2, 5, 90), (30, 3, 869), (60, 13, 869)]


@pytest.mark.cases("case", CASES)
def test_p_values_are_tails_at_the_likeliest_share(case: tuple[int, int, int]) -> None:
    """The share by a plain search, the tail sample by sample."""
    test = _test(*case)
    harmful, helpful, n = case
    for drop in (-0.05, -0.01, 0.0, 0.02, 0.1, 0.3):
        ends = max(0.0, -drop), (1.0 - drop) / 2.0
        share = optimize.minimize_scalar(
            lambda share, drop=drop: -_likelihood(case, drop, share), bounds=ends, method="bounded", options={"xatol": 1e-12}
        ).x
        expected = _sums(n, share + drop, share)[n + harmful - helpful]
        rare = n * min(share, share + drop) < 0.99
        assert test.p_above(drop)[0] == pytest.approx(expected, rel=1e-4 if rare else 0.02, abs=1e-12)


@laws
@given(counts)
def test_p_values_rise_and_fall_and_turn_with_the_models(case: tuple[int, int, int]) -> None:
    harmful, helpful, n = case
    drops = [-0.9, -0.3, -0.05, 0.005, 0.05, 0.3, 0.9]
    test, turned = _test(harmful, helpful, n), _test(helpful, harmful, n)
    above = [float(test.p_above(drop)[0]) for drop in drops]
    assert above == pytest.approx([float(turned.p_below(-drop)[0]) for drop in drops])
    assert all(0.0 <= value <= other + 1e-10 <= 1.0 + 1e-9 for value, other in pairwise(above))
    below = [float(test.p_below(drop)[0]) for drop in drops]
    assert all(0.0 <= other <= value + 1e-10 <= 1.0 + 1e-9 for value, other in pairwise(below))
    assert (np.array(above) + np.array(below) >= 0.97).all()  # an outcome is on one side at least


def test_p_values_next_to_the_ends() -> None:
    test = _test_of([(0, 0, 5), (5, 0, 5), (0, 5, 5), (2, 3, 5)])
    assert test.p_above(-1.0 + 1e-9).tolist() == pytest.approx([0.0, 0.0, 1.0, 0.0], abs=1e-7)
    assert test.p_above(1.0 - 1e-9).tolist() == pytest.approx([1.0] * 4, abs=1e-7)
    assert test.p_below(1.0 - 1e-9).tolist() == pytest.approx([0.0, 1.0, 0.0, 0.0], abs=1e-7)
    assert test.p_below(-1.0 + 1e-9).tolist() == pytest.approx([1.0] * 4, abs=1e-7)


# Exact bounds.


@pytest.mark.cases("tail", [0.4, 0.05, 0.05 / 133])
@pytest.mark.cases("n", [1, 2, 9, 60, 869])
def test_bounds_of_outcomes_that_happen_in_one_way(n: int, tail: float) -> None:
    """Nothing flips, or all do. A drop d leaves none with at most ``(1 - |d|)^n``, all harmful with ``((1 + d) / 2)^n``."""
    none, lost = _test(0, 0, n), _test(n, 0, n)
    assert none.upper(tail)[0] == pytest.approx(1.0 - tail ** (1.0 / n), abs=1e-9)
    assert none.lower(tail)[0] == pytest.approx(tail ** (1.0 / n) - 1.0, abs=1e-9)
    assert lost.lower(tail)[0] == pytest.approx(2.0 * tail ** (1.0 / n) - 1.0, abs=1e-9)
    assert (lost.upper(tail)[0], _test(0, n, n).lower(tail)[0]) == (1.0, -1.0)


@pytest.mark.parametrize("confidence", [0.6, 0.9, 0.99])
def test_bounds_are_clopper_and_pearsons_where_no_helpful_flip_is_likely(confidence: float) -> None:
    compared = 0
    for n, harmful in product((20, 100, 400), (1, 8, 20, 90)):
        if harmful <= n // 2:
            expected = stats.binomtest(harmful, n).proportion_ci(confidence, method="exact")
            test, tail = _test(harmful, 0, n), (1.0 - confidence) / 2.0
            assert test.upper(tail)[0] == pytest.approx(expected.high, abs=1e-8)
            if expected.low > harmful / (2 * n - harmful):
                compared += 1
                assert test.lower(tail)[0] == pytest.approx(expected.low, abs=1e-8)
    assert compared


@pytest.mark.parametrize("tail", [0.3, 0.05, 0.05 / 133, 1e-6])
def test_a_bound_is_the_last_drop_that_is_rare_enough(tail: float) -> None:
    """What lies below it by rounding errs on the safe side; what lies above it by a ten thousandth of a millionth does not."""
    cases = [case for n in (1, 3, 8, 30, 324) for case in _every_count(n)[:: 1 + n * n // 20] if case[1] < n]
    harmful, helpful, n = np.array(cases, dtype=float).T
    low = exact_lower(harmful, helpful, n, tail)
    assert (chance_of_excess(harmful, helpful, n, low) <= tail).all()
    assert (chance_of_excess(harmful, helpful, n, low + 1e-10) > tail).all()
    assert exact_upper(helpful, harmful, n, tail).tolist() == (-low).tolist()


def test_bounds_need_few_looks_at_the_tail(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[None] = []

    def counted(*arrays: Array) -> Array:
        looks.append(None)
        return chance_of_excess(*arrays)

    monkeypatch.setattr(paired, "chance_of_excess", counted)
    needed = []
    for case, tail in product([(1, 0, 51), (4, 1, 51), (14, 4, 131), (61, 14, 870), (301, 20, 871), (0, 9, 93)], (0.049, 0.0004)):
        looks.clear()
        _test(*case).lower(tail)
        needed.append(len(looks))
    assert max(needed) <= 10  # halving alone takes 35
    assert sum(needed) <= 7 * len(needed)


def test_no_bound_depends_on_what_is_bounded_with_it() -> None:
    cases = [*_every_count(4), (0, 0, 324), (9, 2, 324), (300, 20, 324), (869, 0, 869)]
    together = _test_of(cases)
    for tail in (0.05, 0.0003):
        alone = [float(_test(*case).lower(tail)[0]) for case in cases]
        assert together.lower(tail).tolist() == alone
        assert _test_of(cases[::-1]).lower(tail).tolist() == alone[::-1]


def test_a_bound_that_is_changed_leaves_the_next_one_as_it_is() -> None:
    test = _test(7, 2, 64)
    first = test.lower(0.05)
    expected = first.tolist()
    first[:] = 0.0
    assert test.lower(0.05).tolist() == expected


def test_no_risk_and_no_drops_are_bounded() -> None:
    test = _test_of([(5, 1, 20), (0, 0, 3)])
    assert test.lower(0.0).tolist() == [-1.0, -1.0]
    assert test.upper(0.0).tolist() == [1.0, 1.0]
    nothing = _test_of([])
    assert nothing.lower(0.05).shape == nothing.upper(0.0).shape == (0,)
    assert test.lower(1e-300) == pytest.approx(-1.0)
    assert (test.lower(0.499999) < np.array([0.2, 1e-9])).all()


@pytest.mark.parametrize("bounds", ["exact", "tango"])
@laws
@given(case=counts)
def test_a_harmful_flip_more_raises_both_bounds_and_a_helpful_one_lowers_them(bounds: str, case: tuple[int, int, int]) -> None:
    def interval(harmful: int, helpful: int) -> tuple[float, float]:
        test = _test(harmful, helpful, case[2])
        return paired_drop_interval(harmful, helpful, case[2]) if bounds == "tango" else interval_of(test, 0.9)

    harmful, helpful, _ = case
    low, high = interval(harmful, helpful)
    more_low, more_high = interval(harmful + 1, helpful)
    assert low < more_low
    assert high < more_high + 1e-12
    less_low, less_high = interval(harmful, helpful + 1)
    assert less_low < low + 1e-12
    assert less_high < high


@pytest.mark.cases("level", [0.3, 0.05, 0.002])
@pytest.mark.cases("n", [4, 9, 20])
def test_bounds_of_a_few_samples_miss_no_more_often_than_they_say(n: int, level: float) -> None:
    """Every outcome at many truths, up to those where every sample flips."""
    cases = _every_count(n)
    test = _test_of(cases)
    low, high = test.both(level)
    for up, down in product((0.0, 0.01, 0.05, 0.2, 0.4, 0.6, 0.8), repeat=2):
        if up + down <= 1.0:
            chances = _chances(cases, up, down)
            assert chances[low > up - down + 1e-9].sum() <= 1.01 * level
            assert chances[high < up - down - 1e-9].sum() <= 1.01 * level


# Tango's statistic and interval, and what they share with exact bounds.


def test_golden_intervals(golden: Callable[[str], Rows]) -> None:
    for row in golden("tango"):
        interval = paired_drop_interval(int(row["harmful"]), int(row["helpful"]), int(row["n"]), float(row["confidence"]))
        digits = len(row["low"].partition(".")[2])
        assert interval == pytest.approx((float(row["low"]), float(row["high"])), abs=0.6 * 10.0**-digits), row
        assert type(interval[0]) is type(interval[1]) is float


def test_golden_p_values(golden: Callable[[str], Rows]) -> None:
    for row in golden("tango_p_values"):
        statistic = tango_statistic(*_arrays(*(float(row[name]) for name in ("harmful", "helpful", "n", "bound"))))
        p = upper_tail(-statistic if row["shows"] == "below" else statistic)
        assert p[0] == pytest.approx(float(row["p"]), rel=0.01), row


@pytest.mark.parametrize("row", range(6))
def test_golden_sizes(row: int, golden: Callable[[str], Rows]) -> None:
    """Exact error rates at the threshold, over every possible pair of counts."""
    case = golden("tango_sizes")[row]
    n, threshold, helpful_rate = int(case["n"]), float(case["threshold"]), float(case["helpful_rate"])
    level = 0.05 / int(case["levels"])
    harmful, helpful, weights = _all_counts(n, threshold + helpful_rate, helpful_rate)
    statistic = tango_statistic(harmful, helpful, np.full(harmful.shape, float(n)), np.full(harmful.shape, threshold))
    critical = critical_value(level)
    passes, fails = weights[statistic <= -critical].sum(), weights[statistic >= critical].sum()
    assert passes / level == pytest.approx(float(case["pass"]), abs=0.011)
    assert fails / level == pytest.approx(float(case["fail"]), abs=0.011)


def _all_counts(n: int, harmful_rate: float, helpful_rate: float) -> tuple[Array, Array, Array]:
    """Returns all likely counts and their trinomial probabilities; what is left out weighs less than 1e-12."""
    reach = [np.arange(min(n, int(12 * math.sqrt(n * rate) + n * rate) + 8) + 1.0) for rate in (harmful_rate, helpful_rate)]
    harmful, helpful = (axis.ravel() for axis in np.meshgrid(*reach))
    fits = harmful + helpful <= n
    harmful, helpful = harmful[fits], helpful[fits]
    rest = n - harmful - helpful
    logs = special.gammaln(n + 1) - sum(special.gammaln(count + 1) for count in (harmful, helpful, rest))
    rates = (harmful_rate, helpful_rate, 1 - harmful_rate - helpful_rate)
    logs += sum(special.xlogy(count, rate) for count, rate in zip((harmful, helpful, rest), rates, strict=True))
    weights = np.exp(logs)
    assert weights.sum() == pytest.approx(1.0, abs=1e-9)
    return harmful, helpful, weights


@pytest.mark.parametrize(
    ("harmful", "helpful", "n", "drop"), [(6, 16, 161, 0.02), (36, 13, 869, 0.05), (1, 7, 21, -0.3), (9, 0, 60, 0.2)]
)
def test_statistic_is_the_score_at_the_restricted_maximum(harmful: int, helpful: int, n: int, drop: float) -> None:
    """The nuisance found by a plain search of the likelihood, without Tango's formula."""

    def likelihood(helpful_rate: float) -> float:
        rest = 1 - 2 * helpful_rate - drop
        terms = [(harmful, helpful_rate + drop), (helpful, helpful_rate), (n - harmful - helpful, rest)]
        return sum(count * math.log(rate) for count, rate in terms if count)

    low, high = max(0.0, -drop) + 1e-12, (1 - drop) / 2 - 1e-12
    for _ in range(200):
        third = (high - low) / 3
        low, high = (low + third, high) if likelihood(low + third) < likelihood(high - third) else (low, high - third)
    variance = n * (2 * low + drop - drop**2)
    assert tango_statistic(*_arrays(harmful, helpful, n, drop))[0] == pytest.approx(
        (harmful - helpful - n * drop) / math.sqrt(variance), rel=1e-6
    )


@laws
@given(counts)
def test_the_interval_holds_the_estimate(case: tuple[int, int, int]) -> None:
    harmful, helpful, n = case
    low, high = paired_drop_interval(harmful, helpful, n)
    assert -1.0 <= low < (harmful - helpful) / n < high <= 1.0


@laws
@given(counts)
def test_swapping_the_runs_flips_the_interval(case: tuple[int, int, int]) -> None:
    harmful, helpful, n = case
    low, high = paired_drop_interval(harmful, helpful, n)
    assert paired_drop_interval(helpful, harmful, n) == pytest.approx((-high, -low))


@laws
@given(counts, st.floats(0.5, 0.97))
def test_more_confidence_is_wider(case: tuple[int, int, int], confidence: float) -> None:
    low, high = paired_drop_interval(*case, confidence)
    wider_low, wider_high = paired_drop_interval(*case, confidence + 0.02)
    assert wider_low < low
    assert high < wider_high


@laws
@given(counts, st.integers(2, 20))
def test_more_of_the_same_is_narrower(case: tuple[int, int, int], times: int) -> None:
    low, high = paired_drop_interval(*case)
    narrow_low, narrow_high = paired_drop_interval(*(times * count for count in case))
    assert low < narrow_low < narrow_high < high


@laws
@given(counts)
def test_a_bound_is_where_the_test_turns(case: tuple[int, int, int]) -> None:
    test = _test(*case)
    low, high = float(test.lower(0.05)[0]), float(test.upper(0.05)[0])
    assert -1.0 <= low < (case[0] - case[1]) / case[2] < high <= 1.0
    if high + 1e-6 < 1.0:
        assert test.p_below(high - 1e-6)[0] > 0.05 > test.p_below(high + 1e-6)[0]
    if low - 1e-6 > -1.0:
        assert test.p_above(low + 1e-6)[0] > 0.05 > test.p_above(low - 1e-6)[0]


@pytest.mark.parametrize(
    ("case", "interval"), [((5, 0, 5), (0.29777, 1.0)), ((0, 5, 5), (-1.0, -0.29777)), ((0, 0, 1), (-0.73013, 0.73013))]
)
def test_extremes(case: tuple[int, int, int], interval: tuple[float, float]) -> None:
    """Without any flip the bounds are z^2 / (n + z^2), z^2 = 2.70554; with all lost, (n - z^2) / (n + z^2)."""
    assert paired_drop_interval(*case) == pytest.approx(interval, abs=1e-5)


@pytest.mark.parametrize("case", [(0, 0, 0), (math.nan, 1, 5), (1, math.nan, 5), (1, 1, math.nan)])
def test_no_count_no_bounds(case: tuple[float, float, float]) -> None:
    assert all(math.isnan(bound) for bound in paired_drop_interval(*case))


@pytest.mark.parametrize("case", [(-1, 0, 5), (0, -1, 5), (3, 3, 5), (1, 2, 2)])
def test_impossible_counts_are_named(case: tuple[int, int, int]) -> None:
    named = "harmful={} and helpful={} of n={}".format(*case)
    with pytest.raises(ValueError, match=f"^{named}: expected counts of at least 0 that together do not exceed n$"):
        paired_drop_interval(*case)


@pytest.mark.parametrize("confidence", [0.0, 1.0, 90, -0.5])
def test_an_impossible_level_is_refused(confidence: float) -> None:
    with pytest.raises(ValueError, match=r"confidence is .*: expected a number between 0 and 1, such as 0\.90"):
        paired_drop_interval(1, 1, 5, confidence)


@pytest.mark.cases("level", [0.05, 0.05 / 133])
@pytest.mark.cases(("n", "drop"), [(50, 0.05), (200, 0.03), (324, 0.05), (324, -0.02)])
def test_neither_bound_errs_more_often_than_it_says(n: int, drop: float, level: float) -> None:
    """Exactly, over all outcomes, for helpful flips from never to often; Tango's bounds err 1.6 and 2.7 times as often here."""
    for helpful_share in max(0.0, -drop) + np.array([1e-9, 0.001, 0.004, 0.015, 0.05]):
        harmful, helpful, weights = _all_counts(n, helpful_share + drop + 1e-12, helpful_share)
        likely = weights > 1e-12
        test = TangoTest(harmful[likely], helpful[likely], np.full(int(likely.sum()), float(n)), math.inf)
        for p in (test.p_above(drop), test.p_below(drop)):
            assert weights[likely][p <= level].sum() <= 1.01 * level


def test_tails_err_less_often_than_tangos() -> None:
    """A true drop of 3 pp of 200 samples without helpful flips, judged too large."""
    harmful, helpful, weights = _all_counts(200, 0.03, 1e-9)
    tail = TangoTest(harmful, helpful, np.full(harmful.shape, 200.0), math.inf).p_above(0.03)
    score = tango_statistic(harmful, helpful, np.full(harmful.shape, 200.0), np.full(harmful.shape, 0.03))
    assert weights[score > critical_value(0.05)].sum() > 0.08
    assert 0.03 < weights[tail <= 0.05].sum() <= 0.05


def test_few_degrees_of_freedom_widen_by_students_tail() -> None:
    counts = np.array([12.0]), np.array([3.0]), np.array([100.0])
    few, many = TangoTest(*counts, 9.0), TangoTest(*counts, math.inf)
    assert few.lower(0.05)[0] == pytest.approx(many.lower(normal_tail(0.05, 9.0))[0])
    assert few.p_above(float(few.lower(0.05)[0]))[0] == pytest.approx(0.05, rel=1e-6)


def test_identical_copies_count_once() -> None:
    """Four copies of each sample as one cluster show as much as one copy."""
    single = np.random.default_rng(3).choice([1.0, 0.0, -1.0], size=(100, 1), p=[0.1, 0.87, 0.03])
    copies = Clusters.of([str(index) for index in range(100)] * 4, 400)
    alone, together = TangoTest.of(single, Clusters.of(None, 100)), TangoTest.of(np.tile(single, (4, 1)), copies)
    assert together.n[0] == pytest.approx(alone.n[0], rel=0.01)
    assert together.harmful[0] == pytest.approx(alone.harmful[0], rel=0.01)
    assert together.df == 99


def test_one_cluster_shows_nothing() -> None:
    test = TangoTest.of(np.ones((5, 1)), Clusters.of(["a"] * 5, 5))
    assert (test.lower(0.05)[0], test.upper(0.05)[0]) == (-1.0, 1.0)
    assert test.p_above(0.1)[0] == test.p_below(0.1)[0] == 1.0


def test_the_lower_bound_of_the_largest_shares_its_error_among_all() -> None:
    tests = [_test(20, 2, 200), _test(5, 2, 200)]
    low, high = largest_bounds(tests, 2, 0.05)
    assert low == pytest.approx(float(tests[0].lower(0.025)[0]))
    assert high == pytest.approx(float(tests[0].upper(0.05)[0]))


@laws
@given(counts, st.floats(0.3, 0.999))
def test_tangos_bounds_are_roots_of_the_published_quartic(case: tuple[int, int, int], confidence: float) -> None:
    """Z. Yang, X. Sun and J. W. Hardin, Statistics in Medicine 32 (2013) 1336-1342, as R code of A. Agresti's site has it."""
    b, c, n = case
    g = float(stats.norm.isf((1.0 - confidence) / 2.0)) ** 2
    coefficients = (
        n**2 * (n / g + 1) ** 2,
        -n * (b - c) * (n / g + 1) * (4 * n / g + 1),
        2 * n * (b - c) ** 2 * (3 * n / g + 2) / g - n**2 * ((b + c) / g + 1),
        n * (b - c) * (2 * (b + c) / g + 1) - (b - c) ** 3 * (4 * n / g + 1) / g,
        (b - c) ** 2 * ((b - c) ** 2 / g - (b + c)) / g,
    )
    roots = np.roots(coefficients)
    for bound in paired_drop_interval(b, c, n, confidence):
        assert np.abs(roots - bound).min() < 1e-6


@given(st.integers(0, 60), st.integers(0, 60), st.integers(1, 90))
@laws
def test_of_no_drop_the_statistic_is_mcnemars(harmful: int, helpful: int, rest: int) -> None:
    statistic = tango_statistic(*_arrays(harmful, helpful, harmful + helpful + rest, 0.0))[0]
    if harmful + helpful == 0:
        assert statistic == 0.0
    else:
        assert statistic**2 == pytest.approx(float(stats.chisquare([harmful, helpful]).statistic))
        assert np.sign(statistic) == np.sign(harmful - helpful)


@pytest.mark.cases(
    ("case", "statistic"),
    [
        ((0, 0, 1, 0.2), -0.5),
        ((0, 0, 4, 0.5), -2.0),
        ((0, 0, 1, -0.2), 0.5),
        ((2, 0, 2, 0.0), math.sqrt(2.0)),
        ((0, 0, 3, 0.0), 0.0),
    ],
)
def test_statistics_by_hand(case: tuple[float, ...], statistic: float) -> None:
    """Without flips the one of a share: of one sample at a drop of 0.2 it is -0.2 / sqrt(0.2 * 0.8)."""
    assert tango_statistic(*_arrays(*case))[0] == pytest.approx(statistic)


@laws
@given(counts)
def test_the_statistic_falls_in_the_drop_and_turns_with_the_models(case: tuple[int, int, int]) -> None:
    drops = np.linspace(-0.99, 0.99, 67)
    some, others, pairs = (np.full(67, float(count)) for count in case)
    statistics = tango_statistic(some, others, pairs, drops)
    assert (np.diff(statistics) < 0.0).all()
    turned = tango_statistic(others, some, pairs, -drops)
    assert turned == pytest.approx(-statistics, abs=1e-9)


@pytest.mark.parametrize("confidence", [0.1, 0.5, 0.9])
def test_tangos_bounds_are_wilsons_where_no_helpful_flip_is_likely(confidence: float) -> None:
    """The likeliest share of helpful flips is 0 from a drop of k / (2n - k) on: there all is as of one share."""
    compared = 0
    for n, harmful in product((1, 7, 40, 400), (0, 1, 2, 7, 20, 29)):
        if harmful <= n:
            wilson = stats.binomtest(harmful, n).proportion_ci(confidence, method="wilson")
            low, high = paired_drop_interval(harmful, 0, n, confidence)
            assert high == pytest.approx(wilson.high, abs=1e-9)
            if wilson.low > harmful / (2 * n - harmful):
                compared += 1
                assert low == pytest.approx(wilson.low, abs=1e-9)
    assert compared > 5 or confidence == 0.9


@laws
@given(
    st.tuples(st.integers(0, 90), st.integers(0, 90), st.integers(1, 180)),
    st.sampled_from([-0.999, -0.3, -0.02, 0.0, 0.02, 0.1, 0.4, 0.999]),
    st.floats(0.0, 1.0),
)
def test_no_share_of_helpful_flips_makes_the_counts_likelier(thirds: tuple[int, int, int], drop: float, where: float) -> None:
    """Of parts of samples, too: clusters leave effective counts."""
    case = thirds[0] / 3.0, thirds[1] / 3.0, sum(thirds) / 3.0
    share = float(likeliest_helpful(*_arrays(*case, drop))[0])
    least, most = max(0.0, -drop), (1.0 - drop) / 2.0
    assert least - 1e-9 <= share <= most + 1e-9
    other = least + where * (most - least)
    assert _likelihood(case, drop, other) <= _likelihood(case, drop, share) + 1e-7


def test_without_flips_and_with_a_drop_no_helpful_flip_is_likely() -> None:
    for n, drop in product((1.0, 3.0), (0.02, 0.1, 0.4)):
        assert likeliest_helpful(*_arrays(0, 0, n, drop))[0] == pytest.approx(0.0, abs=1e-12)


def test_tangos_bounds_without_an_end_are_the_ends() -> None:
    test = _test_of([(3, 1, 9), (0, 0, 4)])
    assert tango_lower(test.harmful, test.helpful, test.n, math.inf).tolist() == [-1.0, -1.0]
    assert tango_upper(test.harmful, test.helpful, test.n, math.inf).tolist() == [1.0, 1.0]


@pytest.mark.cases("confidence", [1e-9, 1.0 - 1e-9])
@pytest.mark.cases("case", [(0, 0, 1), (1, 0, 1), (0, 1, 1), (1, 1, 2), (3, 2, 5), (0, 7, 7), (7, 0, 7)])
def test_levels_next_to_0_and_1(case: tuple[int, int, int], confidence: float) -> None:
    """No confidence: the estimate; all of it: everything that can be."""
    low, high = paired_drop_interval(*case, confidence)
    mean = (case[0] - case[1]) / case[2]
    assert -1.0 <= low <= mean <= high <= 1.0
    assert high - low == pytest.approx(0.0, abs=1e-7) if confidence < 0.5 else high - low > 1.5 / math.sqrt(case[2])


def test_the_usual_level_is_90_percent() -> None:
    assert paired_drop_interval(6, 2, 40) == paired_drop_interval(6, 2, 40, 0.9)


# Tests of the drops of many settings.


def _differences(cases: list[tuple[int, int, int]]) -> Array:
    return np.array([[1.0] * harmful + [-1.0] * helpful + [0.0] * (n - harmful - helpful) for harmful, helpful, n in cases]).T


def test_counts_of_samples_that_stand_alone() -> None:
    cases = [(3, 2, 9), (0, 0, 9), (9, 0, 9), (0, 1, 9)]
    test = TangoTest.of(_differences(cases), Clusters.of(None, 9))
    assert list(zip(test.harmful.tolist(), test.helpful.tolist(), test.n.tolist(), strict=True)) == cases
    assert test.df == math.inf


def test_the_order_of_samples_and_settings_does_not_matter() -> None:
    rng = np.random.default_rng(5)
    scores, names = rng.choice([-1.0, 0.0, 1.0], size=(60, 4), p=[0.1, 0.6, 0.3]), [str(name) for name in rng.integers(0, 20, 60)]
    rows, columns = rng.permutation(60), rng.permutation(4)
    test = TangoTest.of(scores, Clusters.of(names, 60))
    other = TangoTest.of(scores[rows][:, columns], Clusters.of([names[row] for row in rows], 60))
    assert other.lower(0.05) == pytest.approx(test.lower(0.05)[columns])
    assert other.p_below(0.1) == pytest.approx(test.p_below(0.1)[columns])
    assert other.df == test.df


@pytest.mark.parametrize("far", [-1.0, 1.0])
def test_effective_counts_are_those_with_one_more_cluster_at_the_far_end(far: float) -> None:
    """Their variance by leaving out clusters one by one; where losses prevail, the far end is that all is gained."""
    rng = np.random.default_rng(8)
    values = -far * rng.choice([1.0, 0.0, -1.0], size=(100, 1), p=[0.3, 0.65, 0.05]).repeat(4, axis=1)
    values[:, 3] = -far * rng.choice([1.0, 0.0], size=100)
    test = TangoTest.of(values.reshape(-1, 1), Clusters.of([str(index // 4) for index in range(400)], 400))
    grown = np.vstack([values, np.full((1, 4), far)])
    without = np.array([np.delete(grown, cluster, axis=0).mean() for cluster in range(101)])
    effect = 100.0 / 101.0 * float(((without - without.mean()) ** 2).sum()) / (float(grown.var()) / (grown.size - 1))
    assert test.n[0] == pytest.approx(400.0 / effect, rel=0.002)
    assert test.harmful[0] == pytest.approx(float((values > 0.0).sum()) / effect, rel=0.002)
    assert test.helpful[0] == pytest.approx(float((values < 0.0).sum()) / effect, rel=0.002)


def test_joined_tests_keep_their_order_and_the_fewest_degrees_of_freedom() -> None:
    joined = TangoTest.join([_test_of([(5, 2, 40), (1, 0, 40)], 30.0), _test_of([(9, 3, 70)], 12.0)])
    assert joined.harmful.tolist() == [5.0, 1.0, 9.0]
    assert joined.helpful.tolist() == [2.0, 0.0, 3.0]
    assert joined.n.tolist() == [40.0, 40.0, 70.0]
    assert joined.df == 12.0


def test_no_drop_that_was_not_seen_has_a_lower_bound_above_0() -> None:
    cases = _every_count(9)
    test = _test_of(cases)
    seen = test.seen()
    assert list(zip(seen.harmful.tolist(), seen.helpful.tolist(), strict=True)) == [
        case[:2] for case in cases if case[0] > case[1]
    ]
    assert seen.n.tolist() == [9.0] * len(seen.n)
    assert seen.df == test.df
    shown = test.lower(0.49) > 0.0
    assert shown.any()
    assert all(case[0] > case[1] for case, above in zip(cases, shown, strict=True) if above)


def test_both_bounds_at_once_are_each_of_them() -> None:
    test = _test_of([(5, 1, 40), (0, 0, 6), (2.5, 7.5, 60)], 14.0)
    low, high = test.both(0.03)
    assert low.tolist() == test.lower(0.03).tolist()
    assert high.tolist() == test.upper(0.03).tolist()
    assert (low < high).all()


def _flipped(harmful: int, helpful: int, n: int) -> tuple[Array, Array]:
    """Returns clean scores and perturbed ones, shape (n, 1), with such flips."""
    clean = np.array([1.0] * harmful + [0.0] * helpful + [1.0] * (n - harmful - helpful))
    return clean, np.array([0.0] * harmful + [1.0] * helpful + [1.0] * (n - harmful - helpful))[:, None]


def test_right_and_wrong_answers_are_counted() -> None:
    """A drop is what is lost from clean to perturbed."""
    clean, perturbed = _flipped(7, 2, 50)
    test = drop_test(clean, np.hstack([perturbed, clean[:, None]]), Clusters.of(None, 50))
    assert isinstance(test, TangoTest)
    assert list(zip(test.harmful.tolist(), test.helpful.tolist(), test.n.tolist(), strict=True)) == [(7, 2, 50), (0, 0, 50)]
    assert drop_interval(clean, perturbed[:, 0], Clusters.of(None, 50), 0.9) == interval_of(_test(7, 2, 50), 0.9)


def _t_bound(values: Array, extra: float, sign: float) -> float:
    """Returns the one-sided 95 % bound of a t test of the values and a further one, with as many degrees of freedom as before."""
    grown = np.append(values, extra)
    return float(grown.mean() + sign * stats.t.isf(0.05, len(values) - 1) * stats.sem(grown))


def test_graded_losses_have_students_bound_above_with_one_more_sample_and_below_one_that_always_holds() -> None:
    """The further sample loses all above; below it gains all, with random weights."""
    rng = np.random.default_rng(4)
    before, alone = rng.random(80), Clusters.of(None, 80)
    for gain in (0.1, 0.6):
        losses = np.append(rng.random(79) * 0.4, -gain)
        after = before - losses
        test = drop_test(before, after[:, None], alone)
        assert isinstance(test, BoundedMeanTest)
        low, high = drop_interval(before, after, alone, 0.9)
        assert high == pytest.approx(_t_bound(losses, 1.0, 1.0))
        assert low == pytest.approx(DirichletMeans.of(losses[:, None], alone, -1.0, 1.0).quantile(0.05)[0])
        assert type(low) is type(high) is float


def test_a_share_has_clopper_and_pearsons_interval_and_another_mean_students() -> None:
    right = np.array([1.0] * 37 + [0.0] * 3)
    expected = stats.binomtest(37, 40).proportion_ci(0.9, method="exact")
    assert mean_interval(right, Clusters.of(None, 40), 0.9) == pytest.approx((expected.low, expected.high))
    graded = np.random.default_rng(6).random(40)
    low, high = mean_interval(graded, Clusters.of(None, 40), 0.9)
    assert (low, high) == pytest.approx((_t_bound(graded, 0.0, -1.0), _t_bound(graded, 1.0, 1.0)))


def test_the_interval_of_a_test_is_that_of_its_first_value() -> None:
    test = _test_of([(8, 1, 60), (30, 0, 60)])
    assert interval_of(test, 0.8) == (float(test.lower(0.1)[0]), float(test.upper(0.1)[0]))
    means = BoundedMeanTest.of(np.random.default_rng(7).random((30, 2)), Clusters.of(None, 30), 0.0, 1.0)
    assert interval_of(means, 0.8) == (float(means.lower(0.1)[0]), float(means.upper(0.1)[0]))
    with pytest.raises(ValueError, match=r"confidence is 1\.0: expected a number between 0 and 1"):
        interval_of(test, 1.0)


def test_the_largest_drop_is_bounded_over_all_settings_of_all_tests() -> None:
    flips, means = (
        _test_of([(1, 1, 90), (12, 1, 90)]),
        BoundedMeanTest.of(_differences([(9, 0, 90)]) / 2.0, Clusters.of(None, 90), -1.0, 1.0),
    )
    low, high = largest_bounds([flips, means], 3, 0.06)
    assert (low, high) == (float(flips.lower(0.02)[1]), float(flips.upper(0.06)[1]))
    assert largest_bounds([means, flips], 3, 0.06) == (low, high)
    assert largest_bounds([means], 1, 0.06) == (float(means.lower(0.06)[0]), float(means.upper(0.06)[0]))


@pytest.mark.parametrize("drops", [(0.0, 0.0), (0.1, 0.1), (0.05, 0.3)])
def test_bounds_of_the_largest_of_two_drops_miss_no_more_often_than_they_say(drops: tuple[float, float]) -> None:
    """Every pair of outcomes of two settings with twelve samples each, which know nothing of each other."""
    cases, level = _every_count(12), 0.1
    low, high = _test_of(cases).lower(level / 2), _test_of(cases).upper(level)
    chances = [_chances(cases, drop + 0.05, 0.05) for drop in drops]
    weights = chances[0][:, None] * chances[1]
    assert weights[np.maximum(low[:, None], low) > max(drops) + 1e-9].sum() <= level
    assert weights[np.maximum(high[:, None], high) < max(drops) - 1e-9].sum() <= level


def _two(first: int, of: int, second: int, total: int) -> GroupMeans:
    scores = np.concatenate([np.arange(of) < first, np.arange(total) < second]).astype(float)
    return GroupMeans.of(scores, ["a"] * of + ["b"] * total, Clusters.of(None, of + total))


def test_limits_of_independent_groups_are_combined() -> None:
    """By integration over one limit: the other is beyond the difference with the tail of a beta distribution."""
    lower, upper = _two(56, 70, 48, 80).differences(0.95)
    chances = (np.arange(4000) + 0.5) / 4000
    high, low = stats.beta.ppf(chances, 57, 14), stats.beta.ppf(chances, 56, 15)
    assert stats.beta.cdf(high - float(upper[0, 1]), 48, 33).mean() == pytest.approx(0.025, rel=0.01)
    assert stats.beta.sf(low - float(lower[0, 1]), 49, 32).mean() == pytest.approx(0.025, rel=0.01)
    lower, upper = _two(10, 10, 0, 10).differences(0.90)
    assert float(upper[0, 1]) == pytest.approx(1.0)


def test_a_group_without_a_mistake_leaves_the_limit_of_the_other() -> None:
    _, upper = _two(25, 25, 22, 25).differences(0.90)
    assert float(upper[0, 1]) == pytest.approx(1.0 - exact_interval(22, 25, 0.90)[0], abs=2e-4)


SHARES = np.unique(np.concatenate([np.linspace(0.0, 0.1, 11), np.linspace(0.1, 0.9, 9), np.linspace(0.9, 1.0, 11)]))


@pytest.mark.study
@pytest.mark.parametrize("sizes", [(8, 8), (25, 25), (10, 40)])
def test_gaps_err_as_rarely_as_declared(sizes: tuple[int, int]) -> None:
    """Exact, over all outcomes and a grid of 961 truths: with Wilson's limits the upper end erred in up to 20 %."""
    ends = np.array(
        [[largest_gap_interval(_two(a, sizes[0], b, sizes[1]), 0.90) for b in range(sizes[1] + 1)] for a in range(sizes[0] + 1)]
    )
    first, second = (stats.binom.pmf(np.arange(n + 1), n, SHARES[:, None]) for n in sizes)
    gaps = np.abs(SHARES[:, None] - SHARES)
    for missed in (
        ends[None, None, ..., 1] < gaps[..., None, None] - 1e-9,
        ends[None, None, ..., 0] > gaps[..., None, None] + 1e-9,
    ):
        assert np.einsum("ia,jb,ijab->ij", first, second, missed).max() <= 0.05


@pytest.mark.study
@pytest.mark.parametrize("n", [25, 100, 200])
def test_gaps_hold_where_one_group_makes_no_mistake(n: int) -> None:
    """Exact, at means of 1.0 and 0.9: .072, .058 and .057 with Wilson's limits."""
    chances = stats.binom.pmf(np.arange(n + 1), n, 0.9)
    high = np.array([largest_gap_interval(_two(n, n, right, n), 0.90)[1] for right in range(n + 1)])
    assert chances[high < 0.1 - 1e-9].sum() <= 0.05


@pytest.mark.study
def test_gaps_of_graded_scores_hold() -> None:
    """Of 60 overlaps of 0.9 in each group, 4 in 100 of one group are lost: a world in which few of them are seen."""
    rng, truth = np.random.default_rng(4), 0.9 * 0.04
    highs = []
    for _ in range(100):
        scores = np.append(np.full(60, 0.9), np.where(rng.random(60) < 0.04, 0.0, 0.9))
        highs.append(largest_gap_interval(GroupMeans.of(scores, ["a"] * 60 + ["b"] * 60, Clusters.of(None, 120)), 0.90)[1])
    assert np.mean(np.array(highs) < truth) < 0.05 + 3.0 * math.sqrt(0.05 * 0.95 / 100)


def test_positions_of_one_image_move_together() -> None:
    """Each image is shown at both places and is easy or hard: the difference is known better than from independent ones."""
    rng = np.random.default_rng(2)
    easy = np.repeat(rng.random(200) < 0.5, 2)
    scores = np.where(rng.random(400) < 0.9, easy, ~easy).astype(float)
    labels, images = ["left", "right"] * 200, [str(index // 2) for index in range(400)]
    together = GroupMeans.of(scores, labels, Clusters.of(images, 400))
    apart = GroupMeans.of(scores, labels, Clusters.of(None, 400))
    assert together.correlation[0, 1] > 0.5
    assert apart.correlation[0, 1] == pytest.approx(0.0)
    widths = [float((upper - lower)[0, 1]) for lower, upper in (together.differences(0.9), apart.differences(0.9))]
    assert widths[0] < 0.75 * widths[1]


def test_a_correlation_known_from_few_images_widens_the_difference() -> None:
    scores, labels = np.tile([1.0, 1.0, 1.0, 0.0, 0.0, 1.0], 5), ["left", "right"] * 15
    together = GroupMeans.of(scores, labels, Clusters.of([str(index // 2) for index in range(30)], 30))
    apart = GroupMeans.of(scores, labels, Clusters.of(None, 30))
    assert (together.df, apart.df) == (14, math.inf)
    assert together.limits(0.9).tolist() == apart.limits(0.9).tolist(), "each mean on its own is known as well"
    normal = dataclasses.replace(together, df=math.inf)
    for student, plain in zip(together.differences(0.9), normal.differences(0.9), strict=True):
        assert abs(float(student[0, 1])) > abs(float(plain[0, 1]))


def test_clusters_within_a_group_are_counted_anew() -> None:
    within = Clusters.of(["a", "b", "b", "c"], 4).within(np.array([1, 2, 3]))
    assert (within.codes.tolist(), within.count) == ([0, 0, 1], 2)


def test_graded_scores_have_limits_within_the_scale() -> None:
    groups = GroupMeans.of(np.array([0.9, 1.0, 0.1, 0.0, 0.5]), list("aabbc"), Clusters.of(None, 5))
    assert groups.limits(0.99).min() == 0.0
    assert groups.limits(0.99).max() == 1.0


def test_the_largest_gap_is_bounded_over_all_pairs() -> None:
    scores = np.concatenate([np.arange(100) < right for right in (90, 60, 88)]).astype(float)
    groups = GroupMeans.of(scores, ["a"] * 100 + ["b"] * 100 + ["c"] * 100, Clusters.of(None, 300))
    low, high = largest_gap_interval(groups, 0.90)
    lower, upper = groups.differences(0.90)
    assert high == pytest.approx(float(upper[0, 1]))
    assert 0.0 < low < float(lower[0, 1]) < 0.3 < high


def test_alike_groups_may_have_no_gap() -> None:
    low, high = largest_gap_interval(_two(20, 20, 20, 20), 0.90)
    assert low == 0.0
    assert 0.05 < high < 0.25


def test_one_cluster_shows_nothing_of_a_gap() -> None:
    groups = GroupMeans.of(np.array([1.0, 1.0, 0.0, 0.0]), list("aabb"), Clusters.of(["one"] * 4, 4))
    assert largest_gap_interval(groups, 0.90) == (0.0, 1.0)
