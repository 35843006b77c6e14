"""Paint: pictures made of brush strokes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..opencv import opencv
from ..pixels import Color, Image, Plane, smooth_noise
from ..registry import corruption
from .canvas import SOURCE, blurred, coordinates, grain, lit, pick, printed, relief, tone

OILS: tuple[tuple[Color, ...], ...] = (
    ((14, 22, 60), (30, 62, 140), (72, 128, 176), (226, 190, 88), (252, 240, 186)),
    ((40, 24, 20), (110, 58, 34), (190, 120, 54), (226, 190, 120), (250, 238, 210)),
    ((20, 40, 34), (44, 96, 66), (140, 160, 70), (236, 200, 110), (252, 240, 214)),
    ((44, 20, 52), (126, 50, 96), (216, 106, 92), (250, 180, 110), (255, 238, 196)),
)
"""Oil colours from dark to light."""

FINEST = 5.0
"""A brush is at most this many pixels wide while strokes are drawn: they are smooth enough to be enlarged afterwards."""


@corruption(family="standin", stochastic=True, changes=["colour"], source=SOURCE)
def standin_oil_paint(image: Image, rng: np.random.Generator) -> Image:
    """Paints the picture in oil with thick strokes along its contours; a procedural stand-in for a diffusion illusion.

    Dabs of uneven colour are smeared along the direction in which the tone changes least, or along eddies where it does not
    change, and light from above rakes over their ridges.
    """
    cv2 = opencv()
    height, width = image.shape[:2]
    brush = grain(height, width, 3.0, least=2.0)
    shrink = min(1.0, FINEST / brush)
    small = max(1, round(shrink * width)), max(1, round(shrink * height))
    light = cv2.resize(tone(image), small, interpolation=cv2.INTER_AREA)
    strokes = _strokes(rng, blurred(light, 0.5 * shrink * brush), shrink * brush)
    shade, ridges = cv2.split(cv2.resize(strokes, (width, height), interpolation=cv2.INTER_CUBIC))
    paint = printed(shade + 0.07 * ridges, pick(rng, OILS))
    return lit(paint, 1.0 + np.clip(relief(ridges, np.deg2rad(-110)) * np.float32(0.25 * brush), -0.25, 0.25))


def _strokes(rng: np.random.Generator, light: Plane, brush: float) -> NDArray[np.float32]:
    """Returns the tone and the height of the paint, the latter with a deviation of 1, shape (H, W, 2).

    Both are averaged along the flow over some six widths of the brush, by two steps of which the second is three times as long.
    """
    cv2 = opencv()
    height, width = light.shape
    along_x, along_y = _flow(rng, light, brush)
    x, y = coordinates(height, width)
    layers = np.dstack([light, smooth_noise(rng, height, width, cell=brush)])
    for step in (0.45 * brush, 1.35 * brush):
        by_x, by_y = along_x * np.float32(step), along_y * np.float32(step)
        ahead = cv2.remap(layers, x + by_x, y + by_y, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT)
        back = cv2.remap(layers, x - by_x, y - by_y, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT)
        layers = (layers + ahead + back) * np.float32(1 / 3)
    ridges = layers[..., 1] - layers[..., 1].mean()
    layers[..., 1] = ridges / max(float(ridges.std()), 1e-6)
    return layers


def _flow(rng: np.random.Generator, light: Plane, brush: float) -> tuple[Plane, Plane]:
    """Returns the direction of the strokes as the x and the y of a unit vector, shape (H, W) each.

    Angles are doubled while they are averaged, so that opposite directions, which are the same to a brush, do not cancel.
    """
    cv2 = opencv()
    height, width = light.shape
    across, down = (cv2.Sobel(light, cv2.CV_32F, dx, 1 - dx, scale=0.125) for dx in (1, 0))
    eddy = smooth_noise(rng, height, width, cell=30 * brush, octaves=2) * np.float32(4 * np.pi)
    faint = np.float32((0.012 / brush) ** 2)
    cosine = blurred(down * down - across * across, 2.5 * brush) + faint * np.cos(eddy)
    sine = blurred(-2.0 * across * down, 2.5 * brush) + faint * np.sin(eddy)
    angle = 0.5 * cv2.phase(cosine, sine)
    return np.cos(angle), np.sin(angle)
