"""How many samples would decide a bound, told from the interval of those at hand."""

from __future__ import annotations

import math
from typing import NamedTuple

from pytest_vlmrobust.core.estimate import ROUNDING, Estimate


class SamplesNeeded(NamedTuple):
    """How many samples in total would decide a bound; both counts are None if unknown, and ``reason`` says why."""

    least: int | None
    """Samples that decide the bound in half of all cases, if the measured value is the true one."""
    most: int | None
    """Samples that decide it in nine of ten cases."""
    reason: str = ""


EVEN, NEARLY_SURE = 0.5, 0.9
"""How probably the two counts of samples decide."""
PRACTICAL = 1_000_000
"""The largest practical number of samples."""


def samples_to_decide(estimate: Estimate, *ends: float) -> SamplesNeeded:
    """Returns about how many samples move the interval away from the ends of a bound, if the measured value is the true one.

    With the scores available, its ends at several levels show how the interval shrinks: with z the normal quantile of
    one tail, the distance from the value to the end is about ``a + b z + c z^2``. The part in z is chance: it shrinks
    with the square root of the sample size. The constant part, such as the extra sample of a guarded mean, and the part
    in z^2, such as the bound of an event that never occurred, shrink with the sample size itself. The part in z^2 is
    negative at the end towards rarer events, such as the lower end of a small share. A sample size decides with a given
    probability when that distance plus ``z_power`` standard errors of the value fit between the value and the bound.
    Without scores all of it counts as chance: ``n * ((z + z_power) / z)^2 * (half-width / distance to the bound)^2``, the usual
    calculation for means. For the largest drop the counts are a little low, because the largest of noisy drops is too high.
    Inside two ends the interval must keep both, outside only leave the nearer end; ends are finite and ascend. The counts decide
    with probability .5 and .9, and are at least ``estimate.n``. They are None with a reason without a finite value, interval or
    sample, for a share of settings, and for a value so near the bound that more than a million samples are needed.

    >>> samples_to_decide(Estimate(0.03, 869, 0.015, 0.055, 0.90), 0.05)[:2]
    (1358, 4298)
    """
    if not ends or not all(map(math.isfinite, ends)):
        raise ValueError(f"the ends of the bound are {ends}: expected at least one, each a finite number")
    missing = _unknown_spread(estimate)
    if missing:
        return SamplesNeeded(None, None, missing)
    inside = min(ends) < estimate.value < max(ends)
    wanted = ends if inside else (min(ends, key=lambda end: abs(end - estimate.value)),)
    answers = [_samples_to_leave(estimate, end) for end in wanted]
    return max(answers, key=lambda answer: math.inf if answer.most is None else answer.most)


def _unknown_spread(estimate: Estimate) -> str:
    if estimate.n <= 0:
        return "there is no sample"
    if not estimate.finite:
        return "the value is undefined"
    if estimate.counts_settings:
        return "not known for a share of settings, which noise carries across its line"
    known = not any(map(math.isnan, (estimate.low, estimate.high, estimate.confidence)))
    return "" if known else "there is no interval"


def _samples_to_leave(estimate: Estimate, end: float) -> SamplesNeeded:
    from statistics import NormalDist

    distance = abs(end - estimate.value)
    half = estimate.high - estimate.value if estimate.value < end else estimate.value - estimate.low
    if distance <= ROUNDING:
        return SamplesNeeded(None, None, "the value lies on the bound, which no number of questions decides")
    if math.isinf(half):
        return SamplesNeeded(None, None, "the interval has no end towards the bound")
    if half <= distance:
        return SamplesNeeded(estimate.n, estimate.n)
    normal = NormalDist()
    tail = normal.inv_cdf((1.0 + estimate.confidence) / 2.0)
    fixed, chance, square = _parts(estimate, end, tail, half)
    spread = math.sqrt(max(chance * chance - fixed * fixed, 0.0))

    def too_wide(ratio: float, luck: float) -> bool:
        """Whether interval and luck, in standard errors, reach the bound with ``ratio`` times as many samples."""
        wide = math.sqrt(spread**2 / ratio + (min(fixed, chance) / ratio) ** 2)
        return (fixed + square * tail**2) / ratio + tail * wide + luck * spread / math.sqrt(ratio) > distance

    def enough(power: float) -> int:
        luck, low, high = normal.inv_cdf(power), 1.0, 2.0
        while too_wide(high, luck):
            low, high = high, 2.0 * high
        for _ in range(60):
            middle = (low + high) / 2.0
            low, high = (middle, high) if too_wide(middle, luck) else (low, middle)
        return math.ceil(estimate.n * high - ROUNDING)

    least, most = enough(EVEN), enough(NEARLY_SURE)
    if most > PRACTICAL:
        return SamplesNeeded(None, None, "the value is at the bound: no practical number of questions decides it")
    return SamplesNeeded(least, most)


def _parts(estimate: Estimate, end: float, tail: float, half: float) -> tuple[float, float, float]:
    """Returns a, b and c of the half-width ``a + b z + c z^2``; only c may be negative, and only b is not 0 without scores."""
    from statistics import NormalDist

    def distance(quantile: float) -> float:
        low, high = estimate.at(2.0 * NormalDist().cdf(quantile) - 1.0) if estimate.at else (math.nan, math.nan)
        return high - estimate.value if estimate.value < end else estimate.value - low

    first, second = distance(tail / 2.0), distance(tail / 4.0)
    if not (math.isfinite(first) and math.isfinite(second)) or not 0.0 < second < first < half:
        return 0.0, half / tail, 0.0
    quarter = tail / 4.0
    slope, steeper = (first - second) / quarter, (half - first) / (2.0 * quarter)
    square = (steeper - slope) / (3.0 * quarter)
    chance = slope - 3.0 * square * quarter
    fixed = half - chance * tail - square * tail**2
    if fixed < 0.0:
        fixed, chance = 0.0, half / tail - square * tail
    if chance < -ROUNDING:  # an exact interval has steps between these levels: chance is what shows at the lower ones
        fixed, chance = max(first - slope * tail / 2.0, 0.0), slope
        square = (half - fixed - chance * tail) / tail**2
    widens = chance + 2.0 * square * tail > 0.0
    return (fixed, chance, square) if widens else (0.0, half / tail, 0.0)
