"""Which settings of a sweep a metric uses, and how many the published quantity uses."""

from __future__ import annotations

from collections.abc import Iterable

from pytest_vlmrobust.core.cell import LEVELS

from .record import Coverage
from .scores import parsed

SPATIAL_TYPES = (
    *("upsample", "downsample", "elastic_transform", "zoom_blur", "rotate"),
    *("shear", "affine", "perspective_transform", "pixelate"),
)
"""Perturbations that move or resample pixels (VLM-RobustBench appendix B.2)."""


def low_settings(settings: Iterable[str]) -> tuple[str, ...]:
    """Returns the settings at level ``low``."""
    return tuple(setting for setting in settings if parsed(setting).level == LEVELS[0])


def worst_tenth(settings: int) -> int:
    """Returns how many of a number of settings are a tenth of them, rounded up."""
    return -(-settings // 10)


def triples(settings: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Returns, for each perturbation present at all three levels, its settings in the order low, mid, high."""
    present = set(settings)
    found = {}
    for low in low_settings(sorted(present)):
        name = parsed(low).name
        wanted = tuple(f"{name}:{level}" for level in LEVELS)
        if present.issuperset(wanted):
            found[name] = wanted
    return found


def types(settings: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Returns the settings of each perturbation, whatever its levels."""
    found: dict[str, tuple[str, ...]] = {}
    for setting in settings:
        name = parsed(setting).name
        found[name] = (*found.get(name, ()), setting)
    return found


def spatial_settings(settings: Iterable[str]) -> tuple[str, ...]:
    """Returns the settings of the nine spatial and resampling perturbations."""
    return tuple(setting for setting in settings if parsed(setting).name in SPATIAL_TYPES)


def _in_triples(settings: Iterable[str]) -> tuple[str, ...]:
    return tuple(setting for triple in triples(settings).values() for setting in triple)


ALL_SETTINGS = Coverage("settings", 133)
LOW_SETTINGS = Coverage("low settings", 42, low_settings)
GRADED_TYPES = Coverage("perturbations with three levels", 42, _in_triples, per=3)
