"""Metrics of a whole dataset that are not a mean of sample scores."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from pytest_vlmrobust.core.errors import UsageError
from pytest_vlmrobust.core.prediction import Prediction, Score
from pytest_vlmrobust.core.registry import Registry
from pytest_vlmrobust.core.sample import Sample

from .grading import targets


class Answered(NamedTuple):
    """A sample, the model's prediction and its score."""

    sample: Sample
    prediction: Prediction
    score: Score


@dataclass(frozen=True, slots=True)
class CorpusScore:
    """The published number of a benchmark and its parts; NaN where it is undefined, such as without samples.

    Failed inferences are left out, with the whole group that they belong to, and ``n_failed`` counts them. Unparsed answers count
    as wrong.
    """

    value: float
    parts: Mapping[str, float] = field(default_factory=dict)
    n: int = 0
    """Samples whose inference did not fail."""
    n_failed: int = 0
    n_unparsed: int = 0
    """How many of the n have no readable answer."""


CorpusMetric = Callable[[Sequence[Answered]], tuple[float, Mapping[str, float]]]
"""Value and parts from all answers, failed ones included."""

CORPUS_METRICS: Registry[CorpusMetric] = Registry("corpus metric", "corpus_metrics")
"""Corpus metrics by name."""


def corpus_score(name: str, samples: Sequence[Sample], predictions: Sequence[Prediction], scores: Sequence[Score]) -> CorpusScore:
    """Returns the corpus metric called ``name`` of the answers to ``samples``, in the same order.

    Raises:
        UnknownName: no metric has that name.
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
    n = sum(not has_failed(answer) for answer in answers)
    unparsed = sum(answer.score.state == "unparsed" for answer in answers)
    return CorpusScore(float(value), {part: float(number) for part, number in parts.items()}, n, len(answers) - n, unparsed)


def has_failed(answer: Answered) -> bool:
    """Says whether the inference of an answer failed."""
    return math.isnan(answer.score.value)


def without_failed(answers: Iterable[Answered]) -> list[Answered]:
    """Returns the answers whose inference did not fail."""
    return [answer for answer in answers if not has_failed(answer)]


def mean(values: Iterable[float]) -> float:
    """Returns the mean; NaN without values."""
    numbers = list(values)
    return math.fsum(numbers) / len(numbers) if numbers else math.nan


def group_answers(answers: Iterable[Answered], name: Callable[[Sample], str]) -> dict[str, list[Answered]]:
    """Returns the answers by the group of their sample, in the order of first appearance."""
    groups: dict[str, list[Answered]] = {}
    for answer in answers:
        groups.setdefault(name(answer.sample), []).append(answer)
    return groups


def all_right(answers: Iterable[Answered], name: Callable[[Sample], str]) -> float:
    """Returns the share of groups in which every answer is fully right; groups with a failed inference are left out."""
    groups = [group for group in group_answers(answers, name).values() if not any(map(has_failed, group))]
    return mean(all(answer.score.value == 1 for answer in group) for group in groups)


def key(name: str) -> Callable[[Sample], str]:
    """Returns the function that reads the key ``name`` of a sample.

    Raises:
        UsageError: when called with a sample that lacks it.
    """

    def read_key(sample: Sample) -> str:
        if name not in sample.keys:
            raise UsageError(f"sample {sample.id!r} has no key {name!r} to group by; its keys: {_list_keys(sample.keys)}")
        return sample.keys[name]

    return read_key


def key_or_group(name: str) -> Callable[[Sample], str]:
    """Returns the function that reads the key ``name`` of a sample, or its group where it has no such key.

    Raises:
        UsageError: when called with a sample that has neither.
    """

    def read_group(sample: Sample) -> str:
        group = sample.keys.get(name) or sample.group
        if not group:
            raise UsageError(f"sample {sample.id!r} has neither a key {name!r} nor a group; its keys: {_list_keys(sample.keys)}")
        return group

    return read_group


def _list_keys(keys: Mapping[str, str]) -> str:
    return ", ".join(sorted(keys)) or "none"


# Corpus metrics of answers that are right or wrong: what MME, HallusionBench, POPE, MMBench, AMBER and Res-Bench publish.


ValueAndParts = tuple[float, Mapping[str, float]]

PERCEPTION: Final = (
    "existence", "count", "position", "color", "posters", "celebrity", "scene", "landmark", "artwork", "OCR",
)  # fmt: skip
COGNITION: Final = ("commonsense_reasoning", "numerical_calculation", "text_translation", "code_reasoning")


def accuracy(answers: Sequence[Answered]) -> ValueAndParts:
    """Mean of the scores, in [0, 1]."""
    return _accuracy(answers), {}


def category_accuracy(answers: Sequence[Answered]) -> ValueAndParts:
    """Mean over the categories of their accuracies, in [0, 1]; the parts are the accuracies (Res-Bench, AMBER)."""
    parts = {name: _accuracy(group) for name, group in group_answers(answers, _category).items()}
    return mean(parts.values()), parts


def circular(answers: Sequence[Answered]) -> ValueAndParts:
    """Share of questions that are right in every order of their options, in [0, 1]; ``plain`` is the accuracy of the copies.

    Liu et al. 2023, "MMBench", CircularEval. Copies of one question share the key ``question``, or else the group.
    """
    return all_right(answers, key_or_group("question")), {"plain": _accuracy(answers)}


def mme(answers: Sequence[Answered]) -> ValueAndParts:
    """Sum over the sub-tasks (categories) of accuracy and acc+, each in percent: up to 200 for each, 2800 for all fourteen.

    Fu et al. 2023, "MME": acc+ is the share of images whose questions are all answered rightly. Parts: ``acc`` and
    ``acc_plus``, the two sums; ``perception`` (up to 2000) and ``cognition`` (up to 800), NaN where a sub-task is missing; and
    the sum of each sub-task. Questions of one image share the key ``image``, or else the group.
    """
    by_task = group_answers(answers, _category)
    right = {task: 100 * _accuracy(group) for task, group in by_task.items()}
    plus = {task: 100 * all_right(group, key_or_group("image")) for task, group in by_task.items()}
    both = {task: right[task] + plus[task] for task in by_task}
    parts = {
        "acc": _sum(right, by_task),
        "acc_plus": _sum(plus, by_task),
        "perception": _sum(both, PERCEPTION),
        "cognition": _sum(both, COGNITION),
    }
    return _sum(both, by_task), parts | both


def hallusion_bench(answers: Sequence[Answered]) -> ValueAndParts:
    """Mean of aAcc, fAcc and qAcc, each in [0, 1] and a part.

    Guan et al. 2024, "HallusionBench": the shares of questions, of figures, and of questions asked of several figures that
    are answered rightly throughout. The keys ``figure`` and ``question`` must be unique over all sets (``VD_3_1``).
    """
    parts = {
        "aAcc": _accuracy(answers),
        "fAcc": all_right(answers, key("figure")),
        "qAcc": all_right(answers, key("question")),
    }
    return mean(parts.values()), parts


def pope_f1(answers: Sequence[Answered]) -> ValueAndParts:
    """F1 of "yes", in [0, 1], with ``precision``, ``recall``, ``accuracy`` and ``yes_ratio`` (the share that said yes).

    Li et al. 2023, "POPE", asks three sets of questions, and VLMEvalKit's file has one row for a question of several sets, with
    the category ``adversarial,popular``: it counts once in each (``set_count``), here as there. Further parts are the F1 of
    each set. An unparsed answer is always wrong: it misses a yes, and lowers the precision where "no" is right. VLMEvalKit
    counts it as a "no", which can reward a model for not answering.
    """
    counted = [(answer, set_count(answer.sample)) for answer in without_failed(answers)]
    hits = math.fsum(times * answer.score.value for answer, times in counted if wants_yes(answer.sample))
    misses = math.fsum(times * (1 - answer.score.value) for answer, times in counted if wants_yes(answer.sample))
    alarms = math.fsum(times * (1 - answer.score.value) for answer, times in counted if not wants_yes(answer.sample))
    asked = sum(times for _, times in counted)
    parts = {
        "precision": _share(hits, hits + alarms),
        "recall": _share(hits, hits + misses),
        "accuracy": _share(math.fsum(times * answer.score.value for answer, times in counted), asked),
        "yes_ratio": _share(sum(times for answer, times in counted if answer.score.answer == "yes"), asked),
    }
    value = _share(2 * hits, 2 * hits + misses + alarms)
    sets = list(dict.fromkeys(name for answer in answers for name in _sets(answer.sample)))
    if sets == [""]:
        return value, parts
    alone = {name: [_in_set(answer, "") for answer in answers if name in _sets(answer.sample)] for name in sets}
    return value, parts | {f"f1_{name}": pope_f1(members)[0] for name, members in alone.items()}


def _sets(sample: Sample) -> list[str]:
    return sample.category.split(",")


def set_count(sample: Sample) -> int:
    """Returns how many sets of questions a sample belongs to: the names in its category, which commas separate."""
    return len(_sets(sample))


def _in_set(answer: Answered, category: str) -> Answered:
    return answer._replace(sample=replace(answer.sample, category=category))


def _accuracy(answers: Sequence[Answered]) -> float:
    return mean(answer.score.value for answer in without_failed(answers))


def _category(sample: Sample) -> str:
    return sample.category


def _sum(by_task: Mapping[str, float], tasks: Sequence[str] | Mapping[str, object]) -> float:
    return math.fsum(by_task.get(task, math.nan) for task in tasks) if tasks else math.nan


def _share(part: float, whole: float) -> float:
    return part / whole if whole else math.nan


def wants_yes(sample: Sample) -> bool:
    """Whether "yes" is the right answer.

    Raises:
        UsageError: the target is neither yes nor no.
    """
    target = targets(sample)[0].casefold()
    if target not in {"yes", "no"}:
        raise UsageError(f"sample {sample.id!r} has the target {targets(sample)[0]!r}; pope_f1 expects yes or no")
    return target == "yes"


for _metric in (accuracy, category_accuracy, circular, mme, hallusion_bench, pope_f1):
    CORPUS_METRICS.add(_metric.__name__, _metric)
