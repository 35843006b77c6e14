"""The suites, thresholds and files for CI that come with the package; one copy, at the top of the repository."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).parent


def shipped(name: str) -> Path:
    """Returns a shipped file or folder, such as ``suites`` or ``action.yml``: in the wheel, or at the top of a checkout."""
    in_wheel = _PACKAGE / "shipped_files" / name
    return in_wheel if in_wheel.exists() else _PACKAGE.parent / name
