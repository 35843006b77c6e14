"""The last token alone through the upper layers: what it looks at is computed once and kept, so that steps are cheap."""

from __future__ import annotations

from typing import Any

import torch
from comparing import BELOW
from torch.nn import functional
from transformers import Qwen2VLForConditionalGeneration
from transformers.models.qwen2_vl.modeling_qwen2_vl import apply_rotary_pos_emb

CHUNK = 16
"""Rows that run at once."""


class Kept:
    """Rows of one layout as they leave the layers below, with keys and values of all tokens but the last in those above."""

    def __init__(self, model: Qwen2VLForConditionalGeneration, hidden: torch.Tensor, position: torch.Tensor) -> None:
        self._text, self._hidden, self._position = model.model.language_model, hidden, position
        self._pairs: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.refresh()

    @torch.no_grad()
    def refresh(self) -> None:
        """Computes keys and values anew, as the layers above have changed."""
        parts = [self._through(rows) for rows in self._hidden.split(CHUNK)]
        self._pairs = [(torch.cat([p[i][0] for p in parts]), torch.cat([p[i][1] for p in parts])) for i in range(len(parts[0]))]

    def _through(self, hidden: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
        turns = self._text.rotary_emb(hidden, self._position)
        pairs = []
        for layer in self._text.layers[BELOW:]:
            _, key, value = _projected(layer, hidden, turns)
            pairs.append((key[:, :, :-1].clone(), value[:, :, :-1].clone()))
            hidden = layer(hidden, attention_mask=None, position_embeddings=turns)
        return pairs

    def logits(self, rows: torch.Tensor) -> torch.Tensor:
        """Returns what the last token of some rows says, (rows, vocabulary); gradients run through that token alone."""
        hidden = self._hidden[rows, -1:]
        turns = self._text.rotary_emb(hidden, self._position[..., -1:])
        for layer, (keys, values) in zip(self._text.layers[BELOW:], self._pairs, strict=True):
            attention = layer.self_attn
            query, key, value = _projected(layer, hidden, turns)
            all_keys, all_values = torch.cat([keys[rows], key], dim=2), torch.cat([values[rows], value], dim=2)
            mixed = functional.scaled_dot_product_attention(query, all_keys, all_values, enable_gqa=True)
            hidden = hidden + attention.o_proj(mixed.transpose(1, 2).flatten(2))
            hidden = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
        return functional.linear(self._text.norm(hidden[:, 0]), self._text.embed_tokens.weight)


def _projected(
    layer: Any, hidden: torch.Tensor, turns: tuple[torch.Tensor, torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Returns query, key and value of a layer, (B, heads, T, width)."""
    attention, normal = layer.self_attn, layer.input_layernorm(hidden)
    query, key, value = (
        project(normal).unflatten(-1, (-1, attention.head_dim)).transpose(1, 2)
        for project in (attention.q_proj, attention.k_proj, attention.v_proj)
    )
    query, key = apply_rotary_pos_emb(query, key, *turns)
    return query, key, value
