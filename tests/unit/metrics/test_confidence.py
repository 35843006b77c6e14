"""Confidence: against scikit-learn, and how often the truth lies outside the intervals."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from pytest_vlmrobust import metrics
from pytest_vlmrobust.metrics import ScoreTable, estimate

Array = NDArray[np.float64]
LEVELS = ("expected_calibration_error", "brier_score", "area_under_risk_coverage", "coverage_at_90_precision")


def answers(n: int, rng: np.random.Generator, over: float = 0.0) -> tuple[Array, Array]:
    """Scores and confidences; of the missing confidence the share ``over`` is claimed without right."""
    right = rng.beta(4, 1, n)
    return (rng.random(n) < right).astype(float), right + over * (1.0 - right)


def table_of(scores: Array, confidences: Array, groups: list[str] | None = None) -> ScoreTable:
    return ScoreTable(scores, {"fog:low": scores}, groups=groups, confidences={"clean": confidences, "fog:low": confidences})


def test_it_is_what_scikit_learn_computes() -> None:
    sklearn = pytest.importorskip("sklearn.metrics")
    scores, confidences = answers(300, np.random.default_rng(0))
    assert metrics.brier_score(scores, confidences) == pytest.approx(sklearn.brier_score_loss(scores, confidences))


@pytest.mark.parametrize("name", LEVELS)
def test_the_order_of_equally_confident_answers_does_not_matter(name: str) -> None:
    confidences = np.repeat([0.9, 0.6], 10)
    scores = np.array([1.0] * 7 + [0.0] * 3 + [1.0] * 4 + [0.0] * 6)
    first, other = (estimate(name, table_of(each, confidences), "fog:low") for each in (scores, scores[::-1][np.r_[10:20, 0:10]]))
    assert (first.value, first.low, first.high) == pytest.approx((other.value, other.low, other.high))
    noise = 1e-15 * np.arange(20)  # probabilities of the same logits, summed in another order
    noisy = estimate(name, table_of(scores, confidences + noise), "fog:low")
    assert (noisy.value, noisy.low, noisy.high) == pytest.approx((first.value, first.low, first.high), abs=1e-9)


def test_a_coverage_is_shown_by_clopper_and_pearson_at_tenths() -> None:
    """Of 200 answers the 140 most confident have 4 errors, the rest is a coin's."""
    scores = np.ones(200)
    scores[[30, 60, 90, 120]] = 0.0
    scores[140::2] = 0.0
    confidences = np.linspace(1.0, 0.5, 200)
    shown = estimate("coverage_at_90_precision", table_of(scores, confidences), "fog:low")
    tenths = range(100, 201, 20)  # from 90 answers on
    kept = [k / 200 for k in tenths if metrics.exact_interval(int(scores[:k].sum()), k)[0] >= 0.9]
    assert max(kept) == 0.7
    assert shown.low == metrics.exact_interval(140, 200)[0]
    assert shown.low < shown.value < shown.high


@pytest.mark.study
@pytest.mark.parametrize("sure", [0.97, 0.99])
def test_a_share_of_equally_sure_answers_is_not_known_exactly(sure: float) -> None:
    """49.8 % are sure and mostly right, the rest is right in 40 %; 8.8 % of 300 runs are three standard errors above 5 %."""
    rng, runs, n = np.random.default_rng(3), 300, 324
    wrong = 0
    for _ in range(runs):
        is_sure = rng.random(n) < 0.498
        scores = (rng.random(n) < np.where(is_sure, sure, 0.4)).astype(float)
        wrong += estimate("coverage_at_90_precision", table_of(scores, np.where(is_sure, 1.0, 0.5)), "fog:low").low > 0.498
    assert wrong <= 0.088 * runs


def test_without_probabilities_it_is_unknown_and_never_zero() -> None:
    scores = np.ones(40)
    without = estimate("expected_calibration_error", ScoreTable(scores, {"fog:low": scores}), "fog:low")
    assert math.isnan(without.value)
    assert without.reason == "there are no probabilities of letters"
    gone = estimate("brier_score", table_of(scores, np.r_[np.nan, scores[1:]]), "fog:low")
    assert math.isnan(gone.value)
    assert gone.reason == "scores of 1 of 40 samples are missing: 1 in confidence fog:low"


@pytest.mark.parametrize(("n", "tail"), [(12, 0.05), (30, 0.05), (30, 0.05 / 133), (60, 0.05 / 42)])
def test_few_answers_of_a_sure_model_show_no_calibration_error(n: int, tail: float) -> None:
    """It is calibrated: where by luck none of its answers is wrong, their small gaps differ little and all have one sign."""
    rng, runs = np.random.default_rng(3), 100
    shown = 0
    for _ in range(runs):
        confidences = 1.0 - 0.3 * rng.random(n) ** 3
        scores = (rng.random(n) < confidences).astype(float)
        shown += estimate("expected_calibration_error", table_of(scores, confidences), "fog:low", 1.0 - 2.0 * tail).low > 0.0
    assert shown <= 2


def test_all_right_is_no_proof_of_too_little_confidence() -> None:
    """Of a model that is right on 95 %, one run in five of 30 answers has none wrong."""
    confidences = np.linspace(0.88, 0.92, 30)
    at = estimate("expected_calibration_error", table_of(np.ones(30), confidences), "fog:low")
    assert at.value == pytest.approx(0.10)
    assert at.low < 0.05


@pytest.mark.study
@pytest.mark.parametrize("over", [0.0, 0.6])
@pytest.mark.parametrize("size", [1, 3], ids=["independent", "three to an image"])
def test_the_truth_is_seldom_outside(over: float, size: int) -> None:
    """The risk of each end is declared as 5 %; 11.5 % of 200 runs are three standard errors above 7 %."""
    rng, runs, n = np.random.default_rng(5), 200, 240
    names = (*LEVELS, "calibration_error_increase", "brier_score_increase", "risk_coverage_increase")
    many, many_after = answers(200_000, rng), answers(200_000, rng, over)
    population = ScoreTable(many[0], {"fog:low": many_after[0]}, confidences={"clean": many[1], "fog:low": many_after[1]})
    truths = {name: estimate(name, population, "fog:low", None).value for name in names}
    misses = {name: np.zeros(2) for name in names}
    for _ in range(runs):
        (clean, sure), (after, sure_after) = (
            [np.repeat(part, size) for part in answers(n // size, rng, extra)] for extra in (0.0, over)
        )
        groups = [str(index // size) for index in range(n)]
        table = ScoreTable(clean, {"fog:low": after}, groups=groups, confidences={"clean": sure, "fog:low": sure_after})
        for name in names:
            at = estimate(name, table, "fog:low")
            misses[name] += at.low > truths[name], at.high < truths[name]
    assert {name: count.tolist() for name, count in misses.items() if (count > 0.115 * runs).any()} == {}
