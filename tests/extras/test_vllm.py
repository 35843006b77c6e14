"""The embedded model in a real vLLM: it answers as in transformers. The build for CPUs is enough."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_vlmrobust.backends import BackendOptions, open_backend, resolve
from pytest_vlmrobust.core.prediction import ModelRef, Prediction, Request
from pytest_vlmrobust.datasets import resolve as resolve_dataset
from pytest_vlmrobust.evaluation.run.prompts import prompt, scorable_choices

pytest.importorskip("vllm")
# vLLM and torch warn while the engine loads
pytestmark = pytest.mark.filterwarnings("default")


def answers(ref: ModelRef) -> list[Prediction]:
    samples = resolve_dataset("shapes").samples()
    backend = open_backend(ref, BackendOptions(batch_size=32))
    try:
        return backend.infer(
            [
                Request(
                    sample.id,
                    tuple(image.load() for image in sample.images),
                    prompt(sample, "direct"),
                    scorable_choices(sample, "direct"),
                )
                for sample in samples
            ]
        )
    finally:
        backend.close()


def test_the_embedded_model_answers_as_in_transformers() -> None:
    folder = resolve("tiny").location
    engine = {"max_model_len": 2048, "enforce_eager": True}
    expected = answers(ModelRef("here", "transformers", folder, dtype="float32"))
    served = answers(ModelRef("there", "vllm", folder, dtype="float32", engine=engine))
    assert [answer.text for answer in served] == [answer.text for answer in expected]
    for actual, other in zip(served, expected, strict=True):
        letters = actual.logprobs.keys() & other.logprobs.keys()
        assert len(letters) >= 2
        here, there = (np.exp([side.logprobs[letter] for letter in letters]) for side in (actual, other))
        np.testing.assert_allclose(here, there, atol=0.02)
