"""Records of a tab-separated file, read one at a time, and where each lies, so that a picture can be read again later."""

from __future__ import annotations

import ast
import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from pytest_vlmrobust.core.errors import DatasetError

from .images import Span, decode, file_stamp, from_base64, image_identity

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_LONGEST_FIELD = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Record:
    """The fields of one record, the line it starts on (from 1), and its bytes."""

    line: int
    fields: list[str]
    span: Span


@dataclass(frozen=True, slots=True)
class TsvImage:
    """One picture of one field of one record of a TSV file; ``digest`` is that of the field."""

    span: Span
    column: int
    position: int
    digest: str
    where: str

    def load(self) -> NDArray[np.uint8]:
        """Returns the pixels.

        Raises:
            ImageError: the file has changed, or the picture cannot be decoded.
        """
        fields = next(_split([self.span.read(self.where).decode()]))
        return decode(from_base64(listed(fields[self.column])[self.position], self.where), self.where)

    def identity(self) -> str:
        """Returns a string that depends on the encoded picture alone; nothing is read for it."""
        return image_identity(self.digest, self.position)


def records(path: Path) -> Iterator[Record]:
    """Yields the records of a UTF-8 file, the header first; blank lines are skipped.

    Raises:
        DatasetError: a record is not UTF-8, or its quotes do not pair.
        OSError: the file cannot be opened.
    """
    with path.open("rb") as stream:
        stamp, lines = file_stamp(path), _Lines(stream, path)
        reader = _split(lines)
        while True:
            offset, line = lines.bytes, lines.line + 1
            try:
                fields = next(reader, None)
            except csv.Error as error:
                raise DatasetError(
                    f"{path}:{line} is not a row of tab-separated values ({error}). A field that holds a tab, a line break or a "
                    'double quote is expected in double quotes, with every double quote in it doubled: "a 5"" tv"'
                ) from error
            if fields is None:
                return
            if fields:
                yield Record(line, fields, Span(path, offset, lines.bytes - offset, stamp))


def listed(text: str) -> tuple[str, ...]:
    """Returns the texts of a list literal such as ``['a', 'b']``, or ``text`` alone when it is not bracketed.

    Raises:
        ValueError: it begins and ends like a list and is not a list of texts.
    """
    if not (text.startswith("[") and text.endswith("]")):
        return (text,)
    try:
        value = ast.literal_eval(text)
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise ValueError(str(error)) from error
    if not value or not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ValueError(text)
    return tuple(value)


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


def _split(lines: Iterable[str]) -> Iterator[list[str]]:
    # The limit belongs to the whole process; it is raised and never lowered, since another thread may be reading.
    csv.field_size_limit(max(csv.field_size_limit(), _LONGEST_FIELD))
    return csv.reader(lines, delimiter="\t", strict=True)
