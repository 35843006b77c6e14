"""The backend for OpenAI-compatible servers: vLLM, SGLang, ``transformers serve``, cloud APIs."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import importlib.util
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from typing import Any

from pytest_vlmrobust.core.errors import BackendError, MissingExtra
from pytest_vlmrobust.core.prediction import LOGIT_BIAS, STRUCTURED_CHOICE, ModelRef, Prediction, Request
from pytest_vlmrobust.core.words import on_one_line

from .chat import TEXT_ELSEWHERE, UNKNOWN_END, UNUSABLE_COUNTS, Malformed, NoLogprobs, malformed, messages_of
from .client import LEARNED, TEMPERATURE, Client, Filtered
from .contract import BackendOptions, Prepared, Traits, failed_prediction
from .engine import ENCODING_VERSION, LETTERS, TEXT, ChatBackend
from .generation import NO_TEMPERATURE, TEXT_INSTEAD, LetterTokens, letters_of, scores_letters
from .identity import control_tokens_of, decoding_of
from .replicas import START, Failure, Replica, Replicas
from .served import (
    OFFERED,
    FirstToken,
    Served,
    ServerRecord,
    Unconstrained,
    Witness,
    biased_body,
    constrained_prediction,
    constraint_of,
    differing,
    first_answers,
    first_token,
    health_check,
    structured_body,
)

TIME_LIMIT = 120.0
"""Default time limit of a request in seconds."""
_CONSTRAINTS = (STRUCTURED_CHOICE, LOGIT_BIAS)
_SHOWN = 80
_GIVEN_UP = "the run ended while it was asked"
_ODDITIES = {
    UNUSABLE_COUNTS: "sends unusable numbers of tokens ({}): they are taken as not known",
    UNKNOWN_END: "ends answers with the unknown finish_reason {!r}: what they say is taken as whole answers",
    TEXT_ELSEWHERE: "sends answers without content, and the text is in the field {}. Such answers are not read. Start the server "
    "without its reasoning parser, or with thinking turned off",
}
"""The notice for each detail when a server first sends it."""


class OpenAIBackend(ChatBackend):
    """One model on one server or several replicas."""

    def __init__(self, ref: ModelRef, options: BackendOptions) -> None:
        """Opens nothing yet."""
        super().__init__(ref, options)
        self._served = Served.of(ref.location)
        self._limit = ref.time_limit or TIME_LIMIT
        self._opening = threading.RLock()
        self._fingerprint: dict[str, Any] | None = None
        self._replicas: Replicas[Client] | None = None
        self._tokenizing = threading.Lock()
        self._tokenizer: tuple[Any, str] | None = None
        self._letters: dict[tuple[str, ...], LetterTokens] = {}
        self._answered: dict[str, int] = {}
        self._odd: set[tuple[str, str]] = set()
        """Pairs of server and detail that had a notice already."""
        self._given_up = False
        self._opened = False
        """Whether the replicas were checked and at least one is usable."""
        self._refused: dict[str, str] = {}
        """Why servers are never used again; closing keeps this."""
        if not options.offline and importlib.util.find_spec("openai") is None:
            raise MissingExtra("asking a server", "openai", extra="openai")

    _has_declared_urls = True
    """Whether the user declared the URLs, so that a change deserves a notice."""

    @property
    def _urls(self) -> tuple[str, ...]:
        return self._served.urls

    def _origin(self) -> dict[str, Any]:
        return self._served.identity(self.ref.revision)

    def _identity(self) -> dict[str, Any]:
        free = {"temperature": NO_TEMPERATURE} if self._generation.temperature is None else {}
        return {**self._origin(), **self.ref.deployment, **free}

    def _ref_for(self, url: str) -> ModelRef:  # noqa: ARG002 - for a server that is started here
        return self.ref

    @property
    def traits(self) -> Traits:
        """Its traits; a batch is one request."""
        return Traits(
            counts_tokens=True,
            mixes_cells=True,
            lanes=self.lanes,
            batch_size=1,
            prepare=self.prepare,
            infer_prepared=self.infer_prepared,
            check=self.check,
            give_up=self.give_up,
        )

    @property
    def lanes(self) -> int:
        """How many requests may be in flight now: it grows with answers and is halved when servers are overloaded."""
        replicas = self._replicas
        return START if replicas is None else replicas.window

    def fingerprint(self) -> Mapping[str, Any]:
        """Returns what determines an answer and can be known outside the server.

        The server is contacted only if the store does not hold its answer method.
        """
        with self._opening:
            if self._fingerprint is None:
                self._refuse_changed()
                ref = self.ref
                self._fingerprint = {
                    "backend": ref.backend,
                    "encoding": ENCODING_VERSION,
                    **self._origin(),
                    **ref.deployment,
                    "dtype": ref.dtype,
                    "images": {"format": "png", "min_pixels": ref.min_pixels, "max_pixels": ref.max_pixels},
                    "decoding": decoding_of(self.ref),
                    "answer": self._method(),
                }
            return self._fingerprint

    def describe(self) -> dict[str, Any]:
        """Returns the model's entry in the manifest; facts seen during inference are under ``loaded``."""
        described = {"name": self.name, "model": dataclasses.asdict(self.ref), "fingerprint": dict(self.fingerprint())}
        seen, replicas = self._memory.read(), self._replicas
        if seen is None or replicas is None:
            return described
        servers = {
            replica.url: {"answers": replica.answers, "failures": replica.failures, "window": replica.window.size}
            for replica in replicas.all
        }
        loaded = {"engine": seen.engine, "answer": self._method(), "witnesses": len(seen.witnesses), "servers": servers}
        if learned := sorted(set().union(*(replica.client.learned for replica in replicas.all))):
            loaded["learned"] = {fact: LEARNED[fact] for fact in learned}
        return {**described, "loaded": loaded}

    def infer(self, requests: Sequence[Request]) -> list[Prediction]:
        """Returns one prediction per request, in order; see :class:`Backend`.

        A request with ``choices`` is answered by the most probable letter if the server begins its answers with letters and
        gives their log-probabilities. Else it is constrained to a letter, or answers with text. All requests use one method.
        """
        return self.infer_prepared([self.prepare(request) for request in requests])

    def prepare(self, request: Request) -> Prepared:
        """Returns a request with its images encoded."""
        if why := malformed(request):
            return Prepared(request, failure=why)
        messages = messages_of(dataclasses.replace(request, text=self._text(request.text)[0]))
        sizes = (len(part.get("text", "")) + len(part.get("image_url", {}).get("url", "")) for part in messages[0]["content"])
        return Prepared(request, messages, bytes=sum(sizes))

    def infer_prepared(self, prepared: Sequence[Prepared]) -> list[Prediction]:
        """Returns what ``infer`` would return for the same requests; any number of threads may call it at once."""
        if not prepared:
            return []
        replicas = self._ready()
        answers = [failed_prediction(item.failure, self.method_of(item.request)) for item in prepared]
        calls = {
            place: replicas.submit(functools.partial(self._predicted, item, answers[place].method), item.request.key)
            for place, item in enumerate(prepared)
            if not item.failure
        }
        lost: list[BackendError] = []
        try:
            for place, call in calls.items():
                try:
                    with self._naming():
                        answers[place] = call.result()
                except (Failure, BackendError) as error:
                    answers[place] = failed_prediction(str(error), answers[place].method)
                    lost += [error] if isinstance(error, BackendError) else []
        except BaseException:
            for call in calls.values():
                call.cancel()
            raise
        if lost and all(answer.finish_reason == "error" for answer in answers):  # else answers from before the loss are kept
            raise lost[0]
        return answers

    def check(self) -> str:
        """Repeats the fixed questions; see :class:`Traits`."""
        try:
            stored = self._memory.read()
            if stored is None or (stored.checked and not self._answered):
                return ""
            if self.options.offline:
                return self._unchecked("this run is offline, and the one that asked last did not look")
            problems = self._ready().run(self._check_all(stored))
        except BackendError as error:
            return self._unchecked(str(error))
        if not problems:
            self._memory.note(checked=True)
        return "; ".join(problems)

    def give_up(self) -> None:
        """Ends every request that is in flight; see :class:`Traits`."""
        self._given_up = True
        if (replicas := self._replicas) is not None:
            replicas.give_up()

    def close(self) -> None:
        """Closes the connections; closing twice does nothing, and a later inference opens them again."""
        with self._opening:
            replicas, self._replicas, self._opened, self._given_up = self._replicas, None, False, False
        if replicas is not None:
            self._refused = {replica.url: replica.refused for replica in replicas.all}
            replicas.close(Client.close)

    # Facts about the model.

    def _first_seen(self) -> ServerRecord | None:
        self._ready()
        return self._memory.read()

    def _tokens(self, choices: tuple[str, ...]) -> LetterTokens | None:
        """Returns the tokens that begin each choice; None if no tokenizer is declared."""
        if not self.ref.tokenizer:
            return None
        with self._tokenizing:
            if self._tokenizer is None:
                from .loading import ModelSource, load_tokenizer, quiet

                with quiet():
                    self._tokenizer = load_tokenizer(ModelSource(self.ref.tokenizer, offline=self.options.offline))
            if choices not in self._letters:
                self._letters[choices] = letters_of(*self._tokenizer, choices)
            return self._letters[choices]

    def _refuse_changed(self) -> None:
        stored = self._memory.read()
        if stored is not None and stored.changed:
            raise BackendError(
                f"model {self.name!r}: answers of two models are in the store under this name, for the server changed its model "
                f"while it was asked ({stored.changed}). {self._advice()}"
            )

    def _advice(self) -> str:
        return (
            f"Declare what it runs now as another revision (openai:{self._served.location}@REVISION, or 'revision' in the models "
            f"file); if you know that nothing changed, remove {self._memory}"
        )

    # Servers.

    def _ready(self) -> Replicas[Client]:
        """Returns the replicas after checking each one that can be reached."""
        with self._opening:
            if self._given_up:
                raise BackendError(f"model {self.name!r}: {_GIVEN_UP}")
            with self._naming():
                replicas = self._replicas or self._connected()
                if not self._opened:  # does not wait again for servers that were lost at an earlier check
                    replicas.run(replicas.open())
                    self._opened = True
            return replicas

    def _connected(self) -> Replicas[Client]:
        servers = [Replica(url, self._client(url), refused=self._refused.get(url, "")) for url in self._urls]
        self._replicas = replicas = Replicas(
            servers,
            self._admit,
            health_check=lambda replica: health_check(self._witness(replica)),
            limit=self._limit,
            notice=self._notice,
        )
        if self._given_up:  # it was given up while the client was being imported
            replicas.give_up()
        return replicas

    def _client(self, url: str) -> Client:
        stored = self._memory.read()
        learned = stored.learned if stored else ()
        for fact in learned:
            self._note_learned(url, fact)
        return Client(url, self._ref_for(url), limit=self._limit, learned=learned, learn=lambda fact: self._learned(url, fact))

    def _learned(self, url: str, fact: str) -> None:
        self._note_learned(url, fact)
        if stored := self._memory.read():  # the first check has nothing to read yet, and stores this itself
            self._memory.note(learned=tuple(dict.fromkeys((*stored.learned, fact))))

    def _note_learned(self, url: str, fact: str) -> None:
        if fact == TEMPERATURE:
            self._notice(f"{url} {LEARNED[fact]}")

    async def _admit(self, replica: Replica[Client]) -> None:
        """Checks that a server is usable and still has the model that the store knows."""
        stored = self._memory.read()
        if stored is not None and self._method() == LOGIT_BIAS and not self.ref.tokenizer:
            raise BackendError(
                f"the answers that the store has from {replica.url} are by {LOGIT_BIAS}, which needs the tokenizer. "
                "Name it in the models file as before (tokenizer: PATH), or write answer: text"
            )
        if stored is None:
            stored = self._memory.add(await self._first_look(replica))
        elif problem := await self._difference(replica, stored):
            if replica.url in self._answered and not replica.answers:  # it answered before this backend was closed
                self._memory.note(changed=problem)
            raise BackendError(f"{problem}. {self._advice()}")
        if self._wants_letters(stored) and not stored.logprobs:
            raise BackendError(
                f"{replica.url} gives no log-probabilities, and choices are to be answered by letters. {TEXT_INSTEAD}; or start "
                "the server so that it gives them"
            )
        if replica.url not in stored.urls:
            others = [url for url in stored.urls if url not in self._served.urls] if self._has_declared_urls else []
            if others:
                self._notice(
                    f"answers that the store has from {', '.join(others)} count for {replica.url} as well, for both were said "
                    "to run the same revision. To compare two servers, declare two"
                )
            self._memory.note(urls=(*stored.urls, replica.url))

    def _wants_letters(self, stored: ServerRecord) -> bool:
        return scores_letters(self.ref) and (self.ref.answer or (LETTERS if stored.letters else TEXT)) == LETTERS

    async def _first_look(self, replica: Replica[Client]) -> ServerRecord:
        witness = self._witness(replica, self._limit)
        begins = await first_token(witness)
        thinks = self.ref.reasoning_effort not in ("", "none")
        kept = not begins.is_letter and not begins.is_prose and not thinks
        constraint = await constraint_of(witness, self._tokens(OFFERED)) if kept else ""
        self._note_first_token(replica.url, begins, constraint)
        answers, problem = await first_answers(witness)
        if problem:
            self._notice(f"{replica.url} {problem}, so that a change of its model in the middle of a run would not be noticed")
        return ServerRecord(
            identity=self._identity(),
            letters=begins.is_letter,
            logprobs=begins.token is not None,
            constraint=constraint,
            engine=await replica.client.engine(),
            witnesses=answers,
            urls=(replica.url,),
            learned=tuple(sorted(replica.client.learned)),
        )

    def _note_first_token(self, url: str, begins: FirstToken, constraint: str) -> None:
        """Tells the user how choices are answered if log-probabilities exist but not for letters."""
        if begins.token is None or begins.is_letter or not scores_letters(self.ref) or self.ref.answer == TEXT:
            return
        if self.ref.answer == LETTERS:
            self._notice(f"{url} {begins.problem}: answers by letters may be wrong. Write answer: text, or leave it out")
        else:
            self._notice(f"{url} {begins.problem}: choices are answered by {constraint or TEXT}")

    async def _difference(self, replica: Replica[Client], stored: ServerRecord) -> str:
        """Returns in words the sign that a server has another model than the stored one; empty without a sign."""
        witness = self._witness(replica, self._limit)
        engine = await replica.client.engine()
        if engine and stored.engine and engine != stored.engine:
            return f"{replica.url} is an engine {engine!r}, and the answers that the store has are by {stored.engine!r}"
        if self._wants_letters(stored) and (problem := await self._without_letters(witness, stored)):
            return f"{replica.url} {problem}"
        if self._method() in _CONSTRAINTS and await constraint_of(witness, self._tokens(OFFERED)) != stored.constraint:
            return f"{replica.url} is no longer kept to letters by {stored.constraint}, as when this store first asked it"
        if change := await differing(witness, stored.witnesses):
            question, then, now = change
            return f"{replica.url} answers {question!r} with {now!r}, and with {then!r} when this store first asked it"
        return ""

    async def _without_letters(self, witness: Witness, stored: ServerRecord) -> str:
        """Returns why choices can no longer be answered by letters, to follow the name of the server; empty if they can."""
        begins = await first_token(witness)
        if stored.letters and begins.token is not None and not begins.is_letter:
            begins = await first_token(witness)  # batches of changing sizes may give two different answers
        if begins.token is None:
            return "gives no log-probabilities, and gave them when this store first asked it"
        if stored.letters and not begins.is_letter:
            return f"{begins.problem}, and the answers that the store has are by letters"
        return ""

    async def _check_all(self, stored: ServerRecord) -> list[str]:
        """Returns a sentence for each server that answered and changed, or could not be checked."""
        replicas = [r for r in (self._replicas.all if self._replicas else ()) if r.answers or r.url in self._answered]
        return [problem for problem in await asyncio.gather(*(self._change(r, stored) for r in replicas)) if problem]

    async def _change(self, replica: Replica[Client], stored: ServerRecord) -> str:
        """Returns what changed about a server that answered, or why that is unknown; empty if nothing changed."""
        if replica.refused:
            return self._unchecked(replica.refused)
        try:
            problem = await self._difference(replica, stored)
        except (Failure, BackendError) as failure:
            return self._unchecked(f"{replica.url}: {failure}")
        if not problem:
            return ""
        self._memory.note(changed=problem)
        return f"the server of {self.name} changed its model while it was asked: {problem}. {self._advice()}"

    def _unchecked(self, why: str) -> str:
        return f"it is not known whether {self.name} was the same model to the end: {why}. Run again where it can be asked"

    def _witness(self, replica: Replica[Client], limit: float | None = None) -> Witness:
        return Witness(replica.client.call, self.ref.framed, replica.url, limit)

    # Requests.

    @contextlib.contextmanager
    def _naming(self) -> Iterator[None]:
        try:
            yield
        except BackendError as error:
            raise BackendError(f"model {self.name!r}: {error}") from None
        except CancelledError:
            if not self._given_up:
                raise
            raise BackendError(f"model {self.name!r}: {_GIVEN_UP}") from None

    def _notice(self, text: str) -> None:
        self.options.notice(f"model {self.name!r}: {text}")

    def _note_oddities(self, url: str, prediction: Prediction) -> None:
        """Tells the user once per server what is odd about its replies."""
        for name, words in _ODDITIES.items():
            if name in prediction.details and (url, name) not in self._odd:
                self._odd.add((url, name))
                self._notice(f"{url} {words.format(prediction.details[name])}")

    async def _predicted(self, prepared: Prepared, method: str, replica: Replica[Client]) -> Prediction:
        request = prepared.request
        if not self._answered:
            self._memory.note(checked=False)
        try:
            reply = await replica.client.call(self.body(prepared.inputs, request, method))
            prediction = self.read(reply, request, method)
        except Filtered as filtered:
            prediction = Prediction("", method, "content_filter", details={"server_says": filtered.reason})
        except Malformed as error:
            raise Failure("faulty", f"{replica.url} sent {error}") from None
        except NoLogprobs:
            raise Failure(
                "refused",
                f"{replica.url} sent no log-probabilities, by which all choices of this run are answered. Check whether it was "
                "restarted with other settings",
            ) from None
        except Unconstrained as error:
            raise Failure(
                "refused",
                f"{replica.url} answered {on_one_line(str(error), _SHOWN)!r}, none of the choices that it was kept to when it "
                "was first asked. Check whether it was restarted with other settings",
            ) from None
        self._note_oddities(replica.url, prediction)
        self._answered[replica.url] = self._answered.get(replica.url, 0) + 1
        sampled = prediction.method == "generate" and TEMPERATURE in replica.client.learned  # it refuses a temperature of 0
        details = {**prediction.details, "server": replica.url}
        return dataclasses.replace(prediction, method="sample" if sampled else prediction.method, details=details)

    def body(self, messages: Sequence[Mapping[str, Any]], request: Request, method: str) -> dict[str, Any]:
        """Returns the arguments of the call for a request."""
        if method == STRUCTURED_CHOICE:
            return structured_body(messages, request.choices, request.max_new_tokens)
        if method != LOGIT_BIAS:
            return super().body(messages, request, method)
        tokens = self._tokens(request.choices)
        if tokens is None or tokens.reason:
            raise Failure("refused", f"no bias tells the choices apart: {tokens.reason if tokens else 'no tokenizer'}")
        return biased_body(messages, tokens.ids)

    def read(self, reply: Any, request: Request, method: str) -> Prediction:
        """Returns the prediction in a reply."""
        if method not in _CONSTRAINTS:
            return super().read(reply, request, method)
        return constrained_prediction(reply, request.choices, method)

    def answer_method(self) -> str:
        """Returns how choices are answered, for the fingerprint."""
        return str(self.fingerprint()["answer"])

    def control_tokens(self) -> Iterable[str]:
        """Returns the special tokens of the declared tokenizer; empty if none is declared."""
        return control_tokens_of(self.ref.tokenizer) if self.ref.tokenizer else ()
