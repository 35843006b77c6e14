"""Cell and Sweep: what one test is about."""

from __future__ import annotations

from dataclasses import dataclass

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

    def __str__(self) -> str:
        return f"{self.model}-{self.dataset}-{self.metric}"
