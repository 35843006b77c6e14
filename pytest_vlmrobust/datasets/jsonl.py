"""The JSONL format: one JSON object per line, for data of one's own.

    {"id": "q1", "image": "pictures/1.png", "question": "What is it?", "options": ["cat", "dog"], "answer": "B"}

==============  ======================================================================================================
``id``          required, unique: text or a whole number
``image``       required (or ``images``, a list): a path relative to the file, a ``data:`` URL, or base64 of an image file
``question``    required
``answer``      required: the letter of an option; yes or no (or true, false); or an accepted answer or a list of them
``options``     a list of texts (lettered A, B, …) or an object from letters to texts
``category``    the stratum for sampling and for reports
``group``       rows that are resampled together; by default those with the same picture
``hint``        shown before the question
``task``        ``choice``, ``yes_no`` or ``open``; by default as in ``drafts.finish``
``changed_by``  what makes another answer right: kinds of change (``["left_right"]``), or perturbations (``["flip_h"]``)
``scorer``      who compares the answer with the target; by default the scorer of the task
``instruction`` how to answer, said after the question
``keys``        an object from names to texts: what metrics of the whole dataset group by
``perturbed``   which images a setting changes, by number from 1: ``[2]``; by default all
==============  ======================================================================================================

Any other key is an error: a misspelt ``group`` must not silently make the intervals too narrow.
"""

from __future__ import annotations

import hashlib
import json
import os.path
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_vlmrobust.core.conversion import read_json
from pytest_vlmrobust.core.errors import DatasetError, did_you_mean
from pytest_vlmrobust.core.sample import ImageSource

from .drafts import LETTERS, TASKS, Draft, finish, without_padding
from .files import Contents, Place, Problems
from .images import FileImage, Span, decode, file_stamp, from_base64, image_identity, is_turned, start_of_base64, why_outside

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


# JSON without its loose ends: hooks for ``json`` that refuse keys written twice and numbers that are none.


def is_text(value: object) -> bool:
    """Returns whether a value of JSON can stand for text: text or a number, and not true or false."""
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
    "perturbed",
)
REQUIRED = ("id", "question", "answer")
_BASE64 = re.compile(r"[A-Za-z0-9+/\s]{64,}={0,2}\s*")
_LONGEST_PATH = 1024
_ARRAY = re.compile(rb"(?:\xef\xbb\xbf)?\s*\[\s*(?:\{|\Z)")


def read_jsonl(path: Path, name: str) -> Contents:
    """Returns the samples of a JSONL file; pictures are decoded only when a sample's image is loaded.

    Raises:
        DatasetError: the file has no rows, or malformed ones (all are named at once).
        OSError: the file cannot be opened.
    """
    del name  # nothing here depends on what the data are called
    return _Lines(path).contents()


@dataclass(frozen=True, slots=True)
class JsonlImage:
    """One picture that is written inside one line of a JSONL file; ``digest`` is that of its text."""

    span: Span
    position: int
    digest: str
    where: str

    def load(self) -> NDArray[np.uint8]:
        """Returns the pixels.

        Raises:
            ImageError: the file has changed, or the picture cannot be decoded.
        """
        row = json.loads(self.span.read(self.where).decode("utf-8-sig"))
        return decode(from_base64(_pictures(row)[self.position], self.where), self.where)

    def identity(self) -> str:
        """Returns a string that depends on the encoded picture alone; nothing is read for it."""
        return image_identity(self.digest)


class _Lines:
    """The lines of one file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problems = Problems(path, "key")
        self.image_files: dict[str, Path] = {}

    def contents(self) -> Contents:
        drafts, offset, stamp = [], 0, file_stamp(self.path)
        with self.path.open("rb") as stream:
            for number, raw in enumerate(stream, start=1):
                span = Span(self.path, offset, len(raw), stamp)
                offset += len(raw)
                if number == 1 and _ARRAY.match(raw):
                    raise DatasetError(f"{self.path} is a JSON array: expected one JSON object per line, with no brackets around")
                row = self._row(number, raw) if raw.strip() else None
                if row is not None:
                    drafts.append(_Row(row, Place(self.path, number, f"id {row['id']!r}"), span, self).draft())
        samples = finish(drafts, self.problems, "id")
        if not samples:
            raise DatasetError(f"{self.path} is empty: expected one JSON object per line")
        return Contents(samples, self.image_files, tuple(self.problems.notes))

    def _row(self, number: int, raw: bytes) -> dict[str, Any] | None:
        place = Place(self.path, number, "the line")
        try:
            row = read_json(raw)
        except ValueError as error:
            self.problems.add(place, "(all)", raw.decode(errors="replace").strip(), f"a JSON object ({error})")
            return None
        if not isinstance(row, dict):
            self.problems.add(place, "(all)", row, "a JSON object")
            return None
        return row if self._has_the_right_keys(row, place) else None

    def _has_the_right_keys(self, row: Mapping[str, Any], place: Place) -> bool:
        before = len(self.problems.messages)
        for key in row:
            if key not in KEYS:
                self.problems.add(place, key, row[key], f"no such key.{did_you_mean(key, KEYS)} Known: {', '.join(KEYS)}")
        for key in REQUIRED:
            if key not in row:
                self.problems.add(place, key, None, "a value: this key is required")
        if ("image" in row) == ("images" in row):
            self.problems.add(place, "image", [key for key in ("image", "images") if key in row], "either 'image' or 'images'")
        return len(self.problems.messages) == before


class _Row:
    """One line whose keys are known; every method reads one of them."""

    def __init__(self, row: Mapping[str, Any], place: Place, span: Span, lines: _Lines) -> None:
        self.row, self.place, self.span, self.lines = row, place, span, lines

    def draft(self) -> Draft:
        pictures = _pictures(self.row)
        own_group = hashlib.sha256("\n".join(map(str, pictures)).encode("utf-8", "surrogatepass")).hexdigest()[:16]
        return Draft(
            place=self.place,
            id=self._text("id"),
            images=self._images(pictures),
            question=self._text("question"),
            answer=self._answer(),
            options=self._options(),
            category=self._text("category"),
            group=self._text("group") or own_group,
            hint=self._text("hint"),
            task=self._task(),
            changed_by=frozenset(self._names("changed_by")),
            scorer=self._text("scorer"),
            instruction=self._text("instruction"),
            keys=self._keys(),
            perturbed=str(self.row.get("perturbed", "")),
        )

    def _wrong(self, key: str, expected: str) -> None:
        self.lines.problems.add(self.place, key, self.row[key], expected)

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
        if not pictures or not all(isinstance(picture, str) and picture for picture in pictures):
            self._wrong(key, "a path, a data: URL or base64 (a list of them for several pictures)")
            return ()
        return tuple(image for number in range(len(pictures)) if (image := self._image(key, pictures, number)) is not None)

    def _image(self, key: str, pictures: list[str], number: int) -> ImageSource | None:
        written, where = pictures[number], f"{self.place}, key {key!r}"
        path = self.lines.path.parent / written if len(written) <= _LONGEST_PATH else None
        if path is not None and os.path.isfile(path):  # noqa: PTH113 - Path.is_file raises where a name is too long, as base64 is
            if outside := why_outside(path, self.lines.path.parent):
                self.lines.problems.add(self.place, key, written, outside)
                return None
            if written not in self.lines.image_files and is_turned(path):  # each file is opened once
                self.lines.problems.turned.append(self.place)
            self.lines.image_files[written] = path
            return FileImage(path, where)
        if written.startswith("data:") or _BASE64.fullmatch(written):
            if is_turned(start_of_base64(written)):
                self.lines.problems.turned.append(self.place)
            return JsonlImage(self.span, number, hashlib.sha256(written.encode("utf-8", "surrogatepass")).hexdigest(), where)
        downloads = " (nothing is downloaded: save the picture beside the file)" if "://" in written else ""
        self.lines.problems.add(self.place, key, written, f"an image file, a data: URL or base64; no file {path}{downloads}")
        return None


def _pictures(row: Mapping[str, Any]) -> list[Any]:
    value = row["image"] if "image" in row else row["images"]
    return value if isinstance(value, list) else [value]
