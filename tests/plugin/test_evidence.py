"""What a run leaves is enough to have every verdict again, and the same JUnit file, with and without workers."""

from __future__ import annotations

import importlib
import json
from xml.etree import ElementTree as ET

import pytest

from pytest_vlmrobust.cli import main
from pytest_vlmrobust.core.errors import StoreError
from pytest_vlmrobust.store import Evidence

from .conftest import Project, ends, execute, make_project

Captured = pytest.CaptureFixture[str]
WAIVER = """
waivers:
  - {id: W1, owner: jo, reason: known, expires: 2999-01-01, metric: accuracy_drop, where: {setting: flip_v}, cap: 100pp}
"""


def flawed(project: Project) -> None:
    """Breaks a bound, needs a waiver, answers unreadably and fails once."""
    project.write("policy.yaml", (project.path / "policy.yaml").read_text() + WAIVER)
    project.script(
        {"setting": "invert", "answer": "A"},
        {"setting": "flip_v", "sample": "q[0-3]", "answer": "A"},
        {"setting": "grayscale", "sample": "q1", "answer": "\x1b[31m I could not <say> & will not."},
        {"setting": "solarize:low", "sample": "q2", "error": "the endpoint is down"},
    )


def cases_of(root: ET.Element) -> dict[str, tuple[object, ...]]:
    """Returns what a JUnit file says about each test but how long it took, messages as far as every pytest writes them."""
    cases: dict[str, tuple[object, ...]] = {}
    for case in root.iter("testcase"):
        result = [
            (part.tag, part.get("type"), str(part.get("message")).splitlines()[0].removeprefix('failed on setup with "'))
            for part in case
            if part.tag != "properties"
        ]
        properties = [(entry.get("name"), entry.get("value")) for entry in case.iter("property")]
        cases[f"{case.get('classname')} {case.get('name')}"] = (result, properties)
    return cases


def suite(root: ET.Element) -> dict[str | None, str | None]:
    return {entry.get("name"): entry.get("value") for entry in root[0].findall("properties/property")}


def test_every_verdict_and_the_junit_file_can_be_had_again(any_project: Project, capsys: Captured) -> None:
    flawed(any_project)
    any_project.run("--junitxml=junit.xml")
    run, path = any_project.the_run, any_project.path
    capsys.readouterr()

    assert main(["bundle", str(run), "--out", str(path / "b.zip")]) == 0
    assert main(["verify", str(path / "b.zip")]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[-2:] == ["NO-GO: 48 answers scored again, 8 of 8 records computed again", "everything agrees"]

    assert main(["junit", str(run), "--out", str(path / "again.xml")]) == 0
    theirs, ours = (ET.parse(path / name).getroot() for name in ("junit.xml", "again.xml"))
    expected, repeated = cases_of(theirs), cases_of(ours)
    assert repeated.keys() == expected.keys()
    for name, (result, properties) in expected.items():
        assert repeated[name][1] == properties
        assert kinds(repeated[name][0]) == kinds(result)
    assert suite(ours) == suite(theirs)
    counts = ("tests", "failures", "errors", "skipped")
    assert [ours[0].get(name) for name in counts] == [theirs[0].get(name) for name in counts]
    texts = [{str(part.text).strip() for part in root.iter("failure")} for root in (theirs, ours)]
    assert texts[0] == texts[1]


def kinds(result: object) -> list[object]:
    assert isinstance(result, list)
    return [(tag, kind, message.rpartition("Error: ")[2]) for tag, kind, message in result]


def test_a_loosened_run_directory_is_found_with_its_tests(project: Project, capsys: Captured) -> None:
    flawed(project)
    project.run()
    run = project.the_run
    execute(run, "update answers set value = 1, answer = 'B' where cell = (select id from cells where setting = 'invert')")
    (policy,) = (run / "policies").iterdir()
    applied = policy.read_text()
    policy.write_text(applied.replace("max: 20pp", "max: 99pp"))
    lines = (run / "records.jsonl").read_text().splitlines(keepends=True)
    (run / "records.jsonl").write_text("".join(line for line in lines if "test_cell[model-data-flip_v]" not in line))
    capsys.readouterr()

    assert main(["bundle", str(run), "--out", str(project.path / "b.zip")]) == 4
    assert f"{policy.name} has the SHA-256 " in capsys.readouterr().err
    policy.write_text(applied)
    assert main(["bundle", str(run), "--out", str(project.path / "b.zip")]) == 0
    assert main(["verify", str(project.path / "b.zip")]) == 1
    said = capsys.readouterr().out
    assert "DIFFERS  model-data-invert, sample 'q0': stored 1 (" in said
    assert "DIFFERS  suite/test_suite.py::test_cell[model-data-flip_v]: its record is missing" in said


def test_of_a_killed_run_what_ended_is_told_and_the_rest_is_an_error(project: Project) -> None:
    project.run()
    run = project.the_run
    lines = (run / "records.jsonl").read_bytes().splitlines(keepends=True)
    (run / "records.jsonl").write_bytes(b"".join(lines[:3]) + lines[3][:40])
    assert main(["junit", str(run)]) == 0
    root = ET.parse(run / "junit.xml").getroot()
    assert suite(root)["vlm.verdict"] == "INCOMPLETE"
    assert (root[0].get("tests"), root[0].get("errors")) == ("9", "6")  # with that of the decision
    lost = [str(case.get("name")) for case in root.iter("testcase") if case.find("error") is not None]
    assert "test_sweep[model-data-worst_case_drop]" in lost


def test_the_report_has_all_its_files(project: Project) -> None:
    project.run("--vlm-report=out")
    files = "cells.csv docket.json junit.xml manifest.json model_card.md policies predictions.sqlite records.jsonl report.html"
    names = " ".join(sorted(path.name for path in (project.path / "out").iterdir()))
    assert names == f".vlmrobust.lock {files} results.json summary.md"
    assert json.loads((project.path / "out" / "manifest.json").read_text())["date"]
    assert ET.parse(project.path / "out" / "junit.xml").getroot()[0].get("tests") == "9"  # with that of the decision


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError("no space left on device"), "the report could not be written: no space left on device"),
        (StoreError("the disk is full"), "the report could not be written: the disk is full"),
        (KeyError("rows"), "writing the report ended in KeyError: 'rows'"),
    ],
)
def test_a_report_that_cannot_be_written_is_no_go(
    project: Project, monkeypatch: pytest.MonkeyPatch, error: Exception, said: str
) -> None:
    """What comes next would take it from there, or what an earlier run left in its place."""
    reporting = importlib.import_module("pytest_vlmrobust.reporting")  # the one that the run will import

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(reporting, "write_report", fail)
    ends(project.run("--vlm-report=out"), 11, "INCOMPLETE*", f"*{said}*")
    assert json.loads((project.the_run / "manifest.json").read_text())["decision"] == "INCOMPLETE"
    project.script({"setting": "invert", "answer": "A"})
    assert project.run("--vlm-report=out").ret == 1  # a breach stays one


def test_the_summary_goes_where_github_shows_it(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(project.path / "page.md"))
    assert project.run().ret == 0
    assert (project.path / "page.md").read_text().startswith("# GO\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(project.path / "absent" / "page.md"))
    ends(project.run(), 0, "$GITHUB_STEP_SUMMARY *the summary could not be added: No such file or directory")


def test_runs_of_one_process_and_one_second_share_no_directory(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = make_project(pytester, ())
    monkeypatch.setattr("pytest_vlmrobust.plugin.session.time.strftime", lambda *_: "20260101-120000")
    for name in ("model", "other"):
        project.script(name=name)
        project.run(models=(name,))
    runs = [*(project.path / ".vlmrobust" / "runs").iterdir()]
    models = sorted(str({cell.model for cell in Evidence.open(run, read_only=True).cells()}) for run in runs)
    assert models == ["{'model'}", "{'other'}"]
