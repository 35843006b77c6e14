"""The keys under which a run keeps its state on pytest's objects."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_vlmrobust.core.record import Record

    from .gate import Gate

GATE: pytest.StashKey[Gate] = pytest.StashKey()
RECORD: pytest.StashKey[Record] = pytest.StashKey()
