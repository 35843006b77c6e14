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

EVERYTHING = (-math.inf, math.inf)
"""The values of a metric about which nothing else is known."""

_QUANTITY = re.compile(r"(?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,4})?)\s*(?P<unit>pp|%)?\Z")


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

    def holds(self, other: Bound) -> bool:
        """Whether everything that keeps ``other`` keeps this bound."""
        return self.low <= other.low and other.high <= self.high

    @property
    def ends(self) -> tuple[float, ...]:
        """The finite ends, low before high."""
        return tuple(end for end in (self.low, self.high) if math.isfinite(end))

    def __str__(self) -> str:
        """Returns the bound in plain decimals, ``0.05``, and for a range with two ends ``0.1..0.3``."""
        return "..".join(plain_decimal(end) for end in self.ends)

    @property
    def condition(self) -> str:
        """The bound as it is asked of a value: ``<= 0.05``, ``>= 0.8``, ``in 0.1..0.3``."""
        return f"in {self}" if len(self.ends) > 1 else f"<= {self}" if math.isinf(self.low) else f">= {self}"


def parse_quantity(raw: float | str, unit: str, reach: tuple[float, float] = EVERYTHING) -> float:
    """Returns a quantity of a thresholds file as a finite number: ``0.05``, ``"5pp"`` and ``"5%"`` are all 0.05.

    Args:
        raw: A number, or text as written.
        unit: The unit of the metric; empty when nothing is known about it, and then nothing is refused on its account.
        reach: The smallest and the largest value that the metric can have; a quantity beyond is refused, however it is written.

    Raises:
        ValueError: what was expected instead, as a sentence.
    """
    value = _parse_text(raw, unit, reach) if isinstance(raw, str) else _parse_number(raw, unit, reach)
    if not _reaches(reach, value):
        raise ValueError(f"{_said(reach)}, for no value of the metric lies beyond; this is {value:g}")
    return value


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


def _parse_number(raw: float, unit: str, reach: tuple[float, float]) -> float:
    value = _finite(raw)
    if unit == FRACTION and (abs(value) > 1 or (isinstance(raw, int) and raw != 0)):
        meant = f", or {value * 100:g}% for {value:g}" if _reaches(reach, value) else ""
        raise ValueError(f"a fraction: write {value:g}pp or {value:g}% for {value / 100:g}{meant}")
    return value


def _finite(raw: float | str) -> float:
    try:
        value = float(raw)
    except OverflowError:  # an integer of hundreds of digits
        value = math.inf
    if not math.isfinite(value):
        raise ValueError("a finite number")
    return value


def _reaches(reach: tuple[float, float], value: float) -> bool:
    return reach[0] <= value <= reach[1]


def _said(reach: tuple[float, float]) -> str:
    low, high = (plain_decimal(end) if math.isfinite(end) else "" for end in reach)
    return (
        f"a number from {low} to {high}" if low and high else f"a number of at least {low}" if low else f"a number up to {high}"
    )


def _parse_text(text: str, unit: str, reach: tuple[float, float]) -> float:
    match = _QUANTITY.match(text.strip())
    if match is None:
        raise ValueError("a number such as 0.05, 5pp or 5%")
    number, suffix = match["number"], match["unit"]
    value = _finite(number)
    if suffix is None:
        return _parse_number(value, unit, reach)
    if suffix == "pp" and unit not in {"", FRACTION}:
        raise ValueError(f"a plain number: the metric's unit is {unit}, so percentage points say nothing about it")
    return float(Decimal(number) / 100)
