from __future__ import annotations

import math

import pytest

from pytest_vlmrobust import metrics


def test_sensitivity_is_the_mean_drop_of_each_category() -> None:
    """Counting questions lose 0, 1/2 and 1/2 under the three settings, colour questions 1/2, 1/2 and 1."""
    clean = {"count": 1.0, "colour": 1.0}
    sweep = {
        "fog:low": {"count": 1.0, "colour": 0.5},
        "rain:low": {"count": 0.5, "colour": 0.5},
        "flip_v": {"count": 0.5, "colour": 0.0},
    }
    found = metrics.category_sensitivity(clean, sweep)
    assert found == pytest.approx({"colour": 2 / 3, "count": 1 / 3})
    assert list(found) == ["colour", "count"]


def test_a_category_that_lacks_an_accuracy_is_unknown_and_last() -> None:
    found = metrics.category_sensitivity({"a": 0.5, "b": 1.0, "c": 1.0}, {"fog:low": {"a": 0.5, "c": 0.0}})
    assert list(found) == ["c", "a", "b"]
    assert math.isnan(found["b"])


def test_nothing_is_known_without_settings() -> None:
    assert math.isnan(metrics.category_sensitivity({"a": 0.5}, {})["a"])
