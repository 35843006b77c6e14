from __future__ import annotations

import base64
import io
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pytest_vlmrobust.backends.chat import (
    ControlTokens,
    Malformed,
    NoLogprobs,
    letter_prediction,
    letters_body,
    messages_of,
    reply_text,
    text_body,
    text_prediction,
)
from pytest_vlmrobust.backends.generation import Generation
from pytest_vlmrobust.core.prediction import Prediction, Request
from pytest_vlmrobust.core.sample import IMAGE_MARK
from tests.model_server import reply


def test_pictures_stand_where_the_text_has_a_place_for_them_and_lose_nothing() -> None:
    images = tuple(np.random.default_rng(seed).integers(0, 256, (5, 7, 3), dtype=np.uint8) for seed in (1, 2))
    (message,) = messages_of(Request("k", images, f"first {IMAGE_MARK} then {IMAGE_MARK}."))
    assert [part["type"] for part in message["content"]] == ["text", "image_url", "text", "image_url", "text"]
    sent = [part["image_url"]["url"].split(",")[1] for part in message["content"] if part["type"] == "image_url"]
    for data, image in zip(sent, images, strict=True):
        picture = Image.open(io.BytesIO(base64.b64decode(data)))
        assert picture.format == "PNG"
        assert (np.asarray(picture) == image).all()
    assert messages_of(Request("k", (), f"blind {IMAGE_MARK}"))[0]["content"] == [{"type": "text", "text": "blind "}]


def test_a_limit_and_a_temperature_are_always_sent_and_other_parameters_where_they_are_asked_for() -> None:
    greedy = text_body([], limit=7, generation=Generation())
    assert greedy == {"messages": [], "max_tokens": 7, "temperature": 0.0}
    sampled = text_body([], limit=7, generation=Generation(temperature=0.5, top_p=0.9, top_k=3, repetition_penalty=1.1), seed=5)
    assert sampled == {
        "messages": [],
        "max_tokens": 7,
        "temperature": 0.5,
        "top_p": 0.9,
        "seed": 5,
        "top_k": 3,
        "repetition_penalty": 1.1,
    }
    assert letters_body([])["max_tokens"] == 1


def test_a_letter_that_is_listed_in_several_ways_has_the_probability_of_the_most_probable() -> None:
    prediction = letter_prediction(reply("x", logprobs={"A": -3.0, " A": -1.0, "\nB": -2.0, "AB": -0.1, "b": -0.2}), "AB")
    assert dict(prediction.logprobs) == {"A": -1.0, "B": -2.0}
    assert prediction.text == "A"


def test_a_letter_is_read_however_a_tokenizer_spells_the_blank_before_it() -> None:
    for form in ("▁{}", "Ġ{}", "Ċ{}", "\n\n{}"):
        listed = {form.format("A"): -3.0, form.format("B"): -0.1, "token_id:65": -0.01, "(A": -0.02}
        assert letter_prediction(reply("x", logprobs=listed), "AB").logprobs == {"A": -3.0, "B": -0.1}


def test_a_probability_that_is_rounded_above_one_is_one() -> None:
    assert dict(letter_prediction(reply("A", logprobs={"A": 1e-7}), "AB").logprobs) == {"A": 0.0}


def changed(path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    whole = reply("A", logprobs={"A": -0.1})
    place: Any = whole
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return whole


FIRST = ("choices", 0, "logprobs", "content", 0, "top_logprobs", 0)


@pytest.mark.cases(
    ("broken", "error"),
    [
        (changed(("choices", 0, "logprobs"), None), NoLogprobs),
        (changed(("choices", 0, "logprobs", "content"), None), NoLogprobs),
        (changed((*FIRST[:-1],), []), NoLogprobs),
        (changed((*FIRST, "logprob"), None), NoLogprobs),
        (changed((*FIRST, "logprob"), "much"), Malformed),
        (changed((*FIRST, "logprob"), float("nan")), Malformed),
        (changed((*FIRST[:-1],), None), Malformed),
        (changed(("choices", 0, "logprobs", "content"), {"0": 1}), Malformed),
        (changed(("choices",), None), Malformed),
        (changed(("choices", 0, "message"), "A"), Malformed),
        (changed(("choices", 0, "message", "content"), 7), Malformed),
        (changed(("choices", 0, "message", "content"), [7]), Malformed),
        (changed(("choices", 0, "finish_reason"), "abort"), Malformed),
        (changed(("choices", 0, "finish_reason"), ["stop"]), Malformed),
        ("A", Malformed),
        (None, Malformed),
    ],
)
def test_what_cannot_be_read_is_no_answer(broken: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        letter_prediction(broken, "AB")
    if error is Malformed and "logprob" not in str(broken):
        with pytest.raises(Malformed):
            text_prediction(broken, "generate")


@pytest.mark.parametrize(
    "parts",
    [
        [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
        [{"type": "reasoning", "text": "hm"}, {"type": "thinking", "thinking": []}, {"text": "ab"}],
        ["ab"],
        ["a", {"type": "output_text", "text": "b"}],
    ],
)
def test_text_in_parts_is_text(parts: list[Any]) -> None:
    assert text_prediction(changed(("choices", 0, "message", "content"), parts), "generate").text == "ab"


@pytest.mark.cases(
    ("sent", "finish"),
    [
        *((name, "stop") for name in ("stop", "eos", "eos_token", "end_turn", "stop_sequence", "STOP", None)),
        *((name, "length") for name in ("length", "max_tokens", "MAX_TOKENS")),
        *((name, "content_filter") for name in ("content_filter", "SAFETY", "RECITATION")),
        ("refusal", "refusal"),
    ],
)
def test_servers_have_many_names_for_the_end_of_an_answer(sent: Any, finish: str) -> None:
    prediction = text_prediction(reply("B", finish=sent), "generate")
    assert (prediction.text, prediction.finish_reason) == ("B", finish)
    assert "unknown_finish_reason" not in prediction.details


def test_an_unknown_end_of_a_text_is_noted_and_one_without_a_text_is_no_answer() -> None:
    prediction = text_prediction(reply("B", finish="DONE"), "generate")
    assert (prediction.text, prediction.finish_reason, prediction.details["unknown_finish_reason"]) == ("B", "stop", "DONE")
    with pytest.raises(Malformed, match="ended with 'DONE'"):
        text_prediction(reply("", finish="DONE"), "generate")


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_a_text_in_the_field_for_reasoning_alone_is_said(field: str) -> None:
    thoughts: dict[str, Any] = {field: "The answer is B"}
    prediction = text_prediction(reply(None, **thoughts), "generate")  # type: ignore[arg-type]  # as some servers write it
    assert (prediction.text, prediction.finish_reason) == ("", "only_reasoning")
    assert prediction.details["text_elsewhere"] == f"{field}: 'The answer is B'"
    answered = text_prediction(reply("B", **thoughts), "generate")
    assert (answered.finish_reason, "text_elsewhere" in answered.details) == ("stop", False)


def test_all_that_is_said_tells_models_apart() -> None:
    assert reply_text(reply("B", reasoning_content="Let me look")) == "Let me look\nB"
    assert reply_text(reply("", refusal="no")) == "no"


@pytest.mark.cases("count", [-5, "7", 7.0, float("nan"), float("inf"), 10**30, True, [7]])
def test_a_number_of_tokens_that_can_be_none_is_not_known(count: Any) -> None:
    prediction = text_prediction({**reply("A"), "usage": {"prompt_tokens": count, "completion_tokens": 1}}, "generate")
    assert prediction.tokens is None
    assert "prompt_tokens" not in prediction.details
    assert str(prediction.details["unusable_counts"]).startswith("prompt_tokens ")
    assert Prediction("A", "generate", details={"prompt_tokens": count, "new_tokens": 1}).tokens is None


@pytest.mark.parametrize(
    ("usage", "details"),
    [(None, {}), ({}, {}), ({"prompt_tokens": None}, {}), ([7, 1], {"unusable_counts": "usage a list"})],
)
def test_a_number_of_tokens_that_is_not_sent_is_no_fault(usage: Any, details: dict[str, Any]) -> None:
    assert text_prediction({**reply("A"), "usage": usage}, "generate").details == {"server_model": "m", **details}


def test_tokens_and_what_answered_are_noted() -> None:
    details = text_prediction({**reply("A"), "system_fingerprint": "fp", "usage": {"prompt_tokens": 3}}, "generate").details
    assert details == {"prompt_tokens": 3, "server_model": "m", "system_fingerprint": "fp"}


# None


TOKENS = ["<|im_end|>", "<image>", "<image_soft>", "<image>x", "\n", "\n\n", "#", " #"]


@pytest.mark.cases(
    ("tokens", "text", "expected", "count"),
    [
        (TOKENS, "no tokens here\n\n #", "no tokens here\n\n #", 0),
        (TOKENS, "a <image> b", "a < image> b", 1),
        (TOKENS, "<image>x", "< image>x", 1),
        (TOKENS, "<image><|im_end|>", "< image>< |im_end|>", 2),
        (TOKENS, "", "", 0),
        ([], "<image>", "<image>", 0),
        (["ab", "a b"], "ab", "a  b", 2),  # what breaking uncovers
        ([" <x>", "\t"], "a <x>\t", "a < x>\t", 1),  # after white space at its beginning
    ],
)
def test_breaks_each_token_after_its_first_character(tokens: list[str], text: str, expected: str, count: int) -> None:
    assert ControlTokens(tokens).broken(text) == (expected, count)


def test_a_processors_tokens_are_the_special_ones_and_its_placeholders() -> None:
    added = {1: SimpleNamespace(content="<|box|>", special=True), 2: SimpleNamespace(content="<think>", special=False)}
    tokenizer = SimpleNamespace(added_tokens_decoder=added, all_special_tokens=["<pad>"])
    processor = SimpleNamespace(tokenizer=tokenizer, image_token="<img>", image_token_id=7, chat_template="<x>")  # noqa: S106
    assert ControlTokens.of(processor).broken("<|box|><think><pad><img><x>") == ("< |box|><think>< pad>< img><x>", 3)


def test_breaking_is_deterministic_whatever_the_order_of_tokens() -> None:
    assert ControlTokens(["xy", "yz"]).broken("xyz") == ControlTokens(["yz", "xy"]).broken("xyz")
