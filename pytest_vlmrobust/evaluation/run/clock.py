"""The day by which a run judges waivers, and signs that the clock of its machine is behind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Self

from pytest_vlmrobust.store.database import FILE_NAME

FILES_AHEAD = timedelta(days=1)
"""How far ahead the time of a policy file may be: archives and some file systems keep local time, up to 14 hours ahead of
universal time, and servers of shared file systems have clocks of their own."""
_STORE_AHEAD = timedelta(minutes=5)
"""How far ahead a run or a store may be: they were written by clocks like this one."""
_NAME_OF_RUN = "%Y%m%d-%H%M%S"


def utc_today() -> date:
    """Returns the date by universal time, which no time zone of a machine changes."""
    return datetime.now(UTC).date()


@dataclass(frozen=True, slots=True)
class Clock:
    """The date of a run by universal time, and what was made at a later time than its machine shows."""

    today: date
    latest: date
    """The last day on which something of the run was made; ``today`` where nothing is of a later day."""
    behind: str = ""
    """What says that the clock of the machine is behind, as a sentence; empty where nothing does."""

    @classmethod
    def of(cls, runs: Iterable[Path], store: Path, policies: Iterable[Path]) -> Self:
        """Holds the clock of this machine against what was made before this run."""
        now = datetime.now(UTC)
        made = [(*newest, _STORE_AHEAD) for newest in (_newest_run(runs), _newest_answers(store)) if newest is not None]
        made += [(time, path, FILES_AHEAD) for path in policies if (time := _changed(path)) is not None]
        ahead = [(time, path) for time, path, tolerated in made if time - now > tolerated]
        if not ahead:
            return cls(now.date(), now.date())
        time, path = max(ahead)
        return cls(
            now.date(),
            time.date(),
            f"the clock of this machine says {now:%Y-%m-%d %H:%M}, and {path} was made at {time:%Y-%m-%d %H:%M} (UTC): set the "
            f"clock, or correct the time of what is wrong. Waivers that end before {time.date()} waive nothing until then",
        )


def _newest_run(places: Iterable[Path]) -> tuple[datetime, Path] | None:
    """Returns the newest run by its name, which is the time of its start."""
    return max(
        ((time, run) for place in places if place.is_dir() for run in place.iterdir() for time in _started(run)), default=None
    )


def _started(run: Path) -> Iterator[datetime]:
    try:
        yield datetime.strptime(run.name.rpartition("-")[0], _NAME_OF_RUN).replace(tzinfo=UTC)
    except ValueError:
        return  # no run


def _newest_answers(store: Path) -> tuple[datetime, Path] | None:
    files = [store / f"{FILE_NAME}{ending}" for ending in ("", "-wal")]
    return max(((time, path) for path in files if (time := _changed(path)) is not None), default=None)


def _changed(path: Path) -> datetime | None:
    """Returns when a file was last changed; ``None`` where there is none, or its time is none."""
    try:
        return datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except (OSError, ValueError, OverflowError):
        return None
