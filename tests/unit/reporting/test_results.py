"""results.json and cells.csv are for programs: their layout is published and holds."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
from typing import Any

import jsonschema
import pytest

from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.record import Example, Measure, Picture, Record, Reply
from pytest_vlmrobust.reporting import RunFacts, RunView
from pytest_vlmrobust.reporting.results import CSV_COLUMNS, cells_csv, results, results_schema
from pytest_vlmrobust.store.repeatability import Repeatability

from .conftest import record

FULL = dataclasses.replace(
    record("m-d-fog:mid", Outcome.FAIL, math.nan),
    nodeid="suites/test_a.py::test_cell[m-d-fog:mid]",
    categories={"even": 0.5, "odd": math.nan},
    positions=(0.5, math.nan),
    worst=("q1",),
    broken=("q1",),
    examples=(Example("q1", "newly_wrong", "Which?", {"A": "x"}, "A", "", (Reply("clean", "A"),), (Picture("f.webp"),)),),
)
FACTS = RunFacts(
    planned=3, selected=3, shortfalls=("a suite is missing",), repeatability=(Repeatability("m", "d", 8, 1, rate=0.125),)
)


def checked(content: Any) -> None:
    jsonschema.Draft202012Validator(results_schema()).validate(content)


def test_the_schema_is_one_and_real_results_keep_it() -> None:
    jsonschema.Draft202012Validator.check_schema(results_schema())
    checked(results(RunView([FULL, record("a")], FACTS)))
    checked(results(RunView([], RunFacts())))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"decision": "MAYBE"}, "'MAYBE' is not one of"),
        ({"missing": -1}, "-1 is less than the minimum"),
        ({"schema": 99}, "1 was expected"),
        ({"records": [{}]}, "'key' is a required property"),
    ],
)
def test_the_schema_refuses_what_is_none(change: dict[str, Any], words: str) -> None:
    with pytest.raises(jsonschema.ValidationError, match=words):
        checked({**results(RunView([FULL], FACTS)), **change})


def test_every_field_is_described_where_its_name_does_not_say_all() -> None:
    parts = results_schema()["$defs"]
    parts = {name: part for name, part in parts.items() if "properties" in part}
    assert set(parts) == {
        "Record",
        "Measure",
        "NotShown",
        "RuleNotShown",
        "Allowance",
        "Example",
        "Reply",
        "Picture",
        "Repeatability",
        "Spending",
        "Analysis",
    }
    lacking = [
        f"{name}.{key}" for name, part in parts.items() for key, entry in part["properties"].items() if not entry["description"]
    ]
    assert not lacking


def test_ids_stay_and_records_can_be_read_back() -> None:
    (written,) = results(RunView([FULL], FACTS))["records"]
    assert written["key"] == FULL.key == "suites/test_a.py::test_cell[m-d-fog:mid]"
    assert Record.from_json(json.dumps(written)).to_json() == FULL.to_json()


def rows(*records: Record) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(cells_csv(RunView(records, FACTS)), newline="")))


def test_one_row_for_each_measure() -> None:
    measures = (Measure("accuracy", 0.1 + 0.2, 0.1, 0.9, 8), Measure("accuracy_drop", math.nan, category="odd", ends=(0.2,)))
    first, second = rows(dataclasses.replace(FULL, measures=measures))
    assert list(first) == list(CSV_COLUMNS)
    assert (first["metric"], float(first["value"]), first["n"]) == ("accuracy", 0.1 + 0.2, "8")
    assert (second["value"], second["low"], second["threshold"], second["category"]) == ("", "", "0.2", "odd")


def test_a_record_without_measures_has_a_row() -> None:
    (row,) = rows(Record("cell", "x", "m", "d", outcome=Outcome.ERROR))
    assert (row["outcome"], row["metric"], row["value"]) == ("ERROR", "", "")


def test_names_cannot_break_a_line() -> None:
    hostile = dataclasses.replace(FULL, dataset='a,"b"\nGO  all passed\n::error::x\u2028y\tz')
    (row,) = rows(hostile)
    assert row["dataset"] == r'a,"b"\nGO  all passed\n::error::x\u2028y\tz'
    assert len(cells_csv(RunView([hostile], FACTS)).splitlines()) == 1 + len(FULL.measures)


@pytest.mark.parametrize("text", ["=cmd()", "+1+1", "-1+cmd|' /C calc'!A0", "@SUM(A1)"])
def test_no_text_of_the_table_is_computed(text: str) -> None:
    measure = Measure("accuracy", -0.25, -0.5, 0.0, 4, "-0.3..0.1", Outcome.PASS, category=text, rule=text, ends=(-0.3, 0.1))
    (row,) = rows(record("a", model=text, nodeid=text, measures=(measure,)))
    assert {row[name] for name in ("model", "key", "category", "rule")} == {f"'{text}"}
    assert (row["value"], row["low"], row["threshold"]) == ("-0.25", "-0.5", "-0.3..0.1")


def test_what_is_not_visible_is_spelled_out_in_the_table() -> None:
    (row,) = rows(record("a", model="\r=x\x1b[2J", dataset="\n=x", setting="\t=x"))
    assert (row["model"], row["dataset"], row["setting"]) == (r"\r=x\x1b[2J", r"\n=x", r"\t=x")
