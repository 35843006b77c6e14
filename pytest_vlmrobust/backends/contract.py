"""Contract: what a backend offers the evaluation, and the guard that checks every backend against it.

A run calls a backend only through :class:`Guard`. Each call ends within the time limit of the run; whatever it raises becomes
an error that names model and method; and what it returns is checked before it is used.
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

AUTO, START = "auto", 16
"""The batch size that is chosen by timing, and its first value."""
ATTENTION = ("auto", "sdpa", "eager", "flash_attention_2")
IMAGE_BACKENDS = ("pil", "torchvision")
FAST, LIBRARY = "fast", "library"
PREPROCESSING = (FAST, LIBRARY)
"""Values of ``--vlm-preprocessing``."""

DEVICE = re.compile(r"(auto|cpu|mps|cuda(:\d+)?)\Z")


class Backend(Protocol):
    """One model that answers requests: five members, and optional ``traits``."""

    @property
    def name(self) -> str:
        """The model's short name in test ids."""
        ...

    def fingerprint(self) -> Mapping[str, Any]:
        """Returns everything that determines an answer, JSON-safe, without loading weights.

        Raises:
            BackendError: the model's files are absent, incomplete or unreachable.
        """
        ...

    def describe(self) -> dict[str, Any]:
        """Returns the model's entry in the manifest of a run, JSON-safe; it has more after the first inference."""
        ...

    def infer(self, requests: Sequence[Request]) -> list[Prediction]:
        """Returns one prediction per request, in order; never called twice at the same time.

        A request that fails yields a prediction with ``finish_reason`` ``"error"``; it is never dropped and affects no other. The
        text of a ``"letter_logits"`` prediction is the letter with the highest logprob. A prediction that breaks these rules, see
        :func:`accepted`, counts as a request that failed.

        Raises:
            BackendError: the model does not load or was lost, so that no request can be answered.
        """
        ...

    def close(self) -> None:
        """Frees the weights; closing twice does nothing, and a later inference loads them again."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A request after the work that needs no weights."""

    request: Request
    inputs: Any = None
    """The prepared inputs; None if the backend prepares only whole batches."""
    bytes: int = 0
    """Memory that ``inputs`` take."""
    failure: str = ""
    """Why the request cannot be sent to the model; empty if it can."""


@dataclass(frozen=True, slots=True)
class Traits:
    """What a backend can do beyond the five members of :class:`Backend`, and how it is best called."""

    counts_tokens: bool = False
    """``details`` of its answers hold ``prompt_tokens`` and ``completion_tokens``."""
    answers_alone: bool = False
    """Each request is computed alone and gives the same answer each time. Other backends repeat a few questions as a check."""
    mixes_cells: bool = False
    """An answer does not depend on the rest of its batch, except for float32 rounding."""
    overlaps: bool = False
    """``lanes + 1`` calls are useful: one batch is prepared while the others are computed."""
    lanes: int = 1
    """How many calls of ``infer_prepared`` may run at the same time, each on a thread of its own."""
    batch_size: int | None = None
    """Requests per call; None for the batch size of the run."""
    prepare: Callable[[Request], Prepared] | None = None
    """Does the work that needs no weights; thread-safe. Goes with ``infer_prepared``."""
    infer_prepared: Callable[[Sequence[Prepared]], list[Prediction]] | None = None
    """Returns what ``infer`` would return for the same requests."""
    seen_size: Callable[[int, int], tuple[int, int] | None] | None = None
    """The image size after the processor, by width and height before it."""
    check: Callable[[], str] | None = None
    """Returns, after the last answer, the sign that more than one model answered, in words; empty without a sign.

    For a remote model, which may be exchanged during the run. Goes with ``give_up``."""
    give_up: Callable[[], object] | None = None
    """Ends every waiting inference with an error for its caller; no new request is sent until the backend is closed."""

    def __post_init__(self) -> None:
        for first, second in (("prepare", "infer_prepared"), ("check", "give_up")):
            if (getattr(self, first) is None) != (getattr(self, second) is None):
                raise BackendError(f"traits with one of {first!r} and {second!r}: a backend has both or neither. Fix the backend")


def traits_of(backend: object) -> Traits:
    """Returns the traits of a backend; the defaults of :class:`Traits` if it has none."""
    traits: Traits = getattr(backend, "traits", Traits())
    return traits


@dataclass(frozen=True, slots=True)
class AnswerKey:
    """The samples of a run, with their targets."""

    samples: Callable[[str], Sequence[Sample]]
    """Dataset name in test ids to its samples."""
    digest: Callable[[], str]
    """Changes whenever a sample or its target may have changed."""
    question: Callable[[Sample, str], Sample] = lambda sample, _setting: sample
    """``(sample, setting) -> the sample as it is asked under the setting``."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A Ray cluster, and what each actor on it takes."""

    address: str = ""
    """Empty: the cluster of ``RAY_ADDRESS``, else one running on this machine, else a new one."""
    actors: int = 0
    """0 for as many as fit on the nodes."""
    cpus: int = 1
    gpus: float = 1.0
    """Reserved only if the device is a GPU; a number below 1 lets actors share a GPU."""


@dataclass(frozen=True, slots=True)
class BackendOptions:
    """Where and how to infer, as the user chose it. The model itself is in the ModelRef."""

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
    """``fast`` or ``library``: both give the same bits. Only some families have ``fast``."""
    offline: bool = False
    """Never reach for the hub; local files only."""
    digest_cache: Path | None = None
    """JSON file that caches the digests of checkpoint files; None hashes every time."""
    servers: Path | None = None
    """Folder that keeps facts about served models; None keeps them only in this process."""
    digests_of: str = ""
    """Only digests that this run cached are used, so that each run hashes once; empty uses those of any run."""
    notice: Callable[[str], None] = lambda _text: None
    """Called with what the user should know about how the model runs, such as a shared device."""
    cluster: Cluster | None = None
    """Where weights run; None for this process. Ignored for served and scripted models."""
    answers: AnswerKey | None = None
    """The questions with their targets, for scripted models that declare an accuracy. No other backend may read it."""

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


def _one_of(what: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise UsageError(f"{what} {value!r}: expected one of {', '.join(choices)}.{did_you_mean(value, choices)}")


# What a backend returns is checked against its contract on arrival: a broken answer gets no score, from any backend.


LARGEST_DETAILS = 1000
"""Entries of ``details``, and characters of each of its texts."""
LARGEST_NUMBER = 2**63
"""Upper limit of whole numbers in ``details``: token counts are summed, and JSON writes them out."""
_ROUNDING = 1e-3
"""By how much a log-probability may exceed 0."""
_ENDS = ("stop", "length", "error", *UNANSWERED)


def accepted(predictions: object, requests: Sequence[Request], model: str) -> list[Prediction]:
    """Returns the answers of a backend; each answer that breaks the contract is replaced by a failed prediction."""
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
    """Returns in words what is wrong with a prediction; empty if nothing is."""
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
        if isinstance(value, int) and abs(value) >= LARGEST_NUMBER:  # Python may refuse to print its digits
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
"""Characters of JSON in a fingerprint or description of a backend: the fingerprint is read for every answer."""
END_SECONDS = 10.0
"""Seconds that the end of a run waits for a call."""
BATCH_SECONDS = 60.0
"""Seconds that the end of a run waits for a batch in progress, to store its answers; the batch may never return."""
_TIMED, LANE, VIEWS = "vlm-timed", "vlm-lane", "vlm-views"
"""Names of the threads that call a backend: with a time limit, to compute, and to prepare."""
_FACTORY = "factory"
_TRUTHS = ("counts_tokens", "answers_alone", "mixes_cells", "overlaps")
_FUNCTIONS = ("prepare", "infer_prepared", "seen_size", "check", "give_up")
_LONGEST = 500
"""Characters of an error or a value of a backend in messages."""


class Guard:
    """The backend of one model, checked against its contract; :class:`Backend` says what its methods return.

    Each member may raise a BackendError: the backend raised, took too long, or returned what it should not.
    """

    def __init__(self, opening: Callable[[], Backend], model: str, seconds: float = 0.0) -> None:
        """Opens the backend."""
        self._model, self._seconds = model, seconds
        self.given_up = False
        """Whether a call did not return in time. A thread is then still inside the backend, so nothing may touch it."""
        self._prepares: bool | None = None
        self._is_remote: bool | None = None
        self._backend = self._within(_FACTORY, "has not been opened", opening)

    # Identity and traits.

    def fingerprint(self) -> Mapping[str, Any]:
        """Returns its fingerprint as plain JSON values."""
        return self._within("fingerprint", "has not given its fingerprint", self._fingerprint)

    def describe(self) -> dict[str, Any]:
        """Returns its description as plain JSON values."""
        return self._within("describe", "has not described itself", lambda: self._account("describe", self._backend.describe()))

    @property
    def traits(self) -> Traits:
        """Its current traits."""
        return self._within("traits", "has not given its traits", self._looked_at)

    @property
    def lanes(self) -> int:
        """How many calls of ``infer_prepared`` may run at the same time now; 1 if it does not prepare requests."""
        return self.traits.lanes if self.prepares else 1

    @property
    def prepares(self) -> bool:
        """Whether it prepares requests."""
        if self._prepares is None:
            self._prepares = self.traits.infer_prepared is not None
        return self._prepares

    @property
    def is_remote(self) -> bool:
        """Whether its model may be exchanged during the run; False if its traits cannot be read."""
        if self._is_remote is None:
            with contextlib.suppress(BackendError):
                self._is_remote = self.traits.check is not None
        return bool(self._is_remote)

    # Calls.

    def prepare(self, request: Request) -> Prepared:
        """Returns a request with everything that can be computed before the model runs."""
        return self._within("prepare", "has not prepared a request", lambda: self._prepared(request))

    def infer(self, requests: Sequence[Request]) -> list[Prediction]:
        """Returns one prediction per request, in order, each checked by :func:`accepted`."""
        return self._answers("infer", requests, lambda: self._backend.infer(requests))

    def infer_prepared(self, prepared: Sequence[Prepared]) -> list[Prediction]:
        """Returns what ``infer`` would return for the same requests."""
        requests = [item.request for item in prepared]
        if not self.prepares:
            return self.infer(requests)
        return self._answers("infer_prepared", requests, lambda: self._call("infer_prepared", prepared))

    def seen_size(self, width: int, height: int) -> tuple[int, int] | None:
        """Returns the size of an image after the processor; None if unknown."""
        return self._within("seen_size", "has not given the size of an image", lambda: self._size(width, height))

    def check(self) -> str:
        """Returns in words why one model may not have given all answers; empty without a reason."""
        try:
            return self._within("check", "has not said whether it changed", self._checked)
        except VlmRobustError as error:
            return str(error)

    def give_up(self) -> None:
        """Ends every waiting inference, if the backend manages that within a few seconds."""
        late = "has not given up what was waiting"
        with contextlib.suppress(VlmRobustError):  # the run is over
            self._within("give_up", late, lambda: self._call("give_up"), seconds=self._seconds or END_SECONDS)

    def close(self) -> None:
        """Frees the weights; does nothing while a thread is still inside the backend."""
        if not self.given_up:
            self._within("close", "has not freed its weights", self._backend.close)

    # Checks of returned values. They are part of the call, because a returned value may run code of the backend too.

    def _fingerprint(self) -> Mapping[str, Any]:
        facts = self._account("fingerprint", self._backend.fingerprint())
        if not facts:
            self._refuse("fingerprint()", facts, "everything that determines an answer: else its answers are those of any model")
        return facts

    def _account(self, method: str, mapping: object) -> dict[str, Any]:
        """Returns a mapping of the backend as a copy in plain JSON values, which the backend cannot change later."""
        expected = f"a dict that is JSON, of at most {LARGEST_ACCOUNT} characters"
        if not issubclass(type(mapping), Mapping):
            self._refuse(f"{method}()", mapping, expected)
        try:
            text = canonical_json(dict(mapping))  # type: ignore[call-overload]  # a mapping, by its type
            text.encode()
            account = json.loads(text)
        except (TypeError, ValueError, RecursionError) as error:
            self._refuse(f"{method}()", mapping, f"{expected} ({_what(error)})")
        if len(text) > LARGEST_ACCOUNT:
            self._refuse(f"{method}()", mapping, f"{expected}, and this has {len(text)}")
        return dict(account)

    def _call(self, function: str, *arguments: Any) -> Any:
        """Calls one of the functions among the traits; returns None if the backend lacks it."""
        call = getattr(traits_of(self._backend), function)
        return None if call is None else call(*arguments)

    def _looked_at(self) -> Traits:
        traits = traits_of(self._backend)
        if type(traits) is not Traits:
            self._refuse("traits", traits, "a Traits")
        for name in _TRUTHS:
            if type(value := getattr(traits, name)) is not bool:
                self._refuse(name, value, "True or False")
        for name in _FUNCTIONS:
            if not ((value := getattr(traits, name)) is None or callable(value)):
                self._refuse(name, value, "a function, or None")
        size = None if traits.batch_size is None else self._number("batch_size", traits.batch_size, MOST_IN_A_BATCH)
        return dataclasses.replace(traits, lanes=self._number("lanes", traits.lanes, MOST_LANES), batch_size=size)

    def _number(self, trait: str, value: object, most: int) -> int:
        number = _whole(value)
        if number is None or not 1 <= number <= most:
            self._refuse(trait, value, f"a whole number of 1 to {most}")
        return number

    def _size(self, width: int, height: int) -> tuple[int, int] | None:
        size = self._call("seen_size", width, height)
        if size is None:
            return None
        edges = [_whole(edge) or 0 for edge in size] if issubclass(type(size), tuple) else []
        if len(edges) != 2 or min(edges) < 1:
            self._refuse("seen_size()", size, "a width and a height in pixels, or None")
        return edges[0], edges[1]

    def _prepared(self, request: Request) -> Prepared:
        result = self._call("prepare", request)
        if not issubclass(type(result), Prepared) or result.request is not request:
            self._refuse("prepare()", result, "a Prepared with the request that it was given")
        size = _whole(result.bytes)
        if size is None or size < 0:
            self._refuse("prepare()", result.bytes, "as bytes of a Prepared a whole number of 0 or more")
        if type(result.failure) is not str:
            self._refuse("prepare()", result.failure, "as failure of a Prepared a str")
        prepared: Prepared = result
        return prepared if type(result.bytes) is int else dataclasses.replace(prepared, bytes=size)

    def _answers(self, method: str, requests: Sequence[Request], call: Callable[[], object]) -> list[Prediction]:
        late = f"has not answered a batch of {quantity(len(requests), 'request')}"
        return self._within(method, late, lambda: accepted(call(), requests, self._model))

    def _checked(self) -> str:
        change = self._call("check")
        if type(change) is not str:
            self._refuse("check()", change, "what shows that the model changed, or an empty str")
        return on_one_line(change)

    def _refuse(self, member: str, value: object, expected: str) -> NoReturn:
        verb = "returned" if member.endswith("()") else "is"
        raise BackendError(
            f"the backend of model {self._model!r} broke its contract: {member} {verb} {_shown(value)}, expected {expected}. "
            "Fix the backend"
        )

    # Time limit and error messages.

    def _within(self, method: str, late: str, call: Callable[[], T], seconds: float | None = None) -> T:
        """Runs a call of the backend on a thread, which is abandoned if it takes too long."""
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
        except (Exception, SystemExit) as error:  # noqa: BLE001 - too many threads, or a backend replaced the class
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
        except BaseException:  # the run was ended: the thread is abandoned too
            self.given_up = True
            raise

    def _in_words(self, method: str, call: Callable[[], T]) -> T:
        """Returns the result of a call, or raises an error that says what the backend raised."""
        process, results, error, raised = os.getpid(), list[T](), None, ""
        with _interrupts() as came:
            try:
                results.append(call())
            except BaseException as caught:  # noqa: BLE001 - any error ends this call only
                error = caught
                # errors of this package say what to do; only the run itself may say that a budget is spent
                kind: type = type(caught)
                is_ours = issubclass(kind, VlmRobustError) and kind.__module__ == VlmRobustError.__module__
                raised = (
                    ""
                    if is_ours and kind not in {VlmRobustError, BudgetSpent} and _is_readable(caught)
                    else _what(caught) + _place(caught.__traceback__)
                )
        if os.getpid() != process:  # a process that the backend forked returned here: two processes would go on with the run
            os._exit(1)
        if came:
            raise came[0]
        if error is None:
            return results[0]
        if not raised:
            raise error
        words = f"the backend of model {self._model!r} raised {raised} in its {method}. Fix the backend"
        raise (ModelError if method == _FACTORY else BackendError)(words)  # its cause may not be printable


def left_behind() -> bool:
    """Returns whether an abandoned thread of this process is still inside a backend."""
    return any(thread.name in (_TIMED, LANE, VIEWS) for thread in threading.enumerate())


def _complete(returned: Future[T], call: Callable[[], T]) -> None:
    try:
        returned.set_result(call())
    except BaseException as error:  # noqa: BLE001 - the waiting thread raises it
        returned.set_exception(error)


@contextlib.contextmanager
def _interrupts() -> Iterator[list[BaseException]]:
    """Yields the errors raised by signals during the block: only an interrupt from a signal is the user's.

    Signal handlers run only on the main thread; on other threads the list stays empty.
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
    """Returns a whole number of any type, such as NumPy's, as an int; None for anything else, booleans included."""
    if type(value) is bool:
        return None
    try:
        return int.__pos__(operator.index(value))
    except TypeError:
        return None


# Foreign values in words: printing them runs foreign code again.


def _is_readable(error: BaseException | None) -> bool:
    """Returns whether an error and its causes can be printed; pytest prints the causes too."""
    try:
        for _ in range(_LONGEST):
            if error is None:
                return True
            str(error)
            error = error.__cause__ or error.__context__
    except BaseException:  # noqa: BLE001 - the caller reports an unreadable error
        return False
    return False


def _what(error: BaseException) -> str:
    try:
        return on_one_line(f"{type(error).__name__}: {str.__str__(str(error))}", _LONGEST).removesuffix(":").removesuffix(": ")
    except BaseException:  # noqa: BLE001 - its message fails to print, but it is still an error
        return "an error without a message that can be read"


def _place(trace: TracebackType | None) -> str:
    """Returns the place where an error was raised, in brackets; empty if it was raised here."""
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
    except BaseException:  # noqa: BLE001 - the value fails to print, but it is still wrong
        return "something that cannot be shown"
