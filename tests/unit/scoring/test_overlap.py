"""Scorers with part of the credit, and what they count with: edit distance and common subsequence."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_vlmrobust.core.prediction import Prediction
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.core.score import Score
from pytest_vlmrobust.scoring import score
from pytest_vlmrobust.scoring.alignment import common_subsequence, edit_distance
from pytest_vlmrobust.scoring.overlap import similarity, word_recall

letters = st.text("abc", max_size=12)


def slow_distance(one: str, other: str) -> int:
    row = list(range(len(other) + 1))
    for number, letter in enumerate(one, 1):
        previous, row = row, [number]
        for position, mark in enumerate(other):
            row.append(min(previous[position] + (letter != mark), previous[position + 1] + 1, row[-1] + 1))
    return row[-1]


def slow_common(one: str, other: str) -> int:
    row = [0] * (len(other) + 1)
    for letter in one:
        previous, row = row, [0]
        for position, mark in enumerate(other):
            row.append(previous[position] + 1 if letter == mark else max(previous[position + 1], row[-1]))
    return row[-1]


@given(one=letters, other=letters)
def test_distance_and_common_subsequence_by_the_table(one: str, other: str) -> None:
    assert edit_distance(one, other) == slow_distance(one, other)
    assert common_subsequence(one, other) == slow_common(one, other)


@pytest.mark.parametrize(
    ("answer", "target", "expected"),
    [
        ("Coca Cola", "coca cola", 1.0),
        ("coca  cola\n", "coca cola", 1.0),
        ("coca cola company", "coca cola", 1 - 8 / 17),
        ("colour", "color", 1 - 1 / 6),
        ("13", "12", 0.0),  # a distance of exactly 0.5
        ("abcd", "abxd", 0.75),
        ("abcd", "wxyz", 0.0),
        ("", "12", 0.0),
        ("", "", 0.0),
    ],
)
def test_anls(answer: str, target: str, expected: float) -> None:
    assert similarity(answer, target) == pytest.approx(expected)
    if answer:
        sample = Sample("1", (), "?", ("none of these texts", target), "open", scorer="anls")
        assert score(sample, Prediction(answer, "generate")).value == pytest.approx(expected)


@given(answer=letters, target=letters)
def test_anls_by_its_formula(answer: str, target: str) -> None:
    distance = slow_distance(answer, target) / max(len(answer), len(target), 1)
    expected = 1 - distance if distance < 0.5 and target else 0.0
    assert similarity(answer, target) == pytest.approx(expected)
    assert similarity(answer.upper(), f" {target} ") == similarity(answer, target)


@pytest.mark.parametrize(
    ("text", "target", "expected"),
    [
        ("STOP", "stop", 1.0),
        ("The sign says: \u201cNo Parking.\u201d", "no parking", 1.0),
        ("parking no", "no parking", 1.0),
        ("no", "no parking", 0.5),
        ("no no no", "no no parking parking", 0.5),
        ("stopping", "stop", 0.0),
        ("go", "stop", 0.0),
        ("?!", "?!", 1.0),
        ("anything", " ", 0.0),
    ],
)
def test_word_recall(text: str, target: str, expected: float) -> None:
    assert word_recall(text, target) == pytest.approx(expected)


def test_words_are_looked_for_in_all_of_the_text() -> None:
    sample = Sample("1", (), "?", ("no parking", "keep left"), "open", scorer="ocr_recall")
    said = "It reads no parking here. Answer: see above"
    assert score(sample, Prediction(said, "generate")) == Score(1.0, "whole", said)
    assert score(sample, Prediction("I'm sorry, I cannot identify any text, no.", "generate")) == Score.unparsed("refusal")
    assert score(sample, Prediction("<think>no parking", "generate")) == Score.unparsed("unfinished_thinking")
    assert score(sample, Prediction(" ", "generate")) == Score.unparsed("empty")
