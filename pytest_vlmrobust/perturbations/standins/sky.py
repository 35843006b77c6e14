"""Sky: stars and clouds that happen to look like the picture."""

from __future__ import annotations

import numpy as np

from ..opencv import opencv
from ..pixels import Color, Image, Plane, blend, smooth_noise, stretched
from ..registry import corruption
from .canvas import SOURCE, blurred, drift, gradient, grain, pick, printed, ramp, relief, tone
from .sprites import Points, scattered

NIGHTS: tuple[tuple[Color, ...], ...] = (
    ((4, 6, 20), (16, 22, 66), (52, 48, 130), (150, 110, 190), (250, 236, 250)),
    ((3, 8, 20), (8, 34, 70), (24, 88, 124), (110, 180, 190), (244, 252, 250)),
    ((8, 4, 20), (44, 14, 62), (126, 38, 104), (226, 120, 130), (255, 242, 230)),
)
"""Sky between the stars, the Milky Way, the stars."""

STARS = ((2.6, 0.5, 0.45), (4.5, 0.5, 0.75), (14.0, 0.4, 1.3))
"""Faint, middling and bright stars: their distance in units, the share of places taken where all is light, their radius."""

SKIES: tuple[tuple[tuple[Color, ...], tuple[Color, ...]], ...] = (
    (((30, 84, 168), (50, 116, 196), (92, 152, 214)), ((104, 124, 156), (206, 214, 226), (255, 255, 255))),
    (((54, 46, 112), (148, 66, 108), (214, 112, 84)), ((126, 84, 122), (244, 190, 170), (255, 244, 222))),
    (((20, 50, 82), (40, 88, 112), (104, 128, 124)), ((96, 108, 120), (208, 206, 198), (252, 250, 240))),
)
"""The sky from top to bottom, and its clouds from their shadows to their lit side."""


@corruption(family="standin", stochastic=True, changes=["colour"], source=SOURCE)
def standin_starry_sky(image: Image, rng: np.random.Generator) -> Image:
    """Shows the picture as stars and gas in a night sky; a procedural stand-in for a diffusion illusion.

    The lighter the picture, the denser and the brighter the stars and the gas between them; the brightest have rays.
    """
    height, width = image.shape[:2]
    unit = grain(height, width, 1.0, least=0.5)
    light = tone(image, soften=unit)
    gas = drift(rng, height, width, cell=60 * unit, octaves=5, decay=0.6)
    sky = 0.06 + 0.12 * gas * gas + (0.22 + 0.32 * gas) * blurred(light, 2.5 * unit)
    stars = [_stars(rng, light, max(distance * unit, 2.0), share) for distance, share, _ in STARS]
    for points, (_, _, radius) in zip(stars, STARS, strict=True):
        spread = max(radius * unit, 0.5)
        sky += blurred(points, spread) * np.float32(2 * np.pi * spread * spread)
    sky += _rays(stars[-1], 4.5 * unit, max(0.5 * unit, 0.4))
    return printed(sky, pick(rng, NIGHTS))


@corruption(family="standin", stochastic=True, changes=["colour"], source=SOURCE)
def standin_clouds(image: Image, rng: np.random.Generator) -> Image:
    """Shows the picture as clouds in a wide sky; a procedural stand-in for a diffusion illusion.

    Cloud gathers where the picture is light, billows at its borders, is lit from above and lies in its own shadow below.
    """
    height, width = image.shape[:2]
    unit = grain(height, width, 1.0, least=0.5)
    light = tone(image, soften=2 * unit)
    bank = drift(rng, height, width, cell=80 * unit, octaves=3)
    billows = _billows(rng, height, width, 34 * unit)
    body = light + 0.4 * bank + 0.6 * billows
    slope = relief(blurred(billows + 0.8 * light, 1.2 * unit), np.deg2rad(75)) * np.float32(2.5 * unit)
    shade = 0.15 + 0.15 * light + 0.75 * ramp(billows + 0.3 * bank, 0.3, 1.0) + np.clip(slope, -0.3, 0.2, out=slope)
    sky, cloud = (gradient(colours) for colours in SKIES[rng.integers(len(SKIES))])
    down = np.repeat(np.linspace(0.0, 1.0, height, dtype=np.float32)[:, None], width, axis=1)
    cover = ramp(body, 0.65, 1.25)
    return blend(printed(down, sky), printed(shade, cloud), cover * cover * (3.0 - 2.0 * cover))


def _stars(rng: np.random.Generator, light: Plane, distance: float, share: float) -> Plane:
    """Returns the brightness of stars at single pixels, 0 elsewhere; they gather where it is light."""
    y, x = scattered(rng, light.shape[0], light.shape[1], distance)
    shown = rng.random(len(y)) < share * light[y, x] ** 1.5 + 0.02
    places: Points = y[shown], x[shown]
    points = np.zeros(light.shape, np.float32)
    points[places] = rng.uniform(0.3, 1.0, len(places[0])) ** 2 * (0.35 + 0.65 * light[places])
    return points


def _rays(points: Plane, length: float, breadth: float) -> Plane:
    """Returns a soft upright cross around each point."""
    cv2 = opencv()
    across = cv2.GaussianBlur(points, (0, 0), sigmaX=length, sigmaY=breadth)
    down = cv2.GaussianBlur(points, (0, 0), sigmaX=breadth, sigmaY=length)
    cross: Plane = (across + down) * np.float32(2.5 * length * breadth)
    return cross


def _billows(rng: np.random.Generator, height: int, width: int, size: float) -> Plane:
    """Returns round heads that meet in sharp creases, smaller ones on larger ones, in [0, 1]."""
    total = np.zeros((height, width), np.float32)
    for octave in range(4):
        heads = smooth_noise(rng, height, width, cell=size / 2**octave)
        heads -= np.float32(0.5)
        total += np.float32(0.55**octave) * np.abs(heads, out=heads)
    return stretched(total)
