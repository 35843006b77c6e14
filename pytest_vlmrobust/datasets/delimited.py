"""Records of tab- and comma-separated files, read one at a time, with their offsets: an image is read again when shown."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

from pytest_vlmrobust.core.errors import DatasetError

from .drafts import parse_list
from .files import Place, Problems
from .images import RowImage, Span, file_stamp, from_base64, image_identity

_LONGEST_FIELD = 2**31 - 1
KINDS = {"\t": "tab", ",": "comma"}


def mark_of(path: Path) -> str:
    """Returns the field separator of a file: a comma in a ``.csv``, otherwise a tab."""
    return "," if path.suffix.lower() == ".csv" else "\t"


@dataclass(frozen=True, slots=True)
class FileRecord:
    """The fields of one record, the line it starts on (from 1), and its bytes."""

    line: int
    fields: list[str]
    span: Span


def field_image(span: Span, column: int, position: int, digest: str, where: str) -> RowImage:
    """Returns one image in a field of a record of a file; ``digest`` is that of the field."""
    return RowImage(partial(_read_field, span, column, position), image_identity(digest, position), where)


def _read_field(span: Span, column: int, position: int, where: str) -> bytes:
    fields = next(_split([span.read(where).decode()], mark_of(span.path)))
    return from_base64(parse_list(fields[column])[position], where)


def records(path: Path, *, spaced: bool = False) -> Iterator[FileRecord]:
    """Yields the records of a UTF-8 file, the header first; blank lines are skipped, and blanks around fields if ``spaced``."""
    mark = mark_of(path)
    with path.open("rb") as stream:
        first = stream.readline()
        others = (other for other in "\t,;" if other.encode() in first and mark.encode() not in first)
        if other := next(others, ""):
            raise DatasetError(
                f"{path}:1 is one column, {first.decode(errors='replace').strip()[:60]!r}: expected columns separated by "
                f"{KINDS[mark]}s. The file seems to have {other!r} between them: save it as {KINDS[mark]}-separated values"
            )
        stream.seek(0)
        stamp, lines = file_stamp(path), _Lines(stream, path)
        reader = _split(lines, mark, spaced=spaced)
        while True:
            offset, line = lines.bytes, lines.line + 1
            try:
                fields = next(reader, None)
            except csv.Error as error:
                raise DatasetError(
                    f"{path}:{line} is not a row of {KINDS[mark]}-separated values ({error}). A field that holds a "
                    f"{KINDS[mark]}, a line break or a double quote is expected in double quotes, with every double quote in it "
                    'doubled: "a 5"" tv"'
                ) from error
            if fields is None:
                return
            if spaced:
                fields = [field.strip() for field in fields]
            if any(fields) if spaced else fields:
                yield FileRecord(line, fields, Span(path, offset, lines.bytes - offset, stamp))


class _Lines:
    """The lines of a file as text, and how many lines and bytes were handed out."""

    def __init__(self, stream: BinaryIO, path: Path) -> None:
        self.stream, self.path = stream, path
        self.bytes = 0
        self.line = 0

    def __iter__(self) -> Iterator[str]:
        for raw in self.stream:
            self.line += 1
            self.bytes += len(raw)
            try:
                yield raw.decode("utf-8-sig" if self.line == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise DatasetError(f"{self.path}:{self.line} is not UTF-8 ({error}). Save the file as UTF-8") from error


def _split(lines: Iterable[str], mark: str, *, spaced: bool = False) -> Iterator[list[str]]:
    # The limit belongs to the whole process; it is raised and never lowered, since another thread may be reading.
    csv.field_size_limit(max(csv.field_size_limit(), _LONGEST_FIELD))
    return csv.reader(lines, delimiter=mark, strict=True, skipinitialspace=spaced)


def header_of(path: Path, first: FileRecord | None) -> list[str]:
    """Returns the names of the columns."""
    if first is None:
        raise DatasetError(f"{path} is empty: expected a line of column names, and rows")
    repeated = sorted({column for column in first.fields if first.fields.count(column) > 1})
    if repeated:
        raise DatasetError(f"{path}:1 names the column {repeated[0]!r} twice: expected every column once")
    return first.fields


def cells_of(record: FileRecord, header: Sequence[str], place: Place, problems: Problems) -> dict[str, str] | None:
    """Returns the cells of a record by column; ``None``, with a problem noted, if their number differs from the header's."""
    if len(record.fields) == len(header):
        return dict(zip(header, record.fields, strict=True))
    expected = f"{len(header)}, as many as the header names (a {KINDS[mark_of(record.span.path)]} or a quote inside a field?)"
    problems.add(place, "(all)", f"{len(record.fields)} fields", expected)
    return None
