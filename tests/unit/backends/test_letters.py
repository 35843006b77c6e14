from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from pytest_vlmrobust.backends.generation import LetterTokens, letter_logprobs, letter_tokens, most_probable

WORDS = ["assistant:", " A", " B", "A", "B", "\nA", " ", "\n", "a"]


def _encode(text: str) -> list[int]:
    """Greedy longest match over WORDS."""
    found = []
    while text:
        word = max((word for word in WORDS if text.startswith(word)), key=len)
        found.append(WORDS.index(word))
        text = text[len(word) :]
    return found


def _decode(ids: list[int]) -> str:
    return "".join(WORDS[index] for index in ids)


def test_every_variant_that_begins_with_the_letter_counts() -> None:
    tokens = letter_tokens(["A", "B"], "assistant:", _encode, _decode)
    assert tokens.reason == ""
    assert {letter: [WORDS[i] for i in ids] for letter, ids in tokens.ids.items()} == {"A": ["A", " A", "\nA"], "B": ["B", " B"]}


def test_a_variant_that_changes_the_prompts_tokens_does_not_count() -> None:
    tokens = letter_tokens(["A", "B"], "assistant:\n", _encode, _decode)  # with "A" after it, that "\n" would become "\nA"
    assert [WORDS[i] for i in tokens.ids["A"]] == [" A", "\nA"]


def test_white_space_alone_decides_nothing() -> None:
    tokens = letter_tokens(["a"], "assistant:", _encode, _decode)
    assert [WORDS[i] for i in tokens.ids["a"]] == ["a"]


def test_shared_first_tokens_are_refused() -> None:
    tokens = letter_tokens(["A", "AB"], "assistant:", _encode, _decode)
    assert tokens == LetterTokens(reason="'A' and 'AB' begin with the same token")


def test_a_letter_without_a_token_is_refused() -> None:
    tokens = letter_tokens([" "], "assistant:", _encode, _decode)
    assert tokens == LetterTokens(reason="no token begins with ' '")


def test_the_best_variant_speaks_for_its_letter_under_the_whole_vocabulary() -> None:
    probabilities = torch.tensor([0.1, 0.2, 0.3, 0.25, 0.15])
    [logprobs] = letter_logprobs(probabilities.log()[None] + 7.0, [LetterTokens(ids={"A": (0, 1), "B": (3,)})])
    assert logprobs == pytest.approx({"A": math.log(0.2), "B": math.log(0.25)}, abs=1e-6)
    assert most_probable(logprobs) == "B"


def test_half_precision_logits_are_read_in_float32() -> None:
    logits = torch.zeros(1, 50_000, dtype=torch.bfloat16)
    [logprobs] = letter_logprobs(logits, [LetterTokens(ids={"A": (0,)})])
    assert logprobs["A"] == pytest.approx(-math.log(50_000), abs=1e-4)


def test_each_row_has_letters_of_its_own_and_the_bits_that_it_has_alone() -> None:
    logits = torch.randn(5, 1003, generator=torch.Generator().manual_seed(0)) * 5
    rows = [LetterTokens(ids={"A": (row,), "B": (2 * row + 7, 900)}) for row in range(5)]
    found = letter_logprobs(logits, rows)
    for row, logprobs in enumerate(found):
        alone = torch.log_softmax(logits[row], dim=-1)
        assert logprobs == {"A": float(alone[row]), "B": float(max(alone[2 * row + 7], alone[900]))}


def test_ties_go_to_the_letter_offered_first() -> None:
    assert most_probable({"B": -1.0, "A": -1.0}) == "B"


@pytest.mark.parametrize("family", ["qwen2_vl", "gemma3", "idefics3"])
def test_on_a_real_tokenizer_both_spellings_are_found(checkpoint: Callable[[str], Path], family: str) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(checkpoint(family))

    def encode(text: str) -> list[int]:
        return list(tokenizer.encode(text, add_special_tokens=False))

    tokens = letter_tokens(["A", "B"], "<|im_start|>assistant\n", encode, tokenizer.decode)
    assert {letter: [tokenizer.decode([i]) for i in ids] for letter, ids in tokens.ids.items()} == {
        "A": ["A", " A"],
        "B": ["B", " B"],
    }
