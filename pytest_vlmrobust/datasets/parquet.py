"""Parquet files of one's own, read by pyarrow, an optional extra: the columns are the keys of ``own_rows``.

An image is a path, base64 text, bytes, or what the package ``datasets`` writes: an object with ``bytes`` or a ``path``.
"""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust.core.errors import DatasetError, ImageError, MissingExtra

from .drafts import finish
from .files import Contents, Place
from .images import decode, file_stamp, from_base64, image_identity
from .own_rows import OwnRows, as_keys, pictures_of

if TYPE_CHECKING:
    from collections.abc import Iterator


def read_parquet(path: Path, name: str) -> Contents:
    """Returns the samples of a Parquet file; images are decoded only when a sample's image is loaded."""
    del name  # nothing here depends on what the data are called
    if importlib.util.find_spec("pyarrow") is None:
        raise MissingExtra(f"reading {path}", "pyarrow", extra="parquet")
    rows, stamp, drafts = OwnRows(path, "column"), file_stamp(path), []
    for group, offset, number, cells in _rows(path):
        place = Place(path, number, f"row id {cells.get('id')!r}")
        inline = partial(ParquetImage, path, stamp, group, offset)
        drafts.append(rows.draft(_keys(cells), place, inline))
    samples = finish(list(filter(None, drafts)), rows.problems, "id")
    if not samples:
        raise DatasetError(f"{path} is empty: expected a row for each question")
    return Contents(samples, rows.image_files, tuple(rows.problems.notes))


@dataclass(frozen=True, slots=True)
class ParquetImage:
    """One image that is written inside one row of a Parquet file; ``digest`` is that of what is written."""

    path: Path
    stamp: tuple[int, int]
    group: int
    """The row group."""
    offset: int
    """The row in its group."""
    position: int
    digest: str
    where: str

    def load(self) -> NDArray[np.uint8]:
        """Returns the pixels."""
        try:
            if file_stamp(self.path) != self.stamp:
                raise ImageError(f"{self.where}: {self.path} was changed while the run was reading it. Start the run again")
            (cells,) = _pictures(self.path, self.stamp, self.group).slice(self.offset, 1).to_pylist()
        except OSError as error:
            raise ImageError(f"{self.where}: {self.path} cannot be read any more: {error}") from error
        picture = pictures_of(_keys(cells))[self.position]
        return decode(picture if isinstance(picture, bytes) else from_base64(picture, self.where), self.where)

    def identity(self) -> str:
        """Returns a string that depends on the encoded image alone; nothing is read for it."""
        return image_identity(self.digest)


def _rows(path: Path) -> Iterator[tuple[int, int, int, dict[str, Any]]]:
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
    """Returns the columns of images of a row group."""
    del stamp  # only tells one state of the file from another
    file = importlib.import_module("pyarrow.parquet").ParquetFile(path)
    return file.read_row_group(group, columns=[name for name in file.schema_arrow.names if name in ("image", "images")])


def _keys(cells: dict[str, Any]) -> dict[str, Any]:
    """Returns the cells as keys of a row: without absent values, and images as bytes or texts."""
    row = as_keys({key: value for key, value in cells.items() if value is not None and value != ""})
    for key in {"image", "images"} & row.keys():
        many = row[key] if isinstance(row[key], list) else [row[key]]
        written = [(each.get("bytes") or each.get("path")) if isinstance(each, dict) else each for each in many]
        row[key] = written if isinstance(row[key], list) else written[0]
    for key in ("keys", "meta"):  # an absent key of an object is null in every row
        if isinstance(row.get(key), dict):
            row[key] = {name: value for name, value in row[key].items() if value is not None or key == "meta"}
    return row
