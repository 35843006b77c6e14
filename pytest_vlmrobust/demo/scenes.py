"""Scenes of coloured shapes: their content, their split, and how they are drawn.

A scene has one to four figures, each in its own quadrant. Everything that a question can ask about is a fact of the
scene, so answers (and the effect of a mirror on them) are computed, never annotated.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

CANVAS = 160
"""Native side of a scene, pixels."""
SHAPES = ("circle", "square", "triangle", "star", "cross", "heart", "arrow")
COLORS = {
    "red": (214, 40, 40),
    "orange": (245, 140, 30),
    "yellow": (240, 212, 40),
    "green": (50, 160, 70),
    "blue": (45, 95, 210),
    "purple": (130, 60, 175),
    "pink": (240, 130, 185),
    "black": (30, 30, 34),
}
DIRECTIONS = ("up", "down", "left", "right")
QUADRANTS = ("top left", "top right", "bottom left", "bottom right")
SMALL, MEDIUM, LARGE = (13, 16), (18, 24), (28, 31)
_FOLDS = 5
_SUPERSAMPLE = 2
_LUMA = (0.299, 0.587, 0.114)
"""Weights of red, green and blue in the luma of ITU-R BT.601."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One shape of a scene; ``x``, ``y`` (centre) and ``radius`` in canvas pixels, ``direction`` for arrows only."""

    shape: str
    color: str
    quadrant: str
    x: int
    y: int
    radius: int
    rgb: tuple[int, int, int]
    direction: str = ""

    @property
    def large(self) -> bool:
        """Whether the figure is the large one, compared with which all others are small."""
        return self.radius >= LARGE[0]


@dataclass(frozen=True, slots=True)
class Scene:
    """Figures on a tinted, framed background."""

    figures: tuple[Figure, ...]
    background: tuple[int, int, int]
    slope: tuple[int, int]
    """Change of brightness from left to right and from top to bottom, grey levels."""

    @property
    def signature(self) -> str:
        """The content and its positions, without jitter: two scenes with equal signatures show the same content."""
        facts = sorted((f.quadrant, f.shape, f.color, f.direction, f.large) for f in self.figures)
        return repr(facts)

    @property
    def held_out(self) -> bool:
        """Whether the content belongs to the evaluation split: one fold of five, by a hash of the signature."""
        return held_out(self.signature)


def held_out(signature: str) -> bool:
    """Returns whether content with this signature is reserved for evaluation and must never be trained on."""
    return hashlib.sha256(signature.encode()).digest()[0] % _FOLDS == 0


def random_scene(rng: np.random.Generator) -> Scene:
    """Returns a scene of either split."""
    count = int(rng.choice((1, 2, 3, 4), p=(0.04, 0.11, 0.25, 0.60)))
    quadrants = [QUADRANTS[i] for i in rng.permutation(4)[:count]]
    shapes, colors = _attributes(rng, count)
    radii = _radii(rng, count)
    figures = tuple(_figure(rng, *facts) for facts in zip(shapes, colors, quadrants, radii, strict=True))
    base = int(rng.integers(196, 246))
    tint = rng.integers(-10, 11, 3)
    background = (base + int(tint[0]), base + int(tint[1]), base + int(tint[2]))
    slope = (int(rng.integers(-24, 25)), int(rng.integers(-24, 25)))
    return Scene(figures, background, slope)


def scenes(rng: np.random.Generator, *, evaluation: bool) -> Iterator[Scene]:
    """Yields scenes of one split without end."""
    while True:
        scene = random_scene(rng)
        if scene.held_out == evaluation:
            yield scene


def mirror_scene(scene: Scene, *, horizontally: bool) -> Scene:
    """Returns the mirrored scene: the content after ``flip_h`` (or, if not ``horizontally``, ``flip_v``)."""
    swap = {"left": "right", "right": "left"} if horizontally else {"top": "bottom", "bottom": "top", "up": "down", "down": "up"}
    return replace(scene, figures=tuple(_mirrored_figure(figure, swap, horizontally) for figure in scene.figures))


def _mirrored_figure(figure: Figure, swap: dict[str, str], horizontally: bool) -> Figure:
    quadrant = " ".join(swap.get(word, word) for word in figure.quadrant.split())
    x, y = (CANVAS - 1 - figure.x, figure.y) if horizontally else (figure.x, CANVAS - 1 - figure.y)
    return replace(figure, quadrant=quadrant, x=x, y=y, direction=swap.get(figure.direction, figure.direction))


def _attributes(rng: np.random.Generator, count: int) -> tuple[list[str], list[str]]:
    """Draws shapes and colours: in half of the scenes all different, otherwise from a few kinds so that some repeat."""
    if rng.random() < 0.5:
        shapes = [SHAPES[i] for i in rng.permutation(len(SHAPES))[:count]]
        colors = [tuple(COLORS)[i] for i in rng.permutation(len(COLORS))[:count]]
        return shapes, colors
    few_shapes = [SHAPES[i] for i in rng.permutation(len(SHAPES))[: int(rng.integers(1, 4))]]
    few_colors = [tuple(COLORS)[i] for i in rng.permutation(len(COLORS))[: int(rng.integers(2, 5))]]
    return (
        [few_shapes[int(i)] for i in rng.integers(len(few_shapes), size=count)],
        [few_colors[int(i)] for i in rng.integers(len(few_colors), size=count)],
    )


def _radii(rng: np.random.Generator, count: int) -> list[int]:
    """Draws sizes: in half of the scenes one figure is large and the others small, otherwise all are medium."""
    if rng.random() < 0.5:
        return [int(rng.integers(MEDIUM[0], MEDIUM[1] + 1)) for _ in range(count)]
    largest = int(rng.integers(count))
    return [
        int(rng.integers(LARGE[0], LARGE[1] + 1) if i == largest else rng.integers(SMALL[0], SMALL[1] + 1)) for i in range(count)
    ]


def _figure(rng: np.random.Generator, shape: str, color: str, quadrant: str, radius: int) -> Figure:
    vertical, horizontal = quadrant.split()
    slack = min(10, CANVAS // 4 - radius - 5)
    x = (CANVAS // 4 if horizontal == "left" else 3 * CANVAS // 4) + int(rng.integers(-slack, slack + 1))
    y = (CANVAS // 4 if vertical == "top" else 3 * CANVAS // 4) + int(rng.integers(-slack, slack + 1))
    jitter = rng.integers(-12, 13, 3)
    red, green, blue = (int(min(255, max(0, c + d))) for c, d in zip(COLORS[color], jitter, strict=True))
    direction = DIRECTIONS[int(rng.integers(4))] if shape == "arrow" else ""
    return Figure(shape, color, quadrant, x, y, radius, (red, green, blue), direction)


def brightness_step(scene: Scene, figure: Figure) -> float:
    """Returns the difference, at least 0, of a figure's luma from that of the ground at its centre, in levels."""
    shade = sum(slope * (place / (CANVAS - 1) - 0.5) for slope, place in zip(scene.slope, (figure.x, figure.y), strict=True))
    ground = (min(255.0, max(0.0, level + shade)) for level in scene.background)
    return abs(sum(weight * (a - b) for weight, a, b in zip(_LUMA, figure.rgb, ground, strict=True)))


def draw(scene: Scene) -> NDArray[np.uint8]:
    """Draws a scene: uint8 RGB, shape (160, 160, 3); the same bytes for the same scene."""
    import cv2

    ramp = np.linspace(-0.5, 0.5, CANVAS, dtype=np.float32)
    shade = ramp[None, :] * scene.slope[0] + ramp[:, None] * scene.slope[1]
    ground = np.asarray(scene.background, np.float32) + shade[..., None]
    canvas = np.rint(np.clip(ground, 0, 255)).astype(np.uint8)
    canvas = np.repeat(np.repeat(canvas, _SUPERSAMPLE, axis=0), _SUPERSAMPLE, axis=1)
    for figure in scene.figures:
        points = _outline(figure) * _SUPERSAMPLE
        cv2.fillPoly(canvas, [np.rint(points).astype(np.int32)], figure.rgb)
    picture = np.asarray(cv2.resize(canvas, (CANVAS, CANVAS), interpolation=cv2.INTER_AREA), np.uint8)
    frame = tuple(int(c * 0.45) for c in scene.background)
    cv2.rectangle(picture, (1, 1), (CANVAS - 2, CANVAS - 2), frame, 3)
    return picture


def _outline(figure: Figure) -> NDArray[np.float64]:
    """Returns the outline of a figure in canvas pixels, shape (points, 2), about as high as twice its radius."""
    points: NDArray[np.float64] = _unit_outline(figure.shape)
    quarter_turns = {"up": 0, "right": 1, "down": 2, "left": 3}.get(figure.direction, 0)
    for _ in range(quarter_turns):
        points = np.stack([-points[:, 1], points[:, 0]], axis=1)
    centre = np.array([figure.x + 0.5, figure.y + 0.5])
    return np.asarray(points * figure.radius + centre, np.float64)


def _unit_outline(shape: str) -> NDArray[np.float64]:
    if shape == "circle":
        angles = np.linspace(0, 2 * math.pi, 48, endpoint=False)
        return np.stack([np.cos(angles), np.sin(angles)], axis=1)
    if shape == "heart":
        t = np.linspace(0, 2 * math.pi, 48, endpoint=False)
        x = 16 * np.sin(t) ** 3
        y = -(13 * np.cos(t) - 5 * np.cos(2 * t) - 2 * np.cos(3 * t) - np.cos(4 * t))
        return np.stack([x / 16.5, (y - 2.5) / 15.5], axis=1)
    if shape == "star":
        angles = np.arange(10) * math.pi / 5 - math.pi / 2
        lengths = np.where(np.arange(10) % 2 == 0, 1.08, 0.45)
        return np.stack([lengths * np.cos(angles), lengths * np.sin(angles) + 0.05], axis=1)
    corners = {
        "square": [(-0.85, -0.85), (0.85, -0.85), (0.85, 0.85), (-0.85, 0.85)],
        "triangle": [(0, -1.0), (1.05, 0.85), (-1.05, 0.85)],
        "cross": [
            *[(-0.33, -1), (0.33, -1), (0.33, -0.33), (1, -0.33), (1, 0.33), (0.33, 0.33)],
            *[(0.33, 1), (-0.33, 1), (-0.33, 0.33), (-1, 0.33), (-1, -0.33), (-0.33, -0.33)],
        ],
        "arrow": [(0, -1.05), (0.85, -0.1), (0.32, -0.1), (0.32, 1.0), (-0.32, 1.0), (-0.32, -0.1), (-0.85, -0.1)],
    }
    return np.array(corners[shape], float)
