"""Captions: words, ROUGE-L and CIDEr-D against values worked by hand, and against those of pycocoevalcap."""

import importlib.util
import math
import sys
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_vlmrobust.core.errors import MissingExtra, UsageError
from pytest_vlmrobust.core.prediction import Prediction
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.scoring import CorpusScore, corpus_score, score
from pytest_vlmrobust.scoring.captions import caption_words, rouge_l
from pytest_vlmrobust.scoring.cider import cider_d

needs_sacrebleu = pytest.mark.skipif(
    importlib.util.find_spec("sacrebleu") is None, reason="needs sacrebleu: pip install 'pytest-vlmrobust[captions]'"
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
    found = measured("bleu", CAPTIONS)
    assert [found.parts[f"bleu_{order}"] for order in (1, 2, 3, 4)] == pytest.approx(BLEU, abs=1e-8)
    assert found.value == found.parts["bleu_4"]
    assert measured("bleu", [texts[0] for texts in REFERENCES]).parts["bleu_1"] == pytest.approx(1.0)
    assert math.isnan(measured("bleu", [None, None, None]).value)


def test_bleu_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    with pytest.raises(MissingExtra, match=r"BLEU needs the package 'sacrebleu'.*pip install 'pytest-vlmrobust\[captions\]'"):
        measured("bleu", CAPTIONS)
