"""The backend that runs weights on a Ray cluster: actors host the backend that would otherwise run in this process.

A request is put into Ray's object store once and sent to the actor with the least to do. Ray restarts the process of a lost
actor wherever there is room. Only this process writes to the store of answers.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from pytest_vlmrobust.core.errors import BackendError, MissingExtra, VlmRobustError
from pytest_vlmrobust.core.fingerprint import canonical_json
from pytest_vlmrobust.core.prediction import ModelRef, Prediction, Request
from pytest_vlmrobust.core.words import on_one_line, quantity

from .chat import malformed
from .contract import Backend, BackendOptions, Cluster, Prepared, Traits, accepted, failed_prediction, traits_of
from .devices import device_class, device_for

_TRIES = 2
"""How many actors a batch may lose before its requests are sent one by one, and how many a single request may lose."""
_LOST_IN_A_ROW = 8
"""How many actors in a row may be lost without an answer; more is not bad luck."""
_PLACED_WITHIN = 300.0
"""Seconds that a run without any actor waits for room on the cluster."""
_LOOK_SECONDS = 1.0
_OF_LOADED = ("batches", "failed_batches", "loaded")
"""Description keys that only a backend with loaded weights has."""

Open: TypeAlias = Callable[[ModelRef, BackendOptions], Backend]


class Host:
    """The code in an actor: the backend of one model, opened there by its name.

    Expected errors are returned as text: an exception would need the same class on both sides.
    """

    def __init__(self, opening: Callable[[], Backend], expected: Mapping[str, Any]) -> None:
        self._opening, self._expected = opening, expected
        self._backend: Any = None

    def look(self) -> str:
        """Opens the backend; returns why this actor cannot answer like the calling process, or an empty text."""
        try:
            backend = self._opening()
            there, here = dict(backend.fingerprint()), self._expected
        except VlmRobustError as error:
            return str(error)
        names = [name for name in {**here, **there} if canonical_json(here.get(name)) != canonical_json(there.get(name))]
        parts = [f"{name} is {there.get(name)!r:.200} there and {here.get(name)!r:.200} here" for name in names]
        self._backend = None if parts else backend
        return f"its node would answer as another model, for {'; '.join(parts)}" if parts else ""

    def infer(self, *requests: Request) -> tuple[list[Prediction], str]:
        """Returns one prediction per request, and why the model was lost, if it was."""
        if self._backend is None and (problem := self.look()):  # Ray started this process while no batch was in flight
            return [], problem
        traits = traits_of(self._backend)
        try:
            if traits.prepare and traits.infer_prepared:  # one batch is prepared while another is computed
                return traits.infer_prepared([traits.prepare(request) for request in requests]), ""
            return self._backend.infer(requests), ""
        except VlmRobustError as error:
            return [], str(error)

    def describe(self) -> dict[str, Any]:
        """Returns the description of the hosted backend."""
        return dict(self._backend.describe())


@dataclass(eq=False)
class Actor:
    """One actor; Ray gives it a new process if it loses its process."""

    number: int
    handle: Any
    placed: Any = None
    """A future that completes once its process runs on the cluster."""
    looked: Any = None
    """The future of its check of the model; each process has a new one."""
    ready: bool = False
    in_flight: int = 0

    def watch(self) -> None:
        """Waits for its next process."""
        self.ready = False
        self.placed = self.handle.__ray_ready__.options(max_task_retries=-1).remote()
        self.looked = self.handle.look.options(max_task_retries=-1).remote()


class Lost(Exception):
    """An actor did not answer a batch because its process died."""


class RayBackend:
    """One model on the actors of a Ray cluster; each actor loads the weights at its first inference."""

    def __init__(self, ref: ModelRef, options: BackendOptions, cluster: Cluster, open_backend: Open) -> None:
        """Connects to nothing yet; ``open_backend`` opens the hosted backend by its registered name."""
        self.ref, self._options, self._cluster, self._opener = ref, options, cluster, open_backend
        self._hosted = open_backend(ref, options)
        """Gives the fingerprint in this process; it never loads weights here."""
        self._depth = 2 if traits_of(self._hosted).prepare else 1
        """Batches per actor: one in computation and one in preparation."""
        self._changed = threading.Condition()
        self._opening = threading.Lock()
        self._actors: list[Actor] = []
        self._lost = self._lost_in_a_row = 0
        self._answers: Counter[str] = Counter()
        self._loaded: dict[str, Any] = {}
        """The description by the first actor after loading."""
        self._problem = ""
        """Why the last actor was lost."""
        self._alive_at = 0.0
        """Monotonic time when an actor was last alive."""
        self._given_up = False
        if not options.offline and importlib.util.find_spec("ray") is None:
            raise MissingExtra("--vlm-engine ray", "ray", extra="ray")

    @property
    def name(self) -> str:
        """The model's short name."""
        return self.ref.name

    @property
    def traits(self) -> Traits:
        """The traits of the hosted backend that need no weights; ready actors set how many batches may be in flight."""
        if self._actors:
            self._look()
        hosted, ready = traits_of(self._hosted), sum(actor.ready for actor in self._actors)
        return Traits(
            counts_tokens=hosted.counts_tokens,
            mixes_cells=hosted.mixes_cells,
            lanes=max(1, self._depth * ready),
            prepare=self.prepare,
            infer_prepared=self.infer_prepared,
            seen_size=hosted.seen_size,
            check=lambda: "",  # actors are checked before use, and loaded weights do not change
            give_up=self.give_up,
        )

    def fingerprint(self) -> Mapping[str, Any]:
        """Returns the fingerprint of the hosted backend: answers do not depend on where they were computed.

        Actors with another fingerprint, by files, libraries or device of their node, are not used.
        """
        return self._hosted.fingerprint()

    def describe(self) -> dict[str, Any]:
        """Returns the model's entry in the manifest; facts about actors are under ``loaded``."""
        described = {key: value for key, value in self._hosted.describe().items() if key not in _OF_LOADED}
        with self._changed:
            ran = {"engine": "ray", "answers_by_actor": dict(self._answers), "actors_lost": self._lost}
        return {**described, "loaded": {**self._loaded, **ran}} if self._answers else described

    def infer(self, requests: Sequence[Request]) -> list[Prediction]:
        """Returns one prediction per request, in order; see :class:`Backend`."""
        return self.infer_prepared([self.prepare(request) for request in requests])

    def prepare(self, request: Request) -> Prepared:
        """Puts a request into Ray's object store, where any actor can read it."""
        if why := malformed(request):
            return Prepared(request, failure=why)
        self._open()
        import ray

        return Prepared(request, ray.put(request), bytes=sum(image.nbytes for image in request.images))

    def infer_prepared(self, prepared: Sequence[Prepared]) -> list[Prediction]:
        """Returns what ``infer`` would return for the same requests; any number of threads may call it at once."""
        sound = [item for item in prepared if not item.failure]
        answers = iter(accepted(self._with_retries(sound), [item.request for item in sound], self.name) if sound else ())
        return [failed_prediction(item.failure) if item.failure else next(answers) for item in prepared]

    def give_up(self) -> None:
        """Ends every inference that is waiting; see :class:`Traits`."""
        self._given_up = True
        self._end_actors()

    def close(self) -> None:
        """Ends the actors, which frees the weights; the connection to the cluster ends with this process."""
        self._end_actors()
        self._given_up, self._lost_in_a_row, self._problem = False, 0, ""
        self._hosted.close()

    # A batch: sent as a whole, then one by one.

    def _with_retries(self, prepared: Sequence[Prepared]) -> list[Prediction]:
        """Returns the answers to a batch. A request that keeps losing actors fails alone."""
        why = ""
        for _ in range(_TRIES):
            try:
                return self._answered([item.inputs for item in prepared])
            except Lost as lost:
                why = str(lost)
        if len(prepared) > 1:
            return [answer for item in prepared for answer in self._with_retries([item])]
        return [failed_prediction(f"{quantity(_TRIES, 'actor')} that were asked this alone were lost: {why}")]

    def _answered(self, inputs: Sequence[Any]) -> list[Prediction]:
        """Returns the answers of one actor; raises :class:`Lost` without an answer."""
        import ray

        actor = self._borrowed()
        looked = actor.looked
        try:
            predictions, problem = ray.get(actor.handle.infer.remote(*inputs))
            if problem and not self._answers:  # a model that does not load here would not load in another actor
                raise BackendError(problem)
            if problem:
                ray.kill(actor.handle, no_restart=False)
                raise self._lose(actor, looked, problem)
        except ray.exceptions.RayTaskError as error:
            raise BackendError(f"model {self.name!r}: the backend failed in its actor: {_in_words(error)}") from error
        except ray.exceptions.RayError as error:
            raise self._lose(actor, looked, _in_words(error)) from error
        finally:
            with self._changed:
                actor.in_flight -= 1
                self._changed.notify_all()
        with self._changed:
            self._answers[str(actor.number)] += len(predictions)
            self._lost_in_a_row = 0
        if not self._loaded:
            with contextlib.suppress(ray.exceptions.RayError):
                self._loaded = ray.get(actor.handle.describe.remote()).get("loaded", {})
        return list(predictions)

    # Actors.

    def _borrowed(self) -> Actor:
        """Returns the actor with the least in flight and counts a batch for it; waits if all are busy."""
        self._open()
        while True:
            self._look()
            with self._changed:
                if self._given_up:
                    raise BackendError(f"model {self.name!r}: the run ended while it was asked")
                if self._lost_in_a_row >= _LOST_IN_A_ROW:
                    raise BackendError(
                        f"model {self.name!r}: {self._lost_in_a_row} actors were lost one after the other, the last one so: "
                        f"{self._problem}. Look at the memory of the nodes and at Ray's logs, and start the run again: answers "
                        "already given are in the store"
                    )
                if not self._actors:
                    raise BackendError(f"model {self.name!r}: no actor can run it. {self._problem}")
                ready = [actor for actor in self._actors if actor.ready]
                actor = min(ready, key=lambda candidate: candidate.in_flight, default=None)
                if actor and actor.in_flight < self._depth:
                    actor.in_flight += 1
                    return actor
                if ready:
                    self._alive_at = time.monotonic()
                    self._changed.wait(_LOOK_SECONDS)
            if not ready:
                self._require_place()
                self._look(_LOOK_SECONDS)

    def _require_place(self) -> None:
        import ray

        if ray.wait([actor.placed for actor in self._actors], timeout=0)[0]:
            self._alive_at = time.monotonic()
        elif time.monotonic() - self._alive_at > _PLACED_WITHIN:
            raise BackendError(
                f"model {self.name!r}: the cluster had no place for an actor for {_PLACED_WITHIN:.0f} s (each needs "
                f"{self._resources_in_words()}). Look at 'ray status'; what else runs there may hold it"
            )

    def _look(self, seconds: float = 0.0) -> None:
        """Admits actors whose node has the same model and environment; ends any other."""
        import ray

        with self._changed:
            waiting = {actor.looked: actor for actor in self._actors if not actor.ready}
        for look in ray.wait(list(waiting), timeout=seconds)[0] if waiting else ():
            try:
                problem = ray.get(look)
            except ray.exceptions.RayError as error:
                problem = _in_words(error)
            actor = waiting[look]
            with self._changed:
                if actor.looked is not look or actor not in self._actors:
                    continue
                actor.ready = not problem
                if problem:
                    self._problem = problem
                    self._actors.remove(actor)
            if problem:
                self._options.notice(f"model {self.name!r}: actor {actor.number} is not asked: {problem}")
                ray.kill(actor.handle)

    def _lose(self, actor: Actor, looked: Any, problem: str) -> Lost:
        """Records the loss of an actor's process, once for all its batches."""
        with self._changed:
            if actor.looked is looked and actor in self._actors:
                self._lost += 1
                self._lost_in_a_row += 1
                self._problem = problem
                actor.watch()
                self._options.notice(f"model {self.name!r}: actor {actor.number} was lost ({problem}); another one is started")
        return Lost(problem)

    def _open(self) -> None:
        with self._opening:
            if self._actors or self._given_up or self._problem:
                return
            self._connect()
            resources = self._resources_in_words()
            count = self._cluster.actors or self._places()
            if not count:
                raise BackendError(
                    f"model {self.name!r}: no node of the cluster offers {resources}. Ask for less "
                    "(--vlm-ray-cpus, --vlm-ray-gpus), or say --vlm-ray-actors N where the cluster grows when it is asked"
                )
            self._options.notice(f"model {self.name!r}: runs on {quantity(count, 'actor')}, each with {resources}")
            self._alive_at = time.monotonic()
            self._actors = [self._started(number) for number in range(1, count + 1)]

    def _connect(self) -> None:
        import ray

        if ray.is_initialized():  # by another model of this run, or by the caller of pytest
            return
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ray.init(address=self._cluster.address or None, configure_logging=False, log_to_driver=False)
        except (ConnectionError, RuntimeError, ValueError, TimeoutError, OSError) as error:
            where = f"at {self._cluster.address!r} (--vlm-ray-address)" if self._cluster.address else "that could be started here"
            raise BackendError(f"there is no Ray cluster {where}: {_in_words(error)}. Look at 'ray status'") from error

    def _resources(self) -> dict[str, float]:
        """Returns the resources that Ray reserves per actor; no GPU if the device is none."""
        on_gpu = device_class(self._device) == "cuda"
        return {"CPU": float(self._cluster.cpus)} | ({"GPU": float(self._cluster.gpus)} if on_gpu else {})

    def _resources_in_words(self) -> str:
        return " and ".join(f"{amount:g} {kind}" for kind, amount in self._resources().items())

    @property
    def _device(self) -> str:
        """The device of every actor: ``auto`` is resolved here, so that it is in the fingerprint."""
        return device_for(self._options.device)

    def _places(self) -> int:
        """Returns how many actors fit on the nodes, ignoring other work there."""
        import ray

        resources = self._resources()
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        return sum(min(int(node.get(kind, 0.0) / amount + 1e-9) for kind, amount in resources.items()) for node in nodes)

    def _started(self, number: int) -> Actor:
        import ray

        needs = self._resources()
        kind = ray.remote(
            num_cpus=needs["CPU"],
            num_gpus=needs.get("GPU", 0),
            max_restarts=-1,
            max_task_retries=0,  # a batch that keeps losing processes is sent request by request
            max_concurrency=self._depth,
            scheduling_strategy="SPREAD",
        )(Host)
        options = BackendOptions(
            device=self._device,
            batch_size=self._options.batch_size,
            threads=self._options.threads,
            attention=self._options.attention,
            image_backend=self._options.image_backend,
            preprocessing=self._options.preprocessing,
        )
        opening = functools.partial(self._opener, self.ref, options)
        actor = Actor(number, kind.remote(opening, dict(self.fingerprint())))
        actor.watch()
        return actor

    def _end_actors(self) -> None:
        with self._changed:
            actors, self._actors = self._actors, []
            self._changed.notify_all()
        if actors:
            import ray

            for actor in actors if ray.is_initialized() else ():
                ray.kill(actor.handle)


def _in_words(error: Exception) -> str:
    """Returns the informative line of Ray's message: the first line, or the last one of a traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return on_one_line(lines[-1 if "ray::" in lines[0] else 0])
