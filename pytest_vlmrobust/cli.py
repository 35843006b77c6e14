# PYTHON_ARGCOMPLETE_OK
"""Inspect policies and metrics, and work with the runs of a gate: report, compare, bundle, verify."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from . import __version__
from .commands import SUBJECTS
from .commands.arguments import complain
from .core.errors import VlmRobustError, did_you_mean
from .core.words import on_one_line

USAGE_ERROR, INTERRUPTED = 4, 130
TRACEBACK = "VLMROBUST_TRACEBACK"
"""The environment variable with which an unexpected error is shown whole."""
_LONGEST = 200


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code: 0, 1 for what differs, 4 for a mistake, 130 after Ctrl-C, or a decision.

    Without ``arguments`` it is the command of a user, which reads runs in quarantine; a caller's process is not limited.
    """
    commands = parser()
    with contextlib.suppress(ImportError):  # an extra
        import argcomplete

        argcomplete.autocomplete(commands)  # answers a shell that asks, and ends the process then; else does nothing
    if not (sys.argv[1:] if arguments is None else arguments):
        commands.print_help(sys.stderr)
        return USAGE_ERROR
    try:
        options = commands.parse_args(arguments)
        if arguments is None and (limits := getattr(options, "limits", None)) is not None:
            from .store import quarantine

            if (ended := quarantine.enter(**limits)) is not None:
                return ended
        run: Callable[[argparse.Namespace], int] = options.run
        return run(options)
    except VlmRobustError as error:
        complain(str(error))
    except KeyboardInterrupt:
        complain("stopped by Ctrl-C")
        return INTERRUPTED
    except MemoryError:
        from .store.quarantine import out_of_memory

        complain(str(out_of_memory()))
    except OSError as error:
        complain(": ".join(str(part) for part in (error.filename, error.strerror or error) if part))
    except Exception as error:  # exit code 1 says that something differs, which a crash does not show
        if os.environ.get(TRACEBACK):
            raise
        where = f"set {TRACEBACK}=1 to see where, and report it with the file that it happened with"
        complain(f"this should not happen: {type(error).__name__}: {on_one_line(str(error), _LONGEST)}; {where}")
    return USAGE_ERROR


class _Parser(argparse.ArgumentParser):
    """Suggests the nearest name for one that is misspelt."""

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> tuple[Any, list[str]]:  # type: ignore[override]  # wider overloads
        """Refuses what a command does not know, with the usage of that command and not with that of all."""
        known, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return known, unknown

    def error(self, message: str) -> NoReturn:
        choice = re.search(r"invalid choice: '(.*)' \(choose from (.*)\)", message, re.DOTALL)
        option = re.match(r"unrecognized arguments: (--[\w-]+)", message)
        hint = did_you_mean(choice[1], re.findall(r"[\w.-]+", choice[2])) if choice else ""
        hint = did_you_mean(option[1], self._option_string_actions) if option else hint
        super().error(message + hint)


_BASIC = ("init", "check", "probe", "open", "view", "runs", "compare", "explain", "list", "show", "power")
"""Commands that most people need; the help lists the others apart."""


class _TwoHeadings(argparse.HelpFormatter):
    """Lists the commands under two headings."""

    def _format_action(self, action: argparse.Action) -> str:
        if not isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - argparse knows no headings among commands
            return super()._format_action(action)
        named = {one.dest: self._format_action(one) for one in self._iter_indented_subactions(action)}
        basic = "".join(named.pop(name) for name in _BASIC)
        return f"{basic}\nadvanced commands:\n{''.join(named.values())}"


def parser() -> argparse.ArgumentParser:
    """Returns the parser of all commands."""
    more = (
        "Start with vlmrobust init --model ./my-checkpoint --data questions.jsonl, then pytest, then vlmrobust open. "
        "vlmrobust COMMAND --help says more, with examples; pytest --help lists the options --vlm-* of the gate."
    )
    found = _Parser(prog="vlmrobust", description=__doc__, epilog=more, formatter_class=_TwoHeadings)
    found.add_argument("--version", action="version", version=f"vlmrobust {__version__}")
    commands = found.add_subparsers(required=True, metavar="COMMAND", title="commands")
    for subject in SUBJECTS:
        subject.add(commands)
    return found


if __name__ == "__main__":
    sys.exit(main())
