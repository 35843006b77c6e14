"""The names of data sets that need no path: embedded ones, those of a ``conftest.py``, and those of installed packages."""

from __future__ import annotations

from collections.abc import Callable

from pytest_vlmrobust.core.registry import Registry

from .protocol import Dataset

DatasetFactory = Callable[[], Dataset]

DATASETS: Registry[DatasetFactory] = Registry("dataset", "datasets")


def register(name: str, factory: DatasetFactory, *, replace: bool = False) -> DatasetFactory:
    """Registers ``factory``, which is called without arguments when a run first needs the data, under ``name``.

    Raises:
        UsageError: the name is taken and ``replace`` was not asked for.
    """
    return DATASETS.add(name, factory, replace=replace)


def names() -> list[str]:
    """Returns every registered name; nothing is loaded for it."""
    return DATASETS.names()
