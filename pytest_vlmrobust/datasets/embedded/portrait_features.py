"""The face of a portrait: its outline, eyes, brows, nose, mouth and skin, as shapes in units of the head.

The origin is the middle of the head; the crown is at y = -1 and the chin near y = 1.
"""

from __future__ import annotations

import numpy as np

from .portrait_shapes import (
    HAIR,
    INK,
    IRIS,
    SKIN,
    WHITE,
    Colour,
    Points,
    Shape,
    darker,
    ellipse,
    lighter,
    lit,
    mirrored,
    mix,
    moved,
    shaded,
    smooth,
    stroke,
    symmetric,
)
from .portraits import Portrait

_FACES = {
    "oval": (0.95, 0.98, 0.74, 0.36, 1.0),
    "round": (0.97, 1.07, 0.90, 0.46, 0.95),
    "square": (0.97, 1.0, 0.94, 0.58, 0.98),
    "heart": (1.04, 0.99, 0.68, 0.27, 1.0),
    "long": (0.90, 0.91, 0.76, 0.42, 1.07),
    "diamond": (0.87, 1.06, 0.74, 0.31, 1.02),
}
"""Half widths at temples, cheeks, jaw and chin relative to the face's, and how far down the chin is."""
_EYES = {
    "almond": (0.095, 0.062, -0.02, 0.012),
    "round": (0.122, 0.092, 0.0, 0.0),
    "narrow": (0.066, 0.044, -0.012, 0.01),
    "upturned": (0.088, 0.058, -0.058, 0.022),
    "hooded": (0.070, 0.070, 0.024, -0.004),
}
"""How far an eye opens up and down, and how far below its middle the outer and the inner corner are."""
_BROWS = {
    "straight": ((-0.19, 0.0), (0.0, -0.012), (0.2, 0.0)),
    "arched": ((-0.19, 0.03), (0.04, -0.06), (0.21, 0.03)),
    "rounded": ((-0.18, 0.04), (-0.06, -0.03), (0.08, -0.035), (0.21, 0.045)),
    "angled": ((-0.19, 0.035), (0.09, -0.07), (0.21, -0.005)),
    "bushy": ((-0.2, 0.01), (0.0, -0.03), (0.21, 0.02)),
}
_NOSES = {
    "straight": (0.145, 0.355, -0.02, 0.028, 0.012),
    "button": (0.135, 0.315, 0.1, 0.018, 0.0),
    "broad": (0.185, 0.355, 0.06, 0.028, 0.0),
    "pointed": (0.115, 0.38, -0.02, 0.045, 0.0),
    "aquiline": (0.145, 0.385, -0.02, 0.04, 0.05),
}
"""Half width of a nose, where its wings and its bridge are, how far its tip hangs below the wings, and its bump."""
_MOUTHS = {
    "smile": (1.0, 1.0, 0.075),
    "neutral": (0.92, 1.0, 0.012),
    "smirk": (0.95, 0.95, 0.035),
    "pout": (0.72, 1.5, 0.0),
    "grin": (1.08, 0.75, 0.085),
    "open": (0.74, 1.0, 0.03),
}
"""Relative width and fullness of a mouth, and how far its corners are lifted."""
MOUTH_HEIGHT = 0.63


def face_outline(portrait: Portrait) -> Points:
    """Returns the outline of the head."""
    temple, cheek, jaw, chin, bottom = _FACES[portrait.face]
    right = [
        *[(0, -1.0), (0.5 * temple, -0.93), (0.87 * temple, -0.64), (temple, -0.22), (cheek, 0.14)],
        *[(0.5 * (cheek + jaw) + 0.05, 0.42), (jaw, 0.67 * bottom), (chin, 0.93 * bottom), (0, bottom)],
    ]
    return symmetric([(x * portrait.face_width, y) for x, y in right])


def head_width(portrait: Portrait) -> float:
    """Returns half the width of the head between temples and cheeks."""
    temple, cheek, *_ = _FACES[portrait.face]
    return 0.5 * (temple + cheek) * portrait.face_width


def skin_shapes(portrait: Portrait) -> list[Shape]:
    """Returns the head with its soft light, and what is on the skin."""
    skin, outline = SKIN[portrait.tone], face_outline(portrait)
    side = 1.0 if portrait.light < 0 else -1.0
    inner = moved(outline, -side * (0.12 + 0.06 * abs(portrait.light)), -0.05)
    glow = [
        Shape((ellipse(-side * 0.2, -0.36, 0.42 - 0.05 * i, 0.36 - 0.045 * i),), lit(skin, 0.016 * (i + 1)), outline)
        for i in range(6)
    ]
    return [Shape((outline,), shaded(skin, 0.16)), Shape((inner,), skin, outline), *glow, *_details(portrait)]


def _details(portrait: Portrait) -> list[Shape]:
    skin = SKIN[portrait.tone]
    if portrait.detail == "freckles":
        spots = ((0.2, 0.28), (0.28, 0.33), (0.36, 0.28), (0.44, 0.33), (0.31, 0.25), (0.24, 0.36), (0.37, 0.37), (0.47, 0.27))
        return [Shape((ellipse(s * x, y + 0.02, 0.014),), shaded(skin, 0.38)) for s in (-1, 1) for x, y in spots]
    if portrait.detail == "blush":
        rose = mix(skin, (222.0, 66.0, 80.0), 0.3 if portrait.group == "light" else 0.2)
        return [
            Shape((ellipse(s * 0.42, 0.36, 0.16 - 0.025 * i, 0.11 - 0.018 * i),), mix(skin, rose, 0.25 * (i + 1)))
            for s in (-1, 1)
            for i in range(4)
        ]
    if portrait.detail == "beauty_spot":
        return [Shape((ellipse(0.33, 0.5, 0.023),), shaded(skin, 0.75))]
    if portrait.detail == "wrinkles":
        folds = [stroke([(s * 0.19, 0.36), (s * 0.29, 0.46), (s * 0.33, 0.58)], 0.022) for s in (-1, 1)]
        lines = [stroke([(-0.24, y), (0.0, y - 0.02), (0.24, y)], 0.018) for y in (-0.46, -0.56)]
        corners = [stroke([(s * 0.56, 0.04 + dy), (s * 0.63, 0.02 + 2.4 * dy)], 0.018) for s in (-1, 1) for dy in (-0.02, 0.02)]
        return [Shape((line,), shaded(skin, 0.26)) for line in (*folds, *lines, *corners)]
    return []


def eye_shapes(portrait: Portrait, side: int) -> list[Shape]:
    """Returns one eye: its white, iris, pupil and upper lid; ``side`` is -1 for the viewer's left, 1 for the right."""
    place = np.array([side * portrait.eye_spacing, portrait.eye_height])
    upper, lower = (smooth(knots, closed=False) for knots in _lids(portrait))
    outline = np.concatenate([upper, lower]) * (side, 1) + place
    lid = _lid_line(portrait) * (side, 1) + place
    white = mix(WHITE, SKIN[portrait.tone], 0.06)
    iris, size = IRIS[portrait.iris], portrait.eye_size
    x, y = float(place[0]), float(place[1]) - 0.012
    shadow = np.concatenate([upper, moved(upper[::-1], 0, 0.032)]) * (side, 1) + place
    return [
        Shape((outline,), white),
        Shape((shadow,), darker(white, 0.2), outline),
        Shape((ellipse(x, y, 0.082 * size),), darker(iris, 0.35), outline),
        Shape((ellipse(x, y + 0.006, 0.066 * size),), lighter(iris, 0.12), outline),
        Shape((ellipse(x, y, 0.038 * size),), INK, outline),
        Shape((ellipse(x - 0.026 * size, y - 0.026 * size, 0.02 * size),), WHITE, outline),
        Shape((lid,), mix(INK, HAIR[portrait.hair_colour], 0.12)),
    ]


def _lids(portrait: Portrait) -> tuple[Points, Points]:
    """Returns the knots of the upper lid, from the inner corner, and of the lower one, from the outer corner."""
    up, down, outer, inner = _EYES[portrait.eyes]
    size = portrait.eye_size
    a, up, down = 0.165 * size, up * size, down * size
    upper = [(-a, inner), (-0.55 * a, -0.72 * up), (0.05 * a, -up), (0.62 * a, 0.4 * outer - 0.7 * up), (a, outer)]
    lower = [(a, outer), (0.6 * a, 0.7 * down + 0.3 * outer), (0.05 * a, down), (-0.55 * a, 0.72 * down), (-a, inner)]
    return np.array(upper), np.array(lower)


def _lid_line(portrait: Portrait) -> Points:
    size, (upper, _) = portrait.eye_size, _lids(portrait)
    wing = (0.05, -0.045) if portrait.eyes == "upturned" else (0.018, 0.004)
    line = np.concatenate([upper, upper[-1:] + np.array(wing) * size])
    return stroke(line, (0.05 if portrait.eyes == "hooded" else 0.04) * size, taper=(0.35, 0.3))


def lid_shapes(portrait: Portrait) -> list[Shape]:
    """Returns the sockets and creases around the eyes, which no box counts."""
    skin, shapes = SKIN[portrait.tone], []
    upper, _ = _lids(portrait)
    drop = 0.035 if portrait.eyes == "hooded" else 0.055
    for side in (-1, 1):
        place = np.array([side * portrait.eye_spacing, portrait.eye_height])
        crease = stroke(upper * (0.96 * side, 1) + place - (0, drop), 0.02)
        x, y = float(place[0]), float(place[1]) - 0.03
        size = portrait.eye_size
        sockets = [ellipse(x, y, (0.215 - 0.02 * i) * size, (0.14 - 0.016 * i) * size) for i in range(3)]
        shapes += [Shape((socket,), shaded(skin, 0.03 * (i + 1))) for i, socket in enumerate(sockets)]
        shapes.append(Shape((crease,), shaded(skin, 0.34)))
    return shapes


def brow_shapes(portrait: Portrait) -> list[Shape]:
    """Returns the eyebrows."""
    width = (0.1 if portrait.brows == "bushy" else 0.064) * portrait.brow_thickness
    line = np.array(_BROWS[portrait.brows])
    line[:, 1] += portrait.brow_angle * line[:, 0] / 0.2
    brow = moved(stroke(line, width, taper=(0.75, 0.2)), portrait.eye_spacing, portrait.eye_height - 0.255)
    colour = brow_colour(portrait)
    return [Shape((mirrored(brow),), colour), Shape((brow,), colour)]


def brow_colour(portrait: Portrait) -> Colour:
    """Returns the colour of brows and beards: that of the hair, darker where it is light and kept apart from the skin."""
    hair = HAIR[portrait.hair_colour]
    if sum(hair) > sum(SKIN["chestnut"]):
        return darker(hair, 0.3) if portrait.group == "light" else hair
    return hair if portrait.group == "light" else darker(hair, 0.45)


def nose_shapes(portrait: Portrait) -> list[Shape]:
    """Returns the nose: its shaded side, wings, nostrils and the light on its tip."""
    skin, side = SKIN[portrait.tone], 1.0 if portrait.light < 0 else -1.0
    half, base, top, tip, bump = _NOSES[portrait.nose]
    half, base = half * portrait.nose_width, base * portrait.nose_length
    ridge = [
        (0.035, top),
        (0.05 + bump, 0.5 * (top + base) - 0.06),
        (0.055, base - 0.12),
        (half, base - 0.035),
        (0.5 * half, base),
    ]
    back = [(0.0, base - 0.03), (0.012 + bump, 0.5 * (top + base) - 0.02), (0.015, top + 0.02)]
    shade = smooth([(side * x, y) for x, y in (*ridge, *back)])
    wings = [
        (half, base - 0.06),
        (0.92 * half, base - 0.005),
        (0.45 * half, base),
        (0.2 * half, base + tip),
        (0, base + 1.08 * tip),
    ]
    under = symmetric([(0, base - 0.035), (0.45 * half, base - 0.03), (0.8 * half, base - 0.075), *wings])
    nostrils = [ellipse(s * 0.5 * half, base + 0.004, 0.25 * half, 0.017, -12 * s) for s in (-1, 1)]
    ball = 0.075 if portrait.nose == "button" else 0.055
    lights = [(ellipse(-0.2 * side * half, base - 0.08, ball * r, 0.8 * ball * r), 0.22 - 0.14 * r) for r in (1, 0.75, 0.5)]
    return [
        Shape((shade,), shaded(skin, 0.2)),
        Shape((under,), shaded(skin, 0.27)),
        *(Shape((nostril,), shaded(skin, 0.62)) for nostril in nostrils),
        *(Shape((spot,), lit(skin, share)) for spot, share in lights),
    ]


def mouth_shapes(portrait: Portrait) -> list[Shape]:
    """Returns the lips and, of an open mouth, teeth and tongue."""
    wide, full, lift = _MOUTHS[portrait.mouth]
    lip = mix(SKIN[portrait.tone], (176.0, 44.0, 62.0), 0.46)
    half, full = 0.25 * wide * portrait.mouth_width, full * portrait.lip_fullness
    lift *= portrait.mouth_curve
    opening = {"grin": 0.15, "open": 0.11}.get(portrait.mouth, 0.0) * portrait.mouth_curve
    left, right = (-0.4 * lift, -1.6 * lift) if portrait.mouth == "smirk" else (-lift, -lift)
    rim = Shape((_rim(half, left, right, -0.058 * full, opening + 0.082 * full),), lip)
    return [rim, *(_opened(half, left, opening) if opening else _closed(half, left, right, full, lip))]


def _closed(half: float, left: float, right: float, full: float, lip: Colour) -> list[Shape]:
    line = [(-half, left), (-0.5 * half, 0.1 * left), (0, 0.012), (0.5 * half, 0.1 * right), (half, right)]
    parting = stroke([(x, y + MOUTH_HEIGHT) for x, y in line], 0.03, taper=(0.5, 0.5))
    upper = _rim(half, left, right, -0.058 * full, 0.012)
    glint = ellipse(0, MOUTH_HEIGHT + 0.05 * full, 0.32 * half, 0.012 * full)
    return [Shape((upper,), shaded(lip, 0.2)), Shape((glint,), lit(lip, 0.3)), Shape((parting,), shaded(lip, 0.72))]


def _opened(half: float, corner: float, opening: float) -> list[Shape]:
    inside = _rim(0.9 * half, 0.92 * corner, 0.92 * corner, -0.002, opening)
    teeth = _rim(0.86 * half, corner, corner, -0.03, 0.38 * opening)
    tongue = ellipse(0, MOUTH_HEIGHT + 1.02 * opening, 0.5 * half, 0.4 * opening)
    return [Shape((inside,), (92.0, 24.0, 38.0)), Shape((tongue,), (206.0, 88.0, 96.0), inside), Shape((teeth,), WHITE, inside)]


def _rim(half: float, left: float, right: float, top: float, bottom: float) -> Points:
    """Returns the outline of lips: corners at ``left`` and ``right``, a bow at ``top``, a curve through ``bottom``."""
    bow = [(-half, left), (-0.5 * half, 0.3 * left + 0.75 * top), (-0.16 * half, 1.1 * top), (0, 0.82 * top)]
    bow += [(0.16 * half, 1.1 * top), (0.5 * half, 0.3 * right + 0.75 * top), (half, right)]
    curve = [(half, right), (0.55 * half, 0.3 * right + 0.78 * bottom), (0, bottom), (-0.55 * half, 0.3 * left + 0.78 * bottom)]
    upper = smooth(bow, closed=False)
    lower = smooth([*curve, (-half, left)], closed=False)
    return moved(np.concatenate([upper, lower]), 0, MOUTH_HEIGHT)
