"""Denials that answer a question for something with no."""

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
        "There is no doubt that there is a dog",
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
