"""Many hypotheses at once: p-values adjusted for listing those that are shown to be false."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


def holm(p_values: ArrayLike) -> Array:
    """Returns p-values adjusted for a family, shape (m,): listing those at most alpha errs anywhere with probability alpha.

    Raises:
        ValueError: a value that is no p-value, a missing one included.

    Source: S. Holm, Scand. J. Statist. 6 (1979) 65-70; valid whatever the dependence.

    >>> [round(float(p), 2) for p in holm([0.04, 0.01, 0.03])]
    [0.06, 0.03, 0.06]
    """
    known = _checked(p_values)
    order = np.argsort(known, kind="stable")
    stepped = np.maximum.accumulate(known[order] * np.arange(known.size, 0, -1))
    return _unsorted(stepped, order)


def benjamini_hochberg(p_values: ArrayLike) -> Array:
    """Returns p-values adjusted for their false discovery rate, shape (m,): of those listed at alpha, alpha are false on average.

    Raises:
        ValueError: a value that is no p-value, a missing one included.

    Source: Y. Benjamini and Y. Hochberg, J. R. Statist. Soc. B 57 (1995) 289-300; valid for independent or positively dependent
    tests, as those of settings on the same samples are. (scipy.stats has it too, and takes a second to import.)

    >>> [round(float(p), 2) for p in benjamini_hochberg([0.04, 0.01, 0.03])]
    [0.04, 0.03, 0.04]
    """
    known = _checked(p_values)
    order = np.argsort(known, kind="stable")
    scaled = known[order] * known.size / np.arange(1, known.size + 1)
    return _unsorted(np.minimum.accumulate(scaled[::-1])[::-1], order)


def _checked(p_values: ArrayLike) -> Array:
    values: Array = np.asarray(p_values, dtype=np.float64).reshape(-1)
    wrong = ~((values >= 0.0) & (values <= 1.0))
    if wrong.any():
        position = int(wrong.argmax())
        raise ValueError(f"p_values[{position}] is {float(values[position])!r}: expected a probability in [0, 1]")
    return values


def _unsorted(adjusted: Array, order: NDArray[np.intp]) -> Array:
    result = np.empty_like(adjusted)
    result[order] = np.minimum(adjusted, 1.0)
    return result
