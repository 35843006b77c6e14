"""Digital: effects of storing an image in few bytes."""

from __future__ import annotations

from functools import partial

import numpy as np

from .pixels import Image, opencv, to_uint8
from .registry import corruption, graded

FLOATS_IN_CACHE = 1 << 22
"""Values of an image that are worth converting to floats: more of them leave the caches of common processors."""


_digital = partial(corruption, family="digital", source="VLM-RobustBench Table 29; after Hendrycks & Dietterich 2019")


@_digital(levels=graded(quality=(80, 50, 20)))
def jpeg_compression(image: Image, *, quality: int) -> Image:
    """Writes and reads the image as a baseline JPEG of ``quality`` (1..95) with 4:2:0 chroma, the usual default, stated.

    Decoded pixels differ by a level or two between builds of libjpeg.
    """
    cv2 = opencv()
    chroma = (cv2.IMWRITE_JPEG_SAMPLING_FACTOR, cv2.IMWRITE_JPEG_SAMPLING_FACTOR_420)
    blue_first = cv2.cvtColor(image, cv2.COLOR_RGB2BGR)
    _, written = cv2.imencode(".jpg", blue_first, (cv2.IMWRITE_JPEG_QUALITY, quality, *chroma))
    if hasattr(cv2, "IMREAD_COLOR_RGB"):  # OpenCV 4.11 and later
        decoded: Image = cv2.imdecode(written, cv2.IMREAD_COLOR_RGB)
    else:
        decoded = cv2.cvtColor(cv2.imdecode(written, cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB)
    return decoded


@_digital(levels=graded(scale=(0.9, 0.5, 0.2)), changes={"high": ["text_12"]})
def pixelate(image: Image, *, scale: float) -> Image:
    """Shrinks each side to ``scale`` by averaging areas, and enlarges back by repeating pixels.

    The filter for shrinking is not published; averaging is that of Hendrycks & Dietterich, but weighs a pixel by the area that it
    shares with the new one, where Pillow's box filter takes pixels as a whole. That matters at 0.9 alone, where such a box takes
    most pixels as they are: a photograph changes more than twice as much here.
    """
    cv2 = opencv()
    height, width = image.shape[:2]
    small = average_areas(image, *scaled_size(height, width, scale))
    # rows are enlarged once each and then repeated: half the time of enlarging both sides at once, and the same pixels
    long_rows = cv2.resize(small, (width, len(small)), interpolation=cv2.INTER_NEAREST_EXACT)
    numbers = np.arange(len(small), dtype=np.float32)[:, None]
    which = cv2.resize(numbers, (1, height), interpolation=cv2.INTER_NEAREST_EXACT).astype(np.intp).ravel()
    blocks: Image = long_rows.take(which, axis=0)
    return blocks


def average_areas(image: Image, width: int, height: int) -> Image:
    """Returns ``image`` shrunk to ``width`` x ``height`` by averaging areas.

    OpenCV adds floats in any case, and takes a fifth longer to read them from bytes, one by one, than all are converted in
    before. Whole numbers of pixels it adds as bytes, and floats of a large image do not fit into the caches.
    """
    cv2 = opencv()
    whole = image.shape[1] % width == 0 and image.shape[0] % height == 0
    if whole or image.size > FLOATS_IN_CACHE:
        small: Image = cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA)
        return small
    return to_uint8(cv2.resize(image.astype(np.float32), (width, height), interpolation=cv2.INTER_AREA))


def scaled_size(height: int, width: int, scale: float) -> tuple[int, int]:
    """Returns (width, height), OpenCV's order, of an image whose sides are multiplied by ``scale``; at least 1 pixel each."""
    return max(1, round(width * scale)), max(1, round(height * scale))
