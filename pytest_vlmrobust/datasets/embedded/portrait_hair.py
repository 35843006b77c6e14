"""Hair and head coverings of a portrait, as shapes in units of the head.

Points of outlines have x relative to the half width of the face; ``lift`` makes the hair stand off the skull.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from .portrait_features import head_width
from .portrait_shapes import (
    FABRIC,
    HAIR,
    SKIN,
    Colour,
    Points,
    Shape,
    darker,
    ellipse,
    lighter,
    mirrored,
    mix,
    smooth,
    stroke,
    symmetric,
)
from .portraits import Portrait

Half = Sequence[tuple[float, float]]
_HAIRLINE: Half = ((0.95, 0.02), (0.92, -0.22), (0.78, -0.5), (0.42, -0.62), (0.0, -0.66))


class Hair:
    """What the styles of one portrait are made from: its width, volume and colours."""

    def __init__(self, portrait: Portrait) -> None:
        self.width = head_width(portrait)
        self.volume = portrait.hair_volume
        self.covered = portrait.hair in ("headscarf", "beanie", "turban")
        self.base = (FABRIC if self.covered else HAIR)[portrait.hair_colour]
        self.hair = HAIR[portrait.hair_colour]
        self.skin = SKIN[portrait.tone]
        self.side = 1.0 if portrait.light < 0 else -1.0

    @property
    def dark(self) -> Colour:
        """The colour in shade."""
        return darker(self.base, 0.22)

    @property
    def light(self) -> Colour:
        """The colour in light."""
        return lighter(self.base, 0.13)

    def scaled(self, points: Half) -> Points:
        """Returns points in units of the head, hair above the head lifted by the volume."""
        array = np.asarray(points, float)
        lifted = np.where(array[:, 1] < -1, -1 + (array[:, 1] + 1) * self.volume, array[:, 1])
        return np.stack([array[:, 0] * self.width, lifted], axis=1)

    def cap(self, outer: Half, hairline: Half = _HAIRLINE) -> Points:
        """Returns hair on the head from the right half of its outer edge, top to bottom, and of its hairline, bottom to top."""
        right = self.scaled((*outer, *hairline))
        left = mirrored(right[::-1])
        return smooth(np.concatenate([right, left[1:-1] if outer[0][0] == 0 else left]))

    def loop(self, points: Half) -> Points:
        """Returns a closed curve."""
        return smooth(self.scaled(points))

    def mass(self, outline: Points, shift: float = 0.09) -> list[Shape]:
        """Returns an area of hair, with its far side in shade."""
        inner = outline - (self.side * shift, 0.04)
        return [Shape((outline,), self.dark), Shape((inner,), self.base, outline)]

    def strands(self, lines: Sequence[Half], width: float = 0.028) -> list[Shape]:
        """Returns lighter strokes."""
        return [Shape((stroke(self.scaled(line), width, taper=(0.0, 0.0)),), self.light) for line in lines]


def _bald(hair: Hair) -> list[Shape]:
    shine = [ellipse(-hair.side * 0.26, -0.74, 0.17 - 0.045 * i, 0.085 - 0.022 * i, -18 * -hair.side) for i in range(3)]
    return [Shape((spot,), lighter(hair.skin, 0.1 * (i + 1))) for i, spot in enumerate(shine)]


def _buzz(hair: Hair) -> list[Shape]:
    outline = hair.cap(((0, -1.05), (0.55, -0.98), (0.92, -0.66), (1.03, -0.22), (1.0, 0.06)))
    flat = mix(hair.base, hair.skin, 0.2)
    inner = outline - (hair.side * 0.08, 0.04)
    return [Shape((outline,), darker(flat, 0.16)), Shape((inner,), flat, outline)]


def _side_part(hair: Hair) -> list[Shape]:
    points = [
        *[(-1.0, 0.08), (-1.06, -0.3), (-0.96, -0.82), (-0.55, -1.12), (0.1, -1.24), (0.7, -1.12), (1.04, -0.72), (1.07, -0.25)],
        *[(1.0, 0.08), (0.93, 0.0), (0.9, -0.3), (0.62, -0.44), (0.1, -0.52), (-0.48, -0.8), (-0.78, -0.52), (-0.92, -0.25)],
        (-0.94, 0.0),
    ]
    lines = [((-0.44, -0.86), (0.1, -0.74), (0.62, -0.62)), ((-0.4, -0.95), (0.2, -0.93), (0.76, -0.76))]
    return [*hair.mass(hair.loop(points)), *hair.strands(lines)]


def _quiff(hair: Hair) -> list[Shape]:
    sides = hair.cap(
        ((0, -1.06), (0.55, -1.0), (0.94, -0.68), (1.04, -0.22), (1.0, 0.06)),
        ((0.93, 0.0), (0.9, -0.32), (0.62, -0.6), (0, -0.66)),
    )
    top = [
        *[(-0.8, -0.6), (-0.98, -0.86), (-0.9, -1.2), (-0.5, -1.4), (0.02, -1.34), (0.5, -1.44), (0.9, -1.26), (0.98, -0.92)],
        *[(0.84, -0.62), (0.62, -0.76), (0.2, -0.82), (-0.2, -0.72), (-0.52, -0.6)],
    ]
    lines = [
        ((-0.62, -0.74), (-0.62, -1.02), (-0.36, -1.24)),
        ((-0.2, -0.82), (-0.02, -1.06), (0.42, -1.24)),
        ((0.3, -0.9), (0.56, -1.0), (0.76, -1.12)),
    ]
    return [Shape((sides,), hair.dark), *hair.mass(hair.loop(top)), *hair.strands(lines, 0.034)]


def _curls(hair: Hair, centres: Sequence[tuple[float, float, float]], inner: Points) -> list[Shape]:
    """Returns curls (x, y, radius) around a cap, each with a little light."""
    shapes = [Shape((ellipse(x * hair.width, y, r * hair.volume),), hair.base) for x, y, r in centres]
    glints = [
        stroke(
            ellipse(x * hair.width, y, 0.58 * r * hair.volume)[slice(37, 53) if hair.side > 0 else slice(55, 71)],
            0.03,
            taper=(0, 0),
        )
        for x, y, r in centres
    ]
    return [*shapes, Shape((inner,), hair.base), *(Shape((line,), hair.light) for line in glints)]


def _curly(hair: Hair) -> list[Shape]:
    arc = [(math.sin(a), -math.cos(a)) for a in np.linspace(-1.62, 1.62, 11)]
    outer = [(1.02 * x, -0.2 + 0.86 * y, 0.2) for x, y in arc]
    front = [(x, -0.76 + 0.2 * abs(x), 0.17) for x in (-0.66, -0.33, 0.0, 0.33, 0.66)]
    inner = hair.cap(((0, -1.08), (0.6, -1.0), (0.95, -0.66), (1.02, -0.2), (0.98, -0.02)))
    return _curls(hair, [*outer, *front], inner)


def _afro_back(hair: Hair) -> list[Shape]:
    bumps = np.linspace(0, 2 * math.pi, 26, endpoint=False)
    radius = 1.0 + 0.028 * np.cos(13 * bumps)
    cloud = np.stack([1.08 * radius * np.sin(bumps), -0.55 - 0.98 * radius * np.cos(bumps)], axis=1)
    centre = np.array([0.0, -0.5])
    return hair.mass(smooth((cloud - centre) * (0.86 + 0.14 * hair.volume) + centre), 0.12)


def _afro(hair: Hair) -> list[Shape]:
    return [Shape((hair.cap(((0, -1.2), (0.7, -1.1), (1.06, -0.66), (1.08, -0.2), (1.02, 0.04))),), hair.base)]


def _mohawk(hair: Hair) -> list[Shape]:
    sides = hair.cap(((0, -1.03), (0.55, -0.96), (0.9, -0.66), (1.01, -0.24), (0.99, 0.02)))
    crest = hair.cap(((0, -1.5), (0.2, -1.45), (0.34, -1.1), (0.36, -0.86)), ((0.26, -0.66), (0, -0.6)))
    lines = [((x, -0.72), (0.8 * x, -1.1), (0.5 * x, -1.42)) for x in (-0.18, 0.02, 0.2)]
    return [Shape((sides,), mix(hair.base, hair.skin, 0.42)), *hair.mass(crest, 0.05), *hair.strands(lines)]


def _spiky(hair: Hair) -> list[Shape]:
    angles = np.linspace(-1.55, 1.55, 17)
    reach = np.where(np.arange(17) % 2, 1.34, 1.02)
    tips = [(float(r * math.sin(a)) * 0.98, float(-0.1 - 0.95 * r * math.cos(a))) for a, r in zip(angles, reach, strict=True)]
    line = [(0.94, -0.04), (0.9, -0.35), (0.66, -0.52), (0.5, -0.68), (0.3, -0.5), (0.1, -0.7), (-0.12, -0.48), (-0.32, -0.7)]
    line += [(-0.55, -0.52), (-0.72, -0.62), (-0.9, -0.35), (-0.94, -0.04)]
    return hair.mass(hair.scaled([(-1.0, 0.04), *tips, (1.0, 0.04), *line]), 0.06)


def _long_back(hair: Hair) -> list[Shape]:
    right = (
        (0, -1.18),
        (0.56, -1.1),
        (0.96, -0.82),
        (1.16, -0.4),
        (1.24, 0.1),
        (1.26, 0.8),
        (1.34, 1.4),
        (1.1, 1.5),
        (0.5, 1.5),
        (0, 1.4),
    )
    return [Shape((symmetric(hair.scaled(right).tolist()),), hair.dark)]


def _long(hair: Hair) -> list[Shape]:
    outer = ((0, -1.2), (0.52, -1.13), (0.92, -0.86), (1.12, -0.46), (1.2, 0.1), (1.22, 0.75), (1.26, 1.3), (1.12, 1.48))
    hairline = ((0.98, 1.3), (0.96, 0.7), (0.98, 0.2), (0.9, -0.25), (0.55, -0.62), (0.05, -0.92))
    lines = [((s * 0.12, -0.98), (s * 0.74, -0.74), (s * 1.02, -0.1), (s * 1.1, 0.8)) for s in (-1, 1)]
    return [*hair.mass(hair.cap(outer, hairline), 0.06), *hair.strands(lines, 0.034)]


def _wavy_back(hair: Hair) -> list[Shape]:
    right = [
        (0, -1.2),
        (0.56, -1.12),
        (0.96, -0.84),
        (1.14, -0.5),
        (1.2, -0.2),
        (1.38, 0.1),
        (1.28, 0.42),
        (1.46, 0.74),
        (1.32, 1.04),
    ]
    right += [(1.44, 1.3), (1.1, 1.5), (0.5, 1.4), (0, 1.3)]
    return [Shape((symmetric(hair.scaled(right).tolist()),), hair.dark)]


def _wavy(hair: Hair) -> list[Shape]:
    points = [
        *[
            (-0.3, -1.15),
            (0.16, -1.23),
            (0.64, -1.12),
            (1.0, -0.82),
            (1.14, -0.46),
            (1.16, -0.2),
            (1.32, 0.12),
            (1.22, 0.44),
            (1.38, 0.76),
        ],
        *[(1.24, 1.06), (1.3, 1.34), (1.08, 1.3), (1.0, 1.0), (1.1, 0.74), (0.96, 0.44), (1.04, 0.12), (0.92, -0.2)],
        *[(0.62, -0.5), (0.1, -0.68), (-0.3, -0.94), (-0.62, -0.62), (-0.92, -0.22), (-1.02, 0.12), (-0.94, 0.44), (-1.1, 0.74)],
        *[(-1.0, 1.04), (-1.12, 1.32), (-1.32, 1.34), (-1.24, 1.04), (-1.38, 0.76), (-1.22, 0.44), (-1.32, 0.1), (-1.16, -0.24)],
        *[(-1.12, -0.5), (-0.98, -0.82), (-0.66, -1.06)],
    ]
    lines = [((-0.26, -1.02), (0.4, -0.86), (0.9, -0.52), (1.1, 0.0)), ((-0.4, -0.98), (-0.84, -0.62), (-1.06, -0.1))]
    return [*hair.mass(hair.loop(points), 0.06), *hair.strands(lines, 0.034)]


def _bob_back(hair: Hair) -> list[Shape]:
    right = ((0, -1.2), (0.56, -1.12), (0.96, -0.84), (1.16, -0.44), (1.26, 0.1), (1.24, 0.6), (1.1, 0.86), (0.6, 0.8), (0, 0.7))
    return [Shape((symmetric(hair.scaled(right).tolist()),), hair.dark)]


def _bob(hair: Hair) -> list[Shape]:
    outer = ((0, -1.21), (0.52, -1.14), (0.92, -0.86), (1.14, -0.46), (1.24, 0.1), (1.22, 0.58), (1.08, 0.8))
    hairline = ((0.92, 0.62), (0.98, 0.2), (0.92, -0.24), (0.6, -0.58), (0.12, -0.86))
    lines = [((s * 0.16, -0.98), (s * 0.76, -0.74), (s * 1.02, -0.1), (s * 1.1, 0.5)) for s in (-1, 1)]
    return [*hair.mass(hair.cap(outer, hairline), 0.06), *hair.strands(lines, 0.034)]


def _fringe(hair: Hair) -> list[Shape]:
    outer = ((0, -1.23), (0.52, -1.16), (0.92, -0.88), (1.13, -0.46), (1.22, 0.1), (1.2, 0.6), (1.06, 0.78))
    hairline = ((0.94, 0.6), (0.98, 0.2), (0.93, -0.2), (0.82, -0.32), (0.4, -0.34), (0.0, -0.35))
    lines = [((x, -1.0), (1.15 * x, -0.7), (1.2 * x, -0.42)) for x in (-0.6, -0.3, 0.02, 0.32, 0.62)]
    return [*hair.mass(hair.cap(outer, hairline), 0.06), *hair.strands(lines, 0.026)]


def _bun_back(hair: Hair) -> list[Shape]:
    return hair.mass(ellipse(0, -1.22 * (0.85 + 0.15 * hair.volume), 0.31 * hair.volume, 0.26 * hair.volume))


def _bun(hair: Hair) -> list[Shape]:
    outline = hair.cap(((0, -1.12), (0.6, -1.03), (0.98, -0.66), (1.05, -0.2), (1.0, 0.04)), _HAIRLINE)
    lines = [((x, -0.7), (0.7 * x, -0.9), (0.2 * x, -1.08)) for x in (-0.72, -0.36, 0.0, 0.36, 0.72)]
    return [*hair.mass(outline), *hair.strands(lines)]


def _pigtails_back(hair: Hair) -> list[Shape]:
    tail = ((1.1, 0.06), (1.44, 0.16), (1.62, 0.6), (1.54, 1.08), (1.28, 1.38), (1.14, 0.98), (1.06, 0.56))
    right = hair.loop(tail)
    ties = [ellipse(s * 1.27 * hair.width, 0.16, 0.075, 0.1, 35 * s) for s in (-1, 1)]
    return [*hair.mass(right, 0.05), *hair.mass(mirrored(right), 0.05), *(Shape((tie,), (214.0, 84.0, 92.0)) for tie in ties)]


def _pigtails(hair: Hair) -> list[Shape]:
    outline = hair.cap(
        ((0, -1.14), (0.62, -1.05), (1.02, -0.66), (1.1, -0.2), (1.06, 0.22)),
        ((0.98, 0.14), (0.9, -0.26), (0.5, -0.6), (0.0, -0.92)),
    )
    lines = [((s * 0.12, -0.98), (s * 0.7, -0.66), (s * 0.98, -0.1)) for s in (-1, 1)]
    return [*hair.mass(outline), *hair.strands(lines)]


def _swept(hair: Hair) -> list[Shape]:
    points = [
        *[(-0.98, 0.3), (-1.14, -0.2), (-1.06, -0.78), (-0.6, -1.14), (0.1, -1.28), (0.76, -1.14), (1.1, -0.66), (1.14, -0.1)],
        *[(1.06, 0.3), (0.96, 0.1), (0.86, -0.24), (0.66, -0.56), (0.42, -0.8), (0.16, -0.58), (-0.3, -0.36), (-0.84, -0.28)],
        (-0.95, 0.05),
    ]
    lines = [
        ((0.44, -0.92), (0.02, -0.7), (-0.5, -0.5)),
        ((0.36, -1.04), (-0.24, -0.88), (-0.84, -0.5)),
        ((0.56, -0.9), (0.9, -0.5)),
    ]
    return [*hair.mass(hair.loop(points)), *hair.strands(lines, 0.034)]


def _headscarf_back(hair: Hair) -> list[Shape]:
    right = ((0, -1.16), (0.66, -1.06), (1.08, -0.6), (1.16, 0.1), (1.06, 0.7), (1.22, 1.2), (1.3, 1.6), (0.6, 1.9), (0, 1.9))
    return [Shape((symmetric(hair.scaled(right).tolist()),), hair.dark)]


def _headscarf(hair: Hair) -> list[Shape]:
    right = ((0, -1.18), (0.66, -1.08), (1.1, -0.6), (1.18, 0.1), (1.06, 0.72), (0.84, 1.12), (0.4, 1.4), (0, 1.5))
    opening = ((0, -0.68), (0.5, -0.62), (0.84, -0.3), (0.93, 0.1), (0.84, 0.5), (0.62, 0.78), (0.36, 0.93), (0, 0.96))
    outer, inner = (symmetric(hair.scaled(half).tolist()) for half in (right, opening))
    folds = [((0.96, -0.5), (1.05, 0.1), (0.9, 0.72), (0.3, 1.2)), ((-0.98, -0.4), (-1.04, 0.2), (-0.8, 0.8), (0.0, 1.3))]
    fold = [Shape((stroke(hair.scaled(line), 0.035, taper=(0, 0)),), hair.dark) for line in folds]
    rim = hair.scaled(opening) * (1.045, 1.035)
    far = outer - (hair.side * 0.09, 0.04)
    return [
        Shape((outer, inner), hair.base),
        Shape((symmetric(rim.tolist()), inner), hair.light),
        Shape((outer, far), hair.dark, outer, 0.6),
        *fold,
    ]


def _beanie(hair: Hair) -> list[Shape]:
    tufts = hair.cap(
        ((0, -0.9), (0.6, -0.9), (0.98, -0.6), (1.04, -0.2), (1.0, 0.1)), ((0.93, 0.06), (0.9, -0.3), (0.5, -0.5), (0, -0.52))
    )
    dome = hair.cap(((0, -1.34), (0.6, -1.2), (1.0, -0.86), (1.06, -0.5)), ((0.6, -0.48), (0.0, -0.46)))
    band = hair.cap(((0, -0.72), (0.6, -0.7), (1.04, -0.62), (1.12, -0.48), (1.08, -0.34)), ((0.6, -0.38), (0.0, -0.38)))
    ribs = [stroke(hair.scaled([(x, -0.68), (1.02 * x, -0.44)]), 0.022) for x in np.linspace(-0.95, 0.95, 11).tolist()]
    return [
        Shape((tufts,), hair.hair),
        *hair.mass(dome),
        Shape((ellipse(0, -1.32 * (0.9 + 0.1 * hair.volume), 0.15),), hair.light),
        Shape((band,), hair.light),
        *(Shape((rib,), hair.base) for rib in ribs),
    ]


def _turban(hair: Hair) -> list[Shape]:
    dome = hair.loop([(-1.02, -0.3), (-1.2, -0.78), (-0.8, -1.3), (0, -1.5), (0.8, -1.3), (1.2, -0.78), (1.02, -0.3), (0, -0.62)])
    folds = [
        ((-1.0, -0.4), (-0.3, -0.8), (0.7, -1.2)),
        ((1.0, -0.4), (0.3, -0.8), (-0.7, -1.2)),
        ((-1.1, -0.66), (-0.4, -1.05), (0.3, -1.36)),
        ((1.1, -0.66), (0.4, -1.05), (-0.3, -1.36)),
    ]
    knot = smooth([(0, -0.98), (0.16, -0.8), (0, -0.6), (-0.16, -0.8)])
    return [
        *hair.mass(dome),
        *(Shape((stroke(hair.scaled(line), 0.04, taper=(0, 0)),), hair.dark, dome) for line in folds),
        Shape((knot,), hair.light),
    ]


_Style = Callable[[Hair], list[Shape]]
_FRONT: dict[str, _Style] = {
    "bald": _bald,
    "buzz": _buzz,
    "side_part": _side_part,
    "quiff": _quiff,
    "curly": _curly,
    "afro": _afro,
    "mohawk": _mohawk,
    "spiky": _spiky,
    "bob": _bob,
    "fringe": _fringe,
    "long": _long,
    "wavy": _wavy,
    "bun": _bun,
    "pigtails": _pigtails,
    "swept": _swept,
    "headscarf": _headscarf,
    "beanie": _beanie,
    "turban": _turban,
}
_BACK: dict[str, _Style] = {
    "afro": _afro_back,
    "bob": _bob_back,
    "fringe": _bob_back,
    "long": _long_back,
    "wavy": _wavy_back,
    "bun": _bun_back,
    "pigtails": _pigtails_back,
    "headscarf": _headscarf_back,
}


def back_hair(portrait: Portrait) -> list[Shape]:
    """Returns what of the hair is behind head and shoulders."""
    style = _BACK.get(portrait.hair)
    return style(Hair(portrait)) if style else []


def side_hair(portrait: Portrait) -> list[Shape]:
    """Returns the hair at the temples, behind the face: no backdrop is seen between a narrow face and its hair."""
    hair = Hair(portrait)
    colour = hair.hair if portrait.hair == "beanie" else hair.dark
    return [] if portrait.hair == "bald" else [Shape((ellipse(0, -0.36, 0.99 * hair.width, 0.6),), colour)]


def front_hair(portrait: Portrait) -> list[Shape]:
    """Returns what of the hair is before the head, or what covers it."""
    return _FRONT[portrait.hair](Hair(portrait))
