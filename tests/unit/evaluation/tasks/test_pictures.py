from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from pytest_vlmrobust.datasets import Collection
from pytest_vlmrobust.demo.faces import FaceCollection
from pytest_vlmrobust.demo.word_collection import WordCollection
from pytest_vlmrobust.evaluation.tasks import task_dataset
from pytest_vlmrobust.evaluation.tasks.pictures import SCALES, Collage, Move, Moved, cell_size, draw_move

from .fakes import FakeImage


class Plain:
    """One colour."""

    def __init__(self, value: int, size: tuple[int, int]) -> None:
        self.value, self.size = value, size

    def load(self) -> NDArray[np.uint8]:
        return np.full((self.size[1], self.size[0], 3), self.value, np.uint8)

    def identity(self) -> str:
        return f"{self.value} {self.size}"


@pytest.mark.cases(
    ("size", "side", "cell"),
    [
        ((1024, 1024), 2, (512, 512)),
        ((1024, 1024), 3, (341, 341)),
        ((1024, 1024), 4, (256, 256)),
        ((160, 160), 2, (160, 160)),
        ((300, 300), 2, (160, 160)),
        ((80, 80), 3, (80, 80)),
        ((1000, 500), 2, (500, 250)),
        ((500, 1000), 2, (250, 500)),
    ],
)
def test_cells_share_the_size_of_one_picture_but_do_not_become_small(
    size: tuple[int, int], side: int, cell: tuple[int, int]
) -> None:
    assert cell_size(size, side) == cell


@pytest.mark.parametrize("side", [2, 3])
def test_pictures_of_the_size_of_a_cell_are_untouched_and_stand_row_by_row(side: int) -> None:
    parts = tuple(FakeImage(str(number)) for number in range(side**2))
    whole = Collage(parts, side, (160, 160)).load()
    assert whole.shape == (160 * side, 160 * side, 3)
    assert whole.dtype == np.uint8
    for number, part in enumerate(parts):
        row, column = divmod(number, side)
        seen = whole[row * 160 : row * 160 + 160, column * 160 : column * 160 + 160]
        assert np.array_equal(seen, part.load())


def test_larger_pictures_are_scaled_without_bleeding_into_other_cells() -> None:
    parts = tuple(Plain(value, (100, 100)) for value in (0, 80, 160, 240))
    whole = Collage(parts, 2, (50, 50)).load()
    assert whole.shape == (100, 100, 3)
    corners = [whole[:50, :50], whole[:50, 50:], whole[50:, :50], whole[50:, 50:]]
    assert [set(np.unique(corner).tolist()) for corner in corners] == [{0}, {80}, {160}, {240}]


def test_pictures_of_another_shape_keep_their_proportions_on_white() -> None:
    whole = Collage((Plain(0, (100, 50)), *[Plain(9, (50, 50))] * 3), 2, (50, 50)).load()
    dark = np.argwhere(whole[:50, :50, 0] == 0)
    assert dark.min(axis=0).tolist() == [12, 0]
    assert dark.max(axis=0).tolist() == [36, 49]
    assert set(np.unique(whole[:50, :50]).tolist()) == {0, 255}


def test_the_identity_tells_collages_apart() -> None:
    parts = tuple(FakeImage(str(number)) for number in range(4))
    collage = Collage(parts, 2, (160, 160))
    assert collage.identity() == Collage(parts, 2, (160, 160)).identity()
    assert collage.identity() != Collage(parts, 2, (80, 80)).identity()
    assert collage.identity() != Collage(parts[::-1], 2, (160, 160)).identity()
    assert np.array_equal(collage.load(), collage.load())


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
    move = draw_move(size, np.random.default_rng(seed))
    left, top, right, bottom = move.box((0, 0, *size))
    assert 0 <= left < right <= size[0]
    assert 0 <= top < bottom <= size[1]
    for small, whole in zip(move.size, size, strict=True):
        assert SCALES[0] * whole - 0.5 <= small <= max(1.0, SCALES[1] * whole + 0.5)
    assert Moved(FakeImage("a", size), move).load().shape == (size[1], size[0], 3)


def test_all_places_and_sizes_are_drawn() -> None:
    rng = np.random.default_rng(0)
    moves = [draw_move((160, 160), rng) for _ in range(400)]
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
