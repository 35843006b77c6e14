"""Files of a report: report.html, results.json, cells.csv, summary.md, model_card.md, junit.xml, manifest.json; models.html."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pytest_vlmrobust.core.counting import quantity
from pytest_vlmrobust.core.record import Record
from pytest_vlmrobust.store import write_manifest

from . import junit, model_card, results
from .html import render_html
from .noise import noise_table
from .ranking import write_ranking
from .wording import (
    EXPLAINED,
    RunFacts,
    apart,
    because,
    counted,
    noted,
    replaced,
    row,
    selection,
    since_baseline,
    warned,
    worst_first,
)
from .writing import code, inert, write_text

SUMMARY = "summary.md"
REPORT = "report.html"


def write_report(directory: Path, records: Sequence[Record], facts: RunFacts, manifest: Mapping[str, object] | None) -> None:
    """Writes the report into ``directory``, which is created; each file replaces the old one in one step.

    Without a manifest (a report made again from a journal) the one that may be there is left as it is.
    """
    directory.mkdir(parents=True, exist_ok=True)
    origins = facts.origins if manifest is None else manifest
    write_text(directory / results.FILE_NAME, results.results_json(records, facts))
    write_text(directory / results.CSV_FILE, results.cells_csv(records))
    if manifest is not None:
        write_manifest(directory, manifest)
    write_text(directory / SUMMARY, summary(records, facts))
    write_text(directory / model_card.FILE_NAME, model_card.model_card(records, facts, origins))
    suite = junit.suite_properties(origins, records, facts)
    write_text(directory / junit.FILE_NAME, junit.junit_xml(records, suite, facts.lost(records), facts.command))
    if facts.ranking is not None:
        write_ranking(directory, facts.ranking)
    write_text(directory / REPORT, render_html(records, facts, origins))


def summary(records: Sequence[Record], facts: RunFacts, most: int = 40) -> str:
    """Returns the run in Markdown: the decision, the counts, what limits the evidence, and a table, worst first."""
    decision = facts.decision(records)
    lines = [f"# {decision}", "", f"{inert(because(decision, records, facts))}. {counted(records)}.", ""]
    if each := apart(records, facts):
        lines += [*(f"- {inert(name)}: **{one}**" for name, one in each.items()), ""]
    lines += [f"**{inert(limit)}**\n" for limit in selection(records, facts)]
    lines += [f"{inert(line)}\n" for line in (*replaced(facts.origins), *since_baseline(records))]
    lines += ["| verdict | test | metric | value | interval | bound | n |", "|---|---|---|--:|--:|--:|--:|"]
    for record in worst_first(records)[:most]:
        cells = (str(record.outcome), code(record.id), *map(inert, row(record)))
        lines.append(f"| {' | '.join(cells)} |")
    if len(records) > most:
        lines += ["", f"{quantity(len(records) - most, 'more test stands', 'more tests stand')} in results.json."]
    if reasons := [one for one in worst_first(records)[:most] if one.deciding in EXPLAINED]:
        lines += ["", *(f"- {one.outcome} {code(one.id)}: {inert(one.reason)}" for one in reasons)]
    if warnings := warned(worst_first(records)):
        lines += ["", *(f"- warning: {inert(line)}" for line in warnings)]
    if noise := noise_table(facts.repeatability):
        lines += ["", *noise]
    if notes := noted(worst_first(records)):
        lines += ["", *(f"- {inert(note)}" for note in notes)]
    return "\n".join(lines) + "\n"
