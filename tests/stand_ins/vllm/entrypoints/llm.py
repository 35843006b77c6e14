"""A stand-in for vLLM: it takes what ``LLM.chat`` takes, and answers by how bright the pictures are and where they stand."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
from PIL import Image


@dataclass
class SamplingParams:
    max_tokens: int = 16
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    repetition_penalty: float = 1.0
    seed: int | None = None
    logprobs: int | None = None


@dataclass
class Logprob:
    decoded_token: str
    logprob: float


@dataclass
class LLM:
    model: str
    dtype: str = "auto"
    trust_remote_code: bool = False
    revision: str | None = None
    tensor_parallel_size: int = 1
    enable_lora: bool = False
    max_model_len: int | None = None
    mm_processor_kwargs: dict[str, Any] | None = None
    chats: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.tensor_parallel_size > 8:
            raise ValueError("there are 8 GPUs")
        self.is_running = True
        self.llm_engine = SimpleNamespace(engine_core=SimpleNamespace(shutdown=lambda: setattr(self, "is_running", False)))
        last.append(self)

    def get_tokenizer(self) -> Any:
        return SimpleNamespace(added_tokens_decoder={0: SimpleNamespace(content="<|image_pad|>", special=True)})

    def chat(
        self, messages: Any, sampling_params: Sequence[SamplingParams], use_tqdm: bool = True, lora_request: Any = None
    ) -> Any:
        self.chats += list(zip(messages, sampling_params, strict=True))
        shift = 0.5 if lora_request is not None else 0.0
        return [_output(message, parameters, shift) for message, parameters in zip(messages, sampling_params, strict=True)]


last: list[LLM] = []
"""Every engine that was made."""


def _output(messages: Any, parameters: SamplingParams, shift: float) -> Any:
    light = shift
    for place, part in enumerate(messages[-1]["content"], start=1):
        if part["type"] == "image_url":
            data = base64.b64decode(part["image_url"]["url"].partition(",")[2])
            light += place * float(np.asarray(Image.open(io.BytesIO(data))).mean())
    text, logprobs = f"{light:.3f}", None
    if parameters.logprobs:
        values = {letter: -(light + 10 * place) / 1000 for place, letter in enumerate("ABCD")}
        text, logprobs = "A", [{number: Logprob(letter, value) for number, (letter, value) in enumerate(values.items())}]
    answer = SimpleNamespace(text=text, finish_reason="length", token_ids=[1], logprobs=logprobs)
    return SimpleNamespace(outputs=[answer], prompt_token_ids=[1, 2])
