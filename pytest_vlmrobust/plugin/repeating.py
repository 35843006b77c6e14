"""Repeating: after the tests, a sample of the answers is asked for again, and what flips stands beside the thresholds."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from pytest_vlmrobust.core.errors import UsageError, VlmRobustError
from pytest_vlmrobust.core.repeatability import Repeatability

if TYPE_CHECKING:
    from pytest_vlmrobust.policies import Rule

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
    from pytest_vlmrobust.evaluation.repeat import measure

    try:
        most = gate.settings.vlm_aa_sample
        found = measure(gate.unwitnessed, gate.evidence, (model, dataset), most=most, process=process)
    except VlmRobustError as error:
        return Repeatability(model, dataset, problem=str(error))
    rules = [rule for rule in _rules(gate, found) if rule.metric in found.noise]
    return dataclasses.replace(found, beside=tuple(_beside(rule, found) for rule in rules))


def _rules(gate: Gate, about: Repeatability) -> list[Rule]:
    """Returns the rules of a model's policy that are about what was measured on a data set."""
    from pytest_vlmrobust.policies import JudgedTest

    tests = [
        JudgedTest(one.model, one.dataset, measure.metric, one.setting or one.split, one.family, one.level, measure.category)
        for one in gate.records
        if (one.model, one.dataset) == (about.model, about.dataset)
        for measure in one.measures
    ]
    return [rule for rule in gate.policies[about.model].rules if any(rule.bounds(test) for test in tests)]


def _beside(rule: Rule, about: Repeatability) -> str:
    measured, most = about.noise[rule.metric], about.noise_high[rule.metric]
    return f"rule {rule.id}: {rule.metric} bounded by {rule.bound}, noise {measured:.3f} (at most {most:.3f})"


def noise_warnings(gate: Gate) -> list[str]:
    """Returns, a sentence for each, the rules that the same model may break by answering twice."""
    from pytest_vlmrobust.evaluation.policy_lint import tighter_than_noise

    return [
        f"{about.model}-{about.dataset}: {finding}"
        for about in gate.repeatability
        if about.repeated
        for finding in tighter_than_noise(_rules(gate, about), about.noise)
    ]
