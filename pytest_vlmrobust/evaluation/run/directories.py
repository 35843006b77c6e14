"""Directories: where a run reads answers, keeps its results, and writes its report; all known before it begins."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pytest_vlmrobust.core.decision import Decision
from pytest_vlmrobust.core.errors import BY_AGE, StoreError, UsageError, run_by_age, typed_path
from pytest_vlmrobust.store import read_manifest
from pytest_vlmrobust.store.database import FILE_NAME, network_file_system

RUNS = "runs"
"""The folder in a store or report with a directory for each run."""
ELSEWHERE = ".vlmrobust-runs"
"""Where runs are kept, below the working directory of pytest, if their store is read-only."""


def is_writable(directory: Path) -> bool:
    """Whether files can be created in a directory, or the directory itself.

    If a file has its name, the answer is yes; opening it reports the problem.
    """
    there = (path for path in (directory, *directory.parents) if os.access(path, os.F_OK))
    nearest = next(there, directory)
    return nearest.is_file() or os.access(nearest, os.W_OK | os.X_OK)


@dataclass(frozen=True)
class RunDirectories:
    """The directories of a run."""

    run_id: str
    invocation: Path
    """The working directory of pytest."""
    store: Path
    """The store of answers, and usually of runs."""
    offline: bool = False
    """Whether the run is offline, so that the store may be read-only."""
    report_given: str = ""
    """The value of ``--vlm-report``; empty without it."""
    baseline_given: str = ""
    """The value of ``--vlm-baseline``; empty without it."""
    network_store: bool = False
    """Whether the user says that locks hold on the network file system that the store is on."""

    @property
    def report(self) -> Path:
        """The directory of the report, if requested."""
        return typed_path(self.report_given, self.invocation, given_as="--vlm-report")

    @property
    def baseline(self) -> Path:
        """The directory of the baseline, if named: a path, or a run of the store."""
        from .evidence import newest_runs

        given = typed_path(self.baseline_given, self.invocation, given_as="--vlm-baseline")
        if self.baseline_given in BY_AGE and not given.exists():
            runs = [run for run in newest_runs(self.earlier) if run != self.run and _may_be_bar(run)]
            return run_by_age(self.baseline_given, runs, self.store, "run that ended GO or only measured")
        named = self.store / RUNS / self.baseline_given
        return named if not given.exists() and Path(self.baseline_given).name == self.baseline_given and named.is_dir() else given

    @property
    def run(self) -> Path:
        """The directory of this run's journal and evidence."""
        return self.runs / self.run_id

    @cached_property
    def runs(self) -> Path:
        """The directory of runs: in the store, else below the working directory, else in the report.

        Only an offline run may be kept outside its store, because other runs write answers there anyway. The report comes last,
        because reruns of failed tests usually name none.
        """
        default = self.store / RUNS
        if not self.offline:
            return default
        report = [self.report / RUNS] if self.report_given else []
        return next(filter(is_writable, (default, self.invocation / ELSEWHERE, *report)), default)

    @property
    def earlier(self) -> list[Path]:
        """The possible directories of earlier runs."""
        return list(dict.fromkeys((self.store / RUNS, self.runs)))

    @property
    def store_is_writable(self) -> bool:
        """Whether answers can be added to the store."""
        file = self.store / FILE_NAME
        return is_writable(self.store) and (not file.is_file() or os.access(file, os.W_OK))

    @property
    def notice(self) -> str:
        """A notice of where the run is kept and why; empty if in its store."""
        if self.runs == self.store / RUNS:
            return ""
        return f"the store is read-only, so this run is kept in {self.run}"

    def check(self) -> None:
        """Refuses, before the first inference, a run that cannot save its results."""
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
        """Refuses a report directory that is the baseline or the store, because it would replace their files."""
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


def _may_be_bar(run: Path) -> bool:
    """Whether a run named by its age may be the baseline: it ended GO, or broke no bound and was itself compared with none.

    Without this, a gate that is not GO would be GO when it is run again, because it would be compared with itself.
    """
    try:
        manifest = read_manifest(run)
    except StoreError:
        return False
    compared = manifest.get("settings", {}).get("vlm_baseline")
    return manifest.get("decision") in (Decision.GO, *([] if compared else [Decision.INCONCLUSIVE]))


def _is_same(first: Path, second: Path) -> bool:
    """Whether two directories, or their database files, are the same."""
    same = first.is_dir() and second.is_dir() and first.samefile(second)
    return same or any((first / name).resolve() == (second / name).resolve() for name in ("", FILE_NAME))
