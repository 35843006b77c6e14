"""Directional questions: those that a setting makes ask for something else, so that another answer is right."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.core.words import quantity
from pytest_vlmrobust.evaluation.run.answers import chances

from .context import CellScores
from .reads import score_table
from .strata import rows_of

ACCURACY, SENSITIVITY = "directional_accuracy", "directional_sensitivity"
RIGHT = 0.5
"""Least score of an answer that counts as right."""


def directional_accuracy(scores: CellScores) -> Estimate:
    """Estimates the accuracy over the questions that the setting changes."""
    changed = [now.question != before.question for now, before in zip(scores.result.samples, scores.clean.samples, strict=True)]
    return _over(scores, changed, "the setting changes no question", "accuracy")


def directional_sensitivity(scores: CellScores) -> Estimate:
    """Estimates how far, from guessing to always right, the changed questions are right that were right before.

    One less the share that is lost of what an answer can gain over a guess.
    """
    each = zip(scores.result.samples, scores.clean.samples, scores.clean.values, strict=True)
    # a missing clean score stays in, and makes the value unknown
    kept = [now.question != before.question and not score < RIGHT for now, before, score in each]
    lost = _over(scores, kept, "the setting changes no question that was right before", "relative_corruption_error")
    return lost.complement(most=1.0)


def _over(scores: CellScores, kept: list[bool], none: str, metric: str) -> Estimate:
    """Estimates a metric over some questions; what was clean counts as right, and without the image as a guess."""
    if not any(kept):
        return Estimate(math.nan, 0, valid=False, reason=none)
    now = scores.result.values + scores.clean.values * 0.0
    guesses = chances(scores.result.samples)
    table = score_table(scores.samples, np.ones(len(now)), by_setting={scores.setting: now}, no_image=guesses)
    estimate = metrics.estimate(metric, rows_of(table, kept), setting=scores.setting, confidence=scores.level)
    left = len(kept) - sum(kept)
    return replace(estimate, reason=estimate.reason or f"without {quantity(left, 'question')}") if left else estimate
