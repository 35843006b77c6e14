"""Repeatability: how a model answers the same requests a second time."""

from __future__ import annotations

import math
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Repeatability:
    """How often the answers of a model on a dataset flip when requested twice (A/A)."""

    model: str
    """The model by its short name."""
    dataset: str
    """The dataset by its short name."""
    repeated: int = 0
    """Answers that were requested again successfully."""
    flipped: int = 0
    """Repeated answers with another score."""
    reworded: int = 0
    """Repeated answers with another text."""
    failed: int = 0
    """Inferences that failed the second time; they are not among ``repeated``."""
    cells: int = 0
    """Cells of the answers."""
    samples: int = 0
    """Samples of the dataset that the run asked about."""
    rate: float = math.nan
    """Mean squared difference of the two scores, which is the share of flips for 0/1 scores; ``null`` without answers."""
    low: float = math.nan
    """Lower end of the 90 % interval of ``rate`` (Clopper and Pearson, answers taken as independent)."""
    high: float = math.nan
    """Upper end."""
    noise: dict[str, float] = field(default_factory=dict)
    """By metric: how far its value moves between such runs in 95 % of cases."""
    noise_high: dict[str, float] = field(default_factory=dict)
    """The same at ``high``, the largest rate that the sample does not rule out."""
    conditions: str = ""
    """The conditions that differed the second time."""
    beside: tuple[str, ...] = ()
    """The thresholds that this noise concerns, a sentence each."""
    tighter: tuple[str, ...] = ()
    """The thresholds that noise alone could break, a sentence each."""
    problem: str = ""
    """Why nothing was measured; empty when something was."""

    @property
    def measured(self) -> bool:
        """Whether any answer was repeated; otherwise the noise is unknown."""
        return self.repeated > 0 and not self.problem
