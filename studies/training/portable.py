"""The form in which `tiny` ships: every engine computes it alike.

The vision tower is trained with 100 as the base of its rotary positions. vLLM and SGLang take 10,000 for every Qwen2-VL. Heads of
twice the size have all frequencies of the trained tower at that base, so the same model can be written for it without more
training: what is new in the heads is zero. Each channel stands twice between the layers, because the norms take the mean over all
of them.
"""

from __future__ import annotations

import copy

import torch
from transformers import Qwen2VLForConditionalGeneration

BASE = 10_000.0


def portable(model: Qwen2VLForConditionalGeneration) -> Qwen2VLForConditionalGeneration:
    """Returns a model with the standard base that computes the same; its vision tower is twice as wide."""
    config = copy.deepcopy(model.config)
    vision = config.vision_config
    narrow, heads, inner = vision.embed_dim, vision.num_heads, vision.embed_dim * vision.mlp_ratio
    wide, quarter, merged = 2 * narrow, narrow // heads // 4, vision.spatial_merge_size**2
    vision.embed_dim, vision.mlp_ratio = wide, -(-inner // wide)
    vision.rope_parameters["rope_theta"] = BASE

    channel, hidden = torch.arange(narrow), torch.arange(inner)
    twice = torch.cat([channel, channel + narrow])
    turned = torch.cat([torch.arange(quarter) + 2 * quarter * part for part in range(4)])  # the higher half of each axis
    headed = (torch.arange(heads)[:, None] * (wide // heads) + turned).flatten()
    queried = torch.cat([headed + wide * part for part in range(3)])
    side_by_side = (torch.arange(merged)[:, None] * wide + channel).flatten()
    joined = torch.arange(narrow * merged)
    places: dict[str, tuple[torch.Tensor, torch.Tensor | None]] = {
        "patch_embed.proj": (twice, None),
        "norm1": (channel, None),
        "norm2": (channel, None),
        "attn.qkv": (queried, channel),
        "attn.proj": (twice, headed),
        "mlp.fc1": (hidden, channel),
        "mlp.fc2": (twice, hidden),
        "merger.ln_q": (channel, None),
        "merger.mlp.0": (joined, side_by_side),
        "merger.mlp.2": (torch.arange(vision.hidden_size), joined),
    }
    result = Qwen2VLForConditionalGeneration(config).float()
    result.generation_config = model.generation_config
    new = result.state_dict()
    for name, old in model.float().state_dict().items():
        _, is_vision, rest = name.partition("visual.")
        if not is_vision:
            new[name].copy_(old)
            continue
        part = next(part for part in places if part in rest)
        rows, columns = places[part]
        value = old.repeat(2, *[1] * (old.ndim - 1)) if rows is twice else old.clone()
        if part == "attn.qkv":
            value[: 2 * narrow] *= 2**0.25  # products are divided by the root of the size of a head
        target = new[name].zero_()
        if columns is None or old.ndim == 1:
            target[rows] = value
        else:
            target[rows[:, None], columns] = value
    return result.eval()
