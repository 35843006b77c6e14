"""Journal: the records of a run as they come in, one JSON line each, written before the next test begins."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from pytest_vlmrobust.core.errors import StoreError
from pytest_vlmrobust.core.fingerprint import file_digest
from pytest_vlmrobust.core.record import Record

from .run_directory import LOST, file_identity, replacement

FILE_NAME = "records.jsonl"
_SECONDS_UNSYNCED = 1.0
"""For how long at most records wait for the disk while others come in."""


class Journal:
    """An append-only ``records.jsonl`` with one writer.

    A record outlives this process when :meth:`append` returns, and the machine when :meth:`sync` does, or an append a second
    later: to wait for the disk after each test takes longer than to judge it from a full store.

    A line counts when it ends with a newline: what a killed writer left behind it is cut off when the journal is opened again.
    What cannot be written is a ``StoreError``.
    """

    def __init__(self, directory: Path) -> None:
        """Opens the journal of a run directory, and creates both."""
        self.path = directory / FILE_NAME
        self._lock = threading.Lock()
        try:
            directory.mkdir(parents=True, exist_ok=True)
            _cut_torn_line(self.path)
            self._sum = hashlib.sha256(self.path.read_bytes() if self.path.exists() else b"")
            self._stream = self.path.open("ab")
            self._identity = file_identity(self.path)
            self._synced = time.monotonic()
        except OSError as error:
            raise _unusable(self.path, "open", error) from error

    def append(self, record: Record) -> None:
        """Writes a record, and waits for the disk where it has not for a second."""
        line = record.to_json().encode() + b"\n"
        try:
            with self._lock:
                self._stream.write(line)
                self._stream.flush()
                self._sum.update(line)
                if time.monotonic() - self._synced > _SECONDS_UNSYNCED:
                    self._sync()
        except OSError as error:
            raise _unusable(self.path, "write", error) from error

    def sync(self) -> None:
        """Waits until all records are on disk."""
        try:
            with self._lock:
                self._sync()
        except OSError as error:
            raise _unusable(self.path, "write", error) from error

    def damage(self) -> str:
        """Returns, as a sentence, that the file on disk is not what was written to it; empty where it is."""
        if gone := replacement(self.path, self._identity):
            return gone
        try:
            same = file_digest(self.path) == self._sum.hexdigest()
        except OSError as error:
            return f"{self.path}: the journal cannot be read any more: {error.strerror}. {LOST}"
        return "" if same else f"{self.path}: its records are not the ones that this run wrote. {LOST}"

    def _sync(self) -> None:
        os.fsync(self._stream.fileno())
        self._synced = time.monotonic()

    def close(self) -> None:
        """Closes the journal; closing twice is fine."""
        with self._lock, contextlib.suppress(OSError):  # append and sync have already raised for whatever could not be written
            self._stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def read_journal(directory: Path) -> list[Record]:
    """Returns the records of a run in the order of writing, without a last line that was torn.

    A test that ran again has several records; the last one holds. A whole line that is no record is a StoreError.
    """
    path = directory / FILE_NAME
    try:
        lines = path.read_bytes().split(b"\n")[:-1]
    except OSError as error:
        raise _unusable(path, "read", error) from error
    return [_read_line(path, number, line) for number, line in enumerate(lines, start=1)]


def last_records(directory: Path) -> list[Record]:
    """Returns one record for each test of a run, in the order in which tests first ended: the last one."""
    return list({record.key: record for record in read_journal(directory)}.values())


class JournalReader:
    """The records of a run that may still go on: each call reads what was written since the last one."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / FILE_NAME
        self._identity: tuple[int, int] | None = None
        self._read = 0
        self._lines = 0
        self._records: dict[str, Record] = {}
        self._lock = threading.Lock()

    def records(self) -> list[Record]:
        """Returns one record for each test, the last one, in the order in which these were written."""
        with self._lock:
            try:
                with self.path.open("rb") as stream:
                    status = os.fstat(stream.fileno())
                    if (status.st_dev, status.st_ino) != self._identity or status.st_size < self._read:
                        self._identity, self._read, self._lines, self._records = (status.st_dev, status.st_ino), 0, 0, {}
                    stream.seek(self._read)
                    new = stream.read()
            except OSError as error:
                raise _unusable(self.path, "read", error) from error
            whole = new[: new.rfind(b"\n") + 1]
            lines = whole.split(b"\n")[:-1]
            for record in [_read_line(self.path, number, line) for number, line in enumerate(lines, self._lines + 1)]:
                self._records.pop(record.key, None)
                self._records[record.key] = record
            self._read += len(whole)
            self._lines += len(lines)
            return list(self._records.values())


def _read_line(path: Path, number: int, line: bytes) -> Record:
    try:
        return Record.from_json(line)
    except (ValueError, TypeError, RecursionError) as error:
        raise StoreError(
            f"{path}:{number}: not a record of this release: {error}. "
            f"Read it with the release that wrote it, or delete the line if it was edited by hand"
        ) from error


def _cut_torn_line(path: Path) -> None:
    if not path.exists():
        return
    with path.open("r+b") as stream:
        content = stream.read()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            stream.truncate(whole)


def _unusable(path: Path, doing: str, error: OSError) -> StoreError:
    advice = "Expected the directory of a run" if doing == "read" else "Check that its directory exists, is writable and has room"
    return StoreError(f"{path}: cannot {doing} the journal: {error.strerror}. {advice}")
