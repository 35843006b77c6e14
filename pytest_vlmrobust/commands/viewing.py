"""Viewer: `vlmrobust view`, which shows all samples of one or several runs in a browser."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from pytest_vlmrobust.core.errors import StoreError, UsageError, typed_path
from pytest_vlmrobust.core.words import quantity

from .arguments import RUN_HELP, STORE, complain, in_quarantine, run_directory, runs_of, say, whole

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

    find, together = _found(places or [STORE])
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


def _found(places: Sequence[Path]) -> tuple[Callable[[], list[Path]], bool]:
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
