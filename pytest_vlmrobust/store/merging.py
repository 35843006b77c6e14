"""Merge: the union of stores filled by the parts of a sweep on separate disks."""

from __future__ import annotations

import contextlib
import json
import math
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from pytest_vlmrobust.core.errors import StoreError
from pytest_vlmrobust.core.prediction import Prediction
from pytest_vlmrobust.core.words import first_few, quantity

from .database import FILE_NAME, STORE, connect, explain_errors, read_only_uri, transaction
from .predictions import decode_prediction

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
        raise StoreError(f"{path}: there is a store already. Name a new directory, and this one among those that are merged")
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
    known: dict[Path, Path] = {}
    for source in sources:
        if (first := known.setdefault(source.resolve(), source)) is not source:
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
            theirs, before = (first_few(sorted(found[model])) for found in (there, here))
            raise StoreError(
                f"{source}: its answers of {model!r} have the fingerprint {theirs}, and those of a store before it {before}: "
                "other weights, settings, libraries or devices. Parts of one run have one model: leave it out, or fill it again"
            )


def _fingerprints(connection: sqlite3.Connection, schema: str) -> dict[str, set[str]]:
    """Returns the fingerprints that the answers of each model have, by its name."""
    found: dict[str, set[str]] = {}
    for (content,) in connection.execute(f"select content from {schema}.contexts").fetchall():  # noqa: S608 - names of ours
        with contextlib.suppress(ValueError, AttributeError, RecursionError):  # contexts in a damaged store
            about = json.loads(content)
            if about.get("fingerprint"):
                found.setdefault(str(about.get("model")), set()).add(str(about["fingerprint"]))
    return found


def _differing_answers(rows: _Part, source: Path) -> Iterator[str]:
    """Yields in words the questions whose answers in both stores do not agree."""
    found = rows.run(
        "select there.key, there.answer, here.answer, about.content from part.predictions there "
        "cross join main.predictions here using (key) cross join part.contexts about on about.id = there.context "
        "where {rows} and there.answer != here.answer order by there.key"
    )
    for key, there, here, content in found:
        first, second = (
            decode_prediction(text, partial("{}: the prediction {!r}".format, source, key)) for text in (here, there)
        )
        if not _agree(first, second):
            yield f"{key[:12]} of {_about(content)} ({first.text[:40]!r}, {second.text[:40]!r})"


def _about(content: str) -> str:
    """Returns the context of an answer as in test ids, or the shortened text of a damaged store."""
    try:
        about = json.loads(content)
        return "-".join(str(about.get(name, "?")) for name in ("model", "dataset", "setting"))
    except (ValueError, AttributeError, RecursionError):
        return content[:100]


def _agree(first: Prediction, second: Prediction) -> bool:
    """Whether two answers are equal: the same words by the same method, and log-probabilities equal up to rounding."""
    if (first.text, first.method, first.finish_reason) != (second.text, second.method, second.finish_reason):
        return False
    if first.logprobs.keys() != second.logprobs.keys():
        return False
    pairs = ((value, second.logprobs[letter]) for letter, value in first.logprobs.items())
    return all(one == other or math.isclose(one, other, rel_tol=0.0, abs_tol=_ROUNDING) for one, other in pairs)
