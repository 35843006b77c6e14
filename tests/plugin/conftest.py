"""A gate in a temporary directory: one small suite, one JSONL file, one scripted model, run with and without xdist."""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib.metadata
import json
import os
import sqlite3
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import cv2  # noqa: F401 - what a run in this process imports would be dropped after it, and compiled modules load only once
import filelock  # noqa: F401 - likewise
import jinja2  # noqa: F401 - likewise
import pydantic  # noqa: F401 - likewise
import pytest
import rich.console
import rich.table  # noqa: F401 - likewise: a part of rich that stays would find the other parts twice
import scipy.special  # noqa: F401 - likewise
import yaml  # noqa: F401 - likewise

from pytest_vlmrobust.cli import main
from tests.forked import fork_workers, run_forked
from tests.small_gate import import_package, policy, suite, write_questions

import_package(".neural")  # likewise: registries would be made anew, and their members not

SUITE = suite("grayscale", "flip_v", "invert", "solarize:low")
POLICY = policy(20)
SAMPLES = 8


UNUSED = ("-p", "no:hypothesispytest", "-p", "no:anyio")
"""Plugins that no gate here uses, and whose imports are a third of what a worker takes to start."""


class Project:
    """Runs the gate of one temporary directory."""

    def __init__(self, pytester: pytest.Pytester, arguments: Sequence[str]) -> None:
        self.pytester = pytester
        self.arguments = arguments
        self.path = pytester.path

    def write(self, name: str, text: str) -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def script(self, *rules: Mapping[str, Any], name: str = "model") -> None:
        """Writes a model that answers B (right) with a picture and A (wrong) without, but for ``rules``."""
        blind = {"setting": "no_image", "answer": "A"}
        self.write(f"{name}.yaml", json.dumps({"default": "B", "rules": [*rules, blind]}))

    def run(self, *arguments: str, models: Sequence[str] = ("model",), subprocess: bool = False) -> pytest.RunResult:
        given = [f"--vlm=scripted:{name}.yaml" for name in models]
        full = [
            *given,
            "--vlm-dataset=data.jsonl",
            "--vlm-thresholds=policy.yaml",
            "-p",
            "no:randomly",
            *UNUSED,
            "suite",
            *self.arguments,
            *arguments,
        ]
        return run_forked(self.pytester, *full) if subprocess else self.pytester.runpytest(*full)

    @property
    def the_run(self) -> Path:
        """The directory of the only run."""
        (run,) = (self.path / ".vlmrobust" / "runs").iterdir()
        return run

    @property
    def stored(self) -> int:
        """How many answers its store has, also while a run writes there."""
        path = self.path / ".vlmrobust" / "predictions.sqlite"
        if not path.exists():
            return 0
        try:
            with contextlib.closing(sqlite3.connect(path)) as store:
                return int(store.execute("select count(*) from predictions").fetchone()[0])
        except sqlite3.OperationalError:
            return 0

    @property
    def decision(self) -> str:
        """What the manifest of the only run says."""
        return str(json.loads((self.the_run / "manifest.json").read_text())["decision"])

    def results(self, out: str = "out") -> Any:
        """Returns what the report of a run says."""
        return json.loads((self.path / out / "results.json").read_text(encoding="utf-8"))

    def verify(self, run: Path) -> None:
        """Checks that a run, put into a bundle, agrees with itself."""
        bundle = str(self.path / "b.zip")
        assert main(["bundle", str(run), "--out", bundle]) == 0
        assert main(["verify", bundle]) == 0


def ends(result: pytest.RunResult, code: int, *lines: str) -> pytest.RunResult:
    """Checks how a run ended: its exit code, and lines in their order, which mistakes of the user (4) have on standard error."""
    assert result.ret == code, result.stdout.str() + result.stderr.str()
    (result.stderr if code == 4 else result.stdout).fnmatch_lines(lines)
    return result


def execute(directory: Path, statement: str) -> None:
    """Changes the evidence of a run, or a store, behind its back."""
    with contextlib.closing(sqlite3.connect(directory / "predictions.sqlite")) as database:
        database.execute(statement)
        database.commit()


def decision_cases(junit: Path) -> dict[str, str]:
    """Returns the decision about each model as a reader of JUnit sees it who shows test cases alone."""
    kinds = {"failure": "NO-GO", "error": "INCOMPLETE", "skipped": "INCONCLUSIVE"}
    cases = [case for case in ElementTree.parse(junit).iter("testcase") if case.get("name") == "decision"]
    return {
        str(case.get("classname")).removeprefix("vlmrobust."): next((kinds[part.tag] for part in case if part.tag in kinds), "GO")
        for case in cases
    }


count_frozen = gc.get_freeze_count


class Installed:
    """A distribution whose files and entry points are read once."""

    def __init__(self, distribution: importlib.metadata.Distribution) -> None:
        self._distribution = distribution

    def __getattr__(self, name: str) -> Any:
        return getattr(self._distribution, name)

    @functools.cached_property
    def files(self) -> Any:
        return self._distribution.files

    @functools.cached_property
    def entry_points(self) -> Any:
        return self._distribution.entry_points


@functools.cache
def installed(*_path: str) -> list[Installed]:
    """Returns what is installed along this path: pytest looks for plugins, and through the files of each, whenever it starts."""
    return [*map(Installed, importlib.metadata.Distribution.discover())]


@pytest.fixture(autouse=True)
def gates_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gates in tests belong on no page of the job that runs these tests, and their workers import nothing anew."""
    fork_workers(monkeypatch)
    monkeypatch.setattr(gc, "get_freeze_count", lambda: 1)  # all that was collected is frozen; each gate would count it
    monkeypatch.setattr(importlib.metadata, "distributions", lambda: installed(*sys.path))
    for name in ("GITHUB_STEP_SUMMARY", "GITHUB_ACTIONS"):
        monkeypatch.delenv(name, raising=False)


ALONE = pytest.param((), id="alone")
WORKERS = pytest.param(("-n2",), marks=pytest.mark.process, id="n2")
WORKERS_IF_SLOW = pytest.param(("-n2",), marks=pytest.mark.slow, id="n2")
"""Two workers, which take seconds to start: ``test_gate`` and a few more tests run with them by default, the others do not."""


def slow_but_for(quick: Collection[Any], values: Iterable[Any]) -> list[Any]:
    """Returns the parameters of a test that starts a process for each: with those that are not among ``quick`` marked slow."""
    return [pytest.param(value, marks=() if value in quick else pytest.mark.slow) for value in values]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks every test of this folder: each runs pytest as a whole, here or in a process of its own."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker("process")


def make_project(pytester: pytest.Pytester, arguments: Sequence[str]) -> Project:
    project = Project(pytester, arguments)
    project.write("suite/test_suite.py", SUITE)
    project.write("policy.yaml", POLICY)
    write_questions(project.path, "B" * SAMPLES)
    project.script()
    return project


@pytest.fixture
def project(pytester: pytest.Pytester) -> Project:
    """A gate without xdist."""
    os.environ.pop("PYTEST_ADDOPTS", None)
    return make_project(pytester, ())


@pytest.fixture(params=[ALONE, WORKERS_IF_SLOW])
def any_project(request: pytest.FixtureRequest, pytester: pytest.Pytester) -> Project:
    """The same gate without xdist's options and with two workers; ``-n 0`` is the first, as ``test_gate`` shows."""
    return make_project(pytester, request.param)
