"""Publication: the printed tables of a paper, and the number from runs for each printed number."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from pytest_vlmrobust.core.estimate import Estimate

AGREES, COMPATIBLE, DIFFERS = "agrees", "compatible, not tested", "differs"
"""Statuses of a published number: in our interval, which is narrow enough to test it; in an interval too wide; outside."""
DECLARED = "declared, not measured"
"""Status of a parameter that pixels do not show: ours is the declared value of this package."""
MULTIPLE = 2
"""The largest half-width of our interval that tests a published number, in multiples of its precision."""


@dataclass(frozen=True, slots=True)
class PublishedValue:
    """One number of a table, or one word."""

    metric: str
    """The name of a metric, or of a quantity of a ranking."""
    about: Mapping[str, str]
    """Its subject: ``dataset``, ``model`` or a ``pool`` of models, ``setting``, ``level``, ``category`` and so on."""
    printed: str
    """The printed text; empty if the number is not available."""
    of: int = 0
    """For a count, the total; 0 for all other numbers."""

    @property
    def precision(self) -> float:
        """Half a unit of the last printed digit; for a count, as a share."""
        return 0.5 * 10.0 ** -len(self.printed.partition(".")[2]) / (self.of or 1)

    @property
    def number(self) -> float:
        """The printed number, as a share for a count; NaN for a word, or if not available."""
        try:
            number = float(self.printed)
        except ValueError:
            return math.nan
        return number / self.of if self.of else number


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """One table of a paper."""

    paper: str
    """The short name of the paper, as in commands."""
    number: str
    caption: str
    commands: tuple[str, ...] = ()
    """The commands to run, given the weights and the data; empty if nothing in the table needs model answers."""
    models: str = ""
    """The models file used by the commands, as YAML; empty if they use none."""
    values: tuple[PublishedValue, ...] = ()
    keys: tuple[str, ...] = ()
    """The keys of ``about`` that describe rows; the other keys describe columns."""
    notes: tuple[str, ...] = ()
    """Known errors in the printed numbers, and what could not be run."""


@dataclass(frozen=True, slots=True)
class Reproduced(PublishedValue):
    """A published number and ours, both in the printed unit, percent or fractions."""

    published: float = math.nan
    """NaN for a word, or if not available."""
    ours: Estimate | None = None
    """``None`` if the runs do not have it; for a word, the number behind it, as a fraction."""
    word: str = ""
    """Our word, for a word."""
    agreement: str = ""
    """``AGREES``, ``COMPATIBLE``, ``DIFFERS`` or ``DECLARED``; empty without an interval of ours, or with nothing to compare."""
    limit: float = math.nan
    """The largest half-width of our interval that tests the number; NaN for a word, or if there is nothing to compare."""
    reason: str = ""
    """Why we have no number."""

    @property
    def difference(self) -> Estimate | None:
        """Ours minus the published number, which is treated as exact: the interval is ours, shifted."""
        if self.ours is None or math.isnan(self.published):
            return None
        ends = (self.ours.low - self.published, self.ours.high - self.published)
        return Estimate(self.ours.value - self.published, self.ours.n, *ends, self.ours.confidence)

    @property
    def half_width(self) -> float:
        """Half the width of our interval; NaN for a word, or without an interval."""
        return math.nan if self.ours is None or self.word else (self.ours.high - self.ours.low) / 2


@dataclass(frozen=True, slots=True)
class ReproducedTable(PublishedTable):
    """One table, with our number for each printed one."""

    values: tuple[Reproduced, ...] = ()
    scale: int = 1
    """The factor from our unit to the printed one: 100 if fractions are printed in percent."""


@dataclass(frozen=True, slots=True)
class Reproduction:
    """Tables of a paper, compared with the measurements of runs."""

    paper: str
    title: str
    tables: tuple[ReproducedTable, ...]
    runs: tuple[str, ...] = ()
    """The locations of the runs; empty if only the published numbers are shown."""
    notes: tuple[str, ...] = ()
    """Notes on every table, and what the runs have but the paper does not."""
    confidence: float = 0.90
    """Two-sided level of the intervals."""
