"""Ranks: `vlmrobust rank`."""

from __future__ import annotations

import argparse
from pathlib import Path

from pytest_vlmrobust.core.ranking import BY

from .parsing import Commands
from .printing import in_color, show, width


def add(commands: Commands) -> None:
    """Adds it to the parser."""
    ranks = commands.add_parser("rank", help="put several models side by side: ranks with intervals, mCE, drops by family")
    ranks.add_argument(
        "runs",
        metavar="RUN",
        nargs="+",
        help="a run of the models: a directory that holds predictions.sqlite; NAME=RUN puts NAME before those of its models",
    )
    ranks.add_argument("--out", type=Path, metavar="DIR", help="write models.html, models.md and models.json there")
    ranks.add_argument("--by", default=BY[0], choices=BY, help="what ranks (default: %(default)s)")
    ranks.add_argument("--reference", default="", metavar="MODEL", help="the model whose errors are the unit of mCE")
    ranks.set_defaults(run=_rank)


def _rank(options: argparse.Namespace) -> int:
    from pytest_vlmrobust.evaluation.ranking import rank
    from pytest_vlmrobust.reporting.ranking import render_ranking, write_ranking

    found = rank([_named(run) for run in options.runs], by=options.by, reference=options.reference)
    if options.out:
        write_ranking(options.out, found)
    show(render_ranking(found, width=width(), color=in_color()).rstrip("\n"))
    return 0


def _named(run: str) -> tuple[str, Path]:
    """Returns the name that the models of a run get and its directory; a directory is what it is, whatever its name."""
    name, equals, directory = run.partition("=")
    return ("", Path(run)) if not equals or Path(run).is_dir() else (name, Path(directory))
