"""Kinds of values in files of users: how each is read, and what a JSON Schema says about it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from .document import ID_PATTERN, Entry


@dataclass(frozen=True, slots=True)
class Value:
    """A kind of value: the function that reads it, which is called as the value is, and its JSON Schema."""

    read: Callable[[Entry], Any]
    schema: Mapping[str, Any]

    def __call__(self, entry: Entry) -> Any:
        """Returns the value of an entry."""
        return self.read(entry)


TEXT = Value(Entry.text, {"type": "string", "pattern": r"\S"})
VISIBLE_TEXT = Value(Entry.visible_text, TEXT.schema)
PERSON = Value(Entry.person, TEXT.schema)
IDENTIFIER = Value(Entry.identifier, {"type": "string", "pattern": f"^{ID_PATTERN}$"})
TRUTH = Value(Entry.truth, {"type": "boolean"})


def choice(kind: type[StrEnum]) -> Value:
    """Returns a member of an enumeration."""
    return Value(lambda entry: entry.choice(kind), {"enum": [str(option) for option in kind]})


def one_of(names: Iterable[str]) -> Value:
    """Returns one of several texts."""
    options = tuple(names)
    return Value(lambda entry: entry.one_of(options), {"enum": list(options)})


def text(expected: str) -> Value:
    """Returns a text that is not blank; ``expected`` says what it is in messages and to editors."""
    return Value(lambda entry: entry.text(expected), {**TEXT.schema, "description": expected})


def number(expected: str, *, low: float = -math.inf, above: float = -math.inf) -> Value:
    """Returns a finite number of at least ``low`` that is larger than ``above``."""
    ends = {"minimum": low, "exclusiveMinimum": above}
    schema = {"type": "number", "description": expected, **{key: end for key, end in ends.items() if math.isfinite(end)}}
    return Value(lambda entry: entry.number(expected, low=max(low, math.nextafter(above, math.inf))), schema)


def whole_number(expected: str, *, low: int) -> Value:
    """Returns a whole number of at least ``low``."""
    schema = {"type": "integer", "minimum": low, "description": expected}
    return Value(lambda entry: entry.whole_number(expected, low=low), schema)


def list_of(item: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """Returns the JSON Schema of a list."""
    return {"type": "array", "items": item, **more}


def one_or_more(item: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """Returns the JSON Schema of a value, or of a list of such values that is not empty."""
    return {"anyOf": [item, list_of(item, minItems=1)], **more}


def mapping(values: Mapping[str, Value], required: Sequence[str] = (), **more: Any) -> dict[str, Any]:
    """Returns the JSON Schema of a mapping with these keys and no others."""
    needed = {"required": list(required)} if required else {}
    properties = {key: value.schema for key, value in values.items()}
    return {"type": "object", "additionalProperties": False, **needed, "properties": properties, **more}


def any_keys(value: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
    """Returns the JSON Schema of a mapping from any texts to values."""
    return {"type": "object", **({"additionalProperties": value} if value else {})}
