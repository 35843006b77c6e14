"""Metric: everything that is known about one metric, in one record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Literal, TypeAlias

from pytest_vlmrobust.core.errors import UsageError

if TYPE_CHECKING:
    from .table import ScoreTable

Better: TypeAlias = Literal["lower", "higher", "none"]
Scope: TypeAlias = Literal["cell", "sweep"]
Interval: TypeAlias = "Callable[[ScoreTable, str | None, float], tuple[float, float]]"
"""``(table, setting, confidence) -> (low, high)``; the level is two-sided."""
Gate: TypeAlias = "Callable[[ScoreTable, str | None], str]"
"""``(table, setting) -> why the metric does not apply``, or an empty string when it does."""
Note: TypeAlias = "Callable[[ScoreTable], str]"
"""``table -> what a reader should know about the value``, or an empty string."""


class Needs(Enum):
    """An argument of a metric, named as the parameter that takes it; a record lists them in the order of the call."""

    CLEAN = "clean"
    """Scores without perturbation, shape (N,)."""
    PERTURBED = "perturbed"
    """Scores under the setting of the cell, shape (N,)."""
    NO_IMAGE = "no_image"
    """Scores of the same questions without their images, shape (N,)."""
    PERTURBED_BY_SETTING = "perturbed_by_setting"
    """Scores under every setting of the sweep: setting to shape (N,)."""
    REFERENCE_BY_SETTING = "reference_by_setting"
    """The same of the reference model."""
    PATCHES = "patches"
    """Scores of every patch under the setting of the cell (``patches:3``), shape (N, n*n), row by row."""
    LABELS = "labels"
    """What the samples are compared by (position in a grid, group of people): N names."""
    RESOLUTIONS = "resolutions"
    """Long edges of the ``resolution:`` settings of the sweep, ascending."""
    ACCURACIES = "accuracies"
    """Accuracy at each of these resolutions."""

    @property
    def of_one_setting(self) -> bool:
        """Whether the argument belongs to one cell rather than to the sweep."""
        return self in {Needs.PERTURBED, Needs.PATCHES}


@dataclass(frozen=True, slots=True)
class Coverage:
    """What the published quantity is taken over, so that a part of it never passes for the whole.

    ``select`` picks the settings that a metric uses; ``per`` is how many of them make one of the ``full`` things counted.
    """

    noun: str
    full: int
    select: Callable[[Iterable[str]], tuple[str, ...]] = tuple
    per: int = 1

    def count(self, settings: Iterable[str]) -> int:
        """Returns how many of the things counted ``settings`` make up."""
        return len(self.select(settings)) // self.per


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: its formula, and all facts that reports, policies, docs and tests read.

    ``perfect`` is the value for a model that answers everything right with the image and nothing without it; NaN when undefined.
    ``suite`` names the suite it belongs to, empty for every suite.
    """

    name: str
    function: Callable[..., float]
    needs: tuple[Needs, ...]
    unit: str = "fraction"
    better: Better = "none"
    bounds: tuple[float, float] = (float("-inf"), float("inf"))
    perfect: float = float("nan")
    reference: str = ""
    validity: str = ""
    suite: str = ""
    interval: Interval | None = field(default=None, repr=False)
    gate: Gate | None = field(default=None, repr=False)
    coverage: Coverage | None = field(default=None, repr=False)
    note: Note | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.better not in ("lower", "higher", "none"):
            raise UsageError(f"metric {self.name!r}: better is {self.better!r}, expected 'lower', 'higher' or 'none'")
        if not self.needs:
            raise UsageError(f"metric {self.name!r} needs nothing: list at least one of {_spelled(tuple(Needs))}")
        if not self.bounds[0] < self.bounds[1]:
            raise UsageError(f"metric {self.name!r}: bounds are {self.bounds}, expected (low, high) with low < high")

    @property
    def scope(self) -> Scope:
        """``"cell"`` when it is a metric of one setting, ``"sweep"`` when it is one of all settings."""
        return "cell" if any(need.of_one_setting for need in self.needs) else "sweep"

    @property
    def summary(self) -> str:
        """The first line of the function's docstring."""
        return (self.function.__doc__ or "").strip().partition("\n")[0]


def _spelled(needs: Sequence[Needs]) -> str:
    return ", ".join(f"Needs.{need.name}" for need in needs)
