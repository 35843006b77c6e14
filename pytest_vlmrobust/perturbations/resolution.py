"""Resolution: fewer pixels, fewer levels or more edge than was recorded; few bytes; and the resolution ladder."""

from __future__ import annotations

from functools import partial

import numpy as np

from .pixels import Image, extrapolate, opencv, pointwise, to_uint8
from .registry import Numbered, corruption, graded

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


# Digital: effects of storing an image in few bytes.


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


# The resolution ladder of Res-Bench: the same image at twelve sizes, measured along its long edge.


RUNGS = tuple(range(112, 1345, 112))
"""Long edges in pixels: 112, 224 ... 1344."""
LONG_EDGE = Numbered("long_edge", 1, 32_000, "pixels of the long edge")


def too_small(height: int, width: int, *, long_edge: int) -> str:
    """Returns that an image of ``height`` x ``width`` does not reach the rung, or an empty string."""
    longest = max(height, width)
    return f"the long edge has {longest} pixels, fewer than {long_edge}: left as it is" if longest < long_edge else ""


@corruption(
    family="ladder",
    levels={str(rung): {"long_edge": rung} for rung in RUNGS},
    numbered=LONG_EDGE,
    keeps_size=False,
    note=too_small,
    source="Res-Bench section 3",
)
def resolution(image: Image, *, long_edge: int) -> Image:
    """Shrinks the image until its long edge has ``long_edge`` pixels, averaging areas; the other side follows, rounded.

    A smaller image is unchanged, with a note: a rung never enlarges. All published images exceed the
    highest rung. The paper does not say how it resizes; averaging areas leaves no aliases.
    """
    height, width = image.shape[:2]
    if max(height, width) <= long_edge:
        return image
    return shrink_to_edge(image, long_edge)


def shrink_to_edge(image: Image, long_edge: int) -> Image:
    """Returns ``image`` with a shorter long edge, each new pixel the average of the area it covers."""
    cv2 = opencv()
    height, width = image.shape[:2]
    smaller: Image = cv2.resize(image, aligned_size(height, width, long_edge), interpolation=cv2.INTER_AREA)
    return smaller


def aligned_size(height: int, width: int, long_edge: int) -> tuple[int, int]:
    """Returns (width, height), OpenCV's order, of an image whose long edge becomes ``long_edge``; at least 1 pixel each."""
    return scaled_size(height, width, long_edge / max(height, width))
