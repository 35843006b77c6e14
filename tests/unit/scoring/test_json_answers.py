"""JSON as models write it, anywhere in a text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_vlmrobust.scoring.json_answers import DEEPEST, read_json, read_value


def values(text: str) -> list[Any]:
    return [found.value for found in read_json(text).values]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": 1, "b": [1.5, -2e2, .5], "c": {"d": null}}', [{"a": 1, "b": [1.5, -200.0, 0.5], "c": {"d": None}}]),
        ("{'a': None, 'b': True, 'c': False}", [{"a": None, "b": True, "c": False}]),
        ("{a: 1, left eye: 2, b-c: 3}", [{"a": 1, "left eye": 2, "b-c": 3}]),
        ("{a = 1}", [{"a": 1}]),
        ("{a: B}", [{"a": "B"}]),
        ("[1, 2,]", [[1, 2]]),
        ("[(1, 2), (3, 4,)]", [[[1, 2], [3, 4]]]),
        ("[12%, 5.5 %]", [["12%", "5.5%"]]),
        ("{} and []", [{}, []]),
        ('{"a": {"b": 1}} {"c": 2}', [{"a": {"b": 1}}, {"c": 2}]),
        ('{{"a": 1}}', [{"a": 1}]),
        ('{"a": 1, "a": 2}', [{"a": 2}]),
        ('{"a": "say \\"hi\\", then\\n"}', [{"a": 'say "hi", then\n'}]),
        ('{"a": "the "red" one", "b": 1}', [{"a": 'the "red" one', "b": 1}]),
        ("{'a': 'it's the dogs' bowl', 'b': 1}", [{"a": "it's the dogs' bowl", "b": 1}]),
        ('{"a": "over\ntwo lines"}', [{"a": "over\ntwo lines"}]),
        ('{"a": 1 // one\n}', [{"a": 1}]),
        ('{"a": "http://x/y"}', [{"a": "http://x/y"}]),
        ('[see the note] {"a": 1}', [["see the note"], {"a": 1}]),
        ("no JSON (at all) here", []),
        ('{"a" 1} [2]', [[2]]),
        ('{"a": 1 "b": 2} [3]', [[3]]),
        ('{"a": ...} [3]', [[3]]),
        ("[1 2] [3]", [[3]]),
        ("{1, 2} [3]", [[3]]),
        ("[1)", []),
        ("[12px]", []),
    ],
)
def test_reads_what_is_meant(text: str, expected: list[Any]) -> None:
    assert values(text) == expected
    assert read_json(text).cut is None


@pytest.mark.parametrize(
    "text", ['{"a": 1', '{"a', "{'a': 'b", "[1, 2", "{", "[", '{"a":', '{"a": [1, {"b": 2}', "[1, // two", '[{"a": 1},']
)
def test_a_text_that_ends_inside_is_cut(text: str) -> None:
    assert read_json(f"So: {text}").cut == len("So: ")
    assert read_json(f"[0] and {text}").cut == len("[0] and ")


def test_a_copy_that_is_cut_says_nothing_new() -> None:
    whole = '{"a": [1, 2], "b": 3}'
    for end in range(1, len(whole)):
        assert read_json(f"{whole}\n{whole}\n{whole[:end]}").cut is None
        assert read_json(f"{whole} no, rather {whole[:end]}").cut is not None
    assert read_json(f'{whole}\n{{"a": [1, 3').cut is not None


def test_deep_nesting_is_no_answer() -> None:
    assert values("[" * DEEPEST + "]" * DEEPEST) != []
    assert values("[" * 100_000 + "1" + "]" * 100_000)[0] != []
    assert len(values("[" * 100_000)) == 0


def test_where_values_stand() -> None:
    text = 'a {"b": 1} c [2] d'
    assert [text[found.start : found.end] for found in read_json(text).values] == ['{"b": 1}', "[2]"]


def test_one_value() -> None:
    assert read_value('x: "B"}', 2) == "B"
    assert read_value("x: [0, 1]", 2) == [0, 1]
    with pytest.raises(ValueError, match="2"):
        read_value("x:?", 2)
    with pytest.raises(EOFError):
        read_value('x: "B', 2)


plain_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**9), 10**9)
    | st.text(st.characters(codec="utf-8", exclude_characters="\"'\\"), max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abc_ ", min_size=1, max_size=6), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(value=st.lists(plain_values, max_size=3) | st.dictionaries(st.text("abc_", min_size=1), plain_values, max_size=3))
def test_json_is_read_as_json(value: Any) -> None:
    assert values(json.dumps(value)) == [value]
    assert values(f"Thus: {json.dumps(value, indent=2, ensure_ascii=False)}.") == [value]


@settings(max_examples=300, deadline=None)
@given(text=st.text("[]{}()\"'`:,=0123456789abc \n\\/%.-_", max_size=120))
def test_any_text_is_read_without_complaint(text: str) -> None:
    document = read_json(text)
    ends = [position for found in document.values for position in (found.start, found.end)]
    assert ends == sorted(ends)
    assert all(isinstance(found.value, list | dict) for found in document.values)
    assert document.cut is None or document.cut >= max(ends, default=0)
