"""Summaries by category of questions and by category of perturbations."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike

from pytest_vlmrobust.core.errors import UsageError
from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.core.words import first_few

from .corruption import corruption_errors, mean_drop, types
from .estimation import estimate
from .scores import BySetting, against_clean, parse_setting, require_equal_lengths
from .table import ScoreTable

T = TypeVar("T")


def category_sensitivity(clean: ArrayLike, perturbed_by_setting: BySetting, categories: Sequence[str]) -> dict[str, float]:
    """Mean accuracy drop over all settings for each category of questions: which skill suffers most.

    Args:
        clean: shape (N,), each in [0, 1].
        perturbed_by_setting: setting to scores, shape (N,).
        categories: the category of each sample, N names.

    Returns:
        Category to a fraction in [-1, 1], the largest drop first; NaN where a score is missing, and for no settings.

    Raises:
        ValueError: unequal lengths, a score outside [0, 1], or another shape.

    Source: VLM-RobustBench appendix A.2.

    >>> category_sensitivity([1, 1, 1, 1], {"fog:low": [0, 1, 1, 1]}, ["count", "count", "colour", "colour"])
    {'count': 0.5, 'colour': 0.0}
    """
    before, after = against_clean(clean, perturbed_by_setting)
    require_equal_lengths({"clean": len(before), "categories": len(categories)})
    names = np.asarray(categories, dtype=np.str_)
    chosen = {name: names == name for name in dict.fromkeys(categories)}
    mean_drops = {
        name: mean_drop(before[kept], {setting: scores[kept] for setting, scores in after.items()})
        for name, kept in chosen.items()
    }
    return dict(sorted(mean_drops.items(), key=lambda item: math.inf if math.isnan(item[1]) else -item[1]))


def drop_by_category(
    clean: ArrayLike, perturbed_by_setting: BySetting, category_of_setting: Mapping[str, str]
) -> dict[str, float]:
    """Mean accuracy drop over the settings of each category of perturbations, such as blur or weather.

    Args:
        clean: shape (N,), each in [0, 1].
        perturbed_by_setting: setting to scores, shape (N,).
        category_of_setting: setting to category, for at least these settings.

    Returns:
        Category to a fraction in [-1, 1]; NaN for no samples or a missing score.

    Raises:
        ValueError: a setting without a category, unequal lengths, a score outside [0, 1], or another shape.
    """
    before, after = against_clean(clean, perturbed_by_setting)
    return {name: mean_drop(before, part) for name, part in _by_category(after, category_of_setting).items()}


def corruption_error_by_category(
    perturbed_by_setting: BySetting, reference_by_setting: BySetting, category_of_setting: Mapping[str, str]
) -> dict[str, float]:
    """Mean corruption error over the perturbations of each category.

    The mean over all perturbations is not the mean of these: categories count by how many perturbations they have.

    Args:
        perturbed_by_setting: setting to scores, shape (N,).
        reference_by_setting: the reference model's scores under at least these settings, shape (N,), the same samples.
        category_of_setting: setting to category, for at least these settings.

    Returns:
        Category to a ratio of at least 0; NaN where the reference makes no errors under a perturbation (undefined) or a score is
        missing.

    Raises:
        ValueError: a setting without a category, a perturbation whose levels are in two of them, or what
            :func:`corruption_errors` refuses.

    Source: VLM-RobustBench table 28.
    """
    errors = corruption_errors(perturbed_by_setting, reference_by_setting)
    settings = {str(parse_setting(key)): None for key in perturbed_by_setting}
    of_type = {name: list(_by_category(dict.fromkeys(levels), category_of_setting)) for name, levels in types(settings).items()}
    if split := [f"{name} ({' and '.join(categories)})" for name, categories in of_type.items() if len(categories) > 1]:
        raise ValueError(f"the levels of {first_few(split)} are in different categories: a perturbation has one")
    grouped = _by_category(errors, {name: categories[0] for name, categories in of_type.items()})
    return {category: sum(part.values()) / len(part) for category, part in grouped.items()}


def estimates_by_category(
    metric: str, table: ScoreTable, category_of_setting: Mapping[str, str], confidence: float = 0.90
) -> dict[str, Estimate]:
    """Computes a sweep metric over the settings of each category of perturbations, with its interval.

    Args:
        metric: a registered metric of scope ``"sweep"``, such as ``mean_corruption_error``.
        table: scores of N samples.
        category_of_setting: setting to category, for at least the settings of the table.
        confidence: two-sided level of each interval in (0, 1).

    Returns:
        Category to estimate.

    Raises:
        UnknownName: no metric has that name.
        UsageError: a setting without a category, or what :func:`estimate` refuses.
    """
    try:
        parts = _by_category(table.by_setting, category_of_setting)
    except ValueError as error:
        raise UsageError(str(error)) from error
    return {
        category: estimate(metric, dataclasses.replace(table, by_setting=part), confidence=confidence)
        for category, part in parts.items()
    }


def _by_category(by_key: Mapping[str, T], category_of: Mapping[str, str]) -> dict[str, dict[str, T]]:
    if missing := [key for key in by_key if key not in category_of]:
        raise ValueError(f"category_of_setting lacks {first_few(missing)}: give each setting its category")
    parts: dict[str, dict[str, T]] = {}
    for key, value in by_key.items():
        parts.setdefault(category_of[key], {})[key] = value
    return parts
