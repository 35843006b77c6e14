"""Training rows with several pictures: samples of the product, their prompts word for word, and where their pictures are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from checkpoint import MERGE, TOKEN_PIXELS
from comparing import Comparison
from network import see
from numpy.typing import NDArray
from rows import Batch, Packer
from transformers import Qwen2VLForConditionalGeneration

from pytest_vlmrobust import perturbations
from pytest_vlmrobust.backends.chat import message
from pytest_vlmrobust.core.cell import CLEAN, Setting
from pytest_vlmrobust.core.sample import ImageSource, Sample
from pytest_vlmrobust.evaluation.run.prompts import prompt


@dataclass(frozen=True)
class Layout:
    """One text with its pictures' places."""

    ids: tuple[int, ...]
    pictures: tuple[tuple[int, ...], ...]
    """Columns of the image tokens of each picture."""
    position: torch.Tensor
    """M-RoPE positions (3, 1, T) as transformers computes them."""


class Gallery:
    """Image tokens of pictures under settings, from a vision tower that stands still, so that they can be kept."""

    def __init__(self, model: Qwen2VLForConditionalGeneration) -> None:
        self._model = model
        self._tokens: dict[tuple[str, str], torch.Tensor] = {}
        self._counts: dict[str, int] = {}

    def tokens(self, wanted: Sequence[tuple[ImageSource, Setting]]) -> list[torch.Tensor]:
        """Returns image tokens (tokens, hidden) for each picture under its setting."""
        keys = [(source.identity(), str(setting)) for source, setting in wanted]
        missing = {key: pair for key, pair in zip(keys, wanted, strict=True) if key not in self._tokens}
        by_side: dict[int, list[tuple[tuple[str, str], NDArray[np.uint8]]]] = {}
        for seed, (key, (source, setting)) in enumerate(missing.items(), start=len(self._tokens)):
            image = source.load()
            if setting != CLEAN:
                image = perturbations.get(str(setting)).render(image, seed=seed).image
            by_side.setdefault(image.shape[0], []).append((key, image))
        for group in by_side.values():
            for (key, _), tokens in zip(group, self._seen([image for _, image in group]), strict=True):
                self._tokens[key] = tokens.clone()
        return [self._tokens[key] for key in keys]

    @torch.no_grad()
    def _seen(self, images: Sequence[NDArray[np.uint8]]) -> torch.Tensor:
        stack = np.stack(images).astype(np.float32) / 127.5 - 1
        return see(self._model, torch.from_numpy(stack.transpose(0, 3, 1, 2).copy()))

    def count(self, source: ImageSource) -> int:
        """Returns how many image tokens a picture is, which is square."""
        key = source.identity()
        if key not in self._counts:
            self._counts[key] = (source.load().shape[0] // TOKEN_PIXELS) ** 2
        return self._counts[key]


class Illustrator:
    """Turns samples with several pictures into batches."""

    def __init__(self, model: Qwen2VLForConditionalGeneration, packer: Packer) -> None:
        self._model, self._packer = model, packer
        self._gallery = Gallery(model)
        self._layouts: dict[tuple[str, tuple[int, ...]], Layout] = {}

    def batch(self, samples: Sequence[Sample], settings: Sequence[Setting], kind: str) -> tuple[Batch, torch.Tensor]:
        """Returns samples of one layout as a batch that predicts their letters, and their image tokens (B, image tokens, hidden).

        Raises:
            ValueError: the samples' pictures are at different places.
        """
        layouts = [self.layout(sample) for sample in samples]
        first = layouts[0]
        if any(layout.pictures != first.pictures or len(layout.ids) != len(first.ids) for layout in layouts):
            raise ValueError("samples of one batch need one layout")
        wanted = [pair for sample, setting in zip(samples, settings, strict=True) for pair in _shown(sample, setting)]
        count, columns = len(samples), [column for picture in first.pictures for column in picture]
        tokens = torch.cat(self._gallery.tokens(wanted)).reshape(count, len(columns), -1)
        return Batch(
            ids=torch.tensor([layout.ids for layout in layouts]),
            position=first.position,
            mask=None,
            row=torch.arange(count),
            column=torch.full((count,), len(first.ids) - 1),
            target=torch.tensor([self._packer.ids(str(sample.target))[0] for sample in samples]),
            weight=torch.ones(count),
            role=torch.zeros(count, dtype=torch.long),
            question=list(range(count)),
            image=torch.tensor(columns),
            kinds=[kind] * count,
        ), tokens

    def comparison(self, samples: Sequence[Sample]) -> Comparison:
        """Returns where samples of one layout, whose options are pictures, have the ends of these: the token after each."""
        parts = torch.tensor(self.layout(samples[0]).pictures)
        right = [list(sample.options).index(str(sample.target)) for sample in samples]
        return Comparison(int(parts[0, -1]) + 1, parts[1:, -1] + 1, torch.tensor(right), parts)

    def layout(self, sample: Sample) -> Layout:
        """Returns the prompt of a sample as tokens, with as many image tokens per picture as the product's processor makes."""
        counts = tuple(self._gallery.count(source) for source in sample.images)
        text = prompt(sample, "direct")
        if (text, counts) not in self._layouts:
            self._layouts[text, counts] = self._laid_out(text, counts)
        return self._layouts[text, counts]

    def _laid_out(self, text: str, counts: tuple[int, ...]) -> Layout:
        tokenizer, image = self._packer.tokenizer, self._packer.image
        user = message([np.zeros((1, 1, 3), np.uint8)] * len(counts), text)
        short = tokenizer.apply_chat_template([user], add_generation_prompt=True, tokenize=True, return_dict=True)["input_ids"]
        left, ids = iter(counts), []
        for token in short:
            ids += [token] * (next(left) if token == image else 1)
        sides = [MERGE * round(count**0.5) for count in counts]
        row = torch.tensor([ids])
        position, _ = self._model.model.get_rope_index(
            row,
            mm_token_type_ids=(row == image).int(),
            image_grid_thw=torch.tensor([[1, side, side] for side in sides]),
            attention_mask=torch.ones_like(row),
        )
        columns = torch.tensor([i for i, token in enumerate(ids) if token == image])
        return Layout(tuple(ids), tuple(tuple(part.tolist()) for part in columns.split(counts)), position)


def _shown(sample: Sample, setting: Setting) -> list[tuple[ImageSource, Setting]]:
    """Returns the pictures of a sample, each with the setting that it is shown under."""
    chosen = range(len(sample.images)) if sample.perturbed is None else sample.perturbed
    return [(source, setting if index in chosen else CLEAN) for index, source in enumerate(sample.images)]
