"""Thumbnails of what models saw, each once, named by the digest of the pixels that it shows."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_vlmrobust.core.errors import StoreError

from .atomic import replace_file

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FOLDER = "pictures"
"""The folder of a store directory that they stand in."""
LONG_EDGE = 320
"""Pixels of the longer side at most; smaller pictures are kept as large as they are."""

_QUALITY = 80


class Pictures:
    """A folder of WebP files that any number of processes may fill at once.

    A file is written whole or not at all, and its name says what is on it: whoever finds it there has nothing to do.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def has(self, digest: str) -> bool:
        """Whether there is a thumbnail of the pixels with this digest."""
        return (self.directory / file_name(digest)).is_file()

    def add(self, digest: str, image: NDArray[np.uint8]) -> None:
        """Writes the thumbnail of ``image``, uint8 RGB of shape (H, W, 3), unless it is there already.

        Raises:
            StoreError: the file cannot be written.
        """
        path = self.directory / file_name(digest)
        if path.is_file():
            return
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            replace_file(path, _encoded(image))
        except OSError as error:
            raise StoreError(
                f"{path}: cannot write the thumbnail: {error.strerror}. Check that its directory is writable and has room"
            ) from error


def file_name(digest: str) -> str:
    """Returns the name of the thumbnail of the pixels with this digest."""
    return f"{digest}.webp"


def _encoded(image: NDArray[np.uint8]) -> bytes:
    from PIL import Image

    picture, stream = Image.fromarray(image), BytesIO()
    picture.thumbnail((LONG_EDGE, LONG_EDGE), Image.Resampling.LANCZOS, reducing_gap=2.0)
    picture.save(stream, "WEBP", quality=_QUALITY, method=2)
    return stream.getvalue()
