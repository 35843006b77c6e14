from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from pytest_vlmrobust.backends import BackendOptions, devices, open_backend, resolve, transformers
from pytest_vlmrobust.backends.answering import LARGEST, BatchSize
from pytest_vlmrobust.backends.contract import START
from pytest_vlmrobust.backends.devices import free_bytes, held_bytes, room_for_twice
from pytest_vlmrobust.core.prediction import Request

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
    asked = _requests(112)
    by_number = open_backend(resolve("tiny"), BackendOptions(batch_size=16)).infer(asked)
    backend = open_backend(resolve("tiny"), BackendOptions(batch_size="auto"))
    ticks = itertools.count()  # every batch takes a second
    monkeypatch.setattr(transformers, "time", SimpleNamespace(perf_counter=lambda: next(ticks), monotonic=time.monotonic))
    monkeypatch.setattr(transformers, "room_for_twice", lambda _held: True)
    found = backend.infer(asked[:48]) + backend.infer(asked[48:])
    assert {prediction.details["batch_rows"] for prediction in found} == {16, 32}
    assert [prediction.text for prediction in found] == [prediction.text for prediction in by_number]
    for one, other in zip(found, by_number, strict=True):
        assert dict(one.logprobs) == pytest.approx(dict(other.logprobs), abs=1e-5)
    described = backend.describe()
    assert (described["batch_size"], described["batches"]["asked"]) == (64, "auto")
