"""Arguments common to several commands, and the output of commands."""

from __future__ import annotations

import argparse
import errno
import os
import shutil
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TextIO

from pytest_vlmrobust.core.errors import BY_AGE, UsageError, did_you_mean, run_by_age, typed_path
from pytest_vlmrobust.core.words import LONGEST, printable

# Arguments that several commands have.


class Commands(Protocol):
    """The part of argparse to which a subject adds its commands."""

    def add_parser(self, name: str, **settings: Any) -> argparse.ArgumentParser:
        """Adds a command."""


def add_command(commands: Commands, name: str, about: str, *examples: str) -> argparse.ArgumentParser:
    """Adds a command with the same description in its ``--help`` as in the list of commands, with examples.

    ``about`` is a phrase without a capital and a full stop; the examples are complete command lines.
    """
    described = f"{about[:1].upper()}{about[1:]}."
    epilog = "\n  ".join(["examples:" if len(examples) > 1 else "example:", *examples])
    return commands.add_parser(name, help=about, description=described, epilog=epilog, formatter_class=_Help)


class _Help(argparse.HelpFormatter):
    """Keeps the lines of examples, so that they can be copied."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if text.startswith("example") else super()._fill_text(text, width, indent)


def counting(noun: str) -> Callable[[str], int]:
    """Returns a parser of a number of 1 or more."""

    def count(text: str) -> int:
        if not text.isascii() or not text.isdigit() or int(text) < 1:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number of {noun}. Expected 1 or more")
        return int(text)

    return count


LATEST = BY_AGE[0]
RUN_HELP = "a run: its directory, that of its report, its name, latest or previous"
STORE = Path(".vlmrobust")
"""The default place for the answers of a run."""


def run_directory(text: str) -> Path:
    """Reads a RUN: its directory, the name of a run of the store here, ``latest`` for the newest one, or ``previous``.

    A directory of that name takes precedence.
    """
    found = find_run(text)
    if found is None and Path(text).name == text:
        hint = did_you_mean(text, [*BY_AGE, *(run.name for run in runs_of(STORE))])
        expected = f"Expected the directory of a run, {', '.join(BY_AGE)}, or a name that vlmrobust runs lists"
        raise UsageError(f"{text!r}: there is no such directory, and {STORE} holds no run of this name.{hint} {expected}")
    return found or typed_path(text)


def find_run(text: str) -> Path | None:
    """Returns the directory that a RUN names; ``None`` if there is none.

    ``latest`` and ``previous`` raise a UsageError if there is no such run.
    """
    from pytest_vlmrobust.store.quarantine import refuse_endless

    named = typed_path(text)
    if named.exists():
        refuse_endless(named)
        return named
    found = runs_of(STORE)
    if text in BY_AGE:
        return run_by_age(text, found, STORE)
    return next((run for run in found if run.name == text), None)


def runs_of(store: Path) -> list[Path]:
    """Returns the directories of the runs of a store, and of those kept here because a store is read-only, newest first."""
    from pytest_vlmrobust.evaluation.run.directories import ELSEWHERE, RUNS
    from pytest_vlmrobust.evaluation.run.evidence import newest_runs

    return newest_runs([store / RUNS, Path(ELSEWHERE)])


def named_run(run: str) -> tuple[str, Path]:
    """Returns the prefix of the models of a run and its directory, of ``RUN`` or ``NAME=RUN``.

    An existing directory may have any name.
    """
    name, equals, directory = run.partition("=")
    return ("", run_directory(run)) if not equals or typed_path(run).is_dir() else (name, run_directory(directory))


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


def complain(text: str) -> None:
    """Prints an error of a command to standard error; on a terminal, its rows break between words."""
    if sys.stderr is None:  # closed: the exit code alone says it
        return
    print(_rows(f"vlmrobust: {shortened(text)}", sys.stderr), file=sys.stderr)  # noqa: T201 - see ``show``


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
    return shutil.get_terminal_size().columns if in_color() else _LOG_WIDTH


def in_color() -> bool:
    """Whether the output goes to a terminal."""
    return sys.stdout is not None and sys.stdout.isatty()
