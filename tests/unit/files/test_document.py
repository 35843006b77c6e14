from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date
from enum import StrEnum
from pathlib import Path

import pytest

from pytest_vlmrobust.core.errors import UsageError
from pytest_vlmrobust.files.document import Entry, parse_document
from tests.hostile_values import VALUES


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


READERS: dict[str, Callable[[Entry], object]] = {
    "mapping": lambda entry: entry.mapping(["known"]),
    "table": lambda entry: entry.table(),
    "items": lambda entry: entry.items(),
    "text": lambda entry: entry.text(),
    "texts": lambda entry: entry.texts(),
    "identifier": lambda entry: entry.identifier(),
    "pattern": lambda entry: entry.pattern(),
    "file_below": lambda entry: entry.file_below(Path("/")),
    "choice": lambda entry: entry.choice(Colour),
    "one_of": lambda entry: entry.one_of(["red", "blue"]),
    "truth": lambda entry: entry.truth(),
    "number": lambda entry: entry.number("a number"),
    "whole_number": lambda entry: entry.whole_number("a whole number", low=0),
    "quantity": lambda entry: entry.quantity(),
    "date": lambda entry: entry.date(),
    "scalar": lambda entry: entry.scalar(),
}


def entry(text: str) -> Entry:
    """Returns the value of the one key of a file, which stands in its line 2."""
    return parse_document(f"#\nkey: {text}\n".encode(), "f.yaml", error=UsageError, expected="a key").mapping(["key"])["key"]


@pytest.fixture(scope="module")
def hostile() -> dict[str, Entry | str]:
    """Each hostile value as it was parsed, which takes seconds for all, or the message of its refusal."""

    def parsed(text: str) -> Entry | str:
        try:
            return entry(text)
        except UsageError as error:
            return str(error)

    return {text: parsed(text) for text in VALUES}


@pytest.mark.parametrize("name", READERS)
def test_every_hostile_value_is_read_or_refused_with_its_place(hostile: dict[str, Entry | str], name: str) -> None:
    for value in hostile.values():
        message = value
        if isinstance(value, Entry):
            try:
                READERS[name](value)
            except UsageError as error:
                message = str(error)
            else:
                continue
        assert isinstance(message, str)
        assert re.match(r"f\.yaml:[234]: ", message), message
        assert len(message) < 500, message


@pytest.mark.cases(
    ("name", "text", "value"),
    [
        ("text", "x", "x"),
        ("texts", "x", ("x",)),
        ("texts", "[x, y]", ("x", "y")),
        ("identifier", "a-b.c_9", "a-b.c_9"),
        ("pattern", "'a+'", "a+"),
        ("file_below", "a/b", Path("/a/b")),
        ("choice", "red", Colour.RED),
        ("one_of", "blue", "blue"),
        ("truth", "yes", True),
        ("number", "1", 1.0),
        ("number", "-2.5e+3", -2500.0),
        ("whole_number", "7", 7),
        ("quantity", "5pp", "5pp"),
        ("quantity", "0.5", 0.5),
        ("date", "2027-06-30", date(2027, 6, 30)),
        ("date", "'2027-06-30'", date(2027, 6, 30)),
        ("scalar", "~", None),
    ],
)
def test_what_was_expected_is_returned(name: str, text: str, value: object) -> None:
    read = READERS[name](entry(text))
    assert read == value
    assert type(read) is type(value)


@pytest.mark.cases(
    ("name", "text", "problem"),
    [
        ("mapping", "{knwon: 1}", "unknown key 'knwon' in key. Did you mean 'known'? Known: known"),
        ("mapping", "3", "key is '3'. Expected a mapping with the keys known"),
        ("table", "{<<: {x: 1}}", "the key '<<' in key is not read here. Write the keys of the other mapping out"),
        ("table", "{1: x}", "the key '1' in key is not text. Put numbers, days, yes and no in quotes"),
        ("table", "{x: 1, x: 2}", "key.x is written twice, first in line 2. Keep one of them"),
        ("items", "x", "key is the text 'x'. Expected a list"),
        ("text", "3", "key is '3'. Expected text: put it in quotes, '3'"),
        ("text", "' '", "key is the text ' '. Expected text that is not empty"),
        ("text", "", "key is empty. Expected text"),
        ("texts", "[]", "key is a list. Expected text, or a list of texts"),
        ("texts", "[x, 3]", "key[2] is '3'. Expected text: put it in quotes, '3'"),
        ("identifier", "a b", "key is the text 'a b'. Expected letters, digits, '_', '.' and '-', beginning with a letter"),
        ("pattern", "'('", "key is the text '('. Expected a regular expression (missing ), unterminated subpattern"),
        ("pattern", "a{99999999999}", "Expected a regular expression (the repetition number is too large)"),
        ("choice", "bleu", "key is the text 'bleu'. Expected one of red, blue. Did you mean 'blue'?"),
        ("one_of", "[red]", "key is a list. Expected a single value"),
        ("truth", "1", "key is '1'. Expected true or false"),
        ("number", "true", "key is 'true'. Expected a number"),
        ("number", ".nan", "key is '.nan'. Expected a number"),
        ("number", "9" * 400, "...'. Expected a number"),
        ("whole_number", "1.0", "key is '1.0'. Expected a whole number"),
        ("whole_number", str(2**63), "key is '9223372036854775808'. Expected a whole number"),
        ("whole_number", "9" * 5000, "...'. Expected at most 1000 characters; 5000 given"),
        ("quantity", "[]", "key is a list. Expected a single value"),
        ("date", "'\uff12027-06-30'", "a day"),
        ("date", "2027-02-30", "key is '2027-02-30'. Expected a day that exists, such as 2027-06-30: there is no such day"),
        ("scalar", "!!bool x", "key is 'x'. Expected text, a number or a day"),
        ("scalar", "!!binary eA==", "key is 'eA=='. Expected text, a number, true, false or a day, without the tag tag:yaml"),
    ],
)
def test_a_refusal_says_what_stands_there_and_what_was_expected(name: str, text: str, problem: str) -> None:
    with pytest.raises(UsageError, match=re.escape(problem)) as caught:
        READERS[name](entry(text))
    assert str(caught.value).startswith("f.yaml:2: ")


def test_an_entry_knows_the_line_of_its_key_and_its_path() -> None:
    top = parse_document(b"a:\n  - b:\n      c\n", "f.yaml", error=UsageError, expected="a key")
    (item,) = top.mapping(["a"])["a"].items()
    value = item.mapping(["b"])["b"]
    assert (value.where, value.path, value.text()) == ("f.yaml:2", "a[1].b", "c")
