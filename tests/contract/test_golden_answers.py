"""The form of tests/golden/answers.jsonl; tests/golden/README.md says what its keys mean."""

from __future__ import annotations

import json
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

Row = dict[str, Any]

FILE = Path(__file__).parents[1] / "golden" / "answers.jsonl"
ROWS: list[Row] = [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]

INPUTS = {"choice": {"options"}, "yes_no": {"more"}, "number": set(), "score": {"target", "scorer"}}
ALWAYS = {"call", "text", "expected", "source", "kind", "note"}
SOMETIMES = {"also", "disputed", "peer"}

LEAST = {
    "EvolvingLMMs-Lab/lmms-eval": 300,
    "modelscope/evalscope": 130,
    "openai/simple-evals": 90,
    "vllm-project/vllm": 80,
    "huggingface/lighteval": 60,
    "tianyi-lab/HallusionBench": 60,
    "UKGovernmentBEIS/inspect_ai": 40,
    "huggingface/Math-Verify": 30,
    "MMMU-Benchmark/MMMU": 20,
    "NVIDIA-NeMo/Skills": 20,
    "sgl-project/sglang": 20,
    "ggml-org/llama.cpp": 15,
    "open-compass/opencompass": 10,
}
"""How many rows there are at least of each source."""


def inputs(row: Row) -> str:
    return json.dumps([row["call"], row["text"], *(row.get(key) for key in ("options", "more", "target", "scorer"))])


def is_number(text: str) -> bool:
    try:
        Fraction(text.removesuffix("%"))
    except ValueError:
        return False
    return True


def faults(row: Row) -> list[str]:
    """Returns what is wrong with the form of a row."""
    if row.get("call") not in INPUTS:
        return [f"call is {row.get('call')!r}"]
    keys = ALWAYS | INPUTS[row["call"]]
    faults = [f"no {key}" for key in keys - row.keys()] + [f"unknown key {key}" for key in row.keys() - keys - SOMETIMES]
    faults += [f"{key} is empty" for key in ("source", "kind", "disputed") if not row.get(key, "-").strip()]
    return faults if may_be_read(row) else [*faults, f"expected is {row.get('expected')!r}"]


def may_be_read(row: Row) -> bool:
    expected = row.get("expected")
    if row["call"] == "score":
        scores = expected if isinstance(expected, list) else [expected]
        return all(isinstance(score, float | int) and 0 <= score <= 1 for score in scores)
    if expected in (None, "ambiguous"):
        return True
    allowed = {"choice": row.get("options", {}).keys(), "yes_no": {"yes", "no"}}
    return is_number(expected) if row["call"] == "number" else expected in allowed[row["call"]]


def test_every_row_has_its_keys_and_a_reading_that_its_call_allows() -> None:
    assert {number: faults(row) for number, row in enumerate(ROWS, 1) if faults(row)} == {}


@pytest.mark.parametrize(
    "row",
    [
        {**ROWS[0], "expected": "Z"},
        {**ROWS[0], "source": " "},
        {**ROWS[0], "today": "B"},
        {**ROWS[0], "call": "letter"},
        {**ROWS[0], "call": "number", "expected": "5 cats"},
        {key: value for key, value in ROWS[0].items() if key != "note"},
    ],
)
def test_a_row_of_another_form_is_noticed(row: Row) -> None:
    assert faults(row)


def test_no_input_is_there_twice() -> None:
    assert [text for text, count in Counter(map(inputs, ROWS)).items() if count > 1] == []


def test_every_source_has_its_rows() -> None:
    rows = Counter(row["source"].split(" ")[0] for row in ROWS)
    assert {source: rows[source] for source, least in LEAST.items() if rows[source] < least} == {}


def test_there_are_enough_rows_of_each_call() -> None:
    rows = Counter(row["call"] for row in ROWS)
    least = {"choice": 740, "number": 320, "yes_no": 140, "score": 170}
    assert {call: rows[call] for call, number in least.items() if rows[call] < number} == {}
