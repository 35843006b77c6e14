"""Fitting: a picture brought to a given size without distortion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_vlmrobust.core.fingerprint import fingerprint
from pytest_vlmrobust.core.sample import ImageSource

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

VERSION = 1
"""Changes whenever a pixel changes."""
_WHITE = 255


def fitted(picture: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.uint8]:
    """Returns a picture scaled to fit (Lanczos, as the released code does) and, where its shape is another, centred on white.

    Args:
        picture: RGB, uint8, shape (H, W, 3).
        size: width and height that are wanted, in pixels.

    Returns:
        RGB, uint8, shape (height, width, 3); the very pixels of a picture that has the size.
    """
    import numpy as np

    height, width = picture.shape[:2]
    if (width, height) == size:
        return picture
    scale = min(size[0] / width, size[1] / height)
    inner = (max(1, round(width * scale)), max(1, round(height * scale)))
    whole = np.full((size[1], size[0], 3), _WHITE, np.uint8)
    left, top = (size[0] - inner[0]) // 2, (size[1] - inner[1]) // 2
    whole[top : top + inner[1], left : left + inner[0]] = scaled(picture, inner)
    return whole


def scaled(picture: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.uint8]:
    """Returns a picture (RGB, uint8, shape (H, W, 3)) at exactly ``size``, width and height in pixels (Lanczos)."""
    import numpy as np
    from PIL import Image

    return np.asarray(Image.fromarray(picture).resize(size, Image.Resampling.LANCZOS))


@dataclass(frozen=True, slots=True)
class Fitted:
    """A picture in another size, made when loaded."""

    image: ImageSource
    size: tuple[int, int]
    """Width and height in pixels."""

    def load(self) -> NDArray[np.uint8]:
        """Returns RGB pixels, uint8, shape (height, width, 3).

        Raises:
            ImageError: the picture cannot be read.
        """
        return fitted(self.image.load(), self.size)

    def identity(self) -> str:
        """Returns what the pixels are a function of; Pillow, which scales them, is part of it.

        Raises:
            ImageError: as ``load``.
        """
        from PIL import __version__

        return fingerprint(["fitted", VERSION, __version__, list(self.size), self.image.identity()])
