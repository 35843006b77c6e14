"""Mosaic: pictures laid from small pieces of one colour."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..pixels import Color, Image, Plane, smooth_noise
from ..registry import corruption
from .canvas import (
    SOURCE,
    Curve,
    Labels,
    Table,
    blurred,
    drift,
    fraction,
    gradient,
    grain,
    lit,
    pick,
    ramp,
    relief,
    slanted,
    tone,
)
from .cells import means, numbered, seams, voronoi

TESSERAE: tuple[tuple[Color, ...], ...] = (
    ((16, 28, 74), (26, 92, 130), (96, 150, 140), (218, 176, 84), (250, 238, 206)),
    ((60, 18, 26), (160, 52, 40), (214, 128, 62), (226, 200, 140), (246, 244, 232)),
    ((14, 50, 44), (30, 110, 90), (120, 168, 90), (226, 206, 110), (252, 246, 222)),
    ((36, 20, 66), (96, 56, 132), (190, 96, 130), (240, 170, 130), (252, 240, 220)),
)
"""Stone and glass from dark to light, of each mosaic."""
GROUT = 0.4

GLASS: tuple[tuple[tuple[Color, ...], ...], ...] = (
    (
        ((14, 8, 40), (24, 40, 150), (60, 130, 230), (200, 232, 255)),
        ((24, 4, 30), (120, 12, 90), (222, 70, 140), (255, 214, 226)),
        ((8, 20, 24), (6, 96, 90), (50, 190, 150), (212, 250, 224)),
    ),
    (
        ((36, 4, 8), (170, 16, 24), (238, 120, 30), (255, 226, 120)),
        ((30, 12, 4), (150, 80, 4), (246, 184, 30), (255, 244, 180)),
        ((8, 12, 50), (20, 50, 160), (80, 140, 220), (210, 230, 255)),
    ),
    (
        ((6, 26, 10), (16, 110, 50), (120, 200, 60), (236, 250, 170)),
        ((6, 18, 46), (10, 80, 150), (60, 180, 210), (214, 246, 250)),
        ((40, 18, 2), (170, 90, 10), (246, 196, 60), (255, 246, 200)),
    ),
)
"""For each window, three kinds of glass from dark to light."""
TONES_OF_GLASS = 4


@corruption(family="standin", stochastic=True, changes=["colour"], source=SOURCE)
def standin_mosaic(image: Image, rng: np.random.Generator) -> Image:
    """Lays the picture as a mosaic of small square stones in bending rows; a procedural stand-in for a diffusion illusion.

    A stone has the colour that the mean tone beneath it has in a palette, a little off, a bevelled edge, and grout around it.
    """
    height, width = image.shape[:2]
    size = grain(height, width, 6.3, least=4.0)
    u, v = _bent(rng, height, width, size)
    row = np.floor(v).astype(np.int32)
    u += rng.random(int(row.max() - row.min()) + 1, dtype=np.float32).take(row - row.min())
    stones = numbered(row, np.floor(u).astype(np.int32))
    shade = means(stones, tone(image))
    shade += rng.normal(0.0, 0.045, shade.shape).astype(np.float32)
    gleam = rng.normal(1.0, 0.06, shade.shape).astype(np.float32)
    laid = _painted(stones, shade, pick(rng, TESSERAE))
    return lit(laid, gleam.take(stones) * _bevel(fraction(u), fraction(v), size))


@corruption(family="standin", stochastic=True, changes=["colour"], source=SOURCE)
def standin_stained_glass(image: Image, rng: np.random.Generator) -> Image:
    """Sets the picture in panes of coloured glass between strips of lead; a procedural stand-in for a diffusion illusion.

    Lead runs around scattered panes and, thinner, along the borders between four tones, so contours of the picture are leaded
    too. Each pane is one of three kinds of glass, and streaks run through it.
    """
    height, width = image.shape[:2]
    size = grain(height, width, 19.0, least=8.0)
    panes = voronoi(rng, height, width, size)
    steps = np.minimum(TONES_OF_GLASS * tone(image, soften=size / 8, local=0.0), TONES_OF_GLASS - 1).astype(np.int32)
    lead = np.maximum(seams(panes, size / 9), 0.8 * seams(steps, size / 15))
    table = _glazed(rng, int(panes.max()) + 1, GLASS[rng.integers(len(GLASS))])
    glass: Image = table.take(panes * np.int32(TONES_OF_GLASS) + steps, axis=0)
    light = 0.78 + 0.45 * smooth_noise(rng, height, width, cell=size, octaves=4, decay=0.7)
    light *= 1.0 - 0.93 * lead
    gleam = relief(blurred(lead, size / 12), np.deg2rad(-125)) * np.float32(size / 36)
    light += np.maximum(gleam, 0.0, out=gleam)
    return lit(glass, light)


def _glazed(rng: np.random.Generator, panes: int, kinds: Sequence[Sequence[Color]]) -> Image:
    """Returns the colour of each pane in each tone, flat, shape (panes * TONES_OF_GLASS, 3)."""
    curves = np.rint([gradient(kind) for kind in kinds]).astype(np.uint8)
    kind = rng.integers(len(kinds), size=(panes, 1))
    bright = (np.arange(TONES_OF_GLASS) + 0.35) / (TONES_OF_GLASS - 0.3) + rng.normal(0.0, 0.05, (panes, 1))
    colours: Image = curves[kind, np.clip(np.rint(255 * bright), 0, 255).astype(np.intp)]
    return colours.reshape(-1, 3)


def _bent(rng: np.random.Generator, height: int, width: int, size: float) -> tuple[Plane, Plane]:
    """Returns coordinates in stones, of rows that bend by up to three stones over about 20."""
    u, v = slanted(height, width, 0.0, size), slanted(height, width, np.pi / 2, size)
    u += 2.0 * drift(rng, height, width, cell=20 * size)
    v += 3.0 * drift(rng, height, width, cell=20 * size)
    return u, v


def _painted(labels: Labels, shade: Table, curve: Curve) -> Image:
    """Returns each cell in the colour that its shade, in [0, 1], has in ``curve``."""
    colours = np.rint(curve).astype(np.uint8)
    table = colours.take(np.clip(np.rint(255 * shade), 0, 255).astype(np.intp), axis=0)
    painted: Image = table.take(labels, axis=0)
    return painted


def _bevel(u: Plane, v: Plane, size: float) -> Plane:
    """Returns the light on a stone: grout at its edges, a lighter rim above and left, a darker one below and right."""
    edge = np.minimum(np.minimum(u, 1.0 - u), np.minimum(v, 1.0 - v)) * np.float32(size)
    gap = max(0.5, 0.07 * size)
    facing = np.minimum(u, v) < np.minimum(1.0 - u, 1.0 - v)
    rim = 1.0 - ramp(edge, gap, gap + max(0.5, 0.16 * size))
    shade = np.where(facing, np.float32(0.16), np.float32(-0.16)) * rim + 1.0
    bevel: Plane = GROUT + (shade - GROUT) * ramp(edge, gap - 0.5, gap + 0.5)
    return bevel
