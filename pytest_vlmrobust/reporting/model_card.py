"""A section for a model card: what was gated, what was decided, the key numbers with their intervals, and the limits."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from pytest_vlmrobust.core.record import CHECK, Measure, Record
from pytest_vlmrobust.core.setting import CLEAN_NAME, NO_IMAGE_NAME
from pytest_vlmrobust.core.verdict import Outcome

from .wording import RunFacts, because, counted, selection
from .writing import in_table

FILE_NAME = "model_card.md"
_HARDEST = 5
_ACCURACY, _DROP = "accuracy", "accuracy_drop"
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
    lines = ["## Robustness", "", f"**{decision}**: {because(decision, records, facts)}. {counted(records)}.", ""]
    lines += [*_gated(records, origins), ""]
    for model in dict.fromkeys(record.model for record in records if record.model):
        own = [record for record in records if record.model == model]
        lines += [f"### {_plain(model)}", "", *_numbers(own), *_hardest(own)]
    return "\n".join([*lines, "### Limits", "", *(f"- {limit}" for limit in _limits(records, facts))]) + "\n"


def _gated(records: Sequence[Record], origins: Mapping[str, Any]) -> list[str]:
    """Returns what was gated, on what, and by which policy."""
    settings = {record.setting for record in records} - {"", CLEAN_NAME, NO_IMAGE_NAME}
    datasets = sorted({record.dataset for record in records} - {""})
    hashes = {record.model: record.policy_sha256 for record in records if record.policy_sha256}
    lines = [
        f"- Gate: pytest-vlmrobust {origins.get('version', '(version not recorded)')}, run {origins.get('run', '(not recorded)')}"
        + (f" of {origins['date']}" if origins.get("date") else ""),
        f"- Data: {', '.join(map(_plain, datasets)) or 'none'}; {len(settings)} perturbed settings",
    ]
    for model, about in sorted(dict(origins.get("models", {})).items()):
        where = f"{about.get('location', '')}" + (f" at {about['revision']}" if about.get("revision") else "")
        lines.append(f"- Model: {_plain(model)}, {_plain(where)}, asked in mode {_plain(str(about.get('prompt_mode', '')))}")
    return lines + [f"- Policy of {_plain(model)}: SHA-256 `{sha256}`" for model, sha256 in sorted(hashes.items())]


def _numbers(records: Sequence[Record]) -> list[str]:
    """Returns the table of summary metrics, and of the accuracies that they are to be read against."""
    rows = [
        (record, measure)
        for record in records
        for measure in record.measures
        if not measure.category
        and (measure.metric == record.metric or (measure.metric == _ACCURACY and record.setting in (CLEAN_NAME, NO_IMAGE_NAME)))
    ]
    if not rows:
        return ["No summary number was measured.", ""]
    lines = ["| data | number | value | 90 % interval | n | bound | verdict |", "|---|---|--:|--:|--:|--:|---|"]
    return [*lines, *(_row(record, _called(record, measure), measure) for record, measure in rows), ""]


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
    lines = [
        "Hardest settings:",
        "",
        "| data | setting | drop | 90 % interval | n | bound | verdict |",
        "|---|---|--:|--:|--:|--:|---|",
    ]
    return [*lines, *(_row(record, record.setting, measure) for record, measure in chosen), ""]


def _row(record: Record, name: str, measure: Measure) -> str:
    value = "undefined" if math.isnan(measure.value) else f"{measure.value:.3f}"
    interval = "" if math.isnan(measure.low) else f"[{measure.low:.3f}, {measure.high:.3f}]"
    cells = (record.dataset, name, value, interval, str(measure.n), measure.threshold, str(measure.outcome))
    return f"| {' | '.join(map(in_table, cells))} |"


def _called(record: Record, measure: Measure) -> str:
    return f"{measure.metric} ({record.setting or record.split})" if record.setting or record.split else measure.metric


def _limits(records: Sequence[Record], facts: RunFacts) -> list[str]:
    found = [*selection(records, facts), *facts.warnings]
    waived = [record for record in records if record.outcome is Outcome.WAIVED]
    found += [f"waived: {record.id}: {record.reason}" for record in waived]
    counts = Counter(record.outcome for record in records)
    open_ones = {
        Outcome.INCONCLUSIVE: "undecided",
        Outcome.NOT_APPLICABLE: "not applicable",
        Outcome.MEASURED: "measured and not judged",
    }
    found += [f"{counts[outcome]} tests are {what}" for outcome, what in open_ones.items() if counts[outcome]]
    cells = [record for record in records if record.test == "cell"]
    answers = sum(record.n_requested for record in cells)
    if unread := sum(record.n_unparsed for record in cells):
        found.append(f"{unread} of {answers} answers could not be read and count as wrong")
    if failed := sum(record.n_errors for record in cells):
        found.append(f"{failed} of {answers} inferences failed and have no score")
    if beside := sum(record.test == CHECK for record in records):
        found.append(f"{beside} tests beside the gate failed")
    return [*(_plain(one) for one in found), _ADVICE]


def _plain(text: str) -> str:
    """Returns text on one line in which nothing is taken for Markdown or HTML."""
    kept = in_table(text).replace("<", "&lt;")
    return kept.replace("`", "\\`").replace("[", "\\[").replace("*", "\\*")
