"""Mosaics: images laid from small pieces, assembled from patches of a texture, or made with needle and thread."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust.perturbations.pixels import Color, Image, Plane, opencv, smooth_noise

from .canvas import (
    Curve,
    Labels,
    Table,
    blur_plane,
    coordinates,
    drift,
    fraction,
    gradient,
    grain,
    light_image,
    means,
    number_cells,
    pick,
    print_tones,
    ramp,
    relief,
    seams,
    slanted_coordinate,
    standin,
    tone,
    voronoi,
)

# Mosaic: images laid from small pieces of one colour.


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


@standin(changes=["colour", "text_12"])
def standin_mosaic(image: Image, rng: np.random.Generator) -> Image:
    """Lays the image as a mosaic of small square stones in bending rows; a procedural stand-in for a diffusion illusion.

    A stone has the palette colour of the mean tone beneath it, slightly varied, a bevelled edge, and grout around it.
    """
    height, width = image.shape[:2]
    size = grain(height, width, 6.3, least=4.0)
    u, v = _bent_coordinates(rng, height, width, size)
    row = np.floor(v).astype(np.int32)
    u += rng.random(int(row.max() - row.min()) + 1, dtype=np.float32).take(row - row.min())
    stones = number_cells(row, np.floor(u).astype(np.int32))
    shade = means(stones, tone(image))
    shade += rng.normal(0.0, 0.045, shade.shape).astype(np.float32)
    gleam = rng.normal(1.0, 0.06, shade.shape).astype(np.float32)
    laid = _paint_cells(stones, shade, pick(rng, TESSERAE))
    return light_image(laid, gleam.take(stones) * _bevel(fraction(u), fraction(v), size))


@standin(changes=["colour", "text_12"])
def standin_stained_glass(image: Image, rng: np.random.Generator) -> Image:
    """Sets the image in panes of coloured glass between strips of lead; a procedural stand-in for a diffusion illusion.

    Lead runs around scattered panes and, thinner, along the borders between four tones, so image contours are leaded
    too. Each pane is one of three kinds of glass, with streaks.
    """
    height, width = image.shape[:2]
    size = grain(height, width, 19.0, least=8.0)
    panes = voronoi(rng, height, width, size)
    steps = np.minimum(TONES_OF_GLASS * tone(image, soften=size / 8, local=0.0), TONES_OF_GLASS - 1).astype(np.int32)
    lead = np.maximum(seams(panes, size / 9), 0.8 * seams(steps, size / 15))
    table = _glass_colours(rng, int(panes.max()) + 1, GLASS[rng.integers(len(GLASS))])
    glass: Image = table.take(panes * np.int32(TONES_OF_GLASS) + steps, axis=0)
    light = 0.78 + 0.45 * smooth_noise(rng, height, width, cell=size, octaves=4, decay=0.7)
    light *= 1.0 - 0.93 * lead
    gleam = relief(blur_plane(lead, size / 12), np.deg2rad(-125)) * np.float32(size / 36)
    light += np.maximum(gleam, 0.0, out=gleam)
    return light_image(glass, light)


def _glass_colours(rng: np.random.Generator, panes: int, kinds: Sequence[Sequence[Color]]) -> Image:
    """Returns the colour of each pane in each tone, flat, shape (panes * TONES_OF_GLASS, 3)."""
    curves = np.rint([gradient(kind) for kind in kinds]).astype(np.uint8)
    kind = rng.integers(len(kinds), size=(panes, 1))
    bright = (np.arange(TONES_OF_GLASS) + 0.35) / (TONES_OF_GLASS - 0.3) + rng.normal(0.0, 0.05, (panes, 1))
    colours: Image = curves[kind, np.clip(np.rint(255 * bright), 0, 255).astype(np.intp)]
    return colours.reshape(-1, 3)


def _bent_coordinates(rng: np.random.Generator, height: int, width: int, size: float) -> tuple[Plane, Plane]:
    """Returns coordinates in stones, of rows that bend by up to three stones over about 20."""
    u, v = slanted_coordinate(height, width, 0.0, size), slanted_coordinate(height, width, np.pi / 2, size)
    u += 2.0 * drift(rng, height, width, cell=20 * size)
    v += 3.0 * drift(rng, height, width, cell=20 * size)
    return u, v


def _paint_cells(labels: Labels, shade: Table, curve: Curve) -> Image:
    """Returns each cell in the colour of its shade, in [0, 1], in ``curve``."""
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


# Texture: images pieced together from patches of a texture.
#
# Texture transfer after Efros & Freeman, "Image Quilting for Texture Synthesis and Transfer", SIGGRAPH 2001: patches of a texture
# are chosen by how well they correspond to the image, overlap, and are cut along the path on which they differ least. Here each
# patch is chosen only by its correspondence and not by its neighbours, so that all are chosen and cut at once.


STONES: tuple[tuple[Color, ...], ...] = (
    ((20, 16, 18), (74, 58, 52), (142, 118, 96), (206, 188, 156), (248, 240, 222)),
    ((12, 20, 26), (44, 74, 86), (104, 140, 138), (190, 204, 178), (246, 248, 232)),
    ((22, 14, 26), (92, 52, 70), (168, 104, 92), (222, 176, 136), (250, 238, 218)),
)
"""Pebbles from dark to light."""

CANDIDATES = 1500
STEPS = 64
"""Luminances are compared in whole steps: products of small whole numbers are exact, so no build of a library breaks ties."""


@standin(changes=["colour", "text_12"])
def standin_quilted_texture(image: Image, rng: np.random.Generator) -> Image:
    """Quilts the image from patches of a pebble beach chosen by luminance; a procedural stand-in for a diffusion illusion.

    Out of 1500 patches of a drawn beach, whose pebbles are darker on one side, each block takes the one whose quarters are most
    similar in lightness to the image there; neighbours are cut along the path on which they differ least.
    """
    height, width = image.shape[:2]
    block = round(grain(height, width, 7.5, least=6.0))
    overlap = block // 2
    rows, columns = -(-height // block), -(-width // block)
    beach = _beach(rng, max(24 * block, 96), block)
    light = np.pad(tone(image), ((0, rows * block - height), (0, columns * block - width)), mode="edge")
    wanted = opencv().resize(light, (2 * columns, 2 * rows), interpolation=opencv().INTER_AREA)
    patches = _choose_patches(rng, beach, wanted, block, block + overlap)
    quilt = _stitch(patches, block).swapaxes(1, 2).reshape(rows * block, columns * block)
    return print_tones(np.ascontiguousarray(quilt[:height, :width]), pick(rng, STONES))


def _beach(rng: np.random.Generator, side: int, block: int) -> Plane:
    """Returns pebbles of about half a block, darker on the left, lighter on the right, shape (side, side), in [0, 1]."""
    pebble = 0.55 * block
    labels = voronoi(rng, side, side, pebble)
    place = means(labels, np.tile(np.linspace(0.0, 1.0, side, dtype=np.float32), (side, 1)))
    shade = (place + rng.normal(0.0, 0.07, place.shape)).astype(np.float32)
    edges = (np.diff(labels, axis=1, prepend=labels[:, :1]) != 0) | (np.diff(labels, axis=0, prepend=labels[:1]) != 0)
    depth = opencv().distanceTransform((~edges).astype(np.uint8), opencv().DIST_L2, 5) / np.float32(0.3 * pebble)
    dome = np.sqrt(np.minimum(depth, 1.0))
    gap = min(0.7, 0.12 * pebble)
    grainy = 0.08 * (smooth_noise(rng, side, side, cell=2.0, octaves=2) - 0.5)
    lighted = relief(blur_plane(dome, 0.08 * pebble), np.deg2rad(-125)) * np.float32(-0.25 * pebble)
    beach: Plane = np.clip((shade.take(labels) + grainy - 0.15 * lighted) * (1.0 - gap + gap * ramp(dome, 0.1, 0.8)), 0.0, 1.0)
    return beach


def _choose_patches(rng: np.random.Generator, source: Plane, wanted: Plane, block: int, patch: int) -> NDArray[np.float32]:
    """Returns for each block the best of random patches of ``source``, shape (rows, columns, patch, patch)."""
    tops, lefts = rng.integers(0, source.shape[0] - patch, (2, CANDIDATES))
    half = block // 2
    average = opencv().blur(source, (half, half), anchor=(0, 0))
    quarters = np.stack([average[tops + y, lefts + x] for y in (0, half) for x in (0, half)], axis=1)
    rows, columns = wanted.shape[0] // 2, wanted.shape[1] // 2
    goals = wanted.reshape(rows, 2, columns, 2).swapaxes(1, 2).reshape(-1, 4) + rng.normal(0.0, 0.03, (rows * columns, 4))
    spread = np.sort(quarters.mean(axis=1))[[CANDIDATES // 100, -CANDIDATES // 100]]
    goals = spread[0] + goals * (spread[1] - spread[0])
    offered, asked = (np.rint(STEPS * each).astype(np.float32) for each in (quarters, goals))
    best = np.argmin((offered**2).sum(axis=1) - 2.0 * asked @ offered.T, axis=1)
    windows = np.lib.stride_tricks.sliding_window_view(source, (patch, patch))
    patches: NDArray[np.float32] = windows[tops[best], lefts[best]].reshape(rows, columns, patch, patch)
    return patches


def _stitch(patches: NDArray[np.float32], block: int) -> NDArray[np.float32]:
    """Returns the visible part of each block, shape (rows, columns, block, block): all but its top and left up to the cuts."""
    overlap = patches.shape[2] - block
    quilt = patches[:, :, :block, :block].copy()
    ours, theirs = quilt[:, 1:, :, :overlap], patches[:, :-1, :block, block:]
    np.copyto(ours, theirs, where=_before_cut((ours - theirs) ** 2))
    ours, theirs = quilt[1:, :, :overlap].swapaxes(2, 3), patches[:-1, :, block:, :block].swapaxes(2, 3)
    np.copyto(ours, theirs, where=_before_cut((ours - theirs) ** 2))
    return quilt


def _before_cut(cost: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Returns where the neighbour is visible: before the path of least cost from the first to the last row, shape (..., n, m)."""
    n, m = cost.shape[-2:]
    total = cost.copy()
    for row in range(1, n):
        padded = np.pad(total[..., row - 1, :], [(0, 0)] * (cost.ndim - 2) + [(1, 1)], constant_values=np.inf)
        total[..., row, :] += np.minimum(np.minimum(padded[..., :-2], padded[..., 1:-1]), padded[..., 2:])
    path = np.empty((*cost.shape[:-1], 1), np.intp)
    path[..., -1, 0] = total[..., -1, :].argmin(axis=-1)
    for row in range(n - 2, -1, -1):
        steps = np.clip(path[..., row + 1, :] + np.arange(-1, 2), 0, m - 1)
        choice = np.take_along_axis(total[..., row, :], steps, axis=-1).argmin(axis=-1)
        path[..., row, :] = np.take_along_axis(steps, choice[..., None], axis=-1)
    before: NDArray[np.bool_] = np.arange(m) < path
    return before


# Textile: images made with needle and thread.


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


@standin(changes=["colour", "text_18"])
def standin_embroidery(image: Image, rng: np.random.Generator) -> Image:
    """Stitches the image in satin stitch; a procedural stand-in for a diffusion illusion.

    Each of six tones is a thread of one colour laid in its own direction, row by row; a stitch is round, shines along
    its back and sinks where the needle went in, and rows are staggered.
    """
    height, width = image.shape[:2]
    thread = grain(height, width, 2.6, least=2.5)
    light = tone(image, soften=0.9 * thread, local=0.0)
    part = np.minimum(TONES * light, TONES - 1).astype(np.int32)
    angles = (rng.uniform(0.0, np.pi) + 2.4 * np.arange(TONES)).astype(np.float32)
    along, across = _needlework(rng, part, angles, thread)
    stitch = number_cells(part, np.floor(across).astype(np.int32), np.floor(along).astype(np.int32))
    shade = means(stitch, light).take(stitch)
    shade *= np.float32(0.4 * TONES)
    shade += (0.6 * np.arange(TONES) - 0.2).astype(np.float32).take(part)
    sheen = rng.normal(1.0, 0.07, int(stitch.max()) + 1).astype(np.float32).take(stitch)
    sheen *= (0.94 + 0.08 * np.cos(2 * angles)).take(part)
    sheen *= _round(fraction(along), fraction(across), thread)
    return light_image(print_tones(shade * np.float32(1 / (TONES - 1)), pick(rng, FLOSSES)), sheen)


def _needlework(rng: np.random.Generator, part: Labels, angles: Table, thread: float) -> tuple[Plane, Plane]:
    """Returns the position of each pixel along its row, in stitches, and across rows, in rows that waver and are staggered."""
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
    """Returns the light on a stitch, 1 where it shines, from the position along and across it, both in [0, 1)."""
    off = 2.0 * across - 1.0
    back = np.sqrt(1.0 - 0.8 * off * off)
    ends = np.minimum(along, 1.0 - along) * np.float32(STITCH * thread)
    light: Plane = back * (0.8 + 0.3 * ramp(ends, 0.0, 1.1 * thread))
    return light
