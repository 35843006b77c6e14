"""Sequential gates: the verdict of all answers from a fraction of them, at a declared risk.

:mod:`.limits` turns a gate into one number per cell, :mod:`.order` fixes in which order its samples are asked, and :class:`Audit`
turns answers into verdicts.
"""

from __future__ import annotations

from .audit import Audit, Reason, Target, Verdicts, curtail
from .limits import (
    Contrast,
    Limit,
    UndefinedGate,
    max_drop,
    max_harmful_flip_rate,
    max_relative_corruption_error,
    max_relative_drop,
    min_accuracy,
    min_relative_drop,
)
from .order import PRIOR_WORST, Order, pair_order, prior_weights, stratified_order

__all__ = [
    "PRIOR_WORST",
    "Audit",
    "Contrast",
    "Limit",
    "Order",
    "Reason",
    "Target",
    "UndefinedGate",
    "Verdicts",
    "curtail",
    "max_drop",
    "max_harmful_flip_rate",
    "max_relative_corruption_error",
    "max_relative_drop",
    "min_accuracy",
    "min_relative_drop",
    "pair_order",
    "prior_weights",
    "stratified_order",
]
