"""Written: `vlmrobust report` and `vlmrobust junit`, from what a run left."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_vlmrobust.core.counting import quantity
from pytest_vlmrobust.core.errors import StoreError
from pytest_vlmrobust.core.setting import NO_IMAGE_NAME
from pytest_vlmrobust.core.verdict import EXIT_CODES

from .parsing import Commands
from .printing import complain, say

if TYPE_CHECKING:
    from pytest_vlmrobust.reporting import RunFacts
    from pytest_vlmrobust.reporting.runs import RunFiles


def add(commands: Commands) -> None:
    """Adds them to the parser."""
    report = commands.add_parser("report", help="write report.html and the other files of a run, also of one that was killed")
    report.add_argument("run_directory", metavar="RUN", type=Path, help="a run: a directory below .vlmrobust/runs")
    report.add_argument("--out", type=Path, help="where to (default: the run's directory)")
    report.set_defaults(run=_report)

    junit = commands.add_parser("junit", help="write junit.xml of a run from its journal, also of one that was killed")
    junit.add_argument("run_directory", metavar="RUN", type=Path, help="a run: a directory below .vlmrobust/runs")
    junit.add_argument("--out", type=Path, metavar="FILE", help="what to write (default: junit.xml in the run's directory)")
    junit.set_defaults(run=_junit)


def _report(options: argparse.Namespace) -> int:
    from pytest_vlmrobust.reporting import write_report
    from pytest_vlmrobust.reporting.files import summary
    from pytest_vlmrobust.reporting.runs import read_run
    from pytest_vlmrobust.reporting.step_summary import add_step_summary

    run = read_run(options.run_directory)
    out = options.out or options.run_directory
    write_report(out, run.records, _with_ranking(run), None)
    if said := add_step_summary(summary(run.records, run.facts)):
        complain(said)
    say(f"{run.decision}: {len(run.records)} of {run.facts.selected} records, {out / 'report.html'}")
    return EXIT_CODES[run.decision]


def _with_ranking(run: RunFiles) -> RunFacts:
    """Returns the facts of a run with its models side by side; what cannot be ranked is a warning, and one model is nothing."""
    from pytest_vlmrobust.evaluation.ranking import rank_run
    from pytest_vlmrobust.store import Evidence

    if len(run.facts.models) < 2:
        return run.facts
    reference = str(run.manifest.get("settings", {}).get("vlm_reference", ""))
    try:
        with Evidence.open(run.directory, read_only=True) as evidence:
            name = str(run.manifest.get("run", ""))
            return run.facts.ranked(*rank_run(evidence, name, "" if reference == NO_IMAGE_NAME else reference))
    except StoreError as error:
        complain(str(error))
        return run.facts.ranked(None, "the models of the run are not ranked: its answers cannot be read")


def _junit(options: argparse.Namespace) -> int:
    from pytest_vlmrobust.reporting.junit import FILE_NAME
    from pytest_vlmrobust.reporting.runs import read_run
    from pytest_vlmrobust.reporting.writing import write_text

    run = read_run(options.run_directory)
    out = options.out or options.run_directory / FILE_NAME
    out.parent.mkdir(parents=True, exist_ok=True)
    write_text(out, run.junit)
    say(f"{run.decision}: {quantity(len(run.records), 'test')}, {len(run.facts.lost(run.records))} without a verdict, {out}")
    return 0
