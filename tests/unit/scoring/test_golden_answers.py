"""The form of tests/golden/answers.jsonl; tests/golden/README.md says what its keys mean."""

from __future__ import annotations

import json
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

Row = dict[str, Any]

FILE = Path(__file__).parents[2] / "golden" / "answers.jsonl"
ROWS: list[Row] = [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]

INPUTS = {"choice": {"options"}, "yes_no": {"more"}, "number": set(), "score": {"target", "scorer"}}
ALWAYS = {"call", "text", "expected", "source", "kind", "note"}
SOMETIMES = {"also", "disputed", "peer"}

LEAST = {
    "EvolvingLMMs-Lab/lmms-eval": 200,
    "modelscope/evalscope": 100,
    "huggingface/lighteval": 60,
    "UKGovernmentBEIS/inspect_ai": 40,
    "huggingface/Math-Verify": 30,
    "NVIDIA-NeMo/Skills": 20,
    "open-compass/opencompass": 10,
}
"""How many rows there are at least of each source."""


def inputs(row: Row) -> str:
    return json.dumps([row["call"], row["text"], *(row.get(key) for key in ("options", "more", "target", "scorer"))])


def is_number(text: str) -> bool:
    try:
        return Fraction(text.removesuffix("%")) is not None
    except ValueError:
        return False


@pytest.mark.parametrize("row", ROWS, ids=[f"{number:04d}-{row['call']}" for number, row in enumerate(ROWS, 1)])
def test_row_has_its_keys_and_a_reading_that_its_call_allows(row: Row) -> None:
    keys = ALWAYS | INPUTS[row["call"]]
    assert keys <= row.keys() <= keys | SOMETIMES
    assert all(row[key].strip() for key in ("source", "kind"))
    assert row.get("disputed", "argued").strip()
    if row["call"] == "score":
        scores = row["expected"] if isinstance(row["expected"], list) else [row["expected"]]
        assert all(0 <= value <= 1 for value in scores)
    elif row["expected"] not in (None, "ambiguous"):
        allowed = {"choice": row.get("options", {}).keys(), "yes_no": {"yes", "no"}}
        assert is_number(row["expected"]) if row["call"] == "number" else row["expected"] in allowed[row["call"]]


def test_no_input_is_there_twice() -> None:
    assert [text for text, count in Counter(map(inputs, ROWS)).items() if count > 1] == []


def test_every_source_has_its_rows() -> None:
    rows = Counter(row["source"].split(" ")[0] for row in ROWS)
    assert {source: rows[source] for source, least in LEAST.items() if rows[source] < least} == {}


def test_there_are_enough_rows_of_each_call() -> None:
    rows = Counter(row["call"] for row in ROWS)
    least = {"choice": 550, "number": 200, "yes_no": 50, "score": 170}
    assert {call: rows[call] for call, number in least.items() if rows[call] < number} == {}
