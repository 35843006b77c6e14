"""Image files: which formats are opened, in one list, wherever an image comes from."""

from __future__ import annotations

from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from PIL import Image

FORMATS = ("PNG", "JPEG", "GIF", "BMP", "PPM", "WEBP", "TIFF", "JPEG2000", "AVIF")
"""Formats of pixels alone. Pillow hands EPS to Ghostscript, which runs programs, and knows decoders that nobody needs here.

AVIF comes last: Pillow knows it from 11.3 on.
"""


def open_picture(source: Path | IO[bytes]) -> Image.Image:
    """Opens an image file as Pillow does, if it is of one of the formats; no pixel is decoded yet.

    Any other is a PIL.UnidentifiedImageError.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        return Image.open(source, formats=FORMATS)
    except UnidentifiedImageError as error:  # its words name an object of Python's, by its place in memory
        raise UnidentifiedImageError("it begins like no image of a format that is read here") from error
    except KeyError as unknown:
        raise UnidentifiedImageError(f"no image of a format that is read here: {', '.join(FORMATS)}") from unknown
