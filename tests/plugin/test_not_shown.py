"""A rule that cannot decide does not look like one that held, in any report."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from pytest_vlmrobust.evaluation.after.verification import verify
from pytest_vlmrobust.store import last_records

from .conftest import Project, ends

RULES = """
version: 1
rules:
  - {id: kept, metric: accuracy_drop, max: 99pp, judge: point}
  - {id: worst, metric: worst_case_drop, max: 99pp, judge: point}
  - {id: small-drop, metric: accuracy_drop, where: {setting: invert}, max: 15pp, on_inconclusive: warn}
  - {id: said, metric: accuracy_drop, where: {setting: flip_v}, max: 15pp, tier: warn}
  - {id: no-regression, metric: baseline_drop, where: {setting: invert}, max: 4pp, on_not_applicable: warn}
budgets: {max_unparsed_rate: 0, max_refusal_rate: 0}
"""
REPORTS = ("summary.md", "model_card.md", "report.html", "junit.xml")


def test_what_a_go_does_not_show_stands_in_every_report(project: Project) -> None:
    project.script({"setting": "invert", "sample": "q0", "answer": "A"})
    project.write("policy.yaml", RULES)
    result = ends(project.run("--vlm-report=report", "--junitxml=junit.xml"), 0)
    result.stdout.re_match_lines(
        [
            r"undecided small-drop: accuracy_drop \d+\.\d pp \[.*\], bound <= 15 pp, allowed$",
            r"GO  .* none failed; .*1 warning.*; 1 rule is not shown to hold$",
        ]
    )
    reason = re.compile(
        r"model-data-invert: accuracy_drop \d+\.\d pp \[-?\d+\.\d, \d+\.\d\], too few questions to tell if (<=|&lt;=) 15 pp "
        r"\(rule small-drop, policy\.yaml:6\); about .* questions would decide it if this value is the true one"
    )
    for name in REPORTS:
        assert reason.search((project.path / "report" / name).read_text(encoding="utf-8").replace("&#95;", "_")), name
    results = project.results("report")
    (about,) = results["not_shown"]
    (measured,) = [
        measure
        for record in results["records"]
        for measure in record["measures"]
        if measure["not_shown"] and record["key"] == about["key"]
    ]
    assert (about["rule"], about["metric"], about["outcome"], about["bound"]) == (
        "small-drop",
        "accuracy_drop",
        "INCONCLUSIVE",
        "<= 15 pp",
    )
    assert about["value"] == measured["value"]
    assert about["low"] <= about["value"] <= about["high"]
    assert about["high"] > 0.15
    assert about["samples_needed"] > 8
    for file in ("junit.xml", "report/junit.xml"):
        suite = ElementTree.parse(project.path / file).getroot()[0]
        properties = {str(entry.get("name")): str(entry.get("value")) for entry in suite.findall("properties/property")}
        assert properties["vlm.not_shown.1"].startswith("not shown: model-data-invert: accuracy_drop ")
        assert "vlm.not_shown.2" not in properties
        (case,) = [node for node in suite.iter("testcase") if "invert" in str(node.get("name"))]
        said = {str(entry.get("name")): str(entry.get("value")) for entry in case.iter("property")}
        assert said["vlm.not_shown"].endswith("would decide it if this value is the true one")
        assert "vlm.warning" not in said
    run = project.the_run
    assert not verify(run, last_records(run)).differences
