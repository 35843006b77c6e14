"""The table at the end of a run."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Mapping, Sequence

from pytest_vlmrobust.core.record import Record
from pytest_vlmrobust.core.verdict import Decision, Outcome, decide

from .order import headline, worst_first

_STYLES = {
    Outcome.FAIL: "bold red", Outcome.ERROR: "bold magenta", Outcome.INCONCLUSIVE: "yellow", Outcome.NOT_APPLICABLE: "yellow",
    Outcome.WAIVED: "cyan", Outcome.PASS: "green", Outcome.MEASURED: "dim",
}
_DECISIONS = {
    Decision.GO: "bold green", Decision.NO_GO: "bold red", Decision.INCONCLUSIVE: "bold yellow", Decision.INCOMPLETE: "bold magenta",
}
_ROWS = 12
"""Rows shown when nothing is wrong; whatever is wrong is always shown."""


def render_terminal(
    records: Sequence[Record], *, policies: Mapping[str, str], planned: int, selected: int, width: int, color: bool,
    warnings: Sequence[str] = (),
) -> str:
    """Returns the table as text, worst first, with the decision last, where a reader looks."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    buffer = io.StringIO()
    console = Console(file=buffer, width=max(80, width), force_terminal=color, color_system="standard" if color else None, highlight=False)
    ordered = worst_first(records)
    loud = [r for r in ordered if r.outcome not in (Outcome.PASS, Outcome.MEASURED)]
    rows = loud + [r for r in ordered if r.outcome in (Outcome.PASS, Outcome.MEASURED)][: max(0, _ROWS - len(loud))]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, justify in (("verdict", "left"), ("test", "left"), ("metric", "left"), ("value", "right"), ("90 % interval", "right"),
                          ("bound", "right"), ("n", "right")):
        table.add_column(name, justify=justify, no_wrap=True)  # type: ignore[arg-type]  # literals above
    for record in rows:
        measure = headline(record)
        cells = _numbers(measure) if measure else ("", "", "", "", "")
        table.add_row(f"[{_STYLES[record.outcome]}]{record.outcome}[/]", escape(record.id), *map(escape, cells))
    console.print(table)
    if len(rows) < len(records):
        console.print(f"… and {len(records) - len(rows)} more that pass or are measured only", style="dim")
    for record in loud:
        if record.outcome in (Outcome.FAIL, Outcome.ERROR, Outcome.INCONCLUSIVE):
            console.print(f"[{_STYLES[record.outcome]}]{record.outcome}[/] {escape(record.id)}: {escape(record.reason)}", soft_wrap=True)
    for warning in warnings:
        console.print(f"[yellow]warning[/] {escape(warning)}", soft_wrap=True)
    _closing(console, records, policies, planned, selected)
    return buffer.getvalue()


def _numbers(measure: object) -> tuple[str, str, str, str, str]:
    from pytest_vlmrobust.core.record import Measure

    assert isinstance(measure, Measure)
    interval = "" if measure.low != measure.low else f"[{measure.low:.3f}, {measure.high:.3f}]"  # noqa: PLR0124 - NaN
    value = "undefined" if measure.value != measure.value else f"{measure.value:.3f}"  # noqa: PLR0124 - NaN
    return measure.metric, value, interval, measure.threshold, str(measure.n)


def _closing(console: object, records: Sequence[Record], policies: Mapping[str, str], planned: int, selected: int) -> None:
    from rich.console import Console
    from rich.markup import escape

    assert isinstance(console, Console)
    counts = Counter(record.outcome for record in records)
    console.print(", ".join(f"{counts[outcome]} {outcome}" for outcome in _STYLES if counts[outcome]), highlight=False)
    inferred = sum(record.n_inferred for record in records)
    answers = sum(record.n_requested for record in records if record.test == "cell")
    console.print(f"{inferred} inferences; {max(0, answers - inferred)} answers came from the store")
    for model, policy in policies.items():
        console.print(f"policy of {escape(model)}: {escape(policy)}")
    if selected < planned:
        console.print(f"partial selection: {selected} of {planned} tests; the decision speaks for these only", style="yellow")
    decision = decide(record.outcome for record in records)
    console.print(f"[{_DECISIONS[decision]}]{decision}[/]  {escape(_because(decision, counts))}")


def _because(decision: Decision, counts: Counter[Outcome]) -> str:
    reasons = {
        Decision.GO: f"{counts[Outcome.PASS]} verdicts passed, {counts[Outcome.WAIVED]} are waived, none failed",
        Decision.NO_GO: f"{counts[Outcome.FAIL]} verdicts broke a bound",
        Decision.INCONCLUSIVE: "nothing was broken, and something is undecided or no rule applied",
        Decision.INCOMPLETE: f"{counts[Outcome.ERROR]} tests could not measure: infrastructure, not the model",
    }
    return reasons[decision]
