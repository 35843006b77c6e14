from __future__ import annotations

import bisect
import math
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.metrics import ScoreTable
from pytest_vlmrobust.metrics.table import Scores
from pytest_vlmrobust.policies.samples_needed import samples_to_decide
from tests.unit.evaluation.conftest import present

TAIL, LUCK = NormalDist().inv_cdf(0.95), NormalDist().inv_cdf(0.9)

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


@pytest.mark.cases(
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


def _table(n: int, rng: np.random.Generator, per_image: int = 1) -> ScoreTable:
    """Returns 0/1 scores: 85 % right, 20 % of them wrong under noise, and 35 % right without the image."""
    clean = np.repeat(rng.random(n // per_image) < 0.85, per_image) & (rng.random(n) < 0.97)
    noisy, blind = clean & (rng.random(n) < 0.8), rng.random(n) < 0.35
    return _times(1, clean.astype(np.float64), noisy.astype(np.float64), blind.astype(np.float64), per_image)


def _times(times: int, clean: Scores, noisy: Scores, blind: Scores, per_image: int) -> ScoreTable:
    clean, noisy, blind = (np.tile(scores, times) for scores in (clean, noisy, blind))
    images = [str(index // per_image) for index in range(clean.size)] if per_image > 1 else None
    return ScoreTable(clean, {"blur:low": noisy}, no_image=blind, groups=images)


@pytest.mark.cases("confidence", [0.90, 0.998])  # the second when 50 tests share the risk
@pytest.mark.cases("per_image", [1, 3])
@pytest.mark.cases("metric", ["clean_accuracy", "visual_gain", "harmful_flip_rate"])
def test_a_bound_at_the_ends_for_eight_times_the_answers_needs_eight_times_as_many(
    metric: str, per_image: int, confidence: float
) -> None:
    """The same answers, each on eight images, have the same value and the interval of eight times as many samples."""
    setting = "blur:low" if metric == "harmful_flip_rate" else None
    table = _table(480, np.random.default_rng(0), per_image)
    scores = table.clean, table.by_setting["blur:low"], present(table.no_image)
    some = metrics.estimate(metric, table, setting, confidence)
    many = metrics.estimate(metric, _times(8, *scores, per_image), setting, confidence)
    assert many.value == pytest.approx(some.value)
    tail = NormalDist().inv_cdf((1.0 + confidence) / 2.0)
    for end in (many.low, many.high):
        needed = samples_to_decide(some, end)
        assert needed.least == pytest.approx(8 * 480, rel=0.1)
        assert needed.most == pytest.approx(8 * 480 * ((tail + LUCK) / tail) ** 2, rel=0.1)


@pytest.mark.parametrize("n", [60, 128, 300])
def test_three_lost_answers_are_a_small_count_and_no_event_that_never_occurred(n: int) -> None:
    """Its exact interval grows in steps with the level, which no smooth curve fits: the lower end of 8 times as many tells."""

    def seen(times: int) -> Estimate:
        lost = (np.arange(times * n) >= 3 * times).astype(np.float64)
        return metrics.estimate("accuracy_drop", ScoreTable(np.ones(times * n), {"blur:low": lost}), "blur:low")

    needed = samples_to_decide(seen(1), seen(8).low)
    assert needed.least == pytest.approx(8 * n, rel=0.15)
    assert present(needed.most) > 1.5 * present(needed.least)


@pytest.mark.parametrize("bound", [0.87, 0.93])
def test_a_share_is_decided_as_often_as_the_counts_say(bound: float) -> None:
    """Exact: the binomial probability of as many right answers as keep, or break, a lower bound."""

    def seen(right: int, n: int) -> Estimate:
        return metrics.estimate("clean_accuracy", ScoreTable((np.arange(n) < right).astype(np.float64), {}))

    def decisive(right: int, n: int) -> bool:
        return seen(right, n).high < bound if bound > 0.9 else seen(right, n).low >= bound

    needed = samples_to_decide(seen(180, 200), bound)
    for n, power in ((present(needed.least), 0.5), (present(needed.most), 0.9)):
        first = bisect.bisect_left(range(n), True, key=lambda right: decisive(right, n) is (bound < 0.9))
        decided = binom.cdf(first - 1, n, 0.9) if bound > 0.9 else binom.sf(first - 1, n, 0.9)
        assert decided == pytest.approx(power, abs=0.05)


def _shaped(fixed: float, chance: float, square: float, n: int = 100) -> Estimate:
    """Returns the estimate 0 whose ends are ``fixed + chance z + square z^2`` away."""

    def at(level: float) -> tuple[float, float]:
        z = NormalDist().inv_cdf((1.0 + level) / 2.0)
        half = fixed + chance * z + square * z**2
        return -half, half

    return Estimate(0.0, n, *at(0.90), 0.90, at=at)


@pytest.mark.cases("square", [0.02, 0.0, -0.02])
@pytest.mark.cases("side", [-1, 1])
def test_chance_shrinks_with_the_root_and_its_square_with_the_sample_size(square: float, side: int) -> None:
    """With x the root of the part of the samples at hand: ``square TAIL^2 x^2 + chance (TAIL + luck) x = distance``."""
    chance, distance = 0.2, 0.05
    needed = samples_to_decide(_shaped(0.0, chance, square), side * distance)
    for count, luck in ((needed.least, 0.0), (needed.most, LUCK)):
        roots = np.roots([square * TAIL**2, chance * (TAIL + luck), -distance])
        assert count == pytest.approx(100 / min(roots[roots > 0.0]) ** 2, abs=1.0)


def test_a_constant_part_moves_the_end_and_adds_to_the_spread() -> None:
    """One more sample ``fixed * n`` off: with y = n / count, the variance is ``(chance^2 - fixed^2) y + (fixed y)^2``."""
    fixed, chance, distance = 0.1, 0.3, 0.06
    needed = samples_to_decide(_shaped(fixed, chance, 0.0), distance)
    spread = math.sqrt(chance**2 - fixed**2)
    squared = [fixed**2 * (TAIL**2 - 1.0), TAIL**2 * spread**2 + 2.0 * fixed * distance, -(distance**2)]
    assert needed.least == pytest.approx(100 / max(np.roots(squared)), abs=1.0)
    y = 100 / present(needed.most)
    assert fixed * y + TAIL * math.hypot(spread * math.sqrt(y), fixed * y) + LUCK * spread * math.sqrt(y) == pytest.approx(
        distance, rel=1e-3
    )


@pytest.mark.parametrize("fixed", [0.0, 0.25])
def test_an_event_that_never_occurred_has_no_luck(fixed: float) -> None:
    """Its end shrinks with the sample size itself, and every sample repeats it: both counts are equal."""
    never = _shaped(fixed, 0.0, 0.1)
    assert samples_to_decide(never, never.high / 16)[:2] == (1600, 1600)


def test_a_whole_number_of_samples_is_not_one_more() -> None:
    assert samples_to_decide(_estimate(0.0, -0.5, 0.5, 100), 0.125).least == 1600


def test_the_largest_practical_number_is_a_million() -> None:
    """869 at hand; the distance at which ``most`` is a million, and 0.001 % less."""
    at_most = 0.025 * (TAIL + LUCK) / TAIL * math.sqrt(869 / 999_999.5)
    assert samples_to_decide(_estimate(0.0, -0.025, 0.025), at_most).most == 1_000_000
    assert samples_to_decide(_estimate(0.0, -0.025, 0.025), at_most * 0.99999).most is None


@pytest.mark.cases("halves", [(0.1, math.inf), (math.nan, 0.05), (0.1, 0.2), (0.3, 0.1), (0.1, 0.0), (0.19, 0.02)])
def test_ends_that_make_no_sense_at_other_levels_leave_only_chance(halves: tuple[float, float]) -> None:
    """``halves`` are half-widths at a half and a quarter of the quantile; the last fits only a curve that turns round."""

    def at(level: float) -> tuple[float, float]:
        half = halves[level < 0.5]
        return -half, half

    odd = Estimate(0.0, 100, -0.2, 0.2, 0.90, at=at)
    assert samples_to_decide(odd, 0.05) == samples_to_decide(replace(odd, at=None), 0.05)
