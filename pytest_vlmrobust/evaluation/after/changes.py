"""Comparison: what changed between two runs on the same samples, cell by cell and sweep by sweep."""

from __future__ import annotations

from dataclasses import dataclass, field

from pytest_vlmrobust.core.estimate import Estimate


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
    baseline_drop: Estimate
    """Then minus now, paired by sample."""
    drop_increase: Estimate | None = None
    """How much more is lost since clean; ``None`` for a clean cell, and where one run lacks the clean one."""
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
    mean_baseline_drop: Estimate

    @property
    def name(self) -> str:
        """The sweep as test ids spell it."""
        return f"{self.model}-{self.dataset}"


@dataclass(frozen=True, slots=True)
class StoppedEarly:
    """The cells of which a run has a part of the answers: their changes have no interval."""

    cells: tuple[str, ...] = ()
    answers: int = 0
    """Answers that both runs have."""
    changed: int = 0
    """Those of them that score otherwise."""
    only_one: int = 0
    """Answers that only one run has."""


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
    stopped_early: StoppedEarly = field(default_factory=StoppedEarly)
    confidence: float = 0.90
    """Level of the intervals."""
    notes: tuple[str, ...] = ()
    """What could not be made sure of."""

    @property
    def unchanged(self) -> bool:
        """Whether both runs have the same cells, and every sample scores the same in both."""
        same = all(change.baseline_drop.value == 0 and not change.broken and not change.fixed for change in self.cells)
        early = self.stopped_early
        in_one = early.only_one or self.only_before or self.only_after
        return bool(self.cells or early.answers) and same and not early.changed and not in_one
