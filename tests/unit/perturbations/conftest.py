from __future__ import annotations

from collections.abc import Iterator

import pytest

from pytest_vlmrobust import perturbations
from pytest_vlmrobust.perturbations.registry import REGISTRY

perturbations.names("all")  # what is built in is loaded before the first test: none may forget it


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    """Forgets what a test registered."""
    before = dict(REGISTRY._things)
    installed = REGISTRY._entry_points
    yield
    REGISTRY._things.clear()
    REGISTRY._things.update(before)
    REGISTRY._entry_points = installed
