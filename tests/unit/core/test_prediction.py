from __future__ import annotations

import math

import pytest

from pytest_vlmrobust.core.prediction import LETTER_LOGITS, Prediction, Score


def letter(text: str, **logprobs: float) -> Prediction:
    return Prediction(text, LETTER_LOGITS, logprobs=logprobs)


def test_the_most_probable_letters() -> None:
    assert letter("A", A=-0.1, B=-2.0).most_probable == ("A",)
    assert letter("A", B=-0.5, A=-0.5, C=-3.0).most_probable == ("B", "A")
    assert letter("A", A=-math.inf, B=-math.inf).most_probable == ("A", "B")
    assert letter("A", A=math.nan, B=-1.0).most_probable == ()
    assert letter("A").most_probable == ()


@pytest.mark.cases(
    ("prediction", "contradicts"),
    [
        (letter("A", A=-0.1, B=-2.0), False),
        (letter(" A", A=-0.1, B=-2.0), False),
        (letter("B", A=-0.1, B=-2.0), True),
        (letter("C", A=-0.1, B=-2.0), True),
        (letter("A", B=-0.5, A=-0.5), False),
        (letter("A", A=math.nan, B=-2.0), True),
        (letter("A"), False),
        (Prediction("a text", "generate", logprobs={"A": -0.1}), False),
    ],
)
def test_a_letter_that_its_log_probabilities_do_not_give(prediction: Prediction, contradicts: bool) -> None:
    assert prediction.contradicts_itself is contradicts


def test_wrong_unreadable_and_failed_are_three_things() -> None:
    wrong, unreadable, failed = Score(0.0, "letter", "A"), Score.unparsed(), Score.unscored("down")
    assert [score.state for score in (wrong, unreadable, failed)] == ["scored", "unparsed", "error"]
    assert unreadable.value == 0.0
    assert math.isnan(failed.value)
    assert failed.rule == "down"
    assert unreadable.answer is failed.answer is None


def test_confidence_is_the_share_among_the_letters() -> None:
    assert letter("A", A=math.log(0.3), B=math.log(0.1)).confidence == pytest.approx(0.75)
    assert letter(" A", A=-1.0, B=-math.inf).confidence == 1.0
    unknown = [letter("A"), letter("A", A=math.nan, B=-2.0), letter("B", A=-0.1, B=-2.0), Prediction("A", "generate")]
    assert all(math.isnan(prediction.confidence) for prediction in unknown)
