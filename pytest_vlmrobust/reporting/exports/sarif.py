"""SARIF 2.1.0: broken and undecided tests of a run as results that code scanning shows at the lines of thresholds files.

For readers that only show results, every run that is not GO has at least the result ``decision``.
Passed tests have no result, because such readers count each result as a finding.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pytest_vlmrobust.core.decision import EXIT_CODES, NOT_SHOWN, WARNING, Decision, Outcome
from pytest_vlmrobust.core.record import Measure
from pytest_vlmrobust.core.words import number, on_one_line

from ..explanation import ViewedTest
from ..files import RunFiles
from ..junit import LOST

FILE_NAME = "results.sarif"
_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_DECISION, _UNMEASURED, _BUDGET, _TEST = "decision", "not-measured", "budget", "test"
_OURS = {
    _DECISION: (
        "The decision about the whole run is not GO.",
        "Read the message, then the other results and the report of the run.",
    ),
    _UNMEASURED: (
        "A test ended in an error: this says nothing about the model.",
        "Repair what the message names, and run it again.",
    ),
    _BUDGET: (
        "Too many inferences failed, or too many answers could not be read.",
        "Look at these answers with vlmrobust view, then change the prompt, the server or the budget.",
    ),
    _TEST: (
        "A test found something broken or undecided that no rule stands for.",
        "Read the message and the test that it names.",
    ),
}
"""SARIF rules that are not in a thresholds file, each with what to do."""
_WAYS = "Improve the model, ask more questions where it is undecided, or add a waiver with an owner and a last day."
_LEVELS = {
    Outcome.FAIL: "error",
    Outcome.ERROR: "error",
    Outcome.INCONCLUSIVE: "warning",
    Outcome.NOT_APPLICABLE: "note",
    Outcome.WAIVED: "note",
}
_LEVEL_OF_DECISION = {Decision.NO_GO: "error", Decision.INCOMPLETE: "error", Decision.INCONCLUSIVE: "warning"}


def sarif(run: RunFiles) -> dict[str, Any]:
    """Returns a run as a SARIF log: a result for each rule that a test broke or left undecided, worst test first."""
    results = [*_decision(run), *(result for test in run.tests for result in _results(test, run))]
    lost = [{"level": "error", "message": _message(f"{nodeid}: {LOST}")} for nodeid in run.facts.lost(run.records)]
    invocation = {
        "executionSuccessful": run.decision is not Decision.INCOMPLETE,
        "exitCode": EXIT_CODES[run.decision],
        "exitCodeDescription": run.word,
        **({"toolExecutionNotifications": lost} if lost else {}),
    }
    commit = str(run.manifest.get("commit", ""))
    properties = {
        "vlm.decision": str(run.decision),
        "vlm.date": str(run.manifest.get("date", "")),
        "vlm.models": sorted(map(on_one_line, run.facts.models)),
        "vlm.tests": sum(record.is_gated for record in run.records),
        "vlm.tests_selected": run.facts.selected,
        **({"vlm.commit": on_one_line(commit)} if commit else {}),
    }
    return {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": {**_driver(run), "rules": list(_rules(run, {result["ruleId"] for result in results}))}},
                "automationDetails": {"id": f"vlmrobust/{on_one_line(str(run.manifest.get('run', '')))}"},
                "invocations": [invocation],
                "results": results,
                "properties": properties,
            }
        ],
    }


def _driver(run: RunFiles) -> dict[str, str]:
    version = on_one_line(str(run.manifest.get("version", "")))
    package = f"pkg:generic/pytest-vlmrobust{quote(f'@{version}', safe='@') if version else ''}"  # a URI, without an address
    return {"name": "pytest-vlmrobust", "informationUri": package, **({"version": version} if version else {})}


def _rules(run: RunFiles, used: set[str]) -> Iterator[dict[str, Any]]:
    """Yields the SARIF rules: those of the policies, and our own rules with a result."""
    seen = set()
    for policy in _policies(run.manifest):
        for rule in policy.get("rules", ()):
            if rule["id"] not in seen:
                seen.add(rule["id"])
                claim = f"{rule['metric']} is to keep the bound {rule['bound']} ({rule['source']})"
                do = f"vlmrobust explain {rule['metric']} says what it measures. {_WAYS}"
                yield _described(on_one_line(rule["id"]), claim, rule.get("reason") or claim, do)
    for name, (text, do) in _OURS.items():
        if name in used and name not in seen:
            yield _described(name, text, text, do)


def _described(name: str, short: str, full: str, do: str) -> dict[str, Any]:
    return {
        "id": name,
        "shortDescription": _message(short),
        "fullDescription": _message(full),
        "help": _message(f"{full.removesuffix('.')}. {do}"),
    }


def _decision(run: RunFiles) -> Iterator[dict[str, Any]]:
    """Yields the result for the whole run, unless it is GO."""
    if run.decision is Decision.GO:
        return
    text = "; ".join([f"{run.decision}: {run.sentence}", *run.grave])
    files = [file["name"] for policy in _policies(run.manifest) for file in policy.get("files", ())]
    tests = [record.nodeid.partition("::")[0] for record in run.records if record.nodeid]
    place = next(iter([*files, *tests, *(nodeid.partition("::")[0] for nodeid in run.facts.tests)]), "")
    yield {
        "ruleId": _DECISION,
        "level": _LEVEL_OF_DECISION[run.decision],
        "message": _message(text),
        **_location(f"{place}:1" if place else "", ""),
        "partialFingerprints": {"vlmTest/v1": _fingerprint(_DECISION)},
    }


def _results(test: ViewedTest, run: RunFiles) -> Iterator[dict[str, Any]]:
    """Yields a result for each broken or undecided measure, and one for a failed test without such a measure."""
    record = test.record
    loud = [measure for measure in record.measures if measure.outcome in _LEVELS]
    for measure in loud:
        rule = measure.rule or (_UNMEASURED if measure.outcome is Outcome.ERROR else _BUDGET)
        yield _result(test, rule, f"{record.id}: {_sentence(measure)}", run, measure)
    if record.deciding in _LEVELS and not any(measure.outcome is record.outcome for measure in loud):
        rule = _UNMEASURED if record.outcome is Outcome.ERROR else _TEST
        yield _result(test, rule, f"{record.id}: {record.reason or record.outcome}", run)
    for measure in record.measures:
        if measure.outcome is Outcome.MEASURED and measure.rule and measure.reason.startswith((WARNING, NOT_SHOWN)):
            yield _result(test, measure.rule, f"{record.id}: {_sentence(measure)}", run, measure)


def _sentence(measure: Measure) -> str:
    return measure.reason or f"{measure.called} {number(measure.value)} is {measure.outcome}"


def _result(test: ViewedTest, rule: str, text: str, run: RunFiles, measure: Measure | None = None) -> dict[str, Any]:
    record = test.record
    outcome = record.outcome if measure is None else measure.outcome
    properties: dict[str, Any] = {
        "vlm.verdict": str(outcome),
        "vlm.model": on_one_line(record.model),
        "vlm.dataset": on_one_line(record.dataset),
        "vlm.setting": on_one_line(record.setting),
    }
    if measure is not None:
        numbers = {"value": measure.value, "low": measure.low, "high": measure.high}
        properties |= {"vlm.metric": on_one_line(measure.called), "vlm.n": measure.n}
        properties |= {f"vlm.{name}": value for name, value in numbers.items() if math.isfinite(value)}
    waiver = measure.waiver if measure is not None and outcome is Outcome.WAIVED else ""
    file = record.nodeid.partition("::")[0]
    source = measure.source if measure is not None and measure.source else f"{file}:1" if file else ""
    return {
        "ruleId": on_one_line(rule),
        "level": _LEVELS.get(outcome, "note"),
        "message": _message(text),
        **_location(source, record.nodeid or record.id),
        "partialFingerprints": {"vlmTest/v1": _fingerprint(rule, record.key, measure.called if measure is not None else "")},
        **({"suppressions": [_suppression(waiver, run.manifest)]} if waiver else {}),
        "properties": {name: value for name, value in properties.items() if value != ""},
    }


def _suppression(waiver: str, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the waiver that covers a breach, with owner and last day if in the manifest."""
    matching = (entry for policy in _policies(manifest) for entry in policy.get("waivers", ()) if entry["id"] == waiver)
    entry = next(matching, {"owner": "unknown", "expires": "unknown", "reason": ""})
    text = f"waiver {waiver}, owner {entry['owner']}, until {entry['expires']}: {entry['reason']}"
    return {"kind": "external", "status": "accepted", "justification": on_one_line(text)}


def _location(source: str, test: str) -> dict[str, Any]:
    """Returns the location ``file:line`` with its test; empty if neither is known."""
    place: dict[str, Any] = {}
    file, _, line = source.rpartition(":")
    if file and line.isascii() and line.isdigit() and int(line) > 0:
        place["physicalLocation"] = {"artifactLocation": {"uri": _uri(file)}, "region": {"startLine": int(line)}}
    if test:
        place["logicalLocations"] = [{"fullyQualifiedName": on_one_line(test)}]
    return {"locations": [place]} if place else {}


def _uri(file: str) -> str:
    path = Path(file)
    return path.as_uri() if path.is_absolute() else quote(on_one_line(file).replace("\\", "/"), safe="/+@,~")


def _policies(manifest: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return [*manifest.get("policies", {}).values()]


def _fingerprint(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "backslashreplace")).hexdigest()[:32]


def _message(text: str) -> dict[str, str]:
    r"""Returns a message in which nothing is a placeholder (section 3.11.5 of SARIF) or a link (3.11.6).

    >>> _message("{0} [x](http://y)")
    {'text': '{{0}} [x] (http://y)'}
    """
    return {"text": on_one_line(text).replace("{", "{{").replace("}", "}}").replace("](", "] (") or "no reason was given"}
