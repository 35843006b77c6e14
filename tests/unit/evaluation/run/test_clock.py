"""What was made later than the clock of a machine says tells that the clock is behind."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pytest_vlmrobust.evaluation.run.clock import Clock

NOW = datetime.now(UTC)


def changed(path: Path, ahead: timedelta) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    time = (datetime.now(UTC) + ahead).timestamp()
    os.utime(path, (time, time))
    return path


def clock(folder: Path) -> Clock:
    return Clock.of([folder / "runs"], folder, [folder / "policy.yaml", folder / "gone.yaml"])


@pytest.mark.parametrize("ahead", [-timedelta(days=400), timedelta(0), timedelta(hours=20)])
def test_files_as_old_as_they_usually_are_say_nothing(tmp_path: Path, ahead: timedelta) -> None:
    changed(tmp_path / "policy.yaml", ahead)
    changed(tmp_path / "predictions.sqlite", min(ahead, timedelta(minutes=2)))
    (tmp_path / "runs" / "notes").mkdir(parents=True)
    (tmp_path / "runs" / "99999999-999999-abcdef01").mkdir()
    read = clock(tmp_path)
    assert not read.behind
    assert read.latest == read.today


@pytest.mark.parametrize("name", ["policy.yaml", "predictions.sqlite", "predictions.sqlite-wal", "run"])
def test_what_was_made_later_is_named(tmp_path: Path, name: str) -> None:
    ahead = timedelta(days=7)
    if name == "run":
        path = tmp_path / "runs" / f"{datetime.now(UTC) + ahead:%Y%m%d-%H%M%S}-abcdef01"
        path.mkdir(parents=True)
    else:
        path = changed(tmp_path / name, ahead)
    read = clock(tmp_path)
    assert str(path) in read.behind
    assert (read.latest - read.today).days in (7, 8)


def test_the_day_is_that_of_universal_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    for zone in ("XXX+24", "XXX-24"):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        assert clock(tmp_path).today == datetime.now(UTC).date()
    monkeypatch.undo()
    time.tzset()
