"""What is done to the database of a store or of a run behind its back."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

from pytest_vlmrobust.store import Evidence

Execute = Callable[..., None]


@pytest.fixture
def execute(tmp_path: Path) -> Execute:
    """Executes statements on the database in the test's directory, each with the values behind it."""

    def execute(*statements: str, values: tuple[object, ...] = ()) -> None:
        with closing(sqlite3.connect(tmp_path / "predictions.sqlite")) as connection:
            for statement in statements:
                connection.execute(statement, values)
            connection.commit()

    return execute


def forge(directory: Path) -> None:
    """Writes evidence in which each of nine inner pages of the table of answers has the next one as its only child."""
    Evidence.open(directory).close()
    path = directory / "predictions.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("pragma journal_mode = delete")
    rows = ((0, place, "k" * 100, "", 1.0, "scored", "", "") for place in range(40_000))
    connection.executemany("insert into answers values (?, ?, ?, ?, ?, ?, ?, ?)", rows)
    connection.commit()
    (root,) = connection.execute("select rootpage from sqlite_master where name = 'answers'").fetchone()
    (size,) = connection.execute("pragma page_size").fetchone()
    connection.close()
    content = bytearray(path.read_bytes())
    inner = [page for page in range(2, len(content) // size + 1) if content[(page - 1) * size] == 2 and page != root]
    chain = [root, *inner[:9]]
    for page, child in pairwise(chain):
        start = (page - 1) * size
        cells = int.from_bytes(content[start + 3 : start + 5])
        listed = (start + 12 + 2 * cell for cell in range(cells))
        for place in (start + 8, *(start + int.from_bytes(content[at : at + 2]) for at in listed)):
            content[place : place + 4] = child.to_bytes(4)
    path.write_bytes(content)
