"""Planning: what the run would do, said before any weights load, and nothing of it done."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pytest

from pytest_vlmrobust.core.errors import VlmRobustError

from .docket import lacking
from .stash import GATE

if TYPE_CHECKING:
    from pytest_vlmrobust.core.cell import Cell
    from pytest_vlmrobust.evaluation.run.evidence import Rate
    from pytest_vlmrobust.evaluation.run.plan import Forecast

    from .gate import Gate

_HEADER = ("model", "dataset", "cells", "samples", "forward passes", "in the store", "to infer", "time", "prompt tokens")
_NAMES = 2
UNKNOWN = "not known"
_MINUTE, _HOUR, _KIB, _MIB, _GIB = 60.0, 3600.0, 2**10, 2**20, 2**30


def without_workers(config: pytest.Config) -> None:
    """Makes this process plan alone: workers of xdist would each plan the same, and their controller knows no tests."""
    if hasattr(config.option, "tx"):
        config.option.dist, config.option.tx, config.option.numprocesses = "no", [], 0


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Prints the plan in place of running tests, where that was asked for."""
    gate = session.config.stash[GATE]
    if not gate.only_plans or session.testsfailed:
        return None
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        reporter.section("plan of the vision-language model gate", "=")
        writer = session.config.get_terminal_writer()
        width = writer.fullwidth if writer.hasmarkup else max(160, writer.fullwidth)
        reporter.write(plan_text(gate, session.items, width=width, color=writer.hasmarkup))
    return True


def plan_text(gate: Gate, items: Iterable[pytest.Item], *, width: int, color: bool) -> str:
    """Returns the plan of the gated tests among ``items``: a line for each model and data set, then what stands behind it."""
    from pytest_vlmrobust.evaluation.run.evidence import measured_rate, newest_runs
    from pytest_vlmrobust.evaluation.run.plan import forecasts
    from pytest_vlmrobust.reporting.writing import render_table
    from pytest_vlmrobust.store import last_records

    cells = cells_of(gate, items)
    runs = [(path.name, last_records(path)) for path in newest_runs(gate.earlier_runs)]
    try:
        found = forecasts(gate.unwitnessed, cells, partial(measured_rate, runs))
    except VlmRobustError as error:
        return f"cannot be planned: {error}\n"
    table = render_table(_HEADER, [_row(one) for one in found], names=_NAMES, width=width, color=color) if found else ""
    return table + "".join(f"{line}\n" for line in _explained(gate, found))


def cells_of(gate: Gate, items: Iterable[pytest.Item]) -> list[Cell]:
    """Returns the cells that tests need, each once, in the order in which they will be asked for."""
    from pytest_vlmrobust.core.cell import Cell
    from pytest_vlmrobust.evaluation.judge.required_cells import needed_cells

    from .collection import FIXTURES, settings_of

    found: dict[Cell, None] = {}
    for item in items:
        params = getattr(item, "callspec", None)
        planned = next((params.params[name] for name in FIXTURES if name in params.params), None) if params else None
        if planned is not None:
            settings = () if isinstance(planned, Cell) else settings_of(gate, item, planned.dataset, planned.split)
            found |= dict.fromkeys(needed_cells(planned, settings, gate.models, gate.data, gate.reference, gate.attempts_of))
    return list(found)


def _row(one: Forecast) -> tuple[str, ...]:
    time = duration(one.missing * one.rate.seconds) if one.rate else UNKNOWN
    tokens = f"{one.missing * one.tokens.prompt:,.0f}" if one.tokens else UNKNOWN
    held = UNKNOWN if one.held is None else f"{one.held:,}"
    counts = (f"{one.cells:,}", f"{one.samples:,}", f"{one.passes:,}", held, f"{one.missing:,}")
    return one.model, one.dataset, *counts, time, tokens


def _explained(gate: Gate, found: Sequence[Forecast]) -> list[str]:
    """Returns what the numbers of the plan rest on, and what nobody knows."""
    from .collection import about

    tests = f"{gate.selected} of {gate.planned} gated tests; nothing was asked, and a plan is never GO: exit code 5"
    passes, missing = sum(one.passes for one in found), sum(one.missing for one in found)
    lines = [f"in all {passes:,} forward passes, {missing:,} of them at most to infer", *_unrendered(found)]
    alike: dict[str, list[str]] = {}
    for one in found:
        alike.setdefault(_behind(one), []).append(f"{one.model}-{one.dataset}")
    lines += [f"{names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}: {said}" for said, names in alike.items()]
    if any(one.dataset in gate.data.tasks for one in found):
        lines.append("fewer passes where a model is not shown to do a task on the original pictures: its settings are not asked")
    lines += [f"nothing is asked: {why}" for why in lacking(gate, {about(item).dataset for item in gate.items}).values()]
    lines += [f"warning: {note}" for note in gate.data_notes]
    if gate.settings.vlm_patch_stop:
        lines.append("fewer passes of patches, for --vlm-patch-stop ends a sample at its first right one")
    return [*lines, _disk(gate, passes, missing), tests]


def _unrendered(found: Iterable[Forecast]) -> list[str]:
    count = sum(one.unrendered for one in found)
    if not count:
        return []
    return [f"{count:,} views were never made with this store: fewer are inferred should some give pixels that it has answers to"]


def _behind(one: Forecast) -> str:
    said = [_of_rate(one.rate, one.dataset)]
    if one.tokens:
        visual = f", {one.tokens.visual:.0f} of them visual" if one.tokens.visual is not None else ""
        said.append(f"{one.tokens.prompt:.0f} prompt tokens an answer{visual} (mean of {one.tokens.answers} stored answers)")
    else:
        said.append("no stored answer of it says how many tokens it took")
    return "; ".join([*said, *([f"what the store holds is not known: {one.problem}"] if one.problem else [])])


def _of_rate(rate: Rate | None, dataset: str) -> str:
    if rate is None:
        return "no rate is known: no earlier run of this store measured one"
    where = "" if rate.dataset == dataset else f" on {rate.dataset}"
    return f"{rate.seconds:.3g} s an answer in one process{where} (median of {rate.cells} cells of run {rate.run})"


def _disk(gate: Gate, passes: int, missing: int) -> str:
    """Returns how much room the answers take, at the size of those that are there: in the store, and as evidence of the run."""
    store = gate.unwitnessed.store
    free = f"{size(shutil.disk_usage(gate.store_directory).free)} are free at {gate.store_directory}"
    if not len(store):
        return f"disk: not known, for the store holds no answer yet to go by; {free}"
    each = store.path.stat().st_size / len(store)
    return f"disk: about {size((passes + missing) * each)} ({size(each)} an answer in the store, and as much as evidence); {free}"


def duration(seconds: float) -> str:
    """Returns a time as people say it.

    >>> duration(4.2), duration(190), duration(9000)
    ('5 s', '4 min', '2.5 h')
    """
    if seconds < 2 * _MINUTE:
        return f"{-(-seconds // 1):.0f} s"
    return f"{-(-seconds // _MINUTE):.0f} min" if seconds < 2 * _HOUR else f"{seconds / _HOUR:.1f} h"


def size(count: float) -> str:
    """Returns a number of bytes as people say it.

    >>> size(700), size(3_000_000)
    ('700 B', '2.9 MiB')
    """
    for unit, name in ((_GIB, "GiB"), (_MIB, "MiB"), (_KIB, "KiB")):
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count:.0f} B"
