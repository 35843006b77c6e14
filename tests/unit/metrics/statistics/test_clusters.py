from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pytest_vlmrobust.metrics.statistics.clusters import Clusters, critical_value, guarded_jackknife_interval, join_clusters
from pytest_vlmrobust.metrics.statistics.means import BoundedMeanTest, MeanTest, judged_proportion_interval
from pytest_vlmrobust.metrics.statistics.paired import TangoTest, drop_test

Values = Sequence[float]


def test_without_groups_every_sample_stands_alone() -> None:
    clusters = Clusters.of(None, 7)
    assert clusters.independent
    assert clusters.degrees_of_freedom == 6


def test_distinct_groups_are_no_clusters() -> None:
    assert Clusters.of(["b", "a", "c"], 3).independent


def test_samples_without_a_group_stand_alone() -> None:
    clusters = Clusters.of(["", "a", "", "a", "sample 0"], 5)
    assert clusters.count == 4
    assert clusters.codes[1] == clusters.codes[3]


def test_variance_of_independent_samples_is_the_ordinary_one(rng: np.random.Generator) -> None:
    values = rng.random((50, 3))
    assert Clusters.of(None, 50).variances(values) == pytest.approx(values.var(axis=0, ddof=1) / 50)


def test_variance_of_clusters_by_hand(rng: np.random.Generator) -> None:
    """The jackknife: 2/3 of the squares by which the means move without one of the clusters, of unequal size, in any order."""
    values = rng.random((9, 2))
    groups = np.array(list("cabacbacc"))
    moves = [values[groups != group].mean(axis=0) - values.mean(axis=0) for group in "abc"]
    clusters = Clusters.of(list(groups), 9)
    assert clusters.variances(values) == pytest.approx(2 / 3 * (np.array(moves) ** 2).sum(axis=0))
    assert clusters.covariance(values).diagonal() == pytest.approx(clusters.variances(values))


def test_variance_of_equal_clusters_is_the_sandwich(rng: np.random.Generator) -> None:
    """G/(G-1) * sum over clusters of (sum of deviations)^2 / N^2."""
    values = rng.random((12, 1))
    clusters = Clusters.of(list("abcdabcdabcd"), 12)
    deviations = (values - values.mean(axis=0)).reshape(3, 4).sum(axis=0)
    assert clusters.variances(values)[0] == pytest.approx(4 / 3 * (deviations**2).sum() / 144)
    assert (clusters.effective, clusters.degrees_of_freedom) == (4.0, 3.0)


def test_the_variance_of_a_heavy_cluster_is_right_on_average() -> None:
    """One image of 65 and 259 of one question, answers to one image alike: the sandwich would be a third too small."""
    clusters = Clusters.of(["heavy"] * 65 + [""] * 259, 324)
    draws = np.random.default_rng(2).standard_normal((260, 4000))
    values = draws[np.r_[np.zeros(65, int), np.arange(1, 260)]]
    assert clusters.variances(values).mean() == pytest.approx((65**2 + 259) / 324**2, rel=0.06)
    assert clusters.effective == pytest.approx(324**2 / (65**2 + 259))


def test_covariance_of_independent_samples_is_the_ordinary_one(rng: np.random.Generator) -> None:
    values = rng.random((40, 2))
    assert Clusters.of(None, 40).covariance(values) == pytest.approx(np.cov(values.T) / 40)


def test_design_effect_of_copies_is_their_number() -> None:
    values = np.repeat(np.random.default_rng(5).random((30, 1)), 4, axis=0)
    clusters = Clusters.of([str(index // 4) for index in range(120)], 120)
    assert clusters.design_effects(values)[0] == pytest.approx(4 * (119 / 120) * (30 / 29))


def test_design_effect_is_at_least_one() -> None:
    values = np.tile([[0.0], [1.0]], (30, 1))  # the members of a cluster disagree: less variance than by chance
    clusters = Clusters.of([str(index // 2) for index in range(60)], 60)
    assert clusters.design_effects(values)[0] == 1.0


def test_design_effect_without_variance_is_the_largest() -> None:
    clusters = Clusters.of(list("aabbbb"), 6)
    assert clusters.design_effects(np.zeros((6, 1)))[0] == pytest.approx((4 + 16) / 6)


def test_a_guarded_design_effect_is_that_of_one_more_cluster() -> None:
    """Three clusters of 4, and a fourth of 4 that are -1; then the plain variance and that of the clusters."""
    values = np.array([1.0, 0, 0, 0, 0, 0, -1, 0, 1, 1, 0, 0])[:, None]
    more = np.concatenate([values, -np.ones((4, 1))])
    codes = np.repeat(np.arange(4), 4)
    effect = Clusters(codes[:12], 3).design_effects(values, (-1.0, 1.0))[0]
    moved = (more.mean() - values.mean()) ** 2
    by_hand = (Clusters(codes[:12], 3).variances(values)[0] * (3 / 4) ** 2 + moved) / (more.var() / 15)
    assert effect == pytest.approx(by_hand)
    assert effect > Clusters(codes[:12], 3).design_effects(values)[0]
    assert Clusters.of(None, 12).design_effects(values, (-1.0, 1.0))[0] == 1.0


def test_a_constant_is_not_certain() -> None:
    """0 of 100 clusters differ: the rule of three bounds what differs by 3 in 100."""
    clusters = Clusters.of(None, 100)
    assert clusters.standard_errors(np.ones((100, 1)))[0] == 0.02
    upper = MeanTest.of(np.zeros((100, 1)), clusters).upper(0.05)[0]
    assert 1 - 0.05 ** (1 / 100) < upper < 0.034


def test_clusters_that_do_not_differ_are_not_certain_either() -> None:
    """Two questions to each of 50 images, one right and one wrong, in 0/1 scores and in ones whose sums are rounded."""
    clusters = Clusters.of([str(index // 2) for index in range(100)], 100)
    for pair in ([0.0, 1.0], [0.1, 0.7]):
        values = np.tile(np.array(pair)[:, None], (50, 1))
        assert clusters.standard_errors(values)[0] == 0.04
        assert 0.0 < MeanTest.of(values, clusters).p_above(0.0)[0] < 1e-9


def test_one_cluster_shows_nothing() -> None:
    clusters = Clusters.of(["a", "a"], 2)
    assert math.isinf(clusters.variances(np.array([[0.0], [1.0]]))[0])
    test = MeanTest.of(np.array([[0.0], [1.0]]), clusters)
    assert (test.lower(0.05)[0], test.upper(0.05)[0]) == (-math.inf, math.inf)
    assert test.p_above(0.0)[0] == test.p_below(0.0)[0] == 1.0


def test_t_bounds_by_hand() -> None:
    """Mean 2.5, standard error sqrt(5/3)/2, t(0.95; 3) = 2.353363."""
    test = MeanTest.of(np.array([[1.0], [2.0], [3.0], [4.0]]), Clusters.of(None, 4))
    margin = 2.353363434801823 * math.sqrt(5 / 3) / 2
    assert test.lower(0.05)[0] == pytest.approx(2.5 - margin)
    assert test.upper(0.05)[0] == pytest.approx(2.5 + margin)
    assert test.p_above(2.5 - margin)[0] == pytest.approx(0.05)
    assert test.p_below(2.5 + margin)[0] == pytest.approx(0.05)


def test_drops_of_graded_scores_are_means() -> None:
    clusters = Clusters.of(None, 4)
    clean = np.array([1.0, 1.0, 0.0, 1.0])
    assert isinstance(drop_test(clean, np.array([[1.0], [0.5], [0.0], [1.0]]), clusters), BoundedMeanTest)
    assert isinstance(drop_test(clean, np.array([[1.0], [0.0], [0.0], [1.0]]), clusters), TangoTest)


@pytest.mark.study
@pytest.mark.parametrize(
    ("clusters", "members", "harmful", "copied"), [(60, 3, 0.03, 0.5), (60, 3, 0.12, 0.0), (100, 4, 0.02, 0.5)]
)
def test_bounds_of_clustered_drops_err_seldom(clusters: int, members: int, harmful: float, copied: float) -> None:
    """Each one-sided 95 % bound is wrong in about 5 % of 600 simulated sweeps, also when flips are few and shared."""
    rng = np.random.default_rng(11)
    shape = (clusters * members, 600)
    chances = [harmful, 0.01, 1 - harmful - 0.01]
    shared = np.repeat(rng.choice([1.0, -1.0, 0.0], size=(clusters, 600), p=chances), members, axis=0)
    independent = rng.choice([1.0, -1.0, 0.0], size=shape, p=chances)
    differences = np.where(rng.random(shape) < math.sqrt(copied), shared, independent)
    test = TangoTest.of(differences, Clusters.of([str(index // members) for index in range(shape[0])], shape[0]))
    truth = harmful - 0.01
    assert [bounds.tolist() for bounds in test.both(0.05)] == [test.lower(0.05).tolist(), test.upper(0.05).tolist()]
    assert (test.upper(0.05) < truth).mean() < 0.08
    assert (test.lower(0.05) > truth).mean() < 0.08
    assert np.median(test.upper(0.05) - test.lower(0.05)) < 0.15


def _alike(
    sizes: list[int], alike: float, values: list[float], chances: list[float], runs: int
) -> tuple[NDArray[np.float64], Clusters]:
    """Returns simulated values, shape (N, runs): each sample has its image's or, now and then, one of its own."""
    rng = np.random.default_rng(29)
    codes = np.repeat(np.arange(len(sizes)), sizes)
    shared = rng.choice(values, size=(len(sizes), runs), p=chances)[codes]
    independent = rng.choice(values, size=shared.shape, p=chances)
    return np.where(rng.random(shared.shape) < math.sqrt(alike), shared, independent), Clusters(codes, len(sizes))


UNEQUAL = {"one image with 20 %": [65] + [1] * 259, "30 unequal": [1, 2, 3, 5, 8, 10, 12, 15, 20, 30] * 3}


@pytest.mark.study
@pytest.mark.parametrize("name", UNEQUAL)
def test_bounds_hold_where_images_are_of_very_unequal_size(name: str) -> None:
    """At 5 %, 400 runs; with G - 1 degrees of freedom and no guard the upper bounds are too low in 11 and 23 % of them."""
    lost, clusters = _alike(UNEQUAL[name], 0.8, [1.0, -1.0, 0.0], [0.05, 0.01, 0.94], 400)
    tests: list[TangoTest | BoundedMeanTest] = [TangoTest.of(lost, clusters), BoundedMeanTest.of(lost, clusters, -1.0, 1.0)]
    for test in tests:
        assert (test.upper(0.05) < 0.04).mean() <= 0.06
        assert (test.lower(0.05) > 0.04).mean() <= 0.06
    right, _ = _alike(UNEQUAL[name], 0.8, [1.0, 0.0], [0.9, 0.1], 400)
    ends = np.array([judged_proportion_interval(row, clusters, 0.90) for row in right.T])
    assert (ends[:, 0] > 0.9).mean() <= 0.06
    assert (ends[:, 1] < 0.9).mean() <= 0.06


def test_many_small_images_cost_no_width_for_being_unequal() -> None:
    """300 images with 1 to 4 questions: the bounds are those of their design effect, up to 5 %."""
    lost, clusters = _alike([1, 2, 3, 4] * 75, 0.5, [1.0, -1.0, 0.0], [0.05, 0.01, 0.94], 50)
    effects = clusters.design_effects(lost)
    harmful, helpful = (lost > 0).sum(axis=0) / effects, (lost < 0).sum(axis=0) / effects
    plain, test = TangoTest(harmful, helpful, len(lost) / effects, math.inf), TangoTest.of(lost, clusters)
    wider = (test.upper(0.05) - test.lower(0.05)) / (plain.upper(0.05) - plain.lower(0.05))
    assert 0.98 < wider.mean() < 1.05


Array = NDArray[np.float64]


def mean(sums: Array) -> Array:
    ratio: Array = sums[..., 0] / sums[..., 1]
    return ratio


def f1(sums: Array) -> Array:
    ratio: Array = 2 * sums[..., 0] / (2 * sums[..., 0] + sums[..., 1] + sums[..., 2])
    return ratio


AGAINST: dict[str, Any] = {"against_low": np.array([0.0, 1.0]), "against_high": np.array([1.0, 1.0])}
AGAINST_F1: dict[str, Any] = {"against_low": np.array([0.0, 1.0, 0.0]), "against_high": np.array([1.0, 0.0, 0.0])}


def test_of_a_mean_it_is_the_t_interval_with_one_sample_more_against_each_bound() -> None:
    values = np.array([0.2, 0.9, 0.4, 0.7, 0.5])
    low, high = guarded_jackknife_interval(np.stack([values, np.ones(5)], axis=1), mean, 0.90, **AGAINST)
    for bound, extra, sign in ((low, 0.0, -1.0), (high, 1.0, 1.0)):
        grown = np.append(values, extra)
        margin = critical_value(0.05, 5) * grown.std(ddof=1) / math.sqrt(6)
        assert bound == pytest.approx(grown.mean() + sign * margin)


def test_the_value_lies_inside_and_a_higher_level_is_wider() -> None:
    rng = np.random.default_rng(0)
    rows = rng.multinomial(1, [0.6, 0.3, 0.1], 80).astype(float)
    value = float(f1(rows.sum(axis=0)))
    narrow, wide = (guarded_jackknife_interval(rows, f1, level, **AGAINST_F1) for level in (0.90, 0.999))
    assert wide[0] < narrow[0] < value < narrow[1] < wide[1]


def test_without_a_wrong_answer_nothing_is_certain() -> None:
    """100 of 100: a one-sided 95 % bound of an exact test is 0.970."""
    rows = np.tile([1.0, 0.0, 0.0], (100, 1))
    low, high = guarded_jackknife_interval(rows, f1, 0.90, **AGAINST_F1)
    assert 0.95 < low < 0.99
    assert high >= 1.0


def test_what_cannot_be_known_is_not_bounded() -> None:
    assert guarded_jackknife_interval(np.ones((1, 2)), mean, 0.90, **AGAINST) == (-math.inf, math.inf)
    only = np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0], [1.0, 1.0, 0.0]])

    def needs_the_second(sums: Array) -> Array:
        return np.where(sums[..., 2] > 0, mean(sums), np.nan)

    low, high = guarded_jackknife_interval(only, needs_the_second, 0.90, against_low=np.zeros(3), against_high=np.zeros(3))
    assert math.isnan(low)
    assert math.isnan(high)


@pytest.mark.parametrize("confidence", [0.0, 1.0, 90.0])
def test_a_level_is_a_probability(confidence: float) -> None:
    with pytest.raises(ValueError, match="confidence is"):
        guarded_jackknife_interval(np.ones((3, 2)), mean, confidence, **AGAINST)


def test_samples_of_a_group_and_of_a_unit_stay_together() -> None:
    clusters = join_clusters(["a", "a", "b", "c", "d"], [(0, 1), (2, 3)])
    assert clusters.count == 3
    assert clusters.codes[0] == clusters.codes[1]
    assert clusters.codes[2] == clusters.codes[3]
    assert len({*clusters.codes.tolist()}) == 3
    chained = join_clusters(["a", "b", "c", "d"], [(0, 1), (1, 2)])
    assert chained.count == 2
    assert join_clusters(["", ""], []).count == 2


@pytest.mark.study
@pytest.mark.parametrize(
    ("images", "per_image", "rate", "change"),
    [(60, 1, 0.9, 0.0), (60, 6, 0.85, 0.0), (200, 1, 0.97, 0.0), (60, 1, 0.9, 0.1), (150, 2, 0.8, 0.05), (300, 1, 0.95, 0.02)],
)
def test_bounds_of_a_drop_of_f1_err_as_often_as_they_say(images: int, per_image: int, rate: float, change: float) -> None:
    """Half of the questions want yes; ``change`` is the share of right answers that turn wrong. One-sided errors at 5 %."""
    rng = np.random.default_rng(images + per_image)

    def function(sums: Array) -> Array:
        return f1(sums[..., :3]) - f1(sums[..., 3:])

    after = rate * (1 - change)
    truth = 2 * rate / (2 * rate + 2 * (1 - rate)) - 2 * after / (2 * after + 2 * (1 - after))
    too_high = too_low = 0
    runs = 600
    for _ in range(runs):
        skill = np.clip(rng.normal(rate, 0.05 if per_image > 1 else 0.0, (images, 1)), 0, 1)
        clean = rng.random((images, per_image)) < skill
        perturbed = clean & (rng.random(clean.shape) >= change)
        wants = np.arange(images * per_image).reshape(clean.shape) % 2 == 0

        def rows(right: NDArray[np.bool_], wants: NDArray[np.bool_] = wants) -> Array:
            parts = (right & wants, ~right & wants, ~right & ~wants)
            return np.stack([part.sum(axis=1) for part in parts], axis=1).astype(float)

        low, high = guarded_jackknife_interval(
            np.hstack([rows(clean), rows(perturbed)]),
            function,
            0.90,
            against_low=per_image * np.array([0.0, 1.0, 0.0, 1.0, 0.0, 0.0]),
            against_high=per_image * np.array([1.0, 0.0, 0.0, 0.0, 1.0, 0.0]),
        )
        too_high += low > truth + 1e-12
        too_low += high < truth - 1e-12
    assert too_high / runs < 0.075, "as often as Tango's interval errs with clusters"
    assert too_low / runs < 0.075
