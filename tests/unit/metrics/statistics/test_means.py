"""One more sample that argues against each bound: means of rare losses are not passed by what has not been seen yet."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from pytest_vlmrobust.metrics import ScoreTable, estimate
from pytest_vlmrobust.metrics.statistics.clusters import Clusters, critical_value, upper_tail
from pytest_vlmrobust.metrics.statistics.means import (
    BoundedMeanTest,
    MeanTest,
    exact_interval,
    is_binary,
    judged_proportion_interval,
    proportion_interval,
    wilson_interval,
)
from pytest_vlmrobust.metrics.statistics.paired import tango_upper

TAILS = (0.2, 0.05, 0.01, 0.0005)


def bounds(values: np.ndarray, clusters: Clusters | None = None, tail: float = 0.05) -> tuple[float, float]:
    test = BoundedMeanTest.of(values[:, None], clusters or Clusters.of(None, len(values)), -1.0, 1.0)
    return float(test.lower(tail)[0]), float(test.upper(tail)[0])


def losses(count: int, n: int) -> np.ndarray:
    return (np.arange(n) < count).astype(float)


@pytest.mark.parametrize("size", [1, 4])
def test_the_guard_is_one_more_cluster(size: int) -> None:
    """With clusters of one size it is what a t test of the values with one more cluster gives, but for its degrees of freedom."""
    values = np.random.default_rng(0).random(40 * size) - 0.3
    clusters = Clusters.of([str(index // size) for index in range(40 * size)], 40 * size)
    for sign in (-1.0, 1.0):
        grown = Clusters.of([str(index // size) for index in range(41 * size)], 41 * size)
        plain = MeanTest.of(np.append(values, [sign] * size)[:, None], grown)
        expected = plain.means[0] + sign * critical_value(0.05, 39) * plain.errors[0]
        assert bounds(values, clusters)[sign > 0] == pytest.approx(expected)


def test_nothing_lost_shows_as_much_as_in_tangos_test() -> None:
    for n in (100, 200, 869):
        tango = float(tango_upper(np.zeros(1), np.zeros(1), np.array([float(n)]), critical_value(0.05))[0])
        assert bounds(np.zeros(n))[1] == pytest.approx(tango, rel=0.03)


@pytest.mark.parametrize("name", ["drop_increase", "mean_drop"])
def test_nothing_lost_passes_a_bound_of_half_a_point_at_869_samples(name: str) -> None:
    clean = np.ones(869)
    table = ScoreTable(clean, {"fog:low": clean}, baseline_by_setting={"clean": clean, "fog:low": clean})
    assert estimate(name, table, "fog:low" if name == "drop_increase" else None).high < 0.005


@pytest.mark.cases("tail", TAILS)
@pytest.mark.cases("n", [10, 40, 200])
def test_every_further_loss_raises_the_upper_bound(n: int, tail: float) -> None:
    ends = [bounds(losses(count, n), tail=tail) for count in range(n // 2)]
    assert (np.diff(np.array(ends)[:, 1]) > 0.0).all()


def flips(helpful: int, harmful: int, n: int) -> np.ndarray:
    return np.sort(np.append(np.repeat([-1.0, 1.0], [helpful, harmful]), np.zeros(n - helpful - harmful)))


@pytest.mark.parametrize("n", [5, 10, 20])
def test_a_further_loss_never_lowers_the_upper_bound_whatever_the_others_are(n: int) -> None:
    """One that gained before and does not now as well, but where nearly all others are lost, or there are hardly any."""
    cases = [(helpful, harmful) for helpful in range(n + 1) for harmful in range(n + 1 - helpful)]
    high = {case: min(bounds(flips(*case, n))[1], 1.0) for case in cases}
    for helpful, harmful in cases:
        if helpful + harmful < n:
            assert high[helpful, harmful + 1] >= high[helpful, harmful]
        if helpful and n > 5 and high[helpful, harmful] < 0.8:
            assert high[helpful - 1, harmful] > high[helpful, harmful]


def test_a_small_loss_moves_the_bounds_a_little() -> None:
    for loss in (0.0, 0.3, 1.0):
        near, far = (bounds(np.append(np.zeros(99), value)) for value in (loss, loss + 1e-9))
        assert far == pytest.approx(near, abs=1e-9)


def test_copies_count_once() -> None:
    values = np.random.default_rng(2).random(60) * losses(6, 60)
    clusters = Clusters.of([str(index // 5) for index in range(300)], 300)
    assert bounds(np.repeat(values, 5), clusters) == pytest.approx(bounds(values))


def test_the_order_of_samples_does_not_matter() -> None:
    rng = np.random.default_rng(3)
    values, names = rng.random(30), [str(name) for name in rng.integers(0, 12, 30)]
    order = rng.permutation(30)
    turned = bounds(values[order], Clusters.of([names[index] for index in order], 30))
    assert turned == pytest.approx(bounds(values, Clusters.of(names, 30)))


def test_intervals_contain_the_mean_and_one_another() -> None:
    for values in (losses(1, 30), np.ones(30), -np.ones(30), np.random.default_rng(4).random(30), 2.0 * losses(29, 30)):
        ends = np.array([bounds(values, tail=tail) for tail in (0.45, *TAILS)])
        assert (ends[:, 0] <= values.mean()).all()
        assert (ends[:, 1] >= values.mean()).all()
        assert (np.diff(ends[:, 0]) <= 0.0).all()
        assert (np.diff(ends[:, 1]) >= 0.0).all()


def test_columns_are_tested_one_by_one_and_p_values_fit_the_bounds() -> None:
    values = np.stack([losses(count, 50) for count in (0, 1, 20, 50)], axis=1)
    test = BoundedMeanTest.of(values, Clusters.of(None, 50), -1.0, 1.0)
    for column in range(4):
        low, high = bounds(values[:, column])
        assert (test.lower(0.05)[column], test.upper(0.05)[column]) == (pytest.approx(low), pytest.approx(high))
        assert test.p_above(low)[column] == pytest.approx(0.05)
    assert test.p_below(float(test.upper(0.05)[1]))[1] == pytest.approx(0.05)
    assert test.p_below(0.5)[3] == 1.0  # all have lost everything


def test_one_cluster_shows_nothing() -> None:
    test = BoundedMeanTest.of(np.array([[0.0], [1.0]]), Clusters.of(["a", "a"], 2), -1.0, 1.0)
    assert (test.lower(0.05)[0], test.upper(0.05)[0]) == (-math.inf, math.inf)
    assert test.p_above(0.0)[0] == test.p_below(0.0)[0] == 1.0


@pytest.mark.parametrize("n", [40, 100, 200, 869])
def test_upper_bounds_of_rare_losses_err_seldom(n: int) -> None:
    """Exactly, over all truths up to 15 %: losses of 1 and of 0.9 are missed in at most 7.5 % of runs, by plain t in 15 %."""
    counts, truths = np.arange(n // 2), np.linspace(0.5 / n, 0.15, 400)
    probabilities = stats.binom.pmf(counts[:, None], n, truths)
    for size in (1.0, 0.9):
        uppers = np.array([bounds(size * losses(count, n))[1] for count in range(n // 2)])
        missed = (probabilities * (uppers[:, None] < size * truths)).sum(axis=0)
        assert missed.max() < 0.075
    plain = MeanTest.of(np.stack([losses(count, n) for count in range(n // 2)], axis=1), Clusters.of(None, n)).upper(0.05)
    assert (probabilities * (plain[:, None] < truths)).sum(axis=0).max() > 0.15


@pytest.mark.parametrize("n", [40, 100, 200])
def test_what_most_samples_lose_a_little_of_does_not_hide_the_few_that_lose_all(n: int) -> None:
    """One in 32 loses all of ten settings, the others each with 1 %: without a fragile one the variance knows nothing of them."""
    rng = np.random.default_rng(6)
    lost = np.where(rng.random((n, 3000)) < 1 / 32, 1.0, rng.binomial(10, 0.01, (n, 3000)) / 10)
    truth, alone = 1 / 32 + 0.01 * 31 / 32, Clusters.of(None, n)
    assert (BoundedMeanTest.of(lost, alone, -1.0, 1.0).upper(0.05) < truth).mean() < 0.065
    assert (MeanTest.of(lost, alone).upper(0.05) < truth).mean() > 0.1


def test_clustered_losses_err_seldom() -> None:
    """50 images of which 10 % lose all of their 4 questions."""
    rng = np.random.default_rng(5)
    clusters = Clusters.of([str(index // 4) for index in range(200)], 200)
    lost = np.repeat(rng.random((50, 2000)) < 0.1, 4, axis=0).astype(float)
    assert (BoundedMeanTest.of(lost, clusters, -1.0, 1.0).upper(0.05) < 0.1).mean() < 0.075


def test_a_lower_bound_of_losses_expects_a_sample_that_gains_everything() -> None:
    """By hand, of nine samples that lose the same: a further one gains all and has a weight of 1 - 0.05^(1/9) at the most."""
    test = BoundedMeanTest.of_losses(np.full((9, 1), 0.1), Clusters.of(None, 9))
    assert test.lower(0.05)[0] == pytest.approx(0.1 - 1.1 * (1.0 - 0.05 ** (1 / 9)), abs=1e-8)
    assert test.upper(0.05)[0] == pytest.approx(bounds(np.full(9, 0.1))[1])
    weak = BoundedMeanTest.of_losses(np.full((9, 1), 0.1), Clusters.of(None, 9), most=0.5)
    assert weak.lower(0.05)[0] == pytest.approx(0.1 - 0.6 * (1.0 - 0.05 ** (1 / 9)), abs=1e-8)


@pytest.mark.parametrize("tail", [0.2, 0.05, 0.05 / 133])
def test_lower_bounds_of_losses_of_all_or_nothing_are_clopper_and_pearsons(tail: float) -> None:
    n = 60
    test = BoundedMeanTest.of_losses(
        2.0 * np.stack([losses(count, n) for count in range(1, n)], axis=1) - 1.0, Clusters.of(None, n)
    )
    exact = stats.beta.ppf(tail, np.arange(1, n), n - np.arange(1, n) + 1.0)
    assert (test.lower(tail) + 1.0) / 2.0 == pytest.approx(exact, abs=1e-7)


def evenly_lost(rng: np.random.Generator, n: int, runs: int) -> np.ndarray:
    """Returns losses of 1.2 pp on average over 133 settings, with a standard deviation of 2.4 pp, shape (n, runs)."""
    return rng.binomial(133, rng.beta(0.012 * 23.5, 0.988 * 23.5, (n, runs))) / 133


@pytest.mark.study
def test_a_small_even_regression_takes_many_samples() -> None:
    """853 samples show that 1.2 pp are more than 0.5 pp, and no 853 that they are more than 1 pp: one in 2,000 might gain all."""
    lost, alone = evenly_lost(np.random.default_rng(8), 853, 400), Clusters.of(None, 853)
    lowers = BoundedMeanTest.of_losses(lost, alone).lower(0.05)
    assert (lowers > 0.005).mean() > 0.9
    assert (lowers > 0.01).mean() < 0.05


@pytest.mark.study
@pytest.mark.parametrize("n", [260, 853])
def test_lower_bounds_of_losses_err_seldom(n: int) -> None:
    """Losses spread over samples; and those with samples, 3 in 100, that gain a part of what they could."""
    rng, alone = np.random.default_rng(9), Clusters.of(None, n)
    even = evenly_lost(rng, n, 600)
    assert (BoundedMeanTest.of_losses(even, alone).lower(0.05) > 0.012).mean() < 0.07
    mixed = np.where(rng.random(even.shape) < 0.03, -rng.beta(0.5, 1.5, even.shape), even)
    truth = 0.97 * 0.012 - 0.03 * 0.25
    assert (BoundedMeanTest.of_losses(mixed, alone).lower(0.05) > truth).mean() < 0.08


def test_nothing_lost_cannot_show_less_than_chance_allows() -> None:
    """If 1 % of all samples lose everything, 260 samples show none of them in 7 % of runs: no PASS at 1 pp can be right."""
    assert 0.99**260 > 0.07
    assert bounds(np.zeros(260))[1] > 0.01
    assert bounds(np.zeros(320))[1] < 0.01


RUNS = 300


def rarely_lost(rng: np.random.Generator, settings: int) -> np.ndarray:
    """Returns whether each of 100 samples is lost: 1 % under all settings, the others each with 0.5 %; shape (100, settings)."""
    lost: np.ndarray = (rng.random((100, 1)) < 0.01) | (rng.random((100, settings)) < 0.005)
    return lost


@pytest.mark.study
@pytest.mark.parametrize(
    ("name", "side"),
    [
        ("mean_drop", "high"),
        ("mean_relative_corruption_error", "high"),
        ("mean_corruption_error", "high"),
        ("resolution_accuracy", "low"),
        ("split_transfer_retention", "low"),
    ],
)
def test_rare_losses_are_seldom_passed(name: str, side: str) -> None:
    """The end on which a PASS rests; those of plain Student's t and of Fieller's ratio err in over 25 % of these runs."""
    rng, lost = np.random.default_rng(10), 0.01 + 0.99 * 0.005
    settings = [f"resolution:{100 + index}" if name == "resolution_accuracy" else f"kind{index}" for index in range(12)]
    truth = {"mean_drop": lost, "mean_relative_corruption_error": 2.0 * lost, "mean_corruption_error": 2.0 * lost}
    wrong = 0
    for _ in range(RUNS):
        now = 1.0 - rarely_lost(rng, 12)
        blind = (rng.random((100, 12)) < 0.5).astype(float)
        table = ScoreTable(
            np.ones(100),
            dict(zip(settings, now.T, strict=True)),
            no_image=blind[:, 0],
            reference_by_setting=dict(zip(settings, blind.T, strict=True)),
        )
        interval = estimate(name, table)
        wrong += interval.low > 1.0 - lost if side == "low" else interval.high < truth[name]
    assert wrong / RUNS < 0.08


def test_p_values_of_losses_fit_their_lower_bounds() -> None:
    lost, alone = evenly_lost(np.random.default_rng(11), 300, 5), Clusters.of(None, 300)
    test = BoundedMeanTest.of_losses(lost, alone)
    tails = np.array([0.2, 0.06, 0.05, 0.02, 0.005, 0.05 / 133])
    lowers = np.array([test.lower(tail) for tail in tails])
    assert (np.diff(lowers, axis=0) < 0.0).all()
    for tail, ends in zip(tails, lowers, strict=True):
        assert [test.p_above(float(end))[column] for column, end in enumerate(ends)] == pytest.approx([tail] * 5, rel=1e-4)


@pytest.mark.study
def test_a_hundred_tests_together_do_not_fail_what_gains_now_and_then() -> None:
    """1 % of 324 samples gain some part, the others lose 1.5 pp: at a 20th of 5 %, without the guard in over 3 %."""
    rng, alone = np.random.default_rng(12), Clusters.of(None, 324)
    even = rng.binomial(133, rng.beta(0.015 * 23.5, 0.985 * 23.5, (324, 2000))) / 133
    lost = np.where(rng.random(even.shape) < 0.01, -rng.random(even.shape), even)
    truth = 0.99 * 0.015 - 0.01 / 2
    assert (BoundedMeanTest.of_losses(lost, alone).lower(0.0025) > truth).mean() < 0.006
    assert (MeanTest.of(lost, alone).lower(0.0025) > truth).mean() > 0.03


laws = settings(deadline=None, derandomize=True, database=None, max_examples=100)


def test_clopper_pearson_of_the_golden_table() -> None:
    assert exact_interval(13, 16, 0.95) == pytest.approx((0.543543, 0.959526), abs=5e-7)


@pytest.mark.cases(("successes", "n"), [(1, 5), (13, 16), (0, 9), (9, 9), (30, 869)])
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


def test_one_cluster_shows_nothing_of_a_proportion() -> None:
    assert proportion_interval(np.ones(50), Clusters.of(["a"] * 50, 50), 0.90) == (0.0, 1.0)


def test_judged_ends_are_exact() -> None:
    for successes in range(41):
        outcomes = (np.arange(40) < successes).astype(float)
        ends = judged_proportion_interval(outcomes, Clusters.of(None, 40), 0.90)
        assert ends == pytest.approx(exact_interval(successes, 40, 0.90), rel=1e-9)


def test_judged_ends_rise_with_every_success() -> None:
    for confidence in (0.5, 0.9, 0.999, 1.0 - 1e-6):
        ends = [
            judged_proportion_interval((np.arange(40) < k).astype(float), Clusters.of(None, 40), confidence) for k in range(41)
        ]
        assert (np.diff(np.array(ends), axis=0) >= 0.0).all()


@pytest.mark.cases(("tail", "tests"), [(0.05, 1), (0.05 / 133, 133)])
@pytest.mark.cases(("n", "rate"), [(20, 0.01), (20, 0.05), (40, 0.02), (128, 0.01), (200, 0.1)])
def test_rare_errors_are_not_found_too_many_too_often(n: int, rate: float, tail: float, tests: int) -> None:
    """Exactly: how often a bound that is true fails, at one risk and at a share of it; Wilson's bound alone fails 18 %."""
    chances = stats.binom.pmf(np.arange(n + 1), n, rate)
    outcomes, alone = [(np.arange(n) < count).astype(float) for count in range(n + 1)], Clusters.of(None, n)
    ends = np.array([judged_proportion_interval(row, alone, 1.0 - 2.0 * tail) for row in outcomes])
    assert tests * chances[ends[:, 0] > rate].sum() <= 0.05
    assert tests * chances[ends[:, 1] < rate].sum() <= 0.05
    wilson = [proportion_interval(row, alone, 0.90)[0] > rate for row in outcomes]
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
