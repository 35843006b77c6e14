"""Witnesses: fixed questions that show which model a server has and what it obeys, asked before it is used and at the end."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_vlmrobust.core.prediction import LOGIT_BIAS, STRUCTURED_CHOICE, Prediction, Request
from pytest_vlmrobust.core.words import without_halves

from .chat import (
    Malformed,
    first_choice,
    first_logprobs,
    letters_body,
    messages_of,
    said,
    text_body,
    text_prediction,
    thinks_first,
)
from .generation import LetterTokens, bare
from .replicas import Failure, persistently

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

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
"""Put as suites put theirs: a small model that does not understand the other one may still answer this one by a letter."""
QUESTIONS = (
    "Describe this picture.",
    "Which colours does the picture show, from left to right and from top to bottom?",
    "What is behind the picture?",
)
"""They leave room: two models that are both right about a fact differ in how they put it."""
_TOKENS = 16
_TOKEN_ID = re.compile(r"token_id:\d+")
_LONGEST_TOKEN = 40
_SIDE = 112
_FORCED = ("D", "B")
"""Letters that a server is made to say: C is the right one."""
_SCHEMA_TOKENS = 64
"""At least: the object has about ten tokens; some servers put blanks into it, and some models think first."""
_STRONGEST = 100.0
"""The largest bias that the protocol allows; a float, for ``transformers serve`` fails on a whole number."""


def picture() -> NDArray[np.uint8]:
    """Returns the image that is asked about, uint8, shape (112, 112, 3): four colours with a black and a white disc."""
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
    """Asks one engine about the fixed image, as the model is asked where it is deployed."""

    call: Callable[[Mapping[str, Any]], Awaitable[Any]]
    """From the body of a call to its reply."""
    frame: Callable[[str], str] = str
    """Puts a question into the template of the model."""
    name: str = "the server"
    limit: float | None = None
    """Seconds that a call may take before it is tried again; None tries once."""

    async def __call__(self, body: Mapping[str, Any]) -> Any:
        """Returns the reply to a body; raises :class:`Failure` where there is none that can be read."""
        return await (self._once(body) if self.limit is None else persistently(lambda: self._once(body), self.name, self.limit))

    async def _once(self, body: Mapping[str, Any]) -> Any:
        reply = await self.call(body)
        try:
            said(reply)
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
        return without_halves(said(await self(text_body(self.messages(question), limit=_TOKENS))))


@dataclass(frozen=True, slots=True)
class FirstToken:
    """How a server begins its answer to a choice between letters."""

    token: str | None
    """The most probable first token; None where the server gives no log-probabilities."""
    is_thought: bool = False
    """Whether the server puts it into its field for reasoning."""

    @property
    def is_letter(self) -> bool:
        """Whether it is the letter of an option, so that the log-probabilities of letters are those of answers."""
        return self.token is not None and not self.is_thought and bare(self.token) in OFFERED

    @property
    def is_prose(self) -> bool:
        """Whether it begins thoughts, or a sentence: a model that writes first is not kept to a letter."""
        if self.token is None or _TOKEN_ID.fullmatch(self.token):
            return False
        letters = "".join(filter(str.isalpha, bare(self.token)))
        return self.is_thought or bool(letters and letters not in OFFERED)

    @property
    def problem(self) -> str:
        """Why choices are not answered by letters, behind the name of the server; empty where they are."""
        if self.token is None:
            return "gives no log-probabilities"
        where = ", in its field for reasoning" if self.is_thought else ""
        return "" if self.is_letter else f"begins its answer with {self.token[:_LONGEST_TOKEN]!r}{where}, and with no letter"


async def first_token(ask: Witness) -> FirstToken:
    """Returns how a server begins its answer to the first of two fixed choices that it answers by a letter, else to the first."""
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
        return FirstToken(None)  # it may not know the parameter; whether it answers at all is seen with the next question
    listed = first_logprobs(choice)
    if listed is None:
        return FirstToken(None)
    token, _ = max(listed, key=lambda pair: pair[1], default=("", 0.0))
    return FirstToken(token, thinks_first(choice))


async def first_answers(ask: Witness) -> tuple[dict[str, str], str]:
    """Returns the answers by question, of those questions that a server answers the same way twice, and why there are none.

    Servers that compute in batches of changing sizes may answer some in two ways: these would tell nothing.
    """
    answers = {question: await ask.answer(question) for question in QUESTIONS}
    again = {question: await ask.answer(question) for question in QUESTIONS}
    same = {question: answer for question, answer in answers.items() if answer.strip() and answer == again[question]}
    says_something = any(answer.strip() for answer in (*answers.values(), *again.values()))
    problem = "answers no question the same way twice" if says_something else f"gives no answer within {_TOKENS} tokens"
    return same, "" if same else problem


async def health_check(ask: Witness) -> None:
    """Asks one of the fixed questions; a refusal is an answer as well."""
    try:
        await ask.answer(QUESTIONS[0])
    except Failure as failure:
        if failure.kind != "refused":
            raise


async def differing(ask: Witness, witnesses: Mapping[str, str]) -> tuple[str, str, str] | None:
    """Returns a question that is now answered in another way, twice, with the answer as it was and as it is."""
    for question, then in witnesses.items():
        now = await ask.answer(question)
        if now != then and await ask.answer(question) != then:
            return question, then, now
    return None


# Servers that give no log-probabilities are kept to the offered letters, by a schema or by a bias. Some take such a request and
# do as if it said nothing, so each way is tried first.


class Unconstrained(Exception):
    """An answer that is none of those to which the server was to be kept."""


def structured_body(messages: Sequence[Mapping[str, Any]], choices: Sequence[str], limit: int = 0) -> dict[str, Any]:
    """Returns the arguments of a call whose answer is an object with one of the choices, by a JSON schema."""
    schema = {
        "type": "object",
        "properties": {"answer": {"type": "string", "enum": list(choices)}},
        "required": ["answer"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "choice", "strict": True, "schema": schema}}
    return {**text_body(messages, limit=max(_SCHEMA_TOKENS, limit)), "response_format": form}


def biased_body(messages: Sequence[Mapping[str, Any]], tokens: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    """Returns the arguments of a call whose one token begins a choice: all that do are raised by the same amount."""
    bias = {str(token): _STRONGEST for ids in tokens.values() for token in ids}
    return {**text_body(messages, limit=1), "logit_bias": bias}


def constrained_prediction(reply: Any, choices: Sequence[str], method: str) -> Prediction:
    """Returns the choice in the object of a reply, or the one that its token begins; refuses any other answer."""
    answer = text_prediction(reply, method)
    if answer.finish_reason not in ("stop", "length"):
        return answer
    text = answer.text.strip()
    if method == LOGIT_BIAS:
        chosen = [choice for choice in choices if text and choice.startswith(text)]
    else:
        try:
            found = json.loads(text)
        except ValueError:
            found = None
        chosen = [choice for choice in choices if isinstance(found, dict) and choice == found.get("answer")]
    if len(chosen) != 1:
        raise Unconstrained(answer.text)
    return dataclasses.replace(answer, text=chosen[0], finish_reason="stop")


async def constraint_of(ask: Witness, tokens: LetterTokens | None) -> str:
    """Returns the method by which a server is kept to letters, or an empty string; ``tokens`` are those of A to D, if known."""
    if await obeys(ask):
        return STRUCTURED_CHOICE
    return LOGIT_BIAS if tokens is not None and not tokens.reason and await obeys(ask, tokens) else ""


async def obeys(ask: Witness, tokens: LetterTokens | None = None) -> bool:
    """Returns whether a server answers with the one letter that a schema leaves, or whose tokens are raised where they are given.

    It is told to answer with another letter each time, neither of which is right.
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
            await ask(text_body(messages, limit=_SCHEMA_TOKENS))  # a server that is down fails whatever it is asked
        return False  # it does not know the parameter
    return True
