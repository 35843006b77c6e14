"""What the stand-ins share: the tone they keep, the textures they lay, the colours they print in."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..opencv import opencv
from ..pixels import Color, Image, Plane, look_up, luma, smooth_noise, three

SOURCE = "pytest-vlmrobust; stands in for The Perceptual Observatory section 9 (illusions)"

Labels = NDArray[np.int32]
"""The number of the cell that each pixel belongs to, shape (H, W), from 0."""
Table = NDArray[np.float32]
"""One number per cell, shape (cells,)."""
Curve = NDArray[np.float64]
"""A colour for each of 256 levels, shape (256, 3), in 0..255."""

NARROWEST = 64
"""The least range of grey levels that counts as full contrast: a dull picture gains at most a factor of 4."""


def grain(height: int, width: int, units: float, *, least: float) -> float:
    """Returns the length in pixels of ``units`` / 400 of a picture's size (the root of its area), at least ``least`` pixels.

    Unlike ``pixels.scene_unit`` it goes below a pixel a unit: a stroke or a tile shrinks with a small picture as long as it can
    be told for what it is, for at its full size it would bury what is to be kept.
    """
    return max(least, units * float(np.sqrt(height * width)) / 400.0)


def tone(image: Image, *, soften: float = 0.0, local: float = 0.5) -> Plane:
    """Returns the layout: luma in [0, 1], stretched to full contrast, shape (H, W).

    Args:
        image: uint8 RGB, shape (H, W, 3).
        soften: the standard deviation in pixels of a Gaussian that blurs it; 0 keeps it sharp.
        local: how much of the difference from the surroundings (a tenth of the picture) is added on top. Where tones are cut into
            a few steps it should be 0: its gradual halos would become steps with contours of their own.
    """
    cv2 = opencv()
    grey = luma(image)
    plane: Plane = cv2.LUT(grey, _contrast(grey))
    if local:
        around = blurred(plane, float(np.sqrt(grey.size)) / 12)
        plane = np.clip(plane + np.float32(local) * (plane - around), 0.0, 1.0)
    return blurred(plane, soften)


def _contrast(grey: NDArray[np.uint8]) -> Table:
    """Returns the value of each of 256 levels: the 1st percentile becomes 0, the 99th 1, unless they are close together."""
    shares = np.cumsum(np.bincount(grey.ravel(), minlength=256)) / grey.size
    low, high = (int(level) for level in np.searchsorted(shares, (0.01, 0.99)))
    span = max(high - low, NARROWEST)
    place = low / (255 - high + low) if high - low < 255 else 0.0
    start = low - (span - high + low) * place
    curve: Table = np.clip((np.arange(256) - start) / span, 0.0, 1.0).astype(np.float32)
    return curve


def blurred(plane: Plane, sigma: float) -> Plane:
    """Returns ``plane`` under a Gaussian of ``sigma`` pixels, mirrored at the border; ``plane`` itself for 0.

    From 6 pixels on it works on a smaller copy, which keeps the cost of a wide blur at that of a narrow one.
    """
    cv2 = opencv()
    if sigma <= 0:
        return plane
    height, width = plane.shape
    step = max(1, int(sigma / 3))
    small = cv2.resize(plane, (-(-width // step), -(-height // step)), interpolation=cv2.INTER_AREA) if step > 1 else plane
    soft: Plane = cv2.GaussianBlur(small, (0, 0), sigma / step, borderType=cv2.BORDER_REFLECT)
    return cv2.resize(soft, (width, height), interpolation=cv2.INTER_LINEAR) if step > 1 else soft


def coordinates(height: int, width: int) -> tuple[Plane, Plane]:
    """Returns the x and the y of each pixel, shape (H, W) each."""
    y, x = np.indices((height, width), np.float32)
    return x, y


def slanted(height: int, width: int, angle: float, unit: float) -> Plane:
    """Returns how far each pixel is along the direction ``angle`` (radians from the x axis), in units, shape (H, W)."""
    x = (np.cos(angle) / unit * np.arange(width)).astype(np.float32)
    y = (np.sin(angle) / unit * np.arange(height)).astype(np.float32)
    plane: Plane = x + y[:, None]
    return plane


def drift(rng: np.random.Generator, height: int, width: int, *, cell: float, octaves: int = 1, decay: float = 0.5) -> Plane:
    """Returns ``smooth_noise`` drawn on a coarser grid, with some four points to its finest cell, and enlarged: far cheaper."""
    cv2 = opencv()
    step = max(1.0, cell / 2 ** (octaves + 1))
    rows, columns = max(1, round(height / step)), max(1, round(width / step))
    field = smooth_noise(rng, rows, columns, cell=cell / step, octaves=octaves, decay=decay)
    enlarged: Plane = cv2.resize(field, (width, height), interpolation=cv2.INTER_LINEAR)
    return enlarged


def fraction(plane: Plane) -> Plane:
    """Returns what is left of each value above the whole number below it, in [0, 1)."""
    rest: Plane = np.floor(plane)
    return np.subtract(plane, rest, out=rest)


def ramp(plane: Plane, low: float, high: float) -> Plane:
    """Returns 0 where ``plane`` is ``low``, 1 where it is ``high``, a straight line between and the nearer of the two beyond."""
    result: Plane = plane - np.float32(low)
    result *= np.float32(1.0 / (high - low))
    return np.clip(result, 0.0, 1.0, out=result)


def dust(rng: np.random.Generator, height: int, width: int) -> Plane:
    """Returns white noise in [0, 1), one of 256 values per pixel, which are far cheaper to draw than floats."""
    grains = np.frombuffer(rng.bytes(height * width), np.uint8).reshape(height, width)
    result: Plane = grains * np.float32(1 / 256)
    return result


def relief(surface: Plane, angle: float) -> Plane:
    """Returns how steeply ``surface`` rises away from a light at ``angle`` radians: positive slopes face it."""
    cv2 = opencv()
    across = cv2.Sobel(surface, cv2.CV_32F, 1, 0, scale=0.125 * np.cos(angle))
    down = cv2.Sobel(surface, cv2.CV_32F, 0, 1, scale=0.125 * np.sin(angle))
    slope: Plane = across + down
    return slope


def pick(rng: np.random.Generator, palettes: Sequence[Sequence[Color]]) -> Curve:
    """Returns one of several palettes as a curve: its colours evenly spaced from the darkest tone to the lightest."""
    return gradient(palettes[int(rng.integers(len(palettes)))])


def gradient(colours: Sequence[Color]) -> Curve:
    """Returns a curve of 256 levels through ``colours``, evenly spaced."""
    stops = np.linspace(0.0, 255.0, len(colours))
    return np.stack([np.interp(np.arange(256), stops, channel) for channel in np.transpose(colours)], axis=1)


def printed(plane: Plane, curve: Curve) -> Image:
    """Returns ``plane``, in [0, 1], in the colours of ``curve``."""
    return coloured(levels(plane), curve)


def coloured(grey: NDArray[np.uint8], curve: Curve) -> Image:
    """Returns ``grey``, shape (H, W), in the colours of ``curve``."""
    cv2 = opencv()
    return look_up(cv2.cvtColor(grey, cv2.COLOR_GRAY2RGB), curve)


def levels(plane: Plane) -> NDArray[np.uint8]:
    """Returns ``plane``, in [0, 1], as levels in 0..255, rounded and clipped."""
    cv2 = opencv()
    result: NDArray[np.uint8] = cv2.addWeighted(plane, 255.0, plane, 0.0, 0.0, dtype=cv2.CV_8U)
    return result


def lit(image: Image, light: Plane) -> Image:
    """Returns ``image`` with every pixel multiplied by ``light``."""
    cv2 = opencv()
    result: Image = cv2.multiply(image, three(light), dtype=cv2.CV_8U)
    return result
