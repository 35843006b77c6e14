"""Images made by hand: from small pieces, patches of a texture, thread, ink, folded paper, or brush strokes."""

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
    levels,
    light_image,
    means,
    number_cells,
    pick,
    print_levels,
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
    candidates, targets = (np.rint(STEPS * values).astype(np.float32) for values in (quarters, goals))
    best = np.argmin((candidates**2).sum(axis=1) - 2.0 * targets @ candidates.T, axis=1)
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


# Print: images made of ink on paper.


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


@standin(changes=["colour"])
def standin_halftone(image: Image, rng: np.random.Generator) -> Image:
    """Prints the image as a halftone of two inks on paper; a procedural stand-in for a diffusion illusion.

    Each ink is a screen of round dots whose size follows the tone: the light ink everywhere but in the lights, the dark ink in
    the shadows. Screens are at 45 and 75 degrees to avoid moire, with a random phase.
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
    return print_levels(overprint, mixed.reshape(256, 3))


@standin(changes=["colour"])
def standin_cross_hatching(image: Image, rng: np.random.Generator) -> Image:
    """Draws the image in pen and ink by layers of crossing lines; a procedural stand-in for a diffusion illusion.

    Four layers in four directions begin one after another as the tone darkens; lines waver, swell with the shadow and lift
    off the paper. Contours are inked where the tone changes quickly.
    """
    height, width = image.shape[:2]
    spacing = grain(height, width, 4.2, least=3.6)
    light = tone(image, soften=0.25 * spacing)
    grip = light + 0.16 * drift(rng, height, width, cell=5 * spacing, octaves=2)
    # on the dark side of each edge, as thick as a line
    ink = ramp(blur_plane(light, 0.5 * spacing) - blur_plane(light, 0.2 * spacing), 0.03, 0.1)
    start = rng.uniform(0, np.pi)
    for angle, lightest in ((0.0, 1.14), (1.0, 0.68), (2.1, 0.46), (0.5, 0.28)):
        lines = _hatch(rng, grip, spacing, start + angle, lightest)
        np.maximum(ink, lines, out=ink)
    fibres = smooth_noise(rng, height, width, cell=1.2 * spacing, octaves=2)
    return print_tones((1.0 - 0.08 * fibres) * (1.0 - ink), gradient(PENS[rng.integers(len(PENS))]))


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
    place = slanted_coordinate(height, width, angle, spacing)
    place += 0.9 * drift(rng, height, width, cell=16 * spacing, octaves=2)
    from_line = np.abs(fraction(place) - np.float32(0.5))
    swell = ramp(light, lightest, lightest - 0.45)
    ink: Plane = np.minimum(swell * np.float32(1.25 * spacing), 1.0)
    swell *= np.float32(0.32 * spacing)
    swell -= from_line * np.float32(spacing)
    swell += np.float32(0.5)
    ink *= np.clip(swell, 0.0, 1.0, out=swell)
    return ink


# Paper: images folded and cut from coloured sheets.


SHEETS: tuple[tuple[Color, ...], ...] = (
    ((40, 54, 92), (74, 112, 152), (150, 186, 196), (242, 204, 168), (252, 244, 232)),
    ((96, 32, 48), (190, 78, 76), (236, 146, 110), (248, 206, 158), (255, 246, 230)),
    ((26, 70, 66), (62, 128, 108), (140, 188, 144), (222, 222, 160), (252, 250, 230)),
    ((62, 42, 92), (128, 88, 150), (206, 136, 172), (246, 190, 186), (255, 240, 234)),
)
"""Five sheets from the lowest, and darkest, to the uppermost."""


@standin(changes=["colour", "text_12"])
def standin_origami(image: Image, rng: np.random.Generator) -> Image:
    """Folds the image from sheets of coloured paper; a procedural stand-in for a diffusion illusion.

    Five tones become stacked sheets that cast shadows; triangular facets with sharp creases tilt to the light.
    """
    height, width = image.shape[:2]
    size = grain(height, width, 24.0, least=8.0)
    sheet = np.minimum(np.floor(5.0 * tone(image, soften=size / 11, local=0.0)), 4.0)
    shade = _facets(rng, height, width, size)
    shade *= 0.95 + 0.1 * smooth_noise(rng, height, width, cell=1.5 + size / 10)
    above = _shift(blur_plane(sheet, size / 12), size / 7) - sheet
    shade *= 1.0 - 0.5 * np.clip(above, 0.0, 1.0, out=above)
    return light_image(print_tones(blur_plane(sheet, 0.5) * np.float32(0.25), pick(rng, SHEETS)), shade)


def _facets(rng: np.random.Generator, height: int, width: int, size: float) -> Plane:
    """Returns the light on irregular triangular facets of about ``size`` pixels, with bright and dark creases, around 0.9."""
    across = slanted_coordinate(height, width, np.pi / 6, 0.87 * size) + 1.1 * _crumple(rng, height, width, 1.5 * size)
    down = slanted_coordinate(height, width, np.pi / 2, 0.86 * size) + 1.1 * _crumple(rng, height, width, 1.5 * size)
    u, v = fraction(across), fraction(down)
    fold = u + v - np.float32(1.0)
    facets = number_cells(np.floor(across).astype(np.int32), np.floor(down).astype(np.int32), (fold > 0).astype(np.int32))
    light: Plane = rng.uniform(0.72, 1.1, int(facets.max()) + 1).astype(np.float32).take(facets)
    edge = np.minimum(np.minimum(np.minimum(u, 1.0 - u), np.minimum(v, 1.0 - v)), np.abs(fold))
    crease = np.clip(1.0 - edge * np.float32(size / 1.5), 0.0, 1.0)
    light += np.where(fold > 0, np.float32(0.12), np.float32(-0.12)) * crease
    return light


def _crumple(rng: np.random.Generator, height: int, width: int, size: float) -> Plane:
    """Returns a field in [-0.5, 0.5) that is straight between random values on a grid of ``size`` pixels, so that folds are."""
    grid = rng.random((max(1, round(height / size)), max(1, round(width / size))), dtype=np.float32) - np.float32(0.5)
    field: Plane = opencv().resize(grid, (width, height), interpolation=opencv().INTER_LINEAR)
    return field


def _shift(plane: Plane, pixels: float) -> Plane:
    step = max(1, round(pixels))
    return np.pad(plane, ((step, 0), (step, 0)), mode="edge")[:-step, :-step]


# Paint: images made of brush strokes.


OILS: tuple[tuple[Color, ...], ...] = (
    ((14, 22, 60), (30, 62, 140), (72, 128, 176), (226, 190, 88), (252, 240, 186)),
    ((40, 24, 20), (110, 58, 34), (190, 120, 54), (226, 190, 120), (250, 238, 210)),
    ((20, 40, 34), (44, 96, 66), (140, 160, 70), (236, 200, 110), (252, 240, 214)),
    ((44, 20, 52), (126, 50, 96), (216, 106, 92), (250, 180, 110), (255, 238, 196)),
)
"""Oil colours from dark to light."""

FINEST = 5.0
"""A brush is at most this many pixels wide while strokes are drawn: they are smooth enough to be enlarged afterwards."""


@standin(changes=["colour", "text_12"])
def standin_oil_paint(image: Image, rng: np.random.Generator) -> Image:
    """Paints the image in oil with thick strokes along its contours; a procedural stand-in for a diffusion illusion.

    Dabs of uneven colour are smeared along the direction of least tone change, or along eddies where it does not
    change, and light from above rakes over their ridges.
    """
    cv2 = opencv()
    height, width = image.shape[:2]
    brush = grain(height, width, 3.0, least=2.0)
    shrink = min(1.0, FINEST / brush)
    small = max(1, round(shrink * width)), max(1, round(shrink * height))
    light = cv2.resize(tone(image), small, interpolation=cv2.INTER_AREA)
    strokes = _strokes(rng, blur_plane(light, 0.5 * shrink * brush), shrink * brush)
    shade, ridges = cv2.split(cv2.resize(strokes, (width, height), interpolation=cv2.INTER_CUBIC))
    paint = print_tones(shade + 0.07 * ridges, pick(rng, OILS))
    return light_image(paint, 1.0 + np.clip(relief(ridges, np.deg2rad(-110)) * np.float32(0.25 * brush), -0.25, 0.25))


def _strokes(rng: np.random.Generator, light: Plane, brush: float) -> NDArray[np.float32]:
    """Returns the tone and the height of the paint, the latter with a deviation of 1, shape (H, W, 2).

    Both are averaged along the flow over about six brush widths, in two steps; the second is three times as long.
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
    cosine = blur_plane(down * down - across * across, 2.5 * brush) + faint * np.cos(eddy)
    sine = blur_plane(-2.0 * across * down, 2.5 * brush) + faint * np.sin(eddy)
    angle = 0.5 * cv2.phase(cosine, sine)
    return np.cos(angle), np.sin(angle)
