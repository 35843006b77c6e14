"""Choices of servers that give no log-probabilities: the server is kept to the offered letters, by a schema or by a bias.

Some servers take such a request and do as if it said nothing, so each way is tried first: a question is asked twice, and the
server is told to answer with another letter each time, neither of which is right.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pytest_vlmrobust.core.prediction import LOGIT_BIAS, STRUCTURED_CHOICE, Prediction

from .chat import Malformed, text_body, text_prediction
from .letters import LetterTokens
from .replicas import Failure
from .witnesses import LETTERS_QUESTION, OFFERED, Witness

_FORCED = ("D", "B")
"""Letters that a server is made to say: C is the right one."""
_SCHEMA_TOKENS = 64
"""The object has about ten tokens; some servers put blanks into it."""
_STRONGEST = 100.0
"""The largest bias that the protocol allows; a float, for ``transformers serve`` fails on a whole number."""


class Unconstrained(Exception):
    """An answer that is none of those to which the server was to be kept."""


def structured_body(messages: Sequence[Mapping[str, Any]], choices: Sequence[str]) -> dict[str, Any]:
    """Returns the arguments of a call whose answer is an object with one of the choices, by a JSON schema."""
    schema = {
        "type": "object",
        "properties": {"answer": {"type": "string", "enum": list(choices)}},
        "required": ["answer"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "choice", "strict": True, "schema": schema}}
    return {**text_body(messages, limit=_SCHEMA_TOKENS), "response_format": form}


def biased_body(messages: Sequence[Mapping[str, Any]], tokens: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    """Returns the arguments of a call whose one token begins a choice: all that do are raised by the same amount."""
    bias = {str(token): _STRONGEST for ids in tokens.values() for token in ids}
    return {**text_body(messages, limit=1), "logit_bias": bias}


def structured_prediction(reply: Any, choices: Sequence[str]) -> Prediction:
    """Returns the choice in the object of a reply."""

    def read(text: str) -> str:
        try:
            found = json.loads(text)
        except ValueError:
            return ""
        answer = found.get("answer") if isinstance(found, dict) else None
        return next((choice for choice in choices if choice == answer), "")

    return _chosen(reply, STRUCTURED_CHOICE, read)


def biased_prediction(reply: Any, choices: Sequence[str]) -> Prediction:
    """Returns the choice that the token of a reply begins."""

    def read(text: str) -> str:
        begun = [choice for choice in choices if text.strip() and choice.startswith(text.strip())]
        return begun[0] if len(begun) == 1 else ""

    return _chosen(reply, LOGIT_BIAS, read)


def _chosen(reply: Any, method: str, read: Callable[[str], str]) -> Prediction:
    said = text_prediction(reply, method)
    if said.finish_reason not in ("stop", "length"):
        return said
    choice = read(said.text)
    if not choice:
        raise Unconstrained(said.text)
    return dataclasses.replace(said, text=choice, finish_reason="stop")


async def constraint_of(ask: Witness, tokens: LetterTokens | None) -> str:
    """Returns the method by which a server is kept to letters, or an empty string."""
    if await keeps_to_schema(ask):
        return STRUCTURED_CHOICE
    if tokens is not None and not tokens.reason and await keeps_to_bias(ask, tokens):
        return LOGIT_BIAS
    return ""


async def keeps_to_schema(ask: Witness) -> bool:
    """Returns whether a server answers with the letter that a schema leaves."""
    return await _obeys(ask, lambda messages, letter: structured_body(messages, [letter]), structured_prediction)


async def keeps_to_bias(ask: Witness, tokens: LetterTokens) -> bool:
    """Returns whether a server answers with the letter whose tokens are raised."""
    return await _obeys(ask, lambda messages, letter: biased_body(messages, {letter: tokens.ids[letter]}), biased_prediction)


async def _obeys(
    ask: Witness,
    body: Callable[[Sequence[Mapping[str, Any]], str], dict[str, Any]],
    read: Callable[[Any, Sequence[str]], Prediction],
) -> bool:
    messages = ask.messages(LETTERS_QUESTION)
    try:
        return all([read(await ask(body(messages, letter)), OFFERED).text == letter for letter in _FORCED])
    except (Malformed, Unconstrained):
        return False
    except Failure as failure:
        if failure.kind not in ("refused", "faulty"):
            raise
        if failure.kind == "faulty":
            await ask(text_body(messages, limit=_SCHEMA_TOKENS))  # a server that is down fails whatever it is asked
        return False  # it does not know the parameter
