"""Repeating: after the tests, a sample of the answers is asked for again, and what flips stands beside the thresholds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_vlmrobust.core.comparison import Repeatability
from pytest_vlmrobust.core.errors import UsageError, VlmRobustError

if TYPE_CHECKING:
    from .gate import Gate


def check_repeating(gate: Gate) -> None:
    """Refuses to ask again where nothing may be asked.

    Raises:
        UsageError: the run is offline.
    """
    if gate.settings.vlm_aa and gate.settings.vlm_offline:
        raise UsageError("--vlm-aa asks the model again, and --vlm-offline forbids asking it: leave one of them out")


def repeat(gate: Gate) -> list[Repeatability]:
    """Asks again about each model and data set of the run; no verdict depends on what comes back.

    With xdist this process has asked nothing before: it is another one than those that did.
    """
    process = "" if gate.open_evaluator() else "another process"
    pairs = dict.fromkeys((cell.model, cell.dataset) for cell in gate.evidence.cells())
    return [_repeated(gate, model, dataset, process) for model, dataset in pairs]


def _repeated(gate: Gate, model: str, dataset: str, process: str) -> Repeatability:
    from pytest_vlmrobust.evaluation.after.repeat import measure, set_beside

    try:
        most = gate.settings.vlm_aa_sample
        found = measure(gate.unwitnessed, gate.evidence, (model, dataset), most=most, process=process)
    except VlmRobustError as error:
        return Repeatability(model, dataset, problem=str(error))
    return set_beside(found, gate.policies[model].rules, gate.records)
