"""Weather: something between the lens and the scene.

The paper gives one intensity each and no algorithm. All textures are procedural (photographs of frost would bring their own
licences), drawn anew for each sample, and scale with the picture: a unit is 1/400 of its size, at least a pixel, and counts
are those of a whole picture of 400 units or more. No intensity hides the picture altogether: at mid and high no weather is
among the published five most harmful corruptions of any model.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .opencv import opencv
from .pixels import Color, Image, Plane, as_grey, blend, extrapolate, scene_share, scene_unit, smooth_noise
from .registry import corruption

HAZE: Color = (226, 229, 233)
ICE: Color = (222, 234, 244)
FLAKE: Color = (255, 255, 255)
DROP: Color = (208, 214, 222)
MUD: Color = (94, 74, 50)

SUBPIXEL_BITS = 4

Segments = NDArray[np.float64]
"""Line segments in pixels, shape (N, 2, 2): start and end, x and y."""


@corruption(
    family="weather",
    low={"intensity": 0.2},
    mid={"intensity": 0.6},
    high={"intensity": 1.0},
    stochastic=True,
    source="VLM-RobustBench Table 29; after Hendrycks & Dietterich 2019",
)
def fog(image: Image, rng: np.random.Generator, *, intensity: float) -> Image:
    """Lays uneven haze over the picture: opacity between 0.4 and 0.9 of ``intensity``, from clouds up to a third of it wide."""
    height, width = image.shape[:2]
    clouds = smooth_noise(rng, height, width, cell=max(height, width) / 3, octaves=6)
    return blend(image, HAZE, intensity * (0.4 + 0.5 * clouds))


@corruption(
    family="weather",
    low={"intensity": 0.2},
    mid={"intensity": 0.6},
    high={"intensity": 1.0},
    stochastic=True,
    source="VLM-RobustBench Table 29; after Hendrycks & Dietterich 2019",
)
def frost(image: Image, rng: np.random.Generator, *, intensity: float) -> Image:
    """Lays a frosted window over the picture: feathered crystals on patchy rime, with an opacity up to ``intensity``."""
    height, width = image.shape[:2]
    unit = scene_unit(height, width)
    patches = smooth_noise(rng, height, width, cell=110 * unit, octaves=3)
    grain = smooth_noise(rng, height, width, cell=4 * unit, octaves=3, decay=0.9)
    crystals = _drawn(_feathers(rng, height, width, unit), height, width, thickness=max(1, round(0.6 * unit)))
    rime = np.clip(1.8 * patches - 0.5, 0.0, 1.0) * (0.25 + 0.55 * grain)
    growth = crystals * np.clip(2.2 * patches - 0.3, 0.15, 0.85)
    return blend(image, ICE, np.float32(intensity) * (rime + growth - rime * growth))


@corruption(
    family="weather",
    low={"intensity": 0.1},
    mid={"intensity": 0.3},
    high={"intensity": 0.5},
    stochastic=True,
    source="VLM-RobustBench Table 29; after Hendrycks & Dietterich 2019",
)
def snow(image: Image, rng: np.random.Generator, *, intensity: float) -> Image:
    """Adds flakes of three sizes drifting in one direction, and the pale light of a day of snow.

    ``intensity`` is the density: 800 flakes at 0.1, and a tenth of the way to a pale grey.
    """
    height, width = image.shape[:2]
    unit = scene_unit(height, width)
    angle = rng.uniform(np.pi / 4, 3 * np.pi / 4)
    pale = extrapolate(image, np.minimum(as_grey(image) // 2 + 128, 255), 1.0 - intensity)
    opacity = np.zeros((height, width), np.float32)
    for size, share in ((1.0, 0.6), (2.0, 0.3), (3.5, 0.1)):
        flakes = _streaks(rng, height, width, round(8_000 * intensity * share), length=0.8 * size * unit, angle=angle)
        layer = _drawn(flakes, height, width, thickness=max(1, round(size * unit)))
        np.maximum(opacity, layer * (0.95 - 0.05 * size), out=opacity)
    return blend(pale, FLAKE, opacity)


@corruption(
    family="weather",
    low={"intensity": 0.1},
    mid={"intensity": 0.3},
    high={"intensity": 0.5},
    stochastic=True,
    source="VLM-RobustBench Table 29",
)
def rain(image: Image, rng: np.random.Generator, *, intensity: float) -> Image:
    """Adds translucent streaks within 20 degrees of the vertical, and dims the scene.

    ``intensity`` is the density: 300 streaks at 0.1, and brightness reduced by 3 percent.
    """
    height, width = image.shape[:2]
    unit = scene_unit(height, width)
    angle = np.pi / 2 + rng.uniform(-np.pi / 9, np.pi / 9)
    dim = extrapolate(image, np.zeros_like(image), 1.0 - 0.3 * intensity)
    opacity = np.zeros((height, width), np.float32)
    for length, strength in ((10.0, 0.35), (18.0, 0.5), (28.0, 0.65)):
        drops = _streaks(rng, height, width, round(1_000 * intensity), length=length * unit, angle=angle)
        layer = _drawn(drops, height, width, thickness=max(1, round(length / 25 * unit)))
        np.maximum(opacity, layer * strength, out=opacity)
    return blend(dim, DROP, opacity)


@corruption(
    family="weather",
    low={"intensity": 0.1},
    mid={"intensity": 0.3},
    high={"intensity": 0.5},
    stochastic=True,
    source="VLM-RobustBench Table 29; after Hendrycks & Dietterich 2019",
)
def spatter(image: Image, rng: np.random.Generator, *, intensity: float) -> Image:
    """Splashes muddy water on the lens: blobs that cover a share ``intensity`` of the picture, with an opacity of 0.7.

    Coverage is the paper's word. Opaque blobs over half of the picture would be among the worst corruptions published, where
    spatter does not appear.
    """
    height, width = image.shape[:2]
    unit = scene_unit(height, width)
    splashes = smooth_noise(rng, height, width, cell=24 * unit, octaves=3, decay=0.55)
    edge = np.quantile(splashes, 1.0 - intensity)
    depth = (splashes - np.float32(edge)) * np.float32(40.0)
    return blend(image, MUD, 0.7 * np.clip(depth + 0.5, 0.0, 1.0))


def _streaks(rng: np.random.Generator, height: int, width: int, count: int, *, length: float, angle: float) -> Segments:
    """Returns parallel segments, ``count`` to a whole scene, with centres anywhere and lengths of 0.5 to 1.5 ``length``."""
    count = max(1, round(count * scene_share(height, width)))
    centres = rng.uniform((0, 0), (width, height), (count, 2))
    reach = 0.5 * length * rng.uniform(0.5, 1.5, (count, 1)) * (np.cos(angle), np.sin(angle))
    return np.stack([centres - reach, centres + reach], axis=1)


def _feathers(rng: np.random.Generator, height: int, width: int, unit: float) -> Segments:
    """Returns ice feathers, 110 to a whole scene: a bent stem with 36 pairs of barbs at 50 degrees, shorter towards the tip."""
    stems, joints = max(1, round(110 * scene_share(height, width))), 36
    along = np.linspace(0.0, 1.0, joints + 1)
    bends = rng.uniform(0, 2 * np.pi, (stems, 1)) + rng.uniform(-1.2, 1.2, (stems, 1)) * along
    lengths = unit * rng.uniform(30, 110, (stems, 1, 1))
    steps = _direction(bends) * lengths / joints
    points = rng.uniform((0, 0), (width, height), (stems, 1, 2)) + np.cumsum(steps, axis=1)
    reach = 0.2 * lengths * (1.0 - along[:, None] ** 2) * rng.uniform(0.5, 1.0, (stems, joints + 1, 1))
    barbs = [np.stack([points, points + reach * _direction(bends + side)], axis=2) for side in (-0.87, 0.87)]
    stem = np.stack([points[:, :-1], points[:, 1:]], axis=2)
    return np.concatenate([part.reshape(-1, 2, 2) for part in (stem, *barbs)])


def _direction(angles: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.stack([np.cos(angles), np.sin(angles)], axis=-1)


def _drawn(segments: Segments, height: int, width: int, *, thickness: int) -> Plane:
    """Returns the share of each pixel that the anti-aliased segments cover, in [0, 1], shape (height, width)."""
    cv2 = opencv()
    canvas = np.zeros((height, width), np.uint8)
    ends = np.rint(segments * (1 << SUBPIXEL_BITS)).astype(np.int32)
    cv2.polylines(canvas, list(ends), isClosed=False, color=255, thickness=thickness, lineType=cv2.LINE_AA, shift=SUBPIXEL_BITS)
    return canvas.astype(np.float32) * np.float32(1 / 255)
