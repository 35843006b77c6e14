"""The picture a gallery is made of, from a file."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_vlmrobust.core.errors import ImageError

from ..conversion import as_rgb
from ..pixels import Image

if TYPE_CHECKING:
    import PIL.Image

EXIF_ORIENTATION = 0x0112


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """A clean picture, what it is called, and what was done to the file to get it."""

    name: str
    image: Image
    """uint8 RGB, shape (H, W, 3)."""
    remarks: tuple[str, ...] = ()


def read(path: Path) -> Source:
    """Returns the picture in a file of any format that Pillow reads: turned as its EXIF data says, the first frame of several.

    Raises:
        ImageError: there is no such file, it is no picture, it is cut short, or it has more pixels than Pillow holds safe.
    """
    import PIL.Image

    if not path.is_file():
        found = "a directory" if path.is_dir() else "no such file"
        raise ImageError(f"{path}: {found}. Expected a picture in a format that Pillow reads, such as PNG, JPEG or WebP")
    try:
        with warnings.catch_warnings():
            # of a suspiciously large picture Pillow only warns, and would go on to fill the memory
            warnings.simplefilter("error", PIL.Image.DecompressionBombWarning)
            with PIL.Image.open(path) as opened:
                return _source(path.name, opened)
    except Exception as error:  # decoders of damaged files raise whatever they stumble over
        raise ImageError(
            f"{path}: cannot be read as a picture ({type(error).__name__}: {error}). "
            "Expected a complete file in a format that Pillow reads, such as PNG, JPEG or WebP"
        ) from error


def _source(name: str, opened: PIL.Image.Image) -> Source:
    import PIL.ImageOps

    remarks = []
    frames = getattr(opened, "n_frames", 1)
    if frames > 1:
        remarks.append(f"the first of {frames} frames")
    if opened.getexif().get(EXIF_ORIENTATION, 1) != 1:
        remarks.append("turned as its EXIF data says")
    return Source(name, as_rgb(PIL.ImageOps.exif_transpose(opened)), tuple(remarks))
