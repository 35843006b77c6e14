"""Bundle: a run as a single verifiable file: records, answers, applied policies, and the SHA-256 of each."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import zip_longest
from pathlib import Path, PurePosixPath

from pytest_vlmrobust.core.errors import StoreError, did_you_mean, files_beside
from pytest_vlmrobust.core.fingerprint import file_digest
from pytest_vlmrobust.core.words import without_halves
from pytest_vlmrobust.evaluation.judge.judge_inputs import applied_policies, changed_policies
from pytest_vlmrobust.store import Evidence
from pytest_vlmrobust.store.database import FILE_NAME as EVIDENCE
from pytest_vlmrobust.store.journal import FILE_NAME as JOURNAL
from pytest_vlmrobust.store.quarantine import refuse_endless
from pytest_vlmrobust.store.run_directory import BASELINE, POLICIES, read_docket
from pytest_vlmrobust.store.run_directory import DOCKET_FILE as DOCKET
from pytest_vlmrobust.store.run_directory import MANIFEST_FILE as MANIFEST

from . import ranking, results
from .files import REPORT, WRITERS, RunFiles, ranked, read_run
from .html.page import rendered_again
from .writing import write_out

SUMS = "SHA256SUMS"
_WRITTEN = (MANIFEST, DOCKET, JOURNAL)
"""Files that the run wrote, and that are in the bundle unchanged."""
_DATE = (1980, 1, 1, 0, 0, 0)
"""The earliest date in a ZIP file, fixed so that equal content gives equal bytes."""
_UNIX = 3
_MODE = 0o644 << 16
_CHUNK = 2**20
_DERIVED = (*WRITERS, *ranking.FILES)
_JSON = (results.FILE_NAME, ranking.JSON_FILE)
_NAMES = {SUMS, EVIDENCE, f"{BASELINE}/{EVIDENCE}", *_WRITTEN, REPORT, *_DERIVED}


def write_bundle(run: Path, out: Path) -> list[str]:
    """Writes the bundle of a run atomically; the same run gives the same bytes. Returns its sorted file names.

    Raises:
        StoreError: the run lacks a file that a verification needs, or it cannot be read.
        OSError: the bundle cannot be written.
    """
    with tempfile.TemporaryDirectory(prefix="vlmrobust-") as folder:
        staged = Path(folder)
        _stage(run, staged)
        names = _files(staged)
        sums = "".join(f"{file_digest(staged / name)}  {name}\n" for name in names)
        (staged / SUMS).write_text(sums, encoding="utf-8", newline="\n")
        packed = staged / "bundle"
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            for name in sorted([*names, SUMS]):
                _add(archive, staged / name, name)
        write_out(out, packed)
        return sorted([*names, SUMS])


_LONGEST_NAME = 255


def belongs(name: str) -> bool:
    """Whether a bundle may hold a file of that name; no file system takes longer names."""
    folder, _, file = name.partition("/")
    return name in _NAMES or (folder == POLICIES and 0 < len(file.encode()) <= _LONGEST_NAME and "/" not in file)


def derived_files(run: RunFiles) -> dict[str, str]:
    """Returns the files of a run that are derived from its records and, for several models, its answers, by name."""
    of_models = ranking.ranking_files(run.facts.ranking) if run.facts.ranking else {}
    return {
        name: without_halves(text) for name, text in ({name: text(run) for name, text in WRITERS.items()} | of_models).items()
    }


def underivable_claims(run: RunFiles) -> list[str]:
    """Returns a sentence for the decision of an unpacked bundle, and each file in it, that does not follow from its evidence.

    The images on the page are not compared: a bundle lacks them.
    """
    problems = []
    run = ranked(run)
    claimed = run.manifest.get("decision", str(run.decision))
    if claimed != str(run.decision):
        problems.append(f"the run decided {claimed}, and its records give {run.decision}")
    there = [name for name in (*_DERIVED, REPORT) if (run.directory / name).is_file()]
    derived = derived_files(run)
    for name in there:
        written = (run.directory / name).read_bytes()
        text = written.decode("utf-8", "surrogateescape")
        again = without_halves(rendered_again(text, run)) if name == REPORT else derived.get(name, "")
        if name in _JSON:
            problems += [] if results.same_json(written, again) else [f"{name} is not what the records give"]
        elif text != again:
            problems.append(f"{name} is not what the records give: {_first_difference(text, again)}")
    return problems


_EXCERPT = 60
"""Characters shown of each of two texts that differ."""


def _first_difference(written: str, again: str) -> str:
    lines = zip_longest(written.split("\n"), again.split("\n"))
    number, pair = next((number, pair) for number, pair in enumerate(lines, 1) if pair[0] != pair[1])
    at = next((place for place, (a, b) in enumerate(zip_longest(*(line or "" for line in pair))) if a != b), 0)
    begin = max(0, at - _EXCERPT // 3)
    shown, expected = ("the end of the file" if line is None else repr(line[begin:][:_EXCERPT]) for line in pair)
    return f"line {number} has {shown} in place of {expected}"


def _stage(run: Path, staged: Path) -> None:
    read = ranked(read_run(run))
    for name in _WRITTEN:
        _copy(run / name, staged / name)
    if lost := changed_policies(run):
        raise StoreError(f"{run}: {lost[0]}. Its bundle could not be verified: bundle another copy of the run, or run it again")
    for name in sorted(applied_policies(run)):
        _copy(run / POLICIES / name, staged / POLICIES / name)
    _copy_evidence(run, staged)
    if (run / BASELINE / EVIDENCE).is_file() or read_docket(run).get("baseline"):
        _copy_evidence(run / BASELINE, staged / BASELINE)
    if (run / REPORT).is_file():
        _copy(run / REPORT, staged / REPORT)
    for name, text in derived_files(read).items():
        (staged / name).write_bytes(text.encode())


def _copy(path: Path, to: Path) -> None:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise StoreError(
            f"{path}: cannot be read: {error.strerror}. Expected the directory of a run that measured, .vlmrobust/runs/RUN"
        ) from error
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_bytes(content)


def _copy_evidence(source: Path, target: Path) -> None:
    with Evidence.open(source, read_only=True) as evidence:
        evidence.copy_to(target)


def _files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def _add(archive: zipfile.ZipFile, path: Path, name: str) -> None:
    entry = zipfile.ZipInfo(name, _DATE)
    entry.compress_type, entry.create_system, entry.external_attr = zipfile.ZIP_DEFLATED, _UNIX, _MODE
    entry.file_size = path.stat().st_size
    with path.open("rb") as source, archive.open(entry, "w") as sink:
        while chunk := source.read(_CHUNK):
            sink.write(chunk)


# Unpacking a foreign bundle: only files named in its hashes.


RATIO = 200
"""The largest unpacking ratio: real runs compress to a fifth, at most to a fiftieth."""
SMALL = 64 * 2**20
"""Bytes that it may always unpack to."""
_EXPECTED = "Expected a ZIP file that vlmrobust bundle wrote"


def unpack(bundle: Path, folder: Path) -> list[str]:
    """Unpacks a bundle into an empty folder and checks every hash; returns a sentence for each difference.

    Raises:
        StoreError: it is no bundle, it is damaged or too large, or it names files outside of itself.
    """
    refuse_endless(bundle)
    try:
        with zipfile.ZipFile(bundle) as archive:
            names = archive.namelist()
            _refuse_strange(bundle, names)
            _refuse_packing(bundle, archive)
            allowed = [name for name in dict.fromkeys(names) if belongs(name)]
            _refuse_large(bundle, sum(archive.getinfo(name).file_size for name in allowed))
            for name in allowed:
                _unpack(bundle, archive, name, folder)
    except OSError as error:
        hint = "" if bundle.exists() else did_you_mean(str(bundle), files_beside(bundle))
        raise StoreError(f"{bundle}: cannot be read: {error.strerror or error}.{hint} {_EXPECTED}") from error
    except (EOFError, zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError) as error:
        raise StoreError(f"{bundle}: cannot be read: {error}. {_EXPECTED}") from error
    expected = _read_sums(bundle, folder)
    strange = sorted({*names, *expected} - {*allowed, *filter(belongs, expected)})
    return [
        *_digest_problems(folder, {name: digest for name, digest in expected.items() if belongs(name)}),
        *(f"{name} is not in {SUMS}" for name in sorted({*allowed} - {*expected, SUMS})),
        *(f"{name} does not belong in a bundle, and was not checked" for name in strange),
        *(f"{name} is in it {count} times" for name, count in sorted(Counter(names).items()) if count > 1),
    ]


def _unpack(bundle: Path, archive: zipfile.ZipFile, name: str, folder: Path) -> None:
    """Writes a file, reading at most its declared size."""
    path = folder / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with archive.open(name) as source, path.open("wb") as sink:
            shutil.copyfileobj(source, sink)
    except OSError as error:
        raise StoreError(f"{bundle}: cannot unpack {name!r} into {folder}: {error.strerror or error}") from error
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise StoreError(f"{bundle}: {name} is damaged: {error}. Expected what vlmrobust bundle wrote, byte by byte") from error


def _refuse_packing(bundle: Path, archive: zipfile.ZipFile) -> None:
    """Refuses ways of packing that no bundle uses: each is a decoder more that a stranger's bytes reach."""
    for entry in archive.infolist():
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise StoreError(f"{bundle}: {entry.filename!r} is packed by method {entry.compress_type}. {_EXPECTED}")


def _refuse_large(bundle: Path, size: int) -> None:
    most = max(SMALL, RATIO * bundle.stat().st_size)
    if size > most:
        raise StoreError(
            f"{bundle}: would unpack to {size} bytes, more than the {most} that a file of its size may hold: nothing was unpacked"
        )


def _refuse_strange(bundle: Path, names: Iterable[str]) -> None:
    for name in names:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or "\\" in name or name.endswith("/"):
            raise StoreError(f"{bundle}: holds {name!r}, which no bundle holds: nothing was unpacked")
    if SUMS not in names:
        raise StoreError(f"{bundle}: has no {SUMS}. {_EXPECTED}")


def _read_sums(bundle: Path, folder: Path) -> dict[str, str]:
    sums = {}
    for number, line in enumerate((folder / SUMS).read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        digest, space, name = line.partition("  ")
        if not space or len(digest) != hashlib.sha256().digest_size * 2 or not name:
            raise StoreError(f"{bundle}: {SUMS}:{number}: expected a SHA-256, two spaces and a name, found {line!r}")
        sums[name] = digest
    return sums


def _digest_problems(folder: Path, expected: Mapping[str, str]) -> list[str]:
    problems = []
    for name, digest in expected.items():
        path = folder / name
        if not path.is_file():
            problems.append(f"{name} is missing")
        elif file_digest(path) != digest:
            problems.append(f"{name} was changed: its SHA-256 is not the one in {SUMS}")
    return problems
