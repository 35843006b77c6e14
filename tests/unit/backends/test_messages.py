from __future__ import annotations

from types import SimpleNamespace

import pytest

from pytest_vlmrobust.backends.chat import ControlTokens

TOKENS = ControlTokens(["<|im_end|>", "<image>", "<image_soft>", "<image>x", "\n", "\n\n", "#", " #"])


@pytest.mark.parametrize(
    ("text", "expected", "count"),
    [
        ("no tokens here\n\n #", "no tokens here\n\n #", 0),
        ("a <image> b", "a < image> b", 1),
        ("<image>x", "< image>x", 1),
        ("<image><|im_end|>", "< image>< |im_end|>", 2),
        ("", "", 0),
    ],
)
def test_breaks_each_token_after_its_first_character(text: str, expected: str, count: int) -> None:
    assert TOKENS.broken(text) == (expected, count)


def test_what_breaking_uncovers_is_broken_too() -> None:
    text, count = ControlTokens(["ab", "a b"]).broken("ab")
    assert (text, count) == ("a  b", 2)


def test_tokens_that_begin_with_white_space_are_broken_inside() -> None:
    assert ControlTokens([" <x>", "\t"]).broken("a <x>\t") == ("a < x>\t", 1)


def test_a_processors_tokens_are_the_special_ones_and_its_placeholders() -> None:
    added = {1: SimpleNamespace(content="<|box|>", special=True), 2: SimpleNamespace(content="<think>", special=False)}
    tokenizer = SimpleNamespace(added_tokens_decoder=added, all_special_tokens=["<pad>"])
    processor = SimpleNamespace(tokenizer=tokenizer, image_token="<img>", image_token_id=7, chat_template="<x>")  # noqa: S106
    assert ControlTokens.of(processor).broken("<|box|><think><pad><img><x>") == ("< |box|><think>< pad>< img><x>", 3)


def test_no_tokens_leave_everything() -> None:
    assert ControlTokens([]).broken("<image>") == ("<image>", 0)


def test_breaking_is_deterministic_whatever_the_order_of_tokens() -> None:
    assert ControlTokens(["xy", "yz"]).broken("xyz") == ControlTokens(["yz", "xy"]).broken("xyz")
