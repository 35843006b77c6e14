"""Comment: a run as Markdown below a pull request, the decision first, then what changed since a run that was good."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from urllib.parse import quote

from pytest_vlmrobust.core.decision import WORST_FIRST
from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.core.words import interval, number, on_one_line, quantity
from pytest_vlmrobust.evaluation.after.changes import CellChange, Comparison, SweepChange

from .facts import ci_variables
from .files import RunFiles
from .html.samples import stored_thumbnail
from .view import RunView, ViewedTest
from .writing import code, inert, markdown_table

LONGEST = 65_000
"""Characters of a comment: GitHub refuses more than 65,536."""
_ROWS = (30, 10, 3, 0)
"""Rows of a table, and fewer where they do not fit."""
_CELL = 300
"""Characters of a name or a reason."""


@dataclass(frozen=True, slots=True)
class Against:
    """The earlier run that a comment compares with, if there is one."""

    what: str
    """What it is: ``the last GO on main``, or ``RUN``."""
    run: RunFiles | None = None
    comparison: Comparison | None = None
    problem: str = ""
    """Why nothing, or not every answer, was compared; empty where all was."""


def marker(name: str) -> str:
    """Returns the first line of a comment, by which a job finds it again and writes the next one in its place.

    >>> marker("nightly --> x")
    '<!-- vlmrobust comment: nightly-x -->'
    """
    return f"<!-- vlmrobust comment: {re.sub(r'[^A-Za-z0-9.]+', '-', name)} -->"


def branch_of(manifest: Mapping[str, object]) -> str:
    """Returns the branch that the CI job of a run worked on; empty elsewhere, and for a pull request."""
    known = ci_variables(manifest)
    github = known.get("GITHUB_REF", "")
    if github:
        return github.removeprefix("refs/heads/") if github.startswith("refs/heads/") else ""
    return known.get("CI_COMMIT_REF_NAME", "") or known.get("BRANCH_NAME", "")


def project_of(manifest: Mapping[str, object]) -> str:
    """Returns the repository that the CI job of a run belongs to; empty elsewhere."""
    known = ci_variables(manifest)
    return known.get("GITHUB_REPOSITORY", "") or known.get("CI_PROJECT_PATH", "")


def job_link(environment: Mapping[str, str] = os.environ) -> str:
    """Returns the address of the CI job that this process belongs to; empty elsewhere."""
    server, repository, run = (environment.get(f"GITHUB_{name}", "") for name in ("SERVER_URL", "REPOSITORY", "RUN_ID"))
    if server and repository and run:
        return f"{server}/{repository}/actions/runs/{run}"
    return environment.get("CI_JOB_URL", "") or environment.get("BUILD_URL", "")


def worst_images(run: RunFiles) -> dict[str, bytes]:
    """Returns the images of the worst questions by file name, those that the store of the run has."""
    answers = [answer for question in run.view.worst_questions() for answer in question.answers]
    names = dict.fromkeys(picture.file for _, _, pictures in answers for picture in pictures)
    folder = run.facts.pictures
    return {name: image for name in names if folder and (image := stored_thumbnail(folder, name))}


def render_comment(
    run: RunFiles, against: Against, *, name: str, links: Mapping[str, str], images: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Returns the comment, of at most :data:`LONGEST` characters.

    Args:
        run: what it is about.
        against: what it is compared with.
        name: tells the comments of several gates below one pull request apart.
        links: text to address of the web; an empty one is left out.
        images: file name of an image to its address on the web; images without one are left out.
    """
    texts = (_render(run, against, name, links, images, most=most) for most in _ROWS)
    if short := next((text for text in texts if len(text) <= LONGEST), ""):
        return short
    kept = _render(run, against, name, links, {}, most=0)[:LONGEST].rpartition("\n")[0].rpartition("\n")[0]
    return f"{kept}\n\nThis comment was cut.\n"


def _render(run: RunFiles, against: Against, name: str, links: Mapping[str, str], images: Mapping[str, str], *, most: int) -> str:
    said = run.view
    datasets = dict.fromkeys(record.dataset for record in run.records if record.dataset)
    about = {
        "model": ", ".join(run.facts.models),
        "data": ", ".join(datasets),
        "run": str(run.manifest.get("run", run.directory.resolve().name)),
        "commit": str(run.manifest.get("commit", "")),
        "policy": ", ".join(sorted({sha256[:12] for sha256 in _policies(run).values()})),
    }
    lines = [marker(name), f"## {said.sign} {said.word}", "", f"{_cell(_capital(said.sentence))}.", ""]
    lines += [" · ".join(f"{what} {code(on_one_line(text, _CELL))}" for what, text in about.items() if text), ""]
    lines += [f"- {code(on_one_line(model, _CELL))}: **{own.word}**" for model, own in [*said.several.items()][:most]]
    lines += [f"- {_cell(limit)}" for limit in said.grave[: max(1, most)]]
    lines += [*([""] if lines[-1] else []), *_worst_questions(said, images), *_changes(run, against, most)]
    lines += _attention(said, most)
    if shown := [f"[{inert(text)}](<{_address(url)}>)" for text, url in links.items() if url]:
        lines += [" · ".join(shown), ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def _worst_questions(view: RunView, images: Mapping[str, str]) -> list[str]:
    """Returns the worst questions: the question, the right answer, what the model answered before and after, and the images."""
    lines: list[str] = []
    for question in view.worst_questions():
        answers = [f"{code(on_one_line(reply.about, _CELL))} {_cell(said)}" for reply, said, _ in question.answers]
        parts = [_cell(question.example.question), f"right {'; '.join([f'**{_cell(question.right)}**', *answers])}"]
        pictures = [picture for _, _, pictures in question.answers for picture in pictures if picture.file in images]
        shown = " ".join(f"![{_cell(picture.caption)}](<{_address(images[picture.file])}>)" for picture in pictures)
        lines.append(f"- {'<br>'.join(filter(None, [*parts, shown]))}")
    return ["### Worst questions", "", *lines, ""] if lines else []


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _policies(run: RunFiles) -> dict[str, str]:
    return {name: str(policy.get("sha256", "")) for name, policy in run.manifest.get("policies", {}).items()}


def _changes(run: RunFiles, against: Against, most: int) -> list[str]:
    """Returns what changed since the earlier run: verdicts, policies, and answers as far as they can be paired."""
    lines = [f"### Since {inert(against.what)}", ""]
    if against.run is None:
        return [*lines, f"Nothing was compared: {_cell(against.problem)}.", ""]
    earlier = against.run
    where = {"run": str(earlier.manifest.get("run", "")), "commit": str(earlier.manifest.get("commit", ""))}
    told = ", ".join(f"{what} {code(text)}" for what, text in where.items() if text)
    lines += [f"That is {told}, {earlier.word}.", ""]
    then, now = _policies(earlier), _policies(run)
    other = [model for model in then.keys() & now.keys() if then[model] != now[model]]
    if other or then.keys() != now.keys():
        lines += ["**The policy is another one**: verdicts may have changed for that reason alone.", ""]
    lines += _verdicts(earlier.view, run.view, most)
    if against.comparison is not None:
        lines += _answers(against.comparison, most)
    if against.problem:
        lines += [f"Answers were not compared: {_cell(against.problem)}.", ""]
    return lines


def _verdicts(before: RunView, after: RunView, most: int) -> list[str]:
    """Returns the tests whose verdict changed, with the number that decided, then and now."""
    earlier = {test.record.key: test for test in before.tests}
    both = [(earlier[test.record.key], test) for test in after.tests if test.record.key in earlier]
    changed = [(then, now) for then, now in both if then.record.outcome is not now.record.outcome]
    new, gone = len(after.tests) - len(both), len(earlier) - len(both)
    rest = [quantity(new, "test is new", "tests are new")] if new else []
    rest += [quantity(gone, "test is gone", "tests are gone")] if gone else []
    if not changed:
        told = f"No verdict of {quantity(len(both), 'test')} changed" if both else "The runs have no test in common"
        return [f"{'; '.join([told, *rest])}.", ""]
    worse = sum(WORST_FIRST.index(now.record.outcome) < WORST_FIRST.index(then.record.outcome) for then, now in changed)
    told = f"{quantity(len(changed), 'verdict')} of {quantity(len(both), 'test')} changed, {worse} for the worse"
    rows = [(code(on_one_line(now.record.id, _CELL)), _verdict(then), _verdict(now)) for then, now in changed[:most]]
    return [f"{'; '.join([told, *rest])}.", "", *_table(("test", "then", "now"), rows, len(changed), "verdict"), ""]


def _verdict(test: ViewedTest) -> str:
    """Returns the verdict of a test with the number that decided."""
    metric, value, beside, _, _ = test.row
    return inert(" ".join(filter(None, [str(test.record.outcome), metric, value, beside])))


def _answers(comparison: Comparison, most: int) -> list[str]:
    """Returns the cells in which the interval of the change leaves 0 out, and how many there are in which it does not."""
    if comparison.unchanged:
        return ["**No answer changed**: every sample scores the same in both runs.", ""]
    unknown = [change for change in comparison.cells if not change.drop.finite]
    shown = [change for change in comparison.cells if change.drop.low > 0.0 or change.drop.high < 0.0]
    level = f"{comparison.confidence:.0%}"
    parts = [
        f"A change is shown in {len(shown)} of {quantity(len(comparison.cells), 'cell')} ({level} intervals, paired by sample)"
    ]
    parts += [f"unknown in {len(unknown)}, where inferences failed"] if unknown else []
    early = len(comparison.stopped_early)
    both = f"where {comparison.early_changed} of {quantity(comparison.early_answers, 'answer')} that both runs have changed"
    parts += [f"{quantity(early, 'cell')} stopped early, {both}"] if early else []
    alone = len(comparison.only_before) + len(comparison.only_after)
    parts += [quantity(alone, "cell is in one run only", "cells are in one run only")] if alone else []
    lines = [f"{'; '.join(parts)}.", ""]
    rows = [_sweep_row(change) for change in comparison.sweeps[:most]]
    rows += [_cell_row(change) for change in shown[: max(0, most - len(rows))]]
    header = ("model, data, setting", "n", "then", "now", "drop since then", "interval", "broken", "fixed")
    return [*lines, *_table(header, rows, len(comparison.sweeps) + len(shown), "change"), ""]


def _sweep_row(change: SweepChange) -> tuple[str, ...]:
    name = code(on_one_line(f"{change.name}, mean over settings", _CELL))
    return (name, str(change.drop.n), "", "", *_estimate(change.drop), "", "")


def _cell_row(change: CellChange) -> tuple[str, ...]:
    levels = number(change.then), number(change.now)
    counts = str(len(change.broken)), str(len(change.fixed))
    return (code(on_one_line(change.name, _CELL)), str(change.n), *levels, *_estimate(change.drop), *counts)


def _estimate(drop: Estimate) -> tuple[str, str]:
    return number(drop.value), interval(drop.low, drop.high)


def _attention(view: RunView, most: int) -> list[str]:
    """Returns what is broken or undecided, worst first."""
    loud = [test.record for test in view.explained]
    lines = [f"### Needs attention: {len(loud)} of {quantity(len(view.records), 'test')}", "", f"{view.counts}.", ""]
    if not loud:
        return []
    rows = [(str(record.outcome), code(on_one_line(record.id, _CELL)), _cell(record.reason)) for record in loud[:most]]
    return [*lines, *_table(("verdict", "test", "why"), rows, len(loud), "test"), ""]


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], of: int, noun: str) -> list[str]:
    lines = markdown_table(header, rows, left=range(len(header)))
    more = of - len(rows)
    below = ["", f"{quantity(more, f'more {noun} is', f'more {noun}s are')} in the report."] if more > 0 else []
    return [*(lines if rows else []), *below]


def _cell(text: str) -> str:
    return inert(on_one_line(text, _CELL))


def _address(url: str) -> str:
    return quote(url, safe="%/:?#@!$&'()*+,;=~-._")
