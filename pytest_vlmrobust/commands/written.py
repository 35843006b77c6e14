"""Written: `vlmrobust report` and `vlmrobust junit`, from what a run left."""

from __future__ import annotations

import argparse
from pathlib import Path

from pytest_vlmrobust.core.verdict import EXIT_CODES

from .parsing import Commands
from .printing import complain, say


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
    write_report(out, run.records, run.facts, None)
    if said := add_step_summary(summary(run.records, run.facts)):
        complain(said)
    say(f"{run.decision}: {len(run.records)} of {run.facts.selected} records, {out / 'report.html'}")
    return EXIT_CODES[run.decision]


def _junit(options: argparse.Namespace) -> int:
    from pytest_vlmrobust.reporting.junit import FILE_NAME
    from pytest_vlmrobust.reporting.runs import read_run
    from pytest_vlmrobust.reporting.writing import write_text

    run = read_run(options.run_directory)
    out = options.out or options.run_directory / FILE_NAME
    out.parent.mkdir(parents=True, exist_ok=True)
    write_text(out, run.junit)
    say(f"{run.decision}: {len(run.records)} tests, {len(run.facts.lost(run.records))} without a verdict, {out}")
    return 0
