"""ModelRef: which weights at which revision, and how they are to be asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

PROMPT_MODES = ("direct", "cot", "thinking")


@dataclass(frozen=True, slots=True)
class ModelRef:
    """A model as the user named it, resolved to a backend and a location.

    ``name`` is short and safe in a test id (letters, digits, ``.``, ``_`` and ``-``).
    """

    name: str
    backend: str
    location: str
    """A directory, a hub id, a base URL with ``#model``, or a file of scripted answers."""
    revision: str = ""
    dtype: str = "auto"
    prompt_mode: str = "direct"
    generation: Mapping[str, int | float] = field(default_factory=dict)
    """Overrides of the mode's generation parameters (``max_new_tokens``, ``temperature`` ...)."""
    min_pixels: int | None = None
    max_pixels: int | None = None
    box_convention: str = ""
    family: str = ""
    parameters_billion: float | None = None
    trained_long_edge: int | None = None
    """Long edge in pixels of the pictures that it was trained on, where they were small; ``None`` where nothing is said."""
    policy: str = ""
    """Name of the thresholds file that a run uses for this model when none is given."""
