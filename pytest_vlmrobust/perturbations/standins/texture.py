"""Texture: pictures pieced together from patches of a texture.

Texture transfer after Efros & Freeman, "Image Quilting for Texture Synthesis and Transfer", SIGGRAPH 2001: patches of a texture
are chosen by how well they correspond to the picture, overlap, and are cut along the path on which they differ least. Here each
patch is chosen by its correspondence alone and not also by its neighbours, so that all are chosen and cut at once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..opencv import opencv
from ..pixels import Color, Image, Plane, smooth_noise
from ..registry import corruption
from .canvas import SOURCE, blurred, grain, pick, printed, ramp, relief, tone
from .cells import means, voronoi

STONES: tuple[tuple[Color, ...], ...] = (
    ((20, 16, 18), (74, 58, 52), (142, 118, 96), (206, 188, 156), (248, 240, 222)),
    ((12, 20, 26), (44, 74, 86), (104, 140, 138), (190, 204, 178), (246, 248, 232)),
    ((22, 14, 26), (92, 52, 70), (168, 104, 92), (222, 176, 136), (250, 238, 218)),
)
"""Pebbles from dark to light."""

CANDIDATES = 1500
STEPS = 64
"""Luminances are compared in whole steps: products of small whole numbers are exact, so no build of a library breaks ties."""


@corruption(family="standin", stochastic=True, changes=["colour"], source=SOURCE)
def standin_quilted_texture(image: Image, rng: np.random.Generator) -> Image:
    """Quilts the picture from patches of a pebble beach chosen by luminance; a procedural stand-in for a diffusion illusion.

    Of 1500 patches of a drawn beach, whose pebbles are darker on one side, each place takes the one whose quarters are most
    nearly as light as the picture there; neighbours are cut along the path on which they differ least.
    """
    height, width = image.shape[:2]
    block = round(grain(height, width, 7.5, least=6.0))
    overlap = block // 2
    rows, columns = -(-height // block), -(-width // block)
    beach = _beach(rng, max(24 * block, 96), block)
    light = np.pad(tone(image), ((0, rows * block - height), (0, columns * block - width)), mode="edge")
    wanted = opencv().resize(light, (2 * columns, 2 * rows), interpolation=opencv().INTER_AREA)
    patches = _chosen(rng, beach, wanted, block, block + overlap)
    quilt = _stitched(patches, block).swapaxes(1, 2).reshape(rows * block, columns * block)
    return printed(np.ascontiguousarray(quilt[:height, :width]), pick(rng, STONES))


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
    lighted = relief(blurred(dome, 0.08 * pebble), np.deg2rad(-125)) * np.float32(-0.25 * pebble)
    beach: Plane = np.clip((shade.take(labels) + grainy - 0.15 * lighted) * (1.0 - gap + gap * ramp(dome, 0.1, 0.8)), 0.0, 1.0)
    return beach


def _chosen(rng: np.random.Generator, source: Plane, wanted: Plane, block: int, patch: int) -> NDArray[np.float32]:
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


def _stitched(patches: NDArray[np.float32], block: int) -> NDArray[np.float32]:
    """Returns what shows of each block, shape (rows, columns, block, block): itself, but at its top and left up to the cuts."""
    overlap = patches.shape[2] - block
    quilt = patches[:, :, :block, :block].copy()
    ours, theirs = quilt[:, 1:, :, :overlap], patches[:, :-1, :block, block:]
    np.copyto(ours, theirs, where=_beyond((ours - theirs) ** 2))
    ours, theirs = quilt[1:, :, :overlap].swapaxes(2, 3), patches[:-1, :, block:, :block].swapaxes(2, 3)
    np.copyto(ours, theirs, where=_beyond((ours - theirs) ** 2))
    return quilt


def _beyond(cost: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Returns where the neighbour shows: before the path of least cost from the first to the last row, shape (..., n, m)."""
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
