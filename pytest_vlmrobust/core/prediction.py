"""Request and Prediction: what is sent to a model, and what came back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """One view of a sample as it is sent: pixels, text, and how to answer.

    ``images`` may be empty (the no-image pass). ``choices`` lists the letters that a backend may score by their
    log-probabilities; empty means free text. ``max_new_tokens`` bounds free text.
    """

    key: str
    """Fingerprint of everything below and of the model: the name of the answer in the store."""
    images: tuple[NDArray[np.uint8], ...]
    text: str
    choices: tuple[str, ...] = ()
    max_new_tokens: int = 32
    sample_id: str = ""
    setting: str = ""
    dataset: str = ""
    """Its name in test ids."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a model answered.

    ``method`` says how: ``"generate"`` (greedy text), ``"sample"`` (sampled text) or ``"letter_logits"`` (the most
    probable of the offered letters after one prefill; ``logprobs`` then holds each letter's log-probability).
    ``finish_reason`` is ``"stop"``, ``"length"`` or ``"error"``; with ``"error"`` there is no answer and ``error`` says why.
    """

    text: str
    method: str
    finish_reason: str = "stop"
    logprobs: Mapping[str, float] = field(default_factory=dict)
    error: str = ""
    details: Mapping[str, str | int | float] = field(default_factory=dict)
    """What the backend saw: visual tokens, image size after the processor."""
