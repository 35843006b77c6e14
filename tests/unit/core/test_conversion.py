from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_vlmrobust.core.boxes import BoxSpace, Localisation
from pytest_vlmrobust.core.conversion import DEEPEST, from_plain, read_json, to_plain
from pytest_vlmrobust.core.prediction import ModelRef
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.store.repeatability import Repeatability

TEXT = st.text(max_size=8)
NUMBER = st.floats(allow_infinity=False, allow_nan=False)
COUNT = st.integers(0, 10**9)
BOX = st.tuples(NUMBER, NUMBER, NUMBER, NUMBER)
BOXES = st.dictionaries(TEXT, BOX, max_size=2)
SPACE = st.builds(BoxSpace, TEXT, NUMBER, NUMBER, TEXT)


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, slots=True)
class Inner:
    value: float
    colour: Colour = Colour.RED


@dataclass(frozen=True, slots=True)
class Outer:
    name: str
    count: int = 0
    sure: bool = False
    limit: int | None = None
    parts: tuple[Inner, ...] = ()
    by_name: Mapping[str, float] = field(default_factory=dict)
    tags: frozenset[str] = frozenset()


OUTER = st.builds(
    Outer,
    TEXT,
    COUNT,
    st.booleans(),
    st.none() | COUNT,
    st.lists(st.builds(Inner, NUMBER, st.sampled_from(Colour)), max_size=3).map(tuple),
    st.dictionaries(TEXT, NUMBER, max_size=3),
    st.frozensets(TEXT, max_size=3),
)
REPEATABILITY = st.builds(Repeatability, TEXT, TEXT, COUNT, COUNT, rate=NUMBER, noise=st.dictionaries(TEXT, NUMBER, max_size=2))
LOCALISATION = st.builds(Localisation, st.tuples(COUNT, COUNT), BOXES, BOXES, st.none() | SPACE, COUNT)
SAMPLE = st.builds(
    Sample,
    TEXT,
    st.just(()),
    TEXT,
    TEXT | st.lists(TEXT, max_size=3).map(tuple),
    TEXT,
    options=st.dictionaries(TEXT, TEXT, max_size=3),
    changed_by=st.frozensets(TEXT, max_size=3),
    perturbed=st.none() | st.lists(COUNT, max_size=2).map(tuple),
    localisation=st.none() | LOCALISATION,
)


@pytest.mark.parametrize(
    ("kind", "values"),
    [(Outer, OUTER), (Repeatability, REPEATABILITY), (BoxSpace, SPACE), (Sample, SAMPLE)],
    ids=lambda value: str(value)[:30],
)
@given(data=st.data())
def test_what_is_written_as_json_is_read_back(kind: type, values: st.SearchStrategy[Any], data: st.DataObject) -> None:
    value = data.draw(values)
    line = json.dumps(to_plain(value), allow_nan=False)
    read: Any = from_plain(json.loads(line), kind)
    assert json.dumps(to_plain(read), allow_nan=False) == line
    for part in dataclasses.fields(read):
        assert getattr(read, part.name) == getattr(value, part.name) or math.isnan(getattr(read, part.name))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_finite_number_is_null_and_read_back_as_undefined(value: float) -> None:
    plain = to_plain(Outer("x", parts=(Inner(value),), by_name={"a": value}))
    assert (plain["parts"][0]["value"], plain["by_name"]) == (None, {"a": None})
    read = from_plain(plain, Outer)
    assert math.isnan(read.parts[0].value)
    assert math.isnan(read.by_name["a"])


@pytest.mark.cases(
    ("data", "problem"),
    [
        ({}, "name of the outer is absent"),
        ([], "the outer is [], expected an object"),
        (None, "the outer is None, expected an object"),
        ({"name": "x", "nmae": 1}, "the outer has the unknown key 'nmae'. Did you mean 'name'?"),
        ({"name": None}, "name of the outer is None, expected text"),
        ({"name": "x", "count": "3"}, "count of the outer is '3', expected a whole number of 0 or more"),
        ({"name": "x", "count": True}, "count of the outer is True, expected a whole number"),
        ({"name": "x", "sure": 1}, "sure of the outer is 1, expected true or false"),
        ({"name": "x", "limit": -1}, "limit of the outer is -1, expected a whole number"),
        ({"name": "x", "parts": "abc"}, "parts of the outer is 'abc', expected a list"),
        (
            {"name": "x", "parts": [{"value": 1.0}, {"value": "1"}]},
            "parts[1].value of the outer is '1', expected a number or null",
        ),
        (
            {"name": "x", "parts": [{"value": 1, "colour": "rde"}]},
            "parts[0].colour of the outer is 'rde', expected one of red, blue",
        ),
        ({"name": "x", "parts": [{"value": 1, "colour": []}]}, "parts[0].colour of the outer is [], expected one of red, blue"),
        ({"name": "x", "by_name": ["a"]}, "by_name of the outer is ['a'], expected an object"),
        ({"name": "x", "by_name": {"a": False}}, "by_name['a'] of the outer is False, expected a number or null"),
        ({"name": "x" * 500, "count": "y" * 500}, f"count of the outer is '{'y' * 99}, expected"),
    ],
)
def test_a_value_that_no_run_writes_is_refused_by_its_place(data: object, problem: str) -> None:
    with pytest.raises(TypeError, match=re.escape(problem)):
        from_plain(data, Outer)


def test_union_of_numbers_takes_no_null() -> None:
    reference = to_plain(ModelRef("m", "b", "l"))
    assert from_plain({**reference, "generation": {"a": 1, "b": 0.5, "c": "x"}}, ModelRef).generation["b"] == 0.5
    with pytest.raises(TypeError, match=re.escape("generation['a'] of the modelref is None, expected one of several types")):
        from_plain({**reference, "generation": {"a": None}}, ModelRef)
    with pytest.raises(TypeError, match=r"min_pixels of the modelref is absent"):
        from_plain({name: value for name, value in reference.items() if name != "min_pixels"}, ModelRef)


def deep(depth: int) -> bytes:
    return b'{"a": ' + b"[" * (depth - 1) + b"0" + b"]" * (depth - 1) + b"}"


@pytest.mark.cases(
    ("content", "value"),
    [
        (b'\xef\xbb\xbf{"a": 1}', {"a": 1}),
        (b'{"a": "\\ud800 \\u0000 [[["}', {"a": "\ud800 \0 [[["}),
        (b"[" + b"[]," * 1000 + b"1e-400]", [*([[]] * 1000), 0.0]),
        (b'{"a": {"b": 1}, "b": 1}', {"a": {"b": 1}, "b": 1}),
        ('{"a": "\ud800"}', {"a": "\ud800"}),
    ],
)
def test_a_text_of_json_is_read(content: bytes | str, value: object) -> None:
    assert read_json(content) == value
    assert read_json(deep(DEEPEST))


@pytest.mark.cases(
    ("content", "said"),
    [
        (b"", "Expecting value"),
        (b'{"a": 1}\0', "Extra data"),
        ('{"a": 1}'.encode("utf-16"), "'utf-8' codec can't decode"),
        (b"[NaN]", "NaN is not JSON"),
        (b"[-Infinity]", "-Infinity is not JSON"),
        (b"[1e400]", "1e400 is larger than any number"),
        (b"[" + b"9" * 5000 + b"]", "4300 digits"),
        (b'[{"a": 1, "b": 2, "a": 3}]', "the key 'a' occurs twice"),
        (deep(DEEPEST + 1), "more than 100 lists and objects stand inside each other"),
        (deep(100_000), "more than 100 lists and objects stand inside each other"),
    ],
)
def test_what_no_two_readers_understand_alike_is_refused(content: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        read_json(content)
