"""The plan: from what was asked for to cells, in one order that depends on nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pytest_vlmrobust import perturbations
from pytest_vlmrobust.core.cell import Cell, SweepMetric
from pytest_vlmrobust.core.errors import UnknownName
from pytest_vlmrobust.core.setting import CLEAN, NO_IMAGE, Setting
from pytest_vlmrobust.perturbations.catalog import SETS
from pytest_vlmrobust.perturbations.registry import REGISTRY

BASELINES = (CLEAN, NO_IMAGE)


LADDER = "ladder"
"""Stands for twelve rungs up to the size of a data set's pictures, where all have one, and for the published ladder elsewhere."""
RUNGS = 12


def expand_settings(names: Iterable[str], native_long_edge: int | None = None) -> tuple[Setting, ...]:
    """Returns the settings that ``names`` stand for: a set such as ``robustbench``, ``ladder``, or a setting.

    Args:
        names: of sets and settings.
        native_long_edge: the long edge in pixels that all pictures of the data set share, for ``ladder``.

    Raises:
        UnknownName: neither a set nor a perturbation has that name.
        SettingError: a setting that cannot be parsed, or a level that is not offered.
    """
    found: dict[Setting, None] = {}
    for name in names:
        for member in _members(name, native_long_edge):
            setting = Setting.parse(member)
            if setting not in BASELINES:
                _check(setting)
            found[setting] = None
    return tuple(found)


def _check(setting: Setting) -> None:
    try:
        perturbations.get(setting)
    except UnknownName as error:
        if error.name == str(setting):  # no part of something longer: it may have been meant as a set
            raise UnknownName("setting, or set of settings", error.name, [*SETS, LADDER, *REGISTRY.names()]) from None
        raise


def ladder(native_long_edge: int) -> list[str]:
    """Returns twelve rungs, a twelfth of the native size apart, each once.

    >>> ladder(160)[:3], ladder(160)[-1]
    (['resolution:13', 'resolution:27', 'resolution:40'], 'resolution:160')
    """
    edges = (max(1, round(native_long_edge * step / RUNGS)) for step in range(1, RUNGS + 1))
    return list(dict.fromkeys(f"resolution:{edge}" for edge in edges))


def _members(name: str, native_long_edge: int | None) -> list[str]:
    if name == LADDER:
        return perturbations.names("resolution") if native_long_edge is None else ladder(native_long_edge)
    return perturbations.names(name) if name in SETS else [name]


def plan_cells(models: Sequence[str], settings: Mapping[str, Sequence[Setting]]) -> list[Cell]:
    """Returns the cells, model by model, so that a model is loaded once; baselines first, so that drops can be told at once.

    Args:
        models: by their names in test ids.
        settings: data set to its settings.
    """
    return [
        Cell(model, dataset, setting)
        for model in models
        for dataset, own in settings.items()
        for setting in [*(s for s in BASELINES if s in own), *(s for s in own if s not in BASELINES)]
    ]


def plan_sweeps(models: Sequence[str], datasets: Sequence[str], metrics: Sequence[str]) -> list[SweepMetric]:
    """Returns the summary metrics of every sweep, model by model."""
    return [SweepMetric(model, dataset, metric) for model in models for dataset in datasets for metric in metrics]
