"""A prediction against its target: which rule read it, and whether it is right."""

from __future__ import annotations

from collections.abc import Callable

from pytest_vlmrobust.core.prediction import Prediction
from pytest_vlmrobust.core.registry import Registry
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.core.score import Score

from .choice import extract_choice
from .extraction import Extraction
from .open_answer import extract_open, normalised
from .yes_no import extract_yes_no

Scorer = Callable[[Sample, Prediction], Score]

SCORERS: Registry[Scorer] = Registry("scorer", "scorers")
"""Scorers by the task they score."""

LETTER_LOGITS = "letter_logits"
TRUNCATED = "truncated"


def register(task: str, scorer: Scorer, *, replace: bool = False) -> Scorer:
    """Registers ``scorer`` for samples whose ``task`` is this one.

    Raises:
        UsageError: the task has a scorer and ``replace`` was not asked for.
    """
    return SCORERS.add(task, scorer, replace=replace)


def names() -> list[str]:
    """Returns every task that has a scorer."""
    return SCORERS.names()


def score(sample: Sample, prediction: Prediction) -> Score:
    """Returns the score of ``prediction``: NaN when the inference failed, 0 and unparsed when no answer can be read.

    Raises:
        UnknownName: nothing scores the task of ``sample``.
    """
    scorer = SCORERS.get(sample.task)
    if prediction.finish_reason == "error":
        return Score.unscored(prediction.error or "the inference failed and gave no reason")
    return scorer(sample, prediction)


def score_choice(sample: Sample, prediction: Prediction) -> Score:
    """Scores a letter, read from the text or taken as the most probable one (rule ``letter_logits``)."""
    if prediction.method == LETTER_LOGITS:
        letter = prediction.text.strip()
        return _judged(Extraction(letter if letter in sample.options else None, LETTER_LOGITS), sample, prediction)
    return _judged(extract_choice(prediction.text, sample.options), sample, prediction)


def score_yes_no(sample: Sample, prediction: Prediction) -> Score:
    """Scores yes or no, read from the text or taken as the more probable one (rule ``letter_logits``)."""
    found = extract_yes_no(prediction.text)
    return _judged(Extraction(found.answer, LETTER_LOGITS) if prediction.method == LETTER_LOGITS else found, sample, prediction)


def score_open(sample: Sample, prediction: Prediction) -> Score:
    """Scores 1 when the answer is one of the targets in their normalised spelling, else 0."""
    return _judged(extract_open(prediction.text), sample, prediction)


def _judged(found: Extraction, sample: Sample, prediction: Prediction) -> Score:
    if found.answer is None:
        cut = prediction.finish_reason == "length" and prediction.method != LETTER_LOGITS
        return Score.unparsed(TRUNCATED if cut else found.rule)
    targets = (sample.target,) if isinstance(sample.target, str) else sample.target
    if sample.task == "open":
        right = normalised(found.answer) in {normalised(target) for target in targets}
    else:
        right = found.answer.casefold() in {target.casefold() for target in targets}
    return Score(float(right), found.rule, found.answer)


register("choice", score_choice)
register("yes_no", score_yes_no)
register("open", score_open)
