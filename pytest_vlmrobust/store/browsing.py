"""Browsing: answers of one or several runs, found, sorted and counted by SQLite in files that are never written to.

What is found is kept as numbers (which run, cell and sample). Questions and answers are read for what is looked at, no more.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import sqlite3
from array import array
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pytest_vlmrobust.core.cell import CLEAN_NAME, NO_IMAGE_NAME, Cell, Setting
from pytest_vlmrobust.core.errors import StoreError, UsageError
from pytest_vlmrobust.core.sample import Sample

from .database import BUSY_SECONDS, FILE_NAME, TimedLock, explain_errors, limit, read_only_uri
from .evidence import Evidence
from .questions import RUN_AGAIN, Answer, answer_of, check_type, parse_json, sample_from_json, text_of
from .run_directory import file_identity

MOST_RUNS = 8
"""Runs that are looked at side by side: SQLite attaches ten files to a connection."""
SECONDS = 60.0
"""How long finding something may take: a few seconds are usual with a million answers."""
RIGHT = 0.5
"""The score from which a graded answer counts as right."""
STATES = ("right", "wrong", "unparsed", "error")
"""What an answer may be: read and right, read and wrong, unreadable, and an inference that failed."""
FLIPS = ("harmful", "helpful", "none")
"""What a setting may have done to the score of a sample, compared with the clean picture."""
SORTS = ("worst", "surest", "data")
"""``worst``: what lost most against the clean picture, answers without any picture last. ``surest``: wrong answers that the
model gave the highest probability. ``data``: as the data are ordered."""
_MOST_VIEWS = 10_000
"""Views of a sample: a damaged file may claim any number."""
_NAMES_LIKE = 2_000
"""Ids that a mistyped one is compared with."""
_CACHED = 6
"""Results that are remembered, with a few numbers for each answer."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which answers are looked for; what is empty leaves nothing out."""

    model: str = ""
    dataset: str = ""
    setting: str = ""
    """``fog:mid``, or ``fog`` for all its levels."""
    state: str = ""
    """One of ``STATES``."""
    flip: str = ""
    """One of ``FLIPS``."""
    category: str = ""
    text: str = ""
    """What stands in the id, the question or an option of the sample, or in the answer; upper and lower case are the same."""
    differs: bool = False
    """Only where the models or runs that were asked the same do not score the same."""

    def takes(self, cell: BrowsedCell) -> bool:
        """Whether answers of a cell may be among them."""
        asked = cell.setting
        named = self.setting in {"", asked} or asked.partition(":")[0] == self.setting
        return named and self.model in {"", cell.model} and self.dataset in {"", cell.dataset}


class BrowsedCell(NamedTuple):
    """A cell of one of the runs."""

    run: str
    id: int
    model: str
    dataset: str
    setting: str
    views: int


class AnswerKey(NamedTuple):
    """One answer that was found, or those to all views of a sample: by the places of run, cell and sample."""

    run: int
    cell: int
    place: int


class FoundSample(NamedTuple):
    """A sample, and what became of it in all answers that were looked for."""

    dataset: str
    id: str
    answers: int
    wrong: int
    harmed: int
    """Of how many of them it scores less than with the clean picture; answers without any picture count for neither."""


class Scored(NamedTuple):
    """The score of one sample in one cell."""

    cell: BrowsedCell
    value: float
    """In [0, 1]; NaN where an inference failed."""
    state: str
    """One of ``STATES``."""
    flip: str
    """One of ``FLIPS``; empty where one of the two scores is not known."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What was asked about one sample in one cell, and what came back for each view."""

    cell: BrowsedCell
    sample: Sample
    answers: tuple[Answer, ...]
    clean: Answer | None
    """The answer to the clean picture; ``None`` where it is not known."""
    mark: Scored
    notes: tuple[str, ...]
    """What the setting could not do to its pictures."""


class Found(Sequence[AnswerKey]):
    """Answers in their order: three numbers each, so that a million of them take 24 MB and every page is at hand."""

    def __init__(self, rows: Iterable[tuple[int, int, int]]) -> None:
        self._numbers = array("q", (number for row in rows for number in row))

    def __len__(self) -> int:
        return len(self._numbers) // 3

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        if not 0 <= index < len(self):
            raise IndexError(index)
        return AnswerKey(*self._numbers[3 * index : 3 * index + 3])


class Browser:
    """The answers of some runs; any number of threads may ask it."""

    def __init__(self, runs: Mapping[str, Path]) -> None:
        """Remembers where runs are, by their names; nothing is opened before it is asked for.

        Raises:
            UsageError: there are too many of them.
        """
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
        """Closes what was opened; closing twice is fine."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection, self._attached = None, {}

    # What there is.

    def cells(self) -> list[BrowsedCell]:
        """Returns the cells of all runs that have answers, run by run in the order of the data and then of evaluation.

        Raises:
            StoreError: a run cannot be read.
        """
        with self._reading() as connection:
            return self._cells(connection)

    def categories(self, dataset: str = "") -> list[str]:
        """Returns the categories of the samples of a dataset, or of all of them, sorted.

        Raises:
            StoreError: a run cannot be read.
        """
        with self._reading() as connection:
            key = ("categories", dataset, self._version(connection))
            found: list[str] = self._once(key, lambda: self._categories(connection, dataset))
            return found

    def names_like(self, dataset: str, sample: str) -> list[str]:
        """Returns ids of samples of a dataset whose length is nearest to that of this one: what a mistyped id may have meant.

        Raises:
            StoreError: a run cannot be read.
        """
        with self._reading() as connection:
            names = " union ".join(
                f"select cast(id as text) as id from {self._schema(name)}.samples where dataset = :dataset"
                for name in self._attached
            )
            query = f"select id from ({names}) order by abs(length(id) - length(:sample)), id limit {_NAMES_LIKE}"
            return [name for (name,) in connection.execute(query, {"dataset": dataset, "sample": sample})]

    # What is looked for.

    def answers(self, wanted: Wanted, sort: str, cells: Collection[tuple[str, int]] | None = None) -> Found:
        """Returns the answers that are looked for, in order; of a sample under a setting of several views one key.

        Args:
            wanted: which ones.
            sort: one of ``SORTS``.
            cells: the runs and ids of cells that they may be of; ``None`` for all.

        Raises:
            StoreError: a run cannot be read, or it takes too long.
        """
        with self._reading() as connection:
            key = ("answers", wanted, sort, None if cells is None else frozenset(cells), self._version(connection))
            found: Found = self._once(key, lambda: self._answers(connection, wanted, sort, cells))
            return found

    def samples(self, wanted: Wanted, sort: str, cells: Collection[tuple[str, int]] | None = None) -> list[FoundSample]:
        """Returns the samples of the answers that are looked for; the ones that most settings harm come first.

        Args:
            wanted: which answers.
            sort: ``data`` for the order of the data; anything else for the worst first.
            cells: as of :meth:`answers`.

        Raises:
            StoreError: a run cannot be read, or it takes too long.
        """
        order = "first" if sort == "data" else "harmed desc, wrong desc, first"
        with self._reading() as connection:
            key = ("samples", wanted, order, None if cells is None else frozenset(cells), self._version(connection))
            found: list[FoundSample] = self._once(key, lambda: self._samples(connection, wanted, order, cells))
            return found

    # What is looked at.

    def read(self, key: AnswerKey) -> Seen:
        """Returns what was asked and answered.

        Raises:
            StoreError: it cannot be read.
        """
        with self._reading() as connection:
            name = self._names[key.run]
            cell = next((cell for cell in self._cells(connection) if (cell.run, cell.id) == (name, key.cell)), None)
            if cell is None:
                raise StoreError(f"{self._path(name)}: has no cell {key.cell} any more")
            return self._read(connection, cell, key.place)

    def find(self, run: str, model: str, dataset: str, sample: str, setting: str) -> Seen | None:
        """Returns what was asked and answered about a sample, by names; ``None`` where it was not asked.

        Raises:
            StoreError: it cannot be read.
        """
        with self._reading() as connection:
            asked = (run, model, dataset, setting)
            cell = next((cell for cell in self._cells(connection) if (cell.run, *cell[2:5]) == asked), None)
            place = None if cell is None else self._place(connection, run, dataset, sample)
            if cell is None or place is None:
                return None
            query = f"select 1 from {self._schema(run)}.answers where cell = ? and place = ?"
            there = connection.execute(query, (cell.id, place * cell.views)).fetchone()
            return self._read(connection, cell, place) if there else None

    def marks(self, dataset: str, sample: str) -> list[Scored]:
        """Returns the score of a sample in every cell that asked about it, run by run.

        Raises:
            StoreError: it cannot be read.
        """
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
        """Gives the connection to one thread at a time, with the files attached that there are now."""
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
            Evidence.open(path.parent, read_only=True).close()  # raises for whatever no run of this release wrote
            uris[name] = read_only_uri(path)
        connection = sqlite3.connect(":memory:", uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            self._lock.watch(connection)
            limit(connection)
            for name, uri in uris.items():
                connection.execute(f"attach ? as {self._schema(name)}", (uri,))
            connection.execute(
                "create temp table chosen (run integer, cell integer, dataset text, setting text, views integer, clean integer)"
            )
            connection.execute(
                "create temp table topics (run integer, dataset text, place integer, told integer, "
                "primary key (run, dataset, place)) without rowid"
            )
            connection.execute(
                "create temp table names (run integer, dataset text, id text, place integer, "
                "primary key (run, dataset, id)) without rowid"
            )
            connection.create_function("says", 2, _says, deterministic=True)
            connection.create_function("confidence", 1, confidence_in, deterministic=True)
        except BaseException:
            connection.close()
            raise
        return connection

    def _path(self, name: str) -> Path:
        return self.runs[name] / FILE_NAME

    def _schema(self, name: str) -> str:
        return f"run{self._names.index(name)}"

    def _version(self, connection: sqlite3.Connection) -> tuple[int, ...]:
        """Returns what changes when another process writes to one of the files."""
        return tuple(connection.execute(f"pragma {self._schema(name)}.data_version").fetchone()[0] for name in self._attached)

    def _once(self, key: object, find: Callable[[], Any]) -> Any:
        """Returns what was found for a key lately, or finds it."""
        if key not in self._cached:
            self._cached[key] = find()
            while len(self._cached) > _CACHED:
                self._cached.popitem(last=False)
        self._cached.move_to_end(key)
        return self._cached[key]

    def _categories(self, connection: sqlite3.Connection, dataset: str) -> list[str]:
        found = {
            str(value)
            for name in self._attached
            for (value,) in connection.execute(
                "select distinct case when json_valid(content) then json_extract(content, '$.category') end "
                f"from {self._schema(name)}.samples where ? in ('', dataset)",
                (dataset,),
            )
            if value
        }
        return sorted(found)

    def _answers(
        self, connection: sqlite3.Connection, wanted: Wanted, sort: str, cells: Collection[tuple[str, int]] | None
    ) -> Found:
        rows, values = self._rows(connection, wanted, cells)
        query = f"select run, cell, place from ({rows}) where {_where(wanted)} order by {_ORDERS[sort]}"
        return Found(connection.execute(query, values)) if rows else Found([])

    def _samples(
        self, connection: sqlite3.Connection, wanted: Wanted, order: str, cells: Collection[tuple[str, int]] | None
    ) -> list[FoundSample]:
        rows, values = self._rows(connection, wanted, cells)
        if not rows:
            return []
        each = (
            "select run, dataset, place, count(*) as answers, "
            f"sum(value < {RIGHT} and {_SEEN}) as wrong, sum(value < clean and {_SEEN}) as harmed "
            f"from ({rows}) where {_where(wanted)} group by run, dataset, place"
        )
        named = " union all ".join(
            f"select g.*, s.id as id from each g join {self._schema(name)}.samples s "
            f"on g.run = {self._names.index(name)} and s.dataset = g.dataset and s.place = g.place"
            for name in self._attached
        )
        query = (
            f"with each as materialized ({each}) select dataset, id, sum(answers), sum(wrong) as wrong, "
            f"sum(harmed) as harmed, min(place) as first from ({named}) group by dataset, id order by {order}, dataset"
        )
        return [FoundSample(row[0], str(row[1]), row[2], row[3] or 0, row[4] or 0) for row in connection.execute(query, values)]

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
        """Returns where a sample stands in its dataset; the file has no index by id, so one is made beside it."""
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

    def _rows(
        self, connection: sqlite3.Connection, wanted: Wanted, cells: Collection[tuple[str, int]] | None
    ) -> tuple[str, dict[str, Any]]:
        """Returns the statement whose rows are all answers of the cells that are looked at, and its values.

        Its columns: run, cell, place (of the sample), dataset, setting, value, state, clean (the value of the clean picture),
        said (the answer, of one view), told (whether the text stands there).
        """
        every = self._cells(connection)
        clean = {cell[:1] + cell[2:4]: cell.id for cell in every if cell.setting == CLEAN_NAME and cell.views == 1}
        taken = [cell for cell in every if wanted.takes(cell) and (cells is None or (cell.run, cell.id) in cells)]
        compared = [cell for cell in every if Wanted("", wanted.dataset, wanted.setting).takes(cell)] if wanted.differs else taken
        connection.execute("delete from chosen")
        connection.executemany(
            "insert into chosen values (?, ?, ?, ?, ?, ?)",
            [
                (self._names.index(cell.run), cell.id, cell.dataset, cell.setting, cell.views, clean.get((cell.run, *cell[2:4])))
                for cell in compared
            ],
        )
        if wanted.category or wanted.text:
            self._choose_topics(connection, wanted, {(cell.run, cell.dataset) for cell in taken})
        values: dict[str, Any] = {"text": wanted.text, "like": _pattern(wanted.text)}
        shown = {cell.run for cell in taken}
        if wanted.differs:
            self._choose_differing(connection, {cell.run for cell in compared})
            ids = {(self._names.index(cell.run), cell.id) for cell in taken}
            connection.executemany(
                "delete from chosen where run = ? and cell = ?",
                [pair for cell in compared if (pair := (self._names.index(cell.run), cell.id)) not in ids],
            )
        return " union all ".join(self._rows_of(name, wanted) for name in self._attached if name in shown), values

    def _rows_of(self, name: str, wanted: Wanted) -> str:
        schema, number = self._schema(name), self._names.index(name)
        views = f"select {{}} from {schema}.answers v where v.cell = a.cell and v.place between a.place and a.place + c.views - 1"
        best = views.format("case when sum(v.state = 'error') then null else max(v.value) end")
        state = views.format(
            "case when sum(v.state = 'error') then 'error' when sum(v.state = 'scored') then 'scored' else 'unparsed' end"
        )
        topic, kept = "", ""
        told = "1"
        if wanted.category or wanted.text:
            topic = f"join topics t on t.run = {number} and t.dataset = c.dataset and t.place = a.place / c.views "
        if wanted.text:
            told = f"t.told or exists ({views.format('1')} and v.prediction like :like escape '\\' and says(v.prediction, :text))"
        if wanted.differs:
            kept = f"join {schema}.samples s on s.dataset = c.dataset and s.place = a.place / c.views "
            kept += "join differing d on d.dataset = c.dataset and d.id = s.id and d.setting = c.setting "
        return (
            f"select {number} as run, c.cell as cell, a.place / c.views as place, c.dataset as dataset, c.setting as setting, "
            f"case when c.views = 1 then a.value else ({best}) end as value, "
            f"case when c.views = 1 then a.state else ({state}) end as state, b.value as clean, "
            f"case when c.views = 1 then a.prediction end as said, {told} as told "
            f"from chosen c join {schema}.answers a on a.cell = c.cell and a.place % c.views = 0 "
            f"left join {schema}.answers b on b.cell = c.clean and b.place = a.place / c.views "
            f"{topic}{kept}where c.run = {number}"
        )

    def _choose_topics(self, connection: sqlite3.Connection, wanted: Wanted, asked: Iterable[tuple[str, str]]) -> None:
        """Writes down the samples of the category, and whether the text stands in what was asked."""
        connection.execute("delete from topics")
        for run, dataset in sorted(asked):
            query = f"select place, id, content from {self._schema(run)}.samples where dataset = ?"
            rows = []
            for place, name, content in connection.execute(query, (dataset,)):
                category, text = _topic(str(name), content)
                if wanted.category in {"", category}:
                    rows.append((self._names.index(run), dataset, place, wanted.text.lower() in text))
            connection.executemany("insert or ignore into topics values (?, ?, ?, ?)", rows)

    def _choose_differing(self, connection: sqlite3.Connection, runs: Collection[str]) -> None:
        """Writes down which samples score differently under the same setting, with whichever model and in whichever run."""
        every = " union all ".join(
            f"select dataset, setting, value, (select s.id from {self._schema(name)}.samples s "
            f"where s.dataset = r.dataset and s.place = r.place) as id from ({self._rows_of(name, Wanted())}) r"
            for name in self._attached
            if name in runs
        )
        connection.execute("drop table if exists differing")
        connection.execute(
            "create temp table differing (dataset text, id text, setting text, primary key (dataset, id, setting)) without rowid"
        )
        if every:
            connection.execute(
                f"insert into differing select dataset, id, setting from ({every}) "
                "group by dataset, id, setting having max(value) <> min(value)"
            )

    def _mark(self, connection: sqlite3.Connection, cell: BrowsedCell, cells: Iterable[BrowsedCell], place: int) -> Scored | None:
        own = self._scores(connection, cell, place)
        if not own:
            return None
        clean = next(
            (c for c in cells if (c.run, c.model, c.dataset, c.setting) == (cell.run, cell.model, cell.dataset, CLEAN_NAME)), None
        )
        before = self._scores(connection, clean, place) if clean else []
        states = {state for _, state in own}
        state = next((name for name in ("error", "scored") if name in states), "unparsed")
        value = math.nan if state == "error" else max((value for value, _ in own if value is not None), default=math.nan)
        flip = ""
        if before and before[0][0] is not None and not math.isnan(value):
            flip = "harmful" if value < before[0][0] else "helpful" if value > before[0][0] else "none"
        shown = ("right" if value >= RIGHT else "wrong") if state == "scored" else state
        return Scored(cell, value, shown, flip)

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
            answer_of(path, named, each) for each in connection.execute(query, (cell.id, first, first + cell.views - 1))
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
            sample_from_json(row[1]),
            answers,
            None if before is None else answer_of(path, Cell(cell.model, cell.dataset, Setting.parse(CLEAN_NAME)), before),
            mark,
            tuple(text_of(path, note, what) for note in listed),
        )


# Conditions and orders, over the columns of the rows.

_CONDITIONS = {
    "right": f"state = 'scored' and value >= {RIGHT}",
    "wrong": f"state = 'scored' and value < {RIGHT}",
    "unparsed": "state = 'unparsed'",
    "error": "state = 'error'",
    "harmful": "value < clean",
    "helpful": "value > clean",
    "none": "value = clean",
}
_SEEN = f"setting <> '{NO_IMAGE_NAME}'"
"""That a picture was shown: without one a model is meant to lose score."""
_ORDERS = {
    "worst": f"not ({_SEEN}), coalesce(clean - value, -2) desc, coalesce(value, 2), place, run, cell",
    "surest": f"case when {_CONDITIONS['wrong']} then coalesce(confidence(said), 0) else -1 end desc, place, run, cell",
    "data": "dataset, place, run, cell",
}


_ASCII = re.compile(r"[\x00-\x7f]+")


def _where(wanted: Wanted) -> str:
    return " and ".join(["told", *(_CONDITIONS[name] for name in (wanted.state, wanted.flip) if name)])


def _pattern(text: str) -> str:
    """Returns what a stored answer must be like to hold a text: the longest part of it in ASCII has to be there."""
    stored = json.dumps(max(_ASCII.findall(text), key=len, default=""))[1:-1]
    return "%" + stored.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"


def _says(prediction: object, text: str) -> bool:
    try:
        return text.lower() in str(json.loads(str(prediction))["text"]).lower()
    except (ValueError, LookupError, TypeError, RecursionError):
        return False


def _topic(name: str, content: object) -> tuple[str, str]:
    """Returns the category of a stored sample, and all words of what was asked, in lower case."""
    try:
        data = json.loads(str(content))
        options = data.get("options") or {}
        return str(data.get("category") or ""), "\n".join((name, str(data["question"]), *map(str, options.values()))).lower()
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return "", name.lower()


def confidence_in(prediction: object) -> float | None:
    """Returns the probability of the most probable letter among those offered, of a prediction as it is stored.

    ``None`` where no log-probabilities are known.
    """
    try:
        values = [float(value) for value in json.loads(str(prediction))["logprobs"].values()]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
    return max(probabilities(values), default=None)


def probabilities(logprobs: Sequence[float]) -> list[float]:
    """Returns the shares of letters among themselves, which sum to 1; none where one is not a number or all are impossible.

    >>> probabilities([0.0, -math.inf])
    [1.0, 0.0]
    """
    highest = max(logprobs, default=-math.inf)
    if not math.isfinite(highest) or any(math.isnan(value) for value in logprobs):
        return []
    weights = [math.exp(value - highest) for value in logprobs]
    return [weight / sum(weights) for weight in weights]
