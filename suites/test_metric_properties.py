"""Every registered metric holds what it claims on this installation, one of your own included: no model, no data.

`test_metric` checks formulas, `test_interval` how sure they claim to be, and `test_verdict` the verdicts on them, on scores that
Hypothesis or a seeded generator makes up, always the same ones.
`--hypothesis-profile=vlm-thorough`, or `VLMROBUST_PROFILE=vlm-thorough` in the environment, tries many more of them than the
default `vlm-fast`. A check that fails makes the whole run fail, whatever the gate decides: that metric's numbers are not to be
trusted.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from pytest_vlmrobust import metrics
from pytest_vlmrobust.testing import INTERVALS, LAWS, PROPERTIES, check_metric, checks_of, examples_of, unclaimed


def every_metric(checks: Iterable[str]) -> pytest.MarkDecorator:
    """Parametrises a test by metric and by check."""
    chosen = set(checks)
    pairs = [(name, check) for name in metrics.names() for check in checks_of(name) if check in chosen]
    return pytest.mark.parametrize(("metric", "check"), pairs)


@pytest.fixture(scope="module")
def examples(pytestconfig: pytest.Config) -> int:
    """How many made-up scores each check tries."""
    return examples_of(pytestconfig.getoption("hypothesis_profile", None))


@every_metric(PROPERTIES)
def test_metric(metric: str, check: str, examples: int) -> None:
    """A formula holds a property."""
    hold(metric, check, examples)


@every_metric(INTERVALS)
def test_interval(metric: str, check: str, examples: int) -> None:
    """An interval holds a law."""
    hold(metric, check, examples)


@every_metric(LAWS)
def test_verdict(metric: str, check: str, examples: int) -> None:
    """Verdicts on a metric hold a law."""
    hold(metric, check, examples)


def hold(metric: str, check: str, examples: int) -> None:
    """Makes one check, or skips it and says what the record of the metric does not claim."""
    __tracebackhide__ = True
    if why := unclaimed(metric, check):
        pytest.skip(why)
    check_metric(metric, check=check, examples=examples)
