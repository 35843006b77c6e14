"""VQA soft accuracy: the official normalisation and the official rule of ten answers."""

import importlib.util
import math
import sys
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_vlmrobust.core.errors import MissingExtra, UsageError
from pytest_vlmrobust.core.prediction import Prediction, Score
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.scoring import CorpusScore, corpus_score, score
from pytest_vlmrobust.scoring.corpus import cider_d
from pytest_vlmrobust.scoring.open_answers import (
    caption_words,
    common_subsequence,
    edit_distance,
    normalise_vqa,
    rouge_l,
    similarity,
    soft_accuracy,
    word_recall,
)

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


@pytest.mark.cases(("text", "expected"), OFFICIAL)
def test_normalisation_is_the_official_one(text: str, expected: str) -> None:
    assert normalise_vqa(text) == expected


@pytest.mark.cases(("agree", "expected"), [(0, 0.0), (1, 0.3), (2, 0.6), (3, 0.9), (4, 1.0), (10, 1.0)])
def test_ten_answers(agree: int, expected: float) -> None:
    references = ["red"] * agree + ["blue"] * (10 - agree)
    assert soft_accuracy("Red.", references) == pytest.approx(expected, abs=1e-12)


@pytest.mark.cases(
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
    spelled = [normalise_vqa(reference) for reference in references]
    others = [spelled[:number] + spelled[number + 1 :] for number in range(len(spelled))]
    slow = sum(min(1.0, rest.count(normalise_vqa(answer)) / 3) for rest in others) / len(others)
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


# Scorers with part of the credit, and what they count with: edit distance and common subsequence.


letters = st.text("abc", max_size=12)


def slow_distance(first: str, second: str) -> int:
    row = list(range(len(second) + 1))
    for number, letter in enumerate(first, 1):
        previous, row = row, [number]
        for position, mark in enumerate(second):
            row.append(min(previous[position] + (letter != mark), previous[position + 1] + 1, row[-1] + 1))
    return row[-1]


def slow_common(first: str, second: str) -> int:
    row = [0] * (len(second) + 1)
    for letter in first:
        previous, row = row, [0]
        for position, mark in enumerate(second):
            row.append(previous[position] + 1 if letter == mark else max(previous[position + 1], row[-1]))
    return row[-1]


@given(first=letters, second=letters)
def test_distance_and_common_subsequence_by_the_table(first: str, second: str) -> None:
    assert edit_distance(first, second) == slow_distance(first, second)
    assert common_subsequence(first, second) == slow_common(first, second)


@pytest.mark.cases(
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


@pytest.mark.cases(
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


# Captions: words, ROUGE-L and CIDEr-D against values worked by hand, and against those of pycocoevalcap.


needs_sacrebleu = pytest.mark.skipif(
    importlib.util.find_spec("sacrebleu") is None, reason="needs sacrebleu: pip install -e '.[captions]'"
)
words = st.lists(st.sampled_from(["a", "man", "rides", "the", "red", "horse"]), max_size=8)
REFERENCES = [["A man rides a horse.", "The man is on a brown horse"], ["Two dogs play.", "Dogs run in the park!"], ["A red car"]]
CAPTIONS = ["a man on a horse", "two dogs run in the park", "a blue bus"]

CIDER = [2.6215379819, 5.193901733, 0.1594092637]
ROUGE = [0.8, 0.9242424242, 0.3333333333]
BLEU = [0.857142857, 0.789542034, 0.616018744, 0.552981297]
"""Of pycocoevalcap 1.2, executed on the same words."""


def sample(number: int, references: Sequence[str]) -> Sample:
    return Sample(str(number), (), "?", tuple(references), "open", scorer="rouge_l")


def measured(name: str, captions: Sequence[str | None]) -> CorpusScore:
    samples = [sample(number, references) for number, references in enumerate(REFERENCES)]
    predictions = [
        Prediction(caption or "", "generate", finish_reason="error" if caption is None else "stop") for caption in captions
    ]
    return corpus_score(name, samples, predictions, [score(*pair) for pair in zip(samples, predictions, strict=True)])


def test_rouge_l_by_hand() -> None:
    candidate, reference = ["a", "man", "on", "a", "horse"], ["the", "man", "is", "on", "a", "brown", "horse"]
    # common: man on a horse, 4 words; P = 4/5, R = 4/7; (1 + 1.44) P R / (R + 1.44 P)
    assert rouge_l(candidate, [reference]) == pytest.approx(2.44 * 0.8 * (4 / 7) / (4 / 7 + 1.44 * 0.8))
    assert rouge_l(candidate, [candidate, reference]) == 1.0
    assert rouge_l(candidate, [["dog"]]) == rouge_l([], [candidate]) == rouge_l(candidate, [[]]) == 0.0


def test_cider_by_hand() -> None:
    # "a" is in all three sets (weight log 1 = 0), every other word in one (weight log 3), as are the unseen ones
    (same, half, none) = cider_d([["a", "cat"], ["dog", "bus"], ["sky"]], [[["a", "cat"]], [["a", "dog"]], [["a", "car"]]])
    assert same == pytest.approx(10 * (1 + 1) / 4)  # cosines of 1-grams and 2-grams are 1; there are no longer ones
    assert half == pytest.approx(10 * (1 / math.sqrt(2)) / 4)  # (dog, bus) against (a, dog), where a weighs nothing
    assert none == 0.0


def test_cider_penalises_length_and_repetition() -> None:
    references = [[["red", "car"]], [["dog"]]]
    (once, _) = cider_d([["red", "car"], []], references)
    (often, _) = cider_d([["red", "car", "red", "car"], []], references)
    # clipped: 1-grams (2 2)·(1 1) → 2/(2√2·√2) = 1/2; 2-grams: 2 of "red car", 1 of "car red" → 1/√5; lengths differ by 2
    assert often == pytest.approx(10 * (1 / 2 + 1 / math.sqrt(5)) / 4 * math.exp(-4 / 72))
    assert once == pytest.approx(5.0)
    assert once > often


def test_values_of_the_coco_caption_evaluation() -> None:
    candidates = [caption_words(caption) for caption in CAPTIONS]
    references = [[caption_words(text) for text in texts] for texts in REFERENCES]
    assert cider_d(candidates, references) == pytest.approx(CIDER, abs=1e-9)
    assert [rouge_l(*pair) for pair in zip(candidates, references, strict=True)] == pytest.approx(ROUGE, abs=1e-9)


@given(candidates=st.lists(words, min_size=2, max_size=4), data=st.data())
def test_bounds(candidates: list[list[str]], data: st.DataObject) -> None:
    references = [data.draw(st.lists(words.filter(bool), min_size=1, max_size=3)) for _ in candidates]
    assert all(0 <= value <= 10 + 1e-9 for value in cider_d(candidates, references))
    assert all(0 <= rouge_l(*pair) <= 1 + 1e-12 for pair in zip(candidates, references, strict=True))
    assert all(rouge_l(group[0], group) == pytest.approx(1) for group in references)


def test_cider_of_one_image_or_of_none_is_undefined() -> None:
    assert all(map(math.isnan, cider_d([["a"]], [[["a"]]])))
    assert cider_d([], []) == []
    assert math.isnan(cider_d([["a"], ["b"]], [[["a"]], []])[1])
    with pytest.raises(ValueError, match="zip"):
        cider_d([["a"]], [[["a"]], [["b"]]])


def test_corpus_metrics_of_captions() -> None:
    assert measured("cider", CAPTIONS).value == pytest.approx(sum(CIDER) / 3)
    assert measured("rouge_l", CAPTIONS).value == pytest.approx(sum(ROUGE) / 3)
    # the targets of a failed inference still say which words are rare
    broken = measured("cider", [*CAPTIONS[:2], None])
    assert broken.value == pytest.approx(sum(CIDER[:2]) / 2)
    assert (broken.n, broken.n_failed) == (2, 1)
    refused = measured("rouge_l", [*CAPTIONS[:2], "I'm sorry, I cannot view the image."])
    assert refused.value == pytest.approx(sum(ROUGE[:2]) / 3)
    assert refused.n_unparsed == 1


def test_a_caption_alone() -> None:
    result = score(sample(0, REFERENCES[0]), Prediction(CAPTIONS[0], "generate"))
    assert result.value == pytest.approx(ROUGE[0])
    assert (result.rule, result.answer) == ("whole", CAPTIONS[0])
    with pytest.raises(UsageError, match="sample '0' has no target; expected at least one accepted answer"):
        score(sample(0, []), Prediction(CAPTIONS[0], "generate"))


@needs_sacrebleu
def test_bleu() -> None:
    result = measured("bleu", CAPTIONS)
    assert [result.parts[f"bleu_{order}"] for order in (1, 2, 3, 4)] == pytest.approx(BLEU, abs=1e-8)
    assert result.value == result.parts["bleu_4"]
    assert measured("bleu", [texts[0] for texts in REFERENCES]).parts["bleu_1"] == pytest.approx(1.0)
    assert math.isnan(measured("bleu", [None, None, None]).value)


def test_bleu_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    with pytest.raises(MissingExtra, match=r"BLEU needs the package 'sacrebleu'.*pip install 'sacrebleu>="):
        measured("bleu", CAPTIONS)


@pytest.mark.cases(
    ("said", "target", "braced", "numbers"),
    [
        ("{y+2}", "x+2", 0.0, 1.0),
        ("{7}", "-7", 0.0, 1.0),
        ("{A2}", "B2", 0.0, 1.0),
        ("{23 m}", "23 kg", 0.0, 1.0),
        ("{5 legs}", "5", 0.0, 1.0),
        ("rows={3} columns={4}", "3,4", 1.0, 1.0),
        ("{Four}", "{4}", 1.0, 1.0),
        ("{17}", "7", 0.0, 0.0),
    ],
)
def test_only_counted_numbers_are_compared_by_their_digits(said: str, target: str, braced: float, numbers: float) -> None:
    values = {
        name: score(Sample("1", (), "?", (target,), "open", scorer=name), Prediction(said, "generate")).value
        for name in ("braced", "braced_numbers")
    }
    assert values == {"braced": braced, "braced_numbers": numbers}
