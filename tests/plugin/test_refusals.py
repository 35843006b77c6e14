"""A model that says that it sees no picture, where there is none, is right to do so."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

import pytest

from pytest_vlmrobust.cli import main
from tests.small_gate import write_questions

from .conftest import SAMPLES, SUITE, UNUSED, Project, ends

REFUSAL = "I am sorry, but I cannot see an image. Please provide the image."


def records(project: Project) -> dict[str, dict[str, Any]]:
    entries = project.results("out")["records"]
    return {str(record["id"]): record for record in entries}


def test_refusing_without_the_picture_is_go_and_is_said(any_project: Project) -> None:
    any_project.script({"setting": "no_image", "answer": REFUSAL})
    policy = any_project.path / "policy.yaml"
    policy.write_text(f"{policy.read_text()}coverage: {{blind_models: allow}}\n")  # saying B at random is right each time here
    result = ends(any_project.run("--vlm-report=out"), 0)
    said = f"{SAMPLES} of {SAMPLES} answers of model without the images could not be read and count as guesses"
    result.stdout.fnmatch_lines([f"note *: {said}"])
    by_id = records(any_project)
    (gain,) = by_id["model-data-visual_gain"]["measures"]
    assert gain["value"] == 0.0  # every right answer here is B, so that saying B without looking is right each time
    assert [by_id["model-data-no_image"][name] for name in ("n_unparsed", "n_guessed")] == [0, SAMPLES]
    assert by_id["model-data-worst_case_drop"]["n_requested"] == 5 * SAMPLES  # clean and four settings


def test_refusing_with_the_picture_is_no_go(project: Project) -> None:
    project.script({"setting": "clean", "answer": REFUSAL})
    ends(project.run("-v"), 1, "*refusal_rate *100.0 % * FAIL <= 5 %")


def test_a_verification_counts_guesses_alike(project: Project) -> None:
    project.script({"setting": "no_image", "sample": "q[0-4]", "answer": REFUSAL})
    project.run()
    project.verify(project.the_run)


DROPS = "version: 1\nrules: [{{id: drop, metric: accuracy_drop, max: 80pp, unless: {{setting: no_image}}}}]\n{}\n"


@pytest.mark.parametrize("answer", ["B", "A"])
@pytest.mark.parametrize("suite", [SUITE, SUITE.replace(', "visual_gain"', "")])
def test_a_model_that_always_says_the_same_is_no_go_by_rules_on_drops_alone(project: Project, suite: str, answer: str) -> None:
    project.write("suite/test_suite.py", suite)
    project.write("model.yaml", f"default: {answer}\n")
    project.write("policy.yaml", DROPS.format(""))
    result = ends(project.run(), 10)
    text = " ".join(result.stdout.str().split())
    assert (
        "model is not shown to look at the images of data: with them it scores 0.0 pp more than without, 90 % interval -" in text
    )
    assert "(coverage blind_models: refuse, built-in default)" in text
    project.write("policy.yaml", DROPS.format("coverage: {blind_models: allow}"))
    assert project.run().ret == 0
    project.write("policy.yaml", DROPS.format(""))
    project.script()
    assert project.run().ret == 0


@pytest.mark.parametrize(
    ("least", "code"), [("10pp, judge: point", 0), ("0pp, judge: point", 10), ("-99pp", 10), ("7pp, on_inconclusive: warn", 10)]
)
def test_a_rule_that_asks_for_visual_gain_decides_by_itself(project: Project, least: str, code: int) -> None:
    """One answer of eight is better with its image: by its interval that is no gain, and a bound of 0 asks for none."""
    project.script({"setting": "no_image", "sample": "q[1-7]", "answer": "B"})
    rule = f"- {{id: gain, metric: visual_gain, min: {least}}}\n"
    project.write("policy.yaml", DROPS.format("").replace("rules: [", "rules:\n- ").replace("}]", "}\n" + rule))
    assert project.run().ret == code


# Models that the images do not reach, in a gate of its own: enough questions to ask a few of them once more.

DEAF = """
from pytest_vlmrobust.backends import backends
from pytest_vlmrobust.backends.scripted import ScriptedBackend


def answer(request):
    number = int(request.text.split("Number ")[1].split("?")[0])
    return "AB"[(number + HOW) % 2]


backends.add("deaf", lambda ref, options: ScriptedBackend(answer, version="HOW", name=ref.name), replace=True)
"""
LOOKS = "int(request.sample_id[1:]) - number + (not request.images)"
"""Whose picture is shown tells the answer."""


EXCHANGE_NOTHING = """
update answers set prediction = (
    select clean.prediction from answers as clean
    where clean.place = answers.place and clean.cell = (select id from cells where setting = 'clean')
)
where cell = (select id from cells where setting = 'exchanged')
"""


@pytest.fixture
def large(project: Project) -> Project:
    write_questions(project.path, "AB" * 8)
    project.write("models.yaml", "models:\n  m: {backend: deaf, path: models.yaml}\n")
    project.write("policy.yaml", DROPS.format(""))
    return project


def ask(project: Project, how: str, deaf: str = DEAF) -> pytest.RunResult:
    project.write("conftest.py", deaf.replace("HOW", how))
    project.write("model.yaml", "default: B\n")
    arguments = ("--vlm=m", "--vlm-models=models.yaml", "--vlm-dataset=data.jsonl", "--vlm-thresholds=policy.yaml")
    return project.pytester.runpytest(
        *arguments, "-p", "no:randomly", *UNUSED, "suite", "--vlm-report=out", "--junitxml=junit.xml"
    )


def test_a_model_whose_template_drops_the_pictures_is_warned_of_everywhere_and_not_go(large: Project) -> None:
    """It is right each time, with whatever picture and with none."""
    large.write("suite/test_suite.py", SUITE.replace('"no_image", ', "").replace(', "visual_gain"', ""))  # no test withholds them
    result = ends(ask(large, "0"), 10)
    said = "m answers 12 questions the same when it is shown the images of other questions"
    printed = " ".join(result.stdout.str().split())
    assert said in printed
    assert "m is not shown to look at the images of data: with them it scores 0.0 pp more than without" in printed
    for name in ("out/summary.md", "out/report.html", "out/results.json"):
        assert said in (large.path / name).read_text(), name
    assert 'name="vlm.metric.same_when_exchanged_rate" value="1' in (large.path / "junit.xml").read_text()
    large.write("policy.yaml", DROPS.format("coverage: {blind_models: allow}"))
    allowed = ends(ask(large, "0"), 0)
    assert said in " ".join(allowed.stdout.str().split())


@pytest.mark.parametrize("rule", ["", ", {id: gain, metric: visual_gain, min: 2pp}"], ids=["drops", "gain"])
def test_a_model_that_sees_no_picture_and_refuses_where_there_is_none_is_not_go(large: Project, rule: str) -> None:
    """It is right with every picture, and says that it sees none where there is none: the pictures seem to bring much."""
    deaf = DEAF.replace('return "AB"', f'return {REFUSAL!r} if not request.images else "AB"')
    large.write("policy.yaml", DROPS.format("").replace("}]", f"}}{rule}]"))
    result = ends(ask(large, "0", deaf=deaf), 10)
    said = " ".join(result.stdout.str().split())
    assert "m is not shown to look at the images of data: it answers 12 questions the same with the images of others, and" in said
    large.write("policy.yaml", DROPS.format("coverage: {blind_models: allow}").replace("}]", f"}}{rule}]"))
    assert ask(large, "0", deaf=deaf).ret == 0


def test_a_model_that_looks_is_go_and_its_probes_can_be_computed_again(large: Project) -> None:
    result = ends(ask(large, LOOKS), 0)
    assert "when it is shown the images" not in result.stdout.str()
    rates = {measure["metric"]: measure["value"] for measure in records(large)["m-data-clean"]["measures"]}
    assert (rates["same_when_exchanged_rate"], rates["other_when_alone_rate"]) == (0.0, 0.0)
    run = large.the_run
    bundle = large.path / "run.zip"
    assert main(["bundle", str(run), "--out", str(bundle)]) == 0
    assert main(["verify", str(bundle)]) == 0
    with closing(sqlite3.connect(run / "predictions.sqlite")) as evidence, evidence:
        assert evidence.execute(EXCHANGE_NOTHING).rowcount == 12
    bundle.unlink()
    assert main(["bundle", str(run), "--out", str(bundle)]) == 0
    assert main(["verify", str(bundle)]) == 1  # the record says that they were others


@pytest.mark.parametrize("raised", ["MemoryError('no room for 7 tensors')", "RecursionError('too deep')", "SystemExit('ended')"])
def test_what_a_backend_raises_is_said(large: Project, raised: str) -> None:
    """The last line of pytest's own traceback has no message, and of a recursion says how to see more of it."""
    broken = f"""
class Broken(ScriptedBackend):
    def infer(self, requests):
        raise {raised}


backends.add("deaf", lambda ref, options: Broken(answer, version="1", name=ref.name), replace=True)
"""
    assert ask(large, "0", deaf=DEAF + broken).ret == 11
    said = raised.rstrip("')").replace("('", ": ")
    assert all(said in record["reason"] for record in records(large).values())


@pytest.mark.parametrize("method", ["describe", "close"])
@pytest.mark.parametrize("raised", ["ValueError('no')", "SystemExit(0)"])
def test_what_a_backend_raises_behind_its_last_answer_changes_no_decision(large: Project, method: str, raised: str) -> None:
    """An error while a run concludes would end pytest with Python's exit code 1, and an exit with its own."""
    broken = f"""
class Broken(ScriptedBackend):
    def {method}(self):
        raise {raised}


backends.add("deaf", lambda ref, options: Broken(answer, version="1", name=ref.name), replace=True)
"""
    ends(ask(large, "0", deaf=DEAF + broken), 10, "INCONCLUSIVE *")
