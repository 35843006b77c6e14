"""Every registered metric holds what it claims on this installation, one of your own included: no model, no data.

`test_metric` checks formulas, `test_interval` how sure they claim to be, and `test_verdict` the verdicts on them, on scores that
Hypothesis or a seeded generator makes up, always the same ones. A check that fails makes the whole run fail, whatever the gate
decides: that metric's numbers are not to be trusted.

A metric of your own is checked in full in every run, each check being a test. The metrics of the package are tried in its own
tests with as many examples; here it is the installation that is tried: each check on a quarter of the examples, and all checks
of a test function together, `test_metric[accuracy_drop-all]`. Once they pass they are remembered in the store, and skipped with
that reason until the package, Python, NumPy, SciPy or the machine changes.

`--hypothesis-profile=vlm-thorough`, or `VLMROBUST_PROFILE=vlm-thorough` in the environment, tries many more examples than the
default `vlm-fast`, of every metric, remembers nothing, and makes each check a test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pytest

from pytest_vlmrobust import metrics
from pytest_vlmrobust.testing import INTERVALS, LAWS, PROPERTIES, Property, check_metric, checks_of, examples_of, unclaimed
from pytest_vlmrobust.testing.properties import EXAMPLES_SHARE, CheckMemory, is_shipped, is_thorough

ALL = "all"
"""Stands for all checks of a test function, of a metric of the package."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Makes a test for each check of a metric of your own, and one for all checks of a metric of the package."""
    thorough = is_thorough(metafunc.config.getoption("hypothesis_profile", None))
    checks = CHECKS_OF[metafunc.function.__name__]
    metafunc.parametrize(("metric", "check"), list(_pairs(checks, thorough=thorough)))


def _pairs(checks: Mapping[str, Property], *, thorough: bool) -> Iterator[tuple[str, str]]:
    for name in metrics.names():
        if is_shipped(name) and not thorough:
            yield name, ALL
        else:
            yield from ((name, check) for check in checks_of(name) if check in checks)


@pytest.fixture
def hold(request: pytest.FixtureRequest, vlm_check_memory: CheckMemory) -> Callable[[str, str], None]:
    """Makes one check, or all of a test function, and skips what the record of the metric does not claim."""
    test = request.function.__name__
    examples = examples_of(request.config.getoption("hypothesis_profile", None))

    def hold_one(metric: str, check: str) -> None:
        __tracebackhide__ = True
        if check == ALL:
            hold_all(vlm_check_memory, test, metric, max(1, examples // EXAMPLES_SHARE))
        elif why := unclaimed(metric, check):
            pytest.skip(why)
        else:
            check_metric(metric, check=check, examples=examples)

    return hold_one


def hold_all(memory: CheckMemory, test: str, metric: str, examples: int) -> None:
    """Makes all checks of a test function, unless they passed before on this installation."""
    __tracebackhide__ = True
    if day := memory.passed(test, metric, examples):
        pytest.skip(f"remembered: passed on {day} with {memory.on}, as {memory.path} says")
    concerning = [check for check in checks_of(metric) if check in CHECKS_OF[test]]
    silent = [why for check in concerning if (why := unclaimed(metric, check))]
    if len(silent) == len(concerning):
        pytest.skip("; ".join(dict.fromkeys(silent)))
    for check in concerning:
        check_metric(metric, check=check, examples=examples)
    memory.remember(test, metric, examples)


def test_metric(metric: str, check: str, hold: Callable[[str, str], None]) -> None:
    """A formula holds a property, or all of them."""
    hold(metric, check)


def test_interval(metric: str, check: str, hold: Callable[[str, str], None]) -> None:
    """An interval holds a law, or all of them."""
    hold(metric, check)


def test_verdict(metric: str, check: str, hold: Callable[[str, str], None]) -> None:
    """Verdicts on a metric hold a law, or all of them."""
    hold(metric, check)


CHECKS_OF: dict[str, dict[str, Property]] = {"test_metric": PROPERTIES, "test_interval": INTERVALS, "test_verdict": LAWS}
"""What each test function checks."""
