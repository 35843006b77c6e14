"""What the wording of a question does to its answers."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from .accuracy import Bounds
from .registry import metric
from .scores import BySetting, against_clean
from .statistics.clusters import one_sided
from .statistics.paired import drop_test, largest_bounds
from .table import Needs, ScoreTable


def wording_range_interval(table: ScoreTable, _setting: str | None, confidence: float) -> Bounds:
    """Bounds the largest difference of any two wordings: above without correction (intersection-union), below by Bonferroni's.

    It holds although the data choose which two are compared. Each pair has the test of `accuracy_drop`.
    """
    each = np.stack([table.clean, *table.by_setting.values()], axis=1)
    count = each.shape[1]
    tests = [drop_test(each[:, place], np.delete(each, place, axis=1), table.clusters) for place in range(count)]
    low, high = largest_bounds(tests, count * (count - 1), one_sided(confidence))
    return max(low, 0.0), max(high, 0.0)


def extreme_wordings(table: ScoreTable) -> str:
    """Returns which wordings have the highest and the lowest accuracy, where they differ."""
    means = {name: float(scores.mean()) for name, scores in {"clean": table.clean, **table.by_setting}.items()}
    best, worst = max(means, key=means.__getitem__), min(means, key=means.__getitem__)
    return f"best {best} ({means[best]:.3f}), worst {worst} ({means[worst]:.3f})" if means[best] > means[worst] else ""


_MOVES = "a better score in the best wording makes the range larger, and in the worst one smaller"


@metric(
    suite="wording",
    better="lower",
    bounds=(0.0, 1.0),
    perfect=0.0,
    reference="Promptception, 2025 (arXiv 2509.03986), deviation of the accuracy over prompts",
    unsuited="The largest of many differences is above 0 by chance alone, the more so with more wordings. Judge it by its "
    "interval, and bound `answer_change_rate` beside it: answers may change both ways.",
    interval=wording_range_interval,
    note=extreme_wordings,
    unchanged=0.0,
    not_monotone={Needs.CLEAN: _MOVES, Needs.PERTURBED_BY_SETTING: _MOVES},
)
def wording_range(clean: ArrayLike, perturbed_by_setting: BySetting) -> float:
    """Accuracy in the best wording less accuracy in the worst one.

    The deployed wording counts among them. Questions that a wording does not apply to are asked as they are.

    Formula: ``max over wordings w of accuracy(w) - min over wordings w of accuracy(w)``

    Returns:
        A fraction in [0, 1]; NaN for no settings, no samples or a missing score.

    >>> wording_range([1, 1, 1, 0], {"punctuation:none": [1, 1, 0, 0], "letter_case:upper": [1, 1, 1, 1]})
    0.5
    """
    before, after = against_clean(clean, perturbed_by_setting)
    if not after or not len(before):
        return math.nan
    means = [float(scores.mean()) for scores in (before, *after.values())]
    return float(np.max(means) - np.min(means))
