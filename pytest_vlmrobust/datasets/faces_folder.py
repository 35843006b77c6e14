"""A folder of images of identities, the user's own, as a collection."""

from __future__ import annotations

import hashlib
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust.core.boxes import Box
from pytest_vlmrobust.core.errors import DatasetError, ImageError, UsageError, did_you_mean, requirements_of, typed_path
from pytest_vlmrobust.core.fingerprint import fingerprint, pixels_digest
from pytest_vlmrobust.core.sample import ImageSource

from .faces_folder_table import DOMAINS, SETTINGS, TABLE, FolderSettings, Row, read_rows, read_settings, write_rows, written_box
from .files import Place, Problems
from .images import FileImage, is_turned
from .protocol import Entity

if TYPE_CHECKING:
    from .neural import ImageEncoder

    Faces: TypeAlias = Sequence[Mapping[str, Box]]  # the boxes of each face in an image
    FaceFinder: TypeAlias = Callable[[NDArray[np.uint8]], Faces]

# Which images are easily confused: cosine similarity of their pixel statistics or embeddings.


PIXEL_STATISTICS = "pixel statistics 1"
"""The name of ``pixel_features``; the number changes whenever they do."""
CIRCLES = "circles 1"
"""The method of choosing near rows; the number changes whenever the method does."""
_EDGE = 64
_THUMBNAIL = 16
_BINS = 8
_DIGITS = 5
"""Similarities are compared to this many digits, so that rounding on other processors does not change the order."""


def pixel_features(picture: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Returns the features for comparing images without an encoder, float64, shape (1280,).

    The image is shrunk to 64 x 64 pixels and converted to CIELAB. Features are the layout, 16 x 16 means of the three channels
    as distances from mid grey, and the colours, the square roots of an 8 x 8 x 8 histogram. Both have length 1, so that the
    cosine of two images is the mean of the cosines of their layouts and of their colours. The image is RGB, uint8, shape (H, W,
    3).
    """
    import cv2

    small = cv2.resize(picture, (_EDGE, _EDGE), interpolation=cv2.INTER_AREA)
    lab = cv2.cvtColor(small.astype(np.float32) / 255, cv2.COLOR_RGB2LAB)
    layout = cv2.resize(lab, (_THUMBNAIL, _THUMBNAIL), interpolation=cv2.INTER_AREA) - np.array([50, 0, 0], np.float32)
    histogram = cv2.calcHist([lab], [0, 1, 2], None, [_BINS] * 3, [0, 100.01, -128, 128, -128, 128])
    return np.concatenate([_unit(layout.ravel()), _unit(np.sqrt(histogram).ravel())])


def unit_rows(features: NDArray[np.floating]) -> NDArray[np.float64]:
    """Returns rows of length 1, float64, of the same shape; a row of zeros is unchanged."""
    rows = features.astype(np.float64)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(lengths > 0, lengths, 1), np.float64)


def nearest(rows: NDArray[np.float64], groups: Sequence[str], index: int) -> list[int]:
    """Returns all other rows, nearest first; rows of the same group come first, and equally near ones keep their order.

    Rows have length 1, shape (n, d).
    """
    similarity = np.round(rows @ rows[index], _DIGITS)
    foreign = np.asarray(groups) != groups[index]
    order = np.lexsort((-similarity, foreign))
    return [int(other) for other in order if other != index]


def circles(rows: NDArray[np.float64], groups: Sequence[str], size: int) -> list[tuple[int, ...]]:
    """Returns disjoint sets of ``size`` rows of one group that are near each other; rows left over are in none.

    A row shown with the rest of its set is in the middle as often as any other. In a set of a row and those nearest to it,
    that row would be the most like all others, which can be seen without knowing the target. Rows have
    length 1, shape (n, d).
    """
    left = list(range(len(rows)))
    sets = []
    while left:
        first = left[0]
        others = [row for row in left[1:] if groups[row] == groups[first]]
        similarity = np.round(rows[others] @ rows[first], _DIGITS) if others else np.empty(0)
        chosen = [others[place] for place in np.argsort(-similarity, kind="stable")[: size - 1]]
        members = (first, *chosen)
        if len(members) == size:
            sets.append(members)
        left = [row for row in left if row not in members] if len(members) == size else left[1:]
    return sets


def _unit(values: NDArray[np.float32]) -> NDArray[np.float64]:
    unit: NDArray[np.float64] = unit_rows(values[None])[0]
    return unit


# From the table of a folder to identities: every row is checked, and every image decoded once.


LEAST_EDGE = 64
"""Least width and height of an image in pixels: a smaller face is hardly recognisable."""
_BOX = "x1,y1,x2,y2 in pixels, with x1 < x2 and y1 < y2"
_PIXEL = "a box of one pixel or more in width and height: edges are in pixels, not in shares of the image"
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")
_LONGEST_ID = 40
_NUMBER = re.compile(r"\s*-?[0-9]+(\.[0-9]*)?\s*")


@dataclass(frozen=True)
class FolderContents:
    """Identities in table order, their pixel features if no encoder is named, and notes for the reader."""

    entities: tuple[Entity, ...]
    features: tuple[NDArray[np.float64], ...]
    notes: tuple[str, ...]


@dataclass(slots=True)
class _Draft:
    """An identity that is not complete yet."""

    place: Place
    path: Path
    identity: str
    group: str
    category: str
    boxes: Mapping[str, Box]
    groupings: Mapping[str, str]
    size: tuple[int, int] = (0, 0)
    """Zero without a usable image."""
    is_turned: bool = False
    """Whether viewers show it turned."""
    features: NDArray[np.float64] | None = field(default=None, repr=False)


class FolderReader:
    """Reads one folder."""

    def __init__(self, folder: Path, table: Path, settings: FolderSettings) -> None:
        self.folder, self.table, self.settings = folder, table, settings
        self.problems = Problems(table, "column")
        self._pixels: dict[str, Place] = {}

    def contents(self) -> FolderContents:
        """Returns the contents of the folder."""
        rows = read_rows(self.table, self.settings.columns, self.problems)
        drafts = [self._draft(row) for row in rows]
        self._check_repeats(drafts)
        with self._finder(drafts) as finder:
            for draft in drafts:
                self._look(draft, finder)
        self._check_sizes(drafts)
        self.problems.raise_any()
        if not drafts:
            raise DatasetError(f"{self.table} has no rows: expected one for each image")
        features = tuple(draft.features for draft in drafts if draft.features is not None)
        return FolderContents(_entities(drafts), features, tuple(self._notes(drafts)))

    def _draft(self, row: Row) -> _Draft:
        identity, group, category = (row.cells.get(column, "") for column in ("identity", "group", "category"))
        groupings = {name: row.cells[name] for name in self.settings.groupings if name in row.cells}
        return _Draft(row.place, self._path(row), identity, group, category, self._boxes(row), groupings)

    def _path(self, row: Row) -> Path:
        written = row.cells["file"]
        path = self.folder / written
        if why := _why_no_file(path):
            downloads = " (nothing is downloaded: save the image in the folder)" if "://" in written else ""
            self.problems.add(row.place, "file", written, f"an image; {why}{downloads}.{_near_file(path)}")
            return self.folder
        return path

    def _boxes(self, row: Row) -> dict[str, Box]:
        written = [attribute for attribute in self.settings.attributes if attribute in row.cells]
        for attribute in self.settings.attributes:
            if written and attribute not in written:
                self.problems.add(row.place, attribute, None, f"a box too, as {written[0]!r} has one: all of them, or none")
        boxes = {attribute: self._box(row, attribute) for attribute in written}
        return {attribute: box for attribute, box in boxes.items() if box is not None}

    def _box(self, row: Row, attribute: str) -> Box | None:
        edges = _four(row.cells[attribute])
        if edges is None or not (edges[0] < edges[2] and edges[1] < edges[3]):
            self.problems.add(row.place, attribute, row.cells[attribute], _BOX)
            return None
        if min(edges[2] - edges[0], edges[3] - edges[1]) < 1:
            self.problems.add(row.place, attribute, row.cells[attribute], _PIXEL)
            return None
        return edges

    def _check_repeats(self, drafts: Sequence[_Draft]) -> None:
        identities: dict[str, tuple[str, Place]] = {}
        files: dict[Path, Place] = {}
        groups: dict[tuple[str, str], tuple[str, Place]] = {}
        for draft in drafts:
            spelled, first = identities.setdefault(_alike(draft.identity), (draft.identity, draft.place))
            if first is not draft.place:
                apart = f", as {spelled!r}: case, blanks and Unicode forms tell nobody apart" if spelled != draft.identity else ""
                expected = f"one image of each identity: line {first.line} has one already{apart}"
                self.problems.add(draft.place, "identity", draft.identity, expected)
            first = files.setdefault(draft.path, draft.place)
            if first is not draft.place and draft.path != self.folder:
                self.problems.add(draft.place, "file", draft.path.name, f"an image of its own: line {first.line} has this one")
            for column, group in {"group": draft.group, **draft.groupings}.items():
                spelled, first = groups.setdefault((column, _alike(group)), (group, draft.place))
                if spelled != group:
                    self.problems.add(draft.place, column, group, f"{spelled!r}, as it is spelled in line {first.line}")

    def _finder(self, drafts: Sequence[_Draft]) -> AbstractContextManager[FaceFinder | None]:
        model = self.settings.landmarks
        bare = [draft for draft in drafts if not draft.boxes]
        if model is None or not bare:
            return nullcontext(None)
        if not model.is_file():
            raise DatasetError(
                f"{self.folder / SETTINGS}, landmarks: there is no file {model.absolute()}. {len(bare)} rows of {self.table} "
                f"have no boxes (the first: {bare[0].place}). Expected a face landmarker of MediaPipe (.task) there, or boxes in "
                "the table"
            )
        from .neural import face_finder

        return face_finder(model)

    def _look(self, draft: _Draft, finder: FaceFinder | None) -> None:
        if draft.path == self.folder:
            return  # there is none, which is already reported
        try:
            picture = FileImage(draft.path, f"{draft.place}, column 'file'").load()
        except ImageError as error:
            self.problems.messages.append(("", str(error)))
            return
        height, width = picture.shape[:2]
        if min(width, height) < LEAST_EDGE:
            self.problems.add(draft.place, "file", f"{width} x {height} pixels", f"{LEAST_EDGE} x {LEAST_EDGE} pixels or more")
            return
        draft.size, draft.is_turned = (width, height), is_turned(draft.path)
        first = self._pixels.setdefault(pixels_digest(picture), draft.place)
        if first is not draft.place and first.row != draft.place.row:
            self.problems.add(
                draft.place, "file", draft.path.name, f"another image than line {first.line}: every pixel is the same"
            )
        if self.settings.encoder is None:
            draft.features = pixel_features(picture)
        if finder is not None and not draft.boxes:
            draft.boxes = self._single_face(draft, finder(picture))
        self._check_boxes(draft)

    def _single_face(self, draft: _Draft, faces: Faces) -> Mapping[str, Box]:
        if len(faces) == 1 and len(faces[0]) == len(self.settings.attributes):
            return faces[0]
        problem = "several faces" if len(faces) > 1 else "a face that is partly outside of the image" if faces else "no face"
        more = "expected one face. Write its boxes into the table, crop the image, or remove the row"
        self.problems.messages.append((problem, f"{draft.place}: MediaPipe found {problem} in {draft.path}, {more}"))
        return {}

    def _check_boxes(self, draft: _Draft) -> None:
        width, height = draft.size
        for attribute, (x1, y1, x2, y2) in draft.boxes.items():
            if x1 < 0 or y1 < 0 or x2 > width or y2 > height:
                expected = f"a box inside of the image, which has {width} x {height} pixels"
                self.problems.add(draft.place, attribute, (x1, y1, x2, y2), expected)
        left, right = draft.boxes.get("left_eye"), draft.boxes.get("right_eye")
        if left and right and left[0] + left[2] >= right[0] + right[2]:
            self.problems.add(draft.place, "left_eye", left, f"a box left of right_eye, {right}: left and right are the viewer's")

    def _check_sizes(self, drafts: Sequence[_Draft]) -> None:
        """Refuses images of different sizes: the size of the support image would reveal which candidate is the target."""
        sizes = Counter(draft.size for draft in drafts if draft.size != (0, 0))
        usual = sizes.most_common(1)[0][0] if sizes else (0, 0)
        for draft in drafts:
            if draft.size not in ((0, 0), usual):
                size, expected = (f"{width} x {height} pixels" for width, height in (draft.size, usual))
                self.problems.add(draft.place, "file", size, f"{expected} as in most rows: the size must not tell who it is")

    def _notes(self, drafts: Sequence[_Draft]) -> Iterator[str]:
        if turned := [draft for draft in drafts if draft.is_turned]:
            yield (
                f"{self.table}: {len(turned)} of {len(drafts)} images have an EXIF orientation, which is not applied: "
                f"models and boxes use the pixels as they are stored (the first: {turned[0].place}). Save "
                "them upright"
            )
        lacking = [draft for draft in drafts if not draft.group]
        if 0 < len(lacking) < len(drafts):
            yield f"{self.table}: {len(lacking)} of {len(drafts)} rows have no group (the first: {lacking[0].place})"
        for name in self.settings.groupings:
            if lacking := [draft for draft in drafts if name not in draft.groupings]:
                yield f"{self.table}: {len(lacking)} of {len(drafts)} rows have no {name} (the first: {lacking[0].place})"


def _why_no_file(path: Path) -> str:
    """Returns why there is no image at a path, or an empty string."""
    try:
        if path.is_file():
            return ""
        return f"{path} is a folder" if path.is_dir() else f"there is no file {path}"
    except OSError as error:
        return f"{path} cannot be looked at: {error.strerror or error}"


def _near_file(path: Path) -> str:
    try:
        return did_you_mean(path.name, [other.name for other in path.parent.iterdir() if other.is_file()])
    except OSError:  # a hint is no must
        return ""


def _alike(name: str) -> str:
    """Returns a name in a normal form, without case, extra blanks and Unicode forms, to find names that look the same."""
    return " ".join(unicodedata.normalize("NFKC", name).casefold().split())


def _four(text: str) -> Box | None:
    """Returns the four comma-separated numbers of a text, or ``None`` if it is something else."""
    parts = text.split(",")
    if len(parts) != 4 or not all(map(_NUMBER.fullmatch, parts)):
        return None
    x1, y1, x2, y2 = map(float, parts)
    return x1, y1, x2, y2


def _entities(drafts: Sequence[_Draft]) -> tuple[Entity, ...]:
    ids = _safe_ids([draft.identity for draft in drafts])
    return tuple(
        Entity(
            safe,
            draft.identity,
            FileImage(draft.path, str(draft.place)),
            draft.size,
            draft.boxes,
            draft.group,
            draft.category,
            draft.groupings,
        )
        for safe, draft in zip(ids, drafts, strict=True)
    )


def _safe_ids(identities: Sequence[str]) -> list[str]:
    """Returns an id of letters, digits, ``_`` and ``-`` for each identity, with a digest if it differs from the identity."""
    safe = [_UNSAFE.sub("-", identity).strip("-")[:_LONGEST_ID] for identity in identities]
    digests = [hashlib.sha256(identity.encode()).hexdigest()[:8] for identity in identities]
    return [
        text if text == identity else f"{text}-{digest}".strip("-")
        for text, identity, digest in zip(safe, identities, digests, strict=True)
    ]


# The collection.


class FaceFolder:
    """Identities of a folder; ``faces_folder_table`` describes its layout.

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
        compared_by = self._encoder.digest if self._encoder else PIXEL_STATISTICS
        return fingerprint([self.domain, self.hinted, compared_by, CIRCLES, *map(_facts, self.entities())])

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

        A circle is ``count + 1`` identities of one group that are near each other, see ``circles``: all are shown
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
    columns = {"file": file, "identity": entity.label, "group": entity.group, "category": entity.category}
    return {**columns, **entity.groupings, **boxes}


def _facts(entity: Entity) -> list[object]:
    boxes = {attribute: list(box) for attribute, box in entity.boxes.items()}
    facts: list[object] = [entity.id, entity.label, entity.image.identity(), boxes, entity.group, entity.category]
    return [*facts, dict(entity.groupings)] if entity.groupings else facts
