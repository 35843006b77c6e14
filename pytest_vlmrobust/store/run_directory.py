"""The directory of a run: manifest, ``docket.json`` with the policy files, and thumbnails; each file is written atomically."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Iterable, Mapping
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from typing_extensions import TypedDict

from pytest_vlmrobust.core.conversion import from_plain, read_json
from pytest_vlmrobust.core.decision import Allowance
from pytest_vlmrobust.core.errors import StoreError
from pytest_vlmrobust.core.fingerprint import file_digest
from pytest_vlmrobust.core.prediction import ModelRef
from pytest_vlmrobust.core.words import without_halves
from pytest_vlmrobust.store.repeatability import Repeatability
from pytest_vlmrobust.store.spending import Spending

from .gates import GateCount

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


# Atomic replacement of a file: readers see the old or the new content, even if several processes write.


def replace_file(path: Path, content: bytes | Path) -> None:
    """Writes ``content``, or the content of that file, next to ``path`` and replaces it once it is on disk.

    If it cannot be written, the old file stays.
    """
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with temporary.open("xb") as stream:
            if isinstance(content, Path):
                with content.open("rb") as source:
                    shutil.copyfileobj(source, stream)
            else:
                stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


# Whether a file is still the file that a run wrote.

LOST = "Whatever deleted or changed it must not do so during a run. Run it again: answers that the store has are not asked again"
"""The advice for a file of a run that was removed."""


def file_identity(path: Path) -> tuple[int, int] | None:
    """Returns the identity of the file at a path; ``None`` without a file."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino


def replacement(path: Path, identity: tuple[int, int] | None) -> str:
    """Returns a sentence if a path no longer leads to the file opened there; else an empty text."""
    current = file_identity(path)
    if current is not None and current == identity:
        return ""
    what = "was deleted or moved away" if current is None else "was replaced by another file"
    return f"{path}: {what} during the run. {LOST}"


_QUICK_TO_READ = 16 * 2**20
"""Bytes of a file that are read again in some hundredths of a second."""


def file_sum(path: Path) -> str:
    """Returns what a file is recognised by: its SHA-256, or where that takes long, which file it is, its size and last change."""
    status = path.stat()
    if status.st_size <= _QUICK_TO_READ:
        return file_digest(path)
    return f"{status.st_dev} {status.st_ino} {status.st_size} {status.st_mtime_ns}"


def alteration(path: Path, file_id: str) -> str:
    """Returns, as a sentence, that a path no longer holds the file with this :func:`file_sum`; empty where it does."""
    try:
        if path.exists() and not path.is_file():  # a pipe or a device might never end
            return replacement(path, None)
        if (file_sum(path) if " " in file_id else file_digest(path)) == file_id:
            return ""
    except (FileNotFoundError, NotADirectoryError):
        return replacement(path, None)
    except OSError as error:
        return f"{path}: cannot be read any more: {error.strerror}. {LOST}"
    return f"{path}: is not what this run wrote. {LOST}"


# Manifest: models, data, policy, seeds and versions of a run, in one JSON file.


MANIFEST_FILE = "manifest.json"
SCHEMA_VERSION = 1

_VERSION_KEY = "manifest_version"


class _File(TypedDict):
    name: str
    sha256: str


class _Named(TypedDict):
    id: str
    metric: str
    bound: str
    source: str


class _Rule(_Named, total=False):
    reason: str
    evidence: str


class _Waiver(TypedDict):
    id: str
    owner: str
    expires: str
    reason: str


class _Policy(TypedDict, total=False):
    sha256: str
    files: list[_File]
    rules: list[_Rule]
    waivers: list[_Waiver]


class _Settings(TypedDict, total=False):
    vlm_data: str
    vlm_dataset: list[str]
    vlm_reference: str


class Manifest(TypedDict, total=False):
    """The parts of a manifest that readers rely on, if present."""

    planned: int
    selected: int
    missing: int
    run: str
    date: str
    version: str
    python: str
    platform: str
    stopped: str
    repeats: str
    store: str
    decision: str
    commit: str
    shortfalls: list[str]
    allowances: list[Allowance]
    warnings: list[str]
    repeatability: list[Repeatability]
    settings: _Settings
    command: dict[str, Any]
    models: dict[str, dict[str, Any]]
    policies: dict[str, _Policy]
    datasets: dict[str, Any]
    perturbations: dict[str, str]
    outcomes: dict[str, int]
    spending: dict[str, Spending]
    gates: list[GateCount]


def write_manifest(directory: Path, content: Mapping[str, Any]) -> Path:
    """Writes ``manifest.json`` in place of an earlier one, and returns its path.

    ``content`` is JSON-safe; ``manifest_version`` is added. If it cannot be written, an earlier one stays.
    """
    path = directory / MANIFEST_FILE
    try:
        directory.mkdir(parents=True, exist_ok=True)
        replace_file(path, _manifest_text(content).encode())
    except OSError as error:
        raise StoreError(
            f"{path}: cannot write the manifest: {error.strerror}. Check that its directory is writable and has room"
        ) from error
    return path


def _manifest_text(content: Mapping[str, Any]) -> str:
    versioned = {**content, _VERSION_KEY: SCHEMA_VERSION}
    return without_halves(json.dumps(versioned, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)) + "\n"


def manifest_as_read(content: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a manifest with sorted keys, as it is read back after it was written."""
    return dict(json.loads(_manifest_text(content)))


def _read_json(path: Path, noun: str) -> Any:
    try:
        return read_json(path.read_bytes())
    except OSError as error:
        raise StoreError(f"{path}: cannot read the {noun}: {error.strerror}. Expected the directory of a run") from error
    except ValueError as error:
        raise StoreError(f"{path}: not a {noun}: {error}. Expected the JSON file that a run wrote") from error


def store_of(directory: Path, manifest: Mapping[str, Any]) -> Path:
    """Returns the store of a run; without a manifest that says where it is, two folders up."""
    return directory / str(manifest.get("store", Path("..", "..")))


def read_manifest(directory: Path) -> dict[str, Any]:
    """Returns the content of a run's ``manifest.json``, with its ``manifest_version``."""
    path = directory / MANIFEST_FILE
    content = _read_json(path, "manifest")
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
    """Refuses parts of a wrong type, so that their readers need not check again."""
    try:
        from_plain(content, Manifest)
    except TypeError as error:
        part = re.match(r"\w+", str(error))
        line = _line(path, part[0]) if part else 1
        raise StoreError(f"{path}:{line}: {error}. Expected the JSON file that a run wrote") from error


def _line(path: Path, name: str) -> int:
    """Returns the line on which a part begins; 1 if unknown."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return next((number for number, line in enumerate(lines, 1) if line.startswith(f'  "{name}"')), 1)


# docket.json: the inputs of the judge, with the bytes of the policies in files beside it.


DOCKET_FILE = "docket.json"
POLICIES = "policies"
"""The folder with the files of the policies, byte by byte."""
BASELINE = "baseline"
"""The folder with the evidence of the run that this one was compared with."""
VERSION = 1

_KEY = "docket_version"


class _Applied(TypedDict, total=False):
    sha256: str
    files: list[_File]
    shared_by: dict[str, int]
    mode: str


class _Planned(TypedDict):
    nodeid: str


class _Test(_Planned, total=False):
    about: dict[str, str]
    test: str
    settings: list[str]


class Docket(TypedDict, total=False):
    """The parts of ``docket.json``; a caller reports a part that it needs and does not find."""

    date: str
    latest: str
    reference: str | None
    baseline: bool
    common: bool
    attempts: bool
    models: dict[str, ModelRef]
    policies: dict[str, _Applied]
    tests: list[_Test]
    tasks: dict[str, str]
    lacking: dict[str, str]


def write_docket(run: Path, content: Mapping[str, Any], policies: Iterable[tuple[str, str, bytes]]) -> str:
    """Writes ``docket.json``, whose SHA-256 it returns, and the policy files: each as its cited name, SHA-256 and bytes."""
    text = json.dumps({**content, _KEY: VERSION}, indent=1, sort_keys=True, allow_nan=False).encode() + b"\n"
    try:
        (run / POLICIES).mkdir(parents=True, exist_ok=True)
        for name, sha256, content_of_file in policies:
            replace_file(run / POLICIES / policy_file_name(name, sha256), content_of_file)
        replace_file(run / DOCKET_FILE, text)
    except OSError as error:
        raise StoreError(
            f"{run}: cannot write {DOCKET_FILE}: {error.strerror}. Check that it is writable and has room"
        ) from error
    return hashlib.sha256(text).hexdigest()


def read_docket(run: Path) -> dict[str, Any]:
    """Returns the content of ``docket.json`` of a run."""
    path = run / DOCKET_FILE
    data = _read_json(path, "docket")
    version = data.get(_KEY) if isinstance(data, dict) else None
    if version != VERSION:
        raise StoreError(f"{path}: has {_KEY} {version!r:.100}, and this release reads {VERSION}")
    try:
        from_plain(data, Docket)
    except TypeError as error:
        raise StoreError(f"{path}: is not what a run wrote: {error}") from error
    return dict(data)


def planned_tests(run: Path) -> dict[str, str]:
    """Returns the model (or family of models) of each test that was to run, by its node id.

    There is none where the run ended before it measured anything.
    """
    if not (run / DOCKET_FILE).exists():
        return {}
    docket = read_docket(run)
    return {str(test["nodeid"]): _model(test.get("about", {})) for test in docket.get("tests", ())}


def _model(test: Mapping[str, Any]) -> str:
    return str(test.get("model") or test.get("family", ""))


def policy_file_name(name: str, sha256: str) -> str:
    """Returns the file below ``policies`` that holds a thresholds file: two of one name stay apart.

    >>> policy_file_name("thresholds/tiny.yaml", "0123456789abcdef")
    '0123456789ab-tiny.yaml'

    A digest that somebody made up leads to no other folder:

    >>> policy_file_name("passwd", "/etc/")
    '-passwd'
    """
    return PurePosixPath(f"{sha256[:12]}-{PurePosixPath(name).name}").name


# Thumbnails of the images that models saw, each stored once, named by the digest of its pixels.


FOLDER = "pictures"
"""The folder of a store directory that they stand in."""
LONG_EDGE = 320
"""Pixels of the longer side at most; smaller images are kept as large as they are."""

_QUALITY = 80


class Pictures:
    """A folder of WebP files that any number of processes may fill at once.

    A file is written whole or not at all, and its name identifies the image: a process that finds it writes nothing.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def has(self, digest: str) -> bool:
        """Whether there is a thumbnail of the pixels with this digest."""
        return (self.directory / file_name(digest)).is_file()

    def add(self, digest: str, image: NDArray[np.uint8]) -> None:
        """Writes the thumbnail of ``image``, uint8 RGB of shape (H, W, 3), unless it is there already."""
        path = self.directory / file_name(digest)
        if path.is_file():
            return
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            replace_file(path, encode_thumbnail(image))
        except OSError as error:
            raise StoreError(
                f"{path}: cannot write the thumbnail: {error.strerror}. Check that its directory is writable and has room"
            ) from error


def file_name(digest: str) -> str:
    """Returns the name of the thumbnail of the pixels with this digest."""
    return f"{digest}.webp"


def encode_thumbnail(image: NDArray[np.uint8]) -> bytes:
    """Returns the WebP file of a thumbnail of ``image``, uint8 RGB of shape (H, W, 3)."""
    from PIL import Image

    picture, stream = Image.fromarray(image), BytesIO()
    picture.thumbnail((LONG_EDGE, LONG_EDGE), Image.Resampling.LANCZOS, reducing_gap=2.0)
    picture.save(stream, "WEBP", quality=_QUALITY, method=2)
    return stream.getvalue()
