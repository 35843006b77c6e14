"""Published: the tables of the five papers, as package data; no model is called and nothing is computed here.

A file in ``tables/`` holds the tables of a paper. The rows of a table are CSV. Columns with a name in ``KEYS`` describe
the subject of a row; any other column is named ``METRIC KEY=VALUE ...`` and holds printed numbers of that metric.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

import yaml

from pytest_vlmrobust.core.errors import UnknownName
from pytest_vlmrobust.core.estimate import LEVEL, Estimate

# The printed tables of a paper, and the number from runs for each printed number.


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
    confidence: float = LEVEL
    """Two-sided level of the intervals."""


KEYS = (
    "dataset",
    "model",
    "pool",
    "setting",
    "level",
    "category",
    "family",
    "split",
    "tier",
    "condition",
    "perturbation",
    "parameter",
)
"""The keys that describe the subject of a number."""
_COUNT = "cells"
"""The column that says of how many cells the counts of a row are."""
_FILES = files("pytest_vlmrobust.evaluation.after") / "tables"


@dataclass(frozen=True, slots=True)
class Paper:
    """One paper: its tables, and the meaning of its names."""

    name: str
    """As commands spell it."""
    title: str
    scale: int
    """100 if fractions are printed in percent, else 1."""
    tables: Mapping[str, PublishedTable]
    notes: tuple[str, ...] = ()
    plain: frozenset[str] = frozenset()
    """Metrics that are printed without ``scale``."""
    settings: str = ""
    """The settings of summaries, by the name of their suite; empty for all settings that a metric reads."""
    sample: str = ""
    """How much of each dataset was asked and how it was drawn, as for ``--vlm-sample``; empty for all."""
    dataset: str = ""
    """The dataset of numbers without one."""
    pool: str = ""
    """The models that a number without a model is averaged over."""
    pools: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Name of a model, dataset or category to its other names."""
    references: Mapping[str, str] = field(default_factory=dict)
    """Dataset to the model whose errors are the unit of its corruption errors."""
    questions: Mapping[str, int] = field(default_factory=dict)
    """Dataset or category to the number of questions behind the published numbers, if known."""
    parameters: Mapping[str, float] = field(default_factory=dict)
    """Model to its number of parameters in billions, if slopes over sizes are printed."""

    def table(self, number: str) -> PublishedTable:
        """Returns the table of a number."""
        if number not in self.tables:
            raise UnknownName("table", number, self.tables, where=self.name)
        return self.tables[number]

    def scale_of(self, metric: str) -> int:
        """Returns the factor from our unit of a metric to the printed unit."""
        return 1 if metric.removesuffix(".macro") in self.plain else self.scale

    def known(self) -> set[str]:
        """Returns the names of models and datasets that numbers are about."""
        names = {
            value.about[key]
            for table in self.tables.values()
            for value in table.values
            for key in ("model", "dataset")
            if key in value.about
        }
        return names.union(*self.pools.values(), {self.dataset} - {""})

    def is_called(self, theirs: str, ours: str) -> bool:
        """Whether our name matches the paper's name; case, punctuation and the suffix of tuned models do not matter."""
        return _plain(ours) in {_plain(name) for name in (theirs, *self.names.get(theirs, ()))}


def _plain(name: str) -> str:
    letters = re.sub("[^a-z0-9]", "", name.lower())
    return letters.removesuffix("instruct").removesuffix("it") or letters


def papers() -> list[str]:
    """Returns the short names of the papers."""
    return sorted(entry.name.removesuffix(".yaml") for entry in _FILES.iterdir() if entry.name.endswith(".yaml"))


def paper(name: str) -> Paper:
    """Returns a paper by its short name."""
    if name not in papers():
        raise UnknownName("paper", name, papers())
    content: dict[str, Any] = yaml.safe_load((_FILES / f"{name}.yaml").read_text(encoding="utf-8"))
    commands = {kind: tuple(lines) for kind, lines in content["commands"].items()}
    return Paper(
        name=name,
        title=content["paper"],
        scale=content["scale"],
        tables={number: _table(name, number, entry, commands, content) for number, entry in content["tables"].items()},
        notes=tuple(content.get("notes", ())),
        plain=frozenset(content.get("plain", ())),
        settings=content.get("settings", ""),
        sample=content.get("sample", ""),
        dataset=content.get("dataset", ""),
        pool=content.get("pool", ""),
        pools={pool: tuple(models) for pool, models in content.get("pools", {}).items()},
        names={term: tuple(others) for term, others in content.get("names", {}).items()},
        references=content.get("references", {}),
        questions=content.get("questions", {}),
        parameters=content.get("parameters", {}),
    )


def _table(
    name: str, number: str, entry: Mapping[str, Any], commands: Mapping[str, tuple[str, ...]], content: Mapping[str, Any]
) -> PublishedTable:
    rows = list(csv.DictReader(entry.get("rows", "").splitlines()))
    commands_of = commands[entry.get("run", "")]
    compared = (f"vlmrobust reproduce {name} {number} --run=.vlmrobust/runs/RUN",) if commands_of else ()
    values = [value for row in rows for value in _values(row, content.get("dataset", ""))]
    return PublishedTable(
        paper=name,
        number=number,
        caption=entry["caption"],
        commands=(*commands_of, *compared),
        values=tuple(values),
        models=content.get("models", {}).get(entry.get("run", ""), ""),
        keys=tuple(key for key in (rows[0] if rows else ()) if key in KEYS),
        notes=tuple(entry.get("notes", ())),
    )


def _values(row: Mapping[str, str], dataset: str) -> Iterable[PublishedValue]:
    shared = {"dataset": dataset} if dataset else {}
    shared |= {key: row[key] for key in KEYS if key in row}
    for column, printed in row.items():
        if column in KEYS or column == _COUNT:
            continue
        metric, *pairs = column.split(" ")
        about = {**shared, **dict(pair.split("=", 1) for pair in pairs)}
        yield PublishedValue(metric, about, printed, int(row.get(_COUNT) or 0))
