"""What a change on the model's side gains on the same samples: thinking mode, a hint.

Source: The Perceptual Observatory (arXiv 2512.15949), section 3.3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from .scores import mean, paired
from .sources import clusters_of
from .statistics.differences import drop_test
from .statistics.quantiles import one_sided


def thinking_gain(thinking: ArrayLike, base: ArrayLike) -> float:
    """Mean score with thinking mode minus that without, on the same samples under otherwise equal settings.

    Args:
        thinking: shape (N,), each in [0, 1], answers after thinking.
        base: shape (N,), the same samples answered directly.

    Returns:
        A fraction in [-1, 1], above 0 when thinking helps; NaN for no samples or a missing score.

    Raises:
        ValueError: unequal lengths, a score outside [0, 1], or another shape.

    Source: The Perceptual Observatory section 3.3 (thinking superiority).

    >>> thinking_gain([1, 1, 0, 1], [1, 0, 0, 1])
    0.25
    """
    after, before = paired(thinking=thinking, base=base)
    return mean(after - before)


def hint_gain(hinted: ArrayLike, unhinted: ArrayLike) -> float:
    """Mean overlap with one box given as a hint minus that without: spatial common sense.

    Args:
        hinted: shape (N,), intersection over union of the attributes not given away, 0 where nothing was found.
        unhinted: shape (N,), the same attributes without the hint.

    Returns:
        A fraction in [-1, 1], above 0 when the hint helps; NaN for no samples or a missing score.

    Raises:
        ValueError: unequal lengths, an overlap outside [0, 1], or another shape.

    Source: The Perceptual Observatory section 3.3 (salient perceptual understanding, semi-guided).

    >>> hint_gain([0.75, 0.5], [0.5, 0.25])
    0.25
    """
    after, before = paired(hinted=hinted, unhinted=unhinted)
    return mean(after - before)


def gain_interval(
    after: ArrayLike, before: ArrayLike, confidence: float = 0.90, source_images: Sequence[str] | None = None
) -> tuple[float, float]:
    """Bounds a mean gain over the same samples, such as :func:`thinking_gain`: Tango for 0/1 scores, Student's t otherwise.

    Args:
        after: shape (N,), each in [0, 1].
        before: shape (N,), the same samples.
        confidence: two-sided level in (0, 1).
        source_images: source image of each sample; None when all samples are independent.

    Returns:
        ``(low, high)``, fractions in [-1, 1]; NaN for no samples or a missing score.

    Raises:
        ValueError: unequal lengths, a level outside (0, 1), a score outside [0, 1], or another shape.

    Source: Tango 1998 (score interval).

    >>> low, high = gain_interval([1] * 36 + [0] * 13 + [1] * 820, [0] * 36 + [1] * 833)
    >>> round(low, 4), round(high, 4)
    (0.0136, 0.0405)
    """
    tail = one_sided(confidence)
    new, old = paired(after=after, before=before)
    if not new.size or np.isnan(new.sum() + old.sum()):
        return math.nan, math.nan
    test = drop_test(new, old[:, None], clusters_of(source_images, new.size))
    return max(float(test.lower(tail)[0]), -1.0), min(float(test.upper(tail)[0]), 1.0)
