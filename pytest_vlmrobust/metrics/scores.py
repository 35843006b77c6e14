"""Checks score arrays: that they are valid and belong to the same samples."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pytest_vlmrobust.core.cell import Setting

from .statistics.clusters import Clusters

Scores: TypeAlias = NDArray[np.float64]
SettingLike: TypeAlias = str | Setting
BySetting: TypeAlias = Mapping[str, ArrayLike] | Mapping[Setting, ArrayLike]
ByLetter: TypeAlias = Mapping[str, ArrayLike]

_SHAPES = {1: "(N,)", 2: "(N, n*n)"}


def as_scores(values: ArrayLike, name: str, *, axes: int = 1) -> Scores:
    """Returns a float64 copy of ``values`` with ``axes`` axes; NaN marks a missing score."""
    array = np.asarray(values)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name}: expected numbers in [0, 1], found values of dtype {array.dtype}. Score the answers first")
    if array.ndim != axes:
        raise ValueError(f"{name}: expected scores of shape {_SHAPES[axes]}, found shape {array.shape}")
    scores = array.astype(np.float64)
    outside = (scores < 0.0) | (scores > 1.0)
    if outside.any():
        position = tuple(int(axis[0]) for axis in np.nonzero(outside))
        where = ", ".join(map(str, position))
        raise ValueError(
            f"{name}[{where}] is {float(scores[position])!r}: a score lies in [0, 1] (a fraction, not a percentage), or is NaN"
        )
    return scores


def pair_scores(**arrays: ArrayLike) -> tuple[Scores, ...]:
    """Returns each named array as float64, shape (N,), all of one length."""
    checked = {name: as_scores(values, name) for name, values in arrays.items()}
    require_equal_lengths({name: len(values) for name, values in checked.items()})
    return tuple(checked.values())


def require_equal_lengths(lengths: Mapping[str, int]) -> None:
    """Raises ValueError with the name of the first array and of the first one with another length."""
    first = next(iter(lengths), "")
    for name, length in lengths.items():
        if length != lengths[first]:
            raise ValueError(
                f"{first} has {lengths[first]} scores and {name} has {length}: "
                "paired scores belong to the same samples in the same order"
            )


def by_setting(mapping: BySetting, name: str = "perturbed_by_setting") -> dict[str, Scores]:
    """Returns the scores of every setting as float64, shape (N,), keyed by the setting's text."""
    checked: dict[str, Scores] = {}
    before: ArrayLike | None = None
    scores: Scores | None = None
    for key, values in mapping.items():
        setting = _spell(key) if isinstance(key, str) else str(key)
        if setting in checked:
            raise ValueError(f"{name}: the setting {setting!r} is given twice, as text and as Setting. Give it once")
        if scores is None or values is not before:  # many settings may share one array, such as the scores without image
            before, scores = values, as_scores(values, name_scores(name, setting))
        checked[setting] = scores
    if len(set(map(len, checked.values()))) > 1:
        require_equal_lengths({name_scores(name, setting): len(values) for setting, values in checked.items()})
    return checked


def by_letter(mapping: ByLetter, name: str) -> dict[str, Scores]:
    """Returns the scores of every letter as float64, shape (N,)."""
    checked = {letter: as_scores(values, name_scores(name, letter)) for letter, values in mapping.items()}
    require_equal_lengths({name_scores(name, letter): len(values) for letter, values in checked.items()})
    return checked


def against_clean(clean: ArrayLike, perturbed_by_setting: BySetting) -> tuple[Scores, dict[str, Scores]]:
    """Returns the clean scores (N,) and those of every setting, checked to belong to the same samples."""
    before, after = as_scores(clean, "clean"), by_setting(perturbed_by_setting)
    for setting, values in after.items():
        require_equal_lengths({"clean": len(before), name_scores("perturbed_by_setting", setting): len(values)})
    return before, after


def under_same_settings(
    perturbed_by_setting: BySetting, others: BySetting, name: str, whom: str
) -> tuple[dict[str, Scores], dict[str, Scores]]:
    """Returns the scores under every setting, and other scores of the same samples under the same settings."""
    perturbed, other = by_setting(perturbed_by_setting), by_setting(others, name)
    if missing := [setting for setting in perturbed if setting not in other]:
        raise ValueError(f"{name} lacks {', '.join(missing[:5])}: measure {whom} under the same settings")
    for setting, scores in perturbed.items():
        require_equal_lengths({setting: len(scores), name_scores(name, setting): len(other[setting])})
    return perturbed, {setting: other[setting] for setting in perturbed}


def per_sample(scores: Mapping[str, Scores]) -> Scores:
    """Returns the mean of each sample over at least one setting, shape (N,)."""
    averages: Scores = np.stack(list(scores.values()), axis=1).mean(axis=1)
    return averages


def parse_setting(setting: SettingLike) -> Setting:
    """Returns a setting, parsed if given as text."""
    return setting if isinstance(setting, Setting) else Setting.parse(setting)


@lru_cache(maxsize=4096)
def _spell(setting: str) -> str:
    return str(Setting.parse(setting))


def name_scores(mapping: str, setting: str) -> str:
    """Returns the name in messages for the scores of one setting."""
    return f"{mapping}[{setting!r}]"


def stack_settings(scores: Mapping[str, Scores], samples: int) -> Scores:
    """Returns the scores of m settings side by side, shape (``samples``, m)."""
    return np.stack(list(scores.values()), axis=1) if scores else np.zeros((samples, 0))


def mean(values: Scores) -> float:
    """Returns the mean as a built-in float; NaN for no values or a NaN among them."""
    return float(values.sum() / values.size) if values.size else math.nan


def drops(clean: Scores, perturbed: Scores) -> Scores:
    """Returns the drop of each of m settings, shape (m,), from ``clean`` (N,) and ``perturbed`` (N, m); NaN without samples.

    Sums the differences of each sample: 0/1 scores give exact integers, and equal scores give exactly 0.
    """
    if not clean.size:
        return np.full(perturbed.shape[1], math.nan)
    losses: Scores = (clean[:, None] - perturbed).sum(axis=0) / clean.size
    return losses


def clusters_of(groups: Sequence[str] | None, samples: int) -> Clusters:
    """Returns the clusters of ``samples`` samples by the names of their source images; None when all are independent."""
    if groups is not None and len(groups) != samples:
        raise ValueError(f"{len(groups)} source images for {samples} samples: expected one for each sample, or None")
    return Clusters.of(groups, samples)


FIVE_NUMBERS = ("lowest", "lower_quartile", "median", "upper_quartile", "highest")


def five_numbers(values: Scores) -> dict[str, float]:
    """Returns the five numbers of a box plot of at least one value; NaN if a value is missing."""
    return dict(zip(FIVE_NUMBERS, np.quantile(values, (0.0, 0.25, 0.5, 0.75, 1.0)).tolist(), strict=True))
