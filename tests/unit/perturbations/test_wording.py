"""Wording and directional changes: what they leave alone, and whether the new answer is certain."""

from __future__ import annotations

import dataclasses
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_vlmrobust import perturbations
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.evaluation.run.prompts import prompt
from tests.unit.perturbations.test_questions import ANIMAL

POLAR = Sample("2", (), "Are there more than 3 dots?", "yes", "yes_no")


def changed(sample: Sample, setting: str, seed: int = 1) -> Sample:
    return perturbations.perturbed(sample, setting, seed=seed)


@given(st.integers(0, 2**32))
def test_typos_touch_no_option_no_number_no_name_and_no_quote(seed: int) -> None:
    question = 'Which seven "written words" near Berlin Station show 2024x things beside small birds?'
    before = dataclasses.replace(ANIMAL, question=question)
    after = changed(before, "typos:3", seed).question
    words, now = question.split(), after.split()
    kept = ["seven", '"written', 'words"', "Berlin", "Station", "2024x", "small", "near"]
    assert [word for word in kept if word not in now] == []
    wrong = [(word, typo) for word, typo in zip(words, now, strict=True) if word != typo]
    assert len(wrong) == 3
    assert {word.strip("?") for word, _ in wrong} <= {"Which", "things", "beside", "birds"}
    assert all(word[0] == typo[0] and {*word} == {*typo} for word, typo in wrong)
    (single,) = [pair for pair in zip(words, changed(before, "typos:1", seed).question.split(), strict=True) if len({*pair}) > 1]
    assert single in wrong, "more typos are further ones"


def test_words_that_turn_into_other_words_are_left_alone() -> None:
    before = dataclasses.replace(POLAR, question="Is this the last trail?")
    assert {changed(before, "typos:1", seed).question for seed in range(60)} & {"Is this the last trial?"} == set()


def test_case_keeps_units_quotes_and_single_letters() -> None:
    before = dataclasses.replace(POLAR, question='Is point A of "Lake Road" above 5 mW, or is MIT at 3 km?')
    assert changed(before, "letter_case:upper").question == 'IS POINT A OF "Lake Road" ABOVE 5 mW, OR IS MIT AT 3 km?'
    assert changed(before, "letter_case:lower").question == 'is point A of "Lake Road" above 5 mW, or is MIT at 3 km?'


def test_an_instruction_that_says_where_it_stands_does_not_move() -> None:
    pointing = dataclasses.replace(ANIMAL, instruction="Choose from the options above.")
    assert changed(pointing, "prompt_layout:instruction_first") == pointing
    moved = prompt(changed(ANIMAL, "prompt_layout:instruction_first"), "direct")
    assert moved.startswith("Answer with the letter of the correct option.\nQuestion: Which animal is it?\nOptions:\nA. cat\n")
    thinking = prompt(changed(ANIMAL, "prompt_layout:instruction_first"), "cot")
    assert thinking.startswith("Answer with the letter of the correct option.\n")
    assert "Think step by step" in thinking.splitlines()[-1]


def test_braces_of_a_question_are_text() -> None:
    odd = dataclasses.replace(ANIMAL, question="What is {options}?", options={"A": "{letter}", "B": "{instruction}"})
    shown = prompt(changed(odd, "option_format:parentheses"), "direct")
    assert "What is {options}?\nOptions:\n(A) {letter}\n(B) {instruction}\n" in shown


def test_options_are_written_in_the_form_that_is_asked_for() -> None:
    assert "\nA) cat\nB) dog\n" in prompt(changed(ANIMAL, "option_format:bracket"), "direct")
    assert changed(POLAR, "option_format:bracket") is POLAR


def test_wordings_combine_with_orders_and_pixels() -> None:
    after = changed(ANIMAL, "option_order:1+option_format:bracket+letter_case:upper")
    assert (after.target, after.question) == ("A", "WHICH ANIMAL IS IT?")
    assert "meaning" in perturbations.info("negation+fog:mid").label_changing


def test_a_negated_choice_accepts_every_other_option() -> None:
    after = changed(ANIMAL, "negation")
    assert after.target == ("A", "C", "D")
    assert after.chance == 0.75
    two = dataclasses.replace(ANIMAL, options={"A": "cat", "B": "dog"})
    assert changed(two, "negation").target == "A"
    assert changed(POLAR, "negation").target == "no"


@pytest.mark.parametrize(
    "options",
    [
        {"A": "cat", "B": "dog", "C": "none of the above"},
        {"A": "cat", "B": "dog", "C": "both"},
        {"A": "cat", "B": "dog", "C": "cat"},
        dict(zip("ABCDE", "vwxyz", strict=True)),
    ],
)
def test_where_other_options_are_not_surely_right_nothing_is_negated(options: dict[str, str]) -> None:
    before = dataclasses.replace(ANIMAL, options=options)
    assert changed(before, "negation") is before


@pytest.mark.cases(
    ("question", "opposite"),
    [
        ("Are there more than 3 dots?", "Are there at most 3 dots?"),
        ("Are there fewer than two dots?", "Are there at least two dots?"),
        ("Is there an odd number of dots?", "Is there an even number of dots?"),
        ("Is the number of dots even?", "Is the number of dots odd?"),
        ("Do the two cubes have the same size?", "Do the two cubes have different size?"),
        ("Is it true that the cat sleeps?", "Is it false that the cat sleeps?"),
    ],
)
def test_opposites_turn_the_answer(question: str, opposite: str) -> None:
    after = changed(dataclasses.replace(POLAR, question=question), "antonym")
    assert (after.question, after.target) == (opposite, "no")


@pytest.mark.cases(
    "question",
    [
        "Is there a dog?",
        "Do the three cubes have the same size?",
        "Are there more than 3 dots and more than 2 lines?",
        "Is it even raining?",
        "Are there not more than 3 dots?",
        "How many are there, more than 3 dots?",
        "Is the cat more than happy?",
        "Is there a sign that is less than 3 m away?",
        "Are there signs that are less than 3 m away?",
        "Do two people wear the same hat?",
        "Do two of the people wear the same hat?",
        "Does one of the two boxes hold more than 3 dots?",
        "Are the cubes more than 3 cm high?",
        "Is the floor of the room even?",
    ],
)
def test_an_opposite_that_is_not_certain_is_not_asked(question: str) -> None:
    before = dataclasses.replace(POLAR, question=question)
    assert changed(before, "antonym") is before


def test_the_sets_have_every_setting_of_their_modules() -> None:
    for name in ("wording", "directional"):
        listed = {setting for setting in perturbations.names("all") if perturbations.info(setting).family == name}
        assert listed == {*perturbations.names(name)}
        assert all(re.fullmatch(r"[a-z_]+(:[a-z0-9_]+)?", setting) for setting in listed)
