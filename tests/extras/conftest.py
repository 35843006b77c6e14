"""Randomly initialised networks of the real architectures, small enough for a CPU. Nothing is downloaded."""

from __future__ import annotations

import importlib.util
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pytest_vlmrobust.perturbations.registry import REGISTRY

Image = NDArray[np.uint8]
MODEL_INDEX = {
    "_class_name": "StableDiffusionPipeline",
    "feature_extractor": ["transformers", "CLIPImageProcessor"],
    "safety_checker": ["stable_diffusion", "StableDiffusionSafetyChecker"],
    "scheduler": ["diffusers", "PNDMScheduler"],
    "text_encoder": ["transformers", "CLIPTextModel"],
    "tokenizer": ["transformers", "CLIPTokenizer"],
    "unet": ["diffusers", "UNet2DConditionModel"],
    "vae": ["diffusers", "AutoencoderKL"],
}
"""As of Stable Diffusion 1.5, which lists a safety checker."""


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    """Forgets what a test registered."""
    before = dict(REGISTRY._things)
    yield
    REGISTRY._things.clear()
    REGISTRY._things.update(before)


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Networks this small are slower on several threads, and much slower on a machine that is busy."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def scene() -> Callable[..., Image]:
    """Draws a bright disk on a dark ground, with a little texture."""

    def draw(height: int = 60, width: int = 80) -> Image:
        y, x = np.mgrid[0:height, 0:width]
        disk = np.hypot(x - width / 3, y - height / 2) < height / 3
        texture = np.random.default_rng(1).integers(0, 16, (height, width, 3))
        levels: Image = (np.where(disk[..., None], (230, 200, 160), (30, 50, 90)) + texture).astype(np.uint8)
        return levels

    return draw


@pytest.fixture(scope="session")
def diffusion(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[Path, Path]]:
    """The directories of a tiny Stable Diffusion 1.5 and of a ControlNet for it; not to be written to."""

    def build(text_width: int = 16) -> tuple[Path, Path]:
        root = tmp_path_factory.getbasetemp() / f"diffusion-{text_width}"
        if not root.exists():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of the libraries, while they initialise and save
                _save_networks(root, text_width)
            _save_tokenizer(root / "base" / "tokenizer")
            (root / "base" / "model_index.json").write_text(json.dumps(MODEL_INDEX), encoding="utf-8")
        return root / "base", root / "controlnet"

    return build


def _tokens() -> list[str]:
    from tokenizers.pre_tokenizers import ByteLevel

    letters = sorted(ByteLevel.alphabet())
    return [*letters, *(f"{letter}</w>" for letter in letters), "th", "the</w>", "<|startoftext|>", "<|endoftext|>"]


def _save_tokenizer(folder: Path) -> None:
    folder.mkdir()
    vocabulary = {token: number for number, token in enumerate(_tokens())}
    (folder / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    (folder / "merges.txt").write_text("#version: 0.2\nt h\nth e</w>\n", encoding="utf-8")
    end = dict.fromkeys(("eos_token", "unk_token", "pad_token"), "<|endoftext|>")
    settings = {"tokenizer_class": "CLIPTokenizer", "model_max_length": 77, "bos_token": "<|startoftext|>", **end}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")


def _save_networks(root: Path, text_width: int) -> None:
    import torch
    from diffusers import AutoencoderKL, ControlNetModel, PNDMScheduler, UNet2DConditionModel
    from transformers import CLIPTextConfig, CLIPTextModel

    blocks: dict[str, Any] = {
        "block_out_channels": (8, 16),
        "layers_per_block": 1,
        "norm_num_groups": 4,
        "cross_attention_dim": text_width,
        "attention_head_dim": 4,
        "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
    }
    end = len(_tokens()) - 1
    ids = {"vocab_size": end + 1, "bos_token_id": end - 1, "eos_token_id": end, "pad_token_id": end}
    text = CLIPTextConfig(hidden_size=text_width, intermediate_size=16, num_attention_heads=2, num_hidden_layers=1, **ids)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        control = ControlNetModel(conditioning_embedding_out_channels=(4, 8, 8, 8), **blocks)
        unet = UNet2DConditionModel(up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"), **blocks)
        for name, weights in (*control.named_parameters(), *unet.named_parameters()):
            if "cond_embedding" in name or "attn2" in name or not weights.any():  # when fresh, source and text hardly matter
                torch.nn.init.normal_(weights, std=0.5)
        control.save_pretrained(root / "controlnet")
        unet.save_pretrained(root / "base" / "unet")
        CLIPTextModel(text).save_pretrained(root / "base" / "text_encoder")
        AutoencoderKL(
            block_out_channels=(4, 4, 8, 8),
            norm_num_groups=2,
            down_block_types=("DownEncoderBlock2D",) * 4,
            up_block_types=("UpDecoderBlock2D",) * 4,
        ).save_pretrained(root / "base" / "vae")
    PNDMScheduler(beta_schedule="scaled_linear", skip_prk_steps=True, steps_offset=1).save_pretrained(root / "base" / "scheduler")


@pytest.fixture(scope="session")
def spandrel() -> ModuleType:
    """The module, imported with a stand-in for torchvision where there is none.

    Package indices have torchvision for CUDA only, which a torch for CPUs cannot load. Two architectures import three of its
    functions, for inpainting and for faces; none is called here.
    """
    names = ["torchvision", "torchvision.transforms", "torchvision.transforms.functional"]
    absent = importlib.util.find_spec("torchvision") is None
    if absent:
        sys.modules.update({name: ModuleType(name) for name in names})
        vars(sys.modules[names[-1]]).update(dict.fromkeys(("InterpolationMode", "normalize", "rotate")))
    try:
        return importlib.import_module("spandrel")
    finally:
        for name in names if absent else ():
            del sys.modules[name]
