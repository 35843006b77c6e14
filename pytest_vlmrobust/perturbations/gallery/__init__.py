"""A gallery: one picture under many settings, on one page.

    show(Path("photo.jpg"), Path("gallery.html"))   # the default sets
    show(Path("photo.jpg"), Path("fog.png"), settings=["fog:mid+jpeg_compression:high"])

``source`` reads the picture, ``sheet`` says what is shown, ``quality`` measures, ``html`` and ``png`` draw, ``writing`` writes.
"""

from __future__ import annotations

from .sheet import Gallery, gallery
from .writing import DEFAULT_SETS, TILE, show

__all__ = ["DEFAULT_SETS", "TILE", "Gallery", "gallery", "show"]
