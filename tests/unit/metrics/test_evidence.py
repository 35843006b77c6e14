from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from pytest_vlmrobust.core.errors import UnknownName, UsageError
from pytest_vlmrobust.metrics import ScoreTable, drops_above, estimate, p_value, worst_case_lower_bound
from pytest_vlmrobust.metrics.statistics.paired import drop_test, likeliest_helpful

Array = NDArray[np.float64]


def _lost(lost: int, n: int = 869, helpful: int = 0) -> Array:
    return np.array([0.0] * lost + [1.0] * (n - lost - 100) + [1.0] * helpful + [0.0] * (100 - helpful))


CLEAN = np.array([1.0] * 769 + [0.0] * 100)
TABLE = ScoreTable(
    CLEAN, {"fog:low": _lost(36, helpful=13), "fog:high": _lost(60, helpful=13), "upsample:high": _lost(280, helpful=13)}
)


def _summed(harmful: int, helpful: int, sign: int) -> float:
    """Returns how often at least so large a drop remains of 869 samples at a true one of 5 pp, or so small a one."""
    share = float(likeliest_helpful(*(np.array([one]) for one in (harmful, helpful, 869.0, 0.05)))[0])
    gains, excess = np.arange(870), harmful - helpful
    chances, losses = stats.binom.pmf(gains, 869, share), stats.binom(869 - gains, (share + 0.05) / (1 - share))
    return float(chances @ (losses.cdf(gains + excess) if sign < 0 else losses.sf(gains + excess - 1)))


def test_p_values_are_sums_over_all_outcomes() -> None:
    """(36, 13) and (60, 13) of 869 against 5 pp; Tango's would be 0.00427 and 0.334."""
    assert p_value("accuracy_drop", TABLE, "<=", 0.05, "fog:low") == pytest.approx(_summed(36, 13, -1), rel=1e-3)
    assert p_value("accuracy_drop", TABLE, ">", 0.05, "fog:high") == pytest.approx(_summed(60, 13, 1), rel=1e-3)
    assert p_value("accuracy_drop", TABLE, "<=", 0.05, "fog:high") == 1.0
    assert p_value("accuracy_drop", TABLE, ">", 0.10, "upsample:high") == 1e-12


@pytest.mark.parametrize("alpha", [0.001, 0.01, 0.05, 0.2])
@pytest.mark.parametrize(
    ("name", "setting", "bound"),
    [
        ("accuracy_drop", "fog:low", 0.05),
        ("accuracy", "fog:low", 0.87),
        ("mean_drop", None, 0.1),
        ("worst_case_drop", None, 0.29),
        ("severe_failure_rate", None, 0.5),
    ],
)
def test_a_p_value_says_the_same_as_the_bound_at_every_level(name: str, setting: str | None, bound: float, alpha: float) -> None:
    found = estimate(name, TABLE, setting, confidence=1 - 2 * alpha)
    assert (p_value(name, TABLE, "<=", bound, setting) <= alpha) == (found.high <= bound)
    assert (p_value(name, TABLE, ">", bound, setting) <= alpha) == (found.low > bound)


def test_claims_of_a_minimum() -> None:
    at_least = p_value("accuracy", TABLE, ">=", 0.83, "fog:low")
    assert at_least == pytest.approx(p_value("accuracy", TABLE, ">", 0.83, "fog:low"))
    assert 0.005 < at_least < 0.05
    assert p_value("accuracy", TABLE, "<", 0.83, "fog:low") == 1.0


def test_the_largest_drop_is_shown_small_by_the_weakest_setting() -> None:
    """Intersection-union: the p-value of "all drops are at most 35 pp" is the largest of the three."""
    each = drop_test(CLEAN, TABLE.matrix(), TABLE.clusters).p_below(0.35)
    assert p_value("worst_case_drop", TABLE, "<=", 0.35) == pytest.approx(float(each.max()), rel=1e-4)


def test_without_an_interval_there_is_no_p_value() -> None:
    assert math.isnan(p_value("tail_share", TABLE, "<=", 0.5))
    blind = ScoreTable(CLEAN, {"fog:low": CLEAN}, no_image=CLEAN)
    assert math.isnan(p_value("mean_relative_corruption_error", blind, "<=", 0.5))


def test_claims_and_names_are_checked() -> None:
    claim: Any = "=="
    with pytest.raises(UsageError, match="claim is '==': expected one of >, >=, <, <="):
        p_value("mean_drop", TABLE, claim, 0.1)
    with pytest.raises(UnknownName, match="unknown metric 'mean_dorp'"):
        p_value("mean_dorp", TABLE, "<=", 0.1)


def test_failing_settings_are_listed_worst_first() -> None:
    found = drops_above(TABLE, 0.05)
    assert [entry.setting for entry in found] == ["upsample:high", "fog:high", "fog:low"]
    assert [entry.drop for entry in found] == pytest.approx([267 / 869, 47 / 869, 23 / 869])
    assert found[1].p_value == pytest.approx(_summed(60, 13, 1), rel=1e-3)
    assert found[1].adjusted == 2.0 * found[1].p_value
    assert found[0].adjusted < 1e-12
    assert all(type(number) is float for entry in found for number in entry[1:])


def test_holm_lists_a_setting_exactly_when_the_worst_case_is_shown_to_fail() -> None:
    rng = np.random.default_rng(6)
    agreed = []
    for lost in range(20, 80, 3):
        rows = {f"kind{index}": np.where(rng.random(300) < 0.02, 0.0, np.ones(300)) for index in range(8)}
        rows["worst"] = np.array([0.0] * lost + [1.0] * (300 - lost))
        table = ScoreTable(np.ones(300), rows)
        listed = min(entry.adjusted for entry in drops_above(table, 0.10)) <= 0.05
        assert listed == (estimate("worst_case_drop", table, confidence=0.90).low > 0.10)
        agreed.append(listed)
    assert set(agreed) == {True, False}


def test_the_false_discovery_rate_lists_no_fewer_settings() -> None:
    rng = np.random.default_rng(7)
    rows = {f"kind{index}": np.where(rng.random(400) < 0.01 * index, 0.0, np.ones(400)) for index in range(20)}
    table = ScoreTable(np.ones(400), rows)
    holm = {entry.setting for entry in drops_above(table, 0.05) if entry.adjusted <= 0.05}
    fdr = {entry.setting for entry in drops_above(table, 0.05, method="benjamini_hochberg") if entry.adjusted <= 0.05}
    assert holm < fdr


def test_one_setting_needs_no_correction() -> None:
    (entry,) = drops_above(ScoreTable(CLEAN, {"fog:high": _lost(60, helpful=13)}), 0.05)
    assert entry.adjusted == entry.p_value
    assert drops_above(ScoreTable(CLEAN), 0.05) == ()


@pytest.mark.parametrize(
    ("table", "options", "message"),
    [
        (TABLE, {"bound": 5}, "the bound is 5: expected a fraction between -1 and 1, so 5 percentage points are 0.05"),
        (TABLE, {"bound": 0.05, "method": "hom"}, r"unknown method 'hom'\. Did you mean 'holm'\? Expected one of holm, benj"),
        (ScoreTable(np.zeros(0), {"a": np.zeros(0)}), {"bound": 0.05}, "the drops cannot be tested: no samples"),
        (
            ScoreTable(np.ones(2), {"fog:low": np.array([1.0, math.nan])}),
            {"bound": 0.05},
            "the drops cannot be tested: missing scores in fog:low",
        ),
    ],
)
def test_what_cannot_be_tested_is_refused(table: ScoreTable, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        drops_above(table, **options)


def test_max_t_is_near_bonferroni_and_the_same_each_time() -> None:
    bound, again = (worst_case_lower_bound(TABLE, np.random.default_rng(0)) for _ in range(2))
    found = estimate("worst_case_drop", TABLE)
    assert bound == again < found.value
    assert bound == pytest.approx(found.low, abs=0.006)
    assert worst_case_lower_bound(TABLE, np.random.default_rng(0), confidence=0.99) < bound


def test_max_t_needs_settings_and_scores() -> None:
    with pytest.raises(UsageError, match="the largest drop cannot be bounded: there are no scores under any setting"):
        worst_case_lower_bound(ScoreTable(CLEAN), np.random.default_rng(0))
    with pytest.raises(UsageError, match="the drops cannot be tested: missing scores in clean"):
        worst_case_lower_bound(ScoreTable(np.array([math.nan]), {"a": np.ones(1)}), np.random.default_rng(0))
    one = ScoreTable(np.ones(4), {"a": np.zeros(4)}, groups=["x"] * 4)
    assert worst_case_lower_bound(one, np.random.default_rng(0)) == -1.0
