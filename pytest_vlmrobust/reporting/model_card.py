"""A section for a model card: what was gated, what was decided, the key numbers with their intervals, evidence, and limits."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pytest_vlmrobust.core.cell import CLEAN_NAME, NO_IMAGE_NAME
from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.record import BY_VALUE, Measure, Record
from pytest_vlmrobust.core.words import first_few, interval, number, quantity

from .reviewers import evidence_lines
from .subject import Subject
from .view import Limit, view
from .wording import Bounds, RunFacts, answers_of, bounds_in, headline, not_asked, row
from .writing import inert

FILE_NAME = "model_card.md"
_HARDEST = 5
_ACCURACY, _DROP = "accuracy", "accuracy_drop"
_BREACHES = (Outcome.FAIL, Outcome.ERROR, Outcome.WAIVED)


def model_card(records: Sequence[Record], facts: RunFacts, origins: Mapping[str, Any]) -> str:
    """Returns the section in Markdown; the same records, facts and manifest give the same text.

    Args:
        records: the records of a run.
        facts: what is known about the run beside them.
        origins: the manifest of the run; what it lacks is not said.
    """
    about = view(records, dataclasses.replace(facts, origins=origins))
    lines = ["## Robustness", "", f"**{about.word}**: {inert(about.sentence)}. {about.counts}.", ""]
    lines += [*_gate_lines(records, origins, about.subject), ""]
    decisions, bounds = about.words, bounds_in(origins)
    for model in dict.fromkeys([*(record.model for record in records if record.model), *decisions]):
        model_records = [record for record in records if record.model == model]
        verdict = [f"**{decisions[model]}** about this one.", ""] if model in decisions else []
        lines += [
            f"### {inert(model)}",
            "",
            *verdict,
            *_numbers(model_records, bounds),
            *_broken(model_records),
            *_hardest(model_records, bounds),
        ]
    lines += [*evidence_lines(records, origins), ""]
    return "\n".join([*lines, "### Limits", "", *limit_lines(about.limits)]) + "\n"


def _gate_lines(records: Sequence[Record], origins: Mapping[str, Any], about: Subject) -> list[str]:
    """Returns what was gated, on what, and by which policy."""
    settings = {record.setting for record in records} - {"", CLEAN_NAME, NO_IMAGE_NAME}
    lines = [
        f"- Gate: pytest-vlmrobust {origins.get('version', '(version not recorded)')}, run {origins.get('run', '(not recorded)')}"
        + (f" of {origins['date']}" if origins.get("date") else ""),
        f"- Data: {', '.join(map(inert, about.datasets)) or 'none'}; {quantity(len(settings), 'perturbed setting')}",
    ]
    for model in about.models:
        told = (model.name, model.location, model.version, model.mode and f"asked in mode {model.mode}")
        lines.append(f"- Model: {', '.join(inert(part) for part in told if part)}")
        if model.deployment:
            lines.append(f"- Asked with: {inert(model.deployment)}")
    return lines + [f"- Policy of {inert(one.model)}: SHA-256 `{one.sha256}`" for one in about.policies if one.sha256]


def _numbers(records: Sequence[Record], bounds: Bounds) -> list[str]:
    """Returns the table of summary metrics and of the accuracies to read them against, with the verdict of each test."""
    measures = [
        (record, _number(record)) for record in records if record.deciding is not Outcome.MEASURED or not record.not_asked
    ]
    rows = [_row(record, _metric_name(record, measure), measure, bounds) for record, measure in measures if measure is not None]
    unasked = [f"- {inert(line)}" for line in not_asked(records)]
    table = [*_head("number", "value"), *rows] if rows else ["No summary number was measured."]
    return [*table, "", *unasked, *([""] if unasked else [])]


def _number(record: Record) -> Measure | None:
    """Returns the number of a summary metric, or of a cell the accuracy on pictures as they are, or without any."""
    wanted = record.metric or (_ACCURACY if record.setting in (CLEAN_NAME, NO_IMAGE_NAME) else "")
    if not wanted:
        return None
    whole = {measure.metric: measure for measure in record.measures if not measure.category}
    return whole.get(wanted, Measure(wanted, math.nan) if record.outcome in _BREACHES else None)


def _hardest(records: Sequence[Record], bounds: Bounds) -> list[str]:
    """Returns the settings under which most is lost."""
    drops = [
        (record, measure)
        for record in records
        for measure in record.measures
        if record.test == "cell" and measure.metric == _DROP and not measure.category and math.isfinite(measure.value)
    ]
    if not drops:
        return []
    chosen = sorted(drops, key=lambda pair: (-pair[1].value, pair[0].id))[:_HARDEST]
    rows = [_row(record, record.setting, measure, bounds) for record, measure in chosen]
    return ["Hardest settings:", "", *_head("setting", "drop"), *rows, ""]


def _head(*titles: str) -> list[str]:
    return [f"| data | {' | '.join(titles)} | 90 % interval | n | verdict | decided by |", "|---|---|--:|--:|--:|---|---|"]


def _row(record: Record, name: str, measure: Measure, bounds: Bounds) -> str:
    beside = measure.beside(interval(measure.low, measure.high))
    n, decided_by = answers_of(record, measure), _deciding_text(record, bounds)
    cells = (record.dataset, name, number(measure.value), beside, n, str(record.outcome), decided_by)
    return f"| {' | '.join(map(inert, cells))} |"


def _metric_name(record: Record, measure: Measure) -> str:
    return f"{measure.metric} ({record.setting or record.split})" if record.setting or record.split else measure.metric


def _deciding_text(record: Record, bounds: Bounds) -> str:
    """Returns the measure that a test's verdict comes from, with its bound; empty where no rule judged."""
    measure = headline(record)
    if measure is None or record.outcome is Outcome.MEASURED or measure.outcome is not record.outcome:
        return ""
    name, value, _, bound, _ = row(record, bounds)
    text = f"{name} {value}, bound {bound}" if bound else f"{name} {value}"
    return f"{text}, {BY_VALUE}" if measure.judge == "value" else text


def _broken(records: Sequence[Record]) -> list[str]:
    """Returns every rule and budget that was broken, a line for each, with the tests that broke it."""
    having: dict[tuple[str, str, str, str], dict[str, None]] = {}
    for record in records:
        breaches = [measure for measure in record.measures if measure.outcome in _BREACHES]
        if record.outcome in _BREACHES and not breaches:
            breaches = [Measure("", math.nan, outcome=record.outcome)]
        for measure in breaches:
            breach = (str(measure.outcome), dataclasses.replace(measure, category="").called, measure.rule, measure.threshold)
            having.setdefault(breach, {})[f"{record.id} ({measure.category})" if measure.category else record.id] = None
    lines = [f"- {_breach(*breach)}: {inert(first_few(ids, _HARDEST))}" for breach, ids in having.items()]
    return ["Broken rules and budgets:", "", *lines, ""] if lines else []


def _breach(outcome: str, metric: str, rule: str, threshold: str) -> str:
    return inert(f"{outcome}: {metric}{f', {rule}, bound {threshold}' if rule else ''}")


def limit_lines(limits: Iterable[Limit]) -> list[str]:
    """Returns what limits the evidence of a run as a list in Markdown, the details below."""
    lines = []
    for limit in limits:
        lines += [f"- {inert(limit.text)}", *(f"  - {inert(detail)}" for detail in limit.details)]
        lines += [f"  - and {limit.more} more"] if limit.more else []
    return lines
