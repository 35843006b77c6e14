"""A gallery: one image under many settings, on one page that a browser shows and prints.

    show(Path("photo.jpg"), Path("gallery.html"))   # the default sets
    show(Path("photo.jpg"), Path("fog.html"), settings=["fog:mid+jpeg_compression:high"])

``sheet`` reads the image and says what is shown, ``quality`` measures, ``page`` draws and writes.
"""

from __future__ import annotations

from .page import DEFAULT_SETS, TILE, show
from .sheet import Gallery, gallery

__all__ = ["DEFAULT_SETS", "TILE", "Gallery", "gallery", "show"]
