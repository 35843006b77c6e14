"""The commands of `vlmrobust`: each module adds the commands of one subject to the parser, and runs them."""

from __future__ import annotations

from . import (
    bundles,
    data,
    exports,
    filling,
    listing,
    papers,
    policies,
    power,
    runs,
    serving,
    starting,
    stores,
    submitting,
    viewing,
)

SUBJECTS = (
    starting,
    policies,
    listing,
    data,
    power,
    runs,
    viewing,
    exports,
    papers,
    bundles,
    stores,
    filling,
    submitting,
    serving,
)
"""In the order of ``vlmrobust --help``."""

__all__ = ["SUBJECTS"]
