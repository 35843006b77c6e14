"""Types of fields: whether what was read from a file is what a dataclass says."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_EACH = ("tuple[", ", ...]")


def check_types(instance: DataclassInstance) -> None:
    """Looks whether each field holds what it is annotated with: annotations are texts, and those in ``_HOLDS`` are known.

    Raises:
        TypeError: one does not; names the field, the value, and what was expected.
    """
    for one in dataclasses.fields(instance):
        value, kind = getattr(instance, one.name), str(one.type)
        if dataclasses.is_dataclass(_first(value)):
            for part in value:
                check_types(part)
        elif not _holds(value, kind):
            raise TypeError(f"{one.name} of the {type(instance).__name__.lower()} is {value!r:.100}, expected {kind}")


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, tuple) and value else None


def _holds(value: Any, kind: str) -> bool:
    if kind.startswith(_EACH[0]):
        inner = kind.removeprefix(_EACH[0]).removesuffix(_EACH[1])
        return isinstance(value, tuple) and all(_holds(part, inner) for part in value)
    return _HOLDS[kind](value) if kind in _HOLDS else type(value).__name__ == kind


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_object_of(holds: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, dict) and all(_is_text(key) and holds(one) for key, one in value.items())


_HOLDS: dict[str, Callable[[Any], bool]] = {
    "str": _is_text,
    "int": _is_count,
    "int | None": lambda value: value is None or _is_count(value),
    "float": _is_number,
    "dict[str, str]": _is_object_of(_is_text),
    "dict[str, float]": _is_object_of(_is_number),
}
"""Annotation to whether a value is such; numbers of things are never negative."""
