"""What reviewers ask for, and which part of a run is evidence for it. It never says that anything is complied with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_vlmrobust.core.cell import CLEAN_NAME, NO_IMAGE_NAME
from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.record import Record
from pytest_vlmrobust.core.words import first_few, quantity

from .writing import inert

ABSENT = "none in this run"
HEADING = "Evidence for reviewers"
_GROUPS = {"group_gap", "split_group_gap"}
_BASELINE = {"baseline_drop", "mean_baseline_drop", "drop_increase", "baseline_flip_rate"}


@dataclass(frozen=True, slots=True)
class Question:
    """One thing that reviewers ask for."""

    text: str
    ai_act: str
    """Of Regulation (EU) 2024/1689; empty where it does not ask."""
    nist: str
    """Subcategories of MEASURE in NIST AI 100-1, likewise."""
    iso: str
    """Clause or control of annex A in ISO/IEC 42001:2023, likewise."""
    where: str
    """Which files of a report hold the evidence, and what they do not hold."""
    found: Callable[[Sequence[Record], Mapping[str, Any]], str]
    """What a run has of it, from records and manifest; empty for nothing."""

    @property
    def sources(self) -> str:
        """Who asks."""
        named = (("EU AI Act", self.ai_act), ("NIST AI RMF MEASURE", self.nist), ("ISO/IEC 42001", self.iso))
        return "; ".join(f"{name} {places}" for name, places in named if places)


def evidence_lines(records: Sequence[Record], origins: Mapping[str, Any]) -> list[str]:
    """Returns the section of the model card: a row for each question, also where this run has nothing for it."""
    rows = [f"| {ask.text} | {ask.sources} | {inert(ask.found(records, origins) or ABSENT)} |" for ask in QUESTIONS]
    return [
        f"### {HEADING}",
        "",
        "This is evidence for what is asked, and no statement that a requirement is met.",
        "",
        "| asked for | by | evidence |",
        "|---|---|---|",
        *rows,
    ]


def _accuracy(records: Sequence[Record], _: Mapping[str, Any]) -> str:
    data = sorted({record.dataset for record in records if record.setting == CLEAN_NAME and record.measures})
    return f"accuracy on clean pictures with its interval, on {first_few(data)}" if data else ""


def _robustness(records: Sequence[Record], _: Mapping[str, Any]) -> str:
    asked = {record.setting for record in records if record.test == "cell" and record.measures} - {CLEAN_NAME, NO_IMAGE_NAME, ""}
    return f"{quantity(len(asked), 'perturbed setting')}, each with its loss" if asked else ""


def _data(_: Sequence[Record], origins: Mapping[str, Any]) -> str:
    data = sorted(dict(origins.get("datasets", {})))
    return f"digests of {first_few(data)} in manifest.json" if data else ""


def _metrics(records: Sequence[Record], _: Mapping[str, Any]) -> str:
    rules = {measure.rule for record in records for measure in record.measures if measure.rule}
    return (
        f"{quantity(len(rules), 'rule')}, in the policy whose SHA-256 stands above; reasons where the policy gives them"
        if rules
        else ""
    )


def _measured(records: Sequence[Record], names: set[str]) -> str:
    found = sorted({measure.metric for record in records for measure in record.measures if measure.metric in names and measure.n})
    return ", ".join(found)


def _limits(records: Sequence[Record], _: Mapping[str, Any]) -> str:
    open_ones = sum(record.outcome in (Outcome.FAIL, Outcome.INCONCLUSIVE, Outcome.WAIVED, Outcome.ERROR) for record in records)
    return f"{quantity(open_ones, 'test')} broken, undecided or waived, and the limits below" if records else ""


def _logs(records: Sequence[Record], origins: Mapping[str, Any]) -> str:
    if not records or not origins.get("run"):
        return ""
    return f"run {origins['run']}: results.json, and every answer in predictions.sqlite; dated, and not signed"


def _nothing(_: Sequence[Record], __: Mapping[str, Any]) -> str:
    return "none: this gate tests no attacks"


QUESTIONS = (
    Question(
        "levels of accuracy, and the metrics they are in",
        "Article 15(3), Annex IV 2(g)",
        "2.3",
        "A.6.2.4",
        "`results.json`, `model_card.md`: clean accuracy and visual gain, each with interval and sample count",
        _accuracy,
    ),
    Question(
        "resilience to errors, faults and inconsistencies of the environment",
        "Article 15(4)",
        "2.5, 2.6",
        "A.6.2.4",
        "`cells.csv`, the map of drops in `report.html`: the loss under each setting. Redundancy of the product: nothing",
        _robustness,
    ),
    Question(
        "test data and their main characteristics",
        "Annex IV 2(g)",
        "2.1",
        "A.7.4",
        "`manifest.json`: digest, size and selection; `vlmrobust data FILE --out`: what is in them. Training data: nothing",
        _data,
    ),
    Question(
        "why the metrics and bounds are appropriate",
        "Annex IV 4",
        "1.1",
        "9.1",
        "the policy: `reason` and `source` of each rule, its SHA-256 in every report; `vlmrobust power`: how often it decides",
        _metrics,
    ),
    Question(
        "performance for groups of persons",
        "Annex IV 3",
        "2.11",
        "A.5.4",
        "`group_gap` of the Observatory, on its faces or on your own; without them nothing",
        lambda records, _: _measured(records, _GROUPS),
    ),
    Question(
        "changes since the version before",
        "Annex IV 6",
        "4.3",
        "A.6.2.6",
        "`--vlm-baseline`: losses question by question; `vlmrobust compare`, `vlmrobust history`",
        lambda records, _: _measured(records, _BASELINE),
    ),
    Question(
        "limitations, and what was accepted by whom",
        "Annex IV 3",
        "2.5",
        "A.8.2",
        "limits and waivers in `report.html` and `model_card.md`: owner, reason, expiry, cap",
        _limits,
    ),
    Question(
        "test logs and dated reports",
        "Annex IV 2(g)",
        "2.1",
        "A.6.2.7",
        "`vlmrobust bundle`, which anybody can verify without the model. To sign it is yours",
        _logs,
    ),
    Question(
        "resilience to attacks",
        "Article 15(5)",
        "2.7",
        "",
        "nothing: adversarial images, poisoned data and prompt injection are not tested here",
        _nothing,
    ),
)
"""What the gate has something to say about; the rest of these texts asks for other evidence."""
