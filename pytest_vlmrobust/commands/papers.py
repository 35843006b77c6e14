"""Papers: `vlmrobust reproduce`."""

from __future__ import annotations

import argparse
import json

from pytest_vlmrobust.core.conversion import to_plain
from pytest_vlmrobust.core.errors import UsageError

from .arguments import Commands, add_command, in_color, named_run, say, show, width


def add(commands: Commands) -> None:
    """Adds it to the parser."""
    reproduce = add_command(
        commands,
        "reproduce",
        "print the published tables of a paper, how to run them, and ours beside them",
        "vlmrobust reproduce vlm-robustbench",
        "vlmrobust reproduce vlm-robustbench 2 --run latest",
    )
    reproduce.add_argument("paper", metavar="PAPER", nargs="?", default="", help="a paper (default: list papers and tables)")
    reproduce.add_argument("table", metavar="TABLE", nargs="?", default="", help="the number of one of its tables (default: all)")
    reproduce.add_argument(
        "--run",
        action="append",
        default=[],
        dest="runs",
        metavar="RUN",
        type=named_run,
        help="a run to compare with (repeatable; runs of one model are averaged): a directory that holds predictions.sqlite; "
        "NAME=RUN puts NAME before its models",
    )
    reproduce.add_argument(
        "--as",
        action="append",
        default=[],
        dest="called",
        metavar="OURS=THEIRS",
        help="the paper's name of a model or dataset of the runs (repeatable)",
    )
    reproduce.add_argument("--json", action="store_true", help="print JSON")
    reproduce.set_defaults(run=_reproduce)


def _reproduce(options: argparse.Namespace) -> int:
    from pytest_vlmrobust.evaluation.after.reproduction import parse_names, reproduce
    from pytest_vlmrobust.reporting.reproduction import render_reproduction

    if not options.paper:
        if options.runs:
            raise UsageError("vlmrobust reproduce: a run is compared with a paper: name one before --run")
        _list(as_json=options.json)
        return 0
    if options.called and not options.runs:
        raise UsageError("vlmrobust reproduce: --as says what models and datasets of a run are called: name the run with --run")
    found = reproduce(options.paper, options.table, runs=options.runs, called=parse_names(options.called))
    if options.json:
        say(json.dumps({"reproduction_version": 1, **to_plain(found)}, indent=1))
    else:
        show(render_reproduction(found, width=width(), color=in_color()).rstrip("\n"))
    return 0


def _list(*, as_json: bool) -> None:
    from pytest_vlmrobust.evaluation.after.published import paper, papers
    from pytest_vlmrobust.reporting.reproduction import contents

    every = [paper(name) for name in papers()]
    if as_json:
        listed = {one.name: {number: table.caption for number, table in one.tables.items()} for one in every}
        say(json.dumps(listed, indent=1))
        return
    for one in every:
        say(contents([*one.tables.values()], one.title))
