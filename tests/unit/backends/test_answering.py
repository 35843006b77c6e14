from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from pytest_vlmrobust.backends import BackendOptions, devices, open_backend, resolve, transformers
from pytest_vlmrobust.backends.answering import LARGEST, BatchSize, Job, answer_by_halves, batches, is_out_of_memory
from pytest_vlmrobust.backends.contract import START
from pytest_vlmrobust.backends.devices import free_bytes, held_bytes, room_for_twice
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
        self.batches: list[list[str]] = []

    def answer(self, batch: list[Job]) -> list[Prediction]:
        keys = [job.request.key for job in batch]
        self.batches.append(keys)
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
    assert [len(keys) for keys in model.batches] == [7, 3, 1, 2, 4, 2, 2]


def test_one_poisoned_request_fails_alone(jobs: list[Job]) -> None:
    predictions = _halved(_Model(poisoned="k2"), jobs[:7])
    assert [prediction.finish_reason for prediction in predictions] == ["stop", "stop", "error", *["stop"] * 4]
    assert predictions[2].error.startswith("ValueError: absolute aspect ratio must be smaller than 200. The request had no image")
    (with_image,) = _halved(_Model(poisoned="k1"), jobs[1:2])
    assert with_image.error == "ValueError: absolute aspect ratio must be smaller than 200"
    assert predictions[2].method == "letter_logits"


def test_what_never_fits_says_what_to_do(jobs: list[Job]) -> None:
    (prediction,) = _halved(_Model(most=0), jobs[:1])
    assert prediction.error.startswith(
        "RuntimeError: CUDA out of memory. Tried to allocate 1 GiB. One request alone does not fit: lower"
    )


def test_memory_is_recovered_before_each_retry(jobs: list[Job]) -> None:
    recovered: list[int] = []
    model = _Model(most=1)
    answer_by_halves(jobs[:2], model.answer, lambda: recovered.append(len(model.batches)), None)
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


# None


GIB = 1 << 30


def _run(size: BatchSize, seconds: Callable[[int], float], batches: int = 40) -> list[int]:
    """Answers full batches, each of which takes ``seconds`` of its size, and returns their sizes."""
    sizes = []
    for _ in range(batches):
        sizes.append(size.now)
        size.answered(size.now, seconds(size.now))
    return sizes


def _auto(*, has_room: bool = True, largest: int = LARGEST) -> BatchSize:
    return BatchSize("auto", lambda: has_room, largest=largest)


def test_a_number_stays_a_number() -> None:
    size = BatchSize(3, lambda: pytest.fail("asked for room"))
    assert set(_run(size, lambda _: 1.0)) == {3}
    size.ran_out_of_memory(3)
    assert size.now == 3
    assert size.describe() == {"asked": 3, "now": 3, "because": "asked for", "requests_per_second": {}}


def test_grows_while_larger_batches_answer_more_in_a_second() -> None:
    # 1 s for a batch and 10 ms for each request: 13.8, 24.2, 39.0 and 56.1 requests a second
    size = _auto()
    assert _run(size, lambda n: 1.0 + 0.01 * n, 9) == [16, 16, 16, 32, 32, 64, 64, 128, 128]
    assert size.describe() == {
        "asked": "auto",
        "now": 128,
        "because": "the largest that is tried",
        "requests_per_second": {"16": 13.79, "32": 24.24, "64": 39.02, "128": 56.14},
    }


def test_goes_back_to_the_size_beyond_which_nothing_is_gained() -> None:
    # 0.1 s a batch and 50 ms a request: 17.8, then 18.8 (1.06 times as many), then 19.4 (1.03 times)
    size = _auto()
    assert _run(size, lambda n: 0.1 + 0.05 * n, 9) == [16, 16, 16, 32, 32, 64, 64, 32, 32]
    assert (size.now, size.describe()["because"]) == (32, "64 at a time gained less than 5%")


def test_stays_at_the_start_where_a_batch_takes_as_long_as_its_requests() -> None:
    size = _auto()
    assert _run(size, lambda n: 0.5 * n, 7) == [16, 16, 16, 32, 32, 16, 16]


def test_the_first_batch_and_those_not_full_are_not_timed() -> None:
    size = _auto()
    size.answered(START, 1000.0)
    for requests in (1, START - 1, START + 1):
        size.answered(requests, 0.001)
    assert size.describe()["requests_per_second"] == {}
    assert size.describe()["because"] == "no batch was full, so that none was timed"
    size.answered(START, 1.0)
    assert size.describe() == {"asked": "auto", "now": 16, "because": "still timing", "requests_per_second": {"16": 16.0}}


def test_one_disturbed_batch_does_not_count() -> None:
    size = _auto()
    times = iter([1.0, 1.0, 9.0, 9.0, 1.2])
    _run(size, lambda _: next(times), 5)
    assert size.now == 64


def test_does_not_grow_without_room() -> None:
    size = _auto(has_room=False)
    assert set(_run(size, lambda n: 1.0 + 0.01 * n)) == {16}
    assert size.describe()["because"] == "memory for 32 at a time is not known to be free"


def test_a_batch_that_does_not_fit_halves_the_size_for_good() -> None:
    size = _auto()
    _run(size, lambda _: 1.0, 3)
    assert size.now == 32
    size.ran_out_of_memory(32)
    assert (size.now, size.describe()["because"]) == (16, "32 ran out of memory")
    assert set(_run(size, lambda _: 1.0)) == {16}
    size.ran_out_of_memory(8)  # a half of a batch may not fit either
    size.ran_out_of_memory(16)
    assert size.now == 4
    for _ in range(3):
        size.ran_out_of_memory(size.now)
    assert size.now == 1


def _system(monkeypatch: pytest.MonkeyPatch, folder: Path, **files: str) -> None:
    monkeypatch.setattr(devices, "PROC", folder / "proc")
    monkeypatch.setattr(devices, "CGROUP", folder / "cgroup")
    places = {
        "status": "proc/self/status",
        "meminfo": "proc/meminfo",
        "limit": "cgroup/memory.max",
        "used": "cgroup/memory.current",
    }
    for name, text in files.items():
        (folder / places[name]).parent.mkdir(parents=True, exist_ok=True)
        (folder / places[name]).write_text(text)


STATUS = "Name:\tpython\nVmHWM:\t 3145728 kB\nVmRSS:\t 1048576 kB\n"


@pytest.mark.parametrize(
    ("files", "free"),
    [
        ({"meminfo": "MemTotal: 9 kB\nMemAvailable:    2048 kB\n"}, 2 << 20),
        ({"meminfo": "MemAvailable: 2048 kB\n", "limit": "max\n", "used": "5\n"}, 2 << 20),
        ({"meminfo": "MemAvailable: 2048 kB\n", "limit": "1000000\n", "used": "400000\n"}, 600_000),
        ({"limit": "1000\n", "used": "400\n"}, 600),
        ({}, None),
    ],
)
def test_free_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, files: dict[str, str], free: int | None) -> None:
    _system(monkeypatch, tmp_path, **files)
    assert free_bytes() == free


@pytest.mark.parametrize(("loaded", "free_gib", "room"), [(GIB, 3, False), (GIB, 5, True), (2 * GIB, 3, True), (None, 99, False)])
def test_room_is_twice_what_was_needed_so_far(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, loaded: int | None, free_gib: int, room: bool
) -> None:
    _system(monkeypatch, tmp_path, status=STATUS, meminfo=f"MemAvailable: {free_gib << 20} kB\n")
    assert held_bytes() == GIB
    assert room_for_twice(loaded) is room


def test_there_is_no_room_where_the_system_does_not_tell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _system(monkeypatch, tmp_path)
    assert held_bytes() is None
    assert not room_for_twice(1)


def _requests(count: int) -> list[Request]:
    import numpy as np

    rng = np.random.default_rng(1)
    pictures = [rng.integers(0, 256, (80, 80, 3), dtype=np.uint8) for _ in range(count)]
    return [Request(f"{n:03}", (picture,), "What?", ("A", "B")) for n, picture in enumerate(pictures)]


def test_answers_do_not_depend_on_the_size_beyond_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = _requests(112)
    by_number = open_backend(resolve("tiny"), BackendOptions(batch_size=16)).infer(requests)
    backend = open_backend(resolve("tiny"), BackendOptions(batch_size="auto"))
    ticks = itertools.count()  # every batch takes a second
    monkeypatch.setattr(transformers, "time", SimpleNamespace(perf_counter=lambda: next(ticks), monotonic=time.monotonic))
    monkeypatch.setattr(transformers, "room_for_twice", lambda _held: True)
    answers = backend.infer(requests[:48]) + backend.infer(requests[48:])
    assert {prediction.details["batch_rows"] for prediction in answers} == {16, 32}
    assert [prediction.text for prediction in answers] == [prediction.text for prediction in by_number]
    for answer, other in zip(answers, by_number, strict=True):
        assert dict(answer.logprobs) == pytest.approx(dict(other.logprobs), abs=1e-5)
    described = backend.describe()
    assert (described["batch_size"], described["batches"]["asked"]) == (64, "auto")
