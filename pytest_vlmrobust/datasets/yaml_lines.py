"""YAML with the line of every value, so that a refusal can say where."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from pytest_vlmrobust.core.errors import DatasetError

Lines = Mapping[tuple[str | int, ...], int]
"""The keys and positions that lead to a value, to the line on which it is written, from 1."""


def load_yaml(path: Path) -> tuple[Any, Lines]:
    """Returns what a file says, and where.

    Raises:
        DatasetError: it cannot be read, is not YAML, or has a key twice.
    """
    try:
        text = path.read_text(encoding="utf-8")
        node = yaml.compose(text, yaml.CSafeLoader)
        value = yaml.load(text, yaml.CSafeLoader)
    except OSError as error:
        raise DatasetError(f"{path} cannot be read: {error.strerror or error}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise DatasetError(f"{path} is not YAML: {error}") from error
    lines: dict[tuple[str | int, ...], int] = {}
    for at, line in _lines(node, ()):
        if at in lines:
            raise DatasetError(f"{path}:{line}, {_dotted(at)} is written twice, first in line {lines[at]}. Keep one of them")
        lines[at] = line
    return value, lines


def place(path: Path, lines: Lines, at: tuple[str | int, ...]) -> str:
    """Returns ``file:line, keys`` of a value, or of the nearest thing around it that is written."""
    line = next((lines[at[:end]] for end in range(len(at), 0, -1) if at[:end] in lines), 1)
    return f"{path}:{line}, {_dotted(at) or 'the file'}"


def _dotted(at: tuple[str | int, ...]) -> str:
    return ".".join(str(part) for part in at)


def _lines(node: Any, at: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], int]]:
    if isinstance(node, yaml.MappingNode):
        for key, child in node.value:
            yield (*at, key.value), key.start_mark.line + 1
            yield from _lines(child, (*at, key.value))
    elif isinstance(node, yaml.SequenceNode):
        for number, child in enumerate(node.value):
            yield (*at, number), child.start_mark.line + 1
            yield from _lines(child, (*at, number))
