"""Writing: files that are replaced as a whole, text that Markdown does not interpret, and tables for a terminal."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_vlmrobust.core.words import on_one_line

if TYPE_CHECKING:
    from rich.console import Console

_OBEYED = re.compile(
    r"""(?P<interval>\[-?\d[\d.]*,[ ]-?\d[\d.]*\](?![\[(:]))  # an interval, unless it could be the name of a link
    |^(?:[#>+=-]+|\d+[.)])(?=\s|$)  # a heading, a quotation, or an item of a list
    |\\(?=[!-/:-@\[-`{-~]|$)  # a backslash that would mark what follows
    |&(?=[\#\w])|[|<`*\[\]~$]
    |(?<!\w)_|_(?!\w)
    |(?<!\w)@(?=\w)""",
    re.VERBOSE,
)
_INDENT = "  "
"""Stands before the rows of a sentence after its first."""
_NAMED = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}


def write_text(path: Path, text: str) -> None:
    """Writes a file in one step, in UTF-8; halves of surrogate pairs, which a model's server may send, are spelled out.

    Raises:
        OSError: it cannot be written; an earlier one is left as it was.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(_encoded(text))
    temporary.replace(path)


def write_out(path: Path, content: str | Path) -> None:
    """Writes a text, or a copy of a file, to a path that a user named: a file in one step; a pipe, a device and what a link leads
    to stay what they are.

    Raises:
        OSError: it cannot be written; an earlier file is left as it was.
    """  # noqa: D205 - one sentence
    stays = path.is_symlink() or (path.exists() and not path.is_file())
    target = path if stays else path.with_name(f".{path.name}.{os.getpid()}")
    with (
        content.open("rb") if isinstance(content, Path) else io.BytesIO(_encoded(content)) as source,
        target.open("wb") as stream,
    ):
        shutil.copyfileobj(source, stream)
    if not stays:
        target.replace(path)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Writes a JSON document for people and programs, in one step.

    Raises:
        OSError: it cannot be written; an earlier one is left as it was.
    """
    write_text(path, json_text(content))


def json_text(content: Mapping[str, Any]) -> str:
    """Returns a JSON document for people and programs."""
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def inert(text: str) -> str:
    r"""Returns text on one line in which nothing is taken for Markdown, HTML, a mention or the end of a cell.

    Invisible characters are spelled out; markup becomes character references, which Markdown shows as the character
    and never interprets. Intervals stay as they are: two numbers in brackets mean nothing in Markdown.

    >>> inert("a|b\nc <i>"), inert("[x](http://y) in [0.1, 0.2]"), inert("@all")
    ('a\\|b c &lt;i>', '&#91;x&#93;(http://y) in [0.1, 0.2]', '@&#8203;all')
    """
    return _OBEYED.sub(_escape_match, on_one_line(text))


def code(text: str) -> str:
    r"""Returns text as code in Markdown, where nothing is interpreted, between more backticks than it holds in a row.

    >>> code("a|b"), code("a`b")
    ('`a\\|b`', '``a`b``')
    """
    shown = on_one_line(text).replace("|", "\\|")
    fence = "`" * (1 + max(map(len, re.findall("`+", shown)), default=0))
    blank = " " if shown.startswith("`") or shown.endswith("`") else ""
    return f"{fence}{blank}{shown}{blank}{fence}"


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]], left: Collection[int] = (0,)) -> list[str]:
    """Returns the lines of a table in Markdown.

    Args:
        header: a title for each column.
        rows: cells in which nothing is taken for Markdown.
        left: the columns of text; numbers are right-aligned.
    """
    signs = ["---" if place in left else "--:" for place in range(len(header))]
    return [f"| {' | '.join(header)} |", f"|{'|'.join(signs)}|", *(f"| {' | '.join(row)} |" for row in rows)]


def _escape_match(match: re.Match[str]) -> str:
    text = match[0]
    if match["interval"]:
        return text
    if text == "|":
        return "\\|"
    if text == "@":
        return "@&#8203;"  # GitHub looks for mentions in what a page shows: a blank of no width parts the sign from the name
    return "".join(_NAMED.get(char, f"&#{ord(char)};") for char in text)


# Tables for a terminal.


def text_console(buffer: io.StringIO, *, width: int, color: bool) -> Console:
    """Returns a console that prints into a buffer what a terminal of this width would show.

    Args:
        buffer: receives the text.
        width: of the terminal, in characters.
        color: whether it shows colours and bold text.
    """
    from rich.console import Console

    return Console(
        file=buffer,
        width=width,
        force_terminal=color,
        color_system="standard" if color else None,
        highlight=False,
        emoji=False,  # ":mid:" may be part of a name
    )


def print_sentence(console: Console, markup: str) -> None:
    """Prints a sentence, on a terminal in rows that break between words; a log keeps it in one line.

    Args:
        console: of ``text_console``.
        markup: the sentence, with rich's markup.
    """
    from rich.text import Text

    if not console.is_terminal:
        console.print(markup, soft_wrap=True)
        return
    rows = Text.from_markup(markup, emoji=False).wrap(console, console.width - len(_INDENT))
    for place, words in enumerate(rows):
        words.rstrip()
        console.print(Text.assemble(_INDENT if place else "", words), soft_wrap=True)


def render_sentences(sentences: Iterable[str], *, width: int, color: bool) -> str:
    """Returns sentences as ``print_sentence`` prints them, each on a line of its own.

    Args:
        sentences: without markup.
        width: of the terminal, in characters.
        color: whether it is one.
    """
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
    header: Sequence[str], rows: Sequence[Sequence[str]], *, names: int, width: int, color: bool, whole: int = 0
) -> str:
    """Returns rows in columns; cells are wrapped only where the terminal is too narrow for them.

    Args:
        header: a title for each column.
        rows: cells, as many in each row as there are titles.
        names: how many columns, from the first one, hold names, which are left-aligned; numbers are right-aligned.
        width: of the terminal, in characters.
        color: whether it shows bold text.
        whole: how many columns, from the first one, are never wrapped: somebody copies what they hold.
    """
    from rich.table import Table
    from rich.text import Text

    buffer = io.StringIO()
    console = text_console(buffer, width=width, color=color)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for place, title in enumerate(header):
        table.add_column(title, justify="left" if place < names else "right", overflow="fold", no_wrap=place < whole)
    for row in rows:
        table.add_row(*(Text(on_one_line(cell)) for cell in row))
    console.print(table)
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()) + "\n"
