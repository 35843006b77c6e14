from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import special, stats

from pytest_vlmrobust.metrics import paired_drop_interval
from pytest_vlmrobust.metrics.statistics.clusters import Clusters, critical_value, normal_tail, upper_tail
from pytest_vlmrobust.metrics.statistics.paired import TangoTest, excess_tail, largest_bounds, tango_statistic

Rows = list[dict[str, str]]
Array = NDArray[np.float64]

counts = st.tuples(st.integers(0, 40), st.integers(0, 40), st.integers(1, 200)).map(lambda c: (c[0], c[1], c[0] + c[1] + c[2]))
laws = settings(deadline=None, derandomize=True, database=None, max_examples=30)


def _one(*values: float) -> list[Array]:
    return [np.array([float(value)]) for value in values]


def _test(harmful: float, helpful: float, n: float) -> TangoTest:
    return TangoTest(np.array([harmful]), np.array([helpful]), np.array([n]), math.inf)


def _sums(n: int, harmful_share: float, helpful_share: float) -> Array:
    """Returns how often harmful minus helpful flips are k or more, k from -n to n, sample by sample."""
    one, sums = np.array([helpful_share, 1.0 - harmful_share - helpful_share, harmful_share]), np.ones(1)
    for _ in range(n):
        sums = np.convolve(sums, one)
    tails: Array = sums[::-1].cumsum()[::-1]
    return tails


def _tails(excess: Array, n: float, harmful_share: float, helpful_share: float) -> Array:
    return excess_tail(excess, *(np.full(excess.shape, value) for value in (float(n), harmful_share, helpful_share)))


def test_golden_intervals(golden: Callable[[str], Rows]) -> None:
    for row in golden("tango"):
        interval = paired_drop_interval(int(row["harmful"]), int(row["helpful"]), int(row["n"]), float(row["confidence"]))
        digits = len(row["low"].partition(".")[2])
        assert interval == pytest.approx((float(row["low"]), float(row["high"])), abs=0.6 * 10.0**-digits), row
        assert type(interval[0]) is type(interval[1]) is float


def test_golden_p_values(golden: Callable[[str], Rows]) -> None:
    for row in golden("tango_p_values"):
        statistic = tango_statistic(*_one(*(float(row[name]) for name in ("harmful", "helpful", "n", "bound"))))
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
    assert tango_statistic(*_one(harmful, helpful, n, drop))[0] == pytest.approx(
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


def test_no_samples_no_bounds() -> None:
    assert all(math.isnan(bound) for bound in paired_drop_interval(0, 0, 0))
    assert all(math.isnan(bound) for bound in paired_drop_interval(math.nan, 0, 5))


@pytest.mark.parametrize("case", [(-1, 0, 5), (0, -1, 5), (3, 3, 5)])
def test_impossible_counts_are_refused(case: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="expected counts of at least 0 that together do not exceed n"):
        paired_drop_interval(*case)


@pytest.mark.parametrize("confidence", [0.0, 1.0, 90, -0.5])
def test_an_impossible_level_is_refused(confidence: float) -> None:
    with pytest.raises(ValueError, match=r"confidence is .*: expected a number between 0 and 1, such as 0\.90"):
        paired_drop_interval(1, 1, 5, confidence)


def test_a_sweep_is_bounded_setting_by_setting() -> None:
    harmful, helpful, n = np.arange(133.0), np.full(133, 9.0), np.full(133, 869.0)
    sweep = TangoTest(harmful, helpful, n, math.inf)
    for one in (0, 60, 132):
        alone = TangoTest(harmful[[one]], helpful[[one]], n[[one]], math.inf)
        assert sweep.lower(0.05)[one] == pytest.approx(alone.lower(0.05)[0], abs=1e-12)
        assert sweep.upper(0.05)[one] == pytest.approx(alone.upper(0.05)[0], abs=1e-12)
    assert (sweep.lower(0.05) < sweep.upper(0.05)).all()


@pytest.mark.parametrize("helpful_share", [0.0, 0.001, 0.015, 0.1])
@pytest.mark.parametrize("n", [8, 40, 324])
def test_the_tail_of_flips_is_the_sum_over_all_outcomes(n: int, helpful_share: float) -> None:
    """Where the rarer flip is expected less than once, the sum itself, else a formula."""
    for harmful_share in (0.001, 0.02, 0.3):
        harmful, helpful, weights = _all_counts(n, harmful_share, helpful_share)
        excess = np.arange(-3.0, 9.0)
        sums = np.array([weights[harmful - helpful >= one].sum() for one in excess])
        found = excess_tail(excess, *(np.full(12, value) for value in (float(n), harmful_share, helpful_share)))
        seen = sums > 1e-9
        assert found[seen] == pytest.approx(sums[seen], rel=0.09 if n == 8 else 0.04)


@pytest.mark.parametrize("level", [0.05, 0.05 / 133])
@pytest.mark.parametrize(("n", "drop"), [(50, 0.05), (200, 0.03), (324, 0.05), (324, -0.02)])
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


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_the_tail_of_a_handful_of_samples_is_the_sum_over_all_of_them(n: int) -> None:
    """Where every sample may flip in the rarer way too."""
    up, down = 0.15, 0.5 / n
    for excess in range(-n, n + 1):
        expected = sum(
            math.factorial(n)
            / (math.factorial(a) * math.factorial(b) * math.factorial(n - a - b))
            * up**a
            * down**b
            * (1 - up - down) ** (n - a - b)
            for a in range(n + 1)
            for b in range(n + 1 - a)
            if a - b >= excess
        )
        assert excess_tail(*_one(excess, n, up, down))[0] == pytest.approx(expected, abs=1e-9)


def test_the_lower_bound_of_the_largest_shares_its_error_among_all() -> None:
    tests = [_test(20, 2, 200), _test(5, 2, 200)]
    low, high = largest_bounds(tests, 2, 0.05)
    assert low == pytest.approx(float(tests[0].lower(0.025)[0]))
    assert high == pytest.approx(float(tests[0].upper(0.05)[0]))


@pytest.mark.parametrize("shares", [(0.1, 0.05), (0.05, 0.1), (0.1, 0.1), (0.02, 0.01), (0.3, 0.6)])
def test_the_middle_of_a_tail_is_the_sum(shares: tuple[float, float]) -> None:
    """Where the excess is what was expected the formula itself divides 0 by 0."""
    n, mean = 600, 600 * (shares[0] - shares[1])
    assert _tails(np.array([mean]), n, *shares)[0] == pytest.approx(_sums(n, *shares)[n + round(mean)], abs=0.0005)


@pytest.mark.parametrize("n", [600, 10_000, 1_000_000, 100_000_000])
def test_a_tail_is_one_half_around_the_middle_however_many_samples_there_are(n: int) -> None:
    """Rounding made it anything from 0 to 1 a thousandth of a standard deviation off the mean of 100,000 samples."""
    for up, down in ((0.1, 0.05), (0.3, 0.3), (0.02, 0.9)):
        deviations = np.sort(np.concatenate([sign * np.geomspace(1e-6, 1e-2, 200) for sign in (-1.0, 1.0)]))
        spread = math.sqrt(n * (up + down - (up - down) ** 2))
        found = _tails(n * (up - down) + deviations * spread, n, up, down)
        assert (np.diff(found) <= 2e-4).all()
        assert found == pytest.approx(np.full(400, 0.5), abs=0.01 + 0.3 / spread)
        ends = stats.norm.sf(deviations[[0, -1]])
        assert found[0] - found[-1] == pytest.approx(float(ends[0] - ends[1]), rel=0.05)


@pytest.mark.parametrize("drop", [-0.2, 0.0, 0.05, 0.4])
@pytest.mark.parametrize("n", [5, 10, 101])
def test_where_every_sample_flips_the_harmful_ones_are_binomial(n: int, drop: float) -> None:
    """Every flip more changes the excess by two; of no drop this is the sign test."""
    for harmful in range(n + 1):
        test, share = _test(harmful, n - harmful, n), (1.0 + drop) / 2.0
        assert test.p_above(drop)[0] == pytest.approx(float(stats.binomtest(harmful, n, share, "greater").pvalue), abs=1e-9)
        assert test.p_below(drop)[0] == pytest.approx(float(stats.binomtest(harmful, n, share, "less").pvalue), abs=1e-9)
