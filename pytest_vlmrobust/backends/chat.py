"""Chat completions: a request as an OpenAI-compatible server takes it, and its reply as a Prediction."""

from __future__ import annotations

import base64
import io
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pytest_vlmrobust.core.prediction import LETTER_LOGITS, REFUSALS, Prediction, Request, token_count
from pytest_vlmrobust.core.sample import IMAGE_MARK
from pytest_vlmrobust.core.words import on_one_line

from .generation import Generation, bare, most_probable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

TOP_LOGPROBS = 20
"""How many top tokens are requested; most servers refuse more."""
_NONE_BELOW = 0.0
"""The largest log-probability; some servers round to slightly above 0."""
_ENDS = {
    **dict.fromkeys(("stop", "eos", "eos_token", "end_turn", "stop_sequence"), "stop"),
    **dict.fromkeys(("length", "max_tokens", "max_length", "model_length"), "length"),
    **dict.fromkeys(("content_filter", "content_filtered", "guardrail_intervened", "safety", "recitation"), "content_filter"),
    **dict.fromkeys(("prohibited_content", "blocklist", "spii", "image_safety"), "content_filter"),
    "refusal": "refusal",
}
"""Finish reasons of servers, in lower case, and what they mean."""
_BROKEN_OFF = frozenset({"abort", "aborted", "cancelled", "canceled", "error", "failed", "timeout"})
"""Finish reasons of answers that were broken off."""
_THOUGHTS = ("reasoning_content", "reasoning")
"""Message fields that hold the reasoning before the answer."""
_TEXT_PARTS = ("text", "output_text")
_LONGEST_FACT = 100
UNKNOWN_END = "unknown_finish_reason"
"""Detail of an answer with an unknown finish reason: that reason."""
TEXT_ELSEWHERE = "text_elsewhere"
"""Detail of an empty answer: the field that has a text instead, and its beginning."""
UNUSABLE_COUNTS = "unusable_counts"
"""Detail of an answer: token counts of the server that cannot be right."""


class Malformed(Exception):
    """A reply that breaks the protocol."""


class NoLogprobs(Exception):
    """A reply without the log-probabilities that were asked for."""


def messages_of(request: Request) -> list[dict[str, Any]]:
    """Returns the conversation for a request: one user message, each image as a lossless PNG in a data URL."""
    whole = message(request.images, request.text)
    for part in whole["content"]:
        if part["type"] == "image":
            file = io.BytesIO()
            part.pop("image").save(file, format="PNG", compress_level=1)  # higher levels take much longer and save little
            url = f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
            part |= {"type": "image_url", "image_url": {"url": url}}
    return [whole]


def letters_body(messages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the arguments of a call that asks for the log-probabilities of the first token."""
    return {**text_body(messages, limit=1), "logprobs": True, "top_logprobs": TOP_LOGPROBS}


def text_body(
    messages: Sequence[Mapping[str, Any]], *, limit: int, generation: Generation | None = None, seed: int = 0
) -> dict[str, Any]:
    """Returns the arguments of a call that asks for text; greedy where no generation is given.

    What is not part of the protocol (``top_k``, ``repetition_penalty``) is sent only when it is set: vLLM and SGLang accept
    it, and other servers report that they do not know it.
    """
    body: dict[str, Any] = {"messages": list(messages), "max_tokens": limit, "temperature": 0.0}
    if generation is None:
        return body
    if generation.temperature is None:
        del body["temperature"]
        body |= {"seed": seed, **({"top_p": float(generation.top_p)} if generation.top_p < 1.0 else {})}
    elif generation.samples:
        body |= {"temperature": float(generation.temperature), "top_p": float(generation.top_p), "seed": seed}
    if generation.samples and generation.top_k:
        body["top_k"] = int(generation.top_k)
    if generation.repetition_penalty != 1.0:
        body["repetition_penalty"] = float(generation.repetition_penalty)
    return body


def with_system_prompt(body: Mapping[str, Any], system_prompt: str) -> dict[str, Any]:
    """Returns a body with the system prompt, if any, as its first message."""
    system = [{"role": "system", "content": system_prompt}] if system_prompt else []
    return {**body, "messages": [*system, *body["messages"]]}


def completion(
    text: str,
    finish_reason: str = "stop",
    *,
    first: Mapping[str, float] | None = None,
    prompt_tokens: int | None = None,
    completion_tokens: int | None = None,
) -> dict[str, Any]:
    """Builds a reply in the form that servers send, from the parts that an engine has.

    Args:
        text: the answer.
        finish_reason: ``stop``, ``length`` or ``content_filter``.
        first: the log-probabilities of the first token, by token; None where the engine gives none.
        prompt_tokens: of the prompt, images included.
        completion_tokens: of the answer.
    """
    choice: dict[str, Any] = {"message": {"role": "assistant", "content": text}, "finish_reason": finish_reason}
    if first is not None:
        listed = [{"token": token, "logprob": value} for token, value in first.items()]
        choice["logprobs"] = {"content": [{"top_logprobs": listed}]}
    usage = {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens}
    return {"choices": [choice], "usage": {name: count for name, count in usage.items() if count is not None}}


# Images and untrusted text, for all engines.


def message(images: Sequence[NDArray[np.uint8]], text: str) -> dict[str, Any]:
    """Returns a user message: each image at its mark in the text; without marks all images first, then the text.

    In a request without images the marks are removed: the same words without anything to see.

    Args:
        images: uint8, shape (H, W, 3).
        text: Free of control tokens; with as many ``IMAGE_MARK`` as images, or none.
    """
    from PIL import Image

    pictures = [{"type": "image", "image": Image.fromarray(image)} for image in images]
    parts = text.split(IMAGE_MARK)
    if len(parts) == 1 or not pictures:
        return {"role": "user", "content": [*pictures, {"type": "text", "text": "".join(parts)}]}
    pieces = [{"type": "text", "text": part} for part in parts]
    mixed = [piece for pair in zip(pieces, pictures, strict=False) for piece in pair] + [pieces[-1]]
    return {"role": "user", "content": [piece for piece in mixed if piece.get("text") != ""]}


def conversation(system_prompt: str, user: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns a user message after the system prompt, if there is one."""
    system = [{"role": "system", "content": [{"type": "text", "text": system_prompt}]}] if system_prompt else []
    return [*system, user]


def malformed(request: Request) -> str:
    """Returns what is wrong with a request's images, or an empty string.

    Checked before batching, so that a request that cannot be sent does not change the batches of the others.
    """
    marks = request.text.count(IMAGE_MARK)
    if request.images and marks not in (0, len(request.images)):
        return f"the text has {marks} places for {len(request.images)} images; expected one for each, or none"
    for place, image in enumerate(request.images, start=1):
        if image.dtype.name != "uint8" or image.ndim != 3 or image.shape[2] != 3 or 0 in image.shape:
            return f"image {place} is {image.dtype} of shape {image.shape}; expected uint8 of shape (height, width, 3), not empty"
    return ""


# Control tokens in untrusted text: a question may quote ``<|image_pad|>``, and must not become an image.


class ControlTokens:
    """The strings that a processor reads as commands, and how to neutralise them in text.

    ``sanitize_control_tokens`` of the library does not work with every processor: Idefics3 refuses it for any
    request, Gemma 3 and InternVL for their own image tokens. So a control token in a question is broken by a space after its
    first visible character, in every family alike; the prediction says how many were.
    """

    def __init__(self, tokens: Iterable[str]) -> None:
        breakable = {token for token in tokens if len(token.strip()) > 1}
        longest_first = sorted(breakable, key=lambda token: (-len(token), token))
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    @classmethod
    def of(cls, processor: Any) -> ControlTokens:
        """Returns the control tokens of a processor: its tokenizer's special tokens and its own placeholders."""
        added = processor.tokenizer.added_tokens_decoder.values()
        special = [str(token.content) for token in added if token.special]
        named = [value for name, value in vars(processor).items() if name.endswith("_token") and isinstance(value, str)]
        return cls([*special, *processor.tokenizer.all_special_tokens, *named])

    def broken(self, text: str) -> tuple[str, int]:
        """Returns ``text`` without control tokens, and how many were broken.

        >>> ControlTokens(["<image>"]).broken("a <image> b")
        ('a < image> b', 1)
        """
        total = 0
        while self._pattern is not None:  # breaking a token can create another one, so this repeats
            text, count = self._pattern.subn(lambda match: re.sub(r"^\s*\S", r"\g<0> ", match[0]), text)
            total += count
            if not count:
                break
        return text, total


# Replies.


def text_prediction(reply: Any, method: str) -> Prediction:
    """Returns the text of a reply as a prediction."""
    choice, content, finish = _parts(reply)
    sent, details = _message(choice), usage_details(reply)
    refusal = sent.get("refusal")
    if isinstance(refusal, str) and refusal:
        return Prediction(refusal, method, "refusal", details=details)
    if not content.strip() and finish == "stop":
        finish = "empty"
        if field := thoughts_field(sent):
            finish = "only_reasoning"
            details[TEXT_ELSEWHERE] = on_one_line(f"{field}: {sent[field]!r}", _LONGEST_FACT)
    return Prediction(content, method, finish, details=details)


def letter_prediction(reply: Any, letters: Sequence[str]) -> Prediction:
    """Returns the most probable of the letters as a prediction.

    A letter's log-probability is that of its most probable listed token, ignoring blanks around it,
    also in a tokenizer's spelling (``▁A``, ``ĠA``). A letter
    that is not listed is less probable than every listed token, so it is the answer only if no other letter is listed.
    """
    choice, content, finish = _parts(reply)
    sent = _message(choice)
    details = usage_details(reply)
    if finish in REFUSALS or sent.get("refusal"):
        state = finish if finish in REFUSALS else "refusal"
        return Prediction(content or str(sent.get("refusal") or ""), LETTER_LOGITS, state, details=details)
    listed = first_logprobs(choice)
    if listed is None:
        raise NoLogprobs
    by_token = {bare(token): value for token, value in sorted(listed, key=lambda pair: pair[1])}  # the last one wins
    logprobs = {letter: by_token[letter] for letter in letters if letter in by_token}
    if not logprobs:
        return Prediction(content, LETTER_LOGITS, "no_letter" if listed else "empty", details=details)
    if len(logprobs) < len(letters):
        details["letters_listed"] = len(logprobs)
    return Prediction(most_probable(logprobs), LETTER_LOGITS, logprobs=logprobs, details=details)


def first_logprobs(choice: Mapping[str, Any]) -> list[tuple[str, float]] | None:
    """Returns the listed first tokens with their log-probabilities; None if the server gives none."""
    logprobs = choice.get("logprobs")
    content = logprobs.get("content") if isinstance(logprobs, dict) else None
    if content is None:
        return None
    try:
        first = content[0]["top_logprobs"] if content else []
        if any(entry["logprob"] is None for entry in first):  # the right letter may be the token without a number
            return None
        listed = [(str(entry["token"]), min(float(entry["logprob"]), _NONE_BELOW)) for entry in first]
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise Malformed(f"log-probabilities that cannot be read ({error!r})") from None
    if any(math.isnan(value) for _, value in listed):
        raise Malformed("a log-probability that is not a number")
    return None if content and not listed else listed


def first_choice(reply: Any) -> Mapping[str, Any]:
    """Returns the only choice of a reply."""
    choices = reply.get("choices") if isinstance(reply, dict) else None
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise Malformed("a reply without choices")
    chosen: Mapping[str, Any] = choices[0]
    return chosen


def reply_text(reply: Any) -> str:
    """Returns all text of a reply, reasoning included: it identifies the model."""
    sent = _message(first_choice(reply))
    return "\n".join(str(sent[name]) for name in (*_THOUGHTS, "content", "refusal") if sent.get(name))


def thoughts_field(sent: Mapping[str, Any]) -> str:
    """Returns the name of the field that holds the reasoning; empty if there is none."""
    return next((name for name in _THOUGHTS if isinstance(sent.get(name), str) and sent[name].strip()), "")


def thinks_first(choice: Mapping[str, Any]) -> bool:
    """Whether an answer so far consists of reasoning alone."""
    sent = _message(choice)
    return not str(sent.get("content") or "").strip() and bool(thoughts_field(sent))


def usage_details(reply: Mapping[str, Any]) -> dict[str, str | int | float]:
    """Returns the facts that a server gives about an answer: token counts, and the model that answered."""
    usage = reply.get("usage")
    sent = {name: usage.get(name) for name in ("prompt_tokens", "completion_tokens")} if isinstance(usage, dict) else {}
    counts = {name: token_count(value) for name, value in sent.items()}
    facts: dict[str, str | int | float] = {name: count for name, count in counts.items() if count is not None}
    bad = {name: value for name, value in sent.items() if value is not None and counts[name] is None}
    if usage is not None and not isinstance(usage, dict):
        bad = {"usage": usage}
    if bad:
        shown = {name: f"{value!r:.40}" if isinstance(value, str | int | float) else None for name, value in bad.items()}
        facts[UNUSABLE_COUNTS] = ", ".join(f"{name} {shown[name] or f'a {type(bad[name]).__name__}'}" for name in bad)
    names = {"model": "server_model", "system_fingerprint": "system_fingerprint"}
    facts |= {ours: reply[theirs][:_LONGEST_FACT] for theirs, ours in names.items() if isinstance(reply.get(theirs), str)}
    finish = first_choice(reply).get("finish_reason")
    if isinstance(finish, str) and finish and finish.lower() not in _ENDS:
        facts[UNKNOWN_END] = finish[:_LONGEST_FACT]
    return facts


def _parts(reply: Any) -> tuple[Mapping[str, Any], str, str]:
    """Returns the answer of a reply, its text, and how it ended."""
    choice = first_choice(reply)
    content = _message(choice).get("content")
    if isinstance(content, list):  # some servers split the text into parts
        content = "".join(map(_text_of, content))
    if content is not None and not isinstance(content, str):
        raise Malformed(f"an answer that is a {type(content).__name__}")
    content, finish = content or "", choice.get("finish_reason") or "stop"
    name = finish.lower() if isinstance(finish, str) else ""
    if name in _ENDS:
        return choice, content, _ENDS[name]
    if not name or name in _BROKEN_OFF or not content.strip():
        raise Malformed(f"an answer that ended with {finish!r:.100}")
    return choice, content, "stop"


def _text_of(part: Any) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        raise Malformed(f"an answer with a part that is a {type(part).__name__}")
    return str(part.get("text") or "") if part.get("type", "text") in _TEXT_PARTS else ""


def _message(choice: Mapping[str, Any]) -> Mapping[str, Any]:
    message = choice.get("message")
    if not isinstance(message, dict):
        raise Malformed("a choice without a message")
    return message
