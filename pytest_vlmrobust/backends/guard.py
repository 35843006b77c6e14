"""Guard: a backend that is held to its contract in everything that is asked of it, whoever wrote it.

A run reaches the members of a backend here and nowhere else. Each call ends within the time limit of the run; whatever it raises
becomes an error in words that names model and method; and what it returns is looked at before anything relies on it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import operator
import os
import reprlib
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from threading import Thread
from types import FrameType, TracebackType
from typing import Any, NoReturn, TypeVar

from pytest_vlmrobust.core.decision import ENDINGS
from pytest_vlmrobust.core.errors import (
    BackendError,
    DatasetError,
    ImageError,
    InfrastructureError,
    MissingExtra,
    ModelError,
    OfflineError,
    PolicyError,
    SettingError,
    StoreError,
    UnknownName,
    UsageError,
    VlmRobustError,
)
from pytest_vlmrobust.core.fingerprint import canonical_json
from pytest_vlmrobust.core.prediction import Prediction, Request
from pytest_vlmrobust.core.words import on_one_line, quantity

from .protocol import Backend, Prepared, PreparingBackend, RemoteBackend, accepted

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
_LONGEST = 500
"""Characters of what a backend raised or returned."""
_OURS = {
    *(InfrastructureError, BackendError, ImageError, OfflineError, StoreError, MissingExtra),
    *(UsageError, UnknownName, SettingError, DatasetError, PolicyError, ModelError),
}
"""What a backend may raise as it is: errors that say what to do. ``BudgetSpent`` is for the run alone to say."""


class Guard:
    """The backend of one model, held to its contract; see :class:`Backend` for what its methods return."""

    def __init__(self, opening: Callable[[], Backend], model: str, seconds: float = 0.0) -> None:
        """Opens the backend.

        Args:
            opening: what opens it.
            model: the model's name in test ids, for messages.
            seconds: what each call may take; 0 for any time.

        Raises:
            ModelError: ``opening`` raises what is no error of ours, or does not return in time.
            BackendError: what it opened is a :class:`RemoteBackend` by half.
            UsageError: it says that the backend cannot be opened as it was asked for.
            MissingExtra: what the backend needs is not installed.
        """
        self._model, self._seconds = model, seconds
        self.given_up = False
        """Whether a call did not return in time: a thread is still in the backend, so that nothing may touch it."""
        self._prepares: bool | None = None
        self._is_remote: bool | None = None
        self._backend = self._within(_FACTORY, "has not been opened", opening)
        _ = self.is_remote

    # What it says of itself.

    def fingerprint(self) -> Mapping[str, Any]:
        """Returns its fingerprint, as JSON has it.

        Raises:
            BackendError: there is none, or nothing that could be part of a key.
        """
        return self._within("fingerprint", "has not given its fingerprint", self._fingerprint)

    def describe(self) -> dict[str, Any]:
        """Returns what it says of itself, as JSON has it.

        Raises:
            BackendError: that is nothing that could be written down.
        """
        return self._within("describe", "has not described itself", lambda: self._account("describe", self._backend.describe()))

    def says(self, trait: str) -> bool:
        """Returns what an attribute such as ``counts_tokens`` says, which is false where there is none.

        Raises:
            BackendError: it is neither true nor false.
        """
        return self._within(trait, f"has not given its {trait}", lambda: self._truth(trait))

    @property
    def batch_size(self) -> int | None:
        """How many requests it takes at a time, as far as it says so by now.

        Raises:
            BackendError: it says what is no such number.
        """
        return self._within("batch_size", "has not given its batch_size", lambda: self._number("batch_size", MOST_IN_A_BATCH))

    @property
    def lanes(self) -> int:
        """How many calls of ``infer_prepared`` may run at the same time by now: one where it does not prepare requests.

        Raises:
            BackendError: it says what is no such number.
        """
        if not self.prepares:
            return 1
        return self._within("lanes", "has not given its lanes", lambda: self._number("lanes", MOST_LANES)) or 1

    @property
    def prepares(self) -> bool:
        """Whether it prepares requests.

        Raises:
            BackendError: it does so by half.
        """
        if self._prepares is None:
            names = ("infer_prepared", "prepare", "lanes", "mixes_cells")
            self._prepares = self._is(PreparingBackend, names, by=("infer_prepared",))
        return self._prepares

    @property
    def is_remote(self) -> bool:
        """Whether its model may be exchanged for another one meanwhile.

        Raises:
            BackendError: it says so by half.
        """
        if self._is_remote is None:
            names = ("check", "give_up")
            self._is_remote = self._is(RemoteBackend, names, by=names)
        return self._is_remote

    # What it does.

    def prepare(self, request: Request) -> Prepared:
        """Returns a request with what can be computed before the model has its turn.

        Raises:
            BackendError: it cannot be prepared.
        """
        return self._within("prepare", "has not prepared a request", lambda: self._prepared(request))

    def infer(self, requests: Sequence[Request]) -> list[Prediction]:
        """Returns one prediction per request, in order; one that breaks its contract is a failed one, see :func:`accepted`.

        Raises:
            BackendError: the model is lost, or nobody knows which prediction is whose.
        """
        return self._answers("infer", requests, lambda: self._backend.infer(requests))

    def infer_prepared(self, prepared: Sequence[Prepared]) -> list[Prediction]:
        """Returns what ``infer`` would return for the same requests.

        Raises:
            BackendError: as ``infer``.
        """
        requests = [one.request for one in prepared]
        if not self.prepares:
            return self.infer(requests)
        backend: Any = self._backend
        return self._answers("infer_prepared", requests, lambda: backend.infer_prepared(prepared))

    def seen_size(self, width: int, height: int) -> tuple[int, int] | None:
        """Returns the size at which its processor hands a picture to the model; None where it does not say.

        Raises:
            BackendError: it says what is no size.
        """
        return self._within("seen_size", "has not given the size of a picture", lambda: self._size(width, height))

    def check(self) -> str:
        """Returns why it is not sure that one model gave all answers, in words; empty where nothing says so."""
        try:
            return self._within("check", "has not said whether it changed", self._checked)
        except VlmRobustError as error:
            return str(error)

    def give_up(self) -> None:
        """Ends every inference that is waiting, as far as the backend does that within a few seconds."""
        backend: Any = self._backend
        with contextlib.suppress(VlmRobustError):  # the run is over
            self._within("give_up", "has not given up what was waiting", backend.give_up, seconds=self._seconds or END_SECONDS)

    def close(self) -> None:
        """Frees the weights; does nothing where a thread is still in the backend.

        Raises:
            BackendError: it does not.
        """
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

    def _truth(self, trait: str) -> bool:
        value = getattr(self._backend, trait, False)
        if type(value) is not bool:
            self._refuse(trait, value, "True or False")
        return value

    def _number(self, trait: str, most: int) -> int | None:
        value = getattr(self._backend, trait, None)
        if value is None and trait == "batch_size":
            return None
        number = _whole(value)
        if number is None or not 1 <= number <= most:
            self._refuse(trait, value, f"a whole number of 1 to {most}")
        return number

    def _size(self, width: int, height: int) -> tuple[int, int] | None:
        ask = getattr(self._backend, "seen_size", None)  # a backend without a processor of its own has none
        found = ask(width, height) if callable(ask) else None
        if found is None:
            return None
        edges = [_whole(edge) or 0 for edge in found] if issubclass(type(found), tuple) else []
        if len(edges) != 2 or min(edges) < 1:
            self._refuse("seen_size()", found, "a width and a height in pixels, or None")
        return edges[0], edges[1]

    def _prepared(self, request: Request) -> Prepared:
        backend: Any = self._backend
        found = backend.prepare(request)
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
        backend: Any = self._backend
        found = backend.check()
        if type(found) is not str:
            self._refuse("check()", found, "what shows that the model changed, or an empty str")
        return on_one_line(found)

    def _is(self, kind: type, names: Sequence[str], *, by: Sequence[str]) -> bool:
        """Returns whether the backend is of a kind that has all of these members, and is meant to be by some of them."""
        lacking = [
            name for name in names if not self._within(name, f"has not given its {name}", partial(_has, self._backend, name))
        ]
        meant = [name for name in by if name not in lacking]
        if lacking and meant:
            self._refuse_half(meant[0], lacking[0], kind)
        return not lacking

    def _refuse_half(self, has: str, lacks: str, kind: type) -> NoReturn:
        raise BackendError(
            f"the backend of model {self._model!r} has {has!r} and no {lacks!r}: a {kind.__name__} has both, and any "
            "other backend has neither. Fix the backend"
        )

    def _refuse(self, member: str, value: object, expected: str) -> NoReturn:
        verb = "returned" if member.endswith("()") else "is"
        raise BackendError(
            f"the backend of model {self._model!r} broke its contract: {member} {verb} {_shown(value)}, expected {expected}. "
            "Fix the backend"
        )

    # The limit, and the words.

    def _within(self, method: str, late: str, call: Callable[[], T], seconds: float | None = None) -> T:
        """Returns what a call of the backend does, on a thread that is left behind where it takes too long.

        Args:
            method: whose call it is.
            late: what the model has not done then, behind its name.
            call: what calls it.
            seconds: what it may take; by default as long as any other call.

        Raises:
            BackendError: it raises, or does not return within the time limit, now or before; ModelError of a factory.
            KeyboardInterrupt: somebody ended the run meanwhile.
        """
        limit = self._seconds if seconds is None else seconds
        kind = ModelError if method == _FACTORY else BackendError
        if self.given_up:
            raise kind(f"{self._model} is not asked any more: it did not answer within --vlm-timeout={self._seconds:g} before")
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
                f"{self._model} {late} for {limit:g} s (--vlm-timeout), and is not asked any more in this process: "
                f"its {method} hangs, or takes longer"
            ) from None
        except BaseException:  # somebody ended the run: the thread is left behind likewise
            self.given_up = True
            raise

    def _in_words(self, method: str, call: Callable[[], T]) -> T:
        """Returns what a call does, or raises an error that says what the backend raised.

        Raises:
            BackendError: it raised what is no error of ours, or ModelError where it is a factory.
            KeyboardInterrupt: a signal came meanwhile that ends the run, whatever the backend made of it.
        """
        process, found, error, said = os.getpid(), list[T](), None, ""
        with _interrupts() as came:
            try:
                found.append(call())
            except BaseException as caught:  # noqa: BLE001 - whatever it is, it ends this call and nothing else
                error = caught
                said = "" if type(caught) in _OURS and _is_readable(caught) else _what(caught) + _place(caught.__traceback__)
        if os.getpid() != process:  # a process that the backend forked came back: two of them would go on with the run
            os._exit(1)
        if came:
            raise came[0]
        if error is None:
            return found[0]
        if not said:
            raise error
        kind = ModelError if method == _FACTORY else BackendError
        raise kind(
            f"the backend of model {self._model!r} raised {said} in its {method}. Fix the backend"
        )  # whose cause may not even be printable


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


def _has(backend: object, name: str) -> bool:
    try:
        getattr(backend, name)
    except AttributeError:
        return False
    return True


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
    """Returns the kind of an error with its message, on one line."""
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
    """Returns a value, shortened, on one line."""
    try:
        return f"{on_one_line(_REPR.repr(value), _LONGEST)} of type {type(value).__name__}"
    except BaseException:  # noqa: BLE001 - a value that cannot be spelled is the wrong one all the same
        return "something that cannot be shown"
