"""Clothes, accessories and beards of a portrait, as shapes in units of the head."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .portrait_features import brow_colour, face_outline
from .portrait_shapes import (
    CLOTH,
    SKIN,
    Colour,
    Points,
    Shape,
    darker,
    ellipse,
    lighter,
    mirrored,
    mix,
    moved,
    shaded,
    smooth,
    stroke,
    symmetric,
)
from .portraits import Portrait

# Neck and clothes of a portrait, as shapes in units of the head; ``half`` is the half width of the neck.


def neck_shapes(portrait: Portrait) -> list[Shape]:
    """Returns the neck with the shadow of the head."""
    skin = SKIN[portrait.tone]
    half = 0.52 * portrait.face_width
    neck = smooth(
        [(-half, 0.4), (half, 0.4), (0.97 * half, 1.0), (1.2 * half, 1.34), (0, 2.0), (-1.2 * half, 1.34), (-0.97 * half, 1.0)]
    )
    shadow = moved(face_outline(portrait), 0.05 * float(np.sign(-portrait.light)), 0.2)
    return [Shape((neck,), shaded(skin, 0.1)), Shape((shadow,), shaded(skin, 0.32), neck)]


def clothes_shapes(portrait: Portrait) -> list[Shape]:
    """Returns the shoulders in their clothes."""
    colour, half = CLOTH[portrait.cloth], 0.52 * portrait.face_width
    depth, pull = _NECKLINES[portrait.clothes]
    shoulder = [(1.2 * half, 1.24), (0.8, 1.38), (1.22, 1.52), (1.5, 1.9), (1.6, 3.0)]
    edge = [(pull * half, depth), (1.2 * half, 1.24)]
    right = np.concatenate([smooth(edge, closed=False), smooth(shoulder, closed=False)])
    body = np.concatenate([right, mirrored(right[::-1])])
    arms = [stroke([(s * 1.0, 1.9), (s * 1.06, 1.74), (s * 1.04, 1.62)], 0.03) for s in (-1, 1)]
    shapes = [Shape((body,), colour), *(Shape((arm,), darker(colour, 0.2)) for arm in arms)]
    return shapes + _COLLARS[portrait.clothes](colour, half)


def _turtleneck(colour: Colour, half: float) -> list[Shape]:
    roll = symmetric([(0, 1.2), (1.05 * half, 1.1), (1.2 * half, 1.18), (1.25 * half, 1.36), (0.6 * half, 1.46), (0, 1.48)])
    crease = stroke([(-1.2 * half, 1.27), (0, 1.38), (1.2 * half, 1.27)], 0.03)
    return [Shape((roll,), lighter(colour, 0.14)), Shape((crease,), colour)]


def _shirt(colour: Colour, half: float) -> list[Shape]:
    edge = smooth([(0.0, 1.58), (0.62 * half, 1.4), (0.98 * half, 1.14), (1.24 * half, 1.16)], closed=False)
    flap = np.concatenate([edge, [(1.62 * half, 1.42), (0.92 * half, 1.74)]])
    seam = np.array([(-0.02, 1.6), (0.02, 1.6), (0.02, 3.0), (-0.02, 3.0)])
    light = lighter(colour, 0.14)
    return [Shape((seam,), darker(colour, 0.2)), Shape((mirrored(flap),), light), Shape((flap,), light)]


def _v_neck(colour: Colour, half: float) -> list[Shape]:
    band = stroke([(1.24 * half, 1.22), (0.66 * half, 1.52), (0, 1.81)], 0.07, taper=(0.8, 0.8))
    return [Shape((part,), darker(colour, 0.2)) for part in (mirrored(band), band)]


def _crew(colour: Colour, half: float) -> list[Shape]:
    line = [(-1.24 * half, 1.22), (-0.8 * half, 1.41), (0, 1.475), (0.8 * half, 1.41), (1.24 * half, 1.22)]
    return [Shape((stroke(line, 0.075, taper=(0.9, 0.9)),), darker(colour, 0.2))]


def _hoodie(colour: Colour, half: float) -> list[Shape]:
    outer = [(0.9, 1.02), (1.75, 1.12), (2.0, 1.36), (1.1, 1.56), (0.0, 1.62)]
    hood = smooth([(x * half, y) for x, y in (*outer, (0.7, 1.42), (1.1, 1.24))])
    cord = stroke([(0.5 * half, 1.54), (0.54 * half, 1.72), (0.5 * half, 1.9)], 0.034, taper=(0.9, 0.9))
    dark, pale = darker(colour, 0.2), lighter(colour, 0.55)
    return [Shape((mirrored(hood),), dark), Shape((hood,), dark), Shape((mirrored(cord),), pale), Shape((cord,), pale)]


_COLLARS: dict[str, Callable[[Colour, float], list[Shape]]] = {
    "crew": _crew,
    "v_neck": _v_neck,
    "shirt": _shirt,
    "hoodie": _hoodie,
    "turtleneck": _turtleneck,
}
_NECKLINES = {
    "crew": (1.46, 0.75),
    "v_neck": (1.78, 0.02),
    "shirt": (1.6, 0.02),
    "hoodie": (1.6, 0.02),
    "turtleneck": (1.3, 0.75),
}
"""How low a neckline is, and its half width there relative to the neck's."""


# Ears of a portrait, and what is worn on them and on the nose, as shapes in units of the head.


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


# Beards of a portrait, as shapes in units of the head.


def beard_shapes(portrait: Portrait) -> list[Shape]:
    """Returns the beard, which the mouth is drawn upon."""
    if portrait.beard == "none":
        return []
    skin, colour, width, outline = SKIN[portrait.tone], brow_colour(portrait), portrait.face_width, face_outline(portrait)
    moustache = symmetric([(0, 0.475), (0.1, 0.455), (0.25, 0.5), (0.34, 0.6), (0.32, 0.63), (0.2, 0.585), (0, 0.58)])
    if portrait.beard == "moustache":
        return [Shape((moustache,), colour)]
    if portrait.beard == "goatee":
        round_mouth = [(0, 0.475), (0.12, 0.455), (0.26, 0.5), (0.34, 0.62), (0.32, 0.8), (0.25, 0.96), (0.14, 1.06), (0, 1.09)]
        return [Shape((symmetric(round_mouth),), colour)]
    jaw = outline[outline[:, 1] > 0.12]
    jaw = jaw[np.argsort(-np.arctan2(jaw[:, 0], jaw[:, 1]), kind="stable")]
    cheek = np.array(
        [(-0.9, 0.1), (-0.8, 0.34), (-0.56, 0.47), (-0.3, 0.47), (0, 0.49), (0.3, 0.47), (0.56, 0.47), (0.8, 0.34), (0.9, 0.1)]
    )
    area = np.concatenate([jaw, smooth(cheek * (width, 1), closed=False)])
    if portrait.beard == "stubble":
        tint = mix(darker(skin, 0.6), colour, 0.35)
        return [Shape((moved(area, 0, 0.035 * i),), tint, outline, 0.1 + 0.04 * i) for i in range(3)]
    grown = np.concatenate([jaw + np.array([0, 0.09]) * np.clip(jaw[:, 1:], 0, 1) ** 2, smooth(cheek * (width, 1), closed=False)])
    return [Shape((grown,), colour), Shape((ellipse(0, 0.66, 0.3, 0.1),), darker(colour, 0.25))]
