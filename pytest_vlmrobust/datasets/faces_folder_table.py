"""The files of a folder of identities: its table, row by row, with line numbers, and its settings."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_vlmrobust.core.boxes import Box
from pytest_vlmrobust.core.errors import DatasetError, did_you_mean
from pytest_vlmrobust.files.document import Entry, read_document

from .files import Place, Problems

# The table of a folder of identities: ``faces.csv``, row by row, each with its line.
#
#     file,identity,group,left_eye,right_eye,nose,mouth
#     ann.png,Ann,female,"52,61,71,70","89,61,108,70","72,70,88,95","62,104,98,119"
#
# CSV is UTF-8, separated by commas; blanks around a value are ignored.


REQUIRED = ("file", "identity")
OPTIONAL = ("group", "category")


@dataclass(frozen=True, slots=True)
class Row:
    """One image as described in the table; ``cells`` has the non-empty columns."""

    place: Place
    cells: Mapping[str, str]


def read_rows(table: Path, more: Sequence[str], problems: Problems) -> list[Row]:
    """Returns the rows of a table; rows that lack a required value are left out and noted in ``problems``."""
    columns = (*REQUIRED, *OPTIONAL, *more)
    try:
        entries = list(_entries(table, columns, problems))
    except OSError as error:
        raise DatasetError(f"{table} cannot be read: {error.strerror or error}") from error
    rows = [_row(table, line, cells) for line, cells in entries]
    return [row for row in rows if _is_complete(row, problems)]


def write_rows(table: Path, rows: Sequence[Mapping[str, str]], more: Sequence[str]) -> None:
    """Writes rows as a CSV table; ``more`` as in :func:`read_rows`."""
    with table.open("x", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, (*REQUIRED, *OPTIONAL, *more), restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def written_box(box: Box) -> str:
    """Returns a box as a cell of the table, in full precision.

    >>> written_box((1.0, 2.5, 30.0, 41.0))
    '1,2.5,30,41'
    """
    return ",".join(repr(int(edge) if edge == int(edge) else edge) for edge in box)


def _row(table: Path, line: int, cells: Mapping[str, str]) -> Row:
    name = f"file {cells['file']!r}" if "file" in cells else "the row"
    return Row(Place(table, line, name), cells)


def _is_complete(row: Row, problems: Problems) -> bool:
    absent = [column for column in REQUIRED if column not in row.cells]
    for column in absent:
        problems.add(row.place, column, None, "a value: this column is required")
    return not absent


def _entries(table: Path, columns: Sequence[str], problems: Problems) -> Iterator[tuple[int, dict[str, str]]]:
    from .delimited import records

    rows = ((record.line, record.fields) for record in records(table, spaced=True))
    line, header = next(rows, (1, []))
    _check_header(Place(table, line, "the header"), header, columns, problems)
    for line, fields in rows:
        if len(fields) != len(header):
            where = Place(table, line, f"file {fields[0]!r}")
            problems.add(where, "(all)", fields, f"{len(header)} values as in the header; put boxes in double quotes")
        else:
            yield line, {column: field for column, field in zip(header, fields, strict=True) if field}


def _check_header(place: Place, header: Sequence[str], columns: Sequence[str], problems: Problems) -> None:
    for position, column in enumerate(header):
        if column not in columns:
            problems.add(place, column, column, f"no such column.{did_you_mean(column, columns)} Known: {', '.join(columns)}")
        elif column in header[:position]:
            problems.add(place, column, column, "each column once")
    for column in REQUIRED:
        if column not in header:
            problems.add(place, column, None, "this column: it is required")
    problems.raise_any()


# The layout of a folder of identities.
#
# FOLDER/faces.csv     the table: one row for each image
# FOLDER/faces.yaml    settings; optional
# FOLDER/…             the images, also in subfolders


TABLE = "faces.csv"
SETTINGS = "faces.yaml"


@dataclass(frozen=True, slots=True)
class Domain:
    """The known properties of the images of one domain."""

    attributes: tuple[str, ...]
    """Attributes with boxes, as columns of the table."""
    hints: tuple[str, ...]
    """The possible hints in semi-guided localisation, the default first."""


DOMAINS = {
    "face": Domain(("left_eye", "right_eye", "nose", "mouth"), ("nose", "left_eye", "right_eye", "mouth")),
    "word": Domain(("word",), ("corner",)),
}


# Settings of a folder of identities: ``faces.yaml`` next to its table.
#
#     domain: face                     face or word
#     hinted: nose                     the hint in semi-guided localisation
#     landmarks: face_landmarker.task  MediaPipe's model file, for rows without boxes
#     encoder: models/clip             near neighbours are those of this image encoder: a folder, or ID[@REVISION] of the hub
#     groupings: [sex, race, age]      columns of the table by which people are grouped, besides its column ``group``
#
# Paths are relative to the folder.


KEYS = ("domain", "hinted", "landmarks", "encoder", "groupings")
_HUB_ID = re.compile(r"(?P<id>[\w.-]+(?:/[\w.-]+)?)(?:@(?P<revision>[\w./-]+))?")
_PATHS = ("/", "./", "../", "~")


@dataclass(frozen=True, slots=True)
class EncoderName:
    """The location of an image encoder: a folder, else a hub id and its revision."""

    written: str
    folder: Path | None = None
    id: str = ""
    revision: str = ""


@dataclass(frozen=True, slots=True)
class FolderSettings:
    """The settings in ``faces.yaml``, or the defaults without it."""

    domain: str = "face"
    hinted: str = "nose"
    landmarks: Path | None = None
    encoder: EncoderName | None = None
    groupings: tuple[str, ...] = ()
    """Columns by which people are grouped, besides ``group``."""

    @property
    def attributes(self) -> tuple[str, ...]:
        """Attributes with boxes."""
        return DOMAINS[self.domain].attributes

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the table that not every table has."""
        return (*self.groupings, *self.attributes)


def read_settings(folder: Path) -> FolderSettings:
    """Returns the settings of a folder; nothing that they name is opened."""
    file = folder / SETTINGS
    if file.is_file():
        return _settings(file)
    misnamed = file.with_suffix(".yml")
    if misnamed.is_file():
        raise DatasetError(f"{misnamed} is not read. Rename it to {SETTINGS}")
    return FolderSettings()


def _settings(file: Path) -> FolderSettings:
    expected = f"keys and values; known keys: {', '.join(KEYS)}"
    entries = read_document(file, what="settings", error=DatasetError, expected=expected).mapping(KEYS)
    domain = entries["domain"].one_of(DOMAINS) if "domain" in entries else "face"
    if "landmarks" in entries and domain != "face":
        entries["landmarks"].refuse("no such key where the domain is not face: landmarks are those of faces")
    hints = DOMAINS[domain].hints
    return FolderSettings(
        domain,
        entries["hinted"].one_of(hints) if "hinted" in entries else hints[0],
        entries["landmarks"].file_below(file.parent) if "landmarks" in entries else None,
        _encoder(entries["encoder"], file.parent) if "encoder" in entries else None,
        _groupings(entries["groupings"], DOMAINS[domain].attributes) if "groupings" in entries else (),
    )


def _groupings(entry: Entry, attributes: Sequence[str]) -> tuple[str, ...]:
    entries = (entry.items() if entry.is_list else []) or [entry]
    names = [column.identifier() for column in entries]
    for position, (column, name) in enumerate(zip(entries, names, strict=True)):
        if name in (*REQUIRED, *OPTIONAL, *attributes):
            column.refuse("the name of a column of its own, such as sex: this one has a meaning already")
        if name in names[:position]:
            column.refuse("each column once")
    return tuple(names)


def _encoder(entry: Entry, base: Path) -> EncoderName:
    folder, written = entry.file_below(base), entry.text()
    if folder.is_dir():
        return EncoderName(written, folder=folder)
    hub = _HUB_ID.fullmatch(written)
    if hub is None or written.startswith(_PATHS):
        entry.refuse(f"the folder of a checkpoint, or ID[@REVISION] of the hub; there is no folder {folder}")
    return EncoderName(written, id=hub["id"], revision=hub["revision"] or "")
