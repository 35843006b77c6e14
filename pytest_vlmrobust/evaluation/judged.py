"""Judged: by which metrics a planned test will be judged, known before anything is measured."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_vlmrobust import metrics, perturbations
from pytest_vlmrobust.core.cell import Cell, Planned
from pytest_vlmrobust.core.setting import CLEAN, NO_IMAGE, Setting
from pytest_vlmrobust.policies import JudgedTest

from .preprocessed import PREPROCESSING, is_preprocessed
from .tasks.dataset import GRIDS

OBSERVATORY = "observatory"
"""The suite whose metrics cells of tasks are measured by."""
BASELINE = "baseline"
"""The suite whose metrics compare a cell with an earlier run."""
_SUITES = {"patches": "patches", "attempts": "attempts", "ladder": "resolution", PREPROCESSING: "resolution"}
"""Family of the last step of a setting to the suite whose metrics its cells are measured by; the corruptions' for all others."""
UNPARSED_INCREASE = "unparsed_increase"
LABEL_PRESERVING_DROP = "label_preserving_drop"
PREPROCESSING_GAIN = "preprocessing_gain"


UNMEASURED = {
    metrics.Needs.PATCHES_AGAIN: "a second pass over the patches",
    metrics.Needs.PLACEBO_PATCHES: "answers to the patches of other pictures",
}
"""What metrics may need and no run asks a model for: their formulas are offered to whoever has such scores."""


def unmeasured_metrics() -> dict[str, str]:
    """Returns the metrics that no run measures, with what would have to be asked for."""
    records = {name: metrics.get(name) for name in metrics.names()}
    lacking = {name: [UNMEASURED[need] for need in record.needs if need in UNMEASURED] for name, record in records.items()}
    return {name: needs[0] for name, needs in lacking.items() if needs}


def judged_tests(
    planned: Planned, tasks: Mapping[str, str] | None = None, *, baseline: bool = False, attempts: bool = False
) -> list[JudgedTest]:
    """Returns what a planned test will be judged by, a line for each metric; strata of the data set are not known yet.

    ``tasks`` says of data sets made of collections what is asked in them, ``baseline`` whether cells are compared with one,
    ``attempts`` whether cells of patches are compared with as many attempts at the whole picture.
    """
    if not isinstance(planned, Cell):
        return [JudgedTest(planned.model, planned.dataset, planned.metric, planned.split)]
    family, level = family_and_level(planned.setting)
    names = cell_metrics(planned.setting, (tasks or {}).get(planned.dataset, ""), attempts=attempts)
    names += [LABEL_PRESERVING_DROP, *([PREPROCESSING_GAIN] if is_preprocessed(planned.setting) else ())]
    names += [UNPARSED_INCREASE] if planned.setting not in (CLEAN, NO_IMAGE) else []
    names += baseline_metrics(planned.setting) if baseline else []
    return [JudgedTest(planned.model, planned.dataset, name, str(planned.setting), family, level) for name in names]


def baseline_metrics(setting: Setting) -> list[str]:
    """Returns the metrics that compare a cell with an earlier run; without a setting there is no drop that could increase."""
    found = (metrics.get(name) for name in metrics.names(scope="cell"))
    own = [metric for metric in found if metric.suite == BASELINE]
    return [metric.name for metric in own if setting != CLEAN or metrics.Needs.BASELINE_CLEAN not in metric.needs]


def family_and_level(setting: Setting) -> tuple[str, str]:
    """Returns the family of a setting and its level; empty where it has none."""
    if setting in (CLEAN, NO_IMAGE):
        return "", ""
    about = perturbations.info(str(setting))
    return about.family, about.level or ""


def cell_metrics(setting: Setting, task: str, *, attempts: bool = False) -> list[str]:
    """Returns the metrics that a cell is measured by; ``task`` is empty for plain questions."""
    if setting in (CLEAN, NO_IMAGE):
        return ["accuracy"]
    if task:
        return [name for name in metrics.names(scope="cell", suite=OBSERVATORY) if _may_have(metrics.get(name), task)]
    suite = _SUITES.get(family_and_level(setting)[0].rpartition("+")[2], "corruptions")
    offered = {metrics.Needs.WHOLE_ATTEMPTS} if attempts else set()
    named = metrics.names(scope="cell", suite=suite)
    return [name for name in named if {need for need in metrics.get(name).needs if need.optional} <= offered]


def _may_have(metric: metrics.Metric, task: str) -> bool:
    """Whether a task may have all that is optional for a metric: groups of people where they are known, cells of a grid."""
    offered = {metrics.Needs.PEOPLE} | ({metrics.Needs.POSITIONS} if task in GRIDS else set())
    return {need for need in metric.needs if need.optional} <= offered
