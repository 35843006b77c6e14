"""Clauses that a text does not assert: composed of the phrases of every language, no letter in them is an answer."""

from __future__ import annotations

import pytest

from pytest_vlmrobust.scoring import extract_choice, extract_yes_no
from pytest_vlmrobust.scoring.phrases import Language, shipped

OPTION_SETS = (
    {"A": "cat", "B": "dog", "C": "red car", "D": "12"},
    {"A": "left", "B": "right", "C": "above", "D": "below"},
    {"A": "Yes", "B": "No", "C": "Maybe", "D": "None"},
)
LANGUAGES = {code: language for code, language in shipped().languages.items() if code != "en"}
STYLES = {
    "at_first": ("{phrase} A, {however} {correction} B.",),
    "wrong_answer": ("{phrase}: A", "{phrase} A"),
    "others": ("{phrase} A.",),
    "suppose": ("{phrase} A.",),
}


def composed(language: Language, role: str) -> list[str]:
    """Returns the styles of a role, with each of its phrases."""
    words = {name: (language.phrases.get(name) or ("",))[0] for name in ("however", "correction")}
    texts = [style.format(phrase=phrase, **words) for style in STYLES[role] for phrase in language.phrases.get(role, ())]
    return texts if language.spaces else [text.replace(" ", "") for text in texts]


@pytest.mark.parametrize("options", OPTION_SETS, ids=["things", "places", "words"])
@pytest.mark.parametrize("role", sorted(STYLES))
@pytest.mark.parametrize("code", sorted(LANGUAGES))
def test_what_is_not_asserted_is_no_answer_in_any_language(code: str, role: str, options: dict[str, str]) -> None:
    for text in composed(LANGUAGES[code], role):
        assert extract_choice(text, options).answer != "A", text


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("My colleague says A. I disagree.", None),
        ("I first thought A, but B is right.", "B"),
        ("If it were A, there would be whiskers.", None),
        ("One might answer A; actually B.", "B"),
        ("Wrong answer: A", None),
        ("Is it A? No, B.", "B"),
        ("The answer is A. That is wrong.", None),
        ("The answer is A.\n\nUpdate: after zooming in, it's B.", "B"),
        ("Answer: B. dog\nQuestion: What colour is it?\nAnswer: A", "B"),
        ("As I said, the answer is B.", "B"),
        ("If I had to guess, B.", "B"),
        ("I suppose B.", "B"),
        ("A. dog", None),
        ("The answer is dog (A).", None),
        ('{"answer": "A. dog"}', None),
        ("D. 12: incorrect.", None),
        ("A. cat: no.\nB. dog: yes.\nC. red car: no.\nD. 12: no.", "B"),
        ("The\u200b answer is \ufeffB\u00ad", "B"),
    ],
)
def test_what_a_text_asserts_at_its_end_is_read(text: str, answer: str | None) -> None:
    assert extract_choice(text, OPTION_SETS[0]).answer == answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("The cup is on the left.", "A"),
        ("The person left the room.", None),
        ("That's right.", None),
        ("All of the above.", None),
        ("The cup is above the shelf.", "C"),
    ],
)
def test_options_that_are_function_words_need_a_place(text: str, answer: str | None) -> None:
    assert extract_choice(text, OPTION_SETS[1]).answer == answer


@pytest.mark.parametrize(
    ("text", "question", "answer"),
    [
        ("The dog is not on the sofa.", "Is there a dog?", None),
        ("There is no dog collar.", "Is there a dog?", None),
        ("The man is not wearing a hat.", "Is the man wearing a hat?", "no"),
        ("No, there is a dog.", "Is there a dog?", None),
        ("Yes, there is no dog.", "Is there a dog?", None),
        ("No doubt, yes.", "Is there a dog?", "yes"),
        ("I wouldn't say no.", "Is there a dog?", None),
        ("图中没有狗。", "图中有狗吗", "no"),
    ],
)
def test_a_denial_has_no_word_that_the_question_lacks(text: str, question: str, answer: str | None) -> None:
    assert extract_yes_no(text, question).answer == answer


@pytest.mark.parametrize("text", ["the dog " * 1_000_000, "A " * 60_000])
def test_a_text_that_is_too_long_is_not_read(text: str) -> None:
    assert extract_choice(text, OPTION_SETS[0]).rule == "too_long"
