from __future__ import annotations

import math

import numpy as np
import pytest

from pytest_vlmrobust import metrics, perturbations
from pytest_vlmrobust.metrics.severity import SPATIAL_TYPES, spatial_settings


@pytest.mark.cases(
    ("drop", "tier"),
    [
        (-1.0, "positive"),
        (-0.001, "positive"),
        (0.0, "benign"),
        (0.0099, "benign"),
        (0.01, "mild"),
        (0.57 - 0.56, "mild"),  # 0.00999... in floats, one point in truth
        (0.0299, "mild"),
        (0.03, "moderate"),
        (0.1, "moderate"),
        (0.9 - 0.8, "moderate"),
        (0.2 - 0.1 + 1e-12, "moderate"),
        (0.101, "catastrophic"),
        (1.0, "catastrophic"),
    ],
)
def test_tiers(drop: float, tier: str) -> None:
    assert metrics.robustness_tier(drop) == tier


def test_an_unknown_drop_has_no_tier() -> None:
    with pytest.raises(ValueError, match="the drop is NaN: a drop that is unknown has no tier"):
        metrics.robustness_tier(math.nan)


def test_a_drop_in_points_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"the drop is 26\.3: expected a fraction in \[-1, 1\], so 26\.3 percentage points are 0\.263"
    ):
        metrics.robustness_tier(26.3)


def test_tier_shares_count_settings() -> None:
    shares = metrics.tier_shares([0.0, 0.01, 0.02, 0.05, 0.11, 0.5])
    assert shares == pytest.approx((0, 1 / 6, 2 / 6, 1 / 6, 2 / 6))
    assert shares._fields == metrics.TIERS


@pytest.mark.parametrize("drops", [[], [0.1, math.nan]])
def test_tier_shares_of_nothing_are_unknown(drops: list[float]) -> None:
    assert all(math.isnan(share) for share in metrics.tier_shares(drops))


@pytest.mark.cases(
    ("drops", "violated"),
    [
        ((0.1, 0.2, 0.3), 0.0),
        ((0.1, 0.1, 0.1), 0.0),
        ((0.2, 0.1, 0.3), 1.0),
        ((0.1, 0.3, 0.2), 1.0),
        ((0.3, 0.2, 0.1), 1.0),
        ((0.1 + 0.2, 0.3, 0.3), 0.0),  # 0.30000000000000004 > 0.3 is rounding
    ],
)
def test_violation_is_strict(drops: tuple[float, float, float], violated: float) -> None:
    assert metrics.severity_violation(drops) == violated
    assert type(metrics.severity_violation(drops)) is float


@pytest.mark.cases(
    ("drops", "correlation"),
    [
        ((0.1, 0.2, 0.3), 1.0),
        ((0.3, 0.2, 0.1), -1.0),
        ((0.1, 0.3, 0.2), 0.5),
        ((0.3, 0.1, 0.2), -0.5),
        ((0.1, 0.1, 0.2), math.sqrt(3) / 2),  # ranks 1.5, 1.5, 3
        ((0.1 + 0.2, 0.3, 0.4), math.sqrt(3) / 2),  # the same, but for rounding
    ],
)
def test_correlation(drops: tuple[float, float, float], correlation: float) -> None:
    assert metrics.severity_correlation(drops) == pytest.approx(correlation)


def test_unknown_drops_stay_unknown() -> None:
    assert math.isnan(metrics.severity_violation((0.3, 0.2, math.nan)))
    assert math.isnan(metrics.severity_correlation((0.3, 0.2, math.nan)))


def test_three_drops_are_needed() -> None:
    with pytest.raises(ValueError, match="found 2 drops: expected three, for the levels low, mid and high in this order"):
        metrics.severity_violation((0.1, 0.2))
    with pytest.raises(ValueError, match="found 4 drops"):
        metrics.severity_correlation((0.1, 0.2, 0.3, 0.4))


def test_means_need_a_complete_perturbation() -> None:
    with pytest.raises(ValueError, match="none of the perturbations behind the 1 settings is there at all three levels"):
        metrics.mean_severity_violation([1], {"fog:low": [1]})
    with pytest.raises(ValueError, match="add the missing levels"):
        metrics.mean_severity_correlation([1], {"fog:low": [1]})


def test_the_tail_share_without_a_tail_is_undefined() -> None:
    assert math.isnan(metrics.tail_share([1] * 10, {"upsample:high": [0] + [1] * 9}))
    assert math.isnan(metrics.tail_share([1] * 10, {}))
    assert math.isnan(metrics.tail_share([1, 1], {"upsample:high": [0.0, 0.0], "fog:low": [math.nan, 1.0]}))
    result = metrics.estimate("tail_share", metrics.ScoreTable(np.ones(4), {"fog:low": np.ones(4)}))
    assert result.reason.startswith("undefined: needs at least one setting that costs more than 10 pp")


def test_the_spatial_perturbations_are_in_the_catalogue() -> None:
    names = perturbations.names("robustbench")
    assert len(spatial_settings(names)) == 27
    assert len(SPATIAL_TYPES) == 9


def test_sensitivity_is_the_mean_drop_of_each_category() -> None:
    """Counting questions lose 0, 1/2 and 1/2 under the three settings, colour questions 1/2, 1/2 and 1."""
    clean = {"count": 1.0, "colour": 1.0}
    sweep = {
        "fog:low": {"count": 1.0, "colour": 0.5},
        "rain:low": {"count": 0.5, "colour": 0.5},
        "flip_v": {"count": 0.5, "colour": 0.0},
    }
    sensitivity = metrics.category_sensitivity(clean, sweep)
    assert sensitivity == pytest.approx({"colour": 2 / 3, "count": 1 / 3})
    assert list(sensitivity) == ["colour", "count"]


def test_a_category_that_lacks_an_accuracy_is_unknown_and_last() -> None:
    sensitivity = metrics.category_sensitivity({"a": 0.5, "b": 1.0, "c": 1.0}, {"fog:low": {"a": 0.5, "c": 0.0}})
    assert list(sensitivity) == ["c", "a", "b"]
    assert math.isnan(sensitivity["b"])


def test_nothing_is_known_without_settings() -> None:
    assert math.isnan(metrics.category_sensitivity({"a": 0.5}, {})["a"])
