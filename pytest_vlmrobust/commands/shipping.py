"""Shipping: `vlmrobust init`."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from pytest_vlmrobust.core.errors import UsageError

from .parsing import Commands
from .printing import say


def add(commands: Commands) -> None:
    """Adds them to the parser."""
    init = commands.add_parser("init", help="copy the shipped suites and thresholds into a directory")
    init.add_argument("directory", nargs="?", type=Path, default=Path(), help="where to (default: here)")
    init.add_argument("--force", action="store_true", help="overwrite files that differ")
    init.set_defaults(run=_init)


def _init(options: argparse.Namespace) -> int:
    from pytest_vlmrobust.shipped import shipped

    copies = [
        (file, options.directory / folder / file.name)
        for folder, pattern in (("suites", "*.py"), ("thresholds", "*.*"))
        for file in sorted(shipped(folder).glob(pattern))
    ]
    kept = [to for file, to in copies if to.exists() and to.read_bytes() != file.read_bytes() and not options.force]
    if kept:
        raise UsageError(f"{', '.join(map(str, kept))} exist and differ from what is shipped. Use --force to overwrite them")
    for file, to in copies:
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, to)
        say(str(to))
    return 0
