"""What the prompts of a box task tell about the boxes that they ask for: computed from the samples, no model is asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.boxes import Box
from pytest_vlmrobust.core.sample import Sample

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_Named: TypeAlias = tuple[tuple[str, Box], ...]
_UNKNOWN = (float("nan"),) * 4


def told_overlaps(samples: Sequence[Sample]) -> NDArray[np.float64] | None:
    """Returns the mean overlap that each prompt alone foretells, shape (N,), read-only; None where no boxes are asked for.

    The same from equal samples, whoever keeps them; see :func:`pytest_vlmrobust.metrics.told_overlap`.
    """
    asked = [(sample.group or sample.id, about) for sample in samples if (about := sample.localisation)]
    if not asked or len(asked) != len(samples):
        return None
    told = tuple(_shares(about.given, about.size) for _, about in asked)
    return _overlaps(told, tuple(_shares(about.boxes, about.size) for _, about in asked), tuple(group for group, _ in asked))


@lru_cache(maxsize=64)
def _overlaps(told: tuple[_Named, ...], asked: tuple[_Named, ...], groups: tuple[str, ...]) -> NDArray[np.float64]:
    found = metrics.told_overlap(_by_name(told), _by_name(asked), groups)
    found.flags.writeable = False
    return found


def _shares(boxes: Mapping[str, Box], size: tuple[int, int]) -> _Named:
    """Returns boxes as fractions of a picture."""
    width, height = size
    return tuple((name, (x1 / width, y1 / height, x2 / width, y2 / height)) for name, (x1, y1, x2, y2) in sorted(boxes.items()))


def _by_name(boxes: Iterable[_Named]) -> dict[str, list[Box]]:
    """Returns the boxes of all samples by name, NaN where a sample has none."""
    each = [dict(one) for one in boxes]
    return {name: [one.get(name, _UNKNOWN) for one in each] for name in sorted({name for one in each for name in one})}
