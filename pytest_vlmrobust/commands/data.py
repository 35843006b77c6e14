"""Data: `vlmrobust data`, which describes a file and its scoring, and draws its first questions."""

from __future__ import annotations

import argparse

from pytest_vlmrobust.core.errors import typed_path
from pytest_vlmrobust.core.words import on_one_line, quantity

from .arguments import Commands, add_command, complain, say, tell

NAMED = 20
"""Maximum number of unreadable images to name."""


def add(commands: Commands) -> None:
    """Adds it to the parser."""
    data = add_command(
        commands,
        "data",
        "describe a dataset and how it would be scored, and draw its first questions",
        "vlmrobust data my_questions.jsonl --out questions.html",
        "vlmrobust data MMBench_DEV_EN --data /data/LMUData",
    )
    data.add_argument("file", metavar="FILE", help="as after --vlm-dataset: a path, an embedded name, a benchmark, hf:ID")
    data.add_argument("--data", type=typed_path, metavar="DIR", help="the data folder, as after --vlm-data")
    data.add_argument("--out", type=typed_path, metavar="PAGE", help="draw the first twenty questions on one page: PAGE.html")
    data.set_defaults(run=_data)


def _data(options: argparse.Namespace) -> int:
    from pytest_vlmrobust.core.errors import UsageError
    from pytest_vlmrobust.datasets import resolve
    from pytest_vlmrobust.evaluation.run.profile import profile

    if options.out and options.out.suffix.lower() not in {".html", ".htm"}:
        raise UsageError(f"--out {options.out} is no page. Expected a name that ends with .html")
    found = profile(resolve(options.file, data_dir=options.data))
    widest = max(len(name) for name, _ in found.facts)
    for name, fact in found.facts:
        tell(f"{name:<{widest}}  {on_one_line(fact)}")
    for note in found.notes:
        tell(f"note: {on_one_line(note, None)}")
    if options.out:
        from pytest_vlmrobust.reporting.html.questions import render_questions
        from pytest_vlmrobust.reporting.writing import write_out

        write_out(options.out, render_questions(found))
        say(f"{options.out}: {quantity(len(found.questions), 'question')} drawn")
    if found.refusal:
        complain(f"a run with these data is refused: {found.refusal}")
    if found.unread:
        count = quantity(len(found.unread), "image")
        more = [f"… and {len(found.unread) - NAMED} more"] if len(found.unread) > NAMED else []
        raise UsageError("\n  ".join([f"{count} cannot be read; mend or remove these rows:", *found.unread[:NAMED], *more]))
    return int(bool(found.refusal))
