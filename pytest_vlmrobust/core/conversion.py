"""Dataclasses to JSON and back: the strict reader of all records in files.

A value of another type, an unknown key and a missing required key are errors that name the place. A number that is not
finite is ``null`` in JSON and NaN when read back. Whole numbers are counts and never negative. Pydantic
is imported only when something is read.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

from .errors import did_you_mean

if TYPE_CHECKING:
    from pydantic_core import CoreSchema, SchemaValidator

T = TypeVar("T")


# Text: the reader of all JSON.


DEEPEST = 100
"""The deepest allowed nesting of lists and objects."""


def read_json(content: bytes | str) -> Any:
    """Parses JSON; bytes are UTF-8, with or without a byte order mark.

    Raises ValueError for repeated keys (another reader may take the other value), for numbers that are NaN, infinite or
    have thousands of digits, and for too deep nesting.
    """
    too_deep = f"more than {DEEPEST} lists and objects stand inside each other"
    try:
        text = content.decode("utf-8-sig") if isinstance(content, bytes) else content
        value = json.loads(text, object_pairs_hook=without_repeats, parse_constant=refuse_constant, parse_float=_finite_number)
    except RecursionError:
        raise ValueError(too_deep) from None
    if text.count("[") + text.count("{") > DEEPEST and _is_deep(value):
        raise ValueError(too_deep)
    return value


def without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Returns an object (``object_pairs_hook``); a key that occurs twice is a ValueError."""
    values = dict(pairs)
    if len(values) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)!r:.100} occurs twice")
    return values


def refuse_constant(constant: str) -> NoReturn:
    """Refuses ``NaN`` and ``Infinity``, which Python reads (``parse_constant``)."""
    raise ValueError(f"{constant} is not JSON")


def _finite_number(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text:.100} is larger than any number that can be computed with")
    return number


def _is_deep(value: Any) -> bool:
    """Whether values are nested too deeply; works level by level, without recursion."""
    level = [value]
    for _ in range(DEEPEST + 1):
        level = [item for item in level if isinstance(item, dict | list)]
        if not level:
            return False
        level = [inner for item in level for inner in (item.values() if isinstance(item, dict) else item)]
    return True


# Values: dataclasses to JSON values and back.


def to_plain(value: Any) -> Any:
    """Converts a value to dictionaries, lists, texts, numbers and ``None``, without fields that do not count for equality."""
    if value is None or type(value) is str:  # first, for most values are
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if names := _compared(type(value)):  # type: ignore[arg-type]  # a type is hashable
        return {name: to_plain(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {key: to_plain(inner) for key, inner in value.items()}
    if isinstance(value, tuple | list | frozenset):
        return [to_plain(inner) for inner in (sorted(value) if isinstance(value, frozenset) else value)]
    return str(value) if isinstance(value, str | PurePath) else value


@cache
def _compared(kind: type) -> tuple[str, ...]:
    """Returns the names of the fields of a dataclass that comparisons look at; none for other types."""
    return tuple(field.name for field in dataclasses.fields(kind) if field.compare) if dataclasses.is_dataclass(kind) else ()


def from_plain(data: object, kind: type[T]) -> T:
    """Converts the output of :func:`to_plain` back to a dataclass, or checks data against a typed dictionary.

    A typed dictionary may have more keys. A TypeError names the place, the value, and what was expected.
    """
    from pydantic_core import ValidationError

    validator, names = _validator(kind)  # type: ignore[arg-type]  # a type is hashable
    try:
        return cast("T", validator.validate_python(data))
    except ValidationError as error:
        problems = error.errors(include_url=False)
        problem = next((item for item in problems if item["type"] != "missing"), problems[0])  # a misspelt key before its absence
        raise TypeError(_in_words(problem, kind, names)) from None


def prepare(kind: type) -> None:
    """Prepares :func:`from_plain` for a type, which takes a fraction of a second and opens files."""
    _validator(kind)


_EXPECTED = {
    "text": ("string",),
    "true or false": ("bool",),
    "a whole number of 0 or more": ("int", "greater"),
    "a number or null": ("float",),
    "a list": ("list", "tuple", "frozen"),
    "an object": ("dict", "mapping", "dataclass"),
    "nothing: no file holds such a thing": ("is",),
}
"""What was expected, by the prefix of pydantic's error types."""


def _in_words(problem: Mapping[str, Any], kind: type, names: Collection[str]) -> str:
    """Returns a problem with its place in front, ``measures[0].value of the record``."""
    place, what, value = list(problem["loc"]), str(problem["type"]), f"{problem['input']!r:.100}"
    if what == "unexpected_keyword_argument":
        key = str(place.pop())[:100]
        said = f"has the unknown key {key!r}.{did_you_mean(key, names) or ' It is of another release'}"
    elif what == "missing":
        said = "is absent"
    elif what == "enum":
        said = f"is {value}, expected one of {problem['ctx']['expected'].replace(chr(39), '').replace(' or ', ', ')}"
    else:
        expected = (text for text, words in _EXPECTED.items() if what.partition("_")[0] in words)
        said = f"is {value}, expected {next(expected, problem['msg'])}"
    steps = "".join(f".{step}" if step in names else f"[{step!r:.100}]" for step in place).removeprefix(".")
    subject = f"the {kind.__name__.lower()}"
    return f"{steps} of {subject} {said}" if place else f"{subject} {said}"


@cache
def _validator(kind: type) -> tuple[SchemaValidator, frozenset[str]]:
    """Returns the validator of a type, and the names of all its fields."""
    from pydantic_core import SchemaValidator

    schema = core_schema(kind)
    return SchemaValidator(schema), frozenset(_field_names(schema))


def core_schema(kind: Any) -> CoreSchema:
    """Returns pydantic's schema of a type in a strict form.

    Texts are not numbers, no key is ignored, every field is required, and ``null`` is NaN.
    """
    from pydantic import TypeAdapter

    schema = TypeAdapter(kind).core_schema
    _make_strict(schema)
    return schema


def _make_strict(schema: Any, *, in_union: bool = False) -> None:
    if isinstance(schema, dict):
        kind = schema.get("type")
        schema |= _stricter(schema, in_union=in_union)
        in_union = in_union or kind == "union"
        schema = [part for name, part in schema.items() if name != "metadata"] if kind != "float" else []
    for part in schema if isinstance(schema, list | tuple) else ():
        _make_strict(part, in_union=in_union)


def _stricter(schema: Mapping[str, Any], *, in_union: bool) -> dict[str, Any]:
    """Returns the changes for a part of a schema."""
    undefined = {"type": "nullable", "schema": {"type": "float", "strict": True}}
    changes: dict[str, dict[str, Any]] = {
        "int": {"strict": True, "ge": 0},
        "bool": {"strict": True},
        "float": {"type": "function-after", "schema": undefined, "function": {"type": "no-info", "function": _nan_of_null}},
        "union": {"custom_error_type": "union_type", "custom_error_message": "one of several types"},
        "dataclass-args": {"extra_behavior": "forbid"},
    }
    kind = str(schema.get("type"))
    if kind == "float" and in_union:
        return {"strict": True}
    if kind == "dataclass-field" and schema["schema"]["type"] == "default":
        return {"schema": schema["schema"]["schema"]}
    return changes.get(kind, {})


def _nan_of_null(value: float | None) -> float:
    return math.nan if value is None else value


def _field_names(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        yield from schema["fields"] if schema.get("type") in ("dataclass", "typed-dict") else ()
        schema = list(schema.values())
    for part in schema if isinstance(schema, list) else ():
        yield from _field_names(part)
