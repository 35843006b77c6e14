from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import special

from pytest_vlmrobust.metrics.statistics.clusters import Clusters, critical_value
from pytest_vlmrobust.metrics.statistics.means import MeanTest
from pytest_vlmrobust.metrics.statistics.paired import tango_statistic
from pytest_vlmrobust.metrics.statistics.ratios import (
    SHARED_CLEAN,
    ratio_interval,
    restricted_score,
    restricted_tail,
    score_ratio_interval,
)


@pytest.mark.cases("seed", range(20))
def test_a_ratio_is_inside_unless_its_contrast_is_rejected(seed: int) -> None:
    """The definition, tried on a grid: t is inside if and only if numerator - t * denominator may have mean 0."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(20, 200))
    top, bottom = (rng.random(n) < 0.2) - (rng.random(n) < 0.1) * 1.0, (rng.random(n) < 0.8) - (rng.random(n) < 0.2) * 1.0
    clusters = Clusters.of([str(name) for name in rng.integers(0, n // 2, n)], n) if seed % 2 else Clusters.of(None, n)
    low, high = ratio_interval(top, bottom, clusters, 0.90)
    assert low < top.mean() / bottom.mean() < high
    for ratio in np.linspace(-1, 2, 61):
        contrast = MeanTest.of((top - ratio * bottom)[:, None], clusters)
        inside = contrast.lower(0.05)[0] <= 0.0 <= contrast.upper(0.05)[0]
        assert inside == (low <= ratio <= high), ratio


def test_a_doubtful_denominator_leaves_a_side_open() -> None:
    """The loss is certain and the gain is not: the ratio is large, and nobody knows how large."""
    top = np.array([1.0] * 50 + [0.0] * 50)
    bottom = np.array([1.0, -1.0] * 49 + [1.0, 0.0])
    low, high = ratio_interval(top, bottom, Clusters.of(None, 100), 0.90)
    assert 0.0 < low < top.mean() / bottom.mean()
    assert high == math.inf
    low, high = ratio_interval(-top, bottom, Clusters.of(None, 100), 0.90)
    assert low == -math.inf
    assert -top.mean() / bottom.mean() < high < 0.0


def test_a_doubtful_denominator_and_no_loss_leave_both_sides_open() -> None:
    top = np.array([1.0, -1.0] * 49 + [0.0, 0.0])
    bottom = np.array([1.0, -1.0] * 49 + [1.0, 0.0])
    assert ratio_interval(np.roll(top, 1), bottom, Clusters.of(None, 100), 0.90) == (-math.inf, math.inf)


@pytest.mark.parametrize("factor", [0.0, 1.0])
def test_a_ratio_that_every_sample_shows_is_not_certain(factor: float) -> None:
    bottom = np.array([1.0] * 60 + [0.0] * 40)
    low, high = ratio_interval(factor * bottom, bottom, Clusters.of(None, 100), 0.90)
    assert low < factor - 0.02
    assert factor + 0.02 < high < factor + 0.1


def test_one_cluster_shows_nothing() -> None:
    assert ratio_interval(np.ones(3), np.ones(3), Clusters.of(["a"] * 3, 3), 0.90) == (-math.inf, math.inf)


def test_intervals_err_as_seldom_as_they_promise() -> None:
    """MMMU-Pro-like: 324 samples, visual gain 12 pp, drop 6 pp; each bound is wrong in about 5 % of 1000 runs."""
    rng = np.random.default_rng(7)
    above = below = 0
    for _ in range(1000):
        clean, blind, kept = ((rng.random(324) < rate).astype(np.float64) for rate in (0.36, 0.24, 0.30 / 0.36))
        low, high = ratio_interval(clean - clean * kept, clean - blind, Clusters.of(None, 324), 0.90)
        above, below = above + (low > 0.5), below + (high < 0.5)
    assert 25 <= above <= 75
    assert 25 <= below <= 75


def test_a_ratio_that_no_cluster_departs_from_is_not_certain() -> None:
    """Samples depart from the ratio 2 and cancel within their images."""
    numerator, denominator = np.array([1.0, 1.0, 0.0]), np.array([0.0, 1.0, 0.0])
    clusters = Clusters.of(["a", "a", "b"], 3)
    bounds = [ratio_interval(numerator, denominator, clusters, confidence) for confidence in (0.5, 0.9, 0.99)]
    assert all(low <= 2.0 < high for low, high in bounds)
    assert [low for low, _ in bounds] == sorted((low for low, _ in bounds), reverse=True)
    assert [high for _, high in bounds] == sorted(high for _, high in bounds)


def test_the_contrast_keeps_its_level_where_a_normal_ratio_does_not() -> None:
    """MMMU-Pro-like: 324 samples, a visual gain of 7 pp, half of it lost. Wrong verdicts at a threshold of one half, 3000 times.

    The delta method divides by a gain that is uncertain itself: it calls the ratio too low or too high far less often than the
    5 % it could afford, so decides less; the contrast uses its whole level on each side.
    """
    rng = np.random.default_rng(9)
    shape = (3000, 324)
    clean = rng.random(shape) < 0.36
    blind = np.where(clean, rng.random(shape) < 0.70, rng.random(shape) < 0.0592)
    perturbed = np.where(clean, rng.random(shape) < 0.80, rng.random(shape) < 0.0571)
    loss, gain = clean - perturbed * 1.0, clean - blind * 1.0
    contrast = loss - 0.5 * gain
    t = contrast.mean(axis=1) / (contrast.std(axis=1, ddof=1) / math.sqrt(324))
    ratio = loss.mean(axis=1) / gain.mean(axis=1)
    residual = loss - ratio[:, None] * gain
    delta = (ratio - 0.5) / (residual.std(axis=1, ddof=1) / math.sqrt(324) / gain.mean(axis=1))
    critical = critical_value(0.05, 323)
    linear_sizes = (t < -critical).mean(), (t > critical).mean()
    delta_sizes = (delta < -critical).mean(), (delta > critical).mean()
    assert linear_sizes == pytest.approx((0.05, 0.05), abs=0.015)
    assert min(delta_sizes) < 0.03


Array = NDArray[np.float64]

laws = settings(deadline=None, derandomize=True, database=None, max_examples=60)


@laws
@given(st.integers(0, 40), st.integers(0, 40), st.integers(1, 200), st.floats(-0.6, 0.6))
def test_of_a_drop_it_is_tangos(harmful: int, helpful: int, unchanged: int, drop: float) -> None:
    """Also where a kind of flip was never observed: the likeliest way to the drop then invents it."""
    counts = np.array([helpful, unchanged, harmful], dtype=np.float64)
    n = float(counts.sum())
    statistic = tango_statistic(*(np.array([value]) for value in (float(harmful), float(helpful), n, drop)))
    ours = restricted_score(counts, np.array([[-1.0, 0.0, 1.0]]) - drop)
    assert ours[0] == pytest.approx(statistic[0], rel=1e-6, abs=1e-6)


def _counts(n: int, kinds: int) -> Array:
    """Returns every way to split n samples into kinds, shape (ways, kinds)."""
    bars = np.array(np.meshgrid(*[np.arange(n + 1)] * (kinds - 1), indexing="ij")).reshape(kinds - 1, -1)
    bars = bars[:, bars.sum(axis=0) <= n]
    return np.vstack([bars, n - bars.sum(axis=0)]).T.astype(np.float64)


CASES = [  # accuracy, share of clean-right samples that survive, share of them guessed without the image: ratio 1/4 or 1/2
    (0.8, 0.75, 0.5),
    (0.9, 0.9, 0.8),
    (0.5, 0.7, 0.4),
    (0.9, 0.9, 0.6),
]


@pytest.mark.parametrize(("accuracy", "kept", "guessed"), CASES)
def test_exact_sizes(accuracy: float, kept: float, guessed: float) -> None:
    """Error rates at the very threshold, over every outcome of 24 samples; clean-wrong samples stay wrong.

    Nominal 5 %. Student's t calls the ratio too low up to 11 % of the time here.
    """
    ratio, n = (1 - kept) / (1 - guessed), 24
    lost, blind = accuracy * (1 - kept), accuracy * (1 - guessed)
    chances = {
        (1, 1): lost * (1 - guessed),
        (1, 0): lost * guessed,
        (0, 1): blind * kept,
        (0, 0): accuracy * kept * guessed + 1 - accuracy,
    }
    pairs = np.array(list(chances), dtype=np.float64)
    values = pairs @ np.array([1.0, -ratio])
    counts = _counts(n, 4)
    weights = np.exp(
        special.gammaln(n + 1) - special.gammaln(counts + 1).sum(axis=1) + counts @ np.log(np.array(list(chances.values())))
    )
    assert weights.sum() == pytest.approx(1.0)
    scores, student = _scores(counts, ratio, pairs), _student(counts, values, n)
    normal, t = critical_value(0.05), critical_value(0.05, n - 1)
    too_low, too_high = float(weights[scores < -normal].sum()), float(weights[scores > normal].sum())
    assert too_low < 0.06
    assert too_high < 0.08
    assert too_low < float(weights[student < -t].sum())


def _scores(counts: Array, ratio: float, pairs: Array) -> Array:
    """Returns the score statistic of each table; extremes that were not observed take part, as in the interval."""
    contrast = SHARED_CLEAN @ np.array([1.0, -ratio])
    where = [int(np.flatnonzero((pair == SHARED_CLEAN).all(axis=1))[0]) for pair in pairs]
    full = np.zeros((len(counts), len(SHARED_CLEAN)))
    full[:, where] = counts
    return restricted_score(full, np.tile(contrast, (len(full), 1)))


def _student(counts: Array, values: Array, n: int) -> Array:
    means = counts @ values / n
    errors = np.sqrt(np.maximum(counts @ values**2 / n - means**2, 0.0) / (n - 1))
    statistic: Array = np.divide(means, errors, out=np.zeros_like(means), where=errors > 1e-9)
    return statistic


def _answers(rng: np.random.Generator, n: int, flips: float) -> tuple[Array, Array]:
    """Returns loss and gain of n samples: 88 % right when clean, 40 % right without the image."""
    clean, blind = rng.random(n) < 0.88, rng.random(n) < 0.4
    perturbed = np.where(rng.random(n) < flips, ~clean, clean)
    return clean - perturbed * 1.0, clean - blind * 1.0


@pytest.mark.cases("seed", range(8))
def test_a_ratio_is_inside_unless_it_is_rejected(seed: int) -> None:
    rng = np.random.default_rng(seed)
    loss, gain = _answers(rng, 120, 0.08)
    low, high = score_ratio_interval(loss, gain, Clusters.of(None, 120), 0.90)
    assert low < loss.mean() / gain.mean() < high
    counts = (np.stack([loss, gain], axis=1)[:, None, :] == SHARED_CLEAN).all(axis=2).sum(axis=0).astype(float)
    for ratio in np.linspace(-0.4, 0.6, 101):
        contrast = (SHARED_CLEAN @ np.array([1.0, -ratio]))[None, :]
        usual = abs(restricted_score(counts, contrast)[0]) <= critical_value(0.05)
        assert (usual or restricted_tail(counts, contrast)[0] > 0.05) == (low <= ratio <= high), ratio


def test_with_many_samples_it_is_fiellers() -> None:
    loss, gain = _answers(np.random.default_rng(3), 20000, 0.08)
    clusters = Clusters.of(None, 20000)
    assert score_ratio_interval(loss, gain, clusters, 0.90) == pytest.approx(ratio_interval(loss, gain, clusters, 0.90), abs=3e-4)


def test_copies_count_once() -> None:
    loss, gain = _answers(np.random.default_rng(4), 150, 0.1)
    alone = score_ratio_interval(loss, gain, Clusters.of(None, 150), 0.90)
    groups = [str(index) for index in range(150)] * 4
    together = score_ratio_interval(np.tile(loss, 4), np.tile(gain, 4), Clusters.of(groups, 600), 0.90)
    assert together == pytest.approx(alone, rel=0.05)


def test_a_doubtful_denominator_leaves_a_side_of_the_score_interval_open() -> None:
    loss, gain = np.array([1.0] * 50 + [0.0] * 50), np.array([1.0, 0.0] * 25 + [-1.0, 0.0] * 24 + [0.0, 0.0])
    low, high = score_ratio_interval(loss, gain, Clusters.of(None, 100), 0.90)
    assert 1.0 < low < 50.0
    assert high == math.inf


@pytest.mark.parametrize("factor", [0.0, 1.0])
def test_the_score_interval_of_a_ratio_that_every_sample_shows_has_a_width(factor: float) -> None:
    gain = np.array([1.0] * 60 + [0.0] * 40)
    low, high = score_ratio_interval(factor * gain, gain, Clusters.of(None, 100), 0.90)
    assert factor - 0.1 < low < factor - 0.02
    assert factor + 0.02 < high < factor + 0.1


def test_the_score_interval_of_one_cluster_has_no_ends() -> None:
    assert score_ratio_interval(np.ones(3), np.ones(3), Clusters.of(["a"] * 3, 3), 0.90) == (-math.inf, math.inf)


@pytest.mark.study
def test_bounds_that_pass_err_less_often_than_students() -> None:
    """100 samples, a visual gain of 45 pp, a ratio of 0.05, 1.5 % helpful flips: upper bounds below the truth in 150 runs."""
    rng = np.random.default_rng(6)
    truth, wrong = 0.05, {"score": 0, "student": 0}
    clusters = Clusters.of(None, 100)
    for _ in range(150):
        clean = rng.random(100) < 0.88
        blind = np.where(clean, rng.random(100) < 0.43 / 0.88, clean)
        perturbed = np.where(clean, rng.random(100) >= (truth * 0.45 + 0.015) / 0.88, rng.random(100) < 0.015 / 0.12)
        loss, gain = clean - perturbed * 1.0, clean - blind * 1.0
        wrong["score"] += score_ratio_interval(loss, gain, clusters, 0.90)[1] < truth
        wrong["student"] += ratio_interval(loss, gain, clusters, 0.90)[1] < truth
    assert wrong["score"] <= 13
    assert wrong["score"] < wrong["student"]
