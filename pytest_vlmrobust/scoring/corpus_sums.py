"""Corpus metrics as functions of sums, from which their intervals are computed.

A corpus metric is not a mean of scores but a function of a few sums over samples, or over groups of samples: F1 is a function of
hits, misses and false alarms. Leaving samples out is then a subtraction, and no answer is scored again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust.core.prediction import Prediction, Score
from pytest_vlmrobust.core.registry import Registry
from pytest_vlmrobust.core.sample import Sample

from .caption_corpus import bleu_counts, cider_values, rouge_l_values
from .corpus import Answered, group_answers, has_failed, key, key_or_group, set_count, wants_yes

Array = NDArray[np.float64]
Value = Callable[[Array], Array]


@dataclass(frozen=True, slots=True, eq=False)
class Sums:
    """A corpus metric of some answers: ``value(rows.sum(axis=0))``.

    ``value`` takes sums of shape (..., k) and returns the metric, shape (...), without a warning; NaN where it is undefined.
    """

    rows: Array
    """What each unit, a sample or a group of samples, adds: shape (U, k)."""
    members: tuple[tuple[int, ...], ...]
    """The samples of each unit, by index."""
    value: Value
    worst: Array
    """The sums that the most harmful unit adds, shape (k,)."""
    best: Array
    """The sums that the most helpful unit adds, shape (k,)."""
    highest: float = 1.0
    """The largest possible value; 0 is the smallest."""


CORPUS_SUMS: Registry[Callable[[Sequence[Answered]], Sums]] = Registry("corpus metric with an interval")
"""Corpus metric name to its sums. A metric without an entry has no interval."""


def corpus_sums(name: str, samples: Sequence[Sample], predictions: Sequence[Prediction], scores: Sequence[Score]) -> Sums | None:
    """Returns the corpus metric called ``name`` as a function of sums; ``None`` for a metric without sums, or without answers.

    Raises:
        UsageError: a sample lacks a key that the metric groups by.
        MissingExtra: the metric needs a package that is not installed.
    """
    if name not in CORPUS_SUMS:
        return None
    sums = CORPUS_SUMS.get(name)([Answered(*each) for each in zip(samples, predictions, scores, strict=True)])
    return sums if len(sums.rows) else None


Unit = tuple[tuple[int, ...], list[float]]


def _by_sample(answers: Sequence[Answered]) -> list[Unit]:
    """Returns score and count of every sample whose inference did not fail."""
    return [((index,), [answer.score.value, 1.0]) for index, answer in enumerate(answers) if not has_failed(answer)]


def _by_group(answers: Sequence[Answered], name: Callable[[Sample], str]) -> list[Unit]:
    """Returns, for every group without a failed inference, 1 if all its answers are right, else 0, and the count 1."""
    places: dict[str, list[int]] = {}
    for index, answer in enumerate(answers):
        places.setdefault(name(answer.sample), []).append(index)
    return [
        (tuple(places[group]), [float(all(member.score.value == 1 for member in members)), 1.0])
        for group, members in group_answers(answers, name).items()
        if not any(map(has_failed, members))
    ]


def _sums(units: Iterable[Unit], value: Value, worst: Sequence[float], best: Sequence[float], highest: float = 1.0) -> Sums:
    listed = list(units)
    rows = np.array([row for _, row in listed], float).reshape(len(listed), len(worst))
    return Sums(rows, tuple(members for members, _ in listed), value, np.array(worst), np.array(best), highest)


def _share(part: Array, whole: Array) -> Array:
    shares: Array = np.divide(part, whole, out=np.full(np.shape(whole), np.nan), where=whole > 0)
    return shares


def _ratio(sums: Array) -> Array:
    return _share(sums[..., 0], sums[..., 1])


def _at(units: Iterable[Unit], start: int, width: int) -> list[Unit]:
    """Returns the units with their two numbers at columns ``start`` and ``start + 1`` of ``width``."""
    return [(members, [*[0.0] * start, *row, *[0.0] * (width - start - 2)]) for members, row in units]


def _mean(values: Sequence[float], answers: Sequence[Answered], highest: float) -> Sums:
    units = [
        ((i,), [value, 1.0]) for i, (value, answer) in enumerate(zip(values, answers, strict=True)) if not has_failed(answer)
    ]
    return _sums(units, _ratio, [0.0, 1.0], [max((row[0] for _, row in units), default=0.0), 1.0], highest)


def accuracy(answers: Sequence[Answered]) -> Sums:
    """The mean of scores."""
    return _sums(_by_sample(answers), _ratio, [0.0, 1.0], [1.0, 1.0])


def circular(answers: Sequence[Answered]) -> Sums:
    """The share of questions that are right in every order of their options."""
    return _sums(_by_group(answers, key_or_group("question")), _ratio, [0.0, 1.0], [1.0, 1.0])


def pope_f1(answers: Sequence[Answered]) -> Sums:
    """F1 of "yes": sums of hits, misses and false alarms."""
    units = [((i,), _verdict(answer)) for i, answer in enumerate(answers) if not has_failed(answer)]
    most = float(max((set_count(answer.sample) for answer in answers), default=1))
    return _sums(units, _f1, [0.0, most, 0.0], [most, 0.0, 0.0])


def _verdict(answer: Answered) -> list[float]:
    times, right = set_count(answer.sample), answer.score.value
    return [times * right, times * (1.0 - right), 0.0] if wants_yes(answer.sample) else [0.0, 0.0, times * (1.0 - right)]


def _f1(sums: Array) -> Array:
    hits = 2.0 * sums[..., 0]
    return _share(hits, hits + sums[..., 1] + sums[..., 2])


def category_accuracy(answers: Sequence[Answered]) -> Sums:
    """The mean of the categories' accuracies: score and count of each."""
    return _categories(answers, [_by_sample], lambda shares: np.mean(shares, axis=-1), 1.0)


def mme(answers: Sequence[Answered]) -> Sums:
    """The sum over sub-tasks of accuracy and acc+, in percent: score and count of questions and of images of each."""
    kinds = [_by_sample, lambda some: _by_group(some, key_or_group("image"))]
    return _categories(answers, kinds, lambda shares: 100.0 * np.sum(shares, axis=-1), 200.0)


def _categories(
    answers: Sequence[Answered],
    kinds: Sequence[Callable[[Sequence[Answered]], list[Unit]]],
    combine: Callable[[Array], Array],
    highest_of_each: float,
) -> Sums:
    """Returns shares of each category by kind of unit, side by side.

    The worst and the best unit belong to the category where one more wrong, or right, sample changes the value most.
    """
    places: dict[str, list[int]] = {}
    for index, answer in enumerate(answers):
        places.setdefault(answer.sample.category, []).append(index)
    step = 2 * len(kinds)
    width, units, tallies = step * len(places), list[Unit](), list[tuple[float, float]]()
    for position, indices in enumerate(places.values()):
        some = [answers[index] for index in indices]
        by_kind = [_at(kind(some), position * step + 2 * number, width) for number, kind in enumerate(kinds)]
        units += [(tuple(indices[member] for member in members), row) for kind_units in by_kind for members, row in kind_units]
        right = sum(answer.score.value for answer in some if not has_failed(answer))
        tallies.append((right, float(sum(not has_failed(answer) for answer in some))))
    worst, best = np.zeros(width), np.zeros(width)
    harmed = _heaviest([right for right, _ in tallies], tallies) * step
    helped = _heaviest([count - right for right, count in tallies], tallies) * step
    worst[harmed + 1 : harmed + step : 2] = 1.0
    best[helped : helped + step] = 1.0
    highest = highest_of_each * (len(places) if highest_of_each > 1.0 else 1)
    return _sums(units, lambda sums: combine(_share(sums[..., ::2], sums[..., 1::2])), worst.tolist(), best.tolist(), highest)


def _heaviest(lost: Sequence[float], tallies: Sequence[tuple[float, float]]) -> int:
    """Returns the category whose share one more sample changes most; ``lost`` is how much each category can lose."""
    weights = [amount / (count * (count + 1.0)) if count else 0.0 for amount, (_, count) in zip(lost, tallies, strict=True)]
    return max(range(len(weights)), key=weights.__getitem__, default=0)


def hallusion_bench(answers: Sequence[Answered]) -> Sums:
    """The mean of aAcc, fAcc and qAcc: score and count of questions, of figures, and of questions about several figures."""
    kinds = (_by_sample(answers), _by_group(answers, key("figure")), _by_group(answers, key("question")))
    units = [unit for number, kind in enumerate(kinds) for unit in _at(kind, 2 * number, 6)]
    return _sums(units, lambda sums: np.mean(_share(sums[..., ::2], sums[..., 1::2]), axis=-1), [0.0, 1.0] * 3, [1.0] * 6)


def cider(answers: Sequence[Answered]) -> Sums:
    """The mean CIDEr-D; the rarity of words stays that of all references."""
    return _mean(cider_values(answers), answers, 10.0)


def rouge_l(answers: Sequence[Answered]) -> Sums:
    """The mean ROUGE-L."""
    return _mean(rouge_l_values(answers), answers, 1.0)


def bleu(answers: Sequence[Answered]) -> Sums:
    """BLEU-4: sums of matches and of n-grams of each order, of the lengths of captions and of their references."""
    counts = bleu_counts(answers)
    units = [((i,), row) for (i, _), row in zip(_enumerate_without_failed(answers), counts, strict=True)]
    usual = np.mean(counts, axis=0) if counts else np.zeros(10)
    none_right, all_right = usual.copy(), usual.copy()
    none_right[:4], all_right[:4], all_right[8] = 0.0, usual[4:8], usual[9]
    return _sums(units, _bleu, none_right.tolist(), all_right.tolist())


def _enumerate_without_failed(answers: Sequence[Answered]) -> list[tuple[int, Answered]]:
    return [(index, answer) for index, answer in enumerate(answers) if not has_failed(answer)]


def _bleu(sums: Array) -> Array:
    precisions = _share(sums[..., :4], sums[..., 4:8])
    length, reference_length = sums[..., 8], sums[..., 9]
    brevity = np.minimum(0.0, 1.0 - _share(reference_length, length))
    logs = np.log(precisions, out=np.full(precisions.shape, -np.inf), where=precisions > 0)
    scores: Array = np.exp(brevity + logs.mean(axis=-1))
    return np.where(np.isnan(precisions).any(axis=-1), 0.0, scores)  # captions of fewer than four words have no 4-gram


for _metric in (accuracy, circular, pope_f1, category_accuracy, mme, hallusion_bench, cider, rouge_l, bleu):
    CORPUS_SUMS.add(_metric.__name__, _metric)
