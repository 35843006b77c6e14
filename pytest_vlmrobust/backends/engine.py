"""ChatBackend: a backend on top of any engine that completes OpenAI chat bodies."""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from pytest_vlmrobust.core.errors import BackendError, OfflineError, VlmRobustError
from pytest_vlmrobust.core.fingerprint import derive_seed, fingerprint
from pytest_vlmrobust.core.prediction import LETTER_LOGITS, ModelRef, Prediction, Request

from .chat import (
    ControlTokens,
    Malformed,
    NoLogprobs,
    letter_prediction,
    letters_body,
    malformed,
    messages_of,
    text_body,
    text_prediction,
    with_system_prompt,
)
from .contract import BackendOptions, Traits, failed_prediction
from .generation import TEXT_INSTEAD, generation_for, scores_letters
from .identity import control_tokens_of, identity_of
from .served import ServerRecord, ServerRecords, Witness, first_token

ENCODING_VERSION = 1
"""Increased when this package changes how it writes a request or reads a reply; older predictions are then not reused."""
LETTERS, TEXT = "letters", "text"
T = TypeVar("T")


class ChatBackend:
    """A model whose engine completes chat bodies.

    A subclass implements :meth:`complete` and, if its engine holds resources, :meth:`close`. Positions of images, control
    tokens, letters, seeds, malformed and failing requests are handled here.
    """

    version: Any = None
    """Anything else that determines answers, such as the version of the engine."""

    def __init__(self, ref: ModelRef, options: BackendOptions) -> None:
        self.ref, self.options = ref, options
        self._generation = generation_for(ref)
        self._looking = threading.RLock()
        self._answer = ""
        self._control: ControlTokens | None = None

    @property
    def name(self) -> str:
        """The model's short name."""
        return self.ref.name

    @property
    def traits(self) -> Traits:
        """The defaults; a subclass whose replies all have ``usage`` sets ``traits = Traits(counts_tokens=True)``."""
        return Traits()

    def complete(self, bodies: Sequence[Mapping[str, Any]]) -> Sequence[Any]:
        """Returns the reply to each chat completion body, in order, as JSON or as an object of the OpenAI client.

        A body has ``messages``, ``max_tokens``, ``temperature`` and optionally ``top_p``, ``top_k``,
        ``repetition_penalty``, ``seed``, ``logprobs`` and ``top_logprobs``. An exception means that a request failed, found by
        sending smaller batches; a BackendError ends all tests of this model.
        """
        raise NotImplementedError

    def control_tokens(self) -> Iterable[str]:
        """Returns the strings that the engine reads as commands; by default the special tokens of the checkpoint's tokenizer."""
        return control_tokens_of(self.ref.location, self.ref.revision)

    def fingerprint(self) -> Mapping[str, Any]:
        """Returns how the model is called; :func:`open_backend` adds the identity of its weights."""
        answer = {"encoding": ENCODING_VERSION, "answer": self.answer_method()}
        return {"backend": self.ref.backend, **({"version": self.version} if self.version else {}), **answer}

    def describe(self) -> dict[str, Any]:
        """Returns what the manifest says about this model."""
        return {"name": self.name, "model": dataclasses.asdict(self.ref), "fingerprint": dict(self.fingerprint())}

    def infer(self, requests: Sequence[Request]) -> list[Prediction]:
        """Returns one prediction per request, in order; see :class:`Backend`."""
        problems = [malformed(request) for request in requests]
        methods = [self.method_of(request) for request in requests]
        valid = [place for place, problem in enumerate(problems) if not problem]
        answers = [failed_prediction(problem, method) for problem, method in zip(problems, methods, strict=True)]
        texts = {place: self._text(requests[place].text) for place in valid}
        bodies = [
            self.body(messages_of(dataclasses.replace(requests[place], text=texts[place][0])), requests[place], methods[place])
            for place in valid
        ]
        for place, reply in zip(valid, self._replies(bodies), strict=True):
            answers[place] = self._prediction(reply, requests[place], methods[place], texts[place][1])
        return answers

    def close(self) -> None:
        """Frees what the engine holds."""

    # Writing a request and reading its reply.

    def body(self, messages: Sequence[Mapping[str, Any]], request: Request, method: str) -> dict[str, Any]:
        """Returns the body that asks a request by a method."""
        if method == LETTER_LOGITS:
            return letters_body(messages)
        seed = derive_seed(self._generation.seed, request.key) % 2**31
        return text_body(messages, limit=request.max_new_tokens, generation=self._generation, seed=seed)

    def read(self, reply: Any, request: Request, method: str) -> Prediction:
        """Returns the prediction in a reply."""
        return letter_prediction(reply, request.choices) if method == LETTER_LOGITS else text_prediction(reply, method)

    def method_of(self, request: Request) -> str:
        """Returns the method by which a request is answered."""
        answer = self.answer_method() if request.choices else TEXT
        if answer != TEXT:
            return LETTER_LOGITS if answer == LETTERS else answer
        return "sample" if self._generation.samples else "generate"

    def answer_method(self) -> str:
        """Returns how choices are answered, the same for all runs of a store: by letters if answers begin with a letter."""
        with self._looking:
            self._answer = self._answer or self._method()
        return self._answer

    def _method(self) -> str:
        """Returns how choices are answered, as the store remembers it; the model is asked only if it does not."""
        if not scores_letters(self.ref):
            return TEXT
        if self.ref.answer:
            return self.ref.answer
        stored = self._memory.read()
        if stored is None and self.options.offline:
            raise OfflineError(
                f"model {self.name!r}: this store does not remember whether {self.ref.location} gives the log-probabilities "
                "of letters, and --vlm-offline forbids asking. Say in a models file by which method its answers were made "
                "(answer: letters, or answer: text), or run once without --vlm-offline"
            )
        stored = stored or self._first_seen()
        return LETTERS if stored and stored.letters else (stored and stored.constraint) or TEXT

    @functools.cached_property
    def _memory(self) -> ServerRecords:
        return ServerRecords(self.options.servers, self._identity())

    def _identity(self) -> dict[str, Any]:
        """Returns the key under which facts about this model are stored."""
        engine = {"backend": self.ref.backend, "version": self.version}
        return {"sha256": fingerprint({"engine": engine, "model": identity_of(self.ref, self.options)})}

    def _first_seen(self) -> ServerRecord | None:
        """Asks the model for the first time; returns what the store then remembers."""
        begins = _run(first_token(Witness(self._answer_to, self.ref.framed)))
        if begins.token is not None and not begins.is_letter:
            self.options.notice(f"model {self.name!r} {begins.problem}: choices are answered by {TEXT}")
        return self._memory.add(ServerRecord(self._identity(), letters=begins.is_letter, logprobs=begins.token is not None))

    async def _answer_to(self, body: Mapping[str, Any]) -> Any:
        (reply,) = self._replies([body])
        if isinstance(reply, Exception):
            raise BackendError(f"model {self.name!r} does not answer a question about an image: {_words(reply)}") from reply
        return reply

    def _text(self, text: str) -> tuple[str, int]:
        if self._control is None:
            self._control = ControlTokens(self.control_tokens())
        return self._control.broken(text)

    def _replies(self, bodies: Sequence[Mapping[str, Any]]) -> list[Any]:
        """Returns the reply to each body, or its exception; a failing batch is retried by halves."""
        if not bodies:
            return []
        try:
            replies = list(self.complete([with_system_prompt(body, self.ref.system_prompt) for body in bodies]))
        except VlmRobustError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever the engine raises is about one of these requests
            if len(bodies) == 1:
                return [error]
            middle = len(bodies) // 2
            return [*self._replies(bodies[:middle]), *self._replies(bodies[middle:])]
        if len(replies) != len(bodies):
            raise BackendError(f"model {self.name!r}: complete() returned {len(replies)} replies to {len(bodies)} bodies. Fix it")
        return [reply.model_dump() if hasattr(reply, "model_dump") else reply for reply in replies]

    def _prediction(self, reply: Any, request: Request, method: str, broken: int) -> Prediction:
        if isinstance(reply, Exception):
            return failed_prediction(_words(reply), method)
        try:
            answer = self.read(reply, request, method)
        except Malformed as error:
            return failed_prediction(f"the engine gave {error}", method)
        except NoLogprobs:
            return failed_prediction(f"the engine gave no log-probabilities of letters. {TEXT_INSTEAD}", method)
        details = {**answer.details, **({"control_tokens_broken": broken} if broken else {})}
        return dataclasses.replace(answer, details=details)


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".removesuffix(": ")


def _run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Returns the result of a coroutine that never waits, even if an event loop is already running."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise RuntimeError("a question to an engine in this process waited for something")
