"""Isometric view: pictures built from columns, seen from above at an angle.

Columns stand on squares which this view shows as rhombi, 1.73 edges wide and one edge high. Two coordinates count squares, one
towards the lower right and one towards the lower left; a point ``h`` edges above the ground appears ``h`` edges higher in the
picture, which is ``h`` further along both.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..pixels import Color, Image, Plane
from ..registry import corruption
from .canvas import SOURCE, Labels, Table, grain, pick, tone

PASTELS: tuple[tuple[Color, ...], ...] = (
    ((66, 62, 128), (112, 120, 196), (140, 200, 214), (252, 204, 190), (255, 242, 220)),
    ((44, 84, 112), (84, 156, 160), (160, 212, 176), (250, 224, 150), (255, 248, 226)),
    ((104, 56, 98), (196, 96, 128), (244, 160, 152), (252, 214, 166), (255, 246, 224)),
)
"""Card from dark to light."""

STEPS = 5
"""Steps from the lowest to the highest column."""
RISE = 0.6
"""The height of the highest column in edges of its base; higher ones would hide what is narrow and dark behind them."""
FACES = np.array([1.0, 0.8, 0.62])
"""The light on the top of a column, on its left and on its right side."""
ROOT_3 = float(np.sqrt(3.0))

Real = NDArray[np.float64]
Whole = NDArray[np.intp]


@corruption(family="standin", stochastic=True, changes=["colour"], source=SOURCE)
def standin_isometric(image: Image, rng: np.random.Generator) -> Image:
    """Builds the picture from pastel columns in isometric view; a procedural stand-in for a diffusion illusion.

    A column is as high and as light as the picture is where its top appears, in six steps; its top catches the light, its two
    sides less of it.
    """
    height, width = image.shape[:2]
    edge = grain(height, width, 5.4, least=4.0)
    start = rng.random(2)
    right, left = _squares(height, width, edge, start)
    i, j = np.floor(right).astype(np.int32), np.floor(left).astype(np.int32)
    ids, columns, per_row = _numbered(i, j)
    shade: Table = np.rint(STEPS * tone(image, soften=edge / 4, local=0.0)[_tops(columns, height, width, edge, start)])
    shade *= np.float32(1 / STEPS)
    seen = _cast(ids, per_row, right - i, left - j, np.float32(RISE) * shade)
    colours = pick(rng, PASTELS)[np.rint(255 * shade).astype(np.intp)] * rng.normal(1.0, 0.02, (len(shade), 1))
    painted = np.clip(np.rint(colours[:, None] * FACES[:, None]), 0, 255).astype(np.uint8)
    built: Image = painted.reshape(-1, 3).take(seen, axis=0)
    return built


def _squares(height: int, width: int, edge: float, start: Real) -> tuple[Plane, Plane]:
    """Returns the two coordinates of the ground at each pixel, shape (H, W) each."""
    across = (np.arange(width) / (ROOT_3 * edge) + start[0]).astype(np.float32)
    down = (np.arange(height) / edge + start[1]).astype(np.float32)[:, None]
    return down + across, down - across


def _numbered(i: Labels, j: Labels) -> tuple[Labels, Whole, int]:
    """Returns the number of the square of each pixel, the two coordinates of each number, shape (2, N), and the numbers per row.

    Squares are numbered row by row as they stand in the picture, where ``i + j`` is the row and ``i - j`` the place in it, with
    room for those in front of the lowest: so numbers stay dense in a picture of any shape. The next square to the right is
    ``per_row + 1`` further, the next to the left ``per_row - 1``.
    """
    row, place = i + j, i - j
    first_row, first_place = int(row.min()), int(place.min()) - 1
    rows, per_row = int(row.max()) - first_row + 3, int(place.max()) - first_place + 2
    all_rows, all_places = np.indices((rows, per_row)).reshape(2, -1) + np.array([[first_row], [first_place]])
    ids = (row - np.int32(first_row)) * np.int32(per_row) + (place - np.int32(first_place))
    return ids, np.stack([all_rows + all_places, all_rows - all_places]) // 2, per_row


def _tops(columns: Whole, height: int, width: int, edge: float, start: Real) -> tuple[Whole, Whole]:
    """Returns the row and the column of the pixel, the nearest one inside, where a top of middling height has its centre."""
    right, left = columns + 0.5
    x = (0.5 * (right - left) - start[0]) * ROOT_3 * edge
    y = (0.5 * (right + left) - start[1] - 0.5 * RISE) * edge
    return np.clip(np.rint(y), 0, height - 1).astype(np.intp), np.clip(np.rint(x), 0, width - 1).astype(np.intp)


def _cast(ids: Labels, per_row: int, right: Plane, left: Plane, heights: Table) -> Labels:
    """Returns what each line of sight meets first, as three times the number of the column plus the face.

    Seen from the ground up, a line rises from a column, passes over one beside it, and over the one diagonally in front. It meets
    the side of a column that is as high as the line is where it leaves it, and the top of one that is lower.

    Args:
        ids: the number of the column under the foot of each line.
        per_row: how many numbers a row has; see ``_numbered``.
        right: how far the foot is along the base of its column, in [0, 1).
        left: the same along the other coordinate.
        heights: the height of each column in edges, below 1.
    """
    over_right = right > left
    near, far = 1.0 - np.maximum(right, left), 1.0 - np.minimum(right, left)
    beside = ids + np.where(over_right, np.int32(per_row + 1), np.int32(per_row - 1))
    side = np.where(over_right, np.int32(2), np.int32(1))
    front = ids + np.int32(2 * per_row)
    seen = 3 * ids + side * (heights.take(ids) >= near)
    reach = heights.take(beside)
    seen = np.where(reach >= near, 3 * beside + (3 - side) * (reach >= far), seen)
    return np.where(heights.take(front) >= far, 3 * front, seen)
