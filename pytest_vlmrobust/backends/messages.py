"""A request as the one user message of a conversation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pytest_vlmrobust.core.prediction import Request


def message(images: Sequence[NDArray[np.uint8]], text: str) -> dict[str, Any]:
    """Returns a user message: the images in order, then the text.

    Args:
        images: uint8, shape (H, W, 3).
        text: Free of control tokens.
    """
    from PIL import Image

    pictures = [{"type": "image", "image": Image.fromarray(image)} for image in images]
    return {"role": "user", "content": [*pictures, {"type": "text", "text": text}]}


def malformed(request: Request) -> str:
    """Returns what is wrong with a request's images, or an empty string.

    Asked before batches are made, so that a request that cannot be sent does not change the batches of the others.
    """
    for place, image in enumerate(request.images, start=1):
        if image.dtype.name != "uint8" or image.ndim != 3 or image.shape[2] != 3 or 0 in image.shape:
            return f"image {place} is {image.dtype} of shape {image.shape}; expected uint8 of shape (height, width, 3), not empty"
    return ""
