"""Light: pictures in the dark, made of the little light there is."""

from __future__ import annotations

import numpy as np

from ..pixels import Color, Image, Plane
from ..registry import corruption
from .canvas import SOURCE, blurred, dust, fraction, grain, pick, printed, ramp, relief, slanted, tone
from .sprites import scattered, stamped, stick, teardrop

ROOMS: tuple[tuple[Color, ...], ...] = (
    ((3, 4, 9), (22, 30, 54), (120, 74, 46), (232, 162, 84), (255, 236, 196)),
    ((4, 3, 7), (40, 20, 48), (120, 40, 70), (224, 120, 90), (255, 226, 190)),
    ((2, 5, 7), (10, 38, 46), (30, 92, 96), (150, 180, 140), (244, 246, 214)),
    ((4, 4, 4), (34, 34, 36), (96, 94, 92), (176, 172, 166), (246, 242, 234)),
)
"""A room at night, from its shadows to its lights."""

FLAMES: tuple[tuple[Color, ...], ...] = (
    ((8, 4, 6), (58, 18, 8), (146, 54, 10), (236, 140, 30), (255, 214, 110), (255, 250, 224)),
    ((6, 4, 14), (52, 16, 40), (140, 40, 50), (240, 120, 60), (255, 206, 130), (255, 248, 230)),
    ((4, 8, 6), (40, 34, 8), (120, 92, 14), (226, 176, 40), (255, 228, 120), (255, 252, 228)),
)
"""The dark between candles, their glow, the flame."""


@corruption(family="standin", stochastic=True, changes=["colour"], source=SOURCE)
def standin_low_key(image: Image, rng: np.random.Generator) -> Image:
    """Relights the picture as a dark room with light through blinds; a procedural stand-in for a diffusion illusion.

    One lamp beside the picture lights what faces it, taking light for height, and fades with the distance; the rest sinks into
    tinted shadow. Slanted bars of the blinds and the grain of fast film lie over it.
    """
    height, width = image.shape[:2]
    unit = grain(height, width, 1.0, least=0.5)
    light = tone(image)
    towards = rng.uniform(0.0, 2.0 * np.pi)
    facing = relief(blurred(light, 1.2 * unit), towards) * np.float32(1.1 * unit)
    shown = 1.1 * np.sqrt(light) * light + np.clip(facing, 0.0, 0.3, out=facing)
    shown *= _lamp(height, width, towards)
    bars = np.abs(fraction(slanted(height, width, np.pi / 2 + rng.uniform(-0.35, 0.35), 30 * unit)) - np.float32(0.5))
    shown *= 0.58 + 0.42 * ramp(bars, 0.15, 0.25)
    shown += 0.07 * (dust(rng, height, width) - 0.5)
    return printed(shown, pick(rng, ROOMS))


@corruption(family="standin", stochastic=True, changes=["colour"], source=SOURCE)
def standin_candles(image: Image, rng: np.random.Generator) -> Image:
    """Shows the picture as rows of candles burning in the dark; a procedural stand-in for a diffusion illusion.

    A flame burns as high and as bright as the picture is light there, on a stick of wax that it lights, and glows around it.
    """
    height, width = image.shape[:2]
    size = grain(height, width, 10.0, least=6.0)
    light = tone(image, soften=size / 10)
    wicks = scattered(rng, height, width, size, jitter=0.5)
    burning = 0.08 + 0.92 * blurred(light, size / 4)[wicks]
    high = burning > 0.35
    flames = stamped(wicks, burning, (height, width), teardrop(0.4 * size, 0.22 * size), hold=1.0)
    tall = stamped((wicks[0][high], wicks[1][high]), burning[high], (height, width), teardrop(0.6 * size, 0.34 * size), hold=1.0)
    flames = blurred(np.maximum(flames, tall), size / 25)
    wax = blurred(stamped(wicks, burning, (height, width), stick(0.55 * size, 0.26 * size), hold=0.0), size / 30)
    glow = blurred(flames, 0.45 * size)
    shown = 0.16 + 0.34 * wax + 0.6 * flames + 1.1 * glow
    shown *= 0.2 + 0.8 * light
    return printed(shown, pick(rng, FLAMES))


def _lamp(height: int, width: int, angle: float) -> Plane:
    """Returns the light of a lamp off the centre in the direction ``angle``, from 1 beneath it down to 0.3 far away."""
    x = ((np.arange(width) + 0.5) / width - 0.5 - 0.35 * np.cos(angle)).astype(np.float32)
    y = ((np.arange(height) + 0.5) / height - 0.5 - 0.35 * np.sin(angle)).astype(np.float32)
    near_x, near_y = np.exp(-2.2 * x * x), np.exp(-2.2 * y * y)
    lamp: Plane = 0.3 + near_x * (0.7 * near_y)[:, None]
    return lamp
