from __future__ import annotations

from typing import Any

import pytest

from pytest_vlmrobust.backends import Generation, generation_for, scores_letters
from pytest_vlmrobust.core.errors import ModelError
from pytest_vlmrobust.core.model import ModelRef


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
    with pytest.raises(ModelError, match=r"model 'm': unknown prompt mode 'chain'. Expected one of direct, cot, thinking"):
        generation_for(_ref("chain"))
