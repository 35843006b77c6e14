"""The resolution ladder of Res-Bench: the same picture at twelve sizes, measured along its long edge."""

from __future__ import annotations

from .digital import scaled_size
from .pixels import BLACK, Color, Image, opencv
from .record import Numbered
from .registry import corruption

RUNGS = tuple(range(112, 1345, 112))
"""Long edges in pixels: 112, 224 ... 1344."""
LONG_EDGE = Numbered("long_edge", 1, 32_000, "pixels of the long edge")


def too_small(height: int, width: int, *, long_edge: int) -> str:
    """Returns that a picture of ``height`` x ``width`` does not reach the rung, or an empty string."""
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
    """Shrinks the picture until its long edge has ``long_edge`` pixels, averaging areas; the other side follows, rounded.

    A picture that is smaller is left as it is, and a note says so: a rung never enlarges. Published pictures all exceed the
    highest rung. The paper does not say how it resizes; averaging areas leaves no aliases, whatever the factor.
    """
    height, width = image.shape[:2]
    if max(height, width) <= long_edge:
        return image
    return shrunk(image, long_edge)


def shrunk(image: Image, long_edge: int) -> Image:
    """Returns ``image`` with a shorter long edge, each new pixel the average of the area it covers."""
    cv2 = opencv()
    height, width = image.shape[:2]
    smaller: Image = cv2.resize(image, aligned_size(height, width, long_edge), interpolation=cv2.INTER_AREA)
    return smaller


def aligned_size(height: int, width: int, long_edge: int) -> tuple[int, int]:
    """Returns (width, height), OpenCV's order, of a picture whose long edge becomes ``long_edge``; at least 1 pixel each."""
    return scaled_size(height, width, long_edge / max(height, width))


# Preprocessing: a small picture made as large as a higher rung of the resolution ladder, with or without more to see.
#
# Res-Bench, Table 3, asks what a low resolution takes away: information, or tokens. ``resolution:224+pad_white:448`` has the
# tokens of 448 pixels and the information of 224.


WHITE: Color = (255, 255, 255)
LEVELS = {str(edge): {"long_edge": edge} for edge in (336, 448, 672, 784, 896, 1008, 1232, 1344)}
"""The final sizes of Res-Bench's Table 3."""


def large_already(height: int, width: int, *, long_edge: int) -> str:
    """Returns that a picture of ``height`` x ``width`` is as large as that or larger, or an empty string."""
    longest = max(height, width)
    return f"the long edge has {longest} pixels, {long_edge} or more: left as it is" if longest >= long_edge else ""


@corruption(
    family="preprocessing", levels=LEVELS, numbered=LONG_EDGE, keeps_size=False, note=large_already, source="Res-Bench Table 3"
)
def pad_white(image: Image, *, long_edge: int) -> Image:
    """Puts the picture in the middle of a white canvas of its own shape whose long edge has ``long_edge`` pixels.

    An odd pixel of margin goes to the bottom or right. The paper's text says both "white-padding" and "zero-value pixels":
    :func:`pad_zero` is the other reading.
    """
    return _padded(image, long_edge, WHITE)


@corruption(
    family="preprocessing", levels=LEVELS, numbered=LONG_EDGE, keeps_size=False, note=large_already, source="Res-Bench Table 3"
)
def pad_zero(image: Image, *, long_edge: int) -> Image:
    """Puts the picture in the middle of a black canvas of its own shape whose long edge has ``long_edge`` pixels."""
    return _padded(image, long_edge, BLACK)


@corruption(
    family="preprocessing", levels=LEVELS, numbered=LONG_EDGE, keeps_size=False, note=large_already, source="Res-Bench Table 3"
)
def upscale_lanczos(image: Image, *, long_edge: int) -> Image:
    """Enlarges the picture until its long edge has ``long_edge`` pixels, by Lanczos interpolation over 8 x 8 pixels."""
    return _enlarged(image, long_edge, opencv().INTER_LANCZOS4)


@corruption(
    family="preprocessing", levels=LEVELS, numbered=LONG_EDGE, keeps_size=False, note=large_already, source="Res-Bench Table 3"
)
def upscale_bicubic(image: Image, *, long_edge: int) -> Image:
    """Enlarges the picture until its long edge has ``long_edge`` pixels, by bicubic interpolation.

    What the super-resolution of the paper is to be compared with: as many pixels, and nothing new in them.
    """
    return _enlarged(image, long_edge, opencv().INTER_CUBIC)


def _padded(image: Image, long_edge: int, colour: Color) -> Image:
    height, width = image.shape[:2]
    if large_already(height, width, long_edge=long_edge):
        return image
    cv2 = opencv()
    wide, tall = aligned_size(height, width, long_edge)
    top, left = (tall - height) // 2, (wide - width) // 2
    margins = (top, tall - height - top, left, wide - width - left)
    padded: Image = cv2.copyMakeBorder(image, *margins, cv2.BORDER_CONSTANT, value=colour)
    return padded


def _enlarged(image: Image, long_edge: int, interpolation: int) -> Image:
    height, width = image.shape[:2]
    if large_already(height, width, long_edge=long_edge):
        return image
    larger: Image = opencv().resize(image, aligned_size(height, width, long_edge), interpolation=interpolation)
    return larger
