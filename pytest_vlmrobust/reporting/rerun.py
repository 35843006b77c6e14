"""Rerun: the command lines that run tests again."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_vlmrobust.core.record import Record


@dataclass(frozen=True, slots=True)
class Command:
    """How pytest was called: what a command line needs that runs some of the same tests again."""

    options: tuple[str, ...] = ()
    """The words after ``pytest`` that are no paths, without those that chose tests or wrote reports."""
    paths: tuple[str, ...] = ()
    """The paths and test ids."""
    root: Path = Path()
    """The directory that node ids start from, seen from one that holds both it and ``here``."""
    here: Path = Path()
    """The directory where pytest was called, likewise."""

    def one(self, record: Record) -> str:
        """Returns the command line that runs the test of a record again; an empty string where nobody knows its node id."""
        if not record.nodeid:
            return ""
        file, separator, test = record.nodeid.partition("::")
        path = os.path.relpath(self.root / file, self.here)
        return shlex.join(["pytest", *self.options, f"{path}{separator}{test}"])

    def several(self, verdicts: str) -> str:
        """Returns the command line that runs all tests again that have a verdict: ``failed``, ``errors`` or ``inconclusive``."""
        return self.whole(f"--vlm-rerun={verdicts}")

    def whole(self, *more: str) -> str:
        """Returns the command line that runs every test of the same paths again, with more options."""
        return shlex.join(["pytest", *self.options, *more, *self.paths])

    def to_dict(self) -> dict[str, Any]:
        """Returns it JSON-safe."""
        return {"options": list(self.options), "paths": list(self.paths), "root": str(self.root), "here": str(self.here)}

    @classmethod
    def read(cls, data: object) -> Command | None:
        """Returns what :meth:`to_dict` wrote; ``None`` in place of anything else, for a manifest may hold anything."""
        if not isinstance(data, Mapping):
            return None
        try:
            options, paths = (tuple(map(str, data[name])) for name in ("options", "paths"))
            return cls(options, paths, Path(data["root"]), Path(data["here"]))
        except (KeyError, TypeError):
            return None
