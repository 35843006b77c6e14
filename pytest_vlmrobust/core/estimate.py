"""Estimate: the value of a metric, with what is known about its uncertainty."""

from __future__ import annotations

import math
from dataclasses import dataclass


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

    @property
    def finite(self) -> bool:
        """Whether the value is a number that a bound can be compared with."""
        return math.isfinite(self.value)
