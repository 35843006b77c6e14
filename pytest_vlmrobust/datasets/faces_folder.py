"""A folder of images of identities, the user's own, as a collection."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust.core.errors import DatasetError, UsageError, requirements_of, typed_path
from pytest_vlmrobust.core.fingerprint import fingerprint
from pytest_vlmrobust.core.sample import ImageSource

from .faces_folder_reading import FolderContents, FolderReader
from .faces_folder_table import DOMAINS, SETTINGS, TABLE, FolderSettings, read_settings, write_rows, written_box
from .images import FileImage
from .protocol import Entity
from .similarity import CIRCLES, PIXEL_STATISTICS, circles, nearest, unit_rows

if TYPE_CHECKING:
    from .neural import ImageEncoder


class FaceFolder:
    """Identities of a folder; ``faces_folder_layout`` describes its layout.

    Nothing is opened before it is needed. Then every image is decoded once for its size and statistics; boxes that are not
    in the table are found by MediaPipe if the settings name its model file. The results stay in memory.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self._known_circles: dict[int, list[tuple[int, ...]]] = {}

    @property
    def domain(self) -> str:
        """``face`` or ``word``."""
        return self._settings.domain

    @property
    def hinted(self) -> str:
        """The hint in semi-guided localisation."""
        return self._settings.hinted

    @property
    def native_long_edge(self) -> int | None:
        """Long edge of the images in pixels: all have one size."""
        return max(self.entities()[0].size)

    @cached_property
    def digest(self) -> str:
        """SHA-256, in hex, of the image files, of their rows in the table, and of the method that finds near neighbours."""
        return fingerprint([self.domain, self.hinted, self._compared_by, CIRCLES, *map(_facts, self.entities())])

    @property
    def notes(self) -> tuple[str, ...]:
        """Returns notes on these data for the reader of the report. No warning is raised."""
        return self._contents.notes

    def notes_on_neighbours(self, count: int) -> tuple[str, ...]:
        """Returns a note for each group with fewer than ``count + 1`` people, which can therefore give the answer away."""
        members = Counter(self._groups)
        small = sorted(group for group, size in members.items() if size <= count) if len(members) > 1 else []
        return tuple(
            f"{self.folder}: {count} neighbours of the same group are wanted, and {_group_size_text(group, members[group])}: "
            "the rest come from other groups, so the group alone may give the answer away. "
            f"Add people to it until it has {count + 1}"
            for group in small
        )

    @property
    def most_neighbours(self) -> int:
        """The number of other identities."""
        return len(self.entities()) - 1

    @property
    def how_to_add_boxes(self) -> str:
        """A sentence on how to provide boxes."""
        columns = ", ".join(DOMAINS[self.domain].attributes)
        install = requirements_of("faces") or "mediapipe"
        by_model = f", or name MediaPipe's model file as `landmarks` in {SETTINGS} (pip install {install})"
        return f"Write the boxes ({columns}) into {self._table()}{by_model if self.domain == 'face' else ''}"

    @property
    def neighbours_by(self) -> str:
        """The method that finds near neighbours: ``pixel statistics 1``, or ``encoder:NAME@REVISION``.

        The revision is a commit of the hub or, for a folder, the start of the SHA-256 of its files.
        """
        return self._encoder.name if self._encoder else PIXEL_STATISTICS

    def entities(self) -> Sequence[Entity]:
        """Returns the identities in the order of the table."""
        return self._contents.entities

    def neighbours(self, entity: Entity, count: int) -> tuple[ImageSource, ...]:
        """Returns images of ``count`` others: the rest of its circle, nearest first, or else the nearest.

        A circle is ``count + 1`` identities of one group that are near each other, see ``similarity.circles``: all are shown
        together, no matter which is the target, so that neither the group nor the position among the candidates reveals it.
        An identity outside all circles (at most ``count`` per group) gets the nearest of its group and, if those are too few, of
        other groups; ``notes_on_neighbours`` reports it.
        """
        entities = self.entities()
        index = self._places.get(entity.id)
        if index is None:
            raise DatasetError(f"{self.folder} has no identity {entity.id!r}: pass one of its entities()")
        if count > len(entities) - 1:
            raise DatasetError(
                f"{self.folder} has {len(entities)} identities: expected {count + 1} or more, for {count} neighbours"
            )
        order = nearest(self._rows, self._groups, index)
        circle = next((members for members in self._circles(count + 1) if index in members), None)
        places = order[:count] if circle is None else [place for place in order if place in circle]
        return tuple(entities[place].image for place in places)

    @cached_property
    def _settings(self) -> FolderSettings:
        return read_settings(self.folder)

    @cached_property
    def _contents(self) -> FolderContents:
        return FolderReader(self.folder, self._table(), self._settings).contents()

    @cached_property
    def _places(self) -> dict[str, int]:
        return {entity.id: place for place, entity in enumerate(self.entities())}

    @property
    def _groups(self) -> list[str]:
        return [entity.group for entity in self.entities()]

    def _circles(self, size: int) -> list[tuple[int, ...]]:
        """Returns the circles; identities are sorted by name, so that the order of the table does not matter."""
        if size not in self._known_circles:
            by_name = [self._places[name] for name in sorted(self._places)]
            sets = circles(self._rows[by_name], [self._groups[place] for place in by_name], size)
            self._known_circles[size] = [tuple(by_name[member] for member in members) for members in sets]
        return self._known_circles[size]

    @cached_property
    def _encoder(self) -> ImageEncoder | None:
        if self._settings.encoder is None:
            return None
        from .neural import ImageEncoder

        return ImageEncoder.of(self._settings.encoder)

    @property
    def _compared_by(self) -> str:
        return self._encoder.digest if self._encoder else PIXEL_STATISTICS

    @cached_property
    def _rows(self) -> NDArray[np.float64]:
        """The features of each image, of length 1, float64, shape (identities, d)."""
        if self._encoder is None:
            return unit_rows(np.stack(self._contents.features))
        return unit_rows(self._encoder.embed(entity.image.load() for entity in self.entities()))

    def _table(self) -> Path:
        table = self.folder / TABLE
        if not table.is_file():
            raise DatasetError(f"{self.folder} holds no {TABLE}: expected the table of the identities there")
        return table

    def __repr__(self) -> str:
        return f"FaceFolder({str(self.folder)!r}, {self.name!r})"


def write_table(folder: str | Path, table: str | Path) -> None:
    """Writes a new table for a folder, with the boxes that MediaPipe found, so that later runs need neither it nor its model.

    The table is a CSV file that must not exist yet; its paths are relative to its folder.
    """
    collection, target = FaceFolder(typed_path(folder), "faces"), typed_path(table)
    rows = [_table_row(entity, target.absolute().parent) for entity in collection.entities()]
    try:
        write_rows(target, rows, collection._settings.columns)  # noqa: SLF001 - of this module's own class
    except OSError as error:
        raise UsageError(
            f"{target} cannot be written: {error.strerror or error}. Give the path of a file that is not there"
        ) from error


def _group_size_text(group: str, members: int) -> str:
    has = f"has {members} member{'s' if members > 1 else ''}"
    return f"the group {group!r} {has}" if group else f"the group of those for whom none is given {has}"


def _table_row(entity: Entity, folder: Path) -> dict[str, str]:
    if not isinstance(entity.image, FileImage):
        raise TypeError(f"{entity.id}: not the image of a folder")
    file = Path(os.path.relpath(entity.image.path.absolute(), folder)).as_posix()
    boxes = {attribute: written_box(box) for attribute, box in entity.boxes.items()}
    known = {"file": file, "identity": entity.label, "group": entity.group, "category": entity.category}
    return {**known, **entity.groupings, **boxes}


def _facts(entity: Entity) -> list[object]:
    boxes = {attribute: list(box) for attribute, box in entity.boxes.items()}
    facts: list[object] = [entity.id, entity.label, entity.image.identity(), boxes, entity.group, entity.category]
    return [*facts, dict(entity.groupings)] if entity.groupings else facts
