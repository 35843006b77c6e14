"""Cell and Sweep: what one test is about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from .setting import Setting


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """One model on one dataset under one setting: one test."""

    model: str
    dataset: str
    setting: Setting

    def __str__(self) -> str:
        return f"{self.model}-{self.dataset}-{self.setting}"


@dataclass(frozen=True, slots=True, order=True)
class SweepMetric:
    """One summary metric of a sweep (one model on one dataset over all settings of a suite)."""

    model: str
    dataset: str
    metric: str
    split: str = ""
    """The set of settings that it is taken over, where a suite has several: ``observatory_ood``."""

    def __str__(self) -> str:
        return "-".join(part for part in (self.model, self.dataset, self.metric, self.split) if part)


@dataclass(frozen=True, slots=True, order=True)
class FamilyMetric:
    """One property of a family of models of different sizes on one dataset."""

    family: str
    dataset: str
    metric: str
    split: str = ""
    """The set of settings, or the setting, that the scores come from."""

    @property
    def model(self) -> str:
        """What stands in its records where others have a model: the family."""
        return self.family

    def __str__(self) -> str:
        return "-".join(part for part in (self.family, self.dataset, self.metric, self.split) if part)


Planned: TypeAlias = Cell | SweepMetric | FamilyMetric
"""What one gated test is about."""
