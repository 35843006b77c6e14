from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from pytest_vlmrobust.datasets import Collection
from pytest_vlmrobust.datasets.embedded.face_collection import FaceCollection
from pytest_vlmrobust.datasets.embedded.word_collection import WordCollection
from pytest_vlmrobust.evaluation.tasks import task_dataset
from pytest_vlmrobust.evaluation.tasks.moved import SCALES, Move, Moved, drawn_move

from .fakes import FakeImage

FACES = FaceCollection("faces_160", side=160, count=6)
WORDS = WordCollection("words_160", side=160, count=6)


@dataclasses.dataclass(frozen=True)
class Marked:
    """A black rectangle on a colour."""

    box: tuple[int, int, int, int]
    size: tuple[int, int] = (100, 60)
    colour: tuple[int, int, int] = (200, 220, 240)

    def load(self) -> NDArray[np.uint8]:
        picture = np.full((self.size[1], self.size[0], 3), self.colour, np.uint8)
        left, top, right, bottom = self.box
        picture[top:bottom, left:right] = 0
        return picture

    def identity(self) -> str:
        return str(self)


def dark(picture: NDArray[np.uint8]) -> tuple[int, int, int, int]:
    """Returns the box of what is darker than half of the colour around it."""
    rows, columns = np.nonzero(picture[:, :, 0] < 100)
    return int(columns.min()), int(rows.min()), int(columns.max()) + 1, int(rows.max()) + 1


def test_boxes_move_as_the_pixels_do() -> None:
    marked = Marked((20, 10, 50, 40))
    move = Move((100, 60), (70, 42), (25, 3))
    assert move.box((20, 10, 50, 40)) == pytest.approx((39, 10, 60, 31))
    assert dark(Moved(marked, move).load()) == (39, 10, 60, 31)


@given(st.tuples(st.integers(1, 300), st.integers(1, 300)), st.integers(0, 2**32))
def test_the_whole_picture_stays_on_the_canvas(size: tuple[int, int], seed: int) -> None:
    move = drawn_move(size, np.random.default_rng(seed))
    left, top, right, bottom = move.box((0, 0, *size))
    assert 0 <= left < right <= size[0]
    assert 0 <= top < bottom <= size[1]
    for small, whole in zip(move.size, size, strict=True):
        assert SCALES[0] * whole - 0.5 <= small <= max(1.0, SCALES[1] * whole + 0.5)
    assert Moved(FakeImage("a", size), move).load().shape == (size[1], size[0], 3)


def test_all_places_and_sizes_are_drawn() -> None:
    rng = np.random.default_rng(0)
    moves = [drawn_move((160, 160), rng) for _ in range(400)]
    assert {move.size[0] for move in moves} == set(range(96, 129))
    rooms = np.array([[place / (160 - move.size[0]) for place in move.corner] for move in moves])
    assert rooms.min() == 0.0
    assert rooms.max() == 1.0
    assert rooms.mean(axis=0) == pytest.approx([0.5, 0.5], abs=0.06)


def test_around_a_plain_picture_nothing_shows_where_it_ends() -> None:
    moved = Moved(Marked((20, 10, 50, 40)), Move((100, 60), (70, 42), (25, 3))).load()
    moved[10:31, 39:60] = (200, 220, 240)
    far = np.abs(moved.astype(int) - (200, 220, 240)).max(axis=2)
    assert far[:6].max() == far[35:].max() == far[:, :34].max() == far[:, 65:].max() == 0


@pytest.mark.parametrize(("collection", "other", "most"), [(WORDS, FACES, 0), (FACES, WORDS, 40)], ids=["words", "faces"])
def test_around_embedded_pictures_there_is_no_frame(collection: Collection, other: Collection, most: int) -> None:
    for sample in task_dataset("guided", collection, other).samples():
        query = sample.images[1]
        assert isinstance(query, Moved)
        pixels, (left, top) = query.load().astype(int), query.move.corner
        right, bottom = left + query.move.size[0], top + query.move.size[1]
        rows = [np.abs(pixels[edge] - pixels[edge - 1]).max() for edge in (top, bottom) if 0 < edge < 160]
        columns = [np.abs(pixels[:, edge] - pixels[:, edge - 1]).max() for edge in (left, right) if 0 < edge < 160]
        assert max([*rows, *columns]) <= most


def test_the_identity_tells_moves_and_pictures_apart() -> None:
    move = Move((100, 60), (70, 42), (25, 3))
    image = FakeImage("a", (100, 60))
    others = [
        Moved(image, move),
        Moved(FakeImage("b", (100, 60)), move),
        *(Moved(image, dataclasses.replace(move, **change)) for change in ({"size": (70, 41)}, {"corner": (25, 4)})),
    ]
    assert len({other.identity() for other in others}) == 4
    assert others[0].identity() == Moved(image, move).identity()
