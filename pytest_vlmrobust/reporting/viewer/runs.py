"""The displayed runs: their progress, and the verdicts of their tests so far."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from pytest_vlmrobust.core.decision import Decision
from pytest_vlmrobust.core.errors import StoreError, UnknownName
from pytest_vlmrobust.reporting.facts import RunFacts
from pytest_vlmrobust.reporting.html.samples import stored_thumbnail
from pytest_vlmrobust.reporting.view import RunView
from pytest_vlmrobust.store import read_manifest
from pytest_vlmrobust.store.browsing import MOST_RUNS, Browser
from pytest_vlmrobust.store.database import FILE_NAME
from pytest_vlmrobust.store.evidence import lost_answers
from pytest_vlmrobust.store.journal import JournalReader
from pytest_vlmrobust.store.run_directory import FOLDER, MANIFEST_FILE, store_of
from pytest_vlmrobust.store.searching import BrowsedCell

if TYPE_CHECKING:
    from pytest_vlmrobust.evaluation.after.pictures import RunPictures

NEWEST = 10
"""Verdicts that a page shows as they fall."""
_BROWSERS = 4
"""The most selections of runs whose files stay open."""


@dataclass(frozen=True, slots=True)
class RunState:
    """How far a run is."""

    name: str
    decision: Decision | None
    """``None`` while it runs, and for a killed run."""
    about: Mapping[str, str]
    """Its date, models and data, for display."""
    selected: int
    """How many tests were to run."""
    view: RunView
    """Its gated tests so far, newest last."""
    problem: str
    """Why it cannot be read; empty if it can."""
    quiet: float
    """Seconds since something was written."""
    version: str
    """A version that changes with new answers."""


class ShownRun:
    """A run, read again when it changes."""

    def __init__(self, name: str, directory: Path, open_pictures: Callable[[Path], RunPictures]) -> None:
        self.name = name
        self.directory = directory
        self._open_pictures = open_pictures
        self._journal = JournalReader(directory)
        self._described: tuple[object, Mapping[str, Any]] = (self, {})

    @cached_property
    def pictures(self) -> RunPictures:
        """The source of its images."""
        return self._open_pictures(self.directory)

    def state(self) -> RunState:
        """Returns its state, including read errors."""
        problem, records, manifest = "", [], {}
        try:
            records = self._journal.records()
            manifest = dict(self._manifest())
            problem = lost_answers(self.directory, records)
        except StoreError as error:
            problem = str(error)
        decision = str(manifest.get("decision", ""))
        models, data = manifest.get("models", {}), sorted({record.dataset for record in records if record.dataset})
        facts = {"date": str(manifest.get("date", "")), "models": ", ".join(map(str, models)), "data": ", ".join(data)}
        changed = [stamp for name in (FILE_NAME, f"{FILE_NAME}-wal", self._journal.path.name) if (stamp := self._changed(name))]
        return RunState(
            self.name,
            Decision(decision) if decision in set(Decision) else None,
            {name: text for name, text in facts.items() if text},
            int(manifest.get("selected", 0)),
            RunView([record for record in records if record.is_gated], RunFacts(origins=manifest)),
            problem,
            max(0.0, time.time() - max((stamp / 1e9 for stamp, _ in changed), default=time.time())),
            ".".join(f"{stamp:x}-{size:x}" for stamp, size in changed),
        )

    def thumbnail(self, dataset: str, sample: str, setting: str) -> bytes | None:
        """Returns the thumbnail of an example of a record; for samples whose images cannot be made again."""
        examples = (example for record in self._journal.records() if record.dataset == dataset for example in record.examples)
        for example in examples:
            for picture in example.pictures if example.sample == sample else ():
                if picture.caption.partition(",")[0] == setting:
                    return stored_thumbnail(store_of(self.directory, self._manifest()) / FOLDER, picture.file)
        return None

    def _manifest(self) -> Mapping[str, Any]:
        changed = self._changed(MANIFEST_FILE)
        if changed != self._described[0]:
            self._described = (changed, read_manifest(self.directory))
        return self._described[1]

    def _changed(self, name: str) -> tuple[int, int] | None:
        try:
            status = (self.directory / name).stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size


class Runs:
    """The runs that a server shows, by name."""

    def __init__(
        self, find: Callable[[], Sequence[Path]], open_pictures: Callable[[Path], RunPictures], *, together: bool
    ) -> None:
        """Keeps how to find runs.

        ``find`` returns their directories, newest first, for every page. Without runs in its address a page shows all of them
        ``together``, or the first.
        """
        self._find = find
        self._open_pictures = open_pictures
        self._together = together
        self._shown: dict[Path, ShownRun] = {}
        self._browsers: OrderedDict[tuple[Path, ...], Browser] = OrderedDict()
        self._lock = Lock()

    def every(self) -> dict[str, ShownRun]:
        """Returns all runs; a second directory with the same name is numbered."""
        runs: dict[str, ShownRun] = {}
        with self._lock:
            for directory in self._find():
                name, number = directory.name or str(directory), 1
                while name in runs:
                    number += 1
                    name = f"{directory.name}~{number}"
                if directory not in self._shown:
                    self._shown[directory] = ShownRun(name, directory, self._open_pictures)
                runs[name] = self._shown[directory]
        return runs

    def chosen(self, names: Sequence[str]) -> list[ShownRun]:
        """Returns the runs with these names; by default the initial selection."""
        every = self.every()
        for name in names:
            if name not in every:
                raise UnknownName("run", name, every)
        if names:
            return [every[name] for name in dict.fromkeys(names)]
        return list(every.values())[: MOST_RUNS if self._together else 1]

    def browser(self, runs: Sequence[ShownRun]) -> Browser:
        """Returns the browser of some runs."""
        key = tuple(run.directory for run in runs)
        with self._lock:
            if key not in self._browsers:
                self._browsers[key] = Browser({run.name: run.directory for run in runs})
            self._browsers.move_to_end(key)
            while len(self._browsers) > _BROWSERS:
                self._browsers.popitem(last=False)[1].close()
            return self._browsers[key]

    def close(self) -> None:
        """Closes every file."""
        with self._lock:
            while self._browsers:
                self._browsers.popitem()[1].close()


def cells_with(states: Sequence[RunState], outcome: str, cells: Sequence[BrowsedCell]) -> set[tuple[str, int]]:
    """Returns the cells, by run and id, whose test has this verdict."""
    judged = {
        (state.name, record.model, record.dataset, record.setting)
        for state in states
        for record in state.view.records
        if record.test == "cell" and str(record.outcome) == outcome
    }
    return {(cell.run, cell.id) for cell in cells if (cell.run, *cell[2:5]) in judged}
