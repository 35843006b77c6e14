"""Comparing two runs from their evidence alone: paired sample by sample, no model, no images."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.cell import BASELINES, CLEAN, Cell, Setting
from pytest_vlmrobust.core.errors import DatasetError, StoreError, UnknownName, UsageError
from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.core.words import first_few
from pytest_vlmrobust.evaluation.judge.baseline import Baseline
from pytest_vlmrobust.evaluation.judge.reads import groups_of
from pytest_vlmrobust.evaluation.judge.strata import rows_of
from pytest_vlmrobust.metrics.table import ScoreTable
from pytest_vlmrobust.store import Evidence, read_manifest

from .changes import CellChange, Comparison, StoppedEarly, SweepChange

CONFIDENCE = 0.90


def compare(before: Path, after: Path, *, model: str = "", common: bool = False, confidence: float = CONFIDENCE) -> Comparison:
    """Returns what changed from one run to another, over every cell that both measured.

    Args:
        before: the directory of the earlier run.
        after: the directory of the later run.
        model: a model of the later run; all of them where nothing is said.
        common: whether samples that only one of the runs has are left out instead of refused.
        confidence: two-sided level of the intervals, in (0, 1).

    Raises:
        UsageError: a directory without evidence, models that cannot be told apart, or no cell that both runs measured.
        UnknownName: the later run has no such model.
        DatasetError: the runs asked different samples, stochastic settings of theirs have different seeds, or one was answered by
            letters and the other one by text.
        StoreError: the evidence cannot be read, or its scores are not those of its answers.
    """
    then, now = Baseline.open(before, common=common), Baseline.open(after)
    try:
        pairs = _models(then, now, model)
        ours = {cell for cell in now.evidence.cells() if cell.model in pairs}
        then.refuse_seed(now.seed, ours)
        first = {(cell.model, cell.dataset): cell for cell in sorted(ours, reverse=True) if then.has_cell(cell)}
        for cell in first.values():
            then.refuse_answers(cell, now.answered_by(cell))
        model_pairs = [_Pair(then, now, name, confidence) for name in pairs]
        cells = [change for pair in model_pairs for change in pair.cells()]
        early = [pair.changed_answers(cell) for pair in model_pairs for cell in pair.stopped_early()]
        if not cells and not early:
            raise UsageError(f"{str(before)!r} and {str(after)!r} have no cell in common: no dataset under the same setting")
        sweeps = [change for pair in model_pairs for change in pair.sweeps()]
        return Comparison(
            before=str(before),
            after=str(after),
            models=pairs,
            cells=tuple(sorted(cells, key=lambda change: _worst_first(change.baseline_drop, change.name))),
            sweeps=tuple(sorted(sweeps, key=lambda change: _worst_first(change.mean_baseline_drop, change.name))),
            only_before=_unmatched_names(then.evidence.cells(), {_with_model(pairs[cell.model], cell) for cell in ours}),
            only_after=_unmatched_names(ours, {cell for cell in ours if then.has_cell(cell)}),
            stopped_early=StoppedEarly(
                tuple(str(cell) for pair in model_pairs for cell in pair.stopped_early()),
                *(sum(counts) for counts in zip(*early, strict=True)),
            ),
            confidence=confidence,
            notes=(
                *_missing_picture_notes({str(before): then, str(after): now}, {change.dataset for change in cells}),
                *(note for name in sorted({change.dataset for change in cells}) for note in then.left_out(name, now)),
            ),
        )
    finally:
        then.close()
        now.close()


def _models(then: Baseline, now: Baseline, chosen: str) -> dict[str, str]:
    known = sorted({cell.model for cell in now.evidence.cells()})
    if chosen and chosen not in known:
        raise UnknownName("model", chosen, known, where="--model")
    return {name: then.model(name) for name in ([chosen] if chosen else known)}


def _with_model(model: str, cell: Cell) -> Cell:
    return Cell(model, cell.dataset, cell.setting)


def _unmatched_names(cells: Sequence[Cell] | set[Cell], matched: set[Cell]) -> tuple[str, ...]:
    return tuple(str(cell) for cell in sorted(set(cells) - matched))


def _missing_picture_notes(runs: Mapping[str, Baseline], datasets: set[str]) -> tuple[str, ...]:
    """Returns a sentence for each run that has no image digests."""
    lacking = {name: sorted(datasets.intersection(run.without_pictures)) for name, run in runs.items()}
    return tuple(
        f"{name} does not say which images of {', '.join(affected)} it showed (only a clean cell records them): whether "
        "they are the same was not compared"
        for name, affected in lacking.items()
        if affected
    )


def _worst_first(drop: Estimate, name: str) -> tuple[bool, float, str]:
    """Returns a sort key that puts unknown drops first, since they may be the worst."""
    return not math.isnan(drop.value), -drop.value if drop.finite else 0.0, name


@dataclass(frozen=True)
class _Pair:
    """One model of the later run against its model of the earlier one."""

    then: Baseline
    now: Baseline
    model: str
    confidence: float

    def cells(self) -> list[CellChange]:
        return [self._cell(cell) for cell in self._common()]

    def sweeps(self) -> list[SweepChange]:
        by_dataset: defaultdict[str, list[Cell]] = defaultdict(list)
        for cell in self._common():
            if cell.setting not in BASELINES:
                by_dataset[cell.dataset].append(cell)
        return [self._sweep(dataset, cells) for dataset, cells in by_dataset.items()]

    def _common(self) -> list[Cell]:
        return [cell for cell in self._shared() if cell not in self.stopped_early()]

    def _shared(self) -> list[Cell]:
        return [cell for cell in self.now.evidence.cells() if cell.model == self.model and self.then.has_cell(cell)]

    @cache  # noqa: B019 - a pair lives as long as a comparison
    def stopped_early(self) -> list[Cell]:
        """Returns the cells of which one of the runs has a part of the answers, for its tests stopped once they were decided."""
        parts = [run for run in (self.then, self.now) if run.stopped_early]
        return [cell for cell in self._shared() if any(self._is_part(run, cell) for run in parts)]

    def changed_answers(self, cell: Cell) -> tuple[int, int, int]:
        """Returns of a cell how many answers both runs have, how many of those score otherwise, and how many one run alone has.

        Nothing is said about how much was lost: what a run asked depends on what it found.
        """
        now, then = self._stored(self.now, cell), self._stored(self.then, self._then(cell))
        shared = now.keys() & then.keys()
        changed = sum(now[key] != then[key] for key in shared)
        return len(shared), changed, len(now.keys() ^ then.keys())

    def _then(self, cell: Cell) -> Cell:
        return _with_model(self.then.model(cell.model), cell)

    def _is_part(self, run: Baseline, cell: Cell) -> bool:
        return run.partial(self._then(cell) if run is self.then else cell).places is not None

    def _stored(self, run: Baseline, cell: Cell) -> dict[tuple[str, int], tuple[float | None, str]]:
        """Returns value and state of each stored answer by sample and view; a missing value is ``None``, which equals itself."""
        result = run.checked(cell, whole=False)
        return {
            (result.samples[index // result.views].id, index % result.views): (
                None if math.isnan(score.value) else score.value,
                score.state,
            )
            for index, score in enumerate(result.scores)
        }

    def _cell(self, cell: Cell) -> CellChange:
        kept = self.then.kept(cell.dataset, self.now)
        samples = [sample for sample, own in zip(self.now.samples(cell.dataset), kept, strict=True) if own]
        before, after = self.then.scores(cell, self.now)[kept], self._scores(cell)[kept]
        changed = metrics.changed_samples([sample.id for sample in samples], before, after)
        clean = _with_model(self.model, Cell("", cell.dataset, CLEAN))
        paired = cell != clean and self.then.has_cell(clean) and clean in self.now.evidence.cells()
        table = self._table(cell.dataset, [cell], clean if paired else cell)
        return CellChange(
            model=cell.model,
            dataset=cell.dataset,
            setting=str(cell.setting),
            n=len(samples) - len(changed.unknown),
            then=float(np.mean(before)),
            now=float(np.mean(after)),
            baseline_drop=self._estimate("baseline_drop", table, cell.setting),
            drop_increase=self._estimate("drop_increase", table, cell.setting) if paired else None,
            broken=changed.broken,
            fixed=changed.fixed,
        )

    def _sweep(self, dataset: str, cells: Sequence[Cell]) -> SweepChange:
        estimate = self._estimate("mean_baseline_drop", self._table(dataset, cells, cells[0]))
        return SweepChange(self.model, dataset, len(cells), estimate)

    def _estimate(self, metric: str, table: ScoreTable, setting: Setting | None = None) -> Estimate:
        return metrics.estimate(metric, table, setting=None if setting is None else str(setting), confidence=self.confidence)

    def _table(self, dataset: str, cells: Sequence[Cell], clean: Cell) -> ScoreTable:
        """Returns the scores of both runs; ``clean`` may be any cell if nothing is computed from clean scores."""
        samples = self.now.samples(dataset)
        then = {str(cell.setting): self.then.scores(cell, self.now) for cell in {*cells, clean}}
        table = ScoreTable(
            clean=self._scores(clean),
            by_setting={str(cell.setting): self._scores(cell) for cell in cells},
            groups=groups_of(samples),
            baseline_by_setting=then,
        )
        return rows_of(table, self.then.kept(dataset, self.now))

    def _scores(self, cell: Cell) -> NDArray[np.float64]:
        return self.now.checked(cell).values


# Entries: runs that are opened side by side, and whether they asked the same.


SHOWN = 3
"""Names in a message."""


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """A run whose models are ranked."""

    where: str
    """What messages call it."""
    run: Baseline
    name: str = ""
    """Prefix of the names of its models, for runs that share model names."""

    @classmethod
    def open(cls, directory: Path, name: str = "") -> Entry:
        """Opens the evidence of a run."""
        return cls(str(directory), Baseline.open(directory), name)

    @classmethod
    def of(cls, evidence: Evidence, where: str) -> Entry:
        """Returns the entry of evidence that is open already, and stays so."""
        return cls(where, Baseline(evidence))


def places(first: Entry, entry: Entry, dataset: str) -> list[int]:
    """Returns the index in a run of each sample of the first run."""
    ours = first.run.samples(dataset)
    if entry is first:
        return list(range(len(ours)))
    theirs = entry.run.samples(dataset)
    before, after = {sample.id: sample.asked for sample in ours}, {sample.id: sample.asked for sample in theirs}
    shown, own = first.run.pictures(dataset), entry.run.pictures(dataset)
    common = before.keys() & after.keys()
    differ = {
        f"are not in {entry.where!r}": before.keys() - common,
        f"are only in {entry.where!r}": after.keys() - common,
        "ask something else": {name for name in common if before[name] != after[name]},
        "show other images": {name for name in common & shown.keys() & own.keys() if not shown[name].same_as(own[name])},
    }
    if differences := [f"{len(ids)} {what} ({first_few(sorted(ids), SHOWN)})" for what, ids in differ.items() if ids]:
        raise DatasetError(
            f"{dataset} is not the same in {first.where!r} and {entry.where!r}: of {len(ours)} samples, "
            f"{'; '.join(differences)}. Models are ranked on the same samples only: "
            "run them all with the same dataset and the same --vlm-sample"
        )
    place = {sample.id: index for index, sample in enumerate(theirs)}
    return [place[sample.id] for sample in ours]


def differing_conditions(entries: Sequence[Entry], datasets: Iterable[str]) -> list[str]:
    """Returns a sentence for each condition in which runs differ, or may differ."""
    if len(entries) < 2:
        return []
    lacking = {entry.where: sorted({*datasets}.intersection(entry.run.without_pictures)) for entry in entries}
    notes = [
        f"{where} does not say which images of {', '.join(names)} it showed: they were not compared"
        for where, names in lacking.items()
        if names
    ]
    manifests = {entry.where: manifest(entry) for entry in entries}
    for what, values in {
        "seeds of perturbations": {where: manifest.get("settings", {}).get("vlm_seed") for where, manifest in manifests.items()},
        "releases of pytest-vlmrobust": {where: manifest.get("version") for where, manifest in manifests.items()},
    }.items():
        known = {where: value for where, value in values.items() if value is not None}
        if len(set(known.values())) > 1:
            each = ", ".join(f"{value} in {where}" for where, value in known.items())
            notes.append(f"the runs have different {what} ({each}): perturbed images may differ")
    return notes


def manifest(entry: Entry) -> Mapping[str, Any]:
    """Returns the manifest of a run; empty if it has none, as for evidence that was copied alone."""
    try:
        return read_manifest(entry.run.evidence.path.parent)
    except StoreError:
        return {}
