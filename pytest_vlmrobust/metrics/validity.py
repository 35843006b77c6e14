"""When a metric does not apply, and what a reader should know about its value: sentences for the estimate's reason."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from pytest_vlmrobust.core.words import first_few, percent, points, quantity

from .completeness import low_settings, triples, types
from .intervals import visual_gain_interval
from .scores import ROUNDING, Scores, drops
from .statistics.multiple import cross_validated_maximum
from .table import ScoreTable

SMALLEST_MARGIN = 0.01
"""Smallest difference that counts as one: 1 percentage point (PCRI and RCI, section 3: delta)."""

PROMPT_MARGIN = 0.05
"""How much more than the foretold overlap shows a look, 5 percentage points: the best rule that was found for telling boxes from
the prompt, of any form and fitted to any number of other pictures, overlaps by 3 more than a linear one fitted to the samples."""

_TAIL = 0.05
"""Error probability of showing that a model does a task which it does not do."""
_ENOUGH_FOR_FOLDS = 50
"""From so many clusters on, a fifth of them says something about the setting that the others choose."""


def visual_gain_is_real(table: ScoreTable, setting: str | None) -> str:  # noqa: ARG001  the signature of a gate
    """Returns why a share of the visual gain means nothing, or an empty string."""
    if table.no_image is None:
        return "there are no scores without images: the visual gain is unknown"
    gain = table.clean - table.no_image
    needed = max(SMALLEST_MARGIN, 2.0 * _standard_error(table, gain))
    if float(gain.mean()) > needed + ROUNDING:
        return ""
    return (
        f"the visual gain of {points(float(gain.mean()))} is not above {points(needed)} "
        f"(the larger of 1 pp and 2 standard errors): a share of it is undefined"
    )


def whole_is_above_chance(table: ScoreTable, setting: str | None) -> str:  # noqa: ARG001
    """Returns why the full-image score is no basis for a comparison with patches, or an empty string.

    Chance is the larger of what guessing gives and what the same answer to every question gives, where the targets are known.

    Source: PCRI section 3 and RCI section 3.2, "Validity domain and chance", with the analytic standard error.
    """
    chance = table.expected_floor()
    if chance is None:
        return "the chance level of the dataset is unknown: whether the full-image score exceeds it cannot be told"
    needed = chance + max(SMALLEST_MARGIN, 2.0 * _standard_error(table, table.clean))
    whole = float(table.clean.mean())
    if whole >= needed - ROUNDING:
        return ""
    why = f", {table.floor_note}," if table.floor_note else ""
    return (
        f"the full-image score of {percent(whole)} is below {percent(needed)} "
        f"(chance {percent(chance)}{why} plus the larger of 1 pp and 2 standard errors)"
    )


def does_the_task(table: ScoreTable, setting: str | None = None) -> str:  # noqa: ARG001
    """Returns why a model is not shown to do a task at all, or an empty string: what it then loses or favours says nothing.

    The one-sided 95 % bound of its gain over asking without the pictures has to be above 0. That is no low hurdle where boxes are
    asked for: without the picture, those of the context can be copied. A missing score counts against the model, and where all
    of them are missing nothing is said about it.
    """
    if table.no_image is None or not table.samples or np.isnan(table.no_image).all():
        return "there are no scores without the pictures: whether the task is done at all cannot be told"
    return _not_above(table, table.no_image, 0.0, "without")


def exceeds_the_prompt(table: ScoreTable, told: Scores) -> str:
    """Returns why a model is not shown to look where boxes are asked for, or an empty string.

    The one-sided 95 % bound of its gain over what the prompt tells has to be above ``PROMPT_MARGIN``: who refuses to answer
    without the pictures may still answer from the prompt with them. A missing score counts against the model.

    Args:
        table: scores of N samples with the pictures, N > 0.
        told: shape (N,), what can be had from the prompt alone, see :func:`told_overlap`.
    """
    return _not_above(table, told, PROMPT_MARGIN, "from what the prompt tells alone")


def _not_above(table: ScoreTable, other: Scores, margin: float, whence: str) -> str:
    """Returns that the gain over other scores is not shown to exceed a margin, or an empty string."""
    if np.isnan(table.clean).all():
        return "there are no scores with the pictures: whether the task is done at all cannot be told"
    seen, guessed = np.nan_to_num(table.clean, nan=0.0), np.nan_to_num(other, nan=1.0)
    if visual_gain_interval(seen, guessed, table.clusters, 1.0 - 2.0 * _TAIL)[0] > margin:
        return ""
    lost = int(np.isnan(table.clean).sum() + np.isnan(other).sum())
    against = f", {quantity(lost, 'missing score counts', 'missing scores count')} against the model" if lost else ""
    found = f"{seen.mean():.2f} with the pictures, {guessed.mean():.2f} {whence}, n={table.samples}"
    return f"not shown to do the task: {found}{against}"


def unknown_positions(table: ScoreTable) -> str:
    """Returns how many samples a gap leaves out because their position is unknown."""
    return _left_out(table.positions, "position")


def unknown_people(table: ScoreTable) -> str:
    """Returns how many samples a gap leaves out because their group of people is unknown."""
    return _left_out(table.people, "group of people")


def reference_makes_errors(table: ScoreTable, setting: str | None) -> str:  # noqa: ARG001
    """Returns under which perturbations the reference model makes no error to be compared with, or an empty string."""
    reference = table.reference_by_setting or {}
    perfect = [
        name
        for name, settings in types(table.by_setting).items()
        if not sum(float((1.0 - reference[one]).sum()) for one in settings if one in reference) > ROUNDING
    ]
    return f"the reference model makes no error under {first_few(perfect)}: the ratio is undefined" if perfect else ""


def worst_setting(table: ScoreTable) -> str:
    """Returns which setting costs most."""
    return _worst(table, tuple(table.by_setting))


def worst_low_setting(table: ScoreTable) -> str:
    """Returns which setting at level low costs most."""
    return _worst(table, low_settings(table.by_setting))


def constant_types(table: ScoreTable) -> str:
    """Returns which perturbations cost the same at each level, so that no correlation is defined for them."""
    constant = [
        name
        for name, settings in triples(table.by_setting).items()
        if float(np.ptp(drops(table.clean, table.matrix(settings)))) < ROUNDING
    ]
    return f"left out {first_few(constant)}: the same drop at each level" if constant else ""


def _left_out(names: Sequence[str] | None, noun: str) -> str:
    unknown = sum(not name for name in names or ())
    return f"left out {unknown} of {len(names or ())} samples of unknown {noun}" if unknown else ""


def _worst(table: ScoreTable, settings: Sequence[str]) -> str:
    matrix = table.matrix(settings)
    worst = f"worst at {settings[int(drops(table.clean, matrix).argmax())]}"
    if len(settings) == 1 or table.clusters.count < _ENOUGH_FOR_FOLDS:
        return worst
    fair = cross_validated_maximum(table.clean[:, None] - matrix, table.clusters, np.random.default_rng(0))
    return f"{worst} ({points(fair)} when cross-validated)"


def _standard_error(table: ScoreTable, values: Scores) -> float:
    return math.sqrt(float(table.clusters.variances(values[:, None])[0]))
