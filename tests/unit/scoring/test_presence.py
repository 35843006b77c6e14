"""Denials that answer a question for something with no, and clauses that answer it with yes."""

from __future__ import annotations

import pytest

from pytest_vlmrobust.core.prediction import Prediction
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.scoring import Extraction, extract_yes_no, score

ASKED = "Is there a dog in the image?"


@pytest.mark.parametrize("question", ["", ASKED])
@pytest.mark.parametrize(
    "text",
    [
        "There is no dog in the image.",
        "No dog is visible.",
        "I do not see any dog",
        "I don't see a dog.",
        "There are no dogs.",
        "The image does not show a dog.",
        "A dog is not visible in the picture",
        "No dog can be seen here.",
        "There does not appear to be a dog.",
        "I see no dog.",
        "<answer>There is no dog.</answer>",
    ],
)
def test_a_denial_is_no(text: str, question: str) -> None:
    assert extract_yes_no(text, question).answer == "no"


@pytest.mark.parametrize(
    "text",
    [
        "No idea",
        "There is no way to tell",
        "No image was provided.",
        "It is not clear whether there is a dog",
        "There is no cat, but there is a dog",
        "not only a dog but a cat too",
        "I do not know if there is a dog",
        "It is not possible to say",
    ],
)
def test_what_denies_something_else_is_unread(text: str) -> None:
    assert extract_yes_no(text, ASKED).answer is None
    assert extract_yes_no(text).answer is None


@pytest.mark.parametrize(
    ("text", "question", "answer"),
    [
        ("There is no dog, but there is a cat.", ASKED, "no"),
        ("There is no dog. The image shows a cat.", ASKED, "no"),
        ("There is no cat. There is a dog.", ASKED, None),
        ("There is no cat in the image.", ASKED, None),
        ("There is no dog.", "Is the image free of dogs?", None),
        ("There is no dog.", "Isn't there a dog?", None),
        ("Yes, there is no dog.", "Is there no dog?", "yes"),
    ],
)
def test_the_question_decides_what_a_denial_means(text: str, question: str, answer: str | None) -> None:
    assert extract_yes_no(text, question).answer == answer
    found = score(Sample("1", (), question, "no", "yes_no"), Prediction(text, "generate"))
    assert found.answer == answer


def test_a_denial_has_a_rule_of_its_own() -> None:
    assert extract_yes_no("There is no dog") == Extraction("no", "denial")


HOW_TO_ANSWER = ["{} Please answer yes or no.", "Please answer yes or no. {}", "{} Answer with 'Yes' or 'No' only", "{} yes/no"]


@pytest.mark.parametrize("how", HOW_TO_ANSWER)
def test_what_a_question_says_of_its_answer_denies_nothing(how: str) -> None:
    asked = how.format(ASKED)
    assert extract_yes_no("There is no dog in the image.", asked) == Extraction("no", "denial")
    assert extract_yes_no("There is a dog in the image.", asked) == Extraction("yes", "affirmation")
    assert extract_yes_no("There is a cat.", asked).answer is None


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("There is a dog.", ASKED),
        ("In the image, there is a dog.", ASKED),
        ("There is no doubt that there is a dog", ASKED),
        ("I can see a dog in the picture.", "Do you see a dog?"),
        ("A dog is clearly visible.", ASKED),
        ("There is a dog on the sofa.", "Is there a dog on the sofa?"),
        ("There is a red car.", "Is there a red car in the photo?"),
    ],
)
def test_a_clause_that_says_all_that_was_asked_for_is_yes(text: str, question: str) -> None:
    assert extract_yes_no(text, question).answer == "yes"
    assert extract_yes_no(text).answer is None


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("There is a dog.", "Is there a dog on the sofa?"),
        ("There is a dog on the left.", "Is there a dog on the right?"),
        ("There is a car.", "Is there a red car in the photo?"),
        ("There is a hot dog.", ASKED),
        ("There is a dog house.", ASKED),
        ("There is a toy dog.", ASKED),
        ("There is a picture of a dog.", ASKED),
        ("There is something like a dog.", ASKED),
        ("There might be a dog.", ASKED),
        ("There is a dog?", ASKED),
        ("There is a dog, but no cat.", ASKED),
        ("There is a dog.", "Is there no dog?"),
        ("There are three dogs.", "Are there two dogs in the image?"),
        ("There is a cat.", ASKED),
    ],
)
def test_a_clause_that_says_less_or_more_is_unread(text: str, question: str) -> None:
    assert extract_yes_no(text, question).answer is None
