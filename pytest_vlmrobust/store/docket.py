"""Docket: the file of a run that says what is judged, and the bytes of its policies beside it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from pytest_vlmrobust.core.errors import StoreError

from .atomic import replace_file

FILE_NAME = "docket.json"
POLICIES = "policies"
"""The folder with the files of the policies, byte by byte."""
BASELINE = "baseline"
"""The folder with the evidence of the run that this one was compared with."""
VERSION = 1

_KEY = "docket_version"


def write_docket(run: Path, content: Mapping[str, Any], policies: Iterable[tuple[str, str, bytes]]) -> None:
    """Writes the docket and the files of policies: the name as it is cited, the SHA-256, and the bytes of each.

    Raises:
        StoreError: they cannot be written.
    """
    text = json.dumps({**content, _KEY: VERSION}, indent=1, sort_keys=True, allow_nan=False).encode() + b"\n"
    try:
        (run / POLICIES).mkdir(parents=True, exist_ok=True)
        for name, sha256, content_of_file in policies:
            replace_file(run / POLICIES / kept_as(name, sha256), content_of_file)
        replace_file(run / FILE_NAME, text)
    except OSError as error:
        raise StoreError(f"{run}: cannot write {FILE_NAME}: {error.strerror}. Check that it is writable and has room") from error


def read_docket(run: Path) -> dict[str, Any]:
    """Returns the docket of a run.

    Raises:
        StoreError: there is none, or it is not what a run of this release wrote.
    """
    path = run / FILE_NAME
    try:
        data = json.loads(path.read_bytes())
    except OSError as error:
        raise StoreError(f"{path}: cannot read the docket: {error.strerror}. Expected the directory of a run") from error
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path}: not a docket: {error}. Expected the JSON file that a run wrote") from error
    version = data.get(_KEY) if isinstance(data, dict) else None
    if version != VERSION:
        raise StoreError(f"{path}: has {_KEY} {version!r}, and this release reads {VERSION}")
    return dict(data)


def planned_tests(run: Path) -> dict[str, str]:
    """Returns the model (or family of models) of each test that was to run, by its node id.

    There is none where the run ended before it measured anything.
    """
    try:
        docket = read_docket(run)
    except StoreError:
        return {}
    return {str(test["nodeid"]): _model(test.get("about", {})) for test in docket.get("tests", ())}


def _model(about: Mapping[str, Any]) -> str:
    return str(about.get("model") or about.get("family", ""))


def kept_as(name: str, sha256: str) -> str:
    """Returns the file below ``policies`` that holds a thresholds file: two of one name stay apart.

    >>> kept_as("thresholds/tiny.yaml", "0123456789abcdef")
    '0123456789ab-tiny.yaml'
    """
    return f"{sha256[:12]}-{PurePosixPath(name).name}"
