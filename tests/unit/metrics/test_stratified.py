from __future__ import annotations

import math
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pytest_vlmrobust.metrics import accuracy_drop, stratified_drop
from pytest_vlmrobust.metrics.statistics.clusters import Clusters
from pytest_vlmrobust.metrics.statistics.groups import Strata
from pytest_vlmrobust.metrics.statistics.proportions import exact_interval

Array = NDArray[np.float64]


def _lost(lost: int, n: int) -> Array:
    return np.array([0.0] * lost + [1.0] * (n - lost))


def test_strata_count_by_their_size_in_the_benchmark() -> None:
    """10 of 10 drawn lose 4, 10 of 90 lose 1: 0.1 * 0.4 + 0.9 * 0.1."""
    perturbed = np.concatenate([_lost(4, 10), _lost(1, 10)])
    result = stratified_drop(np.ones(20), perturbed, ["a"] * 10 + ["b"] * 10, {"a": 10, "b": 90})
    assert result.value == pytest.approx(0.13)
    assert result.low < 0.13 < result.high
    assert (result.n, result.confidence, result.valid) == (20, 0.90, True)


def test_one_stratum_of_an_endless_population_is_a_plain_sample() -> None:
    result = stratified_drop(np.ones(200), _lost(20, 200), ["all"] * 200, {"all": 5000}, finite=False)
    assert (result.low, result.high) == pytest.approx(exact_interval(20, 200))


def test_a_fifth_of_the_benchmark_narrows_the_interval_by_a_tenth() -> None:
    """The standard error falls by sqrt(1 - 0.2) = 0.894."""
    strata, population = ["a"] * 500 + ["b"] * 500, {"a": 2500, "b": 2500}
    perturbed = np.concatenate([_lost(30, 500), _lost(30, 500)])
    part, endless = (stratified_drop(np.ones(1000), perturbed, strata, population, finite=finite) for finite in (True, False))
    assert (part.high - part.low) / (endless.high - endless.low) == pytest.approx(math.sqrt(0.8), abs=0.01)


def test_all_of_the_benchmark_is_known() -> None:
    result = stratified_drop(np.ones(20), _lost(3, 20), ["a"] * 12 + ["b"] * 8, {"a": 12, "b": 8})
    assert result.value == result.low == result.high == accuracy_drop(np.ones(20), _lost(3, 20))
    open_ended = stratified_drop(np.ones(20), _lost(3, 20), ["a"] * 12 + ["b"] * 8, {"a": 12, "b": 8}, finite=False)
    assert open_ended.low < open_ended.value < open_ended.high


def test_variance_by_hand() -> None:
    """W = (0.4, 0.6), s^2 = (1/3, 1/2), n = (4, 2), 1 - f = (0.6, 13/15)."""
    design = Strata(np.array([0, 0, 0, 0, 1, 1]), np.array([10.0, 15.0]), Clusters.of(None, 6), finite=True)
    values = np.array([[1.0], [1.0], [0.0], [0.0], [1.0], [0.0]])
    assert design.means(values)[0] == pytest.approx(0.4 * 0.5 + 0.6 * 0.5)
    expected = 0.4**2 * (1 / 3) / 4 * 0.6 + 0.6**2 * 0.5 / 2 * (13 / 15)
    assert design.variances(values)[0] == pytest.approx(expected)


def test_the_variance_is_right_on_average_over_all_samples() -> None:
    """Every sample of 3 of 6 and 2 of 5 is drawn: the mean and its variance are unbiased."""
    benchmark = [np.array([1.0, 0.0, 0.0, 0.3, 0.7, 0.0]), np.array([0.0, -1.0, 1.0, 0.5, 0.0])]
    drawn = product(combinations(range(6), 3), combinations(range(5), 2))
    samples = [np.concatenate([benchmark[0][list(first)], benchmark[1][list(second)]]) for first, second in drawn]
    design = Strata(np.array([0, 0, 0, 1, 1]), np.array([6.0, 5.0]), Clusters.of(None, 5), finite=True)
    means, variances = design.means(np.stack(samples, axis=1)), design.variances(np.stack(samples, axis=1))
    assert means.mean() == pytest.approx(np.concatenate(benchmark).mean())
    assert variances.mean() == pytest.approx(means.var())


def test_a_stratum_of_one_sample_is_not_certain() -> None:
    design = Strata(np.array([0, 0, 0, 1]), np.array([30.0, 30.0]), Clusters.of(None, 4), finite=True)
    values = np.array([[0.0], [0.0], [0.0], [1.0]])
    assert design.variances(values)[0] == pytest.approx(0.5**2 * 0.5**2 * 29 / 30)


def test_clusters_widen_the_interval() -> None:
    perturbed, strata = np.repeat(_lost(10, 60), 4), ["a"] * 120 + ["b"] * 120
    population: dict[str, Any] = {"a": 600, "b": 600}
    groups = [str(index // 4) for index in range(240)]
    alone = stratified_drop(np.ones(240), perturbed, strata, population)
    together = stratified_drop(np.ones(240), perturbed, strata, population, groups=groups)
    assert together.value == alone.value
    assert together.high - together.low > 1.7 * (alone.high - alone.low)


def test_graded_scores() -> None:
    rng = np.random.default_rng(3)
    clean, perturbed = rng.random(60), rng.random(60)
    result = stratified_drop(clean, perturbed, ["a", "b"] * 30, {"a": 300, "b": 300})
    assert result.value == pytest.approx(accuracy_drop(clean, perturbed))
    assert result.low < result.value < result.high


def test_no_flip_is_not_certainty() -> None:
    result = stratified_drop(np.ones(100), np.ones(100), ["a", "b"] * 50, {"a": 5000, "b": 5000})
    rarest = 1.0 - 0.05 ** (0.99 / 100)  # no flip of so many samples happens in 5 % of runs
    assert (result.low, result.high) == pytest.approx((-rarest, rarest))


def test_bounds_of_a_small_benchmark_err_seldom() -> None:
    """A fifth of 400 questions in four unequal strata, 300 times: each bound is wrong in about 5 %."""
    rng = np.random.default_rng(5)
    sizes, rates = (40, 60, 100, 200), (0.4, 0.02, 0.1, 0.0)
    benchmark = [(rng.random(size) < rate).astype(float) for size, rate in zip(sizes, rates, strict=True)]
    truth = float(np.concatenate(benchmark).mean())
    names, population = "abcd", dict(zip("abcd", sizes, strict=True))
    strata = [name for name, size in zip(names, sizes, strict=True) for _ in range(size // 5)]
    above = below = 0
    for _ in range(300):
        lost = np.concatenate([rng.choice(part, size=part.size // 5, replace=False) for part in benchmark])
        result = stratified_drop(np.ones(80), 1.0 - lost, strata, population)
        above, below = above + (result.low > truth), below + (result.high < truth)
    assert above <= 26
    assert below <= 26


def test_missing_scores_are_counted() -> None:
    result = stratified_drop([1, math.nan], [1, 1], ["a", "a"], {"a": 5})
    assert math.isnan(result.value)
    assert (result.n, result.reason) == (1, "scores of 1 samples are missing")
    assert math.isnan(stratified_drop([], [], [], {}).value)


@pytest.mark.parametrize(
    ("strata", "population", "message"),
    [
        (["a", "b"], {"a": 5}, "population lacks the strata b: say how many samples each has"),
        (["a", "a"], {"a": 5, "b": 9}, "no sample of b was drawn: nothing is known about these strata"),
        (["a", "a"], {"a": 1}, r"more samples than members: a \(2 of 1\)"),
        (["a"], {"a": 5}, "clean has 2 scores and strata has 1"),
    ],
)
def test_strata_are_checked(strata: list[str], population: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        stratified_drop([1, 1], [1, 0], strata, population)
