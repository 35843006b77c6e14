"""A collection of small faces in memory, half of each group; a test's project registers it under ``people``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust.core.sample import ImageSource
from pytest_vlmrobust.datasets import Entity

SIDE = 48
BOXES = {
    "left_eye": (10.0, 14.0, 18.0, 18.0),
    "right_eye": (28.0, 14.0, 36.0, 18.0),
    "nose": (20.0, 20.0, 27.0, 30.0),
    "mouth": (16.0, 33.0, 32.0, 39.0),
}
APART = 6
"""Each box of each person is up to so many pixels off, so that none follows from another."""

Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Face:
    """Colours that follow from a number, with something dark in every box."""

    number: int

    @property
    def boxes(self) -> dict[str, Box]:
        off = np.random.default_rng(self.number).integers(-APART, APART, (len(BOXES), 2), endpoint=True).tolist()
        return {
            name: (left + x, top + y, right + x, bottom + y)
            for (name, (left, top, right, bottom)), (x, y) in zip(BOXES.items(), off, strict=True)
        }

    def load(self) -> NDArray[np.uint8]:
        rng = np.random.default_rng(self.number)
        picture = np.tile(rng.integers(120, 250, 3, np.uint8), (SIDE, SIDE, 1))
        picture[4:44, 6:42] = rng.integers(60, 200, (40, 36, 3), np.uint8)
        for left, top, right, bottom in self.boxes.values():
            picture[int(top) : int(bottom), int(left) : int(right)] = 20
        return picture

    def identity(self) -> str:
        return f"people {self.number}"


class People:
    """People, eight unless said; their neighbours are other ones."""

    name, domain, hinted, digest, native_long_edge = "people", "face", "nose", "0" * 64, SIDE

    def __init__(self, count: int = 8, groups: tuple[str, str] = ("female", "male")) -> None:
        self.count, self.groups = count, groups

    def entities(self) -> Sequence[Entity]:
        faces = [Face(number) for number in range(self.count)]
        return [
            Entity(f"p{face.number}", f"Person {face.number}", face, (SIDE, SIDE), face.boxes, self.groups[face.number % 2])
            for face in faces
        ]

    def neighbours(self, entity: Entity, count: int) -> tuple[ImageSource, ...]:
        number = int(entity.id[1:])
        return tuple(Face(1000 + 10 * number + near) for near in range(count))
