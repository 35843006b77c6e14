"""Corpus metrics of answers that are right or wrong: what MME, HallusionBench, POPE, MMBench, AMBER and Res-Bench publish."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from pytest_vlmrobust.core.errors import UsageError
from pytest_vlmrobust.core.sample import Sample

from .corpus import CORPUS_METRICS, Answered, all_right, grouped, key, key_or_group, known, mean
from .grading import targets

Found = tuple[float, Mapping[str, float]]

PERCEPTION: Final = (
    "existence", "count", "position", "color", "posters", "celebrity", "scene", "landmark", "artwork", "OCR",
)  # fmt: skip
COGNITION: Final = ("commonsense_reasoning", "numerical_calculation", "text_translation", "code_reasoning")


def accuracy(answers: Sequence[Answered]) -> Found:
    """Mean of the scores, in [0, 1]."""
    return _accuracy(answers), {}


def category_accuracy(answers: Sequence[Answered]) -> Found:
    """Mean over the categories of their accuracies, in [0, 1]; the parts are the accuracies (Res-Bench, AMBER)."""
    parts = {name: _accuracy(group) for name, group in grouped(answers, _category).items()}
    return mean(parts.values()), parts


def circular(answers: Sequence[Answered]) -> Found:
    """Share of questions that are right in every order of their options, in [0, 1]; ``plain`` is the accuracy of the copies.

    Liu et al. 2023, "MMBench", CircularEval. Copies of one question share the key ``question``, or else the group.
    """
    return all_right(answers, key_or_group("question")), {"plain": _accuracy(answers)}


def mme(answers: Sequence[Answered]) -> Found:
    """Sum over the sub-tasks (categories) of accuracy and acc+, each in percent: up to 200 for each, 2800 for all fourteen.

    Fu et al. 2023, "MME": acc+ is the share of images of which all questions are answered rightly. Parts: ``acc`` and
    ``acc_plus``, the two sums; ``perception`` (up to 2000) and ``cognition`` (up to 800), NaN where a sub-task is missing; and
    the sum of each sub-task. Questions of one image share the key ``image``, or else the group.
    """
    by_task = grouped(answers, _category)
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


def hallusion_bench(answers: Sequence[Answered]) -> Found:
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


def pope_f1(answers: Sequence[Answered]) -> Found:
    """F1 of "yes", in [0, 1], with ``precision``, ``recall``, ``accuracy`` and ``yes_ratio`` (the share that said yes).

    Li et al. 2023, "POPE". An unparsed answer is wrong whatever the target: it misses a yes, and counts against the precision
    where "no" is right. VLMEvalKit takes it for a "no", so that a model may earn by not answering.
    """
    scored = known(answers)
    positive = [answer for answer in scored if wants_yes(answer.sample)]
    hits = math.fsum(answer.score.value for answer in positive)
    misses = len(positive) - hits
    alarms = math.fsum(1 - answer.score.value for answer in scored if not wants_yes(answer.sample))
    parts = {
        "precision": _share(hits, hits + alarms),
        "recall": _share(hits, hits + misses),
        "accuracy": _accuracy(answers),
        "yes_ratio": mean(answer.score.answer == "yes" for answer in scored),
    }
    return _share(2 * hits, 2 * hits + misses + alarms), parts


def _accuracy(answers: Sequence[Answered]) -> float:
    return mean(answer.score.value for answer in known(answers))


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
