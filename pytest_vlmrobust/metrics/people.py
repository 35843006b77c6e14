"""How well people did the Observatory's tasks, for reference lines in reports.

Source: The Perceptual Observatory (arXiv 2512.15949), section 5.8: 100 samples of each of its two data sets, two annotators. The
numbers belong to its pictures (celebrities and rendered words), not to those of a run, and judge nothing.
"""

from __future__ import annotations

from typing import NamedTuple

_STUDY = "two people on the paper's own faces and words (The Perceptual Observatory, section 5.8)"


class HumanReference(NamedTuple):
    """What people reached in one task."""

    text: str
    """The number as published, who reached it, and where it stands."""
    value: float
    """A fraction in [0, 1]; where the paper says "above", the bound."""


_BY_TASK = {
    "matching": HumanReference(f"above 95 %, {_STUDY}", 0.95),
    "pointing": HumanReference(f"above 95 %, {_STUDY}", 0.95),
    "guided_published": HumanReference(f"81 % mIoU in the hardest perturbed setting, {_STUDY}", 0.81),
}


def human_reference(task: str) -> HumanReference | None:
    """Returns what people reached in a task; None where nothing is published.

    There is no number of its own for localisation with one hint, and none for larger grids.

    Args:
        task: ``"matching"``, ``"pointing"``, ``"guided_published"`` or any other: moved queries, for one, nobody was shown.

    >>> human_reference("guided_published").value
    0.81
    """
    return _BY_TASK.get(task)
