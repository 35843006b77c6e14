"""Chance: what can be scored without looking, by guessing or by the same answer to every question, by kind of task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

from numpy.typing import ArrayLike

from pytest_vlmrobust.core.errors import UnknownName

from .scores import ROUNDING, Scores, mean, paired

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
