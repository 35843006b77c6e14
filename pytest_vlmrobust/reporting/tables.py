"""Tables: rows of text under a header, for a terminal."""

from __future__ import annotations

import io
from collections.abc import Sequence

from pytest_vlmrobust.core.printing import on_one_line


def render_table(header: Sequence[str], rows: Sequence[Sequence[str]], *, names: int, width: int, color: bool) -> str:
    """Returns rows in columns, none of them torn unless a terminal is too narrow for it.

    Args:
        header: a title for each column.
        rows: cells, as many in each row as there are titles.
        names: how many columns, from the first one, hold names: they stand to the left, numbers to the right.
        width: of the terminal, in characters.
        color: whether it shows bold text.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    buffer = io.StringIO()
    console = Console(file=buffer, width=width, force_terminal=color, color_system="standard" if color else None, highlight=False)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for place, title in enumerate(header):
        table.add_column(title, justify="left" if place < names else "right", overflow="fold")
    for row in rows:
        table.add_row(*(Text(on_one_line(cell)) for cell in row))
    console.print(table)
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()) + "\n"
