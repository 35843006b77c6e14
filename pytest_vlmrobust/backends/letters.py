"""Answering with a letter: which tokens stand for it, and which letter the model finds most probable."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


VARIANTS = ("{}", " {}", "\n{}")
"""How a letter may begin an answer."""

_RAW_BLANKS = str.maketrans({"▁": " ", "Ġ": " ", "Ċ": "\n"})
"""How tokenizers spell blanks inside of their vocabulary: some servers list tokens like that."""

Encode = Callable[[str], list[int]]
Decode = Callable[[list[int]], str]


@dataclass(frozen=True, slots=True)
class LetterTokens:
    """The token ids that stand for each letter, or why letters cannot be told apart by their first token."""

    ids: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    reason: str = ""


def bare(token: str) -> str:
    """Returns a token without the blanks around it, however they are spelled.

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
    """Does what :func:`letter_tokens` does, with a tokenizer of transformers."""
    return letter_tokens(
        choices,
        prompt,
        encode=lambda text: list(tokenizer.encode(text, add_special_tokens=False)),
        decode=tokenizer.decode,
    )


def _first_tokens(choice: str, prompt: str, before: list[int], encode: Encode, decode: Decode) -> tuple[int, ...]:
    found = []
    for variant in VARIANTS:
        after = encode(prompt + variant.format(choice))
        if len(after) > len(before) and after[: len(before)] == before and decode([after[len(before)]]).strip():
            found.append(after[len(before)])
    return tuple(dict.fromkeys(found))


def letter_logprobs(logits: torch.Tensor, rows: Sequence[LetterTokens]) -> list[dict[str, float]]:
    """Returns each letter's log-probability: that of its most probable token, under a softmax over the whole vocabulary.

    Args:
        logits: Shape (rows, vocabulary), any floating dtype; computed with in float32.
        rows: What stands for each letter, row by row.
    """
    import torch

    columns = sorted({token for row in rows for ids in row.ids.values() for token in ids})
    place = {token: number for number, token in enumerate(columns)}
    found = torch.log_softmax(logits.float(), dim=-1)[:, columns].tolist()  # one wait for a GPU, not one for each letter
    return [
        {letter: max(values[place[token]] for token in ids) for letter, ids in row.ids.items()}
        for row, values in zip(rows, found, strict=True)
    ]


def most_probable(logprobs: Mapping[str, float]) -> str:
    """Returns the letter of the highest log-probability, the first one offered when several are equal."""
    return max(logprobs, key=lambda letter: logprobs[letter])
