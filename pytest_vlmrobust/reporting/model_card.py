"""A section for a model card: what was gated, what was decided, the key numbers with their intervals, evidence, and limits."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from pytest_vlmrobust.core.cell import CLEAN_NAME, NO_IMAGE_NAME
from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.record import BY_VALUE, Measure, Record
from pytest_vlmrobust.core.words import first_few, interval, number, quantity

from .reviewers import evidence_lines
from .subject import subject
from .wording import (
    RunFacts,
    answers_of,
    decision_sentence,
    decisions_by_model,
    headline,
    not_asked,
    open_rule_sentences,
    outcome_counts,
    policy_replacements,
    row,
    selection,
    warnings_of,
)
from .writing import inert

FILE_NAME = "model_card.md"
_HARDEST = 5
_ACCURACY, _DROP = "accuracy", "accuracy_drop"
_BREACHES = (Outcome.FAIL, Outcome.ERROR, Outcome.WAIVED)
_ADVICE = (
    "Intervals are two-sided 90 % over the samples that were asked, samples of one source picture taken together; they say "
    "nothing about other data, prompts, decoding parameters or perturbations."
)


def model_card(records: Sequence[Record], facts: RunFacts, origins: Mapping[str, Any]) -> str:
    """Returns the section in Markdown; the same records, facts and manifest give the same text.

    Args:
        records: the records of a run.
        facts: what is known about the run beside them.
        origins: the manifest of the run; what it lacks is not said.
    """
    decision = facts.decision(records)
    lines = [
        "## Robustness",
        "",
        f"**{decision}**: {inert(decision_sentence(decision, records, facts))}. {outcome_counts(records)}.",
        "",
    ]
    lines += [*_gate_lines(records, origins), ""]
    decisions = decisions_by_model(records, facts)
    for model in dict.fromkeys([*(record.model for record in records if record.model), *decisions]):
        model_records = [record for record in records if record.model == model]
        verdict = [f"**{decisions[model]}** about this one.", ""] if model in decisions else []
        lines += [
            f"### {inert(model)}",
            "",
            *verdict,
            *_numbers(model_records),
            *_broken(model_records),
            *_hardest(model_records),
        ]
    lines += [*evidence_lines(records, origins), ""]
    return "\n".join([*lines, "### Limits", "", *(f"- {limit}" for limit in _limits(records, facts))]) + "\n"


def _gate_lines(records: Sequence[Record], origins: Mapping[str, Any]) -> list[str]:
    """Returns what was gated, on what, and by which policy."""
    settings = {record.setting for record in records} - {"", CLEAN_NAME, NO_IMAGE_NAME}
    about = subject(records, origins)
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


def _numbers(records: Sequence[Record]) -> list[str]:
    """Returns the table of summary metrics and of the accuracies to read them against, with the verdict of each test."""
    measures = [
        (record, _number(record)) for record in records if record.deciding is not Outcome.MEASURED or not record.not_asked
    ]
    rows = [_row(record, _metric_name(record, measure), measure) for record, measure in measures if measure is not None]
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


def _hardest(records: Sequence[Record]) -> list[str]:
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
    rows = [_row(record, record.setting, measure) for record, measure in chosen]
    return ["Hardest settings:", "", *_head("setting", "drop"), *rows, ""]


def _head(*titles: str) -> list[str]:
    return [f"| data | {' | '.join(titles)} | 90 % interval | n | verdict | decided by |", "|---|---|--:|--:|--:|---|---|"]


def _row(record: Record, name: str, measure: Measure) -> str:
    beside = measure.beside(interval(measure.low, measure.high))
    n, decided_by = answers_of(record, measure), _deciding_text(record)
    cells = (record.dataset, name, number(measure.value), beside, n, str(record.outcome), decided_by)
    return f"| {' | '.join(map(inert, cells))} |"


def _metric_name(record: Record, measure: Measure) -> str:
    return f"{measure.metric} ({record.setting or record.split})" if record.setting or record.split else measure.metric


def _deciding_text(record: Record) -> str:
    """Returns the measure that a test's verdict comes from, with its bound; empty where no rule judged."""
    measure = headline(record)
    if measure is None or record.outcome is Outcome.MEASURED or measure.outcome is not record.outcome:
        return ""
    name, value, _, bound, _ = row(record)
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


def _limits(records: Sequence[Record], facts: RunFacts) -> list[str]:
    sentences = [*selection(records, facts), *policy_replacements(facts.origins), *facts.warnings]
    waived = [record for record in records if record.outcome is Outcome.WAIVED]
    sentences += [f"waived: {record.id}: {record.reason}" for record in waived]
    sentences += open_rule_sentences(records)
    if warned := [record.id for record in records for _ in warnings_of(record)]:
        words = "verdict comes with a warning", "verdicts come with a warning"
        sentences.append(
            f"{quantity(len(warned), *words)}, from a rule that warns but does not block: {first_few(warned, _HARDEST)}"
        )
    counts = Counter(record.outcome for record in records)
    open_ones = {
        Outcome.INCONCLUSIVE: ("test is undecided", "tests are undecided"),
        Outcome.NOT_APPLICABLE: ("test is not applicable", "tests are not applicable"),
        Outcome.MEASURED: ("test is measured and not judged", "tests are measured and not judged"),
    }
    sentences += [quantity(counts[outcome], *words) for outcome, words in open_ones.items() if counts[outcome]]
    cells = [record for record in records if record.test == "cell"]
    answers = sum(record.n_requested for record in cells)
    if unread := sum(record.n_unparsed for record in cells):
        sentences.append(f"{unread} of {quantity(answers, 'answer')} could not be read and count as wrong")
    if refused := sum(record.n_refused for record in cells):
        sentences.append(f"{refused} of {quantity(answers, 'answer')} were refused by the model or a filter and count as wrong")
    if guessed := sum(record.n_guessed for record in cells):
        singular = "answer without the pictures could not be read and counts as a guess"
        sentences.append(quantity(guessed, singular, "answers without the pictures could not be read and count as guesses"))
    if failed := sum(record.n_errors for record in cells):
        sentences.append(f"{failed} of {quantity(answers, 'inference')} failed and have no score")
    if others := sum(record.failed_outside for record in records):
        sentences.append(quantity(others, "non-gate test failed", "non-gate tests failed"))
    return [*(inert(sentence) for sentence in sentences), _ADVICE]
