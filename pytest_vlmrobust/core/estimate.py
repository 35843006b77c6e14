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


def samples_to_decide(estimate: Estimate, *ends: float, power: float = 0.8, further: float = 0.0) -> SamplesNeeded:
    """Returns with about how many samples the interval would leave the ends of a bound, if the value stays what it is.

    How an interval shrinks is told from its ends at several levels, while the scores are at hand: with z the normal quantile of
    one tail, the distance from the value to the end is nearly ``a + b z + c z^2``. What grows with z alone is chance: it shrinks
    with the square root of the sample size. What is there at every level, as the further sample of a guarded mean, and what grows
    with z^2, as the bound of an event that was never seen, shrink with the sample size itself. Samples suffice when that distance
    and ``z_power`` standard errors of the value fit between the value and the bound. Without scores all of it counts as chance:
    ``n * ((z + z_power) / z)^2 * (half-width / distance to the bound)^2``, the usual calculation for means. For the largest drop
    the count is a little low, because the largest of noisy drops is; for counts of settings it is no more than an order of
    magnitude.

    Args:
        estimate: a value with its interval.
        ends: the finite ends of the bound, ascending: inside two ends both must be left behind, outside only the nearer one.
        power: probability in [0.5, 1) that the larger sample decides.
        further: by how many standard errors the true value is taken to lie further from the bound than the one that was seen.

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
    answers = [_samples_to_leave(estimate, end, power, further) for end in wanted]
    return max(answers, key=lambda answer: math.inf if answer.samples is None else answer.samples)


def _unknown_spread(estimate: Estimate) -> str:
    if estimate.n <= 0:
        return "there is no sample"
    if not estimate.finite:
        return "the value is undefined"
    known = not any(map(math.isnan, (estimate.low, estimate.high, estimate.confidence)))
    return "" if known else "there is no interval"


def _samples_to_leave(estimate: Estimate, end: float, power: float, further: float) -> SamplesNeeded:
    from statistics import NormalDist

    distance = abs(end - estimate.value)
    half = estimate.high - estimate.value if estimate.value < end else estimate.value - estimate.low
    if distance <= _SAME:
        return SamplesNeeded(None, "the value lies on the bound, which no number of samples decides")
    if math.isinf(half):
        return SamplesNeeded(None, "the interval has no end towards the bound")
    if half <= distance:
        return SamplesNeeded(estimate.n)
    normal = NormalDist()
    tail = normal.inv_cdf((1.0 + estimate.confidence) / 2.0)
    fixed, chance, square = _parts(estimate, end, tail, half)
    spread = math.sqrt(max(chance * chance - fixed * fixed, 0.0))
    luck = normal.inv_cdf(power) * spread
    away = distance + further * spread

    def too_wide(ratio: float) -> bool:
        """Whether interval and luck reach the bound with ``ratio`` times as many samples."""
        wide = math.sqrt(spread**2 / ratio + (min(fixed, chance) / ratio) ** 2)
        return (fixed + square * tail**2) / ratio + tail * wide + luck / math.sqrt(ratio) > away

    low, high = 1.0, 2.0
    while too_wide(high):
        low, high = high, 2.0 * high
    for _ in range(60):
        middle = (low + high) / 2.0
        low, high = (middle, high) if too_wide(middle) else (low, middle)
    return SamplesNeeded(math.ceil(estimate.n * high - _SAME))


def _parts(estimate: Estimate, end: float, tail: float, half: float) -> tuple[float, float, float]:
    """Returns a, b and c of the half-width ``a + b z + c z^2``, none negative; only b where no scores are at hand."""
    from statistics import NormalDist

    def distance(quantile: float) -> float:
        low, high = estimate.at(2.0 * NormalDist().cdf(quantile) - 1.0) if estimate.at else (math.nan, math.nan)
        return high - estimate.value if estimate.value < end else estimate.value - low

    first, second = distance(tail / 2.0), distance(tail / 4.0)
    if not (math.isfinite(first) and math.isfinite(second)) or not 0.0 < second < first < half:
        return 0.0, half / tail, 0.0
    quarter = tail / 4.0
    slope, steeper = (first - second) / quarter, (half - first) / (2.0 * quarter)
    square = max((steeper - slope) / (3.0 * quarter), 0.0)
    chance = slope - 3.0 * square * quarter if square else (half - second) / (3.0 * quarter)
    if chance < 0.0:
        return 0.0, 0.0, half / tail**2
    fixed = half - chance * tail - square * tail**2
    return (fixed, chance, square) if fixed > 0.0 else (0.0, half / tail - square * tail, square)
