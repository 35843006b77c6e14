"""Robustness gates for vision-language models, as pytest tests.

Importing this package imports neither numpy nor torch: the public modules are loaded when first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import metrics, perturbations, scoring, testing

__version__ = "0.1.0"
__all__ = ["__version__", "metrics", "perturbations", "scoring", "testing"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
