"""What is done to the database of a store or of a run behind its back."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

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
