from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from pytest_vlmrobust.evaluation.tasks.collage import Collage, cell_size

from .fakes import FakeImage


class Plain:
    """One colour."""

    def __init__(self, value: int, size: tuple[int, int]) -> None:
        self.value, self.size = value, size

    def load(self) -> NDArray[np.uint8]:
        return np.full((self.size[1], self.size[0], 3), self.value, np.uint8)

    def identity(self) -> str:
        return f"{self.value} {self.size}"


@pytest.mark.parametrize(
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
    one = Collage(parts, 2, (160, 160))
    assert one.identity() == Collage(parts, 2, (160, 160)).identity()
    assert one.identity() != Collage(parts, 2, (80, 80)).identity()
    assert one.identity() != Collage(parts[::-1], 2, (160, 160)).identity()
    assert np.array_equal(one.load(), one.load())
