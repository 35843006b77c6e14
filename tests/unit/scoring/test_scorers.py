"""From a prediction to a score: right, wrong, unparsed and failed are four different things."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from pytest_vlmrobust.core.errors import UnknownName, UsageError
from pytest_vlmrobust.core.prediction import UNANSWERED, Prediction, Score
from pytest_vlmrobust.core.sample import UNDECLARED, Sample
from pytest_vlmrobust.scoring import SCORERS, check_scoring, names, register, score

CHOICE = Sample("1", (), "What?", "B", "choice", {"A": "cat", "B": "dog"})
YES_NO = Sample("2", (), "Is it?", "yes", "yes_no")
OPEN = Sample("3", (), "What colour?", ("red", "crimson"), "open")


def said(text: str, **more: str) -> Prediction:
    return Prediction(text, more.pop("method", "generate"), **more)  # type: ignore[arg-type]  # every field given here is text


@pytest.mark.cases(
    ("sample", "text", "expected"),
    [
        (CHOICE, "The answer is B.", Score(1.0, "statement", "B")),
        (CHOICE, "A", Score(0.0, "letter", "A")),
        (CHOICE, "A or B", Score.unparsed("ambiguous")),
        (CHOICE, "", Score.unparsed("empty")),
        (CHOICE, "I cannot answer this.", Score.unparsed("refusal")),
        (YES_NO, "Yes, there is.", Score(1.0, "leading", "yes")),
        (YES_NO, "no", Score(0.0, "word", "no")),
        (YES_NO, "Yes/No", Score.unparsed("ambiguous")),
        (OPEN, "Answer: Crimson.", Score(1.0, "statement", "Crimson")),
        (OPEN, "blue", Score(0.0, "whole", "blue")),
        (OPEN, "I cannot answer this.", Score.unparsed("refusal")),
    ],
)
def test_scores(sample: Sample, text: str, expected: Score) -> None:
    assert score(sample, said(text)) == expected


@pytest.mark.parametrize("sample", [CHOICE, YES_NO, OPEN])
def test_a_failed_inference_is_not_a_wrong_answer(sample: Sample) -> None:
    result = score(sample, said("B", finish_reason="error", error="out of memory"))
    assert math.isnan(result.value)
    assert (result.state, result.rule, result.answer) == ("error", "out of memory", None)
    assert "gave no reason" in score(sample, said("", finish_reason="error")).rule


@pytest.mark.cases("reason", sorted(UNANSWERED))
@pytest.mark.cases("sample", [CHOICE, YES_NO, OPEN])
def test_an_answer_that_was_not_given_is_searched_for_none(sample: Sample, reason: str) -> None:
    assert score(sample, said("B. Yes, crimson", finish_reason=reason)) == Score.unparsed(reason)


def test_a_cut_text_is_truncated_only_when_nothing_can_be_read() -> None:
    assert score(CHOICE, said("Let me look at the", finish_reason="length")) == Score.unparsed("truncated")
    assert score(CHOICE, said("<think>It may be B", finish_reason="length")) == Score.unparsed("truncated")
    assert score(CHOICE, said("B. dog, because the", finish_reason="length")) == Score(1.0, "leading_letter", "B")


@pytest.mark.cases(
    ("text", "expected"),
    [
        ('{"answer": "red"}', Score(1.0, "json", "red")),
        ('{"reasoning": "It may be blue.", "answer": "Red."}', Score(1.0, "json", "Red.")),
        ('```json\n{"final_answer": "red"}\n```', Score(1.0, "json", "red")),
        ('{"answer": "blue"}', Score(0.0, "json", "blue")),
        ('{"answer": "re', Score.unparsed("truncated")),
        ('{"answer": ["red", "blue"]}', Score(0.0, "whole", '{"answer": ["red", "blue"]}')),
        ("The answer is red. No, blue.", Score.unparsed("ambiguous")),
        ("The answer is blue. Wait. The answer is red.", Score(1.0, "statement", "red")),
        ("The answer is red. No other colour is seen.", Score(1.0, "statement", "red")),
    ],
)
def test_an_open_answer_in_json_or_taken_back(text: str, expected: Score) -> None:
    sample = Sample("q", (), "Which colour?", "red", "open", scorer="open")
    assert score(sample, Prediction(text, "generate")) == expected


def test_letter_logits() -> None:
    assert score(CHOICE, said("B", method="letter_logits")) == Score(1.0, "letter_logits", "B")
    assert score(CHOICE, said(" A", method="letter_logits")) == Score(0.0, "letter_logits", "A")
    assert score(CHOICE, said("E", method="letter_logits", finish_reason="length")) == Score.unparsed("letter_logits")
    assert score(YES_NO, said("Yes", method="letter_logits")) == Score(1.0, "letter_logits", "yes")


def test_an_unread_text_never_equals_an_unusual_target() -> None:
    for target in ("", "None", "False"):
        assert score(Sample("4", (), "?", target, "open"), said("")).value == 0.0


def test_a_target_in_another_case() -> None:
    assert score(Sample("5", (), "?", "Yes", "yes_no"), said("yes")).value == 1.0


UNUSUAL = [
    "10 m\u00b2",
    "CO\u2082",
    "\u00bd cup",
    "\u2116 5",
    "\ufb01sh",
    "Brand\u2122",
    "nai\u0308ve",
    "3\u20134",
    "\u201cso\u201d",
    "l\u2019eau",
    "a*b*c",
    "\u3231 1",
]


@pytest.mark.cases("text", UNUSUAL)
@pytest.mark.cases(
    "scorer",
    ["open", "exact", "vqa_soft", "anls", "contains", "contains_formula", "word_f1", "alphanumeric_f1", "ocr_recall", "rouge_l"],
)
def test_a_target_repeated_in_unusual_characters_is_right(text: str, scorer: str) -> None:
    assert score(Sample("1", (), "?", text, "open", scorer=scorer), Prediction(text, "generate")).value == 1


@pytest.mark.cases("text", [*UNUSUAL, "A \u222a B", "A\u2014B", "C#"])
def test_an_option_repeated_in_unusual_characters_is_chosen(text: str) -> None:
    sample = Sample("1", (), "?", "B", "choice", {"A": "A \u2229 B", "B": text, "C": "C++"})
    assert score(sample, Prediction(text, "generate")).value == 1
    assert score(sample, Prediction(f"Answer: {text}", "generate")).value == 1


def test_an_unknown_task() -> None:
    with pytest.raises(UnknownName, match=r"unknown scorer 'chioce'\. Did you mean 'choice'\?"):
        score(Sample("6", (), "?", "B", "chioce"), said("B"))


def test_the_scorer_of_a_sample_goes_before_that_of_its_task() -> None:
    sample = Sample("8", (), "What?", "the 2 dogs", "open")
    strict = Sample("9", (), "What?", "the 2 dogs", "open", scorer="exact")
    assert score(sample, said("Two dogs")).value == 1.0
    assert score(strict, said("Two dogs")) == Score(0.0, "whole", "Two dogs")
    assert score(strict, said("Answer: THE  2 dogs.")) == Score(1.0, "statement", "THE 2 dogs")
    with pytest.raises(UnknownName, match=r"unknown scorer 'vqa-soft'\. Did you mean 'vqa_soft'\?"):
        score(Sample("10", (), "?", "B", "choice", scorer="vqa-soft"), said("B"))


def test_every_scorer_says_what_it_scores() -> None:
    for name in names():
        assert SCORERS.get(name).__doc__, name


@pytest.fixture
def _length_scorer() -> Iterator[None]:
    register("length_for_test", lambda sample, prediction: Score(float(len(prediction.text) == len(sample.target)), "length"))
    yield
    SCORERS._things.pop("length_for_test")


@pytest.mark.usefixtures("_length_scorer")
def test_a_scorer_of_ones_own() -> None:
    assert "length_for_test" in names()
    assert score(Sample("7", (), "?", "abc", "length_for_test"), said("xyz")).value == 1.0
    with pytest.raises(UsageError, match="scorer 'length_for_test' is registered already"):
        register("length_for_test", lambda sample, prediction: Score.unparsed())


def question(number: int, scorer: str = "", task: str = "open") -> Sample:
    return Sample(f"q{number}", (), "?", "7", task, scorer=scorer)


def test_what_exists_is_fine() -> None:
    check_scoring("data", "accuracy", [question(0), question(1, "vqa_soft"), question(2, task="yes_no")])
    check_scoring("data", "pope_f1", [])


def test_a_misspelt_scorer_is_named_with_its_first_sample() -> None:
    with pytest.raises(UnknownName) as caught:
        check_scoring("data", "accuracy", [question(0), question(1, "vqa_sotf"), question(2, "vqa_sotf")])
    assert str(caught.value).startswith(
        "dataset 'data', sample 'q1': unknown scorer 'vqa_sotf'. Did you mean 'vqa_soft'? Known: "
    )


def test_an_open_question_whose_scorer_nobody_declared_is_refused() -> None:
    undeclared = question(1, UNDECLARED)
    with pytest.raises(UsageError) as caught:
        check_scoring("data", "accuracy", [question(0), undeclared, question(2, UNDECLARED)])
    text = str(caught.value)
    assert text.startswith("dataset 'data', sample 'q1' is not scored (the first of 2): it is an open question, and the data do")
    assert f'or "scorer" with one of {", ".join(names())}. For NAME.tsv, write NAME.benchmark.yaml beside it' in text
    with pytest.raises(UsageError, match=r"^sample 'q1' is not scored"):
        score(undeclared, said("7"))


def test_a_task_without_a_scorer_is_named() -> None:
    with pytest.raises(UnknownName, match=r"sample 'q0': unknown scorer 'yesno'\. Did you mean 'yes_no'\?"):
        check_scoring("data", "accuracy", [question(0, task="yesno")])


def test_a_misspelt_corpus_metric_is_named() -> None:
    with pytest.raises(UnknownName, match=r"dataset 'data': unknown corpus metric 'pope'\. Did you mean 'pope_f1'\?"):
        check_scoring("data", "pope", [])
