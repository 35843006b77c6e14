"""The forward passes that training uses: the same weights and numbers as transformers' Qwen2-VL, batched for CPU."""

from __future__ import annotations

from typing import Any

import torch
from checkpoint import LAYERS, MERGE, PATCH
from rows import Batch
from torch import nn
from torch.nn import functional
from transformers import Qwen2VLForConditionalGeneration
from transformers.models.qwen2_vl.modeling_qwen2_vl import apply_rotary_pos_emb_vision


def patches(images: torch.Tensor) -> torch.Tensor:
    """Cuts float (B, 3, S, S) into patches in the processor's order: (B, S*S/PATCH**2, 3*2*PATCH**2)."""
    batch, channels, side, _ = images.shape
    n = side // PATCH // MERGE
    cut = images.reshape(batch, channels, n, MERGE, PATCH, n, MERGE, PATCH).permute(0, 2, 5, 3, 6, 1, 4, 7)
    cut = cut.unsqueeze(6).expand(-1, -1, -1, -1, -1, -1, 2, -1, -1)
    return cut.reshape(batch, n * n * MERGE * MERGE, channels * 2 * PATCH * PATCH)


def see(model: Qwen2VLForConditionalGeneration, images: torch.Tensor) -> torch.Tensor:
    """Runs the vision tower on images of one size: float (B, 3, S, S) to image tokens (B, tokens, hidden)."""
    tower = model.model.visual
    flat = patches(images)
    batch, count, _ = flat.shape
    weight = tower.patch_embed.proj.weight.reshape(tower.patch_embed.proj.weight.shape[0], -1)
    hidden = functional.linear(flat, weight)
    n = int(count**0.5) // MERGE
    index = torch.arange(n * MERGE)
    rows = index.reshape(n, 1, MERGE, 1).expand(n, n, MERGE, MERGE).reshape(-1)
    columns = index.reshape(1, n, 1, MERGE).expand(n, n, MERGE, MERGE).reshape(-1)
    cos, sin = tower.rotary_pos_emb(hidden, torch.stack([rows, columns], dim=-1))
    for block in tower.blocks:
        hidden = hidden + _attend(block.attn, block.norm1(hidden), cos, sin)
        hidden = hidden + block.mlp(block.norm2(hidden))
    tokens: torch.Tensor = tower.merger(hidden).reshape(batch, n * n, -1)
    return tokens


def _attend(attention: Any, hidden: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    batch, count, _ = hidden.shape
    query, key, value = attention.qkv(hidden).reshape(batch, count, 3, attention.num_heads, -1).unbind(2)
    query, key = apply_rotary_pos_emb_vision(query, key, cos, sin)
    mixed = functional.scaled_dot_product_attention(query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2))
    projected: torch.Tensor = attention.proj(mixed.transpose(1, 2).reshape(batch, count, -1))
    return projected


ANSWER_LAYER, MATCH_LAYER = 2, 3
"""The layers after which the question mark has to know the answer in words, and each option whether it is the answer; counted
from 0 and without those that the last stage puts below them."""


def read(model: Qwen2VLForConditionalGeneration, batch: Batch, image_tokens: torch.Tensor | None) -> torch.Tensor:
    """Runs the language model on a packed batch: logits at the picked positions, (picks, vocabulary).

    The answers in words (role 2) are read after ``ANSWER_LAYER``, the marks of options (role 3) after ``MATCH_LAYER``, and
    everything else after the last layer.
    """
    return logits_of(model, batch, run(model, batch, image_tokens))


def run(
    model: Qwen2VLForConditionalGeneration, batch: Batch, image_tokens: torch.Tensor | None, depth: int | None = None
) -> list[torch.Tensor]:
    """Runs the first ``depth`` layers of the language model, or all: what the first is given and each gives, (B, T, hidden)."""
    text = model.model.language_model
    hidden = text.embed_tokens(batch.ids)
    if image_tokens is not None:
        hidden = hidden.index_copy(1, batch.image, image_tokens)
    turns = text.rotary_emb(hidden, batch.position)
    states = [hidden]
    for layer in text.layers[:depth]:
        hidden = layer(hidden, attention_mask=batch.mask, position_embeddings=turns)
        states.append(hidden)
    return states


def logits_of(model: Qwen2VLForConditionalGeneration, batch: Batch, layers: list[torch.Tensor]) -> torch.Tensor:
    """Returns logits at the picked positions, each from the layer of its role."""
    text = model.model.language_model
    depth = torch.full_like(batch.role, len(layers) - 1)
    inner = [len(layers) - LAYERS + layer for layer in (ANSWER_LAYER, MATCH_LAYER)]
    depth[batch.role == 2], depth[batch.role == 3] = inner
    picked = layers[-1][batch.row, batch.column]
    for layer in inner:
        picked = torch.where((depth == layer)[:, None], layers[layer][batch.row, batch.column], picked)
    return functional.linear(text.norm(picked), text.embed_tokens.weight)


class Muon(torch.optim.Optimizer):
    """Momentum, orthogonalised by Newton-Schulz iterations in float32, for matrices of hidden layers."""

    def __init__(self, parameters: list[nn.Parameter], lr: float, momentum: float = 0.95) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]  # no closure is ever used here
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                buffer = self.state[parameter].setdefault("momentum", torch.zeros_like(parameter))
                buffer.lerp_(parameter.grad, 1 - group["momentum"])
                update = _orthogonal(parameter.grad.lerp(buffer, group["momentum"]).reshape(parameter.shape[0], -1))
                scale = max(1.0, update.shape[0] / update.shape[1]) ** 0.5
                parameter.add_(update.reshape(parameter.shape), alpha=-group["lr"] * scale)


def _orthogonal(matrix: torch.Tensor, steps: int = 5) -> torch.Tensor:
    x: torch.Tensor = matrix / (matrix.norm() + 1e-7)
    tall = x.shape[0] > x.shape[1]
    x = x.T if tall else x
    for _ in range(steps):
        gram = x @ x.T
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x.T if tall else x


class Optimizers:
    """Muon for the matrices of hidden layers, AdamW for the rest; one schedule for both."""

    def __init__(self, module: nn.Module, muon: float, adam: float) -> None:
        named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        hidden = [p for name, p in named if p.ndim == 2 and "embed" not in name]
        rest = [p for name, p in named if not (p.ndim == 2 and "embed" not in name)]
        self.all: list[tuple[torch.optim.Optimizer, float]] = [
            (Muon(hidden, muon), muon),
            (torch.optim.AdamW(rest, adam, betas=(0.9, 0.98), weight_decay=0.0), adam),
        ]

    def add(self, module: nn.Module, rate: float) -> None:
        """Adds a module that AdamW is to train."""
        self.all.append((torch.optim.AdamW(module.parameters(), rate, weight_decay=0.0), rate))

    def step(self, share: float) -> None:
        for optimizer, rate in self.all:
            for group in optimizer.param_groups:
                group["lr"] = rate * share
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
