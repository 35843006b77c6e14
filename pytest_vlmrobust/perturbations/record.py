"""Corruption: everything that is known about one perturbation, in one frozen record."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_vlmrobust.core.errors import SettingError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Image = NDArray[np.uint8]

Parameters = Mapping[str, int | float | str]

CHANGES = ("colour", "count", "left_right", "position", "presence", "text", "up_down")
"""What a perturbation may alter about the right answer, not only about how hard it is to see:

``colour`` the colour of things; ``count`` how many are in view; ``left_right`` and ``up_down`` their order along an axis;
``position`` where they are in the picture; ``presence`` whether they are in view at all; ``text`` which words can be read.
"""


CATEGORIES = {
    "blur": "Blur",
    "noise": "Noise",
    "weather": "Weather",
    "digital": "Digital",
    "geometric": "Geometric",
    "tone": "Color/Tone",
    "occlusion": "Occlusion",
    "resolution": "Resolution",
    "overlay": "VLM-specific",
    "binary": "Binary",
}
"""Family to the heading that Table 29 of VLM-RobustBench gives it."""


@dataclass(frozen=True, slots=True, eq=False)
class Corruption:
    """One registered perturbation: its names, its parameters by level, and the function that changes pixels.

    ``function`` takes ``(image, rng, *, <parameters>)`` when ``stochastic`` and ``(image, *, <parameters>)`` when not; it gets
    uint8 RGB of shape (H, W, 3), read-only and contiguous, and returns uint8 RGB.
    """

    name: str
    family: str
    category: str
    """The heading of its family in reports; see :data:`CATEGORIES`."""
    function: Callable[..., Image]
    levels: Mapping[str | None, Parameters]
    """Parameters by level, mildest first; a binary perturbation has the one key ``None``."""
    changes: Mapping[str | None, frozenset[str]]
    """Members of :data:`CHANGES` by level: questions about these have another answer afterwards."""
    stochastic: bool
    version: int
    """Raised whenever the pixels change for the same input and seed."""
    source: str
    keeps_size: bool
    """Whether the output has the input's height and width."""

    @property
    def doc(self) -> str:
        """The docstring of the function: what it does, and why in that way."""
        return inspect.getdoc(self.function) or ""

    def settings(self) -> list[str]:
        """Returns its settings as strings, mildest first: ``["fog:low", "fog:mid", "fog:high"]`` or ``["flip_h"]``."""
        return [self.name if level is None else f"{self.name}:{level}" for level in self.levels]

    def parameters(self, level: str | None) -> Parameters:
        """Returns the keyword arguments of ``function`` at ``level``.

        Raises:
            SettingError: the perturbation does not have that level, needs one, or takes none.
        """
        if level not in self.levels:
            raise SettingError(self._refusal(level))
        return self.levels[level]

    def apply(self, image: Image, rng: np.random.Generator, level: str | None) -> Any:
        """Returns what ``function`` makes of ``image`` at ``level``; nothing is checked here."""
        randomness = (rng,) if self.stochastic else ()
        return self.function(image, *randomness, **self.parameters(level))

    def _refusal(self, level: str | None) -> str:
        if None in self.levels:
            return f"setting '{self.name}:{level}': {self.name} is binary and takes no level. Write {self.name!r}"
        offered = ", ".join(repr(setting) for setting in self.settings())
        found = f"setting {self.name!r} lacks a level" if level is None else f"setting '{self.name}:{level}': no level {level!r}"
        return f"{found}. Expected one of {offered}"
