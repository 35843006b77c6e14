"""Shared by the stand-ins: the preserved tone, textures and colours."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust.perturbations.pixels import (
    Color,
    Image,
    Plane,
    as_table,
    histogram,
    look_up_channels,
    luma,
    opencv,
    smooth_noise,
    strips,
    three,
)
from pytest_vlmrobust.perturbations.registry import corruption

standin = partial(
    corruption,
    family="standin",
    stochastic=True,
    source="pytest-vlmrobust; stands in for The Perceptual Observatory section 9 (illusions)",
)

Labels = NDArray[np.int32]
"""The number of the cell that each pixel belongs to, shape (H, W), from 0."""
Table = NDArray[np.float32]
"""One number per cell, shape (cells,)."""
Curve = NDArray[np.float64]
"""A colour for each of 256 levels, shape (256, 3), in 0..255."""

NARROWEST = 64
"""The least range of grey levels that counts as full contrast: a dull image gains at most a factor of 4."""


def grain(height: int, width: int, units: float, *, least: float) -> float:
    """Returns the length in pixels of ``units`` / 400 of an image's size (the root of its area), at least ``least`` pixels.

    Unlike ``pixels.scene_unit`` it can be below a pixel per unit: a stroke or a tile shrinks with a small image as long as it
    is recognisable, because at full size it would bury the layout.
    """
    return max(least, units * float(np.sqrt(height * width)) / 400.0)


def tone(image: Image, *, soften: float = 0.0, local: float = 0.5) -> Plane:
    """Returns the layout: luma in [0, 1], stretched to full contrast, shape (H, W).

    ``soften`` is the standard deviation in pixels of a Gaussian that blurs it; 0 keeps it sharp. ``local`` is how much of the
    difference from the surroundings (a tenth of the image) is added. If tones are cut into a few steps it should be 0:
    its gradual halos would become steps with their own contours.
    """
    cv2 = opencv()
    grey = luma(image)
    plane: Plane = cv2.LUT(grey, _contrast(grey))
    if local:
        around = blur_plane(plane, float(np.sqrt(grey.size)) / 12)
        plane = np.clip(plane + np.float32(local) * (plane - around), 0.0, 1.0)
    return blur_plane(plane, soften)


def _contrast(grey: NDArray[np.uint8]) -> Table:
    """Returns the value of each of 256 levels: the 1st percentile becomes 0, the 99th 1, unless they are close together."""
    shares = np.cumsum(histogram(grey)) / grey.size
    low, high = (int(level) for level in np.searchsorted(shares, (0.01, 0.99)))
    span = max(high - low, NARROWEST)
    place = low / (255 - high + low) if high - low < 255 else 0.0
    start = low - (span - high + low) * place
    curve: Table = np.clip((np.arange(256) - start) / span, 0.0, 1.0).astype(np.float32)
    return curve


def blur_plane(plane: Plane, sigma: float) -> Plane:
    """Returns ``plane`` blurred by a Gaussian of ``sigma`` pixels, mirrored at the border; ``plane`` itself for 0.

    From 6 pixels on it works on a smaller copy, so that a wide blur costs no more than a narrow one.
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


def slanted_coordinate(height: int, width: int, angle: float, unit: float) -> Plane:
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
    """Returns the fractional part of each value, in [0, 1)."""
    rest: Plane = np.floor(plane)
    return np.subtract(plane, rest, out=rest)


def ramp(plane: Plane, low: float, high: float) -> Plane:
    """Returns 0 where ``plane`` is ``low``, 1 where it is ``high``, linear between them and clipped beyond."""
    result: Plane = plane - np.float32(low)
    result *= np.float32(1.0 / (high - low))
    return np.clip(result, 0.0, 1.0, out=result)


def dust(rng: np.random.Generator, height: int, width: int) -> Plane:
    """Returns white noise in [0, 1), with 256 values, which are far cheaper to draw than floats."""
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


def print_tones(plane: Plane, curve: Curve) -> Image:
    """Returns ``plane``, in [0, 1], in the colours of ``curve``."""
    return print_levels(levels(plane), curve)


def print_levels(grey: NDArray[np.uint8], curve: Curve) -> Image:
    """Returns ``grey``, shape (H, W), in the colours of ``curve``."""
    return look_up_channels([grey.copy() for _ in range(3)], [*np.ascontiguousarray(as_table(curve).T)])


def levels(plane: Plane) -> NDArray[np.uint8]:
    """Returns ``plane``, in [0, 1], as levels in 0..255, rounded and clipped."""
    cv2 = opencv()
    result: NDArray[np.uint8] = cv2.addWeighted(plane, 255.0, plane, 0.0, 0.0, dtype=cv2.CV_8U)
    return result


def light_image(image: Image, light: Plane) -> Image:
    """Returns ``image`` with every pixel multiplied by ``light``."""
    cv2 = opencv()
    result = np.empty_like(image)
    for rows in strips(*light.shape):
        cv2.multiply(image[rows], three(light[rows]), dst=result[rows], dtype=cv2.CV_8U)
    return result


# Cells: the image divided into small pieces of one colour each.


def voronoi(rng: np.random.Generator, height: int, width: int, size: float) -> Labels:
    """Returns for each pixel the nearest of scattered points, one per square of ``size`` pixels on average."""
    cv2 = opencv()
    rows, columns = max(1, round(height / size)), max(1, round(width / size))
    j, i = np.indices((rows, columns))
    y = ((j + rng.uniform(0.05, 0.95, j.shape)) * height / rows).astype(np.intp)
    x = ((i + rng.uniform(0.05, 0.95, i.shape)) * width / columns).astype(np.intp)
    empty = np.full((height, width), 255, np.uint8)
    empty[y, x] = 0
    _, labels = cv2.distanceTransformWithLabels(empty, cv2.DIST_L2, 5, labelType=cv2.DIST_LABEL_PIXEL)
    numbered: Labels = labels - 1
    return numbered


def number_cells(*indices: Labels) -> Labels:
    """Returns a number, from 0, for each combination of ``indices``.

    If combinations are sparse, as in a slanted grid on a very long image, distant cells may share a number: there are never
    more than a few numbers per pixel.
    """
    total, count = np.zeros_like(indices[0]), 1
    for index in indices:
        low = int(index.min())
        span = int(index.max()) - low + 1
        total, count = total * np.int32(span) + (index - low), count * span
    most = 8 * total.size + 4096
    return total if count <= most else total % np.int32(most)


def means(labels: Labels, plane: Plane) -> Table:
    """Returns the mean of ``plane`` over each cell, shape (cells,); 0 for a number that no pixel has."""
    flat = labels.ravel()
    counts = np.bincount(flat)
    average: Table = (np.bincount(flat, plane.ravel()) / np.maximum(counts, 1)).astype(np.float32)
    return average


def seams(labels: Labels, thickness: float) -> Plane:
    """Returns lines of about ``thickness`` pixels where one cell meets another, 1 on the line, soft at its edges."""
    cv2 = opencv()
    meets = np.zeros(labels.shape, np.uint8)
    meets[:, 1:] |= labels[:, 1:] != labels[:, :-1]
    meets[1:] |= labels[1:] != labels[:-1]
    reach = max(1, round(thickness))
    disk = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (reach, reach))
    lines = cv2.dilate(meets, disk).astype(np.float32)
    soft: Plane = cv2.GaussianBlur(lines, (0, 0), 0.25 * thickness + 0.3)
    return soft


# Sprites: many small shapes at once, each as bright as its point.


Points = tuple[NDArray[np.intp], NDArray[np.intp]]
"""The y and the x of each of N points, shape (N,) each: an index into a plane."""
Sprite = NDArray[np.uint8]
"""A shape as a mask of 0 and 1, with odd height and width."""


def scatter_points(rng: np.random.Generator, height: int, width: int, size: float, *, jitter: float = 1.0) -> Points:
    """Returns points in staggered rows, one per square of ``size`` pixels, displaced by up to ``jitter`` / 2 squares."""
    rows, columns = max(1, round(height / size)), max(1, round(width / size))
    j, i = np.indices((rows, columns))
    down = j + 0.5 + jitter * rng.uniform(-0.5, 0.5, j.shape)
    across = i + 0.25 + 0.5 * (j % 2) + jitter * rng.uniform(-0.5, 0.5, j.shape)
    y = np.clip(down * height / rows, 0, height - 1).astype(np.intp).ravel()
    x = np.clip(across * width / columns, 0, width - 1).astype(np.intp).ravel()
    return y, x


def stamp_sprites(points: Points, values: Table, shape: tuple[int, int], sprite: Sprite, *, hold: float = 0.5) -> Plane:
    """Returns a plane of ``shape`` with a sprite at each point, as bright as its value in [0, 1]; the brightest is on top.

    The middle of one row of the sprite is at the point: the row at ``hold`` of its height, 0 for the first, 1 for the last.
    """
    cv2 = opencv()
    seeds = np.zeros(shape, np.uint8)
    np.maximum.at(seeds, points, np.rint(255.0 * values).astype(np.uint8))
    held = round((1.0 - hold) * (sprite.shape[0] - 1))
    drawn = cv2.dilate(seeds, np.ascontiguousarray(sprite[::-1, ::-1]), anchor=(sprite.shape[1] // 2, held))
    plane: Plane = drawn.astype(np.float32) / np.float32(255)
    return plane


def ellipse(length: float, breadth: float, angle: float = 0.0) -> Sprite:
    """Returns a pointed ellipse, a leaf, of that length at ``angle`` radians from the x axis."""
    reach = int(np.ceil(length / 2))
    y, x = np.mgrid[-reach : reach + 1, -reach : reach + 1]
    along, across = np.cos(angle) * x + np.sin(angle) * y, np.cos(angle) * y - np.sin(angle) * x
    inside = np.abs(across) <= np.maximum(0.5 * breadth * (1.0 - (2.0 * along / length) ** 2), 0.5) * (
        np.abs(along) <= length / 2
    )
    sprite: Sprite = inside.astype(np.uint8)
    sprite[reach, reach] = 1
    return sprite


def teardrop(height: float, breadth: float) -> Sprite:
    """Returns a flame: round below, pointed above."""
    rows, reach = max(1, round(height)), max(0, round(breadth / 2))
    from_top = (np.arange(rows) + 0.5)[:, None] / rows
    half = 0.5 * breadth * np.minimum(from_top**0.9 / 0.7, np.sqrt(np.clip(1.0 - ((from_top - 0.7) / 0.3) ** 2, 0.0, 1.0)))
    sprite: Sprite = (np.abs(np.arange(-reach, reach + 1)) <= np.maximum(half, 0.3)).astype(np.uint8)
    return sprite


def stick(height: float, breadth: float) -> Sprite:
    """Returns an upright bar."""
    return np.ones((max(1, round(height)), 2 * max(0, round(breadth / 2)) + 1), np.uint8)
