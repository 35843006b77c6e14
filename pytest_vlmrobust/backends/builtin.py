"""Models that can be asked for by a short name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pytest_vlmrobust.core.boxes import RESIZED_PIXELS
from pytest_vlmrobust.core.model import ModelRef

TINY = "tiny"

BOX_CONVENTIONS = {
    "qwen2-vl": "thousandths",
    "qwen2.5-vl": RESIZED_PIXELS,
    "qwen3-vl": "thousandths",
    "internvl3.5": "thousandths",
}
"""Family to the convention in which it writes boxes; of the others none is documented, and ``pixels`` are taken.

Source: the maintainers' answers in the issues of QwenLM/Qwen3-VL, for Qwen2-VL and Qwen2.5-VL in 676, 940, 947 and 1367, for
Qwen3-VL in 1486 and 1741; for InternVL its documented data format, which is that of versions 2 to 2.5 and taken to hold for 3.5.
"""


@dataclass(frozen=True, slots=True)
class Published:
    """A model of the hub: where it is, its family, its size in billions of parameters as its name says it."""

    hub_id: str
    family: str
    billions: float
    prompt_mode: str = "direct"


PUBLISHED = {
    "qwen2-vl-2b": Published("Qwen/Qwen2-VL-2B-Instruct", "qwen2-vl", 2),
    "qwen2-vl-7b": Published("Qwen/Qwen2-VL-7B-Instruct", "qwen2-vl", 7),
    "qwen2.5-vl-3b": Published("Qwen/Qwen2.5-VL-3B-Instruct", "qwen2.5-vl", 3),
    "qwen2.5-vl-7b": Published("Qwen/Qwen2.5-VL-7B-Instruct", "qwen2.5-vl", 7),
    "qwen3-vl-2b": Published("Qwen/Qwen3-VL-2B-Instruct", "qwen3-vl", 2),
    "qwen3-vl-4b": Published("Qwen/Qwen3-VL-4B-Instruct", "qwen3-vl", 4),
    "qwen3-vl-8b": Published("Qwen/Qwen3-VL-8B-Instruct", "qwen3-vl", 8),
    "qwen3-vl-4b-thinking": Published("Qwen/Qwen3-VL-4B-Thinking", "qwen3-vl", 4, "thinking"),
    "qwen3-vl-8b-thinking": Published("Qwen/Qwen3-VL-8B-Thinking", "qwen3-vl", 8, "thinking"),
    "internvl3.5-4b": Published("OpenGVLab/InternVL3_5-4B-HF", "internvl3.5", 4),
    "internvl3.5-8b": Published("OpenGVLab/InternVL3_5-8B-HF", "internvl3.5", 8),
    "internvl3.5-14b": Published("OpenGVLab/InternVL3_5-14B-HF", "internvl3.5", 14),
    "gemma-3-4b": Published("google/gemma-3-4b-it", "gemma-3", 4),
    "gemma-3-12b": Published("google/gemma-3-12b-it", "gemma-3", 12),
    "llava-onevision-0.5b": Published("llava-hf/llava-onevision-qwen2-0.5b-ov-hf", "llava-onevision", 0.5),
    "llava-onevision-7b": Published("llava-hf/llava-onevision-qwen2-7b-ov-hf", "llava-onevision", 7),
    "idefics3-8b": Published("HuggingFaceM4/Idefics3-8B-Llama3", "idefics3", 8),
    "smolvlm2-2.2b": Published("HuggingFaceTB/SmolVLM2-2.2B-Instruct", "smolvlm2", 2.2),
    "molmo2-4b": Published("allenai/Molmo2-4B", "molmo2", 4),
    "molmo2-8b": Published("allenai/Molmo2-8B", "molmo2", 8),
}


def names() -> list[str]:
    """Returns the built-in names, the embedded model first."""
    return [TINY, *PUBLISHED]


def builtin_model(name: str) -> ModelRef | None:
    """Returns the built-in model called ``name``, or None."""
    if name == TINY:
        folder = Path(__file__).parent / "tiny"
        return ModelRef(
            name=TINY, backend="transformers", location=str(folder), family="tiny", policy="tiny", trained_long_edge=160
        )
    found = PUBLISHED.get(name)
    if found is None:
        return None
    return ModelRef(
        name=name,
        backend="transformers",
        location=found.hub_id,
        prompt_mode=found.prompt_mode,
        box_convention=BOX_CONVENTIONS.get(found.family, ""),
        family=found.family,
        parameters_billion=float(found.billions),
    )
