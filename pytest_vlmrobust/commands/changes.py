"""Changes: `vlmrobust compare`."""

from __future__ import annotations

import argparse
from pathlib import Path

from .parsing import Commands
from .printing import in_color, show, width


def add(commands: Commands) -> None:
    """Adds them to the parser."""
    compare = commands.add_parser("compare", help="say what changed between two runs on the same samples")
    compare.add_argument("before", metavar="A", type=Path, help="the earlier run: a directory that holds predictions.sqlite")
    compare.add_argument("after", metavar="B", type=Path, help="the later run")
    compare.add_argument("--out", type=Path, metavar="DIR", help="write comparison.json and comparison.md there")
    compare.add_argument("--model", default="", metavar="NAME", help="a model of the later run (default: all of them)")
    compare.set_defaults(run=_compare)


def _compare(options: argparse.Namespace) -> int:
    from pytest_vlmrobust.evaluation.comparison import compare
    from pytest_vlmrobust.reporting.comparison import render_comparison, write_comparison

    found = compare(options.before, options.after, model=options.model)
    if options.out:
        write_comparison(options.out, found)
    show(render_comparison(found, width=width(), color=in_color()).rstrip("\n"))
    return 0
