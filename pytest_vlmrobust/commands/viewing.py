"""Viewer: `vlmrobust view`, which shows all samples of one or several runs in a browser."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path

from pytest_vlmrobust.core.errors import StoreError, UsageError, typed_path
from pytest_vlmrobust.core.words import quantity

from .arguments import RUN_HELP, STORE, Commands, add_command, complain, run_directory, runs_of, say

_HIGHEST_PORT = 65_535


def add(commands: Commands) -> None:
    """Adds it to the parser."""
    view = add_command(
        commands,
        "view",
        "browse every question of one or several runs in a browser, also while they go on",
        "vlmrobust view latest --open",
        "vlmrobust view last-release latest",
    )
    view.add_argument(
        "places",
        metavar="RUN|STORE",
        type=run_directory,
        nargs="*",
        help=f"{RUN_HELP}; several side by side; or a store (default: .vlmrobust)",
    )
    view.add_argument(
        "--port", type=_port, metavar="N", help="where to listen on this machine; 0 for any free port (default: 8319)"
    )
    view.add_argument("--open", action=argparse.BooleanOptionalAction, default=False, help="open the page in a browser")
    view.add_argument(
        "--data",
        type=typed_path,
        metavar="DIR",
        help="where to look up names of benchmarks for their images (default: the run's)",
    )
    view.set_defaults(run=_view, limits={"seconds": None})


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > _HIGHEST_PORT:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port. Expected a number up to {_HIGHEST_PORT}, 0 for any free port")
    return int(text)


def _view(options: argparse.Namespace) -> int:
    from pytest_vlmrobust.evaluation.after.pictures import RunPictures
    from pytest_vlmrobust.reporting.viewer.page import Pages
    from pytest_vlmrobust.reporting.viewer.runs import Runs
    from pytest_vlmrobust.reporting.viewer.server import PORT, listen, server

    find, together = _found(options.places or [STORE])
    runs = Runs(find, lambda directory: RunPictures(directory, options.data), together=together)
    with contextlib.closing(runs), contextlib.closing(listen(options.port)) as listening:
        serving = server(Pages(runs), listening)
        port = listening.getsockname()[1]
        if options.port is None and port != PORT:
            complain(f"port {PORT} is taken, perhaps by another vlmrobust view: this one has another")
        address = f"http://127.0.0.1:{port}/"
        say(f"{quantity(len(find()), 'run')} to see at {address} (Ctrl-C ends it)")
        if options.open:
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
