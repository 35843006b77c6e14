"""Thinking, as each family of models marks it: what follows counts, and unfinished thinking is no answer."""

import unicodedata

import pytest

from pytest_vlmrobust.scoring import Extraction, extract_choice, extract_open, extract_yes_no
from pytest_vlmrobust.scoring.text import final_words

OPTIONS = {"A": "cat", "B": "dog"}
MARKS = [
    ("<think>", "</think>"),
    ("<seed:think>", "</seed:think>"),
    ("\u25c1think\u25b7", "\u25c1/think\u25b7"),
    ("[THINK]", "[/THINK]"),
    ("<|channel>thought\n", "<channel|>"),
    ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"),
    ("<|start|>assistant<|channel|>analysis<|message|>", "<|channel|>final <|constrain|>json<|message|>"),
    ("analysis", "assistantfinal"),
]


@pytest.mark.parametrize(("begin", "end"), MARKS)
def test_what_follows_thinking_counts(begin: str, end: str) -> None:
    assert extract_choice(f"{begin}The answer is A.{end}B<|return|>", OPTIONS) == Extraction("B", "letter")
    assert extract_choice(f"The answer is A.{end}B", OPTIONS) == Extraction("B", "letter")
    assert extract_yes_no(f"{begin}The answer is yes.{end}No.") == Extraction("no", "word")
    assert extract_open(f"{begin}Answer: red{end}blue") == Extraction("blue", "whole")


@pytest.mark.parametrize(("begin", "end"), MARKS)
def test_unfinished_thinking_is_no_answer(begin: str, end: str) -> None:
    for extract in (lambda text: extract_choice(text, OPTIONS), extract_yes_no, extract_open):
        assert extract(f"{begin}The answer is A.") == Extraction(None, "unfinished_thinking")
    if begin != "analysis":  # which is looked for at the beginning alone
        assert extract_choice(f"{begin}A.{end}B{begin}Or A", OPTIONS) == Extraction(None, "unfinished_thinking")


@pytest.mark.parametrize(("begin", "end"), MARKS[:5])
def test_before_thinking_counts_where_nothing_follows(begin: str, end: str) -> None:
    assert extract_choice(f"B{begin}The answer is A.{end}<|im_end|>", OPTIONS) == Extraction("B", "letter")


def test_words_that_are_no_marks_stay() -> None:
    assert extract_open("analysis of a picture") == Extraction("analysis of a picture", "whole")
    assert extract_choice("<|channel|>commentary<|message|>A", OPTIONS) == Extraction(None, "unfinished_thinking")
    assert extract_choice("<|channel|>final<|message|>B", OPTIONS) == Extraction("B", "letter")


def test_a_letter_keeps_as_many_marks_as_any_language_puts_on_one() -> None:
    one = "x" + "\u0323\u0307" * 15
    assert final_words(f"{one} B") == unicodedata.normalize("NFKC", f"{one} B")
    assert final_words("x" + "\u0307\u0323" * 150_000 + " B") == unicodedata.normalize("NFKC", "x" + "\u0307\u0323" * 15 + " B")
