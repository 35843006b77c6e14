"""thresholds/default.yaml against the tables it is argued from, and against models that must not pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import pytest

from pytest_vlmrobust.core.decision import WARNING, Decision, Outcome, Verdict
from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.evaluation.judge.scopes import known_metrics
from pytest_vlmrobust.evaluation.power.profiles import Profile
from pytest_vlmrobust.evaluation.power.published import hidden_loss, nothing_lost
from pytest_vlmrobust.evaluation.power.simulation import Simulation
from pytest_vlmrobust.policies import Coverage, JudgedBy, MetricFacts, MetricKey, Policy, Tier, load_policy

ROOT = Path(__file__).parents[2]
TODAY = date(2027, 1, 1)


FACTS = {
    "accuracy": MetricFacts("fraction", "higher", "cell"),
    "accuracy_drop": MetricFacts("fraction", "lower", "cell"),
    "relative_corruption_error": MetricFacts("ratio", "lower", "cell"),
    "harmful_flip_rate": MetricFacts("fraction", "lower", "cell"),
    "helpful_flip_rate": MetricFacts("fraction", "none", "cell"),
    "clean_accuracy": MetricFacts("fraction", "higher", "sweep"),
    "accuracy_above_chance": MetricFacts("fraction", "higher", "sweep"),
    "fixation_rate": MetricFacts("fraction", "lower", "cell"),
    "visual_gain": MetricFacts("fraction", "higher", "sweep"),
    "mean_relative_corruption_error": MetricFacts("ratio", "lower", "sweep"),
    "worst_case_drop": MetricFacts("fraction", "lower", "sweep"),
    "severe_failure_rate": MetricFacts("fraction", "lower", "sweep"),
    "worst_at_low": MetricFacts("fraction", "lower", "sweep"),
    "benign_at_low": MetricFacts("fraction", "higher", "sweep"),
    "mean_corruption_error": MetricFacts("ratio", "lower", "sweep"),
    "mean_drop": MetricFacts("fraction", "lower", "sweep"),
    "mean_drop_at_low": MetricFacts("fraction", "lower", "sweep"),
    "worst_category_drop": MetricFacts("fraction", "lower", "sweep"),
    "always_lost_rate": MetricFacts("fraction", "lower", "sweep"),
    "worst_group_drop": MetricFacts("fraction", "lower", "sweep", split=True),
    "baseline_drop": MetricFacts("fraction", "lower", "cell"),
    "mean_baseline_drop": MetricFacts("fraction", "lower", "sweep", split=True),
    "mean_severity_violation": MetricFacts("fraction", "lower", "sweep"),
    "mean_severity_correlation": MetricFacts("correlation", "higher", "sweep"),
    "mean_harmful_flip_rate": MetricFacts("fraction", "lower", "sweep"),
    "mean_helpful_flip_rate": MetricFacts("fraction", "none", "sweep"),
    "identity_drop": MetricFacts("fraction", "lower", "sweep", split=True),
    "identity_accuracy": MetricFacts("fraction", "higher", "sweep", split=True),
    "split_position_gap": MetricFacts("fraction", "lower", "sweep", split=True),
    "split_group_gap": MetricFacts("fraction", "lower", "sweep", split=True),
    "split_transfer_retention": MetricFacts("ratio", "higher", "sweep", split=True),
}

# VLM-RobustBench Table 3, in per cent, in the order of the columns:
COLUMNS = (
    "clean_accuracy",
    "worst_case_drop",
    "severe_failure_rate",
    "worst_at_low",
    "benign_at_low",
    "visual_gain",
    "mean_relative_corruption_error",
)
TABLE_3 = {
    "mmbench": {
        "Qwen3-VL-4B": (88.4, 26.3, 3.8, 7.0, 88.1, 48.2, 3.9),
        "Qwen3-VL-8B": (90.2, 30.2, 5.3, 8.3, 73.8, 48.2, 5.2),
        "Qwen3-VL-30B": (90.7, 29.4, 3.8, 6.1, 88.1, 47.7, 3.5),
        "InternVL3.5-4B": (86.3, 30.5, 9.8, 10.8, 64.3, 44.9, 7.7),
        "InternVL3.5-8B": (89.1, 31.7, 8.3, 9.6, 71.4, 50.8, 6.5),
        "InternVL3.5-14B": (86.6, 29.4, 9.0, 9.5, 88.1, 44.5, 6.0),
        "Molmo2-4B": (88.5, 33.1, 4.5, 7.4, 78.6, 43.6, 5.5),
        "Molmo2-8B": (88.4, 33.9, 4.5, 6.3, 90.5, 48.4, 4.4),
        "Gemma-3-12B": (85.3, 32.1, 8.3, 10.7, 69.0, 44.1, 6.4),
    },
    "MMMU_Pro_10c": {
        "Qwen3-VL-4B": (31.5, 7.4, 3.8, 2.8, 95.2, 7.1, -6.8),
        "Qwen3-VL-8B": (35.2, 9.0, 7.5, 5.2, 85.7, 11.4, 4.7),
        "Qwen3-VL-30B": (40.7, 14.5, 12.8, 7.4, 59.5, 17.0, 12.1),
        "InternVL3.5-4B": (37.3, 11.1, 14.3, 5.6, 76.2, 12.3, 11.6),
        "InternVL3.5-8B": (41.0, 12.3, 16.5, 5.6, 45.2, 14.2, 16.5),
        "InternVL3.5-14B": (42.0, 9.6, 9.0, 5.9, 85.7, 15.1, 5.2),
        "Molmo2-4B": (31.8, 5.6, 3.8, 4.3, 92.9, 12.0, 4.9),
        "Molmo2-8B": (31.2, 5.6, 5.3, 4.0, 90.5, 7.4, 1.0),
        "Gemma-3-12B": (33.0, 9.9, 27.1, 9.0, 28.6, 10.8, 24.2),
    },
}
WARNED = {
    ("MMMU_Pro_10c", "Gemma-3-12B"): {"severe-failures", "benign-at-low"},
}
MODELS = [(dataset, model) for dataset, rows in TABLE_3.items() for model in rows]


@pytest.fixture(scope="module")
def policy() -> Policy:
    return load_policy([ROOT / "thresholds" / "default.yaml"], known_metrics=FACTS, root=ROOT)


def broken(policy: Policy, test: MetricKey, per_cent: float) -> set[str]:
    """Returns the rules that a value breaks, as if an endless number of samples had shown it."""
    return {verdict.rule for verdict in verdicts(policy, test, per_cent) if verdict.outcome is Outcome.FAIL}


def warned(policy: Policy, test: MetricKey, per_cent: float) -> set[str]:
    """Returns the rules that warn of a value."""
    return {verdict.rule for verdict in verdicts(policy, test, per_cent) if verdict.reason.startswith(WARNING)}


def verdicts(policy: Policy, test: MetricKey, per_cent: float) -> list[Verdict]:
    value = per_cent / 100
    return list(policy.judge(test, Estimate(value, 853, at=lambda _: (value, value)), today=TODAY))


@pytest.mark.cases(("dataset", "model"), MODELS)
def test_published_sweeps_break_nothing_and_their_worst_is_said(policy: Policy, dataset: str, model: str) -> None:
    tests = [(MetricKey(model, dataset, metric), value) for metric, value in zip(COLUMNS, TABLE_3[dataset][model], strict=True)]
    assert set().union(*(broken(policy, test, value) for test, value in tests)) == set()
    assert set().union(*(warned(policy, test, value) for test, value in tests)) == WARNED.get((dataset, model), set())


@pytest.mark.cases(
    ("where", "per_cent", "breached"),
    [
        (("accuracy_drop", "glass_blur:low", "blur", "low"), 10.7, set()),  # Gemma-3-12B, Table 13
        (("accuracy_drop", "glass_blur:low", "blur", "low"), 15.1, {"drop-low"}),
        (("accuracy_drop", "upsample:mid", "resolution", "mid"), 18.9, set()),  # Molmo2-8B, Table 13
        (("accuracy_drop", "upsample:mid", "resolution", "mid"), 25.1, {"drop-mid"}),
        (("accuracy_drop", "upsample:high", "resolution", "high"), 33.9, set()),  # Molmo2-8B, Table 13
        (("accuracy_drop", "upsample:high", "resolution", "high"), 40.1, {"drop-high"}),
        (("accuracy_drop", "flip_v", "binary", ""), 15.7, set()),  # Table 24 and its text
        (("accuracy_drop", "flip_v", "binary", ""), 20.1, {"drop-binary"}),
        (("accuracy_drop", "jpeg_compression:high", "digital", "high"), 0.63, set()),  # Table 16
        (("accuracy_drop", "jpeg_compression:high", "digital", "high"), 4.1, {"mmbench-drop-harmless"}),
        (("accuracy_drop", "autocontrast", "binary", ""), 6.1, {"drop-harmless", "mmbench-drop-harmless"}),
        (("harmful_flip_rate", "glass_blur:low", "blur", "low"), 14.2, set()),  # Gemma-3-12B, Table 25
        (("harmful_flip_rate", "glass_blur:low", "blur", "low"), 18.1, {"churn-low"}),
        (("relative_corruption_error", "upsample:high", "resolution", "high"), 65.6, set()),  # Table 5
        (
            ("relative_corruption_error", "upsample:high", "resolution", "high"),
            104.2,
            set(),
        ),  # Qwen3-VL-4B, A.11: worse-than-blind only warns
    ],
)
def test_published_cells(policy: Policy, where: tuple[str, str, str, str], per_cent: float, breached: set[str]) -> None:
    metric, setting, family, level = where
    assert broken(policy, MetricKey("m", "mmbench", metric, setting, family, level), per_cent) == breached


@pytest.mark.parametrize(
    ("metric", "per_cent"),
    [
        ("accuracy_above_chance", 2.0),
        ("visual_gain", 1.0),
        ("worst_at_low", 20.0),
        ("worst_case_drop", 45.0),
        ("mean_relative_corruption_error", 60.0),
        ("mean_drop", 8.0),
        ("mean_drop_at_low", 5.0),
        ("mean_harmful_flip_rate", 12.0),
        ("worst_category_drop", 30.0),
        ("always_lost_rate", 3.0),
    ],
)
def test_a_weak_model_fails_on_data_that_no_table_mentions(policy: Policy, metric: str, per_cent: float) -> None:
    assert broken(policy, MetricKey("weak", "my_own_data", metric), per_cent)


@pytest.mark.study
@pytest.mark.parametrize("name", ["default", "strict", "robustbench"])
@pytest.mark.parametrize(
    ("make", "least", "most"), [(hidden_loss, 0.0, 0.05), (nothing_lost, 0.95, 1.0)], ids=["hidden-loss", "nothing-lost"]
)
def test_one_kind_of_question_lost_everywhere_is_not_released(
    name: str, make: Callable[[], Profile], least: float, most: float
) -> None:
    """Of 3,000 questions 3 % are lost under all settings, and nothing else is: further rules can only make GO rarer."""
    whole = load_policy([ROOT / "thresholds" / f"{name}.yaml"], known_metrics=known_metrics(), root=ROOT)
    rules = tuple(rule for rule in whole.rules if rule.metric in {"mean_drop", "always_lost_rate"})
    simulation = Simulation(replace(whole, rules=rules, coverage=Coverage(suites=("corruptions",))), make(), TODAY)
    power = simulation.run(3_000, 20, np.random.default_rng(3))
    assert least <= power.share(Decision.GO) <= most
    assert least <= power.outcomes["always-lost"].get(Outcome.PASS, 0.0) <= most
    if name != "strict":
        assert power.outcomes["mean-drop"].get(Outcome.PASS, 0.0) >= 0.95  # the mean hides it


def test_every_rule_has_a_reason_and_a_source(policy: Policy) -> None:
    for rule in policy.rules:
        assert rule.reason, rule.id
        assert rule.evidence.startswith(("VLM-RobustBench ", "The Perceptual Observatory section", "our choice: ")), rule.id


def test_shares_of_settings_only_warn(policy: Policy) -> None:
    by_value = {rule.metric for rule in policy.rules if rule.treatment.judge is JudgedBy.POINT}
    assert by_value == {"benign_at_low", "severe_failure_rate", "mean_severity_violation"}
    assert all(rule.treatment.tier is Tier.WARN for rule in policy.rules if rule.treatment.judge is JudgedBy.POINT)


def test_nothing_is_forgiven(policy: Policy) -> None:
    assert (policy.budgets.max_error_rate, policy.budgets.max_unparsed_rate) == (0.0, 0.05)
    assert policy.waivers == ()


def test_it_is_cited_by_file_and_line(policy: Policy) -> None:
    lines = (ROOT / "thresholds" / "default.yaml").read_text().splitlines()
    for rule in policy.rules:
        file, _, number = rule.source.rpartition(":")
        assert file == "thresholds/default.yaml"
        assert lines[int(number) - 1] == f"  - id: {rule.id}"
