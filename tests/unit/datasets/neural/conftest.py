"""Tiny, randomly initialised encoders of real architectures, laid out as the hub lays them out."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

VISION: dict[str, Any] = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
}
TEXT: dict[str, Any] = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "vocab_size": 20,
    "max_position_embeddings": 8,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 1,
}
SQUARE = {"height": 28, "width": 28}


def _model(kind: str) -> tuple[Any, dict[str, Any]]:
    import transformers

    if kind == "clip":
        config = transformers.CLIPConfig(text_config=TEXT, vision_config=VISION, projection_dim=12)
        return transformers.CLIPModel(config), {
            "image_processor_type": "CLIPImageProcessor",
            "size": {"shortest_edge": 28},
            "crop_size": SQUARE,
        }
    if kind == "siglip":
        config = transformers.SiglipConfig(text_config=TEXT, vision_config=VISION)
        return transformers.SiglipModel(config), {"image_processor_type": "SiglipImageProcessor", "size": SQUARE}
    if kind in {"vit", "vit_without_pooler"}:
        model = transformers.ViTModel(transformers.ViTConfig(**VISION), add_pooling_layer=kind == "vit")
        return model, {"image_processor_type": "ViTImageProcessor", "size": SQUARE}
    if kind == "dinov2":
        config = transformers.Dinov2Config(**{**VISION, "mlp_ratio": 2})
        return transformers.Dinov2Model(config), {
            "image_processor_type": "BitImageProcessor",
            "size": {"shortest_edge": 28},
            "crop_size": SQUARE,
        }
    config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic")
    return transformers.ResNetModel(config), {"image_processor_type": "ConvNextImageProcessor", "size": {"shortest_edge": 28}}


@pytest.fixture
def encoder(tmp_path: Path) -> Callable[[str], Path]:
    """Saves an encoder of a kind into a folder of its own."""

    def build(kind: str) -> Path:
        import torch

        folder = tmp_path / kind
        with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
            warnings.simplefilter("ignore")  # of the library, while it initialises and saves
            torch.manual_seed(3)
            model, processor = _model(kind)
            for weight in model.parameters():  # larger than usual, so that pictures differ visibly
                if weight.dim() > 1:
                    torch.nn.init.normal_(weight, std=0.2)
            model.save_pretrained(folder)
        (folder / "preprocessor_config.json").write_text(json.dumps(processor), encoding="utf-8")
        return folder

    return build
