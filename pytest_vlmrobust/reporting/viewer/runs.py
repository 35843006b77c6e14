"""Runs that are looked at: which ones there are, how far each one is, and the verdicts of its tests so far."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

from pytest_vlmrobust.core.decision import Decision, Outcome
from pytest_vlmrobust.core.errors import StoreError, UnknownName
from pytest_vlmrobust.core.record import Record
from pytest_vlmrobust.reporting.html.samples import stored_thumbnail
from pytest_vlmrobust.reporting.view import outcome_counts
from pytest_vlmrobust.store import read_manifest
from pytest_vlmrobust.store.browsing import MOST_RUNS, Browser
from pytest_vlmrobust.store.database import FILE_NAME
from pytest_vlmrobust.store.journal import JournalReader
from pytest_vlmrobust.store.run_directory import FOLDER, MANIFEST_FILE
from pytest_vlmrobust.store.searching import BrowsedCell

NEWEST = 10
"""Verdicts that a page shows as they fall."""
_STORE = Path("..", "..")
_BROWSERS = 4
"""Selections of runs whose files are kept open."""


class Shown(Protocol):
    """The images of one sample under one setting."""

    @property
    def digests(self) -> tuple[str, ...]:
        """What tells each from others; view after view, in each all images of the sample."""
        ...

    @property
    def views(self) -> int:
        """How many views there are."""
        ...

    @property
    def names(self) -> tuple[str, ...]:
        """What the images of one view are called."""
        ...

    @property
    def changed(self) -> tuple[int, ...]:
        """Which images of a view the setting changes."""
        ...

    @property
    def check(self) -> str:
        """Whether these are the pixels that the model saw, in words."""
        ...


class PictureSource(Protocol):
    """What has the images of one run, or makes them again."""

    def problem(self, dataset: str) -> str:
        """Returns why there is no image of a dataset; empty where there are."""
        ...

    def shown(self, dataset: str, sample: str, setting: str) -> Shown:
        """Returns what the images of a sample are."""
        ...

    def picture(self, dataset: str, sample: str, setting: str, number: int, *, small: bool = False) -> tuple[bytes, str]:
        """Returns one of them as a file, and its media type."""
        ...


@dataclass(frozen=True, slots=True)
class RunState:
    """How far a run is."""

    name: str
    decision: Decision | None
    """``None`` while it goes on, and of a run that was killed."""
    about: Mapping[str, str]
    """What it is about, for people: date, models, data."""
    selected: int
    """How many tests were to run."""
    records: Sequence[Record]
    """Those of its tests so far, the newest last."""
    problem: str
    """Why nothing can be said about it; empty where something can."""
    quiet: float
    """Seconds since something was written."""
    version: str
    """What changes when there are more answers."""

    @property
    def tally(self) -> list[tuple[Outcome, int]]:
        """How many tests have each verdict, worst first."""
        return outcome_counts(record for record in self.records if record.is_gated)

    @property
    def done(self) -> int:
        """How many of its tests ended."""
        return sum(record.is_gated for record in self.records)


class ShownRun:
    """One run: what is read of it is read again when it has changed."""

    def __init__(self, name: str, directory: Path, open_pictures: Callable[[Path], PictureSource]) -> None:
        self.name = name
        self.directory = directory
        self._open_pictures = open_pictures
        self._journal = JournalReader(directory)
        self._described: tuple[object, Mapping[str, Any]] = (self, {})

    @cached_property
    def pictures(self) -> PictureSource:
        """Where its images come from."""
        return self._open_pictures(self.directory)

    def state(self) -> RunState:
        """Returns how far it is; what cannot be read is said."""
        problem, records, manifest = "", [], {}
        try:
            records = self._journal.records()
            manifest = dict(self._manifest())
        except StoreError as error:
            problem = str(error)
        decision = str(manifest.get("decision", ""))
        models, data = manifest.get("models", {}), sorted({record.dataset for record in records if record.dataset})
        about = {"date": str(manifest.get("date", "")), "models": ", ".join(map(str, models)), "data": ", ".join(data)}
        changed = [found for name in (FILE_NAME, f"{FILE_NAME}-wal", self._journal.path.name) if (found := self._changed(name))]
        return RunState(
            self.name,
            Decision(decision) if decision in set(Decision) else None,
            {name: text for name, text in about.items() if text},
            int(manifest.get("selected", 0)),
            records,
            problem,
            max(0.0, time.time() - max((stamp / 1e9 for stamp, _ in changed), default=time.time())),
            ".".join(f"{stamp:x}-{size:x}" for stamp, size in changed),
        )

    def thumbnail(self, dataset: str, sample: str, setting: str) -> bytes | None:
        """Returns the thumbnail of an example of a record; for samples whose images cannot be made again.

        Raises:
            StoreError: the run cannot be read.
        """
        examples = (example for record in self._journal.records() if record.dataset == dataset for example in record.examples)
        for example in examples:
            for picture in example.pictures if example.sample == sample else ():
                if picture.caption.partition(",")[0] == setting:
                    return stored_thumbnail(self.directory / str(self._manifest().get("store", _STORE)) / FOLDER, picture.file)
        return None

    def _manifest(self) -> Mapping[str, Any]:
        changed = self._changed(MANIFEST_FILE)
        if changed != self._described[0]:
            self._described = (changed, read_manifest(self.directory))
        return self._described[1]

    def _changed(self, name: str) -> tuple[int, int] | None:
        try:
            found = (self.directory / name).stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size


class Runs:
    """The runs that a server shows, by name."""

    def __init__(
        self, find: Callable[[], Sequence[Path]], open_pictures: Callable[[Path], PictureSource], *, together: bool
    ) -> None:
        """Remembers how they are found.

        Args:
            find: gives their directories, the newest first; asked again for every page.
            open_pictures: from the directory of a run to what has its images.
            together: whether all of them are looked at side by side where an address names none; else the first one alone.
        """
        self._find = find
        self._open_pictures = open_pictures
        self._together = together
        self._shown: dict[Path, ShownRun] = {}
        self._browsers: OrderedDict[tuple[Path, ...], Browser] = OrderedDict()
        self._lock = Lock()

    def every(self) -> dict[str, ShownRun]:
        """Returns all runs; of two directories of one name, the second is numbered."""
        found: dict[str, ShownRun] = {}
        with self._lock:
            for directory in self._find():
                name, number = directory.name or str(directory), 1
                while name in found:
                    number += 1
                    name = f"{directory.name}~{number}"
                if directory not in self._shown:
                    self._shown[directory] = ShownRun(name, directory, self._open_pictures)
                found[name] = self._shown[directory]
        return found

    def chosen(self, names: Sequence[str]) -> list[ShownRun]:
        """Returns the runs of these names; where there are none, what is shown at first.

        Raises:
            UnknownName: there is no such run.
        """
        every = self.every()
        for name in names:
            if name not in every:
                raise UnknownName("run", name, every)
        if names:
            return [every[name] for name in dict.fromkeys(names)]
        return list(every.values())[: MOST_RUNS if self._together else 1]

    def browser(self, runs: Sequence[ShownRun]) -> Browser:
        """Returns what finds the answers of some runs."""
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
        for record in state.records
        if record.test == "cell" and str(record.outcome) == outcome
    }
    return {(cell.run, cell.id) for cell in cells if (cell.run, *cell[2:5]) in judged}
