from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pytest_vlmrobust import metrics, perturbations
from pytest_vlmrobust.core.errors import UnknownName, UsageError
from pytest_vlmrobust.metrics import ScoreTable, estimate

CATEGORY = {"fog:low": "weather", "fog:high": "weather", "rain:low": "weather", "flip_v": "binary"}
OWN = {"fog:low": [1, 1, 1, 0], "fog:high": [1, 0, 0, 0], "rain:low": [1, 1, 1, 0], "flip_v": [0, 0, 0, 0]}
REFERENCE = {"fog:low": [1, 1, 0, 0], "fog:high": [1, 1, 0, 0], "rain:low": [1, 1, 0, 0], "flip_v": [1, 1, 0, 0]}


def test_sensitivity_by_what_is_asked() -> None:
    """Counting questions lose 0, 1 and 1 of 2 under the three settings, colour questions 1, 1 and 0."""
    clean = [1, 1, 1, 1]
    sweep = {"fog:low": [1, 1, 0, 1], "rain:low": [0, 1, 1, 0], "flip_v": [1, 0, 1, 1]}
    found = metrics.category_sensitivity(clean, sweep, ["count", "count", "colour", "colour"])
    assert found == pytest.approx({"count": 1 / 3, "colour": 1 / 3})
    assert type(found["count"]) is float


def test_the_most_sensitive_category_comes_first() -> None:
    found = metrics.category_sensitivity([1, 1, 1], {"fog:low": [1, 0, math.nan]}, ["a", "b", "c"])
    assert list(found) == ["b", "a", "c"]
    assert math.isnan(found["c"])


def test_drops_by_what_is_done() -> None:
    found = metrics.drop_by_category([1, 1, 1, 1], OWN, CATEGORY)
    assert found == pytest.approx({"weather": (0.25 + 0.75 + 0.25) / 3, "binary": 1.0})


def test_corruption_errors_are_per_perturbation() -> None:
    """fog: (1 + 3) / (2 + 2); rain: 1 / 2; flip_v: 4 / 2."""
    assert metrics.corruption_errors(OWN, REFERENCE) == {"fog": 1.0, "rain": 0.5, "flip_v": 2.0}
    by_category = metrics.corruption_error_by_category(OWN, REFERENCE, CATEGORY)
    assert by_category == {"weather": 0.75, "binary": 2.0}
    assert metrics.mean_corruption_error(OWN, REFERENCE) == pytest.approx((2 * 0.75 + 1 * 2.0) / 3)


def test_a_reference_without_errors_spoils_its_category_only() -> None:
    reference = REFERENCE | {"flip_v": [1, 1, 1, 1]}
    found = metrics.corruption_error_by_category(OWN, reference, CATEGORY)
    assert found["weather"] == 0.75
    assert math.isnan(found["binary"])


def test_estimates_by_category_have_intervals() -> None:
    rng = np.random.default_rng(2)
    clean = np.ones(200)
    sweep = {name: (rng.random(200) < 0.9).astype(float) for name in CATEGORY}
    reference = {name: (rng.random(200) < 0.8).astype(float) for name in CATEGORY}
    table = ScoreTable(clean, sweep, reference_by_setting=reference, groups=[str(index // 2) for index in range(200)])
    found = metrics.estimates_by_category("mean_corruption_error", table, CATEGORY)
    values = metrics.corruption_error_by_category(sweep, reference, CATEGORY)
    assert {name: result.value for name, result in found.items()} == pytest.approx(values)
    assert all(result.low < result.value < result.high for result in found.values())
    assert found["weather"].reason == "over 3 of 133 settings"
    drops = metrics.estimates_by_category("mean_drop", table, CATEGORY)
    assert {name: result.value for name, result in drops.items()} == pytest.approx(
        metrics.drop_by_category(clean, sweep, CATEGORY)
    )
    single = metrics.estimates_by_category("worst_case_drop", table, CATEGORY)["binary"]
    own = estimate("accuracy_drop", table, "flip_v")
    assert (single.value, single.low, single.high) == (own.value, own.low, own.high)


def test_every_setting_needs_a_category() -> None:
    incomplete = {"fog:low": "weather"}
    message = "category_of_setting lacks fog:high, rain:low, flip_v: give each setting its category"
    calls: list[Callable[[], Any]] = [
        lambda: metrics.drop_by_category([1, 1, 1, 1], OWN, incomplete),
        lambda: metrics.corruption_error_by_category(OWN, REFERENCE, incomplete | {"rain:low": "w", "flip_v": "b"}),
    ]
    with pytest.raises(ValueError, match=message):
        calls[0]()
    with pytest.raises(ValueError, match="category_of_setting lacks fog:high: "):
        calls[1]()
    table = ScoreTable(np.ones(1), {"fog:low": np.ones(1), "fog:high": np.ones(1)})
    with pytest.raises(UsageError, match="category_of_setting lacks fog:high: "):
        metrics.estimates_by_category("mean_drop", table, incomplete)
    with pytest.raises(UnknownName, match=r"unknown metric 'mean_dorp'"):
        metrics.estimates_by_category("mean_dorp", table, CATEGORY)


def test_a_perturbation_has_one_category() -> None:
    with pytest.raises(ValueError, match=r"the levels of fog \(weather and blur\) are in different categories"):
        metrics.corruption_error_by_category(OWN, REFERENCE, CATEGORY | {"fog:high": "blur"})


def test_categories_of_samples_are_counted() -> None:
    with pytest.raises(ValueError, match="clean has 2 scores and categories has 1"):
        metrics.category_sensitivity([1, 1], {"fog:low": [1, 1]}, ["a"])


def test_the_catalogues_families_are_categories() -> None:
    family = {name: perturbations.info(name).family for name in perturbations.names("robustbench")}
    drops = metrics.drop_by_category(np.ones(3), {name: np.ones(3) for name in family}, family)
    assert len(drops) == 10
    assert set(drops.values()) == {0.0}
