from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_vlmrobust.backends import Generation, generation_for, scores_letters
from pytest_vlmrobust.backends.generation import (
    LetterTokens,
    NonFiniteWatch,
    SeededDraw,
    letter_logprobs,
    letter_tokens,
    most_probable,
    score_processors,
)
from pytest_vlmrobust.core.errors import ModelError
from pytest_vlmrobust.core.prediction import ModelRef


def _ref(mode: str = "direct", **generation: Any) -> ModelRef:
    return ModelRef(name="m", backend="transformers", location="x", prompt_mode=mode, generation=generation)


@pytest.mark.cases(
    ("mode", "options", "expected"),
    [
        ("direct", {}, Generation(max_new_tokens=2048, temperature=0.0)),
        ("cot", {}, Generation(max_new_tokens=2048, temperature=0.0)),
        ("thinking", {}, Generation(max_new_tokens=8192, temperature=0.6, top_p=0.95, top_k=20, seed=42)),
        ("thinking", {"temperature": 0.2, "top_k": 32}, Generation(8192, 0.2, 0.95, 32)),
        ("thinking", {"temperature": 0}, Generation(8192, 0, 0.95, 20)),
    ],
)
def test_modes_have_the_papers_parameters_and_the_model_overrides_them(
    mode: str, options: dict[str, Any], expected: Generation
) -> None:
    generation = generation_for(_ref(mode, **options))
    assert generation == expected
    assert generation.samples is bool(expected.temperature)


def test_only_direct_answers_begin_with_their_letter() -> None:
    assert [scores_letters(_ref(mode)) for mode in ("direct", "cot", "thinking")] == [True, False, False]
    assert [scores_letters(dataclasses.replace(_ref("direct"), answer=answer)) for answer in ("letters", "text")] == [True, False]


@pytest.mark.cases(
    ("generation", "message"),
    [
        ({"temprature": 0.1}, r"'temprature' is unknown. Did you mean 'temperature'\? Known: max_new_tokens,"),
        ({"temperature": -0.1}, r"'temperature' is -0.1; expected a number of 0 \(greedy\) or more"),
        ({"top_p": 1.5}, r"'top_p' is 1.5; expected a number in \(0, 1\]"),
        ({"top_k": 2.5}, "'top_k' is 2.5; expected a whole number"),
        ({"max_new_tokens": 0}, "'max_new_tokens' is 0; expected a whole number of 1 or more"),
        ({"max_new_tokens": True}, "'max_new_tokens' is True; expected a whole number"),
        ({"seed": "42"}, "'seed' is '42'; expected a whole number"),
    ],
)
def test_wrong_parameters_are_named(generation: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=f"model 'm': generation parameter {message}"):
        generation_for(_ref("direct", **generation))


def test_an_unknown_mode_is_named() -> None:
    with pytest.raises(ModelError, match=r"unknown prompt mode 'thinkng'. Did you mean 'thinking'\? Expected"):
        generation_for(_ref("thinkng"))
    with pytest.raises(ModelError, match=r"model 'm': unknown prompt mode 'chain'. Expected one of direct, cot, thinking"):
        generation_for(_ref("chain"))


IDS = torch.zeros((1, 1), dtype=torch.long)


def _draws(seeds: list[int], steps: int, scores: torch.Tensor) -> torch.Tensor:
    draw = SeededDraw(seeds)
    rows = scores.expand(len(seeds), -1)
    return torch.stack([draw(IDS, rows).argmax(dim=-1) for _ in range(steps)])


def test_draws_follow_the_softmax() -> None:
    probabilities = torch.tensor([0.5, 0.3, 0.15, 0.05])
    drawn = _draws(list(range(200)), 50, probabilities.log())
    shares = torch.bincount(drawn.flatten(), minlength=4) / drawn.numel()
    # 10,000 draws: a standard error of at most 0.005
    assert shares.tolist() == pytest.approx(probabilities.tolist(), abs=0.02)


def test_a_row_depends_on_its_seed_alone() -> None:
    scores = torch.zeros(100)
    together = _draws([7, 8, 9], 6, scores)
    assert _draws([8], 6, scores)[:, 0].tolist() == together[:, 1].tolist()
    assert together[:, 0].tolist() != together[:, 1].tolist()


def test_tokens_ruled_out_are_never_drawn() -> None:
    scores = torch.tensor([-math.inf, 0.0, -math.inf])
    assert set(_draws(list(range(50)), 4, scores).flatten().tolist()) == {1}


def test_global_random_state_is_left_alone() -> None:
    before = torch.random.get_rng_state()
    _draws([1, 2], 3, torch.zeros(5))
    assert torch.equal(torch.random.get_rng_state(), before)


def test_seeds_of_64_bits_are_taken() -> None:
    assert _draws([2**64 - 1], 1, torch.zeros(5)).shape == (1, 1)


def test_rows_that_are_not_finite_are_remembered() -> None:
    watch = NonFiniteWatch()
    assert watch.rows == []
    good, bad = [0.0, -math.inf], [0.0, math.nan]
    watch(IDS, torch.tensor([good, bad, good, good]))
    watch(IDS, torch.tensor([good, good, [0.0, math.inf], good]))
    assert watch.rows == [False, True, True, False]
    assert watch.tokens == 2


@pytest.mark.parametrize(
    ("generation", "steps"),
    [
        (Generation(), []),  # greedy decoding changes no score
        (Generation(8, 0.6, 0.95, 20), ["TemperatureLogitsWarper", "TopKLogitsWarper", "TopPLogitsWarper", "SeededDraw"]),
        (Generation(8, 0.6), ["TemperatureLogitsWarper", "SeededDraw"]),
    ],
)
def test_sampling_applies_temperature_top_k_top_p_then_draws(generation: Generation, steps: list[str]) -> None:
    watch = NonFiniteWatch()
    first, *others = score_processors(generation, [1], watch)
    assert first is watch
    assert [type(step).__name__ for step in others] == steps


@pytest.mark.parametrize("mode", ["cot", "thinking"])
def test_letters_of_a_mode_that_writes_text_are_refused(mode: str) -> None:
    ref = ModelRef("m", "transformers", "x", prompt_mode=mode, answer="letters")
    with pytest.raises(ModelError, match=f"by letters, and prompt mode '{mode}' answers with text.* --vlm-answer=text.*direct"):
        generation_for(ref)


# None


WORDS = ["assistant:", " A", " B", "A", "B", "\nA", " ", "\n", "a"]


def _encode(text: str) -> list[int]:
    """Greedy longest match over WORDS."""
    tokens = []
    while text:
        word = max((word for word in WORDS if text.startswith(word)), key=len)
        tokens.append(WORDS.index(word))
        text = text[len(word) :]
    return tokens


def _decode(ids: list[int]) -> str:
    return "".join(WORDS[index] for index in ids)


@pytest.mark.parametrize(
    ("letters", "prompt", "expected"),
    [
        ("AB", "assistant:", {"A": ["A", " A", "\nA"], "B": ["B", " B"]}),
        ("AB", "assistant:\n", {"A": [" A", "\nA"], "B": ["B", " B"]}),  # with "A" after it, that "\n" would become "\nA"
        ("a", "assistant:", {"a": ["a"]}),  # white space alone decides nothing
    ],
)
def test_every_variant_that_begins_with_the_letter_counts(letters: str, prompt: str, expected: dict[str, list[str]]) -> None:
    tokens = letter_tokens([*letters], prompt, _encode, _decode)
    assert tokens.reason == ""
    assert {letter: [WORDS[i] for i in ids] for letter, ids in tokens.ids.items()} == expected


@pytest.mark.parametrize(
    ("letters", "reason"), [(["A", "AB"], "'A' and 'AB' begin with the same token"), ([" "], "no token begins with ' '")]
)
def test_letters_without_a_token_of_their_own_are_refused(letters: list[str], reason: str) -> None:
    assert letter_tokens(letters, "assistant:", _encode, _decode) == LetterTokens(reason=reason)


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
    by_row = letter_logprobs(logits, rows)
    for row, logprobs in enumerate(by_row):
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
