"""Publication: the tables of a paper as they are printed, and what runs give in the place of each number."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from pytest_vlmrobust.core.estimate import Estimate

AGREES, COMPATIBLE, DIFFERS = "agrees", "compatible, not tested", "differs"
"""What is said of a published number: in our interval, which is narrow enough to test it; in one that is too wide; outside."""
DECLARED = "declared, not measured"
"""What is said of a parameter that pixels do not show: ours is what this package declares."""
MULTIPLE = 2
"""How many times the precision of a published number the half-width of our interval may be to test it."""


@dataclass(frozen=True, slots=True)
class PublishedValue:
    """One number of a table, or one word."""

    metric: str
    """What it is: the name of a metric, or of a quantity that a ranking gives."""
    about: Mapping[str, str]
    """What it is about: ``dataset``, ``model`` or a ``pool`` of models, ``setting``, ``level``, ``category`` and so on."""
    printed: str
    """As it is printed; empty where the number is not at hand."""
    of: int = 0
    """Of a count, how many there are in all; 0 for all other numbers."""

    @property
    def precision(self) -> float:
        """Half a unit of the last printed digit; of a count, as a share."""
        return 0.5 * 10.0 ** -len(self.printed.partition(".")[2]) / (self.of or 1)

    @property
    def number(self) -> float:
        """What is printed as a number, of a count its share; NaN for a word, and where it is not at hand."""
        try:
            number = float(self.printed)
        except ValueError:
            return math.nan
        return number / self.of if self.of else number


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """One table of a paper."""

    paper: str
    """The paper by its short name, as commands spell it."""
    number: str
    caption: str
    commands: tuple[str, ...] = ()
    """What a person with the weights and the data runs; empty where a table has nothing that models answer."""
    models: str = ""
    """The models file that the commands name, as YAML; empty where they name none."""
    values: tuple[PublishedValue, ...] = ()
    keys: tuple[str, ...] = ()
    """What the rows are about: keys of ``about``. The others are those of columns."""
    notes: tuple[str, ...] = ()
    """What is known to be wrong with the printed numbers, and what could not be run."""


@dataclass(frozen=True, slots=True)
class Reproduced(PublishedValue):
    """A published number with ours beside it, both in the unit that is printed, percent or fractions."""

    published: float = math.nan
    """NaN for a word, and where it is not at hand."""
    ours: Estimate | None = None
    """``None`` where the runs do not have it; of a word, the number that it follows from, in fractions."""
    word: str = ""
    """Ours, of a word."""
    agreement: str = ""
    """``AGREES``, ``COMPATIBLE``, ``DIFFERS`` or ``DECLARED``; empty without an interval of ours, or with nothing to compare."""
    limit: float = math.nan
    """The largest half-width of our interval that tests the number; NaN for a word, and where there is nothing to compare."""
    reason: str = ""
    """Why there is none of ours."""

    @property
    def difference(self) -> Estimate | None:
        """Ours minus what is published, which is taken as exact: the interval is that of ours."""
        if self.ours is None or math.isnan(self.published):
            return None
        ends = (self.ours.low - self.published, self.ours.high - self.published)
        return Estimate(self.ours.value - self.published, self.ours.n, *ends, self.ours.confidence)

    @property
    def half_width(self) -> float:
        """Half of the width of our interval; NaN for a word, and where there is none."""
        return math.nan if self.ours is None or self.word else (self.ours.high - self.ours.low) / 2


@dataclass(frozen=True, slots=True)
class ReproducedTable(PublishedTable):
    """One table, with ours beside each number."""

    values: tuple[Reproduced, ...] = ()
    scale: int = 1
    """How many times our unit the printed one is: 100 where fractions are printed in percent."""


@dataclass(frozen=True, slots=True)
class Reproduction:
    """Tables of a paper beside what runs measured."""

    paper: str
    title: str
    tables: tuple[ReproducedTable, ...]
    runs: tuple[str, ...] = ()
    """Where the runs are; empty where only the published numbers are shown."""
    notes: tuple[str, ...] = ()
    """What holds for every table, and what the runs have that the paper does not."""
    confidence: float = 0.90
    """Two-sided level of the intervals."""
