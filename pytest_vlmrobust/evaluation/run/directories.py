"""Directories: where a run reads answers, keeps what it found, and puts its report; all of it known before it begins."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pytest_vlmrobust.core.errors import BY_AGE, UsageError, run_by_age, typed_path
from pytest_vlmrobust.store.database import FILE_NAME, network_file_system

RUNS = "runs"
"""The folder, of a store or of a report, that holds a directory for each run."""
ELSEWHERE = ".vlmrobust-runs"
"""Where runs are kept, below the directory that pytest is called in, when their store can only be read."""


def is_writable(directory: Path) -> bool:
    """Whether files can be made in a directory; of one that is not there, whether it can be made.

    Where a file stands in its place the answer is yes: whoever opens it says what is wrong.
    """
    there = (path for path in (directory, *directory.parents) if os.access(path, os.F_OK))
    nearest = next(there, directory)
    return nearest.is_file() or os.access(nearest, os.W_OK | os.X_OK)


@dataclass(frozen=True)
class RunDirectories:
    """The directories of one run."""

    run_id: str
    invocation: Path
    """Where pytest was called."""
    store: Path
    """Where answers are, and usually runs."""
    offline: bool = False
    """Whether no model is asked, so that the store may be one that can only be read."""
    report_given: str = ""
    """What stands after ``--vlm-report``; empty without it."""
    baseline_given: str = ""
    """What stands after ``--vlm-baseline``; empty without it."""
    network_store: bool = False
    """Whether the user says that locks hold on the network file system that the store is on."""

    @property
    def report(self) -> Path:
        """Where the report is asked for, where one is."""
        return typed_path(self.report_given, self.invocation, given_as="--vlm-report")

    @property
    def baseline(self) -> Path:
        """Where the run is that this one is compared with, where one is named: a directory, or a run of the store."""
        from .evidence import newest_runs

        given = typed_path(self.baseline_given, self.invocation, given_as="--vlm-baseline")
        if self.baseline_given in BY_AGE and not given.exists():
            return run_by_age(self.baseline_given, [run for run in newest_runs(self.earlier) if run != self.run], self.store)
        named = self.store / RUNS / self.baseline_given
        return named if not given.exists() and Path(self.baseline_given).name == self.baseline_given and named.is_dir() else given

    @property
    def run(self) -> Path:
        """Where the journal and the evidence of this run are."""
        return self.runs / self.run_id

    @cached_property
    def runs(self) -> Path:
        """The directory that holds the run's own: in its store, else where pytest was called, else in its report.

        Only a run that asks nothing may leave its store: any other one keeps its answers there as well. A report comes last, for
        whoever runs failed tests again names none.
        """
        own = self.store / RUNS
        if not self.offline:
            return own
        report = [self.report / RUNS] if self.report_given else []
        return next(filter(is_writable, (own, self.invocation / ELSEWHERE, *report)), own)

    @property
    def earlier(self) -> list[Path]:
        """Where the directories of earlier runs may be."""
        return list(dict.fromkeys((self.store / RUNS, self.runs)))

    @property
    def store_is_writable(self) -> bool:
        """Whether answers can be added to the store."""
        file = self.store / FILE_NAME
        return is_writable(self.store) and (not file.is_file() or os.access(file, os.W_OK))

    @property
    def notice(self) -> str:
        """Where the run is kept and why; an empty string where that is its store."""
        if self.runs == self.store / RUNS:
            return ""
        return f"the store is read-only, so this run is kept in {self.run}"

    def check(self) -> None:
        """Refuses a run that could not keep what it finds out, before anything is asked."""
        self.check_report()
        if not self.offline and not self.store_is_writable:
            raise UsageError(
                f"--vlm-store {str(self.store)!r} cannot be written to: answers could not be kept. Add --vlm-offline to take all "
                "of them from it, or name a directory that can be written to with --vlm-store"
            )
        if not is_writable(self.runs):
            raise UsageError(
                f"--vlm-store {str(self.store)!r} cannot be written to, and neither can {str(self.invocation)!r}: the run could "
                "not keep its evidence. Name a directory that can be written to with --vlm-report"
            )

        if not self.network_store and (kind := network_file_system(self.runs)):
            raise UsageError(
                f"--vlm-store {str(self.store)!r} is on a network file system ({kind}), where the locks and the log of SQLite do "
                "not hold: answers and evidence could be lost or damaged. Name a directory on a local disk, and copy it when the "
                "run is over; where several machines ask, give each a store of its own (--vlm-fill, --vlm-shard, vlmrobust "
                "merge). --vlm-network-store uses it all the same, where one machine alone uses it and its locks hold"
            )

    def check_report(self) -> None:
        """Refuses a report in the place of the baseline or of the store, whose files it would replace."""
        self._check_store()
        if not self.baseline_given or not self.report_given:
            return
        if _is_same(self.baseline, self.report):
            raise UsageError(
                f"--vlm-report {self.report_given!r} would replace --vlm-baseline {self.baseline_given!r}: a gate must not move "
                "its own bar. Name another directory with --vlm-report; --vlm-update-baseline replaces a baseline by a run "
                "that ended GO"
            )

    def _check_store(self) -> None:
        """Refuses a store in the place of a report or a baseline: their evidence has the name that the answers have there."""
        for option, given in (("--vlm-report", self.report_given), ("--vlm-baseline", self.baseline_given)):
            if given and _is_same(self.store, typed_path(given, self.invocation, given_as=option)):
                raise UsageError(
                    f"{option} {given!r} is the directory of --vlm-store: the evidence of a run would replace the answers of "
                    f"all runs there. Name another directory with {option}"
                )


def _is_same(one: Path, other: Path) -> bool:
    """Whether two directories are one, or their databases would be one file."""
    same = one.is_dir() and other.is_dir() and one.samefile(other)
    return same or any((one / name).resolve() == (other / name).resolve() for name in ("", FILE_NAME))
