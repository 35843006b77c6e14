"""Browsing: the answers of one or more runs in read-only files.

:mod:`.searching` finds answers. Questions and texts are read only for what is displayed.
"""

from __future__ import annotations

import contextlib
import math
import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pytest_vlmrobust.core.cell import CLEAN_NAME, Cell, Setting
from pytest_vlmrobust.core.errors import StoreError, UsageError
from pytest_vlmrobust.core.sample import Sample

from .database import BUSY_SECONDS, FILE_NAME, TimedLock, explain_errors, read_only_uri
from .evidence import Evidence
from .questions import RUN_AGAIN, Answer, answer_of, check_type, parse_json, sample_from_json, text_of
from .run_directory import file_identity
from .searching import RIGHT, AnswerFilter, AnswerKey, AnswerKeys, BrowsedCell, MatchingSample, Search, prepare, schema_of

MOST_RUNS = 8
"""Runs that can be compared side by side: SQLite attaches ten files to a connection."""
SECONDS = 60.0
"""How long a search may take. With a million answers, a few seconds are usual."""
_MOST_VIEWS = 10_000
"""Views of a sample: a damaged file may claim any number."""
_NAMES_LIKE = 2_000
"""Ids that a mistyped id is compared with."""
_CACHED = 6
"""Results in memory, with a few numbers for each answer."""
T = TypeVar("T")


class Scored(NamedTuple):
    """The score of one sample in one cell."""

    cell: BrowsedCell
    value: float
    """In [0, 1]; NaN for a failed inference."""
    state: str
    """One of ``STATES``."""
    flip: str
    """One of ``FLIPS``; empty if a score is unknown."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The question and the answers to all views of a sample in a cell."""

    cell: BrowsedCell
    sample: Sample
    """As it was asked under the setting."""
    original: Sample
    """As it is in the data."""
    answers: tuple[Answer, ...]
    clean: Answer | None
    """The answer to the clean image; ``None`` if unknown."""
    mark: Scored
    notes: tuple[str, ...]
    """Notes about images that the setting could not change as intended."""


class Browser:
    """The answers of some runs. Thread-safe; raises ``StoreError`` for unreadable files."""

    def __init__(self, runs: Mapping[str, Path]) -> None:
        """Keeps the directories of runs by name; files are opened on first use."""
        if len(runs) > MOST_RUNS:
            raise UsageError(f"{len(runs)} runs are too many to look at side by side: choose up to {MOST_RUNS} of them")
        self.runs = dict(runs)
        self._names = list(runs)
        self._lock = TimedLock(SECONDS)
        self._connection: sqlite3.Connection | None = None
        self._attached: dict[str, object] = {}
        self._cached: OrderedDict[object, Any] = OrderedDict()
        self._listed: set[tuple[str, str]] = set()
        """The runs and datasets whose samples are in the table of names; they are all written before the first answer."""

    def close(self) -> None:
        """Closes all files; closing twice is fine."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection, self._attached = None, {}

    # Overview.

    def cells(self) -> list[BrowsedCell]:
        """Returns the cells of all runs that have answers, run by run in the order of the data and then of evaluation."""
        with self._reading() as connection:
            return self._cells(connection)

    def categories(self, dataset: str = "") -> list[str]:
        """Returns the categories of the samples of a dataset, or of all of them, sorted."""
        with self._reading() as connection:
            key = ("categories", dataset, self._version(connection))
            return self._once(key, lambda: self._search(connection).categories(dataset))

    def names_like(self, dataset: str, sample: str) -> list[str]:
        """Returns sample ids of a dataset with a length similar to a mistyped id."""
        with self._reading() as connection:
            names = " union ".join(
                f"select cast(id as text) as id from {self._schema(name)}.samples where dataset = :dataset"
                for name in self._attached
            )
            query = f"select id from ({names}) order by abs(length(id) - length(:sample)), id limit {_NAMES_LIKE}"
            return [name for (name,) in connection.execute(query, {"dataset": dataset, "sample": sample})]

    # Searching.

    def answers(self, criteria: AnswerFilter, sort: str, cells: Collection[tuple[str, int]] | None = None) -> AnswerKeys:
        """Returns the matching answers in order; a sample with several views has one key.

        ``sort`` is one of ``SORTS``; ``cells`` are the allowed runs and cell ids, ``None`` for all.
        """
        with self._reading() as connection:
            key = ("answers", criteria, sort, None if cells is None else frozenset(cells), self._version(connection))
            return self._once(key, lambda: self._search(connection).answers(criteria, sort, cells))

    def samples(
        self, criteria: AnswerFilter, sort: str, cells: Collection[tuple[str, int]] | None = None
    ) -> list[MatchingSample]:
        """Returns the samples of the matching answers, those harmed by most settings first.

        ``sort`` is ``data`` for the order of the data, or anything else for worst first. ``cells`` as in :meth:`answers`.
        """
        order = "first" if sort == "data" else "harmed desc, wrong desc, first"
        with self._reading() as connection:
            key = ("samples", criteria, order, None if cells is None else frozenset(cells), self._version(connection))
            return self._once(key, lambda: self._search(connection).samples(criteria, order, cells))

    # Reading.

    def read(self, key: AnswerKey) -> Seen:
        """Returns the question and its answers."""
        with self._reading() as connection:
            name = self._names[key.run]
            cell = next((cell for cell in self._cells(connection) if (cell.run, cell.id) == (name, key.cell)), None)
            if cell is None:
                raise StoreError(f"{self._path(name)}: has no cell {key.cell} any more")
            return self._read(connection, cell, key.place)

    def find(self, run: str, model: str, dataset: str, sample: str, setting: str) -> Seen | None:
        """Returns the question and answers of a sample by names; ``None`` if it was not asked."""
        with self._reading() as connection:
            names = (run, model, dataset, setting)
            cell = next((cell for cell in self._cells(connection) if (cell.run, *cell[2:5]) == names), None)
            place = None if cell is None else self._place(connection, run, dataset, sample)
            if cell is None or place is None:
                return None
            query = f"select 1 from {self._schema(run)}.answers where cell = ? and place = ?"
            there = connection.execute(query, (cell.id, place * cell.views)).fetchone()
            return self._read(connection, cell, place) if there else None

    def marks(self, dataset: str, sample: str) -> list[Scored]:
        """Returns the score of a sample in every cell that asked about it, run by run."""
        with self._reading() as connection:
            cells = [cell for cell in self._cells(connection) if cell.dataset == dataset]
            places = {run: self._place(connection, run, dataset, sample) for run in dict.fromkeys(cell.run for cell in cells)}
            return [
                mark
                for cell in cells
                if (place := places[cell.run]) is not None and (mark := self._mark(connection, cell, cells, place))
            ]

    # How it is done.

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """Gives the connection, with the current files attached, to one thread at a time."""
        with self._lock, explain_errors(Path(FILE_NAME), "read"):
            connection = self._opened()
            try:
                yield connection
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_INTERRUPT:
                    raise StoreError(
                        f"looking for it took more than {SECONDS:g} s and was given up. Choose a setting, a model or a dataset"
                    ) from error
                raise

    def _opened(self) -> sqlite3.Connection:
        there = {name: identity for name in self._names if (identity := file_identity(self._path(name)))}
        if self._connection is None or there != self._attached:
            if self._connection is not None:
                self._connection.close()
            self._connection, self._attached = None, {}
            self._cached.clear()
            self._listed.clear()
            connection = self._connect(there)
            self._connection, self._attached = connection, dict(there)
        return self._connection

    def _connect(self, names: Iterable[str]) -> sqlite3.Connection:
        uris = {}
        for name in names:
            path = self._path(name)
            Evidence.open(path.parent, read_only=True).close()  # raises for files that this release did not write
            uris[name] = read_only_uri(path)
        connection = sqlite3.connect(":memory:", uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            self._lock.watch(connection)
            connection.execute("pragma trusted_schema = off")
            for name, uri in uris.items():
                connection.execute(f"attach ? as {self._schema(name)}", (uri,))
            prepare(connection)
            connection.execute(
                "create temp table names (run integer, dataset text, id text, place integer, "
                "primary key (run, dataset, id)) without rowid"
            )
        except BaseException:
            connection.close()
            raise
        return connection

    def _path(self, name: str) -> Path:
        return self.runs[name] / FILE_NAME

    def _schema(self, name: str) -> str:
        return schema_of(self._names.index(name))

    def _search(self, connection: sqlite3.Connection) -> Search:
        numbers = {name: self._names.index(name) for name in self._attached}
        return Search(connection, numbers, self._cells(connection))

    def _version(self, connection: sqlite3.Connection) -> tuple[int, ...]:
        """Returns a version that changes when another process writes to one of the files."""
        return tuple(connection.execute(f"pragma {self._schema(name)}.data_version").fetchone()[0] for name in self._attached)

    def _once(self, key: object, find: Callable[[], T]) -> T:
        """Returns the cached result for a key, or computes it."""
        if key not in self._cached:
            self._cached[key] = find()
            while len(self._cached) > _CACHED:
                self._cached.popitem(last=False)
        self._cached.move_to_end(key)
        result: T = self._cached[key]
        return result

    def _cells(self, connection: sqlite3.Connection) -> list[BrowsedCell]:
        return [
            BrowsedCell(name, *row)
            for name in self._attached
            for row in connection.execute(
                "select id, cast(model as text), cast(dataset as text), cast(setting as text), "
                f"min(max(cast(views as integer), 1), {_MOST_VIEWS}) from {self._schema(name)}.cells order by dataset, id"
            )
        ]

    def _place(self, connection: sqlite3.Connection, run: str, dataset: str, sample: str) -> int | None:
        """Returns the position of a sample in its dataset, by an index built in memory, because the file has none."""
        number = self._names.index(run)
        if (run, dataset) not in self._listed:
            connection.execute(
                "insert or ignore into names "
                f"select {number}, dataset, id, place from {self._schema(run)}.samples where dataset = ?",
                (dataset,),
            )
            self._listed.add((run, dataset))
        query = "select place from names where run = ? and dataset = ? and id = ?"
        row = connection.execute(query, (number, dataset, sample)).fetchone()
        return None if row is None else int(row[0])

    def _mark(self, connection: sqlite3.Connection, cell: BrowsedCell, cells: Iterable[BrowsedCell], place: int) -> Scored | None:
        scores = self._scores(connection, cell, place)
        if not scores:
            return None
        clean = next(
            (c for c in cells if (c.run, c.model, c.dataset, c.setting) == (cell.run, cell.model, cell.dataset, CLEAN_NAME)), None
        )
        before = self._scores(connection, clean, place) if clean else []
        states = {state for _, state in scores}
        state = next((name for name in ("error", "scored") if name in states), "unparsed")
        value = math.nan if state == "error" else max((value for value, _ in scores if value is not None), default=math.nan)
        flip = ""
        if before and before[0][0] is not None and not math.isnan(value):
            flip = "harmful" if value < before[0][0] else "helpful" if value > before[0][0] else "none"
        shown = ("right" if value >= RIGHT else "wrong") if state == "scored" else state
        return Scored(cell, value, shown, flip)

    def _changes(self, connection: sqlite3.Connection, cell: BrowsedCell, place: int) -> str:
        """Returns the changes of a cell's setting to a question, as JSON."""
        query = f"select changes from {self._schema(cell.run)}.questions where dataset = ? and setting = ? and place = ?"
        row = connection.execute(query, (cell.dataset, cell.setting, place)).fetchone()
        return "{}" if row is None else text_of(self._path(cell.run), row[0], f"a changed question of {cell.dataset!r}")

    def _scores(self, connection: sqlite3.Connection, cell: BrowsedCell, place: int) -> list[tuple[float | None, str]]:
        query = f"select value, state from {self._schema(cell.run)}.answers where cell = ? and place between ? and ?"
        first = place * cell.views
        rows = connection.execute(query, (cell.id, first, first + cell.views - 1))
        return [(value if isinstance(value, float) else None, str(state)) for value, state in rows]

    def _read(self, connection: sqlite3.Connection, cell: BrowsedCell, place: int) -> Seen:
        path, schema = self._path(cell.run), self._schema(cell.run)
        named = Cell(cell.model, cell.dataset, Setting.parse(cell.setting))
        row = connection.execute(
            f"select id, content from {schema}.samples where dataset = ? and place = ?",
            (cell.dataset, place),
        ).fetchone()
        if row is None:
            raise StoreError(f"{path}: {named} has answers about sample {place}, which the file does not have. {RUN_AGAIN}")
        query = (
            f"select place, key, prediction, value, state, rule, answer from {schema}.answers "
            "where cell = ? and place between ? and ? order by place"
        )
        first = place * cell.views
        answers = tuple(
            answer_of(path, named, row) for row in connection.execute(query, (cell.id, first, first + cell.views - 1))
        )
        cells = self._cells(connection)
        clean = next((c for c in cells if (c.run, *c[2:5]) == (cell.run, cell.model, cell.dataset, CLEAN_NAME)), None)
        before = None if clean is None else connection.execute(query, (clean.id, place, place)).fetchone()
        mark = self._mark(connection, cell, cells, place)
        if mark is None:
            raise StoreError(f"{path}: {named} has no answer about the sample {row[0]!r}")
        (notes,) = connection.execute(f"select notes from {schema}.cells where id = ?", (cell.id,)).fetchone()
        what = f"the notes of {named}"
        listed = check_type(path, parse_json(path, notes, dict, what).get(row[0], []), list, what)
        return Seen(
            cell,
            sample_from_json(row[1], self._changes(connection, cell, place)),
            sample_from_json(row[1]),
            answers,
            None if before is None else answer_of(path, Cell(cell.model, cell.dataset, Setting.parse(CLEAN_NAME)), before),
            mark,
            tuple(text_of(path, note, what) for note in listed),
        )
