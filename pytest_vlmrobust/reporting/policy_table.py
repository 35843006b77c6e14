"""The rules, waivers and conditions of a policy as tables."""

from __future__ import annotations

import io
from dataclasses import fields
from typing import TYPE_CHECKING

from pytest_vlmrobust.core.words import on_one_line

from .writing import text_console

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from pytest_vlmrobust.policies import Bound, Coverage, Policy, Rule, Scope


def render_policy(policy: Policy, *, width: int, color: bool) -> str:
    """Returns a policy as text: a line for each rule, a line for each waiver, and what else has to hold."""
    buffer = io.StringIO()
    console = text_console(buffer, width=max(80, width), color=color)
    console.print(_rules(policy))
    if policy.waivers:
        console.print()
        console.print(_waivers(policy))
    console.print()
    _conditions(console, policy)
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()) + "\n"


def _rules(policy: Policy) -> Table:
    table = _table("rule", "metric", "of", "bound", "judged by", "where")
    for rule in policy.rules:
        unless = f" unless {_scope(rule.unless)}" if rule.unless else ""
        cells = (rule.id, rule.metric, f"{_scope(rule.where)}{unless}", _bound(rule.bound), _treatment(rule), rule.source)
        table.add_row(*map(_plain, cells))
    return table


def _waivers(policy: Policy) -> Table:
    table = _table("waiver", "metric", "of", "cap", "until", "where")
    for waiver in policy.waivers:
        cells = (waiver.id, waiver.metric, _scope(waiver.where), f"{waiver.cap:g}", waiver.expires.isoformat(), waiver.source)
        table.add_row(*map(_plain, cells))
    return table


def _table(*columns: str) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(name, overflow="fold", justify="right" if name in ("bound", "cap") else "left")
    return table


def _conditions(console: Console, policy: Policy) -> None:
    budgets = policy.budgets
    console.print(
        f"budgets: at most {budgets.max_error_rate:.1%} failed inferences, {budgets.max_unparsed_rate:.1%} unreadable answers"
    )
    console.print(_plain(f"coverage that GO requires: {_coverage(policy.coverage)}"), soft_wrap=True)


def _coverage(coverage: Coverage) -> str:
    needed = f"{coverage.samples} samples of each dataset" if coverage.samples else f"{coverage.share:.0%} of the samples"
    samples = needed if coverage.counts_samples else "any number of samples"
    tests = "all tests that are collected" if coverage.tests == "whole" else "any selection of tests"
    suites = f", among them those of {', '.join(coverage.suites)}" if coverage.suites else ""
    rules = "" if coverage.rules == "whole" else "; rules may be about what a run leaves out"
    blind = "" if coverage.blind_models == "refuse" else "; models that do not look at the pictures are allowed"
    return f"{tests}{suites}; {samples}{rules}{blind}"


def _treatment(rule: Rule) -> str:
    treatment = rule.treatment
    return f"{treatment.judge}, warns" if treatment.tier == "warn" else str(treatment.judge)


def _bound(bound: Bound) -> str:
    low, high = (f"{end:g}" for end in (bound.low, bound.high))
    return f"{low} .. {high}" if len(bound.ends) > 1 else f"<= {high}" if low == "-inf" else f">= {low}"


def _scope(scope: Scope) -> str:
    parts = (", ".join(getattr(scope, field.name)) for field in fields(scope))
    return "; ".join(filter(None, parts)) or "all"


def _plain(text: str) -> str:
    from rich.markup import escape

    return escape(on_one_line(text))
