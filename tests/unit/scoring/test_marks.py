"""Answers that mark every option."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_vlmrobust.scoring import Extraction, extract_choice

OPTIONS = {"A": "cat", "B": "dog", "C": "red car", "D": "12"}
CHECKED = [("[x]", "[ ]"), ("☑", "☐"), ("☒", "☐"), ("●", "○"), ("✅", "❌"), ("✓", "✗"), ("(x)", "( )"), ("[✓]", "[✗]")]


@pytest.mark.parametrize("marks", CHECKED)
@given(chosen=st.sampled_from("ABCD"), behind=st.booleans(), words=st.booleans(), lines=st.booleans())
def test_the_only_ticked_option_is_the_answer(
    marks: tuple[str, str], chosen: str, behind: bool, words: bool, lines: bool
) -> None:
    items = []
    for letter, option in OPTIONS.items():
        mark = marks[letter != chosen]
        name = f"{letter}. {option}" if words else letter
        items.append(f"{name} {mark}" if behind else f"{mark} {name}")
    text = ("\n- " if lines else " ").join(["", *items])
    assert extract_choice(text, OPTIONS) == Extraction(chosen, "marked")


@given(marks=st.fixed_dictionaries({letter: st.booleans() for letter in OPTIONS}))
def test_several_ticked_options_are_no_answer(marks: dict[str, bool]) -> None:
    chosen = [letter for letter, mark in marks.items() if mark]
    expected = chosen[0] if len(chosen) == 1 else None
    ticks = "\n".join(f"- [{'x' if mark else ' '}] {letter}" for letter, mark in marks.items())
    words = ", ".join(f"{letter}: {str(mark).lower()}" for letter, mark in marks.items())
    for text in (json.dumps(marks), json.dumps({"answers": marks}), ticks, words):
        assert extract_choice(text, OPTIONS).answer == expected, text


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ('{"A": 0.1, "B": 0.8}', "B"),
        ('{"A": "10%", "B": "80%", "C": "5%", "D": "5%"}', "B"),
        ("A: 10%, B: 80%, C: 5%, D: 5%", "B"),
        ("P(A)=0.1, P(B)=0.8, P(C)=0.05, P(D)=0.05", "B"),
        ('{"A": {"correct": false}, "B": {"correct": true}}', "B"),
        ('[{"option": "A", "correct": false}, {"option": "B", "correct": true}]', "B"),
        ('{"cat": false, "dog": true}', "B"),
        ('{"is_A": false, "is_B": true}', "B"),
        ("(A) false (B) true (C) false (D) false", "B"),
        ("B: true", "B"),
        *[
            (text, None)
            for text in [
                '{"A": 1, "B": 2}',
                '{"A": 0.4, "B": 0.4}',
                '{"A": "cat", "B": "dog"}',
                '{"A": "maybe", "B": "no"}',
                "B: false",
                '{"B": false}',
                "❌ B",
                "A: 50%, B: 50%",
            ]
        ],
    ],
)
def test_probabilities_and_words(text: str, letter: str | None) -> None:
    assert extract_choice(text, OPTIONS).answer == letter


def test_options_that_are_words_of_marks_are_repeated_and_not_marked() -> None:
    assert extract_choice("A: Yes, B: No", {"A": "Yes", "B": "No"}).answer is None
    assert extract_choice('{"A": 0.1, "B": 0.8}', {"A": "0.1", "B": "0.8"}).answer is None
