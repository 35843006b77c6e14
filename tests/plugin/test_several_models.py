"""Several models in one run: each is judged for itself, and none is GO because another one was judged."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest

from pytest_vlmrobust.cli import main

from .conftest import ALONE, POLICY, WORKERS_IF_SLOW, Project, decision_cases, ends, make_project

ONE_ONLY = """
version: 1
defaults: {judge: point}
rules:
  - {id: drop, metric: accuracy_drop, where: {model: model}, max: 20pp}
  - {id: clean, metric: accuracy, where: {model: model, setting: clean}, min: 80%}
"""
BOTH = ("model", "other")
UNJUDGED = "no rule judged other, and GO requires a verdict about each model: add a rule that applies to it, or run without it"


@pytest.fixture(params=[ALONE, WORKERS_IF_SLOW])
def project(request: pytest.FixtureRequest, pytester: pytest.Pytester) -> Project:
    return with_another(pytester, request.param)


def with_another(pytester: pytest.Pytester, arguments: tuple[str, ...]) -> Project:
    made = make_project(pytester, arguments)
    made.script({"setting": "invert", "answer": "A"}, name="other")
    return made


def gate(project: Project, *more: str) -> pytest.RunResult:
    return project.run("--vlm-report=out", "--junitxml=junit.xml", *more, models=BOTH)


def decisions(project: Project) -> list[dict[str, str]]:
    """Returns the decision about each model, as each file of the run gives it; also of reports that are made later."""
    run = project.the_run
    main(["report", str(run), "--out", str(project.path / "later")])
    stated = [json.loads((project.path / name / "results.json").read_text())["decisions"] for name in ("out", "later")]
    for file in ("junit.xml", "out/junit.xml", "later/junit.xml"):
        suite = ElementTree.parse(project.path / file).getroot()[0]
        values = {str(entry.get("name")): str(entry.get("value")) for entry in suite.findall("properties/property")}
        stated.append({name.removeprefix("vlm.verdict."): value for name, value in values.items() if "verdict." in name})
        stated.append(decision_cases(project.path / file))
    for file in ("out/summary.md", "later/summary.md"):
        lines = (project.path / file).read_text().splitlines()
        stated.append(
            {
                name: f"{said}".strip("*").removesuffix(" WITH WAIVERS")
                for name, _, said in (x[2:].partition(": ") for x in lines if x[:2] == "- " and x[-2:] == "**")
            }
        )
    return stated


def alike(stated: list[dict[str, str]], **expected: str) -> bool:
    return all(decided == expected for decided in stated)


def test_a_model_that_no_rule_judges_is_not_go(project: Project) -> None:
    project.write("policy.yaml", ONE_ONLY)
    ends(
        gate(project),
        10,
        f"not GO: {UNJUDGED}",
        "decision about model: GO",
        "decision about other: INCONCLUSIVE",
        "INCONCLUSIVE  no failures, but no rule judged other",
    )
    assert alike(decisions(project), model="GO", other="INCONCLUSIVE")
    assert UNJUDGED in project.results("later")["shortfalls"]
    assert UNJUDGED in (project.path / "out" / "report.html").read_text()


def test_a_model_with_a_waived_breach_was_judged(project: Project) -> None:
    waiver = (
        "{id: W1, owner: jo, reason: known, expires: 2999-01-01, metric: accuracy_drop, where: {setting: invert}, cap: 100pp}"
    )
    rule = "{id: drop, metric: accuracy_drop, where: {setting: invert}, max: 20pp}"
    head = "version: 1\ndefaults: {judge: point}\nrules:\n  - "
    project.write("policy.yaml", f"{head}{rule}\nwaivers:\n  - {waiver}\n")
    assert gate(project).ret == 0
    assert alike(decisions(project), model="GO", other="GO")


def test_a_breach_of_one_model_is_its_own(project: Project) -> None:
    ends(gate(project), 1, "decision about model: GO", "decision about other: NO-GO", "NO-GO*")
    assert alike(decisions(project), model="GO", other="NO-GO")


def test_an_error_of_one_model_is_its_own(project: Project) -> None:
    project.script({"setting": "invert", "error": "down"}, name="other")
    assert gate(project).ret == 11
    assert alike(decisions(project), model="GO", other="INCOMPLETE")


def test_what_fails_beside_the_gate_counts_for_each_model(project: Project) -> None:
    project.write("suite/test_zzz.py", "def test_zzz():\n    assert 0\n")
    assert gate(project).ret == 1
    assert alike(decisions(project), model="INCOMPLETE", other="NO-GO")


def test_a_model_of_which_nothing_ran_is_not_go_even_where_a_part_may_be(project: Project) -> None:
    project.write("policy.yaml", f"{POLICY}coverage: {{tests: partial}}\n")
    assert gate(project, "-k", "model-data").ret == 10
    assert alike(decisions(project), model="GO", other="INCONCLUSIVE")


def test_one_model_has_no_decision_apart(project: Project) -> None:
    result = project.run("--junitxml=junit.xml")
    assert "decision about" not in result.stdout.str()
    assert "vlm.verdict.model" not in (project.path / "junit.xml").read_text()


def test_tests_that_were_lost_are_those_of_their_model(pytester: pytest.Pytester) -> None:
    project = make_project(pytester, ())
    project.script(name="other")
    project.write("suite/test_zzz.py", "def test_zzz():\n    pass\n")
    project.run("--vlm-report=out", "--junitxml=junit.xml", models=BOTH)
    run = project.the_run
    journal = run / "records.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text("".join(line for line in lines if '"id": "other-data-invert"' not in line))
    main(["report", str(run), "--out", str(project.path / "later")])
    results = project.results("later")
    assert results["decisions"] == {"model": "GO", "other": "INCOMPLETE"}
