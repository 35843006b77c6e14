"""Verdicts about the population at a few looks fixed before the run: Tango's score statistic against O'Brien-Fleming bounds.

Source: P. O'Brien and T. Fleming, Biometrics 35 (1979) 549-556, for the shape (bounds fall with the root of the fraction seen);
T. Tango, Statistics in Medicine 17 (1998), for the statistic of paired answers.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..scores import ROUNDING, Scores, is_binary
from ..statistics.tango import tango_statistic
from .tally import bounded

Flags = NDArray[np.bool_]

FRACTIONS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.85, 1.0)
"""Shares of the N samples after which one looks."""
BOUNDS = (5.63, 3.98, 3.25, 2.82, 2.52, 2.30, 2.13, 1.93, 1.78)
"""What the statistic must reach at each look; 5 % one-sided over all of them."""


def look_sizes(samples: int) -> tuple[int, ...]:
    """Returns after how many samples to look.

    >>> look_sizes(869)
    (87, 174, 261, 348, 435, 522, 609, 739, 869)
    """
    return tuple(math.ceil(fraction * samples - ROUNDING) for fraction in FRACTIONS)


def look_verdicts(clean: ArrayLike, outcomes: ArrayLike, samples: int, most: float) -> tuple[Flags, Flags]:
    """Judges "the true drop is at most ``most``" for m cells at the look that the number of answers belongs to.

    The first verdict of a cell counts. Approximate (normal limit); each of the two errors is made with probability about 5 %.
    A missing answer counts as wrong towards PASS and as right towards FAIL.

    Args:
        clean: clean scores of the first n samples in the cell's order, shape (n,) or (m, n), each 0 or 1.
        outcomes: perturbed scores of the same, shape (m, n), each 0, 1 or NaN.
        samples: N, how many samples the whole run has.
        most: the drop that passes, inside (-1, 1).

    Returns:
        ``(passed, failed)``, shape (m,) each, never both true.

    Raises:
        ValueError: n is no look, scores that are not 0 or 1, unequal lengths, or ``most`` outside (-1, 1).
    """
    after = np.atleast_2d(np.asarray(outcomes, dtype=np.float64))
    before = np.broadcast_to(np.asarray(clean, dtype=np.float64), after.shape)
    critical = _critical(after.shape[1], samples)
    wrong, right = bounded(after)
    if not is_binary(before, wrong, right) or not -1.0 < most < 1.0:
        raise ValueError(
            f"expected scores of 0 and 1 (or NaN for a missing answer) and a drop inside (-1, 1), found a drop of {most!r}"
        )
    return _statistic(before, wrong, most) <= -critical, _statistic(before, right, most) >= critical


def _critical(seen: int, samples: int) -> float:
    sizes = look_sizes(samples)
    if seen not in sizes:
        raise ValueError(
            f"{seen} answers of {samples}: looks were fixed at {', '.join(map(str, sizes))}. Looking elsewhere voids the level"
        )
    # tiny runs look twice after the same sample: the stricter bound holds
    return BOUNDS[sizes.index(seen)]


def _statistic(clean: Scores, outcomes: Scores, drop: float) -> Scores:
    loss = clean - outcomes
    harmful, helpful = (loss > 0.0).sum(axis=1).astype(np.float64), (loss < 0.0).sum(axis=1).astype(np.float64)
    size = np.full(harmful.shape, float(loss.shape[1]))
    return tango_statistic(harmful, helpful, size, np.full(harmful.shape, drop))
