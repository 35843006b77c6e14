from __future__ import annotations

import dataclasses
import json
import math
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.record import Measure, Record

MEASURE = {"metric": "accuracy", "value": 0.5, "low": 0.4, "high": 0.6, "outcome": "PASS"}
EXAMPLE: dict[str, Any] = {"sample": "q", "kind": "newly_wrong", "question": "?", "replies": [], "pictures": []}
TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
NUMBER = st.floats(allow_infinity=False)
COUNT = st.integers(0, 10**6)
OUTCOME = st.sampled_from(Outcome)
MEASURES = st.builds(
    Measure,
    metric=TEXT,
    value=NUMBER,
    low=NUMBER,
    high=NUMBER,
    n=COUNT,
    bound=TEXT,
    outcome=OUTCOME,
    reason=TEXT,
    rule=TEXT,
    source=TEXT,
    waiver=TEXT,
    category=TEXT,
)
RECORDS = st.builds(
    Record,
    test=st.sampled_from(("cell", "sweep")),
    id=TEXT,
    model=TEXT,
    dataset=TEXT,
    setting=TEXT,
    outcome=OUTCOME,
    reason=TEXT,
    n=COUNT,
    n_inferred=COUNT,
    n_recalled=COUNT,
    seconds=st.floats(0, 1e6),
    measures=st.lists(MEASURES, max_size=3).map(tuple),
    categories=st.dictionaries(TEXT, NUMBER, max_size=3),
    worst=st.lists(TEXT, max_size=3).map(tuple),
    nodeid=TEXT,
)


def comparable(value: Any) -> Any:
    """Returns a value in which one NaN equals another: NaN differs even from itself."""
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return type(value), {field.name: comparable(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {key: comparable(item) for key, item in value.items()}
    return type(value)(map(comparable, value)) if isinstance(value, tuple) else value


@given(RECORDS)
def test_what_is_written_is_read_back(record: Record) -> None:
    assert comparable(Record.from_json(record.to_json())) == comparable(record)


@given(RECORDS)
def test_it_is_one_line_of_strict_json(record: Record) -> None:
    line = record.to_json()
    assert "\n" not in line
    assert "\r" not in line
    json.loads(line, parse_constant=refuse)


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


def test_undefined_is_null_and_never_zero() -> None:
    measure = Measure("pcri", math.nan, low=-math.inf, high=math.inf)
    record = Record("cell", "i", "m", "d", measures=(measure,), categories={"c": math.nan})
    written = json.loads(record.to_json())
    assert [written["measures"][0][key] for key in ("value", "low", "high")] == [None, None, None]
    assert written["categories"] == {"c": None}
    read = Record.from_json(record.to_json())
    assert math.isnan(read.measures[0].value)
    assert math.isnan(read.measures[0].low)
    assert math.isnan(read.categories["c"])


def test_outcomes_come_back_as_outcomes() -> None:
    record = Record("cell", "i", "m", "d", outcome=Outcome.WAIVED, measures=(Measure("a", 1.0, outcome=Outcome.FAIL),))
    read = Record.from_json(record.to_json())
    assert read.outcome is Outcome.WAIVED
    assert read.measures[0].outcome is Outcome.FAIL


def test_nothing_is_assumed_to_have_passed() -> None:
    assert Record("cell", "i", "m", "d").outcome is Outcome.MEASURED
    assert Measure("a", 1.0).outcome is Outcome.MEASURED


@pytest.mark.cases(
    ("field", "value", "said"),
    [
        ("id", 5, "id of the record is 5, expected text"),
        ("setting", ["fog"], "setting of the record is ['fog'], expected text"),
        ("split", None, "split of the record is None, expected text"),
        ("n", "many", "n of the record is 'many', expected a whole number of 0 or more"),
        ("n", True, "n of the record is True, expected a whole number"),
        ("n", 1.0, "n of the record is 1.0, expected a whole number"),
        ("n", -1, "n of the record is -1, expected a whole number"),
        ("seconds", "long", "seconds of the record is 'long', expected a number or null"),
        ("seconds", False, "seconds of the record is False, expected a number or null"),
        ("outcome", "GOOD", "outcome of the record is 'GOOD', expected one of PASS, FAIL, INCONCLUSIVE"),
        ("worst", "abc", "worst of the record is 'abc', expected a list"),
        ("worst", [1], "worst[0] of the record is 1, expected text"),
        ("categories", {"a": "b"}, "categories['a'] of the record is 'b', expected a number or null"),
        ("categories", [], "categories of the record is [], expected an object"),
        ("measures", [{**MEASURE, "metric": 1}], "measures[0].metric of the record is 1, expected text"),
        ("measures", [{**MEASURE, "value": "x"}], "measures[0].value of the record is 'x', expected a number or null"),
        ("measures", [{**MEASURE, "samples_needed": 1.5}], "measures[0].samples_needed of the record is 1.5, expected a whole"),
        ("measures", [5], "measures[0] of the record is 5, expected an object"),
        ("measures", [{**MEASURE, "more": 5}], "measures[0] of the record has the unknown key 'more'. Did you mean"),
        ("measures", [{"metric": "accuracy", "value": 0.5}], "measures[0].low of the record is absent"),
        ("examples", [{**EXAMPLE, "question": {}}], "examples[0].question of the record is {}, expected text"),
        ("examples", [{**EXAMPLE, "options": {"A": 1}}], "examples[0].options['A'] of the record is 1, expected text"),
        ("examples", [{**EXAMPLE, "replies": [{"about": 1, "text": "x", "value": None}]}], "examples[0].replies[0].about of the"),
        ("examples", [{**EXAMPLE, "pictures": [{"file": 1}]}], "examples[0].pictures[0].file of the record is 1, expected text"),
        ("examples", [{"sample": "q", "kind": "x"}], "examples[0].question of the record is absent"),
    ],
)
def test_values_of_another_type_are_refused_by_name(field: str, value: object, said: str) -> None:
    record = Record("cell", "x", "m", "d", measures=(Measure("accuracy", 0.5),))
    line = {**json.loads(record.to_json()), field: value}
    with pytest.raises(TypeError, match=re.escape(said)):
        Record.from_json(json.dumps(line))
