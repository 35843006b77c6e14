"""Preprocessing: enlarges a small image to a higher rung of the resolution ladder, with or without new detail.

Res-Bench, Table 3, asks what a low resolution takes away: information, or tokens. ``resolution:224+pad_white:448`` has the tokens
of 448 pixels and the information of 224.
"""

from __future__ import annotations

from functools import partial

from .ladder import LONG_EDGE, aligned_size
from .pixels import BLACK, Color, Image, opencv
from .registry import corruption

WHITE: Color = (255, 255, 255)
LEVELS = {str(edge): {"long_edge": edge} for edge in (336, 448, 672, 784, 896, 1008, 1232, 1344)}
"""The final sizes of Res-Bench's Table 3."""


def large_already(height: int, width: int, *, long_edge: int) -> str:
    """Returns that an image of ``height`` x ``width`` is as large as that or larger, or an empty string."""
    longest = max(height, width)
    return f"the long edge has {longest} pixels, {long_edge} or more: left as it is" if longest >= long_edge else ""


_preprocessing = partial(corruption, family="preprocessing", source="Res-Bench Table 3", keeps_size=False)


@_preprocessing(levels=LEVELS, numbered=LONG_EDGE, note=large_already)
def pad_white(image: Image, *, long_edge: int) -> Image:
    """Puts the image in the middle of a white canvas of its own shape whose long edge has ``long_edge`` pixels.

    An odd pixel of margin goes to the bottom or right. The paper's text says both "white-padding" and "zero-value pixels":
    :func:`pad_zero` is the other reading.
    """
    return _pad(image, long_edge, WHITE)


@_preprocessing(levels=LEVELS, numbered=LONG_EDGE, note=large_already)
def pad_zero(image: Image, *, long_edge: int) -> Image:
    """Puts the image in the middle of a black canvas of its own shape whose long edge has ``long_edge`` pixels."""
    return _pad(image, long_edge, BLACK)


@_preprocessing(levels=LEVELS, numbered=LONG_EDGE, note=large_already)
def upscale_lanczos(image: Image, *, long_edge: int) -> Image:
    """Enlarges the image until its long edge has ``long_edge`` pixels, by Lanczos interpolation over 8 x 8 pixels."""
    return _enlarge(image, long_edge, opencv().INTER_LANCZOS4)


@_preprocessing(levels=LEVELS, numbered=LONG_EDGE, note=large_already)
def upscale_bicubic(image: Image, *, long_edge: int) -> Image:
    """Enlarges the image until its long edge has ``long_edge`` pixels, by bicubic interpolation.

    The baseline for the paper's super-resolution: equally many pixels without new detail.
    """
    return _enlarge(image, long_edge, opencv().INTER_CUBIC)


def _pad(image: Image, long_edge: int, colour: Color) -> Image:
    height, width = image.shape[:2]
    if large_already(height, width, long_edge=long_edge):
        return image
    cv2 = opencv()
    wide, tall = aligned_size(height, width, long_edge)
    top, left = (tall - height) // 2, (wide - width) // 2
    margins = (top, tall - height - top, left, wide - width - left)
    padded: Image = cv2.copyMakeBorder(image, *margins, cv2.BORDER_CONSTANT, value=colour)
    return padded


def _enlarge(image: Image, long_edge: int, interpolation: int) -> Image:
    height, width = image.shape[:2]
    if large_already(height, width, long_edge=long_edge):
        return image
    larger: Image = opencv().resize(image, aligned_size(height, width, long_edge), interpolation=interpolation)
    return larger
