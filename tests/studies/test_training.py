"""The training program: its fast forward passes are those of transformers, and its pictures are never those of the evaluation."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

TRAINING = Path(__file__).parents[2] / "studies" / "training"
MODULES = ("checkpoint", "rows", "network", "portable")


@pytest.fixture(scope="module")
def program() -> Iterator[dict[str, Any]]:
    sys.path.insert(0, str(TRAINING))
    try:
        yield {name: importlib.import_module(name) for name in MODULES}
    finally:
        sys.path.remove(str(TRAINING))
        for name in MODULES:
            sys.modules.pop(name, None)


def test_training_pictures_are_never_of_the_evaluation_split(program: dict[str, Any]) -> None:
    source = program["rows"].pictures(np.random.default_rng(0), evaluation=False, per_picture=1, words=0.4)
    assert not any(picture.source.held_out for picture in islice(source, 400))


@pytest.mark.parametrize("grid", [3, 4])
def test_packed_forward_passes_equal_those_of_transformers(program: dict[str, Any], grid: int) -> None:
    import torch
    from transformers import Qwen2VLForConditionalGeneration

    rows, network, checkpoint = program["rows"], program["network"], program["checkpoint"]
    torch.manual_seed(0)
    tokenizer = checkpoint.build_tokenizer()
    model = Qwen2VLForConditionalGeneration(checkpoint.build_config(tokenizer)).float().eval()
    packer, rng = rows.Packer(tokenizer), np.random.default_rng(1)
    pictures = list(islice(rows.pictures(rng, evaluation=False, per_picture=2, words=0.5), 3))
    images = rows.pixels(pictures, grid, rng, augment=False)
    patches = network.patches(images)
    grids = torch.tensor([[1, 2 * grid, 2 * grid]] * 3)
    with torch.no_grad():
        seen = network.see(model, images)
        whole = model.model.visual(patches.reshape(-1, patches.shape[-1]), grid_thw=grids).pooler_output
        batch = packer.pack(pictures, grid=grid, hint=0, rng=rng)
        packed = network.read(model, batch, seen)
        question = packer.question(pictures[1].questions[1], hint=False)[0]
        ids = torch.tensor([[*packer.before, *[packer.image] * grid**2, *packer.after, *question]])
        alone = model(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            pixel_values=patches[1],
            image_grid_thw=grids[1:2],
            mm_token_type_ids=(ids == packer.image).int(),
        ).logits[0]
    assert torch.allclose(seen.reshape(whole.shape), whole, atol=1e-5)
    replies = [i for i in range(len(batch.role)) if batch.role[i] == 0 and batch.row[i] == 1]
    assert torch.allclose(packed[replies[1]], alone[-3], atol=1e-4)


def test_the_shipped_tokenizer_is_the_one_the_program_builds(program: dict[str, Any]) -> None:
    from transformers import AutoTokenizer

    shipped = AutoTokenizer.from_pretrained(TRAINING.parents[1] / "pytest_vlmrobust" / "demo" / "tiny")
    text = "Question: Which shape is red?\nOptions:\nA. star\nB. heart\n"
    assert shipped(text).input_ids == program["checkpoint"].build_tokenizer()(text).input_ids


def test_the_portable_form_computes_the_same(program: dict[str, Any]) -> None:
    import torch
    from transformers import Qwen2VLForConditionalGeneration

    torch.manual_seed(0)
    checkpoint = program["checkpoint"]
    model = Qwen2VLForConditionalGeneration(checkpoint.build_config(checkpoint.build_tokenizer())).float().eval()
    other = program["portable"].portable(model)
    assert other.config.vision_config.rope_parameters["rope_theta"] == 10_000
    grid = torch.tensor([[1, 8, 6]])
    patches = torch.rand(48, 2400, generator=torch.manual_seed(0)) * 2 - 1
    with torch.no_grad():
        shipped, portable = (each.model.visual(patches, grid_thw=grid).pooler_output for each in (model, other))
    torch.testing.assert_close(portable, shipped, atol=2e-3, rtol=1e-3)
