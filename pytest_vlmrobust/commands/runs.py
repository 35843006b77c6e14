"""Runs: `vlmrobust runs`, `history`, `report`, `junit`, `compare`, `comment` and `rank`."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_vlmrobust.core.cell import CLEAN_NAME, NO_IMAGE_NAME
from pytest_vlmrobust.core.decision import EXIT_CODES, Decision
from pytest_vlmrobust.core.errors import StoreError, UsageError, did_you_mean, typed_path
from pytest_vlmrobust.core.words import quantity
from pytest_vlmrobust.evaluation.after.standings import BY

from .arguments import (
    RUN_HELP,
    STORE,
    Commands,
    add_command,
    complain,
    counting,
    in_color,
    named_run,
    run_directory,
    runs_of,
    say,
    show,
    width,
)

if TYPE_CHECKING:
    from pytest_vlmrobust.evaluation.after.comparison import Comparison
    from pytest_vlmrobust.reporting.files import RunFiles
    from pytest_vlmrobust.reporting.sweeps import Headline, Number


def add(commands: Commands) -> None:
    """Adds them to the parser."""
    _add_runs(commands)
    _add_history(commands)
    _add_files(commands)
    _add_compare(commands)
    _add_comment(commands)
    _add_rank(commands)


# `vlmrobust runs`.


_RUNS_HEADER = ("run", "date", "decision", "model", "data", "tests", "clean", "mean drop", "worst")
_KEY_NUMBERS = _RUNS_HEADER[6:]
_NAMES = 5
"""The number of leading columns that are left-aligned."""
_SPARED = ("date", "tests", "worst", "clean")
"""Columns left out on a narrow terminal, in this order: the name of a run begins with its date."""


def _add_runs(commands: Commands) -> None:
    runs = add_command(
        commands,
        "runs",
        "list the runs of a store, the newest first, with their decisions and key numbers",
        "vlmrobust runs --last 5",
    )
    runs.add_argument(
        "--store", type=typed_path, default=STORE, metavar="DIR", help="the store of the runs (default: %(default)s)"
    )
    runs.add_argument("--last", type=counting("runs"), default=20, metavar="N", help="how many to list (default: %(default)s)")
    runs.set_defaults(run=_list_runs, limits={})


def _list_runs(options: argparse.Namespace) -> int:
    from pytest_vlmrobust.reporting.files import read_run
    from pytest_vlmrobust.reporting.sweeps import legend
    from pytest_vlmrobust.reporting.writing import render_table

    found = _some_runs(options.store)
    rows: list[tuple[str, ...]] = []
    numbers: list[Number] = []
    for directory in found[: options.last]:
        try:
            run = read_run(directory)
        except StoreError as error:
            complain(str(error))
            rows.append((directory.name, "", "cannot be read", *[""] * (len(_RUNS_HEADER) - 3)))
            continue
        about = [headline for headline in run.numbers if _key_numbers(headline)]
        rows += _rows_of(run, about)
        numbers += [number for headline in about for number in _key_numbers(headline).values()]
    kept = _columns_for(width(), rows)
    header, *shown = [[row[place] for place in kept] for row in (_RUNS_HEADER, *rows)]
    names = len([place for place in kept if place < _NAMES])
    whole = header.index("decision") + 1
    show(render_table(header, shown, names=names, width=width(), color=in_color(), whole=whole).rstrip("\n"))
    if marks := legend(numbers):
        say(marks)
    if (hidden := len(found) - options.last) > 0:
        say(f"… and {quantity(hidden, 'older run')}: --last {len(found)} lists all")
    return 0


def _some_runs(store: Path) -> list[Path]:
    found = runs_of(store)
    if not found:
        problem = "holds no run" if store.is_dir() else "there is no such directory"
        raise StoreError(f"{store}: {problem}. Run pytest --vlm=NAME first, or name another store with --store")
    return found


def _key_numbers(headline: Headline) -> dict[str, Number]:
    return {number.name: number for number in headline.numbers if number.name in _KEY_NUMBERS}


def _tests_of(run: RunFiles) -> str:
    """Returns the number of selected tests with a record."""
    return f"{sum(record.is_gated for record in run.records)} of {run.facts.selected}"


def _rows_of(run: RunFiles, headlines: Iterable[Headline]) -> list[tuple[str, ...]]:
    """Returns the rows of a run: one for each model and dataset with key numbers; the first names the run."""
    tests = _tests_of(run)
    about = (run.directory.name, str(run.manifest.get("date", "")), run.word)
    rows: list[tuple[str, ...]] = []
    for headline in headlines:
        numbers = _key_numbers(headline)
        named = (headline.model, headline.dataset, "" if rows else tests)
        shown = (numbers[name].marked if name in numbers else "" for name in _KEY_NUMBERS)
        rows.append((*(("", "", "") if rows else about), *named, *shown))
    return rows or [(*about, ", ".join(run.facts.models), "", tests, "", "", "")]


def _columns_for(columns: int, rows: Iterable[Sequence[str]]) -> list[int]:
    """Returns the positions of the columns to show: all, or those that fit a terminal of this width."""
    from rich.cells import cell_len

    widths = [max(map(cell_len, column)) for column in zip(_RUNS_HEADER, *rows, strict=True)]
    kept = list(range(len(widths)))
    for title in _SPARED:
        if sum(widths[place] for place in kept) + 2 * (len(kept) - 1) <= columns:
            break
        kept.remove(_RUNS_HEADER.index(title))
    return kept


# `vlmrobust history`.


def _add_history(commands: Commands) -> None:
    history = add_command(
        commands,
        "history",
        "draw a metric over the runs of a store, with intervals and changes",
        "vlmrobust history --metric worst_case_drop --out history.html",
        "vlmrobust history --metric accuracy_drop --setting fog:low",
    )
    history.add_argument("--metric", default="mean_drop", metavar="M", help="what to draw (default: %(default)s)")
    history.add_argument(
        "--setting", default=CLEAN_NAME, help="for a metric of single settings, which one (default: %(default)s)"
    )
    history.add_argument(
        "--store", type=typed_path, default=STORE, metavar="DIR", help="the store of the runs (default: %(default)s)"
    )
    history.add_argument("--last", type=counting("runs"), default=20, metavar="N", help="how many runs (default: %(default)s)")
    history.add_argument("--out", type=typed_path, metavar="FILE", help="also write an HTML page")
    history.set_defaults(run=_history, limits={})


def _history(options: argparse.Namespace) -> int:
    from pytest_vlmrobust import perturbations
    from pytest_vlmrobust.evaluation.judge.measurements import quantity as known_metric
    from pytest_vlmrobust.reporting.files import read_run
    from pytest_vlmrobust.reporting.history import Point, points_of, render_history, render_history_page
    from pytest_vlmrobust.reporting.writing import write_out

    known_metric(options.metric)
    series: dict[str, list[Point]] = {}
    for directory in _some_runs(options.store)[: options.last]:
        try:
            run = read_run(directory)
        except StoreError as error:
            complain(str(error))
            continue
        for name, point in points_of(run, options.metric, options.setting).items():
            series.setdefault(name, []).append(point)
    if not series:
        what = f"{options.metric} over several settings or under {options.setting}, the value of --setting"
        known = [CLEAN_NAME, NO_IMAGE_NAME, *perturbations.names("all")]
        hint = "" if options.setting in known else did_you_mean(options.setting, known)
        raise StoreError(f"{options.store}: no run of it measured {what}.{hint} vlmrobust runs lists its runs")
    show("\n".join(render_history(f"{name}: {options.metric}", points, width()) for name, points in series.items()).rstrip("\n"))
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        write_out(options.out, render_history_page(options.metric, {name: points[::-1] for name, points in series.items()}))
        say(f"{options.out}")
    return 0


# `vlmrobust report` and `vlmrobust junit`.


def _add_files(commands: Commands) -> None:
    report = add_command(
        commands,
        "report",
        "write report.html and the other files of a run, also of a killed one",
        "vlmrobust report latest --out report",
    )
    report.add_argument("run_directory", metavar="RUN", type=run_directory, help=RUN_HELP)
    report.add_argument("--out", type=typed_path, metavar="DIR", help="where to (default: the run's directory)")
    report.set_defaults(run=_report, limits={})

    junit = add_command(
        commands,
        "junit",
        "write junit.xml of a run, also of a killed one",
        "vlmrobust junit latest --out junit.xml",
    )
    junit.add_argument("run_directory", metavar="RUN", type=run_directory, help=RUN_HELP)
    junit.add_argument("--out", type=typed_path, metavar="FILE", help="what to write (default: junit.xml in the run's directory)")
    junit.set_defaults(run=_junit, limits={})


def _report(options: argparse.Namespace) -> int:
    from pytest_vlmrobust.reporting.files import add_step_summary, ranked, read_run, write_report
    from pytest_vlmrobust.reporting.markdown import summary

    run = ranked(read_run(options.run_directory))
    _complain_of_damage(run)
    out = options.out or options.run_directory
    write_report(out, run, None)
    if problem := add_step_summary(summary(run)):
        complain(problem)
    say(f"{run.word}: {_tests_of(run)} tests, {out / 'report.html'}")
    return EXIT_CODES[run.decision]


def _complain_of_damage(run: RunFiles) -> None:
    """Says that the answers of a run cannot be read; its reports are written from its other files."""
    if run.damage:
        complain(run.damage)


def _junit(options: argparse.Namespace) -> int:
    from pytest_vlmrobust.reporting.files import read_run
    from pytest_vlmrobust.reporting.junit import FILE_NAME, junit_xml
    from pytest_vlmrobust.reporting.writing import write_out, write_text

    run = read_run(options.run_directory)
    _complain_of_damage(run)
    out = options.out or options.run_directory / FILE_NAME
    out.parent.mkdir(parents=True, exist_ok=True)
    (write_out if options.out else write_text)(out, junit_xml(run))
    say(f"{run.word}: {quantity(len(run.records), 'test')}, {len(run.facts.lost(run.records))} without a verdict, {out}")
    return 0


# `vlmrobust compare`.


def _add_compare(commands: Commands) -> None:
    compare = add_command(
        commands, "compare", "show what changed between two runs on the same questions", "vlmrobust compare last-release latest"
    )
    compare.add_argument("before", metavar="A", type=run_directory, help=RUN_HELP)
    compare.add_argument("after", metavar="B", type=run_directory, help="the later run")
    compare.add_argument("--out", type=typed_path, metavar="DIR", help="write comparison.json and comparison.md there")
    compare.add_argument("--model", default="", metavar="NAME", help="a model of the later run (default: all of them)")
    compare.add_argument(
        "--samples", choices=["common"], help="leave out questions that only one run has; otherwise they are an error"
    )
    compare.set_defaults(run=_compare, limits={})


def _compare(options: argparse.Namespace) -> int:
    from pytest_vlmrobust.evaluation.after.comparison import compare
    from pytest_vlmrobust.reporting.comparison import render_comparison, write_comparison

    comparison = compare(options.before, options.after, model=options.model, common=options.samples == "common")
    if options.out:
        write_comparison(options.out, comparison)
    show(render_comparison(comparison, width=width(), color=in_color()).rstrip("\n"))
    return 0


# `vlmrobust comment`.


def _add_comment(commands: Commands) -> None:
    comment = add_command(
        commands,
        "comment",
        "write a run as a comment for a pull request: decision, and what changed",
        "vlmrobust comment latest --against last-release --out comment.md",
    )
    comment.add_argument("run_directory", metavar="RUN", type=run_directory, help=RUN_HELP)
    earlier = comment.add_mutually_exclusive_group()
    earlier.add_argument("--against", type=run_directory, metavar="RUN", help="the earlier run to compare with")
    earlier.add_argument("--branch", default="main", help="compare with the last GO of CI on this branch (default: %(default)s)")
    comment.add_argument(
        "--store", type=typed_path, default=STORE, metavar="DIR", help="the store with that run (default: %(default)s)"
    )
    comment.add_argument(
        "--report", default="", type=_web_address, metavar="URL", help="address of the published report, for a link"
    )
    comment.add_argument("--name", default="gate", help="keeps the comments of several gates apart (default: %(default)s)")
    comment.add_argument("--out", type=typed_path, metavar="FILE", help="the file to write (default: print)")
    comment.add_argument(
        "--images",
        default="",
        type=_web_address,
        metavar="URL",
        help="show the images of the worst questions: write them beside --out, and link to this address with {} for the name",
    )
    comment.set_defaults(run=_comment, limits={})


def _web_address(text: str) -> str:
    if not re.fullmatch(r"(https?://[^\s<>]+)?", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no address of the web. Expected https://… without blanks")
    return text


def _comment(options: argparse.Namespace) -> int:
    from pytest_vlmrobust.reporting.comparison import Against, job_link, render_comment, worst_images
    from pytest_vlmrobust.reporting.files import read_run
    from pytest_vlmrobust.reporting.writing import write_out

    if options.images and (options.out is None or "{}" not in options.images):
        raise UsageError(f"--images {options.images}: needs --out, and {{}} where the name of an image belongs in the address")
    run = read_run(options.run_directory)
    what = f"run {options.against.name}" if options.against else f"the last GO on {options.branch}"
    earlier = read_run(options.against) if options.against else _last_go(options.store, options.branch, run)
    if earlier is None:
        against = Against(what, problem=f"{options.store} holds no run of CI on {options.branch} that ended GO")
    else:
        against = Against(what, earlier, *_compared(earlier.directory, run.directory))
    links = {"report": options.report, "job": job_link()}
    images = worst_images(run) if options.images else {}
    addresses = {name: options.images.replace("{}", name) for name in images}
    text = render_comment(run, against, name=options.name, links=links, images=addresses)
    if options.out is None:
        show(text.rstrip("\n"))
        return 0
    options.out.parent.mkdir(parents=True, exist_ok=True)
    for name, image in images.items():
        (options.out.parent / name).write_bytes(image)
    write_out(options.out, text)
    say(f"{run.word}: {len(text)} characters, {options.out}")
    return 0


def _last_go(store: Path, branch: str, run: RunFiles) -> RunFiles | None:
    """Returns the newest other run of a store that ended GO and that CI made on a branch of the same project."""
    from pytest_vlmrobust.reporting.comparison import branch_of, project_of
    from pytest_vlmrobust.reporting.files import read_run
    from pytest_vlmrobust.store import read_manifest

    ours = project_of(run.manifest)
    for directory in runs_of(store):
        try:
            manifest = read_manifest(directory)
            foreign = bool(ours) and project_of(manifest) != ours
            if branch_of(manifest) != branch or foreign or directory.resolve() == run.directory.resolve():
                continue
            if (found := read_run(directory)).decision is Decision.GO:
                return found
        except StoreError as error:
            complain(str(error))
    return None


def _compared(before: Path, after: Path) -> tuple[Comparison | None, str]:
    """Returns the changes between the answers of two runs, or why they cannot be compared."""
    from pytest_vlmrobust.evaluation.after.comparison import compare

    try:
        return compare(before, after), ""
    except (StoreError, UsageError) as error:
        return None, str(error)


# `vlmrobust rank`.


def _add_rank(commands: Commands) -> None:
    ranks = add_command(
        commands,
        "rank",
        "compare several models: ranks with intervals, mCE, drops by family",
        "vlmrobust rank latest --out ranking",
        "vlmrobust rank old=last-release new=latest",
    )
    ranks.add_argument(
        "runs",
        metavar="RUN",
        type=named_run,
        nargs="+",
        help=f"{RUN_HELP}; NAME=RUN puts NAME before the names of its models",
    )
    ranks.add_argument("--out", type=typed_path, metavar="DIR", help="write models.html, models.md and models.json there")
    ranks.add_argument("--by", default=BY[0], choices=BY, help="what to rank by (default: %(default)s)")
    ranks.add_argument("--reference", default="", metavar="MODEL", help="the model whose errors are the unit of mCE")
    ranks.set_defaults(run=_rank, limits={})


def _rank(options: argparse.Namespace) -> int:
    from pytest_vlmrobust.evaluation.after.ranking import rank
    from pytest_vlmrobust.reporting.ranking import render_ranking, write_ranking

    ranking = rank(options.runs, by=options.by, reference=options.reference)
    if options.out:
        write_ranking(options.out, ranking)
    show(render_ranking(ranking, width=width(), color=in_color()).rstrip("\n"))
    return 0
