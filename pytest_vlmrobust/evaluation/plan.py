"""The plan: from what was asked for to cells, in one order that depends on nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pytest_vlmrobust import perturbations
from pytest_vlmrobust.core.cell import Cell, SweepMetric
from pytest_vlmrobust.core.errors import SettingError
from pytest_vlmrobust.core.setting import CLEAN, NO_IMAGE, Setting
from pytest_vlmrobust.perturbations.catalog import SETS

BASELINES = (CLEAN, NO_IMAGE)


def expand_settings(names: Iterable[str]) -> tuple[Setting, ...]:
    """Returns the settings that ``names`` stand for: a set such as ``robustbench``, or a setting.

    Raises:
        UnknownName: neither a set nor a perturbation has that name.
        SettingError: a setting that cannot be parsed, a level that is not offered, or one that makes several pictures of one,
            which no cell asks about yet.
    """
    found: dict[Setting, None] = {}
    for name in names:
        members = perturbations.names(name) if name in SETS else [name]
        for member in members:
            setting = Setting.parse(member)
            if setting not in BASELINES:
                _check_one_picture(setting)
            found[setting] = None
    return tuple(found)


def _check_one_picture(setting: Setting) -> None:
    views = perturbations.info(setting).views
    if views > 1:
        raise SettingError(
            f"setting {str(setting)!r} makes {views} pictures of one, and a cell asks about one picture. "
            f"Cut and ask with pytest_vlmrobust.perturbations.get({str(setting)!r}) in Python"
        )


def plan_cells(models: Sequence[str], datasets: Sequence[str], settings: Sequence[Setting]) -> list[Cell]:
    """Returns the cells, model by model, so that a model is loaded once; baselines first, so that drops can be told at once."""
    ordered = [s for s in BASELINES if s in settings] + [s for s in settings if s not in BASELINES]
    return [Cell(model, dataset, setting) for model in models for dataset in datasets for setting in ordered]


def plan_sweeps(models: Sequence[str], datasets: Sequence[str], metrics: Sequence[str]) -> list[SweepMetric]:
    """Returns the summary metrics of every sweep, model by model."""
    return [SweepMetric(model, dataset, metric) for model in models for dataset in datasets for metric in metrics]
