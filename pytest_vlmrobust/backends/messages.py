"""A request as the user message of a conversation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from pytest_vlmrobust.core.sample import IMAGE_MARK

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pytest_vlmrobust.core.prediction import Request


def message(images: Sequence[NDArray[np.uint8]], text: str) -> dict[str, Any]:
    """Returns a user message: each image where the text has a mark for it; without marks the images in order, then the text.

    A request without images has its marks removed: the same words, and nothing to see.

    Args:
        images: uint8, shape (H, W, 3).
        text: Free of control tokens; with as many ``IMAGE_MARK`` as images, or none.
    """
    from PIL import Image

    pictures = [{"type": "image", "image": Image.fromarray(image)} for image in images]
    parts = text.split(IMAGE_MARK)
    if len(parts) == 1 or not pictures:
        return {"role": "user", "content": [*pictures, {"type": "text", "text": "".join(parts)}]}
    pieces = [{"type": "text", "text": part} for part in parts]
    mixed = [piece for pair in zip(pieces, pictures, strict=False) for piece in pair] + [pieces[-1]]
    return {"role": "user", "content": [piece for piece in mixed if piece.get("text") != ""]}


def conversation(system_prompt: str, user: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns a user message after the system prompt, if there is one."""
    system = [{"role": "system", "content": [{"type": "text", "text": system_prompt}]}] if system_prompt else []
    return [*system, user]


def malformed(request: Request) -> str:
    """Returns what is wrong with a request's images, or an empty string.

    Asked before batches are made, so that a request that cannot be sent does not change the batches of the others.
    """
    marks = request.text.count(IMAGE_MARK)
    if request.images and marks not in (0, len(request.images)):
        return f"the text has {marks} places for {len(request.images)} images; expected one for each, or none"
    for place, image in enumerate(request.images, start=1):
        if image.dtype.name != "uint8" or image.ndim != 3 or image.shape[2] != 3 or 0 in image.shape:
            return f"image {place} is {image.dtype} of shape {image.shape}; expected uint8 of shape (height, width, 3), not empty"
    return ""


# Control tokens in untrusted text: a question may quote ``<|image_pad|>``, and must not become an image.


class ControlTokens:
    """The strings that a processor reads as commands, and how to keep them apart from text.

    The library's own remedy (``sanitize_control_tokens``) does not work with every processor: Idefics3 refuses it for any
    request, Gemma 3 and InternVL for their own image tokens. So a control token in a question is broken by a space after its
    first visible character, in every family alike; the prediction says how many were.
    """

    def __init__(self, tokens: Iterable[str]) -> None:
        breakable = {token for token in tokens if len(token.strip()) > 1}
        longest_first = sorted(breakable, key=lambda token: (-len(token), token))
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    @classmethod
    def of(cls, processor: Any) -> ControlTokens:
        """Returns those of a processor: its tokenizer's special tokens, and every placeholder it names itself."""
        added = processor.tokenizer.added_tokens_decoder.values()
        special = [str(token.content) for token in added if token.special]
        named = [value for name, value in vars(processor).items() if name.endswith("_token") and isinstance(value, str)]
        return cls([*special, *processor.tokenizer.all_special_tokens, *named])

    def broken(self, text: str) -> tuple[str, int]:
        """Returns ``text`` without control tokens, and how many were broken.

        >>> ControlTokens(["<image>"]).broken("a <image> b")
        ('a < image> b', 1)
        """
        total = 0
        while self._pattern is not None:  # breaking one token can leave another; each pass breaks all that are left
            text, found = self._pattern.subn(lambda match: _split(match[0]), text)
            total += found
            if not found:
                break
        return text, total


def _split(token: str) -> str:
    after = len(token) - len(token.lstrip()) + 1
    return f"{token[:after]} {token[after:]}"
