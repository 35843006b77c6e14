"""Chance level: the score without looking at images, by guessing or by a constant answer to every question of a kind.

A model that always says "No" is right whenever "No" is the target. So chance follows from the targets of the
samples, wherever a score must exceed chance and wherever an answer without images counts as a guess. The
luck of many attempts is that of independent guesses: a constant answer is no luckier the tenth time.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust.core.prediction import Prediction
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.core.words import percent
from pytest_vlmrobust.metrics.accuracy import best_blind_answer
from pytest_vlmrobust.scoring import score
from pytest_vlmrobust.scoring.grading import normalised

_NOUNS = {"choice": "multiple-choice", "yes_no": "yes/no", "open": "open"}
_SEVERAL = 2
"""An answer that a single sample accepts is no majority."""
_DATASETS = 32


@dataclass(frozen=True, slots=True, eq=False)
class ChanceLevel:
    """The score of each sample without looking, shape (N,), and the answer that achieves it, in words."""

    scores: NDArray[np.float64]
    note: str


class _SampleKey:
    """Samples as a key: the same objects are the same questions."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        self.samples = tuple(samples)
        self._ids = tuple(map(id, self.samples))  # which stay theirs as long as the key holds them

    def __hash__(self) -> int:
        return hash(self._ids)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _SampleKey) and self._ids == other._ids


def chance_level(samples: Sequence[Sample]) -> ChanceLevel:
    """Returns the scores without looking: for each kind of answer the better of guessing and a constant answer.

    The constant answers: the most common letter, and the most common text of the right option; the more common of yes and no; the
    most common accepted answer to open questions if at least two samples accept it, scored by their scorers.
    """
    return _chance_level(_SampleKey(samples))


@lru_cache(maxsize=_DATASETS)
def _chance_level(key: _SampleKey) -> ChanceLevel:
    samples = key.samples
    scores = np.array([sample.chance for sample in samples], float)
    tasks = np.array([sample.task for sample in samples], dtype=object)
    notes = []
    for task in dict.fromkeys(sample.task for sample in samples):
        rows = np.flatnonzero(tasks == task)
        members = [samples[row] for row in rows.tolist()]
        best = best_blind_answer(scores[rows], _answers(task, members))
        scores[rows] = best.scores
        if best.answer:
            noun = _NOUNS.get(task, task)
            notes.append(f"always {best.answer} gets {percent(float(best.scores.mean()))} of {len(members)} {noun} questions")
    scores.flags.writeable = False
    return ChanceLevel(scores, "; ".join(notes))


def _answers(task: str, samples: Sequence[Sample]) -> dict[str, NDArray[np.float64]]:
    """Returns the scores of each sample of a task with each constant answer."""
    if task == "choice":
        letters = [_target(sample).upper() for sample in samples]
        texts = [_right_option(sample) for sample in samples]
        return {**_hits(letters, "{}"), **_hits(texts, "the option {!r}")}
    if task == "yes_no":
        return _hits([_target(sample).capitalize() for sample in samples], "{!r}")
    return _open_answer(samples) if task == "open" else {}


def _hits(targets: Sequence[str], worded: str) -> dict[str, NDArray[np.float64]]:
    """Returns which samples have the most common target (the first of ties); empty without targets."""
    counts = Counter(target for target in targets if target)
    if not counts:
        return {}
    commonest = counts.most_common(1)[0][0]
    return {worded.format(commonest): np.array([target == commonest for target in targets], float)}


def _open_answer(samples: Sequence[Sample]) -> dict[str, NDArray[np.float64]]:
    """Returns the scores of the answer that most samples accept; empty if no two samples accept the same."""
    spelled: dict[str, str] = {}
    counts: dict[str, float] = defaultdict(float)
    accepting: Counter[str] = Counter()
    for sample in samples:
        for target in sample.targets:
            spelled.setdefault(normalised(target), target)
        people = Counter(map(normalised, sample.targets))
        accepting.update(people.keys())
        for key, count in people.items():
            counts[key] += count / len(sample.targets)  # four of ten people accept it by four tenths
    if not counts:
        return {}
    key = max(counts, key=lambda answer: counts[answer])
    if accepting[key] < _SEVERAL:
        return {}
    answer = Prediction(spelled[key], "generate")
    values = np.array([score(sample, answer).value for sample in samples], float)
    return {repr(spelled[key]): np.nan_to_num(values, nan=0.0)}


def _target(sample: Sample) -> str:
    return next(iter(sample.targets), "")


def _right_option(sample: Sample) -> str:
    options = {letter.upper(): text for letter, text in sample.options.items()}
    return options.get(_target(sample).upper(), "").strip().casefold()
