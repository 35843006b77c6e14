"""Rerun: the command lines that run tests again."""

from __future__ import annotations

import posixpath
import shlex
from dataclasses import dataclass

from pytest_vlmrobust.core.record import Record


@dataclass(frozen=True, slots=True)
class Command:
    """How pytest was called: what a command line needs that runs some of the same tests again."""

    options: tuple[str, ...] = ()
    """The words after ``pytest`` that are no paths, without those that chose tests or wrote reports."""
    paths: tuple[str, ...] = ()
    """The paths and test ids."""
    root: str = ""
    """The directory that node ids start from, as seen from where pytest was called; empty where they are the same."""

    def one(self, record: Record) -> str:
        """Returns the command line that runs the test of a record again; an empty string where nobody knows its node id."""
        if not record.nodeid:
            return ""
        file, separator, test = record.nodeid.partition("::")
        path = posixpath.normpath(posixpath.join(self.root, file)) if self.root else file
        return shlex.join(["pytest", *self.options, f"{path}{separator}{test}"])

    def several(self, verdicts: str) -> str:
        """Returns the command line that runs all tests again that have a verdict: ``failed``, ``errors`` or ``inconclusive``."""
        return shlex.join(["pytest", *self.options, f"--vlm-rerun={verdicts}", *self.paths])
