from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass
class EngineArgs:
    model: str
    tensor_parallel_size: int = 1
    max_model_len: int | None = None
    enable_lora: bool = False
    mm_processor_kwargs: dict[str, Any] | None = None
