"""Training rows with several pictures: a sample of the product, its prompt word for word, and which of its pictures are to be alike."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from checkpoint import TOKEN_PIXELS
from network import see
from numpy.typing import NDArray
from rows import Batch, Packer
from torch import nn
from torch.nn import functional
from transformers import Qwen2VLForConditionalGeneration
from transformers.models.qwen2_vl.modeling_qwen2_vl import apply_rotary_pos_emb

from pytest_vlmrobust import perturbations
from pytest_vlmrobust.backends.messages import message
from pytest_vlmrobust.core.sample import ImageSource, Sample
from pytest_vlmrobust.core.setting import CLEAN, Setting
from pytest_vlmrobust.evaluation.prompts import prompt

COMPARE_LAYER, FETCH_LAYER, FIND_LAYER = 0, 1, 2
"""The layers in which the end of a picture gathers what the picture shows, the end of a candidate looks at that of the support, and
the place of the answer looks at the end of what shows the same."""
BELOW = 3
"""How many layers are put below those of the earlier stages: there, pictures are still what the vision tower said of them."""
GUIDED = [2, 5]
"""The attention heads that are told where to look."""


@dataclass(frozen=True)
class Layout:
    """One text with its pictures' places: every sample of a batch has the same ``columns`` and ``position``."""

    ids: tuple[int, ...]
    columns: tuple[int, ...]
    """Where the image tokens are, picture after picture."""
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
        for key, (source, setting) in missing.items():
            image = rendered(source.load(), setting, len(self._tokens))
            by_side.setdefault(image.shape[0], []).append((key, image))
        for batch in by_side.values():
            for (key, _), tokens in zip(batch, self._seen([image for _, image in batch]), strict=True):
                self._tokens[key] = tokens.clone()
        return [self._tokens[key] for key in keys]

    @torch.no_grad()
    def _seen(self, images: list[NDArray[np.uint8]]) -> torch.Tensor:
        return see(self._model, as_input(images))

    def count(self, source: ImageSource) -> int:
        """Returns how many image tokens a picture is, which is square."""
        key = source.identity()
        if key not in self._counts:
            self._counts[key] = (source.load().shape[0] // TOKEN_PIXELS) ** 2
        return self._counts[key]


def rendered(image: NDArray[np.uint8], setting: Setting, seed: int) -> NDArray[np.uint8]:
    """Returns a picture under a setting."""
    return image if setting == CLEAN else perturbations.get(str(setting)).render(image, seed=seed).image


def as_input(images: Sequence[NDArray[np.uint8]]) -> torch.Tensor:
    """Returns pictures of one size as the vision tower takes them: float32 (B, 3, S, S) in [-1, 1]."""
    return torch.from_numpy((np.stack(images).astype(np.float32) / 127.5 - 1).transpose(0, 3, 1, 2).copy())


@dataclass(frozen=True)
class Comparison:
    """Where a batch's pictures have been gathered, and which of them show the same."""

    support: int
    """Column of the end of the first picture."""
    candidates: torch.Tensor
    """Columns of the ends of the candidates: of pictures, or of cells of a collage."""
    right: torch.Tensor
    """Which of the candidates shows the same, for each row."""
    parts: torch.Tensor
    """Columns of the image tokens of the support and of each candidate, (1 + candidates, tokens)."""

    @property
    def ends(self) -> torch.Tensor:
        """Columns of the ends of the support and of the candidates."""
        return torch.cat([torch.tensor([self.support]), self.candidates])


class Comparer(nn.Module):
    """Compares what the language model has gathered of pictures; nothing of it is left after training."""

    def __init__(self, hidden: int, width: int = 64) -> None:
        super().__init__()
        self.support, self.candidate = nn.Linear(hidden, width, bias=False), nn.Linear(hidden, width, bias=False)
        self.scale = nn.Parameter(torch.tensor(10.0))
        self.mark = nn.Linear(hidden, 1, bias=False)

    def forward(self, layers: list[torch.Tensor], where: Comparison) -> torch.Tensor:
        """Returns how alike every support and every candidate are, (B, B * candidates)."""
        hidden = layers[COMPARE_LAYER + 1]
        hidden = hidden * hidden.square().mean(-1, keepdim=True).add(1e-6).rsqrt()
        support = functional.normalize(self.support(hidden[:, where.support]), dim=-1)
        candidates = functional.normalize(self.candidate(hidden[:, where.candidates]).flatten(0, 1), dim=-1)
        return self.scale * support @ candidates.T

    def marked(self, layers: list[torch.Tensor], where: Comparison) -> torch.Tensor:
        """Returns how much each candidate's end says that it is the right one, (B, candidates)."""
        hidden = layers[FETCH_LAYER + 1][:, where.candidates]
        hidden = hidden * hidden.square().mean(-1, keepdim=True).add(1e-6).rsqrt()
        marks: torch.Tensor = self.mark(hidden)
        return marks[..., 0]

    def loss(self, alike: torch.Tensor, where: Comparison) -> tuple[torch.Tensor, list[bool]]:
        """Returns the loss, and for each row whether the right one of its own candidates is the most alike."""
        rows, count = torch.arange(len(alike)), len(where.candidates)
        own = alike.reshape(len(alike), len(alike), count)[rows, rows]
        right = rows * count + where.right
        return functional.cross_entropy(alike, right), [bool(hit) for hit in own.argmax(-1) == where.right]


def guidance(
    model: Qwen2VLForConditionalGeneration, batch: Batch, layers: list[torch.Tensor], where: Comparison
) -> tuple[torch.Tensor, dict[str, float]]:
    """Returns how surprising it is where the guided heads should look, and how often they look most at the right candidate.

    Args:
        model: whose heads they are.
        batch: rows.
        layers: what the first layer was given, and what there was after each layer.
        where: what is to be compared.
    """
    rows, last = torch.arange(len(batch.ids)), batch.ids.shape[1] - 1
    gathered = attention(model, batch, layers, COMPARE_LAYER, where.ends)
    index = where.parts.expand(*gathered.shape[:2], -1, -1)
    fetched = attention(model, batch, layers, FETCH_LAYER, where.candidates)
    found = attention(model, batch, layers, FIND_LAYER, torch.tensor([last]))[:, :, 0]
    looks = {
        "gathers": gathered.gather(-1, index).mean() + math.log(where.parts.shape[1]),
        "fetches": fetched[:, :, :, where.support].mean(),
        "finds": found[rows, :, where.candidates[where.right]].mean(),
    }
    facts = {name: float(value.detach().exp()) for name, value in looks.items()}
    facts["found"] = float((found[:, :, where.candidates].detach().mean(1).argmax(-1) == where.right).float().mean())
    return -torch.stack(list(looks.values())).sum(), facts


def attention(
    model: Qwen2VLForConditionalGeneration, batch: Batch, layers: list[torch.Tensor], layer: int, queries: torch.Tensor
) -> torch.Tensor:
    """Returns the logarithm of what the guided heads of a layer give to each token, (B, heads, queries, T)."""
    text = model.model.language_model
    own = text.layers[layer].self_attn
    hidden = text.layers[layer].input_layernorm(layers[layer])
    cos, sin = text.rotary_emb(hidden, batch.position)
    count, length, _ = hidden.shape
    query = own.q_proj(hidden[:, queries]).reshape(count, len(queries), -1, own.head_dim).transpose(1, 2)
    key = own.k_proj(hidden).reshape(count, length, -1, own.head_dim).transpose(1, 2)
    query, _ = apply_rotary_pos_emb(query, query, cos[:, queries], sin[:, queries])
    key, _ = apply_rotary_pos_emb(key, key, cos, sin)
    key = key.repeat_interleave(own.num_key_value_groups, dim=1)
    scores = query[:, GUIDED] @ key[:, GUIDED].transpose(-1, -2) * own.scaling
    later = torch.arange(length)[None, :] > queries[:, None]
    return scores.masked_fill(later, float("-inf")).log_softmax(-1)


class Illustrator:
    """Turns samples with several pictures into batches."""

    def __init__(self, model: Qwen2VLForConditionalGeneration, packer: Packer) -> None:
        self.gallery = Gallery(model)
        self._model, self._packer = model, packer
        self._layouts: dict[tuple[str, tuple[int, ...]], Layout] = {}

    def layout(self, sample: Sample) -> Layout:
        """Returns the prompt of a sample as tokens, with as many image tokens per picture as the product's processor makes."""
        counts = tuple(self.gallery.count(source) for source in sample.images)
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
        grids = torch.tensor([[1, 2 * round(count**0.5), 2 * round(count**0.5)] for count in counts])
        row = torch.tensor([ids])
        position, _ = self._model.model.get_rope_index(
            row, mm_token_type_ids=(row == image).int(), image_grid_thw=grids, attention_mask=torch.ones_like(row)
        )
        return Layout(tuple(ids), tuple(i for i, token in enumerate(ids) if token == image), position)

    def batch(self, samples: Sequence[Sample], settings: Sequence[Setting], kind: str) -> tuple[Batch, torch.Tensor, Comparison]:
        """Returns samples of one layout as a batch, their image tokens (B, image tokens, hidden), and what is to be compared."""
        layouts = [self.layout(sample) for sample in samples]
        if len({(layout.columns, len(layout.ids)) for layout in layouts}) > 1:
            raise ValueError("samples of one batch need one layout")
        wanted = [pair for sample, setting in zip(samples, settings, strict=True) for pair in shown(sample, setting)]
        tokens = torch.cat(self.gallery.tokens(wanted)).reshape(len(samples), len(layouts[0].columns), -1)
        picks = [
            (b, *pick) for b, (sample, layout) in enumerate(zip(samples, layouts, strict=True)) for pick in self._picks(sample, layout)
        ]
        row, column, target, weight, role = zip(*picks, strict=True)
        return Batch(
            ids=torch.tensor([layout.ids for layout in layouts]),
            position=layouts[0].position,
            mask=None,
            row=torch.tensor(row),
            column=torch.tensor(column),
            target=torch.tensor(target),
            weight=torch.tensor(weight),
            role=torch.tensor(role),
            question=list(row),
            image=torch.tensor(layouts[0].columns),
            kinds=[kind] * len(samples),
        ), tokens, self._comparison(samples, layouts[0])

    def _comparison(self, samples: Sequence[Sample], layout: Layout) -> Comparison:
        """Returns the ends of pictures (the token after each) or, of a collage, the last tokens of its cells."""
        counts = [self.gallery.count(source) for source in samples[0].images]
        first, *rest = torch.tensor(layout.columns).split(counts)
        if len(rest) > 1:
            right = [list(sample.options).index(str(sample.target)) for sample in samples]
            parts, after = torch.stack([first, *rest]), 1
        else:
            side, cell = round(counts[1] ** 0.5), round(counts[0] ** 0.5)
            across = side // cell
            cells = rest[0].reshape(across, cell, across, cell).transpose(1, 2).reshape(across**2, cell**2)
            parts, after = torch.cat([first[None], cells]), 0
            right = [row * across + column for row, column in map(cell_of, samples)]
        return Comparison(int(first[-1]) + 1, parts[1:, -1] + after, torch.tensor(right), parts)

    def _picks(self, sample: Sample, layout: Layout) -> list[tuple[int, int, float, int]]:
        """Returns column, token, weight and role of everything a row has to predict."""
        yes, no = self._packer.yes, self._packer.no
        letter = self._packer.ids(str(sample.target))[0]
        picks = [(len(layout.ids) - 1, letter, 1.0, 0)]
        for last, option in zip(self._packer.options(list(layout.ids)), sample.options, strict=True):
            chosen = option == sample.target
            picks.append((last, yes if chosen else no, 0.5 if chosen else 0.17, 3))
        if len(sample.images) == 2:
            mark = layout.ids.index(self._packer.ids("?")[0])
            picks += [(mark + i, self._packer.ids(str(place))[0], 0.3, 2) for i, place in enumerate(cell_of(sample))]
        return picks


def cell_of(sample: Sample) -> tuple[int, int]:
    """Returns row and column of the cell that is the answer."""
    row, column = sample.options[str(sample.target)].strip("[]").split(",")
    return int(row), int(column)


def deepened(model: Qwen2VLForConditionalGeneration) -> Qwen2VLForConditionalGeneration:
    """Returns the same model with ``BELOW`` more layers below the others, which change nothing yet."""
    config = copy.deepcopy(model.config)
    config.text_config.num_hidden_layers += BELOW
    config.text_config.layer_types = ["full_attention"] * config.text_config.num_hidden_layers
    deeper = Qwen2VLForConditionalGeneration(config).float()
    state = {_moved(name): value for name, value in model.state_dict().items()}
    deeper.load_state_dict(state, strict=False)
    for layer in deeper.model.language_model.layers[:BELOW]:
        for last in (layer.self_attn.o_proj, layer.mlp.down_proj):
            nn.init.zeros_(last.weight)
    return deeper


def _moved(name: str) -> str:
    """Returns the name of a weight in the deeper model."""
    return re.sub(r"(?<=language_model\.layers\.)\d+", lambda number: str(int(number[0]) + BELOW), name)


def shown(sample: Sample, setting: Setting) -> list[tuple[ImageSource, Setting]]:
    """Returns the pictures of a sample, each with the setting that it is shown under."""
    chosen = range(len(sample.images)) if sample.perturbed is None else sample.perturbed
    return [(source, setting if index in chosen else CLEAN) for index, source in enumerate(sample.images)]


def restricted_letters(batch: Batch, logits: torch.Tensor, letters: Sequence[int]) -> list[bool]:
    """Returns for each row whether the right letter is the most probable of the offered ones."""
    replies = batch.role == 0
    best = torch.tensor(letters)[logits[replies][:, list(letters)].argmax(-1)]
    return [bool(hit) for hit in best == batch.target[replies]]


def cross_entropy(batch: Batch, logits: torch.Tensor) -> torch.Tensor:
    """Returns the weighted loss per row."""
    each = functional.cross_entropy(logits, batch.target, reduction="none")
    return (each * batch.weight).sum() / len(batch.kinds)
