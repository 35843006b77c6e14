"""Collections in memory: every picture has pixels of its own, and says whose it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust.core.boxes import Box
from pytest_vlmrobust.core.errors import DatasetError
from pytest_vlmrobust.core.fingerprint import fingerprint
from pytest_vlmrobust.core.sample import ImageSource, Sample
from pytest_vlmrobust.datasets.protocol import Entity
from pytest_vlmrobust.evaluation.tasks.pictures import Collage

FACE_BOXES = {
    "left_eye": (20.0, 30.0, 50.0, 45.0),
    "right_eye": (80.0, 31.0, 110.0, 46.0),
    "nose": (55.0, 60.0, 75.0, 90.0),
    "mouth": (45.0, 105.0, 95.0, 125.0),
}


@dataclass(frozen=True)
class FakeImage:
    """Pixels that follow from a name."""

    of: str
    size: tuple[int, int] = (160, 160)

    def load(self) -> NDArray[np.uint8]:
        seed = int(fingerprint(self.of)[:8], 16)
        return np.random.default_rng(seed).integers(0, 256, (self.size[1], self.size[0], 3), np.uint8)

    def identity(self) -> str:
        return f"{self.of} {self.size}"


@dataclass(frozen=True)
class FakeCollection:
    """Identities ``<name>-0000`` on; neighbours are pictures of nobody else in it."""

    name: str = "faces"
    domain: str = "face"
    hinted: str = "nose"
    count: int = 12
    size: tuple[int, int] = (160, 160)
    native_long_edge: int | None = 160
    boxes: Mapping[str, Box] = field(default_factory=lambda: FACE_BOXES)
    groups: tuple[str, ...] = ("female", "male")
    most_neighbours: int = 30
    turned: int = 0
    """Starts the order of the identities at another one."""
    jitter: float = 0.0
    """Edges of boxes are off by up to so many pixels, each by its own and each identity by others."""
    same: bool = False
    """The neighbours are all one picture."""

    @property
    def digest(self) -> str:
        return fingerprint([self.name, self.count, list(self.size)])

    @cached_property
    def _entities(self) -> tuple[Entity, ...]:
        return tuple(self._entity((number + self.turned) % self.count) for number in range(self.count))

    def entities(self) -> Sequence[Entity]:
        return self._entities

    def neighbours(self, entity: Entity, count: int) -> tuple[ImageSource, ...]:
        if count > self.most_neighbours:
            raise DatasetError(f"{self.name} has {self.most_neighbours} others, not {count}")
        return tuple(FakeImage(f"near {entity.id} {0 if self.same else near}", self.size) for near in range(count))

    def _entity(self, number: int) -> Entity:
        name = f"{self.name}-{number:04d}"
        group = self.groups[number % len(self.groups)] if self.groups else ""
        return Entity(name, f"Label{number}", FakeImage(name, self.size), self.size, self._boxes(number), group)

    def _boxes(self, number: int) -> Mapping[str, Box]:
        off = np.random.default_rng(number).uniform(-self.jitter, self.jitter, (len(self.boxes), 4))
        return {name: shifted(box, by.tolist()) for (name, box), by in zip(self.boxes.items(), off, strict=True)}


def shifted(box: Box, by: Sequence[float]) -> Box:
    x1, y1, x2, y2 = box
    return x1 + by[0], y1 + by[1], x2 + by[2], y2 + by[3]


def faces(**changes: object) -> FakeCollection:
    return FakeCollection(**changes)  # type: ignore[arg-type]


def words(**changes: object) -> FakeCollection:
    facts: dict[str, object] = {
        "name": "words",
        "domain": "word",
        "hinted": "corner",
        "boxes": {"word": (12.0, 70.0, 148.0, 101.0)},
        "groups": (),
    }
    return FakeCollection(**{**facts, **changes})  # type: ignore[arg-type]


def whose(image: ImageSource) -> str:
    """Returns ``near``, or the name of the collection that a picture is from."""
    assert isinstance(image, FakeImage)
    return image.of.partition("-")[0].partition(" ")[0]


def cells_of(sample: Sample) -> tuple[ImageSource, ...]:
    collage = sample.images[1]
    assert isinstance(collage, Collage)
    return collage.parts
