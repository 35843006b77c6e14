"""Store: every prediction is made once. A cache by fingerprint, with leases on answers in work."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_vlmrobust.core.errors import StoreError
from pytest_vlmrobust.core.fingerprint import canonical_json
from pytest_vlmrobust.core.prediction import LONGEST_TEXT, Prediction
from pytest_vlmrobust.core.words import quantity, without_halves

from .database import FILE_NAME, STORE, Database, connect
from .gates import Gate, GateCount, count_gate
from .run_directory import LOST

_DECODER = json.JSONDecoder()  # refuses bytes, which a damaged file may hold and which evidence cannot
_CHUNK = 500  # SQLite before 3.32 takes at most 999 parameters in a statement
_ANSWERS = "select key, answer from predictions where key in"


class Store(Database):
    """Predictions by key, in an SQLite file shared by any number of threads and processes of a machine.

    A batch is stored completely or not at all, so ``kill -9`` loses at most the current batch. The first answer to a key is
    final: a process that computes it again reads back the stored one. A failed inference (``finish_reason``
    ``"error"``) is not stored, so a later run tries it again.

    Raises ``StoreError`` if the file cannot be read or written.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, *, read_only: bool, clock: Callable[[], float]) -> None:
        super().__init__(path, connection)
        self.read_only = read_only
        self._clock = clock
        self._has_notes = False
        """Whether notes exist; they are never removed."""
        self._seen: dict[str, int] = {}
        """The hash of each answer first stored or read through this object, by key."""

    @classmethod
    def open(cls, directory: Path, *, read_only: bool = False, clock: Callable[[], float] = time.time) -> Store:
        """Opens the store of a directory, and creates both unless ``read_only``.

        The directory is on a local disk. ``clock`` returns the time in seconds, common to all processes that share the store;
        leases use it.
        """
        path = directory / FILE_NAME
        return cls(path, connect(path, read_only=read_only), read_only=read_only, clock=clock)

    def __len__(self) -> int:
        with self._reading():
            (count,) = self._connection.execute("select count(*) from predictions").fetchone()
        return int(count)

    def get_many(self, keys: Iterable[str]) -> dict[str, Prediction]:
        """Returns the stored predictions by key; missing keys are left out."""
        return {key: self.decoded(key, text) for key, text in self.get_encoded(keys).items()}

    def get_encoded(self, keys: Iterable[str]) -> dict[str, str]:
        """Returns the stored JSON of predictions by key; missing keys are left out."""
        with self._reading():
            predictions: dict[str, str] = dict(self._select(_ANSWERS, list(keys)))
            self._see(predictions)
        return predictions

    def decoded(self, key: str, text: str) -> Prediction:
        """Reads one of the predictions that :meth:`get_encoded` returns."""
        return decode_prediction(text, lambda: f"{self.path}: the prediction {key!r}")

    def has(self, keys: Iterable[str]) -> set[str]:
        """Returns the keys with a prediction."""
        with self._reading():
            return {key for (key,) in self._select("select key from predictions where key in", list(keys))}

    def examples(self, model: str, dataset: str, most: int) -> list[Prediction]:
        """Returns up to ``most`` predictions of a model and a dataset, by their names at that time."""
        with self._reading():
            contexts = self._connection.execute("select id, content from contexts").fetchall()
            context_ids = [number for number, content in contexts if _is_about(json.loads(content), model, dataset)][:_CHUNK]
            places = ", ".join("?" * len(context_ids))
            rows = self._connection.execute(
                f"select key, answer from predictions where context in ({places}) limit ?",  # noqa: S608 - question marks only
                (*context_ids, most),
            ).fetchall()
        return [self.decoded(key, answer) for key, answer in rows]

    def put_many(self, predictions: Mapping[str, Prediction], *, context: Mapping[str, str | int | float]) -> int:
        """Stores a batch in one transaction, ends the leases on its keys, and returns the number of new answers.

        Answers with ``finish_reason`` ``"error"`` are left out and keep their lease. ``context`` describes the batch
        (model, dataset, setting ...); it is stored once and referenced by each row.
        """
        rows = [
            (key, encode_prediction(prediction)) for key, prediction in predictions.items() if prediction.finish_reason != "error"
        ]
        if not rows:
            return 0
        content = without_halves(canonical_json(dict(context)))
        with self._writing():
            self._connection.execute("insert or ignore into contexts (content) values (?)", (content,))
            (number,) = self._connection.execute("select id from contexts where content = ?", (content,)).fetchone()
            before = self._connection.total_changes
            self._connection.executemany(
                "insert or ignore into predictions (key, answer, context) values (?, ?, ?)",
                [(key, answer, number) for key, answer in rows],
            )
            new = self._connection.total_changes - before
            self._connection.executemany("delete from claims where key = ?", [(key,) for key, _ in rows])
            self._see(dict(rows) if new == len(rows) else dict(self._select(_ANSWERS, [key for key, _ in rows])))
        return new

    def _see(self, answers: Mapping[str, str]) -> None:
        for key, text in answers.items():
            self._seen.setdefault(key, hash(text))

    def damage(self) -> str:
        """Returns a sentence if an answer stored or read through this object is missing or changed in the file.

        Else an empty text: the first answer to a key never changes, even if others share the file.

        The file is opened again, because content visible only to this connection would be lost.
        """
        if gone := self.replacement():
            return gone
        if not self._seen:
            return ""
        try:
            with Store.open(self.path.parent, read_only=True) as fresh:
                kept, changed = fresh.compare(self._seen)
        except StoreError as error:
            return f"{error}. {LOST}"
        if changed:
            return f"{self.path}: {quantity(changed, 'answer')} that this run used changed there meanwhile. {STORE.damaged}"
        lacking = len(self._seen) - kept
        return f"{self.path}: lacks {quantity(lacking, 'answer')} that this run put there or read. {LOST}" if lacking else ""

    def compare(self, hashes: Mapping[str, int]) -> tuple[int, int]:
        """Returns how many of these keys have an answer, and how many answers have another hash."""
        keys = sorted(hashes)  # neighbours share a page
        kept = changed = 0
        for start in range(0, len(keys), _CHUNK):  # a chunk in memory at a time
            with self._reading():
                rows = self._select(_ANSWERS, keys[start : start + _CHUNK])
            kept += len(rows)
            changed += sum(hash(text) != hashes[key] for key, text in rows)
        return kept, changed

    def get_digests(self, recipes: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """Returns the known pixel digests of these recipes; unknown recipes are left out."""
        with self._reading():
            rows = self._select("select recipe, digests from views where recipe in", list(recipes))
        return {recipe: tuple(digests.split()) for recipe, digests in rows}

    def get_notes(self, recipes: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """Returns the notes on images of these recipes; recipes without notes are left out."""
        with self._reading():
            self._has_notes = self._has_notes or self._holds_notes()
            rows = self._select("select recipe, notes from notes where recipe in", list(recipes)) if self._has_notes else []
        return {recipe: tuple(json.loads(notes)) for recipe, notes in rows}

    def put_digests(self, digests: Mapping[str, Sequence[str]], notes: Mapping[str, Sequence[str]] | None = None) -> None:
        """Stores the pixel digests of recipes, a SHA-256 in hex per image, and their notes."""
        with self._writing():
            self._connection.executemany(
                "insert or ignore into views (recipe, digests) values (?, ?)",
                [(recipe, " ".join(hashes)) for recipe, hashes in digests.items()],
            )
            self._connection.executemany(
                "insert or ignore into notes (recipe, notes) values (?, ?)",
                [(recipe, json.dumps(list(lines))) for recipe, lines in (notes or {}).items() if lines],
            )

    def context(self, key: str) -> dict[str, str | int | float] | None:
        """Returns the context of the prediction ``key``, or None."""
        with self._reading():
            row = self._connection.execute(
                "select content from contexts join predictions on contexts.id = predictions.context where key = ?", (key,)
            ).fetchone()
        return None if row is None else dict(json.loads(row[0]))

    def claim(self, keys: Collection[str], owner: str, seconds: float) -> set[str]:
        """Leases the keys without an answer or another lease, and returns them.

        An owner's existing lease is extended to ``seconds`` from now. An expired lease is free, so the
        work of a killed process is taken over.
        """
        wanted = list(dict.fromkeys(keys))
        now = self._clock()
        with self._writing():
            done = {key for (key,) in self._select("select key from predictions where key in", wanted)}
            held = self._select("select key, owner, expires from claims where key in", wanted)
            taken = {key for key, holder, expires in held if holder != owner and expires > now}
            claimed = [key for key in wanted if key not in done and key not in taken]
            self._connection.executemany(
                "insert or replace into claims (key, owner, expires) values (?, ?, ?)",
                [(key, owner, now + seconds) for key in claimed],
            )
        return set(claimed)

    def renew(self, keys: Collection[str], owner: str, seconds: float) -> None:
        """Extends the leases that ``owner`` still holds to ``seconds`` from now; lost leases stay lost."""
        expires = self._clock() + seconds
        with self._writing():
            self._connection.executemany(
                "update claims set expires = ? where key = ? and owner = ?", [(expires, key, owner) for key in keys]
            )

    def holders(self, keys: Iterable[str]) -> dict[str, float]:
        """Returns who holds a lease on any of these keys, run out or not, and when the last of its leases ends."""
        with self._reading():
            rows = self._select("select owner, expires from claims where key in", list(keys))
        ends: dict[str, float] = {}
        for owner, expires in rows:
            ends[owner] = max(expires, ends.get(owner, expires))
        return ends

    def release(self, keys: Iterable[str], owner: str) -> None:
        """Releases the leases of ``owner``; those of others stay."""
        with self._writing():
            self._connection.executemany("delete from claims where key = ? and owner = ?", [(key, owner) for key in keys])

    def release_all(self) -> None:
        """Ends all leases; use it only if no owner can be alive."""
        with self._writing():
            self._connection.execute("delete from claims")

    def count_gates(self, run: str, gates: Iterable[Gate]) -> tuple[GateCount, ...]:
        """Stores the gates of a run, replacing its earlier ones, and returns the count of each among all gates here.

        A read-only store keeps nothing, and its counts say so.
        """
        if self.read_only:
            with self._reading():
                return tuple(count_gate(self._connection, gate, keep=False) for gate in gates)
        with self._writing():
            self._connection.execute("delete from gates where run = ?", (run,))
            return tuple(count_gate(self._connection, gate, keep=True) for gate in gates)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        if self.read_only:
            raise StoreError(f"{self.path}: the store was opened for reading only. Open it without read_only to write")
        with super()._writing():
            yield

    def _holds_notes(self) -> bool:
        return self._connection.execute("select 1 from notes limit 1").fetchone() is not None

    def _select(self, query: str, keys: Sequence[str]) -> list[tuple[Any, ...]]:
        """Returns the rows of ``query (keys)``."""
        rows: list[tuple[Any, ...]] = []
        for start in range(0, len(keys), _CHUNK):
            chunk = keys[start : start + _CHUNK]
            rows += self._connection.execute(f"{query} ({', '.join('?' * len(chunk))})", chunk).fetchall()
        return rows


def _is_about(context: Mapping[str, object], model: str, dataset: str) -> bool:
    return context.get("model") == model and context.get("dataset") == dataset


def encode_prediction(prediction: Prediction) -> str:
    """Returns a prediction as JSON in Python's dialect, which knows -Infinity, the log-probability of the impossible.

    Everything beyond ASCII is escaped, so that halves of surrogate pairs, which some tokenizers emit, survive.
    """
    return json.dumps(
        {
            "text": prediction.text,
            "method": prediction.method,
            "finish_reason": prediction.finish_reason,
            "logprobs": {letter: float(value) for letter, value in prediction.logprobs.items()},
            "details": dict(prediction.details),
            **({"error": prediction.error} if prediction.error else {}),
        }
    )


def decode_prediction(text: str, what: Callable[[], str]) -> Prediction:
    """Reads the output of :func:`encode_prediction`. ``what`` names it in messages."""
    try:
        content: dict[str, Any]
        content, end = _DECODER.raw_decode(text)
        if end < len(text):
            raise ValueError(f"more follows at character {end}")  # noqa: TRY301 - said as all else is
        prediction = Prediction(**content)
        too_long = len(content["text"]) > LONGEST_TEXT
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise StoreError(f"{what()} cannot be read: {error}. Move the file away, and its predictions are made again") from error
    if too_long:
        raise StoreError(f"{what()} has more than {LONGEST_TEXT} characters. Move the file away: its predictions are made again")
    return prediction
