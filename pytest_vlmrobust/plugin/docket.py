"""What a run leaves beside its records, so that every verdict can be had again without models, pictures or data."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import pytest

from pytest_vlmrobust.core.cell import Cell
from pytest_vlmrobust.core.errors import VlmRobustError

if TYPE_CHECKING:
    from pytest_vlmrobust.evaluation.after.docket import DocketTest
    from pytest_vlmrobust.policies import Policy

    from .gate import Gate


def write_docket(gate: Gate, policies: Mapping[str, Policy]) -> None:
    """Writes the docket of a run and the files of its policies; every process that measures writes the same.

    Raises:
        StoreError: they cannot be written.
    """
    from pytest_vlmrobust.evaluation.after.docket import Docket

    asked = {planned.dataset for planned in gate.plan}
    Docket(
        today=gate.today,
        models=gate.models,
        policies=policies,
        tests=tuple(_test(gate, item) for item in gate.items),
        reference=gate.reference,
        tasks={name: task for name, task in gate.data.tasks.items() if name in asked},
        lacking=lacking(gate, asked),
        baseline=gate.baseline is not None,
        attempts=gate.settings.vlm_patch_attempts,
    ).write(gate.run_directory)


def lacking(gate: Gate, names: Iterable[str]) -> dict[str, str]:
    """Returns, for each data set of which nothing can be asked, what its collection lacks and what to do.

    Those that cannot be read are left out: the tests that need them say why.
    """
    found = {}
    for name in sorted(names):
        with contextlib.suppress(VlmRobustError):
            found[name] = gate.data.lacking(name)
    return {name: why for name, why in found.items() if why}


def keep_baseline(gate: Gate) -> None:
    """Copies the evidence of the run that this one is compared with: by the end, another one may be in its place.

    Raises:
        StoreError: it cannot be copied.
    """
    from pytest_vlmrobust.store.run_directory import BASELINE

    if gate.baseline is not None:
        gate.baseline.evidence.copy_to(gate.run_directory / BASELINE)


def _test(gate: Gate, item: pytest.Item) -> DocketTest:
    from pytest_vlmrobust.evaluation.after.docket import DocketTest

    from .collection import about, settings_of

    planned = about(item)
    settings = () if isinstance(planned, Cell) else settings_of(gate, item, planned.dataset, planned.split)
    return DocketTest(item.nodeid, planned, settings)
