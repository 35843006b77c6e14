"""Sequential gates: the verdict of all answers from a fraction of them, at a declared risk.

:mod:`.limits` turns a gate into one number per cell, :mod:`.order` fixes in which order its samples are asked, :class:`Audit`
turns answers into verdicts, :mod:`.combination` judges gates over many cells, and which cells to ask next.
"""

from __future__ import annotations

from .audit import Audit, Reason, Target, Verdicts, curtail
from .combination import (
    PRIOR_WORST,
    GateVerdict,
    allowed_violations,
    at_most,
    every,
    look_sizes,
    look_verdicts,
    prior_weights,
    uniform_weights,
    worst_case,
)
from .limits import (
    Contrast,
    Limit,
    UndefinedGate,
    max_drop,
    max_harmful_flip_rate,
    max_regression,
    max_relative_corruption_error,
    max_relative_drop,
    min_accuracy,
    min_relative_drop,
    pcri_between,
)
from .order import Order, next_cells, pair_order, right_first_order, stratified_order, uniform_order

__all__ = [
    "PRIOR_WORST",
    "Audit",
    "Contrast",
    "GateVerdict",
    "Limit",
    "Order",
    "Reason",
    "Target",
    "UndefinedGate",
    "Verdicts",
    "allowed_violations",
    "at_most",
    "curtail",
    "every",
    "look_sizes",
    "look_verdicts",
    "max_drop",
    "max_harmful_flip_rate",
    "max_regression",
    "max_relative_corruption_error",
    "max_relative_drop",
    "min_accuracy",
    "min_relative_drop",
    "next_cells",
    "pair_order",
    "pcri_between",
    "prior_weights",
    "right_first_order",
    "stratified_order",
    "uniform_order",
    "uniform_weights",
    "worst_case",
]
