"""Actors of a Ray cluster that host a backend: what is asked again when one is lost, and what is refused."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_vlmrobust.backends import Backend, BackendOptions, Cluster, open_backend, resolve
from pytest_vlmrobust.backends.ray import Host
from pytest_vlmrobust.core.errors import BackendError, MissingExtra
from pytest_vlmrobust.core.prediction import ModelRef, Prediction, Request

REF = ModelRef("toy", "toy", "nowhere")


def test_without_ray_the_error_has_the_line_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(MissingExtra, match=r"pip install 'ray>="):
        open_backend(resolve("tiny"), BackendOptions(cluster=Cluster()))
    assert open_backend(resolve("tiny"), BackendOptions(cluster=Cluster(), offline=True)).name == "tiny"


def test_a_model_without_weights_here_is_not_hosted() -> None:
    scripted = resolve("scripted:oracle/perfect")
    assert type(open_backend(scripted, BackendOptions(cluster=Cluster()))) is type(open_backend(scripted))


class Toy:
    """Answers with the mean of the picture; does what a question says to the process that asks it."""

    name = "toy"

    def __init__(
        self, folder: Path | None = None, fingerprint: Callable[[], Mapping[str, Any]] = lambda: {"backend": "toy"}
    ) -> None:
        self._folder, self.fingerprint = folder, fingerprint

    def describe(self) -> dict[str, Any]:
        return {"name": "toy", "fingerprint": self.fingerprint(), "loaded": {"device": "toy"}}

    def infer(self, requests: Sequence[Request]) -> list[Prediction]:
        for request in requests:
            if request.text == "die":
                os._exit(1)
            if request.text == "die once" and self._folder is not None and not (self._folder / "died").exists():
                (self._folder / "died").touch()
                os._exit(1)
            if request.text == "does not load":
                from pytest_vlmrobust.core.errors import BackendError  # that of the actor: this class is copied there by value

                raise BackendError("there is no such file")
        return [Prediction(f"{int(request.images[0].mean())}", "generate") for request in requests]

    def close(self) -> None:
        pass


def asking(*texts: str) -> list[Request]:
    return [Request(f"key{i}", (np.full((300, 300, 3), i, np.uint8),), text) for i, text in enumerate(texts)]


def test_a_process_that_ray_started_anew_looks_before_it_answers() -> None:
    assert Host(Toy, {"backend": "toy"}).infer(*asking("?")) == ([Prediction("0", "generate")], "")
    other = Host(Toy, {"backend": "other"})
    for _ in range(2):
        answers, problem = other.infer(*asking("?"))
        assert not answers
        assert problem == "its node would answer as another model, for backend is 'toy' there and 'other' here"


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    ray = pytest.importorskip("ray")
    ray.cloudpickle.register_pickle_by_value(__import__("sys").modules[__name__])  # actors do not know this module
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patched:
        patched.setenv("RAY_worker_niceness", "0")  # by default actors step back behind whatever else runs here
        warnings.simplefilter("ignore")
        ray.init("local", num_cpus=2, include_dashboard=False, configure_logging=False, log_to_driver=False)
        yield ray
        ray.shutdown()


@pytest.fixture
def opened(ray: Any) -> Iterator[Callable[..., Any]]:
    from pytest_vlmrobust.backends.ray import RayBackend

    backends: list[Any] = []
    notices: list[str] = []

    def open_with(make: Callable[[], Backend], **cluster: Any) -> Any:
        options = BackendOptions(notice=notices.append, device="cpu")
        backends.append(RayBackend(REF, options, Cluster(**cluster), lambda _ref, _options: make()))
        backends[-1].notices = notices
        return backends[-1]

    yield open_with
    for backend in backends:
        backend.close()


@pytest.mark.slow
def test_a_batch_whose_actor_dies_is_asked_again(opened: Callable[..., Any], tmp_path: Path) -> None:
    backend = opened(lambda: Toy(tmp_path), actors=2)
    assert [answer.text for answer in backend.infer(asking("a", "die once", "c"))] == ["0", "1", "2"]
    assert backend.describe()["loaded"]["actors_lost"] == 1
    assert backend.describe()["loaded"]["device"] == "toy"
    assert any("was lost" in notice and "another one is started" in notice for notice in backend.notices)


@pytest.mark.slow
def test_a_request_that_kills_every_actor_is_a_failed_one_and_spoils_no_other(opened: Callable[..., Any]) -> None:
    backend = opened(Toy, actors=1)
    answers = backend.infer(asking("a", "die", "c"))
    assert [answer.text for answer in answers] == ["0", "", "2"]
    assert answers[1].finish_reason == "error"
    assert "2 actors that were asked this alone were lost" in answers[1].error


@pytest.mark.slow
def test_where_every_actor_dies_the_model_is_lost(opened: Callable[..., Any]) -> None:
    backend = opened(Toy, actors=2)
    with pytest.raises(BackendError, match="8 actors were lost one after the other"):
        backend.infer(asking(*["die"] * 8))


@pytest.mark.slow
def test_a_model_that_does_not_load_is_an_error_at_once(opened: Callable[..., Any]) -> None:
    backend = opened(Toy, actors=1)
    with pytest.raises(BackendError, match="there is no such file"):
        backend.infer(asking("does not load"))
    assert backend.describe().get("loaded") is None


@pytest.mark.slow
def test_a_node_that_would_answer_as_another_model_is_not_asked(opened: Callable[..., Any]) -> None:
    here = os.getpid()
    backend = opened(
        lambda: Toy(fingerprint=lambda: {"backend": "toy", "versions": "old" if os.getpid() != here else "new"}), actors=1
    )
    with pytest.raises(BackendError, match="versions is 'old' there and 'new' here"):
        backend.infer(asking("a"))


@pytest.mark.slow
def test_a_cluster_without_room_says_what_is_asked_for(opened: Callable[..., Any]) -> None:
    with pytest.raises(BackendError, match=r"no node of the cluster offers 64 CPU.*--vlm-ray-cpus"):
        opened(Toy, cpus=64).infer(asking("a"))


@pytest.mark.slow
def test_a_picture_is_put_into_the_object_store_once(opened: Callable[..., Any], ray: Any, tmp_path: Path) -> None:
    backend = opened(lambda: Toy(tmp_path), actors=1)
    prepared = [backend.prepare(request) for request in asking("die once", "b")]
    put, ray.put = ray.put, lambda _value: pytest.fail("put again")
    try:
        assert [answer.text for answer in backend.infer_prepared(prepared)] == ["0", "1"]
    finally:
        ray.put = put
    assert prepared[0].bytes == 300 * 300 * 3


@pytest.mark.slow
def test_a_run_that_ends_waits_for_no_actor(opened: Callable[..., Any]) -> None:
    backend = opened(Toy, actors=1)
    assert backend.traits.check is not None
    backend.infer(asking("a"))
    backend.give_up()
    with pytest.raises(BackendError, match="the run ended while it was asked"):
        backend.infer(asking("a"))
    backend.close()
    assert [answer.text for answer in backend.infer(asking("a"))] == ["0"]


@pytest.mark.slow
def test_tiny_in_actors_answers_as_in_this_process(ray: Any) -> None:
    rng = np.random.default_rng(0)
    pictures = [rng.integers(0, 256, (160, 160, 3), dtype=np.uint8) for _ in range(12)]
    requests = [Request(f"k{i}", (picture,), "Which?", ("A", "B")) for i, picture in enumerate(pictures)]
    requests += [Request("text", (pictures[0],), "Say it"), Request("broken", (np.zeros((8, 8), np.uint8),), "?")]
    here = open_backend(resolve("tiny"), BackendOptions(device="cpu"))
    there = open_backend(resolve("tiny"), BackendOptions(device="cpu", cluster=Cluster(actors=1)))
    assert there.fingerprint() == here.fingerprint()
    for ours, theirs in zip(here.infer(requests), there.infer(requests), strict=True):
        assert (theirs.text, theirs.method, theirs.finish_reason) == (ours.text, ours.method, ours.finish_reason)
        assert dict(theirs.logprobs) == pytest.approx(dict(ours.logprobs), abs=1e-3)
    assert there.describe()["loaded"]["answers_by_actor"] == {"1": len(requests) - 1}
    there.close()
    here.close()
