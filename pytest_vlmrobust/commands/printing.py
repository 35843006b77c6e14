"""Printing: how commands speak."""

from __future__ import annotations

import shutil
import sys

from pytest_vlmrobust.core.printing import printable

_BREAK = "\n"
_LOG_WIDTH = 160
"""Of what is no terminal: a log has no right edge."""


def say(text: str) -> None:
    """Prints what a command found, whatever stands in its data."""
    print(printable(text, kept=_BREAK))  # noqa: T201 - a command line speaks by printing


def show(table: str) -> None:
    """Prints a rendered table: its cells are printable, and its colours are control characters."""
    print(table)  # noqa: T201 - likewise


def complain(text: str) -> None:
    """Prints what a command could not do, where errors go."""
    print(f"vlmrobust: {printable(text, kept=_BREAK)}", file=sys.stderr)  # noqa: T201 - likewise


def width() -> int:
    """Returns how many columns a table may have."""
    return shutil.get_terminal_size().columns if in_color() else _LOG_WIDTH


def in_color() -> bool:
    """Whether the output is read on a terminal."""
    return sys.stdout.isatty()
