"""Pictures of portraits, and the exact boxes of what is in them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import cv2
import numpy as np

from .portrait_clothing import (
    beard_shapes,
    clothes_shapes,
    ear_shapes,
    glasses_shapes,
    jewellery_shapes,
    neck_shapes,
    temple_shapes,
)
from .portrait_features import brow_shapes, eye_shapes, lid_shapes, mouth_shapes, nose_shapes, skin_shapes
from .portrait_hair import back_hair, front_hair, side_hair
from .portrait_shapes import BACKDROP, Canvas, Placing, Shape, darker, ellipse, lighter
from .portraits import Portrait

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_vlmrobust.core.boxes import Box

_FINE = 512
"""Smaller pictures are drawn at twice their side, and averaged."""


def draw_portrait(portrait: Portrait, side: int) -> NDArray[np.uint8]:
    """Draws a portrait: uint8 RGB, shape (side, side, 3); the same bytes for the same portrait and side."""
    size = side if side >= _FINE else 2 * side
    canvas = Canvas(_backdrop(portrait, size))
    upright, head = _placings(portrait, size)
    canvas.paint([_disc(portrait)], upright)
    canvas.paint(back_hair(portrait), head)
    canvas.paint([*neck_shapes(portrait), *clothes_shapes(portrait)], upright)
    canvas.paint(_head(portrait), head)
    if size == side:
        return canvas.pixels
    return np.asarray(cv2.resize(canvas.pixels, (side, side), interpolation=cv2.INTER_AREA), np.uint8)


def portrait_boxes(portrait: Portrait, side: int) -> dict[str, Box]:
    """Returns the boxes of eyes, nose and mouth in a picture: the smallest of whole pixels that hold what is drawn of them.

    Left and right are the viewer's. A box does not depend on what is drawn over the feature (glasses, say).
    """
    head = _placings(portrait, side)[1]
    return {name: _extent(shapes, head) for name, shapes in feature_shapes(portrait).items()}


def feature_shapes(portrait: Portrait) -> dict[str, list[Shape]]:
    """Returns what the features that have boxes are drawn of, in units of the head."""
    return {
        "left_eye": eye_shapes(portrait, -1),
        "right_eye": eye_shapes(portrait, 1),
        "nose": nose_shapes(portrait),
        "mouth": mouth_shapes(portrait),
    }


def _head(portrait: Portrait) -> list[Shape]:
    features = feature_shapes(portrait)
    return [
        *ear_shapes(portrait),
        *side_hair(portrait),
        *skin_shapes(portrait),
        *lid_shapes(portrait),
        *beard_shapes(portrait),
        *(shape for shapes in features.values() for shape in shapes),
        *brow_shapes(portrait),
        *temple_shapes(portrait),
        *jewellery_shapes(portrait),
        *front_hair(portrait),
        *glasses_shapes(portrait),
    ]


def _placings(portrait: Portrait, side: int) -> tuple[Placing, Placing]:
    """Returns where the shoulders and the head are."""
    x, y, scale = portrait.x * side, portrait.y * side, portrait.scale * side
    return Placing(x, y, scale, 0.0), Placing(x, y, scale, portrait.roll)


def _backdrop(portrait: Portrait, side: int) -> NDArray[np.uint8]:
    colour = BACKDROP[portrait.backdrop]
    ends = np.array([lighter(colour, 0.12), darker(colour, 0.07)])
    share = np.linspace(0, 1, side)[:, None]
    rows = np.rint(ends[0] * (1 - share) + ends[1] * share).astype(np.uint8)
    return np.asarray(cv2.resize(rows[:, None], (side, side), interpolation=cv2.INTER_NEAREST), np.uint8)


def _disc(portrait: Portrait) -> Shape:
    return Shape((ellipse(0, -0.05, 1.52),), lighter(BACKDROP[portrait.backdrop], 0.3))


def _extent(shapes: list[Shape], placing: Placing) -> Box:
    """Returns the box of shapes; a clipped one lies within another."""
    points = np.concatenate([placing(outline) for shape in shapes if shape.within is None for outline in shape.outlines])
    left, top = points.min(axis=0).tolist()
    right, bottom = points.max(axis=0).tolist()
    return float(math.floor(left)), float(math.floor(top)), float(math.ceil(right)), float(math.ceil(bottom))
