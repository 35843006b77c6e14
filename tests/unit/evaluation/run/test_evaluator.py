from __future__ import annotations

import contextlib
import dataclasses
import math
import signal
import threading
import time
from typing import Any

import numpy as np
import pytest

from pytest_vlmrobust.backends import failed_prediction
from pytest_vlmrobust.backends.scripted import ScriptedBackend
from pytest_vlmrobust.core.cell import Setting
from pytest_vlmrobust.core.errors import BackendError, DatasetError, ImageError, OfflineError, UnknownName
from pytest_vlmrobust.core.prediction import ModelRef, Prediction, Request
from pytest_vlmrobust.evaluation.run import evidence as evidence_module
from pytest_vlmrobust.evaluation.run.evaluator import EvaluationOptions, Evaluator, Progress
from pytest_vlmrobust.evaluation.run.evidence import EvidenceWriter
from pytest_vlmrobust.evaluation.run.queue import CellRequest
from pytest_vlmrobust.store import Evidence, Store
from tests.traits import own_traits
from tests.unit.evaluation.conftest import MemoryDataset, MemoryImage, World, cell, picture, present, sample, table_of

EVERYONE = [f"q{i}" for i in range(6)]


def only_wrong(*names: str) -> dict[str, str]:
    return dict.fromkeys(names, "A")


def test_every_sample_is_asked_and_scored(world: World) -> None:
    world.model.answer = lambda request: {"q1": "A", "q2": "no idea"}.get(request.sample_id, "B")
    result = world.evaluator().result(cell("invert"))
    assert world.model.asked_about == EVERYONE
    assert [sample.id for sample in result.samples] == EVERYONE
    assert result.values.tolist() == [1, 0, 0, 1, 1, 1]
    assert (result.count("scored"), result.count("unparsed"), result.count("error")) == (5, 1, 0)
    assert (result.n_requested, result.n_inferred) == (6, 6)


def test_no_question_is_made_that_nobody_comes_to(world: World) -> None:
    evaluator = world.evaluator()
    evaluator.expect([CellRequest(cell("invert"), (1, 4))])
    evaluator.result(cell("invert"), (4, 2))
    partial = evaluator._partial[cell("invert")]
    assert partial.queries.keys() == {1, 2, 4}
    known = dict(partial.queries)
    assert evaluator.result(cell("invert")).values.tolist() == [1] * 6
    assert sorted(world.model.asked_about) == EVERYONE
    assert all(partial.queries[place] is asking for place, asking in known.items())  # each is made once


def test_what_is_sent(world: World) -> None:
    """Nothing is shown without image, and a model that writes first is offered no letters."""
    world.evaluator().result(cell("invert"))
    request = world.model.requests[3]
    assert np.array_equal(request.images[0], 255 - picture(3))
    assert request.text.startswith("Question: Number 3?\nOptions:\nA. cat\n")
    assert (request.choices, request.sample_id, request.setting) == (("A", "B"), "q3", "invert")
    assert request.max_new_tokens == 2048
    world.refs["model"] = ModelRef("model", "scripted", "", prompt_mode="cot")
    world.model.requests.clear()
    world.evaluator(owner="later").result(cell("no_image"))
    assert {(request.images, request.choices) for request in world.model.requests} == {((), ())}


@pytest.mark.parametrize("answer", ["letters", "text"])
def test_an_answer_of_another_method_than_asked_for_is_refused_also_from_the_store(world: World, answer: str) -> None:
    said = Prediction("B", "letter_logits", logprobs={"B": -0.1}) if answer == "text" else "B"
    world.model.answer = lambda request: failed_prediction("down") if request.sample_id == "q0" else said
    world.evaluator().result(cell("clean"))
    world.refs["model"] = ModelRef("model", "scripted", "", answer=answer)
    other = {"letters": "text", "text": "letters"}[answer]
    with pytest.raises(
        BackendError, match=f"sample 'q1' of 'data' was answered by {other}, and choices are to be .* by {answer} "
    ):
        world.evaluator(owner="later").result(cell("clean"))


def test_asking_twice_infers_once(world: World) -> None:
    evaluator = world.evaluator()
    assert evaluator.result(cell("invert")) is evaluator.result(cell("invert"))
    assert len(world.model.requests) == 6


def test_another_run_finds_everything_in_the_store_and_makes_no_view(world: World) -> None:
    first = world.evaluator().result(cell("invert"))
    world.samples = [sample(i) for i in range(6)]
    evaluator = world.evaluator(owner="later")
    again = evaluator.result(cell("invert"))
    assert len(world.model.requests) == 6
    assert again.predictions == first.predictions
    assert (again.n_inferred, evaluator.inferred, evaluator.recalled) == (0, 0, 6)
    assert {image.loaded for sample in world.samples for image in sample.images if isinstance(image, MemoryImage)} == {0}


@pytest.mark.parametrize("seed", [1, 2])
def test_a_run_that_was_interrupted_resumes_where_it_stopped(world: World, seed: int) -> None:
    def interrupted(request: Request) -> str:
        if request.sample_id == "q5":
            signal.raise_signal(signal.SIGINT)
        return "B"

    world.model.answer = interrupted
    with pytest.raises(KeyboardInterrupt):
        world.evaluator(seed=seed).result(cell("gaussian_noise:low"))
    world.model.answer = lambda _request: "B"
    world.model.requests.clear()
    result = world.evaluator(owner="after", seed=seed).result(cell("gaussian_noise:low"))
    assert world.model.asked_about == ["q4", "q5"]  # the batch that was lost, and nothing else
    assert (result.n_inferred, result.values.tolist()) == (2, [1.0] * 6)


def test_two_workers_never_infer_the_same(world: World) -> None:
    def slow(_request: Request) -> str:
        time.sleep(0.01)
        return "B"

    world.model.answer = slow
    world.samples = [sample(i) for i in range(12)]
    evaluators = [world.evaluator(owner=f"worker {i}") for i in range(2)]
    inferred: list[int] = []
    threads = [threading.Thread(target=lambda e=e: inferred.append(e.result(cell("invert")).n_inferred)) for e in evaluators]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(world.model.asked_about) == sorted(f"q{i}" for i in range(12))
    assert sum(inferred) == 12


def test_a_failed_inference_is_no_answer_and_is_tried_again(world: World) -> None:
    world.model.answer = lambda request: failed_prediction("down") if request.sample_id == "q2" else "B"
    result = world.evaluator().result(cell("clean"))
    assert result.count("error") == 1
    assert math.isnan(result.values[2])
    world.model.requests.clear()
    world.model.answer = lambda _request: "B"
    assert world.evaluator(owner="later").result(cell("clean")).values.tolist() == [1.0] * 6
    assert world.model.asked_about == ["q2"]


def test_evidence_holds_what_the_store_holds_to_the_letter(world: World) -> None:
    first = world.evaluator()
    keys = first.result(cell("invert")).keys
    as_written = {key: text.replace(": ", " :  ") for key, text in first.store.get_encoded(keys).items()}
    assert len(as_written) == 6
    first.store._connection.executemany(
        "update predictions set answer = ? where key = ?", [(t, k) for k, t in as_written.items()]
    )
    evidence = Evidence.open(world.directory / "run")
    again = world.evaluator(offline=True)
    again.witness = EvidenceWriter(evidence, again)
    assert again.result(cell("invert")).predictions == first.result(cell("invert")).predictions
    rows = evidence._connection.execute("select key, prediction from answers").fetchall()
    assert dict(rows) == as_written
    assert not evidence.damage()
    evidence.close()


def test_parts_that_come_at_once_are_stored_in_one_transaction(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluator, evidence = world.evaluator(), Evidence.open(world.directory / "run")
    evaluator.witness = writer = EvidenceWriter(evidence, evaluator)
    begun: list[str] = []
    monkeypatch.setattr(evidence_module, "_JOINED_SECONDS", 3600.0)
    evaluator.result(cell("flip_h"), [0])  # outside of a block it is stored at once
    evidence._connection.set_trace_callback(lambda query: begun.append(query) if query == "begin immediate" else None)
    with contextlib.suppress(ZeroDivisionError), writer.joined():
        for places in ([1], [0, 2], [1, 3]):
            evaluator.result(cell("invert"), places)
        evaluator.result(cell("flip_h"), [0, 1])
        assert begun == []
        raise ZeroDivisionError  # what came before it is stored
    assert len(begun) == 1
    assert evidence.get_cell(cell("invert"), whole=False).places == (0, 1, 2, 3)
    assert evidence.get_cell(cell("flip_h"), whole=False).places == (0, 1)
    monkeypatch.setattr(evidence_module, "_JOINED_SECONDS", -1.0)
    with writer.joined():
        evaluator.result(cell("flip_v"), [0])  # what took longer does not wait
        assert len(begun) == 2
    assert len(begun) == 2
    assert not evidence.damage()
    evidence.close()


def test_results_of_some_samples_are_kept_until_others_are_asked_about_and_told_once(world: World) -> None:
    evaluator = world.evaluator()
    places: list[tuple[int, ...] | None] = []
    evaluator.witness = lambda result: places.append(result.places)
    first = evaluator.result(cell("invert"), [3, 1])
    assert evaluator.result(cell("invert"), (3, 1)) is first
    assert evaluator.result(cell("invert"), [1]).keys == first.keys[1:]
    grown = evaluator.result(cell("invert"), [1, 2])
    assert (first.n_inferred, grown.n_inferred) == (2, 3)
    assert evaluator.result(cell("invert"), [3, 1]).n_inferred == 3
    whole = evaluator.result(cell("invert"))
    assert whole.places is None
    assert evaluator.result(cell("invert"), [3, 1]).keys == (whole.keys[3], whole.keys[1]) == first.keys
    assert places == [(3, 1), (2,), (0, 4, 5)]
    for place in range(6):
        evaluator.result(cell("invert"), [place])
        evaluator.result(cell("invert"), [place, (place + 1) % 6])
    assert len(evaluator._partial[cell("invert")].results) == 8


def test_offline_says_how_many_answers_are_missing(world: World) -> None:
    world.samples = world.samples[:4]
    world.evaluator().result(cell("clean"))
    world.samples = [sample(i) for i in range(6)]
    with pytest.raises(OfflineError) as caught:
        world.evaluator(offline=True).result(cell("clean"))
    assert str(caught.value) == (
        "model-data-clean: 2 of 6 answers are not in the store, and --vlm-offline forbids asking the model. "
        "Run once without --vlm-offline"
    )


def test_offline_answers_come_from_the_store(world: World) -> None:
    for name in ("clean", "no_image", "gaussian_noise:low"):
        world.evaluator().result(cell(name))
    world.model.requests.clear()
    for name in ("clean", "no_image", "gaussian_noise:low"):
        assert world.evaluator(offline=True).result(cell(name)).values.tolist() == [1.0] * 6
    assert not world.model.requests


CHANGES = {
    "question": {"question": "How many?"},
    "hint": {"hint": "Look."},
    "options": {"options": {"A": "cat", "B": "hen"}},
    "pixels": {"images": (MemoryImage(picture(99)),)},
    "another image more": {"images": (MemoryImage(picture(1)), MemoryImage(picture(2)))},
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_sample_is_asked_again(world: World, change: str) -> None:
    world.evaluator().result(cell("clean"))
    world.model.requests.clear()
    world.samples[1] = dataclasses.replace(world.samples[1], **CHANGES[change])  # type: ignore[arg-type]  # fields by name
    assert world.evaluator(owner="later").result(cell("clean")).n_inferred == 1
    assert world.model.asked_about == ["q1"]


@pytest.mark.parametrize(
    ("changes", "version"), [({"prompt_mode": "cot"}, "1"), ({"generation": {"max_new_tokens": 7}}, "1"), ({}, "2")]
)
def test_another_model_and_one_that_is_asked_in_another_way_are_asked_again(
    world: World, changes: dict[str, Any], version: str
) -> None:
    world.evaluator().result(cell("clean"))
    world.refs["model"], world.model.version = ModelRef("model", "scripted", "", **changes), version
    assert world.evaluator(owner="later").result(cell("clean")).n_inferred == 6


def test_another_seed_asks_again_only_where_pixels_change(world: World) -> None:
    for name in ("invert", "gaussian_noise:low"):
        world.evaluator(seed=1).result(cell(name))
    assert world.evaluator(seed=2).result(cell("invert")).n_inferred == 0
    assert world.evaluator(seed=2).result(cell("gaussian_noise:low")).n_inferred == 6


def test_a_new_target_or_category_needs_no_new_answer(world: World) -> None:
    world.evaluator().result(cell("clean"))
    world.samples[1] = dataclasses.replace(world.samples[1], target="A", category="new")
    result = world.evaluator(owner="later").result(cell("clean"))
    assert result.n_inferred == 0
    assert result.values.tolist() == [1, 0, 1, 1, 1, 1]


@pytest.mark.parametrize("batch_size", [1, 2, 6])
def test_identical_pixels_and_questions_share_an_answer(world: World, batch_size: int) -> None:
    twin = dataclasses.replace(world.samples[0], id="twin")
    world.samples = [world.samples[0], twin, world.samples[1]]
    result = world.evaluator(batch_size=batch_size).result(cell("invert"))
    assert len(world.model.requests) == result.n_inferred == 2
    assert result.predictions[0] == result.predictions[1]


def test_settings_that_give_the_same_pixels_share_their_answers(world: World) -> None:
    evaluator = world.evaluator()
    evaluator.result(cell("clean"))
    assert evaluator.result(cell("flip_v+flip_v")).n_inferred == 0
    assert evaluator.result(cell("flip_v")).n_inferred == 6


def test_a_smaller_sample_is_found_in_what_a_larger_one_stored(world: World) -> None:
    world.evaluator().result(cell("clean"))
    result = world.evaluator(sample="50%").result(cell("clean"))
    assert (len(result.samples), result.n_inferred) == (3, 0)


def test_a_dataset_without_samples_measures_nothing(world: World) -> None:
    world.samples = []
    with pytest.raises(DatasetError, match="dataset 'data' has no samples: there is nothing to measure"):
        world.evaluator().result(cell("clean"))


def test_a_broken_picture_spoils_only_the_batches_from_its_own_on(world: World) -> None:
    world.samples[3] = sample(3, images=(MemoryImage(picture(3), broken=True),))
    with pytest.raises(ImageError, match="cannot be decoded"):
        world.evaluator().result(cell("clean"))
    assert world.model.asked_about == ["q0", "q1"]
    assert len(Store.open(world.directory)) == 2


def test_every_picture_that_cannot_be_read_is_named(world: World) -> None:
    world.samples = [sample(i, images=(MemoryImage(picture(i), broken=i != 1, where=f"rows:{i}"),)) for i in range(15)]
    evaluator = world.evaluator()
    for setting in ("clean", "flip_v"):
        with pytest.raises(
            ImageError, match=r"^rows:0: this image cannot be decoded\n.14 images .*; the others: rows:2;"
        ) as caught:
            evaluator.result(cell(setting))
        assert str(caught.value).endswith("rows:9; rows:10; 4 more)")


def test_progress_counts_what_was_recalled(world: World) -> None:
    world.samples = world.samples[:3]
    world.evaluator().result(cell("clean"))
    world.samples = [sample(i) for i in range(6)]
    evaluator, seen = world.evaluator(owner="later"), list[Progress]()
    evaluator.listener = seen.append
    evaluator.result(cell("clean"))
    assert [(each.done, each.total) for each in seen] == [(5, 6), (6, 6)]


def test_the_dataset_is_read_once(world: World) -> None:
    read: list[int] = []
    evaluator = world.evaluator()

    def opened() -> MemoryDataset:
        read.append(1)
        return MemoryDataset(world.samples)

    evaluator.datasets = {"data": opened}
    for name in ("clean", "invert"):
        evaluator.result(cell(name))
    assert len(read) == 1


class Heavy(ScriptedBackend):
    """A backend whose weights are in memory from its first inference until it is closed."""

    loaded: set[str]

    def infer(self, requests: object) -> list[Prediction]:
        self.loaded.add(self.name)
        assert self.loaded == {self.name}
        return super().infer(requests)  # type: ignore[arg-type]  # handed on as it came

    def close(self) -> None:
        self.loaded.discard(self.name)


def test_a_model_that_changed_while_it_was_asked_is_said_at_the_end(world: World) -> None:
    class Changing(ScriptedBackend):
        traits = property(own_traits)

        def check(self) -> str:
            return f"{self.name} changed"

        def give_up(self) -> None:
            given_up.append(self.name)

    given_up: list[str] = []
    evaluator = world.evaluator()
    assert evaluator.changes() == []
    evaluator.open_backend = lambda ref: Changing(world.model, version="1", name=ref.name)
    assert evaluator.changes() == [], "nothing was opened, so that nothing was asked"
    evaluator.result(cell("clean"))
    assert evaluator.changes() == ["model changed"]
    evaluator.close()
    assert given_up == ["model"]


def test_a_fingerprint_that_changed_while_its_model_was_asked_is_said_at_the_end(world: World) -> None:
    class Changing(ScriptedBackend):
        version = 1

        def fingerprint(self) -> dict[str, Any]:
            if self.version == 3:
                raise BackendError("the disk is gone")
            return {"backend": "changing", "version": self.version}

    backend = Changing(world.model, version="1", name="model")
    evaluator = world.evaluator()
    evaluator.open_backend = lambda _ref: backend
    evaluator.result(cell("clean"))
    assert evaluator.changes() == []
    backend.version = 2
    (said,) = evaluator.changes()
    assert said.startswith(
        "the fingerprint of model 'model' changed while it was asked, by 'version': it is not sure that one model"
    )
    backend.version = 3
    assert evaluator.changes() == ["model 'model' cannot be compared with the one that was asked first: the disk is gone"]


def heavy(world: World, evaluator: Evaluator) -> set[str]:
    """Lets an evaluator open heavy backends, and returns those whose weights are in memory."""
    loaded: set[str] = set()

    def opened(ref: ModelRef) -> Heavy:
        backend = Heavy(world.model, version=ref.name, name=ref.name)
        backend.loaded = loaded
        return backend

    evaluator.open_backend = opened
    return loaded


def test_one_model_is_resident_at_a_time(world: World) -> None:
    world.refs["other"] = ModelRef("other", "scripted", "")
    evaluator = world.evaluator()
    loaded = heavy(world, evaluator)
    for model in ("model", "other", "model"):
        for name in ("clean", "invert"):
            evaluator.result(cell(name, model))
    evaluator.result(cell("flip_v"))
    assert loaded == {"model"}
    evaluator.close()
    assert not loaded


def test_what_was_freed_is_made_anew_and_asked_once(world: World) -> None:
    evaluator = world.evaluator()
    loaded = heavy(world, evaluator)
    first = evaluator.result(cell("clean"))
    assert loaded == {"model"}
    evaluator.free()
    assert not loaded
    again = evaluator.result(cell("clean"))
    assert again is not first
    assert (again.predictions, again.n_inferred) == (first.predictions, 0)
    assert evaluator.result(cell("invert")).n_inferred == 6
    evaluator.close()


def test_a_server_stays_connected_when_weights_are_freed(world: World) -> None:
    class Served(Heavy):
        traits = property(own_traits)

        def check(self) -> str:
            return ""

        def give_up(self) -> None:
            """Does nothing."""

    backend = Served(world.model, version="1", name="model")
    backend.loaded = set()
    evaluator = world.evaluator()
    evaluator.open_backend = lambda _ref: backend
    evaluator.result(cell("clean"))
    evaluator.free()
    assert backend.loaded == {"model"}
    evaluator.close()


@pytest.mark.parametrize("hangs", ["fingerprint", "close"])
def test_a_backend_that_hangs_beside_its_answers_is_left(world: World, monkeypatch: pytest.MonkeyPatch, hangs: str) -> None:
    released = threading.Event()
    monkeypatch.setattr(ScriptedBackend, hangs, lambda _backend: released.wait())
    evaluator = world.evaluator(time_limit=0.2)
    try:
        if hangs == "fingerprint":
            said = "model has not given its fingerprint for 0.2 s .--vlm-timeout., and is dropped"
            with pytest.raises(BackendError, match=said):
                evaluator.result(cell("clean"))
        else:
            evaluator.result(cell("clean"))
        evaluator.close()
        assert not released.is_set()
    finally:
        released.set()


def test_a_letter_that_its_log_probabilities_do_not_give_is_no_answer(world: World) -> None:
    world.model.answer = lambda _request: Prediction("B", "letter_logits", logprobs={"A": -0.1, "B": -2.0})
    evaluator = world.evaluator()
    result = evaluator.result(cell("clean"))
    assert result.count("error") == 6
    assert "the backend of model 'model' broke its contract: it returned the letter 'B'" in result.predictions[0].error
    assert len(evaluator.store) == 0
    world.model.answer = lambda _request: Prediction("B", "letter_logits", logprobs={"A": -2.0, "B": -2.0})
    assert world.evaluator(owner="later").result(cell("clean")).n_inferred == 6


def test_a_model_that_does_not_load_gives_its_leases_back(world: World) -> None:
    class Lost(ScriptedBackend):
        def infer(self, requests: object) -> list[Prediction]:
            raise BackendError("no weights")

    evaluator = world.evaluator()
    evaluator.open_backend = lambda ref: Lost(world.model, version="1", name=ref.name)
    with pytest.raises(BackendError, match="no weights"):
        evaluator.result(cell("clean"))
    assert world.evaluator(owner="another").result(cell("clean")).n_inferred == 6  # at once, without waiting for a lease


def test_the_table_pairs_clean_blind_and_perturbed(world: World) -> None:
    wrong = {"no_image": only_wrong(*EVERYONE), "invert": only_wrong("q1", "q4")}
    world.model.answer = lambda request: wrong.get(request.setting, {}).get(request.sample_id, "B")
    world.samples[1] = dataclasses.replace(world.samples[1], group="together")
    table = table_of(world.evaluator(), [Setting.parse("invert"), Setting.parse("flip_v")])
    assert present(table.clean).tolist() == [1.0] * 6
    assert table.scores("invert").tolist() == [1, 0, 1, 1, 0, 1]
    assert present(table.no_image).tolist() == [0.0] * 6
    assert list(present(table.groups)) == ["q0", "together", "q2", "q3", "q4", "q5"]
    assert {name: list(scores) for name, scores in present(table.reference_by_setting).items()} == dict.fromkeys(
        ("clean", "invert", "flip_v"), [0.0] * 6
    )


def test_another_model_may_be_the_reference(world: World) -> None:
    world.refs["other"] = ModelRef("other", "scripted", "")
    evaluator = world.evaluator()

    def opened(ref: ModelRef) -> ScriptedBackend:
        return ScriptedBackend(lambda _request: "A" if ref.name == "other" else "B", version=ref.name, name=ref.name)

    evaluator.open_backend = opened
    table = table_of(evaluator, [Setting.parse("invert")], reference="other")
    assert list(present(table.reference_by_setting)["invert"]) == [0.0] * 6
    assert table.scores("invert").tolist() == [1.0] * 6


def test_the_seed_is_the_published_one() -> None:
    assert EvaluationOptions().seed == 1234


def test_an_unknown_scorer_is_refused_before_anything_is_asked(world: World) -> None:
    world.samples[4] = dataclasses.replace(world.samples[4], scorer="exactt")
    evaluator = world.evaluator()
    with pytest.raises(UnknownName, match=r"dataset 'data', sample 'q4': unknown scorer 'exactt'\. Did you mean 'exact'\?"):
        evaluator.result(cell("clean"))
    assert world.model.requests == []
