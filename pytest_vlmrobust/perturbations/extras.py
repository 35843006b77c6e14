"""Other interpretations of details that the papers omit; they belong to no set of a paper.

A published perturbation has one meaning. A second plausible meaning of its name or parameter has its own name here.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from .blur import glass_blur
from .geometric import elastic_transform
from .overlay import center_occlusion
from .pixels import BLACK, Image, opencv
from .registry import corruption, graded
from .resolution import LONG_EDGE, RUNGS, aligned_size, scaled_size, too_small

SOURCE = "pytest-vlmrobust"


_extra = partial(corruption, source=SOURCE)


@_extra(family="resolution", levels=graded(scale=(1.5, 3.0, 6.0)))
def true_upsample(image: Image, *, scale: float) -> Image:
    """Enlarges by ``scale`` (bicubic) and shrinks back by averaging areas: interpolation without cropping.

    As the name ``upsample`` suggests, nothing leaves the image. The scale does not order severity, because the loss is small at
    any scale.
    """
    cv2 = opencv()
    height, width = image.shape[:2]
    large = cv2.resize(image, scaled_size(height, width, scale), interpolation=cv2.INTER_CUBIC)
    back: Image = cv2.resize(large, (width, height), interpolation=cv2.INTER_AREA)
    return back


@_extra(family="resolution", levels=graded(scale=(0.75, 0.35, 0.15)), keeps_size=False, changes={"high": ["text_18"]})
def shrink(image: Image, *, scale: float) -> Image:
    """Shrinks each side to ``scale`` by averaging areas, and leaves it so: ``downsample`` without enlarging back.

    A model that spends tokens by size sees fewer of them as well.
    """
    cv2 = opencv()
    height, width = image.shape[:2]
    small: Image = cv2.resize(image, scaled_size(height, width, scale), interpolation=cv2.INTER_AREA)
    return small


@_extra(
    family="ladder",
    levels={str(rung): {"long_edge": rung} for rung in RUNGS},
    numbered=LONG_EDGE,
    keeps_size=False,
    note=too_small,
)
def resolution_lanczos(image: Image, *, long_edge: int) -> Image:
    """Works like ``resolution`` with Pillow's Lanczos filter, which many loaders use; edges stay crisper than with averaging."""
    import PIL.Image

    height, width = image.shape[:2]
    if max(height, width) <= long_edge:
        return image
    smaller = PIL.Image.fromarray(image).resize(aligned_size(height, width, long_edge), PIL.Image.Resampling.LANCZOS)
    return np.asarray(smaller)


@_extra(
    family="overlay",
    levels=graded(width=(10, 30, 60)),
    changes={"mid": ["count", "presence", "text"], "high": ["count", "presence", "text"]},
)
def inner_border(image: Image, *, width: int) -> Image:
    """Paints a black frame of ``width`` pixels on the image, inwards: ``add_border`` at a constant size.

    At most half of the image's shorter side is painted from each end, less one pixel: something always stays in view.
    """
    height, wide = image.shape[:2]
    painted = min(width, (min(height, wide) - 1) // 2)
    result = np.full_like(image, BLACK)
    inside = np.s_[painted : height - painted, painted : wide - painted]
    result[inside] = image[inside]
    return result


@_extra(family="occlusion", levels=graded(area=(0.1, 0.3, 0.5)), changes=["count", "presence", "text"])
def area_occlusion(image: Image, *, area: float) -> Image:
    """Hides the central rectangle that covers a share ``area`` of the image: ``center_occlusion`` by area, not by side."""
    return center_occlusion(image, ratio=math.sqrt(area))


@_extra(
    family="blur",
    levels=graded(delta=(1, 3, 6)),
    stochastic=True,
    changes={"mid": ["text_18"], "high": ["colour", "text"]},
    version=2,
)
def glass_shuffle(image: Image, rng: np.random.Generator, *, delta: int) -> Image:
    """Works like ``glass_blur`` with a constant blur of 0.7 pixels and a growing shuffle, so that its levels order severity."""
    return glass_blur(image, rng, sigma=0.7, delta=delta)


@_extra(family="geometric", levels=graded(alpha=(30, 80, 180)), stochastic=True, changes={"high": ["text_18"]}, version=2)
def elastic_transform_10(image: Image, rng: np.random.Generator, *, alpha: float) -> Image:
    """Works like ``elastic_transform`` with a field smoothed over 10 pixels, not 5: wider waves, under half the displacement."""
    return elastic_transform(image, rng, alpha=alpha, sigma=10.0)
