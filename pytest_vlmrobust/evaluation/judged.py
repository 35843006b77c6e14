"""Judged: by which metrics a planned test will be judged, known before anything is measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_vlmrobust import metrics, perturbations
from pytest_vlmrobust.core.cell import CLEAN, NO_IMAGE, Cell, Planned, Setting
from pytest_vlmrobust.core.errors import VlmRobustError
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.policies import JudgedTest

from . import observatory
from .parts import label_preserving
from .preprocessed import PREPROCESSING, is_preprocessed
from .strata import MACRO, SUITE, has_macro
from .tasks.dataset import GRIDS
from .views import view_count
from .whole import CORPUS_DROP, CORPUS_PCRI, CORPUS_SCORE, MEAN

if TYPE_CHECKING:
    from .measured import Measured

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


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """What is known of a dataset before a model answers: it says which metrics its tests have.

    Where ``corpus_metric`` or ``samples`` is ``None`` nobody has looked yet, and everything is named that may be measured.
    """

    task: str = ""
    """Of a dataset that a task makes of a collection, what is asked in it; empty for plain questions."""
    corpus_metric: str | None = None
    """The metric that is published for the dataset as a whole."""
    samples: Sequence[Sample] | None = None

    @classmethod
    def of(cls, measured: Measured, dataset: str, task: str = "") -> Asked:
        """Looks at a dataset; one that cannot be read stays unknown: the tests that need it say why."""
        try:
            return cls(task, measured.corpus_metric(dataset), measured.samples(dataset))
        except (VlmRobustError, Warning):
            return cls(task)


def judged_tests(
    planned: Planned, asked: Asked | None = None, *, baseline: bool = False, attempts: bool = False
) -> list[JudgedTest]:
    """Returns what a planned test will be judged by, a line for each metric; categories of the dataset are counted elsewhere.

    That is what :class:`~.judging.Judge` measures and rules may bound. Two metrics are named that answers may leave out:
    ``unparsed_increase`` is measured of written text and not of scored letters, and ``grid_distance`` of wrong answers.

    Args:
        planned: of one model.
        asked: what is known of its dataset.
        baseline: whether cells are compared with an earlier run.
        attempts: whether cells of patches are compared with as many attempts at the whole picture.
    """
    asked = asked or Asked()
    if not isinstance(planned, Cell):
        names = [planned.metric, *_macro(planned.metric, asked)]
        return [JudgedTest(planned.model, planned.dataset, name, planned.split) for name in names]
    family, level = family_and_level(planned.setting)
    names = _of_scores(planned.setting, asked, attempts=attempts)
    names += [*_of_corpus(planned.setting, asked), *_beside_scores(planned.setting, asked)]
    names += baseline_metrics(planned.setting) if baseline else []
    return [JudgedTest(planned.model, planned.dataset, name, str(planned.setting), family, level) for name in names]


def _of_scores(setting: Setting, asked: Asked, *, attempts: bool) -> list[str]:
    """Returns the metrics of a cell that are computed from scores, with those that ask for part of the samples."""
    names = cell_metrics(setting, asked.task, attempts=attempts)
    if asked.task and asked.samples is not None:
        names = observatory.offered(names, asked.samples, str(setting))
    changes = setting not in (CLEAN, NO_IMAGE) and (asked.samples is None or not all(label_preserving(setting, asked.samples)))
    names += [LABEL_PRESERVING_DROP] if changes else []
    names += [PREPROCESSING_GAIN] if is_preprocessed(setting) else []
    return names


def _of_corpus(setting: Setting, asked: Asked) -> list[str]:
    """Returns what is measured where a dataset publishes another number than the mean of scores."""
    if asked.corpus_metric == MEAN:
        return []
    perturbed = setting not in (CLEAN, NO_IMAGE)
    return [CORPUS_SCORE, *([CORPUS_DROP] if perturbed else []), *([CORPUS_PCRI] if view_count(setting) > 1 else [])]


def _beside_scores(setting: Setting, asked: Asked) -> list[str]:
    """Returns what is counted beside scores: unreadable answers, and what the Observatory says of cells and boxes."""
    text = setting not in (CLEAN, NO_IMAGE) and view_count(setting) == 1
    return [*([UNPARSED_INCREASE] if text else []), *observatory.extra_metrics(setting, asked.task, asked.samples)]


def _macro(metric: str, asked: Asked) -> list[str]:
    """Returns the metric on the mean curve of the categories, where a summary metric of a curve has one."""
    if metric not in metrics.names() or metrics.get(metric).suite != SUITE:
        return []
    categories = None if asked.samples is None else {sample.category for sample in asked.samples}
    some = categories is None or (len(categories) > 1 and "" not in categories)
    return [metric + MACRO] if some and has_macro(metrics.get(metric)) else []


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
