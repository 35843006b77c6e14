"""Comparison: what changed between two runs on the same samples, cell by cell and sweep by sweep."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pytest_vlmrobust.core.conversion import to_plain
from pytest_vlmrobust.core.estimate import Estimate

COMPARISON_VERSION = 1


@dataclass(frozen=True, slots=True)
class CellChange:
    """What changed in one cell that both runs measured."""

    model: str
    """The model of the later run."""
    dataset: str
    setting: str
    n: int
    """Samples with a score in both runs."""
    then: float
    """Accuracy in the earlier run, over all samples; NaN where a score is missing."""
    now: float
    drop: Estimate
    """``baseline_drop``: then minus now, paired by sample."""
    increase: Estimate | None = None
    """``drop_increase``: how much more is lost since clean; ``None`` for a clean cell, and where one run lacks the clean one."""
    broken: tuple[str, ...] = ()
    """Ids of samples that score less than in the earlier run."""
    fixed: tuple[str, ...] = ()
    """Ids of samples that score more."""

    @property
    def name(self) -> str:
        """The cell as test ids spell it."""
        return f"{self.model}-{self.dataset}-{self.setting}"


@dataclass(frozen=True, slots=True)
class SweepChange:
    """What changed over all perturbed settings of a dataset that both runs measured."""

    model: str
    dataset: str
    settings: int
    """How many settings the mean is taken over."""
    drop: Estimate
    """``mean_baseline_drop``."""

    @property
    def name(self) -> str:
        """The sweep as test ids spell it."""
        return f"{self.model}-{self.dataset}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs side by side; changes come worst first."""

    before: str
    """Where the earlier run is."""
    after: str
    """Where the later run is."""
    models: dict[str, str]
    """Model of the later run to the one of the earlier run that it was compared with."""
    cells: tuple[CellChange, ...] = ()
    sweeps: tuple[SweepChange, ...] = ()
    only_before: tuple[str, ...] = ()
    """Cells that only the earlier run has."""
    only_after: tuple[str, ...] = ()
    """Cells that only the later run has."""
    stopped_early: tuple[str, ...] = ()
    """Cells of which a run has a part of the answers: their changes have no interval."""
    early_answers: int = 0
    """Answers of these that both runs have."""
    early_changed: int = 0
    """Those of them that score otherwise."""
    early_alone: int = 0
    """Answers of these cells that only one run has."""
    confidence: float = field(default=0.90)
    """Level of the intervals."""
    notes: tuple[str, ...] = ()
    """What could not be made sure of."""

    @property
    def unchanged(self) -> bool:
        """Whether both runs have the same cells, and every sample scores the same in both."""
        same = all(change.drop.value == 0 and not change.broken and not change.fixed for change in self.cells)
        any_answer = bool(self.cells) or self.early_answers > 0
        in_one = self.early_alone or self.only_before or self.only_after
        return any_answer and same and not self.early_changed and not in_one

    def to_dict(self) -> dict[str, Any]:
        """Returns the comparison as what JSON can hold; undefined numbers are ``None``."""
        return {
            "comparison_version": COMPARISON_VERSION,
            "before": self.before,
            "after": self.after,
            "models": self.models,
            "confidence": self.confidence,
            "sweeps": [_sweep(change) for change in self.sweeps],
            "cells": [_cell(change) for change in self.cells],
            "only_before": list(self.only_before),
            "only_after": list(self.only_after),
            "stopped_early": {
                "cells": list(self.stopped_early),
                "answers": self.early_answers,
                "changed": self.early_changed,
                "only_one": self.early_alone,
            },
            "notes": list(self.notes),
        }


def _cell(change: CellChange) -> dict[str, Any]:
    return {
        "model": change.model,
        "dataset": change.dataset,
        "setting": change.setting,
        "n": change.n,
        "then": to_plain(change.then),
        "now": to_plain(change.now),
        "baseline_drop": change.drop.to_dict(),
        "drop_increase": None if change.increase is None else change.increase.to_dict(),
        "broken": list(change.broken),
        "fixed": list(change.fixed),
    }


def _sweep(change: SweepChange) -> dict[str, Any]:
    return {
        "model": change.model,
        "dataset": change.dataset,
        "settings": change.settings,
        "mean_baseline_drop": change.drop.to_dict(),
    }
