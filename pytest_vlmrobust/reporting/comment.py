"""Comment: a run as Markdown for a pull request, with the decision first, then changes since a good run."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from markupsafe import Markup

from pytest_vlmrobust.core.decision import WORST_FIRST
from pytest_vlmrobust.core.words import on_one_line, percent, quantity
from pytest_vlmrobust.evaluation.after.comparison import Comparison

from .comparison import estimate_cells
from .explanation import ViewedTest
from .facts import ci_variables
from .files import RunFiles
from .html.samples import stored_thumbnail
from .markdown import SHORT, code, render

LONGEST = 65_000
"""Characters of a comment: GitHub refuses more than 65,536."""
_ROWS = (30, 10, 3, 0)
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
    """Returns the images of the worst questions by file name, if the run's store has them."""
    answers = [answer for question in run.worst_questions() for answer in question.answers]
    names = dict.fromkeys(picture.file for _, _, pictures in answers for picture in pictures)
    folder = run.facts.pictures
    return {name: image for name in names if folder and (image := stored_thumbnail(folder, name))}


def render_comment(
    run: RunFiles, against: Against, *, name: str, links: Mapping[str, str], images: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Returns the comment, of at most :data:`LONGEST` characters.

    Args:
        run: the run.
        against: the comparison.
        name: distinguishes comments of several gates on a pull request.
        links: web addresses by text; empty ones are left out.
        images: web addresses of images by file name; images without one are left out.
    """
    texts = (_render(run, against, name, links, images, most=most) for most in _ROWS)
    if short := next((text for text in texts if len(text) <= LONGEST), ""):
        return short
    kept = _render(run, against, name, links, {}, most=0)[:LONGEST].rpartition("\n")[0].rpartition("\n")[0]
    return f"{kept}\n\nThis comment was cut.\n"


def _render(run: RunFiles, against: Against, name: str, links: Mapping[str, str], images: Mapping[str, str], *, most: int) -> str:
    datasets = dict.fromkeys(record.dataset for record in run.records if record.dataset)
    about = {
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
        about=about,
        models=[*run.several.items()][:most],
        grave=run.grave[: max(1, most)],
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


def _earlier(earlier: RunFiles, run: RunFiles, most: int) -> Mapping[str, Any]:
    """Returns which run is compared with, and the tests whose verdict changed, with the number that decided, then and now."""
    before = {test.record.key: test for test in earlier.tests}
    both = [(before[test.record.key], test) for test in run.tests if test.record.key in before]
    changed = [(then, now) for then, now in both if then.record.outcome is not now.record.outcome]
    worse = sum(WORST_FIRST.index(now.record.outcome) < WORST_FIRST.index(then.record.outcome) for then, now in changed)
    new, gone = len(run.records) - len(both), len(before) - len(both)
    told = f"No verdict of {quantity(len(both), 'test')} changed" if both else "The runs have no test in common"
    if changed:
        told = f"{quantity(len(changed), 'verdict')} of {quantity(len(both), 'test')} changed, {worse} for the worse"
    rest = [quantity(new, "test is new", "tests are new")] if new else []
    rest += [quantity(gone, "test is gone", "tests are gone")] if gone else []
    return {
        "where": {what: earlier.manifest.get(what, "") for what in ("run", "commit")},
        "word": earlier.word,
        "other_policy": _policies(earlier) != _policies(run),
        "verdicts": "; ".join([told, *rest]),
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
    cells, level = quantity(len(comparison.cells), "cell"), f"{comparison.confidence:.0%}"
    parts = {
        f"A change is shown in {len(shown)} of {cells} ({level} intervals, paired by sample)": True,
        f"unknown in {unknown}, where inferences failed": unknown,
        f"{quantity(len(early.cells), 'cell')} stopped early, {both}": early.cells,
        quantity(alone, "cell is in one run only", "cells are in one run only"): alone,
    }
    rows = [
        (
            f"{sweep.name}, mean over settings",
            str(sweep.mean_baseline_drop.n),
            "",
            "",
            *estimate_cells(sweep.mean_baseline_drop),
            "",
            "",
        )
        for sweep in comparison.sweeps
    ]
    for cell in shown:
        counts = str(len(cell.broken)), str(len(cell.fixed))
        rows.append((cell.name, str(cell.n), percent(cell.then), percent(cell.now), *estimate_cells(cell.baseline_drop), *counts))
    return {
        "unchanged": comparison.unchanged,
        "told": "; ".join(text for text, holds in parts.items() if holds),
        "rows": [(code(on_one_line(name, SHORT)), *row) for name, *row in rows[:most]],
        "count": len(rows),
    }
