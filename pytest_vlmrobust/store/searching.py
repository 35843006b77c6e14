"""Searching: finds, sorts and counts answers of the attached runs with SQLite.

Results are kept as numbers (run, cell and sample), so a million answers need little memory.
"""

from __future__ import annotations

import json
import math
import re
import sqlite3
from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pytest_vlmrobust.core.cell import CLEAN_NAME, NO_IMAGE_NAME

RIGHT = 0.5
"""The score from which a graded answer counts as right."""
STATES = ("right", "wrong", "unparsed", "error")
"""States of an answer: right, wrong, unreadable, or a failed inference."""
FLIPS = ("harmful", "helpful", "none")
"""Effects of a setting on a sample's score compared with the clean image."""
SORTS = ("worst", "surest", "data")
"""``worst``: largest loss against the clean image first, answers without images last. ``surest``: wrong answers with the
highest probability first. ``data``: in the order of the data."""


class BrowsedCell(NamedTuple):
    """A cell of one of the runs."""

    run: str
    id: int
    model: str
    dataset: str
    setting: str
    views: int


@dataclass(frozen=True, slots=True)
class AnswerFilter:
    """The filter for answers; empty fields do not filter."""

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
    """A text in the id, question, options or answer, ignoring case."""
    differs: bool = False
    """Only samples that models or runs score differently."""

    def takes(self, cell: BrowsedCell) -> bool:
        """Whether answers of a cell may be among them."""
        setting = cell.setting
        named = self.setting in {"", setting} or setting.partition(":")[0] == self.setting
        return named and self.model in {"", cell.model} and self.dataset in {"", cell.dataset}


class AnswerKey(NamedTuple):
    """A matching answer, or those to all views of a sample: the indices of run, cell and sample."""

    run: int
    cell: int
    place: int


class MatchingSample(NamedTuple):
    """A sample with counts over its matching answers."""

    dataset: str
    id: str
    answers: int
    wrong: int
    harmed: int
    """Answers that score less than with the clean image. Answers without an image count neither here nor in ``wrong``."""


class AnswerKeys(Sequence[AnswerKey]):
    """Ordered answers, three numbers each: a million take 24 MB, and every page is available."""

    def __init__(self, rows: Iterable[tuple[int, int, int]]) -> None:
        self._numbers = array("q", (number for row in rows for number in row))

    def __len__(self) -> int:
        return len(self._numbers) // 3

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        if not 0 <= index < len(self):
            raise IndexError(index)
        return AnswerKey(*self._numbers[3 * index : 3 * index + 3])


def schema_of(number: int) -> str:
    """Returns the name by which statements know the file of a run."""
    return f"run{number}"


def prepare(connection: sqlite3.Connection) -> None:
    """Creates the temporary tables and SQL functions of searches."""
    connection.execute(
        "create temp table chosen (run integer, cell integer, dataset text, setting text, views integer, clean integer)"
    )
    connection.execute(
        "create temp table topics (run integer, dataset text, place integer, has_text integer, "
        "primary key (run, dataset, place)) without rowid"
    )
    connection.create_function("says", 2, _says, deterministic=True)
    connection.create_function("confidence", 1, confidence_in, deterministic=True)


class Search:
    """Finds answers of some cells on a connection used by a single thread."""

    def __init__(self, connection: sqlite3.Connection, numbers: Mapping[str, int], cells: Sequence[BrowsedCell]) -> None:
        """Keeps the connection and cells.

        The connection is set up by :func:`prepare`, with the runs attached by their ``numbers``; ``cells`` are all cells
        of these runs.
        """
        self._connection = connection
        self._numbers = numbers
        self._cells = cells

    def categories(self, dataset: str) -> list[str]:
        """Returns the categories of the samples of a dataset, or of all of them, sorted."""
        categories = {
            str(value)
            for name in self._numbers
            for (value,) in self._connection.execute(
                "select distinct case when json_valid(content) then json_extract(content, '$.category') end "
                f"from {self._schema(name)}.samples where ? in ('', dataset)",
                (dataset,),
            )
            if value
        }
        return sorted(categories)

    def answers(self, criteria: AnswerFilter, sort: str, cells: Collection[tuple[str, int]] | None) -> AnswerKeys:
        """Returns the answers that are looked for, in an order of ``SORTS``."""
        rows, values = self._rows(criteria, cells)
        query = f"select run, cell, place from ({rows}) where {_where(criteria)} order by {_ORDERS[sort]}"
        return AnswerKeys(self._connection.execute(query, values)) if rows else AnswerKeys([])

    def samples(self, criteria: AnswerFilter, order: str, cells: Collection[tuple[str, int]] | None) -> list[MatchingSample]:
        """Returns the samples of the matching answers, counted over settings; ``order`` is SQL."""
        rows, values = self._rows(criteria, cells)
        if not rows:
            return []
        counts = (
            "select run, dataset, place, count(*) as answers, "
            f"sum(value < {RIGHT} and {_SEEN}) as wrong, sum(value < clean and {_SEEN}) as harmed "
            f"from ({rows}) where {_where(criteria)} group by run, dataset, place"
        )
        named = " union all ".join(
            f"select g.*, s.id as id from each g join {self._schema(name)}.samples s "
            f"on g.run = {self._numbers[name]} and s.dataset = g.dataset and s.place = g.place"
            for name in self._numbers
        )
        query = (
            f"with each as materialized ({counts}) select dataset, id, sum(answers), sum(wrong) as wrong, "
            f"sum(harmed) as harmed, min(place) as first from ({named}) group by dataset, id order by {order}, dataset"
        )
        return [
            MatchingSample(row[0], str(row[1]), row[2], row[3] or 0, row[4] or 0)
            for row in self._connection.execute(query, values)
        ]

    def _schema(self, name: str) -> str:
        return schema_of(self._numbers[name])

    def _rows(self, criteria: AnswerFilter, cells: Collection[tuple[str, int]] | None) -> tuple[str, dict[str, Any]]:
        """Returns the statement for all answers of the selected cells, and its values.

        Its columns: run, cell, place (of the sample), dataset, setting, value, state, clean (the value of the clean image),
        said (the answer to a single view), has_text (whether it has the text).
        """
        every = self._cells
        clean = {cell[:1] + cell[2:4]: cell.id for cell in every if cell.setting == CLEAN_NAME and cell.views == 1}
        taken = [cell for cell in every if criteria.takes(cell) and (cells is None or (cell.run, cell.id) in cells)]
        compared = (
            [cell for cell in every if AnswerFilter("", criteria.dataset, criteria.setting).takes(cell)]
            if criteria.differs
            else taken
        )
        self._connection.execute("delete from chosen")
        self._connection.executemany(
            "insert into chosen values (?, ?, ?, ?, ?, ?)",
            [
                (self._numbers[cell.run], cell.id, cell.dataset, cell.setting, cell.views, clean.get((cell.run, *cell[2:4])))
                for cell in compared
            ],
        )
        if criteria.category or criteria.text:
            self._choose_topics(criteria, {(cell.run, cell.dataset) for cell in taken})
        values: dict[str, Any] = {"text": criteria.text, "like": _pattern(criteria.text)}
        shown = {cell.run for cell in taken}
        if criteria.differs:
            self._choose_differing({cell.run for cell in compared})
            ids = {(self._numbers[cell.run], cell.id) for cell in taken}
            self._connection.executemany(
                "delete from chosen where run = ? and cell = ?",
                [pair for cell in compared if (pair := (self._numbers[cell.run], cell.id)) not in ids],
            )
        return " union all ".join(self._rows_of(name, criteria) for name in self._numbers if name in shown), values

    def _rows_of(self, name: str, criteria: AnswerFilter) -> str:
        schema, number = self._schema(name), self._numbers[name]
        views = f"select {{}} from {schema}.answers v where v.cell = a.cell and v.place between a.place and a.place + c.views - 1"
        best = views.format("case when sum(v.state = 'error') then null else max(v.value) end")
        state = views.format(
            "case when sum(v.state = 'error') then 'error' when sum(v.state = 'scored') then 'scored' else 'unparsed' end"
        )
        topic, kept = "", ""
        has_text = "1"
        if criteria.category or criteria.text:
            topic = f"join topics t on t.run = {number} and t.dataset = c.dataset and t.place = a.place / c.views "
        if criteria.text:
            has_text = (
                f"t.has_text or exists ({views.format('1')} and v.prediction like :like escape '\\' "
                "and says(v.prediction, :text))"
            )
        if criteria.differs:
            kept = f"join {schema}.samples s on s.dataset = c.dataset and s.place = a.place / c.views "
            kept += "join differing d on d.dataset = c.dataset and d.id = s.id and d.setting = c.setting "
        return (
            f"select {number} as run, c.cell as cell, a.place / c.views as place, c.dataset as dataset, c.setting as setting, "
            f"case when c.views = 1 then a.value else ({best}) end as value, "
            f"case when c.views = 1 then a.state else ({state}) end as state, b.value as clean, "
            f"case when c.views = 1 then a.prediction end as said, {has_text} as has_text "
            f"from chosen c join {schema}.answers a on a.cell = c.cell and a.place % c.views = 0 "
            f"left join {schema}.answers b on b.cell = c.clean and b.place = a.place / c.views "
            f"{topic}{kept}where c.run = {number}"
        )

    def _choose_topics(self, criteria: AnswerFilter, datasets: Iterable[tuple[str, str]]) -> None:
        """Fills a temporary table with the samples of the category, and whether their question contains the text."""
        self._connection.execute("delete from topics")
        for run, dataset in sorted(datasets):
            query = f"select place, id, content from {self._schema(run)}.samples where dataset = ?"
            rows = []
            for place, name, content in self._connection.execute(query, (dataset,)):
                category, text = _topic(str(name), content)
                if criteria.category in {"", category}:
                    rows.append((self._numbers[run], dataset, place, criteria.text.lower() in text))
            self._connection.executemany("insert or ignore into topics values (?, ?, ?, ?)", rows)

    def _choose_differing(self, runs: Collection[str]) -> None:
        """Fills a temporary table with samples that score differently under the same setting between models or runs."""
        every = " union all ".join(
            f"select dataset, setting, value, (select s.id from {self._schema(name)}.samples s "
            f"where s.dataset = r.dataset and s.place = r.place) as id from ({self._rows_of(name, AnswerFilter())}) r"
            for name in self._numbers
            if name in runs
        )
        self._connection.execute("drop table if exists differing")
        self._connection.execute(
            "create temp table differing (dataset text, id text, setting text, primary key (dataset, id, setting)) without rowid"
        )
        if every:
            self._connection.execute(
                f"insert into differing select dataset, id, setting from ({every}) "
                "group by dataset, id, setting having max(value) <> min(value)"
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
"""The condition that an image was shown: without one, a loss is expected."""
_ORDERS = {
    "worst": f"not ({_SEEN}), coalesce(clean - value, -2) desc, coalesce(value, 2), place, run, cell",
    "surest": f"case when {_CONDITIONS['wrong']} then coalesce(confidence(said), 0) else -1 end desc, place, run, cell",
    "data": "dataset, place, run, cell",
}
_ASCII = re.compile(r"[\x00-\x7f]+")


def _where(criteria: AnswerFilter) -> str:
    return " and ".join(["has_text", *(_CONDITIONS[name] for name in (criteria.state, criteria.flip) if name)])


def _pattern(text: str) -> str:
    """Returns a LIKE pattern for stored answers that may contain a text: its longest ASCII part."""
    stored = json.dumps(max(_ASCII.findall(text), key=len, default=""))[1:-1]
    return "%" + stored.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"


def _says(prediction: object, text: str) -> bool:
    try:
        return text.lower() in str(json.loads(str(prediction))["text"]).lower()
    except (ValueError, LookupError, TypeError, RecursionError):
        return False


def _topic(name: str, content: object) -> tuple[str, str]:
    """Returns the category of a stored sample and its question text in lower case."""
    try:
        data = json.loads(str(content))
        options = data.get("options") or {}
        return str(data.get("category") or ""), "\n".join((name, str(data["question"]), *map(str, options.values()))).lower()
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return "", name.lower()


def confidence_in(prediction: object) -> float | None:
    """Returns the probability of the most probable letter relative to all letters, for a stored prediction.

    ``None`` without log-probabilities.
    """
    try:
        values = [float(value) for value in json.loads(str(prediction))["logprobs"].values()]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
    return max(probabilities(values), default=None)


def probabilities(logprobs: Sequence[float]) -> list[float]:
    """Returns the normalised probabilities of letters; empty if one is NaN or all are impossible.

    >>> probabilities([0.0, -math.inf])
    [1.0, 0.0]
    """
    highest = max(logprobs, default=-math.inf)
    if not math.isfinite(highest) or any(math.isnan(value) for value in logprobs):
        return []
    weights = [math.exp(value - highest) for value in logprobs]
    return [weight / sum(weights) for weight in weights]
