"""Preprocessing: shows an image in parts, several times, or enlarged to a higher rung of the resolution ladder.

Res-Bench, Table 3, asks what a low resolution takes away: information, or tokens. ``resolution:224+pad_white:448`` has the tokens
of 448 pixels and the information of 224.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from pytest_vlmrobust.core.errors import ImageError

from .pixels import BLACK, Color, Image, opencv
from .registry import corruption
from .resolution import LONG_EDGE, aligned_size

GRIDS = (2, 3, 4, 5)
SHIFTS = (
    *((0, 0), (-1, -1), (0, 1), (1, 0)),
    *((1, 1), (0, -1), (-1, 0), (-1, 1), (1, -1)),
    *((-2, -2), (0, 2), (2, 0), (2, 2), (0, -2), (-2, 0), (-2, 2)),
    *((2, -2), (-2, -1), (1, 2), (2, 1), (-1, -2), (-2, 1), (1, -2), (2, -1), (-1, 2)),
)
"""Shifts of the attempts, in steps down and to the right; each grid takes the first n * n of them."""
STEPS = 64
"""A step of a shift is this part of the shorter side: at 448 pixels 7, half of the 14-pixel patch of many vision encoders."""


def patch_count(n: int) -> int:
    """Returns how many patches an n x n grid has."""
    return n * n


@corruption(
    family="patches",
    levels={str(n): {"n": n} for n in GRIDS},
    changes=["count", "position", "presence"],
    keeps_size=False,
    views=patch_count,
    source="PCRI section 3; RCI section 3",
)
def patches(image: Image, *, n: int) -> Image:
    """Cuts the image into ``n`` x ``n`` patches of equal size that do not overlap, shape (n * n, H // n, W // n, 3).

    They are in row order from the top left. If a side is not a multiple of ``n``, the remaining up to n - 1 pixels are cut off at
    both ends, half at each, the odd pixel at the bottom or right, so that all patches are equal, as published, and no side of the
    image is favoured. The papers do not specify the remainder. A patch is not enlarged.
    """
    height, width = image.shape[:2]
    if min(height, width) < n:
        raise ImageError(
            f"patches:{n}: got an image of {width} x {height} pixels. Expected sides of at least {n}, a pixel for each patch"
        )
    tall, wide = height // n, width // n
    top, left = height % n // 2, width % n // 2
    inner = image[top : top + n * tall, left : left + n * wide]
    grid: Image = inner.reshape(n, tall, n, wide, 3).swapaxes(1, 2)
    return grid.reshape(n * n, tall, wide, 3)


@corruption(
    family="attempts",
    levels={str(n): {"n": n} for n in GRIDS},
    views=patch_count,
    source="pytest-vlmrobust: the other side of PCRI with equal luck",
)
def attempts(image: Image, *, n: int) -> Image:
    """Shows the whole image ``n`` x ``n`` times, shape (n * n, H, W, 3): first unchanged, then with different small shifts.

    The best of n * n patches has n * n attempts; ``pcri_matched`` compares it with equally many attempts at the
    whole image. A shift is 1 or 2 steps up, down, left or right, a step being a 64th of the shorter side and at least 1 pixel;
    an entering edge repeats the border pixels. So at most a 32nd of the image leaves at a side, while
    pixels fall into other cells of
    the vision encoder. The first attempts of a larger grid equal those of a smaller grid, so they are inferred once.
    """
    height, width = image.shape[:2]
    step = max(1, min(height, width) // STEPS)
    rows, columns = np.arange(height), np.arange(width)
    shifted = np.empty((n * n, *image.shape), np.uint8)
    for copy, (down, right) in zip(shifted, SHIFTS, strict=False):
        from_rows = np.clip(rows - down * step, 0, height - 1)
        from_columns = np.clip(columns - right * step, 0, width - 1)
        copy[:] = image[from_rows[:, None], from_columns]
    return shifted


# A higher rung of the resolution ladder, with or without new detail.

WHITE: Color = (255, 255, 255)
LEVELS = {str(edge): {"long_edge": edge} for edge in (336, 448, 672, 784, 896, 1008, 1232, 1344)}
"""The final sizes of Res-Bench's Table 3."""


def large_already(height: int, width: int, *, long_edge: int) -> str:
    """Returns that an image of ``height`` x ``width`` is as large as that or larger, or an empty string."""
    longest = max(height, width)
    return f"the long edge has {longest} pixels, {long_edge} or more: left as it is" if longest >= long_edge else ""


_preprocessing = partial(corruption, family="preprocessing", source="Res-Bench Table 3", keeps_size=False)


@_preprocessing(levels=LEVELS, numbered=LONG_EDGE, note=large_already)
def pad_white(image: Image, *, long_edge: int) -> Image:
    """Puts the image in the middle of a white canvas of its own shape whose long edge has ``long_edge`` pixels.

    An odd pixel of margin goes to the bottom or right. The paper's text says both "white-padding" and "zero-value pixels":
    :func:`pad_zero` is the other reading.
    """
    return _pad(image, long_edge, WHITE)


@_preprocessing(levels=LEVELS, numbered=LONG_EDGE, note=large_already)
def pad_zero(image: Image, *, long_edge: int) -> Image:
    """Puts the image in the middle of a black canvas of its own shape whose long edge has ``long_edge`` pixels."""
    return _pad(image, long_edge, BLACK)


@_preprocessing(levels=LEVELS, numbered=LONG_EDGE, note=large_already)
def upscale_lanczos(image: Image, *, long_edge: int) -> Image:
    """Enlarges the image until its long edge has ``long_edge`` pixels, by Lanczos interpolation over 8 x 8 pixels."""
    return _enlarge(image, long_edge, opencv().INTER_LANCZOS4)


@_preprocessing(levels=LEVELS, numbered=LONG_EDGE, note=large_already)
def upscale_bicubic(image: Image, *, long_edge: int) -> Image:
    """Enlarges the image until its long edge has ``long_edge`` pixels, by bicubic interpolation.

    The baseline for the paper's super-resolution: equally many pixels without new detail.
    """
    return _enlarge(image, long_edge, opencv().INTER_CUBIC)


def _pad(image: Image, long_edge: int, colour: Color) -> Image:
    height, width = image.shape[:2]
    if large_already(height, width, long_edge=long_edge):
        return image
    cv2 = opencv()
    wide, tall = aligned_size(height, width, long_edge)
    top, left = (tall - height) // 2, (wide - width) // 2
    margins = (top, tall - height - top, left, wide - width - left)
    padded: Image = cv2.copyMakeBorder(image, *margins, cv2.BORDER_CONSTANT, value=colour)
    return padded


def _enlarge(image: Image, long_edge: int, interpolation: int) -> Image:
    height, width = image.shape[:2]
    if large_already(height, width, long_edge=long_edge):
        return image
    larger: Image = opencv().resize(image, aligned_size(height, width, long_edge), interpolation=interpolation)
    return larger
