"""Perturbations beside the published ones; they belong to no set of a paper."""

from __future__ import annotations

from .digital import scaled_size
from .opencv import opencv
from .pixels import Image
from .registry import corruption


@corruption(family="resolution", low={"scale": 1.5}, mid={"scale": 3.0}, high={"scale": 6.0}, source="pytest-vlmrobust")
def true_upsample(image: Image, *, scale: float) -> Image:
    """Enlarges by ``scale`` (bicubic) and shrinks back by averaging areas: interpolation without cropping.

    What the name ``upsample`` promises: nothing leaves the picture. The scale is no axis of severity, for the loss is small
    at any scale.
    """
    cv2 = opencv()
    height, width = image.shape[:2]
    large = cv2.resize(image, scaled_size(height, width, scale), interpolation=cv2.INTER_CUBIC)
    back: Image = cv2.resize(large, (width, height), interpolation=cv2.INTER_AREA)
    return back
