"""Tests from marks: one per cell, one per summary metric; always the same, in the same order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest

from pytest_vlmrobust.core.errors import UsageError, VlmRobustError

from .session import ids_of, usage_error
from .stash import GATE

if TYPE_CHECKING:
    from pytest_vlmrobust.core.cell import Cell, SweepMetric

    from .session import Gate

NO_MODEL = (
    "these suites gate a vision-language model, and none was named. Say which with --vlm=NAME; "
    "--vlm=tiny runs the embedded reference model, offline, in a few minutes on a CPU"
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrises tests that ask for ``vlm_cell`` or ``vlm_sweep``."""
    fixture = next((name for name in ("vlm_cell", "vlm_sweep") if name in metafunc.fixturenames), None)
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
    metafunc.parametrize(fixture, planned, ids=ids_of(planned), indirect=True)


def plan(gate: Gate, definition: pytest.Item, fixture: str) -> Sequence[Cell | SweepMetric]:
    """Returns what a test function is about.

    Raises:
        UsageError: no model, a test without marks, or a name in a mark that is not known.
    """
    if not gate.settings.vlm:
        raise UsageError(NO_MODEL)
    from pytest_vlmrobust import metrics
    from pytest_vlmrobust.evaluation.plan import expand_settings, plan_cells, plan_sweeps

    models, datasets = list(gate.models), list(gate.datasets)
    wanted = marked(definition, "vlm_settings")
    settings = {dataset: expand_settings(wanted, gate.native_long_edge(dataset)) for dataset in datasets}
    if fixture == "vlm_cell":
        return plan_cells(models, settings)
    names = marked(definition, "vlm_metrics")
    for name in names:
        metrics.get(name)
    return plan_sweeps(models, datasets, names)


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
    if gate.refused is not None:
        if gate.controls:
            raise usage_error(gate.refused) from None
        items.clear()  # a worker cannot refuse: it runs nothing, and tells its controller
    gate.selected = sum(is_gated(item) for item in items)


def is_gated(item: pytest.Item) -> bool:
    """Whether a test is one of the gate's."""
    return bool({"vlm_cell", "vlm_sweep"} & set(getattr(item, "fixturenames", ())))
