"""How the tests are shared out among workers."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Lets an idle worker take tests from the other: the slow ones, which start processes, stand in a row."""
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log) if config.getoption("dist") == "load" else None
