"""Probing: finds out what a model can do with a few questions about drawn images, before it is gated."""

from __future__ import annotations

import asyncio
import math
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust.core.errors import BackendError, UnknownName
from pytest_vlmrobust.core.prediction import ANSWERS, LOGIT_BIAS, STRUCTURED_CHOICE, ModelRef, Prediction, Request, token_count
from pytest_vlmrobust.core.words import first_few

from .chat import Malformed, messages_of, reply_text, text_body
from .client import LEARNED, Client
from .contract import BackendOptions, Guard
from .generation import LetterTokens, generation_for, letters_of
from .openai import TIME_LIMIT
from .replicas import Failure, within
from .resolve import open_backend
from .served import LETTERS_QUESTION, OFFERED, Served, Witness, first_token, obeys

LETTERS, TEXT = ANSWERS
WAYS = (LETTERS, STRUCTURED_CHOICE, LOGIT_BIAS, TEXT)
"""How a served model may answer a choice, in order of preference."""

SIDES = (224, 448)
"""Side lengths in pixels of the images whose tokens are counted."""
_RED, _BLUE = (200, 30, 30), (30, 60, 200)
_QUESTION = (
    "Which colour is most of the picture?\nA. red\nB. green\nC. blue\nD. white\n"
    "Respond with only the letter of the correct option."
)
_OPEN = "Describe this picture."
_TOKENS = 16
_ROUNDING = 1e-3
"""Tolerance for log-probabilities of the same answer."""
_TIMED = 3
"""Number of sequential requests; their median is the latency."""
_AT_ONCE = 16
_NOT_FOUND = "status 404"
_WRITES = "not tried: it writes before it answers"
_CHEAP = 2.0
"""Slower requests are not sent in parallel: the result is not worth the wait."""


@dataclass(frozen=True, slots=True)
class ServerProbe:
    """The abilities of one server."""

    url: str
    problem: str = ""
    """Why the server is unusable; empty if it is usable."""
    engine: str = ""
    """The server's name for the owner of the model; empty if it gives none."""
    models: tuple[str, ...] = ()
    """The models it lists; many servers have no list."""
    learned: tuple[str, ...] = ()
    """Parameters that it refuses and their replacement, in words."""
    ways: Mapping[str, str] = field(default_factory=dict)
    """Each of ``WAYS`` with the reason why it fails; empty if it works."""


@dataclass(frozen=True, slots=True)
class ModelProbe:
    """The result of probing a model."""

    model: str
    backend: str
    revision: str = ""
    """The declared revision, or the commit from the hub."""
    problem: str = ""
    """Why it cannot be gated; empty if it can."""
    deployment: Mapping[str, Any] = field(default_factory=dict)
    """What the models file adds to every question."""
    servers: tuple[ServerProbe, ...] = ()
    answer: str = ""
    """Which of ``WAYS`` is used for choices."""
    pictures: bool | None = None
    """Whether images reach the model; None if not tested."""
    evidence: str = ""
    """The evidence for that, in words."""
    picture_tokens: Mapping[str, int] = field(default_factory=dict)
    """Tokens that one image adds to a prompt, by WIDTHxHEIGHT; empty if tokens are not counted."""
    first_seconds: float | None = None
    """Time to the first answer, including connecting and loading weights."""
    latency_seconds: float | None = None
    """Median time of a few sequential requests."""
    at_once: int = 0
    """Requests sent in parallel; 0 if a request takes too long for that."""
    at_once_seconds: float | None = None
    at_once_failed: int = 0

    @property
    def usable(self) -> bool:
        """Whether it can be gated."""
        return not self.problem


def probe(ref: ModelRef, options: BackendOptions) -> ModelProbe:
    """Probes a model: loads its weights or contacts its servers."""
    backend = Guard(lambda: open_backend(ref, options), ref.name)
    servers: tuple[ServerProbe, ...] = ()
    seen = partial(ModelProbe, ref.name, ref.backend, ref.revision, deployment=ref.deployment)
    try:
        if ref.backend == "openai":
            servers = asyncio.run(_servers(ref))
            _refuse_unknown(ref, servers)
            if all(server.problem for server in servers):
                return seen(problem="no server answers questions about images", servers=servers)
        return seen(servers=servers, **_answers(backend, ref))
    except BackendError as error:
        return seen(problem=str(error), servers=servers)
    finally:
        backend.close()


# Servers, each by itself.


async def _servers(ref: ModelRef) -> tuple[ServerProbe, ...]:
    served = Served.of(ref.location)
    tokens, lacking = None, "no tokenizer is declared (tokenizer: in a models file)"
    if ref.tokenizer:
        from .loading import ModelSource, load_tokenizer, quiet

        with quiet():
            tokens = letters_of(*load_tokenizer(ModelSource(ref.tokenizer)), OFFERED)
        tokens, lacking = (None, tokens.reason) if tokens.reason else (tokens, "")
    limit = ref.time_limit or TIME_LIMIT
    clients = [Client(url, ref, limit=limit) for url in served.urls]
    return tuple([await _server(client, ref, limit, tokens, lacking) for client in clients])


async def _server(client: Client, ref: ModelRef, limit: float, tokens: LetterTokens | None, lacking: str) -> ServerProbe:
    ask, model = Witness(client.call, ref.framed, client.url, limit), Served.of(ref.location).model
    listed = await client.models()
    engine, models = listed.get(model, ""), tuple(listed)
    try:
        if problem := await _problem(client, limit, ask):
            return ServerProbe(client.url, problem, engine, models)
        begins = await first_token(ask)
        ways = {LETTERS: begins.problem and f"it {begins.problem}", STRUCTURED_CHOICE: _WRITES, LOGIT_BIAS: lacking, TEXT: ""}
        if begins.is_prose:
            ways[LOGIT_BIAS] = _WRITES
        else:
            ways[STRUCTURED_CHOICE] = "" if await obeys(ask) else "it does not keep to a schema"
            if tokens is not None:
                ways[LOGIT_BIAS] = "" if await obeys(ask, tokens) else "it does not follow a bias"
        return ServerProbe(client.url, "", engine, models, tuple(LEARNED[fact] for fact in sorted(client.learned)), ways)
    except (Failure, BackendError) as error:
        return ServerProbe(client.url, str(error), engine, models)
    finally:
        await client.close()


async def _problem(client: Client, limit: float, ask: Witness) -> str:
    """Returns why a server does not answer a question about an image; empty if it does."""
    about_picture = ask.messages(LETTERS_QUESTION)
    without = messages_of(Request(key="", images=(), text=ask.frame(LETTERS_QUESTION)))
    problem = ""
    for messages in (about_picture, without):
        try:
            reply_text(await within(limit, client.call(text_body(messages, limit=_TOKENS))))
        except (Failure, Malformed) as error:
            if isinstance(error, Failure) and error.kind != "refused":
                return str(error)
            problem = problem or (f"{client.url} sent {error}" if isinstance(error, Malformed) else str(error))
        except BackendError as error:
            return str(error)
        else:
            return problem and f"it answers without an image, and not with one: {problem}"
    return problem


def _refuse_unknown(ref: ModelRef, servers: Sequence[ServerProbe]) -> None:
    """Raises UnknownName if no server has the model and those with a list do not list it."""
    model = Served.of(ref.location).model
    listing = [server for server in servers if server.models]
    if listing and all(_NOT_FOUND in server.problem and model not in server.models for server in listing):
        models = {name for server in listing for name in server.models}
        raise UnknownName("model", model, models, where=first_few([server.url for server in listing]))


# Answers, of any backend.


def _answers(backend: Guard, ref: ModelRef) -> dict[str, Any]:
    limit, whole = _TOKENS, generation_for(ref).max_new_tokens

    def ask(key: str, *images: NDArray[np.uint8], choices: tuple[str, ...] = OFFERED) -> Prediction:
        """Returns the answer to a single request, because rounding depends on the rest of a batch."""
        nonlocal limit
        (answer,) = backend.infer([request(key, *images, choices=choices)])
        if answer.finish_reason == "length" and not answer.text.strip():
            if limit >= whole:
                raise BackendError(
                    f"the model writes no answer within {limit:,} tokens: it may reason for longer. Raise generation: "
                    "max_new_tokens in its entry of the models file"
                )
            limit = whole  # it reasons before it answers
            return ask(key, *images, choices=choices)
        if answer.finish_reason == "error":
            question = ref.framed(_QUESTION if choices else _OPEN).splitlines()[0]
            raise BackendError(f"the model does not answer {question!r}: {answer.error}")
        return answer

    def request(key: str, *images: NDArray[np.uint8], choices: tuple[str, ...] = OFFERED) -> Request:
        text, setting = ref.framed(_QUESTION if choices else _OPEN), "clean" if images else "no_image"
        return Request(f"probe-{key}", images, text, choices, limit, "probe", setting, "probe")

    def seconds(key: str) -> float:
        began = time.perf_counter()
        ask(key, red)
        return time.perf_counter() - began

    small, large = SIDES
    red, blue = _plain(_RED, small), _plain(_BLUE, small)
    y, x = np.mgrid[:small, :small] // 28
    checks = np.repeat((((x + y) % 2) * 255).astype(np.uint8)[..., np.newaxis], 3, axis=2)
    began = time.perf_counter()
    first = ask("first", red)
    first_seconds = time.perf_counter() - began
    again, others = ask("again", red), [ask("blue", blue), ask("checks", checks)]
    counts = {
        answer: token_count(prediction.details.get("prompt_tokens"))
        for answer, prediction in (
            ("none", ask("none")),
            (f"{small}x{small}", first),
            (f"{large}x{large}", ask("large", _plain(_RED, large))),
        )
    }
    blind = counts.pop("none")
    tokens = {size: count - blind for size, count in counts.items() if count is not None and blind is not None}
    open_first, open_again, open_other = (
        ask(f"told{key}", image, choices=()) for key, image in (("", red), ("-again", red), ("-checks", checks))
    )
    reaches, evidence = None, "not looked at: scripted answers look at no pixels"
    if ref.backend != "scripted":
        reaches, evidence = _reach(((first, again, others), (open_first, open_again, [open_other])), tokens)
    latency = statistics.median(seconds(f"timed-{number}") for number in range(_TIMED))
    result: dict[str, Any] = {
        "answer": first.answered_by,
        "pictures": reaches,
        "evidence": evidence,
        "picture_tokens": tokens,
        "first_seconds": first_seconds,
        "latency_seconds": latency,
    }
    if latency <= _CHEAP:
        began = time.perf_counter()
        together = backend.infer([request(f"together-{number}", red) for number in range(_AT_ONCE)])
        result |= {"at_once": _AT_ONCE, "at_once_seconds": time.perf_counter() - began}
        result["at_once_failed"] = sum(answer.finish_reason == "error" for answer in together)
    if reaches is False:
        result["problem"] = f"images do not reach the model: {evidence}"
    return result


def _reach(answers: Sequence[tuple[Prediction, Prediction, Sequence[Prediction]]], tokens: Mapping[str, int]) -> tuple[bool, str]:
    """Returns whether images reach a model, and the evidence.

    For each question there are two answers about the same image, and answers about other images.
    """
    counted = any(count > 0 for count in tokens.values())
    apart = [(_apart(first, again), max(_apart(first, other) for other in others)) for first, again, others in answers]
    if any(shown > max(_ROUNDING, 2 * noise) for noise, shown in apart):
        return True, "other images get other answers"
    if all(noise == math.inf for noise, _ in apart):
        evidence = f"tokens are {'' if counted else 'not '}counted"
        return counted, f"it answers one question in two ways, so that answers do not show it; {evidence}"
    evidence = "but tokens are counted" if counted else "and no tokens are counted for them"
    return counted, f"other images get the same answers, {evidence}"


def _apart(left: Prediction, right: Prediction) -> float:
    """Returns how much two answers differ: by log-probabilities of letters if their words are the same."""
    if (left.text, left.finish_reason) != (right.text, right.finish_reason) or left.logprobs.keys() != right.logprobs.keys():
        return math.inf
    pairs = [(value, right.logprobs[letter]) for letter, value in left.logprobs.items()]
    return max((abs(first - second) for first, second in pairs if first != second), default=0.0)


def _plain(colour: tuple[int, int, int], side: int) -> NDArray[np.uint8]:
    return np.full((side, side, 3), colour, np.uint8)
