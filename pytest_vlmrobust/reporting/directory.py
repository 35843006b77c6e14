"""The directory of a report: it belongs to one run at a time and contains nothing of an earlier run."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from pytest_vlmrobust.core.decision import Decision
from pytest_vlmrobust.core.errors import StoreError, UsageError
from pytest_vlmrobust.core.words import first_few
from pytest_vlmrobust.store import Evidence, read_manifest, write_manifest
from pytest_vlmrobust.store.database import FILE_NAME as EVIDENCE
from pytest_vlmrobust.store.journal import FILE_NAME as JOURNAL
from pytest_vlmrobust.store.run_directory import BASELINE, DOCKET_FILE, POLICIES, store_of
from pytest_vlmrobust.store.run_directory import MANIFEST_FILE as MANIFEST

from . import junit, results
from .files import REPORT, RunFiles, write_report
from .markdown import MODEL_CARD, SUMMARY
from .ranking import FILES as RANKING_FILES

if TYPE_CHECKING:
    from filelock import BaseFileLock

NAMES = (
    SUMMARY,
    REPORT,
    MODEL_CARD,
    junit.FILE_NAME,
    results.CSV_FILE,
    *RANKING_FILES,
    JOURNAL,
    DOCKET_FILE,
    EVIDENCE,
    results.FILE_NAME,  # last: it marks the evidence as part of a report
)
"""The files of a report except its manifest; anything else in the directory, except ``FOLDERS``, belongs to the user."""
FOLDERS = (POLICIES, BASELINE)
"""The folders of a report, which is also a run: the inputs of its verdicts."""
_OF_THE_RUN = (JOURNAL, DOCKET_FILE, EVIDENCE, *FOLDERS)
"""Files kept when a report is written again from the same records."""
_LOCK = ".vlmrobust.lock"
_UNFINISHED = ".vlm-report-"
"""Prefix of the temporary folder of an unfinished report."""


@dataclass(frozen=True)
class ReportDirectory:
    """The directory of a report, held by the run that owns it."""

    path: Path
    run_id: str
    _lock: BaseFileLock

    @classmethod
    def claim(cls, path: Path, run_id: str, option: str = "--vlm-report") -> Self:
        """Creates and locks the directory for a run, removes files of an earlier report, and writes INCOMPLETE.

        The system frees the lock when its process ends, even if it is killed. Errors name ``option``.

        Raises:
            UsageError: another run writes there, it cannot hold a report, or it is not writable.
        """
        from filelock import FileLock, Timeout

        named = f"{option} {str(path)!r}"
        _refuse_other_places(path, named)
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{named}: cannot make the directory: {error.strerror}") from None
        lock = FileLock(path / _LOCK, timeout=0)
        try:
            lock.acquire()
        except Timeout:
            raise UsageError(
                f"{named}: {_owner(path)} writes its report there, and a report belongs to one run. Wait for it, or name another "
                f"directory with {option}"
            ) from None
        except (OSError, NotImplementedError) as error:
            raise UsageError(
                f"{named}: cannot be locked against other runs: {error}. Name a directory on a local disk that can be written to"
            ) from None
        directory = cls(path, run_id, lock)
        try:
            directory._begin()
        except (OSError, StoreError) as error:
            lock.release()
            raise UsageError(f"{named}: cannot be made ready for the report of this run: {error}") from None
        return directory

    def _begin(self) -> None:
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
        owner = {"pid": os.getpid(), "host": socket.gethostname(), "since": since}
        content = {"run": self.run_id, "decision": str(Decision.INCOMPLETE), "owner": owner, "report": True}
        write_manifest(self.path, {**content, "stopped": "the run has not written its report yet, or died before it could"})
        for name in NAMES:
            (self.path / name).unlink(missing_ok=True)
        for folder in (*map(self.path.joinpath, FOLDERS), *self.path.glob(f"{_UNFINISHED}*")):
            shutil.rmtree(folder, ignore_errors=not folder.exists())

    def put(self, write: Callable[[Path], Sequence[Path]], *, as_far_as_written: bool) -> list[Path]:
        """Writes a report, replacing an earlier one of this run, and returns its files.

        ``write`` writes it into a folder; ``as_far_as_written`` keeps the written files if others fail.
        """
        with self._unfinished() as folder:
            try:
                write(folder)
            except BaseException:
                if as_far_as_written:
                    self._replace(folder)
                raise
            return self._replace(folder)

    @contextlib.contextmanager
    def _unfinished(self) -> Iterator[Path]:
        folder = self.path / f"{_UNFINISHED}{uuid.uuid4().hex}"
        folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _replace(self, folder: Path) -> list[Path]:
        """Moves the files of a folder here and removes other files of an earlier report, except those of the run."""
        for name in FOLDERS:
            if (folder / name).is_dir():
                shutil.rmtree(self.path / name, ignore_errors=True)
                (folder / name).replace(self.path / name)
        written = [name for name in (MANIFEST, *reversed(NAMES)) if (folder / name).is_file()]
        for name in NAMES:
            if name not in (*_OF_THE_RUN, *written):
                (self.path / name).unlink(missing_ok=True)
        return [(folder / name).replace(self.path / name) for name in written]

    def release(self) -> None:
        """Lets other runs have the directory; to do so twice is fine."""
        self._lock.release()


def copy_records(run: Path, directory: Path) -> list[Path]:
    """Copies the records and judge inputs of a run into its report, and returns the files that are not in a folder."""
    directory.mkdir(parents=True, exist_ok=True)
    files = [Path(shutil.copy(run / name, directory / name)) for name in (JOURNAL, DOCKET_FILE) if (run / name).is_file()]
    for name in FOLDERS:
        if (run / name).is_dir():
            shutil.copytree(run / name, directory / name, dirs_exist_ok=True)
    return files


def write_again(path: Path, run: RunFiles, option: str) -> None:
    """Writes the report of a run that was read from its directory elsewhere, so that it can be used as that run.

    Raises:
        UsageError: the directory has the report of another run, or cannot be claimed.
    """
    if _is_of_a_report(path) and (other := read_manifest(path).get("run")) != run.name:
        raise UsageError(f"{option} {str(path)!r}: has the report of run {other}. Name an empty or a new directory")
    store = os.path.relpath(store_of(run.directory, run.manifest), path)
    of_report = {"run": run.name, "report": True, "store": store}
    # Sorted as the manifest is, from which the page is made again where it is verified.
    view = replace(run, facts=replace(run.facts, origins=dict(sorted({**run.facts.origins, **of_report}.items()))))

    def write(folder: Path) -> list[Path]:
        manifest = write_manifest(folder, {**run.manifest, **of_report})
        files = [*write_report(folder, view, None), manifest, *copy_records(run.directory, folder)]
        if run.damage or not (run.directory / EVIDENCE).is_file():
            return files
        with Evidence.open(run.directory, read_only=True) as evidence:
            return [*files, evidence.copy_to(folder)]

    report = ReportDirectory.claim(path, run.name, option)
    try:
        report.put(write, as_far_as_written=False)
    finally:
        report.release()


def _refuse_other_places(path: Path, named: str) -> None:
    """Refuses a directory whose files a report must not replace: with a run, a store, or user files with these names."""
    if path.is_file():
        raise UsageError(f"{named} is a file. Name a directory")
    if (path / DOCKET_FILE).exists() and not _is_of_a_report(path):
        raise UsageError(f"{named}: an earlier run keeps its evidence there. Name a directory of its own for the report")
    there = [name for name in (*NAMES, *FOLDERS, MANIFEST) if (path / name).exists()]
    if there and not _is_of_a_report(path):
        raise UsageError(
            f"{named}: {first_few(there)} there would be replaced, and no manifest.json says that a report left it there. Name "
            "an empty or a new directory"
        )
    if folders := [name for name in there if name not in FOLDERS and (path / name).is_dir()]:
        raise UsageError(f"{named}: {first_few(folders)} there is a directory, and a report writes a file of that name")


def _is_of_a_report(path: Path) -> bool:
    try:
        manifest = read_manifest(path)
    except StoreError:
        return False
    return bool(manifest.get("report"))


def _owner(path: Path) -> str:
    """Returns the run that owns the directory, for a message."""
    try:
        manifest = read_manifest(path)
        owner = manifest["owner"]
        return f"process {owner['pid']} on {owner['host']} (run {manifest['run']}, since {owner['since']})"
    except (StoreError, KeyError, TypeError):
        return "another run, which is about to begin or to end,"
