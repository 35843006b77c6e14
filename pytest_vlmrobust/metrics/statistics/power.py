"""Power: the number of samples that decides a bound, and the drops that a number of samples can detect.

All for paired 0/1 scores and the one-sided tests of Tango's score, by its normal approximation. The spread of a drop x with a
helpful flip rate p01 is ``sd(x)^2 = x + 2 p01 - x^2`` (harmful flips p01 + x, helpful ones p01); a gain larger than p01 takes as
many helpful flips and no harmful ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from .clusters import critical_value

_HALVINGS = 60


class UndecidedZone(NamedTuple):
    """How far below and above a bound the true drop must lie to be decided; NaN where no drop is far enough."""

    passes: float
    fails: float


def samples_needed(
    theta: float, bound: float, p01: float, *, deff: float = 1.0, alpha: float = 0.05, power: float = 0.8
) -> int | None:
    """Returns how many samples decide whether a true drop of ``theta`` is below or above ``bound``.

    Args:
        theta: the true drop, a fraction.
        bound: the drop that is allowed, a fraction.
        p01: helpful flip rate, the share of samples that go from wrong to right.
        deff: design effect, by how much clusters of samples inflate the variance.
        alpha: error probability of the one-sided test.
        power: probability of a decision.

    Returns:
        ``((z_alpha sd(bound) + z_power sd(theta)) / (theta - bound))^2 * deff``, rounded up; None on the bound, which no number
        of samples decides.

    Raises:
        ValueError: rates that no model can have, or levels outside (0, 1).

    >>> samples_needed(theta=0.03, bound=0.05, p01=0.015)
    1098
    """
    _check(alpha, power, deff)
    distance = abs(theta - bound)
    spread = critical_value(alpha) * _spread(bound, p01) + critical_value(1.0 - power) * _spread(theta, p01)
    return None if distance == 0.0 else max(math.ceil((spread / distance) ** 2 * deff), 1)


def minimum_detectable_drop(n: int, p01: float, alpha: float = 0.05, power: float = 0.8, deff: float = 1.0) -> float:
    """Returns the smallest true drop that ``n`` samples tell from "no drop".

    Tango's test of "no drop" takes its spread from all flips, ``sqrt(theta + 2 p01)``, as McNemar's does; so does this.

    Args:
        n: number of samples.
        p01: helpful flip rate, the share of samples that go from wrong to right.
        alpha: error probability of the one-sided test.
        power: probability of showing the drop.
        deff: design effect, by how much clusters of samples inflate the variance.

    Returns:
        A fraction; NaN when not even the largest possible drop would be shown.

    Raises:
        ValueError: no sample, rates that no model can have, or levels outside (0, 1).

    >>> round(minimum_detectable_drop(869, 0.015), 3)
    0.019
    """
    _check(alpha, power, deff)
    root, tail, quantile = _root(n, deff), critical_value(alpha), critical_value(1.0 - power)

    def is_shown(drop: float) -> bool:
        return tail * math.sqrt(drop + 2.0 * p01) + quantile * _spread(drop, p01) <= root * drop

    _spread(0.0, p01)
    return _turning_point(is_shown, 0.0, 1.0 - 2.0 * p01)


def undecided_zone(
    n: int, bound: float, p01: float, *, alpha: float = 0.05, power: float = 0.8, deff: float = 1.0
) -> UndecidedZone:
    """Returns how far from ``bound`` a true drop must lie for ``n`` samples to decide it with probability ``power``.

    Args:
        n: number of samples.
        bound: the drop that is allowed, a fraction.
        p01: helpful flip rate, the share of samples that go from wrong to right.
        alpha: error probability of each one-sided test.
        power: probability of a decision.
        deff: design effect, by how much clusters of samples inflate the variance.

    Returns:
        Distances ``passes`` below and ``fails`` above the bound, fractions; the inverse of :func:`samples_needed`.

    Raises:
        ValueError: no sample, rates that no model can have, or levels outside (0, 1).

    >>> zone = undecided_zone(869, 0.05, 0.015)
    >>> round(zone.passes, 3), round(zone.fails, 3)
    (0.022, 0.025)
    """
    _check(alpha, power, deff)
    root, tail, quantile = _root(n, deff), critical_value(alpha) * _spread(bound, p01), critical_value(1.0 - power)

    def is_decided(side: float) -> Callable[[float], bool]:
        return lambda distance: tail + quantile * _spread(bound + side * distance, p01) <= root * distance

    return UndecidedZone(
        _turning_point(is_decided(-1.0), 0.0, bound + 1.0), _turning_point(is_decided(1.0), 0.0, 1.0 - 2.0 * p01 - bound)
    )


def _turning_point(holds: Callable[[float], bool], low: float, high: float) -> float:
    """Returns the smallest value in [low, high] from which ``holds`` is true, by bisection; NaN if it never is."""
    if not holds(high):
        return math.nan
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _spread(drop: float, p01: float) -> float:
    if not (p01 >= 0.0 and -1.0 <= drop <= 1.0 - 2.0 * p01 + 1e-12):
        raise ValueError(
            f"a drop of {drop:g} with a helpful flip rate of {p01:g} is impossible: expected fractions such as 0.05 with "
            "p01 >= 0 and -1 <= drop <= 1 - 2 p01"
        )
    return math.sqrt(max(drop + 2.0 * max(p01, -drop) - drop * drop, 0.0))


def _root(n: int, deff: float) -> float:
    if n < 1:
        raise ValueError(f"n is {n}: expected at least one sample")
    return math.sqrt(n / deff)


def _check(alpha: float, power: float, deff: float) -> None:
    if not 0.0 < alpha < 0.5:
        raise ValueError(f"alpha is {alpha!r}: expected an error probability between 0 and 0.5, such as 0.05")
    if not 0.5 <= power < 1.0:
        raise ValueError(f"power is {power!r}: expected a probability of at least 0.5 and below 1, such as 0.8")
    if not (math.isfinite(deff) and deff > 0.0):
        raise ValueError(f"deff is {deff!r}: expected a positive number, 1 for independent samples")
