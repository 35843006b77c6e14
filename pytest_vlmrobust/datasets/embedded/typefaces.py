"""Typefaces that are there wherever the package runs, and those of a folder of the user's."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from string import ascii_lowercase, ascii_uppercase
from typing import TYPE_CHECKING, Any, Protocol

from pytest_vlmrobust.core.errors import DatasetError
from pytest_vlmrobust.core.fingerprint import file_digest

from .letterforms import StrokeFace

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SUFFIXES = (".ttf", ".otf")


class Typeface(Protocol):
    """How letters look, at any size. What it prints as says all that decides the pixels."""

    @property
    def name(self) -> str:
        """Unique among the typefaces in use."""
        ...

    @property
    def slant(self) -> float:
        """How far the top of a letter leans to the right, per height."""
        ...

    @property
    def width(self) -> float:
        """What letters are widened by."""
        ...

    def line(self, text: str, size: int) -> NDArray[np.uint8]:
        """Returns the ink of upright, not widened letters at ``size`` pixels: uint8, shape (H, W), 0 to 255.

        The height depends on the size alone, and has room for all ascenders and descenders.
        """
        ...


@dataclass(frozen=True, slots=True)
class FontFace:
    """A TrueType or OpenType font."""

    name: str
    weight: float = 0.0
    """What is added around the outline of a letter, as a share of the size."""
    slant: float = 0.0
    width: float = 1.0
    digest: str = ""
    """SHA-256 of the font file, in hex; empty for the font that comes with Pillow."""
    path: Path | None = field(default=None, repr=False, compare=False)
    """The font file; none for the font that comes with Pillow."""

    def line(self, text: str, size: int) -> NDArray[np.uint8]:
        """Returns the ink as ``Typeface`` says; letters that are made bolder stand as far apart as before."""
        import numpy as np
        from PIL import Image, ImageDraw

        font, stroke = _font(self.path, size), round(self.weight * size)
        top, bottom = _reach(self.path, size, stroke)
        # each letter begins where those before it end, so that pairs are kerned
        starts = [font.getlength(text[:place]) + 2 * stroke * place for place in range(len(text))]
        boxes = [font.getbbox(letter, anchor="ls", stroke_width=stroke) for letter in text]
        left = math.floor(min(start + box[0] for start, box in zip(starts, boxes, strict=True)))
        right = math.ceil(max(start + box[2] for start, box in zip(starts, boxes, strict=True)))
        image = Image.new("L", (right - left, bottom - top))
        pen = ImageDraw.Draw(image)
        for start, letter in zip(starts, text, strict=True):
            pen.text((start - left, -top), letter, fill=255, font=font, anchor="ls", stroke_width=stroke)
        return np.asarray(image, np.uint8)


BUILT_IN: tuple[Typeface, ...] = (
    FontFace("sans"),
    FontFace("sans_bold", weight=0.024),
    FontFace("sans_oblique", slant=0.24),
    StrokeFace("pen", pen=1.5),
    StrokeFace("serif", pen=2.1, contrast=2.3, serif=1.7, gap=2.9),
    StrokeFace("typewriter", pen=1.2, serif=2.0, gap=2.7, cell=12.6),
)
"""Variants of the font that comes with Pillow, and three faces of the package's own; none depends on what is installed."""


def typefaces_in(folder: Path) -> tuple[FontFace, ...]:
    """Returns the fonts of a folder, named as their files, in the order of their names.

    Raises:
        DatasetError: no such folder, no font in it, or a font that cannot be read or lacks letters from a to z.
    """
    files = sorted(path for path in folder.glob("*") if path.suffix.lower() in SUFFIXES)
    if not files:
        state = "holds no file that ends with .ttf or .otf" if folder.is_dir() else "is no folder"
        raise DatasetError(
            f"fonts: {folder} {state}. Expected: a folder of TrueType or OpenType fonts. Name another one, or none."
        )
    return tuple(_checked(path) for path in files)


def _checked(path: Path) -> FontFace:
    try:
        font = _font(path, 32)
    except OSError as error:
        raise DatasetError(f"fonts: {path} cannot be read as a font ({error}). Repair or remove it.") from error
    lacking = "".join(_lacking(font, ascii_lowercase) + _lacking(font, ascii_uppercase))
    if lacking:
        raise DatasetError(f"fonts: {path} has no letters {lacking}. Expected: a to z and A to Z. Remove it.")
    return FontFace(path.name, digest=file_digest(path), path=path)


def _lacking(font: Any, letters: str) -> list[str]:
    """Returns the letters that a font has no glyph for: it draws one and the same box for them, or nothing."""
    drawn = {letter: bytes(font.getmask(letter)) for letter in letters}
    often = Counter(drawn.values())
    return [letter for letter, ink in drawn.items() if not any(ink) or often[ink] > 1]


@lru_cache(maxsize=256)
def _reach(path: Path | None, size: int, stroke: int) -> tuple[int, int]:
    """Returns the highest and the lowest row of all letters, from the base line."""
    _, top, _, bottom = _font(path, size).getbbox(ascii_uppercase + ascii_lowercase, anchor="ls", stroke_width=stroke)
    return math.floor(top), math.ceil(bottom)


@lru_cache(maxsize=256)
def _font(path: Path | None, size: int) -> Any:
    from PIL import ImageFont

    # the other engine is not part of every Pillow, and sets some letters closer
    basic = ImageFont.Layout.BASIC
    if path is not None:
        return ImageFont.truetype(str(path), size, layout_engine=basic)
    font: Any = ImageFont.load_default(size)
    return font.font_variant(layout_engine=basic)
