"""Questions of reviewers, and the evidence for each in a run. It never claims compliance."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import yaml

from pytest_vlmrobust.core.cell import CLEAN_NAME, NO_IMAGE_NAME
from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.words import first_few, quantity

from .view import RunView

ABSENT = "none in this run"
CAVEAT = "The texts of these laws and standards were not at hand when this table was written: check a number before you cite it."
_GROUPS = {"group_gap", "split_group_gap"}
_BASELINE = {"baseline_drop", "mean_baseline_drop", "drop_increase", "baseline_flip_rate"}
_ATTACKS = {"attack_rate", "text_preference", "typographic_word_drop"}
_OPEN = (Outcome.FAIL, Outcome.INCONCLUSIVE, Outcome.WAIVED, Outcome.ERROR)


@dataclass(frozen=True, slots=True)
class Question:
    """A question of reviewers."""

    text: str
    ai_act: str
    """Articles of Regulation (EU) 2024/1689; empty if none."""
    nist: str
    """Subcategories of MEASURE in NIST AI 100-1; empty if none."""
    iso: str
    """Clause or control of annex A in ISO/IEC 42001:2023; empty if none."""
    where: str
    """The files of a report with the evidence, and what they lack."""
    found: str
    """The evidence of a run, by its name in :data:`_FOUND`."""

    @property
    def sources(self) -> str:
        """Who asks."""
        named = (("EU AI Act", self.ai_act), ("NIST AI RMF MEASURE", self.nist), ("ISO/IEC 42001", self.iso))
        return "; ".join(f"{name} {places}" for name, places in named if places)

    def evidence(self, view: RunView) -> str:
        """Returns the evidence of a run."""
        return _FOUND[self.found](view) or ABSENT


@cache
def questions() -> tuple[Question, ...]:
    """Returns the questions that the gate has evidence for; other questions of these texts need other evidence."""
    return tuple(Question(**entry) for entry in yaml.safe_load(files(__package__).joinpath("reviewers.yaml").read_text("utf-8")))


def _accuracy(view: RunView) -> str:
    data = sorted({record.dataset for record in view.records if record.setting == CLEAN_NAME and record.measures})
    return f"accuracy on clean images with its interval, on {first_few(data)}" if data else ""


def _robustness(view: RunView) -> str:
    settings = {record.setting for record in view.records if record.test == "cell" and record.measures}
    perturbed = settings - {CLEAN_NAME, NO_IMAGE_NAME, ""}
    return f"{quantity(len(perturbed), 'perturbed setting')}, each with its loss" if perturbed else ""


def _data(view: RunView) -> str:
    data = view.facts.origins.get("datasets")
    return f"digests of {first_few(sorted(data))} in manifest.json" if isinstance(data, Mapping) and data else ""


def _rules(view: RunView) -> str:
    rules = {rule.id: bool(rule.reason) for policy in view.policies for rule in policy.rules}
    with_reason = f"{sum(rules.values())} with a reason"
    return f"{quantity(len(rules), 'rule')}, {with_reason}, in the policy whose SHA-256 stands above" if rules else ""


def _measured(view: RunView, names: set[str]) -> str:
    measures = [measure for record in view.records for measure in record.measures]
    return ", ".join(sorted({measure.metric for measure in measures if measure.metric in names and measure.n}))


def _limits(view: RunView) -> str:
    count = sum(record.outcome in _OPEN for record in view.records)
    return f"{quantity(count, 'test')} broken, undecided or waived, and the limits below" if view.records else ""


def _logs(view: RunView) -> str:
    run = view.subject.run if view.records else ""
    return run and f"run {run}: results.json, and every answer in predictions.sqlite; dated, and not signed"


_FOUND: Mapping[str, Callable[[RunView], str]] = {
    "accuracy": _accuracy,
    "robustness": _robustness,
    "data": _data,
    "rules": _rules,
    "groups": lambda view: _measured(view, _GROUPS),
    "changes": lambda view: _measured(view, _BASELINE),
    "limits": _limits,
    "logs": _logs,
    "attacks": lambda view: _measured(view, _ATTACKS) or "none: this gate tests no attacks",
}
