"""Asks a checkpoint through VLMEvalKit; runs in an environment of its own, for ``harnesses.py``.

    python harness_vlmevalkit.py CHECKPOINT FOLDER OUTPUT

``FOLDER`` has a file ``NAME.tsv`` of questions for each setting, which VLMEvalKit reads as its own dataset; ``OUTPUT`` gets its
files of answers, which a second run with the same folders goes on with. Its class ``Qwen2VLChat`` needs a GPU and
flash-attention, and makes sides multiples of 28 pixels; the one below is what its page on new models asks for, and calls
processor and ``generate`` as that class does.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from functools import partial
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

from harness_shared import float32_model, log_asking, processor
from PIL import Image


def without_torchvision() -> None:
    """Lets modules that need torchvision be imported where it is absent; no part that is used here does anything with it."""
    if importlib.util.find_spec("torchvision"):
        return
    importlib.import_module("transformers.utils.import_utils").is_torchvision_available()  # while it can tell
    for name in ("torchvision", "torchvision.io", "torchvision.transforms", "torchvision.transforms.functional"):
        stand_in = MagicMock(name=name)
        stand_in.__spec__, stand_in.__path__ = ModuleSpec(name, None), []
        sys.modules[name] = stand_in


def model_class() -> type:
    """Returns the class of a model for VLMEvalKit."""
    from vlmeval.vlm.base import BaseModel

    class Float32(BaseModel):  # type: ignore[misc]  # its base has no types
        """Any checkpoint of the Qwen2-VL family, in float32 on the CPU."""

        INTERLEAVE = True

        def __init__(self, checkpoint: str) -> None:
            super().__init__()
            self.processor, self.model = processor(checkpoint), float32_model(checkpoint)

        def generate_inner(self, message: list[dict[str, str]], _dataset: str | None = None) -> str:
            """Returns the answer to one question."""
            parts = [{"type": part["type"], part["type"]: part["value"]} for part in message]
            shown = [Image.open(part["value"]).convert("RGB") for part in message if part["type"] == "image"]
            messages = [{"role": "user", "content": parts}]
            text = self.processor.apply_chat_template([messages], tokenize=False, add_generation_prompt=True)
            inputs = self.processor(text=text, images=shown, padding=True, return_tensors="pt")
            tokens = self.model.generate(**inputs, max_new_tokens=1, do_sample=False)
            new: Any = tokens[:, inputs.input_ids.shape[1] :]
            return str(self.processor.tokenizer.batch_decode(new, skip_special_tokens=True)[0])

    return Float32


def main(checkpoint: str, folder: str, output: str) -> None:
    """Runs VLMEvalKit's own command in this process."""
    os.environ["LMUData"] = folder  # noqa: SIM112 - its name
    os.environ["PRED_FORMAT"] = "tsv"
    without_torchvision()
    from vlmeval import run
    from vlmeval.config import supported_VLM

    supported_VLM["tiny"] = partial(model_class(), checkpoint)
    log_asking()
    names = [file.stem for file in sorted(Path(folder).glob("*.tsv"))]
    sys.argv = ["vlmeval", "--data", *names, "--model", "tiny", "--mode", "infer", "--work-dir", output, "--reuse"]
    run.main()


if __name__ == "__main__":
    main(*sys.argv[1:])
