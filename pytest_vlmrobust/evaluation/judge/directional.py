"""Directional questions: those that a setting makes ask for something else, so that another answer is right."""

from __future__ import annotations

import math
from dataclasses import replace

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.core.words import quantity

from .context import CellScores
from .reads import score_table
from .strata import rows_of

ACCURACY, SENSITIVITY = "directional_accuracy", "directional_sensitivity"
RIGHT = 0.5
"""Least score of an answer that counts as right."""


def directional_accuracy(scores: CellScores) -> Estimate:
    """Estimates the accuracy over the questions that the setting changes."""
    changed = [now.question != before.question for now, before in zip(scores.result.samples, scores.clean.samples, strict=True)]
    return _over(scores, changed, "the setting changes no question")


def directional_sensitivity(scores: CellScores) -> Estimate:
    """Estimates, of the changed questions that are right as they were, the share that is right as they are."""
    each = zip(scores.result.samples, scores.clean.samples, scores.clean.values, strict=True)
    # a missing clean score stays in, and makes the value unknown
    kept = [now.question != before.question and not score < RIGHT for now, before, score in each]
    return _over(scores, kept, "the setting changes no question that was right before")


def _over(scores: CellScores, kept: list[bool], none: str) -> Estimate:
    if not any(kept):
        return Estimate(math.nan, 0, valid=False, reason=none)
    now = scores.result.values + scores.clean.values * 0.0
    table = rows_of(score_table(scores.samples, now, by_setting={scores.setting: now}), kept)
    estimate = metrics.estimate("accuracy", table, setting=scores.setting, confidence=scores.level)
    left = len(kept) - sum(kept)
    return replace(estimate, reason=estimate.reason or f"without {quantity(left, 'question')}") if left else estimate
