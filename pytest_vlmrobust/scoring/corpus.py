"""Metrics of a whole data set that are not the mean of its samples' scores."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pytest_vlmrobust.core.errors import UsageError
from pytest_vlmrobust.core.prediction import Prediction
from pytest_vlmrobust.core.registry import Registry
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.core.score import Score


class Answered(NamedTuple):
    """A sample, what the model said to it, and what that is worth."""

    sample: Sample
    prediction: Prediction
    score: Score


@dataclass(frozen=True, slots=True)
class CorpusScore:
    """The number that is published for a benchmark, and what it is made of; NaN where it is undefined, as for no samples.

    Failed inferences say nothing: they are left out, a group of samples with one of them is left out as a whole, and
    ``n_failed`` counts them. Unparsed answers are wrong ones.
    """

    value: float
    parts: Mapping[str, float] = field(default_factory=dict)
    n: int = 0
    """Samples whose inference did not fail."""
    n_failed: int = 0
    n_unparsed: int = 0
    """Of the n, those without a readable answer."""


CorpusMetric = Callable[[Sequence[Answered]], tuple[float, Mapping[str, float]]]
"""Value and parts from all answers, failed ones included."""

CORPUS_METRICS: Registry[CorpusMetric] = Registry("corpus metric", "corpus_metrics")
"""Corpus metrics by name."""


def corpus_score(name: str, samples: Sequence[Sample], predictions: Sequence[Prediction], scores: Sequence[Score]) -> CorpusScore:
    """Returns the corpus metric called ``name`` of the answers to ``samples``, in the same order.

    Raises:
        UnknownName: nothing is called so.
        UsageError: the three differ in length, or a sample lacks a key that the metric groups by.
        MissingExtra: the metric needs a package that is not installed.
    """
    metric = CORPUS_METRICS.get(name)
    lengths = len(samples), len(predictions), len(scores)
    if len(set(lengths)) > 1:
        raise UsageError(
            f"corpus metric {name!r}: expected one prediction and one score for each sample, found "
            f"{lengths[0]} samples, {lengths[1]} predictions and {lengths[2]} scores"
        )
    answers = [Answered(*each) for each in zip(samples, predictions, scores, strict=True)]
    value, parts = metric(answers)
    n = sum(not failed(answer) for answer in answers)
    unparsed = sum(answer.score.state == "unparsed" for answer in answers)
    return CorpusScore(float(value), {part: float(number) for part, number in parts.items()}, n, len(answers) - n, unparsed)


def failed(answer: Answered) -> bool:
    """Says whether nothing is known of an answer, because its inference failed."""
    return math.isnan(answer.score.value)


def known(answers: Iterable[Answered]) -> list[Answered]:
    """Returns the answers whose inference did not fail."""
    return [answer for answer in answers if not failed(answer)]


def mean(values: Iterable[float]) -> float:
    """Returns the mean; NaN of nothing."""
    numbers = list(values)
    return math.fsum(numbers) / len(numbers) if numbers else math.nan


def grouped(answers: Iterable[Answered], name: Callable[[Sample], str]) -> dict[str, list[Answered]]:
    """Returns the answers by the group of their sample, in the order of the first of each."""
    groups: dict[str, list[Answered]] = {}
    for answer in answers:
        groups.setdefault(name(answer.sample), []).append(answer)
    return groups


def all_right(answers: Iterable[Answered], name: Callable[[Sample], str]) -> float:
    """Returns the share of groups of which every answer is fully right; groups with a failed inference are left out."""
    groups = [group for group in grouped(answers, name).values() if not any(map(failed, group))]
    return mean(all(answer.score.value == 1 for answer in group) for group in groups)


def key(name: str) -> Callable[[Sample], str]:
    """Returns the function that reads the key ``name`` of a sample.

    Raises:
        UsageError: when called with a sample that lacks it.
    """

    def read(sample: Sample) -> str:
        if name not in sample.keys:
            raise UsageError(f"sample {sample.id!r} has no key {name!r} to group by; its keys: {_listed(sample.keys)}")
        return sample.keys[name]

    return read


def key_or_group(name: str) -> Callable[[Sample], str]:
    """Returns the function that reads the key ``name`` of a sample, or its group where it has no such key.

    Raises:
        UsageError: when called with a sample that has neither.
    """

    def read(sample: Sample) -> str:
        found = sample.keys.get(name) or sample.group
        if not found:
            raise UsageError(f"sample {sample.id!r} has neither a key {name!r} nor a group; its keys: {_listed(sample.keys)}")
        return found

    return read


def _listed(keys: Mapping[str, str]) -> str:
    return ", ".join(sorted(keys)) or "none"
