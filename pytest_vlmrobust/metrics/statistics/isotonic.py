"""Isotonic regression: the monotone curve that is nearest to a measured one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def rising_fit(values: Array) -> Array:
    """Returns the non-decreasing sequence with the smallest sum of squared distances from ``values``, shape (k,).

    Neighbours that fall are pooled to their mean until none does. (scipy.optimize has it too, and takes long to import.)

    Source: M. Ayer et al., Ann. Math. Statist. 26 (1955) 641-647 (pool adjacent violators).

    >>> rising_fit(np.array([1.0, 3.0, 2.0, 4.0])).tolist()
    [1.0, 2.5, 2.5, 4.0]
    """
    pools: list[tuple[float, int]] = []
    for value in values.tolist():
        mean, size = value, 1
        while pools and pools[-1][0] > mean:
            before, count = pools.pop()
            mean, size = (before * count + mean * size) / (count + size), count + size
        pools.append((mean, size))
    return np.repeat([mean for mean, _ in pools], [size for _, size in pools])
