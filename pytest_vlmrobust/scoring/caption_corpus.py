"""Corpus metrics of captions: CIDEr-D, ROUGE-L and BLEU."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import chain
from typing import Any

import numpy as np

from pytest_vlmrobust.core.errors import MissingExtra

from .corpus import CORPUS_METRICS, Answered, Array, Sums, has_failed, mean_of, share, sums_of
from .grading import targets
from .open_answers import caption_words, rouge_l

# CIDEr-D: how well a caption matches the captions that people agree on. Rare words count more.
#
# Vedantam et al. 2015, "CIDEr: Consensus-based Image Description Evaluation". Written here because the packages on the index
# that have it bring 100 MB of Java (pycocoevalcap, last released in 2020) or pin numpy and transformers to versions before
# those needed here (aac-metrics).


LONGEST_GRAM = 4
SIGMA = 6.0
"""Standard deviation of the length penalty, in words."""

Gram = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Caption:
    """A caption as its tf-idf vectors of 1-grams to 4-grams with their lengths, and its number of words."""

    vectors: tuple[tuple[Mapping[Gram, float], float], ...]
    words: int


@dataclass(frozen=True, slots=True)
class Rarity:
    """How rare a gram is in the references: log(images / images whose references have it), with at least one such image."""

    images: int
    seen: Mapping[Gram, int]

    @classmethod
    def of(cls, references: Sequence[Sequence[Sequence[str]]]) -> Rarity:
        """Counts rarities in ``references``, the captions of each image."""
        of_images = ({gram for words in captions for gram in _grams(words)} for captions in references)
        return cls(len(references), Counter(chain.from_iterable(of_images)))

    def caption(self, words: Sequence[str]) -> Caption:
        """Returns the caption with these words."""
        vectors: list[dict[Gram, float]] = [{} for _ in range(LONGEST_GRAM)]
        for gram, count in Counter(_grams(words)).items():
            vectors[len(gram) - 1][gram] = count * math.log(self.images / self.seen.get(gram, 1))
        return Caption(tuple((vector, math.hypot(*vector.values())) for vector in vectors), len(words))


def cider_d(candidates: Sequence[Sequence[str]], references: Sequence[Sequence[Sequence[str]]]) -> list[float]:
    """Returns CIDEr-D of each candidate, in [0, 10], given the words of each and those of the references of each.

    Equation 4 of the paper: 10 times the mean over n = 1 … 4 and the references of the clipped cosine of the tf-idf
    vectors times exp(-(l - l')² / 2 · 6²), l being words. NaN for fewer than two images, where no word is rarer than another, and
    for an image without references.

    Raises:
        ValueError: there are not as many candidates as sets of references.
    """
    rarity = Rarity.of(references)
    pairs = zip(candidates, references, strict=True)
    return [
        _consensus(candidate, captions, rarity) if captions and rarity.images > 1 else math.nan for candidate, captions in pairs
    ]


def _consensus(candidate: Sequence[str], captions: Sequence[Sequence[str]], rarity: Rarity) -> float:
    caption = rarity.caption(candidate)
    return 10 * math.fsum(_likeness(caption, rarity.caption(words)) for words in captions) / len(captions)


def _likeness(caption: Caption, reference: Caption) -> float:
    cosines = 0.0
    for (vector, length), (other, other_length) in zip(caption.vectors, reference.vectors, strict=True):
        if length and other_length:
            product = math.fsum(min(weight, other[gram]) * other[gram] for gram, weight in vector.items() if gram in other)
            cosines += product / (length * other_length)
    return cosines / LONGEST_GRAM * math.exp(-((caption.words - reference.words) ** 2) / (2 * SIGMA**2))


def _grams(words: Sequence[str]) -> list[Gram]:
    return [tuple(words[start : start + size]) for size in range(1, LONGEST_GRAM + 1) for start in range(len(words) - size + 1)]


def cider(answers: Sequence[Answered]) -> Sums:
    """Mean CIDEr-D of the captions, in [0, 10] (``cider_d``); NaN for fewer than two samples.

    Rarity is counted over the targets of all samples, also of failed inferences, so it does not depend on the model.
    """
    return mean_of(cider_d([_words_of(answer) for answer in answers], [_references(answer) for answer in answers]), answers, 10.0)


def rouge_l_mean(answers: Sequence[Answered]) -> Sums:
    """Mean ROUGE-L of the captions, in [0, 1] (``rouge_l``)."""
    return mean_of([rouge_l(_words_of(answer), _references(answer)) for answer in answers], answers, 1.0)


def bleu(answers: Sequence[Answered]) -> Sums:
    """BLEU-4 of all captions, in [0, 1], without smoothing; the parts are ``bleu_1`` to ``bleu_4``.

    Papineni et al. 2002, with the closest reference length. sacrebleu counts: the matching n-grams of each order, all n-grams of
    each order, the words of the caption, and those of the reference that is closest in length.

    Raises:
        MissingExtra: sacrebleu is not installed.
    """
    counted = {place: _count_matches(answer) for place, answer in enumerate(answers) if not has_failed(answer)}
    usual = np.mean([*counted.values()], axis=0) if counted else np.zeros(10)
    none_right, all_right = usual.copy(), usual.copy()
    none_right[:4], all_right[:4], all_right[8] = 0.0, usual[4:8], usual[9]
    sums = sums_of([((place,), row) for place, row in counted.items()], _bleu, none_right, all_right)
    if not counted:
        return sums
    total = sums.rows.sum(axis=0)
    return replace(sums, parts={f"bleu_{order}": float(_bleu(total, order)) for order in (1, 2, 3, 4)})


def _bleu(sums: Array, order: int = 4) -> Array:
    precisions = share(sums[..., :order], sums[..., 4 : 4 + order])
    brevity = np.minimum(0.0, 1.0 - share(sums[..., 9], sums[..., 8]))
    logs = np.log(precisions, out=np.full(precisions.shape, -np.inf), where=precisions > 0)
    scores: Array = np.exp(brevity + logs.mean(axis=-1))
    return np.where(np.isnan(precisions).any(axis=-1), 0.0, scores)  # captions of fewer than four words have no 4-gram


def _count_matches(answer: Answered) -> list[float]:
    """Returns the ten counts of sacrebleu for a caption."""
    scorer = _sacrebleu().metrics.BLEU(tokenize="none", force=True, smooth_method="none")
    references = [[" ".join(words)] for words in _references(answer)]
    counts = scorer.corpus_score([" ".join(_words_of(answer))], references)
    return [*map(float, (*counts.counts, *counts.totals, counts.sys_len, counts.ref_len))]


def _words_of(answer: Answered) -> list[str]:
    """Returns the words of the caption that its scorer read; none for an unreadable answer or a failed inference."""
    return caption_words(answer.score.answer or "")


def _references(answer: Answered) -> list[list[str]]:
    return [caption_words(target) for target in targets(answer.sample)]


def _sacrebleu() -> Any:
    try:
        return import_module("sacrebleu")
    except ModuleNotFoundError as error:
        if error.name != "sacrebleu":
            raise
        raise MissingExtra("BLEU", "sacrebleu", extra="captions") from error


CORPUS_METRICS.add("cider", cider)
CORPUS_METRICS.add("rouge_l", rouge_l_mean)
CORPUS_METRICS.add("bleu", bleu)
