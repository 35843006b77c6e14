from __future__ import annotations

import math

import numpy as np
import pytest

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.errors import UsageError
from pytest_vlmrobust.metrics import (
    ScoreTable,
    accuracy_drop,
    baseline_drop,
    changed_samples,
    drop_increase,
    estimate,
    mean_baseline_drop,
    names,
)
from pytest_vlmrobust.metrics.statistics.paired import TangoTest

THEN = np.array([1.0] * 80 + [0.0] * 20)
NOW = np.array([0.0] * 6 + [1.0] * 74 + [1.0] * 2 + [0.0] * 18)


def test_a_regression_is_paired() -> None:
    """6 of 100 broke and 2 were fixed."""
    table = ScoreTable(np.ones(100), {"fog:low": NOW}, baseline_by_setting={"fog:low": THEN})
    result = estimate("baseline_drop", table, "fog:low")
    assert result.value == baseline_drop(THEN, NOW) == 0.04
    test = TangoTest(np.array([6.0]), np.array([2.0]), np.array([100.0]), math.inf)
    assert (result.low, result.high) == (test.lower(0.05)[0], test.upper(0.05)[0])


def test_the_clean_scores_regress_too() -> None:
    table = ScoreTable(NOW, baseline_by_setting={"clean": THEN})
    assert estimate("baseline_drop", table, "clean").value == 0.04


def test_the_increase_of_a_drop_leaves_the_clean_loss_out() -> None:
    """Clean lost 4 pp and fog 4 pp: robustness is what it was."""
    odd = np.arange(100.0) % 2.0
    fog_then, fog_now = THEN * odd, NOW * odd
    table = ScoreTable(NOW, {"fog:low": fog_now}, baseline_by_setting={"clean": THEN, "fog:low": fog_then})
    result = estimate("drop_increase", table, "fog:low")
    expected = accuracy_drop(NOW, fog_now) - accuracy_drop(THEN, fog_then)
    assert result.value == pytest.approx(expected)
    assert drop_increase(NOW, fog_now, THEN, fog_then) == pytest.approx(expected)
    assert result.low < expected < result.high


def test_a_loss_of_clean_accuracy_alone_is_no_increase() -> None:
    table = ScoreTable(NOW, {"fog:low": NOW}, baseline_by_setting={"clean": THEN, "fog:low": THEN})
    result = estimate("drop_increase", table, "fog:low")
    assert result.value == 0.0
    assert 0.0 < result.high < 0.04


def test_bounds_of_an_increase_by_hand() -> None:
    """Differences of differences 1, 0, 0, -1, 1: above a further 1 and t(0.95; 4), below random weights."""
    clean, fog = [1, 1, 1, 1, 1], [0, 1, 0, 1, 0]
    then_clean, then_fog = [1, 1, 1, 1, 1], [1, 1, 0, 0, 1]
    arrays = [np.array(values, float) for values in (clean, fog, then_clean, then_fog)]
    table = ScoreTable(arrays[0], {"fog:low": arrays[1]}, baseline_by_setting={"clean": arrays[2], "fog:low": arrays[3]})
    result = estimate("drop_increase", table, "fog:low")
    assert result.high == pytest.approx(1 / 3 + 2.131847 * 0.816497 / math.sqrt(6), abs=1e-5)
    weights = np.random.default_rng(0).dirichlet(np.ones(6), 200_000)
    assert (weights @ np.array([1.0, 0.0, 0.0, -1.0, 1.0, -2.0]) < result.low).mean() == pytest.approx(0.05, abs=0.003)


def test_only_the_baseline_suite_asks_for_a_baseline() -> None:
    assert set(names(suite="baseline")) >= {"baseline_drop", "drop_increase"}
    assert not {"baseline_drop", "drop_increase"} & set(names(scope="cell", suite="corruptions"))


def test_broken_and_fixed_samples_are_listed_in_order() -> None:
    changes = changed_samples([f"q{index}" for index in range(100)], THEN, NOW)
    assert changes.broken == ("q0", "q1", "q2", "q3", "q4", "q5")
    assert changes.fixed == ("q80", "q81")
    assert changes.unknown == ()
    assert len(changes.broken) - len(changes.fixed) == round(100 * baseline_drop(THEN, NOW))


def test_graded_and_missing_scores() -> None:
    changes = changed_samples("abcde", [0.5, 0.5, math.nan, 1.0, 1.0], [0.25, 0.75, 1.0, math.nan, 1.0])
    assert changes == (("a",), ("b",), ("c", "d"))


def test_names_and_scores_belong_together() -> None:
    with pytest.raises(ValueError, match="baseline has 2 scores and ids has 1"):
        changed_samples(["a"], [1, 0], [1, 0])


def test_an_interval_needs_the_earlier_run() -> None:
    interval = metrics.get("baseline_drop").interval
    assert interval
    with pytest.raises(UsageError, match="the table has no 'baseline' of 'fog:low': measure it"):
        interval(ScoreTable(np.ones(2), {"fog:low": np.ones(2)}), "fog:low", 0.9)


def test_the_mean_over_settings_is_of_the_samples_own_means() -> None:
    """By hand, of differences per sample 0.5, 0.5, 0, 0: above a further 1 and t(0.95; 3), below random weights."""
    now = {"fog:low": np.array([0.0, 1.0, 1.0, 1.0]), "fog:mid": np.array([1.0, 0.0, 1.0, 0.0])}
    then = {"fog:low": np.ones(4), "fog:mid": np.array([1.0, 1.0, 1.0, 0.0])}
    assert mean_baseline_drop(now, then) == 0.25
    result = estimate("mean_baseline_drop", ScoreTable(np.ones(4), now, baseline_by_setting=then))
    assert (result.value, result.high) == pytest.approx((0.25, 0.4 + 2.353363 * 0.418330 / math.sqrt(5)), abs=1e-5)
    weights = np.random.default_rng(0).dirichlet(np.ones(5), 200_000)
    assert (weights @ np.array([0.5, 0.5, 0.0, 0.0, -1.0]) < result.low).mean() == pytest.approx(0.05, abs=0.003)


def test_the_mean_over_one_setting_is_the_loss_under_it() -> None:
    table = ScoreTable(np.ones(100), {"fog:low": NOW}, baseline_by_setting={"fog:low": THEN})
    mean, single = estimate("mean_baseline_drop", table), estimate("baseline_drop", table, "fog:low")
    assert (mean.value, mean.low, mean.high) == pytest.approx((single.value, single.low, single.high))


def test_the_mean_needs_every_setting_in_the_earlier_run() -> None:
    table = ScoreTable(np.ones(2), {"fog:low": np.ones(2), "fog:mid": np.ones(2)}, baseline_by_setting={"fog:low": np.ones(2)})
    result = estimate("mean_baseline_drop", table)
    assert math.isnan(result.value)
    assert result.reason == "the earlier run did not measure fog:mid"
    without = ScoreTable(np.ones(1), {"fog:low": np.ones(1)})
    assert estimate("mean_baseline_drop", without).reason == "there are no scores of an earlier run"
