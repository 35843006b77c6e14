"""Land: woods and deserts that happen to look like the picture."""

from __future__ import annotations

import numpy as np

from ..pixels import Color, Image, Plane
from ..registry import corruption
from .canvas import SOURCE, blurred, drift, dust, fraction, grain, pick, printed, relief, slanted, tone
from .sprites import ellipse, scattered, stamped

WOODS: tuple[tuple[Color, ...], ...] = (
    ((2, 6, 10), (8, 26, 30), (22, 62, 54), (92, 134, 88), (226, 236, 176)),
    ((3, 4, 14), (14, 20, 52), (34, 58, 104), (104, 146, 176), (224, 238, 246)),
    ((6, 6, 4), (30, 28, 12), (76, 66, 22), (160, 136, 54), (250, 232, 160)),
)
"""The depth of the woods, leaves in shadow, leaves in the moonlight."""

DUNES: tuple[tuple[Color, ...], ...] = (
    ((70, 34, 20), (150, 84, 40), (214, 146, 80), (240, 196, 130), (255, 236, 196)),
    ((56, 30, 40), (142, 70, 60), (214, 124, 84), (244, 184, 132), (255, 230, 200)),
    ((60, 48, 36), (134, 108, 74), (196, 168, 120), (230, 210, 168), (252, 244, 222)),
)
"""Sand from the shadow to the crest."""


@corruption(family="standin", stochastic=True, changes=["colour"], source=SOURCE)
def standin_night_forest(image: Image, rng: np.random.Generator) -> Image:
    """Shows the picture as moonlit leaves behind dark trunks; a procedural stand-in for a diffusion illusion.

    Leaves lie over one another in four directions, each as bright as the picture is where it hangs.
    """
    height, width = image.shape[:2]
    leaf = grain(height, width, 6.5, least=4.0)
    light = tone(image, soften=leaf / 5)
    forest = (0.1 + 0.24 * light) * drift(rng, height, width, cell=10 * leaf, octaves=3) + 0.06 * light
    for turn in rng.uniform(0.0, np.pi) + 0.8 * np.arange(4):
        places = scattered(rng, height, width, 0.62 * leaf)
        there = rng.random(len(places[0])) < 0.55
        bright = there * light[places] ** 1.2 * rng.uniform(0.35, 1.0, len(there)).astype(np.float32)
        np.maximum(forest, stamped(places, bright, (height, width), ellipse(leaf, 0.42 * leaf, turn)), out=forest)
    forest *= 0.45 + 0.55 * light
    forest *= 1.0 - 0.6 * _trunks(rng, height, width, leaf)
    return printed(forest, pick(rng, WOODS))


@corruption(family="standin", stochastic=True, changes=["colour"], source=SOURCE)
def standin_sand_dunes(image: Image, rng: np.random.Generator) -> Image:
    """Shows the picture as rippled sand in low light; a procedural stand-in for a diffusion illusion.

    What is light is high: ripples climb and crowd along the slopes, whose one side faces the light.
    """
    height, width = image.shape[:2]
    unit = grain(height, width, 1.0, least=0.6)
    light = tone(image, soften=unit)
    swell = drift(rng, height, width, cell=90 * unit, octaves=3)
    wander = drift(rng, height, width, cell=24 * unit, octaves=2)
    place = slanted(height, width, rng.uniform(1.2, 1.9), 5.0 * unit)
    place += 5.0 * swell + 2.2 * wander + 1.6 * blurred(light, 2.5 * unit)
    phase = fraction(place)
    ripple = np.minimum(phase * np.float32(1 / 0.7), (1.0 - phase) * np.float32(1 / 0.3)) - np.float32(0.5)
    ripple *= 0.17 + 0.17 * wander
    slope = relief(blurred(light, 1.5 * unit), np.deg2rad(45)) * np.float32(0.8 * unit)
    sand = 0.02 + 0.58 * light + 0.16 * swell + ripple + np.clip(slope, -0.24, 0.24, out=slope)
    sand += 0.08 * dust(rng, height, width)
    return printed(sand, pick(rng, DUNES))


def _trunks(rng: np.random.Generator, height: int, width: int, leaf: float) -> Plane:
    """Returns the silhouettes of trunks, some five to a picture, 1 where one stands and 0 where none does."""
    places = slanted(height, width, 0.0, 11 * leaf)
    places += 0.18 * drift(rng, height, width, cell=14 * leaf, octaves=2) + rng.random(dtype=np.float32)
    plot = np.floor(places).astype(np.int32)
    count = int(plot.max()) + 1
    centre = rng.uniform(0.15, 0.85, count).astype(np.float32)
    breadth = rng.uniform(0.15, 0.33, count).astype(np.float32) ** 2
    off = np.abs(places - plot - centre.take(plot))
    silhouette: Plane = np.clip((breadth.take(plot) - off) * np.float32(11 * leaf) + 0.5, 0.0, 1.0)
    return silhouette
