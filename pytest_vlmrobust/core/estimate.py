"""Estimate: the value of a metric, with what is known about its uncertainty."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

ROUNDING = 1e-9
"""Numbers closer than this are equal: ``0.3 - 0.25`` does not break a bound of ``0.05``. Scores are sums of at most some thousand
numbers in [0, 1], and sums may differ in their last digits between processors."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A metric's value with its interval, sample size, validity and reason.

    ``low``/``high`` are NaN when no interval was computed. ``valid`` is False when the metric does not apply
    (a validity gate failed); ``reason`` then says why.
    """

    value: float
    n: int
    low: float = math.nan
    high: float = math.nan
    confidence: float = math.nan
    valid: bool = True
    reason: str = ""

    groups: int = field(default=0, compare=False)
    """Only where several samples are about one image: how many images there are."""
    counts_settings: bool = field(default=False, compare=False)
    """Whether it is the share of settings on one side of a line, which noise carries settings across."""

    at: Callable[[float], tuple[float, float]] | None = field(default=None, repr=False, compare=False)
    """``confidence -> (low, high)``: the interval at another two-sided level, while the scores are at hand."""

    @property
    def finite(self) -> bool:
        """Whether the value is a number that a bound can be compared with."""
        return math.isfinite(self.value)

    def interval(self, confidence: float) -> tuple[float, float]:
        """Returns the interval at a two-sided level; NaN when there is none.

        Once the scores are gone, the interval at hand stands in for one of a lower level, being wider, and for no other.
        """
        if self.at is not None:
            return self.at(confidence)
        return (self.low, self.high) if self.confidence >= confidence - ROUNDING else (math.nan, math.nan)

    def complement(self, least: float = -math.inf, most: float = math.inf) -> Estimate:
        """Returns the estimate of one less this value, with its interval cut at both ends."""
        at = self.at

        def turned(level: float) -> tuple[float, float]:
            low, high = at(level) if at else (math.nan, math.nan)
            return max(1.0 - high, least), min(1.0 - low, most)

        low, high = max(1.0 - self.high, least), min(1.0 - self.low, most)
        return replace(self, value=1.0 - self.value, low=low, high=high, at=at and turned)
