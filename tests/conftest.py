"""Tests of many cases, how tests are collected and shared out among workers, and the tables that they are held against."""

from __future__ import annotations

import csv
import gc
import inspect
import itertools
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

GOLDEN = Path(__file__).parent / "golden"

Rows = list[dict[str, str]]


def pytest_configure() -> None:
    """Makes the tests the same wherever they run.

    Ctrl-C reaches them and the processes that they start: what a shell starts in the background ignores it. CI, in which pytest
    shortens nothing and a baseline does not move, is set only by the tests about it.
    """
    for name in ("CI", "BUILD_NUMBER"):  # the two that pytest reads
        os.environ.pop(name, None)
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as in a gate: threads of torch do not spin
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collects without garbage collection, which walks all modules and tests again and again and drops none of them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Lets an idle worker take tests from the other: the slow ones, which start processes, stand in a row."""
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log) if config.getoption("dist") == "load" else None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Gives a test its first case, so that pytest knows these arguments are no fixtures."""
    for mark in metafunc.definition.iter_markers("cases"):
        names, values = mark.args
        if not (first := [*values][:1]):
            raise ValueError(f"{metafunc.definition.nodeid}: expected cases of {names}, got none")
        metafunc.parametrize(names, first, ids=[pytest.HIDDEN_PARAM])


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> object:
    """Runs a test of many cases on each of them. All cases run; each failure names its case."""
    if not (marks := [*pyfuncitem.iter_markers("cases")]):
        return None
    fixtures = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    count = 0
    failures: list[BaseException] = []
    for parts in itertools.product(*(_cases(*mark.args) for mark in marks)):
        case = {name: value for part in parts for name, value in part.items()}
        count += 1
        try:
            pyfuncitem.obj(**{**fixtures, **case})
        except pytest.skip.Exception as skipped:
            failures.append(AssertionError(f"a case skips, which would hide it: {skipped}"))
        except (Exception, pytest.fail.Exception) as failure:  # noqa: BLE001 - whatever it is, the other cases run
            failures.append(failure)
        else:
            continue
        failures[-1].add_note("case: " + ", ".join(f"{name}={value!r:.200}" for name, value in case.items()))
    assert count, "there is no case"
    if failures:
        raise failures[0] if len(failures) == 1 else BaseExceptionGroup(f"{len(failures)} of {count} cases fail", failures)
    return True


def _cases(names: str | tuple[str, ...], values: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """Yields the arguments of each case of ``@pytest.mark.cases(names, values)``, which is written like ``parametrize``."""
    split = [name.strip() for name in names.split(",")] if isinstance(names, str) else [*names]
    for value in values:
        yield {split[0]: value} if len(split) == 1 else dict(zip(split, value, strict=True))


@pytest.fixture
def golden() -> Callable[[str], Rows]:
    """Reads ``tests/golden/metrics_<name>.csv``; lines that start with # say where it comes from."""

    def read(name: str) -> Rows:
        lines = (GOLDEN / f"metrics_{name}.csv").read_text(encoding="utf-8").splitlines()
        rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
        assert rows
        return rows

    return read
