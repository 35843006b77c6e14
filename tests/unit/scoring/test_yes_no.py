"""Whether a text says yes or no."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_vlmrobust.core.prediction import Prediction
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.scoring import YES_NO_RULES, Extraction, extract_yes_no, score

DOG = "Is there a dog in the image?"


@pytest.mark.cases(
    ("text", "answer"),
    [
        *[
            (text, "yes")
            for text in ("Yes", "YES!", "**Yes**", "yes yes yes", "True.", "That is correct.", "It is", "Answer: $Yes", "1")
        ],
        *[
            (text, "no")
            for text in ("No.", "nope", "False", "INCORRECT", "Of course not", "It is not", "That is not true.", "N", "0")
        ],
        *[
            (text, "yes")
            for text in (
                "I would say yes",
                "The answer is 'yes'",
                "It barks. Yes.",
                "Yes/No: Yes",
                "Answer: [Yes]",
                "Is it? Yes, it is.",
            )
        ],
        *[
            (text, "yes")
            for text in (
                "Let me look at the image. Yes, there is an umbrella.",
                "Looking at the image, yes, there is an umbrella.",
                "I can see it. No people are near it. Yes, there is an umbrella.",
                "That's correct, the man wears glasses.",
                "Absolutely! The cat sleeps.",
                "نعم، يوجد كلب في الصورة.",
            )
        ],
        *[
            (text, "no")
            for text in ("Not really; the sky is clear.", "I don't think so. It is a bowl.", "The sky is clear. No, he is not.")
        ],
        *[(text, None) for text in ("It is a dog. Yes, it is. No, wait.", "It is here. No, I cannot see the image.")],
        *[
            (text, "no")
            for text in (
                "Answer (yes/no): no",
                "So, no.",
                "There is none.\nNo",
                "没有狗",
                "不正常",
                '{"answer": false}',
                "Yes... Actually, no, it isn't.",
            )
        ],
        *[(text, "yes") for text in ("No. Actually yes.", "There is no dog, so yes", "Yes, no doubt", r"\boxed{\text{Yes}}")],
        *[(text, None) for text in ("Yes/No", "yes or no", "No. Yes.", "Yes, but no.", "no, yes", "是否")],
        *[
            (text, None)
            for text in ("The answer is not yes", "The answer is not no.", "no idea", "No. 5", "Not sure.", "I cannot tell", "")
        ],
        *[(text, None) for text in ("Perhaps", "It is unclear whether there is a dog", "no-one", "eyes", "No, that is correct.")],
    ],
)
def test_what_a_person_reads(text: str, answer: str | None) -> None:
    assert extract_yes_no(text).answer == answer


@pytest.mark.cases("question", ["", DOG])
@pytest.mark.cases(
    "text",
    [
        *["There is no dog in the image.", "No dog is visible.", "I don't see a dog.", "The image does not show a dog."],
        *["A dog is not visible in the picture", "There does not appear to be a dog.", "<answer>There is no dog.</answer>"],
    ],
)
def test_a_denial_is_no(text: str, question: str) -> None:
    assert extract_yes_no(text, question).answer == "no"


@pytest.mark.cases(
    ("text", "question", "answer"),
    [
        ("There is no dog, but there is a cat.", DOG, "no"),
        ("There is no cat, but there is a dog.", DOG, None),
        ("There is no cat in the image.", DOG, None),
        ("There is no dog.", "Is the image free of dogs?", None),
        ("There is no dog.", "Isn't there a dog?", None),
        ("Yes, there is no dog.", "Is there no dog?", "yes"),
        ("Yes, there is no dog.", DOG, None),
        ("No, there is a dog in the image.", DOG, None),
        ("There is a dog.", DOG, "yes"),
        ("Based on the image, it does not appear that there is a dog.", DOG, "no"),
        ("In the image, there is a dog.", f"{DOG} Please answer yes or no.", "yes"),
        ("There is a dog.", "Is there a dog on the sofa?", None),
        ("There is a toy dog.", DOG, None),
        ("There is a dog lying on the grass.", DOG, "yes"),
        ("I can see two dogs.", DOG, "yes"),
        ("There are two dogs.", "Is there only one dog in the image?", None),
        ("There are many dogs.", "Are there few dogs?", None),
        ("There is a cat lying on the grass.", DOG, None),
        ("There is a dog painting on the wall.", DOG, None),
        ("There is a dog lying on the grass.", "Is there a dog on the sofa?", None),
        ("There might be a dog.", DOG, None),
        ("There is a dog, but no cat.", DOG, None),
        ("There are three dogs.", "Are there two dogs in the image?", None),
        ("The light is not on.", "Is the light off?", None),
        ("The light is on.", "Is the light off?", None),
        ("The light is not off.", "Is the light off?", "no"),
        ("Yes, I can look at that for you. There is no dog.", DOG, "no"),
        ("Yes, the photo is clear to me. There is no dog.", DOG, None),
        ("Yes, I see one. There is no other dog.", DOG, "yes"),
        ("Yes, there is a dog. There is no cat.", DOG, "yes"),
        ("The image shows a dog sitting on a chair, along with a cat.", DOG, "yes"),
        ("There is a cat, not a dog.", DOG, "no"),
        ("No, there is only a cat.", DOG, "no"),
        ("The shirt is red.", "Is the shirt red?", "yes"),
        ("The shirt is red and white.", "Is the shirt red?", None),
        ("The shirt is barely red.", "Is the shirt red?", None),
        ("The shirt is partly red.", "Is the shirt red?", None),
        ("The man is unlikely holding a cup.", "Is the man holding a cup?", None),
        ("The cat is bigger than the dog.", "Is the cat bigger than the dog?", "yes"),
        ("The dog is bigger than the cat.", "Is the cat bigger than the dog?", None),
        ("No, the dog is bigger than the cat.", "Is the cat bigger than the dog?", "no"),
        ("They are not facing each other.", "Are they facing each other?", "no"),
        ("There is a red bus and a blue car.", "Is there a red car?", None),
        ("Traffic is light.", "Can you see traffic lights?", None),
        ("The light is on.", "Is the light on?", "yes"),
        ("The dog is not on the sofa.", DOG, None),
        ("There is no caf\u00e9.", "Is there a caf\u00e9 in the image?", "no"),
        ("\u56fe\u4e2d\u6709\u732b", "\u56fe\u4e2d\u6709\u72d7\u5417", None),
        ("The dog is not fully visible.", DOG, None),
        ("There is no dog food.", DOG, None),
        ("The woman is not riding.", "Is the man riding?", None),
    ],
)
def test_the_question_decides_what_a_description_means(text: str, question: str, answer: str | None) -> None:
    assert extract_yes_no(text, question).answer == answer
    assert score(Sample("1", (), question, "no", "yes_no"), Prediction(text, "generate")).answer == answer


@pytest.mark.cases(
    "polite",
    ["Yes, I can help with that!", "Yes, of course!", "Yes, let me look.", "Yes! I'd be happy to help.", "Sure, happy to help."],
)
def test_what_follows_a_polite_beginning_answers(polite: str) -> None:
    assert extract_yes_no(f"{polite} There is no dog in the image.", DOG).answer == "no"


def test_a_polite_beginning_answers_where_nothing_else_does() -> None:
    assert extract_yes_no("Yes, of course! It sits on the left.", DOG).answer == "yes"
    assert extract_yes_no("Yes.\nNo.", DOG).answer is None


def test_a_refusal_after_no_is_no_answer() -> None:
    assert extract_yes_no("No, I cannot see the image.") == Extraction(None, "refusal")


@settings(deadline=None)
@given(
    text=st.text(max_size=200)
    | st.lists(st.sampled_from(["yes", "no", "not", "the answer is", ",", ".", "so", "<think>", "\n", "is"]), max_size=20).map(
        " ".join
    )
)
def test_yes_no_is_always_yes_or_no_or_none(text: str) -> None:
    extraction = extract_yes_no(text)
    assert extraction.rule in YES_NO_RULES if extraction.answer else extraction.answer is None
    assert extraction.answer in ("yes", "no", None)
