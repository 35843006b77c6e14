"""Merge: the union of stores that parts of one sweep filled, each on its own disk."""

from __future__ import annotations

import json
import math
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pytest_vlmrobust.core.errors import StoreError
from pytest_vlmrobust.core.prediction import Prediction
from pytest_vlmrobust.core.words import quantity

from .database import FILE_NAME, connect, explain_errors, transaction
from .predictions import Store, decode_prediction

_ROUNDING = 0.25
"""Log-probabilities of one answer may differ by this: other batches round otherwise, in 16 bits by as much as this."""
_SHOWN = 3
"""Conflicts that an error names."""


@dataclass(frozen=True, slots=True)
class Merge:
    """What a merge put into one store."""

    answers: int
    by_source: tuple[tuple[Path, int], ...]
    """The answers of each store that no store before it had."""


def merge_stores(sources: Sequence[Path], out: Path) -> Merge:
    """Puts what several stores hold into a new one: answers, what they belong to, and what pictures were made from.

    The new store appears once it is whole. Where two stores answer one question, the answers have to agree; then the first stays.

    Args:
        sources: directories of stores, at least one; they are only read.
        out: the directory of the new store, which holds none yet.

    Raises:
        StoreError: a store cannot be read, is of another schema, or contradicts another one; ``out`` holds a store.
    """
    path = out / FILE_NAME
    if path.exists():
        raise StoreError(f"{path}: there is a store already. Name a new directory, and this one among those that are merged")
    _refuse_twice(sources)
    for source in sources:
        if not (source / FILE_NAME).exists():
            raise StoreError(f"{source}: there is no store to read. Name the directory that holds {FILE_NAME}")
        Store.open(source, read_only=True).close()  # refuses foreign files, and says what is wrong with them
    draft = out / f"{FILE_NAME}.{os.getpid()}.merging"
    try:
        with closing(connect(draft, read_only=False)) as connection:
            added = tuple((source, _add(connection, draft, source / FILE_NAME)) for source in sources)
            with explain_errors(draft, "write"):
                connection.execute("pragma journal_mode = delete")  # one file, that can be moved
        with explain_errors(path, "write"):
            draft.rename(path)
    finally:
        for rest in ("", "-wal", "-shm", "-journal"):
            draft.with_name(draft.name + rest).unlink(missing_ok=True)
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
    with explain_errors(source, "read"):
        connection.execute("attach database ? as part", (f"{source.absolute().as_uri()}?mode=ro",))
    try:
        with explain_errors(source, "read"):
            _refuse_other_schema(connection, source)
            _refuse_conflicts(connection, source)
            notes = connection.execute("select 1 from part.sqlite_master where name = 'notes'").fetchone()
        with explain_errors(draft, "write"), transaction(connection):
            connection.execute("insert or ignore into contexts (content) select content from part.contexts order by id")
            before = connection.total_changes
            connection.execute(
                "insert or ignore into predictions (key, answer, context) select there.key, there.answer, here.id "
                "from part.predictions there join part.contexts about on about.id = there.context "
                "join contexts here on here.content = about.content"
            )
            new = connection.total_changes - before
            connection.execute("insert or ignore into views select * from part.views")
            if notes:
                connection.execute("insert or ignore into notes select * from part.notes")
    finally:
        connection.execute("detach database part")
    return new


def _refuse_other_schema(connection: sqlite3.Connection, source: Path) -> None:
    (there,), (here,) = (connection.execute(f"pragma {name}.user_version").fetchone() for name in ("part", "main"))
    if there != here:
        raise StoreError(f"{source}: schema {there}, and this release merges schema {here}. Open it once with this release")


def _refuse_conflicts(connection: sqlite3.Connection, source: Path) -> None:
    differing = list(_differing_answers(connection, source))
    if differing:
        raise StoreError(
            f"{source}: {quantity(len(differing), 'answer')} differ from those of a store before it, such as "
            f"{'; '.join(differing[:_SHOWN])}. One question of one model has one answer: find out which store is wrong, and "
            "leave it out"
        )
    views = connection.execute(
        "select count(*) from part.views there join main.views here using (recipe) where there.digests != here.digests"
    ).fetchone()[0]
    if views:
        raise StoreError(
            f"{source}: {quantity(views, 'picture')} came out otherwise than in a store before it, from the same files, code and "
            "seed. Leave it out, and look for the machine that computes wrongly"
        )


def _differing_answers(connection: sqlite3.Connection, source: Path) -> Iterator[str]:
    """Yields, in words, the questions to which both stores have answers that do not agree."""
    rows = connection.execute(
        "select there.key, there.answer, here.answer, about.content from part.predictions there "
        "join main.predictions here using (key) join part.contexts about on about.id = there.context "
        "where there.answer != here.answer order by there.key"
    ).fetchall()  # a cursor that is left open keeps the other store from being closed
    for key, there, here, content in rows:
        first, second = (
            decode_prediction(text, partial("{}: the prediction {!r}".format, source, key)) for text in (here, there)
        )
        if not _agree(first, second):
            yield f"{key[:12]} of {_about(content)} ({first.text[:40]!r}, {second.text[:40]!r})"


def _about(content: str) -> str:
    """Returns what an answer belongs to, as in test ids; what a damaged store says instead, cut short."""
    try:
        about = json.loads(content)
        return "-".join(str(about.get(name, "?")) for name in ("model", "dataset", "setting"))
    except (ValueError, AttributeError, RecursionError):
        return content[:100]


def _agree(first: Prediction, second: Prediction) -> bool:
    """Whether two answers are one: the same words by the same method, and log-probabilities that differ by rounding alone."""
    if (first.text, first.method, first.finish_reason) != (second.text, second.method, second.finish_reason):
        return False
    if first.logprobs.keys() != second.logprobs.keys():
        return False
    pairs = ((value, second.logprobs[letter]) for letter, value in first.logprobs.items())
    return all(one == other or math.isclose(one, other, rel_tol=0.0, abs_tol=_ROUNDING) for one, other in pairs)
