"""Client: one server through the official OpenAI client, and the meaning of its errors; nothing it returns contains the key."""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
import json
import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from types import SimpleNamespace
from typing import Any

from pytest_vlmrobust.core.errors import BackendError
from pytest_vlmrobust.core.prediction import ModelRef
from pytest_vlmrobust.core.words import on_one_line

from .chat import with_system_prompt
from .generation import generation_for
from .replicas import Failure
from .served import Served

KEY_VARIABLE = "OPENAI_API_KEY"
"""The default environment variable for the key."""
LARGEST_REPLY = 4 * 2**20
"""Bytes of a reply that are read: no answer within the token limit is longer."""
_NO_KEY = "EMPTY"
"""The key sent to servers that need none."""
_SHORTEST_SECRET = 6
"""Shortest key that is masked in messages of servers: a shorter key is a placeholder and could be any word."""
_LONGEST_REASON = 300
_ENGINE_SECONDS = 10.0
_MOST_REDIRECTS = 5
_CIRCLE = f"redirects more than {_MOST_REDIRECTS} times. Look at the base URL, and at the server"

_TELLTALES = ("httpcore2", "openai")
"""Loggers that write headers and images of every request at debug level."""

_KINDS = {
    429: "busy",
    **dict.fromkeys((502, 503, 504, 529), "overloaded"),
    **dict.fromkeys((408, 409, 425), "faulty"),
}
"""Kind of failure by HTTP status, for requests that may be retried; any other status above 499 is ``faulty``."""
_OF_PARAMETERS = frozenset({400, 422})
_NAMES = ("max_tokens", "temperature")
_BEYOND_THE_PROTOCOL = ("top_k", "repetition_penalty")
"""Parameters that the client accepts only in ``extra_body``."""
_LIMITS = ("rate_limit", "RESOURCE_EXHAUSTED", "too_many_requests")
"""Parts of error codes and types that mean the same as status 429."""
_STATUS = re.compile(r"[45]\d\d")
_FILTERS = ("content_filter", "content_policy_violation", "moderation_blocked", "ResponsibleAIPolicyViolation")
_ADVICE = {
    401: f"Set the key in the environment: {KEY_VARIABLE}, or the variable that 'key_variable' of the models file names",
    403: "The key is not allowed to use this model",
    404: "Look at the base URL, which usually ends in /v1, and at what the server calls the model (BASE_URL/models)",
    413: "An image makes the request larger than the server, or a proxy before it, takes: raise its limit (nginx: "
    "client_max_body_size), or give the gate smaller images",
}
_NO_KEY_BESIDE_HEADERS = ". Beside 'headers' a key is sent only where 'key_variable' names it; this entry names none"

LIMIT, TEMPERATURE = "max_completion_tokens", "temperature"
LEARNED = {
    LIMIT: "refuses max_tokens: max_completion_tokens is sent in its place",
    TEMPERATURE: (
        "refuses temperature 0, so that none is sent: decoding is not greedy, and answers may change. To "
        "declare it, write generation: {temperature: none} in the models file"
    ),
}
"""Parameters that a server may refuse, and what is sent instead."""
_REFUSES = re.compile(
    r"unsupported|(not|n't) (support|allow|permit)|unknown|unrecogni[sz]ed|unexpected|deprecated|only the default|extra inputs",
    re.IGNORECASE,
)
"""Words of a server that does not know a parameter; a server that finds the value too large uses none of them."""
_RAN_OUT = re.compile(r"could not finish the message because max_tokens or model output limit was reached", re.IGNORECASE)
"""OpenAI's message when reasoning used up all tokens."""


class Filtered(Failure):
    """A question blocked by a content filter of the server."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__("refused", f"{url} filters the question: {reason}")
        self.reason = reason


@cache
def _certificates() -> Any:
    """Returns whom a client trusts: all replicas alike, as reading the certificates takes most of the time to make a client."""
    import httpx2

    return httpx2.create_ssl_context()


class Client:
    """A model on one server.

    The key comes from ``key_variable``, by default ``OPENAI_API_KEY``. With ``headers`` the default key is not sent: it may
    belong to another server.
    """

    def __init__(
        self,
        url: str,
        ref: ModelRef,
        *,
        limit: float,
        learned: Iterable[str] = (),
        learn: Callable[[str], None] = lambda _fact: None,
    ) -> None:
        import openai

        for variable, purpose in {
            ref.key_variable: "key",
            **{name: f"header {key}" for key, name in ref.headers.items()},
        }.items():
            if variable and not os.environ.get(variable):
                raise BackendError(f"the environment variable {variable}, which should hold the {purpose} to {url}, is not set")
        headers = {name: os.environ[variable] for name, variable in ref.headers.items()}
        for name, value in headers.items():
            if not (value.isascii() and value.isprintable()) or value != value.strip():
                raise BackendError(
                    f"the environment variable {ref.headers[name]} holds what no header can be: characters that are not "
                    "printable ASCII, or a blank at an end"
                )
        self.url, self._ref, self._limit = url, ref, limit
        self._model = Served.of(ref.location).model
        self._variable = ref.key_variable or ("" if headers else KEY_VARIABLE)
        self._sends_key = bool(self._variable) or any(name.lower() == "authorization" for name in headers)
        self._learn = learn
        self.learned = set(learned)
        self._declared = {LIMIT: ref.token_limit_parameter == LIMIT, TEMPERATURE: generation_for(ref).temperature is None}
        self._replied = False
        for logger in _TELLTALES:
            logging.getLogger(logger).setLevel(logging.INFO)
        self._client = openai.AsyncOpenAI(
            base_url=url,
            api_key=(self._variable and os.environ.get(self._variable)) or _NO_KEY,
            timeout=limit,
            max_retries=0,  # retries happen in replicas.py, which adapts to the load of the server
            http_client=openai.DefaultAsyncHttpxClient(
                event_hooks={"request": [self._stay], "response": [_cap]}, max_redirects=_MOST_REDIRECTS, verify=_certificates()
            ),
            # so that the counted bytes are the bytes in memory
            default_headers={"Accept-Encoding": "identity", **headers},
            default_query=dict(ref.query),
        )

    async def call(self, arguments: Mapping[str, Any]) -> Any:
        """Returns the reply to a chat completion as JSON, with the key masked."""
        sent = self._completed(arguments)
        try:
            raw = await self._client.chat.completions.with_raw_response.create(model=self._model, **sent)
        except Exception as error:  # noqa: BLE001 - every error of the client is about the server
            if fact := self._refused_parameter(error, sent):
                if fact not in self.learned:
                    self.learned.add(fact)
                    self._learn(fact)
                return await self.call(arguments)  # again without the refused parameter: at most once for each
            if getattr(error, "status_code", None) == 400 and _RAN_OUT.search(str(getattr(error, "message", ""))):
                return {"choices": [{"index": 0, "message": {"role": "assistant", "content": ""}, "finish_reason": "length"}]}
            raise self._meaning(error) from None  # errors of the client hold the request, and with it the key
        try:
            reply = self._without_key(json.loads(raw.http_response.content))
        except (ValueError, RecursionError) as error:
            if not self._replied and "html" in raw.http_response.headers.get("content-type", ""):
                advice = "Is it the base URL of an API? That of most servers ends in /v1"
                raise BackendError(f"{self.url} sent a web page in place of an answer. {advice}") from None
            raise Failure("faulty", f"{self.url} sent something that is not JSON ({self._quoted(str(error))})") from None
        self._replied = True
        if (problem := _error_in(reply)) is not None:
            raise self._meaning_of_words(problem, raw.http_response)
        return reply

    def _completed(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the arguments of a call with the declared parameters of the model, in the form that its server accepts."""
        ref = self._ref
        sent = with_system_prompt(arguments, ref.system_prompt)
        effort = {"reasoning_effort": ref.reasoning_effort} if ref.reasoning_effort else {}
        beyond = {name: sent.pop(name) for name in _BEYOND_THE_PROTOCOL if name in sent}
        if more := {**beyond, **effort, **ref.extra_body}:
            sent["extra_body"] = more
        if LIMIT in self.learned or self._declared[LIMIT]:
            sent[LIMIT] = sent.pop("max_tokens")
        if (TEMPERATURE in self.learned or self._declared[TEMPERATURE]) and sent.get("temperature") == 0.0:
            del sent["temperature"]
        return sent

    def _refused_parameter(self, error: Any, sent: Mapping[str, Any]) -> str:
        """Returns the key of ``LEARNED`` for the parameter that an error refuses; empty for none."""
        if getattr(error, "status_code", None) not in _OF_PARAMETERS:
            return ""
        message = str(error.message)
        if not _REFUSES.search(message):
            return ""
        named = error.param not in {None, "", "None"}  # a word of LiteLLM
        refused = {error.param} if named else {name for name in _NAMES if re.search(rf"\b{name}\b", message)}
        if "max_tokens" in refused and "max_tokens" in sent and not self._ref.token_limit_parameter:
            return LIMIT
        return TEMPERATURE if TEMPERATURE in refused and sent.get("temperature") == 0.0 else ""

    async def engine(self) -> str:
        """Returns the server's name for the owner of the model, usually the engine; empty if it gives none."""
        return (await self.models()).get(self._model, "")

    async def models(self) -> dict[str, str]:
        """Returns the models that the server lists, with their owners; empty if it has no list."""
        with contextlib.suppress(Exception):
            async with asyncio.timeout(min(_ENGINE_SECONDS, self._limit)):
                listed = (await self._client.models.list()).data
            return {self._without_key(str(model.id)): self._without_key(str(model.owned_by or "")) for model in listed}
        return {}

    async def close(self) -> None:
        """Closes the connections."""
        await self._client.close()

    async def _stay(self, request: Any) -> None:
        """Refuses redirects: nothing is sent to a host, port or scheme other than that of the base URL.

        The client always sends ``Authorization``; it is removed for servers that take the key in another header.
        """
        if not self._sends_key:
            request.headers.pop("Authorization", None)
        base = self._client.base_url
        if (request.url.scheme, request.url.host, request.url.port) != (base.scheme, base.host, base.port):
            origin = f"{request.url.scheme}://{request.url.netloc.decode('ascii', 'replace')}"
            raise _Refused(
                f"redirects to {origin}, and questions are sent to no server but the one that was named. "
                f"If it may have them, name that one as the base URL"
            )

    def _meaning(self, error: Exception) -> Exception:
        import openai

        url = self.url
        if (refused := _cause(error, "_Refused")) or _cause(error, "TooManyRedirects"):
            return BackendError(f"{url} {self._quoted(str(refused or _CIRCLE))}")
        if _cause(error, "_TooLarge"):
            return Failure("faulty", f"{url} sent more than {LARGEST_REPLY // 2**20} MiB in answer to one request")
        if isinstance(error, openai.APITimeoutError):
            kind = "unreachable" if _cause(error, "ConnectTimeout") else "slow"
            return Failure(kind, f"{url} did not answer within {self._limit:g} s", limits=1)
        if not isinstance(error, openai.APIStatusError):
            cause = error.__cause__ or error
            reason = self._quoted(f"{type(cause).__name__}: {cause}")
            if _cause(error, "ConnectError"):
                return Failure("unreachable", f"{url} cannot be reached ({reason})")
            return Failure("broken", f"{url} broke off the connection ({reason})")
        return self._meaning_of_status(error, error.status_code)

    def _meaning_of_status(self, error: Any, status: int, sent: str = "") -> Exception:
        text, body = self._quoted(error.message), getattr(error, "body", None)
        if isinstance(body, str) and self._quoted(body) not in text:  # plain text, such as vLLM's error for a wrong key
            text += f" ({self._quoted(body)})"
        words = f"{self.url} answered with {sent or f'status {status}'}: {text}"
        no_logprobs = status == 403 and "logprobs" in text  # OpenAI's refusal of log-probabilities for reasoning models
        if (status in {401, 403, 404} and not no_logprobs) or error.code == "insufficient_quota":
            without = _NO_KEY_BESIDE_HEADERS if status == 401 and not self._sends_key else ""
            return BackendError(f"{words}. {_ADVICE.get(status, 'The account has used up its quota')}{without}")
        if kind := _KINDS.get(status, "faulty" if status >= 500 else ""):
            return Failure(kind, words, _retry_after(error.response.headers))
        if any(word in f"{error.code} {error.type} {error.message}" for word in _FILTERS):
            return Filtered(self.url, text)
        return Failure("refused", f"{words}. {_ADVICE[status]}" if status in _ADVICE and not no_logprobs else words)

    def _meaning_of_words(self, problem: Any, response: Any) -> Exception:
        """Returns the meaning of an error that came as a reply with a status of success."""
        fields = problem if isinstance(problem, dict) else {}
        code, kind = fields.get("code"), fields.get("type")
        error = SimpleNamespace(message=str(fields.get("message") or problem), code=code, type=kind, response=response)
        status = int(str(code)) if _STATUS.fullmatch(str(code)) else response.status_code
        if any(word in f"{code} {kind}" for word in _LIMITS):
            status = 429
        name = self._quoted(str(code or kind or "")) or "it sent"
        meaning = self._meaning_of_status(error, status, f"status {response.status_code} and the error {name}")
        unknown = status == response.status_code and type(meaning) is Failure
        return Failure("faulty", str(meaning)) if unknown else meaning

    def _quoted(self, text: str) -> str:
        """Returns a server's message on one line, shortened, with the key masked."""
        return on_one_line(self._without_key(text), _LONGEST_REASON)

    def _without_key(self, content: Any) -> Any:
        """Returns text or JSON with the key and secret headers masked: some servers repeat them."""
        for secret in sorted(self._secrets(), key=len, reverse=True):
            content = _replaced(content, secret)
        return content

    def _secrets(self) -> Iterator[str]:
        for variable in {self._variable, *self._ref.headers.values()} - {""}:
            value = os.environ.get(variable, "").strip()  # an error about a blank beside it spells the blank out
            for secret in {value, value.rpartition(" ")[2]}:  # a server repeats what follows 'Bearer'
                if len(secret) >= _SHORTEST_SECRET:
                    yield secret


def _replaced(content: Any, key: str) -> Any:
    """Returns JSON with the key masked in all its texts."""
    if isinstance(content, str):
        return content.replace(key, "(the key)")
    if isinstance(content, list):
        return [_replaced(item, key) for item in content]
    if isinstance(content, dict):
        return {_replaced(name, key): _replaced(value, key) for name, value in content.items()}
    return content


def _error_in(reply: Any) -> Any:
    if not isinstance(reply, dict):
        return None
    if reply.get("object") == "error":
        return reply
    choices = reply.get("choices")
    first = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    return reply.get("error") or first.get("error") or None


class _TooLarge(Exception):
    """A reply that is too large to be read."""


class _Refused(Exception):
    """Behaviour of a server that is not accepted: the rest of a sentence that begins with its URL."""


async def _cap(response: Any) -> None:
    """Limits a response to ``LARGEST_REPLY`` bytes, uncompressed: a few compressed bytes could become gigabytes."""
    from httpx2 import AsyncByteStream

    if (encoding := response.headers.get("content-encoding", "identity").strip().lower()) not in ("", "identity"):
        raise _Refused(
            f"sends replies with Content-Encoding {encoding!r}, although none but identity was offered. "
            "Turn compression off in the server, or in the proxy before it"
        )

    class Capped(AsyncByteStream):  # type: ignore[misc]  # comes with the client, without types
        """A stream that raises an error beyond the limit."""

        def __init__(self, stream: Any) -> None:
            self._stream = stream

        async def __aiter__(self) -> Any:
            count = 0
            async for chunk in self._stream:
                count += len(chunk)
                if count > LARGEST_REPLY:
                    raise _TooLarge
                yield chunk

        async def aclose(self) -> None:
            await self._stream.aclose()

    response.stream = Capped(response.stream)


def _cause(error: BaseException, name: str) -> BaseException | None:
    """Returns the first error in the chain of causes whose class has this name; None if there is none."""
    current: BaseException | None = error
    for _ in range(10):  # the chain could be a circle
        if current is None or any(base.__name__ == name for base in type(current).__mro__):
            return current
        current = current.__cause__ or current.__context__
    return None


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Returns the ``Retry-After`` of a reply in seconds; None without one."""
    text = headers.get("retry-after", "")
    with contextlib.suppress(ValueError):
        return max(0.0, float(text))
    with contextlib.suppress(ValueError, TypeError):
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    return None
