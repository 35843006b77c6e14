"""Command lines of `vlmrobust` that are read and not run, and its commands."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from typer.core import TyperGroup

from pytest_vlmrobust.cli import command_group


def every_command(group: TyperGroup | None = None, program: str = "vlmrobust") -> Iterator[tuple[str, Any]]:
    """Yields how each command is called, and the command; those of a command follow it."""
    for name, command in (group or command_group()).commands.items():
        yield f"{program} {name}", command
        if isinstance(command, TyperGroup):
            yield from every_command(command, f"{program} {name}")


@functools.cache
def _commands() -> Mapping[str, Any]:
    return dict(every_command())


def read(words: Sequence[str]) -> dict[str, Any]:
    """Returns the values of the arguments of a command."""
    depth = 2 if words[0] == "export" else 1
    command = _commands()[" ".join(["vlmrobust", *words[:depth]])]
    values: dict[str, Any] = command.make_context(words[depth - 1], [*words[depth:]]).params
    return values
