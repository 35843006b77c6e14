"""Imports packages of an extra, or raises an error that says how to install them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pytest_vlmrobust.core.errors import MissingExtra, VlmRobustError

DTYPES = ("float32", "float16", "bfloat16")
"""Names in torch of the numbers that networks may compute with."""


class BrokenExtra(MissingExtra):
    """A package of an extra is installed and cannot be imported, mostly because torchvision was built for another torch."""

    __module__ = "pytest_vlmrobust"

    def __init__(self, feature: str, package: str, reason: Exception) -> None:
        VlmRobustError.__init__(
            self,
            f"{feature} needs the package {package!r}, which is installed and cannot be imported "
            f"({type(reason).__name__}: {reason}). Mostly torchvision was built for another torch: install both from one index, "
            "such as uv pip install --torch-backend=auto --reinstall torch torchvision",
        )


@contextmanager
def importing(feature: str, package: str, *, extra: str) -> Iterator[None]:
    """Surrounds the import of ``package``, which the extra ``extra`` of this project brings."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != package:
            raise BrokenExtra(feature, package, error) from error
        raise MissingExtra(feature, package, extra=extra) from error
    except (ImportError, RuntimeError) as error:  # libraries that import lazily, and operators that are registered twice or never
        raise BrokenExtra(feature, package, error) from error
