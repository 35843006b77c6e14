"""Ending: how pytest came to its end, and whose exit code stands: its own, or that of the gate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.record import CHECK

if TYPE_CHECKING:
    from .gate import Gate

_SHOWING = ("collectonly", "setupplan", "showfixtures", "show_fixtures_per_test", "cacheshow")
"""Options with which pytest runs no test, for it shows something else."""
_LIMITS = {"maxfail": "stopping after", "stepwise": "Test failed, continuing"}
"""Options that end pytest at a failure, and how it then says why: under xdist, and with ``--sw``, it calls that interrupted."""
_BLOCKING = (Outcome.FAIL, Outcome.INCONCLUSIVE, Outcome.ERROR)


def only_shows(config: pytest.Config) -> bool:
    """Whether pytest was only asked what there is, such as its fixtures: then nothing is to be gated."""
    return any(config.getoption(name, default=False) for name in _SHOWING)


def status_of(session: pytest.Session, gate: Gate, exitstatus: int) -> int:
    """Returns the exit code of pytest, as it is without xdist where a number of failures ended it: tests failed.

    What else ended it, and no record tells of, is noted on the gate, so that no report says GO beside a failure.
    """
    limits = [said for option, said in _LIMITS.items() if session.config.getoption(option, default=False)]
    if exitstatus == pytest.ExitCode.INTERRUPTED and session.testsfailed and any(said in gate.stopped for said in limits):
        gate.stopped = ""  # the failure has a record, and the tests that are missing are counted
        return pytest.ExitCode.TESTS_FAILED
    told = exitstatus == pytest.ExitCode.OK or (exitstatus == pytest.ExitCode.TESTS_FAILED and _told(session, gate))
    if not gate.stopped and not told:
        gate.stopped = f"pytest ended with exit code {int(exitstatus)}, and no test says why"
    return exitstatus


def gate_decides(session: pytest.Session, gate: Gate, status: int) -> bool:
    """Whether the exit code is that of the gate's decision: only where nothing but verdicts made tests fail."""
    failed_by_verdicts = status == pytest.ExitCode.TESTS_FAILED and _told(session, gate) and not _beside(gate)
    return status == pytest.ExitCode.OK or failed_by_verdicts


def _told(session: pytest.Session, gate: Gate) -> bool:
    """Whether the records tell of every test that failed."""
    return _beside(gate) or session.testsfailed <= sum(record.outcome in _BLOCKING for record in gate.records)


def _beside(gate: Gate) -> bool:
    return any(record.test == CHECK for record in gate.records)
