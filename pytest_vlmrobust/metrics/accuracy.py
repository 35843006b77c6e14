"""Metrics of one setting against the clean scores of the same samples, and what can be scored without looking."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

from numpy.typing import ArrayLike

from pytest_vlmrobust.core.errors import UnknownName

from . import intervals, validity
from .record import Needs, loss_reach
from .registry import metric
from .scores import ROUNDING, Scores, as_scores, mean, paired

# Metrics of one setting against the clean scores of the same samples.
#
# Source of the formulas: VLM-RobustBench, section 3.1 and appendix A.12.


GAIN_MOVES = {
    Needs.CLEAN: "it changes the drop and the visual gain alike, and their ratio either way",
    Needs.NO_IMAGE: "it lowers the visual gain, of which a loss and a gain then make up more",
}
"""Why shares of the visual gain are not monotone in what the gain is made of."""


@metric(
    needs=(Needs.PERTURBED,),
    better="higher",
    bounds=(0.0, 1.0),
    perfect=1.0,
    reference="VLM-RobustBench section 3.1",
    interval=intervals.accuracy,
    monotone={Needs.PERTURBED: 1},
)
def accuracy(scores: ArrayLike) -> float:
    """Mean score.

    Formula: ``mean(perturbed)``

    Args:
        scores: shape (N,), each in [0, 1].

    Returns:
        A fraction in [0, 1]; NaN for no scores or a missing one.

    Raises:
        ValueError: a score outside [0, 1], or another shape.

    >>> accuracy([1, 1, 0, 1])
    0.75
    """
    return mean(as_scores(scores, "scores"))


@metric(
    needs=(Needs.CLEAN,),
    better="higher",
    bounds=(0.0, 1.0),
    perfect=1.0,
    reference="VLM-RobustBench section 3.1",
    suite="corruptions",
    interval=intervals.clean_accuracy,
    monotone={Needs.CLEAN: 1},
)
def clean_accuracy(clean: ArrayLike) -> float:
    """Mean score without perturbation: :func:`accuracy` as a property of the whole sweep.

    Formula: ``mean(clean)``

    Args:
        clean: shape (N,), each in [0, 1].

    Returns:
        A fraction in [0, 1]; NaN for no scores or a missing one.

    Raises:
        ValueError: a score outside [0, 1], or another shape.
    """
    return mean(as_scores(clean, "clean"))


@metric(
    needs=(Needs.CLEAN, Needs.PERTURBED),
    better="lower",
    bounds=(-1.0, 1.0),
    perfect=0.0,
    reference="VLM-RobustBench section 3.1, equation 1; The Perceptual Observatory section 3.3 (identity robustness)",
    interval=intervals.accuracy_drop,
    reach=loss_reach,
    unchanged=0.0,
    monotone={Needs.CLEAN: 1, Needs.PERTURBED: -1},
)
def accuracy_drop(clean: ArrayLike, perturbed: ArrayLike) -> float:
    """Loss of accuracy under a perturbation: accuracy(clean) - accuracy(perturbed).

    Formula: ``mean(clean - perturbed)``

    Args:
        clean: shape (N,), each in [0, 1].
        perturbed: shape (N,), the same samples in the same order.

    Returns:
        A fraction in [-1, 1] (0.263 = 26.3 percentage points); negative for a gain; NaN for no scores or a missing one.

    Raises:
        ValueError: unequal lengths, a score outside [0, 1], or another shape.

    >>> accuracy_drop([1, 1, 1, 0], [1, 0, 0, 1])
    0.25
    """
    before, after = paired(clean=clean, perturbed=perturbed)
    return mean(before - after)


class FlipRates(NamedTuple):
    """Shares of all samples whose answer changed sides; ``harmful - helpful`` is the accuracy drop."""

    harmful: float
    helpful: float


def flip_rates(clean: ArrayLike, perturbed: ArrayLike) -> FlipRates:
    """Splits the drop into right-to-wrong and wrong-to-right answers, each as a share of all samples.

    For graded scores these are the mean loss and the mean gain.

    Args:
        clean: shape (N,), each in [0, 1].
        perturbed: shape (N,), the same samples in the same order.

    Returns:
        ``.harmful`` and ``.helpful``, fractions in [0, 1]; NaN for no scores or a missing one.

    Raises:
        ValueError: unequal lengths, a score outside [0, 1], or another shape.

    Source: VLM-RobustBench appendix A.12 (Flip+ and Flip-; the denominator is all samples, as in its tables 22 to 25).

    >>> flip_rates([1, 1, 1, 0], [1, 0, 0, 1])
    FlipRates(harmful=0.5, helpful=0.25)
    """
    before, after = paired(clean=clean, perturbed=perturbed)
    loss = before - after
    return FlipRates(mean(loss.clip(min=0.0)), mean((-loss).clip(min=0.0)))


@metric(
    needs=(Needs.CLEAN, Needs.PERTURBED),
    better="lower",
    bounds=(0.0, 1.0),
    perfect=0.0,
    reference="VLM-RobustBench appendix A.12 (Flip+)",
    interval=intervals.harmful_flip_rate,
    unchanged=0.0,
    monotone={Needs.CLEAN: 1, Needs.PERTURBED: -1},
)
def harmful_flip_rate(clean: ArrayLike, perturbed: ArrayLike) -> float:
    """Share of all samples answered right when clean and wrong when perturbed: see :func:`flip_rates`.

    Formula: ``mean(max(clean - perturbed, 0))``

    Args:
        clean: shape (N,), each in [0, 1].
        perturbed: shape (N,), the same samples in the same order.

    Returns:
        A fraction in [0, 1]; NaN for no scores or a missing one.

    Raises:
        ValueError: unequal lengths, a score outside [0, 1], or another shape.
    """
    return flip_rates(clean, perturbed).harmful


@metric(
    needs=(Needs.CLEAN, Needs.PERTURBED),
    better="none",
    bounds=(0.0, 1.0),
    perfect=0.0,
    reference="VLM-RobustBench appendix A.12 (Flip-)",
    interval=intervals.helpful_flip_rate,
    unchanged=0.0,
    monotone={Needs.CLEAN: -1, Needs.PERTURBED: 1},
)
def helpful_flip_rate(clean: ArrayLike, perturbed: ArrayLike) -> float:
    """Share of all samples answered wrong when clean and right when perturbed: see :func:`flip_rates`.

    Formula: ``mean(max(perturbed - clean, 0))``

    Args:
        clean: shape (N,), each in [0, 1].
        perturbed: shape (N,), the same samples in the same order.

    Returns:
        A fraction in [0, 1]; NaN for no scores or a missing one.

    Raises:
        ValueError: unequal lengths, a score outside [0, 1], or another shape.
    """
    return flip_rates(clean, perturbed).helpful


@metric(
    needs=(Needs.CLEAN, Needs.FLOORS),
    better="higher",
    bounds=(-1.0, 1.0),
    perfect=1.0,
    reference='PCRI and RCI, "Validity domain and chance": max(0.5, majority) on yes/no, the majority answer on open questions',
    suite="corruptions",
    interval=intervals.accuracy_above_chance,
    reach=loss_reach,
    monotone={Needs.CLEAN: 1, Needs.FLOORS: -1},
)
def accuracy_above_chance(clean: ArrayLike, floors: ArrayLike) -> float:
    """How much more is right than whoever never looks gets right: by a guess, or by the same answer to every question.

    For each kind of answer the better of the two counts: 1/k or the commonest letter among k options, a half or the majority on
    yes/no, the commonest answer to open questions with its own score.

    Formula: ``mean(clean - floors)``

    Args:
        clean: shape (N,), each in [0, 1].
        floors: shape (N,), what the same samples give without looking.

    Returns:
        A fraction in [-1, 1]; NaN for no scores or a missing one.

    Raises:
        ValueError: unequal lengths, a score outside [0, 1], or another shape.

    >>> accuracy_above_chance([1, 1, 1, 0], [1, 0, 0, 0])
    0.5
    """
    seen, unseen = paired(clean=clean, floors=floors)
    return mean(seen - unseen)


@metric(
    needs=(Needs.CLEAN, Needs.NO_IMAGE),
    better="none",
    bounds=(-1.0, 1.0),
    perfect=1.0,
    reference="VLM-RobustBench section 3.1, equation 2",
    suite="corruptions",
    interval=intervals.visual_gain,
    reach=loss_reach,
    blind=0.0,
    monotone={Needs.CLEAN: 1, Needs.NO_IMAGE: -1},
)
def visual_gain(clean: ArrayLike, no_image: ArrayLike) -> float:
    """What the images are worth: accuracy(clean) - accuracy(no image).

    In a gate, an answer without the image that cannot be read counts as a guess: 1 / number of options, or what the answer that
    is right most often would get, where that is more.

    Formula: ``mean(clean - no_image)``

    Args:
        clean: shape (N,), each in [0, 1].
        no_image: shape (N,), the same samples asked without their images.

    Returns:
        A fraction in [-1, 1]; NaN for no scores or a missing one.

    Raises:
        ValueError: unequal lengths, a score outside [0, 1], or another shape.

    >>> visual_gain([1, 1, 1, 0], [1, 0, 0, 0])
    0.5
    """
    before, blind = paired(clean=clean, no_image=no_image)
    return mean(before - blind)


@metric(
    needs=(Needs.CLEAN, Needs.PERTURBED, Needs.NO_IMAGE),
    unit="ratio",
    better="lower",
    perfect=0.0,
    reference="VLM-RobustBench section 3.1, equation 3",
    validity="the visual gain is above 1 pp and above 2 standard errors",
    suite="corruptions",
    interval=intervals.relative_corruption_error,
    gate=validity.visual_gain_is_real,
    unchanged=0.0,
    blind=math.nan,
    monotone={Needs.PERTURBED: -1},
    not_monotone=GAIN_MOVES,
)
def relative_corruption_error(clean: ArrayLike, perturbed: ArrayLike, no_image: ArrayLike) -> float:
    """Share of the visual gain that a perturbation destroys: accuracy drop / visual gain.

    The smaller the visual gain, the more noise there is in shares of it. In a gate, an answer without the image that cannot be
    read counts as a guess. Not to be confused with Res-Bench's :func:`relative_continuous_error`.

    Formula: ``mean(clean - perturbed) / mean(clean - no_image)``

    Args:
        clean: shape (N,), each in [0, 1].
        perturbed: shape (N,), the same samples in the same order.
        no_image: shape (N,), the same samples asked without their images.

    Returns:
        A ratio: 0 for no loss, 1.0 when all visual benefit is gone, above 1 when worse than blind, below 0 for a gain.
        NaN without a positive visual gain (undefined), for no scores or a missing one.

    Raises:
        ValueError: unequal lengths, a score outside [0, 1], or another shape.

    >>> relative_corruption_error([1, 1, 1, 0], [1, 1, 0, 0], [1, 0, 0, 0])
    0.5
    """
    before, after, blind = paired(clean=clean, perturbed=perturbed, no_image=no_image)
    gain = float((before - blind).sum())
    return float((before - after).sum()) / gain if gain > ROUNDING else math.nan


# Chance: what can be scored without looking, by guessing or by the same answer to every question, by kind of task.


TASKS = ("choice", "yes_no", "open")


def chance_floor(task: str, options: int = 0, targets: Sequence[Hashable] = ()) -> float:
    """Returns the score that guessing gives: 1/k of k options, 0.5 for yes/no, 0 for open questions.

    With ``targets`` the floor is at least the share of the commonest right answer, which a model reaches that always says the
    same: the majority on yes/no and open questions (RCI, PCRI), and the commonest letter of a choice (ours: whoever always says A
    has not looked either). For a consensus score (VQA) the majority answer has a score of its own: see :func:`unseeing`.

    Args:
        task: ``"choice"``, ``"yes_no"`` or ``"open"``.
        options: number of options of a choice, at least 1.
        targets: right answers of all questions of the dataset, letters of a choice; none to leave the majority out.

    Returns:
        A fraction in [0, 1].

    Raises:
        UnknownName: another task.
        ValueError: a choice without options.

    Source: RCI appendix A.2 and table 3; PCRI appendix A.2.

    >>> chance_floor("choice", 4), chance_floor("yes_no", targets=["yes", "yes", "no"]), chance_floor("open")
    (0.25, 0.6666666666666666, 0.0)
    """
    if task not in TASKS:
        raise UnknownName("task", task, TASKS)
    if task == "choice" and options < 1:
        raise ValueError(f"a choice among {options} options: expected at least 1, the number of options shown")
    majority = max(Counter(targets).values()) / len(targets) if targets else 0.0
    return max({"choice": 1.0 / max(options, 1), "yes_no": 0.5}.get(task, 0.0), majority)


class Unseeing(NamedTuple):
    """What can be scored without looking: by a guess, or by one answer to every question."""

    scores: Scores
    """Of each sample, shape (N,)."""
    answer: str
    """The answer that is given throughout; empty for a guess."""


def unseeing(guesses: ArrayLike, answers: Mapping[str, ArrayLike]) -> Unseeing:
    """Chooses the better of guessing and of always giving one of several answers; guessing where no answer is better.

    Args:
        guesses: expected score of a guess at each of N samples of one kind of task, shape (N,).
        answers: answer to what each sample scores with it, shape (N,).

    Returns:
        The scores of the best one; those of ``guesses`` for no samples.

    Raises:
        ValueError: unequal lengths, or a score outside [0, 1].

    Source: RCI appendix A.2 and PCRI appendix A.2 for the majority; which answers are tried is the caller's.

    >>> unseeing([0.5, 0.5, 0.5], {"no": [1, 1, 0], "yes": [0, 0, 1]}).answer
    'no'
    """
    best = Unseeing(paired(guesses=guesses)[0], "")
    for answer, scores in answers.items():
        values = paired(guesses=best.scores, scores=scores)[1]
        if mean(values) > mean(best.scores) + ROUNDING:
            best = Unseeing(values, answer)
    return best
