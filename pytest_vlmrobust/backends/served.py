"""Served models: how they are named, the questions that identify them, and the facts that a store keeps about them.

``BASE_URL[,BASE_URL...]#MODEL[@REVISION]``: several base URLs are replicas of the same model. The weights of a
server cannot be hashed from outside, so the user declares the revision. A store keeps in one small file per
served model what was seen at its first use.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pytest_vlmrobust.core.errors import BackendError
from pytest_vlmrobust.core.fingerprint import fingerprint
from pytest_vlmrobust.core.prediction import LOGIT_BIAS, STRUCTURED_CHOICE, Prediction, Request
from pytest_vlmrobust.core.words import without_halves

from .chat import (
    Malformed,
    first_choice,
    first_logprobs,
    letters_body,
    messages_of,
    reply_text,
    text_body,
    text_prediction,
    thinks_first,
)
from .generation import LetterTokens, bare
from .replicas import Failure, persistently

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


FORM = "BASE_URL#MODEL or BASE_URL#MODEL@REVISION"
EXAMPLE = "http://localhost:8000/v1#qwen2-vl"
_SCHEME = re.compile(r"(openai:)?([a-z]+://)?")


@dataclass(frozen=True, slots=True)
class Served:
    """A model on servers: the base URL of each replica, and the model's name there."""

    urls: tuple[str, ...]
    model: str

    @property
    def location(self) -> str:
        """The text in a ModelRef."""
        return f"{','.join(self.urls)}#{self.model}"

    @classmethod
    def of(cls, location: str) -> Served:
        """Parses a :attr:`location`."""
        urls, _, model = location.partition("#")
        return cls(tuple(urls.split(",")), model)

    def identity(self, revision: str) -> dict[str, Any]:
        """Returns the identity of this model: its declared revision, else its URLs.

        With a declared revision, servers may move and replicas may be added.
        """
        return {"model": self.model, "revision": revision} if revision else {"model": self.model, "urls": sorted(self.urls)}


def read_typed(text: str) -> tuple[Served, str]:
    """Parses the text after ``openai:``; returns the model and its declared revision, which may be empty.

    >>> read_typed("http://a/v1,http://b/v1/#org/m@2024-06")
    (Served(urls=('http://a/v1', 'http://b/v1'), model='org/m'), '2024-06')
    """
    urls, mark, name = text.partition("#")
    model, at, revision = name.rpartition("@")
    if not at:
        model, revision = name, ""
    if not mark or not model or (at and not revision):
        raise ValueError(f"expected {FORM}, such as {EXAMPLE}")
    return Served(read_urls(urls.split(",")), model), revision


def read_urls(texts: Iterable[str]) -> tuple[str, ...]:
    """Returns base URLs in normal form."""
    urls = [text.strip().rstrip("/") for text in texts]
    for url in urls:
        shown = without_secrets(url)
        try:
            parts = urlsplit(url)
        except ValueError:
            raise ValueError(f"{shown!r} is not a base URL. Expected {FORM}, such as {EXAMPLE}") from None
        if "@" in parts.netloc:
            raise ValueError("a base URL has a user or a password before the host. Leave it out: keys come from the environment")
        if parts.query:
            raise ValueError(f"the base URL {shown!r} has a query, not shown here. Leave it out: keys come from the environment")
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.fragment:
            raise ValueError(f"{shown!r} is not a base URL. Expected {FORM}, such as {EXAMPLE}")
    return tuple(dict.fromkeys(urls))


def without_secrets(name: str) -> str:
    """Returns a URL or model name without user, password and query, which may be secrets.

    >>> without_secrets("openai:http://a/v1?key=secret#m@r"), without_secrets("http://user:secret@a/v1")
    ('openai:http://a/v1#m@r', 'http://...')
    """
    urls, mark, model = name.partition("#")
    if "@" in urls:  # nobody can tell where a password begins
        return f"{''.join(_SCHEME.findall(urls)[0])}...{mark}{model}"
    return f"{urls.partition('?')[0]}{mark}{model}"


# Facts that a store keeps about a served model.


@dataclass(frozen=True, slots=True)
class ServerRecord:
    """What was seen at the first use of a served model. Later runs compare with it and store answers under the same name."""

    identity: Mapping[str, Any]
    letters: bool
    """Whether letter log-probabilities are used: it begins its answers to choices with a letter."""
    logprobs: bool = False
    """Whether it gives log-probabilities at all."""
    constraint: str = ""
    """How it is constrained to letters if it does not begin with one: ``structured_choice``, ``logit_bias`` or empty."""
    engine: str = ""
    """The server's name for the owner of the model, such as ``vllm``; empty if it gives none."""
    witnesses: Mapping[str, str] = field(default_factory=dict)
    """Answers to the fixed questions that it answers the same way twice."""
    urls: tuple[str, ...] = ()
    """The URLs it was used at."""
    checked: bool = True
    """Whether it was shown to be the same model after the last answer."""
    learned: tuple[str, ...] = ()
    """Parameters that it refuses, as keys of :data:`client.LEARNED`."""
    changed: str = ""
    """The sign that the store has answers of another model under its name; empty without a sign."""


class ServerRecords:
    """The file of facts about a served model; without a folder they are kept in this process only."""

    def __init__(self, folder: Path | None, identity: Mapping[str, Any], name: str = "") -> None:
        self._identity = dict(identity)
        self._path = folder / (name or f"{fingerprint(self._identity)[:16]}.json") if folder else None
        self._here: ServerRecord | None = None

    def __str__(self) -> str:
        if self._path is None:
            return "this process"
        return f"{self._path} and {self._mark}" if self._mark.is_file() else str(self._path)

    @property
    def _mark(self) -> Path:
        """The file that marks a change. It is separate, so that no process that writes the other file can undo it."""
        return (self._path or Path()).with_suffix(".changed")

    def read(self) -> ServerRecord | None:
        """Returns the stored facts, or None."""
        if self._path is None or not self._path.is_file():
            return self._here
        try:
            content = json.loads(self._path.read_text(encoding="utf-8"))
            # facts stored before this key existed keep their meaning
            content = {"constraint": "", "learned": (), "logprobs": content["letters"], **content}
            facts = {name: content[name] for name in (field.name for field in fields(ServerRecord))}
            if self._mark.is_file():
                facts["changed"] = self._mark.read_text(encoding="utf-8")
            return ServerRecord(**{**facts, "urls": tuple(facts["urls"]), "learned": tuple(facts["learned"])})
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise BackendError(
                f"{self._path}: not what a run remembers of a served model ({error!r}). Remove it: the server is examined again"
            ) from None

    def add(self, seen: ServerRecord) -> ServerRecord:
        """Stores what was seen first and returns the stored facts: of several processes, the first one wins."""
        draft = self._draft(seen)
        if draft is not None and self._path is not None:
            try:
                os.link(draft, self._path)  # fails if another process was first
            except FileExistsError:
                return self.read() or seen
            except OSError:  # a file system without hard links
                draft.replace(self._path)
            finally:
                draft.unlink(missing_ok=True)
        self._here = seen
        return seen

    def note(self, **changes: Any) -> None:
        """Updates stored facts."""
        stored = self.read()
        if stored is None:
            return
        self._here = replace(stored, **changes)
        if changes.get("changed") and self._path is not None:
            with contextlib.suppress(OSError):  # a read-only store
                self._mark.write_text(self._here.changed, encoding="utf-8")
        draft = self._draft(self._here)
        if draft is not None and self._path is not None:
            draft.replace(self._path)

    def _draft(self, seen: ServerRecord) -> Path | None:
        """Writes a draft next to the target file; None in a read-only store."""
        if self._path is None:
            return None
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            draft = self._path.with_name(f"{self._path.name}.{os.getpid()}.{threading.get_ident()}")
            draft.write_text(json.dumps(asdict(seen), sort_keys=True, indent=1), encoding="utf-8")
        except OSError:
            return None
        return draft


def merge_memories(folders: Iterable[Path], out: Path) -> None:
    """Merges the facts of several stores about served models into a new folder."""
    for folder in folders:
        for file in sorted(folder.glob("*.json")):
            there = ServerRecords(folder, {}, file.name).read()
            if there is None:
                continue  # deleted meanwhile
            stored = ServerRecords(out, there.identity).add(there)
            if there.changed:
                ServerRecords(out, there.identity).note(changed=there.changed)
            if stored == there:
                continue
            if problem := _contradiction(stored, there):
                raise BackendError(f"{file}: {problem}. Stores of two models are not merged: declare a revision for each")
            ServerRecords(out, there.identity).note(
                urls=tuple(dict.fromkeys((*stored.urls, *there.urls))),
                checked=stored.checked and there.checked,
                learned=tuple(dict.fromkeys((*stored.learned, *there.learned))),
            )


def _contradiction(here: ServerRecord, there: ServerRecord) -> str:
    """Returns in words the sign that two processes used two models; empty without a sign."""
    if here.letters != there.letters:
        return "this server answers choices by letters and another one of the same revision does not, or the other way round"
    if here.constraint != there.constraint:
        return "this server can be kept to letters and another one of the same revision cannot, or in another way"
    if here.engine and there.engine and here.engine != there.engine:
        return f"asked of {there.engine!r}, and in a store before it of {here.engine!r}"
    for question, answer in there.witnesses.items():
        before = here.witnesses.get(question, answer)
        if before != answer:
            return f"the server answered {question!r} with {answer[:60]!r}, and in a store before it {before[:60]!r}"
    return ""


# Witnesses: fixed questions that identify the model on a server and what it obeys, sent before its use and at the end.


OFFERED = ("A", "B", "C", "D")
LETTERS_QUESTION = (
    "Which colour is the top left quarter of the picture?\nA. blue\nB. green\nC. red\nD. yellow\n"
    "Respond with only the letter of the correct option."
)
EASY_QUESTION = (
    "Question: Which colour is in the picture?\nOptions:\nA. black\nB. green\nC. orange\nD. purple\n"
    "Please select the correct answer from the options above. Respond with only the letter of the correct option. "
    "Do not explain. Answer:"
)
"""In the form that suites use: a small model that does not understand the other form may still answer with a letter."""
QUESTIONS = (
    "Describe this picture.",
    "Which colours does the picture show, from left to right and from top to bottom?",
    "What is behind the picture?",
)
"""Open questions: two models that both know a fact word it differently."""
_TOKENS = 16
_TOKEN_ID = re.compile(r"token_id:\d+")
_LONGEST_TOKEN = 40
_SIDE = 112
_FORCED = ("D", "B")
"""Letters that a server is forced to answer; C is right."""
_SCHEMA_TOKENS = 64
"""The object has about ten tokens, but some servers add blanks and some models reason first."""
_STRONGEST = 100.0
"""The largest bias in the protocol; a float, because ``transformers serve`` fails on a whole number."""


def picture() -> NDArray[np.uint8]:
    """Returns the image of the questions, uint8, shape (112, 112, 3): four colours with a black and a white disc."""
    import numpy as np

    image = np.empty((_SIDE, _SIDE, 3), np.uint8)
    half = _SIDE // 2
    image[:half, :half], image[:half, half:] = (200, 30, 30), (40, 160, 60)
    image[half:, :half], image[half:, half:] = (30, 60, 200), (230, 200, 40)
    y, x = np.mgrid[:_SIDE, :_SIDE]
    image[(x - half) ** 2 + (y - half) ** 2 < 20**2] = 0
    image[(x - 80) ** 2 + (y - 30) ** 2 < 9**2] = 255
    return image


@dataclass(frozen=True, slots=True)
class Witness:
    """Asks one engine about the fixed image, with the deployment settings of the model."""

    call: Callable[[Mapping[str, Any]], Awaitable[Any]]
    """Sends the body of a call and returns its reply."""
    frame: Callable[[str], str] = str
    """Puts a question into the model's template."""
    name: str = "the server"
    limit: float | None = None
    """Time limit of a call in seconds before a retry; None tries once."""

    async def __call__(self, body: Mapping[str, Any]) -> Any:
        """Returns the reply to a body; raises :class:`Failure` without a readable reply."""
        return await (self._once(body) if self.limit is None else persistently(lambda: self._once(body), self.name, self.limit))

    async def _once(self, body: Mapping[str, Any]) -> Any:
        reply = await self.call(body)
        try:
            reply_text(reply)
            if "logprobs" in body:
                first_logprobs(first_choice(reply))
        except Malformed as error:
            raise Failure("faulty", f"{self.name} sent {error}") from None
        return reply

    def messages(self, question: str) -> list[dict[str, Any]]:
        """Returns a conversation that asks about the fixed image."""
        return messages_of(Request(key="", images=(picture(),), text=self.frame(question)))

    async def answer(self, question: str) -> str:
        """Returns the first words of an answer."""
        return without_halves(reply_text(await self(text_body(self.messages(question), limit=_TOKENS))))


@dataclass(frozen=True, slots=True)
class FirstToken:
    """How a server begins its answer to a choice between letters."""

    token: str | None
    """The most probable first token; None if the server gives no log-probabilities."""
    is_thought: bool = False
    """Whether the server puts it into its reasoning field."""

    @property
    def is_letter(self) -> bool:
        """Whether it is an option letter, so that log-probabilities of letters are those of answers."""
        return self.token is not None and not self.is_thought and bare(self.token) in OFFERED

    @property
    def is_prose(self) -> bool:
        """Whether it begins reasoning or a sentence: such a model is not constrained to a letter."""
        if self.token is None or _TOKEN_ID.fullmatch(self.token):
            return False
        letters = "".join(filter(str.isalpha, bare(self.token)))
        return self.is_thought or bool(letters and letters not in OFFERED)

    @property
    def problem(self) -> str:
        """Why choices are not answered by letters, to follow the name of the server; empty if they are."""
        if self.token is None:
            return "gives no log-probabilities"
        where = ", in its field for reasoning" if self.is_thought else ""
        return "" if self.is_letter else f"begins its answer with {self.token[:_LONGEST_TOKEN]!r}{where}, and with no letter"


async def first_token(ask: Witness) -> FirstToken:
    """Returns the first token for the first of two fixed choices that is answered with a letter, else for the first choice."""
    begins = await _begins(ask, LETTERS_QUESTION)
    if begins.token is None or begins.is_letter or begins.is_thought:
        return begins
    easy = await _begins(ask, EASY_QUESTION)
    return easy if easy.is_letter else begins


async def _begins(ask: Witness, question: str) -> FirstToken:
    try:
        choice = first_choice(await ask(letters_body(ask.messages(question))))
    except Failure as failure:
        if failure.kind != "refused":
            raise
        return FirstToken(None)  # it may not know the parameter; the next question shows whether it answers at all
    listed = first_logprobs(choice)
    if listed is None:
        return FirstToken(None)
    token, _ = max(listed, key=lambda pair: pair[1], default=("", 0.0))
    return FirstToken(token, thinks_first(choice))


async def first_answers(ask: Witness) -> tuple[dict[str, str], str]:
    """Returns the answers to the questions that a server answers the same way twice, and why there are none.

    Batches of changing sizes may lead to two different answers, which identify nothing.
    """
    answers = {question: await ask.answer(question) for question in QUESTIONS}
    again = {question: await ask.answer(question) for question in QUESTIONS}
    same = {question: answer for question, answer in answers.items() if answer.strip() and answer == again[question]}
    says_something = any(answer.strip() for answer in (*answers.values(), *again.values()))
    problem = "answers no question the same way twice" if says_something else f"gives no answer within {_TOKENS} tokens"
    return same, "" if same else problem


async def health_check(ask: Witness) -> None:
    """Sends one of the fixed questions; a refusal counts as an answer."""
    try:
        await ask.answer(QUESTIONS[0])
    except Failure as failure:
        if failure.kind != "refused":
            raise


async def differing(ask: Witness, witnesses: Mapping[str, str]) -> tuple[str, str, str] | None:
    """Returns a question that is now answered differently twice, with the old and the new answer."""
    for question, then in witnesses.items():
        now = await ask.answer(question)
        if now != then and await ask.answer(question) != then:
            return question, then, now
    return None


# Servers without log-probabilities are constrained to the letters, by a schema or by a bias. Some accept such a request and
# ignore it, so each way is tested first.


class Unconstrained(Exception):
    """An answer outside the letters that the server was constrained to."""


def structured_body(messages: Sequence[Mapping[str, Any]], choices: Sequence[str], limit: int = 0) -> dict[str, Any]:
    """Returns the arguments of a call whose JSON schema allows only an object with one of the choices."""
    schema = {
        "type": "object",
        "properties": {"answer": {"type": "string", "enum": list(choices)}},
        "required": ["answer"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "choice", "strict": True, "schema": schema}}
    return {**text_body(messages, limit=max(_SCHEMA_TOKENS, limit)), "response_format": form}


def biased_body(messages: Sequence[Mapping[str, Any]], tokens: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    """Returns the arguments of a call for one token, with the same bias on every token that begins a choice."""
    bias = {str(token): _STRONGEST for ids in tokens.values() for token in ids}
    return {**text_body(messages, limit=1), "logit_bias": bias}


def constrained_prediction(reply: Any, choices: Sequence[str], method: str) -> Prediction:
    """Returns the choice in the object of a reply, or the choice that its token begins; refuses other answers."""
    answer = text_prediction(reply, method)
    if answer.finish_reason not in ("stop", "length"):
        return answer
    text = answer.text.strip()
    if method == LOGIT_BIAS:
        chosen = [choice for choice in choices if text and choice.startswith(text)]
    else:
        try:
            parsed = json.loads(text)
        except ValueError:
            parsed = None
        chosen = [choice for choice in choices if isinstance(parsed, dict) and choice == parsed.get("answer")]
    if len(chosen) != 1:
        raise Unconstrained(answer.text)
    return dataclasses.replace(answer, text=chosen[0], finish_reason="stop")


async def constraint_of(ask: Witness, tokens: LetterTokens | None) -> str:
    """Returns the method that constrains a server to letters, or an empty text; ``tokens`` are those of A to D, if known."""
    if await obeys(ask):
        return STRUCTURED_CHOICE
    return LOGIT_BIAS if tokens is not None and not tokens.reason and await obeys(ask, tokens) else ""


async def obeys(ask: Witness, tokens: LetterTokens | None = None) -> bool:
    """Returns whether a server answers with the only letter that a schema allows, or, with ``tokens``, the letter with the bias.

    The forced letter changes each time, and is never the right one.
    """
    messages = ask.messages(LETTERS_QUESTION)
    try:
        for letter in _FORCED:
            body = biased_body(messages, {letter: tokens.ids[letter]}) if tokens else structured_body(messages, [letter])
            method = LOGIT_BIAS if tokens else STRUCTURED_CHOICE
            if constrained_prediction(await ask(body), OFFERED, method).text != letter:
                return False
    except (Malformed, Unconstrained):
        return False
    except Failure as failure:
        if failure.kind not in ("refused", "faulty"):
            raise
        if failure.kind == "faulty":
            await ask(text_body(messages, limit=_SCHEMA_TOKENS))  # a server that is down fails here too
        return False  # the server does not know the parameter
    return True
