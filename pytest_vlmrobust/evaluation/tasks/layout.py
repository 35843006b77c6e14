"""Layout: where the target, the picture of the other domain and the near neighbours stand among the candidates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pytest_vlmrobust.core.sample import ImageSource

if TYPE_CHECKING:
    import numpy as np


def other_place(target: int, turn: int, count: int) -> int:
    """Returns where the picture of the other domain stands among ``count`` candidates.

    It is another place than ``target``, and a different one for every target of one ``turn``. Over ``count - 1`` turns in a
    row it takes every other place.
    """
    return (target + 1 + turn % (count - 1)) % count


def arranged(rng: np.random.Generator, fixed: Mapping[int, ImageSource], near: Sequence[ImageSource]) -> tuple[ImageSource, ...]:
    """Returns all candidates in order: some at their places, the others shuffled into the rest."""
    rest = iter(near[place] for place in rng.permutation(len(near)))
    return tuple(fixed[place] if place in fixed else next(rest) for place in range(len(fixed) + len(near)))
