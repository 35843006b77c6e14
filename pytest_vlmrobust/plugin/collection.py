"""Tests from marks: one per cell, one per summary metric; always the same, in the same order."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING

import pytest

from pytest_vlmrobust.core.errors import UnknownName, UsageError, VlmRobustError

from .baselines import refuse_other_seed
from .conditions import refuse_unknown_scopes
from .session import ids_of, usage_error
from .stash import GATE

if TYPE_CHECKING:
    from pytest_vlmrobust.core.cell import Planned, Setting

    from .gate import Gate

FIXTURES = ("vlm_cell", "vlm_sweep", "vlm_family")
NO_MODEL = (
    "these suites gate a vision-language model, and none was named. Say which with --vlm=NAME; "
    "--vlm=tiny runs the embedded reference model, offline, in a few minutes on a CPU"
)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Notes which classes are collected, and which a test id such as ``FILE::TestOne`` leaves out."""
    report = yield
    gate = collector.config.stash[GATE]
    gate.collected.add(collector.nodeid)
    gate.left_out.pop(collector.nodeid, None)
    classes = [node for node in report.result or () if isinstance(node, pytest.Class)]
    gate.left_out |= {node.nodeid: node for node in classes if node.nodeid not in gate.collected}
    return report


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrises tests that ask for ``vlm_cell``, ``vlm_sweep`` or ``vlm_family``."""
    fixture = next((name for name in FIXTURES if name in metafunc.fixturenames), None)
    if fixture is None:
        return
    gate = metafunc.config.stash[GATE]
    try:
        planned = plan(gate, metafunc.definition, fixture)
    except VlmRobustError as error:
        gate.refused = gate.refused or error
        planned = []
    gate.plan += planned
    gate.planned += len(planned)
    if not planned:
        gate.idle.add(metafunc.definition.nodeid)
    metafunc.parametrize(fixture, planned, ids=ids_of(planned), indirect=True)


def plan(gate: Gate, definition: pytest.Item, fixture: str) -> Sequence[Planned]:
    """Returns what a test function is about; nothing where the run has no data, or no models, of the kind it is about.

    Raises:
        UsageError: no model, a test without marks, or a name in a mark that is not known.
    """
    if not gate.settings.vlm:
        raise UsageError(NO_MODEL)
    from pytest_vlmrobust.evaluation.run.plan import plan_cells, plan_families, plan_sweeps

    models, datasets = gate.models, data_of(gate, definition)
    if fixture == "vlm_cell":
        wanted = marked(definition, "vlm_settings")
        return plan_cells(list(models), {dataset: gate.expanded(wanted, dataset) for dataset in datasets})
    names, splits = marked(definition, "vlm_metrics"), splits_of(definition)
    if fixture == "vlm_family":
        return plan_families(models, datasets, names, splits)
    for dataset in datasets:
        settings_of(gate, definition, dataset, splits[0])  # misspelt ones are said now
    return plan_sweeps(models, datasets, names, splits, baseline=gate.baseline is not None)


def data_of(gate: Gate, definition: pytest.Item) -> list[str]:
    """Returns the data sets that a test function is about: those its tasks make of collections, else those of questions.

    Raises:
        UnknownName: a task that does not exist.
    """
    tasks = [str(name) for found in definition.iter_markers("vlm_tasks") for name in found.args]
    if not tasks:
        return list(gate.data.questions)
    from pytest_vlmrobust.evaluation.tasks import TASKS

    for task in tasks:
        if task not in TASKS:
            raise UnknownName("task", task, TASKS, where=definition.nodeid)
    return list(gate.data.of_tasks(tasks))


def splits_of(definition: pytest.Item) -> list[str]:
    """Returns the sets of settings that summary metrics are taken over one by one; one empty name where they take all in one."""
    return [str(name) for found in definition.iter_markers("vlm_splits") for name in found.args] or [""]


def settings_of(gate: Gate, definition: pytest.Item, dataset: str, split: str) -> tuple[Setting, ...]:
    """Returns the settings that a summary metric is taken over: those of its split, else those of the test's mark.

    Raises:
        UsageError: neither is marked, or a name in a mark is not known.
    """
    return gate.expanded([split] if split else marked(definition, "vlm_settings"), dataset)


def marked(definition: pytest.Item, mark: str) -> list[str]:
    """Returns the arguments of a test's marks of one name.

    Raises:
        UsageError: the test has no such mark, or one without arguments.
    """
    names = [str(name) for found in definition.iter_markers(mark) for name in found.args]
    if not names:
        raise UsageError(f"{definition.nodeid}: the test lacks @pytest.mark.{mark}(...), which says what it is about")
    return names


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Refuses what could not be planned, and counts what was selected."""
    gate = config.stash[GATE]
    if any(map(is_gated, items)):
        plan_left_out(gate)
    if gate.plan and gate.refused is None:
        try:
            refuse_unknown_scopes(gate)
            refuse_other_seed(gate, [item for item in items if is_gated(item) and not is_idle(gate, item)])
        except VlmRobustError as error:
            gate.refused = error
    if gate.refused is not None:
        if gate.controls:
            gate.refused_here = True
            raise usage_error(gate.refused) from None
        items.clear()  # a worker cannot refuse: it runs nothing, and tells its controller
    items[:] = [item for item in items if not is_idle(gate, item)]
    if gate.rerun is not None:
        gate.rerun.choose(config, items)
    gate.items = [item for item in items if is_gated(item)]
    gate.selected = len(gate.items)
    gate.data_notes = gate.data.notes(dict.fromkeys(about(item).dataset for item in gate.items)) if gate.items else []


def plan_left_out(gate: Gate) -> None:
    """Plans the tests of classes that no argument names, as pytest itself does with functions: a part of a file is a part."""
    while gate.left_out:
        node = next(iter(gate.left_out.values()))
        report = node.ihook.pytest_make_collect_report(collector=node)
        if report.failed:
            gate.narrowed = gate.narrowed or f"a test id (of a file whose {node.name} cannot be collected)"


def about(item: pytest.Item) -> Planned:
    """Returns what a gated test is about."""
    params = getattr(item, "callspec").params  # noqa: B009 - not declared on Item
    planned: Planned = next(params[name] for name in FIXTURES if name in params)
    return planned


def is_idle(gate: Gate, item: pytest.Item) -> bool:
    """Whether a test is of a function that the run has nothing for."""
    return item.nodeid.partition("[")[0] in gate.idle


def is_gated(item: pytest.Item) -> bool:
    """Whether a test is one of the gate's."""
    return bool(set(FIXTURES) & set(getattr(item, "fixturenames", ())))
