"""results.json and cells.csv: a run for programs, with a published schema and ids that stay."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
import re
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pytest_vlmrobust.core.conversion import core_schema, read_json, to_plain
from pytest_vlmrobust.core.decision import Allowance, Decision, NotShown
from pytest_vlmrobust.core.estimate import ROUNDING
from pytest_vlmrobust.core.record import SCHEMA_VERSION, Measure, Record
from pytest_vlmrobust.core.words import printable
from pytest_vlmrobust.evaluation.after.run_analyses import Analysis
from pytest_vlmrobust.store.repeatability import Repeatability
from pytest_vlmrobust.store.spending import Spending

from .subject import OpenRule
from .view import RunView
from .writing import json_text

FILE_NAME = "results.json"
CSV_FILE = "cells.csv"
SCHEMA_FILE = "results.schema.json"

_OF_RECORD = ("model", "dataset", "setting", "family", "level", "split", "task")
_COUNTS = ("n_requested", "n_unparsed", "n_refused", "n_guessed", "n_errors")
_BESIDE = ("policy_sha256", "n_samples")
_OF_MEASURE = ("metric", "category", "n", "threshold", "rule", "source", "waiver", "judge")
CSV_COLUMNS = (
    *("key", "test", *_OF_RECORD, "outcome", *_COUNTS),
    *("metric", "category", "value", "low", "high", "n", "threshold", "verdict", "rule", "source", "waiver"),
    *("policy_sha256", "judge", "n_samples", "notes"),
)
"""The columns of cells.csv, in their order."""
_NUMBERS = ("value", "low", "high")
_FORMULA = ("=", "+", "-", "@")
_DECIMAL = r"[-+]?\d++(?:\.\d++)?(?:e[-+]?\d++)?"
_BOUND = re.compile(rf"{_DECIMAL}(?:\.\.{_DECIMAL})?")
"""A number, or a bound of two."""
_KEY = "The id of the test, the same in every run: its node id in pytest."


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleNotShown(NotShown):
    """A rule that would block and is not shown to hold, with the test and the value that it is about."""

    key: str
    """The id of the test, the same in every run: its node id in pytest."""
    metric: str
    """The name of the measure."""
    category: str
    """The category of questions; empty for the whole dataset."""
    value: float
    """The value of the measure."""


@dataclass(frozen=True, slots=True)
class Results:
    """The content of results.json."""

    __pydantic_config__: ClassVar = {"use_attribute_docstrings": True}

    schema: Literal[1]
    """The version of this file's layout. Within a version, keys may be added, but none is removed or changes its meaning."""
    decision: Decision
    """What the gate concluded about the whole run."""
    word: str
    """The decision as printed in reports: GO WITH WAIVERS, or GO (demonstration), which supports no release."""
    planned: int
    """Gated tests in the suites."""
    selected: int
    """Gated tests selected to run."""
    missing: int
    """Selected tests without a record; with any, the decision is never GO."""
    shortfalls: tuple[str, ...]
    """Unmet requirements of GO, such as a verdict about each model; with any, the decision is never GO."""
    allowances: tuple[Allowance, ...]
    """What the run did not do or show, although a line of its policies allows it."""
    stopped: str
    """Why pytest ended early, or its failure that no record reports; empty if neither. With it, the
    decision is never GO."""
    decisions: dict[str, Decision]
    """The decision about each model and each judged family of models."""
    not_shown: tuple[RuleNotShown, ...]
    """Blocking rules that are not shown to hold, one for each test: undecided by the samples (INCONCLUSIVE), or it did
    not apply (NOT_APPLICABLE). The policy lets both pass."""
    repeatability: tuple[Repeatability, ...]
    """With --vlm-aa: how often answers flip on repetition, for each model and dataset."""
    spending: tuple[Spending, ...]
    """Tokens and cost of new answers, for each model that gave any."""
    analyses: tuple[Analysis, ...]
    """The papers' analyses over all cells of a model on a dataset; derived from the records."""
    records: tuple[Record, ...]
    """A record for each finished test, and for each model and dataset whose budgets are not all shown to be kept."""


def results(view: RunView) -> dict[str, Any]:
    """Returns the content of results.json."""
    records, facts = view.records, view.facts
    content = Results(
        schema=SCHEMA_VERSION,
        decision=view.decision,
        word=view.word,
        planned=facts.planned,
        selected=facts.selected,
        missing=facts.missing(records),
        shortfalls=tuple(facts.all_shortfalls(records)),
        allowances=tuple(facts.allowances),
        stopped=facts.stopped,
        decisions=dict(facts.decisions(records)),
        not_shown=tuple(_rule_not_shown(rule) for group in view.open_rules for rule in group),
        repeatability=tuple(facts.repeatability),
        spending=tuple(facts.spending),
        analyses=view.analyses,
        records=(),
    )
    return {**to_plain(content), "records": [{"key": record.key, **to_plain(record)} for record in records]}


def _rule_not_shown(rule: OpenRule) -> RuleNotShown:
    rule_facts, measure = dataclasses.asdict(rule.about), rule.measure
    return RuleNotShown(**rule_facts, key=rule.record.key, metric=measure.metric, category=measure.category, value=measure.value)


def results_json(view: RunView) -> str:
    """Returns the text of results.json."""
    return json_text(results(view))


def same_json(written: bytes, derived: str) -> bool:
    """Whether two JSON documents agree, whatever the order of keys; computed numbers may differ by rounding."""
    try:
        return _agree(read_json(written.decode()), json.loads(derived))
    except ValueError:
        return False


_COMPUTED = ("analyses", "boards")
"""Parts of documents with numbers that are in no record."""


def _agree(written: Any, derived: Any, close: float = 0.0) -> bool:
    """Whether two JSON values are the same, and numbers no further apart than ``close``."""
    if type(written) is not type(derived):  # 1, 1.0 and true are three values
        return False
    if isinstance(written, dict):
        return written.keys() == derived.keys() and all(
            _agree(value, derived[name], ROUNDING if name in _COMPUTED else close) for name, value in written.items()
        )
    if isinstance(written, list):
        return len(written) == len(derived) and all(_agree(*pair, close) for pair in zip(written, derived, strict=True))
    return math.isclose(written, derived, rel_tol=0.0, abs_tol=close) if isinstance(written, float) else bool(written == derived)


def cells_csv(view: RunView) -> str:
    """Returns a line for each measure of each record, and for each record without any; columns as in ``CSV_COLUMNS``.

    Texts that a spreadsheet would compute get a leading apostrophe; numbers and bounds do not.
    """
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, CSV_COLUMNS, lineterminator="\n")
    writer.writeheader()
    for record in view.records:
        columns = {name: getattr(record, name) for name in ("test", *_OF_RECORD, *_COUNTS, *_BESIDE)}
        columns |= {"key": record.key, "outcome": str(record.outcome)}
        columns["notes"] = "; ".join(record.notes)
        for measure in record.measures or (None,):
            row = {**columns, **({} if measure is None else _measure_columns(measure))}
            writer.writerow({name: _plain_cell(value) for name, value in row.items()})
    return buffer.getvalue()


def results_schema() -> dict[str, Any]:
    """Returns the JSON Schema of results.json: the fields of :class:`Results`, with the texts below them; needs the source."""
    from pydantic.json_schema import GenerateJsonSchema

    schema = GenerateJsonSchema().generate(core_schema(Results))
    parts = schema["$defs"]
    inherited = {name: entry["description"] for name, entry in parts["NotShown"]["properties"].items()}
    for part in (schema, *parts.values()):
        part.pop("title", None)
        part.pop("additionalProperties", None)  # keys may be added under a version
        for name, entry in part.get("properties", {}).items():
            entry.pop("title", None)
            entry["description"] = " ".join(entry.pop("description", inherited.get(name, "")).split())
    record = parts["Record"]
    record["properties"]["key"] = {"type": "string", "description": _KEY}
    record["required"].insert(0, "key")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "results.json of pytest-vlmrobust"}


def _plain_cell(value: Any) -> Any:
    """Returns a cell on one line that no spreadsheet computes: names may contain anything."""
    if not isinstance(value, str):
        return value
    shown = printable(value)  # a raw line break would add a line to a log, even quoted
    return f"'{shown}" if shown.startswith(_FORMULA) and not _BOUND.fullmatch(shown) else shown


def _measure_columns(measure: Measure) -> dict[str, Any]:
    numbers = {name: getattr(measure, name) for name in _NUMBERS}
    defined = {name: repr(value) for name, value in numbers.items() if not math.isnan(value)}
    return {**{name: getattr(measure, name) for name in _OF_MEASURE}, **defined, "verdict": str(measure.outcome)}
