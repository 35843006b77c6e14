from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import pytest_vlmrobust.metrics

MODULES = [found.name for found in pkgutil.walk_packages(pytest_vlmrobust.metrics.__path__, "pytest_vlmrobust.metrics.")]


@pytest.mark.parametrize("name", MODULES)
def test_examples_hold(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = pytest_vlmrobust.metrics.REGISTRY
    monkeypatch.setattr(registry, "_things", dict(registry._things))
    assert doctest.testmod(importlib.import_module(name)).failed == 0
