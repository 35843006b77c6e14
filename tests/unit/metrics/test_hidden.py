"""Losses that a mean hides: at the extremes, and with a known truth behind clusters."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from pytest_vlmrobust import metrics
from pytest_vlmrobust.metrics import ScoreTable, estimate

BY_CATEGORY = ("worst_category_drop", "worst_category_accuracy")
EACH = (*BY_CATEGORY, "always_lost_rate")

CLEAN = [1, 1, 1, 0]
SWEEP = {"fog:low": [1, 1, 0, 0], "fog:high": [1, 0, 0, 0]}
"""The means over the two settings are 1, 1/2, 0 and 0."""


def table_of(clean: Any, by_setting: Mapping[str, Any], **labels: Any) -> ScoreTable:
    return ScoreTable(np.array(clean, float), {name: np.array(scores, float) for name, scores in by_setting.items()}, **labels)


@pytest.mark.cases(("right", "settings", "counted"), [(0, 10, 1.0), (1, 10, 1.0), (2, 10, 0.0), (13, 133, 1.0), (14, 133, 0.0)])
def test_nine_tenths_of_the_settings_have_to_be_wrong(right: int, settings: int, counted: float) -> None:
    sweep = {f"kind{number}": [float(number < right)] for number in range(settings)}
    assert metrics.always_lost_rate([1.0], sweep) == counted


def test_a_graded_score_of_a_half_is_right() -> None:
    assert metrics.always_lost_rate([0.5, 0.4], {"fog:low": [0.1, 0.0]}) == 0.5


def test_a_mean_hides_one_category_of_thirty() -> None:
    categories = [str(number % 30) for number in range(900)]
    lost = [float(category != "7") for category in categories]
    table = table_of(np.ones(900), {"fog:low": lost, "flip_v": lost}, categories=categories)
    drop, worst, always = (estimate(name, table) for name in ("mean_drop", "worst_category_drop", "always_lost_rate"))
    assert drop.value == pytest.approx(1 / 30)
    assert drop.high < 0.05  # default.yaml passes it
    assert worst.value == 1.0
    assert worst.low > 0.25  # and fails these
    assert worst.reason.startswith("worst of 30: 7 (100.0 pp, n=30)")
    assert always.low > 0.02
    assert always.reason.startswith("30 of 900 samples are always lost")


def test_a_small_category_makes_the_interval_wide_and_decides_nothing() -> None:
    table = table_of(np.ones(203), {"fog:low": np.ones(203)}, categories=["a"] * 200 + ["b"] * 3)
    drop, accuracy = (estimate(name, table) for name in BY_CATEGORY)
    assert (drop.value, accuracy.value) == (0.0, 1.0)
    assert drop.high == pytest.approx(1 - 0.05 ** (1 / 3))  # of three: none lost, where up to 63 % may be
    assert accuracy.low == pytest.approx(0.05 ** (1 / 3))
    lost = table_of(np.ones(203), {"fog:low": [1.0] * 200 + [0.0, 0.0, 1.0]}, categories=["a"] * 200 + ["b"] * 3)
    assert estimate("worst_category_drop", lost).low < 0.15  # two of three lost prove little where two categories could be worst


def test_extremes() -> None:
    empty = table_of([], {"fog:low": []}, categories=[])
    assert {estimate(name, empty).reason for name in EACH} == {"no samples"}
    without = table_of([1, 0], {"fog:low": [1, 0]})
    assert {estimate(name, without).reason for name in BY_CATEGORY} == {"there are no categories of questions"}
    assert set(BY_CATEGORY).isdisjoint(metrics.applicable(without))
    unknown = table_of([1, 0], {"fog:low": [1, 0]}, categories=["", ""])
    assert all(math.isnan(estimate(name, unknown).value) for name in BY_CATEGORY)
    table = table_of(CLEAN, SWEEP, categories=["a"] * 4)
    assert estimate("worst_category_drop", table).value == metrics.mean_drop(CLEAN, SWEEP)
    alone = table_of(CLEAN, SWEEP, categories=list("abcd"))
    assert estimate("worst_category_drop", alone).value == 1.0
    assert estimate("worst_category_drop", alone).high == 1.0
    assert estimate("worst_category_accuracy", alone).low == 0.0
    together = table_of(CLEAN, SWEEP, groups=["picture"] * 4, categories=list("aabb"))
    assert (estimate("worst_category_drop", together).low, estimate("worst_category_drop", together).high) == (-1.0, 1.0)
    for name, function in (("always_lost_rate", metrics.always_lost_rate), ("mean_drop", metrics.mean_drop)):
        assert math.isnan(function(CLEAN, {})), name


def test_one_label_for_each_sample() -> None:
    with pytest.raises(ValueError, match="categories has 3: expected one for each sample"):
        metrics.worst_category_drop(CLEAN, SWEEP, ["a", "b", "c"])
    with pytest.raises(ValueError, match="categories has 3: expected one for each sample"):
        metrics.worst_category_accuracy(SWEEP, ["a", "b", "c"])


# With clusters: the questions of one picture are lost together, and the truth lies on the bound


COPIES = 3


def _rates_of_errors(runs: int, draw: Callable[[], ScoreTable], name: str, truth: float) -> tuple[float, float]:
    """Returns how often the truth lies below and above the 90 % interval."""
    estimates = [estimate(metrics.get(name), draw()) for _ in range(runs)]
    return float(np.mean([interval.low > truth for interval in estimates])), float(
        np.mean([interval.high < truth for interval in estimates])
    )


@pytest.mark.study
@pytest.mark.parametrize("share", [0.02, 0.1])
def test_always_lost_errs_as_seldom_as_it_says_with_clusters(share: float) -> None:
    rng, pictures = np.random.default_rng(5), 200

    def draw() -> ScoreTable:
        lost = np.repeat(rng.random(pictures) < share, COPIES)
        groups = [str(number // COPIES) for number in range(lost.size)]
        return table_of(np.ones(lost.size), {"fog:low": ~lost, "flip_v": ~lost}, groups=groups)

    low, high = _rates_of_errors(500, draw, "always_lost_rate", share)
    assert high <= 0.05 + 0.02  # two standard errors of 500 runs
    assert low <= 0.05 + 0.02


@pytest.mark.study
@pytest.mark.parametrize("drops", [(0.25, 0.0, 0.0, 0.0), (0.25, 0.25, 0.25, 0.25)], ids=["one-on-the-bound", "all-on-the-bound"])
@pytest.mark.parametrize("name", BY_CATEGORY)
def test_the_worst_category_errs_as_seldom_as_it_says_with_clusters(name: str, drops: tuple[float, ...]) -> None:
    rng, pictures = np.random.default_rng(6), 30

    def draw() -> ScoreTable:
        lost = np.concatenate([np.repeat(rng.random(pictures) < 2 * drop, COPIES) for drop in drops])
        groups = [str(number // COPIES) for number in range(lost.size)]
        categories = [str(number // (COPIES * pictures)) for number in range(lost.size)]
        once, again = (lost & np.repeat(rng.random(lost.size // COPIES) < 0.5, COPIES) for _ in range(2))
        return table_of(np.ones(lost.size), {"fog:low": ~once, "flip_v": ~again}, groups=groups, categories=categories)

    low, high = _rates_of_errors(400, draw, name, 0.25 if name.endswith("drop") else 0.75)
    assert high <= 0.05 + 0.022
    assert low <= 0.05 + 0.022
