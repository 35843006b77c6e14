from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch

from pytest_vlmrobust.backends import Generation, generation_for, scores_letters
from pytest_vlmrobust.backends.generation import NonFiniteWatch, SeededDraw, score_processors
from pytest_vlmrobust.core.errors import ModelError
from pytest_vlmrobust.core.prediction import ModelRef


def _ref(mode: str = "direct", **generation: Any) -> ModelRef:
    return ModelRef(name="m", backend="transformers", location="x", prompt_mode=mode, generation=generation)


@pytest.mark.parametrize("mode", ["direct", "cot"])
def test_plain_modes_are_greedy_with_the_papers_limit(mode: str) -> None:
    generation = generation_for(_ref(mode))
    assert generation == Generation(max_new_tokens=2048, temperature=0.0)
    assert not generation.samples


def test_thinking_samples_with_the_papers_parameters() -> None:
    generation = generation_for(_ref("thinking"))
    assert generation == Generation(max_new_tokens=8192, temperature=0.6, top_p=0.95, top_k=20, seed=42)
    assert generation.samples


def test_the_model_overrides_its_mode() -> None:
    assert generation_for(_ref("thinking", temperature=0.2, top_k=32)) == Generation(8192, 0.2, 0.95, 32)
    assert not generation_for(_ref("thinking", temperature=0)).samples


def test_only_direct_answers_begin_with_their_letter() -> None:
    assert [scores_letters(_ref(mode)) for mode in ("direct", "cot", "thinking")] == [True, False, False]
    assert [scores_letters(dataclasses.replace(_ref("direct"), answer=answer)) for answer in ("letters", "text")] == [True, False]


@pytest.mark.parametrize(
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


def test_greedy_decoding_changes_no_score() -> None:
    watch = NonFiniteWatch()
    assert score_processors(Generation(), [1], watch) == [watch]


def test_sampling_applies_temperature_top_k_top_p_then_draws() -> None:
    names = [type(step).__name__ for step in score_processors(Generation(8, 0.6, 0.95, 20), [1], NonFiniteWatch())]
    assert names == ["NonFiniteWatch", "TemperatureLogitsWarper", "TopKLogitsWarper", "TopPLogitsWarper", "SeededDraw"]
    names = [type(step).__name__ for step in score_processors(Generation(8, 0.6), [1], NonFiniteWatch())]
    assert names == ["NonFiniteWatch", "TemperatureLogitsWarper", "SeededDraw"]


@pytest.mark.parametrize("mode", ["cot", "thinking"])
def test_letters_of_a_mode_that_writes_text_are_refused(mode: str) -> None:
    ref = ModelRef("m", "transformers", "x", prompt_mode=mode, answer="letters")
    with pytest.raises(ModelError, match=f"by letters, and prompt mode '{mode}' answers with text.* --vlm-answer=text.*direct"):
        generation_for(ref)
