"""What the drivers of ``harnesses.py`` have in common; imports transformers and nothing of this package."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any


def log_asking() -> None:
    """Makes every call of ``generate`` add two lines to ``$HARNESS_LOG``: ``asked`` or ``answered``, two times, the rows.

    The times are that of the clock since the epoch and that of the processor since the process began, in seconds. A line is
    written at once, so that it outlives the process.
    """
    from transformers import GenerationMixin

    generate = GenerationMixin.generate

    def logged(self: Any, *arguments: Any, **named: Any) -> Any:
        rows = len(named["input_ids"])
        _write("asked", rows)
        tokens = generate(self, *arguments, **named)
        _write("answered", rows)
        return tokens

    GenerationMixin.generate = logged


def float32_model(checkpoint: str) -> Any:
    """Returns a model of the Qwen2-VL family with its weights in float32, on the CPU."""
    import torch
    from transformers import Qwen2VLForConditionalGeneration

    return Qwen2VLForConditionalGeneration.from_pretrained(checkpoint, dtype=torch.float32).eval()


def processor(checkpoint: str, **_options: Any) -> Any:
    """Returns the checkpoint's processor without the part for videos, which needs torchvision and refuses to load without it."""
    from transformers import AutoImageProcessor, AutoTokenizer, Qwen2VLProcessor

    class OfPictures(Qwen2VLProcessor):  # type: ignore[misc]
        """The same for text and pictures; empty lists of other media are left out."""

        def check_argument_for_proper_class(self, name: str, argument: Any) -> Any:
            """Accepts that there is no video processor."""
            return None if name == "video_processor" else super().check_argument_for_proper_class(name, argument)

        def __call__(self, *arguments: Any, videos: Any = None, audios: Any = None, **named: Any) -> Any:
            """Encodes text and pictures."""
            if videos or audios:
                raise ValueError("expected pictures and text only")
            return super().__call__(*arguments, **named)

    images = AutoImageProcessor.from_pretrained(checkpoint)
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    template = Path(checkpoint, "chat_template.jinja").read_text(encoding="utf-8")
    return OfPictures(images, tokenizer, chat_template=template)


def _write(what: str, rows: int) -> None:
    with Path(os.environ["HARNESS_LOG"]).open("a", encoding="ascii") as file:
        file.write(f"{what} {time.time():.6f} {time.process_time():.6f} {rows}\n")
