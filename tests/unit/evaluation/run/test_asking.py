from __future__ import annotations

import dataclasses
import signal
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from pytest_vlmrobust.backends import failed_prediction
from pytest_vlmrobust.backends.contract import Prepared
from pytest_vlmrobust.backends.scripted import ScriptedBackend
from pytest_vlmrobust.core.cell import Setting
from pytest_vlmrobust.core.errors import BackendError, ImageError, StoreError
from pytest_vlmrobust.core.prediction import ModelRef, Prediction, Request
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.evaluation.run import asking as asking_module
from pytest_vlmrobust.evaluation.run import queue
from pytest_vlmrobust.evaluation.run.evaluator import Evaluator
from pytest_vlmrobust.evaluation.run.queue import CellRequest
from pytest_vlmrobust.evaluation.run.results import CellResult
from pytest_vlmrobust.evaluation.run.views import View
from pytest_vlmrobust.store import Store
from tests.traits import own_traits
from tests.unit.evaluation.conftest import MemoryImage, World, cell, picture, sample

CELLS = [cell(name) for name in ("clean", "invert", "flip_v", "gaussian_noise:low", "no_image")]


class Lanes(ScriptedBackend):
    """A backend with lanes that prepares requests: it records what it is given, and never more than it says at a time."""

    traits = property(own_traits)  # of whatever it says by now
    answers_alone = True
    lanes = 1

    def __init__(self, world: World, *, lanes: int = 1, mixes: bool = True) -> None:
        super().__init__(world.model, version=world.model.version, name="model")
        self.lanes, self.mixes_cells = lanes, mixes
        self.batches: list[list[Request]] = []
        self.lock = threading.Lock()
        self.inside = self.most_inside = self.held = self.most_held = 0

    def prepare(self, request: Request) -> Prepared:
        with self.lock:
            self.held += 1000
            self.most_held = max(self.held, self.most_held)
        return Prepared(request, inputs=request.key, bytes=1000)

    def infer_prepared(self, prepared: Sequence[Prepared]) -> list[Prediction]:
        assert all(item.inputs == item.request.key for item in prepared)
        with self.lock:
            self.inside += 1
            self.most_inside = max(self.inside, self.most_inside)
            self.batches.append([item.request for item in prepared])
        answers = self.infer([item.request for item in prepared])
        with self.lock:
            self.inside -= 1
            self.held -= 1000 * len(prepared)
        return answers


def opened(world: World, *, lanes: int = 1, mixes: bool = True, **options: Any) -> tuple[Evaluator, Lanes]:
    evaluator, backend = world.evaluator(**options), Lanes(world, lanes=lanes, mixes=mixes)
    evaluator.open_backend = lambda _ref: backend
    return evaluator, backend


def by_pixels(request: Request) -> str:
    """Answers what follows from the pixels alone."""
    return "AB"[int(sum(int(image.sum()) for image in request.images)) % 2]


def facts(result: CellResult) -> tuple[Any, ...]:
    return result.predictions, result.keys, result.n_requested, result.n_inferred, result.notes, result.places


class Overlapping(Lanes):
    """One whose first call does not return before there is a second one."""

    overlaps = True

    def __init__(self, world: World, *, mixes: bool) -> None:
        super().__init__(world, mixes=mixes)
        self.second = threading.Event()
        self.met: bool | None = None

    def infer_prepared(self, prepared: Sequence[Prepared]) -> list[Prediction]:
        if self.batches:
            self.second.set()
        answers = super().infer_prepared(prepared)
        if self.met is None:
            self.met = False
            self.met = self.second.wait(30)
        return answers


@pytest.mark.parametrize("mixes", [False, True])
def test_a_batch_is_put_together_while_another_is_computed(world: World, *, mixes: bool) -> None:
    evaluator, backend = world.evaluator(batch_size=4), Overlapping(world, mixes=mixes)
    evaluator.open_backend = lambda _ref: backend
    evaluator.expect(map(CellRequest, CELLS))
    assert [evaluator.result(planned).n_inferred for planned in CELLS] == [6] * 5
    assert backend.met
    assert mixes or all(len({request.setting for request in batch}) == 1 for batch in backend.batches)


def test_under_a_time_limit_no_batch_waits_for_another_one(world: World) -> None:
    evaluator, backend = world.evaluator(batch_size=4, time_limit=60.0), Lanes(world)
    backend.overlaps = True  # type: ignore[attr-defined]
    evaluator.open_backend = lambda _ref: backend
    evaluator.expect(map(CellRequest, CELLS))
    assert [evaluator.result(planned).n_inferred for planned in CELLS] == [6] * 5
    assert backend.most_inside == 1


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("batch_size", [1, 4, 32])
@pytest.mark.parametrize(("lanes", "mixes"), [(1, False), (1, True), (2, True)])
def test_what_is_expected_changes_no_result(world: World, threads: int, batch_size: int, lanes: int, *, mixes: bool) -> None:
    world.model.answer = by_pixels
    plain = [facts(world.evaluator(threads=1).result(planned)) for planned in CELLS]
    world.directory /= "expected"
    evaluator, backend = opened(world, lanes=lanes, mixes=mixes, threads=threads, batch_size=batch_size)
    evaluator.expect([CellRequest(CELLS[0], [0, 2]), *map(CellRequest, CELLS)])
    assert [facts(evaluator.result(planned)) for planned in CELLS] == plain
    assert (evaluator.inferred, len(evaluator.store)) == (30, 30)
    assert backend.most_inside <= lanes
    assert max(map(len, backend.batches)) <= batch_size


@pytest.mark.parametrize(("size", "most"), [(None, 2), (4, 4), (1, 1)])
def test_a_backend_gets_as_many_requests_as_it_says(world: World, size: int | None, most: int) -> None:
    evaluator, backend = opened(world, batch_size=2)
    backend.batch_size = size  # type: ignore[attr-defined]
    evaluator.result(CELLS[0])
    assert max(map(len, backend.batches)) == most


def test_a_pull_of_few_samples_is_filled_up_with_what_is_expected(world: World) -> None:
    evaluator, backend = opened(world, batch_size=8)
    first = [CellRequest(planned, [0, 3, 5]) for planned in CELLS[:4]]
    evaluator.expect(first)
    for want in first:
        assert evaluator.result(want.cell, want.places).values.tolist() == [1.0] * 3
    batches = [[(request.setting, request.sample_id) for request in batch] for batch in backend.batches]
    assert [len(batch) for batch in batches] == [8, 4]
    assert batches[0] == [*((s, q) for s in ("clean", "invert") for q in ("q0", "q3", "q5")), ("flip_v", "q0"), ("flip_v", "q3")]


def test_a_batch_keeps_to_one_cell_where_answers_depend_on_it(world: World) -> None:
    evaluator, backend = opened(world, batch_size=4, mixes=False)
    evaluator.expect(map(CellRequest, CELLS))
    for planned in CELLS:
        evaluator.result(planned)
    assert all(len({request.setting for request in batch}) == 1 for batch in backend.batches)
    assert sorted(map(len, backend.batches)) == [2] * 5 + [4] * 5


def test_what_is_waited_for_goes_first(world: World) -> None:
    evaluator, backend = opened(world, batch_size=6)
    evaluator.expect(map(CellRequest, CELLS))
    evaluator.result(cell("clean"))
    evaluator.result(cell("no_image"))
    assert [{request.setting for request in batch} for batch in backend.batches] == [{"clean"}, {"no_image"}]


def test_batches_are_filled_with_pictures_of_like_size(world: World) -> None:
    def sized(number: int) -> Sample:
        side = 40 if number % 2 else 16
        return sample(number, images=(MemoryImage(np.full((side, side, 3), number, np.uint8)),))

    world.samples = [sized(i) for i in range(8)]
    evaluator, backend = opened(world, batch_size=4)
    evaluator.result(cell("clean"))
    assert [[request.sample_id for request in batch] for batch in backend.batches] == [
        ["q0", "q2", "q4", "q6"],
        ["q1", "q3", "q5", "q7"],
    ]


@pytest.mark.parametrize("lanes", [1, 2])
@pytest.mark.parametrize("batch_size", [2, 32])
def test_equal_inputs_are_asked_once_across_cells(world: World, batch_size: int, lanes: int) -> None:
    same = [cell(name) for name in ("clean", "flip_v+flip_v", "flip_h+flip_h")]
    evaluator, _ = opened(world, batch_size=batch_size, lanes=lanes)
    evaluator.expect(map(CellRequest, same))
    results = [evaluator.result(planned) for planned in same]
    assert sorted(world.model.asked_about) == [f"q{i}" for i in range(6)]
    assert [result.n_inferred for result in results] == [6, 0, 0]
    assert results[0].predictions == results[1].predictions == results[2].predictions


def test_equal_inputs_are_counted_where_they_are_pulled_first(world: World) -> None:
    same = [cell(name) for name in ("clean", "flip_v+flip_v")]
    evaluator, _ = opened(world, batch_size=32)
    evaluator.expect(map(CellRequest, same))
    assert [evaluator.result(planned).n_inferred for planned in reversed(same)] == [6, 0]


def test_a_picture_that_cannot_be_read_is_an_error_of_its_own_cell(world: World) -> None:
    world.samples[3] = sample(3, images=(MemoryImage(picture(3), broken=True),))
    evaluator, _ = opened(world, batch_size=4)
    evaluator.expect(CellRequest(planned, [0, 3]) for planned in CELLS)
    for planned in CELLS[:4]:
        assert evaluator.result(planned, [0, 1, 2]).n_requested == 3
        for _ in range(2):
            with pytest.raises(ImageError, match="cannot be decoded"):
                evaluator.result(planned)
    assert evaluator.result(cell("no_image")).n_requested == 6


def test_an_interrupted_run_loses_the_batches_in_flight_alone(world: World) -> None:
    def interrupted(request: Request) -> str:
        if (request.setting, request.sample_id) == ("flip_v", "q3"):
            signal.raise_signal(signal.SIGINT)
        return "B"

    world.model.answer = interrupted
    evaluator, backend = opened(world, batch_size=4)
    evaluator.expect(map(CellRequest, CELLS))
    with pytest.raises(KeyboardInterrupt):
        _ = [evaluator.result(planned) for planned in CELLS]
    evaluator.close()
    lost = {request.key for batch in backend.batches for request in batch if ("flip_v", "q3") in _names(batch)}
    keys = {request.key for batch in backend.batches for request in batch}
    stored = Store.open(world.directory).has(keys)
    assert lost == keys - stored
    assert len(lost) == 4
    world.model.answer = lambda _request: "B"
    again, later = opened(world, batch_size=4, owner="after")
    again.expect(map(CellRequest, CELLS))
    assert [again.result(planned).n_requested for planned in CELLS] == [6] * 5
    assert sum(map(len, later.batches)) == 30 - len(stored)


def _names(batch: Sequence[Request]) -> list[tuple[str, str]]:
    return [(request.setting, request.sample_id) for request in batch]


def test_a_failed_answer_waits_for_whoever_asks_and_is_not_kept(world: World) -> None:
    world.model.answer = lambda request: failed_prediction("down") if request.sample_id == "q2" else "B"
    evaluator, _ = opened(world, batch_size=32)
    evaluator.expect(map(CellRequest, CELLS[:2]))
    assert [evaluator.result(planned).count("error") for planned in CELLS[:2]] == [1, 1]
    assert len(evaluator.store) == 10
    assert len(world.model.requests) == 12


def test_a_backend_that_fails_ahead_fails_whoever_asks(world: World) -> None:
    class Lost(Lanes):
        def infer_prepared(self, prepared: Sequence[Prepared]) -> list[Prediction]:
            if any(item.request.setting == "invert" for item in prepared):
                raise BackendError("lost")
            return super().infer_prepared(prepared)

    evaluator = world.evaluator(batch_size=6)
    backend = Lost(world)
    evaluator.open_backend = lambda _ref: backend
    evaluator.expect(map(CellRequest, CELLS))
    assert evaluator.result(cell("clean")).n_inferred == 6
    for _ in range(2):
        with pytest.raises(BackendError, match="lost"):
            evaluator.result(cell("invert"))
    assert evaluator.result(cell("flip_v")).n_inferred == 6
    assert evaluator.store.claim([request.key for batch in backend.batches for request in batch], "another", 60) == set()


def test_memory_is_bounded_by_bytes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "AHEAD_BYTES", 8000)  # each request takes 1000 bytes, and its picture 576
    monkeypatch.setattr(queue, "MIXED_BATCH_BYTES", 4000)
    world.samples = [sample(i) for i in range(40)]
    evaluator, backend = opened(world, batch_size=16, threads=2)
    evaluator.expect(map(CellRequest, CELLS))
    for planned in CELLS:
        evaluator.result(planned)
    assert max(map(len, backend.batches)) == 4  # no_image, whose requests take 1000 bytes each
    most = 8000 + 4000 + 4 * 1576  # what waits, the batch that is computed, and one for each thread beyond the bound
    assert backend.most_held <= most


def test_a_request_larger_than_all_bounds_is_asked_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "AHEAD_BYTES", 1)
    monkeypatch.setattr(queue, "MIXED_BATCH_BYTES", 1)
    evaluator, backend = opened(world, batch_size=16)
    evaluator.expect(map(CellRequest, CELLS))
    assert [evaluator.result(planned).n_inferred for planned in CELLS] == [6] * 5
    assert {len(batch) for batch in backend.batches} == {1}


def test_offline_nothing_is_expected(world: World) -> None:
    world.evaluator().result(cell("clean"))
    world.model.requests.clear()
    evaluator = world.evaluator(offline=True)
    evaluator.expect(map(CellRequest, CELLS))
    assert evaluator.result(cell("clean")).n_requested == 6
    assert world.model.requests == []
    assert {image.loaded for sample in world.samples for image in sample.images if isinstance(image, MemoryImage)} == {1}


def test_stored_answers_are_not_expected_again(world: World) -> None:
    for planned in CELLS:
        world.evaluator().result(planned)
    world.model.requests.clear()
    world.samples = [sample(i) for i in range(6)]
    world.samples[0] = dataclasses.replace(world.samples[0], question="How many?")
    evaluator, backend = opened(world, batch_size=32, owner="later")
    evaluator.expect(map(CellRequest, CELLS))
    assert [evaluator.result(planned).n_inferred for planned in CELLS] == [1] * 5
    assert len(backend.batches) == 1


def test_no_other_model_is_prepared_for(world: World) -> None:
    world.refs["other"] = ModelRef("other", "scripted", "")
    resident: set[str] = set()

    class Heavy(Lanes):
        title = ""

        def prepare(self, request: Request) -> Prepared:
            resident.add(self.title)
            assert resident == {self.title}
            return super().prepare(request)

        def close(self) -> None:
            resident.discard(self.title)

    def opened_for(ref: ModelRef) -> Heavy:
        backend = Heavy(world)
        backend.title = ref.name
        backend._version = ref.name
        return backend

    evaluator = world.evaluator(batch_size=4, threads=2)
    evaluator.open_backend = opened_for
    evaluator.expect(CellRequest(cell(name, model)) for model in world.refs for name in ("clean", "invert", "flip_v"))
    for name in ("clean", "invert"):
        for model in ("model", "other"):
            assert evaluator.result(cell(name, model)).n_inferred == 6
    assert evaluator.ask("model", []) == []
    assert "other" not in resident
    evaluator.close()
    assert resident == set()


def test_what_is_expected_under_patches_stops_at_the_first_right_one(world: World) -> None:
    evaluator, _ = opened(world, batch_size=32, patch_stop=True)
    evaluator.expect([CellRequest(cell("patches:2"))])
    result = evaluator.result(cell("patches:2"))
    assert (result.n_requested, result.n_unasked, len(world.model.requests)) == (6, 18, 6)


def test_an_interrupt_ends_the_run_where_the_store_fails_as_well(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    came: list[str] = []

    def interrupted(request: Request) -> str:
        came.append(request.key)
        signal.raise_signal(signal.SIGINT)
        return "B"

    def fails() -> None:
        if came:
            raise StoreError("the disk is full")

    world.model.answer = interrupted
    evaluator, _ = opened(world)
    monkeypatch.setattr(evaluator._engine, "_remember_views", fails)
    with pytest.raises(KeyboardInterrupt):
        evaluator.result(cell("clean"))
    evaluator.close()


def test_an_interrupt_before_a_batch_is_begun_keeps_nobody_waiting(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_batch: object) -> None:
        raise KeyboardInterrupt

    evaluator, _ = opened(world)
    monkeypatch.setattr(evaluator._engine, "_compute", interrupted)
    monkeypatch.setattr(asking_module, "BATCH_SECONDS", 0.1)
    with pytest.raises(KeyboardInterrupt):
        evaluator.result(cell("clean"))
    assert evaluator.changes() == []
    evaluator.close()


def test_closing_ends_the_threads(world: World) -> None:
    before = threading.active_count()
    evaluator, _ = opened(world, lanes=2, threads=3)
    evaluator.expect(map(CellRequest, CELLS))
    evaluator.result(cell("clean"))
    assert threading.active_count() > before
    evaluator.close()
    evaluator.close()
    assert threading.active_count() == before


def test_an_interrupt_says_what_is_waited_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluator, backend = opened(world, lanes=2, mixes=False)
    reached, released, infer, notices = threading.Event(), threading.Event(), backend.infer_prepared, list[str]()

    def held(prepared: Sequence[Prepared]) -> list[Prediction]:
        if prepared[0].request.setting != "clean":
            reached.set()
            assert released.wait(60)
        return infer(prepared)

    backend.infer_prepared = held  # type: ignore[method-assign]
    monkeypatch.setattr(evaluator._engine, "_notice", notices.append)
    evaluator.expect(map(CellRequest, CELLS))
    evaluator.result(cell("clean"))
    assert reached.wait(60)
    evaluator.interrupt()
    released.set()
    assert [notice.partition(",")[0] for notice in notices] == ["stopping: model still works on a batch"]
    evaluator.close()
    evaluator.interrupt()
    assert len(notices) == 1  # nothing is waited for any more


def test_closing_lets_go_of_what_an_interrupt_left_locked(world: World) -> None:
    evaluator, backend = opened(world, lanes=2, mixes=False)
    reached, infer = threading.Event(), backend.infer_prepared

    def locked(prepared: Sequence[Prepared]) -> list[Prediction]:
        if prepared[0].request.setting != "clean":  # a batch of a lane, ahead of what is pulled
            reached.set()
            assert left_locked.wait(60)
        return infer(prepared)

    def close() -> None:
        evaluator._engine._changed.acquire()  # where Ctrl-C came between taking the lock and what is done under it
        left_locked.set()
        evaluator.close()

    backend.infer_prepared = locked  # type: ignore[method-assign]
    left_locked, closing = threading.Event(), threading.Thread(target=close, daemon=True)
    evaluator.expect(map(CellRequest, CELLS))
    evaluator.result(cell("clean"))
    assert reached.wait(60)
    closing.start()
    closing.join(60)
    assert not closing.is_alive()


def test_closing_leaves_a_batch_that_never_comes_back(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking_module, "BATCH_SECONDS", 0.5)
    evaluator, backend = opened(world, lanes=2, mixes=False)
    reached, go_on, infer = threading.Event(), threading.Event(), backend.infer_prepared

    def stuck(prepared: Sequence[Prepared]) -> list[Prediction]:
        if prepared[0].request.setting != "clean":  # a batch of a lane, ahead of what is pulled
            reached.set()
            assert go_on.wait(60)
        return infer(prepared)

    backend.infer_prepared = stuck  # type: ignore[method-assign]
    evaluator.expect(map(CellRequest, CELLS))
    evaluator.result(cell("clean"))
    assert reached.wait(60)
    evaluator.close()
    assert evaluator._engine._computing  # the batch is still out
    go_on.set()
    for worker in evaluator._engine._workers:
        worker.join(60)
        assert not worker.is_alive()


@pytest.mark.parametrize("settings", [("invert", "flip_v"), ("resolution:8", "invert", "resolution:10+invert")])
@pytest.mark.parametrize("room", [1, 4799, 4800, 5300, 9700])
def test_pixels_that_are_worked_on_are_bounded(
    world: World, monkeypatch: pytest.MonkeyPatch, settings: tuple[str, ...], room: int
) -> None:
    """Small pictures among large ones, and settings that make them small; four threads and a lane could each take one."""
    sides = [40, 12, 40, 12, 40, 40, 40, 40]
    pixels = np.random.default_rng(1).integers(0, 256, (8, 40, 40, 3), dtype=np.uint8)
    world.samples = [sample(i, images=(MemoryImage(pixels[i, :side, :side]),)) for i, side in enumerate(sides)]
    monkeypatch.setattr(asking_module, "_BYTES_IN_WORK", room)
    evaluator, backend = opened(world, batch_size=8, threads=4)
    made, prepare, lock, inside = evaluator._views.view, backend.prepare, threading.Lock(), {}
    most = [0, 0]

    def view(sample: Sample, setting: Setting) -> View:
        with lock:
            inside[threading.get_ident()] = 3 * sides[int(sample.id[1:])] ** 2
            most[:] = max(most[0], sum(inside.values())), max(most[1], len(inside))
        time.sleep(0.002)
        return made(sample, setting)

    def prepared(request: Request) -> Prepared:
        time.sleep(0.002)
        with lock:
            del inside[threading.get_ident()]
        return prepare(request)

    monkeypatch.setattr(evaluator._views, "view", view)
    monkeypatch.setattr(backend, "prepare", prepared)
    cells = [cell(name) for name in ("clean", *settings)]
    evaluator.expect(map(CellRequest, cells))
    assert [evaluator.result(planned).n_requested for planned in cells] == [8] * len(cells)
    assert most[0] <= max(room, 4800)
    assert most[1] == 1 or room >= 4800 + 432  # a large picture and a small one


def test_views_of_the_same_picture_are_made_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = MemoryImage(picture(1))
    world.samples = [sample(i, images=(shared,)) for i in range(6)]
    evaluator, _ = opened(world, batch_size=8, threads=3)
    made: list[str] = []
    view = evaluator._views.view

    def counted(sample: Sample, setting: Setting) -> View:
        made.append(sample.id)
        return view(sample, setting)

    monkeypatch.setattr(evaluator._views, "view", counted)
    evaluator.result(cell("invert"))
    assert len(made) == 1
    assert len(world.model.requests) == 6


def test_a_backend_that_takes_one_request_at_a_time_has_as_many_in_flight_as_it_says(world: World) -> None:
    world.samples = [sample(i) for i in range(48)]
    backend = Served(world)
    evaluator = world.evaluator(batch_size=16, threads=2)
    evaluator.open_backend = lambda _ref: backend
    evaluator.result(CELLS[0])
    assert {len(batch) for batch in backend.batches} == {1}
    assert 2 < backend.most_in_flight <= 8
    assert len(backend.batches) == 48


class Served(Lanes):
    """A backend like one of a server: it finds out that it may be asked more at a time."""

    batch_size = 1

    def __init__(self, world: World) -> None:
        super().__init__(world, lanes=2, mixes=False)
        self.in_flight = self.most_in_flight = 0

    def infer_prepared(self, prepared: Sequence[Prepared]) -> list[Prediction]:
        with self.lock:
            self.in_flight += 1
            self.most_in_flight = max(self.in_flight, self.most_in_flight)
        time.sleep(0.02)
        answers = super().infer_prepared(prepared)
        with self.lock:
            self.in_flight -= 1
            self.lanes = 8
        return answers
