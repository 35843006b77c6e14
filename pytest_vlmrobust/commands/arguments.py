"""Arguments common to several commands, and the output of commands."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TextIO, TypeVar

from typer import Argument, BadParameter, Option

from pytest_vlmrobust.core.errors import BY_AGE, UsageError, did_you_mean, run_by_age, typed_path
from pytest_vlmrobust.core.words import LONGEST, printable

if TYPE_CHECKING:
    from pytest_vlmrobust.reporting.files import RunFiles

_Command = TypeVar("_Command", bound=Callable[..., int])


def in_quarantine(**limits: float | None) -> Callable[[_Command], _Command]:
    """Has a command that reads files of others run with limits: those of :func:`pytest_vlmrobust.store.quarantine.enter`."""

    def mark(command: _Command) -> _Command:
        vars(command)["limits"] = limits
        return command

    return mark


# Arguments that several commands have. Their readers get defaults, too, which are no text.


def whole(what: str, expected: str, least: int = 1, most: int | None = None) -> Callable[[object], int]:
    """Returns a reader of a whole number, such as ``a port``."""

    def read(value: object) -> int:
        text = str(value)
        if not text.isascii() or not text.isdigit() or not least <= int(text) <= (int(text) if most is None else most):
            raise BadParameter(f"{text!r} is not {what}. Expected {expected}")
        return int(text)

    return read


def counting(noun: str) -> Callable[[object], int]:
    """Returns a reader of a number of 1 or more."""
    return whole(f"a number of {noun}", "1 or more")


def path(text: str, metavar: str = "FILE", default: str | bool = True) -> Any:
    """Declares an option that is a path; ``default`` is how its help names the default."""
    return Option(metavar=metavar, parser=typed_path, help=text, show_default=default)


def number(noun: str, text: str, metavar: str = "N", default: str | bool = True) -> Any:
    """Declares an option that is a number of 1 or more."""
    return Option(metavar=metavar, parser=counting(noun), help=text, show_default=default)


LATEST = BY_AGE[0]
RUN_HELP = "a run: its directory, that of its report, its name, latest or previous"
STORE = Path(".vlmrobust")
"""The default place for the answers of a run."""


def run_directory(text: str) -> Path:
    """Reads a RUN: its directory, the name of a run of the store here, ``latest`` for the newest one, or ``previous``.

    A directory of that name takes precedence.
    """
    directory = find_run(text)
    if directory is None and Path(text).name == text:
        hint = did_you_mean(text, [*BY_AGE, *(run.name for run in runs_of(STORE))])
        expected = f"Expected the directory of a run, {', '.join(BY_AGE)}, or a name that vlmrobust runs lists"
        raise UsageError(f"{text!r}: there is no such directory, and {STORE} holds no run of this name.{hint} {expected}")
    return directory or typed_path(text)


def find_run(text: str) -> Path | None:
    """Returns the directory that a RUN names; ``None`` if there is none.

    ``latest`` and ``previous`` raise a UsageError if there is no such run.
    """
    from pytest_vlmrobust.store.quarantine import refuse_endless

    named = typed_path(text)
    if named.exists():
        refuse_endless(named)
        return named
    runs = runs_of(STORE)
    if text in BY_AGE:
        return run_by_age(text, runs, STORE)
    return next((run for run in runs if run.name == text), None)


def runs_of(store: Path) -> list[Path]:
    """Returns the directories of the runs of a store, and of those kept here because a store is read-only, newest first."""
    from pytest_vlmrobust.evaluation.run.directories import ELSEWHERE, RUNS
    from pytest_vlmrobust.evaluation.run.evidence import newest_runs

    return newest_runs([store / RUNS, Path(ELSEWHERE)])


class NamedRun(NamedTuple):
    """A run, and the prefix of its models."""

    name: str
    directory: Path


def named_run(run: str) -> NamedRun:
    """Reads ``RUN`` or ``NAME=RUN``; an existing directory may have any name."""
    name, equals, directory = run.partition("=")
    plain = not equals or typed_path(run).is_dir()
    return NamedRun("", run_directory(run)) if plain else NamedRun(name, run_directory(directory))


Run = Annotated[Path, Argument(metavar="RUN", parser=run_directory, help=RUN_HELP)]
Store = Annotated[Path, path("the store of the runs", "DIR")]
DataFolder = Annotated[
    Path | None, Option("--data", metavar="DIR", parser=typed_path, help="the data folder, as after --vlm-data")
]
ModelsFile = Annotated[Path | None, path("the models file")]
Seed = Annotated[int, Option(metavar="N", parser=whole("a seed", "a whole number, 0 or more", 0), help="the random seed")]
AsJson = Annotated[bool, Option("--json", help="print JSON")]
PytestOptions = Annotated[list[str], Argument(metavar="OPTION", help="after --: the options and suites of pytest")]


# Output of commands.


_BREAK = "\n"
UNREAD = 141
"""The exit code of a command whose output nobody reads to its end: that of programs that the system ends for it (SIGPIPE)."""
_LOG_WIDTH = 160
"""Width outside a terminal: a log has no right edge."""


def shortened(text: str) -> str:
    """Returns text with its lines shortened to a readable length: names in a stranger's files may have any length."""
    return _BREAK.join(printable(line, LONGEST) for line in text.split(_BREAK))


def say(text: str) -> None:
    """Prints the result of a command; control characters in its data are spelled out."""
    show(printable(text, kept=_BREAK))


def tell(sentence: str) -> None:
    """Prints a sentence; on a terminal, its rows break between words."""
    show(_rows(printable(sentence), sys.stdout))


def show(table: str) -> None:
    """Prints a rendered table: its cells are printable, and its colours are control characters.

    Raises:
        SystemExit: nobody reads on, as after ``| head``.
        OSError: it cannot be written.
    """
    if sys.stdout is None:
        raise OSError(errno.EBADF, "it is closed", "standard output")
    try:
        print(table, flush=True)  # noqa: T201 - a command prints its output
    except BrokenPipeError:
        with open(os.devnull, "w", encoding="utf-8") as nowhere:  # noqa: PTH123 - it is no file
            os.dup2(nowhere.fileno(), sys.stdout.fileno())  # else the rest is written again as the process ends
        raise SystemExit(UNREAD) from None


def complain(text: str, *, usage: str = "") -> None:
    """Prints an error of a command to standard error, below its usage; on a terminal, its rows break between words."""
    if sys.stderr is None:  # closed: the exit code alone says it
        return
    with contextlib.suppress(OSError):  # nobody reads it
        print(*filter(None, [usage]), _rows(f"vlmrobust: {shortened(text)}", sys.stderr), sep="\n", file=sys.stderr)  # noqa: T201 - see ``show``


def complain_of_damage(run: RunFiles) -> None:
    """Says that the answers of a run cannot be read; its reports are written from its other files."""
    if run.damage:
        complain(run.damage)


def read_and_complain(directory: Path) -> RunFiles:
    """Reads a run, and says if its answers cannot be read."""
    from pytest_vlmrobust.reporting.files import read_run

    run = read_run(directory)
    complain_of_damage(run)
    return run


def _rows(text: str, stream: TextIO | None) -> str:
    """Returns text with lines that a terminal does not break within a word; a log keeps whole lines."""
    if stream is None or not stream.isatty():
        return text
    rows = textwrap.TextWrapper(
        shutil.get_terminal_size().columns, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
    return _BREAK.join(rows.fill(line) for line in text.splitlines())


def width() -> int:
    """Returns the maximum width of a table, in characters."""
    return shutil.get_terminal_size().columns if _on_terminal() else _LOG_WIDTH


def in_color() -> bool:
    """Whether the output goes to a terminal that shows colours and bold text."""
    return _on_terminal() and os.environ.get("TERM") != "dumb" and not os.environ.get("NO_COLOR")


def _on_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()
