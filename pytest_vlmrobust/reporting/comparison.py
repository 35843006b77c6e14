"""Two runs side by side: as a table for the terminal, in Markdown, as JSON, and in a comment for a pull request."""

from __future__ import annotations

import io
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from markupsafe import Markup

from pytest_vlmrobust.core.conversion import to_plain
from pytest_vlmrobust.core.decision import WORST_FIRST
from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.core.words import first_few, interval, on_one_line, percent, points, quantity
from pytest_vlmrobust.evaluation.after.comparison import CellChange, Comparison, SweepChange

from .explanation import ViewedTest
from .facts import ci_variables
from .files import UNREADABLE, RunFiles
from .html.samples import stored_thumbnail
from .markdown import SHORT, code, render
from .writing import json_text, plain_markup, print_sentence, render_table, text_console, write_text

JSON_FILE = "comparison.json"
MARKDOWN_FILE = "comparison.md"
VERSION = 1
"""The version of the layout of comparison.json. Keys may be added under a version."""
_HEADER = ("cell", "n", "then", "now", "drop since then", "interval", "growth of the drop", "interval", "broken", "fixed")
_SWEEP_HEADER = ("sweep", "settings", "n", "mean drop since then", "interval")
_DROP, _BREAK = "drop since then", "\n"
_GROWTH = slice(6, 8)
"""The columns that a narrow terminal leaves out."""
_WIDE = 110
"""The terminal width from which all columns are shown."""
_ROWS = 40
_IDS = 10
_LEFT_OUT = 5


def write_comparison(directory: Path, comparison: Comparison) -> None:
    """Writes comparison.json and comparison.md into ``directory``, which is created."""
    directory.mkdir(parents=True, exist_ok=True)
    write_text(directory / JSON_FILE, json_text({"comparison_version": VERSION, **to_plain(comparison)}))
    write_text(directory / MARKDOWN_FILE, comparison_markdown(comparison))


def render_comparison(comparison: Comparison, *, width: int, color: bool) -> str:
    """Returns the tables as text, worst first, followed by what they leave out."""
    buffer = io.StringIO()
    console = text_console(buffer, width=max(80, width), color=color)
    sweeps = [(_sweep_row(change), change.mean_baseline_drop) for change in comparison.sweeps]
    shown = [(_fitting(_row(change), width), change.baseline_drop) for change in comparison.cells[:_ROWS]]
    header = _fitting(_HEADER, width)
    if width < _WIDE:
        header = tuple(name.replace(" ", _BREAK) if name == _DROP else name for name in header)
    if width < _WIDE and len(comparison.sweeps) == 1:  # which names the model and the dataset of every cell
        (sweep,) = comparison.sweeps
        header = (f"cell of {on_one_line(sweep.name)}", *header[1:])
        shown = [((name.removeprefix(f"{sweep.name}-"), *rest), drop) for (name, *rest), drop in shown]
    for titles, rows in ((_SWEEP_HEADER, sweeps), (header, shown)):
        styles = [_style(drop) for _, drop in rows]
        table = render_table(titles, [cells for cells, _ in rows], names=1, width=max(80, width), color=color, styles=styles)
        buffer.write(f"{table}\n" if rows else "")
    if shown and width < _WIDE:
        console.print(f"widen the terminal to {_WIDE} columns to see more", style="dim")
    if comparison.unchanged:
        console.print("nothing changed: every answer that both runs have scores the same in both", style="bold")
    for line in _below(comparison):
        print_sentence(console, plain_markup(line))
    return buffer.getvalue()


def comparison_markdown(comparison: Comparison) -> str:
    """Returns the comparison in Markdown: sweeps, cells worst first, changed samples, and what was left out."""
    shown = comparison.cells[:_ROWS]
    return render(
        MARKDOWN_FILE,
        comparison=comparison,
        pairs=[f"{now} with {then}" for now, then in comparison.models.items() if now != then],
        tables={
            _SWEEP_HEADER: [(code(name), *row) for name, *row in map(_sweep_row, comparison.sweeps)],
            _HEADER: [(code(name), *row) for name, *row in map(_row, shown)],
        },
        changes=[_changes_line(change) for change in shown if change.broken or change.fixed],
        below=_below(comparison),
    )


def _row(change: CellChange) -> tuple[str, ...]:
    drop, growth = change.baseline_drop, change.drop_increase
    numbers = (percent(change.then), percent(change.now), *_estimate_cells(drop))
    grown = ("", "") if growth is None else _estimate_cells(growth)
    return (change.name, str(change.n), *numbers, *grown, str(len(change.broken)), str(len(change.fixed)))


def _fitting(columns: tuple[str, ...], width: int) -> tuple[str, ...]:
    """Returns the columns of a row that fit on the terminal."""
    return columns if width >= _WIDE else columns[: _GROWTH.start] + columns[_GROWTH.stop :]


def _sweep_row(change: SweepChange) -> tuple[str, ...]:
    drop = change.mean_baseline_drop
    return (change.name, str(change.settings), str(drop.n), *_estimate_cells(drop))


def _below(comparison: Comparison) -> list[str]:
    """Returns what the tables do not show: more cells, cells in only one run, and undefined numbers."""
    hidden = len(comparison.cells) - _ROWS
    lines = [f"{quantity(hidden, 'more cell is', 'more cells are')} in {JSON_FILE}"] if hidden > 0 else []
    for cells, run in ((comparison.only_before, comparison.before), (comparison.only_after, comparison.after)):
        if cells:
            lines.append(f"only in {run}: {first_few(cells, _LEFT_OUT)}")
    early = comparison.stopped_early
    if early.cells:
        count = quantity(len(early.cells), "cell")
        changed = f"{early.changed} of {quantity(early.answers, 'answer')} that both runs have changed"
        alone = quantity(early.only_one, "more is in one run only", "more are in one run only")
        changed += f", {alone}" if early.only_one else ""
        lines.append(
            f"{count} stopped early (adaptive mode): {changed}; no interval, because early answers decide which questions follow"
        )
    lines += [f"{cell.name}: {cell.baseline_drop.reason}" for cell in comparison.cells if math.isnan(cell.baseline_drop.value)]
    lines += comparison.notes
    level = f"intervals: {percent(comparison.confidence, 0)}, paired by question; questions about the same image count as one"
    return [*lines, f"{level}; positive = worse"]


def _changes_line(change: CellChange) -> str:
    parts = [(ids, what) for ids, what in ((change.broken, "got worse"), (change.fixed, "got better")) if ids]
    changes = [f"{len(ids)} {what} ({first_few(ids, _IDS)})" for ids, what in parts]
    return f"{change.name}: {'; '.join(changes)}"


def _style(drop: Estimate) -> str:
    """Losses and gains shown by the interval are coloured, and so are unknown values."""
    if math.isnan(drop.value) or drop.low > 0.0:
        return "red"
    return "green" if drop.high < 0.0 else ""


def _estimate_cells(drop: Estimate) -> tuple[str, str]:
    """Returns a drop and its interval, in percentage points."""
    return points(drop.value), interval(drop.low, drop.high, "pp")


# A run as a comment for a pull request: the decision first, then what changed since a good run.


LONGEST = 65_000
"""Characters of a comment: GitHub refuses more than 65,536."""
_FEWER_ROWS = (30, 10, 3, 0)
"""Rows of a table, and fewer if they do not fit."""


@dataclass(frozen=True, slots=True)
class Against:
    """The earlier run that a comment compares with, if any."""

    what: str
    """Its name: ``the last GO on main``, or ``RUN``."""
    run: RunFiles | None = None
    comparison: Comparison | None = None
    problem: str = ""
    """Why nothing, or not every answer, was compared; empty if all were."""


def marker(name: str) -> str:
    """Returns the first line of a comment, by which a job finds and replaces it.

    >>> marker("nightly --> x")
    '<!-- vlmrobust comment: nightly-x -->'
    """
    return f"<!-- vlmrobust comment: {re.sub(r'[^A-Za-z0-9.]+', '-', name)} -->"


def branch_of(manifest: Mapping[str, object]) -> str:
    """Returns the branch that the CI job of a run worked on; empty elsewhere, and for a pull request."""
    variables = ci_variables(manifest)
    github = variables.get("GITHUB_REF", "")
    if github:
        return github.removeprefix("refs/heads/") if github.startswith("refs/heads/") else ""
    return variables.get("CI_COMMIT_REF_NAME", "") or variables.get("BRANCH_NAME", "")


def project_of(manifest: Mapping[str, object]) -> str:
    """Returns the repository that the CI job of a run belongs to; empty elsewhere."""
    variables = ci_variables(manifest)
    return variables.get("GITHUB_REPOSITORY", "") or variables.get("CI_PROJECT_PATH", "")


def job_link(environment: Mapping[str, str] = os.environ) -> str:
    """Returns the address of the CI job that this process belongs to; empty elsewhere."""
    server, repository, run = (environment.get(f"GITHUB_{name}", "") for name in ("SERVER_URL", "REPOSITORY", "RUN_ID"))
    if server and repository and run:
        return f"{server}/{repository}/actions/runs/{run}"
    return environment.get("CI_JOB_URL", "") or environment.get("BUILD_URL", "")


def worst_images(run: RunFiles) -> dict[str, bytes]:
    """Returns the images of the worst questions by file name, if the run's store has them."""
    answers = [answer for question in run.worst_questions() for answer in question.answers]
    names = dict.fromkeys(picture.file for _, _, pictures in answers for picture in pictures)
    folder = run.facts.pictures
    return {name: image for name in names if folder and (image := stored_thumbnail(folder, name))}


def render_comment(
    run: RunFiles, against: Against, *, name: str, links: Mapping[str, str], images: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Returns the comment, of at most :data:`LONGEST` characters.

    ``name`` distinguishes comments of several gates on a pull request. ``links`` are web addresses by text; empty ones are left
    out. ``images`` are those of images by file name; images without one are left out.
    """
    texts = (_render(run, against, name, links, images, most=most) for most in _FEWER_ROWS)
    if short := next((text for text in texts if len(text) <= LONGEST), ""):
        return short
    kept = _render(run, against, name, links, {}, most=0)[:LONGEST].rpartition("\n")[0].rpartition("\n")[0]
    return f"{kept}\n\nThis comment was cut.\n"


def _render(run: RunFiles, against: Against, name: str, links: Mapping[str, str], images: Mapping[str, str], *, most: int) -> str:
    datasets = dict.fromkeys(record.dataset for record in run.records if record.dataset)
    facts = {
        "model": ", ".join(run.facts.models),
        "data": ", ".join(datasets),
        "run": run.name,
        "commit": str(run.manifest.get("commit", "")),
        "policy": ", ".join(sorted({sha256[:12] for sha256 in _policies(run).values()})),
    }
    return render(
        "comment.md",
        marker=Markup(marker(name)),  # noqa: S704 - letters and hyphens
        view=run,
        sentence=f"{run.sentence[:1].upper()}{run.sentence[1:]}",
        about=facts,
        models=[*run.several.items()][:most],
        grave=[*([UNREADABLE] if run.damage else []), *run.grave[: max(1, most)]],
        images=images,
        against=against,
        earlier=against.run and _earlier(against.run, run, most),
        answers=against.comparison and _answers(against.comparison, most),
        loud=run.explained,
        most=most,
        links=links,
    )


def _policies(run: RunFiles) -> dict[str, str]:
    return {name: str(policy.get("sha256", "")) for name, policy in run.manifest.get("policies", {}).items()}


def _other_policy(earlier: RunFiles, run: RunFiles) -> bool:
    """Whether a model of both runs was judged by another policy, or runs without a common model were."""
    before, now = _policies(earlier), _policies(run)
    common = before.keys() & now.keys()
    return any(before[name] != now[name] for name in common) if common else {*before.values()} != {*now.values()}


def _earlier(earlier: RunFiles, run: RunFiles, most: int) -> Mapping[str, Any]:
    """Returns which run is compared with, and the tests whose verdict changed, with the number that decided, then and now."""
    before = {test.record.key: test for test in earlier.tests}
    both = [(before[test.record.key], test) for test in run.tests if test.record.key in before]
    changed = [(then, now) for then, now in both if then.record.outcome is not now.record.outcome]
    worse = sum(WORST_FIRST.index(now.record.outcome) < WORST_FIRST.index(then.record.outcome) for then, now in changed)
    new, gone = len(run.records) - len(both), len(before) - len(both)
    verdicts = f"No verdict of {quantity(len(both), 'test')} changed" if both else "The runs have no test in common"
    if changed:
        verdicts = f"{quantity(len(changed), 'verdict')} of {quantity(len(both), 'test')} changed, {worse} for the worse"
    rest = [quantity(new, "test is new", "tests are new")] if new else []
    rest += [quantity(gone, "test is gone", "tests are gone")] if gone else []
    return {
        "where": {what: earlier.manifest.get(what, "") for what in ("run", "commit")},
        "word": earlier.word,
        "other_policy": _other_policy(earlier, run),
        "verdicts": "; ".join([verdicts, *rest]),
        "rows": [(code(on_one_line(now.record.id, SHORT)), _verdict(then), _verdict(now)) for then, now in changed[:most]],
        "changed": len(changed),
    }


def _verdict(test: ViewedTest) -> str:
    return " ".join(filter(None, [str(test.record.outcome), *test.row[:3]]))


def _answers(comparison: Comparison, most: int) -> Mapping[str, Any]:
    """Returns the cells in which the interval of the change leaves 0 out, and how many there are in which it does not."""
    unknown = sum(not change.baseline_drop.finite for change in comparison.cells)
    shown = [change for change in comparison.cells if change.baseline_drop.low > 0.0 or change.baseline_drop.high < 0.0]
    early, alone = comparison.stopped_early, len(comparison.only_before) + len(comparison.only_after)
    both = f"where {early.changed} of {quantity(early.answers, 'answer')} that both runs have changed"
    cells, level = quantity(len(comparison.cells), "cell"), percent(comparison.confidence, 0)
    parts = {
        f"A change is shown in {len(shown)} of {cells} ({level} intervals, paired by sample)": True,
        f"unknown in {unknown}, where inferences failed": unknown,
        f"{quantity(len(early.cells), 'cell')} stopped early, {both}": early.cells,
        quantity(alone, "cell is in one run only", "cells are in one run only"): alone,
    }
    rows: list[tuple[str, ...]] = []
    for sweep in comparison.sweeps:
        _, _, n, *drop = _sweep_row(sweep)
        rows.append((f"{sweep.name}, mean over settings", n, "", "", *drop, "", ""))
    rows += [_fitting(_row(cell), width=0) for cell in shown]
    return {
        "unchanged": comparison.unchanged,
        "summary": "; ".join(text for text, holds in parts.items() if holds),
        "rows": [(code(on_one_line(name, SHORT)), *row) for name, *row in rows[:most]],
        "count": len(rows),
    }
