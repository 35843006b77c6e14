"""Repeatability: what the same model answers when it is asked the same again."""

from __future__ import annotations

import math
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Repeatability:
    """How often the answers of one model about one dataset flip when asked for twice (A/A)."""

    model: str
    """The model by its short name."""
    dataset: str
    """The dataset by its short name."""
    repeated: int = 0
    """Answers that were asked for again and given."""
    flipped: int = 0
    """Those of them that were scored differently."""
    reworded: int = 0
    """Those of them with another text."""
    failed: int = 0
    """Inferences that failed the second time; they are not among ``repeated``."""
    cells: int = 0
    """Cells that the answers come from."""
    samples: int = 0
    """Samples of the dataset that the run asked about."""
    rate: float = math.nan
    """Mean squared difference of the two scores: the share of flips where scores are 0 or 1; ``null`` without answers."""
    low: float = math.nan
    """Lower end of the 90 % interval of ``rate`` (Clopper and Pearson, answers taken as independent)."""
    high: float = math.nan
    """Upper end."""
    noise: dict[str, float] = field(default_factory=dict)
    """Metric to how far its value moves between such runs: 95 % stay within it."""
    noise_high: dict[str, float] = field(default_factory=dict)
    """The same at ``high``, the largest rate that the sample does not rule out."""
    conditions: str = ""
    """What was other the second time."""
    beside: tuple[str, ...] = ()
    """The thresholds that such noise is about, a sentence each."""
    tighter: tuple[str, ...] = ()
    """Those of them that the noise alone could break, a sentence each."""
    problem: str = ""
    """Why nothing was measured; empty when something was."""

    @property
    def measured(self) -> bool:
        """Whether anything was; without that, nothing is known about the noise, least of all that there is none."""
        return self.repeated > 0 and not self.problem
