"""Rerun: the command lines that run tests again."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path

from pytest_vlmrobust.core.record import Record


@dataclass(frozen=True, slots=True)
class Command:
    """How pytest was called: what a command line needs that runs some of the same tests again."""

    options: tuple[str, ...] = ()
    """The words after ``pytest`` that are no paths, without those that chose tests or wrote reports."""
    paths: tuple[str, ...] = ()
    """The paths and test ids."""
    root: Path = Path()
    """The directory that node ids start from."""
    here: Path = Path()
    """The directory where pytest was called."""

    def one(self, record: Record) -> str:
        """Returns the command line that runs the test of a record again; an empty string where nobody knows its node id."""
        if not record.nodeid:
            return ""
        file, separator, test = record.nodeid.partition("::")
        path = os.path.relpath(self.root / file, self.here)
        return shlex.join(["pytest", *self.options, f"{path}{separator}{test}"])

    def several(self, verdicts: str) -> str:
        """Returns the command line that runs all tests again that have a verdict: ``failed``, ``errors`` or ``inconclusive``."""
        return shlex.join(["pytest", *self.options, f"--vlm-rerun={verdicts}", *self.paths])
