"""Weather: fog, frost, snow, rain and dirt between the lens and the scene.

The paper gives one intensity each and no algorithm. All textures are procedural (photographs of frost would bring their own
licences), drawn anew for each sample, and scale with the picture: a unit is 1/400 of its size, at least a pixel, and counts
are those of a whole picture of 400 units or more. No intensity hides the whole picture: at mid and high, no weather is among the
published five most harmful corruptions of any model.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .pixels import Color, Image, Plane, blend, extrapolate, luma, opencv, scene_share, scene_unit, smooth_noise
from .registry import corruption

HAZE: Color = (206, 210, 216)
ICE: Color = (222, 234, 244)
FLAKE: Color = (232, 236, 242)
DROP: Color = (208, 214, 222)
MUD: Color = (94, 74, 50)

SUBPIXEL_BITS = 4
DROPS = 6_000
"""Most drops that fall on a picture."""

FADING = ((1.0, 64), (0.75, 128), (0.5, 192), (0.25, 255))
"""Central parts of a line, and how bright each is: a line that fades towards its ends."""

Segments = NDArray[np.float64]
"""Line segments in pixels, shape (N, 2, 2): start and end, x and y."""


@corruption(
    family="weather",
    low={"intensity": 0.2},
    mid={"intensity": 0.6},
    high={"intensity": 1.0},
    stochastic=True,
    changes={"mid": ["colour"], "high": ["colour"]},
    source="VLM-RobustBench Table 29; after Hendrycks & Dietterich 2019",
    version=3,
)
def fog(image: Image, rng: np.random.Generator, *, intensity: float) -> Image:
    """Lays uneven haze over the picture: opacity between 0.4 and 0.9 of ``intensity``, from clouds up to a third of it wide.

    Table 29 calls the number an opacity, and so it is here. Albumentations' ``fog_coef`` is none: it lays disks of opacity 0.08
    over each other, and at 0.6 and 1.0 changes a photograph about half as much as this. At ``high`` this changes it as much as
    the severities 3 to 5 of Hendrycks & Dietterich. The haze is grey, not white, so that it shows on white pages too.
    """
    height, width = image.shape[:2]
    clouds = smooth_noise(rng, height, width, cell=max(height, width) / 3, octaves=6)
    return blend(image, HAZE, intensity * (0.4 + 0.5 * clouds))


@corruption(
    family="weather",
    low={"intensity": 0.2},
    mid={"intensity": 0.6},
    high={"intensity": 1.0},
    stochastic=True,
    changes={"mid": ["colour"], "high": ["colour"]},
    source="VLM-RobustBench Table 29; after Hendrycks & Dietterich 2019",
    version=3,
)
def frost(image: Image, rng: np.random.Generator, *, intensity: float) -> Image:
    """Lays a frosted window over the picture: ferns of ice on patchy rime, thicker at the edges, opaque up to ``intensity``.

    At ``high`` a photograph changes about as much as at the severities 1 and 2 of Hendrycks & Dietterich, a white page as much as
    at 2 and 3; they mix in a photograph of ice with a weight of 0.4 to 0.75. Opacity, which is the paper's word for the number,
    would hide everything at 1.0, and no weather is published that costs so much.
    """
    height, width = image.shape[:2]
    patches = smooth_noise(rng, height, width, cell=110 * scene_unit(height, width), octaves=4)
    rime = np.clip(2.6 * patches + 0.8 * _edges(height, width) - 0.9, 0.0, 1.0)
    growth = _ferns(rng, height, width) * np.minimum(1.5 * rime, 1.0)
    opacity = np.float32(intensity) * np.minimum(0.45 * rime + 0.8 * growth, np.float32(0.95))
    return blend(image, ICE, opacity)


@corruption(
    family="weather",
    low={"intensity": 0.1},
    mid={"intensity": 0.3},
    high={"intensity": 0.5},
    stochastic=True,
    changes={"mid": ["colour"], "high": ["colour"]},
    source="VLM-RobustBench Table 29; after Hendrycks & Dietterich 2019",
    version=3,
)
def snow(image: Image, rng: np.random.Generator, *, intensity: float) -> Image:
    """Adds soft flakes of three sizes drifting in one direction, and the pale light of a day of snow.

    ``intensity`` is the density: 800 flakes at 0.1, and a tenth of the way to a pale grey. Large flakes are near the lens, so
    out of focus. Flakes are a little darker than paper, so that they show on white pages too, as they do against a bright sky.
    """
    cv2 = opencv()
    height, width = image.shape[:2]
    unit = scene_unit(height, width)
    angle = rng.uniform(np.pi / 4, 3 * np.pi / 4)
    grey = cv2.cvtColor(luma(image) // 2 + 112, cv2.COLOR_GRAY2RGB)
    pale = extrapolate(image, grey, 1.0 - intensity)
    opacity = np.zeros((height, width), np.float32)
    sizes = ((1.0, 0.6, 1.0), (2.0, 0.3, 0.9), (4.5, 0.1, 0.75))
    for own, (size, share, strength) in zip(rng.spawn(len(sizes)), sizes, strict=True):
        flakes = _streaks(own, height, width, round(8_000 * intensity * share), length=0.8 * size * unit, angle=angle)
        layer = _draw_segments(flakes, height, width, thickness=max(1, round(size * unit)))
        blurred = cv2.GaussianBlur(layer, (0, 0), 0.35 * size * unit)
        blurred *= strength
        np.maximum(opacity, blurred, out=opacity)
    return blend(pale, FLAKE, opacity)


@corruption(
    family="weather",
    low={"intensity": 0.1},
    mid={"intensity": 0.3},
    high={"intensity": 0.5},
    stochastic=True,
    source="VLM-RobustBench Table 29",
    version=3,
)
def rain(image: Image, rng: np.random.Generator, *, intensity: float) -> Image:
    """Adds translucent streaks within 20 degrees of the vertical, fading towards their ends, and dims the scene.

    ``intensity`` is the density: 300 streaks at 0.1, and brightness reduced by 3 percent. Albumentations'
    ``RandomRain`` is no reference for a density: at any number of drops it blurs the whole picture and darkens it to 0.7, by
    which a photograph changes more than here at ``high``.
    """
    cv2 = opencv()
    height, width = image.shape[:2]
    unit = scene_unit(height, width)
    angle = np.pi / 2 + rng.uniform(-np.pi / 9, np.pi / 9)
    dim = cv2.convertScaleAbs(image, alpha=1.0 - 0.3 * intensity)
    opacity = np.zeros((height, width), np.float32)
    lengths = ((10.0, 0.4), (18.0, 0.6), (28.0, 0.8))
    for own, (length, strength) in zip(rng.spawn(len(lengths)), lengths, strict=True):
        drops = _streaks(own, height, width, round(1_000 * intensity), length=length * unit, angle=angle)
        layer = _draw_segments(drops, height, width, thickness=max(1, round(length / 32 * unit)), parts=FADING)
        layer *= strength
        np.maximum(opacity, layer, out=opacity)
    return blend(dim, DROP, cv2.GaussianBlur(opacity, (0, 0), max(0.3, 0.22 * unit)))


@corruption(
    family="weather",
    low={"intensity": 0.1},
    mid={"intensity": 0.3},
    high={"intensity": 0.5},
    stochastic=True,
    source="VLM-RobustBench Table 29; after Hendrycks & Dietterich 2019",
    version=3,
)
def spatter(image: Image, rng: np.random.Generator, *, intensity: float) -> Image:
    """Splashes muddy water on the lens: ragged splashes that cover a share ``intensity`` of the picture, opacity 0.4 to 0.7.

    Coverage is the paper's word. Opaque drops over half of the picture would be among the worst corruptions published, where
    spatter does not appear. Mud is thickest at the rim of a splash, where it dries last. What a level covers, the next covers
    too.
    """
    height, width = image.shape[:2]
    unit = scene_unit(height, width)
    stains = smooth_noise(rng, height, width, cell=30 * unit, octaves=4, decay=0.7)
    depth = _depth(_splashes(rng, height, width, intensity)) / np.float32(unit)
    rim = np.exp(np.maximum(np.abs(depth - 1.0) / -1.5, np.float32(-80.0)))  # less would underflow
    thickness = np.minimum(0.55 * stains + 0.5 * rim, 1.0)
    return blend(image, MUD, np.clip(depth * unit + 0.5, 0.0, 1.0) * (0.4 + 0.3 * thickness))


def _streaks(rng: np.random.Generator, height: int, width: int, count: int, *, length: float, angle: float) -> Segments:
    """Returns parallel segments, ``count`` to a whole scene, with centres anywhere and lengths of 0.5 to 1.5 ``length``.

    The first ones of many are those of few.
    """
    count = max(1, round(count * scene_share(height, width)))
    draws = rng.random((count, 3))
    centres = draws[:, :2] * (width, height)
    reach = length * (0.25 + 0.5 * draws[:, 2:]) * (np.cos(angle), np.sin(angle))
    return np.stack([centres - reach, centres + reach], axis=1)


def _splashes(rng: np.random.Generator, height: int, width: int, share: float) -> NDArray[np.bool_]:
    """Returns which pixels are splashed, shape (height, width): about a ``share`` of them, and those of every smaller share.

    Drops fall one after the other until the share is covered. Radii are Pareto distributed, 1.2 to 26 units: many small drops,
    few large ones. Every place is looked up some units away, along a smooth field, which gives round drops ragged outlines.
    """
    cv2 = opencv()
    unit = scene_unit(height, width)
    sources = np.empty((height, width, 2), np.float32)
    for axis, places in enumerate((np.arange(width), np.arange(height)[:, None])):
        waves = smooth_noise(rng, height, width, cell=16 * unit, octaves=2)
        sources[..., axis] = 18 * unit * (waves - 0.5) + places
    radii = np.minimum(1.2 + 1.6 * rng.pareto(1.35, DROPS), 26.0)
    enough = -np.log1p(-min(1.4 * share, 0.95)) * 400.0**2 * scene_share(height, width)
    radii = radii[: max(1, int(np.searchsorted(np.cumsum(np.pi * radii**2), enough)))]
    centres = rng.random((len(radii), 2)) * (width, height)
    first = np.full((height, width), DROPS, np.uint16)  # which drop fell on a pixel first
    places, sizes = _to_fixed_point(centres).tolist(), _to_fixed_point(radii * unit).tolist()
    for number in reversed(range(len(radii))):
        cv2.circle(first, places[number], sizes[number], number, cv2.FILLED, cv2.LINE_8, SUBPIXEL_BITS)
    first = cv2.remap(first, sources, None, cv2.INTER_NEAREST, borderMode=cv2.BORDER_REFLECT)
    covered = np.cumsum(np.bincount(first.ravel(), minlength=DROPS + 1)[: len(radii)])
    last = min(int(np.searchsorted(covered, share * first.size)), len(radii) - 1)
    splashed: NDArray[np.bool_] = first < last
    rest = first == last  # of the last drop only the middle is needed
    reach = np.hypot(*(sources[rest] - centres[last]).T)
    nearest = np.sort(reach)[: max(0, round(share * first.size) - int(splashed.sum()))]
    splashed[rest] = reach <= (nearest[-1] if nearest.size else -1.0)
    return splashed


def _depth(inside: NDArray[np.bool_]) -> Plane:
    """Returns how far inside each pixel is, in pixels, negative outside, shape (height, width)."""
    cv2 = opencv()
    filled = inside.view(np.uint8)
    depth: Plane = cv2.distanceTransform(filled, cv2.DIST_L2, 5) - cv2.distanceTransform(filled ^ 1, cv2.DIST_L2, 5)
    return depth


def _edges(height: int, width: int) -> Plane:
    """Returns 0 in the centre of a picture to 1 at its edges, quadratically, shape (height, width)."""
    down, across = (np.abs(np.linspace(-1.0, 1.0, side, dtype=np.float32)) for side in (height, width))
    nearest: Plane = np.maximum(down[:, None], across) ** 2
    return nearest


def _ferns(rng: np.random.Generator, height: int, width: int) -> Plane:
    """Returns how bright ferns of ice are, in [0, 1], shape (height, width).

    They are stems, and fibres that lean away from the nearest one. Drawn where a unit is at most 1.5 pixels and enlarged, for
    fibres are a unit wide.
    """
    scale = min(1.0, 1.5 / scene_unit(height, width))
    tall, wide = (max(1, round(side * scale)) for side in (height, width))
    unit = scene_unit(tall, wide)
    stems = _stems(rng, tall, wide, unit)
    distance, nearest = _nearest(stems, tall, wide)
    fibres = _comb(smooth_noise(rng, tall, wide, cell=0.8 * unit), *_leaning_direction(stems, nearest), unit)
    distance *= np.float32(1.0 / unit)
    ferns = np.maximum(
        0.9 * np.clip(1.3 - distance, 0.0, 1.0), fibres * (0.3 + 0.7 * np.exp(np.maximum(distance / -9.0, np.float32(-80.0))))
    )
    enlarged: Plane = opencv().resize(ferns, (width, height), interpolation=opencv().INTER_LINEAR)
    return enlarged


def _stems(rng: np.random.Generator, height: int, width: int, unit: float) -> Segments:
    """Returns bent stems, 60 to a whole scene, 25 to 110 units long, of ten segments each."""
    count, joints = max(1, round(60 * scene_share(height, width))), 10
    along = np.linspace(0.0, 1.0, joints + 1)
    bends = rng.uniform(0, 2 * np.pi, (count, 1)) + rng.uniform(-1.3, 1.3, (count, 1)) * along
    steps = _direction(bends) * unit * rng.uniform(25, 110, (count, 1, 1)) / joints
    points = rng.uniform((0, 0), (width, height), (count, 1, 2)) + np.cumsum(steps, axis=1)
    return np.stack([points[:, :-1], points[:, 1:]], axis=2).reshape(-1, 2, 2)


def _nearest(segments: Segments, height: int, width: int) -> tuple[Plane, NDArray[np.int32]]:
    """Returns how far each pixel is from the nearest segment, in pixels, and which one that is, both of shape (height, width)."""
    cv2 = opencv()
    numbers = np.full((height, width), -1, np.int32)
    for number, (start, end) in enumerate(np.rint(segments).astype(int).tolist()):
        cv2.line(numbers, start, end, number)
    if numbers.max() < 0:  # all of them left the picture
        numbers[height // 2, width // 2] = 0
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


def _direction(angles: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.stack([np.cos(angles), np.sin(angles)], axis=-1)


def _draw_segments(
    segments: Segments, height: int, width: int, *, thickness: int, parts: Sequence[tuple[float, int]] = ((1.0, 255),)
) -> Plane:
    """Returns how bright anti-aliased segments make each pixel, in [0, 1], shape (height, width).

    ``parts`` are shares of their lengths about the middle, each with its brightness, faintest first.
    """
    cv2 = opencv()
    canvas = np.zeros((height, width), np.uint8)
    middles = segments.mean(axis=1, keepdims=True)
    for share, bright in parts:
        ends = list(_to_fixed_point(middles + share * (segments - middles)))
        cv2.polylines(canvas, ends, isClosed=False, color=bright, thickness=thickness, lineType=cv2.LINE_AA, shift=SUBPIXEL_BITS)
    brightness = canvas.astype(np.float32)
    brightness *= np.float32(1 / 255)
    return brightness


def _to_fixed_point(coordinates: NDArray[np.float64]) -> NDArray[np.int32]:
    """Returns coordinates in the fixed-point numbers that OpenCV draws by."""
    return np.rint(coordinates * (1 << SUBPIXEL_BITS)).astype(np.int32)
