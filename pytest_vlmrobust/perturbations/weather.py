"""Weather: fog, frost, snow, rain and dirt between lens and scene.

The paper gives an intensity each and no algorithm. All textures are procedural (photographs of frost would bring their own
licences), drawn anew for each sample, and scale with the image: a unit is 1/400 of its size, at least a pixel, and counts
are those of a whole image of 400 units or more. No intensity hides the whole image: at mid and high, no weather is among the
published five most harmful corruptions of any model.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust.core.fingerprint import rng_for

from .pixels import (
    ALL_LEVELS,
    Color,
    Image,
    Levels,
    Plane,
    as_table,
    extrapolate,
    luma,
    opencv,
    overlay,
    pointwise,
    ramp,
    scene_share,
    scene_unit,
    smooth_noise,
    translate,
)
from .registry import corruption, graded

HAZE: Color = (206, 210, 216)
ICE: Color = (222, 234, 244)
FLAKE: Color = (232, 236, 242)
DROP: Color = (208, 214, 222)
MUD: Color = (94, 74, 50)

SUBPIXEL_BITS = 4
DROPS = 6_000
"""Most drops that fall on an image."""

FERN_UNIT = 1.0
"""Pixels to a unit on the sheet of ferns; fibres are a unit wide."""
FERN_SHEET = 1_000
"""Sides of the sheet of ferns in pixels: six scenes of 400 x 400 units."""

DROP_UNIT = 0.5
"""Points of the grid that drops are drawn on to a unit."""
DEPTH_STEPS = 24
"""Steps per unit for depths of drops, stored in a byte."""

Segments = NDArray[np.float64]
"""Line segments in pixels, shape (N, 2, 2): start and end, x and y."""


_weather = partial(
    corruption, family="weather", source="VLM-RobustBench Table 29; after Hendrycks & Dietterich 2019", stochastic=True
)


@_weather(levels=graded(intensity=(0.2, 0.6, 1.0)), changes={"mid": ["colour"], "high": ["colour"]}, version=3)
def fog(image: Image, rng: np.random.Generator, *, intensity: float) -> Image:
    """Lays uneven haze over the image: opacity between 0.4 and 0.9 of ``intensity``, from clouds up to a third of it wide.

    Table 29 calls the number an opacity, and so it is here. Albumentations' ``fog_coef`` is none: it lays disks of opacity 0.08
    over each other, and changes the photograph of the tests by a third to a half of this. At ``mid`` this changes it as much as
    severity 1 of Hendrycks & Dietterich, at ``high`` more than their severity 5. Theirs dims bright images: a white page
    changes less than half as much here. The haze is grey, so that it shows there too (``studies/declarations/strength.py``).
    """
    height, width = image.shape[:2]
    clouds = smooth_noise(rng, height, width, cell=max(height, width) / 3, octaves=6)
    return overlay(image, HAZE, opencv().convertScaleAbs(clouds, alpha=255 * 0.5 * intensity, beta=255 * 0.4 * intensity))


@_weather(levels=graded(intensity=(0.2, 0.6, 1.0)), changes={"mid": ["colour"], "high": ["colour"]}, version=3)
def frost(image: Image, rng: np.random.Generator, *, intensity: float) -> Image:
    """Lays a frosted window over the image: ferns of ice on patchy rime, thicker at the edges, opaque up to ``intensity``.

    At ``high`` a photograph changes nearly as much as at severity 1 of Hendrycks & Dietterich, a white page as much as at 4
    (``studies/declarations/strength.py``); they mix in a photograph of ice with a weight of 0.4 to 0.75. Opacity, which is the
    paper's word for the number, would hide everything at 1.0, and no weather is published that costs so much.

    Rime is drawn for each sample. Ferns are a random part of a fixed large sheet, randomly mirrored, because drawing them takes
    fifty times as long as the rest.
    """
    cv2 = opencv()
    height, width = image.shape[:2]
    unit = scene_unit(height, width)
    tall, wide = _coarse(height, width, 6.0 * unit)  # the smallest patches of rime are 14 units wide
    patches = smooth_noise(rng, tall, wide, cell=110 * unit * wide / width, octaves=4)
    rime = np.clip(2.6 * patches + 0.8 * _edges(tall, wide) - 0.9, 0.0, 1.0)
    rime_levels = _enlarge(cv2.convertScaleAbs(rime, alpha=255.0), height, width)
    growth = translate(rime_levels.copy(), ramp(1.5))
    opacity = cv2.multiply(_ferns(rng, height, width), growth, scale=0.8 * intensity / 255)
    opacity = cv2.add(opacity, translate(rime_levels, ramp(0.45 * intensity)), dst=opacity)
    return overlay(image, ICE, translate(opacity, ramp(1.0, 0.95 * intensity * 255)))


@_weather(levels=graded(intensity=(0.1, 0.3, 0.5)), changes={"mid": ["colour"], "high": ["colour"]}, version=3)
def snow(image: Image, rng: np.random.Generator, *, intensity: float) -> Image:
    """Adds soft flakes of three sizes drifting in one direction, and the pale light of a day of snow.

    ``intensity`` is the density: 800 flakes at 0.1, and a tenth of the way to a pale grey. Large flakes are near the lens, so
    out of focus. Flakes are a little darker than paper, so that they show on white pages too, as they do against a bright sky.
    """
    cv2 = opencv()
    height, width = image.shape[:2]
    unit = scene_unit(height, width)
    angle = rng.uniform(np.pi / 4, 3 * np.pi / 4)
    grey = cv2.cvtColor(translate(luma(image), ALL_LEVELS // 2 + 112), cv2.COLOR_GRAY2RGB)
    pale = extrapolate(image, grey, 1.0 - intensity)
    opacity = np.zeros((height, width), np.uint8)
    sizes = ((1.0, 0.6, 1.0), (2.0, 0.3, 0.9), (4.5, 0.1, 0.75))
    for layer_rng, (size, share, strength) in zip(rng.spawn(len(sizes)), sizes, strict=True):
        count = 8_000 * intensity * share * scene_share(height, width)
        flakes = _flakes(layer_rng, height, width, count, size=size * unit, angle=angle, bright=round(255 * strength))
        np.maximum(opacity, flakes, out=opacity)
    return overlay(pale, FLAKE, opacity)


@_weather(levels=graded(intensity=(0.1, 0.3, 0.5)), source="VLM-RobustBench Table 29", version=3)
def rain(image: Image, rng: np.random.Generator, *, intensity: float) -> Image:
    """Adds translucent streaks within 20 degrees of the vertical, fading towards their ends, and dims the scene.

    ``intensity`` is the density: 300 streaks at 0.1, and brightness reduced by 3 percent. Albumentations'
    ``RandomRain`` is no reference for a density: at any number of drops it blurs the whole image and darkens it to 0.7, by
    which a photograph changes more than here at ``high``.
    """
    cv2 = opencv()
    height, width = image.shape[:2]
    unit = scene_unit(height, width)
    slope = np.tan(rng.uniform(-np.pi / 9, np.pi / 9))
    dim = pointwise(image, lambda values: cv2.convertScaleAbs(values, alpha=1.0 - 0.3 * intensity))
    opacity = np.zeros((height, width), np.uint8)
    lengths = ((10.0, 0.4), (18.0, 0.6), (28.0, 0.8))
    for layer_rng, (length, strength) in zip(rng.spawn(len(lengths)), lengths, strict=True):
        count = 1_000 * intensity * scene_share(height, width)
        drops = _streaks(layer_rng, height, width, count, length=length * unit, slope=slope, bright=round(255 * strength))
        np.maximum(opacity, _thicken(drops, max(1, round(length / 24 * unit + 0.25)), 1), out=opacity)
    return overlay(dim, DROP, cv2.GaussianBlur(opacity, (0, 0), max(0.3, 0.22 * unit)))


@_weather(levels=graded(intensity=(0.1, 0.3, 0.5)), version=3)
def spatter(image: Image, rng: np.random.Generator, *, intensity: float) -> Image:
    """Splashes muddy water on the lens: ragged splashes that cover a share ``intensity`` of the image, opacity 0.4 to 0.7.

    Coverage is the paper's word. Opaque drops over half of the image would be among the worst corruptions published, where
    spatter does not appear. Mud is thickest at the rim of a splash, where it dries last. What a level covers, the next covers
    too.
    """
    cv2 = opencv()
    height, width = image.shape[:2]
    unit = scene_unit(height, width)
    tall, wide = _coarse(height, width, unit / DROP_UNIT)  # coarse shapes; edges are sharpened afterwards
    stains = smooth_noise(rng, tall, wide, cell=30 * DROP_UNIT, octaves=4, decay=0.7)
    depth = _depth(_splashes(rng, tall, wide, intensity, scene_share(height, width)))
    depths = (ALL_LEVELS - 128.0) / DEPTH_STEPS
    covered = np.clip(depths * unit + 0.5, 0.0, 1.0)
    rim = np.exp(-np.abs(depths - 1.0) / 1.5)
    levels = _enlarge(np.clip(np.rint(128.0 + DEPTH_STEPS * depth), 0, 255).astype(np.uint8), height, width)
    stained = translate(levels.copy(), as_table(255.0 * covered))
    stained = cv2.multiply(stained, _enlarge(cv2.convertScaleAbs(stains, alpha=255.0), height, width), scale=0.15 / 255)
    return overlay(image, MUD, cv2.add(translate(levels, as_table(255.0 * covered * (0.4 + 0.15 * rim))), stained))


def _coarse(height: int, width: int, step: float) -> tuple[int, int]:
    """Returns height and width of a grid with a point per ``step`` pixels, at least 1."""
    return max(1, round(height / step)), max(1, round(width / step))


def _enlarge(levels: Levels, height: int, width: int) -> Levels:
    enlarged: Levels = opencv().resize(levels, (width, height), interpolation=opencv().INTER_LINEAR)
    return enlarged


def _thicken(plane: Levels, wide: int, tall: int) -> Levels:
    if wide == tall == 1:
        return plane
    grown: Levels = opencv().dilate(plane, np.ones((tall, wide), np.uint8))
    return grown


def _flakes(rng: np.random.Generator, height: int, width: int, count: float, *, size: float, angle: float, bright: int) -> Levels:
    """Returns soft drifting flakes of ``size`` pixels; large flakes are drawn on a coarser grid and enlarged."""
    step = max(1, int(size / 3))
    tall, wide = _coarse(height, width, step)
    drift, side = 0.8 * size / step, max(1, round(size / step))
    drifting = [(round(drift * np.sin(angle)), round(drift * np.cos(angle)), np.maximum)]
    flakes = _thicken(_trails(rng, tall, wide, drifting, count=count, bright=bright), side, side)
    return _enlarge(opencv().GaussianBlur(flakes, (0, 0), 0.35 * size / step), height, width)


def _streaks(
    rng: np.random.Generator, height: int, width: int, count: float, *, length: float, slope: float, bright: int
) -> Levels:
    """Returns streaks that fade towards both ends: the sum of four copies, a seventh of the length apart."""
    rows = max(1, round(length))
    apart = rows // 7
    steps = [(step, np.maximum) for step in _doublings(rows - 3 * apart)] + [(apart, np.add), (2 * apart, np.add)]
    moves = [(step, round(slope * step), join) for step, join in steps]
    return _trails(rng, height, width, moves, count=count, bright=bright // 4)


def _trails(
    rng: np.random.Generator, height: int, width: int, moves: Sequence[tuple[int, int, np.ufunc]], *, count: float, bright: int
) -> Levels:
    """Returns about ``count`` points, at least 1, on a black plane, each extended by all combinations of ``moves``.

    A move is down (0 or more) and across, in whole pixels. All points grow at once, so their number costs nothing.
    A larger count contains the points of a smaller count.
    """
    margin = 1 + sum(abs(across) for _, across, _ in moves)
    wide, tall = width + 2 * margin, height + 1 + sum(down for down, _, _ in moves)
    plane = np.zeros(tall * wide, np.uint8)
    plane[rng.integers(0, plane.size, max(1, round(count * plane.size / (height * width))))] = bright
    for down, across, join in moves:
        offset = abs(down * wide + across)  # rows are contiguous: what leaves on a side returns in the margin of the other
        plane = join(plane[offset:], plane[: len(plane) - offset])
    return plane[margin : margin + height * wide].reshape(height, wide)[:, :width]


def _doublings(length: int) -> list[int]:
    """Returns by how much a thing is to be moved again and again, to grow from 1 to ``length``: 1, 2, 4, ... and the rest."""
    steps, grown = [], 1
    while grown < length:
        steps.append(min(grown, length - grown))
        grown += steps[-1]
    return steps


def _splashes(rng: np.random.Generator, height: int, width: int, share: float, scenes: float) -> NDArray[np.bool_]:
    """Returns which grid points are splashed, shape (height, width): about a ``share``, including those of every smaller share.

    Drops fall in sequence until the share is covered. Radii are Pareto distributed, 1.2 to 26 units: many small drops,
    few large ones. Each position is looked up some units away along a smooth field, which gives drops ragged outlines.
    """
    cv2 = opencv()
    unit = DROP_UNIT
    sources = []
    for places in (np.arange(width, dtype=np.float32), np.arange(height, dtype=np.float32)[:, None]):
        waves = smooth_noise(rng, height, width, cell=16 * unit, octaves=2)
        waves *= np.float32(18 * unit)
        waves += places - np.float32(9 * unit)
        sources.append(waves)
    radii = np.minimum(1.2 + 1.6 * np.expm1(rng.standard_exponential(DROPS) / 1.35), 26.0)  # faster than rng.pareto
    enough = -np.log1p(-min(1.4 * share, 0.95)) * 400.0**2 * scenes
    radii = radii[: max(1, int(np.searchsorted(np.cumsum(np.pi * radii**2), enough)))]
    centres = rng.random((len(radii), 2)) * (width, height)
    first = _first_drops(centres, radii * unit, height, width)
    first = cv2.remap(first, *sources, cv2.INTER_NEAREST, borderMode=cv2.BORDER_REFLECT)
    covered = np.cumsum(np.bincount(first.ravel(), minlength=DROPS + 1)[: len(radii)])
    last = min(int(np.searchsorted(covered, share * first.size)), len(radii) - 1)
    splashed: NDArray[np.bool_] = first < last
    rest = first == last  # only the middle of the last drop is needed
    reach = np.hypot(*(places[rest] - centre for places, centre in zip(sources, centres[last], strict=True)))
    nearest = np.sort(reach)[: max(0, round(share * first.size) - int(splashed.sum()))]
    splashed[rest] = reach <= (nearest[-1] if nearest.size else -1.0)
    return splashed


def _first_drops(
    centres: NDArray[np.float64], radii: NDArray[np.float64], height: int, width: int, *, small: int = 2
) -> NDArray[np.uint16]:
    """Returns the first drop on each point, or ``DROPS`` for none, shape (height, width)."""
    cv2 = opencv()
    first = np.full((height, width), DROPS, np.uint16)
    large = np.flatnonzero(radii >= small)[::-1]
    centred, sizes = _to_fixed_point(centres[large]).tolist(), _to_fixed_point(radii[large]).tolist()
    for number, place, size in zip(large.tolist(), centred, sizes, strict=True):
        cv2.circle(first, place, size, number, cv2.FILLED, cv2.LINE_8, SUBPIXEL_BITS)
    # small drops (most of them) all at once, on a plane with a margin for their extent beyond the image
    numbers = np.flatnonzero(radii < small)[::-1]  # if several values are assigned to a point, the last stays
    around = np.arange(-small, small + 1)
    middles = np.rint(centres[numbers])
    across, down = np.square((middles - centres[numbers])[:, :, None] + around).swapaxes(0, 1)
    inside = down[:, :, None] + across[:, None] <= np.square(radii[numbers])[:, None, None]
    stride = width + 2 * small + 1
    of_small = np.full((height + 2 * small + 1) * stride, DROPS, np.uint16)
    places = ((middles[:, 1] + small) * stride + middles[:, 0] + small).astype(np.intp)
    which, place = np.nonzero(inside.reshape(len(numbers), around.size**2))
    of_small[places[which] + np.add.outer(stride * around, around).ravel()[place]] = numbers[which]
    return np.minimum(first, of_small.reshape(-1, stride)[small : small + height, small : small + width])


def _depth(inside: NDArray[np.bool_]) -> Plane:
    """Returns how far inside each point of the grid of drops is, in units, negative outside, shape (height, width)."""
    cv2 = opencv()
    filled = inside.view(np.uint8)
    depth = cv2.distanceTransform(filled, cv2.DIST_L2, 5) - cv2.distanceTransform(filled ^ 1, cv2.DIST_L2, 5)
    within: Plane = np.clip(depth, -999.0, 999.0)  # in an image of some pixels no edge may be in view
    return within / np.float32(DROP_UNIT)


def _edges(height: int, width: int) -> Plane:
    """Returns 0 in the centre of an image to 1 at its edges, quadratically, shape (height, width)."""
    down, across = (np.abs(np.linspace(-1.0, 1.0, side, dtype=np.float32)) for side in (height, width))
    nearest: Plane = np.maximum(down[:, None], across) ** 2
    return nearest


def _ferns(rng: np.random.Generator, height: int, width: int) -> Levels:
    """Returns a random part of the sheet of ferns, mirrored or not, enlarged to the image."""
    cv2 = opencv()
    tall, wide = _coarse(height, width, scene_unit(height, width) / FERN_UNIT)
    part = _window(rng, _window(rng, _fern_sheet(), tall).T, wide).T
    mirrors = rng.integers(4)
    part = part if mirrors == 3 else cv2.flip(part, int(mirrors) - 1)
    return _enlarge(part, height, width)


def _window(rng: np.random.Generator, sheet: Levels, rows: int) -> Levels:
    """Returns ``count`` rows from a random position of a sheet, continued by its mirror image if needed."""
    if len(sheet) < rows:
        sheet = np.pad(sheet, ((0, rows - len(sheet)), (0, 0)), mode="symmetric")
    start = int(rng.integers(0, len(sheet) - rows, endpoint=True))
    return sheet[start : start + rows]


@cache
def _fern_sheet() -> Levels:
    """Returns the brightness of ice ferns, 0 to 255, on a fixed square; read-only.

    They are stems with fibres that lean away from the nearest stem.
    """
    rng, side, unit = rng_for(1, "ferns"), FERN_SHEET, FERN_UNIT
    stems = _stems(rng, side, side, unit)
    distance, nearest = _nearest(stems, side, side)
    fibres = _comb(smooth_noise(rng, side, side, cell=0.8 * unit), *_leaning_direction(stems, nearest), unit)
    distance *= np.float32(1.0 / unit)
    ferns = np.maximum(
        0.9 * np.clip(1.3 - distance, 0.0, 1.0), fibres * (0.3 + 0.7 * np.exp(np.maximum(distance / -9.0, np.float32(-80.0))))
    )
    sheet: Levels = opencv().convertScaleAbs(ferns, alpha=255.0)
    sheet.flags.writeable = False
    return sheet


def _stems(rng: np.random.Generator, height: int, width: int, unit: float) -> Segments:
    """Returns bent stems, 60 to a scene, 25 to 110 units long, of ten segments each."""
    count, joints = round(60 * height * width / (400.0 * unit) ** 2), 10
    along = np.linspace(0.0, 1.0, joints + 1)
    bends = rng.uniform(0, 2 * np.pi, (count, 1)) + rng.uniform(-1.3, 1.3, (count, 1)) * along
    steps = np.stack([np.cos(bends), np.sin(bends)], axis=-1) * unit * rng.uniform(25, 110, (count, 1, 1)) / joints
    points = rng.uniform((0, 0), (width, height), (count, 1, 2)) + np.cumsum(steps, axis=1)
    return np.stack([points[:, :-1], points[:, 1:]], axis=2).reshape(-1, 2, 2)


def _nearest(segments: Segments, height: int, width: int) -> tuple[Plane, NDArray[np.int32]]:
    """Returns each pixel's distance in pixels to the nearest segment, and that segment's index, both of shape (height, width)."""
    cv2 = opencv()
    numbers = np.full((height, width), -1, np.int32)
    for number, (start, end) in enumerate(np.rint(segments).astype(int).tolist()):
        cv2.line(numbers, start, end, number)
    free = (numbers < 0).astype(np.uint8)
    distance, labels = cv2.distanceTransformWithLabels(free, cv2.DIST_L2, 5, labelType=cv2.DIST_LABEL_PIXEL)
    of_label = np.zeros(int(labels.max()) + 1, np.int32)
    of_label[labels[free == 0]] = numbers[free == 0]
    return distance, of_label.take(labels)


def _leaning_direction(segments: Segments, nearest: NDArray[np.int32]) -> tuple[Plane, Plane]:
    """Returns the direction, x and y, that leans by 0.8 radians away from the nearest segment, on the side of each pixel."""
    height, width = nearest.shape
    start = segments[:, 0].astype(np.float32)
    along = (segments[:, 1] - segments[:, 0]).astype(np.float32)
    along /= np.maximum(np.hypot(along[:, :1], along[:, 1:]), np.float32(1e-6))
    x, y = (along[:, axis].take(nearest) for axis in (0, 1))
    right = np.arange(width, dtype=np.float32) - start[:, 0].take(nearest)
    down = np.arange(height, dtype=np.float32)[:, None] - start[:, 1].take(nearest)
    turn = np.float32(np.sin(0.8)) * np.sign(x * down - y * right)
    return np.float32(np.cos(0.8)) * x - turn * y, turn * x + np.float32(np.cos(0.8)) * y


def _comb(field: Plane, x: Plane, y: Plane, unit: float) -> Plane:
    """Returns ``field`` averaged over about 14 units against the direction (x, y) of each pixel, with its contrast restored.

    Each of four passes doubles the length: line integral convolution (Cabral & Leedom 1993), as if directions were constant.
    """
    cv2 = opencv()
    height, width = field.shape
    right, down = np.arange(width, dtype=np.float32), np.arange(height, dtype=np.float32)[:, None]
    for doubling in range(4):
        step = np.float32(0.9 * unit * 2**doubling)
        field = 0.5 * (
            field + cv2.remap(field, right - step * x, down - step * y, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT)
        )
    combed: Plane = np.clip(3.5 * (field - field.mean()) + 0.45, 0.0, 1.0)
    return combed


def _to_fixed_point(coordinates: NDArray[np.float64]) -> NDArray[np.int32]:
    """Returns coordinates in the fixed-point numbers that OpenCV draws by."""
    return np.rint(coordinates * (1 << SUBPIXEL_BITS)).astype(np.int32)
