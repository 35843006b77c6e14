from __future__ import annotations

import math

import pytest
import torch

from pytest_vlmrobust.backends import Generation
from pytest_vlmrobust.backends.sampling import NonFiniteWatch, SeededDraw, score_processors

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
