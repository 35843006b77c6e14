"""Moved pictures: the same picture smaller and elsewhere on a canvas of its own size, put together when loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_vlmrobust.core.boxes import Box
from pytest_vlmrobust.core.fingerprint import fingerprint
from pytest_vlmrobust.core.sample import ImageSource

from .fitting import VERSION, scaled

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SCALES = (0.6, 0.8)
"""Smallest and largest size of a moved picture, as a share of its own.

A larger one has less room to move in, and what is small becomes hard to see in a smaller one.
"""


@dataclass(frozen=True, slots=True)
class Move:
    """Where a picture goes on a canvas of its own size; whole pixels, so that boxes move exactly as the pixels do."""

    canvas: tuple[int, int]
    """Width and height of the picture, and of the canvas."""
    size: tuple[int, int]
    """Width and height of the picture on it."""
    corner: tuple[int, int]
    """Left and top edge of the picture on it."""

    def box(self, box: Box) -> Box:
        """Returns where a box of the picture is on the canvas."""
        x, y = (small / whole for small, whole in zip(self.size, self.canvas, strict=True))
        left, top = self.corner
        return box[0] * x + left, box[1] * y + top, box[2] * x + left, box[3] * y + top


def drawn_move(canvas: tuple[int, int], rng: np.random.Generator) -> Move:
    """Returns a move to a size in ``SCALES`` and a place with all of the picture on the canvas, every one equally likely."""
    scale = rng.uniform(*SCALES)
    width, height = (max(1, round(edge * scale)) for edge in canvas)
    left, top = (int(rng.integers(0, room + 1)) for room in (canvas[0] - width, canvas[1] - height))
    return Move(canvas, (width, height), (left, top))


@dataclass(frozen=True, slots=True)
class Moved:
    """A picture after a move. Around it, its outermost pixels go on to the edges: plain paper stays plain, and no frame shows."""

    image: ImageSource
    move: Move

    def load(self) -> NDArray[np.uint8]:
        """Returns RGB pixels, uint8, of the shape of the picture.

        Raises:
            ImageError: the picture cannot be read.
        """
        import numpy as np

        small = scaled(self.image.load(), self.move.size)
        (width, height), (left, top) = self.move.canvas, self.move.corner
        below, right = height - top - small.shape[0], width - left - small.shape[1]
        return np.pad(small, ((top, below), (left, right), (0, 0)), mode="edge")

    def identity(self) -> str:
        """Returns what the pixels are a function of; Pillow, which scales them, is part of it.

        Raises:
            ImageError: as ``load``.
        """
        from PIL import __version__

        place = [list(self.move.canvas), list(self.move.size), list(self.move.corner)]
        return fingerprint(["moved", VERSION, __version__, place, self.image.identity()])
