"""What people and programs read of eight stored runs, as text.

``tests/golden/reports/RUN`` holds what each run left (``records.jsonl``, ``manifest.json``, ``docket.json``) and what is written
of it. A change of a report shows as a difference of these files, which is reviewed. To rewrite them:

    VLMROBUST_REWRITE_SNAPSHOTS=1 pytest tests/unit/reporting/test_view.py
"""

from __future__ import annotations

import dataclasses
import difflib
import html
import os
import re
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest

from pytest_vlmrobust.reporting import render_terminal
from pytest_vlmrobust.reporting.comment import Against, render_comment
from pytest_vlmrobust.reporting.explanation import explain
from pytest_vlmrobust.reporting.exports.sarif import sarif
from pytest_vlmrobust.reporting.files import RunFiles, read_run, summary
from pytest_vlmrobust.reporting.html import render_html
from pytest_vlmrobust.reporting.html.words import visible_text
from pytest_vlmrobust.reporting.model_card import model_card
from pytest_vlmrobust.reporting.results import cells_csv, results
from pytest_vlmrobust.reporting.view import view
from pytest_vlmrobust.reporting.writing import inert, json_text

RUNS = Path(__file__).parents[2] / "golden" / "reports"
NAMES = ("go", "waived", "allowed", "no-go", "shortfall", "incomplete", "three-models", "hostile")
REWRITE = "VLMROBUST_REWRITE_SNAPSHOTS"
MOST_LINES = 20
"""Lines of one file's difference that are shown."""


def stored(name: str) -> RunFiles:
    """Returns a stored run, as if it stood in ``runs``."""
    run = read_run(RUNS / name)
    return dataclasses.replace(run, facts=dataclasses.replace(run.facts, directory=f"runs/{name}", pictures=None))


def page_text(page: str) -> str:
    """Returns what a reader sees of a page, a line for each row, paragraph and item."""
    page = re.sub(r"<(style|script|svg|head)\b.*?</\1>", "", page, flags=re.DOTALL)
    page = re.sub(r"\s+", " ", page)
    page = re.sub(r"</(tr|p|li|h[1-6]|div|dt|dd|summary|caption|section|article|header|footer|a)>", "\n", page)
    page = re.sub(r"</t[hd]>", " | ", page)
    text = html.unescape(re.sub(r"<[^>]*>", " ", page))
    return "\n".join(line for one in text.split("\n") if (line := " ".join(one.split()))) + "\n"


def comment(run: RunFiles) -> str:
    against = Against("run go", stored("go")) if run.directory.name != "go" else Against("the last GO", problem="there is none")
    return render_comment(run, against, name="gate", links={})


def results_without_records(run: RunFiles) -> str:
    content = results(run.records, run.facts)
    return json_text({**content, "records": [record["key"] for record in content["records"]]})


OUTPUTS: dict[str, Callable[[RunFiles], str]] = {
    "page.txt": lambda run: page_text(render_html(run.records, run.facts, run.manifest)),
    "summary.md": lambda run: summary(run.records, run.facts),
    "model_card.md": lambda run: model_card(run.records, run.facts, run.manifest),
    "terminal.txt": lambda run: render_terminal(run.records, run.facts, width=120, color=False),
    "comment.md": comment,
    "junit.xml": lambda run: run.junit.replace("><", ">\n<"),
    "failures.txt": lambda run: "\n".join(f"{record.id}\n{explain(record)}" for record in run.records) + "\n",
    "results.json": results_without_records,
    "cells.csv": lambda run: cells_csv(run.records),
    "gate.sarif": lambda run: json_text(sarif(run)),
}


@pytest.mark.parametrize("name", NAMES)
def test_outputs_are_the_stored_ones(name: str) -> None:
    run = stored(name)
    differing: list[str] = []
    for file, write in OUTPUTS.items():
        path, text = RUNS / name / file, write(run)
        if os.environ.get(REWRITE):
            path.write_text(text, encoding="utf-8")
        elif (before := path.read_text(encoding="utf-8") if path.exists() else "") != text:
            changed = difflib.unified_diff(before.splitlines(), text.splitlines(), file, file, n=0, lineterm="")
            differing += islice(changed, MOST_LINES)
    differences = "\n".join(differing)
    assert not differing, f"reports of {name} differ: rewrite them with {REWRITE}=1, and review the difference\n{differences}"


def markdown_limits(text: str) -> list[str]:
    """Returns the items below the heading Limits, without their details."""
    return [line[2:] for line in text.partition("# Limits\n")[2].splitlines() if line.startswith("- ")]


@pytest.mark.parametrize("name", NAMES)
def test_limits_are_the_same_wherever_they_are_listed(name: str) -> None:
    run = stored(name)
    texts = [limit.text for limit in view(run.records, run.facts).limits]
    shown = list(map(inert, texts))
    assert markdown_limits(summary(run.records, run.facts)) == shown
    assert markdown_limits(model_card(run.records, run.facts, run.manifest)) == shown
    (listed,) = re.findall(r'<ul class="limits">(.*?)\n  </ul>', render_html(run.records, run.facts, run.manifest), re.DOTALL)
    items = [re.findall(r"<summary>(.*?)</summary>|<p>(.*?)</p>", item) for item in listed.split("\n    <li")[1:]]
    on_page = [html.unescape(next(filter(None, found[0]))) for found in items]
    assert [one for one in on_page if "thumbnails are not on this page" not in one] == list(map(visible_text, texts))


def test_what_a_policy_allows_is_in_every_report() -> None:
    run = stored("allowed")
    for file in ("page.txt", "summary.md", "model_card.md", "terminal.txt", "comment.md", "junit.xml", "results.json"):
        text = OUTPUTS[file](run)
        assert "30 of 128" in text, file
        assert "not shown to look" in text, file
        assert "allowed by p.yaml:2, coverage samples: partial" in text or file == "results.json", file


def test_a_go_that_supports_no_release_says_so_in_every_report() -> None:
    run = stored("go")
    (name, policy), *_ = run.manifest["policies"].items()
    manifest = {**run.manifest, "policies": {name: {**policy, "purpose": "demonstration"}}}
    run = dataclasses.replace(run, manifest=manifest, facts=dataclasses.replace(run.facts, origins=manifest))
    for file in ("page.txt", "summary.md", "model_card.md", "terminal.txt", "comment.md", "results.json", "gate.sarif"):
        assert "GO (demonstration)" in OUTPUTS[file](run), file
    assert 'name="vlm.purpose" value="demonstration"' in OUTPUTS["junit.xml"](run)
    assert "this GO supports no release" in OUTPUTS["page.txt"](run)
    assert view(run.records, run.facts).decision == "GO"
