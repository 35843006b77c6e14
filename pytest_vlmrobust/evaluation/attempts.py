"""Attempts: as many answers about the whole picture as there are patches, so that luck is the same on both sides of PCRI.

They cost n * n - 1 inferences a sample, and so are asked for only where somebody wants what is computed from them: by the
option, or by a rule of the model's policy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.cell import Cell, Setting, Step
from pytest_vlmrobust.policies import JudgedTest, Policy

from .cell_result import CellResult
from .judged import family_and_level

OPTION = "--vlm-patch-attempts"
_PATCHES, _ATTEMPTS = "patches", "attempts"
AttemptsOf: TypeAlias = Callable[[Cell], "Cell | None"]
"""``cell of patches -> the cell of as many attempts that it is compared with``, or ``None``."""


def attempts_of(cell: Cell, policy: Policy, *, always: bool) -> Cell | None:
    """Returns the cell of attempts that a cell of patches is compared with; ``None`` where none are asked for.

    ``fog:mid+patches:2`` is compared with ``fog:mid+attempts:2``: with the same picture, fog included.

    Args:
        cell: of any setting.
        policy: of its model.
        always: whether they are asked for whatever the policy says.
    """
    *before, last = cell.setting.steps
    if last.name != _PATCHES or not (always or _is_ruled(cell, policy)):
        return None
    return Cell(cell.model, cell.dataset, Setting((*before, Step(_ATTEMPTS, last.level))))


def _is_ruled(cell: Cell, policy: Policy) -> bool:
    """Whether a rule of the policy bounds something that attempts are needed for, on this cell or on categories of it."""
    family, level = family_and_level(cell.setting)
    names = [name for name in metrics.names(scope="cell") if metrics.Needs.WHOLE_ATTEMPTS in metrics.get(name).needs]
    tests = [JudgedTest(cell.model, cell.dataset, name, str(cell.setting), family, level) for name in names]
    return any(rule.bounds(test) for rule in policy.rules for test in tests)


def told_apart(result: CellResult) -> str:
    """Returns how many samples are right in some attempts and wrong in others: whether they vary as answers to patches do."""
    count = len(result.samples)
    if result.n_unasked:
        return f"{result.cell.setting}: attempts after a right one were not asked for, so that nobody knows how much they vary"
    if result.count("error"):
        return ""
    scores = result.by_view
    varied = int((scores.max(axis=1) != scores.min(axis=1)).sum())
    said = f"{result.cell.setting}: the score of {varied} of {count} samples differs between attempts at the whole picture"
    if varied:
        return said
    return f"{said}: pcri_matched is pcri here, and below 0 also where answers to patches differ by luck alone"
