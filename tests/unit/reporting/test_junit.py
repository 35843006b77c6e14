"""JUnit from records alone, as readers of it are strict about it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.record import CHECK, Measure, Record
from pytest_vlmrobust.reporting import Command, RunFacts, RunView
from pytest_vlmrobust.reporting.junit import LOST, correct, junit_xml, names_of, properties, runs_in, suite_properties, visible
from pytest_vlmrobust.store.repeatability import Repeatability
from pytest_vlmrobust.store.spending import Spending

from .conftest import open_record, record

ORIGINS = {
    "run": "r1",
    "version": "0.1.0",
    "models": {"n": {}, "m": {}},
    "settings": {"vlm_seed": 7},
    "policies": {"n": {"sha256": "bb"}, "m": {"sha256": "aa"}},
}

FACTS = RunFacts()


def named(name: str, outcome: Outcome = Outcome.PASS, **changes: object) -> Record:
    return dataclasses.replace(record(name, outcome), nodeid=f"suites/test_a.py::test_cell[{name}]", **changes)  # type: ignore[arg-type]


ALL = [
    named("pass"),
    named("measured", Outcome.MEASURED),
    named("fail", Outcome.FAIL),
    named("open", Outcome.INCONCLUSIVE),
    named("error", Outcome.ERROR, measures=(), reason="the model did not load"),
    named("budget", Outcome.ERROR),
    named("waived", Outcome.WAIVED, reason="known"),
    named("none", Outcome.NOT_APPLICABLE, reason="no gain"),
    Record(CHECK, "t", "", "", outcome=Outcome.ERROR, reason="a non-gate test failed: no", nodeid="tests/test_b.py::test_x"),
]


def parsed(records: Sequence[Record], facts: RunFacts = FACTS) -> ET.Element:
    return ET.fromstring(junit_xml(RunView(records, facts)))


def decisions(root: ET.Element) -> list[ET.Element]:
    return [node for node in root.iter("testcase") if node.get("name") == "decision"]


def case(root: ET.Element, name: str) -> ET.Element:
    (node,) = [node for node in root.iter("testcase") if f"[{name}]" in str(node.get("name"))]
    return node


def result(node: ET.Element) -> tuple[str, str | None] | None:
    return next(((part.tag, part.get("type")) for part in node if part.tag != "properties"), None)


def test_each_outcome_has_its_element() -> None:
    root = parsed(ALL)
    assert {
        name: result(case(root, name)) for name in ("pass", "measured", "fail", "open", "error", "budget", "waived", "none")
    } == {
        "pass": None,
        "measured": None,
        "fail": ("failure", None),
        "open": ("failure", None),
        "error": ("error", None),
        "budget": ("error", None),
        "waived": ("skipped", "pytest.xfail"),
        "none": ("skipped", "pytest.skip"),
    }
    counts = {name: root[0].get(name) for name in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": "10", "failures": "4", "errors": "2", "skipped": "2"}


def test_the_message_is_one_line_with_the_numbers() -> None:
    failed = case(parsed(ALL), "fail")[1]
    assert failed.get("message") == "pytest_vlmrobust.ThresholdExceeded: accuracy_drop 0.100"
    assert str(failed.text).splitlines()[0] == "accuracy_drop 0.100"
    assert len(str(failed.text).splitlines()) > 1


def test_a_test_beside_the_gate_has_no_numbers() -> None:
    (beside,) = [node for node in parsed(ALL).iter("testcase") if node.get("classname") == "tests.test_b"]
    assert [part.tag for part in beside] == ["failure"]


def test_tests_that_left_nothing_are_errors() -> None:
    root = parsed([], RunFacts(selected=1, models=["m"], tests={"suites/test_a.py::test_cell[x]": "m"}))
    assert (root[0].get("tests"), root[0].get("errors")) == ("2", "2")
    assert case(root, "x")[0].get("message") == LOST


def test_what_xml_forbids_is_spelled_out() -> None:
    hostile = 'a\x00\x1b[31m\x7f\ud800\ufffe<&"]]>'
    root = parsed([named("x", Outcome.FAIL, reason=hostile)], RunFacts(origins={"run": hostile}))
    message = r'a\x00\x1b[31m\x7f\ud800\ufffe<&"]]>'  # as in the exception that pytest shows
    assert case(root, "x")[1].get("message") == f"pytest_vlmrobust.ThresholdExceeded: {message}"
    assert str(case(root, "x")[1].text).splitlines()[0] == message
    assert root[0][0][0].get("value") == 'a#x00#x1B[31m#x7F#xD800#xFFFE<&"]]>'


def test_readable_text_stays() -> None:
    assert visible("größe\t\n\U0001f600") == "größe\t\n\U0001f600"


@pytest.mark.parametrize(
    ("nodeid", "names"),
    [
        ("suites/deep/test_a.py::test_cell[m-d-fog:mid]", ("suites.deep.test_a", "test_cell[m-d-fog:mid]")),
        ("test_a.py::TestX::test_y", ("test_a.TestX", "test_y")),
        ("test_a.py::test_y[a/b.py::c]", ("test_a", "test_y[a/b.py::c]")),
    ],
)
def test_names_are_those_of_pytest(nodeid: str, names: tuple[str, str]) -> None:
    assert names_of(nodeid) == names


def test_undefined_numbers_are_left_out() -> None:
    values = dict(properties(dataclasses.replace(record("x"), measures=(Measure("rci", math.nan, math.inf),))))
    assert not [name for name in values if name.startswith("vlm.metric")]


def test_numbers_are_plain_decimals() -> None:
    values = dict(properties(named("x", broken=("q1",), n_unparsed=1)))
    assert (values["vlm.metric.accuracy_drop"], values["vlm.metric.accuracy_drop.threshold"]) == ("0.1", "0.2")
    assert (values["vlm.n_broken"], values["vlm.n_fixed"], values["vlm.unparsed_rate"]) == ("1", "0", "0.01")


def test_the_suite_says_what_determined_the_run() -> None:
    values = suite_properties(
        RunView(ALL, RunFacts(shortfalls=("a", "b"), spending=(Spending("m", 470, failed=10),), origins=ORIGINS))
    )
    assert {name: value for name, value in values.items() if "token" not in name} == {
        "vlm.run": "r1",
        "vlm.version": "0.1.0",
        "vlm.model": "m n",
        "vlm.dataset": "d",
        "vlm.policy_sha256": "aa bb",
        "vlm.seed": "7",
        "vlm.verdict": "NO-GO",
        "vlm.shortfalls": "a; b",
        "vlm.n_cells": "8",
        "vlm.n_inferred": "480",
    }
    assert suite_properties(RunView([], RunFacts())) == {
        "vlm.verdict": "INCONCLUSIVE",
        "vlm.n_cells": "0",
        "vlm.n_inferred": "0",
    }


def test_the_suite_says_how_often_answers_flip() -> None:
    repeats = (
        Repeatability("m", "d", 2000, 3, rate=0.0015, low=0.000408, high=0.0038723),
        Repeatability("m", "e", failed=200),
        Repeatability("n", "d", problem="the model is lost"),
    )
    said = suite_properties(RunView([], RunFacts(repeatability=repeats)))
    assert {name: value for name, value in said.items() if ".aa." in name} == {
        "vlm.aa.m-d.repeated": "2000",
        "vlm.aa.m-d.flipped": "3",
        "vlm.aa.m-d.flip_rate": "0.0015",
        "vlm.aa.m-d.low": "0.000408",
        "vlm.aa.m-d.high": "0.003872",
        "vlm.aa.m-e.repeated": "0",  # none came back: there is no rate, and no flip was looked for
        "vlm.aa.n-d.problem": "the model is lost",
    }


def test_the_message_ends_with_the_command_that_runs_the_test_again() -> None:
    root = parsed(ALL, RunFacts(command=Command(("--vlm=m", "--vlm-store=a store"), ("suites",))))
    command = "pytest --vlm=m '--vlm-store=a store' 'suites/test_a.py::test_cell[{}]'"
    for name in ("fail", "open", "budget"):
        said = str(case(root, name)[1].text).splitlines()[-1]
        assert said.split(maxsplit=1) == ["again", command.format(name)]


def test_without_a_known_command_none_is_given() -> None:
    assert "again" not in junit_xml(RunView(ALL, FACTS))


SUITE_ATTRIBUTES = {"name", "tests", "failures", "errors", "skipped", "time", "timestamp", "hostname"}
CASE_PARTS = {"skipped", "error", "failure", "system-out", "system-err"}


def test_the_structure_is_that_of_xunit2_but_for_properties_of_tests() -> None:
    """As the Jenkins xunit plugin publishes it (junit-10.xsd); there, a test case has no properties."""
    root = parsed(ALL, RunFacts(origins=ORIGINS, selected=9, tests={"suites/test_a.py::test_cell[lost]": "m"}))
    assert (root.tag, [child.tag for child in root]) == ("testsuites", ["testsuite"])
    suite = root[0]
    assert {"name", "tests", "failures", "errors"} <= set(suite.attrib) <= SUITE_ATTRIBUTES
    assert [child.tag for child in suite] == ["properties", *["testcase"] * 11]
    seen = set()
    for node in suite.iter("testcase"):
        assert set(node.attrib) == {"classname", "name", "time"}
        assert float(str(node.get("time"))) >= 0.0
        parts = [part for part in node if part.tag != "properties"]
        assert {part.tag for part in parts} <= CASE_PARTS
        assert all(set(part.attrib) <= {"type", "message"} for part in parts)
        seen.add((node.get("classname"), node.get("name")))
    assert len(seen) == 11
    assert all(set(node.attrib) == {"name", "value"} for node in root.iter("property"))


def test_the_same_records_give_the_same_bytes() -> None:
    assert junit_xml(RunView(ALL, FACTS)) == junit_xml(RunView(ALL, FACTS))


def test_what_only_warns_is_said_beside_a_pass() -> None:
    warnings = "warning: accuracy (x\ny) 0.5 < 0.9 (rule a, p.yaml:3); warning: rci is undefined (rule b, p.yaml:4)"
    measure = Measure("accuracy_drop", 0.1, outcome=Outcome.PASS, reason=f"kept (rule d, p.yaml:2); {warnings}")
    node = case(parsed([named("warned", measures=(measure,)), named("quiet")]), "warned")
    said = ["accuracy (x y) 0.5 < 0.9 (rule a, p.yaml:3)", "rci is undefined (rule b, p.yaml:4)"]
    assert {entry.get("name"): entry.get("value") for entry in node.iter("property")}["vlm.warning"] == "; ".join(said)
    assert [part.tag for part in node] == ["properties", "system-out"]
    assert node[1].text == "\n".join(f"warning: {sentence}" for sentence in said)
    assert "vlm.warning" not in dict(properties(named("quiet")))


def test_what_is_not_shown_is_said_of_the_test_and_of_the_suite() -> None:
    records = [open_record("open", "gap", 0.4), open_record("idle", "groups", math.nan, Outcome.NOT_APPLICABLE)]
    suite = suite_properties(RunView(records, RunFacts()))
    assert (suite["vlm.not_shown.1"], suite["vlm.not_shown.2"]) == ("not shown: open: why gap", "did not apply: idle: why groups")
    node = parsed(records)[0][1]
    assert {entry.get("name"): entry.get("value") for entry in node.iter("property")}["vlm.not_shown"] == "why gap"
    assert node.findtext("system-out") == "not shown: why gap"


def test_the_suite_says_what_later_files_replace() -> None:
    origins = {**ORIGINS, "policies": {"m": {"sha256": "aa", "replaced": ["budget x is\nreplaced", "rule y is replaced"]}}}
    values = suite_properties(RunView(ALL, RunFacts(origins=origins)))
    assert {name: value for name, value in values.items() if "replaces" in name} == {
        "vlm.policy.replaces.1": "policy of m: budget x is replaced",
        "vlm.policy.replaces.2": "policy of m: rule y is replaced",
    }


def test_a_strict_reader_gets_test_cases_without_properties() -> None:
    root = parsed([record("a", Outcome.FAIL)], RunFacts(origins={"run": "1", "settings": {"vlm_junit_plain": True}}))
    assert root.find(".//testcase/properties") is None
    assert root.find(".//testcase/failure") is not None
    assert root.find("testsuite/properties/property") is not None


def test_the_suite_names_commit_and_job() -> None:
    origins = {"commit": "0123abcd", "ci": {"CI_PIPELINE_ID": "7", "CI_JOB_ID": "8"}}
    values = suite_properties(RunView([record("a")], RunFacts(origins=origins)))
    assert (values["vlm.commit"], values["vlm.ci"]) == ("0123abcd", "CI_PIPELINE_ID=7 CI_JOB_ID=8")
    assert not {"vlm.commit", "vlm.ci"} & set(suite_properties(RunView([record("a")], RunFacts())))


def test_what_a_written_file_says_of_the_run_is_corrected_in_place(tmp_path: Path) -> None:
    file = tmp_path / "junit.xml"
    cases = [named("a"), named("b", Outcome.WAIVED, reason="a \x1b <b> & ü")]
    facts = RunFacts(models=["m"], origins={"run": "r1"})
    mine = '<property name="mine" value="kept" />'
    file.write_text(junit_xml(RunView(cases, facts)).replace("</properties>", f"{mine}</properties>", 1), encoding="utf-8")
    assert runs_in(file) == {"r1"}
    stopped = dataclasses.replace(facts, stopped="gone: \x1b")
    correct(file, RunView(cases, stopped))
    suite, expected = ET.parse(file).getroot()[0], parsed(cases, stopped)[0]
    assert suite.attrib == expected.attrib
    said, wanted = ({node.get("name"): node.get("value") for node in root[0]} for root in (suite, expected))
    assert said == {**wanted, "mine": "kept"}
    assert [ET.tostring(node) for node in suite[1:]] == [ET.tostring(node) for node in expected[1:]]


def test_a_file_without_properties_names_no_run(tmp_path: Path) -> None:
    file = tmp_path / "junit.xml"
    file.write_text("<testsuites><testsuite><testcase/></testsuite></testsuites>")
    assert runs_in(file) == set()
    correct(file, RunView([], RunFacts(models=["m"], stopped="killed")))
    suite = ET.parse(file).getroot()[0]
    assert [node.tag for node in suite] == ["properties", "testcase", "testcase"]
    assert (suite.get("tests"), suite.get("errors")) == ("2", "1")
    file.write_text("")
    with pytest.raises(ValueError, match="no XML: no element found"):
        runs_in(file)


@pytest.mark.cases(
    ("facts", "records", "kind", "said"),
    [
        (RunFacts(), [named("a")], "system-out", "GO: 1 verdict passed, none failed"),
        (RunFacts(), [named("a"), named("b", Outcome.WAIVED)], "system-out", "GO WITH WAIVERS: 1 verdict passed, 1 waived"),
        (RunFacts(), [named("a", Outcome.FAIL)], "failure", "NO-GO: 1 verdict broke a bound"),
        (RunFacts(), [named("a", Outcome.ERROR)], "error", "INCOMPLETE: 1 test ended in an error: this says nothing about"),
        (RunFacts(stopped="killed"), [named("a")], "error", "INCOMPLETE: killed: this says nothing about the model"),
        (RunFacts(), [named("a", Outcome.INCONCLUSIVE)], "skipped", "INCONCLUSIVE: no failures, but 1 test is undecided"),
        (RunFacts(models=["m"]), [], "skipped", "INCONCLUSIVE: no failures, but no rule"),
    ],
)
def test_the_decision_is_a_test_case(facts: RunFacts, records: list[Record], kind: str, said: str) -> None:
    (node,) = decisions(parsed(records, facts))
    assert (node.get("classname"), node.get("name")) == ("vlmrobust.m", "decision")
    assert [part.tag for part in node] == ["properties", kind]
    assert str(node[1].text).startswith(said)
    assert str(node[1].get("message", said)).startswith(said)
    assert {prop.get("name"): prop.get("value") for prop in node[0]} == {"vlm.model": "m", "vlm.verdict": facts.decision(records)}


@pytest.mark.parametrize(
    ("outcome", "kind"), [(Outcome.INCONCLUSIVE, "failure"), (Outcome.ERROR, "error"), (Outcome.PASS, "system-out")]
)
def test_a_strict_run_has_a_failure_where_it_is_inconclusive(outcome: Outcome, kind: str) -> None:
    facts = RunFacts(models=["m"], origins={"settings": {"vlm_junit_strict": True}})
    (node,) = decisions(parsed([named("a", outcome)], facts))
    assert [part.tag for part in node] == ["properties", kind]


def test_what_limits_the_run_stands_behind_its_decision() -> None:
    facts = RunFacts(planned=9, selected=1, models=["m"])
    (node,) = decisions(parsed([named("a")], facts))
    said = str(node.findtext("system-out")).splitlines()
    assert said == ["GO: 1 verdict passed, none failed", "only 1 of 9 tests ran: the decision is about these alone"]


def test_each_model_has_its_decision_and_says_where_the_run_has_another() -> None:
    records = [named("a", model="m"), named("b", Outcome.FAIL, model="n"), named("c", Outcome.ERROR, model="o")]
    facts = RunFacts(selected=4, models=["m", "n", "o"], tests={"suites/test_a.py::test_cell[lost]": "m"})
    first, second, third = decisions(parsed(records, facts))
    whole = "; the run as a whole is NO-GO: 1 verdict broke a bound"
    assert (first.get("classname"), first[1].get("message")) == (
        "vlmrobust.m",
        f"INCOMPLETE: 1 test left no verdict: this says nothing about the model{whole}",
    )
    assert (second[1].tag, second[1].get("message")) == ("failure", "NO-GO: 1 verdict broke a bound")
    assert (third[1].tag, third[1].get("message")) == (
        "error",
        f"INCOMPLETE: 1 test ended in an error: this says nothing about the model{whole}",
    )
