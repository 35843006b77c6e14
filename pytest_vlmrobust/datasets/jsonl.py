"""The JSONL format: one JSON object per line, for data of one's own.

    {"id": "q1", "image": "pictures/1.png", "question": "What is it?", "options": ["cat", "dog"], "answer": "B"}

What the keys mean: :mod:`pytest_vlmrobust.datasets.own_rows`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust.core.conversion import read_json
from pytest_vlmrobust.core.errors import DatasetError

from .drafts import finish
from .files import Contents, Place
from .images import Span, decode, file_stamp, from_base64, image_identity
from .own_rows import OwnRows, pictures_of

_ARRAY = re.compile(rb"(?:\xef\xbb\xbf)?\s*\[\s*(?:\{|\Z)")


def read_jsonl(path: Path, name: str) -> Contents:
    """Returns the samples of a JSONL file; images are decoded only when a sample's image is loaded."""
    del name  # nothing here depends on what the data are called
    return _Lines(path, "key").contents()


@dataclass(frozen=True, slots=True)
class JsonlImage:
    """One image that is written inside one line of a JSONL file; ``digest`` is that of its text."""

    span: Span
    position: int
    digest: str
    where: str

    def load(self) -> NDArray[np.uint8]:
        """Returns the pixels."""
        row = json.loads(self.span.read(self.where).decode("utf-8-sig"))
        return decode(from_base64(pictures_of(row)[self.position], self.where), self.where)

    def identity(self) -> str:
        """Returns a string that depends on the encoded image alone; nothing is read for it."""
        return image_identity(self.digest)


class _Lines(OwnRows):
    """The lines of one file."""

    def contents(self) -> Contents:
        drafts, offset, stamp = [], 0, file_stamp(self.path)
        with self.path.open("rb") as stream:
            for number, raw in enumerate(stream, start=1):
                span = Span(self.path, offset, len(raw), stamp)
                offset += len(raw)
                if number == 1 and _ARRAY.match(raw):
                    raise DatasetError(f"{self.path} is a JSON array: expected one JSON object per line, with no brackets around")
                row = self._row(number, raw) if raw.strip() else None
                if row is None:
                    continue
                place = Place(self.path, number, f"id {row['id']!r}" if "id" in row else "the line")
                drafts.append(self.draft(row, place, partial(JsonlImage, span)))
        samples = finish(list(filter(None, drafts)), self.problems, "id")
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
        return row
