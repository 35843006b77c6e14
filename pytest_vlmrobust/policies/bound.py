"""Bound: the closed range that a metric's value must stay in, and how its numbers are read and written."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Decimal

TOLERANCE = 1e-9
"""Two numbers closer than this are equal: ``0.3 - 0.25`` does not break a bound of ``0.05``."""

FRACTION = "fraction"
"""The unit of metrics that are shares of samples or differences of shares."""

_QUANTITY = re.compile(r"(?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(?P<unit>pp|%)?\Z")


@dataclass(frozen=True, slots=True)
class Bound:
    """The closed range ``[low, high]``; ``max:`` leaves ``low`` and ``min:`` leaves ``high`` infinite."""

    low: float = -math.inf
    high: float = math.inf

    def exceeded(self, value: float) -> bool:
        """Whether ``value`` lies above the range."""
        return value > self.high + TOLERANCE

    def undercut(self, value: float) -> bool:
        """Whether ``value`` lies below the range."""
        return value < self.low - TOLERANCE

    def admits(self, value: float) -> bool:
        """Whether ``value`` lies in the range; a NaN does not."""
        return self.low - TOLERANCE <= value <= self.high + TOLERANCE

    def nearest_end(self, value: float) -> float:
        """Returns the finite end of the range that ``value`` is closest to: for a breach, the end it has crossed."""
        return min(self.ends, key=lambda end: abs(value - end))

    @property
    def ends(self) -> tuple[float, ...]:
        """The finite ends, low before high."""
        return tuple(end for end in (self.low, self.high) if math.isfinite(end))

    def __str__(self) -> str:
        """Returns the bound in plain decimals, ``0.05``, and for a range with two ends ``0.1..0.3``."""
        return "..".join(plain_decimal(end) for end in self.ends)


def parse_quantity(raw: float | str, unit: str) -> float:
    """Returns a quantity of a thresholds file as a number: ``0.05``, ``"5pp"`` and ``"5%"`` are all 0.05.

    Args:
        raw: A number, or text as written.
        unit: The unit of the metric; empty when nothing is known about it, and then nothing is refused on its account.

    Raises:
        ValueError: what was expected instead, as a sentence.
    """
    if isinstance(raw, str):
        return _parse_text(raw, unit)
    if not math.isfinite(raw):
        raise ValueError("a finite number")
    if unit == FRACTION and (abs(raw) > 1 or (isinstance(raw, int) and raw != 0)):
        raise ValueError(f"a fraction: write {raw:g}pp or {raw:g}% for {raw / 100:g}, or {raw * 100:g}% for {raw:g}")
    return float(raw)


def plain_decimal(value: float) -> str:
    """Returns a number as dashboards read it: no exponent, no digits that say nothing.

    >>> plain_decimal(0.05), plain_decimal(1e-7)
    ('0.05', '0.0000001')
    """
    return format(Decimal(repr(value)), "f").removesuffix(".0")


def decimals_needed(value: float, *ends: float) -> int:
    """Returns how many decimals, at least 3, print ``ends`` exactly and keep ``value`` different from each it differs from.

    >>> decimals_needed(0.124, 0.05), decimals_needed(0.05004, 0.05), decimals_needed(0.2, 0.0625)
    (3, 5, 4)
    """
    return next((digits for digits in range(3, 10) if all(_told_apart(value, end, digits) for end in ends)), 10)


def _told_apart(value: float, end: float, digits: int) -> bool:
    printed = f"{end:.{digits}f}"
    exact = abs(float(printed) - end) <= TOLERANCE
    return exact and (abs(value - end) <= TOLERANCE or f"{value:.{digits}f}" != printed)


def _parse_text(text: str, unit: str) -> float:
    match = _QUANTITY.match(text.strip())
    if match is None:
        raise ValueError("a number such as 0.05, 5pp or 5%")
    number, suffix = Decimal(match["number"]), match["unit"]
    if suffix is None:
        return parse_quantity(float(number), unit)
    if suffix == "pp" and unit not in {"", FRACTION}:
        raise ValueError(f"a plain number: the metric's unit is {unit}, so percentage points say nothing about it")
    return float(number / 100)
