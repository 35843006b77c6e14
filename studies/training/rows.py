"""Training rows: a picture, what its image tokens should say, and several questions packed behind it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import cv2
import numpy as np
import torch
from checkpoint import TOKEN_PIXELS
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerFast

from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.demo import scenes, shapes
from pytest_vlmrobust.demo.words import WORD_KINDS, WORDS, Page, draw_page, pages
from pytest_vlmrobust.evaluation.run.prompts import prompt

EXTRA_ANCHORS = ("dir:up", "dir:down", "dir:left", "dir:right", "large", "blank")
KIND_WEIGHTS = {
    "color_of": 2.0,
    "color_at": 0.8,
    "shape_of": 0.6,
    "shape_at": 0.8,
    "count": 1.2,
    "where": 1.2,
    "relation": 1.5,
    "orientation": 2.0,
    "size": 0.8,
    "existence": 1.8,
}


@dataclass(frozen=True)
class Fact:
    """What is visible in a box (x1, y1, x2, y2 on the native canvas): names of anchors."""

    box: tuple[float, float, float, float]
    anchors: tuple[str, ...]


@dataclass(frozen=True)
class Asked:
    """A question as text, the answer in words and the answer as it must be given."""

    text: str
    words: str
    reply: str
    kind: str


@dataclass(frozen=True)
class Picture:
    """A picture with its facts and its questions; ``draw`` is delayed because the text-only stage needs no pixels."""

    source: scenes.Scene | Page
    facts: tuple[Fact, ...]
    questions: tuple[Asked, ...]

    def draw(self) -> NDArray[np.uint8]:
        return scenes.draw(self.source) if isinstance(self.source, scenes.Scene) else draw_page(self.source)


def pictures(rng: np.random.Generator, *, evaluation: bool, per_picture: int, words: float) -> Iterator[Picture]:
    """Yields pictures of one split; ``words`` is the share of pictures of words."""
    drawn, written = scenes.scenes(rng, evaluation=evaluation), pages(rng, evaluation=evaluation)
    while True:
        if rng.random() < words:
            page = next(written)
            yield Picture(page, _page_facts(page), _ask_page(rng, page, per_picture))
        else:
            scene = next(drawn)
            questions = _ask_scene(rng, scene, per_picture)
            if questions:
                yield Picture(scene, _scene_facts(scene), questions)


def _scene_facts(scene: scenes.Scene) -> tuple[Fact, ...]:
    facts = []
    for f in scene.figures:
        anchors = [f.color, f.shape, *([f"dir:{f.direction}"] if f.direction else []), *(["large"] if f.large else [])]
        facts.append(Fact((f.x - f.radius, f.y - f.radius, f.x + f.radius, f.y + f.radius), tuple(anchors)))
    return tuple(facts)


def _page_facts(page: Page) -> tuple[Fact, ...]:
    return tuple(Fact(w.box, (w.word, w.color)) for w in page.letterings)


def _ask_scene(rng: np.random.Generator, scene: scenes.Scene, count: int) -> tuple[Asked, ...]:
    kinds, weights = list(KIND_WEIGHTS), np.array(list(KIND_WEIGHTS.values()))
    questions: list[Asked] = []
    for _ in range(count * 4):
        kind = kinds[int(rng.choice(len(kinds), p=weights / weights.sum()))]
        question = shapes.KINDS[kind](rng, scene)
        if question is not None and len(questions) < count:
            questions.append(_question(question.text, question.answer, question.options, question.kind))
    return tuple(questions)


def _ask_page(rng: np.random.Generator, page: Page, count: int) -> tuple[Asked, ...]:
    questions = []
    for _ in range(count):
        kind = list(WORD_KINDS)[int(rng.choice(3, p=(0.3, 0.3, 0.4)))]
        question = WORD_KINDS[kind](rng, page)
        questions.append(_question(question.text, question.answer, question.options, question.kind))
    return tuple(questions)


def _question(text: str, answer: str, options: tuple[str, ...], kind: str) -> Asked:
    lettered = dict(zip(shapes.LETTERS, options, strict=False))
    task = "choice" if options else "yes_no"
    full = prompt(Sample("", (), text, "", task, lettered), "direct")
    reply = shapes.LETTERS[options.index(answer)] if options else answer.capitalize()
    return Asked(full, answer, reply, kind)


class Packer:
    """Turns pictures into tensors: prefix with image tokens, then ``per_picture`` questions side by side."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        self.tokenizer = tokenizer
        encode = tokenizer.backend_tokenizer.encode
        self.before = encode("<|im_start|>user\n<|vision_start|>", add_special_tokens=False).ids
        self.image = tokenizer.convert_tokens_to_ids("<|image_pad|>")
        self.after = encode("<|vision_end|>", add_special_tokens=False).ids
        self.end = tokenizer.convert_tokens_to_ids("<|im_end|>")
        self.yes, self.no = (encode(word, add_special_tokens=False).ids[0] for word in (" yes", " no"))
        self.markers = [encode(f"\n{letter}.", add_special_tokens=False).ids[0] for letter in shapes.LETTERS]
        self._cache: dict[str, list[int]] = {}

    def ids(self, text: str) -> list[int]:
        if text not in self._cache:
            if len(self._cache) > 200_000:
                self._cache.clear()
            self._cache[text] = self.tokenizer.backend_tokenizer.encode(text, add_special_tokens=False).ids
        return self._cache[text]

    def question(self, question: Asked, *, hint: bool) -> tuple[list[int], int, int, list[int]]:
        """Returns ids, the index that must predict the reply, the index of the question mark, ids of the answer's words."""
        head, mark, tail = question.text.partition("?")
        words = self.ids(f" {question.words}")
        start = self.ids(head + mark)
        reply = self.ids(question.reply)
        ids = [*start, *(words if hint else []), *self.ids(f"{tail}<|im_end|>\n<|im_start|>assistant\n")]
        blank = self.ids(" ")[0]
        return [*ids, *reply, self.end], len(ids) - 1, len(start) - 1, [word for word in words if word != blank]

    def options(self, tokens: list[int]) -> list[int]:
        """Returns the index of the last token of each option; none for yes/no shapes."""
        starts = [tokens.index(marker) for marker in self.markers if marker in tokens]
        if not starts:
            return []
        newline = next(
            i for i in range(starts[-1] + 1, len(tokens)) if self.tokenizer.convert_ids_to_tokens(tokens[i]) == "\u010a"
        )
        return [start - 1 for start in starts[1:]] + [newline - 1]

    def pack(self, batch: list[Picture], *, grid: int, hint: float, rng: np.random.Generator) -> Batch:
        """Packs pictures that all have ``grid`` x ``grid`` image tokens (0: no image)."""
        rows = [[self.question(a, hint=rng.random() < hint) for a in picture.questions] for picture in batch]
        length = max(len(q[0]) for row in rows for q in row)
        per = max(len(row) for row in rows)
        prefix = [*self.before, *[self.image] * grid**2, *self.after] if grid else self.before[:-1]
        ids = np.zeros((len(batch), len(prefix) + per * length), np.int64)
        ids[:, : len(prefix)] = prefix
        picks: list[tuple[int, int, int, float, int]] = []
        owners: list[int] = []
        for b, row in enumerate(rows):
            for k, (tokens, at, mark, words) in enumerate(row):
                offset = len(prefix) + k * length
                ids[b, offset : offset + len(tokens)] = tokens
                picks.append((b, offset + at, tokens[at + 1], 1.0, 0))
                picks.append((b, offset + at + 1, self.end, 0.1, 1))
                picks.append((b, offset + mark, words[0], 0.5, 2))
                if len(words) > 1 and tokens[mark + 1] != words[0]:
                    picks.append((b, offset + mark + 1, words[1], 0.5, 2))
                right = shapes.LETTERS.find(batch[b].questions[k].reply)
                for number, last in enumerate(self.options(tokens)):
                    chosen = number == right
                    picks.append((b, offset + last, self.yes if chosen else self.no, 0.3 if chosen else 0.1, 3))
                owners += [sum(map(len, rows[:b])) + k] * (len(picks) - len(owners))
        position = self._positions(len(prefix), grid, per, length)
        where = torch.tensor([(p[0], p[1]) for p in picks]).T
        return Batch(
            torch.from_numpy(ids),
            position,
            _block_mask(len(prefix), per, length),
            where[0],
            where[1],
            torch.tensor([p[2] for p in picks]),
            torch.tensor([p[3] for p in picks]),
            torch.tensor([p[4] for p in picks]),
            owners,
            torch.arange(len(self.before), len(self.before) + grid**2),
            [a.kind for picture in batch for a in picture.questions],
        )

    def _positions(self, prefix: int, grid: int, per: int, length: int) -> torch.Tensor:
        """M-RoPE positions, shape (3, 1, T): each question starts where the prefix ended."""
        start = len(self.before) if grid else prefix
        text = torch.arange(start).expand(3, -1)
        parts = [text]
        at = start
        if grid:
            rows, columns = torch.meshgrid(torch.arange(grid), torch.arange(grid), indexing="ij")
            parts.append(torch.stack([torch.zeros(grid**2, dtype=torch.long), rows.reshape(-1), columns.reshape(-1)]) + at)
            at += grid
            parts.append((torch.arange(len(self.after)) + at).expand(3, -1))
            at += len(self.after)
        parts += [(torch.arange(length) + at).expand(3, -1)] * per
        return torch.cat(parts, dim=1)[:, None]


@dataclass
class Batch:
    """``ids`` (B, T); ``position`` (3, 1, T); ``mask`` additive (1, 1, T, T), or None: causal; the rest picks tokens."""

    ids: torch.Tensor
    position: torch.Tensor
    mask: torch.Tensor | None
    row: torch.Tensor
    column: torch.Tensor
    target: torch.Tensor
    weight: torch.Tensor
    role: torch.Tensor
    """0 the reply, 1 its end, 2 the answer in words at the question mark, 3 whether an option is the answer."""
    question: list[int]
    """Which question (index into ``kinds``) each picked position belongs to."""
    image: torch.Tensor
    """Columns of the image tokens."""
    kinds: list[str]


def _block_mask(prefix: int, per: int, length: int) -> torch.Tensor:
    total = prefix + per * length
    index = torch.arange(total)
    segment = torch.where(index < prefix, -1, (index - prefix) // length)
    seen = (index[None, :] <= index[:, None]) & ((segment[None, :] == -1) | (segment[None, :] == segment[:, None]))
    return torch.where(seen, 0.0, float("-inf"))[None, None]


class Anchors:
    """Fixed unit vectors of the things an image token can say; those of words are the rows of the word embedding."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, hidden: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        words = [*scenes.COLORS, *scenes.SHAPES, *WORDS, "top", "bottom", "left", "right"]
        self.names = [*words, *EXTRA_ANCHORS]
        vectors = torch.randn(len(self.names), hidden, generator=generator)
        self.vectors = vectors / vectors.norm(dim=1, keepdim=True)
        self.index = {name: i for i, name in enumerate(self.names)}
        self.token_ids = []
        for word in words:
            ids = tokenizer.backend_tokenizer.encode(f" {word}", add_special_tokens=False).ids
            if len(ids) != 1:
                raise ValueError(f"{word!r} is {len(ids)} tokens")
            self.token_ids.append(ids[0])

    def weights(self, picture: Picture, grid: int) -> NDArray[np.float32]:
        """Returns how much of each anchor each image token should say, shape (grid * grid, anchors)."""
        side = scenes.CANVAS / grid
        low = np.arange(grid) * side
        out = np.zeros((grid, grid, len(self.names)), np.float32)
        centre = low + side / 2
        half = np.where(np.abs(centre - scenes.CANVAS / 2) < 1, 0.5, (centre < scenes.CANVAS / 2).astype(float))
        out[:, :, self.index["top"]], out[:, :, self.index["bottom"]] = half[:, None], 1 - half[:, None]
        out[:, :, self.index["left"]], out[:, :, self.index["right"]] = half[None, :], 1 - half[None, :]
        covered = np.zeros((grid, grid), np.float32)
        for fact in picture.facts:
            x1, y1, x2, y2 = fact.box
            wide = np.clip(np.minimum(low + side, x2) - np.maximum(low, x1), 0, None)
            high = np.clip(np.minimum(low + side, y2) - np.maximum(low, y1), 0, None)
            reference = 0.2 * min((x2 - x1) * (y2 - y1), side * side)
            share = np.clip(high[:, None] * wide[None, :] / reference, 0, 1)
            covered = np.maximum(covered, share)
            for name in fact.anchors:
                out[:, :, self.index[name]] += share
        out[:, :, self.index["blank"]] = 1 - covered
        return out.reshape(grid * grid, -1)


def pixels(batch: list[Picture], grid: int, rng: np.random.Generator, *, augment: bool) -> torch.Tensor:
    """Draws pictures at ``grid`` image tokens a side: float32 (B, 3, S, S) in [-1, 1]."""
    side = grid * TOKEN_PIXELS
    out = np.empty((len(batch), side, side, 3), np.float32)
    for i, picture in enumerate(batch):
        image = picture.draw()
        if augment:
            image = lightly_disturbed(image, rng)
        if side != image.shape[0]:
            image = cv2.resize(image, (side, side), interpolation=cv2.INTER_AREA if side < image.shape[0] else cv2.INTER_CUBIC)
        out[i] = image
    return torch.from_numpy((out / 127.5 - 1).transpose(0, 3, 1, 2).copy())


def lightly_disturbed(image: NDArray[np.uint8], rng: np.random.Generator) -> NDArray[np.uint8]:
    """Returns the picture with slight noise, blur, exposure, shift or lost resolution, or unchanged in 4 cases of 10."""
    kind = rng.random()
    if kind < 0.4:
        return image
    if kind < 0.55:
        noisy = image + rng.normal(0, rng.uniform(2, 14), image.shape)
        return np.clip(noisy, 0, 255).astype(np.uint8)
    if kind < 0.7:
        return np.asarray(cv2.GaussianBlur(image, (0, 0), rng.uniform(0.3, 1.6)), np.uint8)
    if kind < 0.85:
        factor, offset = rng.uniform(0.75, 1.2), rng.uniform(-20, 20)
        return np.asarray(np.clip(image * factor + offset, 0, 255), np.uint8)
    side = image.shape[0]
    small = int(side * rng.uniform(0.4, 0.9))
    return np.asarray(cv2.resize(cv2.resize(image, (small, small), interpolation=cv2.INTER_AREA), (side, side)), np.uint8)
