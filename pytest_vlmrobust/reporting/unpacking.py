"""Unpacking: what is in a bundle that somebody sent, and nothing else, as far as it is what its hashes say."""

from __future__ import annotations

import hashlib
import shutil
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

from pytest_vlmrobust.core.errors import StoreError
from pytest_vlmrobust.core.fingerprint import file_digest

from .bundle import SUMS, belongs

LARGEST = 8 * 2**30
"""Bytes that a bundle may unpack to."""
RATIO = 200
"""How many times its own size a bundle may unpack to: what runs leave is packed to a fifth, at most to a fiftieth."""
SMALL = 64 * 2**20
"""Bytes that it may unpack to whatever its size."""
_EXPECTED = "Expected a ZIP file that vlmrobust bundle wrote"


def unpack(bundle: Path, folder: Path) -> list[str]:
    """Unpacks a bundle into an empty folder and checks every hash; returns, a sentence for each, what is not as it was.

    Raises:
        StoreError: it is no bundle, it is damaged or too large, or it names files outside of itself.
    """
    try:
        with zipfile.ZipFile(bundle) as archive:
            names = archive.namelist()
            _refuse_strange(bundle, names)
            known = [name for name in dict.fromkeys(names) if belongs(name)]
            _refuse_large(bundle, sum(archive.getinfo(name).file_size for name in known))
            for name in known:
                _unpack(bundle, archive, name, folder)
    except (OSError, EOFError, zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        raise StoreError(f"{bundle}: cannot be read: {error}. {_EXPECTED}") from error
    expected = _read_sums(bundle, folder)
    strange = sorted({*names, *expected} - {*known, *filter(belongs, expected)})
    return [
        *_changed(folder, {name: digest for name, digest in expected.items() if belongs(name)}),
        *(f"{name} is not in {SUMS}" for name in sorted({*known} - {*expected, SUMS})),
        *(f"{name} is no part of a bundle, and was not looked at" for name in strange),
        *(f"{name} is in it {count} times" for name, count in sorted(Counter(names).items()) if count > 1),
    ]


def _unpack(bundle: Path, archive: zipfile.ZipFile, name: str, folder: Path) -> None:
    """Writes one file; no more of it is read than it says that it holds."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with archive.open(name) as source, path.open("wb") as sink:
            shutil.copyfileobj(source, sink)
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise StoreError(f"{bundle}: {name} is damaged: {error}. Expected what vlmrobust bundle wrote, byte by byte") from error


def _refuse_large(bundle: Path, size: int) -> None:
    most = min(LARGEST, max(SMALL, RATIO * bundle.stat().st_size))
    if size > most:
        raise StoreError(f"{bundle}: would unpack to {size} bytes, and one of its size may hold {most}: nothing was unpacked")


def _refuse_strange(bundle: Path, names: Iterable[str]) -> None:
    for name in names:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or "\\" in name or name.endswith("/"):
            raise StoreError(f"{bundle}: holds {name!r}, which no bundle does: nothing was unpacked")
    if SUMS not in names:
        raise StoreError(f"{bundle}: has no {SUMS}. {_EXPECTED}")


def _read_sums(bundle: Path, folder: Path) -> dict[str, str]:
    found = {}
    for number, line in enumerate((folder / SUMS).read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        digest, space, name = line.partition("  ")
        if not space or len(digest) != hashlib.sha256().digest_size * 2 or not name:
            raise StoreError(f"{bundle}: {SUMS}:{number}: expected a SHA-256, two spaces and a name, found {line!r}")
        found[name] = digest
    return found


def _changed(folder: Path, expected: Mapping[str, str]) -> list[str]:
    said = []
    for name, digest in expected.items():
        path = folder / name
        if not path.is_file():
            said.append(f"{name} is missing")
        elif file_digest(path) != digest:
            said.append(f"{name} was changed: its SHA-256 is not the one in {SUMS}")
    return said
