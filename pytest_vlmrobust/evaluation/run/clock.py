"""The day by which a run judges waivers, and signs that the clock of its machine is behind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Self

from pytest_vlmrobust.store.database import FILE_NAME

FILES_AHEAD = timedelta(days=1)
"""How far ahead the time of a policy file may be: archives and some file systems use local time, up to 14 hours ahead of
UTC, and file servers have their own clocks."""
_STORE_AHEAD = timedelta(minutes=5)
"""How far ahead a run or a store may be; they are written in UTC."""
_NAME_OF_RUN = "%Y%m%d-%H%M%S"


def utc_today() -> date:
    """Returns the date by universal time, which no time zone of a machine changes."""
    return datetime.now(UTC).date()


@dataclass(frozen=True, slots=True)
class Clock:
    """The UTC date of a run, and any sign of files from a later time."""

    today: date
    latest: date
    """The latest date of the run's files, at least ``today``."""
    behind: str = ""
    """A sentence with the sign that the clock is behind; empty without a sign."""

    @classmethod
    def of(cls, runs: Iterable[Path], store: Path, policies: Iterable[Path]) -> Self:
        """Compares the clock with the times of earlier files."""
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
    """Returns the modification time of a file; ``None`` without a file or a valid time."""
    try:
        return datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except (OSError, ValueError, OverflowError):
        return None
