"""Shapes with smooth outlines, and the canvas on which they are painted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import accumulate, groupby, islice, product
from typing import TypeAlias

import cv2
import numpy as np
from numpy.typing import NDArray

Points: TypeAlias = "NDArray[np.float64]"
Fixed: TypeAlias = "NDArray[np.int32]"
Colour: TypeAlias = tuple[float, float, float]
_SHIFT = 4
"""Fractional bits of the coordinates passed to OpenCV."""
_STEPS = 12
"""Points of a curve between two knots."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A painted area: one or more outlines, filled by the even-odd rule.

    Outlines are in units of the head, each of shape (points, 2); ``within`` clips them, ``opacity`` is in (0, 1].
    """

    outlines: tuple[Points, ...]
    colour: Colour
    within: Points | None = None
    opacity: float = 1.0


@dataclass(frozen=True, slots=True)
class Placing:
    """From units of the head to pixels: a rotation, a scale and a shift."""

    x: float
    y: float
    scale: float
    roll: float

    def __call__(self, points: Points) -> Points:
        """Returns points in pixels of the picture; (0, 0) is the outer corner of the first pixel."""
        angle = math.radians(self.roll)
        a, b = self.scale * math.cos(angle), self.scale * math.sin(angle)
        return np.asarray(points @ np.array([[a, b], [-b, a]]) + np.array([self.x, self.y]), np.float64)


class Canvas:
    """A picture being painted, with shapes one over the other with soft edges."""

    def __init__(self, pixels: NDArray[np.uint8]) -> None:
        self.pixels = pixels

    def paint(self, shapes: Sequence[Shape], placing: Placing) -> None:
        """Paints shapes in order; consecutive shapes with the same clip and opacity are painted together as one layer."""
        outlines = iter(_fixed_outlines([outline for shape in shapes for outline in shape.outlines], placing))
        for (_, opacity), run in groupby(shapes, key=lambda shape: (id(shape.within), shape.opacity)):
            layer = [(shape, list(islice(outlines, len(shape.outlines)))) for shape in run]
            within = layer[0][0].within
            if within is None and opacity == 1.0:
                for shape, parts in layer:
                    cv2.fillPoly(self.pixels, parts, shape.colour, cv2.LINE_AA, _SHIFT)
            else:
                self._blend(layer, None if within is None else _fixed_outlines([within], placing)[0], opacity)

    def _blend(self, layer: list[tuple[Shape, list[Fixed]]], within: Fixed | None, opacity: float) -> None:
        """Paints shapes onto a copy, and blends the part of the copy ``within`` the outline into the picture."""
        frame = self._frame(np.concatenate([part for _, parts in layer for part in parts]), within)
        if frame is None:
            return
        left, top, right, bottom = frame
        offset = np.array([left << _SHIFT, top << _SHIFT], np.int32)
        region = self.pixels[top:bottom, left:right]
        painted = region.copy()
        for shape, parts in layer:
            cv2.fillPoly(painted, [part - offset for part in parts], shape.colour, cv2.LINE_AA, _SHIFT)
        if within is None:
            region[:] = cv2.addWeighted(painted, opacity, region, 1 - opacity, 0)
            return
        mask = np.zeros(region.shape[:2], np.uint8)
        cv2.fillPoly(mask, [within - offset], 255.0, cv2.LINE_AA, _SHIFT)
        weight = cv2.multiply(mask, opacity / 255, dtype=cv2.CV_32F)
        region[:] = cv2.blendLinear(painted, region.copy(), weight, 1 - weight)

    def _frame(self, points: Fixed, within: Fixed | None) -> tuple[int, int, int, int] | None:
        """Returns the affected pixels: left, top, right, bottom; None if there are none."""
        height, width = self.pixels.shape[:2]
        low, high = points.min(axis=0), points.max(axis=0)
        if within is not None:
            low, high = np.maximum(low, within.min(axis=0)), np.minimum(high, within.max(axis=0))
        left, top = np.maximum((low >> _SHIFT) - 2, 0).tolist()
        right, bottom = np.minimum((high >> _SHIFT) + 3, (width, height)).tolist()
        return (left, top, right, bottom) if left < right and top < bottom else None


def _fixed_outlines(outlines: Sequence[Points], placing: Placing) -> list[Fixed]:
    """Returns outlines in OpenCV's form: in sixteenths of a pixel, from the centre of the first pixel."""
    if not outlines:
        return []
    points = placing(np.concatenate(outlines))
    fixed = np.rint((points - 0.5) * (1 << _SHIFT)).astype(np.int32)
    ends = list(accumulate(len(outline) for outline in outlines))
    return [fixed[end - len(outline) : end] for end, outline in zip(ends, outlines, strict=True)]


def smooth(points: Sequence[Sequence[float]] | Points, *, closed: bool = True) -> Points:
    """Returns a curve through points (a Catmull-Rom spline)."""
    knots = np.asarray(points, float)
    return np.asarray(_spline(len(knots), closed)[0] @ knots, np.float64)


@cache
def _spline(count: int, closed: bool) -> tuple[Points, Points]:  # the cache needs positional keys
    """Returns the matrices from ``count`` knots to points of the curve, and to its direction there."""
    t = np.arange(_STEPS) / _STEPS
    ones = np.ones_like(t)
    curve = (
        -0.5 * t + t**2 - 0.5 * t**3,
        ones - 2.5 * t**2 + 1.5 * t**3,
        0.5 * t + 2 * t**2 - 1.5 * t**3,
        -0.5 * t**2 + 0.5 * t**3,
    )
    slope = (-0.5 * ones + 2 * t - 1.5 * t**2, -5 * t + 4.5 * t**2, 0.5 * ones + 4 * t - 4.5 * t**2, -t + 1.5 * t**2)
    pieces = count if closed else count - 1
    weights = np.zeros((2, pieces * _STEPS + (not closed), count))
    for piece, k in product(range(pieces), range(4)):
        knot = (piece + k - 1) % count if closed else min(max(piece + k - 1, 0), count - 1)
        rows = slice(piece * _STEPS, (piece + 1) * _STEPS)
        weights[0, rows, knot] += curve[k]
        weights[1, rows, knot] += slope[k]
    if not closed:
        weights[0, -1, -1] = 1.0
        weights[1, -1, -2:] = (-1.0, 1.0)
    return weights[0], weights[1]


def symmetric(right: Sequence[Sequence[float]] | Points) -> Points:
    """Returns a closed curve from the points of its right half, from top to bottom."""
    half = np.asarray(right, float)
    inner = half[(half[:, 0] != 0)][::-1]
    return smooth(np.concatenate([half, inner * (-1, 1)]))


def ellipse(x: float, y: float, width: float, height: float | None = None, turn: float = 0.0) -> Points:
    """Returns an ellipse by its centre, its half width and half height, and its turn in degrees."""
    points = _circle() * (width, width if height is None else height)
    if turn:
        c, s = math.cos(math.radians(turn)), math.sin(math.radians(turn))
        points = points @ np.array([[c, s], [-s, c]])
    return shift(points, x, y)


@cache
def _circle() -> Points:
    angles = np.linspace(0, 2 * math.pi, 72, endpoint=False)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def stroke(points: Sequence[Sequence[float]] | Points, width: float, *, taper: tuple[float, float] = (0.2, 0.2)) -> Points:
    """Returns the outline of a brush stroke, ``width`` wide, along a smooth curve.

    ``taper`` are the widths of its ends relative to ``width``.
    """
    knots = np.asarray(points, float)
    curve, slope = _spline(len(knots), False)
    line, along = curve @ knots, slope @ knots
    half = 0.5 * width * _swell(len(line), taper)
    normal = along[:, ::-1] * (half / np.hypot(along[:, 0], along[:, 1]))[:, None] * (-1, 1)
    return np.concatenate([line + normal, (line - normal)[::-1]])


@cache
def _swell(count: int, taper: tuple[float, float]) -> Points:
    t = np.linspace(0, 1, count)
    ends = taper[0] * (1 - t) + taper[1] * t
    return np.asarray(ends + (1 - ends) * np.sin(math.pi * t).clip(0) ** 0.6, np.float64)


def shift(points: Points, x: float, y: float) -> Points:
    """Returns points to the right by ``x`` and down by ``y``."""
    return np.asarray(points + np.array([x, y]), np.float64)


def mirror(points: Points) -> Points:
    """Returns points with left and right exchanged."""
    return points * (-1, 1)


@lru_cache(maxsize=4096)
def mix(colour: Colour, other: Colour, share: float) -> Colour:
    """Returns a colour with a ``share`` in [0, 1] of another."""
    red, green, blue = ((1 - share) * c + share * o for c, o in zip(colour, other, strict=True))
    return red, green, blue
