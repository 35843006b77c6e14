"""How many of m hypotheses are false: partial conjunction, valid whatever the dependence between them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def partial_conjunction(p_values: Array) -> Array:
    """Returns, for u = 1..m, the p-value of "fewer than u of the m hypotheses are false".

    Source: Y. Benjamini and R. Heller, Biometrics 64 (2008) 1215-1222 (Bonferroni form), made monotone.

    >>> [round(float(p), 3) for p in partial_conjunction(np.array([0.001, 0.004, 0.01, 0.03, 0.2, 0.5]))]
    [0.006, 0.02, 0.04, 0.09, 0.4, 0.5]
    """
    ordered = np.sort(p_values)
    result: Array = np.minimum(np.maximum.accumulate(np.arange(ordered.size, 0, -1) * ordered), 1.0)
    return result


def count_interval(p_values: Array, p_values_of_opposite: Array, tail: float) -> tuple[int, int]:
    """Bounds how many of m statements are true, each bound wrong with probability at most ``tail``.

    Args:
        p_values: shape (m,); a small one shows that the statement is true.
        p_values_of_opposite: shape (m,); a small one shows that it is false.
        tail: error probability of each bound.

    Returns:
        ``(low, high)``, counts in 0..m.
    """
    shown_true = int((partial_conjunction(p_values) <= tail).sum())
    shown_false = int((partial_conjunction(p_values_of_opposite) <= tail).sum())
    return shown_true, p_values.size - shown_false
