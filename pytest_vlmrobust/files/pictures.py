"""Image files: the formats that are opened, for images from any source."""

from __future__ import annotations

from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from PIL import Image

FORMATS = ("PNG", "JPEG", "GIF", "BMP", "PPM", "WEBP", "TIFF", "JPEG2000", "AVIF")
"""Pixel formats only. Pillow passes EPS to Ghostscript, which runs programs, and has decoders that are not needed here.

AVIF is last: it needs Pillow 11.3.
"""


def open_picture(source: Path | IO[bytes]) -> Image.Image:
    """Opens an image file with Pillow if it has an allowed format; pixels are not decoded yet.

    Raises PIL.UnidentifiedImageError for other formats.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        return Image.open(source, formats=FORMATS)
    except UnidentifiedImageError as error:  # its message names a Python object by its memory address
        raise UnidentifiedImageError("it begins like no image of a format that is read here") from error
    except KeyError as unknown:
        raise UnidentifiedImageError(f"no image of a format that is read here: {', '.join(FORMATS)}") from unknown
