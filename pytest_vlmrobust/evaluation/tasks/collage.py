"""Collage: k x k pictures as one, put together when loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_vlmrobust.core.fingerprint import fingerprint
from pytest_vlmrobust.core.sample import ImageSource

from .fitting import VERSION, fitted

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SMALLEST_EDGE = 160
"""A cell is not made smaller than this, in pixels: a picture that fits is shown as it is."""


def cell_size(size: tuple[int, int], side: int) -> tuple[int, int]:
    """Returns width and height of a cell in a collage of ``side`` x ``side`` pictures of ``size``, in pixels.

    As in the paper the collage is about as large as one picture: a cell's long edge is the picture's divided by ``side``,
    rounded down, so that four pictures of 1024 px make a collage of 1024 px. It is not less than 160 px, or the picture's own
    edge where that is shorter, so that four of 160 px make one of 320 px, unscaled.

    >>> cell_size((1024, 1024), 2), cell_size((160, 160), 2), cell_size((1024, 512), 4)
    ((512, 512), (160, 160), (256, 128))
    """
    edge = max(size)
    scaled = max(edge // side, min(edge, SMALLEST_EDGE))
    return max(1, size[0] * scaled // edge), max(1, size[1] * scaled // edge)


@dataclass(frozen=True, slots=True)
class Collage:
    """``side`` x ``side`` pictures, row by row, without gaps, in cells of ``cell`` (width, height) pixels.

    A picture of another size than its cell is fitted into it, see ``fitted``.
    """

    parts: tuple[ImageSource, ...]
    side: int
    cell: tuple[int, int]

    def load(self) -> NDArray[np.uint8]:
        """Returns the collage: RGB, uint8, shape (side * cell height, side * cell width, 3).

        Raises:
            ImageError: one of the pictures cannot be read.
        """
        import numpy as np

        cells = [fitted(part.load(), self.cell) for part in self.parts]
        rows = (cells[start : start + self.side] for start in range(0, len(cells), self.side))
        return np.concatenate([np.concatenate(row, axis=1) for row in rows], axis=0)

    def identity(self) -> str:
        """Returns what the pixels are a function of; Pillow, which scales them, is part of it.

        Raises:
            ImageError: as ``load``.
        """
        from PIL import __version__

        facts = [VERSION, __version__, self.side, list(self.cell)]
        return fingerprint(["collage", *facts, *(part.identity() for part in self.parts)])
