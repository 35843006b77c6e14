"""Runs: what earlier runs of a store left on disk, and how fast they were."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from pytest_vlmrobust.core.record import Record
from pytest_vlmrobust.store.journal import FILE_NAME


@dataclass(frozen=True, slots=True)
class Rate:
    """How long an answer took, perturbing included, in one process."""

    seconds: float
    """For each answer: the median over cells, so that the one that waited for weights to load counts little."""
    cells: int
    """How many cells it was measured in."""
    run: str
    dataset: str
    """The data set of those cells."""


def newest_runs(places: Iterable[Path]) -> list[Path]:
    """Returns the directories of runs that have a journal, the newest first: by the time in their names, then by its change.

    Args:
        places: directories that hold one directory for each run; those that are not there hold none.
    """
    journals = (path for place in places for path in place.glob(f"*/{FILE_NAME}"))
    dated = sorted(journals, key=lambda path: (path.parent.name.rpartition("-")[0], path.stat().st_mtime_ns), reverse=True)
    return [path.parent for path in dated]


def measured_rate(runs: Iterable[tuple[str, Sequence[Record]]], model: str, dataset: str) -> Rate | None:
    """Returns how fast the newest run was that asked this model: about this data set, else about another; ``None`` without one.

    Only cells count of which every answer was inferred while nothing else was.

    Args:
        runs: name and records of each run, the newest first.
        model: its name in test ids.
        dataset: likewise.
    """
    rates = [rate for name, records in runs for rate in _rates(name, records, model)]
    return next((rate for rate in rates if rate.dataset == dataset), next(iter(rates), None))


def _rates(run: str, records: Iterable[Record], model: str) -> list[Rate]:
    found: dict[str, list[float]] = {}
    for record in records:
        alone = record.n_inferred == record.n_requested > 0 == record.n_recalled
        if record.test == "cell" and record.model == model and alone and record.seconds > 0.0:
            found.setdefault(record.dataset, []).append(record.seconds / record.n_inferred)
    return [Rate(median(each), len(each), run, dataset) for dataset, each in found.items()]
