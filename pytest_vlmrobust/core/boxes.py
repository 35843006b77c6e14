"""Boxes: positions of attributes in an image, and the coordinates in which a model writes them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from .errors import UnknownName

Box: TypeAlias = tuple[float, float, float, float]
"""``(x1, y1, x2, y2)``, right and bottom exclusive, in pixels unless another unit is named."""

LEFT_EYE, RIGHT_EYE = "left_eye", "right_eye"
"""The two attributes that are easily taken for each other: left may be the viewer's or the person's."""


def overlap(box: Box, other: Box) -> float:
    """Returns the intersection over union of two boxes.

    Coordinates are continuous, without "+1" for pixels. The result is in [0, 1]: 0 if a box is inverted (x1 > x2 or y1 > y2)
    and so covers nothing, NaN if neither box has an area or a coordinate is NaN.

    >>> overlap((0, 0, 2, 2), (1, 0, 3, 2))
    0.3333333333333333
    """
    if any(map(math.isnan, (*box, *other))):
        return math.nan
    if any(x1 > x2 or y1 > y2 for x1, y1, x2, y2 in (box, other)):
        return 0.0
    width = min(box[2], other[2]) - max(box[0], other[0])
    height = min(box[3], other[3]) - max(box[1], other[1])
    shared = max(width, 0.0) * max(height, 0.0)
    covered = _area(box) + _area(other) - shared
    return min(shared / covered, 1.0) if covered > 0.0 else math.nan


def are_swapped(predicted: tuple[Box, Box], truth: tuple[Box, Box]) -> bool:
    """Whether two predicted boxes overlap more with the true boxes when swapped, such as left and right eye."""
    kept = overlap(predicted[0], truth[0]) + overlap(predicted[1], truth[1])
    return overlap(predicted[1], truth[0]) + overlap(predicted[0], truth[1]) > kept


def _area(box: Box) -> float:
    return (box[2] - box[0]) * (box[3] - box[1])


@dataclass(frozen=True, slots=True)
class BoxSpace:
    """The coordinates in which a model reads and writes boxes.

    ``width`` and ``height`` are the right and the bottom end of the scale: the image's own size for pixels, 1000 by 1000 for
    thousandths, 1 by 1 for fractions. ``order`` ``"yx"`` means ``(y1, x1, y2, x2)``.
    """

    name: str
    width: float
    height: float
    order: str = "xy"

    def write(self, box: Box, size: tuple[int, int]) -> Box:
        """Returns a box in pixels of an image of ``size`` (width, height) as this space writes it."""
        x, y = self.width / size[0], self.height / size[1]
        x1, y1, x2, y2 = box
        scaled = (x1 * x, y1 * y, x2 * x, y2 * y)
        return scaled if self.order == "xy" else (scaled[1], scaled[0], scaled[3], scaled[2])

    def read(self, box: Box, size: tuple[int, int]) -> Box:
        """Returns a box of this space in pixels of an image of ``size`` (width, height)."""
        first, second, third, fourth = box
        x1, y1, x2, y2 = box if self.order == "xy" else (second, first, fourth, third)
        x, y = size[0] / self.width, size[1] / self.height
        return x1 * x, y1 * y, x2 * x, y2 * y


@dataclass(frozen=True, slots=True)
class Localisation:
    """The boxes of a localisation sample, in pixels of its image."""

    size: tuple[int, int]
    """Width and height of the image to locate boxes in."""
    boxes: Mapping[str, Box]
    """The expected box of each attribute."""
    given: Mapping[str, Box] = field(default_factory=dict)
    """The boxes in the prompt, by attribute. A point is a box without extent."""
    space: BoxSpace | None = None
    """The coordinates that the model uses, ``None`` for pixels. Set by the evaluation."""
    given_in: int = 0
    """Index of the image of the given boxes: the support image, or the image to locate boxes in."""

    @property
    def spoken(self) -> BoxSpace:
        """The space of ``space``, or pixels of the image."""
        return self.space or BoxSpace(PIXELS, float(self.size[0]), float(self.size[1]))


PIXELS = "pixels"
RESIZED_PIXELS = "resized_pixels"
_SCALES = {"thousandths": 1000.0, "fractions": 1.0}
_TURNED = "_yx"
CONVENTIONS = tuple(f"{name}{turn}" for name in (PIXELS, RESIZED_PIXELS, *_SCALES) for turn in ("", _TURNED))
"""How model families write boxes: pixels of the image as sent, pixels after the processor's resizing, thousandths of
its sides, or fractions of them; ``_yx`` puts y before x."""


def box_space(convention: str, size: tuple[int, int], seen: tuple[int, int] | None = None) -> BoxSpace:
    """Returns the coordinates of a convention in an image.

    An empty convention means ``pixels``. ``size`` is width and height of the image as sent, ``seen`` after the processor
    (for ``resized_pixels``; ``size`` by default).
    """
    named = convention or PIXELS
    if named not in CONVENTIONS:
        raise UnknownName("box convention", convention, CONVENTIONS)
    base = named.removesuffix(_TURNED)
    width, height = (seen or size) if base == RESIZED_PIXELS else size
    scale = _SCALES.get(base)
    order = "yx" if named.endswith(_TURNED) else "xy"
    return BoxSpace(named, float(scale or width), float(scale or height), order)
