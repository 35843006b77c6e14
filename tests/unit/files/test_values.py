from __future__ import annotations

from enum import StrEnum
from typing import Any

import pytest
import yaml

from pytest_vlmrobust.core.errors import UsageError
from pytest_vlmrobust.files import values
from pytest_vlmrobust.files.document import parse_document
from pytest_vlmrobust.files.values import Value

jsonschema = pytest.importorskip("jsonschema")


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


KINDS = {
    "text": (values.TEXT, ["a b"], ["' '", "3", "[a]"]),
    "described": (values.text("the name of a colour"), ["a b"], ["3", "~"]),
    "identifier": (values.IDENTIFIER, ["a-b.c"], ["a b", "-a", "3"]),
    "truth": (values.TRUTH, ["true", "no"], ["1", "a"]),
    "choice": (values.choice(Colour), ["red"], ["green", "[red]"]),
    "one of": (values.one_of(Colour), ["blue"], ["green", "1"]),
    "at least": (values.number("0 or more", low=0.0), ["0", "1.5"], ["-0.1", "a", "true"]),
    "above": (values.number("above 0", above=0.0), ["5.0e-324", "2"], ["0", "-1"]),
    "any number": (values.number("a number"), ["-2.5", "0"], ["a", "~"]),
    "count": (values.whole_number("1 or more", low=1), ["1"], ["0", "1.5", "true"]),
}


def read(value: Value, text: str) -> Any:
    entry = parse_document(f"key: {text}\n".encode(), "f.yaml", error=UsageError, expected="a key")
    return value(entry.mapping(["key"])["key"])


@pytest.mark.cases("kind", KINDS)
def test_the_reader_and_the_schema_accept_and_refuse_the_same(kind: str) -> None:
    value, accepted, refused = KINDS[kind]
    schema = jsonschema.Draft7Validator(dict(value.schema))
    for text in accepted:
        assert schema.is_valid(yaml.safe_load(text)), text
        assert read(value, text) == yaml.safe_load(text)
    for text in refused:
        assert not schema.is_valid(yaml.safe_load(text)), text
        with pytest.raises(UsageError, match=r"^f\.yaml:1: key is .*Expected "):
            read(value, text)


def test_what_is_expected_is_said_in_messages_and_to_editors() -> None:
    value = values.number("a number of seconds above 0", above=0.0)
    assert value.schema["description"] == "a number of seconds above 0"
    with pytest.raises(UsageError, match=r"key is '0'\. Expected a number of seconds above 0$"):
        read(value, "0")


def test_a_mapping_has_its_keys_and_no_others() -> None:
    schema = jsonschema.Draft7Validator(values.mapping({"a": values.TRUTH, "b": values.TEXT}, ["a"]))
    assert schema.is_valid({"a": True, "b": "x"})
    assert not any(map(schema.is_valid, ({"b": "x"}, {"a": 1}, {"a": True, "c": 1}, [])))


def test_one_value_or_a_list_that_is_not_empty() -> None:
    schema = jsonschema.Draft7Validator(values.one_or_more(values.TEXT.schema))
    assert all(map(schema.is_valid, ("x", ["x", "y"])))
    assert not any(map(schema.is_valid, ([], 3, ["x", 3])))


def test_a_mapping_with_any_keys() -> None:
    schema = jsonschema.Draft7Validator(values.any_keys(values.TEXT.schema))
    assert schema.is_valid({"a": "x"})
    assert not schema.is_valid({"a": 3})
    assert jsonschema.Draft7Validator(values.any_keys()).is_valid({"a": 3})
