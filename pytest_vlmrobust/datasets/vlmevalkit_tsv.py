"""VLMEvalKit's TSV format, read as text: questions are asked as written in the file.

Columns: ``index`` (unique), ``question``, ``answer``, and ``image`` or ``image_path``; optional ``A`` … ``Z`` (options),
``hint``, ``category`` or ``l2-category``, ``g_index``, ``perturbed``. All others are ignored. Fields are quoted as in CSV.

- ``image`` is the base64 text of a complete image file; a text of 64 characters or less is the ``index`` of the row whose
  image is used; ``['…', '…']`` lists several images.
- ``image_path`` is a path or a list of paths, relative to ``images/<name>``, ``images`` or the folder of the file, and below
  that folder. It is used if ``image`` is empty.
- Only an empty cell is absent: the option text ``None`` is an option. VLMEvalKit drops it; if its prompt
  would differ, there is a note, and ``compat="vlmevalkit"`` asks with its prompt.
- A row with options is a choice, and its answer a letter. Without options, rows are yes/no questions if every answer is
  Yes or No, else open; then ``['…', '…']`` lists several accepted answers.
- Rows without any image are left out, as in VLMEvalKit, and a note gives their number.
- The group of a row (the rows resampled together) is ``g_index``; else ``index`` modulo 1 000 000 if the name shows
  that the file has circular copies (mmbench, ccbench, circular, mmcr); else its images: copies of a file are one image.

The record of a benchmark may override this: which columns play these roles, how answers are written and scored.
"""

from __future__ import annotations

import hashlib
import json
import os.path
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_vlmrobust.core.errors import DatasetError, UnknownName
from pytest_vlmrobust.core.sample import ImageSource
from pytest_vlmrobust.core.words import first_few, quantity

from .benchmarks import UNKNOWN, Benchmark, resembling_benchmark
from .delimited import FileRecord, cells_of, field_image, header_of, records
from .drafts import (
    CIRCULAR_NAMES,
    LETTERS,
    MOST_DIGITS,
    Draft,
    Rows,
    fill_template,
    finish,
    merge_resolutions,
    parse_list,
    with_copies,
)
from .files import Contents, Place, Problems
from .images import FileImage, Span, is_turned, start_of_base64, why_outside

# What VLMEvalKit's prompt shows for a column, if it differs from the file.
#
# It reads files with ``pandas.read_csv(sep="\t")``, which guesses the type of each column. As a result, an option text
# such as ``None``, ``NA``, ``null`` or ``N/A`` becomes a missing value and vanishes from the prompt, and a column
# of integers with a missing cell becomes a column of floats, so that ``12`` is shown as ``12.0``.


# the default na_values of pandas.read_csv
# fmt: off
MISSING = frozenset([
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>",
    "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null",
])
# fmt: on
_INTEGER = re.compile(r"\s*[+-]?[0-9]+\s*")
_FLOAT = re.compile(r"\s*[+-]?(?:(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:e[+-]?[0-9]+)?|inf(?:inity)?)\s*", re.IGNORECASE)
_TRUTH = {"true": "True", "false": "False"}
_INT64 = range(-(2**63), 2**63)


def as_vlmevalkit_shows(cells: Sequence[str]) -> list[str | None]:
    """Returns the text that VLMEvalKit's prompt shows for each cell of a column; None if it shows nothing.

    The type is that of the whole column: all integers, all numbers, all truth values, or text. (pandas may decide per block of a
    very large file, and may differ in the last digit of a float; neither is imitated, nor are integers beyond 64 bits.)
    """
    present = [cell for cell in cells if cell not in MISSING]
    spell = _speller(present, some_missing=len(present) < len(cells))
    return [None if cell in MISSING else spell(cell) for cell in cells]


def _speller(present: Sequence[str], *, some_missing: bool) -> Callable[[str], str]:
    if all(_INTEGER.fullmatch(cell) for cell in present):
        if not all(len(cell) <= MOST_DIGITS and int(cell) in _INT64 for cell in present):
            return str
        return (lambda cell: str(float(cell))) if some_missing else (lambda cell: str(int(cell)))
    if all(_FLOAT.fullmatch(cell) for cell in present):
        return lambda cell: str(float(cell))
    if all(cell.lower() in _TRUTH for cell in present):
        return lambda cell: _TRUTH[cell.lower()]
    return str


LONGEST_REFERENCE = 64
_NO_TEXT = Span(Path(), 0, 0, (0, 0))
"""The span of a record without its own image."""
COMPAT = "vlmevalkit"
COLUMNS = {
    "id": ("index",),
    "question": ("question",),
    "answer": ("answer",),
    "hint": ("hint",),
    "category": ("category", "l2-category"),
    "perturbed": ("perturbed",),
}
"""The columns of each role, unless a record overrides them."""


def read_tsv(path: Path, name: str, *, compat: str = "", benchmark: Benchmark | None = None) -> Contents:
    """Returns the samples of a TSV file; images are decoded only when a sample's image is loaded.

    ``name`` decides whether ``index`` counts circular copies. ``compat="vlmevalkit"`` shows the options that VLMEvalKit's prompt
    shows. Without a ``benchmark`` it is read as described in the module.
    """
    if compat not in {"", COMPAT}:
        raise UnknownName("compat", compat, [COMPAT])
    return _Table(path, name, records(path), benchmark or UNKNOWN).contents(compat)


def read_images(path: Path, name: str, benchmark: Benchmark) -> Contents:
    """Returns a sample for each image of a folder; file names contain the question: ``Layout.image_names``."""
    return _Table(path, name, _named_images(path, re.compile(benchmark.tsv.image_names)), benchmark).contents("")


def read_list(path: Path, name: str, benchmark: Benchmark) -> Contents:
    """Returns a sample for each row of a JSON file: ``Layout.rows_file``."""
    return _Table(path, name, _listed_rows(path), benchmark).contents("")


def _listed_rows(path: Path) -> Iterator[FileRecord]:
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{path} is not JSON in UTF-8 ({error}). Expected a list of objects") from error
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise DatasetError(f"{path} holds something else than a list of objects: expected one for each question")
    columns = dict.fromkeys(column for row in rows for column in ("index", *row))
    yield FileRecord(1, ["image_path" if column == "image" else column for column in columns], _NO_TEXT)
    for number, row in enumerate(rows):
        cells = {"index": number, **row}
        yield FileRecord(number + 1, [_as_text(cells.get(column)) for column in columns], _NO_TEXT)


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)


def _named_images(folder: Path, form: re.Pattern[str]) -> Iterator[FileRecord]:
    files = sorted(file for file in folder.iterdir() if file.is_file() and not file.name.startswith("."))
    wrong = [file.name for file in files if not form.fullmatch(file.stem)]
    if wrong or not files:
        named = f"{len(wrong)} of {len(files)} files are named otherwise: {first_few(wrong)}" if files else "there is none"
        raise DatasetError(f"{folder} is read as images whose names have the form {form.pattern!r}, and {named}")
    yield FileRecord(1, ["index", "image_path", *form.groupindex], _NO_TEXT)
    for line, file in enumerate(files, 2):
        match = form.fullmatch(file.stem)
        yield FileRecord(line, [file.name, file.name, *(match.groupdict("").values() if match else ())], _NO_TEXT)


@dataclass(frozen=True, slots=True)
class _Row:
    """A record without its images, as kept in memory."""

    place: Place
    span: Span
    cells: Mapping[str, str]
    pictures: int
    """The number of images in the image field; 0 if it is empty or a reference."""
    reference: str
    digest: str

    @property
    def has_picture(self) -> bool:
        return bool(self.pictures or self.reference or self.cells.get("image_path"))


class _Table:
    """The rows of a file, and their references to each other."""

    def __init__(self, path: Path, name: str, rows: Iterable[FileRecord], benchmark: Benchmark) -> None:
        self.path, self.name = path, name
        self.folder = path if path.is_dir() else path.parent
        self.problems = Problems(path, "column", benchmark.name)
        columns = {**COLUMNS, **({"question": ()} if benchmark.question else {}), **benchmark.tsv.columns}
        circular = not benchmark.name and any(part in name.lower() for part in CIRCULAR_NAMES)
        self.mapped = Rows(benchmark, replace(benchmark.tsv, columns=columns), self.problems, circular)
        self.id = columns["id"][0]
        self.id_column = self.id if "{" not in self.id else "index"
        source = iter(rows)
        self.header = header_of(path, next(source, None))
        self.mapped.check(self.header, f"{path}:1")
        if "image" not in self.header and "image_path" not in self.header:
            columns_there = first_few((column[:40] for column in self.header), 20)
            expected = "Expected columns as VLMEvalKit writes them"
            raise DatasetError(f"{path}:1 has neither a column 'image' nor 'image_path'. Found: {columns_there}. {expected}")
        self.letters = [letter for letter in LETTERS if letter in self.header]
        self.image_files: dict[str, Path] = {}
        self.notes: list[str] = []
        self.read = [row for record in source if (row := self._row(record))]
        self.rows = self._with_pictures()
        self.by_id = {fill_template(self.id, row.cells): row for row in reversed(self.rows)}

    def contents(self, compat: str) -> Contents:
        shown = self._as_vlmevalkit()
        kept = [row for row in self.rows if not self.mapped.drops(row.cells)]
        drafts = [self._draft(row, number, shown[row.place.line] if compat else None) for number, row in enumerate(kept)]
        samples = finish(with_copies(drafts, self.image_files.values()), self.problems, self.id_column)
        self.notes.extend(self.problems.notes)
        if not samples:
            raise DatasetError(f"{self.path} has no row with a question and an image: expected one at least")
        if sizes := self.mapped.benchmark.sizes:
            samples, notes = merge_resolutions(samples, sizes, self.path)
            self.notes.extend(notes)
        if not compat:
            self._note_differences(shown)
        self.notes.extend(self.mapped.notes(str(self.path)))
        self.notes.extend(self._taken_plainly())
        return Contents(samples, self.image_files, tuple(self.notes))

    def _taken_plainly(self) -> list[str]:
        """Returns a note if the file is named like a benchmark but not read as one."""
        named = "" if self.mapped.benchmark.name else resembling_benchmark(self.path.stem) or resembling_benchmark(self.name)
        if not named:
            return []
        plain = f"{self.path} is read as a plain table and measured by accuracy, though its name contains the benchmark {named}"
        record_file = f"{self.path.stem}.benchmark.yaml beside it"
        return [f"{plain}. If it is that one, call it {named}.tsv; else say how to read it in {record_file}"]

    def _row(self, record: FileRecord) -> _Row | None:
        named = dict(zip(self.header, record.fields, strict=False)).get(self.id_column, "")
        place = Place(self.path, record.line, f"row {self.id_column} {named!r}")
        cells = cells_of(record, self.header, place, self.problems)
        if cells is None:
            return None
        image = cells.pop("image", "")
        kept = image or cells.get("image_path", "")
        digest = hashlib.sha256(kept.encode()).hexdigest()
        if len(image) <= LONGEST_REFERENCE:
            return _Row(place, record.span, cells, 0, image, digest)
        pictures = self._list(image, place, "image")
        self.problems.turned.extend(place for text in pictures if is_turned(start_of_base64(text)))
        return _Row(place, record.span, cells, len(pictures), "", digest)

    def _list(self, text: str, place: Place, column: str) -> tuple[str, ...]:
        try:
            return parse_list(text)
        except ValueError:
            self.problems.add(place, column, text, "one text, or a list of texts such as ['a', 'b']")
            return ()

    def _with_pictures(self) -> list[_Row]:
        bare = [row for row in self.read if not row.has_picture]
        if bare:
            lacking = quantity(len(bare), "row has no image and is", "rows have no image and are")
            self.notes.append(f"{self.path}: {lacking} left out (the first: {bare[0].place})")
        return [row for row in self.read if row.has_picture]

    def _draft(self, row: _Row, number: int, shown: Mapping[str, str] | None) -> Draft:
        images, digest = self._images(row)
        draft = self.mapped.draft(row.place, row.cells, images, digest, number)
        answer = row.cells.get("answer", "").strip()
        if not draft.options and len(self.letters) > 1 and answer in self.letters:
            self.problems.add(row.place, "A", "", f"options, because the answer is the letter {answer!r}")
        if shown is None:
            return draft
        seen = {letter: shown[letter] for letter in draft.options if letter in shown}
        listed = bool(self.mapped.layout.columns_of("options"))
        return replace(draft, hint=shown.get("hint", ""), shown=None if listed else seen)

    def _images(self, row: _Row) -> tuple[tuple[ImageSource, ...], str]:
        holder = self._referenced_row(row) if row.reference else row
        if holder is None:
            return (), row.digest
        if holder.pictures:
            where = f"{row.place}, column 'image'" + (f" (the image of {holder.place})" if holder is not row else "")
            column = self.header.index("image")
            images = (field_image(holder.span, column, position, holder.digest, where) for position in range(holder.pictures))
            return tuple(images), holder.digest
        return self._files(row), row.digest

    def _referenced_row(self, row: _Row) -> _Row | None:
        holder = self.by_id.get(fill_template(self.id, {**row.cells, self.id_column: row.reference}))
        if holder is None:
            expected = f"base64 of an image, or (as a text of {LONGEST_REFERENCE} characters or less) the index of another row"
            self.problems.add(row.place, "image", row.reference, expected)
        elif not holder.pictures:
            expected = f"the index of a row that holds an image itself (line {holder.place.line} does not)"
            self.problems.add(row.place, "image", row.reference, expected)
            return None
        return holder

    def _files(self, row: _Row) -> tuple[ImageSource, ...]:
        images: list[ImageSource] = []
        for written in self._list(row.cells.get("image_path", ""), row.place, "image_path"):
            images_folder = self.folder / "images"
            places = [root / written for root in (images_folder / self.name, images_folder, self.folder)]
            path = next((path for path in places if os.path.isfile(path)), None)  # noqa: PTH113 - Path.is_file raises on long names
            if path is None:
                looked = ", ".join(str(path) for path in dict.fromkeys(places))
                self.problems.add(row.place, "image_path", written, f"an image file; looked for {looked}")
            elif outside := why_outside(path, self.folder):
                self.problems.add(row.place, "image_path", written, outside)
            else:
                if written not in self.image_files and is_turned(path):  # each file is opened once
                    self.problems.turned.append(row.place)
                self.image_files[written] = path
                images.append(FileImage(path, f"{row.place}, column 'image_path'"))
        return tuple(images)

    def _as_vlmevalkit(self) -> dict[int, dict[str, str]]:
        """Returns the options and hint that VLMEvalKit shows for each line; the types are guessed over all rows."""
        shown: dict[int, dict[str, str]] = {row.place.line: {} for row in self.read}
        for column in self._prompt_columns():
            texts = as_vlmevalkit_shows([row.cells[column] for row in self.read])
            for row, text in zip(self.read, texts, strict=True):
                if text is not None:
                    shown[row.place.line][column] = text
        return shown

    def _prompt_columns(self) -> list[str]:
        return [*self.letters, *(["hint"] if "hint" in self.header else [])]

    def _note_differences(self, shown: Mapping[int, Mapping[str, str]]) -> None:
        differing = [
            (row.place, column, row.cells[column], theirs)
            for row in self.rows
            for column in self._prompt_columns()
            if row.cells[column] != (theirs := shown[row.place.line].get(column, ""))
        ]
        if differing:
            place, column, ours, theirs = differing[0]
            instead = f"shows {theirs!r}" if theirs else "leaves it out"
            as_theirs = f"datasets.register(NAME, lambda: datasets.resolve(PATH, compat={COMPAT!r}))"
            self.notes.append(
                f"{self.path}: VLMEvalKit's prompt differs in {quantity(len(differing), 'cell')} "
                f"(the first: {place}, column {column!r}: the file says {ours!r}, VLMEvalKit {instead}). "
                f"Questions are asked as the file says; {as_theirs} in a conftest.py asks them as VLMEvalKit does"
            )
