"""The exact texts: a model sees them, and every answer in a store is kept under them."""

from __future__ import annotations

import dataclasses

import pytest

from pytest_vlmrobust.core.prediction import PROMPT_MODES
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.evaluation.run.prompts import prompt, scorable_choices

CHOICE = Sample("1", (), "What is it?", "B", "choice", options={"A": "cat", "B": "dog"})
YES_NO = Sample("2", (), "Is it a dog?", "yes", "yes_no")
OPEN = Sample("3", (), "What does it say?", ("stop", "STOP"), "open")

TEXTS = {
    ("choice", "direct"): (
        "Question: What is it?\nOptions:\nA. cat\nB. dog\n"
        "Please select the correct answer from the options above. Respond with only the letter of the correct option. "
        "Do not explain. Answer:"
    ),
    ("choice", "cot"): (
        "Question: What is it?\nOptions:\nA. cat\nB. dog\n"
        "Answer the preceding multiple choice question. The last line of your response should be of the following format: "
        "'Answer: $LETTER' (without quotes) where LETTER is one of options. Think step by step before answering."
    ),
    ("yes_no", "direct"): "Is it a dog?\nPlease answer yes or no.",
    ("yes_no", "cot"): (
        "Is it a dog?\nThink step by step before answering. The last line of your response should be of the following format: "
        "'Answer: $WORD' (without quotes) where WORD is yes or no."
    ),
    ("open", "direct"): "What does it say?\nAnswer the question using a single word or phrase.",
    ("open", "cot"): (
        "What does it say?\nThink step by step before answering. The last line of your response should be of the following "
        "format: 'Answer: $ANSWER' (without quotes) where ANSWER is a single word or phrase."
    ),
}


@pytest.mark.parametrize("sample", [CHOICE, YES_NO, OPEN], ids=lambda sample: sample.task)
@pytest.mark.parametrize("mode", ["direct", "cot"])
def test_the_texts(sample: Sample, mode: str) -> None:
    assert prompt(sample, mode) == TEXTS[sample.task, mode]


@pytest.mark.parametrize("sample", [CHOICE, YES_NO, OPEN], ids=lambda sample: sample.task)
def test_a_thinking_model_is_asked_like_a_direct_one(sample: Sample) -> None:
    assert prompt(sample, "thinking") == TEXTS[sample.task, "direct"]


@pytest.mark.parametrize("sample", [CHOICE, YES_NO, OPEN], ids=lambda sample: sample.task)
@pytest.mark.parametrize("mode", PROMPT_MODES)
def test_a_hint_comes_first(sample: Sample, mode: str) -> None:
    hinted = dataclasses.replace(sample, hint="Look at the ears.")
    assert prompt(hinted, mode) == f"Hint: Look at the ears.\n{prompt(sample, mode)}"


def test_letters_and_texts_stand_as_the_sample_has_them() -> None:
    odd = dataclasses.replace(CHOICE, options={"C": "", "A": "None", "B": "{braces} %s"})
    assert "Options:\nC. \nA. None\nB. {braces} %s\nPlease" in prompt(odd, "direct")


@pytest.mark.parametrize(("sample", "choices"), [(CHOICE, ("A", "B")), (YES_NO, ("Yes", "No")), (OPEN, ())])
def test_letters_are_scored_only_where_no_writing_comes_first(sample: Sample, choices: tuple[str, ...]) -> None:
    assert scorable_choices(sample, "direct") == choices
    assert scorable_choices(sample, "cot") == scorable_choices(sample, "thinking") == ()


@pytest.mark.parametrize("sample", [CHOICE, YES_NO], ids=lambda sample: sample.task)
def test_letters_are_scored_only_for_the_scorer_of_the_task(sample: Sample) -> None:
    assert scorable_choices(dataclasses.replace(sample, scorer=sample.task), "direct") == scorable_choices(sample, "direct")
    assert scorable_choices(dataclasses.replace(sample, scorer="exact"), "direct") == ()


def test_an_unknown_mode_is_no_silent_default() -> None:
    with pytest.raises(KeyError, match="quick"):
        prompt(CHOICE, "quick")


def test_an_instruction_of_the_sample_takes_the_place_of_the_direct_one() -> None:
    question = Sample("q", (), "What is the total?", "7", "open", instruction="Answer with a number.")
    assert prompt(question, "direct") == "What is the total?\nAnswer with a number."
    assert prompt(question, "thinking") == prompt(question, "direct")
    assert prompt(question, "cot").startswith("What is the total?\nAnswer with a number.\nThink step by step before answering.")
