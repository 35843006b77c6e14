"""The files of a run: results.json, summary.md, manifest.json, report.html."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from pytest_vlmrobust.core.record import SCHEMA_VERSION, Record
from pytest_vlmrobust.store import write_manifest

from .html import render_html
from .wording import EXPLAINED, RunFacts, because, counted, noted, row, selection, worst_first


def write_report(directory: Path, records: Sequence[Record], facts: RunFacts, manifest: Mapping[str, object] | None) -> None:
    """Writes the report into ``directory``, which is created; each file replaces the old one in one step.

    Without a manifest (a report made again from a journal) the one that may be there is left as it is.
    """
    directory.mkdir(parents=True, exist_ok=True)
    results = {
        "schema": SCHEMA_VERSION,
        "decision": str(facts.decision(records)),
        "planned": facts.planned,
        "selected": facts.selected,
        "missing": facts.missing(records),
        "shortfalls": list(facts.shortfalls),
        "records": [json.loads(record.to_json()) for record in records],
    }
    _write(directory / "results.json", json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    if manifest is not None:
        write_manifest(directory, manifest)
    _write(directory / "summary.md", summary(records, facts))
    _write(directory / "report.html", render_html(records, facts, facts.origins if manifest is None else manifest))


def summary(records: Sequence[Record], facts: RunFacts, most: int = 40) -> str:
    """Returns the run in Markdown: the decision, the counts, what limits the evidence, and a table, worst first."""
    decision = facts.decision(records)
    lines = [f"# {decision}", "", f"{because(decision, records, facts)}. {counted(records)}.", ""]
    lines += [f"**{limit}**\n" for limit in selection(records, facts)]
    lines += ["| verdict | test | metric | value | interval | bound | n |", "|---|---|---|--:|--:|--:|--:|"]
    for record in worst_first(records)[:most]:
        cells = (str(record.outcome), f"`{record.id}`", *row(record))
        lines.append(f"| {' | '.join(_escaped(cell) for cell in cells)} |")
    if len(records) > most:
        lines += ["", f"{len(records) - most} more tests stand in results.json."]
    if reasons := [one for one in worst_first(records)[:most] if one.deciding in EXPLAINED]:
        lines += ["", *(f"- {one.outcome} `{_escaped(one.id)}`: {_escaped(one.reason)}" for one in reasons)]
    if notes := noted(worst_first(records)):
        lines += ["", *(f"- {_escaped(note)}" for note in notes)]
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return " ".join(text.splitlines()).replace("|", "\\|")


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8", errors="backslashreplace")  # half a surrogate, which a model's server may send
    temporary.replace(path)
