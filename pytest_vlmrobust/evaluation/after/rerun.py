"""Rerun: the tests of the last complete run with a given verdict, after the reruns since then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.errors import StoreError, UsageError
from pytest_vlmrobust.core.record import Record
from pytest_vlmrobust.core.words import quantity
from pytest_vlmrobust.evaluation.run.directories import RUNS
from pytest_vlmrobust.evaluation.run.evidence import newest_runs
from pytest_vlmrobust.store import last_records, read_manifest
from pytest_vlmrobust.store.run_directory import planned_tests

_LOST = "without a verdict"


@dataclass(frozen=True, slots=True)
class Rerun:
    """Which tests run again. The controller decides, so that all workers have the same."""

    verdicts: str
    """As requested: ``failed``, ``errors`` or ``inconclusive``."""
    run: str
    """The name of the earlier run."""
    nodeids: tuple[str, ...]
    """Its tests with that verdict, and files that could not be collected."""
    ended: str
    """The verdicts of its tests after any reruns: ``2 FAIL, 6 PASS``."""
    since: int = 0
    """The number of its reruns since."""

    def __str__(self) -> str:
        selection = f"{quantity(len(self.nodeids), 'test')} to run again" if self.nodeids else "nothing to run again"
        since = f" and {quantity(self.since, 'rerun')} of it" if self.since else ""
        undecided = (
            "; --vlm-rerun=inconclusive runs those" if not self.nodeids and str(Outcome.INCONCLUSIVE) in self.ended else ""
        )
        return f"--vlm-rerun {self.verdicts}: {selection} of run {self.run}{since} ({self.ended}){undecided}"

    def includes(self, nodeid: str) -> bool:
        """Whether a test is to run again: by its own id, or by that of a class or file that contains it."""
        return not set(self.nodeids).isdisjoint(_holding(nodeid))

    def to_worker(self) -> dict[str, Any]:
        """Returns a mapping that xdist can send."""
        return asdict(self)

    @classmethod
    def at_worker(cls, sent: Mapping[str, Any]) -> Rerun | None:
        """Reads the mapping of :meth:`to_worker`; an empty one means no rerun."""
        return cls(**{**sent, "nodeids": tuple(sent["nodeids"])}) if sent else None


@dataclass(frozen=True, slots=True)
class _EarlierRun:
    """The recorded tests of an earlier run."""

    directory: Path
    records: Sequence[Record]
    planned: Mapping[str, str]
    """The model of each planned test, by its node id."""
    repeats: str
    """The run whose tests it repeated; empty if it was no rerun."""

    @classmethod
    def read(cls, directory: Path) -> _EarlierRun:
        """Reads an earlier run."""
        records = last_records(directory)
        try:
            repeats = str(read_manifest(directory).get("repeats", ""))
        except StoreError:
            repeats = ""  # from a release without manifests, or killed before it wrote one
        return cls(directory, records, planned_tests(directory), repeats)

    def is_about(self, models: Iterable[str]) -> bool:
        """Whether it measured, or planned to measure, one of the models."""
        return not {*self.planned.values(), *(record.model for record in self.records)}.isdisjoint(models)


def find_rerun(verdicts: str, outcome: Outcome, models: Sequence[str], places: Sequence[Path]) -> Rerun:
    """Returns the tests to run again."""
    runs = _last_run_and_reruns(models, places)
    if runs:
        newest = _newest_outcomes(runs)
        counts = Counter(name for outcomes in newest.values() for name in list(map(str, outcomes)) or [_LOST])
        ended = ", ".join(f"{count} {name if name == _LOST else Outcome(name).counted}" for name, count in sorted(counts.items()))
        chosen = tuple(nodeid for nodeid, outcomes in newest.items() if outcome in (outcomes or [Outcome.ERROR]))
        return Rerun(verdicts, runs[0].repeats or runs[0].directory.name, chosen, ended, since=len(runs) - 1)
    searched = " or ".join(str(place.parent if place.name == RUNS else place) for place in places)
    raise UsageError(
        f"--vlm-rerun {verdicts}: {searched} has no earlier run about {', '.join(models)}. "
        "Run once without --vlm-rerun, or name the store of that run with --vlm-store"
    )


def _last_run_and_reruns(models: Sequence[str], places: Iterable[Path]) -> list[_EarlierRun]:
    """Returns the newest run about the models that was not a rerun, then its reruns, oldest first.

    If that run was deleted, returns only its reruns.
    """
    reruns: list[_EarlierRun] = []
    for run in map(_EarlierRun.read, newest_runs(places)):  # this run has no journal yet
        if not run.is_about(models):
            continue
        if not run.repeats:
            return [run, *(rerun for rerun in reversed(reruns) if rerun.repeats == run.directory.name)]
        reruns.append(run)
    return [rerun for rerun in reversed(reruns) if rerun.repeats == reruns[0].repeats]


def _newest_outcomes(runs: Iterable[_EarlierRun]) -> dict[str, list[Outcome]]:
    """Returns the newest verdicts of each test, by node id; an empty list for a test without a verdict."""
    outcomes: dict[str, list[Outcome]] = {}
    for run in runs:
        fresh: dict[str, list[Outcome]] = {}
        for record in filter(lambda record: record.nodeid, run.records):
            fresh.setdefault(record.nodeid, []).append(record.outcome)
        for replaced in [whole for nodeid in fresh for whole in _holding(nodeid) if whole in outcomes]:
            outcomes.pop(replaced, None)
        outcomes |= fresh
        for nodeid in run.planned:
            outcomes.setdefault(nodeid, [])
    return outcomes


def _holding(nodeid: str) -> Iterator[str]:
    """Yields the node ids of a test and of the file and classes that contain it.

    >>> list(_holding("suites/test_a.py::TestA::test_b[m-d-fog:mid]"))
    ['suites/test_a.py::TestA::test_b[m-d-fog:mid]', 'suites/test_a.py', 'suites/test_a.py::TestA']
    """
    yield nodeid
    names = nodeid.partition("[")[0].split("::")
    for count in range(1, len(names)):
        yield "::".join(names[:count])
