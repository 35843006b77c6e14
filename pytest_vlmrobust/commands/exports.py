"""Exports: `vlmrobust export`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from pytest_vlmrobust.core.counting import quantity

from .parsing import Commands
from .printing import say


def add(commands: Commands) -> None:
    """Adds it to the parser."""
    export = commands.add_parser("export", help="write what a run measured as the files of another program")
    export.add_argument("run_directory", metavar="RUN", type=Path, help="a run: a directory that holds predictions.sqlite")
    export.add_argument("--to", required=True, choices=sorted(_FORMATS), help="nel: what nel compare and nel gate read")
    export.add_argument("--out", required=True, type=Path, metavar="DIR", help="the directory to create")
    export.add_argument("--model", default="", metavar="NAME", help="a model of the run (default: its only one)")
    export.set_defaults(run=_export)


def _export(options: argparse.Namespace) -> int:
    _FORMATS[options.to](options)
    return 0


def _nel(options: argparse.Namespace) -> None:
    from pytest_vlmrobust.reporting.nel import MEAN, write_nel

    written = write_nel(options.run_directory, options.out, model=options.model)
    say(f"{options.out}: {len(written)} benchmarks, {sum(one.results for one in written)} results")
    for one in written:
        if one.unscored:
            asked = one.results + one.unscored
            say(
                f"note: {one.name}: {one.unscored} of {quantity(asked, 'sample')} left out: "
                "inferences failed, and nel has no word for that"
            )
    for dataset, metric in sorted({(one.dataset, one.corpus_metric) for one in written}):
        if metric != MEAN:
            say(f"note: {dataset}: nel compares the mean of the samples' scores, which is not {metric}")


_FORMATS: dict[str, Callable[[argparse.Namespace], None]] = {"nel": _nel}
