"""Patches: cuts the image into a grid of separate parts; attempts: shows the whole image equally often."""

from __future__ import annotations

import numpy as np

from pytest_vlmrobust.core.errors import ImageError

from .pixels import Image
from .registry import corruption

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
