"""Images of tasks: a k x k collage, an image fitted to a size, and an image moved on its canvas, composed when loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust.core.boxes import Box
from pytest_vlmrobust.core.fingerprint import fingerprint
from pytest_vlmrobust.core.sample import ImageSource

# Fitting: an image brought to a given size without distortion.


VERSION = 1
"""Changes whenever a pixel changes."""
_WHITE = 255


def fit(picture: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.uint8]:
    """Returns an image scaled to fit (Lanczos, as in the released code) and, if its shape differs, centred on white.

    Returns: RGB, uint8, shape (height, width, 3); unchanged pixels if the image has the size.
    """
    height, width = picture.shape[:2]
    if (width, height) == size:
        return picture
    scale = min(size[0] / width, size[1] / height)
    inner = (max(1, round(width * scale)), max(1, round(height * scale)))
    whole = np.full((size[1], size[0], 3), _WHITE, np.uint8)
    left, top = (size[0] - inner[0]) // 2, (size[1] - inner[1]) // 2
    whole[top : top + inner[1], left : left + inner[0]] = resize(picture, inner)
    return whole


def resize(picture: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.uint8]:
    """Returns an image (RGB, uint8, shape (H, W, 3)) at exactly ``size``, width and height in pixels (Lanczos)."""
    from PIL import Image

    return np.asarray(Image.fromarray(picture).resize(size, Image.Resampling.LANCZOS))


@dataclass(frozen=True, slots=True)
class Fitted:
    """An image in another size, made when loaded."""

    image: ImageSource
    size: tuple[int, int]
    """Width and height in pixels."""

    def load(self) -> NDArray[np.uint8]:
        """Returns RGB pixels, uint8, shape (height, width, 3)."""
        return fit(self.image.load(), self.size)

    def identity(self) -> str:
        """Returns the inputs that determine the pixels, including Pillow, which scales them."""
        from PIL import __version__

        return fingerprint(["fitted", VERSION, __version__, list(self.size), self.image.identity()])


# Collage: k x k images as one, composed when loaded.


SMALLEST_EDGE = 160
"""The minimum size of a cell in pixels; an image that fits is shown unscaled."""


def cell_size(size: tuple[int, int], side: int) -> tuple[int, int]:
    """Returns width and height of a cell in a collage of ``side`` x ``side`` images of ``size``, in pixels.

    As in the paper, the collage is about as large as one image: a cell's long edge is the image's divided by ``side``,
    rounded down, so four images of 1024 px make a collage of 1024 px. It is at least 160 px, or the image's own
    edge if that is shorter, so four images of 160 px make one of 320 px, unscaled.

    >>> cell_size((1024, 1024), 2), cell_size((160, 160), 2), cell_size((1024, 512), 4)
    ((512, 512), (160, 160), (256, 128))
    """
    edge = max(size)
    cell = max(edge // side, min(edge, SMALLEST_EDGE))
    return max(1, size[0] * cell // edge), max(1, size[1] * cell // edge)


@dataclass(frozen=True, slots=True)
class Collage:
    """``side`` x ``side`` images, row by row, without gaps, in cells of ``cell`` (width, height) pixels.

    An image of another size than its cell is fitted into it, see ``fit``.
    """

    parts: tuple[ImageSource, ...]
    side: int
    cell: tuple[int, int]

    @property
    def cells(self) -> tuple[Fitted, ...]:
        """The shown images, row by row; many collages share a few of them."""
        return tuple(Fitted(part, self.cell) for part in self.parts)

    def load(self) -> NDArray[np.uint8]:
        """Returns the collage: RGB, uint8, shape (side * cell height, side * cell width, 3)."""
        return self.joined([cell.load() for cell in self.cells])

    def joined(self, cells: Sequence[NDArray[np.uint8]]) -> NDArray[np.uint8]:
        """Returns the collage of images that ``cells`` gave: RGB, uint8, shape (side * cell height, side * cell width, 3)."""
        rows = (cells[start : start + self.side] for start in range(0, len(cells), self.side))
        return np.concatenate([np.concatenate(row, axis=1) for row in rows], axis=0)

    def identity(self) -> str:
        """Returns the inputs that determine the pixels, including Pillow, which scales them."""
        from PIL import __version__

        facts = [VERSION, __version__, self.side, list(self.cell)]
        return fingerprint(["collage", *facts, *(part.identity() for part in self.parts)])


# Moved images: the same image smaller and elsewhere on a canvas of its original size, composed when loaded.


SCALES = (0.6, 0.8)
"""Smallest and largest size of a moved image, as a share of its original size.

A larger image has less room to move, and small things become hard to see in a smaller one.
"""


@dataclass(frozen=True, slots=True)
class Move:
    """The position of an image on a canvas of its original size, in whole pixels, so that boxes move exactly like the pixels."""

    canvas: tuple[int, int]
    """Width and height of the image, and of the canvas."""
    size: tuple[int, int]
    """Width and height of the image on it."""
    corner: tuple[int, int]
    """Left and top edge of the image on it."""

    def box(self, box: Box) -> Box:
        """Returns the box on the canvas of a box in the image."""
        x, y = (small / whole for small, whole in zip(self.size, self.canvas, strict=True))
        left, top = self.corner
        return box[0] * x + left, box[1] * y + top, box[2] * x + left, box[3] * y + top


def draw_move(canvas: tuple[int, int], rng: np.random.Generator) -> Move:
    """Returns a uniformly drawn move to a size in ``SCALES`` and a position with the whole image on the canvas."""
    scale = rng.uniform(*SCALES)
    width, height = (max(1, round(edge * scale)) for edge in canvas)
    left, top = (int(rng.integers(0, room + 1)) for room in (canvas[0] - width, canvas[1] - height))
    return Move(canvas, (width, height), (left, top))


@dataclass(frozen=True, slots=True)
class Moved:
    """An image after a move. Its outermost pixels extend to the canvas edges: plain paper stays plain, and no frame shows."""

    image: ImageSource
    move: Move

    def load(self) -> NDArray[np.uint8]:
        """Returns RGB pixels, uint8, of the shape of the image."""
        small = resize(self.image.load(), self.move.size)
        (width, height), (left, top) = self.move.canvas, self.move.corner
        below, right = height - top - small.shape[0], width - left - small.shape[1]
        return np.pad(small, ((top, below), (left, right), (0, 0)), mode="edge")

    def identity(self) -> str:
        """Returns the inputs that determine the pixels, including Pillow, which scales them."""
        from PIL import __version__

        place = [list(self.move.canvas), list(self.move.size), list(self.move.corner)]
        return fingerprint(["moved", VERSION, __version__, place, self.image.identity()])


def parts_of(picture: ImageSource) -> tuple[ImageSource, ...]:
    """Returns the images that a composed image consists of; empty for any other image."""
    match picture:
        case Collage(parts=parts):
            return parts
        case Fitted(image=image) | Moved(image=image):
            return (image,)
    return ()
