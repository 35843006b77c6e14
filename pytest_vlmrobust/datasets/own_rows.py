"""User data in a JSONL, CSV or Parquet file: the keys of a row, and how it becomes a sample.

    {"id": "q1", "image": "pictures/1.png", "question": "What is it?", "options": ["cat", "dog"], "answer": "B"}

In JSONL a row is a JSON object on one line. In CSV an empty cell is an absent key, and options are a list in one column, such as
``["cat", "dog"]``, or in columns ``A`` to ``Z``. Parquet is read by pyarrow, an optional extra; there an image may also be
bytes or, as written by the package ``datasets``, an object with ``bytes`` or a ``path``.

==============  ======================================================================================================
``id``          required, unique: text or a whole number
``image``       required (or ``images``, a list): a path relative to the file, a ``data:`` URL, or base64 of an image file
``question``    required
``answer``      required: the letter of an option; yes or no (or true, false); or one or a list of accepted answers
``options``     a list of texts (lettered A, B, …) or an object from letters to texts
``category``    the stratum for sampling and for reports
``group``       rows that are resampled together; by default those with the same image
``hint``        shown before the question
``task``        ``choice``, ``yes_no`` or ``open``; by default as in ``drafts.finish``
``changed_by``  what changes the right answer: kinds of change (``["left_right"]``), or perturbations (``["flip_h"]``)
``scorer``      the scorer that compares the answer with the target; by default that of the task
``instruction`` how to answer, shown after the question
``keys``        an object from names to texts, by which metrics of the whole dataset group
``perturbed``   which images a setting changes, by number from 1: ``[2]``; by default all
``meta``        an object from names to values, maybe nested; or keys such as ``meta.camera``: slices for rules and reports
``target_of_attack`` the wrong answer that an attack or a prior aims at: a letter of an option, yes or no, or a text
==============  ======================================================================================================

Any other key is an error: a misspelt ``group`` must not silently make the intervals too narrow.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import json
import os.path
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from pytest_vlmrobust.core.conversion import read_json
from pytest_vlmrobust.core.errors import DatasetError, ImageError, MissingExtra, did_you_mean
from pytest_vlmrobust.core.sample import META, ImageSource

from .delimited import cells_of, field_image, header_of, records
from .drafts import LETTERS, TASKS, Draft, finish, metadata, with_copies, without_padding
from .files import MOST_SHOWN, Contents, Place, Problems
from .images import FileImage, RowImage, Span, file_stamp, from_base64, image_identity, is_turned, start_of_base64, why_outside


def is_text(value: object) -> bool:
    """Returns whether a JSON value can be read as text: text or a number, but not true or false."""
    return isinstance(value, (str, int, float)) and not isinstance(value, bool)


KEYS = (
    "id",
    "image",
    "images",
    "question",
    "options",
    "answer",
    "category",
    "group",
    "hint",
    "task",
    "changed_by",
    "scorer",
    "instruction",
    "keys",
    "meta",
    "target_of_attack",
    "perturbed",
)
REQUIRED = ("id", "question", "answer")
OTHER_NAMES = {
    "id": ("index", "idx", "qid", "question_id", "sample_id", "uid"),
    "image": ("img", "image_path", "image_file", "file", "file_name", "filename", "path", "picture"),
    "question": ("prompt", "query", "text", "problem"),
    "options": ("choices", "candidates"),
    "answer": ("label", "target", "gt", "ground_truth", "gold", "solution", "reference"),
    "category": ("type", "subject", "topic"),
}
"""How other formats name a key: offered for a file that has such a name, never read."""
_BASE64 = re.compile(r"[A-Za-z0-9+/\s]{64,}={0,2}\s*")
_LONGEST_PATH = 1024
Inline = Callable[[int, str, str], ImageSource]
"""Makes the source of an image inside a row from its position, its digest and the description of its place."""


class OwnRows:
    """The state shared by the rows of a file: its problems, and the image files that the rows refer to."""

    def __init__(self, path: Path, part: str) -> None:
        self.path = path
        self.problems = Problems(path, part)
        self.image_files: dict[str, Path] = {}
        self._unknown: dict[str, list[tuple[Place, Any]]] = {}

    def draft(self, row: Mapping[str, Any], place: Place, inline: Inline) -> Draft | None:
        """Returns the draft of a row; if its keys are wrong, notes problems and returns ``None``."""
        return _Row(row, place, inline, self).draft() if self._has_the_right_keys(row, place) else None

    def contents(self, drafts: Iterable[Draft | None], expected: str) -> Contents:
        """Returns the samples of the file; images are decoded only when a sample's image is loaded."""
        made = with_copies([*filter(None, drafts)], self.image_files.values())
        self._report_unknown_keys()
        samples = finish(made, self.problems, "id")
        if not samples:
            raise DatasetError(f"{self.path} is empty: expected {expected}")
        return Contents(samples, self.image_files, tuple(self.problems.notes))

    def _has_the_right_keys(self, row: Mapping[str, Any], place: Place) -> bool:
        before = len(self.problems.messages)
        unknown = [key for key in row if key not in KEYS and not key.startswith(META)]
        for key in unknown:
            self._unknown.setdefault(key, []).append((place, row[key]))
        for key in REQUIRED:
            if key not in row:
                self.problems.add(place, key, None, "a value: this key is required")
        if ("image" in row) == ("images" in row):
            self.problems.add(place, "image", [key for key in ("image", "images") if key in row], "either 'image' or 'images'")
        return not unknown and len(self.problems.messages) == before

    def _report_unknown_keys(self) -> None:
        """Adds one problem for each unknown key, because a file usually has it in every row."""
        for key, occurrences in self._unknown.items():
            place, value = occurrences[0]
            rows = f" (the first of {len(occurrences)} rows with it)" if len(occurrences) > 1 else ""
            plain = key.strip().casefold()
            usual = next((name for name in KEYS if plain in (name, *OTHER_NAMES.get(name, ()))), "")
            other = f"If it describes the question, call it {META}{key}.{did_you_mean(key, KEYS)}"
            names = f"{f'Did you mean {usual!r}?' if usual else other} Known: {', '.join(KEYS)}"
            self.problems.add(place, key, value, f"no such {self.problems.part}{rows}. {names}")


class _Row:
    """A row with valid keys; every method reads one of them."""

    def __init__(self, row: Mapping[str, Any], place: Place, inline: Inline, rows: OwnRows) -> None:
        self.row, self.place, self.inline, self.rows = row, place, inline, rows

    def draft(self) -> Draft:
        pictures, group = pictures_of(self.row), self._text("group")
        own_group = hashlib.sha256("\n".join(map(str, pictures)).encode("utf-8", "surrogatepass")).hexdigest()[:16]
        return Draft(
            place=self.place,
            id=self._text("id"),
            images=self._images(pictures),
            question=self._text("question"),
            answer=self._answer(),
            options=self._options(),
            category=self._text("category"),
            group=group or own_group,
            pictured="" if group else own_group,
            hint=self._text("hint"),
            task=self._task(),
            changed_by=frozenset(self._names("changed_by")),
            scorer=self._text("scorer"),
            instruction=self._text("instruction"),
            keys=self._keys(),
            meta=metadata(self.row, self.place, self.rows.problems),
            target_of_attack=self._text("target_of_attack"),
            perturbed=str(self.row.get("perturbed", "")),
        )

    def _wrong(self, key: str, expected: str) -> None:
        self.rows.problems.add(self.place, key, self.row[key], expected)

    def _text(self, key: str) -> str:
        value = self.row.get(key, "")
        if is_text(value):
            return str(value)
        self._wrong(key, "text")
        return ""

    def _answer(self) -> str | tuple[str, ...]:
        value = self.row["answer"]
        if isinstance(value, bool):
            return "yes" if value else "no"
        if isinstance(value, list) and value and all(map(is_text, value)):
            return tuple(map(str, value))
        if not is_text(value):
            self._wrong("answer", "text, a number, true, false, or a list of accepted texts")
            return "?"
        return str(value)

    def _options(self) -> dict[str, str]:
        value = self.row.get("options")
        if isinstance(value, list) and len(value) <= len(LETTERS) and all(map(is_text, value)):
            value = dict(zip(LETTERS, without_padding([*map(str, value)]) or (), strict=False))
        if value is None:
            return {}
        fine = isinstance(value, dict) and all(key in LETTERS and len(key) == 1 and is_text(value[key]) for key in value)
        if not fine:
            self._wrong("options", "a list of at most 26 texts, or an object from the letters A to Z to texts")
            return {"A": "?", "B": "?"}
        options = {letter: str(text) for letter, text in value.items()}
        if empty := [letter for letter, text in options.items() if not text.strip()]:
            self._wrong("options", f"a text for each option; {empty[0]} is empty")
        return options

    def _task(self) -> str:
        task = self.row.get("task", "")
        if task in ("", *TASKS):
            return str(task)
        self._wrong("task", f"one of {', '.join(TASKS)}.{did_you_mean(str(task), TASKS)}")
        return ""

    def _names(self, key: str) -> list[str]:
        value = self.row.get(key, [])
        if isinstance(value, list) and all(isinstance(name, str) for name in value):
            return value
        self._wrong(key, 'a list of names, such as ["flip_h"]')
        return []

    def _keys(self) -> dict[str, str]:
        value = self.row.get("keys", {})
        if isinstance(value, dict) and all(map(is_text, value.values())):
            return {key: str(text) for key, text in value.items()}
        self._wrong("keys", 'an object from names to texts, such as {"figure": "3"}')
        return {}

    def _images(self, pictures: list[Any]) -> tuple[ImageSource, ...]:
        key = "image" if "image" in self.row else "images"
        if not pictures or not all(isinstance(picture, str | bytes) and picture for picture in pictures):
            self._wrong(key, "a path, a data: URL or base64 (a list of them for several images)")
            return ()
        return tuple(image for number in range(len(pictures)) if (image := self._image(key, pictures, number)) is not None)

    def _image(self, key: str, pictures: list[Any], number: int) -> ImageSource | None:
        written, where = pictures[number], f"{self.place}, {self.rows.problems.part} {key!r}"
        if isinstance(written, bytes):
            if is_turned(written):
                self.rows.problems.turned.append(self.place)
            return self.inline(number, hashlib.sha256(written).hexdigest(), where)
        path = self.rows.path.parent / written if len(written) <= _LONGEST_PATH else None
        if path is not None and os.path.isfile(path):  # noqa: PTH113 - Path.is_file raises if a name is too long, such as base64
            if outside := why_outside(path, self.rows.path.parent):
                self.rows.problems.add(self.place, key, written, outside)
                return None
            if written not in self.rows.image_files and is_turned(path):  # each file is opened once
                self.rows.problems.turned.append(self.place)
            self.rows.image_files[written] = path
            return FileImage(path, where)
        if written.startswith("data:") or _BASE64.fullmatch(written):
            if is_turned(start_of_base64(written)):
                self.rows.problems.turned.append(self.place)
            return self.inline(number, hashlib.sha256(written.encode("utf-8", "surrogatepass")).hexdigest(), where)
        self.rows.problems.add(
            self.place, key, written, f"an image file, a data: URL or base64; no file {path}{self._hint(written)}"
        )
        return None

    def _hint(self, written: str) -> str:
        """Returns what a path that leads to no file was probably meant to be."""
        folder = self.rows.path.parent
        if "://" in written:
            return " (nothing is downloaded: save the image beside the file)"
        if (folder / (slashed := written.replace("\\", "/"))).is_file():
            return f" (folders are separated by '/': write {slashed!r})"
        if Path(written).is_file():
            return f" (a path starts at the folder of the data: write {os.path.relpath(written, folder)!r})"
        beside = (folder / written).parent
        if len(self.rows.problems.messages) < MOST_SHOWN and beside.is_dir():
            alike = [path.name for path in beside.iterdir() if path.name.casefold() == Path(written).name.casefold()]
            return f" (there is {alike[0]!r}: capitals count)" if alike else ""
        return ""


def pictures_of(row: Mapping[str, Any]) -> list[Any]:
    """Returns the images of a row as written."""
    value = row["image"] if "image" in row else row["images"]
    return value if isinstance(value, list) else [value]


_LISTS = ("images", "options", "answer", "changed_by", "keys", "meta")
"""Keys with values that may be a list or an object, written as in JSON."""


def as_keys(cells: dict[str, Any]) -> dict[str, Any]:
    """Returns the cells as keys of a row: lists and objects written in a text, and the columns ``A`` to ``Z`` as options."""
    row = {key: _parsed(value) if key in _LISTS else value for key, value in cells.items() if key not in LETTERS}
    options = {letter: str(cells[letter]) for letter in LETTERS if cells.get(letter) not in (None, "")}
    return {**row, "options": options} if options and "options" not in row else row


def _parsed(value: Any) -> Any:
    text = value.strip() if isinstance(value, str) else ""
    if not (text.startswith("[") and text.endswith("]")) and not (text.startswith("{") and text.endswith("}")):
        return value
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return value


# JSONL


def _jsonl_image(span: Span, position: int, digest: str, where: str) -> RowImage:
    return RowImage(partial(_read_line, span, position), image_identity(digest), where)


def _read_line(span: Span, position: int, where: str) -> bytes:
    row = json.loads(span.read(where).decode("utf-8-sig"))
    return from_base64(pictures_of(row)[position], where)


_ARRAY = re.compile(rb"(?:\xef\xbb\xbf)?\s*\[\s*(?:\{|\Z)")


def _lines(rows: OwnRows) -> Iterator[Draft | None]:
    offset, stamp = 0, file_stamp(rows.path)
    with rows.path.open("rb") as stream:
        for number, raw in enumerate(stream, start=1):
            span = Span(rows.path, offset, len(raw), stamp)
            offset += len(raw)
            if number == 1 and _ARRAY.match(raw):
                raise DatasetError(f"{rows.path} is a JSON array: expected one JSON object per line, with no brackets around")
            row = _object(rows, number, raw) if raw.strip() else None
            if row is not None:
                place = Place(rows.path, number, f"id {row['id']!r}" if "id" in row else "the line")
                yield rows.draft(row, place, partial(_jsonl_image, span))


def _object(rows: OwnRows, number: int, raw: bytes) -> dict[str, Any] | None:
    place = Place(rows.path, number, "the line")
    try:
        row = read_json(raw)
    except UnicodeDecodeError as error:
        raise DatasetError(f"{rows.path}:{number} is not UTF-8 ({error}). Save the file as UTF-8") from error
    except ValueError as error:
        rows.problems.add(place, "(all)", raw.decode(errors="replace").strip(), f"a JSON object ({error})")
        return None
    if not isinstance(row, dict):
        rows.problems.add(place, "(all)", row, "a JSON object")
        return None
    return row


# CSV


def _records(rows: OwnRows) -> Iterator[Draft | None]:
    source = records(rows.path)
    header = header_of(rows.path, next(source, None))
    for record in source:
        named = dict(zip(header, record.fields, strict=False)).get("id", "")
        place = Place(rows.path, record.line, f"row id {named!r}")
        if cells := cells_of(record, header, place, rows.problems):
            column = next((header.index(key) for key in ("image", "images") if cells.get(key)), 0)
            yield rows.draft(
                as_keys({key: text for key, text in cells.items() if text}), place, partial(field_image, record.span, column)
            )


# Parquet


_Cell = tuple[Path, tuple[int, int], int, int]
"""A Parquet file, its stamp, a row group, and a row in it."""


def _parquet_image(cell: _Cell, position: int, digest: str, where: str) -> RowImage:
    return RowImage(partial(_read_cell, cell, position), image_identity(digest), where)


def _read_cell(cell: _Cell, position: int, where: str) -> bytes:
    path, stamp, group, offset = cell
    try:
        if file_stamp(path) != stamp:
            raise ImageError(f"{where}: {path} was changed while the run was reading it. Start the run again")
        (cells,) = _pictures(path, stamp, group).slice(offset, 1).to_pylist()
    except OSError as error:
        raise ImageError(f"{where}: {path} cannot be read any more: {error}") from error
    picture = pictures_of(_keys(cells))[position]
    return picture if isinstance(picture, bytes) else from_base64(picture, where)


def _parquet_rows(rows: OwnRows) -> Iterator[Draft | None]:
    if importlib.util.find_spec("pyarrow") is None:
        raise MissingExtra(f"reading {rows.path}", "pyarrow", extra="parquet")
    stamp = file_stamp(rows.path)
    for group, offset, number, cells in _cells_of_parquet(rows.path):
        place = Place(rows.path, number, f"row id {cells.get('id')!r}")
        yield rows.draft(_keys(cells), place, partial(_parquet_image, (rows.path, stamp, group, offset)))


def _cells_of_parquet(path: Path) -> Iterator[tuple[int, int, int, dict[str, Any]]]:
    """Yields row group, row in it, row of the file from 1, and its cells."""
    number = 0
    try:
        file = importlib.import_module("pyarrow.parquet").ParquetFile(path)
        for group in range(file.num_row_groups):
            for offset, cells in enumerate(file.read_row_group(group).to_pylist()):
                number += 1
                yield group, offset, number, cells
    except OSError:
        raise
    except Exception as error:
        raise DatasetError(f"{path} cannot be read as Parquet ({type(error).__name__}: {error}). Write it again") from error


@lru_cache(maxsize=4)
def _pictures(path: Path, stamp: tuple[int, int], group: int) -> Any:
    del stamp  # only distinguishes states of the file
    file = importlib.import_module("pyarrow.parquet").ParquetFile(path)
    return file.read_row_group(group, columns=[name for name in file.schema_arrow.names if name in ("image", "images")])


def _keys(cells: dict[str, Any]) -> dict[str, Any]:
    """Returns the cells as keys of a row: without absent values, and images as bytes or texts."""
    row = as_keys({key: value for key, value in cells.items() if value is not None and value != ""})
    for key in {"image", "images"} & row.keys():
        many = row[key] if isinstance(row[key], list) else [row[key]]
        written = [(item.get("bytes") or item.get("path")) if isinstance(item, dict) else item for item in many]
        row[key] = written if isinstance(row[key], list) else written[0]
    for key in ("keys", "meta"):  # an absent key of an object is null in every row
        if isinstance(row.get(key), dict):
            row[key] = {name: value for name, value in row[key].items() if value is not None or key == "meta"}
    return row


_READERS: dict[str, tuple[str, Callable[[OwnRows], Iterator[Draft | None]], str]] = {
    ".jsonl": ("key", _lines, "one JSON object per line"),
    ".csv": ("column", _records, "a line of column names, and rows"),
    ".parquet": ("column", _parquet_rows, "a row for each question"),
}
"""By suffix: the word for a part of a row in messages, the reader, and what an empty file lacks."""


def read_own_rows(path: Path) -> Contents:
    """Returns the samples of a file according to its suffix."""
    part, read, expected = _READERS[path.suffix.lower()]
    rows = OwnRows(path, part)
    return rows.contents(read(rows), expected)
