"""Papers: `vlmrobust reproduce`."""

from __future__ import annotations

import json
import math
import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from pytest_vlmrobust.core.conversion import to_plain
from pytest_vlmrobust.core.errors import UsageError
from pytest_vlmrobust.core.words import first_few, percent, quantity

from .arguments import AsJson, NamedRun, in_color, in_quarantine, named_run, say, show, width

if TYPE_CHECKING:
    from pytest_vlmrobust.evaluation.after.published import PublishedTable, Reproduced, ReproducedTable, Reproduction


@in_quarantine()
def reproduce(
    paper: Annotated[str, Argument(help="a paper", show_default="list papers and tables")] = "",
    table: Annotated[str, Argument(help="the number of one of its tables", show_default="all")] = "",
    *,
    runs: Annotated[
        list[NamedRun] | None,
        Option(
            "--run",
            metavar="RUN",
            parser=named_run,
            help="a run to compare with (repeatable; runs of one model are averaged): a directory that holds predictions.sqlite; "
            "NAME=RUN puts NAME before its models",
        ),
    ] = None,
    called: Annotated[
        list[str] | None,
        Option("--as", metavar="OURS=THEIRS", help="the paper's name of a model or dataset of the runs (repeatable)"),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Print the published tables of a paper, how to run them, and ours beside them.

    Examples:
        vlmrobust reproduce vlm-robustbench
        vlmrobust reproduce vlm-robustbench 2 --run latest
    """
    from pytest_vlmrobust.evaluation.after import reproduction

    if not paper:
        if runs:
            raise UsageError("vlmrobust reproduce: a run is compared with a paper: name one before --run")
        _list(as_json=as_json)
        return 0
    if called and not runs:
        raise UsageError("vlmrobust reproduce: --as says what models and datasets of a run are called: name the run with --run")
    result = reproduction.reproduce(paper, table, runs=runs or (), called=reproduction.parse_names(called or ()))
    if as_json:
        say(json.dumps({"reproduction_version": 1, **to_plain(result)}, indent=1))
    else:
        show(_rendered(result, width=width(), color=in_color()).rstrip("\n"))
    return 0


def _list(*, as_json: bool) -> None:
    from pytest_vlmrobust.evaluation.after.published import paper, papers

    every = [paper(name) for name in papers()]
    if as_json:
        listed = {entry.name: {number: table.caption for number, table in entry.tables.items()} for entry in every}
        say(json.dumps(listed, indent=1))
        return
    for entry in every:
        say(_contents([*entry.tables.values()], entry.title))


# The papers' tables: as printed, with our number next to each.


_HEADER = ("about", "metric", "published", "ours", "n", "interval", "half-width\nand limit", "difference", "")
_MANY = 3
"""Columns of a metric from which its name is not repeated."""
_ABSENT = "no run of "


def _rendered(reproduction: Reproduction, *, width: int, color: bool) -> str:
    """Returns the tables as text: with runs, a line for each number in them, else each table as printed."""
    parts = [part for table in reproduction.tables for part in _table(reproduction, table, max(80, width), color)]
    notes = [_wrapped(f"- {note}", width) for note in (*reproduction.notes, *_reading(reproduction))]
    return "\n\n".join([*parts, "\n".join(notes)])


def _table(reproduction: Reproduction, table: ReproducedTable, width: int, color: bool) -> list[str]:
    parts = [_wrapped(f"{reproduction.title}, table {table.number}. {table.caption}", width)]
    parts += ["\n".join(f"  $ {command}" for command in table.commands)] if table.commands else []
    if table.models:
        parts.append("  models.yaml:\n" + textwrap.indent(table.models.rstrip("\n"), "    "))
    if not table.values:
        parts.append("  No number of this table can be compared.")
    elif reproduction.runs or any(value.ours for value in table.values):
        parts += _comparison(table, width, color)
    elif not any(value.printed for value in table.values):
        parts.append(f"  None of its {len(table.values)} numbers is at hand.")
    else:
        parts.append(_printed(table, width, color))
    return [*parts, *(["\n".join(_wrapped(f"  - {note}", width) for note in table.notes)] if table.notes else [])]


def _comparison(table: ReproducedTable, width: int, color: bool) -> list[str]:
    from pytest_vlmrobust.reporting.writing import render_table

    ours = [value for value in table.values if value.ours is not None or value.word]
    rows = [_row(value, table.scale) for value in ours]
    parts = [render_table(_HEADER, rows, names=2, width=width, color=color).rstrip("\n")] if rows else []
    reasons = Counter(value.reason for value in table.values if value.reason)
    absent = {reason: count for reason, count in reasons.items() if reason.startswith(_ABSENT)}
    if len(absent) > 1:
        names = first_few([reason.removeprefix(_ABSENT) for reason in absent], 3)
        reasons = reasons - Counter(absent) + Counter({f"{_ABSENT}{names}": sum(absent.values())})
    lines = [f"  {quantity(count, 'published number')} without ours: {reason}" for reason, count in reasons.most_common(5)]
    if len(reasons) > 5:
        lines.append(f"  and {quantity(len(reasons) - 5, 'more reason')}, see --json")
    notes = Counter(value.ours.reason for value in ours if value.ours is not None and value.ours.reason)
    lines += [f"  ours, {quantity(count, 'number')}: {note}" for note, count in notes.most_common(5)]
    return [*parts, *(["\n".join(_wrapped(line, width) for line in lines)] if lines else [])]


def _row(value: Reproduced, scale: int) -> tuple[str, ...]:
    subject = ", ".join(value.about.values())
    printed = f"{value.printed} of {value.of}" if value.of else value.printed or "not at hand"
    estimate = value.ours
    assert estimate is not None
    if value.word:
        return (subject, value.metric, printed, value.word, str(estimate.n or ""), "", "", "", value.agreement or "no interval")
    difference = value.difference
    digits = _digits(printed, scale) + (estimate.n == 0)  # parameters are known more precisely than printed
    exact = estimate.low == estimate.high == estimate.value
    ours = f"{estimate.value:g}" if exact else f"{estimate.value:.{digits}f}"
    interval = "" if exact or math.isnan(estimate.low) else f"[{estimate.low:.{digits}f}, {estimate.high:.{digits}f}]"
    apart = "" if difference is None else f"{difference.value:+.{digits}f}"
    agreement = (value.agreement or "no interval") if difference is not None else ""
    limit = f"{value.half_width:.{digits}f} of {value.limit:.{digits}f}" if interval and difference is not None else ""
    return (subject, value.metric, printed, ours, str(estimate.n or ""), interval, limit, apart, agreement)


def _digits(printed: str, scale: int) -> int:
    """Returns the decimals of our number: those printed, at least one."""
    if not printed.removeprefix("-").replace(".", "").isdigit():
        return 1 if scale == 100 else 3
    return max(1, len(printed.partition(".")[2]))


def _printed(table: ReproducedTable, width: int, color: bool) -> str:
    """Returns the printed numbers, a line for each row of the table."""
    from pytest_vlmrobust.reporting.writing import render_table

    alike = {key for key in table.values[0].about if len({value.about.get(key) for value in table.values}) == 1}
    columns: dict[tuple[str, ...], str] = {}
    rows: dict[tuple[str, ...], dict[tuple[str, ...], str]] = {}
    for value in table.values:
        rest = [part for key, part in value.about.items() if key not in alike and key not in table.keys]
        column = (value.metric, *rest)
        columns[column] = " ".join([value.metric.replace("_", " "), *rest])
        printed = f"{value.printed} of {value.of}" if value.of else value.printed or "not at hand"
        rows.setdefault(tuple(value.about[key] for key in table.keys), {})[column] = printed
    metric, count = (
        Counter(name for name, *rest in columns if rest).most_common(1)[0] if any(rest for _, *rest in columns) else ("", 0)
    )
    above = ""
    if count > _MANY:
        columns |= {column: " ".join(column[1:]) for column in columns if column[0] == metric and len(column) > 1}
        above = f"  Columns that name no metric are of {metric}.\n\n"
    lines = [(*row, *(cells.get(column, "") for column in columns)) for row, cells in rows.items()]
    header = (*table.keys, *(title.replace(" ", "\n").replace(":", ":\n") for title in columns.values()))
    return above + render_table(header, lines, names=len(table.keys), width=width, color=color).rstrip("\n")


def _reading(reproduction: Reproduction) -> list[str]:
    from pytest_vlmrobust.evaluation.after.published import AGREES, COMPATIBLE, DIFFERS, MULTIPLE

    if not reproduction.runs and not any(value.ours for table in reproduction.tables for value in table.values):
        return ["With --run RUN, ours stand beside the published numbers."]
    meaning = (
        f"{AGREES}: the published number lies in our interval, whose half-width is at most the limit. {COMPATIBLE}: it lies "
        f"inside, and our interval is too wide to test it. {DIFFERS}: it lies outside."
    )
    limit = (
        f"The limit is {MULTIPLE} times the precision of the published number: where the paper's number of questions is known, "
        "the half-width that our interval would have with so many, and at most the margin of error of a share over so many; else "
        "half a unit of the last printed digit. n is our number of samples."
    )
    words = [meaning, limit]
    if not reproduction.runs:
        return words
    return [
        f"{percent(reproduction.confidence, 0)} intervals are ours alone: a published number has none and is taken as exact.",
        *words,
        "Ours has no interval where a run lacks settings that it is about. A tier agrees where our interval has no other tier.",
        f"Runs: {first_few(reproduction.runs)}.",
    ]


def _wrapped(line: str, width: int) -> str:
    indent = " " * (len(line) - len(line.lstrip(" -")))
    return "\n".join(
        textwrap.wrap(line, min(width, 120), subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    )


def _contents(tables: Sequence[PublishedTable], title: str) -> str:
    """Returns the lines about a paper: its tables, their subjects and their counts of numbers."""
    return "\n".join(
        [
            title,
            *(
                f"  {table.paper} {table.number:>2}  {table.caption} [{quantity(len(table.values), 'number')}"
                f"{'' if not table.values or any(value.printed for value in table.values) else ', none at hand'}]"
                for table in tables
            ),
        ]
    )
