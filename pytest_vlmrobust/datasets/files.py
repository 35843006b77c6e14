"""A dataset in a file: read once, fingerprinted by content, with every malformed row reported together."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from pytest_vlmrobust.core.errors import DatasetError
from pytest_vlmrobust.core.fingerprint import file_digest, fingerprint
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.core.words import quantity

from .benchmarks import UNKNOWN, Benchmark

MOST_SHOWN = 10
_KIND = re.compile(r"[;:.(]")


class DatasetWarning(UserWarning):
    """Something about the data that does not stop a run and that its reader should know."""

    __module__ = "pytest_vlmrobust"


@dataclass(frozen=True, slots=True)
class Contents:
    """The result of reading: samples, their files (name as written, and path), and notes for the report."""

    samples: tuple[Sample, ...]
    image_files: Mapping[str, Path] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


Reader = Callable[[Path, str], Contents]


class ReadOnceDataset:
    """A dataset whose contents are read at the first use of ``samples`` or ``notes``, and only once."""

    native_long_edge: int | None = None

    def __init__(self, name: str, benchmark: Benchmark, read: Callable[[], Contents]) -> None:
        self.name, self.benchmark = name, benchmark
        self.corpus_metric, self.keeps_together = benchmark.metric, benchmark.keeps_together
        self._read = read

    def samples(self) -> Sequence[Sample]:
        """Returns the samples in the order of the file or table."""
        return self._contents.samples

    @property
    def notes(self) -> tuple[str, ...]:
        """Returns notes on these data for the reader of the report; each was also issued as a ``DatasetWarning``."""
        return self._contents.notes

    @cached_property
    def _contents(self) -> Contents:
        contents = self._read()
        for note in contents.notes:
            warnings.warn(note, DatasetWarning, stacklevel=3)
        return contents


class FileDataset(ReadOnceDataset):
    """A dataset in one file, and the image files it refers to.

    ``digest`` is the SHA-256 of the file, as printed by ``sha256sum``, if the images are inside it; if rows refer to image files,
    it is a fingerprint of that and of the SHA-256 of every image file under its written name.
    """

    def __init__(self, name: str, path: Path, read: Reader, *, variant: str = "", benchmark: Benchmark = UNKNOWN) -> None:
        super().__init__(name, benchmark, lambda: self._read_file(read))
        self.path, self.variant = path, variant

    @cached_property
    def digest(self) -> str:
        """SHA-256, in hex, of the content and of the ``variant`` it is read as."""
        try:
            files = {written: file_digest(path) for written, path in self._contents.image_files.items()}
            digest = "" if self.path.is_dir() else file_digest(self.path)
        except OSError as error:
            raise DatasetError(f"{self.path}: {error.filename} cannot be read: {error.strerror or error}") from error
        return fingerprint({"file": digest, "images": files, "variant": self.variant}) if files or self.variant else digest

    def _read_file(self, read: Reader) -> Contents:
        try:
            return read(self.path, self.name)
        except OSError as error:
            raise DatasetError(f"{self.path} cannot be read: {error.strerror or error}") from error

    def __repr__(self) -> str:
        return f"FileDataset({self.name!r}, {str(self.path)!r})"


@dataclass(frozen=True, slots=True)
class Place:
    """A row of a file, and its name in the file (``"row index 'q7'"``)."""

    path: Path | str
    line: int
    row: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}, {self.row}"


@dataclass(slots=True)
class Problems:
    """The problems in the rows of a source; ``part`` is the format's word for a field of a row."""

    path: Path | str
    part: str
    benchmark: str = ""
    """The benchmark whose record the rows are read by."""
    messages: list[tuple[str, str]] = field(default_factory=list)
    """For each problem what is wrong, which many rows may share, and its message."""
    notes: list[str] = field(default_factory=list)
    """Notes for the reader on rows without problems."""
    turned: list[Place] = field(default_factory=list)
    """Rows with an image that viewers turn by its EXIF orientation, which is not applied here."""

    def add(self, place: Place, column: str, value: object, expected: str) -> None:
        """Notes that ``column`` of a row holds ``value`` instead of ``expected``."""
        kind = f"{column}: {_KIND.split(expected)[0]}"
        self.messages.append((kind, f"{place}, {self.part} {column!r}: found {_short(value)}, expected {expected}"))

    def note(self, places: Sequence[Place], singular: str, plural: str) -> None:
        """Adds a note with the number of rows that it concerns, and the first of them."""
        if places:
            self.notes.append(f"{self.path}: {quantity(len(places), singular, plural)} (the first: {places[0]})")

    def raise_any(self) -> None:
        """Raises one error, if there are problems: the first of each kind, then others, and how many more there are."""
        if not self.messages:
            return
        kinds = [kind for kind, _ in self.messages]
        first = {kind: number for number, kind in reversed([*enumerate(kinds)])}
        order = sorted(range(len(kinds)), key=lambda number: number != first[kinds[number]])
        rest = len(kinds) - MOST_SHOWN
        lines = [
            *(self.messages[number][1] for number in sorted(order[:MOST_SHOWN])),
            *([f"… and {rest} more"] if rest > 0 else []),
        ]
        count = f"{len(self.messages)} problem{'s' if len(self.messages) > 1 else ''}"
        record = f" when read as the benchmark {self.benchmark!r}" if self.benchmark else ""
        raise DatasetError(f"{self.path} has {count}{record}; fix or remove these rows:\n  " + "\n  ".join(lines))


def _short(value: object, most: int = 60) -> str:
    text = repr(value)
    return text if len(text) <= most else f"{text[: most - 1]}… ({len(text)} characters)"
