"""results.json and cells.csv: a run for programs, with a published schema and ids that stay."""

from __future__ import annotations

import ast
import csv
import dataclasses
import inspect
import io
import json
import math
import re
import textwrap
import types
import typing
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from pytest_vlmrobust.core.conversion import read_json, to_plain
from pytest_vlmrobust.core.decision import Allowance, Decision, NotShown, Outcome
from pytest_vlmrobust.core.record import ABSENT_IF_ZERO, SCHEMA_VERSION, Example, Measure, Picture, Record, Reply
from pytest_vlmrobust.core.repeatability import Repeatability
from pytest_vlmrobust.core.spending import Spending
from pytest_vlmrobust.core.words import printable

from .analyses import Analysis, analyses
from .view import view
from .wording import OpenRule, RunFacts, open_rules

FILE_NAME = "results.json"
CSV_FILE = "cells.csv"
SCHEMA_FILE = "results.schema.json"

CSV_COLUMNS = (
    "key",
    "test",
    "model",
    "dataset",
    "setting",
    "family",
    "level",
    "split",
    "task",
    "outcome",
    "n_requested",
    "n_unparsed",
    "n_refused",
    "n_guessed",
    "n_errors",
    "metric",
    "category",
    "value",
    "low",
    "high",
    "n",
    "threshold",
    "verdict",
    "rule",
    "source",
    "waiver",
    "policy_sha256",
    "judge",
    "n_samples",
    "notes",
)
"""The columns of cells.csv, in their order."""
_OF_RECORD = (
    "model",
    "dataset",
    "setting",
    "family",
    "level",
    "split",
    "task",
    "n_requested",
    "n_unparsed",
    "n_refused",
    "n_guessed",
    "n_errors",
    "policy_sha256",
    "n_samples",
)
_OF_MEASURE = ("metric", "category", "n", "threshold", "rule", "source", "waiver", "judge")
_NUMBERS = ("value", "low", "high")
_FORMULA = ("=", "+", "-", "@")
_DECIMAL = r"[-+]?\d++(?:\.\d++)?(?:e[-+]?\d++)?"
_BOUND = re.compile(rf"{_DECIMAL}(?:\.\.{_DECIMAL})?")
"""A number, or a bound of two."""
_PARTS = (Record, Measure, NotShown, Allowance, Example, Reply, Picture, Repeatability, Spending, Analysis)
_TOP = {
    "schema": "The version of this file's layout. Keys may be added under a version; none goes and none changes its meaning.",
    "decision": "What the gate concluded about the whole run.",
    "word": "The decision as reports print it: GO WITH WAIVERS, or GO (demonstration), which supports no release.",
    "planned": "Gated tests that the suites hold.",
    "selected": "Those of them that were to run.",
    "missing": "Those of them that left no record: with any, the decision is never GO.",
    "shortfalls": "What GO requires and the run lacks, such as a verdict about each model: with any, the decision is never GO.",
    "allowances": "What the run did not do or show, and a line of its policies lets pass.",
    "stopped": "What ended pytest before its end, or in a failure that no record tells of; empty where nothing did. With it, the "
    "decision is never GO.",
    "decisions": "What the gate concluded about each model, and about each family of models that was judged.",
    "not_shown": "Rules that would block and are not shown to hold, one for each test: the samples do not decide it "
    "(INCONCLUSIVE), or it did not apply (NOT_APPLICABLE). The policy lets both pass.",
    "repeatability": "Of a run with --vlm-aa, how often answers flip when asked for again: one for each model and dataset.",
    "spending": "What the answers that were not in the store took in tokens and money, one for each model that gave any.",
    "analyses": "What the papers compute from all cells of a model on a dataset; it follows from the records.",
    "records": "One for each test that ended, and one for each model and dataset whose budgets are not all shown to be kept.",
}
_LATER = {"analyses": Analysis, "spending": Spending}
"""Entries at the top that earlier releases did not write, with what they are lists of."""
_CLOSE = 1e-9
"""Sums of an analysis may differ in their last digits between processors."""
_KEY = "The id of the test, the same in every run: its node id in pytest."


def results(records: Sequence[Record], facts: RunFacts) -> dict[str, Any]:
    """Returns the content of results.json."""
    return {
        "schema": SCHEMA_VERSION,
        "decision": str(facts.decision(records)),
        "word": view(records, facts).word,
        "planned": facts.planned,
        "selected": facts.selected,
        "missing": facts.missing(records),
        "shortfalls": facts.all_shortfalls(records),
        "allowances": [to_plain(allowance) for allowance in facts.allowances],
        "stopped": facts.stopped,
        "decisions": {name: str(decision) for name, decision in facts.decisions(records).items()},
        "not_shown": [_open_rule(one) for group in open_rules(records) for one in group],
        "repeatability": [repeat.to_dict() for repeat in facts.repeatability],
        "spending": [spent.to_dict() for spent in facts.spending],
        "analyses": [to_plain(analysis) for analysis in analyses(records)],
        "records": [{"key": record.key, **json.loads(record.to_json())} for record in records],
    }


def results_json(records: Sequence[Record], facts: RunFacts) -> str:
    """Returns the text of results.json."""
    return json.dumps(results(records, facts), indent=1, ensure_ascii=False) + "\n"


def is_results(text: bytes, records: Sequence[Record], facts: RunFacts) -> bool:
    """Whether a file holds what :func:`results_json` gives for these records, in the layout of this release or an earlier one.

    An earlier release did not write every field. A field of a record, or of a part of one, may be absent if it has its default
    value; nothing else may be absent, differ or be added. Analyses follow from the records, and may be absent as a whole.
    """
    try:
        written = read_json(text.decode())
    except ValueError:
        return False
    derived = json.loads(results_json(records, facts))
    lists = ("records", Record), ("repeatability", Repeatability)
    if not isinstance(written, dict):
        return False
    computed = [(written.pop(name), derived.pop(name), kind) for name, kind in _LATER.items() if name in written]
    if written.keys() != derived.keys() - {*_LATER}:
        return False
    if not all(_agree(*each, close=_CLOSE) for each in computed):
        return False
    derived = {name: derived[name] for name in written}
    if not all(_agree(written.pop(name), derived.pop(name), kind) for name, kind in lists):
        return False
    return _agree(written, derived)


def _agree(written: Any, derived: Any, kind: type | None = None, *, close: float = 0.0) -> bool:
    """Whether two JSON values are the same.

    Args:
        written: what a file holds.
        derived: what it should hold.
        kind: the dataclass that an object, or each object of a list, was made from.
        close: how far apart two numbers may be.
    """
    if isinstance(written, dict) and isinstance(derived, dict):
        optional = _defaults(kind) if kind else {}
        parts = _parts(kind) if kind else {}
        absent = derived.keys() - written.keys()
        return (
            written.keys() <= derived.keys()
            and all(name in optional and _agree(optional[name], derived[name]) for name in absent)
            and all(_agree(value, derived[name], parts.get(name), close=close) for name, value in written.items())
        )
    if isinstance(written, list) and isinstance(derived, list):
        return len(written) == len(derived) and all(
            _agree(*pair, kind, close=close) for pair in zip(written, derived, strict=True)
        )
    if close and isinstance(written, float) and isinstance(derived, float):
        return math.isclose(written, derived, rel_tol=0.0, abs_tol=close)
    return type(written) is type(derived) and bool(written == derived)  # 1, 1.0 and true are three values


@cache
def _defaults(kind: type) -> Mapping[str, Any]:
    """Returns the fields of a dataclass that have a default, with it as JSON."""
    plain = {}
    for field in dataclasses.fields(kind):
        if field.default_factory is not dataclasses.MISSING:
            plain[field.name] = to_plain(field.default_factory())
        elif field.default is not dataclasses.MISSING:
            plain[field.name] = to_plain(field.default)
    return dict(json.loads(json.dumps(plain)))


@cache
def _parts(kind: type) -> Mapping[str, type]:
    """Returns the fields of a dataclass that hold further ones, with their class."""
    arguments = {name: typing.get_args(hint)[:1] for name, hint in typing.get_type_hints(kind).items()}
    return {name: first[0] for name, first in arguments.items() if first and first[0] in _PARTS}


def cells_csv(records: Sequence[Record]) -> str:
    """Returns one line for each measure of each record, and one for a record without any; columns as in ``CSV_COLUMNS``.

    A text that a spreadsheet would compute has an apostrophe before it; numbers and bounds have none.
    """
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, CSV_COLUMNS, lineterminator="\n")
    writer.writeheader()
    for record in records:
        columns = {name: getattr(record, name) for name in _OF_RECORD}
        columns |= {"key": record.key, "test": record.test, "outcome": str(record.outcome)}
        columns["notes"] = "; ".join(record.notes)
        for measure in record.measures or (None,):
            row = {**columns, **({} if measure is None else _measure_columns(measure))}
            writer.writerow({name: _plain_cell(value) for name, value in row.items()})
    return buffer.getvalue()


def results_schema() -> dict[str, Any]:
    """Returns the JSON Schema of results.json, made from the records' own fields."""
    decision = {"enum": [str(decision) for decision in Decision]}
    top: dict[str, Any] = {
        "schema": {"const": SCHEMA_VERSION},
        "decision": decision,
        "word": {"type": "string"},
        **{name: {"type": "integer", "minimum": 0} for name in ("planned", "selected", "missing")},
        "shortfalls": {"type": "array", "items": {"type": "string"}},
        "allowances": {"type": "array", "items": {"$ref": "#/$defs/Allowance"}},
        "stopped": {"type": "string"},
        "decisions": {"type": "object", "additionalProperties": decision},
        "not_shown": {"type": "array", "items": _open_rule_schema()},
        "repeatability": {"type": "array", "items": {"$ref": "#/$defs/Repeatability"}},
        "spending": {"type": "array", "items": {"$ref": "#/$defs/Spending"}},
        "analyses": {"type": "array", "items": {"$ref": "#/$defs/Analysis"}},
        "records": {"type": "array", "items": {"$ref": "#/$defs/Record"}},
    }
    parts = {kind.__name__: _object(kind) for kind in _PARTS}
    parts["Record"]["properties"]["key"] = {"type": "string", "description": _KEY}
    parts["Record"]["required"].insert(0, "key")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "results.json of pytest-vlmrobust",
        "type": "object",
        "required": [name for name in top if name not in _LATER],
        "properties": {name: {**entry, "description": _TOP[name]} for name, entry in top.items()},
        "$defs": parts,
    }


_OF_OPEN_RULE = ("key", "metric", "category", "value")


def _open_rule(one: OpenRule) -> dict[str, Any]:
    """Returns a rule that is not shown to hold, with the test and the value that it is about."""
    measure = to_plain(one.measure)
    return {"key": one.record.key, **{name: measure[name] for name in _OF_OPEN_RULE[1:]}, **to_plain(one.about)}


def _open_rule_schema() -> dict[str, Any]:
    about, measure = _object(NotShown), _object(Measure)["properties"]
    known = {"key": {"type": "string", "description": _KEY}, **{name: measure[name] for name in _OF_OPEN_RULE[1:]}}
    return {**about, "required": [*_OF_OPEN_RULE, *about["required"]], "properties": {**known, **about["properties"]}}


def _plain_cell(value: Any) -> Any:
    """Returns a cell on one line that no spreadsheet takes for a formula: names of models and data may be anything."""
    if not isinstance(value, str):
        return value
    shown = printable(value)  # a raw line break, though quoted, would put a line of its own into a log
    return f"'{shown}" if shown.startswith(_FORMULA) and not _BOUND.fullmatch(shown) else shown


def _measure_columns(measure: Measure) -> dict[str, Any]:
    numbers = {name: getattr(measure, name) for name in _NUMBERS}
    known = {name: repr(value) for name, value in numbers.items() if not math.isnan(value)}
    return {**{name: getattr(measure, name) for name in _OF_MEASURE}, **known, "verdict": str(measure.outcome)}


def _object(kind: type) -> dict[str, Any]:
    hints, texts = typing.get_type_hints(kind), descriptions(kind)
    names = [field.name for field in dataclasses.fields(kind)]
    properties = {name: {**_type(hints[name]), "description": texts[name]} for name in names}
    return {"type": "object", "required": [name for name in names if name not in ABSENT_IF_ZERO], "properties": properties}


def _type(hint: Any) -> dict[str, Any]:
    """Returns the JSON type of a field; a number that is undefined is ``null``."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple:
        return {"type": "array", "items": _type(arguments[0])}
    if origin is dict:
        return {"type": "object", "additionalProperties": _type(arguments[1])}
    if origin is types.UnionType:
        return {"type": ["integer", "null"]}
    if hint is Outcome:
        return {"enum": [str(outcome) for outcome in Outcome]}
    if hint in _PARTS:
        return {"$ref": f"#/$defs/{hint.__name__}"}
    return {"type": {str: "string", int: "integer", float: ["number", "null"]}[hint]}


def descriptions(kind: type) -> Mapping[str, str]:
    """Returns what the source says about each field of a dataclass, in the text below it; needs the source at hand."""
    (body,) = [node for node in ast.parse(textwrap.dedent(inspect.getsource(kind))).body if isinstance(node, ast.ClassDef)]
    texts: dict[str, str] = {}
    for node, after in zip(body.body, body.body[1:], strict=False):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            text = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else ""
            texts[node.target.id] = " ".join(str(text).split())
    return texts
