"""Sprites: many small shapes at once, each as bright as the point it stands on."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..opencv import opencv
from ..pixels import Plane
from .canvas import Table

Points = tuple[NDArray[np.intp], NDArray[np.intp]]
"""The y and the x of each of N points, shape (N,) each: an index into a plane."""
Sprite = NDArray[np.uint8]
"""A shape as a mask of 0 and 1, with odd height and width."""


def scattered(rng: np.random.Generator, height: int, width: int, size: float, *, jitter: float = 1.0) -> Points:
    """Returns points in staggered rows, one to a square of ``size`` pixels, off their places by up to ``jitter`` / 2 squares."""
    rows, columns = max(1, round(height / size)), max(1, round(width / size))
    j, i = np.indices((rows, columns))
    down = j + 0.5 + jitter * rng.uniform(-0.5, 0.5, j.shape)
    across = i + 0.25 + 0.5 * (j % 2) + jitter * rng.uniform(-0.5, 0.5, j.shape)
    y = np.clip(down * height / rows, 0, height - 1).astype(np.intp).ravel()
    x = np.clip(across * width / columns, 0, width - 1).astype(np.intp).ravel()
    return y, x


def stamped(points: Points, values: Table, shape: tuple[int, int], sprite: Sprite, *, hold: float = 0.5) -> Plane:
    """Returns a plane of ``shape`` with a sprite at each point, as bright as its value in [0, 1]; the brightest is on top.

    The middle of a row of the sprite comes to the point: of the row at ``hold`` of its height, 0 for the first, 1 for the last.
    """
    cv2 = opencv()
    seeds = np.zeros(shape, np.uint8)
    np.maximum.at(seeds, points, np.rint(255.0 * values).astype(np.uint8))
    held = round((1.0 - hold) * (sprite.shape[0] - 1))
    drawn = cv2.dilate(seeds, np.ascontiguousarray(sprite[::-1, ::-1]), anchor=(sprite.shape[1] // 2, held))
    plane: Plane = drawn.astype(np.float32) / np.float32(255)
    return plane


def ellipse(length: float, breadth: float, angle: float = 0.0) -> Sprite:
    """Returns a pointed ellipse, a leaf, of that length at ``angle`` radians from the x axis."""
    reach = int(np.ceil(length / 2))
    y, x = np.mgrid[-reach : reach + 1, -reach : reach + 1]
    along, across = np.cos(angle) * x + np.sin(angle) * y, np.cos(angle) * y - np.sin(angle) * x
    inside = np.abs(across) <= np.maximum(0.5 * breadth * (1.0 - (2.0 * along / length) ** 2), 0.5) * (
        np.abs(along) <= length / 2
    )
    sprite: Sprite = inside.astype(np.uint8)
    sprite[reach, reach] = 1
    return sprite


def teardrop(height: float, breadth: float) -> Sprite:
    """Returns a flame: round below, pointed above."""
    rows, reach = max(1, round(height)), max(0, round(breadth / 2))
    from_top = (np.arange(rows) + 0.5)[:, None] / rows
    half = 0.5 * breadth * np.minimum(from_top**0.9 / 0.7, np.sqrt(np.clip(1.0 - ((from_top - 0.7) / 0.3) ** 2, 0.0, 1.0)))
    sprite: Sprite = (np.abs(np.arange(-reach, reach + 1)) <= np.maximum(half, 0.3)).astype(np.uint8)
    return sprite


def stick(height: float, breadth: float) -> Sprite:
    """Returns an upright bar."""
    return np.ones((max(1, round(height)), 2 * max(0, round(breadth / 2)) + 1), np.uint8)
