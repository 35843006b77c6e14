"""Required cells: the cells that a test evaluates, known before a model answers: its own and those it is compared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.cell import CLEAN, NO_IMAGE, Cell, FamilyMetric, Planned, Setting, Step, SweepMetric
from pytest_vlmrobust.core.prediction import ModelRef
from pytest_vlmrobust.evaluation.run.data import RunData
from pytest_vlmrobust.evaluation.run.families import families, twin
from pytest_vlmrobust.evaluation.run.resolutions import is_preprocessed
from pytest_vlmrobust.evaluation.run.results import CellResult
from pytest_vlmrobust.policies import JudgedTest, Policy

from .context import family_and_level

# Attempts: as many answers about the whole picture as there are patches, so that luck is the same on both sides of PCRI.
#
# They cost n * n - 1 inferences a sample, so they are requested only by the option or by a rule of the model's policy.


OPTION = "--vlm-patch-attempts"
_PATCHES, _ATTEMPTS = "patches", "attempts"
AttemptsOf: TypeAlias = Callable[[Cell], "Cell | None"]
"""``cell of patches -> the cell of as many attempts that it is compared with``, or ``None``."""


def attempts_of(cell: Cell, policy: Policy, *, always: bool) -> Cell | None:
    """Returns the cell of attempts that a cell of patches is compared with; ``None`` where none are asked for.

    ``fog:mid+patches:2`` is compared with ``fog:mid+attempts:2``: with the same picture, fog included.

    Args:
        cell: of any setting.
        policy: of its model.
        always: whether they are asked for whatever the policy says.
    """
    *before, last = cell.setting.steps
    if last.name != _PATCHES or not (always or _is_ruled(cell, policy)):
        return None
    return Cell(cell.model, cell.dataset, Setting((*before, Step(_ATTEMPTS, last.level))))


def _is_ruled(cell: Cell, policy: Policy) -> bool:
    """Whether a rule of the policy bounds a metric that needs attempts, on this cell or its categories."""
    family, level = family_and_level(cell.setting)
    names = [name for name in metrics.names(scope="cell") if metrics.Needs.WHOLE_ATTEMPTS in metrics.get(name).needs]
    tests = [JudgedTest(cell.model, cell.dataset, name, str(cell.setting), family, level) for name in names]
    return any(rule.bounds(test) for rule in policy.rules for test in tests)


def attempts_note(result: CellResult) -> str:
    """Returns a note on how many samples are right in some attempts and wrong in others."""
    count = len(result.samples)
    if result.n_unasked:
        return f"{result.cell.setting}: attempts after a right one were not asked for, so it is unknown how much they vary"
    if result.count("error"):
        return ""
    scores = result.by_view
    varied = int((scores.max(axis=1) != scores.min(axis=1)).sum())
    note = f"{result.cell.setting}: the score of {varied} of {count} samples differs between attempts at the whole picture"
    if varied:
        return note
    return f"{note}: pcri_matched equals pcri here, and may be below 0 only because answers to patches differ by luck"


BASELINES = (CLEAN, NO_IMAGE)
WITHOUT_SETTINGS = frozenset({metrics.Needs.CLEAN, metrics.Needs.NO_IMAGE, metrics.Needs.CHANCES, metrics.Needs.FLOORS})
"""What metrics read that need no setting but these two."""


def required_cells(  # noqa: PLR0917 - all of them parts of one run
    planned: Planned,
    settings: Sequence[Setting],
    models: Mapping[str, ModelRef],
    data: RunData,
    reference: str | None = None,
    attempts: AttemptsOf = lambda _cell: None,
) -> list[Cell]:
    """Returns all cells that a test may evaluate; none if the collection lacks what the task needs.

    A model that is not shown to do a task is asked about fewer of them.

    Args:
        planned: what the test is about.
        settings: those that its summary metric is taken over; nothing for a cell.
        models: the models of the run.
        data: what the run asks from.
        reference: the model whose errors normalise the mean corruption error; ``None`` where none is needed.
        attempts: gives the cell of attempts that a cell of patches is compared with, where there is one.
    """
    if data.lacking(planned.dataset):
        return []
    if isinstance(planned, Cell):
        rung = [Setting(planned.setting.steps[:1])] if is_preprocessed(planned.setting) else []
        cells = [Cell(planned.model, planned.dataset, setting) for setting in (*BASELINES, planned.setting, *rung)]
        tried = None if planned.dataset in data.tasks else attempts(planned)
        return cells if tried is None else [*cells, tried]
    if isinstance(planned, FamilyMetric):
        members = families(models)[planned.family].members
        asked = dict.fromkeys((*BASELINES, *settings)) if planned.dataset in data.tasks else settings
        return [Cell(name, planned.dataset, setting) for name in members for setting in asked]
    return _of_sweep(planned, settings, models, data, reference)


def compared_cells(planned: Planned, settings: Sequence[Setting]) -> list[Cell]:
    """Returns the cells that a test compares with an earlier run: its own, or those of a summary metric about both runs.

    Args:
        planned: what the test is about.
        settings: those that its summary metric is taken over; nothing for a cell.
    """
    if isinstance(planned, Cell):
        return [planned]
    if isinstance(planned, FamilyMetric) or metrics.Needs.BASELINE_BY_SETTING not in metrics.get(planned.metric).needs:
        return []
    return [Cell(planned.model, planned.dataset, setting) for setting in settings]


def _of_sweep(
    sweep: SweepMetric, settings: Sequence[Setting], models: Mapping[str, ModelRef], data: RunData, reference: str | None
) -> list[Cell]:
    needs = set(metrics.get(sweep.metric).needs)
    asked = () if needs <= WITHOUT_SETTINGS else tuple(settings)
    cells = [Cell(sweep.model, sweep.dataset, setting) for setting in dict.fromkeys((*BASELINES, *asked))]
    if reference is not None:
        cells += [Cell(reference, sweep.dataset, setting) for setting in asked]
    compared = dict.fromkeys((CLEAN, *asked))
    if metrics.Needs.UNHINTED_BY_SETTING in needs:
        cells += [Cell(sweep.model, data.unhinted(sweep.dataset), setting) for setting in compared]
    if metrics.Needs.BASE_BY_SETTING in needs:
        cells += [Cell(twin(models, sweep.model), sweep.dataset, setting) for setting in compared]
    return cells
