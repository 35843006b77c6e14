"""Paired: models of one or several runs, compared on the same samples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pytest_vlmrobust.core.cell import CLEAN, Cell, Setting
from pytest_vlmrobust.core.errors import StoreError
from pytest_vlmrobust.evaluation.judge.baseline import Baseline
from pytest_vlmrobust.evaluation.judge.reads import groups_of
from pytest_vlmrobust.evaluation.run.answers import Answers
from pytest_vlmrobust.metrics.families import SideBySide
from pytest_vlmrobust.store import read_manifest


@dataclass(frozen=True, slots=True, eq=False)
class RunModel:
    """A model of a run whose evidence is open."""

    run: Baseline
    model: str
    """The name in its run."""
    name: str
    """The name in reports: NAME/MODEL for a run with a name."""

    def cell(self, dataset: str, setting: Setting) -> Cell:
        """Returns the cell of the model under a setting."""
        return Cell(self.model, dataset, setting)


def run_models(run: Baseline, name: str = "") -> list[RunModel]:
    """Returns the models of a run."""
    models = sorted({cell.model for cell in run.evidence.cells()})
    return [RunModel(run, model, f"{name}/{model}" if name else model) for model in models]


@contextmanager
def open_models(runs: Iterable[tuple[str, Path]]) -> Iterator[list[RunModel]]:
    """Opens the evidence of runs, each with a name or an empty one, and yields their models."""
    with ExitStack() as opened:
        models: list[RunModel] = []
        for name, directory in runs:
            run = Baseline.open(directory, called=str(directory))
            opened.callback(run.close)
            models += run_models(run, name)
        yield models


def runs_of(models: Iterable[RunModel]) -> list[Baseline]:
    """Returns the runs of models, each once."""
    return list({id(model.run): model.run for model in models}.values())


def paired_table(
    models: Sequence[RunModel],
    dataset: str,
    settings: Iterable[Setting],
    answers: Answers | None = None,
    *,
    rescored: bool = True,
) -> SideBySide:
    """Returns the scores of models on the samples common to their runs, in the order of the first run.

    Args:
        models: two or more.
        dataset: the dataset that all of them were asked about.
        settings: settings that all of them have; without the clean one, clean scores are NaN.
        answers: the answers of the first run about a part of the samples, if only these are compared.
        rescored: whether scores are recomputed from the answers and must equal the stored ones.

    Raises:
        DatasetError: the runs asked different samples, or showed different images.
        StoreError: answers are missing, or their scores do not follow from them.
    """
    first = models[0].run if answers is None else answers
    kept = np.all([model.run.kept(dataset, first) for model in models], axis=0)
    scores = {
        str(setting): np.array([m.run.scores(m.cell(dataset, setting), first, rescored=rescored)[kept] for m in models])
        for setting in settings
    }
    groups = [name for name, is_kept in zip(groups_of(first.samples(dataset)), kept, strict=True) if is_kept]
    clean = scores.pop(str(CLEAN), np.full((len(models), len(groups)), np.nan))
    return SideBySide(clean, scores, groups)


def differing_conditions(runs: Sequence[Baseline], datasets: Iterable[str]) -> list[str]:
    """Returns a sentence for each condition that differs, or may differ, between runs."""
    if len(runs) < 2:
        return []
    notes = notes_without_pictures(runs, datasets)
    manifests = {run.called: manifest(run) for run in runs}
    for what, values in {
        "seeds of perturbations": {where: manifest.get("settings", {}).get("vlm_seed") for where, manifest in manifests.items()},
        "releases of pytest-vlmrobust": {where: manifest.get("version") for where, manifest in manifests.items()},
    }.items():
        known = {where: value for where, value in values.items() if value is not None}
        if len(set(known.values())) > 1:
            listed = ", ".join(f"{value} in {where}" for where, value in known.items())
            notes.append(f"the runs have different {what} ({listed}): perturbed images may differ")
    return notes


def notes_without_pictures(runs: Iterable[Baseline], datasets: Iterable[str]) -> list[str]:
    """Returns a sentence for each run that has no image digests."""
    lacking = {run.called: sorted({*datasets}.intersection(run.without_pictures)) for run in runs}
    return [
        f"{where} does not say which images of {', '.join(names)} it showed (only a clean cell records them): whether they are "
        "the same was not compared"
        for where, names in lacking.items()
        if names
    ]


def manifest(run: Baseline) -> Mapping[str, Any]:
    """Returns the manifest of a run; empty if it has none, as when only the evidence was copied."""
    try:
        return read_manifest(run.evidence.path.parent)
    except StoreError:
        return {}
