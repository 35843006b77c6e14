"""Control tokens in untrusted text: a question may quote ``<|image_pad|>``, and must not thereby become an image."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any


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
