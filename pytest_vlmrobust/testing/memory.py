"""Passed checks of the package's own metrics: made once per installation, and remembered in the store.

The metrics of this package are the same in every gate. Only the installation can differ: its Python, NumPy, SciPy and machine,
and the code of the package itself, which changes without a new version in an editable installation. A user's own metrics, and
replaced metrics of this package, are never remembered.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
from collections.abc import Iterator
from datetime import date
from functools import cache, cached_property
from importlib.metadata import version
from pathlib import Path

import pytest_vlmrobust
from pytest_vlmrobust.metrics import REGISTRY, SHIPPED

FILE_NAME = "checks.jsonl"
EXAMPLES_SHARE = 4
"""A gate tries a metric of this package on one in this many examples of its profile; the tests of this package try all."""

_CODE = ("core", "metrics", "policies", "testing")
"""Folders of this package on which the result of a check depends."""


def is_shipped(name: str) -> bool:
    """Returns whether a metric is one of this package, registered unchanged."""
    return SHIPPED.get(name) is REGISTRY.get(name)


@cache
def installation() -> str:
    """Describes everything on which the result of a check depends: versions, machine, and a digest of the code."""
    libraries = ", ".join(f"{package} {version(package)}" for package in ("numpy", "scipy"))
    machine = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"
    return f"pytest-vlmrobust {pytest_vlmrobust.__version__} ({_code_digest()[:12]}), {libraries}, {machine}"


def _code_digest() -> str:
    root, digest = Path(pytest_vlmrobust.__file__).parent, hashlib.sha256()
    for file in sorted(file for folder in _CODE for file in (root / folder).rglob("*.py")):
        content = file.read_bytes()
        digest.update(f"{file.relative_to(root).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()


class CheckMemory:
    """Which tests of which metrics passed, in ``checks.jsonl`` of a store.

    Any number of processes may share the file: each pass is one line, appended in a single write. A line torn by a
    killed process is not a pass.
    """

    def __init__(self, directory: Path, on: str) -> None:
        """Takes the directory of a store, which need not exist, and the :func:`installation` on which the checks are made."""
        self.path = directory / FILE_NAME
        self.on = on

    def passed(self, test: str, metric: str, examples: int) -> str:
        """Returns the date on which a test of a metric passed here with at least ``examples``; empty if none did."""
        tried, day = self._passes.get((test, metric), (0, ""))
        return day if tried >= examples else ""

    def remember(self, test: str, metric: str, examples: int) -> None:
        """Remembers that a test of a metric passed; if the store cannot be written, it runs again next time."""
        day = date.today().isoformat()  # noqa: DTZ011  for a reader, like the dates of waivers
        self._passes[test, metric] = (examples, day)
        line = json.dumps({"test": test, "metric": metric, "examples": examples, "date": day, "installation": self.on})
        with contextlib.suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
            try:
                os.write(file, f"\n{line}\n".encode())  # the first newline ends a line left by a killed process
            finally:
                os.close(file)

    @cached_property
    def _passes(self) -> dict[tuple[str, str], tuple[int, str]]:
        return {(test, metric): (examples, day) for test, metric, examples, day in self._lines()}

    def _lines(self) -> Iterator[tuple[str, str, int, str]]:
        try:
            lines = self.path.read_bytes().splitlines()
        except OSError:
            return
        for line in lines:
            with contextlib.suppress(ValueError, KeyError, TypeError):
                found = json.loads(line)
                if found["installation"] == self.on:
                    yield str(found["test"]), str(found["metric"]), int(found["examples"]), str(found["date"])
