"""Intervals of the metrics of a curve: exact errors by enumeration, and what they say about noise."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pytest_vlmrobust import metrics
from pytest_vlmrobust.metrics import ScoreTable, estimate, resolution


@pytest.mark.cases("error", [metrics.absolute_continuous_error, metrics.relative_continuous_error])
@pytest.mark.cases("curve", [[], [0.4], [0.4, math.nan, 0.5]])
def test_a_curve_that_is_none_is_unknown(error: Callable[..., float], curve: list[float]) -> None:
    assert math.isnan(error(curve))


def test_correlation_ranks_ties_on_average() -> None:
    """Ranks of accuracy: 1, 2.5, 2.5, 4. Not the d-squared formula, which gives 0.95."""
    correlation = metrics.resolution_correlation([112, 224, 336, 448], [0.1, 0.2, 0.2, 0.3])
    assert correlation == pytest.approx(4.5 / math.sqrt(5 * 4.5))


@pytest.mark.parametrize(("edges", "curve"), [([], []), ([112], [0.5]), ([112, 224], [0.5, 0.5]), ([112, 224], [0.5, math.nan])])
def test_correlation_of_a_constant_or_unknown_curve_is_undefined(edges: list[float], curve: list[float]) -> None:
    assert math.isnan(metrics.resolution_correlation(edges, curve))


def test_accuracies_are_fractions() -> None:
    with pytest.raises(ValueError, match=r"accuracies\[0\] is 42\.0"):
        metrics.absolute_continuous_error([42.0, 48.2])


def test_lengths_are_named() -> None:
    with pytest.raises(ValueError, match="2 resolutions and 1 accuracies: expected one accuracy for each resolution"):
        metrics.resolution_correlation([112, 224], [0.5])


def test_the_line_of_the_paper_is_per_pixel() -> None:
    edges, curve = [112.0, 224.0, 448.0, 1344.0], [0.30, 0.45, 0.40, 0.80]
    slope, intercept = np.polyfit(edges, curve, 1)
    assert metrics.linear_trend(edges, curve) == pytest.approx((float(slope), float(intercept)))


@pytest.mark.parametrize(("edges", "curve"), [([], []), ([112], [0.5]), ([112, 112], [0.5, 0.6]), ([112, 224], [0.5, math.nan])])
def test_a_line_through_one_point_is_undefined(edges: list[float], curve: list[float]) -> None:
    assert math.isnan(metrics.resolution_slope(edges, curve))
    assert all(math.isnan(part) for part in metrics.linear_trend(edges, curve))


def test_a_line_needs_pixels() -> None:
    with pytest.raises(ValueError, match=r"resolutions has 0\.0: expected long edges in pixels, above 0"):
        metrics.resolution_slope([0, 112], [0.5, 0.6])
    with pytest.raises(ValueError, match="1 resolutions and 2 accuracies: expected one accuracy for each resolution"):
        metrics.linear_trend([112], [0.5, 0.6])


def test_the_noise_floor_adds_up_step_errors() -> None:
    """Steps +1, -1, 0 and 0: variance 2/3 and standard error 0.408; two resolutions have one step."""
    expected = math.sqrt(2 / math.pi) * math.sqrt(2 / 3 / 4)
    assert metrics.resolution_noise_floor([[0, 1], [1, 0], [1, 1], [0, 0]]) == pytest.approx(expected)
    assert metrics.resolution_noise_floor([[1, 1, 1], [0, 0, 0]]) == 0.0


@pytest.mark.parametrize("rungs", [[[1, 0]], [[1], [0]], [[1, 0], [math.nan, 0]]])
def test_the_noise_floor_of_too_little_is_unknown(rungs: list[list[float]]) -> None:
    assert math.isnan(metrics.resolution_noise_floor(rungs))


def test_categories_count_the_same() -> None:
    rungs = [[1, 1], [1, 0], [1, 0], [0, 1]]
    assert metrics.macro_accuracies(rungs, ["a", "a", "a", "b"]) == pytest.approx((0.5, 2 / 3))
    assert metrics.macro_accuracies(rungs, ["a", "a", "b", "b"]) == pytest.approx((0.75, 0.5))
    assert all(math.isnan(mean) for mean in metrics.macro_accuracies(np.zeros((0, 2)), []))
    assert [math.isnan(mean) for mean in metrics.macro_accuracies([[1.0, math.nan], [1.0, 0.0]], ["a", "b"])] == [False, True]
    with pytest.raises(ValueError, match="rungs has 4 samples and categories has 1: expected one for each sample"):
        metrics.macro_accuracies(rungs, ["a"])


Array = NDArray[np.float64]
NAMES = [
    "absolute_continuous_error",
    "relative_continuous_error",
    "resolution_wobble",
    "largest_downward_step",
    "resolution_net",
    "resolution_slope",
    "resolution_accuracy",
]


def _table(rungs: Array, groups: list[str] | None = None) -> ScoreTable:
    edges = [112 * (rung + 1) for rung in range(rungs.shape[1])]
    return ScoreTable(rungs[:, 0], {f"resolution:{edge}": rungs[:, rung] for rung, edge in enumerate(edges)}, groups=groups)


def _answers(n: int, rates: Array, seed: int = 0, noise: float = 0.15) -> Array:
    """Answers of n samples that are mostly the same at each resolution."""
    rng = np.random.default_rng(seed)
    ease = np.where(rng.random((n, rates.size)) < noise, rng.random((n, rates.size)), rng.random(n)[:, None])
    return (ease < rates).astype(float)


def _splits(n: int) -> Iterator[tuple[int, int, int, int]]:
    for first in range(n + 1):
        for second in range(n + 1 - first):
            for third in range(n + 1 - first - second):
                yield first, second, third, n - first - second - third


@pytest.mark.study
@pytest.mark.parametrize("shares", [(0.4, 0.1, 0.1, 0.4), (0.3, 0.05, 0.25, 0.4)])
def test_bounds_of_two_points_err_seldom(shares: tuple[float, float, float, float]) -> None:
    """Exact, over all outcomes of 7 samples that are right at neither, one or both resolutions; nominal 5 % on either side."""
    change = abs(shares[1] - shares[2])
    truths = {
        "absolute_continuous_error": change,
        "relative_continuous_error": change / (shares[3] + (shares[1] + shares[2]) / 2),
        "resolution_wobble": 0.0,
        "largest_downward_step": max(shares[2] - shares[1], 0.0),
        "resolution_net": shares[1] - shares[2],
    }
    errors = dict.fromkeys([(name, side) for name in truths for side in ("low", "high")], 0.0)
    for counts in _splits(7):
        first, second = np.repeat([0.0, 0.0, 1.0, 1.0], counts), np.repeat([0.0, 1.0, 0.0, 1.0], counts)
        if not (first.any() or second.any()):
            continue
        ways = math.factorial(7) / math.prod(map(math.factorial, counts))
        weight = ways * math.prod(share**count for share, count in zip(shares, counts, strict=True))
        table = _table(np.stack([first, second], axis=1))
        for name, truth in truths.items():
            low, high = getattr(resolution, f"{name}_interval")(table, None, 0.90)
            errors[name, "low"] += weight * (low > truth + 1e-12)
            errors[name, "high"] += weight * (high < truth - 1e-12)
    assert max(errors.values()) <= 0.07, errors


@pytest.mark.cases("name", NAMES)
def test_the_value_lies_inside(name: str) -> None:
    for seed in range(5):
        result = estimate(name, _table(_answers(80, np.linspace(0.4, 0.7, 6), seed)))
        assert result.low <= result.value <= result.high


def test_a_flat_curve_may_be_flat() -> None:
    """A naive bootstrap never covers the true ACE of 0."""
    covered = [estimate("absolute_continuous_error", _table(_answers(200, np.full(12, 0.55), seed))).low for seed in range(60)]
    assert sum(low > 0.0 for low in covered) <= 8


def test_a_rising_curve_is_shown_to_rise_and_not_to_wobble() -> None:
    table = _table(_answers(1200, np.linspace(0.36, 0.60, 12), 3))
    error, wobble = estimate("absolute_continuous_error", table), estimate("resolution_wobble", table)
    assert 0.15 < error.low < 0.24 < error.high < 0.32
    assert wobble.low == 0.0
    assert wobble.high < 0.12
    assert estimate("resolution_net", table).low > 0.2
    assert estimate("resolution_slope", table).low > 0.04
    assert estimate("largest_downward_step", table).high < 0.05


def test_a_true_wobble_is_shown() -> None:
    """Every other resolution is 15 points worse: six rises and five falls."""
    rates = np.array([0.55, 0.70] * 6)
    table = _table(_answers(1200, rates, 4))
    result = estimate("resolution_wobble", table)
    assert result.low > 0.9
    assert result.high < 2.0
    assert result.reason.endswith("p=0.001")
    assert estimate("largest_downward_step", table).low > 0.1


def _with_one_more_against(rungs: Array) -> tuple[Array, Array]:
    """All signed sums of steps of each sample, and one more sample that has the root of the largest sum there can be."""
    signs = np.array(list(itertools.product((-1.0, 1.0), repeat=rungs.shape[1] - 1)))
    weights = signs @ np.diff(np.eye(rungs.shape[1]), axis=0)
    against = np.sqrt(np.maximum(weights, 0.0).sum(axis=1))
    return np.concatenate([rungs @ weights.T, against[None]]), np.append(rungs.mean(axis=1), 0.0)


def _largest_upper(contrasts: Array) -> float:
    """Of Student's bounds with the degrees of freedom of the 150 samples that were there."""
    errors = np.sqrt(((contrasts - contrasts.mean(axis=0)) ** 2).sum(axis=0) / 150.0 / 151.0)
    return float((contrasts.mean(axis=0) + 1.6551 * errors).max())


def test_upper_bounds_of_ace_are_intersection_union_bounds() -> None:
    rungs = _answers(150, np.linspace(0.5, 0.6, 4), 2)
    contrasts, _ = _with_one_more_against(rungs)
    assert estimate("absolute_continuous_error", _table(rungs)).high == pytest.approx(_largest_upper(contrasts), abs=2e-4)


def test_upper_bounds_of_rce_are_linear_contrasts() -> None:
    """The bound c is where the largest upper bound of ``s'delta - c mean`` is 0."""
    rungs = _answers(150, np.linspace(0.5, 0.6, 4), 2)
    bound = estimate("relative_continuous_error", _table(rungs)).high
    contrasts, means = _with_one_more_against(rungs)
    assert _largest_upper(contrasts - bound * means[:, None]) == pytest.approx(0.0, abs=2e-4)


@pytest.mark.cases("name", NAMES)
def test_copies_of_samples_add_nothing(name: str) -> None:
    rungs = _answers(150, np.linspace(0.4, 0.7, 5), 6)
    groups = [str(index) for index in range(150)] * 3
    single, copied = estimate(name, _table(rungs)), estimate(name, _table(np.tile(rungs, (3, 1)), groups))
    assert copied.value == pytest.approx(single.value)
    assert (copied.low, copied.high) == pytest.approx((single.low, single.high), abs=0.006)


@pytest.mark.cases("name", NAMES)
def test_one_source_image_shows_nothing(name: str) -> None:
    result = estimate(name, _table(_answers(9, np.full(3, 0.6)), ["one"] * 9))
    low, high = metrics.get(name).bounds
    assert (result.low, result.high) == (low, high)
    assert result.reason == ""


def test_a_perfect_model_is_not_known_to_be_one() -> None:
    """With all of 100 samples right everywhere, rarer than 3 % is all that is known."""
    table = _table(np.ones((100, 12)))
    for name in ("absolute_continuous_error", "resolution_wobble", "largest_downward_step"):
        result = estimate(name, table)
        assert (result.value, result.low) == (0.0, 0.0)
        assert result.high > 0.02
    assert estimate("resolution_accuracy", table).low == pytest.approx(0.05 ** (1 / 100))  # Clopper and Pearson


def test_too_many_resolutions_show_nothing_about_sums_of_steps() -> None:
    table = _table(_answers(50, np.full(17, 0.5)))
    for name in ("absolute_continuous_error", "relative_continuous_error", "resolution_wobble"):
        result = estimate(name, table)
        assert math.isfinite(result.value)
        assert (result.low, result.high) == (0.0, math.inf)
    assert estimate("largest_downward_step", table).high < 1.0


def test_what_noise_gives_is_said() -> None:
    rungs = _answers(1200, np.full(12, 0.55), 1)
    reason = estimate("absolute_continuous_error", _table(rungs)).reason
    match = re.fullmatch(r"sampling noise alone would give (0\.\d{3}) on a flat curve", reason)
    assert match
    assert float(match[1]) == pytest.approx(metrics.resolution_noise_floor(rungs), abs=5e-4)
    assert estimate("relative_continuous_error", _table(rungs)).reason == reason
    reason = estimate("resolution_wobble", _table(rungs)).reason
    assert re.fullmatch(r"sampling noise alone would give up to 0\.\d{3} \(95 %\) on a monotone curve, p=[01]\.\d{3}", reason)


def test_what_noise_gives_is_the_same_each_time() -> None:
    table = _table(_answers(60, np.full(5, 0.5)))
    assert estimate("resolution_wobble", table) == estimate("resolution_wobble", table)
    assert estimate("absolute_continuous_error", table) == estimate("absolute_continuous_error", table)


def _answers_curve_noise(rng: np.random.Generator, n: int, rates: Array) -> Array:
    ease = np.where(rng.random((n, rates.size)) < 0.15, rng.random((n, rates.size)), rng.random(n)[:, None])
    return (ease < rates).astype(float)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(11)


def test_wobble_of_a_monotone_truth_is_seldom_significant(rng: np.random.Generator) -> None:
    p_values = [
        metrics.wobble_p_value(_answers_curve_noise(rng, 150, np.linspace(0.5, 0.6, 6)), rng, draws=99) for _ in range(100)
    ]
    assert sum(p <= 0.05 for p in p_values) <= 10
    assert 0.4 < float(np.mean(p_values)) < 0.85


def test_a_true_wobble_is_significant(rng: np.random.Generator) -> None:
    rungs = _answers_curve_noise(rng, 1000, np.array([0.5, 0.62, 0.5, 0.62, 0.5, 0.62]))
    assert metrics.wobble_p_value(rungs, rng) == pytest.approx(1 / 1000)


def test_p_values_follow_the_generator(rng: np.random.Generator) -> None:
    rungs = _answers_curve_noise(rng, 100, np.full(5, 0.5))
    first, again = (metrics.wobble_p_value(rungs, np.random.default_rng(4)) for _ in range(2))
    assert first == again
    assert type(first) is float


def test_source_images_count_once(rng: np.random.Generator) -> None:
    rungs = np.tile(_answers_curve_noise(rng, 100, np.full(6, 0.5)), (9, 1))
    groups = [str(index) for index in range(100)] * 9
    naive, aware = (metrics.wobble_p_value(rungs, np.random.default_rng(0), images) for images in (None, groups))
    assert naive < 0.2 * aware


def test_too_little_is_unknown() -> None:
    def companion(rungs: Any, groups: list[str] | None = None) -> float:
        return metrics.wobble_p_value(rungs, np.random.default_rng(0), groups)

    assert math.isnan(companion([[1, 0]]))
    assert math.isnan(companion([[1], [0]]))
    assert math.isnan(companion([[1, 0], [math.nan, 1]]))
    assert math.isnan(companion([[1, 0], [0, 1]], ["a", "a"]))
    assert math.isnan(companion(np.zeros((0, 3))))
    with pytest.raises(ValueError, match="1 source images for 2 samples"):
        companion([[1, 0], [0, 1]], ["a"])


def test_counts_of_draws_are_checked(rng: np.random.Generator) -> None:
    with pytest.raises(ValueError, match="draws is 0: expected at least 1"):
        metrics.wobble_p_value([[1, 0], [0, 1]], rng, draws=0)
