"""Patches: the picture cut into a grid, each part to be seen alone."""

from __future__ import annotations

from pytest_vlmrobust.core.errors import ImageError

from .pixels import Image
from .registry import corruption

GRIDS = (2, 3, 4, 5)


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
    """Cuts the picture into ``n`` x ``n`` patches of equal size that do not overlap, shape (n * n, H // n, W // n, 3).

    They come row by row from the top left. Where a side is no multiple of ``n``, the up to n - 1 pixels left over are cut off at
    both of its ends, half at each, the odd one at the bottom or right: so all patches are equal, as published, and no side of the
    picture is favoured. Papers leave the remainder open. A patch keeps its pixels: it is not enlarged.

    Raises:
        ImageError: a side is shorter than ``n`` pixels.
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
