"""Guesses: what an answer without the pictures counts for where none can be read.

A model that says "I cannot see an image" is right to do so. Counted as 0, its refusals would make the visual gain larger, and
shares of it smaller, than for a model that guesses; left out, the questions that are left would be a selection. So each counts
what is had without looking: by a guess, or by the answer that is right most often, where that is better.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.cell import NO_IMAGE, Setting
from pytest_vlmrobust.core.prediction import Score
from pytest_vlmrobust.core.sample import Sample

from .floor import floor

if TYPE_CHECKING:
    from .cell_result import CellResult

BLIND_UNPARSED = "blind_unparsed_rate"


def is_guess(setting: Setting, sample: Sample, score: Score) -> bool:
    """Whether a score counts as a guess: an unreadable answer to a question whose pictures were left out.

    A question that has no pictures is asked as it is, also without them: its answer is wrong where it cannot be read.
    """
    return setting == NO_IMAGE and score.state == "unparsed" and bool(sample.images)


def counted(setting: Setting, samples: Sequence[Sample], scores: Sequence[Score]) -> list[float]:
    """Returns what the scores of a cell count for in metrics: their values, and what :func:`floor` gives in place of a guess.

    Args:
        setting: of the cell.
        samples: what was asked.
        scores: of each sample those of all its views in a row; NaN where an inference failed, which is no guess.
    """
    if setting != NO_IMAGE:
        return [score.value for score in scores]
    guessed = [is_guess(setting, sample, score) for sample, score in zip(samples, scores, strict=True)]
    unseen = floor(samples).scores.tolist() if any(guessed) else [math.nan] * len(samples)
    return [worth if guess else score.value for guess, worth, score in zip(guessed, unseen, scores, strict=True)]


def said_of_guesses(results: Sequence[CellResult]) -> tuple[str, ...]:
    """Returns, a sentence for each cell, how many answers without the pictures count as guesses; nothing where none do."""
    return tuple(
        f"{result.n_guessed} of {result.n_requested} answers of {result.cell.model} without the pictures could not be read and "
        "count as guesses"
        for result in results
        if result.n_guessed
    )


def reads_blind(names: Sequence[str]) -> bool:
    """Whether one of some metrics compares with answers without the pictures."""
    known = set(metrics.names())
    return any(metrics.Needs.NO_IMAGE in metrics.get(name).needs for name in names if name in known)
