"""Comparing two runs from their evidence alone: paired sample by sample, no model, no images."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.cell import BASELINES, CLEAN, Cell, Setting
from pytest_vlmrobust.core.errors import UnknownName, UsageError
from pytest_vlmrobust.core.estimate import LEVEL, Estimate
from pytest_vlmrobust.evaluation.judge.baseline import Baseline
from pytest_vlmrobust.evaluation.run.answers import Answers, AnswersOfChanged
from pytest_vlmrobust.metrics.table import ScoreTable

from .paired import RunModel, notes_without_pictures, paired_table


@dataclass(frozen=True, slots=True)
class CellChange:
    """The change of a cell that both runs measured."""

    model: str
    """The model of the later run."""
    dataset: str
    setting: str
    n: int
    """Samples with a score in both runs."""
    then: float
    """Accuracy in the earlier run, over all samples; NaN if a score is missing."""
    now: float
    baseline_drop: Estimate
    """Earlier minus later run, paired by sample."""
    drop_increase: Estimate | None = None
    """The increase of the drop from clean; ``None`` for a clean cell, or if one run lacks the clean cell."""
    broken: tuple[str, ...] = ()
    """Ids of samples that score less than in the earlier run."""
    fixed: tuple[str, ...] = ()
    """Ids of samples that score more."""

    @property
    def name(self) -> str:
        """The cell as in test ids."""
        return f"{self.model}-{self.dataset}-{self.setting}"


@dataclass(frozen=True, slots=True)
class SweepChange:
    """The change over all perturbed settings of a dataset that both runs measured."""

    model: str
    dataset: str
    settings: int
    """The number of settings in the mean."""
    mean_baseline_drop: Estimate

    @property
    def name(self) -> str:
        """The sweep as in test ids."""
        return f"{self.model}-{self.dataset}"


@dataclass(frozen=True, slots=True)
class StoppedEarly:
    """The cells with only a part of the answers in a run; their changes have no interval."""

    cells: tuple[str, ...] = ()
    answers: int = 0
    """Answers that both runs have."""
    changed: int = 0
    """Those of them whose score differs."""
    only_one: int = 0
    """Answers that only one run has."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of two runs; the worst changes come first."""

    before: str
    """The directory of the earlier run."""
    after: str
    """The directory of the later run."""
    models: dict[str, str]
    """Model of the later run to the model of the earlier run that it was compared with."""
    cells: tuple[CellChange, ...] = ()
    sweeps: tuple[SweepChange, ...] = ()
    only_before: tuple[str, ...] = ()
    """Cells that only the earlier run has."""
    only_after: tuple[str, ...] = ()
    """Cells that only the later run has."""
    stopped_early: StoppedEarly = field(default_factory=StoppedEarly)
    confidence: float = LEVEL
    """Level of the intervals."""
    notes: tuple[str, ...] = ()
    """What could not be verified."""

    @property
    def unchanged(self) -> bool:
        """Whether both runs have the same cells, and every sample scores the same in both."""
        same = all(change.baseline_drop.value == 0 and not change.broken and not change.fixed for change in self.cells)
        early = self.stopped_early
        in_one = early.only_one or self.only_before or self.only_after
        return bool(self.cells or early.answers) and same and not early.changed and not in_one


def compare(before: Path, after: Path, *, model: str = "", common: bool = False) -> Comparison:
    """Returns the changes from one run to another, over every cell that both measured.

    ``model`` is one of the later run; all of them by default. With ``common``, samples that only one run has are left out and
    not refused.

    Raises:
        UsageError: a directory without evidence, ambiguous models, or no cell that both runs measured.
        UnknownName: the later run has no such model.
        DatasetError: the runs asked different samples, their stochastic settings have different seeds, or one was answered by
            letters and the other one by text.
        StoreError: the evidence cannot be read, or its scores are not those of its answers.
    """
    with (
        closing(Baseline.open(before, common=common, called=str(before))) as then,
        closing(Baseline.open(after, called=str(after))) as now,
    ):
        pairs = _models(then, now, model)
        ours = [cell for cell in now.evidence.cells() if cell.model in pairs]
        shared = [cell for cell in ours if then.has_cell(cell)]
        _refuse_unlike(then, now, ours, shared)
        early = [cell for cell in shared if _is_part(now, cell) or _is_part(then, _with_model(pairs[cell.model], cell))]
        cells, sweeps = _compare_whole_cells(then, now, pairs, [cell for cell in shared if cell not in early])
        counts = [_changed_answers(now, cell, then, _with_model(pairs[cell.model], cell)) for cell in early]
        datasets = sorted({change.dataset for change in cells})
        return Comparison(
            before=str(before),
            after=str(after),
            models=pairs,
            cells=tuple(sorted(cells, key=lambda change: _worst_first(change.baseline_drop, change.name))),
            sweeps=tuple(sorted(sweeps, key=lambda change: _worst_first(change.mean_baseline_drop, change.name))),
            only_before=_unmatched_names(then.evidence.cells(), {_with_model(pairs[cell.model], cell) for cell in ours}),
            only_after=_unmatched_names(ours, shared),
            stopped_early=StoppedEarly(tuple(map(str, early)), *(sum(column) for column in zip(*counts, strict=True))),
            notes=(
                *notes_without_pictures((then, now), datasets),
                *(note for dataset in datasets for note in then.left_out(dataset, now)),
            ),
        )


def _refuse_unlike(then: Baseline, now: Baseline, ours: Sequence[Cell], shared: Sequence[Cell]) -> None:
    """Refuses runs with other images under the same setting, with answers read in another way, and without a common cell."""
    then.refuse_seed(now.seed, ours)
    then.refuse_perturbations(now.perturbations, ours)
    first = {(cell.model, cell.dataset): cell for cell in sorted(shared, reverse=True)}
    for cell in first.values():
        then.refuse_answers(cell, now.answered_by(cell))
    if not shared:
        raise UsageError(f"{then.called!r} and {now.called!r} have no cell in common: no dataset under the same setting")


def _compare_whole_cells(
    then: Baseline, now: Baseline, pairs: Mapping[str, str], shared: Sequence[Cell]
) -> tuple[list[CellChange], list[SweepChange]]:
    """Returns the changes of the cells, and of the sweeps over them, model by model and dataset by dataset."""
    cells: list[CellChange] = []
    sweeps: list[SweepChange] = []
    settings_of: dict[tuple[str, str], list[Setting]] = {}
    for cell in shared:
        settings_of.setdefault((cell.model, cell.dataset), []).append(cell.setting)
    for (name, dataset), settings in settings_of.items():
        models = RunModel(now, name, name), RunModel(then, pairs[name], name)
        changed = {setting: now.changed(dataset, setting) or () for setting in settings}
        few = [setting for setting in settings if 0 < len(changed[setting]) < len(now.samples(dataset))]
        others = [setting for setting in settings if setting not in few]
        of_dataset = _compare_cells(models, dataset, others, now) if others else ([], [])
        cells += of_dataset[0]
        sweeps += of_dataset[1]  # a mean over settings needs the same questions in each
        for setting in few:  # the questions that it changes
            answers = AnswersOfChanged(now, changed[setting])
            both = [s for s in (CLEAN, setting) if s in settings]
            cells += _compare_cells(models, dataset, both, answers)[0][-1:]
    return cells, sweeps


def _models(then: Baseline, now: Baseline, chosen: str) -> dict[str, str]:
    known = sorted({cell.model for cell in now.evidence.cells()})
    if chosen and chosen not in known:
        raise UnknownName("model", chosen, known, where="--model")
    return {name: then.model(name) for name in ([chosen] if chosen else known)}


def _with_model(model: str, cell: Cell) -> Cell:
    return Cell(model, cell.dataset, cell.setting)


def _unmatched_names(cells: Iterable[Cell], matched: Iterable[Cell]) -> tuple[str, ...]:
    return tuple(map(str, sorted({*cells} - {*matched})))


def _worst_first(drop: Estimate, name: str) -> tuple[bool, float, str]:
    """Returns a sort key that puts unknown drops first, since they may be the worst."""
    return not math.isnan(drop.value), -drop.value if drop.finite else 0.0, name


def _compare_cells(
    models: tuple[RunModel, RunModel], dataset: str, settings: Sequence[Setting], answers: Answers
) -> tuple[list[CellChange], list[SweepChange]]:
    """Returns the changes from the second model to the first under each setting, and over the perturbed ones."""
    now, then = models
    paired = paired_table(models, dataset, settings, answers)
    by_setting = {str(CLEAN): paired.clean, **paired.by_setting}
    after, before = ({name: scores[place] for name, scores in by_setting.items()} for place in (0, 1))
    table = ScoreTable(paired.clean[0], after, groups=paired.groups, baseline_by_setting=before)
    kept = then.run.kept(dataset, answers)
    ids = [sample.id for sample, shared in zip(answers.samples(dataset), kept, strict=True) if shared]
    cells = []
    for setting in settings:
        name, grows = str(setting), setting != CLEAN and CLEAN in settings
        changed = metrics.changed_samples(ids, before[name], after[name])
        change = CellChange(
            model=now.name,
            dataset=dataset,
            setting=name,
            n=len(ids) - len(changed.unknown),
            then=float(np.mean(before[name])),
            now=float(np.mean(after[name])),
            baseline_drop=metrics.estimate("baseline_drop", table, name),
            drop_increase=metrics.estimate("drop_increase", table, name) if grows else None,
            broken=changed.broken,
            fixed=changed.fixed,
        )
        cells.append(change)
    perturbed = {str(setting): after[str(setting)] for setting in settings if setting not in BASELINES}
    if not perturbed:
        return cells, []
    drop = metrics.estimate("mean_baseline_drop", replace(table, by_setting=perturbed))
    return cells, [SweepChange(now.name, dataset, len(perturbed), drop)]


def _is_part(run: Baseline, cell: Cell) -> bool:
    """Whether a run has only a part of the answers of a cell, because its tests stopped once they were decided."""
    return run.stopped_early and run.partial(cell).places not in (None, run.changed(cell.dataset, cell.setting))


def _changed_answers(now: Baseline, cell: Cell, then: Baseline, earlier: Cell) -> tuple[int, int, int]:
    """Returns for a cell how many answers both runs have, how many of them changed score, and how many only one run has.

    Gives no drop, because which samples a run asked depends on its results.
    """
    after, before = _stored_answers(now, cell), _stored_answers(then, earlier)
    shared = after.keys() & before.keys()
    return len(shared), sum(after[key] != before[key] for key in shared), len(after.keys() ^ before.keys())


def _stored_answers(run: Baseline, cell: Cell) -> dict[tuple[str, int], tuple[float | None, str]]:
    """Returns value and state of each stored answer by sample and view; missing values are ``None``, which equals itself."""
    result = run.checked(cell, whole=False)
    return {
        (result.samples[index // result.views].id, index % result.views): (
            None if math.isnan(score.value) else score.value,
            score.state,
        )
        for index, score in enumerate(result.scores)
    }
