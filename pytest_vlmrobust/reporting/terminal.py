"""The table at the end of a run."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pytest_vlmrobust.core.record import Record
from pytest_vlmrobust.core.verdict import Decision, Outcome

from .wording import EXPLAINED, QUIET, RunFacts, because, counted, noted, row, selection, worst_first

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_STYLES = {
    Outcome.FAIL: "bold red",
    Outcome.ERROR: "bold magenta",
    Outcome.INCONCLUSIVE: "yellow",
    Outcome.NOT_APPLICABLE: "yellow",
    Outcome.WAIVED: "cyan",
    Outcome.PASS: "green",
    Outcome.MEASURED: "dim",
}
_DECISIONS = {
    Decision.GO: "bold green",
    Decision.NO_GO: "bold red",
    Decision.INCONCLUSIVE: "bold yellow",
    Decision.INCOMPLETE: "bold magenta",
}
_ROWS = 12
"""Rows shown when nothing is wrong; whatever is wrong is always shown."""


def render_terminal(records: Sequence[Record], facts: RunFacts, *, width: int, color: bool) -> str:
    """Returns the table as text, worst first, with the decision last, where a reader looks."""
    from rich.console import Console
    from rich.markup import escape

    buffer = io.StringIO()
    console = Console(
        file=buffer,
        width=max(80, width),
        force_terminal=color,
        color_system="standard" if color else None,
        highlight=False,
        emoji=False,  # ":mid:" may be part of a name
    )
    ordered = worst_first(records)
    loud = [record for record in ordered if record.deciding not in QUIET]
    quiet = [record for record in ordered if record.deciding in QUIET]
    shown = loud + quiet[: max(0, _ROWS - len(loud))]
    console.print(_table(shown))
    if len(shown) < len(records):
        console.print(f"… and {len(records) - len(shown)} more that pass, are measured only or do not apply", style="dim")
    for record in loud:
        if record.deciding in EXPLAINED:
            verdict = f"[{_STYLES[record.outcome]}]{record.outcome}[/]"
            console.print(f"{verdict} {escape(record.id)}: {escape(record.reason)}", soft_wrap=True)
    for note in noted(ordered):
        console.print(f"[yellow]note[/] {escape(note)}", soft_wrap=True)
    for warning in facts.warnings:
        console.print(f"[yellow]warning[/] {escape(warning)}", soft_wrap=True)
    _close(console, records, facts)
    return buffer.getvalue()


def _table(records: Sequence[Record]) -> Table:
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("verdict", no_wrap=True)
    for name in ("test", "metric"):
        table.add_column(name, overflow="fold")  # where the terminal is narrow, names take two lines and numbers stay whole
    for name in ("value", "90 % interval", "bound", "n"):
        table.add_column(name, justify="right", no_wrap=True)
    for record in records:
        table.add_row(f"[{_STYLES[record.outcome]}]{record.outcome}[/]", escape(record.id), *map(escape, row(record)))
    return table


def _close(console: Console, records: Sequence[Record], facts: RunFacts) -> None:
    from rich.markup import escape

    console.print(counted(records))
    inferred = sum(record.n_inferred for record in records)
    recalled = sum(record.n_recalled for record in records)
    console.print(f"{inferred} inferences; {recalled} answers came from the store")
    for model, policy in facts.policies.items():
        console.print(f"policy of {escape(model)}: {escape(policy)}", soft_wrap=True)
    for line in selection(records, facts):
        console.print(escape(line), style="yellow", soft_wrap=True)
    decision = facts.decision(records)
    console.print(f"[{_DECISIONS[decision]}]{decision}[/]  {escape(because(decision, records, facts))}")
