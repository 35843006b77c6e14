"""Corpus metrics of captions: CIDEr-D, ROUGE-L and BLEU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from itertools import zip_longest
from typing import Any

from pytest_vlmrobust.core.errors import MissingExtra

from .captions import caption_words, rouge_l
from .cider import cider_d
from .corpus import CORPUS_METRICS, Answered, failed, known, mean
from .grading import targets

Found = tuple[float, Mapping[str, float]]

_ORDERS = (1, 2, 3, 4)


def cider(answers: Sequence[Answered]) -> Found:
    """Mean CIDEr-D of the captions, in [0, 10] (``cider_d``); NaN for fewer than two samples.

    How rare a word is, is counted in the targets of all samples, those of failed inferences too: it does not depend on the
    model.
    """
    worth = cider_values(answers)
    return mean(value for value, answer in zip(worth, answers, strict=True) if not failed(answer)), {}


def cider_values(answers: Sequence[Answered]) -> list[float]:
    """Returns CIDEr-D of each caption, those of failed inferences included, which say nothing."""
    return cider_d([_said(answer) for answer in answers], [_references(answer) for answer in answers])


def rouge_l_mean(answers: Sequence[Answered]) -> Found:
    """Mean ROUGE-L of the captions, in [0, 1] (``rouge_l``)."""
    return mean(rouge_l_values(known(answers))), {}


def rouge_l_values(answers: Sequence[Answered]) -> list[float]:
    """Returns ROUGE-L of each caption, those of failed inferences included, which say nothing."""
    return [rouge_l(_said(answer), _references(answer)) for answer in answers]


def bleu(answers: Sequence[Answered]) -> Found:
    """BLEU-4 of all captions, in [0, 1], by sacrebleu without smoothing; the parts are ``bleu_1`` to ``bleu_4``.

    Papineni et al. 2002, with the closest reference length.

    Raises:
        MissingExtra: sacrebleu is not installed.
    """
    scorer = _sacrebleu().metrics.BLEU
    scored = known(answers)
    if not scored:
        return float("nan"), {}
    counted = _counted(scored)
    lengths = counted.sys_len, counted.ref_len
    parts = {
        f"bleu_{order}": scorer.compute_bleu(
            counted.counts[:order], counted.totals[:order], *lengths, smooth_method="none", max_ngram_order=order
        ).score
        / 100
        for order in _ORDERS
    }
    return parts["bleu_4"], parts


def bleu_counts(answers: Sequence[Answered]) -> list[list[float]]:
    """Returns, for each caption whose inference did not fail, what BLEU adds up: ten numbers.

    These are the matching n-grams of each order, all of its n-grams of each order, its words, and those of the reference that is
    closest in length.

    Raises:
        MissingExtra: sacrebleu is not installed.
    """
    counted = [_counted([answer]) for answer in known(answers)]
    return [[*map(float, (*one.counts, *one.totals, one.sys_len, one.ref_len))] for one in counted]


def _counted(answers: Sequence[Answered]) -> Any:
    """Returns what sacrebleu counts in captions."""
    said = [" ".join(_said(answer)) for answer in answers]
    streams = zip_longest(*([" ".join(words) for words in _references(answer)] for answer in answers))
    scorer = _sacrebleu().metrics.BLEU(tokenize="none", force=True, smooth_method="none")
    return scorer.corpus_score(said, [list(stream) for stream in streams])


def _said(answer: Answered) -> list[str]:
    """Returns the words of the caption as its scorer read it; none where it could not, or where the inference failed."""
    return caption_words(answer.score.answer or "")


def _references(answer: Answered) -> list[list[str]]:
    return [caption_words(target) for target in targets(answer.sample)]


def _sacrebleu() -> Any:
    try:
        return import_module("sacrebleu")
    except ModuleNotFoundError as error:
        if error.name != "sacrebleu":
            raise
        raise MissingExtra("BLEU", "sacrebleu", install="'pytest-vlmrobust[captions]'") from error


CORPUS_METRICS.add("cider", cider)
CORPUS_METRICS.add("rouge_l", rouge_l_mean)
CORPUS_METRICS.add("bleu", bleu)
