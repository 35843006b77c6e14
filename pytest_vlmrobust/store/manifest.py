"""Manifest: what a run was made of, in one JSON file that is either the old one or the new one, never half of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_vlmrobust.core.errors import StoreError
from pytest_vlmrobust.core.printing import without_halves

from .atomic import replace_file

FILE_NAME = "manifest.json"
SCHEMA_VERSION = 1

_VERSION_KEY = "manifest_version"
_EXPECTED: dict[type, str] = {int: "a whole number that is not negative", str: "text", list: "a list", dict: "an object"}
_PARTS: dict[str, type] = {
    **dict.fromkeys(("planned", "selected", "missing"), int),
    **dict.fromkeys(("run", "date", "version", "python", "platform", "stopped", "repeats", "store", "decision"), str),
    **dict.fromkeys(("shortfalls", "repeatability"), list),
    **dict.fromkeys(("settings", "command", "models", "policies", "datasets", "outcomes"), dict),
}
"""What readers count on, where a manifest has it."""


def write_manifest(directory: Path, content: Mapping[str, Any]) -> Path:
    """Writes ``manifest.json`` in place of an earlier one, and returns its path.

    Args:
        directory: The run directory; created if it is not there.
        content: JSON-safe values; digests, seeds, versions, device. ``manifest_version`` is added.

    Raises:
        StoreError: the file cannot be written; an earlier one is left as it was.
        TypeError, ValueError: ``content`` is not JSON-safe; nothing is written.
    """
    text = json.dumps({**content, _VERSION_KEY: SCHEMA_VERSION}, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    path = directory / FILE_NAME
    try:
        directory.mkdir(parents=True, exist_ok=True)
        replace_file(path, without_halves(text).encode() + b"\n")
    except OSError as error:
        raise StoreError(
            f"{path}: cannot write the manifest: {error.strerror}. Check that its directory is writable and has room"
        ) from error
    return path


def read_manifest(directory: Path) -> dict[str, Any]:
    """Returns the content of a run's ``manifest.json``, with its ``manifest_version``.

    Raises:
        StoreError: there is none, it is no manifest, or it is of a newer release.
    """
    path = directory / FILE_NAME
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise StoreError(f"{path}: cannot read the manifest: {error.strerror}. Expected the directory of a run") from error
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path}: not a manifest: {error}. Expected the JSON file that a run wrote") from error
    version = content.get(_VERSION_KEY) if isinstance(content, dict) else None
    if not isinstance(version, int) or isinstance(version, bool):
        raise StoreError(f"{path}: not a manifest: it has no {_VERSION_KEY!r}. Expected the JSON file that a run wrote")
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"{path}: the manifest has version {version}, and this release reads version {SCHEMA_VERSION}. "
            "Upgrade pytest-vlmrobust"
        )
    _check_types(path, content)
    return dict(content)


def _check_types(path: Path, content: Mapping[str, Any]) -> None:
    """Refuses parts that are not what they are in every manifest: who reads them does not ask again."""
    for name, kind in _PARTS.items():
        value = content.get(name, kind())
        if not isinstance(value, kind) or isinstance(value, bool) or (isinstance(value, int) and value < 0):
            raise StoreError(
                f"{path}:{_line(path, name)}: {name!r} is {json.dumps(value):.100}, expected {_EXPECTED[kind]}. "
                "Expected the JSON file that a run wrote"
            )


def _line(path: Path, name: str) -> int:
    """Returns the line on which a part begins, 1 where nobody knows."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return next((number for number, line in enumerate(lines, 1) if line.startswith(f'  "{name}"')), 1)
