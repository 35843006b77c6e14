"""Comma-separated files of one's own: the columns are the keys of :mod:`pytest_vlmrobust.datasets.own_rows`.

Options are a list in one column, such as ``["cat", "dog"]``, or stand in columns ``A`` to ``Z``. An empty cell is an absent key.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pytest_vlmrobust.core.errors import DatasetError

from .delimited import FieldImage, cells_of, header_of, records
from .drafts import finish
from .files import Contents, Place
from .own_rows import OwnRows, as_keys

if TYPE_CHECKING:
    from pathlib import Path


def read_csv(path: Path, name: str) -> Contents:
    """Returns the samples of a CSV file; images are decoded only when a sample's image is loaded."""
    del name  # nothing here depends on what the data are called
    rows, source, drafts = OwnRows(path, "column"), records(path), []
    header = header_of(path, next(source, None))
    for record in source:
        named = dict(zip(header, record.fields, strict=False)).get("id", "")
        place = Place(path, record.line, f"row id {named!r}")
        if cells := cells_of(record, header, place, rows.problems):
            column = next((header.index(key) for key in ("image", "images") if cells.get(key)), 0)
            inline = partial(_inline, partial(FieldImage, record.span, column))
            drafts.append(rows.draft(as_keys({key: text for key, text in cells.items() if text}), place, inline))
    samples = finish(list(filter(None, drafts)), rows.problems, "id")
    if not samples:
        raise DatasetError(f"{path} is empty: expected a line of column names, and rows")
    return Contents(samples, rows.image_files, tuple(rows.problems.notes))


def _inline(image: partial[FieldImage], position: int, digest: str, where: str) -> FieldImage:
    return image(position=position, digest=digest, where=where)
