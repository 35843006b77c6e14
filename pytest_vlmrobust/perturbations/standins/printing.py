"""Print: pictures made of ink on paper."""

from __future__ import annotations

import numpy as np

from ..pixels import Color, Image, Plane, smooth_noise
from ..registry import corruption
from .canvas import (
    SOURCE,
    Table,
    blurred,
    coloured,
    drift,
    fraction,
    gradient,
    grain,
    levels,
    printed,
    ramp,
    slanted,
    tone,
)

INKS: tuple[tuple[Color, Color, Color], ...] = (
    ((250, 244, 226), (255, 106, 90), (20, 54, 110)),
    ((252, 246, 232), (255, 196, 40), (24, 92, 88)),
    ((244, 240, 232), (250, 96, 160), (30, 60, 140)),
    ((248, 243, 224), (60, 190, 200), (130, 30, 60)),
    ((246, 240, 222), (120, 200, 120), (70, 40, 110)),
)
"""Paper, light ink and dark ink of each print."""

PENS: tuple[tuple[Color, ...], ...] = (
    ((22, 26, 46), (250, 245, 230)),
    ((66, 36, 20), (247, 236, 212)),
    ((20, 52, 40), (244, 243, 226)),
    ((90, 20, 34), (250, 240, 230)),
)
"""Ink and paper of each drawing."""


@corruption(family="standin", stochastic=True, changes=["colour"], source=SOURCE)
def standin_halftone(image: Image, rng: np.random.Generator) -> Image:
    """Prints the picture as a halftone of two inks on paper; a procedural stand-in for a diffusion illusion.

    Each ink is a screen of round dots whose size follows the tone: the light ink everywhere but in the lights, the dark ink in
    the shadows. Screens stand at 45 and 75 degrees, so that no moire arises, with a random phase.
    """
    height, width = image.shape[:2]
    period = grain(height, width, 5.0, least=4.0)
    paper, light, dark = (np.array(colour, np.float64) for colour in INKS[rng.integers(len(INKS))])
    shade = 1.0 - tone(image)
    first = _dots(rng, 0.09 + 1.2 * shade**1.2, period, np.deg2rad(75.0))
    second = _dots(rng, 1.7 * shade - 0.65, period, np.deg2rad(45.0))
    overprint = (np.rint(15 * first) * 16 + np.rint(15 * second)).astype(np.uint8)
    share = np.arange(16)[:, None] / 15.0
    under = paper * (1.0 - share) + light * share
    mixed = under[:, None] * (1.0 - share) + dark * share
    return coloured(overprint, mixed.reshape(256, 3))


@corruption(family="standin", stochastic=True, changes=["colour"], source=SOURCE)
def standin_cross_hatching(image: Image, rng: np.random.Generator) -> Image:
    """Draws the picture in pen and ink by layers of crossing lines; a procedural stand-in for a diffusion illusion.

    Four layers in as many directions begin one after the other as the tone darkens; lines waver, swell with the shadow and lift
    off the paper. Contours are inked where the tone changes fast.
    """
    height, width = image.shape[:2]
    spacing = grain(height, width, 4.2, least=3.6)
    light = tone(image, soften=0.25 * spacing)
    grip = light + 0.16 * drift(rng, height, width, cell=5 * spacing, octaves=2)
    ink = _contours(light, spacing)
    start = rng.uniform(0, np.pi)
    for angle, lightest in ((0.0, 1.14), (1.0, 0.68), (2.1, 0.46), (0.5, 0.28)):
        lines = _hatch(rng, grip, spacing, start + angle, lightest)
        np.maximum(ink, lines, out=ink)
    fibres = smooth_noise(rng, height, width, cell=1.2 * spacing, octaves=2)
    return printed((1.0 - 0.08 * fibres) * (1.0 - ink), gradient(PENS[rng.integers(len(PENS))]))


def _dots(rng: np.random.Generator, coverage: Plane, period: float, angle: float) -> Plane:
    """Returns how much ink each pixel gets from a screen of dots that cover a share ``coverage``, in [0, 1]."""
    height, width = coverage.shape
    along, across = _wave(rng, height, width, period, angle), _wave(rng, height, width, period, angle + np.pi / 2)
    peaks = 0.25 * (along + across) + 0.5
    edge = np.interp(1.0 - np.arange(256) / 255.0, np.linspace(0, 1, 4097), _screen_quantiles()).astype(np.float32)
    ink: Plane = np.clip((peaks - edge.take(levels(coverage))) * np.float32(0.55 * period) + 0.5, 0.0, 1.0)
    return ink


def _screen_quantiles() -> Table:
    """Returns the sorted values of a screen of dots, so that a share becomes the threshold that leaves this share above."""
    phase = np.cos(np.linspace(0, 2 * np.pi, 64, endpoint=False))
    values: Table = np.sort((0.25 * (phase[:, None] + phase) + 0.5).ravel()).astype(np.float32)
    return np.concatenate([values, [np.float32(1.1)]])


def _wave(rng: np.random.Generator, height: int, width: int, period: float, angle: float) -> Plane:
    """Returns a plane cosine wave at ``angle``; by the addition theorem, from the waves of single rows and columns."""
    pace, phase = 2 * np.pi / period, rng.uniform(0, 2 * np.pi)
    x = (pace * np.cos(angle) * np.arange(width)).astype(np.float32)
    y = (pace * np.sin(angle) * np.arange(height) + phase).astype(np.float32)[:, None]
    wave: Plane = np.cos(y) * np.cos(x) - np.sin(y) * np.sin(x)
    return wave


def _hatch(rng: np.random.Generator, light: Plane, spacing: float, angle: float, lightest: float) -> Plane:
    """Returns the ink of one layer of wavering lines, drawn where ``light`` is below ``lightest``."""
    height, width = light.shape
    place = slanted(height, width, angle, spacing)
    place += 0.9 * drift(rng, height, width, cell=16 * spacing, octaves=2)
    from_line = np.abs(fraction(place) - np.float32(0.5))
    swell = ramp(light, lightest, lightest - 0.45)
    ink: Plane = np.minimum(swell * np.float32(1.25 * spacing), 1.0)
    swell *= np.float32(0.32 * spacing)
    swell -= from_line * np.float32(spacing)
    swell += np.float32(0.5)
    ink *= np.clip(swell, 0.0, 1.0, out=swell)
    return ink


def _contours(light: Plane, spacing: float) -> Plane:
    """Returns ink on the dark side of each edge, as thick as a line."""
    return ramp(blurred(light, 0.5 * spacing) - blurred(light, 0.2 * spacing), 0.03, 0.1)
