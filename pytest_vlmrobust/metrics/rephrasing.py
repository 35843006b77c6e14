"""Effects of the order of options and of the wording of a question on the answers.

If options change their letters, answers follow either the option or the letter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from pytest_vlmrobust.core.words import percent

from .accuracy import Bounds
from .record import metric, of_mean
from .statistics.clusters import one_sided
from .statistics.means import BoundedMeanTest
from .statistics.paired import drop_test, largest_bounds
from .table import ByLetter, BySetting, Needs, Scores, ScoreTable, against_clean, by_letter, by_setting

_MOVES = "a letter that is chosen too often pulls more with each answer, and one that is chosen too seldom pulls less"


@metric(
    suite="options",
    better="higher",
    bounds=(0.0, 1.0),
    perfect=1.0,
    reference="CircularEval of MMBench (Liu et al. 2024); VLMEvalKit, circular accuracy",
    unsuited="It is below the accuracy in one order, the more so the more orders are asked, so it is not comparable with "
    "`clean_accuracy` of other models. Use `accuracy_drop` for what one order costs.",
    interval=of_mean(lambda table, _: _lowest([table.clean, *table.by_setting.values()])),
    monotone={Needs.CLEAN: 1, Needs.PERTURBED_BY_SETTING: 1},
)
def circular_accuracy(clean: ArrayLike, perturbed_by_setting: BySetting) -> float:
    """Share of the samples that are right in every order of their options.

    A question with more options than orders counts by the orders asked. Guessing among four options gets 0.4 %.

    Formula: ``mean over samples i of min(clean_i, perturbed_si over settings s)``

    Returns: A fraction in [0, 1]; NaN for no settings, no samples or a missing score.

    >>> circular_accuracy([1, 1, 1, 0], {"option_order:1": [1, 0, 1, 1], "option_order:2": [1, 1, 1, 1]})
    0.5
    """
    before, after = against_clean(clean, perturbed_by_setting)
    return float(_lowest([before, *after.values()]).mean()) if after and len(before) else math.nan


@metric(
    suite="options",
    better="higher",
    bounds=(0.0, 1.0),
    perfect=1.0,
    reference="the companion of CircularEval (MMBench, Liu et al. 2024) that needs no right answer (ours)",
    unsuited="A model that is always wrong in the same way has 1. Use `circular_accuracy` for answers that are also right.",
    interval=of_mean(lambda table, _: _lowest([*table.required(Needs.SAME_BY_SETTING).values()])),
    monotone={Needs.SAME_BY_SETTING: 1},
)
def answer_agreement(same_by_setting: BySetting) -> float:
    """Share of the questions whose answer names the same option in every order, right or wrong.

    It reads no right answers. Unreadable answers agree with none. Guessing among four options gets 1.6 %.

    Formula: ``mean over questions i of min over settings s of same_si``

    Returns: A fraction in [0, 1]; NaN for no settings, no samples or a failed inference.

    >>> answer_agreement({"option_order:1": [1, 1, 0], "option_order:2": [1, 0, 0]})
    0.3333333333333333
    """
    same = [*by_setting(same_by_setting, "same_by_setting").values()]
    return float(_lowest(same).mean()) if same and len(same[0]) else math.nan


def letter_pull_interval(table: ScoreTable, _setting: str | None, confidence: float) -> Bounds:
    """Bounds the largest of all letters by guarded Student's t: above without correction, below by Bonferroni's."""
    excess = _excess(table.required(Needs.CHOSEN_BY_LETTER), table.required(Needs.RIGHT_BY_LETTER))
    both = np.hstack([excess, -excess])
    low, high = largest_bounds([BoundedMeanTest.of_losses(both, table.clusters)], both.shape[1], one_sided(confidence))
    return max(low, 0.0), max(high, 0.0)


def pulling_letter(table: ScoreTable) -> str:
    """Returns the letter chosen most often, or least often, relative to its share of right options."""
    chosen, right = (table.argument(need, None) or {} for need in (Needs.CHOSEN_BY_LETTER, Needs.RIGHT_BY_LETTER))
    means = {letter: (float(chosen[letter].mean()), float(right[letter].mean())) for letter in chosen}
    letter = max(means, key=lambda name: abs(means[name][0] - means[name][1]), default="")
    if not letter or means[letter][0] == means[letter][1]:
        return ""
    return f"{letter} is {percent(means[letter][0])} of the answers and {percent(means[letter][1])} of the right options"


def a_letter_is_chosen(table: ScoreTable, _setting: str | None) -> str:
    """Returns why no letter can pull, or an empty string."""
    chosen = table.required(Needs.CHOSEN_BY_LETTER).values()
    return "" if any(shares.any() for shares in chosen) else "no answer could be read as a letter"


@metric(
    suite="options",
    better="lower",
    bounds=(0.0, 1.0),
    perfect=0.0,
    reference="after the imbalance of answers in Zheng et al. 2024 (PriDe, ICLR), by the largest of all letters (ours)",
    unsuited="A model that follows letters in both ways alike, A here and D there, has a small one. Use `answer_agreement` "
    "for all answers that follow no option.",
    validity="an answer names an option",
    interval=letter_pull_interval,
    gate=a_letter_is_chosen,
    note=pulling_letter,
    not_monotone={Needs.CHOSEN_BY_LETTER: _MOVES, Needs.RIGHT_BY_LETTER: _MOVES},
)
def letter_pull(chosen_by_letter: ByLetter, right_by_letter: ByLetter) -> float:
    """How much more often, or less often, a letter is answered than its option is right, for the letter that is worst.

    All orders count. Over all cyclic orders each letter is right equally often. So what a model does not know pulls no letter
    if the model chooses by the option. Orders with an unreadable answer are left out, and so are questions that have no other.

    Formula: ``max over letters L of |share of answers L - share of right options L|``

    Args:
        chosen_by_letter: letter to the share of orders in which it is the answer, shape (N,).
        right_by_letter: letter to the share of orders in which its option is right, shape (N,).

    Returns: A fraction in [0, 1]; NaN for no letters, no samples or a failed inference.

    >>> letter_pull({"A": [1, 1], "B": [0, 0]}, {"A": [0.5, 0.5], "B": [0.5, 0.5]})
    0.5
    """
    excess = _excess(by_letter(chosen_by_letter, "chosen_by_letter"), by_letter(right_by_letter, "right_by_letter"))
    return float(abs(excess.mean(axis=0)).max()) if excess.size else math.nan


def _lowest(scores: Sequence[Scores]) -> Scores:
    """Returns the lowest score of each sample, shape (N,); NaN if one is missing."""
    lowest: Scores = np.min(scores, axis=0)
    return lowest


def _excess(chosen: dict[str, Scores], right: dict[str, Scores]) -> Scores:
    """Returns the excess of choosing each letter over its share of right options, shape (N, letters)."""
    if {*chosen} != {*right}:
        raise ValueError(f"letters that are chosen {sorted(chosen)} and right {sorted(right)} differ. Give both for each letter")
    return np.stack([chosen[letter] - right[letter] for letter in chosen], axis=1) if chosen else np.zeros((0, 0))


# The wording


def wording_range_interval(table: ScoreTable, _setting: str | None, confidence: float) -> Bounds:
    """Bounds the largest difference of any two wordings: above without correction (intersection-union), below by Bonferroni's.

    It holds even though the data choose the two to compare. Each pair has the test of `accuracy_drop`.
    """
    scores = np.stack([table.clean, *table.by_setting.values()], axis=1)
    count = scores.shape[1]
    tests = [drop_test(scores[:, place], np.delete(scores, place, axis=1), table.clusters) for place in range(count)]
    low, high = largest_bounds(tests, count * (count - 1), one_sided(confidence))
    return max(low, 0.0), max(high, 0.0)


def extreme_wordings(table: ScoreTable) -> str:
    """Returns the wordings with the highest and the lowest accuracy, if they differ."""
    means = {name: float(scores.mean()) for name, scores in {"clean": table.clean, **table.by_setting}.items()}
    best, worst = max(means, key=means.__getitem__), min(means, key=means.__getitem__)
    return f"best {best} ({means[best]:.3f}), worst {worst} ({means[worst]:.3f})" if means[best] > means[worst] else ""


_MOVES_RANGE = "a better score in the best wording makes the range larger, and in the worst one smaller"


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
    not_monotone={Needs.CLEAN: _MOVES_RANGE, Needs.PERTURBED_BY_SETTING: _MOVES_RANGE},
)
def wording_range(clean: ArrayLike, perturbed_by_setting: BySetting) -> float:
    """Accuracy in the best wording less accuracy in the worst one.

    This includes the deployed wording. A wording is compared on the questions that it changes, with all wordings that
    also change these, and the largest range of such questions counts.

    Formula: ``max over wordings w of accuracy(w) - min over wordings w of accuracy(w)``

    Returns: A fraction in [0, 1]; NaN for no settings, no samples or a missing score.

    >>> wording_range([1, 1, 1, 0], {"punctuation:none": [1, 1, 0, 0], "letter_case:upper": [1, 1, 1, 1]})
    0.5
    """
    before, after = against_clean(clean, perturbed_by_setting)
    if not after or not len(before):
        return math.nan
    means = [float(scores.mean()) for scores in (before, *after.values())]
    return float(np.max(means) - np.min(means))
