"""Chance floors: the score that guessing gives, by kind of task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

from pytest_vlmrobust.core.errors import UnknownName

TASKS = ("choice", "yes_no", "open")


def chance_floor(task: str, options: int = 0, targets: Sequence[Hashable] = ()) -> float:
    """Returns the score that guessing gives: 1/k of k options, 0.5 for yes/no, 0 for open questions.

    With ``targets`` the floor is at least the share of the commonest right answer, which a model reaches that always says the
    same: the majority baseline of yes/no and open questions. For a consensus score (VQA) pass no targets, and take the majority
    answer's own score where it matters. The letter of a choice is no answer to repeat: its floor stays 1/k.

    Args:
        task: ``"choice"``, ``"yes_no"`` or ``"open"``.
        options: number of options of a choice, at least 1.
        targets: right answers of all questions of the dataset; none to leave the majority out.

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
    if task == "choice":
        if options < 1:
            raise ValueError(f"a choice among {options} options: expected at least 1, the number of options shown")
        return 1.0 / options
    majority = max(Counter(targets).values()) / len(targets) if targets else 0.0
    return max(0.5 if task == "yes_no" else 0.0, majority)
