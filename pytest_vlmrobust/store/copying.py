"""Copying: a store that is filled on a local disk, and its copy in a directory that other machines see."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from .database import FILE_NAME, explain_errors
from .predictions import Store
from .run_directory import file_identity, replace_file


class StoreCopy:
    """A copy of a store that is in use. Each file of it is replaced as a whole: a kill at any moment leaves a good copy."""

    def __init__(self, store: Path, directory: Path) -> None:
        """Remembers both directories; nothing is opened yet.

        Args:
            store: on a local disk; a running pytest may write to it.
            directory: of the copy, on any file system.
        """
        self.store = store
        self.directory = directory
        self._answers = 0
        self._identity: tuple[int, int] | None = None
        """Which file of the copy has so many answers."""

    def restore(self) -> int:
        """Puts the copy that an earlier process left into the store, which has no answers yet; returns how many answers it has.

        Raises:
            StoreError: the copy cannot be read, or either of them cannot be written.
        """
        with explain_errors(self.directory / FILE_NAME, "write"):  # rather than after hours
            self.directory.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=self.directory).close()
        for rest in self.directory.glob(f".{FILE_NAME}.*"):  # of a process that was killed while it copied
            rest.unlink(missing_ok=True)
        answers = self._known()
        with explain_errors(self.store, "write"):
            _copy_small_files(self.directory, self.store)
            if answers is not None:
                shutil.copyfile(self.directory / FILE_NAME, self.store / FILE_NAME)
        if answers is not None:
            with Store.open(self.store) as store:
                store.release_all()  # a process on another machine held them, and nobody sees from here that it ended
        return answers or 0

    def update(self) -> int:
        """Replaces the copy where the store has more answers; returns how many answers the copy has now.

        Raises:
            StoreError: the store cannot be read, or the copy cannot be written; then the earlier copy stays.
        """
        if not (self.store / FILE_NAME).is_file():
            return self._known() or 0
        with tempfile.TemporaryDirectory(dir=self.store.parent) as scratch:
            with Store.open(self.store, read_only=True) as live:
                snapshot = live.copy_to(Path(scratch))  # on a local disk: no locks of SQLite are needed elsewhere
            with Store.open(snapshot.parent, read_only=True) as whole:
                answers = len(whole)
            target = self.directory / FILE_NAME
            with explain_errors(target, "write"):
                _copy_small_files(self.store, self.directory)  # first: answers of a served model rest on what is known of it
                known = self._known()
                if known is not None and known >= answers:
                    return known
                replace_file(target, snapshot)
        self._answers, self._identity = answers, file_identity(target)
        return answers

    def _known(self) -> int | None:
        """Returns how many answers the copy has, also where another process replaced it; ``None`` where there is no copy."""
        identity = file_identity(self.directory / FILE_NAME)
        if identity is None:
            return None
        if identity != self._identity:
            with Store.open(self.directory, read_only=True) as copy:
                self._answers, self._identity = len(copy), identity
        return self._answers


def _copy_small_files(source: Path, target: Path) -> None:
    """Copies what lies in a store beside its database; names with a dot are files that somebody is writing."""
    target.mkdir(parents=True, exist_ok=True)
    for path in sorted(source.rglob("*")):
        relative = path.relative_to(source)
        if path.is_file() and not path.name.startswith((FILE_NAME, ".")):
            there, content = target / relative, path.read_bytes()
            if not there.is_file() or there.read_bytes() != content:
                there.parent.mkdir(parents=True, exist_ok=True)
                replace_file(there, content)
