"""The Observatory's own facts about a cell: who is shown where, whether a task is done at all, and what scores leave out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.cell import CLEAN, CLEAN_NAME, NO_IMAGE, Cell, FamilyMetric, Setting
from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.evaluation.run.prompts import told_overlaps
from pytest_vlmrobust.evaluation.run.results import CellResult
from pytest_vlmrobust.evaluation.tasks.dataset import GRIDS
from pytest_vlmrobust.evaluation.tasks.material import NEIGHBOURS_BY
from pytest_vlmrobust.metrics.table import ScoreTable
from pytest_vlmrobust.policies import JudgedTest
from pytest_vlmrobust.scoring import better_convention, box_coverage

from .answers import Measured
from .families import Family

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


SUITE = "observatory"
FIXATION = "fixation_rate"
DISTANCE = "grid_distance"
COVERAGE = "box_coverage"
BASELINES = (CLEAN, NO_IMAGE)
LABELS = {metrics.Needs.POSITIONS: "positions", metrics.Needs.PEOPLE: "groups of people"}
"""What samples are compared by."""


def labels(samples: Sequence[Sample]) -> dict[str, list[str]]:
    """Returns by what samples are compared, as arguments of a table: where the target is, and the group of people."""
    found = {"positions": [sample.keys.get("position", "") for sample in samples]}
    found["people"] = [sample.keys.get("group", "") for sample in samples]
    return {name: values for name, values in found.items() if any(values)}


def not_shown(measured: Measured, model: str, dataset: str) -> str:
    """Returns why a model is not shown to do a task at all, or an empty string: what it loses then says nothing.

    It has to do better with the original pictures than with none, and where boxes are asked for also than what the prompt tells.
    """
    return refused(_baselines(measured, model, dataset), told_overlaps(measured.samples(dataset)))


def refused(baselines: ScoreTable, told: NDArray[np.float64] | None) -> str:
    """Returns why scores with and without the original pictures do not show that a task is done, or an empty string.

    Args:
        baselines: these scores.
        told: what the prompts alone foretell, shape (N,), see :func:`told_overlaps`; None where no boxes are asked for.
    """
    return metrics.does_the_task(baselines) or from_prompts(baselines, told)


def from_prompts(baselines: ScoreTable, told: NDArray[np.float64] | None) -> str:
    """Returns why boxes may come from the prompts alone, or an empty string, also where none are asked for."""
    return "" if told is None else metrics.exceeds_the_prompt(baselines, told)


def unseen(measured: Measured, test: JudgedTest) -> str:
    """Returns why a test on original pictures must not pass, or an empty string: its boxes may come from the prompt alone.

    A bound that is missed says something all the same. Of changed pictures, and of a family, nothing is measured where
    :func:`not_shown` says so.
    """
    on_originals = test.setting in {"", CLEAN_NAME} and test.model in measured.models
    told = told_overlaps(measured.samples(test.dataset)) if on_originals else None
    return "" if told is None else from_prompts(_baselines(measured, test.model, test.dataset), told)


def _baselines(measured: Measured, model: str, dataset: str) -> ScoreTable:
    clean, blind = (measured.result(Cell(model, dataset, setting)) for setting in BASELINES)
    groups = [sample.group or sample.id for sample in clean.samples]
    return ScoreTable(clean=clean.values, no_image=blind.values, groups=groups)


def not_offered(metric: str, table: ScoreTable) -> str:
    """Returns why a summary metric does not apply to the samples of a table, or an empty string: nothing to compare them by."""
    lacking = [need for need in metrics.get(metric).needs if need in LABELS]
    if not lacking or metric in metrics.applicable(table):
        return ""
    return f"fewer than two {' and '.join(LABELS[need] for need in lacking)} are known"


def compared(metric: str, table: ScoreTable) -> tuple[str, ...]:
    """Returns the mean score at each position, or of each group of people, where a summary metric compares them.

    A gap says how far apart they are, and not which is ahead; where none is, nothing is said.
    The intervals of the means are Wilson's for 0/1 scores, at 90 %.
    """
    values = {metrics.Needs.POSITIONS: table.positions, metrics.Needs.PEOPLE: table.people}
    return tuple(
        f"{noun}: {said}"
        for need, noun in LABELS.items()
        if need in metrics.get(metric).needs and (said := _means_by(values[need] or (), table))
    )


def _means_by(labels: Sequence[str], table: ScoreTable) -> str:
    """Returns means over all settings of a table, an unreadable answer being wrong; nothing where one is missing."""
    import numpy as np

    scores = np.mean(list(table.by_setting.values()), axis=0) if table.by_setting else np.full(table.samples, np.nan)
    if not labels or np.isnan(scores).any():
        return ""
    found = metrics.group_means(scores, labels, source_images=table.groups)
    known = sorted((str(label), mean) for label, mean in found.items() if str(label))
    if len({mean.value for _, mean in known}) < 2:
        return ""
    return ", ".join(f"{label} {mean.value:.3f} [{mean.low:.3f}, {mean.high:.3f}] n={mean.n}" for label, mean in known)


def offered(names: Sequence[str], samples: Sequence[Sample], setting: str) -> list[str]:
    """Returns the metrics of a cell that its samples have what is optional for: several positions, several groups of people."""
    import numpy as np

    nothing, given = np.zeros(len(samples)), dict[str, Any](labels(samples))
    there = metrics.applicable(ScoreTable(clean=nothing, by_setting={setting: nothing}, **given), setting, SUITE)
    return [name for name in names if name in there]


def extra_metrics(setting: Setting, task: str, samples: Sequence[Sample] | None) -> list[str]:
    """Returns the metrics of :func:`extra_estimates`; of samples that nobody has looked at, those that the task may have."""
    if not task or setting == NO_IMAGE:
        return []
    if samples is None:
        return [FIXATION, DISTANCE] if task in GRIDS else [COVERAGE]
    if any(sample.localisation for sample in samples):
        return [COVERAGE]
    return [FIXATION, DISTANCE] if any("position" in sample.keys for sample in samples) else []


def extra_estimates(result: CellResult) -> list[tuple[str, Estimate]]:
    """Returns what the scores of a cell do not say: pointing without looking, near misses, the share of boxes that were given.

    Nothing is said of answers without the pictures, which need not be given.
    """
    groups = [sample.group or sample.id for sample in result.samples]
    if result.cell.setting == NO_IMAGE:
        return []
    if any(sample.localisation for sample in result.samples):
        return [(COVERAGE, metrics.coverage(box_coverage(result.samples, result.predictions), source_images=groups))]
    targets = [_cell(sample.keys["position"]) for sample in result.samples if "position" in sample.keys]
    if not targets:
        return []
    pointed = [sample.options.get(score.answer or "") for sample, score in zip(result.samples, result.scores, strict=True)]
    failed = {group for group, score in zip(groups, result.scores, strict=True) if score.state == "error"}
    by_entity: dict[str, list[str | None]] = {group: [] for group in groups if group not in failed}
    for group, text in zip(groups, pointed, strict=True):
        if group not in failed:
            by_entity[group].append(text)
    answers = [None if text is None else _cell(text) for text in pointed]
    distance = metrics.grid_distance(answers, targets, source_images=groups)
    return [(FIXATION, metrics.fixation(list(by_entity.values()))), *([(DISTANCE, distance)] if distance.n else ())]


def _cell(text: str) -> tuple[int, int]:
    """Returns row and column of a cell as the task writes it, ``[row,column]``."""
    row, column = text.strip("[]").split(",")
    return int(row), int(column)


def notes(model: str, convention: str, result: CellResult) -> tuple[str, ...]:
    """Returns, of original pictures, by what near neighbours were chosen where that is known, and whether another convention of
    boxes fits the answers better.
    """  # noqa: D205 - one sentence
    if result.cell.setting != CLEAN:
        return ()
    if not any(sample.localisation for sample in result.samples):
        chosen_by = dict.fromkeys(sample.keys.get(NEIGHBOURS_BY, "") for sample in result.samples)
        return tuple(f"near neighbours were chosen by {name}" for name in chosen_by if name)
    said = better_convention(model, convention, result.samples, result.predictions)
    return (said,) if said else ()


def means(scores: Sequence[Sequence[NDArray[np.float64]]]) -> list[NDArray[np.float64]]:
    """Returns for each model the mean score of each sample over its settings, shape (N,); NaN where one is missing."""
    import numpy as np

    return [np.mean(np.array(own), axis=0) for own in scores]


def members_note(about: FamilyMetric, family: Family, scores: Sequence[NDArray[np.float64]]) -> str:
    """Returns the mean score of each member of a family, by size."""
    each = ", ".join(f"{name} {own.mean():.3f}" for name, own in zip(family.members, scores, strict=True))
    return f"{about.dataset}, {about.split}: {each}"
