"""From the table of a folder to identities: every row is checked, and every image decoded once."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust.core.boxes import Box
from pytest_vlmrobust.core.errors import DatasetError, ImageError, did_you_mean
from pytest_vlmrobust.core.fingerprint import pixels_digest

from .faces_folder_table import SETTINGS, FolderSettings, Row, read_rows
from .files import Place, Problems
from .images import FileImage, is_turned
from .protocol import Entity
from .similarity import pixel_features

if TYPE_CHECKING:
    Faces: TypeAlias = Sequence[Mapping[str, Box]]  # the boxes of each face in an image
    FaceFinder: TypeAlias = Callable[[NDArray[np.uint8]], Faces]

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
        """Returns the finder of face boxes; ``None`` if no row needs it, or no model file is named."""
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
        """Decodes the image of a draft and notes its problems."""
        if draft.path == self.folder:
            return  # there is none, which is already reported
        try:
            picture = FileImage(draft.path, f"{draft.place}, column 'file'").load()
        except ImageError as error:
            self.problems.messages.append(str(error))
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
        self.problems.messages.append(
            f"{draft.place}: MediaPipe found {problem} in {draft.path}, expected one face. Write its boxes into the table, crop "
            "the image, or remove the row"
        )
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
