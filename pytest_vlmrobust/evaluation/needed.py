"""Needed: the cells that a test asks for, itself and whatever it is compared with; known before anything is inferred."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.cell import CLEAN, NO_IMAGE, Cell, FamilyMetric, Planned, Setting, SweepMetric
from pytest_vlmrobust.core.prediction import ModelRef

from .attempts import AttemptsOf
from .data import RunData
from .families import families, twin
from .preprocessed import is_preprocessed

BASELINES = (CLEAN, NO_IMAGE)
WITHOUT_SETTINGS = frozenset({metrics.Needs.CLEAN, metrics.Needs.NO_IMAGE, metrics.Needs.CHANCES, metrics.Needs.FLOORS})
"""What metrics read of a sweep that takes no setting but these two."""


def needed_cells(  # noqa: PLR0917 - all of them parts of one run
    planned: Planned,
    settings: Sequence[Setting],
    models: Mapping[str, ModelRef],
    data: RunData,
    reference: str | None = None,
    attempts: AttemptsOf = lambda _cell: None,
) -> list[Cell]:
    """Returns the cells that a test evaluates: all that it can, for a model may turn out not to do a task and is asked less then.

    Of a collection that lacks what the task needs nothing is asked.

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
        found = [Cell(planned.model, planned.dataset, setting) for setting in (*BASELINES, planned.setting, *rung)]
        tried = None if planned.dataset in data.tasks else attempts(planned)
        return found if tried is None else [*found, tried]
    if isinstance(planned, FamilyMetric):
        members = families(models)[planned.family].members
        asked = dict.fromkeys((*BASELINES, *settings)) if planned.dataset in data.tasks else settings
        return [Cell(name, planned.dataset, setting) for name in members for setting in asked]
    return _of_sweep(planned, settings, models, data, reference)


def _of_sweep(
    sweep: SweepMetric, settings: Sequence[Setting], models: Mapping[str, ModelRef], data: RunData, reference: str | None
) -> list[Cell]:
    needs = set(metrics.get(sweep.metric).needs)
    asked = () if needs <= WITHOUT_SETTINGS else tuple(settings)
    found = [Cell(sweep.model, sweep.dataset, setting) for setting in dict.fromkeys((*BASELINES, *asked))]
    if reference is not None:
        found += [Cell(reference, sweep.dataset, setting) for setting in asked]
    compared = dict.fromkeys((CLEAN, *asked))
    if metrics.Needs.UNHINTED_BY_SETTING in needs:
        found += [Cell(sweep.model, data.unhinted(sweep.dataset), setting) for setting in compared]
    if metrics.Needs.BASE_BY_SETTING in needs:
        found += [Cell(twin(models, sweep.model), sweep.dataset, setting) for setting in compared]
    return found
