"""A backend is held to its contract in all that is asked of it: what it raises, how long it takes, what it returns."""

from __future__ import annotations

import math
import os
import signal
import threading
from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Any

import numpy as np
import pytest

from pytest_vlmrobust.backends.contract import LARGEST_ACCOUNT, Guard, Prepared, Traits, accepted
from pytest_vlmrobust.core.errors import BackendError, BudgetSpent, MissingExtra, ModelError, UsageError
from pytest_vlmrobust.core.prediction import LONGEST_TEXT, UNANSWERED, Prediction, Request
from tests.traits import own_traits

REQUEST = Request("key", (), "Which?", choices=("A", "B"))


class Good:
    """Has all that a backend may have."""

    name = "mine"
    traits = property(own_traits)
    lanes = 2
    mixes_cells = True
    overlaps = False
    batch_size = 4

    def fingerprint(self) -> Any:
        return {"version": 1}

    def describe(self) -> Any:
        return {"loaded": {"device": "cpu"}}

    def infer(self, requests: Any) -> Any:
        return [Prediction("A", "generate") for _ in requests]

    def prepare(self, request: Request) -> Any:
        return Prepared(request, inputs="ready", bytes=5)

    def infer_prepared(self, prepared: Any) -> Any:
        return self.infer(prepared)

    def seen_size(self, width: int, height: int) -> Any:
        return width // 2, height // 2

    def check(self) -> Any:
        return ""

    def give_up(self) -> Any:
        return None

    def close(self) -> Any:
        return None


CALLS: dict[str, Callable[[Guard], object]] = {
    "fingerprint": Guard.fingerprint,
    "describe": Guard.describe,
    "infer": lambda guard: guard.infer([REQUEST]),
    "prepare": lambda guard: guard.prepare(REQUEST),
    "infer_prepared": lambda guard: guard.infer_prepared([Prepared(REQUEST)]),
    "lanes": lambda guard: guard.lanes,
    "batch_size": lambda guard: guard.traits.batch_size,
    "mixes_cells": lambda guard: guard.traits.mixes_cells,
    "seen_size": lambda guard: guard.seen_size(8, 6),
    "close": Guard.close,
}
"""What is asked of a backend and raises where it cannot be had."""


def with_member(name: str, call: Callable[[], Any]) -> Any:
    """Returns a backend of which one member does something else: a property where it is one."""
    is_method = callable(getattr(Good, name))
    member: Any = (lambda *_: call()) if is_method else property(lambda _: call())
    return type("Mine", (Good,), {name: member})()


def guard(backend: Any, seconds: float = 0.0) -> Guard:
    return Guard(lambda: backend, "m", seconds)


def test_a_good_backend_is_asked_as_it_is() -> None:
    guarded = guard(Good(), 60.0)
    assert (guarded.prepares, guarded.is_remote, guarded.lanes, guarded.traits.batch_size) == (True, True, 2, 4)
    assert (guarded.traits.mixes_cells, guarded.traits.overlaps, guarded.traits.counts_tokens) == (True, False, False)
    assert guarded.fingerprint() == {"version": 1}
    assert guarded.describe() == {"loaded": {"device": "cpu"}}
    assert guarded.infer([REQUEST])[0].text == guarded.infer_prepared([guarded.prepare(REQUEST)])[0].text == "A"
    assert guarded.seen_size(8, 6) == (4, 3)
    assert guarded.check() == ""
    guarded.give_up()
    guarded.close()
    assert not guarded.given_up


def test_a_backend_need_not_have_more_than_five_members() -> None:
    class Small:
        fingerprint, describe, infer, close = Good.fingerprint, Good.describe, Good.infer, Good.close

    guarded = guard(Small())
    assert (guarded.prepares, guarded.is_remote, guarded.lanes, guarded.traits.batch_size) == (False, False, 1, None)
    assert guarded.seen_size(8, 6) is None
    assert len(guarded.infer_prepared([Prepared(REQUEST)])) == 1


class Unspeakable(BaseException):
    def __str__(self) -> str:
        raise SystemExit(0)


class Odd(BackendError):
    """Somebody's own, which is not known to be safe to show."""


def raising(error: BaseException | type[BaseException]) -> Any:
    raise error


@pytest.mark.parametrize("whole", [np.int64, np.uint8, IntEnum("Whole", {"SEVEN": 7})], ids=["int64", "uint8", "enum"])
def test_whole_numbers_of_other_types_are_taken_as_int(whole: Callable[[int], Any]) -> None:
    class Size(tuple[Any, ...]):
        """A tuple by its base, as sizes of torch are."""

        __slots__ = ()

    class Counting(Good):
        lanes = batch_size = whole(7)

        def prepare(self, request: Request) -> Any:
            return Prepared(request, inputs="ready", bytes=whole(7))

        def seen_size(self, width: int, height: int) -> Any:
            return Size((whole(7), whole(7)))

    guarded = Guard(Counting, "m")
    prepared, size = guarded.prepare(REQUEST), guarded.seen_size(8, 6)
    assert size == (7, 7)
    assert (prepared.request, prepared.inputs, prepared.bytes) == (REQUEST, "ready", 7)
    assert {type(number) for number in (guarded.lanes, guarded.traits.batch_size, prepared.bytes, *size)} == {int}


@pytest.mark.cases("seconds", [0.0, 60.0])
@pytest.mark.cases("member", CALLS)
@pytest.mark.cases(
    ("error", "said"),
    [
        (SystemExit(0), "SystemExit: 0"),
        (SystemExit(), "SystemExit"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (GeneratorExit(), "GeneratorExit"),
        (StopIteration("x"), "StopIteration: x"),
        (TimeoutError("slow"), "TimeoutError: slow"),
        (ValueError("\x1b[2J" + "x" * 10_000), r"ValueError: \x1b[2Jxxx"),
        (BudgetSpent("enough"), "BudgetSpent: enough"),
        (Odd("no weights"), "Odd: no weights"),
        (Unspeakable(), "an error without a message that can be read"),
    ],
)
def test_whatever_it_raises_is_said(member: str, error: BaseException, said: str, seconds: float) -> None:
    guarded = guard(with_member(member, lambda: raising(error)), seconds)
    with pytest.raises(BackendError) as caught:
        CALLS[member](guarded)
    assert type(caught.value) is BackendError
    text = str(caught.value)
    assert text.startswith(f"the backend of model 'm' raised {said}")
    assert f"(test_contract.py:{raising.__code__.co_firstlineno + 1}) in its " in text
    assert len(text) < 800


@pytest.mark.parametrize("error", [BackendError("no weights"), UsageError("no such device"), MissingExtra("mine", "engine")])
def test_an_error_that_says_what_to_do_stays_as_it_is(error: Exception) -> None:
    with pytest.raises(type(error)) as caught:
        guard(with_member("infer", lambda: raising(error))).infer([REQUEST])
    assert caught.value is error


@pytest.mark.cases("error", [SystemExit(0), KeyboardInterrupt(), GeneratorExit(), OSError("no"), pytest.exit.Exception("x")])
def test_what_a_factory_raises_is_an_error_of_the_user(error: BaseException) -> None:
    with pytest.raises(ModelError, match=rf"the backend of model 'm' raised {type(error).__name__}.* in its factory. Fix"):
        Guard(lambda: raising(error), "m")


def test_an_error_that_came_from_what_cannot_be_spelled_leaves_it_behind() -> None:
    error = BackendError("no weights")
    error.__cause__ = Unspeakable()
    with pytest.raises(BackendError, match="raised BackendError: no weights") as caught:
        guard(with_member("infer", lambda: raising(error))).infer([REQUEST])
    assert caught.value.__cause__ is caught.value.__context__ is None


def test_what_ends_a_run_changes_nothing_behind_the_last_answer() -> None:
    for name in ("check", "give_up"):
        guarded = guard(with_member(name, lambda: raising(SystemExit(0))))
        guarded.give_up()
        assert ("SystemExit: 0" in guarded.check()) == (name == "check")


def interrupt_and(then: Callable[[], Any]) -> Any:
    """Is interrupted by the user, and makes something else of it."""
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        return then()
    return "no interrupt came"


@pytest.mark.parametrize("then", [lambda: raising(KeyboardInterrupt), lambda: raising(SystemExit(0)), lambda: {"version": 1}])
def test_ctrl_c_ends_the_run_whatever_the_backend_makes_of_it(then: Callable[[], Any]) -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        guard(with_member("fingerprint", lambda: interrupt_and(then))).fingerprint()
    assert signal.getsignal(signal.SIGINT) is before


def test_a_signal_that_is_to_wait_does_not_end_a_call() -> None:
    noted: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _frame: noted.append(number))
    try:
        guarded = guard(with_member("give_up", lambda: signal.raise_signal(signal.SIGTERM)))
        guarded.give_up()
        assert noted == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.fixture
def never() -> Iterator[threading.Event]:
    """What a hanging call waits for, until the test is over."""
    event = threading.Event()
    yield event
    event.set()


@pytest.mark.parametrize("member", [*CALLS, "check"])
def test_what_hangs_is_left_and_not_asked_again(never: threading.Event, member: str) -> None:
    guarded = guard(with_member(member, never.wait))
    guarded._seconds = 0.2  # once it is open, which may take its time
    call = CALLS.get(member, Guard.check)
    said = ""
    try:
        said = str(call(guarded))
    except BackendError as error:
        said = str(error)
    assert "m has not " in said
    assert "for 0.2 s (--vlm-timeout), and is dropped in this process: its " in said
    assert guarded.given_up
    guarded.close()
    with pytest.raises(BackendError, match=r"m was dropped: it did not answer within --vlm-timeout=0.2 before"):
        guarded.infer([REQUEST])


def test_a_factory_that_hangs_is_left(never: threading.Event) -> None:
    with pytest.raises(ModelError, match=r"m has not been opened for 0.2 s \(--vlm-timeout\)"):
        Guard(lambda: never.wait() and Good(), "m", 0.2)  # type: ignore[arg-type, return-value]  # the point


def test_what_it_returns_is_looked_at_within_the_limit(never: threading.Event) -> None:
    class Endless(list[Any]):
        def __len__(self) -> int:
            return int(never.wait())

    guarded = guard(with_member("infer", Endless))
    guarded._seconds = 0.2
    with pytest.raises(BackendError, match=r"m has not answered a batch of 1 request for 0.2 s"):
        guarded.infer([REQUEST])


class Lying:
    @property  # type: ignore[misc]  # the point
    def __class__(self) -> Any:
        return Prepared


ACCOUNT = f"expected a dict that is JSON, of at most {LARGEST_ACCOUNT} characters"


@pytest.mark.cases(
    ("member", "value", "said"),
    [
        ("fingerprint", None, f"fingerprint() returned None of type NoneType, {ACCOUNT}"),
        ("fingerprint", "abc", f"fingerprint() returned 'abc' of type str, {ACCOUNT}"),
        ("fingerprint", {}, "fingerprint() returned {} of type dict, expected everything that determines an answer"),
        ("fingerprint", {"x": "y" * 10_000_000}, f"{ACCOUNT}, and this has 10000008"),
        ("fingerprint", {"x": float("nan")}, "Out of range float values are not JSON compliant"),
        ("fingerprint", {"x": "\udcff"}, "surrogates not allowed"),
        ("describe", None, f"describe() returned None of type NoneType, {ACCOUNT}"),
        ("describe", 5, "describe() returned 5 of type int"),
        ("describe", {"loaded": object()}, "Object of type object is not JSON serializable"),
        ("describe", {"loaded": 10**5000}, ACCOUNT),
        ("describe", {"x": "y" * 10_000_000}, f"{ACCOUNT}, and this has 10000008"),
        ("lanes", 0, "lanes is 0 of type int, expected a whole number of 1 to 4096"),
        ("lanes", -1, "lanes is -1 of type int"),
        ("lanes", True, "lanes is True of type bool"),
        ("lanes", 10**9, "lanes is 1000000000 of type int"),
        ("lanes", "2", "lanes is '2' of type str"),
        ("lanes", None, "lanes is None of type NoneType"),
        ("batch_size", 0, "batch_size is 0 of type int, expected a whole number of 1 to 1000000"),
        ("mixes_cells", 1, "mixes_cells is 1 of type int, expected True or False"),
        ("prepare", None, "prepare() returned None of type NoneType, expected a Prepared with the request that it was given"),
        ("prepare", [Prepared(REQUEST)] * 2, "prepare() returned [Prepared("),
        ("prepare", Prepared(Request("other", (), "?")), "expected a Prepared with the request that it was given"),
        ("prepare", Prepared(REQUEST, bytes=-1), "prepare() returned -1 of type int, expected as bytes of a Prepared"),
        ("prepare", Prepared(REQUEST, failure=None), "expected as failure of a Prepared a str"),  # type: ignore[arg-type]
        ("prepare", Lying(), "expected a Prepared with the request that it was given"),
        ("seen_size", (0, 4), "seen_size() returned (0, 4) of type tuple, expected a width and a height in pixels, or None"),
    ],
)
def test_what_it_should_not_return_is_refused_in_words(member: str, value: object, said: str) -> None:
    with pytest.raises(BackendError) as caught:
        CALLS[member](guard(with_member(member, lambda: value)))
    text = str(caught.value)
    assert text.startswith("the backend of model 'm' broke its contract: ")
    assert said in text
    assert len(text) < 1500


def test_what_check_returns_beside_words_is_no_proof_that_nothing_changed() -> None:
    assert (
        "check() returned 5 of type int, expected what shows that the model changed"
        in guard(with_member("check", lambda: 5)).check()
    )
    assert guard(with_member("check", lambda: "it\x1b[2J\nchanged")).check() == r"it\x1b[2J changed"


def test_control_characters_and_other_mappings_are_taken() -> None:
    from types import MappingProxyType

    assert guard(with_member("describe", lambda: MappingProxyType({"x": ("\x1b", 1)}))).describe() == {"x": ["\x1b", 1]}


@pytest.mark.parametrize("function", ["check", "give_up", "prepare", "infer_prepared"])
def test_half_of_a_pair_of_functions_is_refused(function: str) -> None:
    with pytest.raises(BackendError, match=f"traits with one of .*'{function}'.*: a backend has both or neither"):
        Traits(**{function: lambda *_: None})  # type: ignore[arg-type]  # the point


def test_one_that_says_yes_to_everything_is_refused() -> None:
    class Yes:
        def __getattr__(self, name: str) -> Any:
            return lambda *_: {}

    with pytest.raises(BackendError, match=r"traits is <function .* expected a Traits"):
        assert guard(Yes()).traits.answers_alone


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
def test_a_process_that_it_forked_does_not_go_on_with_the_run() -> None:
    reading, writing = os.pipe()
    children: list[int] = []

    def forking() -> dict[str, int]:
        children.append(os.fork())
        return {"version": 1}

    assert guard(with_member("fingerprint", forking)).fingerprint() == {"version": 1}
    if not children[0]:
        os.write(writing, b"went on")
        os._exit(0)
    os.close(writing)
    assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 1
    assert os.read(reading, 10) == b""
    os.close(reading)


@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), SystemExit(0)])
def test_a_thread_that_cannot_be_started_is_an_error_in_words(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    guarded = guard(Good(), 60.0)
    monkeypatch.setattr(threading.Thread, "start", lambda _thread: raising(error))
    with pytest.raises(BackendError, match=rf"m cannot be asked under a time limit .--vlm-timeout.: {type(error).__name__}"):
        guarded.infer([REQUEST])


@pytest.mark.cases(
    ("prediction", "problem"),
    [
        (None, "a NoneType in place of a Prediction"),
        ("B", "a str in place of a Prediction"),
        (Prediction(5, "generate"), "a text that is no str"),  # type: ignore[arg-type]  # the point
        (Prediction("x" * (LONGEST_TEXT + 1), "generate"), f"a text of {LONGEST_TEXT + 1} characters"),
        (Prediction("B", "guess"), "the method 'guess', expected one of generate, sample, letter_logits"),
        (Prediction("B", "generate", "done"), "the finish reason 'done', expected one of stop, length, error, refusal"),
        (Prediction("B", "letter_logits", logprobs={"A": -1.0, "B": math.nan}), "the log-probability nan of 'B'"),
        (Prediction("B", "letter_logits", logprobs={"A": -math.inf, "B": -math.inf}), "log-probabilities that are all -inf"),
        (Prediction("B", "generate", logprobs={"A": math.nan}), "the log-probability nan of 'A'"),
        (Prediction("B", "letter_logits", logprobs={"B": 3.5}), "the log-probability 3.5 of 'B', expected a number of 0 or less"),
        (Prediction("B", "letter_logits", logprobs={"B": "-1"}), "the log-probability '-1' of 'B'"),  # type: ignore[dict-item]
        (Prediction("B", "letter_logits", logprobs={"E": -1.0}), "a log-probability of 'E', which is none of the choices A, B"),
        (Prediction("B", "letter_logits", logprobs=[-1.0]), "log-probabilities that are no mapping"),  # type: ignore[arg-type]
        (Prediction("B", "letter_logits", logprobs={"A": -0.1, "B": -2.0}), "the letter 'B', and its log-probabilities are"),
        (Prediction("B", "generate", details={"x": [1]}), "the detail 'x': [1], expected a short text or a number"),  # type: ignore[dict-item]
        (
            Prediction("B", "generate", details={"x": 10**5000}),
            "the detail 'x', a number of 16610 bits, expected one below 2**63",
        ),
        (Prediction("B", "generate", details={"x": "y" * 5000}), "expected a short text or a number"),
        (Prediction("B", "generate", details={str(n): n for n in range(5000)}), "5000 details, and at most 1000"),
    ],
)
def test_what_breaks_the_contract_is_an_error_of_that_request_alone(prediction: Any, problem: str) -> None:
    good = Prediction("A", "generate")
    first, broken, last = accepted([good, prediction, good], [REQUEST] * 3, "mine")
    assert first is last is good
    assert broken.finish_reason == "error"
    assert broken.error.startswith("the backend of model 'mine' broke its contract: it returned ")
    assert problem in broken.error
    assert len(broken.error) < 500


@pytest.mark.cases(
    "prediction",
    [
        Prediction("B", "letter_logits", logprobs={"A": -math.inf, "B": np.float32(-0.25)}),  # type: ignore[dict-item]
        Prediction("B", "letter_logits", logprobs={"A": -2.0, "B": -2.0}),
        Prediction("A", "letter_logits", logprobs={"A": 1e-6, "B": -20.0}),
        *(Prediction("", "letter_logits", reason) for reason in UNANSWERED),
        Prediction("half", "generate", "length", details={"tokens": 7, "size": "2x2"}),
        Prediction("", "generate", "error", error="out of memory"),
    ],
)
def test_what_keeps_the_contract_is_taken_as_it_is(prediction: Prediction) -> None:
    assert accepted([prediction], [REQUEST], "mine") == [prediction]


@pytest.mark.parametrize(("answers", "said"), [([], "0 answers"), (None, "a NoneType"), (iter([1]), "a list_iterator")])
def test_answers_that_belong_to_no_request_are_refused(answers: object, said: str) -> None:
    with pytest.raises(BackendError, match=f"the backend of model 'mine' returned {said} to 1 requests"):
        accepted(answers, [REQUEST], "mine")
