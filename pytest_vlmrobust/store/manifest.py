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
    return dict(content)
