"""VQA soft accuracy: the official normalisation and the official rule of ten answers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_vlmrobust.core.prediction import Prediction
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.core.score import Score
from pytest_vlmrobust.scoring import score
from pytest_vlmrobust.scoring.vqa import soft_accuracy, vqa_normalised

OFFICIAL = [
    ("a", ""),
    ("The two dogs.", "2 dogs"),
    ("None", "0"),
    ("eleven", "eleven"),
    ("dont walk", "don't walk"),
    ("DONT WALK", "don't walk"),
    ("she's", "she's"),
    ("its", "its"),
    ("shouldn'tve", "shouldn't've"),
    ("1,000", "1000"),
    ("1,000 (one thousand)", "1000 1 thousand"),
    ("T-shirt", "t shirt"),
    ("T- shirt", "t shirt"),
    ("yes, it is", "yes it is"),
    ("red/blue", "red blue"),
    ("red / blue", "red blue"),
    ("hello,world", "hello world"),
    ("U.S.A.", "usa"),
    ("3.", "3"),
    ("2.5", "2.5"),
    (".5", ".5"),
    ("5%", "5%"),
    ("what?!", "what"),
    ("an  apple\na day", "apple day"),
]
"""Texts and what the official program (GT-Vision-Lab/VQA, vqaEval.py) makes of them, executed."""


@pytest.mark.parametrize(("text", "expected"), OFFICIAL)
def test_normalisation_is_the_official_one(text: str, expected: str) -> None:
    assert vqa_normalised(text) == expected


@pytest.mark.parametrize(("agree", "expected"), [(0, 0.0), (1, 0.3), (2, 0.6), (3, 0.9), (4, 1.0), (10, 1.0)])
def test_ten_answers(agree: int, expected: float) -> None:
    references = ["red"] * agree + ["blue"] * (10 - agree)
    assert soft_accuracy("Red.", references) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("references", "expected"),
    [
        (["red"], 1.0),
        (["blue"], 0.0),
        (["red", "red"], 1.0),
        (["red", "blue"], 0.5),
        (["red"] * 3, 1.0),
        (["red", "b", "c"], 1 / 3),
    ],
)
def test_of_few_answers_all_others_must_match(references: list[str], expected: float) -> None:
    assert soft_accuracy("red", references) == pytest.approx(expected)


def test_without_references_there_is_no_score() -> None:
    with pytest.raises(ValueError, match="at least one reference answer, and there are none"):
        soft_accuracy("red", [])


answers = st.sampled_from(["red", "Red.", "the red", "blue", "two", "2", "", "dont"])


@given(answer=answers, references=st.lists(answers, min_size=4, max_size=12))
def test_is_the_mean_over_leave_one_out(answer: str, references: list[str]) -> None:
    spelled = [vqa_normalised(reference) for reference in references]
    others = [spelled[:number] + spelled[number + 1 :] for number in range(len(spelled))]
    slow = sum(min(1.0, rest.count(vqa_normalised(answer)) / 3) for rest in others) / len(others)
    assert soft_accuracy(answer, references) == pytest.approx(slow, abs=1e-12)
    assert soft_accuracy(answer, references[::-1]) == soft_accuracy(answer, references)


def test_the_rule_that_read_the_answer_is_kept() -> None:
    sample = Sample("1", (), "What?", ("stop",) * 2 + ("go",) * 8, "open", scorer="vqa_soft")
    result = score(sample, Prediction("The sign is red. Answer: Stop.", "generate"))
    assert (result.rule, result.answer, result.state) == ("statement", "Stop", "scored")
    assert result.value == pytest.approx(0.6)
    assert score(sample, Prediction("I cannot tell.", "generate")) == Score.unparsed("refusal")


def test_people_who_could_not_tell_agree_with_a_model_that_cannot() -> None:
    sample = Sample("1", (), "What?", ("can't tell",) * 10, "open", scorer="vqa_soft")
    assert score(sample, Prediction("Can't tell.", "generate")) == Score(1.0, "whole", "Can't tell.")
