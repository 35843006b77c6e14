"""The commands of `vlmrobust`: each module adds the commands of one subject to the parser, and runs them."""

from __future__ import annotations

from . import (
    exports,
    filling,
    listing,
    papers,
    policies,
    power,
    runs,
    serving,
    starting,
    submitting,
    viewing,
)

SUBJECTS = (
    starting,
    policies,
    listing,
    power,
    runs,
    viewing,
    exports,
    papers,
    filling,
    submitting,
    serving,
)
"""In the order of ``vlmrobust --help``."""

__all__ = ["SUBJECTS"]
