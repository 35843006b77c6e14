"""Evidence: every question of a run, every answer, and how it was scored, in one file of the run directory.

All workers of a run write to it, a cell per transaction, so that a killed run keeps its results.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pytest_vlmrobust.core.cell import CLEAN, PROBES, Cell, Setting
from pytest_vlmrobust.core.conversion import to_plain
from pytest_vlmrobust.core.errors import StoreError
from pytest_vlmrobust.core.fingerprint import canonical_json
from pytest_vlmrobust.core.record import Record
from pytest_vlmrobust.core.sample import PictureDigests, Sample
from pytest_vlmrobust.core.words import first_few, quantity, without_halves

from .database import FILE_NAME, Database, DatabaseSchema, connect
from .gates import members
from .questions import (
    RUN_AGAIN,
    Answer,
    answer_of,
    check_type,
    in_spaces,
    parse_json,
    row_of,
    sample_from_json,
    sample_to_json,
    text_of,
    value_of,
)
from .run_directory import LOST

_TABLES = (
    """
    create table models (
        name text primary key,
        fingerprint text not null
    ) without rowid
    """,
    """
    create table datasets (
        name text primary key,
        digest text not null,
        metric text not null
    ) without rowid
    """,
    """
    create table samples (
        dataset text not null,
        place integer not null,
        id text not null,
        content text not null,
        primary key (dataset, place)
    ) without rowid
    """,
    """
    create table pictures (
        dataset text not null,
        sample text not null,
        sources text not null,
        pixels text not null,
        primary key (dataset, sample)
    ) without rowid
    """,
    """
    create table questions (
        dataset text not null,
        setting text not null,
        place integer not null,
        changes text not null,
        primary key (dataset, setting, place)
    ) without rowid
    """,
    """
    create table spaces (
        model text not null,
        dataset text not null,
        content text not null,
        primary key (model, dataset)
    ) without rowid
    """,
    """
    create table cells (
        id integer primary key,
        model text not null,
        dataset text not null,
        setting text not null,
        views integer not null,
        notes text not null,
        unique (model, dataset, setting)
    )
    """,
    """
    create table answers (
        cell integer not null references cells (id),
        place integer not null,
        key text not null,
        prediction text not null,
        value real,
        state text not null,
        rule text not null,
        answer text,
        primary key (cell, place)
    ) without rowid
    """,
)
SCHEMA = DatabaseSchema(  # "VLME"
    0x564C4D45,
    1,
    _TABLES,
    called="evidence of a run",
    damaged=RUN_AGAIN,
    absent="Name the directory of a run that asked a model, such as .vlmrobust/runs/RUN",
    elsewhere="name the directory of another run",
)
_ANSWERED = ("scored", "unparsed")
"""The states of answers that are equal in all processes."""
_LEAST_ROW = 4
"""Bytes that a row takes at least."""
_OWN = {"models", "datasets", "samples", "questions", "pictures", "spaces", "cells", "answers"}
"""The names of the tables."""


@dataclass(frozen=True, slots=True)
class StoredCell:
    """The answers of a cell: for each sample in order, those to all its views."""

    cell: Cell
    views: int
    answers: tuple[Answer, ...]
    notes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By sample id: notes about images that the setting could not change as intended."""
    places: tuple[int, ...] | None = None
    """The evaluated samples by position in the dataset; ``None`` for all."""
    questions: Mapping[int, str] = field(default_factory=dict)
    """The changes of the setting to questions, as JSON, by position in the dataset. Read by ``samples``."""

    @property
    def rows(self) -> list[tuple[int, Answer]]:
        """Each answer with its index among all views of all samples."""
        if self.places is None:
            return list(enumerate(self.answers))
        numbers = (place * self.views + view for place in self.places for view in range(self.views))
        return list(zip(numbers, self.answers, strict=True))

    @property
    def by_sample(self) -> list[tuple[int, tuple[Answer, ...]]]:
        """Each evaluated sample, by position in the dataset, with its answers in the order of views."""
        rows = [self.answers[start : start + self.views] for start in range(0, len(self.answers), self.views)]
        return list(zip(range(len(rows)) if self.places is None else self.places, rows, strict=True))


@dataclass(frozen=True, slots=True)
class StoredScores:
    """The scores of a cell's answers without their texts, one entry per answer."""

    cell: Cell
    views: int
    places: tuple[int, ...]
    """The sample of each answer, by position in the dataset."""
    keys: tuple[str, ...]
    values: tuple[float, ...]
    states: tuple[str, ...]
    rules: tuple[str, ...]


def lost_answers(directory: Path, records: Iterable[Record]) -> str:
    """Returns that a run which asked a model has no evidence any more, or an empty text."""
    path = directory / FILE_NAME
    if path.is_file() or not any(record.n_requested for record in records):
        return ""
    origin = "the run's directory in its store, or run again: answers that the store holds are not asked again"
    return f"{path}: is missing: nothing shows what the models answered. Copy it from {origin}"


class Evidence(Database):
    """The evidence of a run. Raises ``StoreError`` if it cannot be read or written."""

    schema = SCHEMA

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        super().__init__(path, connection)
        self._sizes: dict[str, int] = {}
        """The number of samples stored through this object, by dataset."""
        self._written: dict[tuple[str, str, str], dict[int, int | None]] = {}
        """The hash of each stored answer, by cell and index; ``None`` for a failed inference: another process may have
        more luck."""

    @classmethod
    def open(cls, directory: Path, *, read_only: bool = False) -> Evidence:
        """Opens the evidence of a run's directory, and creates both unless ``read_only``."""
        path = directory / FILE_NAME
        return cls(path, connect(path, read_only=read_only, schema=SCHEMA))

    def refuse_impossible_counts(self) -> None:
        """Refuses a file that claims more rows than its bytes can hold: pages may be linked so that they are met many times.

        Only a gate needs this, for its baseline: commands read runs in quarantine.
        """
        with self._reading():
            log = self.path.with_name(f"{self.path.name}-wal")
            size = self.path.stat().st_size + (log.stat().st_size if log.exists() else 0)
            for table in sorted(_OWN):
                query = f"select 1 from {table} limit 1 offset ?"  # noqa: S608 - a name of ours; count(*) asks no clock
                if self._connection.execute(query, (size // _LEAST_ROW,)).fetchone():
                    raise StoreError(f"{self.path}: claims more rows in {table} than {size} bytes can hold. {RUN_AGAIN}")

    def digest(self) -> str:
        """Returns the SHA-256 of all answers and their subjects: the same for every copy."""
        digest = hashlib.sha256()
        with self._reading():
            query = (
                "select model, dataset, setting, place, key, prediction, value, state, rule, answer from answers "
                "join cells on cells.id = answers.cell order by model, dataset, setting, place"
            )
            for row in self._connection.execute(query):
                digest.update(repr(row).encode("utf-8", "backslashreplace"))
        return digest.hexdigest()

    def put_model(self, name: str, fingerprint: Mapping[str, Any]) -> None:
        """Stores the fingerprint of a model; storing it again changes nothing."""
        content = without_halves(canonical_json(dict(fingerprint)))
        with self._writing():
            self._connection.execute("insert or ignore into models (name, fingerprint) values (?, ?)", (name, content))

    def models(self) -> dict[str, dict[str, Any]]:
        """Returns the fingerprint of each model, by its name in test ids."""
        rows = self._rows("select name, fingerprint from models order by name")
        return {
            text_of(self.path, name, "a name in models"): dict(
                parse_json(self.path, content, dict, f"the fingerprint of {name!r}")
            )
            for name, content in rows
        }

    def put_samples(self, dataset: str, digest: str, samples: Sequence[Sample], metric: str = "accuracy") -> None:
        """Stores the samples of a dataset without images; storing them again changes nothing.

        They are in order and without the box coordinates of a model (see ``put_spaces``). ``digest``
        is that of the dataset's content; ``metric`` is its corpus metric.
        """
        rows = [(dataset, place, sample.id, sample_to_json(sample)) for place, sample in enumerate(samples)]
        with self._writing():
            self._connection.execute(
                "insert or ignore into datasets (name, digest, metric) values (?, ?, ?)", (dataset, digest, metric)
            )
            self._connection.executemany("insert or ignore into samples (dataset, place, id, content) values (?, ?, ?, ?)", rows)
        self._sizes[dataset] = len(rows)

    def put_pictures(self, dataset: str, pictures: Mapping[str, PictureDigests]) -> None:
        """Stores the image digests of samples, by sample id; storing the same again changes nothing.

        Raises StoreError if another process of the run saw other images.
        """
        rows = [(dataset, sample, digests.sources, digests.pixels) for sample, digests in pictures.items()]
        with self._writing():
            self._connection.executemany(
                "insert or ignore into pictures (dataset, sample, sources, pixels) values (?, ?, ?, ?)", rows
            )
        stored = self.pictures(dataset)
        if others := [sample for sample, digests in pictures.items() if not digests.same_as(stored[sample])]:
            raise StoreError(
                f"{self.path}: the images of {first_few(others)} of {dataset} were others when this run first saw them: they "
                "were changed while it was reading them. Start the run again"
            )

    def pictures(self, dataset: str) -> dict[str, PictureDigests]:
        """Returns the image digests of samples that were shown clean, by sample id."""
        rows = self._rows("select sample, sources, pixels from pictures where dataset = ?", dataset)
        what = f"a row in pictures of {dataset!r}"
        texts = ([text_of(self.path, value, what) for value in row] for row in rows)
        return {sample: PictureDigests(sources, pixels) for sample, sources, pixels in texts}

    def put_spaces(self, model: str, dataset: str, samples: Sequence[Sample]) -> None:
        """Stores the box coordinates of a model for each sample; nothing if no sample asks for boxes."""
        spaces = [sample.localisation and sample.localisation.space for sample in samples]
        if not any(spaces):
            return
        content = json.dumps(to_plain(spaces))
        with self._writing():
            self._connection.execute(
                "insert or ignore into spaces (model, dataset, content) values (?, ?, ?)", (model, dataset, content)
            )

    def put_cells(self, cells: Sequence[StoredCell], encoded: Mapping[str, str] = MappingProxyType({})) -> None:
        """Stores the answers of cells in one transaction; a repeated cell replaces its answers.

        Answers to a part of its samples are added to the existing ones. A cell may come in several parts. ``encoded`` are
        predictions just read from a store, as stored JSON, by key.
        """
        with self._writing():
            written = [self._put(stored, encoded) for stored in cells]
        for stored, hashes in zip(cells, written, strict=True):
            key = (stored.cell.model, stored.cell.dataset, str(stored.cell.setting))
            if stored.places is None:
                self._written.pop(key, None)
            self._written.setdefault(key, {}).update(hashes)

    def _put(self, stored: StoredCell, encoded: Mapping[str, str]) -> dict[int, int | None]:
        """Inserts the answers of a cell; returns their hashes by index, to be recorded after the commit."""
        key = (stored.cell.model, stored.cell.dataset, str(stored.cell.setting))
        notes = {sample: list(notes) for sample, notes in stored.notes.items()}
        number = self._number(key)
        if number is not None and stored.places is None:
            self._connection.execute("delete from answers where cell = ?", (number,))
        elif number is not None:
            (before,) = self._connection.execute("select notes from cells where id = ?", (number,)).fetchone()
            notes = {**json.loads(before), **notes}
        if number is None:
            self._connection.execute(
                "insert into cells (model, dataset, setting, views, notes) values (?, ?, ?, ?, '{}')", (*key, stored.views)
            )
            number = self._number(key)
        query = "update cells set views = ?, notes = ? where id = ?"
        self._connection.execute(query, (stored.views, json.dumps(notes), number))
        self._connection.executemany(
            "insert or replace into questions (dataset, setting, place, changes) values (?, ?, ?, ?)",
            [(*key[1:], place, changes) for place, changes in stored.questions.items()],
        )
        rows = [(place, *row_of(answer, encoded.get(answer.key))) for place, answer in stored.rows]
        self._connection.executemany(
            "insert or replace into answers (cell, place, key, prediction, value, state, rule, answer) "
            "values (?, ?, ?, ?, ?, ?, ?, ?)",
            [(number, *row) for row in rows],
        )
        return {row[0]: hash(row) if row[4] in _ANSWERED else None for row in rows}

    def gate_members(self, model: str, dataset: str) -> tuple[bytes, bytes]:
        """Returns a model's questions (text, options and pixels) and its cells with all answers and scores.

        Both as :func:`~pytest_vlmrobust.store.gates.members`.
        """
        pixels = {sample: digests.pixels for sample, digests in self.pictures(dataset).items()}
        cells: list[bytes] = []
        places: set[int] = set()
        for cell in self.cells():
            if (cell.model, cell.dataset) == (model, dataset):
                scores = self.cell_scores(cell)
                places |= set(scores.places)
                cells.append(repr((str(cell.setting), scores.places, scores.keys, scores.values, scores.states)).encode())
        samples = self.samples(dataset) if places else ()
        questions = [samples[place] for place in places]
        contents = [[q.question, list(q.options.items()), len(q.images), pixels.get(q.id, "")] for q in questions]
        return members(without_halves(canonical_json(content)).encode() for content in contents), members(cells)

    def damage(self) -> str:
        """Returns a sentence if the file on disk lacks answers stored through this object; else an empty text.

        The file is opened again, because content visible only to this connection would be lost.
        """
        if gone := self.replacement():
            return gone
        try:
            with Evidence.open(self.path.parent, read_only=True) as fresh:
                wrong = [f"answers of {'-'.join(key)}" for key, hashes in self._written.items() if not fresh.holds(key, hashes)]
                wrong += [f"samples of {name!r}" for name, count in self._sizes.items() if len(fresh.samples(name)) != count]
        except StoreError as error:
            return f"{error}. {LOST}"
        if not wrong:
            return ""
        return f"{self.path}: lacks {first_few(wrong, 1)}, which this run put there. {LOST}"

    def holds(self, cell: tuple[str, str, str], hashes: Mapping[int, int | None]) -> bool:
        """Whether a cell has answers at these indices, with these hashes if known."""
        with self._reading():
            query = "select place, key, prediction, value, state, rule, answer from answers where cell = ?"
            rows = {row[0]: row for row in self._connection.execute(query, (self._number(cell),))}
        return all(place in rows and expected in (None, hash(rows[place])) for place, expected in hashes.items())

    def cells(self) -> list[Cell]:
        """Returns the cells that were evaluated, sorted; without probes, which no test is about."""
        return [cell for cell in self._cells() if cell.setting not in PROBES]

    def probes(self) -> list[Cell]:
        """Returns the evaluated probes, sorted."""
        return [cell for cell in self._cells() if cell.setting in PROBES]

    def _cells(self) -> list[Cell]:
        rows = self._rows("select model, dataset, setting from cells")
        texts = ([text_of(self.path, value, "a row in cells") for value in row] for row in rows)
        return sorted(Cell(model, dataset, Setting.parse(setting)) for model, dataset, setting in texts)

    def get_cell(self, cell: Cell, *, whole: bool = True) -> StoredCell:
        """Returns the answers of a cell; with ``whole`` unset also if only part of its samples was evaluated.

        If a setting changes questions, the cell consists of the changed ones, and these have places.
        """
        with self._reading():
            number, views, notes = self._whole(cell) if whole else self._views_and_notes(cell)
            changed = self._changed_places(cell) if whole else set()
            rows = self._connection.execute(
                "select place, key, prediction, value, state, rule, answer from answers where cell = ? order by place", (number,)
            ).fetchall()
        self._require_places(cell, rows)
        rows = [row for row in rows if not changed or row[0] // views in changed]
        listed = parse_json(self.path, notes, dict, f"the notes of {cell}")
        what = f"a note of {cell}"
        notes_by_sample = {
            sample: tuple(text_of(self.path, note, what) for note in check_type(self.path, every, list, what))
            for sample, every in listed.items()
        }
        answers = tuple(answer_of(self.path, cell, row) for row in rows)
        with self._reading():
            places = self._places(cell, views, [row[0] for row in rows]) if changed or not whole else None
        return StoredCell(cell, views, answers, notes_by_sample, places)

    def get_scores(self, cell: Cell) -> list[float]:
        """Returns the scores of a cell's answers in the order of :meth:`get_cell`; NaN for failed inferences."""
        with self._reading():
            number, views, _ = self._whole(cell)
            changed = self._changed_places(cell)
            query = "select place, value from answers where cell = ? order by place"
            rows = self._connection.execute(query, (number,)).fetchall()
        self._require_places(cell, rows)
        kept = (row for row in rows if not changed or row[0] // views in changed)
        return [value_of(self.path, cell, place, value) for place, value in kept]

    def cell_scores(self, cell: Cell) -> StoredScores:
        """Returns the scores of a cell's answers, even if only part of its samples was evaluated."""
        with self._reading():
            number, views, _ = self._views_and_notes(cell)
            query = "select place, key, value, state, rule from answers where cell = ? order by place"
            rows = self._connection.execute(query, (number,)).fetchall()
        self._require_places(cell, rows)
        with self._reading():
            self._places(cell, views, [row[0] for row in rows])
        numbers, keys, values, states, rules = zip(*rows, strict=True) if rows else ((),) * 5
        scores = tuple(value_of(self.path, cell, place, value) for place, value in zip(numbers, values, strict=True))
        places = tuple(number // views for number in numbers)
        return StoredScores(cell, views, places, keys, scores, states, rules)

    def datasets(self) -> dict[str, str]:
        """Returns the digest of each dataset, by its name in test ids."""
        rows = self._rows("select name, digest from datasets order by name")
        return {
            text_of(self.path, name, "a name in datasets"): text_of(self.path, digest, f"the digest of {name!r}")
            for name, digest in rows
        }

    def corpus_metric(self, dataset: str) -> str:
        """Returns the name of the metric that is reported for a dataset as a whole."""
        with self._reading():
            row = self._connection.execute("select metric from datasets where name = ?", (dataset,)).fetchone()
        if row is None:
            raise StoreError(f"{self.path}: the run asked nothing of the dataset {dataset!r}")
        return str(row[0])

    def changed_questions(self, dataset: str, setting: Setting) -> dict[int, str]:
        """Returns the changes of a setting to questions, as JSON, by position in the dataset."""
        rows = self._rows("select place, changes from questions where dataset = ? and setting = ?", dataset, str(setting))
        self._require_places(f"the table of questions of {dataset!r}", rows)
        return {place: text_of(self.path, changes, f"a changed question of {dataset!r}") for place, changes in rows}

    def samples(self, dataset: str, model: str = "", setting: Setting = CLEAN) -> tuple[Sample, ...]:
        """Returns the samples of a dataset in order; their images cannot be loaded.

        With a ``model``, boxes are in its coordinates. Under a ``setting`` that changes
        questions, the samples are the changed ones.
        """
        changed = self.changed_questions(dataset, setting)
        rows = self._rows("select place, id, content from samples where dataset = ? order by place", dataset)
        spaces = self._rows("select content from spaces where model = ? and dataset = ?", model, dataset)
        if not rows:
            raise StoreError(f"{self.path}: the run asked nothing of the dataset {dataset!r}")
        self._require_places(f"the dataset {dataset!r}", rows)
        samples = tuple(self._sample(name, content, changed.get(place, "{}")) for place, name, content in rows)
        twice = [name for name, count in Counter(sample.id for sample in samples).items() if count > 1]
        if twice:
            raise StoreError(
                f"{self.path}: the dataset {dataset!r} has {twice[0]!r} twice, expected each sample once. {RUN_AGAIN}"
            )
        return self._in_spaces(samples, spaces[0][0]) if spaces else samples

    def foreign(self) -> list[str]:
        """Returns the names of tables, views and triggers that no run makes, sorted."""
        rows = self._rows("select name from sqlite_master where name not like 'sqlite_%'")
        return sorted({str(name) for (name,) in rows} - _OWN)

    def _number(self, key: tuple[str, str, str]) -> int | None:
        row = self._connection.execute("select id from cells where model = ? and dataset = ? and setting = ?", key).fetchone()
        return None if row is None else int(row[0])

    def _whole(self, cell: Cell) -> tuple[int, int, str]:
        """Returns number, views and notes of a cell that has an answer for each view of each sample."""
        number, views, notes = self._views_and_notes(cell)
        (samples,) = self._connection.execute("select count(*) from samples where dataset = ?", (cell.dataset,)).fetchone()
        query = "select count(*), min(place), max(place) from answers where cell = ?"
        count, first, last = self._connection.execute(query, (number,)).fetchone()
        if changed := self._changed_places(cell):
            query = "select place from answers where cell = ?"
            places = [place for (place,) in self._connection.execute(query, (number,)) if isinstance(place, int)]
            samples, count = len(changed), sum(place // views in changed for place in places)
            first, last = 0, count - 1
        if count != samples * views:
            wanted = f"{views} for each of {quantity(samples, 'sample')}"
            early = f". A run in adaptive mode stops early: make one with --vlm-mode=full. Of any other run: {RUN_AGAIN.lower()}"
            raise StoreError(f"{self.path}: {cell} has {count} answers, expected {samples * views}: {wanted}{early}")
        if count and (first, last) != (0, count - 1):
            raise StoreError(f"{self.path}: {cell} has answers {first} to {last}, expected 0 to {count - 1}. {RUN_AGAIN}")
        return number, views, notes

    def _changed_places(self, cell: Cell) -> set[object]:
        """Returns the places of the questions that the setting of a cell changes; none where it changes images alone."""
        query = "select place from questions where dataset = ? and setting = ?"
        return {place for (place,) in self._connection.execute(query, (cell.dataset, str(cell.setting)))}

    def _require_places(self, what: object, rows: Sequence[Sequence[object]]) -> None:
        """Refuses rows that do not begin with whole numbers: a null would shift the rows after it."""
        if {type(row[0]) for row in rows} - {int}:
            wrong = next(row[0] for row in rows if type(row[0]) is not int)
            raise StoreError(f"{self.path}: {what} has {wrong!r:.100} as a place, expected whole numbers. {RUN_AGAIN}")

    def _views_and_notes(self, cell: Cell) -> tuple[int, int, str]:
        """Returns number, views and notes of a cell."""
        query = "select id, views, notes from cells where model = ? and dataset = ? and setting = ?"
        row = self._connection.execute(query, (cell.model, cell.dataset, str(cell.setting))).fetchone()
        if row is None:
            raise StoreError(f"{self.path}: the run has no answers of {cell}")
        number, views, notes = row
        if not isinstance(views, int) or views < 1:
            raise StoreError(f"{self.path}: {cell} has {views!r} views of a sample, expected one or more. {RUN_AGAIN}")
        return number, views, notes

    def _places(self, cell: Cell, views: int, numbers: Sequence[int]) -> tuple[int, ...]:
        """Returns the samples with an answer to each view, by position in the dataset.

        ``views`` is the number per sample; ``numbers`` are the sorted indices of answers among all views of all samples.
        """
        (samples,) = self._connection.execute("select count(*) from samples where dataset = ?", (cell.dataset,)).fetchone()
        places = tuple(dict.fromkeys(number // views for number in numbers))
        whole = len(numbers) == len(places) * views  # otherwise views need not be counted; a file may claim any number
        expected = [place * views + view for place in places for view in range(views)] if whole else []
        if not whole or list(numbers) != expected or (places and not 0 <= places[0] <= places[-1] < samples):
            raise StoreError(f"{self.path}: {cell} lacks answers to some views of samples, or has too many. {RUN_AGAIN}")
        return places

    def _sample(self, sample: str, content: str, changes: str = "{}") -> Sample:
        try:
            read = sample_from_json(content, changes)
        except StoreError as error:
            raise StoreError(f"{self.path}: the sample {sample!r}: {error}") from error
        if read.id != sample:
            raise StoreError(f"{self.path}: the sample {sample!r} calls itself {read.id!r}. {RUN_AGAIN}")
        return read

    def _in_spaces(self, samples: tuple[Sample, ...], content: str) -> tuple[Sample, ...]:
        try:
            return in_spaces(samples, json.loads(content))
        except (ValueError, TypeError, RecursionError) as error:
            raise StoreError(f"{self.path}: the coordinates of boxes cannot be read: {error}. {RUN_AGAIN}") from error
