"""What a run leaves beside its records, so that every verdict can be had again without models, pictures or data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pytest

from pytest_vlmrobust.core.cell import Cell

if TYPE_CHECKING:
    from pytest_vlmrobust.evaluation.docket import DocketTest
    from pytest_vlmrobust.policies import Policy

    from .gate import Gate


def write_docket(gate: Gate, policies: Mapping[str, Policy]) -> None:
    """Writes the docket of a run and the files of its policies; every process that measures writes the same.

    Raises:
        StoreError: they cannot be written.
    """
    from pytest_vlmrobust.evaluation.docket import Docket

    asked = {planned.dataset for planned in gate.plan}
    Docket(
        today=gate.today,
        models=gate.models,
        policies=policies,
        tests=tuple(_test(gate, item) for item in gate.items),
        reference=gate.reference,
        tasks={name: task for name, task in gate.data.tasks.items() if name in asked},
        baseline=gate.baseline is not None,
    ).write(gate.run_directory)


def keep_baseline(gate: Gate) -> None:
    """Copies the evidence of the run that this one is compared with: by the end, another one may be in its place.

    Raises:
        StoreError: it cannot be copied.
    """
    from pytest_vlmrobust.store.docket import BASELINE

    if gate.baseline is not None:
        gate.baseline.evidence.copy_to(gate.run_directory / BASELINE)


def _test(gate: Gate, item: pytest.Item) -> DocketTest:
    from pytest_vlmrobust.evaluation.docket import DocketTest

    from .collection import FIXTURES, settings_of

    params = getattr(item, "callspec").params  # noqa: B009 - not declared on Item
    about = next(params[name] for name in FIXTURES if name in params)
    settings = () if isinstance(about, Cell) else settings_of(gate, item, about.dataset, about.split)
    return DocketTest(item.nodeid, about, settings)
