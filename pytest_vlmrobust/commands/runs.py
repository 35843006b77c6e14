"""Runs: `vlmrobust runs`, `history`, `report`, `junit`, `compare`, `comment`, `rank` and `view`."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Argument, BadParameter, Option

from pytest_vlmrobust.commands.arguments import (
    RUN_HELP,
    STORE,
    NamedRun,
    Run,
    Store,
    complain,
    complain_of_damage,
    in_color,
    in_quarantine,
    named_run,
    number,
    path,
    read_and_complain,
    run_directory,
    runs_of,
    say,
    show,
    whole,
    width,
)
from pytest_vlmrobust.core.cell import CLEAN_NAME, NO_IMAGE_NAME
from pytest_vlmrobust.core.decision import EXIT_CODES, Decision
from pytest_vlmrobust.core.errors import StoreError, UsageError, did_you_mean, typed_path
from pytest_vlmrobust.core.words import quantity
from pytest_vlmrobust.evaluation.after.standings import BY, RankedBy

if TYPE_CHECKING:
    from pytest_vlmrobust.evaluation.after.comparison import Comparison
    from pytest_vlmrobust.reporting.files import RunFiles
    from pytest_vlmrobust.reporting.sweeps import Headline, Number


# `vlmrobust runs`.


_RUNS_HEADER = ("run", "date", "decision", "model", "data", "tests", "clean", "mean drop", "worst")
_KEY_NUMBERS = _RUNS_HEADER[6:]
_NAMES = 5
"""The number of leading columns that are left-aligned."""
_SPARED = ("date", "tests", "worst", "clean")
"""Columns left out on a narrow terminal, in this order: the name of a run begins with its date."""


@in_quarantine()
def runs(*, store: Store = STORE, last: Annotated[int, number("runs", "how many to list")] = 20) -> int:
    """List the runs of a store, the newest first, with their decisions and key numbers.

    Examples:
        vlmrobust runs --last 5
    """
    from pytest_vlmrobust.reporting.sweeps import legend
    from pytest_vlmrobust.reporting.writing import render_table

    directories = _some_runs(store)
    rows: list[tuple[str, ...]] = []
    numbers: list[Number] = []
    for directory in directories[:last]:
        try:
            run = read_and_complain(directory)
        except StoreError as error:
            complain(str(error))
            rows.append((directory.name, "", "cannot be read", *[""] * (len(_RUNS_HEADER) - 3)))
            continue
        headlines = [headline for headline in run.numbers if _key_numbers(headline)]
        rows += _rows_of(run, headlines)
        numbers += [number for headline in headlines for number in _key_numbers(headline).values()]
    kept = _columns_for(width(), rows)
    header, *shown = [[row[place] for place in kept] for row in (_RUNS_HEADER, *rows)]
    names = len([place for place in kept if place < _NAMES])
    whole = header.index("decision") + 1
    show(render_table(header, shown, names=names, width=width(), color=in_color(), whole=whole).rstrip("\n"))
    if marks := legend(numbers):
        say(marks)
    if (hidden := len(directories) - last) > 0:
        say(f"… and {quantity(hidden, 'older run')}: --last {len(directories)} lists all")
    return 0


def _some_runs(store: Path) -> list[Path]:
    directories = runs_of(store)
    if not directories:
        problem = "holds no run" if store.is_dir() else "there is no such directory"
        raise StoreError(f"{store}: {problem}. Run pytest --vlm=NAME first, or name another store with --store")
    return directories


def _key_numbers(headline: Headline) -> dict[str, Number]:
    return {number.name: number for number in headline.numbers if number.name in _KEY_NUMBERS}


def _tests_of(run: RunFiles) -> str:
    """Returns the number of selected tests with a record."""
    return f"{sum(record.is_gated for record in run.records)} of {run.facts.selected}"


def _rows_of(run: RunFiles, headlines: Iterable[Headline]) -> list[tuple[str, ...]]:
    """Returns the rows of a run: one for each model and dataset with key numbers; the first names the run."""
    tests = _tests_of(run)
    first_cells = (run.directory.name, str(run.manifest.get("date", "")), run.word)
    rows: list[tuple[str, ...]] = []
    for headline in headlines:
        numbers = _key_numbers(headline)
        named = (headline.model, headline.dataset, "" if rows else tests)
        shown = (numbers[name].marked if name in numbers else "" for name in _KEY_NUMBERS)
        rows.append((*(("", "", "") if rows else first_cells), *named, *shown))
    return rows or [(*first_cells, ", ".join(run.facts.models), "", tests, "", "", "")]


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


@in_quarantine()
def history(
    *,
    metric: Annotated[str, Option(metavar="M", help="what to draw")] = "mean_drop",
    setting: Annotated[str, Option(help="for a metric of single settings, which one")] = CLEAN_NAME,
    store: Store = STORE,
    last: Annotated[int, number("runs", "how many runs")] = 20,
    out: Annotated[Path | None, path("also write an HTML page")] = None,
) -> int:
    """Draw a metric over the runs of a store, with intervals and changes.

    Examples:
        vlmrobust history --metric worst_case_drop --out history.html
        vlmrobust history --metric accuracy_drop --setting fog:low
    """
    from pytest_vlmrobust import perturbations
    from pytest_vlmrobust.evaluation.judge.measurements import quantity as known_metric
    from pytest_vlmrobust.reporting.history import Point, points_of, render_history, render_history_page
    from pytest_vlmrobust.reporting.writing import write_out

    known_metric(metric)
    series: dict[str, list[Point]] = {}
    for directory in _some_runs(store)[:last]:
        try:
            run = read_and_complain(directory)
        except StoreError as error:
            complain(str(error))
            continue
        for name, point in points_of(run, metric, setting).items():
            series.setdefault(name, []).append(point)
    if not series:
        what = f"{metric} over several settings or under {setting}, the value of --setting"
        names = [CLEAN_NAME, NO_IMAGE_NAME, *perturbations.names("all")]
        hint = "" if setting in names else did_you_mean(setting, names)
        raise StoreError(f"{store}: no run of it measured {what}.{hint} vlmrobust runs lists its runs")
    show("\n".join(render_history(f"{name}: {metric}", points, width()) for name, points in series.items()).rstrip("\n"))
    if out:
        write_out(out, render_history_page(metric, {name: points[::-1] for name, points in series.items()}))
        say(f"{out}")
    return 0


# `vlmrobust report` and `vlmrobust junit`.


@in_quarantine()
def report(run: Run, *, out: Annotated[Path | None, path("where to", "DIR", default="the run's directory")] = None) -> int:
    """Write report.html and the other files of a run, also of a killed one.

    Examples:
        vlmrobust report latest --out report
    """
    from pytest_vlmrobust.reporting.directory import write_again
    from pytest_vlmrobust.reporting.files import add_step_summary, ranked, read_run, write_report
    from pytest_vlmrobust.reporting.markdown import summary

    files, place = ranked(read_run(run)), out or run
    complain_of_damage(files)
    if place.resolve() == run.resolve():
        write_report(place, files, None)
    else:
        write_again(place, files, "--out")
    if problem := add_step_summary(summary(files)):
        complain(problem)
    say(f"{files.word}: {_tests_of(files)} tests, {place / 'report.html'}")
    return EXIT_CODES[files.decision]


@in_quarantine()
def junit(
    run: Run, *, out: Annotated[Path | None, path("what to write", default="junit.xml in the run's directory")] = None
) -> int:
    """Write junit.xml of a run, also of a killed one.

    Examples:
        vlmrobust junit latest --out junit.xml
    """
    from pytest_vlmrobust.reporting.junit import FILE_NAME, junit_xml
    from pytest_vlmrobust.reporting.writing import write_result

    files = read_and_complain(run)
    place = write_result(out, run / FILE_NAME, junit_xml(files))
    say(
        f"{files.word}: {quantity(len(files.records), 'test')}, {len(files.facts.lost(files.records))} without a verdict, {place}"
    )
    return 0


# `vlmrobust compare`.


@in_quarantine()
def compare(
    before: Annotated[Path, Argument(metavar="A", parser=run_directory, help=RUN_HELP)],
    after: Annotated[Path, Argument(metavar="B", parser=run_directory, help="the later run")],
    *,
    out: Annotated[Path | None, path("write comparison.json and comparison.md there", "DIR")] = None,
    model: Annotated[str, Option(metavar="NAME", help="a model of the later run", show_default="all of them")] = "",
    samples: Annotated[
        Literal["common"] | None, Option(help="leave out questions that only one run has; otherwise they are an error")
    ] = None,
) -> int:
    """Show what changed between two runs on the same questions.

    Examples:
        vlmrobust compare last-release latest
    """
    from pytest_vlmrobust.evaluation.after import comparison
    from pytest_vlmrobust.reporting.comparison import render_comparison, write_comparison

    changes = comparison.compare(before, after, model=model, common=samples == "common")
    if out:
        write_comparison(out, changes)
    show(render_comparison(changes, width=width(), color=in_color()).rstrip("\n"))
    return 0


# `vlmrobust comment`.


def _web_address(text: str) -> str:
    if not re.fullmatch(r"(https?://[^\s<>]+)?", text):
        raise BadParameter(f"{text!r} is no address of the web. Expected https://… without blanks")
    return text


@in_quarantine()
def comment(
    run: Run,
    *,
    against: Annotated[Path | None, Option(metavar="RUN", parser=run_directory, help="the earlier run to compare with")] = None,
    branch: Annotated[str, Option(help="compare with the last GO of CI on this branch", show_default="main")] = "",
    store: Annotated[Path, path("the store with that run", "DIR")] = STORE,
    report: Annotated[str, Option(metavar="URL", parser=_web_address, help="address of the published report, for a link")] = "",
    name: Annotated[str, Option(help="keeps the comments of several gates apart")] = "gate",
    out: Annotated[Path | None, path("the file to write", default="print")] = None,
    images: Annotated[
        str,
        Option(
            metavar="URL",
            parser=_web_address,
            help="show the images of the worst questions: write them beside --out, and link to this address with {} for the name",
        ),
    ] = "",
) -> int:
    """Write a run as a comment for a pull request: decision, and what changed.

    Examples:
        vlmrobust comment latest --against last-release --out comment.md
    """
    from pytest_vlmrobust.reporting.comparison import Against, job_link, render_comment, worst_images
    from pytest_vlmrobust.reporting.writing import write_out

    if against and branch:
        raise BadParameter("not allowed with --against", param_hint="'--branch'")
    if images and (out is None or "{}" not in images):
        raise UsageError(f"--images {images}: needs --out, and {{}} where the name of an image belongs in the address")
    files, branch = read_and_complain(run), branch or "main"
    what = f"run {against.name}" if against else f"the last GO on {branch}"
    earlier = read_and_complain(against) if against else _last_go(store, branch, files)
    if earlier is None:
        base = Against(what, problem=f"{store} holds no run of CI on {branch} that ended GO")
    else:
        base = Against(what, earlier, *_compared(earlier.directory, files.directory))
    links = {"report": report, "job": job_link()}
    pictures = worst_images(files) if images else {}
    addresses = {picture: images.replace("{}", picture) for picture in pictures}
    text = render_comment(files, base, name=name, links=links, images=addresses)
    if out is None:
        show(text.rstrip("\n"))
        return 0
    write_out(out, text)
    for picture, content in pictures.items():
        (out.parent / picture).write_bytes(content)
    say(f"{files.word}: {len(text)} characters, {out}")
    return 0


def _last_go(store: Path, branch: str, run: RunFiles) -> RunFiles | None:
    """Returns the newest other run of a store that ended GO and that CI made on a branch of the same project."""
    from pytest_vlmrobust.reporting.comparison import branch_of, project_of
    from pytest_vlmrobust.store import read_manifest

    ours = project_of(run.manifest)
    for directory in runs_of(store):
        try:
            manifest = read_manifest(directory)
            foreign = bool(ours) and project_of(manifest) != ours
            if branch_of(manifest) != branch or foreign or directory.resolve() == run.directory.resolve():
                continue
            if (candidate := read_and_complain(directory)).decision is Decision.GO:
                return candidate
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


@in_quarantine()
def rank(
    models: Annotated[
        list[NamedRun],
        Argument(metavar="RUN", parser=named_run, help=f"{RUN_HELP}; NAME=RUN puts NAME before the names of its models"),
    ],
    *,
    out: Annotated[Path | None, path("write models.html, models.md and models.json there", "DIR")] = None,
    by: Annotated[RankedBy, Option(help="what to rank by")] = BY[0],
    reference: Annotated[str, Option(metavar="MODEL", help="the model whose errors are the unit of mCE")] = "",
) -> int:
    """Compare several models: ranks with intervals, mCE, drops by family.

    Examples:
        vlmrobust rank latest --out ranking
        vlmrobust rank old=last-release new=latest
    """
    from pytest_vlmrobust.evaluation.after import ranking
    from pytest_vlmrobust.reporting.ranking import render_ranking, write_ranking

    ranked = ranking.rank(models, by=by, reference=reference)
    if out:
        write_ranking(out, ranked)
    show(render_ranking(ranked, width=width(), color=in_color()).rstrip("\n"))
    return 0


_HIGHEST_PORT = 65_535


@in_quarantine(seconds=None)
def view(
    places: Annotated[
        list[Path] | None,
        Argument(
            metavar="RUN|STORE",
            parser=run_directory,
            help=f"{RUN_HELP}; several side by side; or a store",
            show_default=str(STORE),
        ),
    ] = None,
    *,
    port: Annotated[
        int | None,
        Option(
            metavar="N",
            parser=whole("a port", f"a number up to {_HIGHEST_PORT}, 0 for any free port", 0, _HIGHEST_PORT),
            help="where to listen on this machine; 0 for any free port",
            show_default="8319",
        ),
    ] = None,
    open_page: Annotated[bool, Option("--open/--no-open", help="open the page in a browser")] = False,
    folder: Annotated[
        Path | None,
        Option(
            "--data",
            metavar="DIR",
            parser=typed_path,
            help="where to look up names of benchmarks for their images",
            show_default="the run's",
        ),
    ] = None,
) -> int:
    """Browse every question of one or several runs in a browser, also while they go on.

    Examples:
        vlmrobust view latest --open
        vlmrobust view last-release latest
    """
    from pytest_vlmrobust.evaluation.after.pictures import RunPictures
    from pytest_vlmrobust.reporting.viewer.page import Pages
    from pytest_vlmrobust.reporting.viewer.runs import Runs
    from pytest_vlmrobust.reporting.viewer.server import PORT, listen, server

    find, together = _runs_at(places or [STORE])
    runs = Runs(find, lambda directory: RunPictures(directory, folder), together=together)
    with contextlib.closing(runs), contextlib.closing(listen(port)) as listening:
        serving = server(Pages(runs), listening)
        listens_at = listening.getsockname()[1]
        if port is None and listens_at != PORT:
            complain(f"port {PORT} is taken, perhaps by another vlmrobust view: this one has another")
        address = f"http://127.0.0.1:{listens_at}/"
        say(f"{quantity(len(find()), 'run')} to see at {address} (Ctrl-C ends it)")
        if open_page:
            import webbrowser

            webbrowser.open(address)
        with contextlib.suppress(KeyboardInterrupt):
            serving.run(sockets=[listening])
    return 0


def _runs_at(places: Sequence[Path]) -> tuple[Callable[[], list[Path]], bool]:
    """Returns a function that finds the runs, and whether to show them side by side from the start."""
    from pytest_vlmrobust.store.journal import FILE_NAME

    runs = [place for place in places if (place / FILE_NAME).is_file()]
    if len(runs) == len(places):
        return lambda: list(dict.fromkeys(runs)), True
    place = next(place for place in places if place not in runs)
    if not place.is_dir():
        raise StoreError(
            f"{place}: there is no such directory. Expected a run or a store; vlmrobust runs lists the runs of a store"
        )
    if not runs_of(place):
        raise StoreError(f"{place}: holds no run. Run pytest --vlm=NAME first, or name a run or a store")
    if len(places) > 1:
        raise UsageError(f"{place}: is a store. Name one store alone, or runs")
    return lambda: runs_of(place), False
