"""Estimate: the value of a metric, with what is known about its uncertainty."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

_SAME = 1e-9
"""Numbers closer than this are equal, as for the bounds of a policy."""


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
        return (self.low, self.high) if self.confidence >= confidence - _SAME else (math.nan, math.nan)

    def to_dict(self) -> dict[str, Any]:
        """Returns value, interval, sample size and reason as what JSON can hold; numbers that are not finite are ``None``."""
        numbers = {"value": self.value, "low": self.low, "high": self.high}
        known = {name: number if math.isfinite(number) else None for name, number in numbers.items()}
        return {**known, "n": self.n, "reason": self.reason}


class SamplesNeeded(NamedTuple):
    """How many samples in all would decide a bound; ``samples`` is None when that cannot be told, and ``reason`` says why."""

    samples: int | None
    reason: str = ""


def samples_to_decide(estimate: Estimate, *ends: float, power: float = 0.8) -> SamplesNeeded:
    """Returns with about how many samples the interval would leave the ends of a bound, if the value stays what it is.

    The distance from the value to the interval's end shrinks with the square root of the sample size; with z the normal quantile
    of one of its tails, ``n * ((z + z_power) / z)^2 * (half-width / distance to the bound)^2`` samples decide with probability
    ``power``. That is the usual calculation for means, ratios and flip rates. Where nothing varies, as without a single flip, the
    interval shrinks with the sample size itself, and no chance is left to allow for; how far an estimate is on the way there is
    told from its intervals at two levels, whose widths then differ as the squares of their quantiles do. For the largest drop
    the count is a little low, because the largest of noisy drops is; for counts of settings it is no more than an order of
    magnitude.

    Args:
        estimate: a value with its interval.
        ends: the finite ends of the bound, ascending: inside two ends both must be left behind, outside only the nearer one.
        power: probability in [0.5, 1) that the larger sample decides.

    Returns:
        The count, at least ``estimate.n``, or None with a reason: no finite value, no interval, no sample, or on the bound.

    Raises:
        ValueError: no end, an infinite one, or a ``power`` outside [0.5, 1).

    >>> samples_to_decide(Estimate(0.03, 869, 0.015, 0.055, 0.90), 0.05).samples
    3103
    """
    if not ends or not all(map(math.isfinite, ends)):
        raise ValueError(f"the ends of the bound are {ends}: expected at least one, each a finite number")
    if not 0.5 <= power < 1.0:
        raise ValueError(f"power is {power!r}: expected a probability of at least 0.5 and below 1, such as 0.8")
    missing = _unknown_spread(estimate)
    if missing:
        return SamplesNeeded(None, missing)
    inside = min(ends) < estimate.value < max(ends)
    wanted = ends if inside else (min(ends, key=lambda end: abs(end - estimate.value)),)
    answers = [_samples_to_leave(estimate, end, power) for end in wanted]
    return max(answers, key=lambda answer: math.inf if answer.samples is None else answer.samples)


def _unknown_spread(estimate: Estimate) -> str:
    if estimate.n <= 0:
        return "there is no sample"
    if not estimate.finite:
        return "the value is undefined"
    known = not any(map(math.isnan, (estimate.low, estimate.high, estimate.confidence)))
    return "" if known else "there is no interval"


def _samples_to_leave(estimate: Estimate, end: float, power: float) -> SamplesNeeded:
    from statistics import NormalDist

    distance = abs(end - estimate.value)
    half = estimate.high - estimate.value if estimate.value < end else estimate.value - estimate.low
    if distance <= _SAME:
        return SamplesNeeded(None, "the value lies on the bound, which no number of samples decides")
    if math.isinf(half):
        return SamplesNeeded(None, "the interval has no end towards the bound")
    if half <= distance:
        return SamplesNeeded(estimate.n)
    quantile = NormalDist().inv_cdf
    tail = quantile((1.0 + estimate.confidence) / 2.0)
    growth = _growth(estimate, end, tail)
    factor = 1.0 + (2.0 - growth) * quantile(power) / tail
    return SamplesNeeded(math.ceil(estimate.n * (factor * half / distance) ** (2.0 / growth)))


def _growth(estimate: Estimate, end: float, tail: float) -> float:
    """Returns with which power of the normal quantile an interval widens: 1 as a rule, 2 where nothing varies."""
    from statistics import NormalDist

    normal = NormalDist()

    def half(quantile: float) -> float:
        low, high = estimate.at(2.0 * normal.cdf(quantile) - 1.0) if estimate.at else (math.nan, math.nan)
        return high - estimate.value if estimate.value < end else estimate.value - low

    wide, narrow = half(tail), half(tail / 2.0)
    if not (math.isfinite(wide) and math.isfinite(narrow)) or not 0.0 < narrow < wide:
        return 1.0
    return min(2.0, max(1.0, math.log(wide / narrow) / math.log(2.0)))
