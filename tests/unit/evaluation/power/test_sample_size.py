"""Which rules samples hardly decide: as simulated runs that are judged say."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.evaluation.after.policy_lint import too_tight_for
from pytest_vlmrobust.evaluation.judge.scopes import known_metrics, thresholds_file
from pytest_vlmrobust.evaluation.power import published
from pytest_vlmrobust.evaluation.power.sample_size import (
    TooFew,
    images_needed,
    rules_without_sample_size,
    sentences,
    undecidable,
    undecided_ids,
)
from pytest_vlmrobust.evaluation.power.simulation import Simulation
from pytest_vlmrobust.metrics.record import AMBIGUOUS
from pytest_vlmrobust.policies import (
    Bound,
    JudgedBy,
    MetricKey,
    OnInconclusive,
    Policy,
    Rule,
    Scope,
    Tier,
    Treatment,
    Waiver,
    load_policy,
)

TODAY = date(2026, 1, 1)
TESTS = [MetricKey("m", dataset, "accuracy_drop", "fog:low", "weather", "low") for dataset in ("large", "small")]
SIZES = {"large": 869, "small": 200}
SHIPPED = (
    "ci-smoke",
    "confident",
    "default",
    "observatory",
    "parity",
    "pcri",
    "rci",
    "resbench",
    "robustbench",
    "strict",
    "tiny",
)


def policy(high: float = 0.03, metric: str = "accuracy_drop", where: Scope | None = None, **treatment: Any) -> Policy:
    return Policy((Rule("r", metric, Bound(high=high), "a.yaml:3", where or Scope(), treatment=Treatment(**treatment)),))


def too_few(policy: Policy, tests: list[MetricKey], sizes: dict[str, int]) -> list[TooFew]:
    return undecidable(policy, tests, sizes, today=TODAY)


def sweep(metric: str, n: int, bound: Bound, setting: str = "", dataset: str = "d") -> list[TooFew]:
    """Returns what is found of one rule on a metric of a whole sweep."""
    rule = Rule("r", metric, bound, "a.yaml:3")
    return too_few(Policy((rule,)), [MetricKey("m", dataset, metric, setting)], {dataset: n})


def test_a_rule_that_a_dataset_is_too_small_for_is_named_with_what_would_do() -> None:
    few = too_few(policy(), TESTS, SIZES)
    ((source, sentence),) = sentences(few)
    assert source == "a.yaml:3"
    assert sentence.startswith("small: with 200 questions even a model that loses nothing is only shown to have ")
    assert sentence.endswith("; rule r (accuracy_drop <= 0.03, a.yaml:3) needs about 320 questions to pass it")
    reached = float(sentence.partition("accuracy_drop <= ")[2].partition(";")[0])
    assert 0.03 < reached < 0.06


@pytest.mark.parametrize(("few", "more"), [(20, 24), (31, 130)])
def test_what_would_do_depends_on_no_number_at_hand(few: int, more: int) -> None:
    (fewer,), (enough,) = (too_few(policy(), TESTS[1:], {"small": samples}) for samples in (few, more))
    assert fewer.enough == enough.enough


def test_one_number_is_told_by_a_run_and_without_one() -> None:
    tight = policy(0.15)
    (run,) = undecidable(tight, TESTS[1:], {"small": 10}, today=TODAY, questions={"small": 14})
    (finding,) = too_tight_for(tight, 14, TODAY, 10)
    assert str(run).startswith("with 14 questions (10 images) even a model ")
    assert str(finding).partition(": with ")[2].split(" even ")[0] == "14 questions (10 images)"
    assert str(run).endswith(" questions about as many images to pass it")


def test_undecided_rules_are_known_without_a_search() -> None:
    bounds = (0.01, 0.03, 0.08)
    rules = tuple(replace(policy(high).rules[0], id=str(high)) for high in bounds)
    undecided = undecided_ids(Policy(rules), TESTS, SIZES, today=TODAY, questions={})
    assert undecided == {few.rule.id for few in too_few(Policy(rules), TESTS, SIZES)} == {"0.01", "0.03"}


def test_what_can_be_decided_is_not_spoken_of() -> None:
    assert too_few(policy(high=0.10), TESTS, SIZES) == []
    assert too_few(policy(), TESTS, {"large": 869}) == []
    assert too_few(policy(where=Scope(dataset=("large",))), TESTS, SIZES) == []


def test_a_smaller_risk_takes_more_samples() -> None:
    assert too_few(policy(high=0.02), TESTS, {"large": 1600}) == []
    assert too_few(policy(high=0.02, alpha_pass=0.000001), TESTS, {"large": 1600}) != []


@pytest.mark.parametrize(
    "silent",
    [policy(judge=JudgedBy.POINT), policy(tier=Tier.WARN), policy(on_inconclusive=OnInconclusive.WARN), policy(high=1.0)],
    ids=["point", "warn", "undecided only warns", "no bound"],
)
def test_rules_that_samples_do_not_decide_are_left_alone(silent: Policy) -> None:
    assert too_few(silent, TESTS, SIZES) == []


def test_a_bound_of_nothing_is_decided_by_no_number_of_samples() -> None:
    assert all(few.enough is None for few in too_few(policy(high=0.0), TESTS, SIZES))
    assert "is not decided by 6,800 questions either: loosen the bound" in str(too_few(policy(high=0.0), TESTS, SIZES)[-1])


@pytest.mark.parametrize("samples", [20, 100, 200, 260])
def test_what_is_shown_speaks_of_the_side_of_the_bound(samples: int) -> None:
    for few in too_few(policy(high=0.02), TESTS, {"small": samples}):
        assert "accuracy_drop >= " not in few.shown
        assert "accuracy_drop <= " in few.shown or "passes in too few of 20 simulated runs" in few.shown


def test_where_larger_sizes_were_not_tried_nobody_is_told_to_loosen_the_bound() -> None:
    (few, *_) = too_few(policy(high=0.001), TESTS, {"small": 5})
    assert few.enough is None
    assert str(few).endswith(" is not decided by 1,000 questions either")


def test_all_tests_of_a_rule_have_to_pass_which_takes_more_samples_than_one() -> None:
    names = [f"{name}:{level}" for name in ("fog", "rain", "frost", "spatter") for level in ("low", "mid", "high")]
    tests = [MetricKey("m", "d", "accuracy_drop", name, "weather", name.partition(":")[2]) for name in names]
    assert too_few(policy(), tests[:1], {"d": 450}) == []
    assert too_few(policy(), tests, {"d": 400}) != []
    assert too_few(policy(), tests, {"d": 900}) == []


@pytest.mark.parametrize("setting", ["clean", "no_image", "fog:low"])
def test_equal_answers_as_in_the_baseline_are_shown_on_clean_pictures_as_elsewhere(setting: str) -> None:
    """A model that loses nothing answers as the earlier run did: no other answer among 300 shows a share of at most 1 %."""
    tests = [MetricKey("m", "d", "baseline_flip_rate", setting)]
    assert too_few(policy(0.04, "baseline_flip_rate"), tests, {"d": 300}) == []


@pytest.mark.parametrize("metric", ["worst_case_drop", "worst_at_low"])
def test_the_largest_drop_takes_as_many_samples_as_all_drops_at_once(metric: str) -> None:
    names = [f"{name}:low" for name in ("fog", "rain", "frost", "spatter", "glass_blur", "motion_blur", "contrast", "brightness")]
    cells = [MetricKey("m", "d", "accuracy_drop", name, "weather", "low") for name in names]
    worst = MetricKey("m", "d", metric)
    assert bool(too_few(policy(metric=metric), [*cells, worst], {"d": 400})) == bool(too_few(policy(), cells, {"d": 400}))
    assert too_few(policy(metric=metric), [cells[0], worst], {"d": 450}) == []


@pytest.mark.study
@pytest.mark.cases(
    ("metric", "bound", "setting"),
    [
        ("clean_accuracy", Bound(low=0.9), ""),
        ("accuracy_above_chance", Bound(low=0.65), ""),
        ("visual_gain", Bound(low=0.6), ""),
        ("mean_drop", Bound(high=0.02), ""),
        ("mean_drop_at_low", Bound(high=0.02), ""),
        ("worst_tenth_drop", Bound(high=0.05), ""),
        ("mean_harmful_flip_rate", Bound(high=0.03), ""),
        ("mean_relative_corruption_error", Bound(high=0.05), ""),
        ("mean_baseline_drop", Bound(high=0.01), ""),
        ("resolution_accuracy", Bound(low=0.9), ""),
        ("absolute_continuous_error", Bound(high=0.1), ""),
        ("relative_continuous_error", Bound(high=0.1), ""),
        ("resolution_wobble", Bound(high=0.25), ""),
        ("resolution_net", Bound(high=0.05), ""),
        ("largest_downward_step", Bound(high=0.06), ""),
        ("identity_accuracy", Bound(low=0.9), "clean"),
        ("identity_drop", Bound(high=0.03), "observatory_id"),
        ("split_position_gap", Bound(high=0.15), "clean"),
        ("split_group_gap", Bound(high=0.1), "observatory_id"),
        ("split_transfer_retention", Bound(low=0.95), "observatory_id"),
    ],
)
def test_every_metric_of_a_sweep_is_told_of(metric: str, bound: Bound, setting: str) -> None:
    """Twenty samples decide none of these, 4,000 all."""
    (few,) = sweep(metric, 20, bound, setting)
    assert few.enough is None or few.enough > 20
    assert f"{metric} {'<=' if np.isfinite(bound.high) else '>='} " in few.shown
    assert sweep(metric, 4000, bound, setting) == []


@pytest.mark.parametrize(("metric", "low"), [("pcri", -0.2), ("pcri_matched", -0.1), ("pcri_excess", -0.05), ("rci", -0.2)])
def test_patches_are_told_of(metric: str, low: float) -> None:
    tests = [MetricKey("m", "d", metric, f"patches:{grid}", "patches") for grid in (2, 3)]
    rule = Policy((Rule("r", metric, Bound(low=low), "a.yaml:3"),))
    assert too_few(rule, tests, {"d": 15}) != []
    assert too_few(rule, tests, {"d": 2000}) == []


def test_a_bound_that_the_best_model_does_not_keep_is_no_matter_of_samples() -> None:
    assert too_few(policy(high=-0.05), TESTS, {"large": 5000}) == []


def test_a_test_that_a_waiver_speaks_about_is_left_out() -> None:
    waiver = Waiver("W", "jo", "", date(2026, 2, 1), "accuracy_drop", Scope(dataset=("small",)), 0.5, "a.yaml:9")
    waived = replace(policy(), waivers=(waiver,))
    assert undecidable(waived, TESTS, SIZES, today=TODAY) == []
    assert undecidable(waived, TESTS, SIZES, today=date(2026, 2, 2)) != []


def test_several_questions_about_a_picture_show_more_than_one_at_best() -> None:
    alone = undecidable(policy(), TESTS[1:], SIZES, today=TODAY)
    several = undecidable(policy(), TESTS[1:], SIZES, today=TODAY, questions={"small": 800})
    assert (len(alone), several) == (1, [])


def test_of_many_datasets_one_sentence_tells_the_smallest() -> None:
    names = {f"d{place}": 100 + place for place in range(5)}
    tests = [replace(TESTS[0], dataset=name) for name in names]
    ((_, sentence),) = sentences(too_few(policy(), tests, names))
    assert sentence.startswith("d0, d1, d2 and 2 more: at the fewest, with 100 questions even a model that ")
    assert "; rule r (accuracy_drop <= 0.03, " in sentence


def test_of_several_questions_about_an_image_the_images_count() -> None:
    rule = policy(high=0.04, metric="mean_drop_at_low")
    (few,) = undecidable(rule, [MetricKey("m", "d", "mean_drop_at_low")], {"d": 10}, today=TODAY, questions={"d": 50})
    assert few.each == 5
    assert str(few).startswith(
        "with 50 questions (10 images) even a model that loses nothing is only shown to have mean_drop_at_low <= 0."
    )
    assert str(few).endswith("and at least 330 questions (66 images) even if no answer changes")


@pytest.mark.parametrize("each", [2, 5, 18])
def test_images_that_a_rule_needs_even_if_no_answer_changes(each: int) -> None:
    rule = policy(high=0.04, metric="mean_drop_at_low").rules[0]
    assert images_needed(rule, each) == 66
    assert images_needed(replace(rule, bound=Bound(low=0.1))) is None
    assert images_needed(replace(rule, metric="clean_accuracy")) is None
    assert images_needed(replace(rule, metric="largest_downward_step")) is None
    assert images_needed(replace(rule, treatment=Treatment(judge=JudgedBy.POINT))) is None


@pytest.mark.parametrize("name", ["default", "strict", "robustbench"])
def test_policies_name_the_images_that_they_need(name: str) -> None:
    path = Path(__file__).parents[4] / "thresholds" / f"{name}.yaml"
    head = path.read_text(encoding="utf-8").partition("version: 1")[0].replace("\n# ", " ")
    rules = {rule.id: rule for rule in load_policy([path], known_metrics=known_metrics()).rules}
    numbers = re.findall(r"(mean-drop[a-z-]*|always-lost) (\d+)", head.partition("however many questions each has: ")[2])
    assert numbers
    assert dict(numbers) == {
        rule: str(images_needed(rules[rule])) for rule in ("mean-drop", "mean-drop-at-low", "always-lost") if rule in rules
    }


@pytest.mark.parametrize("metric", ["thinking_gain", "fixation_rate", "resolution_correlation", "corpus_drop"])
def test_what_cannot_be_told_is_named(metric: str) -> None:
    rule = policy(metric=metric)
    assert [bound_rule.metric for bound_rule in rules_without_sample_size(rule)] == [metric]
    assert rules_without_sample_size(policy(metric=metric, judge=JudgedBy.POINT)) == []
    assert sweep(metric, 20, Bound(high=0.1)) == []


def test_rules_about_categories_cannot_be_told() -> None:
    assert len(rules_without_sample_size(policy(where=Scope(category=("ocr",))))) == 1


def shipped(name: str) -> Policy:
    return load_policy([thresholds_file(name, Path)], known_metrics=known_metrics(), ambiguous=AMBIGUOUS)


def warned(policy: Policy, n: int) -> set[str]:
    return {finding.text.partition("; rule ")[2].partition(" ")[0] for finding in too_tight_for(policy, n, TODAY)}


@pytest.mark.study
@pytest.mark.parametrize("name", SHIPPED)
def test_of_shipped_policies_is_warned_what_the_judge_leaves_undecided(name: str) -> None:
    """Of 40 questions, judged by `vlmrobust power`: another way to draw and to plan the same, with other random numbers.

    A rule that a model which loses nothing ends undecided in most runs is warned of, and none that it passes in nearly all.
    """
    policy = replace(shipped(name), waivers=())
    truth = published.nothing_lost(churn=0.0)
    blocking = [rule for rule in policy.rules if rule.treatment.on_inconclusive is OnInconclusive.FAIL]
    everywhere = replace(policy, rules=tuple(replace(rule, where=replace(rule.where, dataset=())) for rule in blocking))
    power = Simulation(everywhere, truth, TODAY).run(40, 20, np.random.default_rng(7))
    shown = warned(policy, 40)
    for rule, outcomes in power.outcomes.items():
        undecided = outcomes.get(Outcome.INCONCLUSIVE, 0.0)
        unchanged = metrics.get(everywhere.rules[[written.id for written in everywhere.rules].index(rule)].metric).unchanged
        if undecided >= 0.6 and unchanged is not None:  # 20 runs: of more than 0.35 of all, at a risk of 2 %
            assert rule in shown, (rule, undecided)
        if undecided == 0.0:
            assert rule not in shown, (rule, undecided)


@pytest.mark.study
@pytest.mark.parametrize("name", SHIPPED)
def test_of_shipped_policies_none_is_warned_of_at_four_thousand_questions(name: str) -> None:
    assert warned(shipped(name), 4000) == set()


def test_the_gate_on_the_embedded_model_warns_of_nothing() -> None:
    """Its policy is for 128 questions of shapes, 72 of words, and drawn faces."""
    assert warned(shipped("tiny"), 128) == set()
    assert warned(shipped("tiny"), 72) == set()


@pytest.mark.parametrize(
    ("metric", "bound", "setting"),
    [
        ("attack_rate", Bound(high=0.1), "typographic_wrong:2"),
        ("attack_rate", Bound(high=0.05), "clean"),
        ("typographic_word_drop", Bound(high=0.05), "typographic_wrong:2"),
        ("text_preference", Bound(high=0.3), "note_wrong"),
        ("text_preference", Bound(high=0.3), "note_wrong+fog:mid"),
        ("normalised_accuracy", Bound(low=0.85), "note_wrong"),
        ("directional_sensitivity", Bound(low=0.5), "negation"),
        ("answer_change_rate", Bound(high=0.1), "option_order:1"),
        ("expected_calibration_error", Bound(high=0.16), "clean"),
        ("brier_score_increase", Bound(high=0.05), "fog:low"),
    ],
)
def test_attacks_and_confidence_are_told_of(metric: str, bound: Bound, setting: str) -> None:
    rule = Policy((Rule("r", metric, bound, "a.yaml:3"),))
    family = "" if setting == "clean" else "family"
    tests = [MetricKey("m", "d", metric, setting, family)]
    assert rules_without_sample_size(rule) == []
    (few,) = too_few(rule, tests, {"d": 6})
    assert few.enough
    assert too_few(rule, tests, {"d": 2000}) == []
    assert undecided_ids(rule, tests, {"d": 6}, today=TODAY, questions={"d": 15}) == {"r"}


def test_of_confidence_a_calibrated_model_is_spoken_of() -> None:
    rule = policy(0.1, "expected_calibration_error")
    (few,) = too_few(rule, [MetricKey("m", "d", "expected_calibration_error", "clean")], {"d": 100})
    assert few.shown.startswith("even a model that is right in 88 % and as sure as that is only shown to have ")
