"""Settings that change a whole question, from the command line: what is asked, scored, kept and verified."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from pytest_vlmrobust.cli import main
from pytest_vlmrobust.core.cell import Setting
from pytest_vlmrobust.evaluation.run.evidence import newest_runs
from pytest_vlmrobust.shipped import shipped
from pytest_vlmrobust.store import Evidence

from .conftest import SAMPLES, UNUSED, Project, ends

SUITE = """
import pytest


@pytest.mark.vlm_settings("clean", "no_image", "option_order:1", "option_order:2", "option_order:1+grayscale", "note_wrong")
def test_cell(vlm_cell):
    vlm_cell.check()
"""
POLICY = """
version: 1
defaults: {judge: point}
rules:
  - {id: clean, metric: accuracy, where: {setting: clean}, min: 80%}
  - {id: drop, metric: accuracy_drop, max: 10pp}
"""
READS = {"text": "B. dog", "answer": "B"}
"""The rule of a model that knows that the answer is the dog, wherever it stands: it says A else."""


def the_run(project: Project) -> Path:
    return newest_runs([project.path / ".vlmrobust" / "runs"])[0]


@pytest.fixture
def changing(project: Project) -> Project:
    project.write("suite/test_suite.py", SUITE)
    project.write("policy.yaml", POLICY)
    return project


def test_a_model_that_knows_the_answer_is_go_and_its_evidence_agrees(changing: Project) -> None:
    changing.write("model.yaml", json.dumps({"default": "A", "rules": [{"setting": "no_image", "answer": "A"}, READS]}))
    result = changing.run("--vlm-report=report")
    result.assert_outcomes(passed=5)
    result.stdout.fnmatch_lines(["*data: not asked, as no question of it would change: option_order:2"])
    run = the_run(changing)
    with Evidence.open(run, read_only=True) as evidence:
        moved = evidence.samples("data", setting=Setting.parse("option_order:1"))
        assert {(sample.target, *sample.options.values()) for sample in moved} == {("A", "dog", "cat")}
    changing.verify(run)
    again = changing.run("--vlm-offline", f"--vlm-baseline={run}")
    again.assert_outcomes(passed=5)


def test_a_model_that_says_one_letter_is_not(changing: Project) -> None:
    changing.script()
    changing.run().assert_outcomes(passed=3, failed=2)


def test_a_gate_whose_settings_change_nothing_is_never_go(changing: Project) -> None:
    changing.write(
        "suite/test_suite.py", re.sub(r"vlm_settings\(.*\)", 'vlm_settings("option_order:2", "option_order:3")', SUITE)
    )
    changing.script()
    assert changing.run().ret == 5


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_a_rule_whose_settings_change_no_question_keeps_a_run_from_go(changing: Project, workers: Sequence[str]) -> None:
    changing.write("model.yaml", json.dumps({"default": "A", "rules": [{"setting": "no_image", "answer": "A"}, READS]}))
    rule = "  - {id: second, metric: answer_change_rate, where: {setting: 'option_order:2'}, max: 10%}\n"
    changing.write("policy.yaml", POLICY + rule)
    ends(changing.run(*workers), 10, "*rule second (policy.yaml:7) applied to no test: its settings change no question of data.*")
    changing.write("policy.yaml", POLICY + rule + "coverage: {rules: partial}\n")
    ends(changing.run(*workers), 0, "*1 rule applied to no test, as their settings change no question: second*")


def test_an_oracle_knows_the_question_as_it_is_asked(changing: Project) -> None:
    changing.write("model.yaml", json.dumps({"rules": [{"setting": "no_image", "answer": "A"}, {"right": 1.0}]}))
    changing.run().assert_outcomes(passed=5)


OF_SHAPES = ("--vlm=scripted:model.yaml", "--vlm-dataset=shapes", "--vlm-thresholds=policy.yaml", "--vlm-report=report", *UNUSED)
HALF = "--vlm-sample=64"


def shipped_policy(name: str) -> str:
    """Returns a shipped policy that judges values, as the pictures are too few for intervals, and lets half of them be enough."""
    policy = (shipped("thresholds") / f"{name}.yaml").read_text(encoding="utf-8")
    changed = policy.replace("version: 1\n", "version: 1\ndefaults: {judge: point}\n")
    return changed.replace("coverage:\n", "coverage:\n  samples: partial\n")


BLIND = {"setting": "no_image", "right": "chance"}
SOUND = [BLIND, {"right": 1.0}]
READER = [BLIND, {"setting": "typographic_wrong:*", "right": 0.5}, {"setting": "note_wrong", "right": 0.4}, {"right": 1.0}]
"""Of a model that looks and believes every other written word."""


@pytest.mark.parametrize(("rules", "exit_code"), [(SOUND, 0), (READER, 1)])
def test_a_model_that_reads_written_words_is_no_go(project: Project, rules: list[dict[str, object]], exit_code: int) -> None:
    project.write("model.yaml", json.dumps({"rules": rules}))
    project.write("policy.yaml", shipped_policy("typographic").replace("max_unparsed_rate: 5%", "max_unparsed_rate: 10%"))
    assert project.pytester.runpytest(str(shipped("suites") / "test_typographic.py"), HALF, *OF_SHAPES).ret == exit_code
    records = project.results("report")["records"]
    measured = {(record["setting"], measure["metric"]): measure["value"] for record in records for measure in record["measures"]}
    if exit_code == 0:
        assert measured["typographic_wrong:15", "attack_rate"] == measured["note_wrong", "text_preference"] == 0.0
        assert measured["note_wrong", "normalised_accuracy"] == 1.0
    else:
        assert measured["typographic_wrong:2", "attack_rate"] > 0.1
        assert 0.4 < measured["typographic_wrong:6", "typographic_word_drop"] < 0.6
        assert measured["note_wrong", "text_preference"] == pytest.approx(0.35, abs=0.1)  # a part of its errors takes the note
        assert measured["note_wrong", "normalised_accuracy"] == pytest.approx(0.4, abs=0.1)


FRAGILE = [BLIND, {"setting": "option_order:*", "right": 0.4}, {"right": 1.0}]
"""Of a model that often follows the letter of the right option, which is then another option's."""
LETTER = [BLIND, {"task": "choice", "sample": "*[02468]-*", "answer": "A"}, {"right": 1.0}]
"""Of a model that says A to every second question."""
UNREADABLE = [*LETTER[:2], {"answer": "what?"}]
"""Of a model that says A to every second question, and nothing that can be read to the others."""
FORMAT = [BLIND, {"setting": "option_format:*", "right": 0.6}, {"right": 1.0}]
"""Of a model that is lost without ``A.`` before an option."""
DEAF = [BLIND, {"setting": "negation", "right": 0.0}, {"right": 1.0}]
"""Of a model that answers as if a question were not negated."""
GUESSER = [BLIND, {"setting": "negation", "right": "chance"}, {"right": 1.0}]
"""Of a model that guesses at negated questions, and knows all others."""


@pytest.mark.parametrize(
    ("name", "rules", "exit_code", "expected"),
    [
        ("options", SOUND, 0, {"circular_accuracy": 1.0}),
        ("options", FRAGILE, 1, {"circular_accuracy": 0.4, "answer_agreement": 0.4}),
        ("options", LETTER, 1, {"letter_pull": 0.4}),
        ("options", UNREADABLE, 1, {"letter_pull": 0.75}),  # of the questions with an answer
        ("wording", SOUND, 0, {"wording_range": 0.0, "directional_sensitivity": 1.0}),
        ("wording", FORMAT, 1, {"wording_range": 0.4}),  # of the questions that have options
        ("wording", DEAF, 1, {"directional_sensitivity": -2.55}),  # a guess is right in three of four choices, or in half
        ("wording", GUESSER, 1, {"directional_sensitivity": 0.0}),
    ],
)
def test_a_model_with_a_known_fault_is_no_go(
    project: Project, name: str, rules: list[dict[str, object]], exit_code: int, expected: dict[str, float]
) -> None:
    project.write("model.yaml", json.dumps({"rules": rules}))
    project.write("policy.yaml", shipped_policy(name))
    sample = () if rules == GUESSER else (HALF,)  # where guesses have to even out
    assert project.pytester.runpytest(str(shipped("suites") / f"test_{name}.py"), *sample, *OF_SHAPES).ret == exit_code
    records = project.results("report")["records"]
    for metric, value in expected.items():
        (measured, *_) = (measure["value"] for record in records for measure in record["measures"] if measure["metric"] == metric)
        assert measured == pytest.approx(value, abs=0.1), metric
    if "circular_accuracy" in expected and exit_code:  # the clean answer is right, under the letter of its own order
        shown = [example for record in records for example in record["examples"]]
        assert shown
        assert all(example["replies"][0]["option"] == example["options"][example["target"]] for example in shown)
    if rules == DEAF:
        project.verify(the_run(project))


def test_questions_without_options_are_right_in_no_order(project: Project) -> None:
    rows = [json.loads(line) for line in (project.path / "data.jsonl").read_text(encoding="utf-8").splitlines()]
    rows += [{**row, "id": f"open-{row['id']}", "options": [], "answer": "yes"} for row in rows]
    project.write("data.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    project.write("policy.yaml", "version: 1\nrules: [{id: all, metric: circular_accuracy, min: 30%, judge: point}]\n")
    project.write("model.yaml", json.dumps({"rules": [{"setting": "option_order:1", "right": 0.0}, {"right": 1.0}]}))
    project.write("suite/test_suite.py", (shipped("suites") / "test_options.py").read_text(encoding="utf-8"))
    assert project.run("--vlm-report=report").ret == 1
    records = project.results("report")["records"]
    (record,) = (record for record in records if record["metric"] == "circular_accuracy")
    assert record["measures"][0]["value"] == 0.0
    assert f"{SAMPLES} of {2 * SAMPLES} questions are changed by a setting; the others do not count" in record["notes"]


FEW = 12
"""Questions that ``antonym`` changes, of ``EVERY``."""
EVERY = 120
FEW_SUITE = """
import pytest


@pytest.mark.vlm_settings("clean", "no_image", "antonym", "letter_case:upper")
def test_cell(vlm_cell):
    vlm_cell.check()


@pytest.mark.vlm_settings("antonym", "letter_case:upper")
@pytest.mark.vlm_metrics("mean_drop", "wording_range")
def test_sweep(vlm_sweep):
    vlm_sweep.check()
"""
FEW_POLICY = """
version: 1
mode: {mode}
budgets: {{max_error_rate: 0, max_unparsed_rate: 5%}}
rules:
  - {{id: drop, metric: accuracy_drop, where: {{setting: [antonym, letter_case]}}, max: {bound}pp}}
  - {{id: mean, metric: mean_drop, max: {bound}pp}}
  - {{id: range, metric: wording_range, max: {bound}pp}}
"""
IGNORES = {"setting": "antonym", "answer": "yes"}
"""Of a model that answers as if no word had been exchanged."""


@pytest.fixture
def few(project: Project) -> Project:
    """A gate about questions of which a setting changes one in ten."""
    rows = [json.loads(line) for line in (project.path / "data.jsonl").read_text(encoding="utf-8").splitlines()]
    questions = ["Are there more than 3 dots?" if place < FEW else "Is there a dot?" for place in range(EVERY)]
    several = [
        {"id": f"q{place}", "image": rows[place % SAMPLES]["image"], "question": text, "answer": "yes", "group": f"g{place}"}
        for place, text in enumerate(questions)
    ]
    project.write("data.jsonl", "".join(json.dumps(row) + "\n" for row in several))
    project.write("suite/test_suite.py", FEW_SUITE)
    return project


def few_gate(few: Project, mode: str, bound: int, *rules: Mapping[str, object], more: Sequence[str] = ()) -> pytest.RunResult:
    blind = {"setting": "no_image", "answer": "no"}
    few.write("model.yaml", json.dumps({"rules": [blind, *rules, {"right": 1.0}]}))
    few.write("policy.yaml", FEW_POLICY.format(mode=mode, bound=bound))
    return few.run("--vlm-report=report", *more)


@pytest.mark.parametrize("mode", ["full", "adaptive"])
def test_wrong_answers_to_the_few_questions_that_a_setting_changes_break_a_bound(few: Project, mode: str) -> None:
    assert few_gate(few, mode, 25, IGNORES).ret == 1  # a tenth of the questions are wrong: less than the bound over all
    records = few.results("report")["records"]
    by_test = {record["setting"] or record["metric"]: record for record in records}
    assert by_test["antonym"]["n"] <= FEW
    assert f"{FEW} of {EVERY} questions are changed by antonym; the others do not count" in by_test["antonym"]["notes"]
    assert by_test["letter_case:upper"]["outcome"] == "PASS"
    for name, value in {"antonym": 1.0, "mean_drop": 0.5, "wording_range": 1.0}.items():
        assert by_test[name]["outcome"] in ({"FAIL"} if name == "antonym" else {"FAIL", "INCONCLUSIVE"})
        metric = "accuracy_drop" if name == "antonym" else name
        (measured,) = (each["value"] for each in by_test[name]["measures"] if each["metric"] == metric)
        assert measured == pytest.approx(value)
    run = the_run(few)
    with Evidence.open(run, read_only=True) as evidence:
        cell = next(cell for cell in evidence.cells() if str(cell.setting) == "antonym")
        assert len(evidence.get_cell(cell, whole=False).answers) <= FEW
    few.verify(run)
    assert few.run("--vlm-offline").ret == 1


def test_few_questions_show_little_however_many_others_there_are(few: Project) -> None:
    assert few_gate(few, "full", 10).ret == 10
    planned = few.run("--vlm-plan")
    planned.stdout.fnmatch_lines(
        ["*with 12 questions*rule drop*", "*with 12 questions*rule range*", f"*{3 * EVERY + FEW} inferences, at most*"]
    )
    assert few_gate(few, "full", 30).ret == 0


def test_runs_are_compared_on_the_questions_that_a_setting_changes(few: Project, capsys: pytest.CaptureFixture[str]) -> None:
    few.write("relative.yaml", "version: 1\nrules: [{id: since, metric: baseline_drop, max: 40pp}]\n")
    assert few_gate(few, "full", 30).ret == 0
    first = the_run(few)
    assert few_gate(few, "full", 30, IGNORES, more=["--vlm-thresholds=relative.yaml", f"--vlm-baseline={first}"]).ret == 1
    records = few.results("report")["records"]
    (lost,) = (record for record in records if record["setting"] == "antonym")
    assert {each["metric"]: each["value"] for each in lost["measures"]}["baseline_drop"] == 1.0
    assert len(lost["broken"]) == FEW
    capsys.readouterr()
    assert main(["compare", str(first), str(the_run(few))]) == 0
    shown = capsys.readouterr().out
    assert re.search(rf"data-antonym +{FEW} +100\.0 % +0\.0 % +100\.0 pp .* {FEW} +0\n", shown), shown
    assert main(["export", "nel", str(the_run(few)), "--out", str(few.path / "nel")]) == 0


@pytest.mark.parametrize(
    ("chosen", "more"),
    [
        ("antonym", []),
        ("mean_drop", []),  # whose settings change unlike questions
        ("antonym", ["--vlm-aa"]),
        pytest.param("antonym", ["-n2"], marks=pytest.mark.slow),
    ],
)
def test_a_run_without_the_test_of_clean_images_is_read_as_any_other(few: Project, chosen: str, more: list[str]) -> None:
    few.write("model.yaml", json.dumps({"rules": [{"setting": "no_image", "answer": "no"}, {"right": 1.0}]}))
    few.write("policy.yaml", FEW_POLICY.format(mode="full", bound=30))
    ended = few.run("-k", chosen, *more, subprocess="-n2" in more).ret
    assert ended in {0, 10}  # as other tests were not selected
    run = the_run(few)
    few.verify(run)
    assert main(["compare", str(run), str(run)]) == 0
    assert few.run("-k", chosen, f"--vlm-baseline={run}").ret == ended


def test_a_run_in_adaptive_mode_without_the_test_of_clean_images_is_verified(few: Project) -> None:
    few.write("model.yaml", json.dumps({"rules": [{"setting": "no_image", "answer": "no"}, {"right": 1.0}]}))
    few.write("policy.yaml", FEW_POLICY.format(mode="adaptive", bound=30))
    assert few.run("-k", "antonym or mean_drop").ret in {0, 10}
    few.verify(the_run(few))


def test_a_sweep_whose_settings_change_no_question_in_common_is_verified(few: Project) -> None:
    rows = [json.loads(line) for line in (few.path / "data.jsonl").read_text(encoding="utf-8").splitlines()]
    options = {"options": ["dog", "cat"], "answer": "A"}
    rows[FEW:] = [{**row, "question": "What is it?", **options} for row in rows[FEW:]]
    few.write("data.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    few.write("suite/test_suite.py", FEW_SUITE.replace('"antonym", "letter_case:upper")\n@', '"antonym", "option_order:1")\n@'))
    few.write("model.yaml", json.dumps({"rules": [{"setting": "no_image", "answer": "no"}, {"right": 1.0}]}))
    few.write("policy.yaml", FEW_POLICY.format(mode="full", bound=30))
    few.run("-k", "clean or no_image or mean_drop").stdout.fnmatch_lines(["*no question is changed by the settings of the test*"])
    few.verify(the_run(few))


@pytest.mark.slow
def test_two_workers_and_shards_ask_the_changed_questions_alone(few: Project) -> None:
    few_gate(few, "full", 25, IGNORES)
    alone = few.results("report")["records"]
    assert few.run("-n2", "--vlm-report=both", subprocess=True).ret == 1
    both = few.results("both")["records"]
    assert {(each["nodeid"], each["n"], each["outcome"]) for each in alone} == {(e["nodeid"], e["n"], e["outcome"]) for e in both}
