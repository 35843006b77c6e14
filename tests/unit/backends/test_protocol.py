"""What a backend returns is held against its contract: what breaks it is a failed inference that names the backend."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from pytest_vlmrobust.backends.contract import accepted
from pytest_vlmrobust.core.errors import BackendError
from pytest_vlmrobust.core.prediction import LONGEST_TEXT, UNANSWERED, Prediction, Request

REQUEST = Request("key", (), "Which?", choices=("A", "B"))


@pytest.mark.parametrize(
    ("prediction", "problem"),
    [
        (None, "a NoneType in place of a Prediction"),
        ("B", "a str in place of a Prediction"),
        (Prediction(5, "generate"), "a text that is no str"),  # type: ignore[arg-type]  # the point
        (Prediction("x" * (LONGEST_TEXT + 1), "generate"), f"a text of {LONGEST_TEXT + 1} characters"),
        (Prediction("B", "guess"), "the method 'guess', expected one of generate, sample, letter_logits"),
        (Prediction("B", "generate", "done"), "the finish reason 'done', expected one of stop, length, error, refusal"),
        (Prediction("B", "letter_logits", logprobs={"A": -1.0, "B": math.nan}), "the log-probability nan of 'B'"),
        (Prediction("B", "letter_logits", logprobs={"A": -math.inf, "B": -math.inf}), "log-probabilities that are all -inf"),
        (Prediction("B", "generate", logprobs={"A": math.nan}), "the log-probability nan of 'A'"),
        (Prediction("B", "letter_logits", logprobs={"B": 3.5}), "the log-probability 3.5 of 'B', expected a number of 0 or less"),
        (Prediction("B", "letter_logits", logprobs={"B": "-1"}), "the log-probability '-1' of 'B'"),  # type: ignore[dict-item]
        (Prediction("B", "letter_logits", logprobs={"E": -1.0}), "a log-probability of 'E', which is none of the choices A, B"),
        (Prediction("B", "letter_logits", logprobs=[-1.0]), "log-probabilities that are no mapping"),  # type: ignore[arg-type]
        (Prediction("B", "letter_logits", logprobs={"A": -0.1, "B": -2.0}), "the letter 'B', and its log-probabilities are"),
        (Prediction("B", "generate", details={"x": [1]}), "the detail 'x': [1], expected a short text or a number"),  # type: ignore[dict-item]
        (
            Prediction("B", "generate", details={"x": 10**5000}),
            "the detail 'x', a number of 16610 bits, expected one below 2**63",
        ),
        (Prediction("B", "generate", details={"x": "y" * 5000}), "expected a short text or a number"),
        (Prediction("B", "generate", details={str(n): n for n in range(5000)}), "5000 details, and at most 1000"),
    ],
)
def test_what_breaks_the_contract_is_an_error_of_that_request_alone(prediction: Any, problem: str) -> None:
    good = Prediction("A", "generate")
    first, broken, last = accepted([good, prediction, good], [REQUEST] * 3, "mine")
    assert first is last is good
    assert broken.finish_reason == "error"
    assert broken.error.startswith("the backend of model 'mine' broke its contract: it returned ")
    assert problem in broken.error
    assert len(broken.error) < 500


@pytest.mark.parametrize(
    "prediction",
    [
        Prediction("B", "letter_logits", logprobs={"A": -math.inf, "B": np.float32(-0.25)}),  # type: ignore[dict-item]
        Prediction("B", "letter_logits", logprobs={"A": -2.0, "B": -2.0}),
        Prediction("A", "letter_logits", logprobs={"A": 1e-6, "B": -20.0}),
        *(Prediction("", "letter_logits", reason) for reason in UNANSWERED),
        Prediction("half", "generate", "length", details={"tokens": 7, "size": "2x2"}),
        Prediction("", "generate", "error", error="out of memory"),
    ],
)
def test_what_keeps_the_contract_is_taken_as_it_is(prediction: Prediction) -> None:
    assert accepted([prediction], [REQUEST], "mine") == [prediction]


@pytest.mark.parametrize(("answers", "said"), [([], "0 answers"), (None, "a NoneType"), (iter([1]), "a list_iterator")])
def test_answers_that_belong_to_no_request_are_refused(answers: object, said: str) -> None:
    with pytest.raises(BackendError, match=f"the backend of model 'mine' returned {said} to 1 requests"):
        accepted(answers, [REQUEST], "mine")
