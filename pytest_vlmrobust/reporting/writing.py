"""Writing: files that are replaced as a whole, and text and tables for a terminal."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_vlmrobust.core.words import on_one_line, without_halves
from pytest_vlmrobust.store.run_directory import replace_file

if TYPE_CHECKING:
    from jinja2 import Environment
    from rich.console import Console

_INDENT = "  "
"""Indent of the rows of a sentence after its first."""


def write_text(path: Path, text: str) -> None:
    """Writes a UTF-8 file atomically: an existing file is unchanged after an OSError. Unpaired surrogates are escaped."""
    replace_file(path, without_halves(text).encode())


def write_out(path: Path, content: str | Path) -> None:
    """Writes a text, or a copy of a file, to a path of the user. Files are written atomically; pipes, devices and
    links are kept. The folder is created.

    Raises:
        OSError: it cannot be written; an existing file is unchanged.
    """  # noqa: D205 - one sentence
    path.parent.mkdir(parents=True, exist_ok=True)
    encoded = content if isinstance(content, Path) else without_halves(content).encode()
    if not path.is_symlink() and (path.is_file() or not path.exists()):
        replace_file(path, encoded)
        return
    with encoded.open("rb") if isinstance(encoded, Path) else io.BytesIO(encoded) as source, path.open("wb") as stream:
        shutil.copyfileobj(source, stream)


def write_result(out: Path | None, usual: Path, text: str) -> Path:
    """Writes a text to where a user wants it, else to its usual place in a run, whatever stands there; returns the place."""
    if out is None:
        write_text(usual, text)
    else:
        write_out(out, text)
    return out or usual


def json_text(content: Mapping[str, Any]) -> str:
    """Returns a JSON document for people and programs."""
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def template_environment(package: str, finalize: Callable[[Any], Any]) -> Environment:
    """Returns the environment of a package's templates, in which every value that a template prints is escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader(package),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=finalize,
    )


# Tables for a terminal.


def text_console(buffer: io.StringIO, *, width: int, color: bool) -> Console:
    """Returns a console that prints into a buffer like a terminal of this width."""
    from rich.console import Console

    return Console(
        file=buffer,
        width=width,
        force_terminal=color,
        color_system="standard" if color else None,
        highlight=False,
        emoji=False,  # ":mid:" may be part of a name
    )


def plain_markup(text: str) -> str:
    """Returns text on one line without markup for the terminal or rich."""
    from rich.markup import escape

    return escape(on_one_line(text))


def print_sentence(console: Console, markup: str) -> None:
    """Prints a sentence, wrapped between words on a terminal and on one line in a log."""
    from rich.text import Text

    if not console.is_terminal:
        console.print(markup, soft_wrap=True)
        return
    rows = Text.from_markup(markup, emoji=False).wrap(console, console.width - len(_INDENT))
    for place, words in enumerate(rows):
        words.rstrip()
        console.print(Text.assemble(_INDENT if place else "", words), soft_wrap=True)


def render_sentences(sentences: Iterable[str], *, width: int, color: bool) -> str:
    """Returns sentences as printed by ``print_sentence``, each on a new line."""
    from rich.markup import escape

    buffer = io.StringIO()
    console = text_console(buffer, width=width, color=color)
    for sentence in sentences:
        print_sentence(console, escape(sentence))
    return buffer.getvalue()


def sentence_rows(console: Console, markup: str) -> int:
    """Returns how many rows a sentence takes."""
    from rich.text import Text

    text = Text.from_markup(markup, emoji=False)
    return len(text.wrap(console, console.width - len(_INDENT))) if console.is_terminal else -(-text.cell_len // console.width)


def render_table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    names: int,
    width: int,
    color: bool,
    whole: int = 0,
    styles: Sequence[str] = (),
) -> str:
    """Returns rows in columns; cells are wrapped only if the terminal is too narrow.

    The first ``names`` columns hold names, which are left-aligned, and the others numbers. The first ``whole`` columns are never
    wrapped, so that they can be copied. ``styles`` are those of rows.
    """
    from rich.table import Table
    from rich.text import Text

    buffer = io.StringIO()
    console = text_console(buffer, width=width, color=color)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for place, title in enumerate(header):
        table.add_column(title, justify="left" if place < names else "right", overflow="fold", no_wrap=place < whole)
    for row, style in zip_longest(rows, styles):
        table.add_row(*(Text(on_one_line(cell)) for cell in row), style=style)
    console.print(table)
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()) + "\n"
