"""Paper: pictures folded and cut from coloured sheets."""

from __future__ import annotations

import numpy as np

from ..opencv import opencv
from ..pixels import Color, Image, Plane, smooth_noise
from ..registry import corruption
from .canvas import SOURCE, blurred, fraction, grain, lit, pick, printed, slanted, tone
from .cells import numbered

SHEETS: tuple[tuple[Color, ...], ...] = (
    ((40, 54, 92), (74, 112, 152), (150, 186, 196), (242, 204, 168), (252, 244, 232)),
    ((96, 32, 48), (190, 78, 76), (236, 146, 110), (248, 206, 158), (255, 246, 230)),
    ((26, 70, 66), (62, 128, 108), (140, 188, 144), (222, 222, 160), (252, 250, 230)),
    ((62, 42, 92), (128, 88, 150), (206, 136, 172), (246, 190, 186), (255, 240, 234)),
)
"""Five sheets from the lowest, and darkest, to the uppermost."""


@corruption(family="standin", stochastic=True, changes=["colour"], source=SOURCE)
def standin_origami(image: Image, rng: np.random.Generator) -> Image:
    """Folds the picture from sheets of coloured paper; a procedural stand-in for a diffusion illusion.

    Five tones become sheets that lie on one another and cast shadows; triangular facets with sharp creases tilt to the light.
    """
    height, width = image.shape[:2]
    size = grain(height, width, 24.0, least=8.0)
    sheet = np.minimum(np.floor(5.0 * tone(image, soften=size / 11, local=0.0)), 4.0)
    shade = _facets(rng, height, width, size)
    shade *= 0.95 + 0.1 * smooth_noise(rng, height, width, cell=1.5 + size / 10)
    above = _shifted(blurred(sheet, size / 12), size / 7) - sheet
    shade *= 1.0 - 0.5 * np.clip(above, 0.0, 1.0, out=above)
    return lit(printed(blurred(sheet, 0.5) * np.float32(0.25), pick(rng, SHEETS)), shade)


def _facets(rng: np.random.Generator, height: int, width: int, size: float) -> Plane:
    """Returns the light on irregular triangular facets of about ``size`` pixels, with bright and dark creases, around 0.9."""
    across = slanted(height, width, np.pi / 6, 0.87 * size) + 1.1 * _crumpled(rng, height, width, 1.5 * size)
    down = slanted(height, width, np.pi / 2, 0.86 * size) + 1.1 * _crumpled(rng, height, width, 1.5 * size)
    u, v = fraction(across), fraction(down)
    fold = u + v - np.float32(1.0)
    facets = numbered(np.floor(across).astype(np.int32), np.floor(down).astype(np.int32), (fold > 0).astype(np.int32))
    light: Plane = rng.uniform(0.72, 1.1, int(facets.max()) + 1).astype(np.float32).take(facets)
    edge = np.minimum(np.minimum(np.minimum(u, 1.0 - u), np.minimum(v, 1.0 - v)), np.abs(fold))
    crease = np.clip(1.0 - edge * np.float32(size / 1.5), 0.0, 1.0)
    light += np.where(fold > 0, np.float32(0.12), np.float32(-0.12)) * crease
    return light


def _crumpled(rng: np.random.Generator, height: int, width: int, size: float) -> Plane:
    """Returns a field in [-0.5, 0.5) that is straight between random values on a grid of ``size`` pixels, so that folds are."""
    grid = rng.random((max(1, round(height / size)), max(1, round(width / size))), dtype=np.float32) - np.float32(0.5)
    field: Plane = opencv().resize(grid, (width, height), interpolation=opencv().INTER_LINEAR)
    return field


def _shifted(plane: Plane, pixels: float) -> Plane:
    """Returns ``plane`` moved down and right by ``pixels``."""
    step = max(1, round(pixels))
    return np.pad(plane, ((step, 0), (step, 0)), mode="edge")[:-step, :-step]
