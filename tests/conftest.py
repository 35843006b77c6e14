"""How the tests are shared out among workers, and the tables of numbers that they are held against."""

from __future__ import annotations

import csv
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

GOLDEN = Path(__file__).parent / "golden"

Rows = list[dict[str, str]]


def pytest_configure() -> None:
    """Lets Ctrl-C reach the tests and the processes that they start: what a shell starts in the background ignores it."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Lets an idle worker take tests from the other: the slow ones, which start processes, stand in a row."""
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log) if config.getoption("dist") == "load" else None


@pytest.fixture
def golden() -> Callable[[str], Rows]:
    """Reads ``tests/golden/metrics_<name>.csv``; lines that start with # say where it comes from."""

    def read(name: str) -> Rows:
        lines = (GOLDEN / f"metrics_{name}.csv").read_text(encoding="utf-8").splitlines()
        rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
        assert rows
        return rows

    return read
