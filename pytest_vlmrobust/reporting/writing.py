"""Writing: files that are either the old one or the new one, and text that cannot break a Markdown table."""

from __future__ import annotations

import os
from pathlib import Path


def write_text(path: Path, text: str) -> None:
    """Writes a file in one step, in UTF-8; halves of surrogate pairs, which a model's server may send, are spelled out.

    Raises:
        OSError: it cannot be written; an earlier one is left as it was.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8", errors="backslashreplace", newline="\n")
    temporary.replace(path)


def in_table(text: str) -> str:
    r"""Returns text on one line, its bars marked as no ends of cells.

    >>> in_table("a|b\nc")
    'a\\|b c'
    """
    return " ".join(text.splitlines()).replace("|", "\\|")
