from __future__ import annotations

from typing import Any

import pytest

from pytest_vlmrobust.evaluation.sample_size import undecidable, undecidable_averages
from pytest_vlmrobust.policies import Bound, Judge, JudgedTest, Policy, Rule, Scope, Tier, Treatment

TESTS = [JudgedTest("m", dataset, "accuracy_drop", "fog:low", "weather", "low") for dataset in ("large", "small")]
SIZES = {"large": 869, "small": 200}


def policy(high: float = 0.03, metric: str = "accuracy_drop", where: Scope | None = None, **treatment: Any) -> Policy:
    return Policy((Rule("r", metric, Bound(high=high), "a.yaml:3", where or Scope(), treatment=Treatment(**treatment)),))


def test_a_rule_that_a_data_set_is_too_small_for_is_named_with_what_would_do() -> None:
    (sentence,) = undecidable(policy(), TESTS, SIZES)
    assert sentence.startswith(
        "small: 200 independent samples hardly decide rule r (accuracy_drop <= 0.03, a.yaml:3): a model that loses nothing would "
        "pass it with a probability below 80%; about 331 samples would do. The smallest drop that 200 samples show is 0.04"
    )


def test_what_can_be_decided_is_not_spoken_of() -> None:
    assert undecidable(policy(high=0.10), TESTS, SIZES) == []
    assert undecidable(policy(), TESTS, {"large": 869}) == []
    assert undecidable(policy(where=Scope(dataset=("large",))), TESTS, SIZES) == []


def test_a_smaller_risk_takes_more_samples() -> None:
    assert undecidable(policy(high=0.02), TESTS, {"large": 869}) == []
    assert undecidable(policy(high=0.02, alpha_pass=0.001), TESTS, {"large": 869}) != []


@pytest.mark.parametrize(
    "silent",
    [policy(judge=Judge.POINT), policy(tier=Tier.WARN), policy(metric="accuracy"), policy(high=1.0)],
    ids=["point", "warn", "no drop", "no bound"],
)
def test_rules_that_samples_do_not_decide_are_left_alone(silent: Policy) -> None:
    assert undecidable(silent, TESTS, SIZES) == []


def test_a_bound_of_nothing_is_decided_by_no_number_of_samples() -> None:
    (first, _) = undecidable(policy(high=0.0), TESTS, SIZES)
    assert "no number of samples would do: allow a margin" in first


def test_all_tests_of_a_rule_have_to_pass_which_takes_more_samples_than_one() -> None:
    settings = [f"{name}:low" for name in ("fog", "rain", "frost", "spatter")]
    tests = [JudgedTest("m", "d", "accuracy_drop", setting, "weather", "low") for setting in settings]
    (sentence,) = undecidable(policy(), tests, {"d": 400})
    assert "would pass it under all 4 settings with a probability below 80%; about 511 samples would do" in sentence
    assert undecidable(policy(), [*tests[:1], tests[0]], {"d": 400}) == []
    assert undecidable(policy(), tests, {"d": 511}) == []


@pytest.mark.parametrize(("metric", "settings"), [("worst_case_drop", 3), ("worst_at_low", 2)])
def test_the_largest_drop_takes_as_many_samples_as_all_drops_at_once(metric: str, settings: int) -> None:
    levels = {"fog:low": "low", "rain:low": "low", "fog:high": "high"}
    cells = [JudgedTest("m", "d", "accuracy_drop", setting, "weather", level) for setting, level in levels.items()]
    (sentence,) = undecidable(policy(metric=metric), [*cells, JudgedTest("m", "d", metric)], {"d": 350})
    assert f"would pass it under all {settings} settings" in sentence
    assert undecidable(policy(metric=metric), [JudgedTest("m", "d", metric)], {"d": 350}) == []


def test_averages_over_settings_are_simulated() -> None:
    """The mean of drops of a model that loses nothing is 0, and 100 samples bound it by more than 1 pp and less than 10."""
    tight, loose = policy(metric="mean_drop", high=0.01), policy(metric="mean_drop", high=0.10)
    ((_, sentence),) = undecidable_averages(tight, 100)
    assert sentence.startswith(
        "100 independent samples hardly decide rule r (mean_drop <= 0.01, a.yaml:3): of a model that loses"
    )
    assert undecidable_averages(loose, 100) == []
    assert undecidable_averages(policy(metric="mean_drop", high=0.01, judge=Judge.POINT), 100) == []
