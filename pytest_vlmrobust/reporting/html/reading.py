"""Reading: values out of a manifest, which is a file and may hold anything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def mapping(value: object) -> Mapping[str, Any]:
    """Returns a JSON object; an empty one in place of anything else."""
    return value if isinstance(value, Mapping) else {}


def objects(value: object) -> list[Mapping[str, Any]]:
    """Returns the objects of a JSON list; none in place of anything else."""
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list | tuple) else []


def flat(value: object, path: str = "") -> Iterator[tuple[str, str]]:
    """Yields every value of a JSON document with the path to it: ``models.tiny.fingerprint.dtype``.

    >>> list(flat({"a": {"b": 1}, "c": [2, 3], "d": None}))
    [('a.b', '1'), ('c', '2, 3'), ('d', 'none')]
    """
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from flat(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple) and any(isinstance(item, Mapping | list | tuple) for item in value):
        for index, item in enumerate(value, 1):
            yield from flat(item, f"{path}.{index}")
    else:
        yield path, spelled(value)


def spelled(value: object) -> str:
    """Returns a JSON value as words."""
    if isinstance(value, list | tuple):
        return ", ".join(map(spelled, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None or value == "" else str(value)
