from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path

import numpy as np
import pytest

from pytest_vlmrobust import perturbations
from pytest_vlmrobust.backends import failed_prediction
from pytest_vlmrobust.core.cell import Setting, SweepMetric
from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.prediction import Prediction, Request
from pytest_vlmrobust.core.record import Record
from pytest_vlmrobust.demo.words import Words
from pytest_vlmrobust.evaluation.judge.context import DatasetFacts
from pytest_vlmrobust.evaluation.judge.judge import Judge
from pytest_vlmrobust.evaluation.judge.measurements import metric_keys
from pytest_vlmrobust.evaluation.judge.scopes import known_metrics
from pytest_vlmrobust.policies import MetricKey, Policy, load_policy
from tests.unit.evaluation.conftest import MemoryImage, World, cell, measure, sample, sweep_of

Made = Callable[..., Judge]
TODAY = date(2026, 6, 1)
FLIPS = [Setting.parse("flip_h"), Setting.parse("flip_v")]


@pytest.fixture
def judge(world: World, tmp_path: Path) -> Made:
    """Makes a judge over the world with the rules of a thresholds file."""
    file = tmp_path / "policy.yaml"

    def made(*rules: str, more: str = "", reference: str | None = None, judge: str = "point") -> Judge:
        listed = "".join(f"  - {rule}\n" for rule in rules)
        file.write_text(f"version: 1\nrules:\n{listed}defaults: {{judge: {judge}}}\n{more}", encoding="utf-8")
        policy = load_policy([file], known_metrics=known_metrics(), root=tmp_path)
        return Judge(world.evaluator(), dict.fromkeys(world.refs, policy), TODAY, reference)

    return made


def answers(**wrong: Sequence[int]) -> Callable[[Request], str | Prediction]:
    """Answers B (right), but A (wrong) about samples by number under a setting; ``_`` stands for ``:`` nowhere."""
    listed = {name: {f"q{number}" for number in numbers} for name, numbers in wrong.items()}
    return lambda request: "A" if request.sample_id in listed.get(request.setting, set()) else "B"


DROP = "{id: drop, metric: accuracy_drop, max: 20pp}"


def test_a_cell_that_keeps_its_bound(world: World, judge: Made) -> None:
    world.model.answer = answers(no_image=range(6), flip_v=[3])
    record = judge(DROP).run(cell("flip_v"))
    assert (record.test, record.id, record.setting, record.family, record.level) == (
        "cell",
        "model-data-flip_v",
        "flip_v",
        "binary",
        "",
    )
    assert record.outcome is Outcome.PASS
    drop = measure(record, "accuracy_drop")
    assert drop.value == pytest.approx(1 / 6)
    assert drop.low < drop.value < drop.high
    assert (drop.n, drop.threshold, drop.rule, drop.source) == (6, "0.2", "drop", "policy.yaml:3")
    assert measure(record, "relative_corruption_error").value == pytest.approx(1 / 6)
    assert (record.n, record.n_requested, record.n_unparsed, record.n_errors) == (6, 6, 0, 0)
    assert record.worst == ("q3",)
    assert len(record.policy_sha256) == 64


def test_a_broken_bound_says_by_how_much(world: World, judge: Made) -> None:
    world.model.answer = answers(flip_v=[1, 2, 3])
    record = judge(DROP).run(cell("flip_v"))
    assert record.outcome is Outcome.FAIL
    assert record.reason == "accuracy_drop 50.0 pp > 20 pp (rule drop, policy.yaml:3)"


def test_levels_and_families_reach_the_rules(judge: Made) -> None:
    rules = (
        "{id: low, metric: accuracy_drop, where: {level: low}, max: 1pp}",
        "{id: blur, metric: accuracy, where: {family: blur}, min: 1%}",
    )
    record = judge(*rules).run(cell("gaussian_blur:low"))
    assert (record.family, record.level) == ("blur", "low")
    assert {measured.rule for measured in record.measures if measured.rule} == {"low", "blur"}
    assert judge(*rules).run(cell("fog:mid")).outcome is Outcome.MEASURED


CLEAN_CONFIDENCE = ("expected_calibration_error", "brier_score", "area_under_risk_coverage", "coverage_at_90_precision")


@pytest.mark.parametrize("setting", ["clean", "no_image"])
def test_a_baseline_is_measured_by_its_accuracy_and_by_what_pictures_add(world: World, judge: Made, setting: str) -> None:
    world.model.answer = answers(no_image=range(6))
    record = judge(DROP, "{id: bad, metric: accuracy_drop, where: {category: even}, max: 5pp}").run(cell(setting))
    of_letters = CLEAN_CONFIDENCE if setting == "clean" else ()
    assert [measured.metric for measured in record.measures] == ["accuracy", *of_letters, "gain_over_blind"]
    assert record.outcome is Outcome.MEASURED


def test_without_a_rule_nothing_passes(judge: Made) -> None:
    record = judge("{id: other, metric: worst_case_drop, max: 5pp}").run(cell("flip_v"))
    assert record.outcome is Outcome.MEASURED
    assert "no rule applies" in record.reason


def test_a_value_has_the_unit_of_its_bound_else_that_of_its_metric(judge: Made) -> None:
    record = judge("{id: plain, metric: accuracy, min: 0.0}").run(cell("flip_v"))
    assert {
        measured.metric: measured.unit
        for measured in record.measures
        if measured.metric in ("accuracy", "accuracy_drop", "harmful_flip_rate")
    } == {
        "accuracy": "",
        "accuracy_drop": "pp",
        "harmful_flip_rate": "%",
    }
    assert measure(record, "accuracy").ends == (0.0,)


def test_an_undefined_value_never_passes(world: World, judge: Made) -> None:
    """Without any benefit of seeing, the relative error has no meaning."""
    rule = "{id: r, metric: relative_corruption_error, max: 100%}"
    record = judge(rule).run(cell("flip_v"))
    value = measure(record, "relative_corruption_error")
    assert math.isnan(value.value)
    assert record.outcome in (Outcome.NOT_APPLICABLE, Outcome.INCONCLUSIVE)
    assert value.outcome is record.outcome
    assert record.reason


def test_failed_inferences_never_pass(world: World, judge: Made) -> None:
    world.model.answer = lambda request: failed_prediction("down") if request.sample_id == "q2" else "B"
    generous = "budgets: {max_error_rate: 50%}\n"
    record = judge(DROP, more=generous).run(cell("flip_v"))
    assert math.isnan(measure(record, "accuracy_drop").value)
    assert record.outcome is Outcome.INCONCLUSIVE
    assert (record.n, record.n_errors) == (5, 1)
    assert math.isnan(record.categories["even"])
    assert record.categories["odd"] == 1.0


def test_the_error_budget_is_an_error_of_the_gate(world: World, judge: Made) -> None:
    world.model.answer = lambda request: failed_prediction("down") if request.sample_id == "q2" else "B"
    record = judge(DROP).run(cell("flip_v"))
    assert record.outcome is Outcome.ERROR
    rate = measure(record, "error_rate")
    assert rate.value == pytest.approx(1 / 6)
    assert (rate.n, rate.rule) == (6, "max_error_rate")
    assert "1 of 6 inferences failed" in record.reason


def test_the_budget_of_unreadable_answers_is_a_failure_of_the_model(world: World, judge: Made) -> None:
    world.model.answer = lambda request: "B" if request.sample_id == "q2" else "Hm."
    record = judge("{id: drop, metric: accuracy_drop, max: 100pp}").run(cell("flip_v"))
    assert record.outcome is Outcome.FAIL
    rate = measure(record, "unparsed_rate")
    assert rate.value == pytest.approx(5 / 6)
    assert (rate.n, rate.threshold, rate.target) == (6, "0.05", "population")
    assert "no answer could be read in 5 of 6 texts" in rate.reason
    assert (record.n_unparsed, record.n_refused) == (5, 0)


def test_one_unreadable_answer_of_a_cell_shows_nothing(world: World, judge: Made) -> None:
    world.model.answer = lambda request: "Hm." if request.sample_id == "q2" else "B"
    record = judge("{id: drop, metric: accuracy_drop, max: 90pp}").run(cell("flip_v"))
    assert (record.outcome, record.n_unparsed) == (Outcome.PASS, 1)


def test_when_no_inference_worked_nothing_was_measured(world: World, judge: Made) -> None:
    world.model.answer = lambda _request: failed_prediction("down")
    record = judge(DROP).run(cell("flip_v"))
    assert record.outcome is Outcome.ERROR
    assert "no sample was scored" in record.reason


def test_newly_wrong_samples_are_named_first_ones_only(world: World, judge: Made) -> None:
    world.samples = [sample(i) for i in range(8)]
    world.model.answer = answers(clean=[0], flip_v=range(8))
    assert judge(DROP).run(cell("flip_v")).worst == ("q1", "q2", "q3", "q4", "q5")
    assert judge(DROP).run(cell("clean")).worst == ()


@pytest.mark.parametrize(
    ("setting", "changed_by"),
    [("flip_h", "left_right"), ("flip_h", "flip_h"), ("hue_shift:high", "hue_shift:high"), ("invert+flip_h", "left_right")],
)
def test_the_label_preserving_drop_leaves_changed_answers_out(world: World, judge: Made, setting: str, changed_by: str) -> None:
    for i in (0, 1):
        world.samples[i] = dataclasses.replace(world.samples[i], changed_by=frozenset({changed_by}))
    world.model.answer = answers(**{setting: [0, 1, 2]})
    record = judge(DROP, "{id: kept, metric: label_preserving_drop, max: 30pp}").run(cell(setting))
    assert measure(record, "accuracy_drop").value == pytest.approx(3 / 6)
    kept = measure(record, "label_preserving_drop")
    assert kept.value == pytest.approx(1 / 4)
    assert (kept.n, kept.outcome) == (4, Outcome.PASS)


def test_questions_about_words_too_small_to_read_are_left_out_by_the_height_of_their_letters(world: World, judge: Made) -> None:
    setting = "downsample:high"
    assert perturbations.info(setting).label_changing == {"text_12", "text_18"}
    world.samples = list(Words(per_kind=8).samples())
    small = {sample.id for sample in world.samples if "text_18" in sample.changed_by}
    large = {sample.id for sample in world.samples if "text_24" in sample.changed_by} - small
    assert small
    assert large
    right = {sample.id: str(sample.target) for sample in world.samples}
    lost = {(name, setting) for name in small}
    world.model.answer = lambda request: "?" if (request.sample_id, request.setting) in lost else right[request.sample_id]
    record = judge(DROP).run(cell(setting))
    assert measure(record, "accuracy_drop").value == pytest.approx(len(small) / len(right))
    kept = measure(record, "label_preserving_drop")
    assert (kept.n, kept.value) == (len(right) - len(small), 0.0)


def test_where_every_answer_stays_right_there_is_no_second_drop(world: World, judge: Made) -> None:
    world.samples = [
        dataclasses.replace(sample, changed_by=frozenset({"left_right", "hue_shift:high"})) for sample in world.samples
    ]
    for name in ("invert", "hue_shift:low", "clean", "no_image"):
        metrics = {measured.metric for measured in judge(DROP).run(cell(name)).measures}
        assert "label_preserving_drop" not in metrics


def test_where_every_answer_changes_the_drop_does_not_apply(world: World, judge: Made) -> None:
    world.samples = [dataclasses.replace(sample, changed_by=frozenset({"flip_h"})) for sample in world.samples]
    record = judge("{id: kept, metric: label_preserving_drop, max: 30pp}").run(cell("flip_h"))
    kept = measure(record, "label_preserving_drop")
    assert math.isnan(kept.value)
    assert (kept.n, kept.outcome) == (0, Outcome.NOT_APPLICABLE)
    assert "the setting changes the answer of every sample" in kept.reason


def test_categories_are_judged_where_a_rule_is_about_them(world: World, judge: Made) -> None:
    world.model.answer = answers(flip_v=[1, 3])
    record = judge(DROP.replace("20pp", "40pp"), "{id: odd, metric: accuracy_drop, where: {category: odd}, max: 50pp}").run(
        cell("flip_v")
    )
    assert record.outcome is Outcome.FAIL
    assert measure(record, "accuracy_drop").outcome is Outcome.PASS
    odd = measure(record, "accuracy_drop", "odd")
    assert odd.value == pytest.approx(2 / 3)
    assert (odd.n, odd.rule) == (3, "odd")
    assert {measured.category for measured in record.measures} == {"", "odd"}
    assert record.categories == {"even": 1.0, "odd": pytest.approx(1 / 3)}


def test_a_category_has_a_label_preserving_drop_of_its_own(world: World, judge: Made) -> None:
    world.samples[1] = dataclasses.replace(world.samples[1], changed_by=frozenset({"flip_v"}))
    world.model.answer = answers(flip_v=[1])
    record = judge("{id: odd, metric: label_preserving_drop, where: {category: odd}, max: 5pp}").run(cell("flip_v"))
    odd = measure(record, "label_preserving_drop", "odd")
    assert (odd.value, odd.n, odd.outcome) == (0.0, 2, Outcome.PASS)


@pytest.mark.parametrize(("said", "outcome"), [("B", Outcome.PASS), ("Hm?", Outcome.INCONCLUSIVE)])
def test_a_category_that_cannot_be_read_keeps_no_bound(world: World, judge: Made, said: str, outcome: Outcome) -> None:
    """Three of 60 answers are within the budget of the cell; no answer of the category is right, so none is lost."""
    world.samples = [sample(number, category="night" if number < 3 else "day") for number in range(60)]
    world.model.answer = lambda request: said if request.sample_id in {"q0", "q1", "q2"} else "B"
    record = judge("{id: night, metric: accuracy_drop, where: {category: night}, max: 5pp}").run(cell("flip_v"))
    night = next(measured for measured in record.measures if measured.category == "night")
    assert (record.outcome, night.outcome) == (outcome, outcome)
    assert ("is undefined: unparsed_rate 100.0 %" in night.reason) is (said == "Hm?")
    right = judge("{id: night, metric: accuracy, where: {category: night}, min: 50%}").run(cell("flip_v"))
    assert right.outcome is (Outcome.PASS if said == "B" else Outcome.FAIL)


@pytest.mark.parametrize("said", ["A", "Hm?"])
def test_a_category_keeps_no_bound_beside_clean_answers_that_cannot_be_read(world: World, judge: Made, said: str) -> None:
    """Nothing is lost from clean answers that are not right, and the cell's own answers can be read."""
    world.samples = [sample(number, category="night" if number < 3 else "day") for number in range(60)]
    world.samples[9] = dataclasses.replace(world.samples[9], category="night", changed_by=frozenset({"flip_v"}))
    clean_night = {("clean", f"q{number}") for number in (0, 1, 2, 9)}
    world.model.answer = lambda request: said if (request.setting, request.sample_id) in clean_night else "B"
    for metric, bound in (("accuracy_drop", "max: 5pp"), ("harmful_flip_rate", "max: 5%"), ("label_preserving_drop", "max: 5pp")):
        record = judge(f"{{id: night, metric: {metric}, where: {{category: night}}, {bound}}}").run(cell("flip_v"))
        assert record.outcome is (Outcome.PASS if said == "A" else Outcome.INCONCLUSIVE), metric
    right = judge("{id: night, metric: accuracy, where: {category: night}, min: 50%}").run(cell("flip_v"))
    assert right.outcome is Outcome.PASS


@pytest.mark.parametrize("where", ["OCR", "OCR/KIE"])
def test_a_sub_task_that_cannot_be_read_keeps_no_bound(world: World, judge: Made, where: str) -> None:
    kinds = [("OCR", "KIE") if number < 6 else ("Math", "Geo") for number in range(120)]
    world.samples = [sample(number, category=of, keys={"sub_task": part}) for number, (of, part) in enumerate(kinds)]
    world.model.answer = lambda request: "Hm?" if int(request.sample_id[1:]) < 6 else "B"
    judging = judge(f"{{id: kie, metric: largest_downward_step, where: {{category: {where}}}, max: 5pp}}")
    rungs = [Setting.parse(f"resolution:{edge}") for edge in (8, 10, 12)]
    assert judging.run(sweep_of("largest_downward_step"), rungs).outcome is Outcome.INCONCLUSIVE


def test_samples_without_a_category_are_in_none(world: World, judge: Made) -> None:
    world.samples[0] = dataclasses.replace(world.samples[0], category="")
    record = judge(DROP, "{id: odd, metric: accuracy_drop, where: {category: odd}, max: 50pp}").run(cell("flip_v"))
    assert sorted((measured.metric, measured.category) for measured in record.measures if measured.rule) == [
        ("accuracy_drop", ""),
        ("accuracy_drop", "odd"),
    ]


def test_a_waived_breach(world: World, judge: Made) -> None:
    world.model.answer = answers(flip_v=[1, 2, 3])
    waiver = (
        "waivers:\n  - {id: W1, owner: jo, reason: known, expires: 2026-06-01, metric: accuracy_drop, "
        "where: {setting: flip_v}, cap: 60pp}\n"
    )
    record = judge(DROP, more=waiver).run(cell("flip_v"))
    assert record.outcome is Outcome.WAIVED
    assert measure(record, "accuracy_drop").waiver == "W1"
    late = dataclasses.replace(judge(DROP, more=waiver), today=date(2026, 6, 2)).run(cell("flip_v"))
    assert late.outcome is Outcome.FAIL
    assert "expired on 2026-06-01" in late.reason


def test_a_sweep(world: World, judge: Made) -> None:
    world.model.answer = answers(flip_h=[0], flip_v=[1, 2], no_image=range(6))
    record = judge("{id: worst, metric: worst_case_drop, max: 20pp}").run(
        sweep_of("worst_case_drop"), [Setting.parse("clean"), *FLIPS]
    )
    assert (record.test, record.id, record.metric, record.setting) == (
        "sweep",
        "model-data-worst_case_drop",
        "worst_case_drop",
        "",
    )
    assert record.outcome is Outcome.FAIL
    assert measure(record, "worst_case_drop").value == pytest.approx(2 / 6)
    assert (record.n, record.n_requested) == (6, 18)  # answers to the clean and two perturbed questions


def test_a_sweep_with_failed_inferences_never_passes(world: World, judge: Made) -> None:
    world.model.answer = lambda request: (
        failed_prediction("down")
        if (request.sample_id, request.setting)
        == (
            "q1",
            "flip_v",
        )
        else "B"
    )
    rule = "{id: worst, metric: worst_case_drop, max: 90pp}"
    about = sweep_of("worst_case_drop")
    record = judge(rule).run(about, FLIPS)
    assert record.outcome is Outcome.ERROR
    assert record.n_errors == 1
    generous = judge(rule, more="budgets: {max_error_rate: 50%}\n").run(about, FLIPS)
    assert generous.outcome is Outcome.INCONCLUSIVE


def test_a_sweep_and_its_cells_share_their_answers(world: World, judge: Made) -> None:
    made = judge(DROP)
    first = made.run(sweep_of("worst_case_drop"), FLIPS)
    assert first.n_inferred == 6 * 4  # clean, no_image and the two settings
    for setting in FLIPS:
        assert made.run(cell(str(setting))).n_inferred == 0


def test_inferences_are_counted_where_they_were_made(judge: Made) -> None:
    made = judge(DROP)
    assert made.run(cell("flip_h")).n_inferred == 6 * 3  # it needs clean and no_image as well
    assert made.run(cell("clean")).n_inferred == 0
    again = judge(DROP).run(cell("flip_h"))
    assert (again.n_inferred, again.n_recalled) == (0, 6 * 3)


def test_each_model_is_judged_by_its_own_policy(world: World, judge: Made) -> None:
    world.refs["other"] = dataclasses.replace(world.refs["model"], name="other")
    world.model.answer = answers(flip_v=[1, 2, 3])
    strict, loose = judge(DROP), judge("{id: drop, metric: accuracy_drop, max: 90pp}")
    policies: dict[str, Policy] = {"model": strict.policies["model"], "other": loose.policies["other"]}
    both = Judge(world.evaluator(), policies, TODAY)
    first, second = (both.run(cell("flip_v", model)) for model in ("model", "other"))
    assert (first.outcome, second.outcome) == (Outcome.FAIL, Outcome.PASS)
    assert first.policy_sha256 != second.policy_sha256


def test_records_are_json(world: World, judge: Made) -> None:
    world.model.answer = lambda request: failed_prediction("down") if request.sample_id == "q2" else "B"
    record = judge(DROP).run(cell("flip_v"))
    read = Record.from_json(record.to_json())
    assert read.to_json() == record.to_json()
    assert all(type(measured.value) is float for measured in record.measures)


def test_what_a_setting_could_not_do_is_told_step_by_step_also_when_recalled(world: World, judge: Made) -> None:
    world.samples[0] = sample(0, images=(MemoryImage(np.zeros((40, 400, 3), np.uint8)),))
    inferred, recalled = [judge(DROP).run(cell("resolution:24+pad_zero:112")) for _ in range(2)]
    assert inferred.notes == (
        "5 of 6 samples, such as q1: resolution:24: the long edge has 16 pixels, fewer than 24: left as it is",
    )
    assert (recalled.notes, recalled.n_inferred) == (inferred.notes, 0)
    assert Record.from_json(recalled.to_json()).notes == recalled.notes


def test_an_interval_rule_says_what_it_is_about_and_how_many_samples_it_lacks(world: World, judge: Made) -> None:
    world.model.answer = answers(flip_v=[3])
    record = judge(DROP, judge="interval").run(cell("flip_v"))
    drop = measure(record, "accuracy_drop")
    assert (record.outcome, drop.target) == (Outcome.INCONCLUSIVE, "population")
    least, most = drop.samples_needed_least, drop.samples_needed
    assert least is not None
    assert most is not None
    assert 6 < least < most
    assert re.search(r"; about [1-9][\d,]* questions would decide it if this value is the true one$", record.reason)
    assert measure(Record.from_json(record.to_json()), "accuracy_drop") == drop


def test_planned_tests_are_judged_by_the_metrics_that_they_measure(world: World, judge: Made) -> None:
    record = judge(DROP).run(cell("flip_v"))
    tests = metric_keys(cell("flip_v"), DatasetFacts.of(world.evaluator(), "data"))
    assert {measured.metric for measured in record.measures} == {test.metric for test in tests}
    assert {(test.family, test.level, test.setting) for test in tests} == {("binary", "", "flip_v")}
    assert [test.metric for test in metric_keys(cell("clean"))] == ["accuracy", *CLEAN_CONFIDENCE, "corpus_score", "attack_rate"]
    assert metric_keys(SweepMetric("m", "d", "mean_drop")) == [MetricKey("m", "d", "mean_drop")]


def test_an_attack_on_the_image_is_not_judged_without_the_image(world: World, judge: Made) -> None:
    """A model that answers what a prior expects without looking, and rightly with the image, gives in to nothing."""
    world.samples = [dataclasses.replace(sample, target_of_attack="B") for sample in world.samples]
    world.model.answer = lambda request: "A" if request.images else "B"
    attacked = "{id: attacked, metric: attack_rate, max: 15%}"
    blind, seen = (judge(attacked).run(cell(setting)) for setting in ("no_image", "flip_v"))
    assert blind.outcome is not Outcome.FAIL
    assert "attack_rate" not in {measured.metric for measured in blind.measures}
    assert measure(seen, "attack_rate").value == 0.0


WORST_CATEGORY = "{id: worst, metric: worst_category_drop, max: 25pp, on_not_applicable: warn}"
ALWAYS_LOST = "{id: lost, metric: always_lost_rate, max: 20pp}"


def test_the_worst_category_is_found_and_small_categories_are_named(world: World, judge: Made) -> None:
    names = ["read"] * 30 + ["count"] * 30 + ["colour"] * 3
    world.samples = [sample(number, category=name) for number, name in enumerate(names)]
    lost = range(45, 63)  # half of "count", and all of "colour", which is too small to be compared
    world.model.answer = answers(flip_h=lost, flip_v=lost)
    record = judge(WORST_CATEGORY).run(sweep_of("worst_category_drop"), FLIPS)
    worst = measure(record, "worst_category_drop")
    assert (worst.outcome, worst.value) == (Outcome.FAIL, 0.5)
    small = "left out, with fewer than 30 source images: colour (3)"
    assert record.notes == (small, "worst of 2: count (50.0 pp, n=30); left out 3 of 63 samples")


@pytest.mark.parametrize("names", [[""] * 6, ["read"] * 6, ["read", "count"] * 3], ids=["none", "one", "small"])
def test_without_categories_the_worst_one_does_not_apply_and_nothing_is_asked(
    world: World, judge: Made, names: list[str]
) -> None:
    world.samples = [sample(number, category=name) for number, name in enumerate(names)]
    record = judge(WORST_CATEGORY).run(sweep_of("worst_category_drop"), FLIPS)
    assert math.isnan(measure(record, "worst_category_drop").value)
    assert "fewer than two categories of 30 or more source images are known" in record.reason
    assert record.outcome in {Outcome.MEASURED, Outcome.NOT_APPLICABLE}  # the rule says: warn
    assert {request.setting for request in world.model.requests} <= {"clean", "no_image"}
    strict = judge(WORST_CATEGORY.replace("warn", "inconclusive"))
    assert strict.run(sweep_of("worst_category_drop"), FLIPS).outcome is Outcome.NOT_APPLICABLE


def test_hidden_losses_are_read_from_answers_that_stay_right(world: World, judge: Made) -> None:
    """The first sample is wrong where flip_h changes its answer, and right elsewhere; the second is wrong everywhere."""
    settings = [*FLIPS, Setting.parse("invert")]
    world.samples[0] = dataclasses.replace(world.samples[0], changed_by=frozenset({"flip_h", "flip_v"}))
    world.samples[1] = dataclasses.replace(world.samples[1], changed_by=frozenset({"flip_h"}))
    world.model.answer = answers(flip_h=[0], flip_v=[0, 1], invert=[1])
    record = judge(ALWAYS_LOST).run(sweep_of("always_lost_rate"), settings)
    assert measure(record, "always_lost_rate").value == pytest.approx(1 / 6)
    assert record.notes == ("left out 3 of 18 answers that a setting changes", "1 of 6 samples are always lost")


def test_a_sample_whose_answer_every_setting_changes_is_left_out(world: World, judge: Made) -> None:
    world.samples[0] = dataclasses.replace(world.samples[0], changed_by=frozenset({"flip_h", "flip_v"}))
    world.model.answer = answers(flip_h=[0, 1], flip_v=[0, 1])
    record = judge(ALWAYS_LOST).run(sweep_of("always_lost_rate"), FLIPS)
    lost = measure(record, "always_lost_rate")
    assert lost.n == 5
    assert lost.value == pytest.approx(1 / 5)
    assert "left out 2 of 12 answers that a setting changes, all of them for 1 of 6 samples" in record.notes
    world.samples = [dataclasses.replace(sample, changed_by=frozenset({"flip_h", "flip_v"})) for sample in world.samples]
    nothing = judge(ALWAYS_LOST).run(sweep_of("always_lost_rate"), FLIPS)
    assert nothing.outcome is Outcome.NOT_APPLICABLE
    assert "change the answer of every sample" in nothing.reason


def test_a_failed_inference_stays_missing_where_a_setting_changes_the_answer(world: World, judge: Made) -> None:
    world.samples[0] = dataclasses.replace(world.samples[0], changed_by=frozenset({"flip_h"}))
    world.model.answer = lambda request: (
        failed_prediction("down") if (request.sample_id, request.setting) == ("q0", "flip_h") else "B"
    )
    made = judge(ALWAYS_LOST, more="budgets: {max_error_rate: 50%}\n")
    record = made.run(sweep_of("always_lost_rate"), FLIPS)
    assert math.isnan(measure(record, "always_lost_rate").value)
    assert record.outcome is Outcome.INCONCLUSIVE
