"""The rules, waivers and conditions of a policy as tables."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING

from pytest_vlmrobust.core.words import on_one_line

from .writing import print_sentence, text_console

if TYPE_CHECKING:
    from rich.console import Console, JustifyMethod
    from rich.table import Table

    from pytest_vlmrobust.policies import Coverage, Policy, Rule, Scope


_SCOPE = "of"
"""The column of scopes."""


def render_policy(policy: Policy, *, width: int, color: bool) -> str:
    """Returns a policy as text: a line for each rule and waiver, and its other requirements."""
    buffer = io.StringIO()
    console = text_console(buffer, width=max(80, width), color=color)
    shared = _shared([*(rule.source for rule in policy.rules), *(waiver.source for waiver in policy.waivers)])
    console.print(_rules(policy, shared, console.width))
    if policy.waivers:
        console.print()
        console.print(_waivers(policy, shared, console.width))
    console.print()
    if shared:
        print_sentence(console, f"where: {'line of' if shared.endswith(':') else 'in'} {_plain(shared[:-1])}")
    _conditions(console, policy)
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()) + "\n"


def _shared(sources: Sequence[str]) -> str:
    """Returns the file or folder common to all lines, which rows need not name; empty if none."""
    for sign in ":/":
        places = {found + sign if found else "" for found in (source.rpartition(sign)[0] for source in sources)}
        if len(places) == 1:
            return places.pop()
    return ""


def _rules(policy: Policy, shared: str, width: int) -> Table:
    rows = []
    for rule in policy.rules:
        unless = f" unless {_scope(rule.unless)}" if rule.unless else ""
        rows.append(
            (
                rule.id,
                rule.metric,
                f"{_scope(rule.where)}{unless}",
                rule.bound.condition,
                _treatment(rule),
                rule.source.removeprefix(shared),
            )
        )
    return _table(("rule", "metric", _SCOPE, "bound", "judged by", "where"), rows, width)


def _waivers(policy: Policy, shared: str, width: int) -> Table:
    rows = [
        (
            waiver.id,
            waiver.metric,
            _scope(waiver.where),
            f"{waiver.cap:g}",
            waiver.expires.isoformat(),
            waiver.source.removeprefix(shared),
        )
        for waiver in policy.waivers
    ]
    return _table(("waiver", "metric", _SCOPE, "cap", "until", "where"), rows, width)


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> Table:
    """Returns a table in which only scopes are wrapped, if there is room."""
    from rich.cells import cell_len
    from rich.table import Table

    shown = [[on_one_line(cell) for cell in row] for row in rows]
    widths = {name: max(cell_len(row[place]) for row in (columns, *shown)) for place, name in enumerate(columns)}
    longest_word = max(cell_len(word) for row in shown for word in row[columns.index(_SCOPE)].split()) if shown else 0
    fits = sum(widths.values()) - widths[_SCOPE] + longest_word + 2 * (len(columns) - 1) <= width
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        justify: JustifyMethod = "right" if name in ("bound", "cap") else "left"
        table.add_column(name, overflow="fold", justify=justify, no_wrap=fits and name != _SCOPE)
    for row in rows:
        table.add_row(*map(_plain, row))
    return table


def _conditions(console: Console, policy: Policy) -> None:
    budgets = policy.budgets
    rates = f"{budgets.max_error_rate:.1%} failed inferences, {budgets.max_unparsed_rate:.1%} unreadable answers, "
    rates += f"{budgets.max_refusal_rate:.1%} refused answers"
    print_sentence(console, f"budgets: at most {rates}")
    print_sentence(console, _plain(f"coverage that GO requires: {_coverage(policy.coverage)}"))


def _coverage(coverage: Coverage) -> str:
    needed = f"{coverage.samples} samples of each dataset" if coverage.samples else f"{coverage.share:.0%} of the samples"
    samples = needed if coverage.counts_samples else "any number of samples"
    tests = "all tests that are collected" if coverage.tests == "whole" else "any selection of tests"
    suites = f", among them those of {', '.join(coverage.suites)}" if coverage.suites else ""
    rules = "" if coverage.rules == "whole" else "; rules may be about what a run leaves out"
    blind = "" if coverage.blind_models == "refuse" else "; models that do not look at the images are allowed"
    return f"{tests}{suites}; {samples}{rules}{blind}"


def _treatment(rule: Rule) -> str:
    treatment = rule.treatment
    return f"{treatment.judge}, warns" if treatment.tier == "warn" else str(treatment.judge)


def _scope(scope: Scope) -> str:
    parts = (", ".join(getattr(scope, field.name)) for field in fields(scope))
    return "; ".join(filter(None, parts)) or "all"


def _plain(text: str) -> str:
    from rich.markup import escape

    return escape(on_one_line(text))
