"""Copying: a store that is filled on a local disk, and its copy in a directory that other machines see."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from pytest_vlmrobust.core.errors import StoreError

from .database import FILE_NAME, STORE, connect, explain_errors
from .merging import merge_stores
from .predictions import Store
from .run_directory import file_identity, replace_file

_COPY = replace(
    STORE,
    called="copy",
    damaged="The file is damaged: move it away, or name another directory with --copy-to",
    absent="Move it away, or name another directory with --copy-to",
    elsewhere="name another directory with --copy-to",
)
"""The same file, with advice for who fills."""
_LOCK_SECONDS = 30.0
"""Seconds that a process waits for another that copies to the same directory, which may hang in a network file system."""


class StoreCopy:
    """A copy of a store that is in use. Each file of it is replaced as a whole: a kill at any moment leaves a good copy.

    Several processes may have the same directory: the copy then holds the answers of all.
    """

    def __init__(self, store: Path, directory: Path) -> None:
        """Remembers both directories; nothing is opened yet.

        The store is on a local disk, and a running pytest may write to it; the directory of the copy may be on any file system.
        """
        self.store = store
        self.directory = directory
        self._identity: tuple[int, int] | None = None
        """The identity of the last copy, and its number of answers:"""
        self._answers = 0
        self._copied = 0
        """The number of answers in the store at the last copy."""
        self._is_shared = False
        """Whether another process copies to the same directory."""

    def restore(self) -> int:
        """Puts the copy of an earlier process into the store, which has no answers yet; returns how many answers it has."""
        with explain_errors(self.directory / FILE_NAME, "write", _COPY):  # rather than after hours
            self.directory.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=self.directory).close()
        with self._locked():
            for rest in self.directory.glob(f".{FILE_NAME}.*"):  # of a process that was killed while it copied
                rest.unlink(missing_ok=True)
            self._look()
            with explain_errors(self.store, "write"):
                _copy_small_files(self.directory, self.store)
                if self._identity is not None:
                    shutil.copyfile(self.directory / FILE_NAME, self.store / FILE_NAME)
        if self._identity is not None:
            with Store.open(self.store) as store:
                store.release_all()  # their owner is on another machine, where its end is not visible
        self._copied = self._answers
        return self._answers

    def update(self) -> int:
        """Copies the answers of the store, keeping those of other processes in the copy; returns its number of answers.

        If it fails, the earlier copy is kept.
        """
        if not (self.store / FILE_NAME).is_file():
            self._look()
            return self._answers
        with tempfile.TemporaryDirectory(dir=self.store.parent) as scratch:
            with Store.open(self.store, read_only=True) as live:
                snapshot = live.copy_to(Path(scratch))  # on a local disk: no locks of SQLite are needed elsewhere
            with Store.open(snapshot.parent, read_only=True) as whole:
                answers = len(whole)
            with explain_errors(self.directory / FILE_NAME, "write", _COPY):
                self.directory.mkdir(parents=True, exist_ok=True)
                with self._locked():
                    _copy_small_files(self.store, self.directory)  # first, because answers of a served model depend on its facts
                    self._put(snapshot, answers)
        return self._answers

    def _put(self, snapshot: Path, answers: int) -> None:
        """Replaces the copy by a snapshot merged with the answers of other processes."""
        target = self.directory / FILE_NAME
        while True:
            if self._look():
                self._is_shared = True
            elif self._identity is not None and answers == self._copied:
                return
            new = self._merged(snapshot) if self._is_shared and self._identity is not None else snapshot
            if file_identity(target) == self._identity:  # otherwise another process was faster, on a file system without locks
                break
        replace_file(target, new)
        self._look()
        self._copied = answers

    def _merged(self, snapshot: Path) -> Path:
        """Returns a store with the answers of a snapshot and of the copy."""
        scratch = Path(tempfile.mkdtemp(dir=snapshot.parent))
        theirs = scratch / "theirs"
        theirs.mkdir()
        shutil.copyfile(self.directory / FILE_NAME, theirs / FILE_NAME)
        try:
            merge_stores([snapshot.parent, theirs], scratch)
        except StoreError as error:
            raise StoreError(
                f"{self.directory / FILE_NAME}: another process copies a store there that does not go together with this one "
                f"({error}). Name a directory for each with --copy-to"
            ) from error
        return scratch / FILE_NAME

    def _look(self) -> bool:
        """Counts the answers of the copy; returns whether another process replaced it."""
        path = self.directory / FILE_NAME
        identity, answers = file_identity(path), 0
        if identity == self._identity:
            return False
        if identity is not None:
            with closing(connect(path, read_only=True, schema=_COPY)) as copy, explain_errors(path, "read", _COPY):
                (answers,) = copy.execute("select count(*) from predictions").fetchone()
        self._identity, self._answers = identity, answers
        return identity is not None

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Locks the directory against copies by other processes, if its file system has locks."""
        try:
            import fcntl
        except ModuleNotFoundError:  # Windows
            yield
            return
        descriptor, began = os.open(self.directory, os.O_RDONLY), time.monotonic()
        try:
            with contextlib.suppress(OSError):  # no locks there
                while True:
                    try:
                        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    except BlockingIOError:
                        if time.monotonic() - began > _LOCK_SECONDS:
                            break
                        time.sleep(0.1)
                    else:
                        break
            yield
        finally:
            os.close(descriptor)


def _copy_small_files(source: Path, target: Path) -> None:
    """Copies the other files of a store; names with a leading dot are unfinished files."""
    target.mkdir(parents=True, exist_ok=True)
    for path in sorted(source.rglob("*")):
        relative = path.relative_to(source)
        if path.is_file() and not path.name.startswith((FILE_NAME, ".")):
            there, content = target / relative, path.read_bytes()
            if not there.is_file() or there.read_bytes() != content:
                there.parent.mkdir(parents=True, exist_ok=True)
                replace_file(there, content)
