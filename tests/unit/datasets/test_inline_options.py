"""Options written at the end of a question."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_vlmrobust.datasets.inline_options import options_in


@pytest.mark.parametrize(
    ("question", "asked", "options"),
    [
        ("Which way?\nA. Left.\nB. Right.", "Which way?", ["Left.", "Right."]),
        ("Which?\nOptions: A: one, B: two, C: three, D: four", "Which?", ["one", "two", "three", "four"]),
        ("Which? (A) red (B) dark blue\nAnswer with the letter.", "Which?", ["red", "dark blue"]),
        ("Which?\nChoices:\nA) 1\nB) 2\nC) 3", "Which?", ["1", "2", "3"]),
        ("Is A. better than B. here?\nA. yes\nB. no", "Is A. better than B. here?", ["yes", "no"]),
        ("Which?\nA. see B.\nB. none", "Which?", ["see B.", "none"]),
    ],
)
def test_options_are_found(question: str, asked: str, options: list[str]) -> None:
    assert options_in(question) == (asked, dict(zip("ABCDEFGH", options, strict=False)))


@pytest.mark.parametrize(
    "question", ["What is it?", "Is plan A. better?", "A. only one", "B. two\nC. three", "", "a. left b. right"]
)
def test_a_question_without_options_stays_as_it_is(question: str) -> None:
    assert options_in(question) == (question, {})


@given(st.lists(st.text("abc xyz", min_size=1).map(str.strip).filter(bool), min_size=2, max_size=26))
def test_what_is_listed_line_by_line_is_read_back(texts: list[str]) -> None:
    listed = "".join(f"\n{letter}. {text}" for letter, text in zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ", texts, strict=False))
    asked, options = options_in(f"Which one?{listed}")
    assert asked == "Which one?"
    assert list(options.values()) == texts
