"""The page at the end of a run."""

from __future__ import annotations

import io
import math
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_vlmrobust.core.decision import Decision, Outcome
from pytest_vlmrobust.core.words import all_of, interval, on_one_line, printable, quantity

from .explanation import ViewedTest
from .facts import RunFacts, noise_lines, policy_replacements
from .subject import WaiverUse
from .sweeps import Headline, legend, outcome_counts
from .view import RunView
from .writing import plain_markup, print_sentence, sentence_rows, text_console

if TYPE_CHECKING:
    from rich.console import Console

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
_RESERVED = "bold cyan"
"""The style of a GO with waivers, or one that supports no release."""
_RERUN = {Outcome.FAIL: "failed", Outcome.ERROR: "errors"}
"""Outcomes worth running again, by their name in ``--vlm-rerun``; an undecided test would only be undecided again."""
_CALLED = {Outcome.FAIL: "failures", Outcome.ERROR: "errors"}
_ITEMS = 6
"""The most broken or undecided tests (or groups of tests with the same reason) shown, worst first."""
_SCREEN = 20
"""Rows that the page takes: a screen of 24 without the title, a blank row, the last line of pytest and the prompt."""
_NUMBER_ROWS = 10
"""Rows that the key numbers may take."""
_WAIVERS = 4
"""The most waivers shown with their reason, a line each; more are listed side by side without it."""
_WAIVER_ROWS = 5
"""Rows that waivers side by side may take."""
_OWNER = 10
"""Columns of an owner that are always shown."""
_OPEN_ROWS = 4
"""Rows that rules may take that are not shown to hold."""
_ASIDE_ROWS = 4
"""The most rows for warnings and notes; if they need more, they are only counted."""
_DEFAULT_RUNS = ".vlmrobust/runs"
"""The default directory of runs: `vlmrobust report latest` looks there."""
_WIDE = 120
"""Columns from which on key numbers have their intervals."""
_INDENT = "     "
_GAP = "  "


def render_terminal(view: RunView, *, width: int, color: bool, rows: int = _SCREEN, full: bool = False) -> str:
    """Returns the end page of a run: key numbers, then broken and undecided tests, worst first, and the decision.

    ``rows`` is how many rows the page may take; ``full`` shows everything that is broken or undecided.
    """
    width = max(80, width)
    top, page, end = io.StringIO(), io.StringIO(), io.StringIO()
    head, console, last = (text_console(buffer, width=width, color=color) for buffer in (top, page, end))
    items = _items(view.explained, width, color=color)
    _numbers(head, view)
    _again(console, view)
    _waivers(console, view)
    _close(last, view)
    loud = sum(_rows(item.sentence, width) for item in items[:_ITEMS])

    def room(most: int) -> int:
        return min(most, rows - loud - sum(_rows(part.getvalue(), width) for part in (top, page, end)))

    _open_rules(console, view, room(_OPEN_ROWS + 1) - 1)
    _asides(console, view, room(_ASIDE_ROWS))
    if full:
        broken = "".join(f"{item.sentence}{item.steps}" for item in items)
    else:
        loud = 0
        broken = _fitted(items, view.facts, width, room(rows), color=color)
    return top.getvalue() + broken + page.getvalue() + end.getvalue()


def _rows(text: str, width: int) -> int:
    """Returns how many rows a printed text takes on a terminal of this width."""
    from rich.text import Text

    return sum(max(1, -(-Text.from_ansi(line).cell_len // width)) for line in text.splitlines())


def _numbers(console: Console, view: RunView) -> None:
    """Prints the key numbers of each model and dataset, in lines that break between two numbers only."""
    headlines = view.numbers
    blocks = [_filled(_parts(headline, intervals=console.width >= _WIDE), console.width) for headline in headlines]
    if sum(map(len, blocks)) > _NUMBER_ROWS:
        blocks = [[f"{first.rstrip(',')} …" if more else first] for first, *more in blocks]
    room = _NUMBER_ROWS if len(blocks) <= _NUMBER_ROWS else _NUMBER_ROWS - 1
    for headline, block in zip(headlines[:room], blocks, strict=False):
        name = _name(headline)
        console.print(f"[bold]{_markup(name)}[/]{_markup(block[0].removeprefix(name))}", soft_wrap=True)
        for line in block[1:]:
            console.print(_markup(line), soft_wrap=True)
    if len(blocks) > room:
        more = quantity(len(blocks) - room, "more pair of model and dataset", "more pairs of model and dataset")
        console.print(f"… and {more}{_read_in(view.facts)}", style="dim", soft_wrap=True)
    if marks := legend(number for headline in headlines for number in headline.numbers):
        console.print(marks, style="dim", soft_wrap=True)


def _name(headline: Headline) -> str:
    return on_one_line(f"{headline.model} on {headline.dataset}:")


def _parts(headline: Headline, *, intervals: bool) -> list[str]:
    """Returns the unbreakable parts of the numbers' line: the name, and each number with its comma."""
    shown = [on_one_line(number.shown(intervals=intervals)) for number in headline.numbers]
    return [_name(headline), *(f"{number}," for number in shown[:-1]), shown[-1]]


def _filled(parts: Sequence[str], width: int) -> list[str]:
    """Returns words as lines of at most ``width`` columns; each but the first is indented, and no part is broken."""
    from rich.cells import cell_len

    lines = [""]
    for part in parts:
        longer = f"{lines[-1]} {part}".lstrip() if len(lines) == 1 else f"{lines[-1]} {part}"
        if lines[-1].strip() and cell_len(longer) > width:
            lines.append(f"  {part}")
        else:
            lines[-1] = longer
    return lines


@dataclass(frozen=True, slots=True)
class _Item:
    """A broken or undecided test: a sentence, and what to do about it if there is room."""

    outcome: Outcome
    tests: Sequence[ViewedTest]
    sentence: str
    steps: str


def _items(loud: Sequence[ViewedTest], width: int, *, color: bool) -> list[_Item]:
    """Returns the broken and undecided tests: each breach separately, other reasons once for all tests that share them."""
    groups: dict[tuple[Outcome, str, str], list[ViewedTest]] = {}
    for test in loud:
        record = test.record
        key = record.key if record.outcome is Outcome.FAIL else ""
        groups.setdefault((record.outcome, record.reason, key), []).append(test)
    items = []
    for (outcome, _, _), group in groups.items():
        sentence, steps = io.StringIO(), io.StringIO()
        others = f" and {len(group) - 1} more" if len(group) > 1 else ""
        named, reason = plain_markup(group[0].record.id), plain_markup(group[0].record.reason)
        line = f"[{STYLES[outcome]}]{outcome}[/] {named}{others}: {reason}"
        print_sentence(text_console(sentence, width=width, color=color), line)
        _print_steps(text_console(steps, width=width, color=color), group[0])
        items.append(_Item(outcome, group, sentence.getvalue(), steps.getvalue()))
    return items


def _fitted(items: Sequence[_Item], facts: RunFacts, width: int, room: int, *, color: bool) -> str:
    """Returns as many items as fit in ``room`` rows, at least one of each outcome; the worst include what to do."""
    firsts = {item.outcome: item for item in reversed(items)}
    kept = [item for item in items if item is firsts[item.outcome]]
    kept += [item for item in items if item not in kept][: max(0, _ITEMS - len(kept))]
    while True:
        shown = [item for item in items if item in kept]
        left = [test.record for item in items if item not in kept for test in item.tests]
        rest = io.StringIO()
        if left:
            more = ", ".join(f"{count} more {outcome.counted}" for outcome, count in outcome_counts(left))
            text_console(rest, width=width, color=color).print(f"… and {more}{_read_in(facts)}", style="dim", soft_wrap=True)
        used = _rows("".join([*(item.sentence for item in shown), rest.getvalue()]), width)
        all_fit = used + sum(_rows(item.steps, width) for item in shown) <= room
        hint = "" if all_fit else f"{_INDENT}-v prints how to rerun or waive each\n"
        used += _rows(hint, width)
        if used <= room or len(kept) == len(firsts):
            break
        kept.pop()
    text = ""
    for item in shown:
        used += _rows(item.steps, width)
        text += item.sentence + (item.steps if used <= room else "")
    return text + rest.getvalue() + hint


def _print_steps(console: Console, test: ViewedTest) -> None:
    """Prints the measurement of a test, unless its reason contains it, and what to do."""
    record, measure = test.record, test.measure
    if measure is not None and not math.isnan(measure.value) and f"(rule {measure.rule}" not in record.reason:
        called, value, beside, bound, n = map(plain_markup, test.row)
        text = [f"{called} {value}", beside, f"bound {bound}" if bound else "", f"n {n}"]
        console.print(f"{_INDENT}{'  '.join(filter(None, text))}", soft_wrap=True)
    steps = []
    if record.outcome in _RERUN and test.command:
        steps.append(f"{_INDENT}{test.command}")
    if item := test.waiver_item:
        if record.n_samples > record.n_requested:
            steps.append(f"{_INDENT}To waive it, first ask all questions with --vlm-mode=full: these show what cap would hold")
        else:
            steps.append(f"{_INDENT}To waive it, add this under waivers: in your thresholds file:")
            steps += [f"{_GAP}{line}" for line in _filled(item, console.width - len(_GAP))]
    for step in steps:
        console.print(_command_markup(step), style="dim", soft_wrap=True)


def _again(console: Console, view: RunView) -> None:
    """Prints the command that runs all tests of a verdict again, if there are several."""
    for outcome, verdicts in _RERUN.items():
        count = dict(view.outcomes).get(outcome, 0)
        if count > 1 and view.facts.command:
            command = _command_markup(view.facts.command.several(verdicts))
            console.print(f"Rerun the {count} {_CALLED[outcome]}: {command}", soft_wrap=True)


def _waivers(console: Console, view: RunView) -> None:
    """Prints each used waiver: its number of tests, owner, last day and, if there is room, reason."""
    from rich.cells import cell_len

    ordered = sorted(
        map(_on_one_line, view.waivers),
        key=lambda waiver: [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", waiver.id)],
    )
    title = f"[{STYLES[Outcome.WAIVED]}]waived[/]"
    room = console.width - len("waived ")
    if len(ordered) <= _WAIVERS:
        for line in ordered:
            before = f"{line.id}: {quantity(len(line.tests), 'test')}, owner "
            text = _with_owner(before, line.owner, f", until {line.expires}: ", room - 1)
            console.print(f"{title} {_markup(_cut(text + line.reason, max(room, cell_len(text) + 1)))}", soft_wrap=True)
        return
    rows: list[list[str]] = []
    by_owner: dict[tuple[str, str], list[WaiverUse]] = {}
    for line in ordered:
        by_owner.setdefault((line.owner, line.expires), []).append(line)
    for (owner, expires), uses in by_owner.items():
        rows.append([_with_owner("by ", owner, f" until {expires}:", room)])
        for line in uses:
            text = f"{line.id} {quantity(len(line.tests), 'test')}{'' if line is uses[-1] else ','}"
            if cell_len(" ".join([*rows[-1], text])) > room:
                rows.append([" "])
            rows[-1].append(text)
    shown = rows[:_WAIVER_ROWS]
    for parts in shown:
        console.print(f"{title if parts[0].strip() else ' ' * len('waived')} {_markup(' '.join(parts))}", soft_wrap=True)
    if (left := len(ordered) - sum(len(parts) - 1 for parts in shown)) > 0:
        console.print(f"… and {quantity(left, 'more waiver')}{_read_in(view.facts)}", style="dim", soft_wrap=True)


def _on_one_line(waiver: WaiverUse) -> WaiverUse:
    id_, owner, expires, reason = map(on_one_line, (waiver.id, waiver.owner, waiver.expires, waiver.reason))
    return replace(waiver, id=id_, owner=owner, expires=expires, reason=reason)


def _with_owner(before: str, owner: str, behind: str, width: int) -> str:
    """Returns a line about a waiver; if it is too wide, only its owner is shortened."""
    from rich.cells import cell_len

    return f"{before}{_cut(owner, max(_OWNER, width - cell_len(before + behind)))}{behind}"


def _cut(text: str, width: int) -> str:
    from rich.cells import cell_len, set_cell_size

    return text if cell_len(text) <= width else f"{set_cell_size(text, width - 1).rstrip()}…"


def _open_rules(console: Console, view: RunView, room: int) -> None:
    """Prints the rules that are not shown to hold, a row for each of the worst, and where the others are listed."""
    groups = [group for group in view.open_rules if group[0].undecided]
    shown = groups[: room if len(groups) <= room else max(0, room - 1)]
    for worst, *others in shown:
        rule, measure = worst.about, worst.measure
        value = " ".join(filter(None, [measure.shown, interval(rule.low, rule.high, measure.unit)]))
        tests = f", {quantity(len(others) + 1, 'test')}" if others else ""
        line = on_one_line(f"{rule.rule}: {measure.called} {value}, bound {rule.bound}{tests}, allowed")
        console.print(f"[yellow]undecided[/] {_markup(_cut(line, console.width - len('undecided ')))}", soft_wrap=True)
    if left := len(groups) - len(shown):
        more = quantity(left, "more rule is", "more rules are") if shown else quantity(left, "rule is", "rules are")
        console.print(f"{'… and ' if shown else ''}{more} not shown to hold{_read_in(view.facts)}", style="dim", soft_wrap=True)


def _asides(console: Console, view: RunView, room: int) -> None:
    """Prints warnings and notes if they fit in ``room`` rows, else their number and where they are listed; noise always."""
    for line in (line for repeat in view.facts.repeatability for line in noise_lines(repeat)):
        console.print(plain_markup(line), soft_wrap=True)
    warnings, notes = [*view.facts.warnings, *view.warnings], view.notes()
    idle = view.open_rule_lines(undecided=False)
    lines = [*(("warning", line) for line in warnings), *(("did not apply", line) for line in idle)]
    lines += [("note", line) for line in notes]
    sentences = [f"[yellow]{kind}[/] {plain_markup(line)}" for kind, line in lines]
    if sum(sentence_rows(console, sentence) for sentence in sentences) <= max(room, 0):
        for sentence in sentences:
            print_sentence(console, sentence)
    else:
        counted = ((warnings, "warning", ""), (idle, "rule that did not apply", "rules that did not apply"), (notes, "note", ""))
        counts = all_of([quantity(len(entries), *words) for entries, *words in counted if entries])
        console.print(f"[yellow]{counts}[/]{_read_in(view.facts)}", soft_wrap=True)


def _read_in(facts: RunFacts) -> str:
    """Returns where a reader finds the items that are only counted."""
    if facts.report:
        return f": see {plain_markup(facts.report)}"
    named = "latest" if _is_latest(facts) else plain_markup(facts.directory)
    return f": see vlmrobust report {named}" if named else ""


def _is_latest(facts: RunFacts) -> bool:
    """Says whether the commands find this run by themselves: it is the newest of the usual store."""
    return bool(facts.directory) and Path(facts.directory).parent == Path(_DEFAULT_RUNS)


def _close(console: Console, view: RunView) -> None:
    """Prints the end of the run, the decision, and the location of its evidence."""
    facts = view.facts
    inferred = sum(spent.inferences for spent in facts.spending)
    recalled = sum(record.n_recalled for record in view.records)
    if view.records and view.decision is not Decision.GO:  # whose sentence counts them
        console.print(view.counts)
    console.print(f"{quantity(inferred, 'inference')}; {quantity(recalled, 'answer was', 'answers were')} cached")
    for spent in [spending for spending in facts.spending if spending.tokens]:
        console.print(plain_markup(str(spent)), soft_wrap=True)
    for line in policy_replacements(facts.origins):
        print_sentence(console, f"[yellow]{plain_markup(line)}[/]")
    for line in view.baseline:
        console.print(line)
    for gate in [gate for gate in view.used_gates[:1] if gate.number > 1]:  # a first gate is no news
        console.print(_markup(_cut(on_one_line(gate.brief), 2 * console.width)), soft_wrap=True)
    for line in view.grave:
        print_sentence(console, f"[yellow]{plain_markup(line)}[/]")
    for model, policy in facts.policies.items():
        console.print(f"policy of {plain_markup(model)}: {plain_markup(policy)}", soft_wrap=True)
    for model, part in view.several.items():
        console.print(f"decision about {plain_markup(model)}: {_styled(part)}", soft_wrap=True)
    print_sentence(console, f"{_styled(view)}  {plain_markup(view.sentence)}")
    places = _places(facts)
    for line in filter(None, _filled([*(f"{place}," for place in places[:-1]), *places[-1:]], console.width)):
        console.print(_markup(line.strip()), soft_wrap=True)


def _places(facts: RunFacts) -> list[str]:
    """Returns the locations of report and evidence, and how to open the report if it is the latest."""
    named = {"report": facts.report, "run": facts.directory}
    if facts.report and _is_latest(facts):
        folder = str(Path(facts.report).parent)
        opens = "vlmrobust open" if folder == "report" else f"vlmrobust open {shlex.quote(folder)}"
        named = {"report": f"{facts.report} ({opens})", "run": Path(facts.directory).name}
    return [f"{name} {on_one_line(path)}" for name, path in named.items() if path]


def _styled(view: RunView) -> str:
    return f"[{_DECISIONS[view.decision] if view.word == view.decision else _RESERVED}]{view.word}[/]"


def _command_markup(command: str) -> str:
    """Returns a command line uncut, with its blanks."""
    return _markup(printable(command))


def _markup(text: str) -> str:
    """Returns printable text in which rich finds no markup."""
    from rich.markup import escape

    return escape(text)
