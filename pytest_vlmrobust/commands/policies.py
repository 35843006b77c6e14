"""Policies: `vlmrobust check`."""

from __future__ import annotations

import io
import math
import shlex
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

from typer import Argument, BadParameter, Option

from pytest_vlmrobust.core.errors import PolicyError, UsageError
from pytest_vlmrobust.core.words import on_one_line, percent, quantity

from .arguments import in_color, in_quarantine, number, run_directory, say, show, tell, whole, width

if TYPE_CHECKING:
    from rich.console import Console, JustifyMethod
    from rich.table import Table

    from pytest_vlmrobust.policies import Coverage, Policy, Rule, Scope


class _Noise(NamedTuple):
    """The lines on rules of an A/A measurement, and its warnings."""

    lines: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def _number_of_options(text: str) -> float:
    """Reads a number of options: ``4``, or ``open`` for questions without options."""
    return math.inf if text == "open" else whole("a number of options", "2 or more, or open", least=2)(text)


def _accuracy(text: str) -> float:
    """Reads a clean accuracy, above 0 and at most 1: ``0.8`` or ``80%``."""
    try:
        accuracy = float(text.removesuffix("%")) / (100.0 if text.endswith("%") else 1.0)
    except ValueError:
        accuracy = math.nan
    if not 0.0 < accuracy <= 1.0:
        raise BadParameter(f"{text!r}: expected an accuracy above 0 and at most 1, such as 0.8 or 80%")
    return accuracy


@in_quarantine()
def check(
    files: Annotated[list[str], Argument(metavar="POLICY", help="policy files, or names of shipped policies")],
    *,
    samples: Annotated[int | None, number("samples", "name the rules that N questions rarely decide")] = None,
    images: Annotated[
        int | None,
        number("images", "with --samples: how many images these questions are about", "M", default="each about its own"),
    ] = None,
    options: Annotated[
        float | None,
        Option(
            metavar="K",
            parser=_number_of_options,
            help="refuse bounds that nothing can break if questions have K options: 2 for yes/no, or open",
        ),
    ] = None,
    accuracy: Annotated[
        float | None,
        Option(metavar="A", parser=_accuracy, help="name the bounds that a model of this clean accuracy cannot break: 0.8"),
    ] = None,
    noise: Annotated[
        Path | None,
        Option(
            metavar="RUN", parser=run_directory, help="name the rules that are tighter than the noise of a run made with --vlm-aa"
        ),
    ] = None,
    strict: Annotated[bool, Option("--strict", help="exit with 1 when there is a warning")] = False,
) -> int:
    """Check policy files as a run reads them, and list their rules.

    Examples:
        vlmrobust check default ours.yaml
        vlmrobust check ours.yaml --samples 500
    """
    from pytest_vlmrobust.evaluation.after.policy_lint import lacks_basics, lint
    from pytest_vlmrobust.evaluation.judge.scopes import is_relative, known_metrics, thresholds_file
    from pytest_vlmrobust.evaluation.power.sample_size import rules_without_sample_size
    from pytest_vlmrobust.evaluation.run.clock import utc_today
    from pytest_vlmrobust.metrics.record import AMBIGUOUS
    from pytest_vlmrobust.policies import Purpose, load_policy

    if images and images > (samples or 0):
        raise UsageError("--images M: these are the images of --samples N questions, so at most N")
    paths = [thresholds_file(name, Path, given_as="FILE") for name in files]
    policy = load_policy(paths, known_metrics=known_metrics(), ambiguous=AMBIGUOUS, root=Path.cwd())
    aa = _noise(noise, policy) if noise else _Noise()
    aim = "" if policy.purpose is Purpose.RELEASE else f", for a {policy.purpose}: its GO supports no release"
    say(f"{quantity(len(policy.rules), 'rule')}, {quantity(len(policy.waivers), 'waiver')}{aim}")
    say(f"sha256 {policy.sha256}")
    show(f"\n{render_policy(policy, width=width(), color=in_color())}")
    if relative := [rule.id for rule in policy.rules if is_relative(rule)]:
        tell(f"note: {', '.join(relative)}: compared with an earlier run, and not applicable without --vlm-baseline RUN")
    for line in aa.lines:
        say(line)
    findings = lint(policy, today=utc_today(), samples=samples, images=images, options=options, clean=accuracy)
    for note in (finding for finding in findings if finding.noted):
        tell(f"note: {note}")
    if samples and (unknown := rules_without_sample_size(policy)):
        rules = ", ".join(f"{rule.id} ({rule.metric})" for rule in unknown)
        power = shlex.join(["vlmrobust", "power", *files, "--samples", str(samples)])
        tell(f"note: not checked at this size: {rules}. `{power}` simulates them")
    printed = [finding for finding in findings if not (finding.refused or finding.noted)]
    warnings = [*map(str, [*printed, *lacks_basics(policy)]), *aa.warnings]
    for finding in warnings:
        tell(f"warning: {finding}")
    if refused := [finding for finding in findings if finding.refused]:
        raise PolicyError("\n".join(f"refused: {finding}" for finding in refused))
    return int(strict and bool(warnings))


def _noise(directory: Path, policy: Policy) -> _Noise:
    """Reads the A/A measurement of a run and compares it with the rules of a policy."""
    from pytest_vlmrobust.evaluation.after.repeat import compare_with_rules, uncompared_rules
    from pytest_vlmrobust.reporting.facts import noise_lines, noise_warnings
    from pytest_vlmrobust.reporting.files import read_run

    run = read_run(directory)
    if not run.facts.repeatability:
        command = run.facts.command.whole("--vlm-aa") if run.facts.command else "pytest --vlm=... --vlm-aa ..."
        raise UsageError(
            f"--noise {directory}: the run has no A/A measurement: its questions were asked once, or it ended before they were "
            f"asked again. Make a run that has one: {command}"
        )
    noise = [compare_with_rules(repeat, policy.rules, run.records) for repeat in run.facts.repeatability]
    measured = [line for repeat in noise if repeat.measured for line in noise_lines(repeat)]
    unmeasured = [line for repeat in noise if not repeat.measured for line in noise_lines(repeat)]
    notes = [f"note: {sentence}" for sentence in uncompared_rules(noise, policy.rules, run.records)]
    return _Noise((*measured, *notes), (*noise_warnings(noise), *unmeasured))


# A policy as tables: its rules, waivers and conditions.


_SCOPE = "of"
"""The column of scopes."""


def render_policy(policy: Policy, *, width: int, color: bool) -> str:
    """Returns a policy as text: a line for each rule and waiver, and its other requirements."""
    from pytest_vlmrobust.reporting.writing import plain_markup, print_sentence, text_console

    buffer = io.StringIO()
    console = text_console(buffer, width=max(80, width), color=color)
    shared = _shared([*(rule.source for rule in policy.rules), *(waiver.source for waiver in policy.waivers)])
    console.print(_rules(policy, shared, console.width))
    if policy.waivers:
        console.print()
        console.print(_waivers(policy, shared, console.width))
    console.print()
    if shared:
        print_sentence(console, f"where: {'line of' if shared.endswith(':') else 'in'} {plain_markup(shared[:-1])}")
    _conditions(console, policy)
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()) + "\n"


def _shared(sources: Sequence[str]) -> str:
    """Returns the file or folder common to all lines, which rows need not name; empty if none."""
    for sign in ":/":
        places = {prefix + sign if prefix else "" for prefix in (source.rpartition(sign)[0] for source in sources)}
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
            waiver.written_cap,
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

    from pytest_vlmrobust.reporting.writing import plain_markup

    shown = [[on_one_line(cell) for cell in row] for row in rows]
    widths = {name: max(cell_len(row[place]) for row in (columns, *shown)) for place, name in enumerate(columns)}
    longest_word = max(cell_len(word) for row in shown for word in row[columns.index(_SCOPE)].split()) if shown else 0
    fits = sum(widths.values()) - widths[_SCOPE] + longest_word + 2 * (len(columns) - 1) <= width
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        justify: JustifyMethod = "right" if name in ("bound", "cap") else "left"
        table.add_column(name, overflow="fold", justify=justify, no_wrap=fits and name != _SCOPE)
    for row in rows:
        table.add_row(*map(plain_markup, row))
    return table


def _conditions(console: Console, policy: Policy) -> None:
    from pytest_vlmrobust.reporting.writing import plain_markup, print_sentence

    budgets = policy.budgets
    rates = f"{percent(budgets.max_error_rate)} failed inferences, {percent(budgets.max_unparsed_rate)} unreadable answers, "
    rates += f"{percent(budgets.max_refusal_rate)} refused answers"
    print_sentence(console, f"budgets: at most {rates}")
    print_sentence(console, plain_markup(f"coverage that GO requires: {_coverage(policy.coverage)}"))


def _coverage(coverage: Coverage) -> str:
    needed = f"{coverage.samples} samples of each dataset" if coverage.samples else f"{percent(coverage.share, 0)} of the samples"
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
