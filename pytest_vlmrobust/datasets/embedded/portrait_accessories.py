"""Ears of a portrait, and what is worn on them and on the nose, as shapes in units of the head."""

from __future__ import annotations

import numpy as np

from .portrait_canvas import Colour, Points, Shape, ellipse, moved, smooth, stroke
from .portrait_palette import SKIN, shaded
from .portraits import Portrait

_GOLD: Colour = (226.0, 178.0, 76.0)
_FRAMES: dict[str, Colour] = {
    "round": (122.0, 78.0, 46.0),
    "square": (34.0, 32.0, 40.0),
    "cat_eye": (138.0, 34.0, 62.0),
    "half_rim": (62.0, 72.0, 92.0),
}
_OVER_EARS = ("bob", "fringe", "long", "wavy", "headscarf")
_LENSES = {
    "round": ((0, -0.2), (0.142, -0.142), (0.2, 0), (0.142, 0.142), (0, 0.2), (-0.142, 0.142), (-0.2, 0), (-0.142, -0.142)),
    "square": (
        (0, -0.165),
        (0.17, -0.16),
        (0.225, -0.12),
        (0.22, 0.09),
        (0.15, 0.165),
        (0, 0.17),
        (-0.15, 0.165),
        (-0.21, 0.09),
        (-0.215, -0.12),
        (-0.17, -0.16),
    ),
    "cat_eye": (
        (0, -0.13),
        (0.16, -0.18),
        (0.27, -0.22),
        (0.235, -0.02),
        (0.15, 0.13),
        (0, 0.16),
        (-0.13, 0.13),
        (-0.2, 0.02),
        (-0.17, -0.11),
    ),
    "half_rim": (
        (0, -0.14),
        (0.17, -0.135),
        (0.22, -0.1),
        (0.21, 0.06),
        (0.13, 0.13),
        (0, 0.14),
        (-0.13, 0.13),
        (-0.2, 0.06),
        (-0.21, -0.1),
        (-0.17, -0.135),
    ),
}
"""Outlines of the viewer's right lens around its middle."""


def ear_shapes(portrait: Portrait) -> list[Shape]:
    """Returns the ears, behind the head; none where hair covers them."""
    if portrait.hair in _OVER_EARS:
        return []
    skin = SKIN[portrait.tone]
    size = 1.25 if portrait.ears == "large" else 1.0
    x = 1.01 * portrait.face_width
    shapes: list[Shape] = []
    for side in (-1, 1):
        ear = smooth([(0.0, -0.16), (0.1, -0.2), (0.15, -0.08), (0.11, 0.08), (0.06, 0.2), (-0.02, 0.2), (-0.06, 0.0)])
        inner = stroke([(0.02, -0.1), (0.09, -0.12), (0.1, -0.03), (0.05, 0.06)], 0.03)
        place = np.array([side * x, 0.1])
        shapes += [
            Shape((_on(ear, side, size, place),), shaded(skin, 0.06)),
            Shape((_on(inner, side, size, place),), shaded(skin, 0.34)),
        ]
    return shapes


def _on(points: Points, side: int, size: float, place: Points) -> Points:
    return np.asarray(points * (side * size, size) + place)


def jewellery_shapes(portrait: Portrait) -> list[Shape]:
    """Returns earrings, where ears are seen."""
    if portrait.hair in _OVER_EARS:
        return []
    x = portrait.face_width + 0.045
    if portrait.ears == "studs":
        return [Shape((ellipse(s * x, 0.28, 0.032),), _GOLD) for s in (-1, 1)]
    if portrait.ears == "hoops":
        return [Shape((ellipse(s * x, 0.4, 0.095, 0.12), ellipse(s * x, 0.395, 0.07, 0.095)), _GOLD) for s in (-1, 1)]
    return []


def glasses_shapes(portrait: Portrait) -> list[Shape]:
    """Returns the front of glasses: lenses with a glint, rims and bridge."""
    if portrait.glasses == "none":
        return []
    colour = _FRAMES[portrait.glasses]
    right, x, y = smooth(_LENSES[portrait.glasses]), portrait.eye_spacing + 0.005, portrait.eye_height + 0.015
    thin = portrait.glasses == "half_rim"
    shapes: list[Shape] = []
    for side in (-1, 1):
        lens = moved(right * (side, 1), side * x, y)
        inner = moved(right * (0.88 * side, 0.86), side * x, y + (0.012 if thin else 0.0))
        glint = moved(np.array([(-0.12, -0.02), (-0.02, -0.12), (0.05, -0.12), (-0.1, 0.06)]), side * x, y)
        rim = Shape((lens, inner), colour, _upper_half(side * x, y) if thin else None)
        shapes += [Shape((inner,), (235.0, 244.0, 252.0), None, 0.07), Shape((glint,), (255.0, 255.0, 255.0), inner, 0.3), rim]
    gap = x + float(right[:, 0].min())
    bridge = stroke([(-gap - 0.015, y - 0.03), (0, y - 0.065), (gap + 0.015, y - 0.03)], 0.036, taper=(0.9, 0.9))
    return [*shapes, Shape((bridge,), colour)]


def temple_shapes(portrait: Portrait) -> list[Shape]:
    """Returns the temples of glasses, which hair can cover."""
    if portrait.glasses == "none":
        return []
    start = portrait.eye_spacing + max(x for x, _ in _LENSES[portrait.glasses]) - 0.03
    y, colour = portrait.eye_height - 0.06, _FRAMES[portrait.glasses]
    lines = [stroke([(s * start, y), (s * (portrait.face_width + 0.03), y + 0.03)], 0.036, taper=(1, 1)) for s in (-1, 1)]
    return [Shape((line,), colour) for line in lines]


def _upper_half(x: float, y: float) -> Points:
    return np.array([(x - 0.3, y - 0.3), (x + 0.3, y - 0.3), (x + 0.3, y - 0.01), (x - 0.3, y - 0.01)])
