"""Drawing tokens at random, one generator per request: the draw depends on neither the batch nor any global state."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

from .generation import Generation


class SeededDraw:
    """Adds Gumbel noise to each row's scores, so that the greedy choice that follows is a draw from their softmax.

    The noise comes from one CPU generator per row, seeded by the request: the same on every device and in every batch.
    """

    def __init__(self, seeds: Sequence[int]) -> None:
        import torch

        self._generators = [torch.Generator().manual_seed(seed) for seed in seeds]

    def __call__(self, _input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Returns noisy scores, float32, shape (batch, vocabulary); tokens ruled out stay ruled out."""
        import torch

        rows = [torch.empty(scores.shape[-1]).exponential_(generator=generator) for generator in self._generators]
        waiting = torch.stack(rows).clamp_min(torch.finfo(torch.float32).tiny)
        return scores.float() - waiting.log().to(scores.device)


class NonFiniteWatch:
    """Remembers the rows in which a score was NaN or +inf: their text would be an accident, not an answer."""

    def __init__(self) -> None:
        self._seen: torch.Tensor | None = None

    def __call__(self, _input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Looks at scores, shape (batch, vocabulary), and returns them unchanged."""
        found = ~(scores < math.inf).all(dim=-1)
        self._seen = found if self._seen is None else self._seen | found
        return scores

    @property
    def rows(self) -> list[bool]:
        """Whether such a score was seen, by row."""
        return [] if self._seen is None else [bool(seen) for seen in self._seen.tolist()]


def score_processors(generation: Generation, seeds: Sequence[int], watch: NonFiniteWatch) -> list[Any]:
    """Returns what is done to the scores before the highest one is chosen, in order."""
    if not generation.samples:
        return [watch]
    from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    warpers: list[Any] = [TemperatureLogitsWarper(float(generation.temperature))]
    if generation.top_k > 0:
        warpers.append(TopKLogitsWarper(int(generation.top_k)))
    if generation.top_p < 1.0:
        warpers.append(TopPLogitsWarper(float(generation.top_p)))
    return [watch, *warpers, SeededDraw(seeds)]
