"""Places: which directories a run may write to, and where it keeps what it leaves when its store may only be read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_vlmrobust.core.errors import UsageError

if TYPE_CHECKING:
    from .gate import Gate

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


def store_is_writable(gate: Gate) -> bool:
    """Whether answers can be added to the store of a run."""
    from pytest_vlmrobust.store.database import FILE_NAME

    file = gate.store_directory / FILE_NAME
    return is_writable(gate.store_directory) and (not file.is_file() or os.access(file, os.W_OK))


def runs_of(gate: Gate) -> Path:
    """Returns the directory that holds the run's own: in its store, else where pytest was called, else in its report.

    Only a run that asks nothing may leave its store: any other one keeps its answers there as well. A report comes last, for
    whoever runs failed tests again names none.
    """
    own = gate.store_directory / RUNS
    if not gate.settings.vlm_offline:
        return own
    report = [gate.invocation / gate.settings.vlm_report / RUNS] if gate.settings.vlm_report else []
    return next(filter(is_writable, (own, gate.invocation / ELSEWHERE, *report)), own)


def check_places(gate: Gate) -> None:
    """Refuses a run that could not keep what it finds out, before anything is asked.

    Raises:
        UsageError: the store cannot be written to and the model is to be asked, no directory can hold the run, or the report
            would replace the baseline.
    """
    if gate.only_plans:
        return
    _check_report(gate)
    store = str(gate.store_directory)
    if not gate.settings.vlm_offline and not store_is_writable(gate):
        raise UsageError(
            f"--vlm-store {store!r} cannot be written to: answers could not be kept. Add --vlm-offline to take all of them from "
            "it, or name a directory that can be written to with --vlm-store"
        )
    if not is_writable(gate.runs):
        raise UsageError(
            f"--vlm-store {store!r} cannot be written to, and neither can {str(gate.invocation)!r}: the run could not keep its "
            "evidence. Name a directory that can be written to with --vlm-report"
        )


def _check_report(gate: Gate) -> None:
    """Refuses a report in the place of the baseline: whatever it says, the next run would be compared with this one."""
    from pytest_vlmrobust.store.database import FILE_NAME

    settings = gate.settings
    if not settings.vlm_baseline or not settings.vlm_report:
        return
    baseline, report = gate.baseline_directory, gate.invocation / settings.vlm_report
    same = baseline.is_dir() and report.is_dir() and baseline.samefile(report)
    if same or any((baseline / name).resolve() == (report / name).resolve() for name in ("", FILE_NAME)):
        raise UsageError(
            f"--vlm-report {settings.vlm_report!r} would replace --vlm-baseline {settings.vlm_baseline!r}: a gate must not move "
            "its own bar. Name another directory with --vlm-report; --vlm-update-baseline replaces a baseline by a run of GO"
        )


def kept_elsewhere(gate: Gate) -> str:
    """Returns where the run is kept and why, for its header; an empty string where that is its store, or nothing is kept."""
    if gate.only_plans or gate.runs == gate.store_directory / RUNS:
        return ""
    return f"the store can only be read, so that this run is kept in {gate.run_directory}"
