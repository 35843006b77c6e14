"""Contract: what the evaluation may ask of a backend, and the guard that holds every backend to it, whoever wrote it.

A run reaches a backend through :class:`Guard` alone. Each call ends within the time limit of the run; whatever it raises becomes
an error in words that names model and method; and what it returns is looked at before anything relies on it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import operator
import os
import re
import reprlib
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from types import FrameType, TracebackType
from typing import Any, NoReturn, Protocol, SupportsFloat, TypeVar

from pytest_vlmrobust.core.decision import ENDINGS
from pytest_vlmrobust.core.errors import BackendError, BudgetSpent, ModelError, UsageError, VlmRobustError, did_you_mean
from pytest_vlmrobust.core.fingerprint import canonical_json
from pytest_vlmrobust.core.prediction import LETTER_LOGITS, LONGEST_TEXT, METHODS, UNANSWERED, Prediction, Request
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.core.words import on_one_line, quantity

from .qwen_images import FAST, PREPROCESSING

AUTO, START = "auto", 16
"""The batch size that is found by timing, and what it begins with."""
ATTENTION = ("auto", "sdpa", "eager", "flash_attention_2")
IMAGE_BACKENDS = ("pil", "torchvision")

DEVICE = re.compile(r"(auto|cpu|mps|cuda(:\d+)?)\Z")


class Backend(Protocol):
    """One model that answers requests: five members, and ``traits`` where it has any."""

    @property
    def name(self) -> str:
        """The model's short name, as it stands in test ids."""
        ...

    def fingerprint(self) -> Mapping[str, Any]:
        """Returns everything that determines an answer, JSON-safe, without loading weights.

        Raises:
            BackendError: the model's files are absent, incomplete or unreachable.
        """
        ...

    def describe(self) -> dict[str, Any]:
        """Returns what the manifest of a run says about the model, JSON-safe; more is known after the first inference."""
        ...

    def infer(self, requests: Sequence[Request]) -> list[Prediction]:
        """Returns one prediction per request, in order; never called twice at the same time.

        A request that fails yields a prediction with ``finish_reason`` ``"error"``; it is never dropped and spoils no other. The
        text of one by ``"letter_logits"`` is the letter of the highest of its ``logprobs``. What breaks these rules, see
        :func:`accepted`, counts as a request that failed.

        Raises:
            BackendError: the model itself does not load or is lost, so that no request can be answered.
        """
        ...

    def close(self) -> None:
        """Frees the weights; closing twice does nothing, and a later inference loads them again."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A request for which the work that needs no weights is done."""

    request: Request
    inputs: Any = None
    """What the backend made of it; None where it prepares whole batches only."""
    bytes: int = 0
    """How much memory ``inputs`` take."""
    failure: str = ""
    """Why the request cannot be put to the model; empty where it can."""


@dataclass(frozen=True, slots=True)
class Traits:
    """What a backend can do beyond the five members of :class:`Backend`, and how it wants to be asked."""

    counts_tokens: bool = False
    """Its answers say in ``details`` how many ``prompt_tokens`` and ``completion_tokens`` they took."""
    answers_alone: bool = False
    """It computes each request by itself and gives the same answer each time; any other is asked again about a few questions."""
    mixes_cells: bool = False
    """An answer does not depend on what else is in its batch, but for the rounding of float32."""
    overlaps: bool = False
    """One call more than there are lanes is of use: that batch is put together while the others are computed."""
    lanes: int = 1
    """How many calls of ``infer_prepared`` may run at the same time, each on a thread of its own."""
    batch_size: int | None = None
    """How many requests it takes at a time; None for as many as the run says."""
    prepare: Callable[[Request], Prepared] | None = None
    """Does what needs no weights; any thread may call it at any time. Goes with ``infer_prepared``."""
    infer_prepared: Callable[[Sequence[Prepared]], list[Prediction]] | None = None
    """Returns what ``infer`` would return for the same requests."""
    seen_size: Callable[[int, int], tuple[int, int] | None] | None = None
    """The size at which its processor hands an image of a width and height to the model."""
    check: Callable[[], str] | None = None
    """Returns what shows, after the last answer, that not one model gave them all, in words; empty where nothing does.

    For a model elsewhere, which may be exchanged meanwhile. Goes with ``give_up``."""
    give_up: Callable[[], object] | None = None
    """Ends every inference that is waiting, with an error for who asked; until it is closed nothing more is asked."""

    def __post_init__(self) -> None:
        for one, other in (("prepare", "infer_prepared"), ("check", "give_up")):
            if (getattr(self, one) is None) != (getattr(self, other) is None):
                raise BackendError(f"traits with one of {one!r} and {other!r}: a backend has both, or neither. Fix the backend")


def traits_of(backend: object) -> Traits:
    """Returns the traits of a backend, those of :class:`Traits` itself where it has none."""
    found: Traits = getattr(backend, "traits", Traits())
    return found


@dataclass(frozen=True, slots=True)
class AnswerKey:
    """The samples that a run asks about, with their targets."""

    samples: Callable[[str], Sequence[Sample]]
    """Name of a dataset in test ids to its samples."""
    digest: Callable[[], str]
    """Changes whenever a sample or its target can have changed."""
    question: Callable[[Sample, str], Sample] = lambda sample, _setting: sample
    """``(sample, setting) -> the sample as it is asked under the setting``."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A Ray cluster, and what each actor on it takes."""

    address: str = ""
    """Empty for the one that ``RAY_ADDRESS`` names, else one that runs on this machine, else one that is started there."""
    actors: int = 0
    """0 for as many as the nodes have room for."""
    cpus: int = 1
    gpus: float = 1.0
    """Reserved only where the device is a GPU; less than 1 lets actors share one."""


@dataclass(frozen=True, slots=True)
class BackendOptions:
    """What the user says about where and how to infer; which model it is stands in the ModelRef."""

    device: str = "auto"
    """``auto``, ``cpu``, ``mps``, ``cuda`` or ``cuda:N``."""
    batch_size: int | str = 8
    """Requests at a time: a number, or ``auto`` to find one by timing the first batches."""
    threads: int | None = None
    """CPU threads of torch; None leaves the process-wide setting alone."""
    attention: str = "auto"
    image_backend: str = "pil"
    """``pil`` or ``torchvision``; the two give different pixels, so they are never mixed silently."""
    preprocessing: str = FAST
    """``fast`` or ``library``: two ways to the same bits, of which the first exists for some families."""
    offline: bool = False
    """Never reach for the hub; local files only."""
    digest_cache: Path | None = None
    """JSON file that remembers the digests of checkpoint files by what the file system says of them; None hashes every time."""
    servers: Path | None = None
    """Folder that remembers what was seen of served models; None remembers nothing beyond this process."""
    digests_of: str = ""
    """The run whose digests alone are taken from that file, so that each run hashes once; empty takes those of any run."""
    notice: Callable[[str], None] = lambda _text: None
    """Told what the user should know about how the model runs, such as a device that it shares."""
    cluster: Cluster | None = None
    """Where weights run; None for this process. Models that have none here (served, scripted) are not concerned."""
    answers: AnswerKey | None = None
    """What is asked, with what is right: for scripted models that declare how often they are. No other backend may read it."""

    def __post_init__(self) -> None:
        if not DEVICE.match(self.device):
            raise UsageError(f"device {self.device!r}: expected 'auto', 'cpu', 'mps', 'cuda' or 'cuda:N' (--vlm-device)")
        if self.batch_size != AUTO and (isinstance(self.batch_size, str) or self.batch_size < 1):
            raise UsageError(f"batch size {self.batch_size}: expected 1 or more, or 'auto' (--vlm-batch-size)")
        if self.threads is not None and self.threads < 1:
            raise UsageError(f"threads {self.threads}: expected 1 or more, or nothing to leave torch's setting alone")
        _one_of("attention", self.attention, ATTENTION)
        _one_of("image backend", self.image_backend, IMAGE_BACKENDS)
        _one_of("--vlm-preprocessing", self.preprocessing, PREPROCESSING)


def _one_of(what: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise UsageError(f"{what} {value!r}: expected one of {', '.join(known)}.{did_you_mean(value, known)}")


# What a backend returns is held against its contract where it comes in: whoever wrote the backend, a broken answer is no score.


LARGEST_DETAILS = 1000
"""Entries of ``details``, and characters of each of its texts."""
LARGEST_NUMBER = 2**63
"""What whole numbers of ``details`` are less than: counts of tokens are added up, and JSON spells them out."""
_ROUNDING = 1e-3
"""By how much a log-probability may exceed 0."""
_ENDS = ("stop", "length", "error", *UNANSWERED)


def accepted(predictions: object, requests: Sequence[Request], model: str) -> list[Prediction]:
    """Returns what a backend answered, with a failed prediction in the place of each answer that breaks its contract."""
    if not isinstance(predictions, Sequence) or len(predictions) != len(requests):
        given = f"{len(predictions)} answers" if isinstance(predictions, Sequence) else f"a {type(predictions).__name__}"
        raise BackendError(
            f"the backend of model {model!r} returned {given} to {len(requests)} requests. Expected a list with one prediction "
            "per request: fix the backend"
        )
    broken = f"the backend of model {model!r} broke its contract: it returned"
    return [
        failed_prediction(f"{broken} {flaw}. Fix the backend") if (flaw := _flaw(prediction, request)) else prediction
        for prediction, request in zip(predictions, requests, strict=True)
    ]


def _flaw(prediction: Any, request: Request) -> str:
    """Returns what is wrong with a prediction, in words; empty where nothing is."""
    if not issubclass(type(prediction), Prediction):
        return f"a {type(prediction).__name__} in place of a Prediction"
    if not isinstance(prediction.text, str) or not isinstance(prediction.error, str):
        return "a text that is no str"
    for kind, text in (("a text", prediction.text), ("an error", prediction.error)):
        if len(text) > LONGEST_TEXT:
            return f"{kind} of {len(text)} characters, and at most {LONGEST_TEXT} are taken"
    if prediction.method not in METHODS:
        return f"the method {prediction.method!r:.100}, expected one of {', '.join(METHODS)}"
    if prediction.finish_reason not in _ENDS:
        return f"the finish reason {prediction.finish_reason!r:.100}, expected one of {', '.join(_ENDS)}"
    return _flaw_of_numbers(prediction, request) or _flaw_of_details(prediction.details)


def _flaw_of_numbers(prediction: Any, request: Request) -> str:
    if not isinstance(prediction.logprobs, Mapping):
        return "log-probabilities that are no mapping"
    for letter, value in prediction.logprobs.items():
        if letter not in request.choices:
            return f"a log-probability of {letter!r:.100}, which is none of the choices {', '.join(request.choices)}"
        # the type first: to look whether a value follows a protocol takes ten times as long
        is_number = type(value) is float or (isinstance(value, SupportsFloat) and not isinstance(value, bool))
        if not is_number or not float(value) <= _ROUNDING:
            return f"the log-probability {value!r:.100} of {letter!r}, expected a number of 0 or less"
    if prediction.logprobs and max(map(float, prediction.logprobs.values())) == -math.inf:
        return "log-probabilities that are all -inf, by which none of the letters is possible"
    answered = prediction.method == LETTER_LOGITS and prediction.finish_reason in ("stop", "length")
    if answered and prediction.contradicts_itself:
        best = f"its log-probabilities are {dict(prediction.logprobs)}"
        return f"the letter {prediction.text!r:.100}, and {best}. Expected the letter of the highest one"
    return ""


def _flaw_of_details(details: Any) -> str:
    if not isinstance(details, Mapping):
        return "details that are no mapping"
    if len(details) > LARGEST_DETAILS:
        return f"{len(details)} details, and at most {LARGEST_DETAILS} are taken"
    for name, value in details.items():
        texts = [text for text in (name, value) if isinstance(text, str)]
        if isinstance(value, int) and abs(value) >= LARGEST_NUMBER:  # whose digits Python may refuse to write
            return f"the detail {name!r:.100}, a number of {value.bit_length()} bits, expected one below 2**63"
        if not isinstance(name, str) or not isinstance(value, str | int | float) or max(map(len, texts)) > LARGEST_DETAILS:
            return f"the detail {name!r:.100}: {value!r:.100}, expected a short text or a number"
    return ""


def failed_prediction(reason: str, method: str = "generate") -> Prediction:
    """Returns the prediction of a request that got no answer."""
    return Prediction(text="", method=method, finish_reason="error", error=reason)


# The guard.


T = TypeVar("T")

MOST_LANES = 4096
"""Each is a thread."""
MOST_IN_A_BATCH = 1_000_000
LARGEST_ACCOUNT = 1_000_000
"""Characters of JSON that a backend may say of itself: its fingerprint is read for every answer, and manifests hold the rest."""
END_SECONDS = 10.0
"""What is waited for at the end of a run, which is over by then, gets so many seconds."""
BATCH_SECONDS = 60.0
"""How long the end of a run waits for a batch that is being computed, whose answers are stored: the batch may never come back."""
_TIMED, LANE, VIEWS = "vlm-timed", "vlm-lane", "vlm-views"
"""The names of threads that call a backend: under a time limit, to compute, and to prepare."""
_FACTORY = "factory"
_TRUTHS = ("counts_tokens", "answers_alone", "mixes_cells", "overlaps")
_FUNCTIONS = ("prepare", "infer_prepared", "seen_size", "check", "give_up")
_LONGEST = 500
"""Characters of what a backend raised or returned."""


class Guard:
    """The backend of one model, held to its contract; see :class:`Backend` for what its methods return.

    Each member may raise a BackendError: the backend raised, took too long, or returned what it should not.
    """

    def __init__(self, opening: Callable[[], Backend], model: str, seconds: float = 0.0) -> None:
        """Opens the backend."""
        self._model, self._seconds = model, seconds
        self.given_up = False
        """Whether a call did not return in time: a thread is still in the backend, so that nothing may touch it."""
        self._prepares: bool | None = None
        self._is_remote: bool | None = None
        self._backend = self._within(_FACTORY, "has not been opened", opening)

    # What it says of itself.

    def fingerprint(self) -> Mapping[str, Any]:
        """Returns its fingerprint, as JSON has it."""
        return self._within("fingerprint", "has not given its fingerprint", self._fingerprint)

    def describe(self) -> dict[str, Any]:
        """Returns what it says of itself, as JSON has it."""
        return self._within("describe", "has not described itself", lambda: self._account("describe", self._backend.describe()))

    @property
    def traits(self) -> Traits:
        """What it says of itself by now."""
        return self._within("traits", "has not given its traits", self._looked_at)

    @property
    def lanes(self) -> int:
        """How many calls of ``infer_prepared`` may run at the same time by now: one where it does not prepare requests."""
        return self.traits.lanes if self.prepares else 1

    @property
    def prepares(self) -> bool:
        """Whether it prepares requests."""
        if self._prepares is None:
            self._prepares = self.traits.infer_prepared is not None
        return self._prepares

    @property
    def is_remote(self) -> bool:
        """Whether its model may be exchanged for another one meanwhile; not so where it does not say its traits."""
        if self._is_remote is None:
            with contextlib.suppress(BackendError):
                self._is_remote = self.traits.check is not None
        return bool(self._is_remote)

    # What it does.

    def prepare(self, request: Request) -> Prepared:
        """Returns a request with what can be computed before the model has its turn."""
        return self._within("prepare", "has not prepared a request", lambda: self._prepared(request))

    def infer(self, requests: Sequence[Request]) -> list[Prediction]:
        """Returns one prediction per request, in order; one that breaks its contract is a failed one, see :func:`accepted`."""
        return self._answers("infer", requests, lambda: self._backend.infer(requests))

    def infer_prepared(self, prepared: Sequence[Prepared]) -> list[Prediction]:
        """Returns what ``infer`` would return for the same requests."""
        requests = [one.request for one in prepared]
        if not self.prepares:
            return self.infer(requests)
        return self._answers("infer_prepared", requests, lambda: self._call("infer_prepared", prepared))

    def seen_size(self, width: int, height: int) -> tuple[int, int] | None:
        """Returns the size at which its processor hands an image to the model; None where it does not say."""
        return self._within("seen_size", "has not given the size of an image", lambda: self._size(width, height))

    def check(self) -> str:
        """Returns why it is not sure that one model gave all answers, in words; empty where nothing says so."""
        try:
            return self._within("check", "has not said whether it changed", self._checked)
        except VlmRobustError as error:
            return str(error)

    def give_up(self) -> None:
        """Ends every inference that is waiting, as far as the backend does that within a few seconds."""
        late = "has not given up what was waiting"
        with contextlib.suppress(VlmRobustError):  # the run is over
            self._within("give_up", late, lambda: self._call("give_up"), seconds=self._seconds or END_SECONDS)

    def close(self) -> None:
        """Frees the weights; does nothing where a thread is still in the backend."""
        if not self.given_up:
            self._within("close", "has not freed its weights", self._backend.close)

    # Looking at what it returns: all of this is part of the call, for whatever was returned may be code as well.

    def _fingerprint(self) -> Mapping[str, Any]:
        found = self._account("fingerprint", self._backend.fingerprint())
        if not found:
            self._refuse("fingerprint()", found, "everything that determines an answer: else its answers are those of any model")
        return found

    def _account(self, method: str, said: object) -> dict[str, Any]:
        """Returns what a backend says of itself as JSON has it, so that nobody else can change it."""
        expected = f"a dict that is JSON, of at most {LARGEST_ACCOUNT} characters"
        if not issubclass(type(said), Mapping):
            self._refuse(f"{method}()", said, expected)
        try:
            text = canonical_json(dict(said))  # type: ignore[call-overload]  # a mapping, by its type
            text.encode()
            found = json.loads(text)
        except (TypeError, ValueError, RecursionError) as error:
            self._refuse(f"{method}()", said, f"{expected} ({_what(error)})")
        if len(text) > LARGEST_ACCOUNT:
            self._refuse(f"{method}()", said, f"{expected}, and this has {len(text)}")
        return dict(found)

    def _call(self, function: str, *arguments: Any) -> Any:
        """Returns what one of the functions among the traits returns; None where the backend does not have it."""
        call = getattr(traits_of(self._backend), function)
        return None if call is None else call(*arguments)

    def _looked_at(self) -> Traits:
        found = traits_of(self._backend)
        if type(found) is not Traits:
            self._refuse("traits", found, "a Traits")
        for name in _TRUTHS:
            if type(value := getattr(found, name)) is not bool:
                self._refuse(name, value, "True or False")
        for name in _FUNCTIONS:
            if not ((value := getattr(found, name)) is None or callable(value)):
                self._refuse(name, value, "a function, or None")
        size = None if found.batch_size is None else self._number("batch_size", found.batch_size, MOST_IN_A_BATCH)
        return dataclasses.replace(found, lanes=self._number("lanes", found.lanes, MOST_LANES), batch_size=size)

    def _number(self, trait: str, value: object, most: int) -> int:
        number = _whole(value)
        if number is None or not 1 <= number <= most:
            self._refuse(trait, value, f"a whole number of 1 to {most}")
        return number

    def _size(self, width: int, height: int) -> tuple[int, int] | None:
        found = self._call("seen_size", width, height)
        if found is None:
            return None
        edges = [_whole(edge) or 0 for edge in found] if issubclass(type(found), tuple) else []
        if len(edges) != 2 or min(edges) < 1:
            self._refuse("seen_size()", found, "a width and a height in pixels, or None")
        return edges[0], edges[1]

    def _prepared(self, request: Request) -> Prepared:
        found = self._call("prepare", request)
        if not issubclass(type(found), Prepared) or found.request is not request:
            self._refuse("prepare()", found, "a Prepared with the request that it was given")
        size = _whole(found.bytes)
        if size is None or size < 0:
            self._refuse("prepare()", found.bytes, "as bytes of a Prepared a whole number of 0 or more")
        if type(found.failure) is not str:
            self._refuse("prepare()", found.failure, "as failure of a Prepared a str")
        looked_at: Prepared = found
        return looked_at if type(found.bytes) is int else dataclasses.replace(looked_at, bytes=size)

    def _answers(self, method: str, requests: Sequence[Request], call: Callable[[], object]) -> list[Prediction]:
        late = f"has not answered a batch of {quantity(len(requests), 'request')}"
        return self._within(method, late, lambda: accepted(call(), requests, self._model))

    def _checked(self) -> str:
        found = self._call("check")
        if type(found) is not str:
            self._refuse("check()", found, "what shows that the model changed, or an empty str")
        return on_one_line(found)

    def _refuse(self, member: str, value: object, expected: str) -> NoReturn:
        verb = "returned" if member.endswith("()") else "is"
        raise BackendError(
            f"the backend of model {self._model!r} broke its contract: {member} {verb} {_shown(value)}, expected {expected}. "
            "Fix the backend"
        )

    # The limit, and the words.

    def _within(self, method: str, late: str, call: Callable[[], T], seconds: float | None = None) -> T:
        """Returns what a call of the backend does, on a thread that is left behind where it takes too long."""
        limit = self._seconds if seconds is None else seconds
        kind = ModelError if method == _FACTORY else BackendError
        if self.given_up:
            raise kind(f"{self._model} was dropped: it did not answer within --vlm-timeout={self._seconds:g} before")
        if not limit:
            return self._in_words(method, call)
        returned = Future[T]()
        work = (returned, lambda: self._in_words(method, call))
        try:
            Thread(target=_complete, args=work, name=_TIMED, daemon=True).start()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - too many threads, or the backend has exchanged their class
            raise kind(f"{self._model} cannot be asked under a time limit (--vlm-timeout): {_what(error)}") from None
        try:
            return returned.result(limit)
        except VlmRobustError:
            raise
        except TimeoutError:
            self.given_up = True
            raise kind(
                f"{self._model} {late} for {limit:g} s (--vlm-timeout), and is dropped in this process: "
                f"its {method} hangs, or takes longer"
            ) from None
        except BaseException:  # somebody ended the run: the thread is left behind likewise
            self.given_up = True
            raise

    def _in_words(self, method: str, call: Callable[[], T]) -> T:
        """Returns what a call does, or raises an error that says what the backend raised."""
        process, found, error, said = os.getpid(), list[T](), None, ""
        with _interrupts() as came:
            try:
                found.append(call())
            except BaseException as caught:  # noqa: BLE001 - whatever it is, it ends this call and nothing else
                error = caught
                # errors of this package say what to do; that a budget is spent is for the run alone to say
                kind: type = type(caught)
                is_ours = issubclass(kind, VlmRobustError) and kind.__module__ == VlmRobustError.__module__
                said = (
                    ""
                    if is_ours and kind not in {VlmRobustError, BudgetSpent} and _is_readable(caught)
                    else _what(caught) + _place(caught.__traceback__)
                )
        if os.getpid() != process:  # a process that the backend forked came back: two of them would go on with the run
            os._exit(1)
        if came:
            raise came[0]
        if error is None:
            return found[0]
        if not said:
            raise error
        words = f"the backend of model {self._model!r} raised {said} in its {method}. Fix the backend"
        raise (ModelError if method == _FACTORY else BackendError)(words)  # its cause may not even be printable


def left_behind() -> bool:
    """Returns whether a thread of this process that was to end is still in a backend."""
    return any(thread.name in (_TIMED, LANE, VIEWS) for thread in threading.enumerate())


def _complete(returned: Future[T], call: Callable[[], T]) -> None:
    try:
        returned.set_result(call())
    except BaseException as error:  # noqa: BLE001 - raised where it is waited for
        returned.set_exception(error)


@contextlib.contextmanager
def _interrupts() -> Iterator[list[BaseException]]:
    """Yields what signals raise meanwhile: an interrupt is the user's if a signal raised it, and the backend's if nothing did.

    Handlers run on the main thread alone; on any other one nothing is to be noted.
    """
    came: list[BaseException] = []
    handlers: dict[int, Callable[[int, FrameType | None], object]] = {}

    def note(number: int, frame: FrameType | None) -> None:
        try:
            handlers[number](number, frame)
        except BaseException as error:
            came.append(error)
            raise

    if threading.current_thread() is threading.main_thread():
        for name in ("SIGINT", *ENDINGS):
            number = getattr(signal, name, None)
            if number is not None and callable(handler := signal.getsignal(number)):
                handlers[number] = handler
                signal.signal(number, note)
    try:
        yield came
    finally:
        for number, handler in handlers.items():
            if signal.getsignal(number) is note:
                signal.signal(number, handler)


def _whole(value: Any) -> int | None:
    """Returns a whole number of any type, such as those of numpy, as an int; ``None`` for what is none, as truth values are."""
    if type(value) is bool:
        return None
    try:
        return int.__pos__(operator.index(value))
    except TypeError:
        return None


# What others made, in words: spelling it runs their code once more.


def _is_readable(error: BaseException | None) -> bool:
    """Returns whether an error can be spelled, and those that it came from, which pytest spells as well."""
    try:
        for _ in range(_LONGEST):
            if error is None:
                return True
            str(error)
            error = error.__cause__ or error.__context__
    except BaseException:  # noqa: BLE001 - then it is said that it cannot be read
        return False
    return False


def _what(error: BaseException) -> str:
    try:
        return on_one_line(f"{type(error).__name__}: {str.__str__(str(error))}", _LONGEST).removesuffix(":").removesuffix(": ")
    except BaseException:  # noqa: BLE001 - an error that cannot be spelled is an error all the same
        return "an error without a message that can be read"


def _place(trace: TracebackType | None) -> str:
    """Returns where an error was raised, in brackets; empty where that is here."""
    last = trace
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if last is None or last.tb_frame.f_code.co_filename == __file__:
        return ""
    return f" ({on_one_line(Path(last.tb_frame.f_code.co_filename).name, 100)}:{last.tb_lineno})"


_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = 80


def _shown(value: object) -> str:
    try:
        return f"{on_one_line(_REPR.repr(value), _LONGEST)} of type {type(value).__name__}"
    except BaseException:  # noqa: BLE001 - a value that cannot be spelled is the wrong one all the same
        return "something that cannot be shown"
