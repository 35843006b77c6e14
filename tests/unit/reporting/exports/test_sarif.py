from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.record import Measure, Record
from pytest_vlmrobust.reporting.exports.sarif import sarif
from pytest_vlmrobust.reporting.files import read_run

from .conftest import cell, drop, keep

SCHEMA = Path(__file__).parents[3] / "golden" / "sarif-2.1.0.json"


def exported(directory: Path) -> dict[str, Any]:
    """Returns the run of a log that the schema takes, as a program reads it."""
    jsonschema = pytest.importorskip("jsonschema")
    log = json.loads(json.dumps(sarif(read_run(directory)), allow_nan=False))
    jsonschema.Draft7Validator(json.loads(SCHEMA.read_text())).validate(log)
    (run,) = log["runs"]
    return dict(run)


def by_test(run: dict[str, Any]) -> dict[str, dict[str, Any]]:
    named = [result for result in run["results"] if result["ruleId"] != "decision"]
    return {result["locations"][0]["logicalLocations"][0]["fullyQualifiedName"]: result for result in named}


def test_the_schema_refuses_what_is_no_sarif(run_directory: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    log = sarif(read_run(run_directory))
    log["runs"][0]["results"][0]["level"] = "fatal"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft7Validator(json.loads(SCHEMA.read_text())).validate(log)


def test_a_result_has_the_level_of_its_verdict_and_the_line_of_its_rule(run_directory: Path) -> None:
    results = by_test(exported(run_directory))
    levels = {name[len("suites/t.py::test_cell[m-d-") : -1]: result["level"] for name, result in results.items()}
    assert levels == {"fog:mid": "error", "resolution:448": "error", "flip_v": "warning", "fog:high": "note"}
    broken = results["suites/t.py::test_cell[m-d-fog:mid]"]
    assert broken["ruleId"] == "drop"
    place = broken["locations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": "policies/p.yaml"}, "region": {"startLine": 4}}
    numbers = {name: value for name, value in broken["properties"].items() if isinstance(value, float)}
    assert numbers == pytest.approx({"vlm.value": 0.3, "vlm.low": 0.2, "vlm.high": 0.4})
    down = results["suites/t.py::test_cell[m-d-resolution:448]"]
    assert (down["ruleId"], down["message"]["text"]) == ("not-measured", "m-d-resolution:448: the endpoint is down")
    assert down["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "suites/t.py"


def test_a_waiver_is_a_suppression_with_its_owner(run_directory: Path) -> None:
    (suppression,) = by_test(exported(run_directory))["suites/t.py::test_cell[m-d-fog:high]"]["suppressions"]
    assert suppression["justification"] == "waiver W1, owner jo, until 2030-01-01: known"


def test_every_rule_of_a_result_is_described(run_directory: Path) -> None:
    run = exported(run_directory)
    rules = {rule["id"]: rule["shortDescription"]["text"] for rule in run["tool"]["driver"]["rules"]}
    assert {result["ruleId"] for result in run["results"]} <= rules.keys()
    assert rules["drop"] == "accuracy_drop is to keep the bound 0.2 (policies/p.yaml:4)"


def test_github_finds_every_text_that_it_requires(run_directory: Path) -> None:
    driver = exported(run_directory)["tool"]["driver"]
    assert {"name", "informationUri", "rules"} <= driver.keys()
    for rule in driver["rules"]:
        for part in ("shortDescription", "fullDescription", "help"):
            assert 0 < len(rule[part]["text"]) <= 1024, rule["id"]


@pytest.mark.process
@pytest.mark.skipif(not shutil.which("sarif-multitool"), reason="sarif-multitool of npm is not installed")
def test_the_validator_of_microsoft_finds_no_error(run_directory: Path, tmp_path: Path) -> None:
    log = tmp_path / "gate.sarif"
    log.write_text(json.dumps(sarif(read_run(run_directory))), encoding="utf-8")
    command = ["sarif-multitool", "validate", str(log), "--rule-kind", "'Sarif;Ghas'"]  # npm's start goes through a shell
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "Analysis completed successfully" in result.stdout
    assert ": error " not in result.stdout, result.stdout


def test_nothing_in_a_message_is_a_link_a_placeholder_or_obeyed(run_directory: Path) -> None:
    text = by_test(exported(run_directory))["suites/t.py::test_cell[m-d-fog:mid]"]["message"]["text"]
    assert "[x] (http://y) {{0}}" in text
    assert text.isprintable()
    assert "\\x1b[2J" in text


def test_an_incomplete_run_is_no_clean_one(tmp_path: Path) -> None:
    lost = ("suites/t.py::test_cell[m-d-fog:mid]",)
    run = exported(keep(tmp_path / "r", [cell("fog:low", Outcome.PASS, drop(Outcome.PASS, 0.0))], lost=lost))
    (invocation,) = run["invocations"]
    assert (invocation["executionSuccessful"], invocation["exitCode"]) == (False, 11)
    assert invocation["toolExecutionNotifications"][0]["message"]["text"].startswith(lost[0])
    (decision,) = run["results"]
    assert (decision["ruleId"], decision["level"]) == ("decision", "error")
    assert decision["message"]["text"].startswith("INCOMPLETE: 1 test left no verdict")
    assert decision["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "policies/p.yaml"


def test_a_run_that_measured_nothing_has_a_result(tmp_path: Path) -> None:
    (decision,) = exported(keep(tmp_path / "r", [], policies={}))["results"]
    assert decision["ruleId"] == "decision"


def test_go_has_no_result(tmp_path: Path) -> None:
    run = exported(keep(tmp_path / "r", [cell("fog:low", Outcome.PASS, drop(Outcome.PASS, 0.0))]))
    assert (run["results"], run["invocations"][0]["exitCode"]) == ([], 0)


def test_what_has_no_rule_of_a_policy_has_one_of_ours(tmp_path: Path) -> None:
    spent = cell("fog:low", Outcome.INCONCLUSIVE, reason="budget spent")
    unread = cell("flip_v", Outcome.FAIL, Measure("unparsed_rate", 0.5, outcome=Outcome.FAIL, reason="half is unread"))
    name = "suites/other.py::test_x"
    check = Record("check", name, "", "", outcome=Outcome.FAIL, reason="assert 0", nodeid=name)
    run = exported(keep(tmp_path / "r", [spent, unread, check]))
    results = by_test(run)
    assert results[spent.nodeid]["ruleId"] == "test"
    assert results[unread.nodeid]["ruleId"] == "budget"
    assert (results[name]["ruleId"], results[name]["level"]) == ("test", "error")


def test_the_same_finding_of_two_runs_has_one_fingerprint(run_directory: Path, tmp_path: Path) -> None:
    later = keep(tmp_path / "later", [cell("fog:mid", Outcome.FAIL, drop(Outcome.FAIL, 0.5))])
    name = "suites/t.py::test_cell[m-d-fog:mid]"
    first, second = (by_test(exported(each))[name] for each in (run_directory, later))
    assert first["partialFingerprints"] == second["partialFingerprints"]
    assert first["message"] != second["message"]
