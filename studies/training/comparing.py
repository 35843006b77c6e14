"""How the language model learns to compare pictures: three layers below its others, and what each of them is told to do."""

from __future__ import annotations

import copy
import math
import re
from dataclasses import dataclass

import torch
from checkpoint import LAYERS
from rows import Batch
from torch import nn
from torch.nn import functional
from transformers import Qwen2VLForConditionalGeneration
from transformers.models.qwen2_vl.modeling_qwen2_vl import apply_rotary_pos_emb

GATHER_LAYER, COMPARE_LAYER, FIND_LAYER = 0, 1, 2
"""The layers in which the end of a picture gathers what the picture shows, the end of a candidate looks at that of the support,
and the place of the answer looks at the end of what shows the same."""
BELOW = 3
"""How many layers are put below the others. There pictures still are what the vision tower said of them: the lowest of the
earlier layers adds some thousand times as much, after which two equal pictures are no more alike than any two."""
GUIDED = [2, 5]
"""The attention heads that are told where to look, one for each head of keys and values."""


def deepened(model: Qwen2VLForConditionalGeneration) -> Qwen2VLForConditionalGeneration:
    """Returns the same model with ``BELOW`` more layers below the others, which change nothing yet; itself where it has them."""
    if model.config.text_config.num_hidden_layers == LAYERS + BELOW:
        return model
    config = copy.deepcopy(model.config)
    config.text_config.num_hidden_layers += BELOW
    config.text_config.layer_types = ["full_attention"] * config.text_config.num_hidden_layers
    deeper = Qwen2VLForConditionalGeneration(config).float()
    deeper.load_state_dict({_moved(name): value for name, value in model.state_dict().items()}, strict=False)
    for layer in deeper.model.language_model.layers[:BELOW]:
        for last in (layer.self_attn.o_proj, layer.mlp.down_proj):
            nn.init.zeros_(last.weight)
    return deeper


def _moved(name: str) -> str:
    """Returns the name of a weight in the deeper model."""
    return re.sub(r"(?<=language_model\.layers\.)\d+", lambda number: str(int(number[0]) + BELOW), name)


@dataclass(frozen=True)
class Comparison:
    """Where the pictures of a batch are gathered, and which of them show the same."""

    support: int
    """Column of the end of the first picture."""
    candidates: torch.Tensor
    """Columns of the ends of the candidates."""
    right: torch.Tensor
    """Which of the candidates shows the same, for each row."""
    parts: torch.Tensor
    """Columns of the image tokens of the support and of each candidate, (1 + candidates, tokens)."""

    @property
    def ends(self) -> torch.Tensor:
        """Columns of the ends of the support and of the candidates."""
        return torch.cat([torch.tensor([self.support]), self.candidates])


class Comparer(nn.Module):
    """Reads the layers below while they learn: a few linear maps, of which nothing is left after training."""

    def __init__(self, hidden: int, candidates: int = 4, width: int = 64) -> None:
        super().__init__()
        self.support, self.candidate = nn.Linear(hidden, width, bias=False), nn.Linear(hidden, width, bias=False)
        self.scale = nn.Parameter(torch.tensor(10.0))
        self.mark, self.slot, self.letter = nn.Linear(hidden, 1), nn.Linear(hidden, candidates), nn.Linear(hidden, candidates)

    def losses(self, layers: list[torch.Tensor], where: Comparison) -> tuple[torch.Tensor, dict[str, float]]:
        """Returns the sum of what the layers have to say too little, and accuracies.

        ``alike``: of all candidates of the batch, the one that shows the same is the most like the support. ``marked``: the ends
        of candidates know which of them is right. ``slot``: they know their letters. ``letter``: the last token knows the answer.
        """
        alike = self._alike(layers[GATHER_LAYER + 1], where)
        rows, count = torch.arange(len(alike)), len(where.candidates)
        compared = _scaled(layers[COMPARE_LAYER + 1][:, where.candidates])
        targets = {
            "alike": (alike, rows * count + where.right),
            "marked": (self.mark(compared)[..., 0], where.right),
            "slot": (self.slot(compared).flatten(0, 1), torch.arange(count).repeat(len(rows))),
            "letter": (self.letter(_scaled(layers[FIND_LAYER + 1][:, -1])), where.right),
        }
        facts = {name: float((said.argmax(-1) == true).float().mean()) for name, (said, true) in targets.items()}
        weights = {"slot": 0.3}
        loss = torch.stack([weights.get(name, 1.0) * functional.cross_entropy(*pair) for name, pair in targets.items()]).sum()
        return loss, facts

    def _alike(self, hidden: torch.Tensor, where: Comparison) -> torch.Tensor:
        """Returns how alike every support and every candidate are, (B, B * candidates)."""
        support = functional.normalize(self.support(_scaled(hidden[:, where.support])), dim=-1)
        candidates = functional.normalize(self.candidate(_scaled(hidden[:, where.candidates])).flatten(0, 1), dim=-1)
        return self.scale * support @ candidates.T


def _scaled(hidden: torch.Tensor) -> torch.Tensor:
    """Returns vectors at a root mean square of 1."""
    return hidden * hidden.square().mean(-1, keepdim=True).add(1e-6).rsqrt()


def guidance(
    model: Qwen2VLForConditionalGeneration, batch: Batch, layers: list[torch.Tensor], where: Comparison
) -> tuple[torch.Tensor, dict[str, float]]:
    """Returns how surprising it is where the guided heads should look, and how much they look there.

    Args:
        model: whose heads they are.
        batch: rows.
        layers: what the first layer was given, and what there was after each layer.
        where: what is to be compared.
    """
    rows, last = torch.arange(len(batch.ids)), torch.tensor([batch.ids.shape[1] - 1])
    gathers = attention(model, batch, layers, GATHER_LAYER, where.ends)
    index = where.parts.expand(*gathers.shape[:2], -1, -1)
    compares = attention(model, batch, layers, COMPARE_LAYER, where.candidates)
    finds = attention(model, batch, layers, FIND_LAYER, last)[:, :, 0]
    looks = {
        "gathers": gathers.gather(-1, index).mean() + math.log(where.parts.shape[1]),
        "compares": compares[..., where.support].mean(),
        "finds": finds[rows, :, where.candidates[where.right]].mean(),
    }
    facts = {name: float(value.detach().exp()) for name, value in looks.items()}
    facts["found"] = float((finds[:, :, where.candidates].mean(1).argmax(-1) == where.right).float().mean())
    return -torch.stack(list(looks.values())).sum(), facts


def attention(
    model: Qwen2VLForConditionalGeneration, batch: Batch, layers: list[torch.Tensor], layer: int, queries: torch.Tensor
) -> torch.Tensor:
    """Returns the logarithm of what the guided heads of a layer give to each token, (B, heads, queries, T)."""
    text = model.model.language_model
    attention = text.layers[layer].self_attn
    hidden = text.layers[layer].input_layernorm(layers[layer])
    cos, sin = text.rotary_emb(hidden, batch.position)
    query = attention.q_proj(hidden[:, queries]).unflatten(-1, (-1, attention.head_dim)).transpose(1, 2)
    key = attention.k_proj(hidden).unflatten(-1, (-1, attention.head_dim)).transpose(1, 2)
    query, _ = apply_rotary_pos_emb(query, query, cos[:, queries], sin[:, queries])
    key, _ = apply_rotary_pos_emb(key, key, cos, sin)
    key = key.repeat_interleave(attention.num_key_value_groups, dim=1)
    scores: torch.Tensor = query[:, GUIDED] @ key[:, GUIDED].transpose(-1, -2) * attention.scaling
    later = torch.arange(hidden.shape[1])[None, :] > queries[:, None]
    return scores.masked_fill(later, float("-inf")).log_softmax(-1)
