"""Inspect policies and metrics, and work with the runs of a gate: report, compare, bundle, verify."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from inspect import getdoc
from itertools import pairwise
from typing import Annotated, Any

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption
from typer.main import get_command

from . import __version__
from .commands import exports, filling, listing, papers, policies, power, runs, serving, starting
from .commands.arguments import complain, say
from .core.errors import UsageError, VlmRobustError, did_you_mean
from .core.words import on_one_line

COMMANDS: Mapping[str, Sequence[Callable[..., int]]] = {
    "Commands": (
        starting.init,
        policies.check,
        serving.probe,
        starting.open_,
        runs.view,
        runs.runs,
        runs.compare,
        listing.explain,
        listing.list_,
        listing.show,
        power.power,
    ),
    "Advanced commands": (
        listing.data,
        runs.history,
        runs.report,
        runs.junit,
        runs.comment,
        runs.rank,
        exports.bundle,
        exports.verify,
        papers.reproduce,
        filling.fill,
        filling.merge,
        filling.submit,
        serving.serve_command,
    ),
}
"""Each command below its heading in the help: a function whose parameters are its arguments, and whose docstring is its help."""
FORMATS = (exports.mlflow, exports.wandb, exports.inspect, exports.nel, exports.sarif)
"""The commands below ``vlmrobust export``."""
USAGE_ERROR, INTERRUPTED = 4, 130
TRACEBACK = "VLMROBUST_TRACEBACK"
"""The environment variable with which an unexpected error is shown whole."""
_NAME = "vlmrobust"
_COMPLETE = "_VLMROBUST_COMPLETE"
"""The environment variable by which a shell asks for completions."""
_LONGEST = 200
_EXAMPLES = "\b\nExamples:\n"  # the first line keeps the others as they are


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code.

    That is 0, 1 for what differs, 2 for a line that cannot be read, 4 for other mistakes, 130 after Ctrl-C, or a decision.
    Without ``arguments`` it is the command of a user, which reads runs in quarantine; a caller's process is not limited.
    """
    try:
        return _run(sys.argv[1:] if arguments is None else [*arguments], limited=arguments is None)
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


def _run(typed: list[str], *, limited: bool) -> int:
    if _COMPLETE in os.environ:
        try:
            command_group().main(prog_name=_NAME)  # answers the shell, and ends the process
        except KeyError as error:
            unset = f"{_COMPLETE} is set, and {error.args[0]} is not. A shell that completes a line sets both. Unset {_COMPLETE}"
            raise UsageError(unset) from error
    commands = command_group(typed)
    try:
        with commands.make_context(_NAME, typed, obj=limited) as context:
            if typed:
                return int(commands.invoke(context))
            typer.echo(context.get_help(), err=True)
            return USAGE_ERROR
    except typer.Exit as ended:  # after --help or --version
        return ended.exit_code
    except typer.TyperException as error:
        _print_usage_error(error)
        return error.exit_code


def _print_usage_error(error: typer.TyperException) -> None:
    """Prints the usage of a command, the mistake in its line, and the nearest known name."""
    context: Any = getattr(error, "ctx", None)
    option = getattr(error, "option_name", "") if hasattr(error, "possibilities") else ""
    message = error.message if option else error.format_message()
    message = re.sub(r"\s+", " ", message.replace("Value error, ", ""))  # pydantic's words for an error of a type
    hint = ""
    if option:
        options = context.command.get_params(context)
        hint = did_you_mean(option, [name for each in options for name in (*each.opts, *each.secondary_opts)])
    elif choice := re.search(r"'([^']*)' is not one of (.*)", message):
        hint = did_you_mean(choice[1], re.findall(r"'(.*?)'", choice[2]))
    complain(f"{message.removesuffix('.')}.{hint}" if hint else message, usage=context.get_usage() if context else "")


# How commands are declared, and what their help says.


class _Command(TyperCommand):
    """A command with a plain help. It runs in quarantine if its function has limits and a user typed it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuses an option where the value of another one is expected: ``--out --strict`` names no file."""
        before = args[: args.index("--") + 1] if "--" in args else args
        values = {
            name for option in self.params if isinstance(option, TyperOption) and not option.is_flag for name in option.opts
        }
        for name, value in pairwise([*before, "--"]):
            if name in values and value.startswith("--") and not ctx.resilient_parsing:  # as in completing a line
                ctx.fail(f"Option {name!r} requires an argument. If the value begins with --, write {name}=VALUE")
        try:
            return super().parse_args(ctx, args)
        except typer.TyperException as error:
            if getattr(error, "ctx", None) is None:  # typer leaves it out of some errors, whose usage is then not known
                ctx.fail(error.format_message())
            raise

    def get_help_option(self, ctx: Any) -> Any:
        """Prints the help as commands print what they say."""
        return _said(super().get_help_option(ctx))

    def invoke(self, ctx: Any) -> Any:
        """Returns the exit code."""
        limits = vars(self.callback).get("limits")
        if ctx.obj and limits is not None:
            from .store import quarantine

            if (ended := quarantine.enter(**limits)) is not None:
                return ended
        return super().invoke(ctx)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:  # noqa: ARG002 - as it is overridden
        """Names what has to be given, and the other arguments, as the help does."""
        needed = [row(each)[0] for each in self.params if each.required and isinstance(each, TyperOption)]
        return ["[OPTIONS]", *needed, *(_usage(each) for each in self.params if isinstance(each, TyperArgument))]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Lists arguments and options."""
        for heading, kind in (("Arguments", TyperArgument), ("Options", TyperOption)):
            if rows := [row(each) for each in self.get_params(ctx) if isinstance(each, kind)]:
                with formatter.section(heading):
                    formatter.write_dl(rows)


class _Group(TyperGroup):
    """Commands, each below its heading."""

    def get_help_option(self, ctx: Any) -> Any:
        """Prints the help as commands print what they say."""
        return _said(super().get_help_option(ctx))

    def get_params(self, ctx: Any) -> list[Any]:
        """Returns its options, all of them flags that are off by default: typer would load pydantic to read a default of None."""
        options = super().get_params(ctx)
        for option in options:
            option.default = False
        return [*options]

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - as it is overridden
        """Lists them with the first sentence of their help."""
        by_heading: dict[str, list[tuple[str, str]]] = {}
        for name, command in self.commands.items():
            assert isinstance(command, TyperCommand | TyperGroup)
            by_heading.setdefault(command.rich_help_panel or "", []).append((name, command.help or ""))
        for heading, rows in by_heading.items():
            with formatter.section(heading):
                formatter.write_dl(rows)


def _said(option: Any) -> Any:
    option.callback = _print_help
    return option


def _print_help(ctx: Any, option: Any, wanted: bool) -> None:  # noqa: ARG001 - as typer calls it
    if wanted and not ctx.resilient_parsing:
        say(ctx.get_help())
        raise typer.Exit


def command_group(typed: Collection[str] | None = None) -> TyperGroup:
    """Returns all commands. With the words of a command line, only the commands among them get arguments, to save time."""
    more = (
        "Start with vlmrobust init --model ./my-checkpoint --data questions.jsonl, then pytest, then vlmrobust open. "
        "vlmrobust COMMAND --help says more, with examples; pytest --help lists the options --vlm-* of the gate."
    )
    settings = {"help_option_names": ["-h", "--help"]}
    app = typer.Typer(cls=_Group, callback=_root, help=__doc__, epilog=more, context_settings=settings, rich_markup_mode=None)
    for heading, functions in COMMANDS.items():
        _add(app, functions, heading, typed)
    export = typer.Typer(cls=_Group)
    _add(export, FORMATS, "Formats", typed)
    about, examples = "Write a run in the file format of another program.", "    vlmrobust export sarif latest"
    app.add_typer(export, name="export", help=about, epilog=_EXAMPLES + examples, rich_help_panel=[*COMMANDS][-1])
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    return group


def _add(app: typer.Typer, functions: Sequence[Callable[..., int]], heading: str, typed: Collection[str] | None) -> None:
    for function in functions:
        about, _, examples = (getdoc(function) or "").partition("\n\nExamples:\n")
        name = function.__name__.strip("_").replace("_", "-")
        add = app.command(name, cls=_Command, help=about, epilog=_EXAMPLES + examples, rich_help_panel=heading)
        add(function if typed is None or name in typed else lambda: None)


def _print_version(wanted: bool) -> None:
    if wanted:
        say(f"{_NAME} {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Holds the options that stand before a command."""


def row(parameter: TyperArgument | TyperOption) -> tuple[str, str]:
    """Returns how the help names an argument or an option, and what it says about it."""
    about = parameter.help or ""
    default = parameter.default if parameter.show_default is True else parameter.show_default
    if default not in (None, "") and not isinstance(default, bool):
        about += f" (default: {default})"
    if isinstance(parameter, TyperArgument):
        return _value(parameter), about
    names = ", ".join(sorted([*parameter.opts, *parameter.secondary_opts], key=len))
    return names if parameter.is_flag else f"{names} {_value(parameter)}", about


def _value(parameter: TyperArgument | TyperOption) -> str:
    """Returns the word for a value: its choices, or a name in capitals."""
    return parameter.metavar or "|".join(parameter.type_descriptor.choices or ()) or parameter.name.upper()


def _usage(argument: TyperArgument) -> str:
    value = f"{_value(argument)}..." if argument.nargs < 0 else _value(argument)
    return value if argument.required else f"[{value}]"


if __name__ == "__main__":
    sys.exit(main())
