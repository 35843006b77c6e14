"""Published models: the built-in names, where each model is, and what it needs."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_vlmrobust.core.boxes import RESIZED_PIXELS
from pytest_vlmrobust.core.errors import ModelError
from pytest_vlmrobust.core.prediction import ModelRef

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
_TORCHVISION = frozenset({"smolvlm2", "molmo2"})
"""Families that have no processor without torchvision."""
_OWN_CODE = frozenset({"internvl2.5", "molmo", "phi-3.5-vision", "phi-4-multimodal", "minicpm-v", "deepseek-vl2", "kimi-vl"})
"""Families that transformers 5.23 does not have among its image-text-to-text models: their checkpoints bring code."""
_BYTES = {"bfloat16": 2, "float32": 4}


@dataclass(frozen=True, slots=True)
class Published:
    """A published model: where it is, its family, its size in billions of parameters as its name says it, all experts counted."""

    hub_id: str
    """Empty for a model whose weights nobody has: it answers by the API of its makers."""
    family: str
    billions: float = 0.0
    """0 where its makers do not say."""
    prompt_mode: str = "direct"

    @property
    def needs_torchvision(self) -> bool:
        """Whether it has no processor without torchvision."""
        return self.family in _TORCHVISION

    @property
    def brings_code(self) -> bool:
        """Whether it runs by code in its checkpoint, which is never run here: such a model has to be served."""
        return self.family in _OWN_CODE

    @property
    def is_served(self) -> bool:
        """Whether it can only be asked at a server."""
        return self.brings_code or not self.hub_id

    @property
    def extra(self) -> str:
        """The extra of this package that it needs; empty for none."""
        return "openai" if self.is_served else "torchvision" if self.needs_torchvision else ""

    @property
    def weights(self) -> dict[str, float]:
        """How many GB (10^9 bytes) the weights take by dtype: parameters times bytes, without activations and caches."""
        return {dtype: self.billions * size for dtype, size in _BYTES.items()} if self.billions else {}

    def ref(self, name: str) -> ModelRef:
        """Returns it as a model that runs in this process."""
        if not self.hub_id:
            raise ModelError(
                f"--vlm {name!r}: its weights are not published. Gate it where its makers serve it, or at any proxy that speaks "
                f"the protocol of OpenAI: --vlm=openai:BASE_URL#{name}@REVISION"
            )
        if self.brings_code:
            raise ModelError(
                f"--vlm {name!r}: {self.hub_id} runs by Python code in its checkpoint, and no code of a checkpoint is run "
                f"in this process. Serve it where that is allowed, such as by 'vllm serve {self.hub_id} --trust-remote-code'; "
                f"then gate it there: --vlm=openai:BASE_URL#{self.hub_id}@REVISION"
            )
        return ModelRef(
            name=name,
            backend="transformers",
            location=self.hub_id,
            prompt_mode=self.prompt_mode,
            box_convention=BOX_CONVENTIONS.get(self.family, ""),
            family=self.family,
            parameters_billion=self.billions,
        )


def _sizes(name: str, hub_id: str, family: str, sizes: str, prompt_mode: str = "direct") -> dict[str, Published]:
    """Returns the members of a family: ``{}`` in name and hub id stands for each size, ``30B-A3B`` for 30 billion in all."""
    return {
        name.format(size.lower()): Published(hub_id.format(size), family, float(size.upper().partition("B")[0]), prompt_mode)
        for size in sizes.split()
    }


PUBLISHED: dict[str, Published] = {
    **_sizes("qwen2-vl-{}", "Qwen/Qwen2-VL-{}-Instruct", "qwen2-vl", "2B 7B 72B"),
    **_sizes("qwen2.5-vl-{}", "Qwen/Qwen2.5-VL-{}-Instruct", "qwen2.5-vl", "3B 7B 32B 72B"),
    **_sizes("qwen3-vl-{}", "Qwen/Qwen3-VL-{}-Instruct", "qwen3-vl", "2B 4B 8B 32B 30B-A3B"),
    **_sizes("qwen3-vl-{}-thinking", "Qwen/Qwen3-VL-{}-Thinking", "qwen3-vl", "2B 4B 8B 32B 30B-A3B", "thinking"),
    **_sizes("internvl2.5-{}", "OpenGVLab/InternVL2_5-{}", "internvl2.5", "1B 2B 4B 8B 26B 38B 78B"),
    **_sizes("internvl3-{}", "OpenGVLab/InternVL3-{}-hf", "internvl3", "1B 2B 8B 14B 38B 78B"),
    **_sizes("internvl3.5-{}", "OpenGVLab/InternVL3_5-{}-HF", "internvl3.5", "1B 2B 4B 8B 14B 38B 30B-A3B"),
    **_sizes("gemma-3-{}", "google/gemma-3-{}-it", "gemma-3", "4b 12b 27b"),
    **_sizes("llava-onevision-{}", "llava-hf/llava-onevision-qwen2-{}-ov-hf", "llava-onevision", "0.5b 7b 72b"),
    "idefics3-8b": Published("HuggingFaceM4/Idefics3-8B-Llama3", "idefics3", 8),
    "smolvlm-2.2b": Published("HuggingFaceTB/SmolVLM-Instruct", "smolvlm", 2.2),
    "smolvlm2-2.2b": Published("HuggingFaceTB/SmolVLM2-2.2B-Instruct", "smolvlm2", 2.2),
    "pixtral-12b": Published("mistral-community/pixtral-12b", "pixtral", 12),
    "molmoe-1b": Published("allenai/MolmoE-1B-0924", "molmo", 7),
    "molmo-7b-o": Published("allenai/Molmo-7B-O-0924", "molmo", 7),
    "molmo-7b-d": Published("allenai/Molmo-7B-D-0924", "molmo", 7),
    "molmo-72b": Published("allenai/Molmo-72B-0924", "molmo", 72),
    **_sizes("molmo2-{}", "allenai/Molmo2-{}", "molmo2", "4B 8B"),
    "phi-3.5-vision": Published("microsoft/Phi-3.5-vision-instruct", "phi-3.5-vision", 4.2),
    "phi-4-multimodal": Published("microsoft/Phi-4-multimodal-instruct", "phi-4-multimodal", 5.6),
    "minicpm-v-2.6": Published("openbmb/MiniCPM-V-2_6", "minicpm-v", 8),
    "minicpm-o-2.6": Published("openbmb/MiniCPM-o-2_6", "minicpm-v", 8),
    "deepseek-vl2-tiny": Published("deepseek-ai/deepseek-vl2-tiny", "deepseek-vl2", 3),
    "deepseek-vl2-small": Published("deepseek-ai/deepseek-vl2-small", "deepseek-vl2", 16),
    "deepseek-vl2": Published("deepseek-ai/deepseek-vl2", "deepseek-vl2", 27),
    "kimi-vl-a3b": Published("moonshotai/Kimi-VL-A3B-Instruct", "kimi-vl", 16),
    "kimi-vl-a3b-thinking": Published("moonshotai/Kimi-VL-A3B-Thinking", "kimi-vl", 16, "thinking"),
    "gpt-4o": Published("", "gpt"),
    "gemini-1.5-pro": Published("", "gemini"),
}
"""Built-in names. Hub ids and sizes are as their makers publish them, written down and not looked up here; none was run here."""


def published_at(hub_id: str) -> tuple[str, Published] | None:
    """Returns the published model of a hub id with its built-in name; None where there is none."""
    return next(((name, about) for name, about in PUBLISHED.items() if hub_id and about.hub_id == hub_id), None)


def described(name: str, about: Published) -> tuple[str, ...]:
    """Returns a line about a model: name, where it is, weights by dtype, what it needs, prompt mode, whether it was run here."""
    size = "not known" if not about.weights else " / ".join(f"{count:.3g}" for count in about.weights.values())
    needs = [f"[{about.extra}]" if about.extra else "", "a server: brings code" if about.brings_code else ""]
    needs += ["a server: API of its makers"] if not about.hub_id else []
    return name, about.hub_id, size, ", ".join(filter(None, needs)), about.prompt_mode, "not run here"


HEADER = ("name", "hub id", f"GB of weights in {' / '.join(_BYTES)}", "needs", "prompt mode", "tested")
