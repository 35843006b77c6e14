"""Pictures of any common kind to uint8 RGB."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust.core.errors import ImageError

from .pixels import Image

HIGH_BIT_MODES = ("I", "I;16", "I;16L", "I;16B", "I;16N")


def as_rgb(image: Any) -> Image:
    """Returns a picture as uint8 RGB of shape (H, W, 3), in memory of its own.

    Takes a Pillow image of any mode but floating point, or an array of uint8, uint16 or bool with shape (H, W) or
    (H, W, 1) grey, (H, W, 2) grey with alpha, (H, W, 3) RGB or (H, W, 4) RGBA. Transparency is laid over white; 16 bits are
    scaled so that 65535 becomes 255, rounded. The orientation noted in EXIF data is not applied.

    Raises:
        TypeError: no picture, or numbers whose range is not evident, such as floats.
        ImageError: a shape that is no picture's, or 32-bit values above 65535.
    """
    if isinstance(image, np.ndarray):
        return _from_array(image)
    import PIL.Image

    if not isinstance(image, PIL.Image.Image):
        raise TypeError(
            f"as_rgb got {type(image).__module__}.{type(image).__qualname__}. Expected a Pillow image or a NumPy array"
        )
    if image.mode == "F":
        raise TypeError(
            "as_rgb got a Pillow image of mode F (floats), whose range is not evident. Scale it to 0..255 and convert('L') first"
        )
    if image.mode in HIGH_BIT_MODES:
        return _from_array(_sixteen_bits(np.asarray(image)))
    return _from_array(np.asarray(image.convert("RGBA" if image.has_transparency_data else "RGB")))


def _from_array(array: NDArray[Any]) -> Image:
    levels = _eight_bits(array)
    if levels.ndim == 2:
        levels = levels[:, :, None]
    if levels.ndim != 3 or not 1 <= levels.shape[2] <= 4 or levels.size == 0:
        raise ImageError(
            f"as_rgb got an array of shape {array.shape}. Expected (H, W), or (H, W, C) with 1 to 4 channels, not empty"
        )
    channels = levels.shape[2]
    colours = levels[:, :, : channels - 1] if channels in {2, 4} else levels
    opaque = _over_white(colours, levels[:, :, -1:]) if channels in {2, 4} else colours
    return np.repeat(opaque, 3, axis=2) if opaque.shape[2] == 1 else np.array(opaque, order="C")


def _eight_bits(array: NDArray[Any]) -> NDArray[np.uint8]:
    if array.dtype == np.uint8:
        return array
    if array.dtype == np.bool_:
        return array.astype(np.uint8) * np.uint8(255)
    if array.dtype == np.uint16:
        return ((array.astype(np.uint32) + 128) // 257).astype(np.uint8)
    raise TypeError(
        f"as_rgb got an array of {array.dtype}, whose range is not evident. Expected uint8 (0..255), uint16 (0..65535) or bool"
    )


def _sixteen_bits(values: NDArray[Any]) -> NDArray[np.uint16]:
    if values.size and not 0 <= int(values.min()) <= int(values.max()) <= 0xFFFF:
        raise ImageError(f"as_rgb got grey values from {values.min()} to {values.max()}. Expected 16 bits, 0 to 65535")
    return values.astype(np.uint16)


def _over_white(colours: NDArray[np.uint8], alpha: NDArray[np.uint8]) -> NDArray[np.uint8]:
    weight = alpha.astype(np.uint32)
    return ((colours * weight + 255 * (255 - weight) + 127) // 255).astype(np.uint8)
