"""Test-only configuration: pytest inside pytest, Hypothesis profiles, and which tests run."""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest
from hypothesis import settings

pytest_plugins = ["pytester"]

settings.register_profile("default", deadline=None, max_examples=40, derandomize=True)
settings.register_profile("thorough", deadline=None, max_examples=500)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


COSTLY = ("study", "process", "browser", "slow")
"""Marks that say why a test takes long."""
BY_FLAG = ("study", "slow")
MOST_SECONDS = 0.5
"""Processor time of a test without such a mark, under ``--strict-time``."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--run-slow", action="store_true", help="also run the tests marked slow or study")
    parser.addoption(
        "--strict-time",
        action="store_true",
        help=f"fail tests that take more than {MOST_SECONDS} s of processor time without a mark that says why",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker("browser")
        if not config.getoption("--run-slow") and (mark := next((name for name in BY_FLAG if item.get_closest_marker(name)), "")):
            item.add_marker(pytest.mark.skip(reason=f"{mark}: run with --run-slow"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Under ``--strict-time``, fails a test that takes long and does not say why. By hand: machines differ."""
    before = sum(os.times()[:4])
    result = yield
    seconds = sum(os.times()[:4]) - before
    if item.config.getoption("--strict-time") and seconds > MOST_SECONDS and not any(map(item.get_closest_marker, COSTLY)):
        pytest.fail(f"took {seconds:.2f} s of processor time, at most {MOST_SECONDS} expected: mark it {', '.join(COSTLY)}")
    return result
