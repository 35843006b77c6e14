"""Answers with an alternative or a change of mind: what a person reads, and the neighbours that stay readable."""

import time

import pytest

from pytest_vlmrobust.scoring import Extraction, extract_choice

OPTIONS = {"A": "cat", "B": "dog", "C": "red car", "D": "12"}
WITH_OR = {"A": "cat or dog", "B": "dog or maybe C", "C": "bird"}
LETTERS = {"A": "C", "B": "A", "C": "D", "D": "B"}
YES_OR_NO = {"A": "yes", "B": "no"}


@pytest.mark.parametrize(
    "text",
    [
        *["B or maybe C", "B, maybe C", "B, or possibly C", "B (or C)", "B, but maybe C", "B perhaps A", "A. Maybe B."],
        *["either A or D", "Either A or maybe D", "A/B", "B or even C", "A or, more likely, B", "It is A or perhaps B"],
        *["The answer is A, or maybe D.", "The answer is either A or possibly D", "B. dog, or maybe C. red car"],
        *["A.B.C.D", "A.B", "A. B. C. D.", "The answer is A.B.C.D", "A) B)", "B or C? No, D"],
    ],
)
def test_two_possibilities_are_ambiguous(text: str) -> None:
    assert extract_choice(text, OPTIONS) == Extraction(None, "ambiguous")


@pytest.mark.parametrize(
    "text",
    [
        *[
            "The answer is A? No, B.",
            "A? No, B",
            "A. No, B.",
            "A? No. B.",
            "(A)? No, (B).",
            "A, no, it's B",
            "A? No. C? No. B? Yes.",
        ],
        *["A - wait, B", "A \u2014 wait, B", "A, actually B", "A. Wait, no. B is correct.", "The answer is A... actually, B"],
        *["I choose A, actually B", "The answer is A.\nWait, the answer is B.", "A. cat. Actually, B. dog", "A, or rather B"],
        *[
            "A. On second thought, B.",
            "A\n\nActually, on closer look, B.",
            "A. Looking again, it's B",
            "A? Looking more closely: (B)",
        ],
        *["not A but B", "Not A, but B.", "The answer is not A but B"],
    ],
)
def test_of_a_correction_the_last_is_read(text: str) -> None:
    assert extract_choice(text, OPTIONS).answer == "B"


@pytest.mark.parametrize(
    ("text", "options", "letter"),
    [
        ("B, or cat", OPTIONS, "B"),
        ("The answer is B. It is not C.", OPTIONS, "B"),
        ("B, not A or C", OPTIONS, "B"),
        ("B. C is wrong", OPTIONS, "B"),
        ("B. No, C is wrong.", OPTIONS, "B"),
        ("B. No, C and D are wrong.", OPTIONS, "B"),
        ("B. Actually A is a cat", OPTIONS, "B"),
        ("B, no doubt", OPTIONS, "B"),
        ("B. Looking again, A is wrong.", OPTIONS, "B"),
        ("B. On closer look, B is right.", OPTIONS, "B"),
        ("B. Wait", OPTIONS, "B"),
        ("Probably B", OPTIONS, "B"),
        ("A or B. I would say B.", OPTIONS, "B"),
        ("It is not A, maybe B", OPTIONS, "B"),
        ("Between A and B, A is less likely, so B", OPTIONS, "B"),
        ("A. cat or dog", WITH_OR, "A"),
        ("The answer is A. cat or dog", WITH_OR, "A"),
        ("B. dog or maybe C", WITH_OR, "B"),
        ("cat or dog", WITH_OR, "A"),
        ("B. A", LETTERS, "B"),
        ("A. Vitamin A. No, B.", {"A": "Vitamin A", "B": "Vitamin B"}, "B"),
        ("B. No", YES_OR_NO, "B"),
        ("B. No, it is not.", YES_OR_NO, "B"),
    ],
)
def test_neighbours_stay_readable(text: str, options: dict[str, str], letter: str) -> None:
    assert extract_choice(text, options).answer == letter


def test_what_is_asked_and_denied_is_no_answer() -> None:
    assert extract_choice("A? No.", OPTIONS) == Extraction(None, "none")
    assert extract_choice("Is it a dog? No, a cat.", OPTIONS).answer == "A"


@pytest.mark.parametrize("piece", ["no, ", "A no, ", "A? No, B. ", "not A but ", "A, maybe ", "A.", "A. wait, "])
def test_many_changes_of_mind_cost_no_more_than_their_length(piece: str) -> None:
    begin = time.process_time()
    extract_choice(piece * 5_000, OPTIONS)
    assert time.process_time() - begin < 5.0  # under a tenth of a second when idle
