"""Merge: the union of stores filled by the parts of a sweep on separate disks, and the copies that they keep on a shared one."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from pytest_vlmrobust.core.errors import StoreError
from pytest_vlmrobust.core.prediction import Prediction
from pytest_vlmrobust.core.words import first_few, quantity
from pytest_vlmrobust.store.database import FILE_NAME, STORE, connect, explain_errors, read_only_uri, transaction
from pytest_vlmrobust.store.predictions import Store, decode_prediction
from pytest_vlmrobust.store.run_directory import file_identity, replace_file

_ROUNDING = 0.25
"""Tolerance for log-probabilities of the same answer: other batches round differently, in 16 bits by up to this much."""
_PART = replace(STORE, absent="A run that fills it writes one", elsewhere="leave it out")
_OUT = replace(STORE, damaged="Merge again", elsewhere="name another directory with --out")
"""The same file, with advice for who merges."""
_SHOWN = 3
"""Conflicts that an error names."""
_ROWS = 100_000
"""Rows per statement: a few seconds of work and about 100 MB of log, for a store of any size."""


@dataclass(frozen=True, slots=True)
class Merge:
    """The result of a merge."""

    answers: int
    by_source: tuple[tuple[Path, int], ...]
    """The new answers of each store."""


def merge_stores(sources: Sequence[Path], out: Path) -> Merge:
    """Merges several stores into a new one: answers, their contexts, and image recipes.

    The new store appears once it is complete. If two stores answer the same question, the answers must agree; the first is kept.
    ``out`` must not hold a store yet; the sources are only read.
    """
    path = out / FILE_NAME
    if path.exists():
        raise StoreError(f"{path}: there is a store already. Name a new directory, and merge this one as well")
    _refuse_twice(sources)
    for source in sources:
        if not (source / FILE_NAME).is_file():
            raise StoreError(f"{source}: there is no store to read. Name the directory that holds {FILE_NAME}")
        connect(source / FILE_NAME, read_only=True, schema=_PART).close()  # refuses foreign files with a message
    draft = out / f"{FILE_NAME}.{os.getpid()}.merging"
    made = [folder for folder in (out, *out.parents) if not folder.exists()]
    try:
        with closing(connect(draft, read_only=False, schema=_OUT)) as connection:
            added = tuple((source, _add(connection, draft, source / FILE_NAME)) for source in sources)
            with explain_errors(draft, "write", _OUT):
                connection.execute("pragma journal_mode = delete")  # a single file, which can be moved
        with explain_errors(path, "write", _OUT):
            draft.rename(path)
    finally:
        with contextlib.suppress(OSError):  # if nothing can be written, there is nothing to remove
            for rest in ("", "-wal", "-shm", "-journal"):
                draft.with_name(draft.name + rest).unlink(missing_ok=True)
            if not path.exists():
                for folder in made:  # folders with files of others stay
                    folder.rmdir()
    return Merge(sum(count for _, count in added), added)


def _refuse_twice(sources: Sequence[Path]) -> None:
    stores: dict[Path, Path] = {}
    for source in sources:
        if (first := stores.setdefault(source.resolve(), source)) is not source:
            raise StoreError(
                f"{source} and {first} are one store. Name each store once: a part that is missing would go unnoticed"
            )


def _add(connection: sqlite3.Connection, draft: Path, source: Path) -> int:
    """Adds one store; returns how many answers are new."""
    with explain_errors(source, "read", _PART):
        connection.execute("attach database ? as part", (read_only_uri(source, _PART),))
    try:
        with explain_errors(source, "read", _PART):
            _refuse_other_models(connection, source)
        with explain_errors(draft, "write", _OUT):
            connection.execute("insert or ignore into contexts (content) select content from part.contexts order by id")
        new = _add_answers(connection, draft, source)
        _add_views(connection, draft, source)
        for table, column in (("notes", "recipe"), ("question_sets", "digest"), ("gates", "run")):
            for rows in _parts(connection, source, table, column):
                with explain_errors(draft, "write", _OUT), transaction(connection):
                    rows.run(f"insert or ignore into {table} select * from part.{table} there where {{rows}}")  # noqa: S608 - names of ours
    finally:
        connection.execute("detach database part")
    return new


def _add_answers(connection: sqlite3.Connection, draft: Path, source: Path) -> int:
    """Adds the answers of one store; returns how many are new."""
    new = differing = 0
    examples: list[str] = []
    for rows in _parts(connection, source, "predictions", "key"):
        with explain_errors(source, "read", _PART):
            for described in _differing_answers(rows, source):
                differing += 1
                examples += [described] if differing <= _SHOWN else []
        if differing:
            continue  # the others are counted but not kept
        with explain_errors(draft, "write", _OUT), transaction(connection):
            before = connection.total_changes
            rows.run(
                "insert or ignore into predictions (key, answer, context) select there.key, there.answer, here.id "
                "from part.predictions there cross join part.contexts about on about.id = there.context "
                "cross join contexts here on here.content = about.content where {rows}"
            )
            new += connection.total_changes - before
    if differing:
        raise StoreError(
            f"{source}: {quantity(differing, 'answer')} differ from those of a store before it, such as "
            f"{'; '.join(examples)}. One question of one model has one answer: find out which store is wrong, and leave it out"
        )
    return new


def _add_views(connection: sqlite3.Connection, draft: Path, source: Path) -> None:
    """Adds the image recipes of a store."""
    differing = 0
    for rows in _parts(connection, source, "views", "recipe"):
        with explain_errors(source, "read", _PART):
            query = "select count(*) from part.views there cross join main.views here using (recipe) where {rows} and "
            differing += rows.run(query + "there.digests != here.digests")[0][0]
        with explain_errors(draft, "write", _OUT), transaction(connection):
            rows.run("insert or ignore into views select * from part.views there where {rows}")
    if differing:
        raise StoreError(
            f"{source}: {quantity(differing, 'image')} came out otherwise than in a store before it, from the same files, code "
            "and seed. Leave it out, and look for the machine that computes wrongly"
        )


@dataclass(frozen=True, slots=True)
class _Part:
    """The rows of a table in the added store with keys between two bounds."""

    connection: sqlite3.Connection
    column: str
    first: str
    end: str | None
    """The first key after them; None for the last part."""

    def run(self, query: str) -> list[tuple[Any, ...]]:
        """Runs a statement and returns its rows; ``{rows}`` is the condition on the table ``there``.

        Other tables are joined by ``cross join``, so that SQLite scans ``there`` and looks up the others.
        """
        condition = f"there.{self.column} >= ?" + ("" if self.end is None else f" and there.{self.column} < ?")
        bounds = [self.first] if self.end is None else [self.first, self.end]
        return self.connection.execute(query.format(rows=condition), bounds).fetchall()  # an open cursor keeps the store open


def _parts(connection: sqlite3.Connection, source: Path, table: str, column: str) -> Iterator[_Part]:
    """Yields a table in parts of ``_ROWS`` rows, by its key."""
    first = ""
    while True:
        with explain_errors(source, "read", _PART):
            row = connection.execute(
                f"select {column}, {column} > ? from part.{table} where {column} >= ? order by {column} limit 1 offset {_ROWS}",  # noqa: S608 - names of ours
                (first, first),
            ).fetchone()
        yield _Part(connection, column, first, row and row[0])
        if row is None:
            return
        if not row[1]:  # pages that lead in a circle
            raise StoreError(f"{source}: the table {table!r} is out of order. {_PART.damaged}")
        first = row[0]


def _refuse_other_models(connection: sqlite3.Connection, source: Path) -> None:
    """Refuses a store whose model of some name is another model than in the stores before."""
    here, there = (_fingerprints(connection, name) for name in ("main", "part"))
    for model in sorted(here.keys() & there.keys()):
        if here[model].isdisjoint(there[model]):
            theirs, before = (first_few(sorted(fingerprints[model])) for fingerprints in (there, here))
            raise StoreError(
                f"{source}: its answers of {model!r} have the fingerprint {theirs}, and those of a store before it {before}: "
                "other weights, settings, libraries or devices. Parts of one run have one model: leave it out, or fill it again"
            )


def _fingerprints(connection: sqlite3.Connection, schema: str) -> dict[str, set[str]]:
    """Returns the fingerprints that the answers of each model have, by its name."""
    fingerprints: dict[str, set[str]] = {}
    for (content,) in connection.execute(f"select content from {schema}.contexts").fetchall():  # noqa: S608 - names of ours
        with contextlib.suppress(ValueError, AttributeError, RecursionError):  # contexts in a damaged store
            context = json.loads(content)
            if context.get("fingerprint"):
                fingerprints.setdefault(str(context.get("model")), set()).add(str(context["fingerprint"]))
    return fingerprints


def _differing_answers(rows: _Part, source: Path) -> Iterator[str]:
    """Yields in words the questions whose answers in both stores do not agree."""
    pairs = rows.run(
        "select there.key, there.answer, here.answer, about.content from part.predictions there "
        "cross join main.predictions here using (key) cross join part.contexts about on about.id = there.context "
        "where {rows} and there.answer != here.answer order by there.key"
    )
    for key, there, here, content in pairs:
        first, second = (
            decode_prediction(text, partial("{}: the prediction {!r}".format, source, key)) for text in (here, there)
        )
        if not _agree(first, second):
            yield f"{key[:12]} of {_about(content)} ({first.text[:40]!r}, {second.text[:40]!r})"


def _about(content: str) -> str:
    """Returns the context of an answer as in test ids, or the shortened text of a damaged store."""
    try:
        context = json.loads(content)
        return "-".join(str(context.get(name, "?")) for name in ("model", "dataset", "setting"))
    except (ValueError, AttributeError, RecursionError):
        return content[:100]


def _agree(first: Prediction, second: Prediction) -> bool:
    """Whether two answers are equal: the same words by the same method, and log-probabilities equal up to rounding."""
    if (first.text, first.method, first.finish_reason) != (second.text, second.method, second.finish_reason):
        return False
    if first.logprobs.keys() != second.logprobs.keys():
        return False
    pairs = ((value, second.logprobs[letter]) for letter, value in first.logprobs.items())
    return all(value == other or math.isclose(value, other, rel_tol=0.0, abs_tol=_ROUNDING) for value, other in pairs)


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
            for rest in self.directory.glob(f".{FILE_NAME}.*"):  # left by a process that was killed while it copied
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
