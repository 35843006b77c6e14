"""Neck and clothes of a portrait, as shapes in units of the head; ``half`` is the half width of the neck."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .portrait_canvas import Colour, Shape, mirrored, moved, smooth, stroke, symmetric
from .portrait_features import face_outline
from .portrait_palette import CLOTH, SKIN, darker, lighter, shaded
from .portraits import Portrait


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
