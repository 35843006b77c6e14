"""Textile: pictures made with needle and thread."""

from __future__ import annotations

import numpy as np

from ..pixels import Color, Image, Plane
from ..registry import corruption
from .canvas import SOURCE, Labels, Table, coordinates, drift, fraction, grain, lit, pick, printed, ramp, tone
from .cells import means, numbered

FLOSSES: tuple[tuple[Color, ...], ...] = (
    ((24, 30, 70), (140, 24, 50), (212, 74, 60), (240, 146, 70), (248, 206, 110), (250, 242, 220)),
    ((22, 50, 40), (30, 104, 84), (200, 70, 96), (240, 140, 130), (248, 200, 170), (250, 246, 230)),
    ((46, 22, 60), (50, 74, 160), (64, 146, 180), (130, 196, 170), (246, 210, 124), (252, 248, 232)),
    ((58, 24, 20), (26, 86, 122), (200, 100, 50), (226, 160, 70), (170, 206, 160), (250, 244, 224)),
)
"""Threads from dark to light."""
TONES = 6
STITCH = 7
"""The length of a stitch in widths of the thread."""


@corruption(family="standin", stochastic=True, changes=["colour"], source=SOURCE)
def standin_embroidery(image: Image, rng: np.random.Generator) -> Image:
    """Stitches the picture in satin stitch; a procedural stand-in for a diffusion illusion.

    Each of six tones is a thread of one colour laid in a direction of its own, row beside row; a stitch is round, shines along
    its back, sinks where the needle went in, and rows are staggered.
    """
    height, width = image.shape[:2]
    thread = grain(height, width, 2.6, least=2.5)
    light = tone(image, soften=0.9 * thread, local=0.0)
    part = np.minimum(TONES * light, TONES - 1).astype(np.int32)
    angles = (rng.uniform(0.0, np.pi) + 2.4 * np.arange(TONES)).astype(np.float32)
    along, across = _needlework(rng, part, angles, thread)
    stitch = numbered(part, np.floor(across).astype(np.int32), np.floor(along).astype(np.int32))
    shade = means(stitch, light).take(stitch)
    shade *= np.float32(0.4 * TONES)
    shade += (0.6 * np.arange(TONES) - 0.2).astype(np.float32).take(part)
    sheen = rng.normal(1.0, 0.07, int(stitch.max()) + 1).astype(np.float32).take(stitch)
    sheen *= (0.94 + 0.08 * np.cos(2 * angles)).take(part)
    sheen *= _round(fraction(along), fraction(across), thread)
    return lit(printed(shade * np.float32(1 / (TONES - 1)), pick(rng, FLOSSES)), sheen)


def _needlework(rng: np.random.Generator, part: Labels, angles: Table, thread: float) -> tuple[Plane, Plane]:
    """Returns the place of each pixel along its row, in stitches, and across rows, in rows that waver and are staggered."""
    height, width = part.shape
    x, y = coordinates(height, width)
    cosine: Plane = np.cos(angles).take(part)
    sine: Plane = np.sin(angles).take(part)
    along: Plane = (cosine * x + sine * y) * np.float32(1 / (STITCH * thread))
    across: Plane = (cosine * y - sine * x) * np.float32(1 / thread)
    across += 1.5 * drift(rng, height, width, cell=20 * thread)
    row = np.floor(across).astype(np.int32)
    row -= row.min()
    along += rng.random(int(row.max()) + 1, dtype=np.float32).take(row)
    return along, across


def _round(along: Plane, across: Plane, thread: float) -> Plane:
    """Returns the light on a stitch, 1 where it shines, from the place in it along and across, both in [0, 1)."""
    off = 2.0 * across - 1.0
    back = np.sqrt(1.0 - 0.8 * off * off)
    ends = np.minimum(along, 1.0 - along) * np.float32(STITCH * thread)
    light: Plane = back * (0.8 + 0.3 * ramp(ends, 0.0, 1.1 * thread))
    return light
