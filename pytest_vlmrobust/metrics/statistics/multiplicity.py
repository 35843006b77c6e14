"""Many hypotheses at once: p-values adjusted for listing those that are shown to be false."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def holm(p_values: Array) -> Array:
    """Returns p-values adjusted for a family, shape (m,): listing those at most alpha errs anywhere with probability alpha.

    Source: S. Holm, Scand. J. Statist. 6 (1979) 65-70; valid whatever the dependence.

    >>> [round(float(p), 2) for p in holm(np.array([0.04, 0.01, 0.03]))]
    [0.06, 0.03, 0.06]
    """
    order = np.argsort(p_values, kind="stable")
    stepped = np.maximum.accumulate(p_values[order] * np.arange(p_values.size, 0, -1))
    return _unsorted(stepped, order)


def benjamini_hochberg(p_values: Array) -> Array:
    """Returns p-values adjusted for their false discovery rate, shape (m,): of those listed at alpha, alpha are false on average.

    Source: Y. Benjamini and Y. Hochberg, J. R. Statist. Soc. B 57 (1995) 289-300; valid for independent or positively dependent
    tests, as those of settings on the same samples are. (scipy.stats has it too, and takes a second to import.)

    >>> [round(float(p), 2) for p in benjamini_hochberg(np.array([0.04, 0.01, 0.03]))]
    [0.04, 0.03, 0.04]
    """
    order = np.argsort(p_values, kind="stable")
    scaled = p_values[order] * p_values.size / np.arange(1, p_values.size + 1)
    return _unsorted(np.minimum.accumulate(scaled[::-1])[::-1], order)


def _unsorted(adjusted: Array, order: NDArray[np.intp]) -> Array:
    result = np.empty_like(adjusted)
    result[order] = np.minimum(adjusted, 1.0)
    return result
