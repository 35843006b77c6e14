"""Overlay and occlusion: text, watermarks, borders and blocks that lie over an image.

The paper gives the font size and nothing else: words, places, colours and opacities are ours. The typeface is the one that
Pillow carries, so no font of the system is needed or used. Letters have the size of the paper in images of up to 640 x 480
pixels, and are as large a part of larger ones, as weather is: 72 pixels of a page of 4000 would be lost. A border stays as wide
as the paper says: it hides nothing.
"""

from __future__ import annotations

import functools
import math
from functools import partial

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust.core.errors import MissingExtra

from .pixels import BLACK, Color, Image, Plane, blend, opencv
from .registry import corruption, graded

TEXT = "SAMPLE TEXT"
WATERMARK = "SAMPLE"
WHITE: Color = (255, 255, 255)
COMMON_AREA = 640 * 480
"""Pixels of an image from which on letters grow with it."""


_overlay = partial(corruption, family="overlay", source="VLM-RobustBench Table 29")


@_overlay(levels=graded(fontsize=(24, 48, 72)), stochastic=True, changes=["text"], version=2)
def text_overlay(image: Image, rng: np.random.Generator, *, fontsize: int) -> Image:
    """Writes "SAMPLE TEXT" in white with a black outline, as captions of memes are, ``fontsize`` pixels high.

    The place inside the image is random, about the same at all levels: the words are not related to a question, and no region
    is always free of them. Words wider than the image are centred and cut off. It adds words, so "what is written here" has
    another answer.
    """
    size = _scaled_size(fontsize, *image.shape[:2])
    outline = max(1, size // 16)
    letters, around = _letters(TEXT, size, outline, 0), _letters(TEXT, size, outline, outline)
    spare = image.shape[0] - letters.shape[0], image.shape[1] - letters.shape[1]
    top, left = (int(share * (room + 1)) if room > 0 else room // 2 for share, room in zip(rng.random(2), spare, strict=True))
    return _stamp(_stamp(image, BLACK, around, top, left), WHITE, letters, top, left)


@_overlay(levels=graded(fontsize=(24, 48, 72)), changes=["text"], version=3)
def watermark(image: Image, *, fontsize: int) -> Image:
    """Writes "SAMPLE" across the centre, rising by 30 degrees, half transparent, ``fontsize`` pixels high.

    White with a black edge, as the marks of image agencies are, so that it shows on black, on white and on all between;
    half transparent, so that what lies under it can still be made out.
    """
    size = _scaled_size(fontsize, *image.shape[:2])
    edge = max(1, size // 24)
    letters = _rotate_plane(_letters(WATERMARK, size, edge, 0), degrees=30.0)
    edges = np.maximum(_rotate_plane(_letters(WATERMARK, size, edge, edge), degrees=30.0) - letters, 0.0)
    top, left = (image.shape[0] - letters.shape[0]) // 2, (image.shape[1] - letters.shape[1]) // 2
    half = np.float32(0.5)
    return _stamp(_stamp(image, BLACK, half * edges, top, left), WHITE, half * letters, top, left)


@_overlay(levels=graded(width=(10, 30, 60)), keeps_size=False)
def add_border(image: Image, *, width: int) -> Image:
    """Puts a black frame of ``width`` pixels around the image, which grows by twice that in each direction.

    Around and not on top: 60 pixels painted inwards would hide more than half of an image of 400 x 300, and no such drop
    is published. Black is the default of the usual libraries.
    """
    cv2 = opencv()
    framed: Image = cv2.copyMakeBorder(image, width, width, width, width, cv2.BORDER_CONSTANT, value=BLACK)
    return framed


def _scaled_size(fontsize: int, height: int, width: int) -> int:
    return round(fontsize * max(1.0, math.sqrt(height * width / COMMON_AREA)))


@functools.lru_cache(maxsize=32)
def _letters(text: str, size: int, margin: int, stroke: int) -> Plane:
    """Returns how much of each pixel the text covers, in [0, 1], cut to its bounding box plus ``margin``; read-only."""
    import PIL.Image
    import PIL.ImageDraw
    import PIL.ImageFont

    try:
        font = PIL.ImageFont.load_default(size)
    except ImportError as error:
        raise MissingExtra("drawing text", "Pillow with FreeType", install="--force-reinstall pillow") from error
    left, top, right, bottom = font.getbbox(text)
    box = (math.ceil(right - left) + 2 * margin, math.ceil(bottom - top) + 2 * margin)
    canvas = PIL.Image.new("L", box)
    PIL.ImageDraw.Draw(canvas).text((margin - left, margin - top), text, fill=255, font=font, stroke_width=stroke)
    coverage = np.asarray(canvas, np.float32) / np.float32(255)
    coverage.flags.writeable = False
    return coverage


def _rotate_plane(plane: Plane, *, degrees: float) -> Plane:
    cv2 = opencv()
    height, width = plane.shape
    turn = cv2.getRotationMatrix2D(((width - 1) / 2, (height - 1) / 2), degrees, 1.0)
    across, down = np.ceil(np.abs(turn[:, :2]) @ (width, height)).astype(int).tolist()
    turn[:, 2] += (across - width) / 2, (down - height) / 2
    turned: Plane = cv2.warpAffine(plane, turn, (across, down), flags=cv2.INTER_LINEAR)
    return turned


def _stamp(image: Image, colour: Color, opacity: Plane, top: int, left: int) -> Image:
    """Returns ``image`` with ``colour`` laid over it by ``opacity``, placed at (top, left); parts outside are cut off."""
    height, width = image.shape[:2]
    inside = np.ascontiguousarray(opacity[max(0, -top) : height - top, max(0, -left) : width - left])
    window = np.s_[max(0, top) : max(0, top) + inside.shape[0], max(0, left) : max(0, left) + inside.shape[1]]
    result = image.copy()
    result[window] = blend(image[window], colour, inside)
    return result


# Occlusion: paints part of the image black, the default of common libraries; the paper names no colour.
#
# Hidden things cannot be seen or counted, so the answers to questions about presence change where things of a twentieth of the
# image's shorter side disappear (``studies/declarations``).


GRID_CELLS = 8


_occlusion = partial(corruption, family="occlusion")


@_occlusion(
    levels=graded(ratio=(0.05, 0.15, 0.25)),
    stochastic=True,
    changes={"low": ["presence", "count"], "mid": ["presence", "count", "text"], "high": ["presence", "count", "text"]},
    source="VLM-RobustBench Table 29; after Zhong et al. 2020",
    version=2,
)
def random_occlusion(image: Image, rng: np.random.Generator, *, ratio: float) -> Image:
    """Hides a rectangle with a share ``ratio`` of the area ("area blocked"), at a random position.

    Number and shape are not published. One rectangle, because the paper speaks of an area blocked; its shape relative to the
    image's is drawn log-evenly between 1:2 and 2:1, so that it is not a strip.
    """
    height, width = image.shape[:2]
    stretch = math.sqrt(2.0 ** rng.uniform(-1.0, 1.0))
    tall, wide = round(math.sqrt(ratio) * height * stretch), round(math.sqrt(ratio) * width / stretch)
    down, across = rng.random(), rng.random()
    top, left = int(down * (height - tall + 1)), int(across * (width - wide + 1))  # a larger rectangle contains a smaller one
    result = image.copy()
    result[top : top + tall, left : left + wide] = 0
    return result


@_occlusion(
    levels=graded(ratio=(0.1, 0.2, 0.3)),
    stochastic=True,
    changes=["text"],
    source="VLM-RobustBench Table 29; after Chen et al. 2020",
    version=2,
)
def grid_mask(image: Image, rng: np.random.Generator, *, ratio: float) -> Image:
    """Hides a share ``ratio`` of the area by a grid of squares, eight to the shorter side, at a random offset.

    The paper says "grid density"; the number of squares is ours. Only things smaller than a square disappear completely.
    """
    height, width = image.shape[:2]
    period = min(height, width) / GRID_CELLS
    down, across = rng.uniform(0.0, period, 2)
    rows = _stripes(height, period, down, math.sqrt(ratio))
    columns = _stripes(width, period, across, math.sqrt(ratio))
    kept = np.where(np.repeat(columns, 3), np.uint8(0), np.uint8(255))
    result = image.copy()
    for start, end in np.flatnonzero(np.diff(rows, prepend=False, append=False)).reshape(-1, 2).tolist():
        result[start:end].reshape(end - start, -1)[:] &= kept
    return result


@_occlusion(
    levels=graded(ratio=(0.1, 0.3, 0.5)),
    changes={"mid": ["presence", "count", "text"], "high": ["presence", "count", "text"]},
    source="VLM-RobustBench Table 29",
)
def center_occlusion(image: Image, *, ratio: float) -> Image:
    """Hides the central rectangle whose sides are ``ratio`` of the image's.

    Of the sides, not of the area: half of the area, around the centre, would cost far more than the 6 to 9 points published.
    """
    height, width = image.shape[:2]
    tall, wide = round(ratio * height), round(ratio * width)
    top, left = (height - tall) // 2, (width - wide) // 2
    result = image.copy()
    result[top : top + tall, left : left + wide] = 0
    return result


def _stripes(length: int, period: float, offset: float, share: float) -> NDArray[np.bool_]:
    """Returns which positions are within ``share`` of each period; periods need not be whole pixels."""
    return (np.arange(length) + offset) % period < share * period
