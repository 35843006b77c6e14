"""The stage that learns to compare: its rows are the product's, and its forward passes those of transformers."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_vlmrobust.backends.chat import message
from pytest_vlmrobust.core.cell import CLEAN
from pytest_vlmrobust.demo.faces import PortraitImage
from pytest_vlmrobust.evaluation.run.prompts import prompt

TRAINING = Path(__file__).parents[2] / "studies" / "training"
SHIPPED = TRAINING.parents[1] / "pytest_vlmrobust" / "demo" / "tiny"
MODULES = ("checkpoint", "rows", "network", "comparing", "illustrated", "identities", "naming")


@pytest.fixture(scope="module")
def program() -> Iterator[dict[str, Any]]:
    sys.path.insert(0, str(TRAINING))
    try:
        yield {name: importlib.import_module(name) for name in MODULES}
    finally:
        sys.path.remove(str(TRAINING))
        for name in MODULES:
            sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def model(program: dict[str, Any]) -> Any:
    import torch
    from transformers import Qwen2VLForConditionalGeneration

    torch.manual_seed(0)
    checkpoint = program["checkpoint"]
    return Qwen2VLForConditionalGeneration(checkpoint.build_config(checkpoint.build_tokenizer())).float().eval()


@pytest.fixture(scope="module")
def rows(program: dict[str, Any], model: Any) -> tuple[Any, ...]:
    rng = np.random.default_rng(0)
    _, samples = next(program["identities"].questions(rng, program["identities"].identities(rng, 2), "matching", 3))
    illustrator = program["illustrated"].Illustrator(model, program["rows"].Packer(program["checkpoint"].build_tokenizer()))
    return samples, illustrator.comparison(samples), *illustrator.batch(samples, [CLEAN] * 3, "matching")


def test_identities_are_of_the_training_split(program: dict[str, Any]) -> None:
    faces, words = program["identities"].identities(np.random.default_rng(1), 4)
    portraits = [entity.image.portrait for entity in faces.entities() if isinstance(entity.image, PortraitImage)]
    prints = [entity.image.what for entity in words.entities()]
    assert len(portraits) == len(prints) == 12
    assert not any(content.held_out for content in (*portraits, *prints))


def test_rows_with_several_pictures_are_those_that_transformers_makes(
    program: dict[str, Any], model: Any, rows: tuple[Any, ...]
) -> None:
    import torch

    from pytest_vlmrobust.backends.loading import ModelSource, load_processor

    samples, _, batch, tokens = rows
    processor = load_processor(ModelSource(str(SHIPPED)), "pil")
    users = [[message([source.load() for source in sample.images], prompt(sample, "direct"))] for sample in samples]
    inputs = processor.apply_chat_template(
        users, add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt"
    )
    with torch.no_grad():
        theirs = model(**inputs).logits[:, -1]
        ours = program["network"].read(model, batch, tokens)
    assert torch.equal(batch.ids, inputs["input_ids"])
    assert torch.allclose(ours, theirs, atol=1e-4)


def test_the_ends_of_pictures_follow_their_tokens(program: dict[str, Any], rows: tuple[Any, ...]) -> None:
    samples, where, batch, _ = rows
    end = program["checkpoint"].build_tokenizer().convert_tokens_to_ids("<|vision_end|>")
    assert (batch.ids[:, where.ends] == end).all()
    assert [list(sample.options)[place] for sample, place in zip(samples, where.right.tolist(), strict=True)] == [
        sample.target for sample in samples
    ]


def test_layers_that_are_put_below_change_nothing_at_first(program: dict[str, Any], model: Any, rows: tuple[Any, ...]) -> None:
    import torch

    _, _, batch, tokens = rows
    deeper = program["comparing"].deepened(model).eval()
    with torch.no_grad():
        before, after = (program["network"].read(network, batch, tokens) for network in (model, deeper))
    assert len(deeper.model.language_model.layers) == len(model.model.language_model.layers) + program["comparing"].BELOW
    assert torch.allclose(before, after, atol=1e-5)


def test_guided_heads_are_the_attention_of_the_layer(program: dict[str, Any], model: Any, rows: tuple[Any, ...]) -> None:
    import torch

    _, where, batch, tokens = rows
    text = model.model.language_model
    with torch.no_grad():
        layers = program["network"].run(model, batch, tokens)
        text.config._attn_implementation = "eager"
        ours = program["comparing"].attention(model, batch, layers, 1, where.ends).exp()
        position = batch.position.expand(3, len(batch.ids), -1)
        seen = torch.ones_like(batch.ids)
        output = text(inputs_embeds=layers[0], position_ids=position, attention_mask=seen, output_attentions=True)
        theirs = output.attentions[1]
    text.config._attn_implementation = "sdpa"
    assert torch.allclose(ours, theirs[:, program["comparing"].GUIDED][:, :, where.ends], atol=1e-5)


def test_the_last_token_alone_says_what_it_says_among_all(program: dict[str, Any], model: Any, rows: tuple[Any, ...]) -> None:
    import torch

    _, _, batch, tokens = rows
    deeper = program["comparing"].deepened(model).eval()
    with torch.no_grad():
        layers = program["network"].run(deeper, batch, tokens)
        kept = program["naming"].Kept(deeper, layers[program["comparing"].BELOW], batch.position)
        alone = kept.logits(torch.tensor([2, 0]))
        among = program["network"].logits_of(deeper, batch, layers)[[2, 0]]
    assert torch.allclose(alone, among, atol=1e-4)


def test_every_pass_over_the_identities_has_new_layouts(program: dict[str, Any]) -> None:
    rng = np.random.default_rng(2)
    source = program["identities"].questions(rng, program["identities"].identities(rng, 2), "matching", 6)
    batches = list(islice(source, 8))
    assert {name for name, _ in batches} == {"faces.matching", "words.matching"}
    targets = [tuple(sample.target for sample in sorted(samples, key=lambda sample: sample.id)) for _, samples in batches]
    assert len(set(targets)) > 1
