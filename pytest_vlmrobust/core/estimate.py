"""Estimate: the value of a metric and its uncertainty."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

ROUNDING = 1e-9
"""Numbers closer than this are equal: ``0.3 - 0.25`` does not break a bound of ``0.05``. Scores are sums of at most some thousand
numbers in [0, 1], and sums may differ in their last digits between processors."""

LEVEL = 0.90
"""The two-sided level of the intervals that are shown: each bound is a one-sided 95 % bound. Verdicts take that of their rule."""


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
    """The number of images, if several samples share an image."""
    counts_settings: bool = field(default=False, compare=False)
    """Whether it is the share of settings beyond a limit, where noise moves settings across the limit."""

    at: Callable[[float], tuple[float, float]] | None = field(default=None, repr=False, compare=False)
    """``confidence -> (low, high)``: the interval at another two-sided level, as long as the scores are available."""

    @classmethod
    def invalid(cls, reason: str, n: int = 0) -> Estimate:
        """Returns the estimate of a metric that does not apply."""
        return cls(math.nan, n, valid=False, reason=reason)

    @property
    def finite(self) -> bool:
        """Whether the value is a number that a bound can be compared with."""
        return math.isfinite(self.value)

    def interval(self, confidence: float) -> tuple[float, float]:
        """Returns the interval at a two-sided level; NaN when there is none.

        Without the scores, the stored interval serves for lower levels, because it is wider, and for no others.
        """
        if self.at is not None:
            return self.at(confidence)
        return (self.low, self.high) if self.confidence >= confidence - ROUNDING else (math.nan, math.nan)

    def complement(self, least: float = -math.inf, most: float = math.inf) -> Estimate:
        """Returns the estimate of 1 minus this value, with a clipped interval."""
        at = self.at

        def turned(level: float) -> tuple[float, float]:
            low, high = at(level) if at else (math.nan, math.nan)
            return max(1.0 - high, least), min(1.0 - low, most)

        low, high = max(1.0 - self.high, least), min(1.0 - self.low, most)
        return replace(self, value=1.0 - self.value, low=low, high=high, at=at and turned)
