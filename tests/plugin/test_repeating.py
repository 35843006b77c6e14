"""``--vlm-aa``: some answers are asked for again, and the noise stands beside the thresholds."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from pytest_vlmrobust.cli import main

from .conftest import SAMPLES, UNUSED, Project, ends

FICKLE = """
import itertools
from pytest_vlmrobust.backends.scripted import ScriptedBackend

asked = itertools.count()
infer = ScriptedBackend.infer


def fickle(self, requests):
    import dataclasses
    answers = infer(self, requests)
    return [dataclasses.replace(a, text=f"{a.text}" if next(asked) < %d else "A") for a in answers]


def pytest_configure():
    ScriptedBackend.infer = fickle


def pytest_unconfigure():  # this run may share its process with others
    ScriptedBackend.infer = infer
"""
GONE = """
from pytest_vlmrobust.backends.scripted import ScriptedBackend
from pytest_vlmrobust.core.errors import BackendError

answered = []
infer = ScriptedBackend.infer


def gone(self, requests):
    if len(answered) >= %d:
        raise BackendError("the model is gone")
    answered.extend(infer(self, requests))
    return answered[-len(requests):]


def pytest_configure():
    ScriptedBackend.infer = gone


def pytest_unconfigure():  # this run may share its process with others
    ScriptedBackend.infer = infer
"""
CELLS = 6


def noise_properties(file: Path) -> dict[str, str]:
    values = {str(entry.get("name")): str(entry.get("value")) for entry in ET.parse(file).getroot().iter("property")}
    return {name: value for name, value in values.items() if name.startswith("vlm.aa.")}


def stored(project: Project) -> list[tuple[str, str]]:
    with sqlite3.connect(project.path / ".vlmrobust" / "predictions.sqlite") as store:
        return store.execute("select key, answer from predictions order by key").fetchall()


def test_a_model_that_repeats_itself_has_no_noise(any_project: Project) -> None:
    result = ends(any_project.run("--vlm-aa", "--vlm-report=out"), 0)
    other = ", another process" if "-n2" in any_project.arguments else ""
    how = f"{CELLS} cells, batches of 8 in place of 16, another order{other}"
    result.stdout.fnmatch_lines(
        [
            f"A/A model-data: 0 of {CELLS * SAMPLES} answers flipped (0.00 %, 90 % interval 0.00 % to 6.05 %), 0 *; {how}",
            "     noise of 8 samples between two runs: accuracy_drop 0.0 pp (at most 24.1 pp)*",
            "     rule drop: accuracy_drop <= 20 pp, noise 0.0 pp (at most 24.1 pp)",
            "GO*",
        ]
    )
    (about,) = any_project.results("out")["repeatability"]
    assert (about["model"], about["dataset"], about["repeated"], about["flipped"]) == ("model", "data", CELLS * SAMPLES, 0)
    assert (about["tighter"], len(about["beside"])) == ([], 1)
    assert "tighter than the noise" not in result.stdout.str()


def test_a_model_that_does_not_is_said_to_and_the_verdict_and_the_store_stand(project: Project) -> None:
    project.write("conftest.py", FICKLE % (CELLS * SAMPLES))
    result = ends(project.run("--vlm-aa", "--vlm-report=out"), 0)
    # everything is A now: the five cells with pictures flip, and the blind one, which said A before, does not
    flipped = (CELLS - 1) * SAMPLES
    result.stdout.fnmatch_lines(
        [
            f"A/A model-data: {flipped} of {CELLS * SAMPLES} answers flipped (83.33 %*), {flipped} were worded differently*",
            "warning model-data: policy.yaml:5: rule drop (accuracy_drop * is tighter than the noise of*",
        ]
    )
    (about,) = project.results("out")["repeatability"]
    assert about["tighter"][0].startswith("policy.yaml:5: rule drop (accuracy_drop <= 20 pp) is tighter than the noise of")
    assert {json.loads(answer)["text"] for _, answer in stored(project)} == {"A", "B"}
    assert sum(json.loads(answer)["text"] == "B" for _, answer in stored(project)) == flipped


def test_every_report_says_it_and_says_it_again(any_project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    any_project.write("conftest.py", FICKLE % (CELLS * SAMPLES))
    any_project.run("--vlm-aa", "--vlm-report=out", "--junitxml=junit.xml")
    run = any_project.the_run
    assert main(["report", str(run), "--out", str(any_project.path / "again")]) == 0
    pages = [any_project.path / name / "report.html" for name in ("out", "again")]
    assert all(" of answers flipped" in page.read_text(encoding="utf-8") for page in pages)
    first, second = ((any_project.path / name / "summary.md").read_bytes() for name in ("out", "again"))
    assert first == second
    assert b"\n| `model-data` | 48 | " in first
    changed = "-n2" not in any_project.arguments  # with workers another process asks again, and its answers begin anew
    assert (b"\n- warning: model-data: policy.yaml:5: rule drop" in first) == changed
    said = [noise_properties(any_project.path / name) for name in ("junit.xml", "out/junit.xml", "again/junit.xml")]
    assert said[0] == said[1] == said[2]
    assert said[0]["vlm.aa.model-data.repeated"] == "48"
    assert float(said[0]["vlm.aa.model-data.low"]) <= float(said[0]["vlm.aa.model-data.flip_rate"])
    capsys.readouterr()
    assert main(["check", str(any_project.path / "policy.yaml"), "--noise", str(run)]) == 0
    assert "A/A model-data: " in capsys.readouterr().out


def test_without_it_another_policy_cannot_be_set_beside_the_noise(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.run()
    run = project.the_run
    assert main(["check", "tiny", "--noise", str(run)]) == 4
    given = "--vlm=scripted:model.yaml --vlm-dataset=data.jsonl --vlm-thresholds=policy.yaml -p no:randomly"
    command = f"pytest {given} {' '.join(UNUSED)} --vlm-aa suite"
    assert capsys.readouterr().err.endswith(f"Make a run that has one: {command}\n")


def test_a_model_that_is_gone_leaves_no_noise_and_says_so(project: Project) -> None:
    project.write("conftest.py", GONE % (CELLS * SAMPLES))
    ends(project.run("--vlm-aa", "--vlm-report=out"), 0, "A/A model-data: not measured: the model is gone")
    (about,) = project.results("out")["repeatability"]
    assert (about["problem"], about["rate"], about["tighter"]) == ("the model is gone", None, [])
    assert "The noise is unknown" in (project.path / "out" / "report.html").read_text(encoding="utf-8")


def test_a_sample_is_spread_over_the_cells(project: Project) -> None:
    project.run("--vlm-aa", "--vlm-aa-sample=6", "--vlm-report=out")
    (about,) = project.results("out")["repeatability"]
    assert (about["repeated"], about["cells"]) == (CELLS, CELLS)


def test_without_the_option_nothing_is_asked_again(project: Project) -> None:
    result = project.run("--vlm-report=out")
    assert "A/A" not in result.stdout.str()
    assert project.results("out")["repeatability"] == []


def test_each_model_for_itself(project: Project) -> None:
    project.script(name="other")
    result = project.run("--vlm-aa", models=("model", "other"))
    result.stdout.fnmatch_lines(["A/A model-data: 0 of*", "A/A other-data: 0 of*"])


def test_offline_and_with_a_sample_of_nothing_it_is_refused(project: Project) -> None:
    result = project.run("--vlm-aa", "--vlm-offline")
    ends(result, 4, "ERROR: --vlm-aa asks the model again, and --vlm-offline forbids asking it*")
    for size in ("0", "-3"):
        ends(project.run("--vlm-aa", f"--vlm-aa-sample={size}"), 4, f"*--vlm-aa-sample {size}: expected 1 or more*")


def test_what_fails_the_second_time_is_counted_apart(project: Project) -> None:
    failing = FICKLE.replace('text=f"{a.text}"', "text=a.text").replace(
        'else "A")', 'else "", finish_reason="stop" if next(again) < %d else "error")'
    )
    failing = failing.replace("asked = itertools.count()", "asked = itertools.count()\nagain = itertools.count()")
    count = CELLS * SAMPLES
    project.write("conftest.py", failing % (count, count))
    result = project.run("--vlm-aa")
    ends(result, 0, f"A/A model-data: not measured: no answer could be asked for again ({count} inferences failed)")


HANGING = """
import threading
from pytest_vlmrobust.backends.scripted import ScriptedBackend

asked = []
infer = ScriptedBackend.infer


def hanging(self, requests):
    asked.extend(requests)
    if len(asked) > %d:
        threading.Event().wait(600)
    return infer(self, requests)


def pytest_configure():
    ScriptedBackend.infer = hanging


def pytest_unconfigure():  # this run may share its process with others
    ScriptedBackend.infer = infer
"""


def test_a_model_that_hangs_when_it_is_asked_again_is_given_up(project: Project) -> None:
    project.write("conftest.py", HANGING % (CELLS * SAMPLES))
    result = ends(project.run("--vlm-aa", "--vlm-timeout=2"), 0)
    text = " ".join(result.stdout.str().split())
    assert "model has not answered a batch of 8 requests for 2 s (--vlm-timeout)" in text
