"""Rerun: the tests of the last run that ended with one kind of verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import pytest

from pytest_vlmrobust.core.errors import UsageError

from .options import RERUN
from .places import RUNS

if TYPE_CHECKING:
    from pytest_vlmrobust.core.record import Record

    from .gate import Gate


@dataclass(frozen=True, slots=True)
class Rerun:
    """Which tests run again; the same for all workers, for it is their controller that looks."""

    verdicts: str
    """As asked for: ``failed``, ``errors`` or ``inconclusive``."""
    run: str
    """The name of the earlier run."""
    nodeids: tuple[str, ...]
    """Its tests with that verdict."""
    ended: str
    """How its tests ended: ``2 FAIL, 6 PASS``."""

    def __str__(self) -> str:
        found = f"{len(self.nodeids)} tests to run again" if self.nodeids else "nothing to run again"
        return f"--vlm-rerun {self.verdicts}: {found} of run {self.run} ({self.ended})"

    def choose(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leaves only those tests among ``items``."""
        wanted = set(self.nodeids)
        left_out = [item for item in items if item.nodeid not in wanted]
        items[:] = [item for item in items if item.nodeid in wanted]
        if left_out:
            config.hook.pytest_deselected(items=left_out)

    def to_worker(self) -> dict[str, Any]:
        """Returns itself as what xdist sends."""
        return asdict(self)

    @classmethod
    def at_worker(cls, sent: dict[str, Any]) -> Rerun | None:
        """Reads what :meth:`to_worker` returned; an empty dictionary stands for none."""
        return cls(**{**sent, "nodeids": tuple(sent["nodeids"])}) if sent else None


def find_rerun(gate: Gate) -> Rerun | None:
    """Returns what ``--vlm-rerun`` asks for; ``None`` without it.

    Raises:
        UsageError: the store has no earlier run about the models of this one.
        StoreError: its records cannot be read.
    """
    verdicts = gate.settings.vlm_rerun
    if not verdicts:
        return None
    from pytest_vlmrobust.evaluation.runs import newest_runs
    from pytest_vlmrobust.store import last_records

    for directory in newest_runs(gate.earlier_runs):
        records = last_records(directory)
        if about(gate, records):  # this run has no journal yet
            ended = Counter(str(record.outcome) for record in records)
            said = ", ".join(f"{count} {outcome}" for outcome, count in sorted(ended.items()))
            chosen = tuple(one.nodeid for one in records if one.outcome is RERUN[verdicts] and one.nodeid)
            return Rerun(verdicts, directory.name, chosen, said)
    places = " or ".join(str(place.parent if place.name == RUNS else place) for place in gate.earlier_runs)
    raise UsageError(
        f"--vlm-rerun {verdicts}: {places} has no earlier run about {', '.join(gate.models)}. "
        "Run once without --vlm-rerun, or name the store of that run with --vlm-store"
    )


def about(gate: Gate, records: Iterable[Record]) -> bool:
    """Whether records are about a model of this run."""
    return any(record.model in gate.models for record in records)
