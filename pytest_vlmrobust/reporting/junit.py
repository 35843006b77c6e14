"""JUnit from records: as pytest writes it for gated tests, also for a run that was killed before pytest wrote it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from pytest_vlmrobust.core.decision import NOT_SHOWN, WARNING, Decision, Outcome
from pytest_vlmrobust.core.record import CHECK, Record
from pytest_vlmrobust.core.words import on_one_line
from pytest_vlmrobust.store.repeatability import Repeatability
from pytest_vlmrobust.store.spending import budget_lines

from .explanation import ViewedTest, warnings_of
from .facts import ci_variables, policy_replacements, purposes
from .view import RunView
from .writing import write_text

FILE_NAME = "junit.xml"
LOST = "the run ended before this test left a verdict"

_FORBIDDEN = re.compile("[^\t\n\r\u0020-\u007e\u0080-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters not allowed in XML 1.0, and the delete character, which pytest also escapes."""
_RAISED = {Outcome.FAIL: "pytest_vlmrobust.ThresholdExceeded", Outcome.INCONCLUSIVE: "pytest_vlmrobust.NotDecided"}
_OF_SUITE = ".//testsuite/properties/property"
_KINDS = {"error": "errors", "failure": "failures", "skipped": "skipped"}
_KIND_OF = {Decision.NO_GO: "failure", Decision.INCOMPLETE: "error", Decision.INCONCLUSIVE: "skipped"}
_DECISION, _OF_MODEL = "decision", "vlmrobust."
"""The name of the test case about the decision, and how its class begins, with the model behind."""
_PLAIN = "vlm_junit_plain"


def properties(record: Record) -> list[tuple[str, str]]:
    """Returns the properties of a test case; undefined numbers are left out, never written as NaN.

    Names are valid in XML, because pytest only escapes values.
    """
    values = {
        "vlm.cell": record.id,
        "vlm.model": record.model,
        "vlm.dataset": record.dataset,
        "vlm.setting": record.setting,
        "vlm.family": record.family,
        "vlm.level": record.level,
        "vlm.task": record.task,
        "vlm.split": record.split,
        "vlm.verdict": str(record.outcome),
        "vlm.n": str(record.n),
        "vlm.n_requested": str(record.n_requested),
        "vlm.policy_sha256": record.policy_sha256,
    }
    if record.n_samples:
        values["vlm.n_samples"] = str(record.n_samples)
    if record.n_requested:
        values["vlm.unparsed_rate"] = decimal(record.n_unparsed / record.n_requested)
        values["vlm.refusal_rate"] = decimal(record.n_refused / record.n_requested)
        values["vlm.error_rate"] = decimal(record.n_errors / record.n_requested)
    if record.broken or record.fixed:
        values["vlm.n_broken"], values["vlm.n_fixed"] = str(len(record.broken)), str(len(record.fixed))
    for measure in record.measures:
        name = f"vlm.metric.{measure.metric}" + (f".{measure.category}" if measure.category else "")
        numbers = {name: measure.value, f"{name}.low": measure.low, f"{name}.high": measure.high}
        values.update({key: decimal(value) for key, value in numbers.items() if math.isfinite(value)})
        if measure.threshold:
            values[f"{name}.threshold"] = measure.threshold
        if measure.waiver:
            values["vlm.waiver"] = measure.waiver
    values["vlm.warning"] = "; ".join(_warnings(record))
    values["vlm.not_shown"] = "; ".join(_not_shown(record))
    values["vlm.note"] = "; ".join(map(on_one_line, record.notes))
    return [(visible(name), value) for name, value in values.items() if value]


def suite_properties(view: RunView) -> dict[str, str]:
    """Returns the properties of the suite element, with names valid in XML."""
    records, facts = view.records, view.facts
    origins: Mapping[str, Any] = facts.origins
    policies = origins.get("policies", {})
    values = {
        "vlm.run": str(origins.get("run", "")),
        "vlm.version": str(origins.get("version", "")),
        "vlm.model": " ".join(sorted(origins.get("models", {}))),
        "vlm.dataset": " ".join(sorted({record.dataset for record in records} - {""})),
        "vlm.policy_sha256": " ".join(str(policies[name].get("sha256", "")) for name in sorted(policies)),
        "vlm.commit": str(origins.get("commit", "")),
        "vlm.ci": " ".join(f"{name}={value}" for name, value in ci_variables(origins).items()),
        "vlm.seed": str(origins.get("settings", {}).get("vlm_seed", "")),
        "vlm.verdict": str(view.decision),
        **{f"vlm.verdict.{name}": str(part.decision) for name, part in view.several.items()},
        "vlm.purpose": ", ".join(purposes(origins)),
        "vlm.stopped": facts.stopped,
        "vlm.shortfalls": "; ".join(facts.all_shortfalls(records)),
        "vlm.n_cells": str(sum(record.test == "cell" for record in records)),
        "vlm.n_inferred": str(sum(spent.inferences for spent in facts.spending)),
    }
    values |= {
        f"vlm.policy.replaces.{number}": on_one_line(sentence) for number, sentence in enumerate(policy_replacements(origins), 1)
    }
    open_rules = [*(f"{NOT_SHOWN}{line}" for line in view.open_rule_lines(undecided=True))]
    open_rules += [f"did not apply: {line}" for line in view.open_rule_lines(undecided=False)]
    values |= {f"vlm.not_shown.{number}": on_one_line(sentence) for number, sentence in enumerate(open_rules, 1)}
    values |= {f"vlm.allowance.{number}": on_one_line(str(allowance)) for number, allowance in enumerate(facts.allowances, 1)}
    values["vlm.budget"] = "; ".join(budget_lines(records))
    for spent in facts.spending:
        tokens = {"prompt_tokens": spent.prompt_tokens, "completion_tokens": spent.completion_tokens}
        values |= {f"vlm.{name}.{spent.model}": str(count) for name, count in tokens.items()}
        if not math.isnan(spent.cost):
            values[f"vlm.cost.{spent.model}"] = f"{decimal(spent.cost)} {spent.currency}"
    values |= {f"vlm.gate.{gate.name}": str(gate) for gate in facts.gates}
    for repeat in facts.repeatability:
        values |= _repeat_properties(repeat)
    return {visible(name): value for name, value in values.items() if value}


def runs_in(path: Path) -> set[str]:
    """Returns the runs named in a JUnit file; empty if its suite properties were removed. No XML is a ValueError."""
    return {str(element.get("value")) for element in _parse(path).iterfind(_OF_SUITE) if element.get("name") == "vlm.run"}


def decision_cases(view: RunView) -> list[ET.Element]:
    """Returns a test case with the decision about each model and each judged family of models.

    Many readers only show test cases; without it, a run that is not GO looks as if all had passed.
    """
    cases = []
    kinds = {**_KIND_OF, **({Decision.INCONCLUSIVE: "failure"} if _is_set(view.facts.origins, "vlm_junit_strict") else {})}
    for name, part in view.by_model.items():
        sentence = f"{part.word}: {part.sentence}"
        if part.decision is not view.decision:
            sentence += f"; the run as a whole is {view.word}: {view.sentence}"
        node = _named_case(f"{_OF_MODEL}{name}", _DECISION, 0.0)
        if not _is_set(view.facts.origins, _PLAIN):
            _add_properties(node, {"vlm.model": name, "vlm.verdict": str(part.decision)}.items())
        text = "\n".join([sentence, *view.grave])
        if kind := kinds.get(part.decision):
            _add_result(node, kind, on_one_line(sentence, None), text, **({"type": "pytest.skip"} if kind == "skipped" else {}))
        else:
            ET.SubElement(node, "system-out").text = visible(text)
        cases.append(node)
    return cases


def correct(path: Path, view: RunView) -> None:
    """Writes another decision into a JUnit file that pytest wrote: in the properties of the whole run and in its test cases.

    No XML is a ValueError.
    """
    tree = _parse(path)
    for node in tree.iterfind(".//testsuite"):
        others = [(str(element.get("name")), str(element.get("value"))) for element in node.iterfind("properties/property")]
        for old in node.findall("properties"):
            node.remove(old)
        _add_properties(node, {**dict(others), **suite_properties(view)}.items())
        node.insert(0, node[-1])
        del node[-1]
        for old in node.findall(f"testcase[@name='{_DECISION}']"):
            if str(old.get("classname")).startswith(_OF_MODEL):
                node.remove(old)
        node.extend(decision_cases(view))
        _count(node)
    write_text(path, '<?xml version="1.0" encoding="utf-8"?>' + ET.tostring(tree.getroot(), encoding="unicode"))


def _count(suite: ET.Element) -> None:
    """Writes how many test cases a suite has, and how many have each kind of result."""
    cases = suite.findall("testcase")
    suite.attrib |= {name: str(sum(case.find(kind) is not None for case in cases)) for kind, name in _KINDS.items()}
    suite.set("tests", str(len(cases)))


def _parse(path: Path) -> ET.ElementTree[ET.Element]:
    try:
        return ET.parse(path)  # noqa: S314 - it was just written by this process
    except ET.ParseError as error:
        raise ValueError(f"no XML: {error}") from error


def _is_set(origins: Mapping[str, Any], option: str) -> bool:
    """Whether a run had an option about JUnit files."""
    settings = origins.get("settings")
    return isinstance(settings, Mapping) and bool(settings.get(option))


def _warnings(record: Record) -> list[str]:
    return [on_one_line(warning) for warning in warnings_of(record)]


def _not_shown(record: Record) -> list[str]:
    return [on_one_line(rule.reason) for measure in record.measures for rule in measure.not_shown]


def _repeat_properties(repeat: Repeatability) -> dict[str, str]:
    """Returns the properties of a dataset's repeated answers."""
    name = f"vlm.aa.{repeat.model}-{repeat.dataset}"
    if repeat.problem:
        return {f"{name}.problem": repeat.problem}
    if not repeat.measured:
        return {f"{name}.repeated": "0"}
    counts = {f"{name}.repeated": str(repeat.repeated), f"{name}.flipped": str(repeat.flipped)}
    numbers = {f"{name}.flip_rate": repeat.rate, f"{name}.low": repeat.low, f"{name}.high": repeat.high}
    return {**counts, **{key: decimal(value) for key, value in numbers.items()}}


def junit_xml(view: RunView) -> str:
    """Returns a JUnit file; equal records give equal text, without time and host.

    Selected tests without a record are errors.
    """
    plain, records = _is_set(view.facts.origins, _PLAIN), view.records
    tests = {test.record.key: test for test in view.tests}
    beside = {record.nodeid or record.id: record for record in records if record.test == CHECK}
    cases = [_case(tests[record.key], beside.pop(record.nodeid, None), plain=plain) for record in records if record.test != CHECK]
    cases += [_beside_case(nodeid, record) for nodeid, record in beside.items()]
    cases += [*map(_lost_case, view.facts.lost(records)), *decision_cases(view)]
    seconds = sum(record.seconds for record in records)
    node = ET.Element("testsuite", {"name": "pytest"})
    _add_properties(node, suite_properties(view).items())
    node.extend(cases)
    _count(node)
    node.set("time", f"{seconds:.3f}")
    root = ET.Element("testsuites", {"name": "pytest tests"})
    root.append(node)
    return '<?xml version="1.0" encoding="utf-8"?>' + ET.tostring(root, encoding="unicode") + "\n"


def decimal(value: float) -> str:
    """Returns a plain decimal without exponent, six digits after the point at most.

    >>> decimal(0.1234567), decimal(3.0), decimal(0.00001)
    ('0.123457', '3', '0.00001')
    """
    return f"{value:.6f}".rstrip("0").rstrip(".")


def visible(text: str) -> str:
    r"""Returns text in which characters that XML cannot hold are spelled out, as pytest does.

    >>> visible("a\x1bb")
    'a#x1Bb'
    """
    return _FORBIDDEN.sub(lambda match: f"#x{ord(match.group()):0{2 if ord(match.group()) <= 0xFF else 4}X}", text)


def names_of(nodeid: str) -> tuple[str, str]:
    """Returns the classname and the name of a test case.

    >>> names_of("suites/test_corruptions.py::test_cell[tiny-shapes-fog:mid]")
    ('suites.test_corruptions', 'test_cell[tiny-shapes-fog:mid]')
    """
    path, bracket, parameters = nodeid.partition("[")
    file, *names = path.split("::")
    module = file.removesuffix(".py").replace("/", ".")
    *classes, name = names or [module]
    return ".".join([module, *classes]), name + bracket + parameters


def _case(test: ViewedTest, beside: Record | None, *, plain: bool) -> ET.Element:
    """Returns the case of a gated test, with failures other than its verdict."""
    record = test.record
    node = _named_case(*names_of(record.key), record.seconds)
    if not plain:
        _add_properties(node, properties(record))
    if beside is not None:
        _add_result(node, "failure", beside.reason, beside.reason)
    if record.outcome in _RAISED:
        message = test.failure_message
        _add_result(node, "failure", f"{_RAISED[record.outcome]}: {_headline(message)}", message)
    elif record.outcome is Outcome.ERROR:
        message = test.failure_message if record.measures else record.reason
        _add_result(node, "error", f'failed on setup with "{_headline(message)}"', message)
    elif record.outcome is Outcome.WAIVED:
        _add_result(node, "skipped", record.reason, type="pytest.xfail")
    elif record.outcome is Outcome.NOT_APPLICABLE:
        _add_result(node, "skipped", record.reason, record.reason, type="pytest.skip")
    lines = [*(f"{WARNING}{text}" for text in _warnings(record)), *(f"{NOT_SHOWN}{text}" for text in _not_shown(record))]
    if lines:
        ET.SubElement(node, "system-out").text = visible("\n".join(lines))  # many readers show no properties
    return node


def _headline(message: str) -> str:
    return message.partition("\n")[0]


def _beside_case(nodeid: str, record: Record) -> ET.Element:
    node = _named_case(*names_of(nodeid), record.seconds)
    _add_result(node, "failure", record.reason, record.reason)
    return node


def _lost_case(nodeid: str) -> ET.Element:
    node = _named_case(*names_of(nodeid), 0.0)
    _add_result(node, "error", LOST, LOST)
    return node


def _named_case(classname: str, name: str, seconds: float) -> ET.Element:
    return ET.Element("testcase", {"classname": visible(classname), "name": visible(name), "time": f"{seconds:.3f}"})


def _add_properties(node: ET.Element, values: Iterable[tuple[str, str]]) -> None:
    parent = ET.SubElement(node, "properties")
    for name, value in values:
        ET.SubElement(parent, "property", {"name": visible(name), "value": visible(value)})


def _add_result(node: ET.Element, kind: str, message: str, text: str = "", **attributes: str) -> None:
    ET.SubElement(node, kind, {**attributes, "message": visible(message)}).text = visible(text) or None
