"""Fragments of the sentences in an estimate's reason."""

from __future__ import annotations

from collections.abc import Sequence


def listed(names: Sequence[str], most: int = 5) -> str:
    """Returns the first names, and how many more there are."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def points(fraction: float) -> str:
    """Returns a fraction in percentage points."""
    return f"{100 * fraction:.1f} pp"


def percent(fraction: float) -> str:
    """Returns a fraction in per cent."""
    return f"{100 * fraction:.1f} %"
