"""Words in print: black on white, in one of several typefaces, casings, positions and rotations, with exact boxes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_vlmrobust.core.errors import DatasetError

from .scenes import held_out
from .typefaces import Typeface

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

CASINGS = ("upper", "lower", "title")
POSITIONS = {"top": 0.1, "centre": 0.5, "bottom": 0.9}
"""Name to where the middle of the line is, as a share of the side; moved inwards where letters would be cut off."""
ROTATIONS = (-45, 0, 45)
"""Degrees, counter-clockwise."""
FONT_SIZE = 250 / 1024
"""Size of the letters as a share of the side, where the word is not too long for it."""
MARGIN = 0.02
"""What stays white along every edge, as a share of the side."""
_LONGEST = 0.9
_FINE = 640
_FAINT = 24


@dataclass(frozen=True, slots=True)
class Style:
    """How a word is printed."""

    typeface: Typeface
    casing: str
    position: str
    rotation: int

    def written(self, word: str) -> str:
        """Returns the word in this casing."""
        return str(getattr(word, self.casing)())

    def holds_out(self, word: str) -> bool:
        """Returns whether this word in this style is kept for evaluation, at whatever size, and may never be trained on."""
        return held_out(repr((word, self.typeface.name, self.casing, self.position, self.rotation)))


@dataclass(frozen=True, slots=True)
class Print:
    """A word on a white square."""

    word: str
    style: Style
    side: int
    """Of the picture, pixels."""
    size: int
    """Of the letters, pixels."""

    @property
    def text(self) -> str:
        """The word as it is written."""
        return self.style.written(self.word)

    @property
    def held_out(self) -> bool:
        """Whether it belongs to the evaluation split."""
        return self.style.holds_out(self.word)

    def respelled(self, word: str) -> Print:
        """Returns another word, printed in the same way and size."""
        return replace(self, word=word)


def printed(word: str, style: Style, side: int) -> Print:
    """Returns a word in letters that leave room for one more, so that every neighbour fits in the same size.

    The size does not depend on position and rotation.
    """
    probe, room = 200, style.written(word) + ("m" if style.casing == "lower" else "W")
    needed = style.typeface.line(room, probe).shape[1] * style.typeface.width
    return Print(word, style, side, int(min(FONT_SIZE * side, _LONGEST * side * probe / needed)))


def draw_print(what: Print) -> NDArray[np.uint8]:
    """Draws a word: uint8 RGB, shape (side, side, 3).

    Raises:
        DatasetError: it does not fit, which cannot be for what ``printed`` returns and its neighbours.
    """
    import cv2
    import numpy as np

    return np.asarray(cv2.cvtColor(cv2.bitwise_not(_ink(what)), cv2.COLOR_GRAY2RGB), np.uint8)


def box_of(what: Print) -> tuple[int, int, int, int]:
    """Returns the tight box of the ink: (x1, y1, x2, y2) in pixels, right and bottom exclusive.

    Raises:
        DatasetError: as ``draw_print``.
    """
    import cv2

    x, y, width, height = cv2.boundingRect(_ink(what))
    return int(x), int(y), int(x + width), int(y + height)


def styles(rng: np.random.Generator, typefaces: Sequence[Typeface], count: int) -> tuple[Style, ...]:
    """Returns random styles; each typeface, casing, position and rotation is as frequent as the others, give or take one."""
    faces, casings, positions, rotations = (
        _balanced(rng, len(levels), count) for levels in (typefaces, CASINGS, POSITIONS, ROTATIONS)
    )
    places = tuple(POSITIONS)
    return tuple(
        Style(typefaces[face], CASINGS[casing], places[place], ROTATIONS[rotation])
        for face, casing, place, rotation in zip(faces, casings, positions, rotations, strict=True)
    )


def _balanced(rng: np.random.Generator, levels: int, count: int) -> list[int]:
    rounds = [level for _ in range(math.ceil(count / levels)) for level in rng.permutation(levels).tolist()]
    return [rounds[i] for i in rng.permutation(count)]


def _ink(what: Print) -> NDArray[np.uint8]:
    import cv2
    import numpy as np

    fine = max(1, round(_FINE / what.side))
    side = fine * what.side
    line = what.style.typeface.line(what.text, fine * what.size)
    canvas = cv2.warpAffine(line, _placement(what.style, line.shape, side), (side, side), flags=cv2.INTER_LINEAR)
    ink = cv2.resize(canvas, (what.side, what.side), interpolation=cv2.INTER_AREA)
    # what the eye cannot tell from the ground is no ink, and must not widen the box
    return np.asarray(cv2.threshold(ink, _FAINT, 0, cv2.THRESH_TOZERO)[1], np.uint8)


def _placement(style: Style, shape: tuple[int, ...], side: int) -> NDArray[np.float64]:
    """Returns the affine map, shape (2, 3), from the upright line to the picture of ``side`` pixels."""
    import numpy as np

    face, angle = style.typeface, math.radians(style.rotation)
    turn = np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
    linear = turn @ np.array([[face.width, -face.slant], [0.0, 1.0]])
    inset = MARGIN * side + _extent(linear, shape) / 2
    if inset.max() > side / 2:
        raise DatasetError(f"a line of {shape[1]} pixels does not fit a picture of {side} in {style}. Print it smaller.")
    middle = np.clip(np.array([0.5, POSITIONS[style.position]]) * side, inset, side - inset)
    own = np.array([shape[1], shape[0]]) / 2
    # upright letters stay on whole pixels, so that nothing blurs them
    offset = np.round(middle - linear @ own) if style.rotation == 0 else middle - linear @ own
    return np.asarray(np.column_stack([linear, offset]))


def _extent(linear: NDArray[np.float64], shape: tuple[int, ...]) -> NDArray[np.float64]:
    import numpy as np

    height, width = shape
    corners = linear @ np.array([[0, width, width, 0], [0, 0, height, height]], np.float64)
    return np.asarray(np.ptp(corners, axis=1))
