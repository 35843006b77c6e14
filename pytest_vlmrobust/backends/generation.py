"""Generation: the parameters of each prompt mode, and the tokens that stand for letters."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_vlmrobust.core.errors import ModelError, did_you_mean
from pytest_vlmrobust.core.prediction import PROMPT_MODES, ModelRef

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Generation:
    """Parameters of text generation; a temperature of 0 is greedy decoding.

    Source: VLM-RobustBench, appendix C.1 (generation seed 42) and C.4 (limits, temperature, top-p, top-k).
    """

    max_new_tokens: int = 2048
    temperature: float | None = 0.0
    """None leaves it to the server."""
    top_p: float = 1.0
    top_k: int = 0
    """0 keeps the whole vocabulary."""
    repetition_penalty: float = 1.0
    seed: int = 42

    @property
    def samples(self) -> bool:
        """Whether tokens are drawn at random (from a generator seeded per request)."""
        return self.temperature is None or self.temperature > 0.0


NO_TEMPERATURE = "none"
"""Value in the models file that leaves the temperature to the server."""

BY_MODE = {
    "direct": Generation(),
    "cot": Generation(),
    "thinking": Generation(max_new_tokens=8192, temperature=0.6, top_p=0.95, top_k=20),
}

PRESETS: dict[str, dict[str, float | int]] = {"observatory": {"temperature": 0.2, "top_p": 0.95, "top_k": 32}}
"""Named parameters for the models file; ``observatory``: The Perceptual Observatory, section 4.2."""

_BOUNDS: dict[str, tuple[Callable[[float], bool], str]] = {
    "max_new_tokens": (lambda value: value >= 1, "a whole number of 1 or more"),
    "temperature": (lambda value: value >= 0, "a number of 0 (greedy) or more, or none with backend: openai"),
    "top_p": (lambda value: 0 < value <= 1, "a number in (0, 1]"),
    "top_k": (lambda value: value >= 0, "a whole number of 0 (all) or more"),
    "repetition_penalty": (lambda value: value > 0, "a number above 0"),
    "seed": (lambda value: value >= 0, "a whole number of 0 or more"),
}


def generation_for(ref: ModelRef) -> Generation:
    """Returns the generation parameters of a model: those of its prompt mode, overridden by its own.

    The evaluation sends ``max_new_tokens`` with each request; a backend bounds a request's text by that alone.
    """
    if ref.prompt_mode not in BY_MODE:
        hint = did_you_mean(ref.prompt_mode, PROMPT_MODES)
        raise ModelError(
            f"model {ref.name!r}: unknown prompt mode {ref.prompt_mode!r}.{hint} Expected one of {', '.join(PROMPT_MODES)}"
        )
    if ref.answer == "letters" and ref.prompt_mode != "direct":
        raise ModelError(
            f"model {ref.name!r}: choices are to be answered by letters, and prompt mode {ref.prompt_mode!r} answers with text, "
            f"which does not begin with a letter. {TEXT_INSTEAD}; or take prompt_mode: direct"
        )
    overrides: dict[str, Any] = dict(ref.generation)
    if overrides.get("temperature") == NO_TEMPERATURE:
        if ref.backend not in ("openai", "serve"):
            raise ModelError(
                f"model {ref.name!r}: temperature: {NO_TEMPERATURE} leaves the temperature to a server. It goes with "
                "backend: openai alone; expected a number of 0 (greedy) or more"
            )
        del overrides["temperature"]  # the mode's own sampling goes with its temperature
        mode = dataclasses.replace(BY_MODE[ref.prompt_mode], temperature=None, top_p=1.0, top_k=0)
    else:
        mode = BY_MODE[ref.prompt_mode]
    for key, value in overrides.items():
        _check(ref.name, key, value)
    return dataclasses.replace(mode, **overrides)


def scores_letters(ref: ModelRef) -> bool:
    """Returns whether the letters may be scored right after the prompt.

    Only in direct mode, because a chain of thought does not begin with its answer, and not if the user chose text.
    """
    return ref.prompt_mode == "direct" and ref.answer != "text"


TEXT_INSTEAD = "Ask by text: --vlm-answer=text, or answer: text in the models file"
"""Advice for a model that cannot answer by letters."""


def _check(model: str, key: str, value: Any) -> None:
    where = f"model {model!r}: generation parameter {key!r:.100}"
    if key not in _BOUNDS:
        raise ModelError(f"{where} is unknown.{did_you_mean(key, _BOUNDS)} Known: {', '.join(_BOUNDS)}")
    holds, expected = _BOUNDS[key]
    whole = expected.startswith("a whole number")
    number = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
    if not number or not holds(value) or not value < math.inf:
        raise ModelError(f"{where} is {value!r:.100}; expected {expected}")


# Sampling of tokens with one generator per request: a draw depends neither on the batch nor on global state.


class SeededDraw:
    """Adds Gumbel noise to each row's scores, so that the greedy choice that follows is a draw from their softmax.

    The noise comes from one CPU generator per row, seeded by the request: the same on every device and in every batch.
    """

    def __init__(self, seeds: Sequence[int]) -> None:
        import torch

        self._generators = [torch.Generator().manual_seed(seed) for seed in seeds]

    def __call__(self, _input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Returns noisy scores, float32, shape (batch, vocabulary); tokens ruled out stay ruled out."""
        import torch

        rows = [torch.empty(scores.shape[-1]).exponential_(generator=generator) for generator in self._generators]
        waiting = torch.stack(rows).clamp_min(torch.finfo(torch.float32).tiny)
        return scores.float() - waiting.log().to(scores.device)


class NonFiniteWatch:
    """Remembers rows with a NaN or +inf score: their text is no answer. Counts the tokens of each row."""

    def __init__(self) -> None:
        self._seen: torch.Tensor | None = None
        self.tokens = 0

    def __call__(self, _input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Checks scores, shape (batch, vocabulary), and returns them unchanged."""
        self.tokens += 1
        non_finite = ~(scores < math.inf).all(dim=-1)
        self._seen = non_finite if self._seen is None else self._seen | non_finite
        return scores

    @property
    def rows(self) -> list[bool]:
        """Whether each row had such a score."""
        return [] if self._seen is None else [bool(seen) for seen in self._seen.tolist()]


def score_processors(generation: Generation, seeds: Sequence[int], watch: NonFiniteWatch) -> list[Any]:
    """Returns the processors applied to the scores before the highest is chosen, in order."""
    if not generation.temperature:
        return [watch]
    from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    warpers: list[Any] = [TemperatureLogitsWarper(float(generation.temperature))]
    if generation.top_k > 0:
        warpers.append(TopKLogitsWarper(int(generation.top_k)))
    if generation.top_p < 1.0:
        warpers.append(TopPLogitsWarper(float(generation.top_p)))
    return [watch, *warpers, SeededDraw(seeds)]


# Answering with a letter: its tokens, and the most probable letter.


VARIANTS = ("{}", " {}", "\n{}")
"""Ways in which an answer may begin with a letter."""

_RAW_BLANKS = str.maketrans({"▁": " ", "Ġ": " ", "Ċ": "\n"})
"""Blanks in tokenizer vocabularies; some servers list tokens in this spelling."""

Encode = Callable[[str], list[int]]
Decode = Callable[[list[int]], str]


@dataclass(frozen=True, slots=True)
class LetterTokens:
    """The token ids of each letter, or why letters cannot be distinguished by their first token."""

    ids: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    reason: str = ""


def bare(token: str) -> str:
    """Returns a token without the blanks around it, in any spelling.

    >>> bare(" A"), bare("▁A"), bare("ĠA"), bare("(A")
    ('A', 'A', 'A', '(A')
    """
    return token.translate(_RAW_BLANKS).strip()


def letter_tokens(choices: Sequence[str], prompt: str, encode: Encode, decode: Decode) -> LetterTokens:
    """Returns the first tokens of every way to begin an answer with each of ``choices``.

    A variant is encoded as the continuation of a prompt that ends where the model's answer begins, because many tokenizers
    write a letter differently at the start of a text. A variant that changes the prompt's own tokens, or whose first token is
    white space alone, stands for no letter. When a letter has no variant left, or a token begins two of the choices, the
    first token cannot decide between them.
    """
    before = encode(prompt)
    ids = {choice: _first_tokens(choice, prompt, before, encode, decode) for choice in choices}
    for choice, tokens in ids.items():
        if not tokens:
            return LetterTokens(reason=f"no token begins with {choice!r}")
    owner: dict[int, str] = {}
    for choice, tokens in ids.items():
        for token in tokens:
            if owner.setdefault(token, choice) != choice:
                return LetterTokens(reason=f"{owner[token]!r} and {choice!r} begin with the same token")
    return LetterTokens(ids=ids)


def letters_of(tokenizer: Any, prompt: str, choices: Sequence[str]) -> LetterTokens:
    """:func:`letter_tokens` for a tokenizer of transformers."""
    return letter_tokens(
        choices,
        prompt,
        encode=lambda text: list(tokenizer.encode(text, add_special_tokens=False)),
        decode=tokenizer.decode,
    )


def _first_tokens(choice: str, prompt: str, before: list[int], encode: Encode, decode: Decode) -> tuple[int, ...]:
    tokens = []
    for variant in VARIANTS:
        after = encode(prompt + variant.format(choice))
        if len(after) > len(before) and after[: len(before)] == before and decode([after[len(before)]]).strip():
            tokens.append(after[len(before)])
    return tuple(dict.fromkeys(tokens))


def letter_logprobs(logits: torch.Tensor, rows: Sequence[LetterTokens]) -> list[dict[str, float]]:
    """Returns each letter's log-probability: that of its most probable token, under a softmax over the whole vocabulary.

    Args:
        logits: Shape (rows, vocabulary), any floating dtype; computed with in float32.
        rows: What stands for each letter, row by row.
    """
    import torch

    columns = sorted({token for row in rows for ids in row.ids.values() for token in ids})
    place = {token: number for number, token in enumerate(columns)}
    logprobs = torch.log_softmax(logits.float(), dim=-1)[:, columns].tolist()  # waits for the GPU once, not once per letter
    return [
        {letter: max(values[place[token]] for token in ids) for letter, ids in row.ids.items()}
        for row, values in zip(rows, logprobs, strict=True)
    ]


def most_probable(logprobs: Mapping[str, float]) -> str:
    """Returns the letter of the highest log-probability, the first one offered when several are equal."""
    return max(logprobs, key=lambda letter: logprobs[letter])
