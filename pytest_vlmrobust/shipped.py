"""The suites, thresholds and recipes for CI that come with the package; one copy, at the top of the repository."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).parent


def shipped(folder: str) -> Path:
    """Returns the directory of shipped ``suites``, ``thresholds`` or ``recipes``: in the wheel, or at the top of a checkout."""
    in_wheel = _PACKAGE / "shipped_files" / folder
    return in_wheel if in_wheel.is_dir() else _PACKAGE.parent / folder
