from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch

from pytest_vlmrobust.backends.answering import Job, answer_by_halves, batches, is_out_of_memory
from pytest_vlmrobust.backends.generation import LetterTokens
from pytest_vlmrobust.core.errors import BackendError
from pytest_vlmrobust.core.prediction import Prediction, Request

SCORED = LetterTokens(ids={"A": (1,)})


@pytest.fixture
def jobs(request_for: Callable[..., Request]) -> list[Job]:
    sizes = [[(8, 8)], [(30, 30)], [], [(8, 9), (2, 2)], [(8, 8)], [], [(20, 4)], [(3, 3), (3, 3)], [(64, 64)]]
    requests = [request_for(f"k{index}", *images) for index, images in enumerate(sizes)]
    scored = [Job(index, request, SCORED, method="letter_logits") for index, request in enumerate(requests)]
    texts = [request_for(f"t{n}", (9, 9), choices=(), max_new_tokens=n) for n in (4, 4, 8)]
    return [*scored, *(Job(len(scored) + place, request) for place, request in enumerate(texts))]


def _keys(made: list[list[Job]]) -> list[list[str]]:
    return [[job.request.key for job in batch] for batch in made]


def test_every_job_is_in_exactly_one_batch(jobs: list[Job]) -> None:
    made = batches(jobs, 2)
    assert sorted(job.index for batch in made for job in batch) == list(range(len(jobs)))
    assert max(map(len, made)) == 2


def test_batches_are_alike_in_kind_length_and_number_of_images(jobs: list[Job]) -> None:
    for batch in batches(jobs, 8):
        assert len({(job.letters is None, len(job.request.images)) for job in batch}) == 1
        assert batch[0].letters is not None or len({job.request.max_new_tokens for job in batch}) == 1


def test_rows_of_a_batch_are_ordered_by_pixels_then_key(jobs: list[Job]) -> None:
    assert ["k0", "k4", "k6", "k1", "k8"] in _keys(batches(jobs, 8))


def test_batches_do_not_depend_on_the_order_asked_in(jobs: list[Job]) -> None:
    expected = _keys(batches(jobs, 3))
    shuffled = random.Random(5).sample(jobs, len(jobs))
    assert _keys(batches(shuffled, 3)) == expected


class _Model:
    """Answers batches up to a size, and never a poisoned request."""

    def __init__(self, most: int = 99, poisoned: str = "") -> None:
        self.most, self.poisoned = most, poisoned
        self.asked: list[list[str]] = []

    def answer(self, batch: list[Job]) -> list[Prediction]:
        keys = [job.request.key for job in batch]
        self.asked.append(keys)
        if len(batch) > self.most:
            raise RuntimeError("CUDA out of memory. Tried to allocate 1 GiB\nand more lines")
        if self.poisoned in keys:
            raise ValueError("absolute aspect ratio must be smaller than 200")
        return [Prediction(text=key, method="generate") for key in keys]


def _halved(model: _Model, jobs: list[Job], fatal: type[Exception] | None = None) -> list[Prediction]:
    return answer_by_halves(jobs, model.answer, lambda: None, fatal)


def test_batches_hold_few_tokens_where_rows_were_prepared() -> None:
    def prepared(index: int, tokens: int, patches: int = 0) -> Job:
        inputs = {"input_ids": torch.zeros(1, tokens), **({"pixel_values": torch.zeros(patches, 8)} if patches else {})}
        return Job(index, Request(f"k{index:02}", (), "x" * tokens), inputs=inputs)

    alike = [prepared(index, 60, 40) for index in range(7)]
    assert [len(batch) for batch in batches(alike, 16, tokens=300)] == [3, 3, 1]
    assert [len(batch) for batch in batches(alike, 16, tokens=600)] == [4, 3], "shared out evenly"
    assert [len(batch) for batch in batches(alike, 5)] == [4, 3]
    mixed = [*alike, prepared(7, 900)]
    assert [[job.index for job in batch] for batch in batches(mixed, 16, tokens=300)] == [[0, 1, 2], [3, 4, 5], [6], [7]]
    assert [len(batch) for batch in batches(mixed, 4)] == [4, 4], "without a limit, and what is longer than it is asked alone"
    unknown = [Job(index, Request(f"k{index}", (), "q")) for index in range(5)]
    assert len(batches(unknown, 8, tokens=1)) == 1


def test_out_of_memory_halves_and_keeps_the_order(jobs: list[Job]) -> None:
    model = _Model(most=2)
    assert [prediction.text for prediction in _halved(model, jobs[:7])] == [job.request.key for job in jobs[:7]]
    assert [len(keys) for keys in model.asked] == [7, 3, 1, 2, 4, 2, 2]


def test_one_poisoned_request_fails_alone(jobs: list[Job]) -> None:
    predictions = _halved(_Model(poisoned="k2"), jobs[:7])
    assert [prediction.finish_reason for prediction in predictions] == ["stop", "stop", "error", *["stop"] * 4]
    assert predictions[2].error == "ValueError: absolute aspect ratio must be smaller than 200"
    assert predictions[2].method == "letter_logits"


def test_what_never_fits_says_what_to_do(jobs: list[Job]) -> None:
    (prediction,) = _halved(_Model(most=0), jobs[:1])
    assert prediction.error.startswith(
        "RuntimeError: CUDA out of memory. Tried to allocate 1 GiB. One request alone does not fit: lower"
    )


def test_memory_is_recovered_before_each_retry(jobs: list[Job]) -> None:
    recovered: list[int] = []
    model = _Model(most=1)
    answer_by_halves(jobs[:2], model.answer, lambda: recovered.append(len(model.asked)), None)
    assert recovered == [1]


def test_errors_raised_on_purpose_and_fatal_ones_pass_through(jobs: list[Job]) -> None:
    def refuse(_batch: list[Job]) -> list[Prediction]:
        raise BackendError("gone")

    with pytest.raises(BackendError, match="gone"):
        answer_by_halves(jobs, refuse, lambda: None, None)
    with pytest.raises(ValueError, match="aspect ratio"):
        _halved(_Model(poisoned="k2"), jobs, fatal=ValueError)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (RuntimeError("MPS backend out of memory"), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), True),
        (RuntimeError("shape mismatch"), False),
    ],
)
def test_recognises_memory_running_out(error: Exception, expected: bool) -> None:
    assert is_out_of_memory(error) is expected
