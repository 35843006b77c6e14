"""The table at the end of a run."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pytest_vlmrobust.core.decision import Decision, Outcome
from pytest_vlmrobust.core.record import Record
from pytest_vlmrobust.core.words import on_one_line, printable, quantity

from .comparison import noise_lines
from .wording import (
    EXPLAINED,
    QUIET,
    RunFacts,
    baseline_summary,
    decision_sentence,
    decisions_by_model,
    note_lines,
    outcome_counts,
    policy_replacements,
    row,
    selection,
    warning_lines,
    worst_first,
)
from .writing import text_console

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

STYLES = {
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
_RERUN = {Outcome.FAIL: "failed", Outcome.ERROR: "errors"}
"""Outcomes worth running again, by their name in ``--vlm-rerun``; an undecided test would only be undecided again."""
_QUIET_WORDS = (
    "more that passes, is measured only or does not apply",
    "more that pass, are measured only or do not apply",
)
_ROWS = 12
"""Rows shown when nothing is wrong."""
_LOUD_ROWS = 40
"""Rows shown of failed and undecided tests, worst first."""
_REASONS = 10
"""Reasons shown of each outcome, worst first."""
_HEADER = ("verdict", "test", "metric", "value", "90 % interval", "bound", "n")
_METRIC, _NUMBERS = 2, 3
"""Where what was measured begins among the columns, and where its numbers do."""
_GAP = "  "


def render_terminal(records: Sequence[Record], facts: RunFacts, *, width: int, color: bool) -> str:
    """Returns the table as text, worst first, with the decision last, where a reader looks."""
    buffer = io.StringIO()
    console = text_console(buffer, width=max(80, width), color=color)
    ordered = worst_first(records)
    loud = [record for record in ordered if record.deciding not in QUIET]
    quiet = [record for record in ordered if record.deciding in QUIET]
    shown = loud[:_LOUD_ROWS] + quiet[: max(0, _ROWS - len(loud))]
    if shown:
        _table(console, shown)
    if len(loud) > _LOUD_ROWS:
        console.print(
            f"… and {outcome_counts(loud[_LOUD_ROWS:])} more; all rows are in {_plain(facts.kept)}",
            style="dim",
            soft_wrap=True,
        )
    if hidden := len(records) - len(shown) - len(loud[_LOUD_ROWS:]):
        console.print(f"… and {quantity(hidden, *_QUIET_WORDS)}", style="dim")
    _reasons(console, loud, facts)
    _again(console, records, facts)
    _notes(console, ordered, facts)
    _close(console, records, facts)
    return buffer.getvalue()


def _table(console: Console, records: Sequence[Record]) -> None:
    """Prints one line for each record if all fit, else two, so that no name is broken: the test, and its numbers below it."""
    from rich.cells import cell_len

    rows = [(str(record.outcome), *map(on_one_line, (record.id, *row(record)))) for record in records]
    widths = [max(map(cell_len, column)) for column in zip(_HEADER, *rows, strict=True)]
    fits = sum(widths) + len(_GAP) * (len(widths) - 1) <= console.width
    console.print(*_lines(_HEADER, widths, ["bold"] * len(_HEADER), fits=fits), sep="\n", soft_wrap=True)
    for cells, record in zip(rows, records, strict=True):
        styles = [STYLES[record.outcome], *[""] * (len(cells) - 1)]
        console.print(*_lines(cells, widths, styles, fits=fits), sep="\n", soft_wrap=True)


def _lines(cells: Sequence[str], widths: Sequence[int], styles: Sequence[str], *, fits: bool) -> list[Text]:
    """Returns a row of the table as the lines that it takes."""
    from rich.cells import cell_len
    from rich.text import Text

    padding = [" " * (width - cell_len(cell)) for cell, width in zip(cells, widths, strict=True)]
    placed = [cell + pad for cell, pad in zip(cells, padding, strict=True)]
    placed[_NUMBERS:] = [pad + cell for cell, pad in zip(cells[_NUMBERS:], padding[_NUMBERS:], strict=True)]
    styled = [Text(text, style) for text, style in zip(placed, styles, strict=True)]
    parts = [styled] if fits else [styled[:_METRIC], [Text(), *styled[_METRIC:]]]
    lines = [Text(_GAP).join(part) for part in parts]
    for line in lines:
        line.rstrip()
    return [line for line in lines if line]


def _reasons(console: Console, loud: Sequence[Record], facts: RunFacts) -> None:
    """Prints the reasons of each outcome: every breach separately, and other reasons once for all tests that share them."""
    for outcome in EXPLAINED:
        having: dict[tuple[str, str], list[Record]] = {}
        for record in loud:
            if record.outcome is outcome and record.deciding in EXPLAINED:
                having.setdefault((record.reason, record.key if outcome is Outcome.FAIL else ""), []).append(record)
        for alike in list(having.values())[:_REASONS]:
            _reason(console, alike[0], len(alike) - 1, facts)
        if len(having) > _REASONS:
            left = (
                f"… and {quantity(len(having) - _REASONS, 'more reason')} of {outcome}; all of them are in {_plain(facts.kept)}"
            )
            console.print(left, style="dim", soft_wrap=True)


def _reason(console: Console, record: Record, others: int, facts: RunFacts) -> None:
    """Prints the reason of one record, and the command that runs its test again."""
    line = f"{_plain(record.id)}{f' and {others} more' if others else ''}: {_plain(record.reason)}"
    console.print(f"[{STYLES[record.outcome]}]{record.outcome}[/] {line}", soft_wrap=True)
    if record.outcome in _RERUN and facts.command and (command := facts.command.for_test(record)):
        console.print(f"     {_command_markup(command)}", style="dim", soft_wrap=True)


def _again(console: Console, records: Sequence[Record], facts: RunFacts) -> None:
    """Prints the command that runs all tests of a verdict again, if there are several."""
    for outcome, verdicts in _RERUN.items():
        count = sum(record.outcome is outcome for record in records)
        if count > 1 and facts.command:
            console.print(f"all {count} {outcome} again: {_command_markup(facts.command.several(verdicts))}", soft_wrap=True)


def _notes(console: Console, ordered: Sequence[Record], facts: RunFacts) -> None:
    for line in warning_lines(ordered):
        console.print(f"[yellow]warning[/] {_plain(line)}", soft_wrap=True)
    for note in note_lines(ordered):
        console.print(f"[yellow]note[/] {_plain(note)}", soft_wrap=True)
    for line in (line for repeat in facts.repeatability for line in noise_lines(repeat)):
        console.print(_plain(line), soft_wrap=True)
    for warning in facts.warnings:
        console.print(f"[yellow]warning[/] {_plain(warning)}", soft_wrap=True)


def _close(console: Console, records: Sequence[Record], facts: RunFacts) -> None:
    if records:
        console.print(outcome_counts(records))
    inferred = sum(record.n_inferred for record in records)
    recalled = sum(record.n_recalled for record in records)
    console.print(f"{quantity(inferred, 'inference')}; {quantity(recalled, 'answer')} came from the store")
    for spent in [each for each in facts.spending if each.tokens]:
        console.print(_plain(str(spent)), soft_wrap=True)
    for model, policy in facts.policies.items():
        console.print(f"policy of {_plain(model)}: {_plain(policy)}", soft_wrap=True)
    for line in policy_replacements(facts.origins):
        console.print(_plain(line), style="yellow", soft_wrap=True)
    for line in baseline_summary(records):
        console.print(line)
    for line in selection(records, facts):
        console.print(_plain(line), style="yellow", soft_wrap=True)
    for model, decision in decisions_by_model(records, facts).items():
        console.print(f"decision about {_plain(model)}: [{_DECISIONS[decision]}]{decision}[/]", soft_wrap=True)
    decision = facts.decision(records)
    console.print(f"[{_DECISIONS[decision]}]{decision}[/]  {_plain(decision_sentence(decision, records, facts))}", soft_wrap=True)


def _plain(text: str) -> str:
    """Returns text on one line in which neither the terminal nor rich finds markup."""
    from rich.markup import escape

    return escape(on_one_line(text))


def _command_markup(command: str) -> str:
    """Returns a command line uncut, with its blanks."""
    from rich.markup import escape

    return escape(printable(command))
