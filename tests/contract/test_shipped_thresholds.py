"""The shipped policies: each is read as a gate does, lints clean, and agrees with the published tables that it is argued from."""

from __future__ import annotations

import csv
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from pytest_vlmrobust.core.decision import WARNING, Decision, Outcome, Verdict
from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.evaluation.after.policy_lint import lint
from pytest_vlmrobust.evaluation.judge.scopes import is_relative, known_metrics, shipped_tests
from pytest_vlmrobust.evaluation.power.profiles import Profile
from pytest_vlmrobust.evaluation.power.published import hidden_loss, nothing_lost
from pytest_vlmrobust.evaluation.power.simulation import Simulation
from pytest_vlmrobust.metrics.record import AMBIGUOUS
from pytest_vlmrobust.policies import Coverage, Extent, JudgedBy, MetricKey, OnNotApplicable, Policy, Tier, load_policy

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden"
TODAY = date(2026, 11, 21)
FILES = sorted((ROOT / "thresholds").glob("*.yaml"))
PAPERS = ("robustbench", "pcri", "rci", "resbench", "observatory")

TABLE_3 = {
    "baseline_acc": "clean_accuracy",
    "worst_case_drop_pp": "worst_case_drop",
    "severe_fail_pct": "severe_failure_rate",
    "worst_at_low_pp": "worst_at_low",
    "benign_at_low_pct": "benign_at_low",
    "visual_gain_pp": "visual_gain",
    "mrce_pct": "mean_relative_corruption_error",
}
NAMES = {"MMBench": "MMBench_DEV_EN", "MMMU-Pro": "MMMU_Pro_10c"}


def read(name: str) -> Policy:
    path = ROOT / "thresholds" / f"{name}.yaml"
    return load_policy([path], known_metrics=known_metrics(), ambiguous=AMBIGUOUS, root=ROOT)


def table(name: str) -> list[dict[str, str]]:
    lines = (GOLDEN / name).read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))


def judged(policy: Policy, test: MetricKey, value: float) -> Sequence[Verdict]:
    """Returns what the rules say about a value, as if an endless number of samples had shown it."""
    verdicts = policy.judge(test, Estimate(value, 1200, at=lambda _: (value, value)), today=TODAY)
    assert any(verdict.rule for verdict in verdicts), test
    return verdicts


def broken(policy: Policy, test: MetricKey, value: float) -> set[str]:
    return {verdict.rule for verdict in judged(policy, test, value) if verdict.outcome is Outcome.FAIL}


def warned(policy: Policy, test: MetricKey, value: float) -> set[str]:
    return {verdict.rule for verdict in judged(policy, test, value) if verdict.reason.startswith(WARNING)}


def published_sweeps() -> list[tuple[str, str, str, float]]:
    return [
        (row["model"], NAMES[row["dataset"]], metric, float(row[column]) / 100)
        for row in table("metrics_robustbench_table3.csv")
        for column, metric in TABLE_3.items()
    ]


@pytest.mark.parametrize("name", [file.stem for file in FILES])
def test_it_lints_clean_and_every_bound_has_its_reason_and_source(name: str) -> None:
    policy = read(name)
    assert [str(finding) for finding in lint(policy, today=TODAY)] == []
    for rule in policy.rules:
        assert rule.reason, rule.id
        assert rule.evidence, rule.id


def test_there_is_one_per_paper_and_one_per_purpose() -> None:
    assert {file.stem for file in FILES} == {
        "default",
        "strict",
        "ci-smoke",
        "parity",
        "confident",
        "options",
        "tiny",
        "typographic",
        "wording",
        *PAPERS,
    }


@pytest.mark.parametrize("name", [file.stem for file in FILES])
def test_a_part_is_go_only_where_the_policy_is_for_trying_things_out(name: str) -> None:
    coverage = read(name).coverage
    allowed = coverage.tests is Extent.PARTIAL, not coverage.counts_samples
    assert allowed == ((True, True) if name in {"tiny", "ci-smoke"} else (False, False))
    assert bool(coverage.suites) == (name not in {"tiny", "ci-smoke"})


@pytest.mark.parametrize("name", [file.stem for file in FILES])
def test_rules_are_about_any_data_or_the_policy_says_that_a_run_may_leave_them_out(name: str) -> None:
    policy = read(name)
    blocking = [rule for rule in policy.rules if rule.treatment.tier is Tier.BLOCK]
    some = [rule for rule in blocking if any(not glob.startswith("*.") for glob in rule.where.dataset)]
    # the others are about tasks, which any collection of identities has
    if some or name == "ci-smoke":
        assert policy.coverage.rules is Extent.PARTIAL
    measured = shipped_tests()
    rules = [rule for rule in blocking if rule.metric != "fixation_rate"]  # which stands beside the scores of every cell
    for rule in rules if not some else ():
        near = [test for test in measured if test.metric == rule.metric]
        assert near, rule.id
        assert any(rule.applies(test) for test in near), rule.id


def test_every_setting_that_asks_for_the_opposite_has_a_rule() -> None:
    opposites = [test for test in shipped_tests() if test.metric == "directional_sensitivity"]
    assert {str(test.setting) for test in opposites} == {"negation", "antonym"}
    assert all(any(rule.applies(test) for rule in read("wording").rules) for test in opposites)


def test_no_published_model_breaks_the_policy_of_its_paper_and_the_worst_of_nine_is_said() -> None:
    policy = read("robustbench")
    sweeps = published_sweeps()
    assert [case for case in sweeps if broken(policy, MetricKey(case[0], case[1], case[2]), case[3])] == []
    for model, dataset, metric, value in sweeps:
        better = known_metrics()[metric].better if metric != "visual_gain" else "higher"
        others = [other for _, data, name, other in sweeps if (data, name) == (dataset, metric)]
        test = MetricKey(model, dataset, metric)
        assert not warned(policy, test, value), (dataset, metric)
        if value == (max if better == "lower" else min)(others):
            worse = value + (0.004 if better == "lower" else -0.004)
            assert warned(policy, test, worse), (dataset, metric)


@pytest.mark.parametrize("name", ["default", "strict", "robustbench", "resbench", "ci-smoke"])
def test_a_model_that_does_not_look_or_hardly_answers_breaks_it_on_any_data(name: str) -> None:
    policy = read(name)
    for metric, value in (("visual_gain", 0.0), ("accuracy_above_chance", 0.02)):
        assert broken(policy, MetricKey("m", "anything", metric), value), metric


@pytest.mark.parametrize("name", ["default", "strict", "robustbench", "resbench"])
def test_nothing_blocks_on_a_share_of_settings_or_by_its_value(name: str) -> None:
    blocking = [rule for rule in read(name).rules if rule.treatment.tier is Tier.BLOCK]
    assert {rule.treatment.judge for rule in blocking} == {JudgedBy.INTERVAL}
    assert not {"severe_failure_rate", "benign_at_low", "catastrophic_rate"} & {rule.metric for rule in blocking}


def test_the_strict_policy_asks_for_the_better_half_of_mmbench() -> None:
    policy, sweeps = read("strict"), published_sweeps()
    for metric in ("worst_case_drop", "worst_at_low", "severe_failure_rate", "benign_at_low"):
        values = [value for _, data, name, value in sweeps if (data, name) == ("MMBench_DEV_EN", metric)]
        test = MetricKey("m", "d", metric)
        said = warned if metric in {"severe_failure_rate", "benign_at_low"} else broken
        assert not said(policy, test, statistics.median(values)), metric
        worst = min(values) if metric == "benign_at_low" else max(values)
        assert said(policy, test, worst), metric


def test_the_strict_policy_is_nowhere_looser_than_the_default() -> None:
    strict, default = read("strict"), read("default")
    assert strict.budgets.max_unparsed_rate < default.budgets.max_unparsed_rate
    assert {*default.coverage.suites} < {*strict.coverage.suites}
    for metric, value in {"worst_at_low": 0.12, "mean_drop": 0.04, "mean_harmful_flip_rate": 0.06, "visual_gain": 0.05}.items():
        test = MetricKey("m", "d", metric)
        assert (broken(strict, test, value) != set(), broken(default, test, value)) == (True, set()), metric


@pytest.mark.parametrize("name", ["default", "strict", "ci-smoke"])
def test_guessing_worse_without_the_picture_is_no_regression(name: str) -> None:
    relative = [rule for rule in read(name).rules if is_relative(rule)]
    cells = [rule for rule in relative if known_metrics()[rule.metric].scope == "cell"]
    assert cells
    for rule in cells:
        bound = {str(test.setting): rule.bounds(test) for test in shipped_tests() if test.metric == rule.metric}
        assert [setting for setting, bounded in bound.items() if not bounded] == ["no_image"], rule.id
        assert {"fog:mid", "patches:3", "resolution:448"} <= bound.keys()
        assert ("clean" in bound) == (rule.metric == "baseline_drop")  # without a setting there is no drop that could increase


def test_the_mean_since_the_release_before_is_measured_by_each_suite_and_bounded_where_chance_evens_out() -> None:
    (rule,) = (rule for rule in read("strict").rules if rule.metric == "mean_baseline_drop")
    bounded = {test.setting: rule.bounds(test) for test in shipped_tests() if test.metric == rule.metric}
    assert bounded == {
        **dict.fromkeys(("robustbench", "ladder", "observatory_id", "observatory_ood"), True),
        "patches": False,
    }
    (cell,) = (rule for rule in read("strict").rules if rule.metric == "baseline_drop")
    assert rule.bound.high == cell.bound.high / 2


def test_a_smoke_test_finds_wrecks_and_judges_values() -> None:
    policy, default = read("ci-smoke"), read("default")
    assert {rule.treatment.judge for rule in policy.rules} == {JudgedBy.POINT}
    for metric, ok, wreck in (("worst_at_low", 0.2, 0.3), ("mean_drop", 0.06, 0.2)):
        test = MetricKey("m", "d", metric)
        assert (broken(policy, test, ok), bool(broken(policy, test, wreck))) == (set(), True)
        assert broken(default, test, ok), metric


@pytest.mark.parametrize(("name", "rules"), [("default", 2), ("strict", 3), ("ci-smoke", 1)])
def test_rules_on_an_earlier_run_do_without_one(name: str, rules: int) -> None:
    relative = [rule for rule in read(name).rules if is_relative(rule)]
    assert len(relative) == rules
    assert all(rule.treatment.on_not_applicable is OnNotApplicable.WARN for rule in relative)


def test_every_published_pcri_keeps_its_bound_and_the_lowest_reaches_it() -> None:
    policy = read("pcri")
    rows = [row for row in table("policies_pcri.csv") if row["dataset"] != "VizWiz"]
    lowest: dict[tuple[str, str], float] = {}
    for row in rows:
        metric = "corpus_pcri" if row["format"] == "caption" else "pcri"
        test = MetricKey(row["model"], row["dataset"], metric, f"patches:{row['n']}", "patches", row["n"])
        assert not warned(policy, test, float(row["pcri"])), row
        key = row["dataset"], row["n"]
        lowest[key] = min(lowest.get(key, 9.0), float(row["pcri"]))
        assert warned(policy, test, lowest[key] - 1.0), row
        assert not broken(policy, test, lowest[key] - 1.0), row  # raw indices hold luck: they block nothing
    warning = [rule for rule in policy.rules if rule.treatment.tier is Tier.WARN]
    assert len(lowest) == len(warning) == 28
    assert sorted(rule.bound.low for rule in warning) == sorted(lowest.values())


def test_the_bands_of_rci() -> None:
    policy = read("rci")
    for row in table("metrics_rci_table2.csv"):
        for column, text in row.items():
            if column != "dataset":
                n = column[-1]
                test = MetricKey(column[:-3], row["dataset"], "rci", f"patches:{n}", "patches", n)
                assert bool(warned(policy, test, float(text))) == (abs(float(text)) > 0.10), (row["dataset"], column)


@pytest.mark.parametrize("name", ["pcri", "rci"])
@pytest.mark.parametrize("options", [2, 4, 10, math.inf])
def test_what_blocks_on_patches_can_be_broken_at_each_grid_and_is_asked_of_all_data(name: str, options: float) -> None:
    policy = read(name)
    blocking = [rule for rule in policy.rules if rule.treatment.tier is Tier.BLOCK]
    assert {rule.metric for rule in blocking} == {"visual_gain", "accuracy_above_chance", "pcri_matched"}
    assert not any(rule.where.dataset or rule.where.model for rule in blocking)
    for clean in (0.55, 0.7, 0.85):
        assert [finding for finding in lint(policy, today=TODAY, options=options, clean=clean) if finding.refused] == []


def test_every_published_curve_keeps_the_policy_of_res_bench_and_the_worst_of_eight_is_said() -> None:
    policy = read("resbench")
    columns = {
        "avg": "resolution_accuracy",
        "rho": "resolution_correlation",
        "ace": "absolute_continuous_error",
        "rce": "relative_continuous_error",
    }
    rows = table("metrics_resbench_main.csv")
    for column, metric in columns.items():
        test = MetricKey("m", "ResBench", metric)
        values = [float(row[column]) for row in rows]
        assert [value for value in values if warned(policy, test, value)] == []
        worst, step = (max(values), 0.001) if column in {"ace", "rce"} else (min(values), -0.001)
        assert warned(policy, test, worst + step), metric
        assert broken(policy, test, worst + 100 * step) == set(), metric
    for row in rows:
        curve = [float(text) for name, text in row.items() if name.startswith("acc_")]
        fall = max(0.0, *(before - after for before, after in pairwise(curve)))
        turns = sum(abs(after - before) for before, after in pairwise(curve)) - abs(curve[-1] - curve[0])
        parts = {"largest_downward_step": fall, "resolution_net": curve[-1] - curve[0], "resolution_wobble": turns}
        for metric, value in (*parts.items(), ("clean_accuracy", curve[-1])):
            assert broken(policy, MetricKey("m", "anything", metric), value) == set(), metric
        assert broken(read("strict"), MetricKey("m", "anything", "largest_downward_step"), fall) == set()


@pytest.mark.parametrize(
    ("metric", "value"),
    [("largest_downward_step", 0.07), ("resolution_net", 0.35), ("resolution_wobble", 0.30), ("visual_gain", 0.0)],
)
def test_what_is_wrong_with_a_curve_blocks_on_any_data(metric: str, value: float) -> None:
    assert broken(read("resbench"), MetricKey("m", "anything", metric), value)


@pytest.mark.cases(
    ("metric", "split", "value", "outcome"),
    [
        ("identity_drop", "observatory_id", 0.04, ""),
        ("identity_drop", "observatory_id", 0.06, "identity-augmented"),
        ("identity_accuracy", "clean", 0.49, "originals-done"),
        ("identity_drop", "observatory_ood", 0.59, ""),  # falling to half is said, and not held against a model
        ("identity_drop", "observatory_ood", 0.70, "illusions-not-lost"),  # 0.95 to chance, 0.25
        ("split_transfer_retention", "observatory_ood", 0.0, "boxes-not-lost"),
        ("split_position_gap", "clean", 0.49, ""),
        ("split_position_gap", "observatory_id", 0.60, "place-in-the-grid"),
        ("split_group_gap", "clean", 0.20, ""),  # said by groups-alike
        ("split_group_gap", "clean", 0.26, "groups-of-people"),
        ("split_transfer_retention", "observatory_id", 0.81, ""),
        ("split_transfer_retention", "observatory_id", 0.79, "boxes-kept"),
        ("thinking_gain", "clean", -0.30, ""),
    ],
)
def test_what_the_observatory_says(metric: str, split: str, value: float, outcome: str) -> None:
    test = MetricKey("m", "faces.pointing", metric, split)
    assert broken(read("observatory"), test, value) == ({outcome} if outcome else set())


# The default policy, against the tables that it is argued from and models that must not pass.


def test_published_sweeps_break_nothing_of_the_default_and_their_worst_is_said() -> None:
    policy, said = read("default"), defaultdict[tuple[str, str], set[str]](set)
    for model, dataset, metric, value in published_sweeps():
        test = MetricKey(model, dataset, metric)
        if any(rule.applies(test) for rule in policy.rules):
            assert broken(policy, test, value) == set()
            said[model, dataset] |= warned(policy, test, value)
    assert len(said) == 18
    assert {name: rules for name, rules in said.items() if rules} == {
        ("Gemma-3-12B", "MMMU_Pro_10c"): {"severe-failures", "benign-at-low"}
    }


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
        # Qwen3-VL-4B, A.11: worse-than-blind only warns
        (("relative_corruption_error", "upsample:high", "resolution", "high"), 104.2, set()),
    ],
)
def test_published_cells_keep_the_default(where: tuple[str, str, str, str], per_cent: float, breached: set[str]) -> None:
    metric, setting, family, level = where
    assert broken(read("default"), MetricKey("m", "mmbench", metric, setting, family, level), per_cent / 100) == breached


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
def test_a_weak_model_fails_on_data_that_no_table_mentions(metric: str, per_cent: float) -> None:
    assert broken(read("default"), MetricKey("weak", "my_own_data", metric), per_cent / 100)


@pytest.mark.study
@pytest.mark.parametrize("name", ["default", "strict", "robustbench"])
@pytest.mark.parametrize(
    ("make", "least", "most"), [(hidden_loss, 0.0, 0.05), (nothing_lost, 0.95, 1.0)], ids=["hidden-loss", "nothing-lost"]
)
def test_one_kind_of_question_lost_everywhere_is_not_released(
    name: str, make: Callable[[], Profile], least: float, most: float
) -> None:
    """Of 3,000 questions 3 % are lost under all settings, and nothing else is: further rules can only make GO rarer."""
    whole = read(name)
    rules = tuple(rule for rule in whole.rules if rule.metric in {"mean_drop", "always_lost_rate"})
    simulation = Simulation(replace(whole, rules=rules, coverage=Coverage(suites=("corruptions",))), make(), TODAY)
    power = simulation.run(3_000, 20, np.random.default_rng(3))
    assert least <= power.share(Decision.GO) <= most
    assert least <= power.outcomes["always-lost"].get(Outcome.PASS, 0.0) <= most
    if name != "strict":
        assert power.outcomes["mean-drop"].get(Outcome.PASS, 0.0) >= 0.95  # the mean hides it


def test_the_default_cites_its_sources_and_is_cited_by_file_and_line() -> None:
    lines = (ROOT / "thresholds" / "default.yaml").read_text().splitlines()
    for rule in read("default").rules:
        assert rule.evidence.startswith(("VLM-RobustBench ", "The Perceptual Observatory section", "our choice: ")), rule.id
        file, _, number = rule.source.rpartition(":")
        assert file == "thresholds/default.yaml"
        assert lines[int(number) - 1] == f"  - id: {rule.id}"


def test_the_default_judges_three_metrics_by_value_and_forgives_nothing() -> None:
    policy = read("default")
    by_value = {rule.metric for rule in policy.rules if rule.treatment.judge is JudgedBy.POINT}
    assert by_value == {"benign_at_low", "severe_failure_rate", "mean_severity_violation"}
    assert (policy.budgets.max_error_rate, policy.budgets.max_unparsed_rate) == (0.0, 0.05)
    assert policy.waivers == ()
