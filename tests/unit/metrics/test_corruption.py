from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.cell import Setting

CLEAN = [1.0] * 9 + [0.0]
ONE_LOST = [1.0] * 8 + [0.0] * 2

SUMMARIES = [
    metrics.mean_drop,
    metrics.worst_case_drop,
    metrics.severe_failure_rate,
    metrics.catastrophic_rate,
    metrics.mean_harmful_flip_rate,
    metrics.mean_helpful_flip_rate,
]


@pytest.mark.parametrize("summary", SUMMARIES)
def test_a_sweep_of_nothing_is_unknown(summary: Callable[..., float]) -> None:
    assert math.isnan(summary([1, 0], {}))
    assert math.isnan(summary([], {"fog:low": []}))


def test_settings_may_be_given_as_setting() -> None:
    assert metrics.worst_case_drop(CLEAN, {Setting.parse("fog:low"): ONE_LOST}) == 0.1


def test_a_missing_score_anywhere_makes_the_worst_case_unknown() -> None:
    """The lost setting might have been the worst one, wherever it stands."""
    holed: list[float] = [math.nan, *ONE_LOST[1:]]
    assert math.isnan(metrics.worst_case_drop(CLEAN, {"a": ONE_LOST, "b": holed}))
    assert math.isnan(metrics.worst_case_drop(CLEAN, {"b": holed, "a": ONE_LOST}))


def test_a_missing_score_makes_a_share_unknown_instead_of_small() -> None:
    holed: dict[str, list[float]] = {"a:low": [math.nan] * 10, "b:low": CLEAN}
    assert math.isnan(metrics.severe_failure_rate(CLEAN, holed))
    assert math.isnan(metrics.catastrophic_rate(CLEAN, holed))
    assert math.isnan(metrics.benign_at_low(CLEAN, holed))


@pytest.mark.parametrize(("correct", "lost", "severe"), [(10, 1, 0.0), (10, 2, 1.0), (9, 1, 1.0), (300, 30, 0.0), (300, 31, 1.0)])
def test_severe_is_strictly_more_than_a_tenth_of_clean(correct: int, lost: int, severe: float) -> None:
    clean = [1] * correct + [0] * 7
    perturbed = [1] * (correct - lost) + [0] * (lost + 7)
    assert metrics.severe_failure_rate(clean, {"a": perturbed}) == severe


@pytest.mark.parametrize("correct", range(10, 2000, 10))
def test_a_loss_of_exactly_a_tenth_is_never_severe(correct: int) -> None:
    clean, perturbed = np.zeros(2000), np.zeros(2000)
    clean[:correct] = 1
    perturbed[: correct - correct // 10] = 1
    assert metrics.severe_failure_rate(clean, {"a": perturbed}) == 0.0


def test_the_severe_threshold_is_a_parameter() -> None:
    assert metrics.severe_failure_rate(CLEAN, {"a": ONE_LOST}, relative=0.2) == 0.0


def test_benign_is_less_than_one_point_not_one_per_cent_of_clean() -> None:
    """VLM-RobustBench: 3 of 324 (0.926 pp) is benign, 9 of 853 (1.055 pp) is not."""
    for n, lost, benign in ((324, 3, 1.0), (853, 9, 0.0), (100, 1, 0.0)):
        clean = [1] * 99 + [0] * (n - 99)
        perturbed = [0] * lost + [1] * (99 - lost) + [0] * (n - 99)
        assert metrics.benign_at_low(clean, {"a:low": perturbed}) == benign


@pytest.mark.parametrize("at_low", [metrics.worst_at_low, metrics.benign_at_low, metrics.mean_drop_at_low])
def test_low_metrics_use_low_settings_only(at_low: Callable[..., float]) -> None:
    low_only = at_low(CLEAN, {"a:low": ONE_LOST})
    more = {"a:low": ONE_LOST, "a:mid": [0] * 10, "flip_v": [0] * 10, "a:low+b:low": [0] * 10}
    assert at_low(CLEAN, more) == low_only


@pytest.mark.parametrize("at_low", [metrics.worst_at_low, metrics.benign_at_low, metrics.mean_drop_at_low])
def test_low_metrics_need_a_low_setting(at_low: Callable[..., float]) -> None:
    with pytest.raises(ValueError, match="none of the 2 settings is at level low: this metric is about settings such as"):
        at_low(CLEAN, {"fog:mid": CLEAN, "flip_v": CLEAN})


def test_mce_sums_over_levels_before_it_divides() -> None:
    """fog: (1 + 3) / (2 + 2) = 1; flip_v: 1 / 4; the mean is over the two perturbations, not over the three settings."""
    own = {"fog:low": [1, 1, 1, 0], "fog:high": [1, 0, 0, 0], "flip_v": [1, 1, 1, 0]}
    reference = {"fog:low": [1, 1, 0, 0], "fog:high": [1, 1, 0, 0], "flip_v": [0, 0, 0, 0]}
    assert metrics.mean_corruption_error(own, reference) == (1.0 + 0.25) / 2


def test_mce_of_the_reference_itself_is_one() -> None:
    scores: dict[str, list[float]] = {"fog:low": [1, 0, 0.5], "flip_v": [0, 0, 1]}
    assert metrics.mean_corruption_error(scores, scores) == 1.0


def test_mce_is_undefined_where_the_reference_makes_no_errors() -> None:
    assert math.isnan(metrics.mean_corruption_error({"a": [1, 0], "b": [0, 0]}, {"a": [0, 0], "b": [1, 1]}))


def test_mce_needs_the_same_settings_of_the_reference() -> None:
    with pytest.raises(
        ValueError, match="reference_by_setting lacks fog:mid: measure the reference model under the same settings"
    ):
        metrics.mean_corruption_error({"fog:mid": [1]}, {"fog:low": [1]})
    assert metrics.mean_corruption_error({"fog:low": [0]}, {"fog:low": [0], "fog:mid": [1]}) == 1.0


def test_mean_rce_is_the_mean_of_the_rces(rng: np.random.Generator) -> None:
    clean, blind = (rng.random(50) < 0.9), (rng.random(50) < 0.3)
    perturbed = {f"a{i}": rng.random(50) < 0.7 for i in range(5)}
    each = [metrics.relative_corruption_error(clean, scores, blind) for scores in perturbed.values()]
    assert metrics.mean_relative_corruption_error(clean, perturbed, blind) == pytest.approx(sum(each) / 5)


def test_mean_rce_needs_a_visual_gain() -> None:
    assert math.isnan(metrics.mean_relative_corruption_error([1, 0], {"a": [1, 0]}, [1, 0]))


def test_mean_rce_names_unequal_lengths() -> None:
    with pytest.raises(ValueError, match="clean has 2 scores and no_image has 1"):
        metrics.mean_relative_corruption_error([1, 0], {"a": [1, 0]}, [1])
