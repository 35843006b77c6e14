"""Resolution: fewer pixels, fewer levels, or more edge than was recorded (the paper's grouping)."""

from __future__ import annotations

from functools import partial

import numpy as np

from .digital import average_areas, scaled_size
from .pixels import Image, extrapolate, opencv, pointwise
from .registry import corruption, graded

LEVELS = np.arange(256)
BOX_SHARE = 9.0 / 13.0
"""How much of the kernel that sharpening smooths by is a mean of 3 x 3 pixels; the rest is the pixel itself."""


_resolution = partial(corruption, family="resolution", source="VLM-RobustBench Table 29")


@_resolution(levels=graded(scale=(0.75, 0.35, 0.15)), changes={"high": ["text_18"]})
def downsample(image: Image, *, scale: float) -> Image:
    """Shrinks each side to ``scale`` by averaging areas, and enlarges it back bilinearly.

    It is enlarged back, so that a model with tokens by size is tested on lost detail and not on fewer tokens; sending
    fewer pixels is the purpose of the resolution ladder. The filters are not published: averaging leaves no aliases, and bilinear
    enlarging adds no edges, so only detail is lost.
    """
    cv2 = opencv()
    height, width = image.shape[:2]
    small = average_areas(image, *scaled_size(height, width, scale))
    enlarged: Image = cv2.resize(small, (width, height), interpolation=cv2.INTER_LINEAR)
    return enlarged


@_resolution(levels=graded(scale=(1.5, 3.0, 6.0)), changes=["presence", "count", "position", "text"], version=3)
def upsample(image: Image, *, scale: float) -> Image:
    """Enlarges by ``scale`` (bicubic) and keeps the centre at the original size: crop and zoom.

    It removes 56, 89 and 97 percent of the image. The paper says "interpolation", but drops of 2.5, 15 and 31 points, also
    for a model that resizes every input to 896 pixels, cannot come from interpolation; for that, see ``true_upsample``.
    Position and filter of the crop are not published: most images have their subject in the centre, and bicubic is
    Pillow's default.
    """
    cv2 = opencv()
    height, width = image.shape[:2]
    middle = image[_central(height, scale), _central(width, scale)]
    enlarged: Image = cv2.resize(middle, (width, height), interpolation=cv2.INTER_CUBIC)
    return enlarged


@_resolution(levels=graded(factor=(1.5, 3.0, 6.0)), version=2)
def sharpen(image: Image, *, factor: float) -> Image:
    """Multiplies the distance of every pixel from its smoothed neighbourhood by ``factor``.

    The smoothing kernel is that of Pillow's ``ImageEnhance.Sharpness``: 3 x 3, centre 5, others 1, over 13. That is 4/13 of the
    pixel and 9/13 of the mean of nine, which is four times as fast to find, so the distance from that mean is multiplied.
    """
    cv2 = opencv()
    mean: Image = cv2.blur(image, (3, 3), borderType=cv2.BORDER_REFLECT_101)
    return extrapolate(image, mean, 1.0 + (factor - 1.0) * BOX_SHARE)


@_resolution(levels=graded(bits=(6, 4, 2)))
def posterize(image: Image, *, bits: int) -> Image:
    """Keeps the ``bits`` highest bits of every value and clears the others, as Pillow's ``posterize`` does."""
    return image & np.uint8(0xFF & ~(0xFF >> bits))


@_resolution(levels=graded(threshold=(200, 128, 64)), changes=["colour", "text_24"])
def solarize(image: Image, *, threshold: int) -> Image:
    """Inverts every value of ``threshold`` or more; already at 200 a white background turns black.

    At or above the threshold, as Pillow has it; published drops of 5.5, 5.0 and 9.0 points fit a background that flips at all
    three levels.
    """

    def inverted(values: Image) -> Image:
        bright = (values >= threshold).view(np.uint8)
        bright *= 255
        bright ^= values
        return bright

    return pointwise(image, inverted)


def _central(length: int, scale: float) -> slice:
    """Returns the central share ``1 / scale`` of a side's pixels, rounded so that the centre stays exactly in place."""
    margin = min(round(length * (1 - 1 / scale) / 2), (length - 1) // 2)
    return slice(margin, length - margin)
