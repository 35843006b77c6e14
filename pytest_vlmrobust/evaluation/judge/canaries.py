"""Canaries: signs that a model does not look at its pictures, found in answers whatever a policy asks.

A model that gives one answer to nearly everything, one answer to each question whatever its picture, or the same answers without
the pictures, loses nothing under any setting. Its records carry a warning, which every report shows. Whether that keeps a run
from GO is decided by ``conditions``, from what the pictures bring (``gain_over_blind``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.decision import WARNING
from pytest_vlmrobust.core.prediction import Prediction, Score
from pytest_vlmrobust.core.record import Measure
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.core.words import on_one_line
from pytest_vlmrobust.evaluation.run.results import CellResult
from pytest_vlmrobust.metrics.table import ScoreTable

GAIN = "gain_over_blind"
"""What pictures bring, from the answers to the same questions with them and without; measured beside answers without pictures."""
FEWEST = 10
"""Answers below which nothing is said: a few equal ones are chance."""
NEARLY_ALL = 0.95
"""The share of equal answers from which on a model is said to give one answer."""
MORE_THAN_TARGETS = 0.10
"""By how much that share exceeds the commonest right answer's: on data with one right answer, one answer is no fault."""
_LONGEST = 40
"""Characters of an answer in a sentence."""

Answered = tuple[Sample, Prediction, Score]


def gain_over_blind(table: ScoreTable, confidence: float) -> Measure:
    """Returns what the pictures bring, with the interval of paired scores, judged by no rule.

    Args:
        table: clean scores, and those without pictures, of the same samples.
        confidence: the two-sided level of the interval, in (0, 1).
    """
    estimate = metrics.estimate("visual_gain", table, None, confidence)
    return Measure(GAIN, estimate.value, estimate.low, estimate.high, n=estimate.n)


def warnings_about(clean: CellResult) -> list[Measure]:
    """Returns what is suspicious about answers to the unchanged pictures, each as a measure with its warning; usually nothing."""
    answered = _answered(clean)
    return _one_answer(clean.cell.model, answered) or _blind_to_pictures(clean.cell.model, answered)


def warnings_beside(blind: CellResult, clean: CellResult) -> list[Measure]:
    """Returns a measure with a warning where every answer without the pictures is the one with them; usually nothing.

    Args:
        blind: the answers without pictures.
        clean: the answers to the same samples with unchanged pictures.
    """
    without = {sample.id: prediction.text for sample, prediction, _ in _answered(blind)}
    both = [(prediction.text, without[sample.id]) for sample, prediction, _ in _answered(clean) if sample.id in without]
    varied = len({text for text, _ in both}) > 1  # else that it gives one answer is said beside the clean ones
    if len(both) < FEWEST or not varied or any(seen != unseen for seen, unseen in both):
        return []
    text = (
        f"all {len(both)} answers of {blind.cell.model} are the same with the pictures and without: look whether pictures reach "
        "the model, and whether its chat template drops them"
    )
    return [_warning("same_without_pictures_rate", 1.0, len(both), text)]


def _answered(result: CellResult) -> list[Answered]:
    """Returns the samples with pictures that got an answer, with it; nothing where each was asked about several times."""
    if result.views > 1:
        return []
    rows = zip(result.samples, result.predictions, result.scores, strict=True)
    return [row for row in rows if row[0].images and row[2].state in ("scored", "unparsed")]


def _one_answer(model: str, answered: Sequence[Answered]) -> list[Measure]:
    """Warns where nearly all answers are one letter, or one text, and right answers are not."""
    if len(answered) < FEWEST:
        return []
    letters = [(_answer(row), _target(row[0])) for row in answered]
    texts = [
        (sample.options.get(given, given), sample.options.get(right, right))
        for (sample, *_), (given, right) in zip(answered, letters, strict=True)
    ]
    for given, expected in (zip(*pairs, strict=True) for pairs in (letters, texts)):
        (answer, count), usual = Counter(given).most_common(1)[0], _largest_share(expected)
        if count >= NEARLY_ALL * len(given) and count / len(given) >= usual + MORE_THAN_TARGETS:
            text = (
                f"{count} of {len(given)} answers of {model} are {on_one_line(answer, _LONGEST)!r}, and the commonest right "
                f"answer is that of {usual:.0%}: look at what the model is shown and how its answers are read"
            )
            return [_warning("same_answer_rate", count / len(given), len(given), text)]
    return []


def _blind_to_pictures(model: str, answered: Sequence[Answered]) -> list[Measure]:
    """Warns where each question that has several right answers, by its picture, always gets one answer."""
    by_question: dict[object, list[Answered]] = {}
    for row in answered:
        by_question.setdefault((row[0].question, tuple(row[0].options.items()), row[0].hint), []).append(row)
    asked_anew = [rows for rows in by_question.values() if len({str(sample.target) for sample, *_ in rows}) > 1]
    count = sum(map(len, asked_anew))
    if count < FEWEST or any(len(set(map(_answer, rows))) > 1 for rows in asked_anew):
        return []
    text = (
        f"{model} gives each of {len(asked_anew)} questions one answer whatever the picture shows, in {count} samples of which "
        "the right answers differ: look whether pictures reach the model"
    )
    return [_warning("same_for_pictures_rate", 1.0, count, text)]


def _answer(row: Answered) -> str:
    """Returns the answer that was read, else the whole text."""
    _, prediction, score = row
    return score.answer or prediction.text.strip()


def _target(sample: Sample) -> str:
    return sample.target if isinstance(sample.target, str) else sample.target[0]


def _largest_share(names: Iterable[str]) -> float:
    counts = Counter(names)
    return max(counts.values(), default=0) / max(1, counts.total())


def _warning(name: str, value: float, n: int, text: str) -> Measure:
    return Measure(name, value, n=n, reason=f"{WARNING}{text}")
