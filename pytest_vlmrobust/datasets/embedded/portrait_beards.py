"""Beards of a portrait, as shapes in units of the head."""

from __future__ import annotations

import numpy as np

from .portrait_canvas import Shape, ellipse, mix, moved, smooth, symmetric
from .portrait_features import brow_colour, face_outline
from .portrait_palette import SKIN, darker
from .portraits import Portrait


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
