"""A gate refuses a policy in which no rule can fail, and warns of waivers that let everything pass."""

from __future__ import annotations

import pytest

from pytest_vlmrobust.cli import main

from .conftest import Project, ends

BAD = {"setting": "invert", "answer": "A"}
VACUOUS = {
    "interval": "{id: drop, metric: accuracy_drop, max: 100pp}, {id: gain, metric: visual_gain, min: -100pp}",
    "point": "{id: drop, metric: accuracy_drop, judge: point, max: 1.0e+0}, {id: clean, metric: clean_accuracy, min: 0%}",
    "one of two": "{id: drop, metric: accuracy_drop, max: 100pp}, {id: clean, metric: accuracy, min: 50%}",
}


@pytest.mark.parametrize("rules", VACUOUS.values(), ids=VACUOUS)
def test_a_gate_refuses_a_rule_that_cannot_fail_as_check_does(
    any_project: Project, rules: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    project = any_project
    project.script(BAD)
    project.write("policy.yaml", f"version: 1\nrules: [{rules}]\n")
    result = ends(project.run(), 4)
    said = "ERROR: policy.yaml:2: rule drop (accuracy_drop <= 1*) can never fail: no value of accuracy_drop lies beyond. *"
    (result.stdout if project.arguments else result.stderr).fnmatch_lines([said])
    assert "GO" not in result.stdout.str()
    monkeypatch.chdir(project.path)
    capsys.readouterr()
    assert main(["check", "policy.yaml"]) == 4
    assert "rule drop (accuracy_drop <= 1" in capsys.readouterr().err


def test_a_gate_warns_of_waivers_for_ever_and_of_caps_and_budgets_that_admit_everything(project: Project) -> None:
    project.script(BAD)
    waived = "metric: accuracy_drop, where: {setting: invert}, cap: 100pp"
    worst = "metric: worst_case_drop, where: {model: '*'}, cap: 90pp"
    project.write(
        "policy.yaml",
        f"""
version: 1
defaults: {{judge: point}}
budgets: {{max_error_rate: 100%}}
rules:
  - {{id: drop, metric: accuracy_drop, max: 20pp}}
  - {{id: worst, metric: worst_case_drop, max: 20pp}}
waivers:
  - {{id: W1, owner: jo, reason: known, expires: 9999-12-31, {waived}}}
  - {{id: W2, owner: jo, reason: known, expires: 2999-12-31, {worst}}}
""",
    )
    result = project.run("--vlm-report=out")
    for said in (
        "W1 of jo expires on 9999-12-31, in * years, which is as good as never",
        "W1 of jo covers every breach: accuracy_drop is never worse than its cap of 100 pp",
        "W2 of jo expires on 2999-12-31, in * years, which is as good as never",
        "budget max_error_rate of 100 % can never be broken: no rate is above it",
    ):
        result.stdout.fnmatch_lines([f"vlm: warning: policy.yaml:*{said}*"])
    assert "covers every breach" in (project.path / "out" / "summary.md").read_text()
