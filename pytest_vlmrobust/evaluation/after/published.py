"""Published: the tables of the five papers, as package data; nothing is asked and nothing is computed here.

A file below ``tables/`` holds the tables of a paper. The rows of a table are CSV. Columns that are called as in ``KEYS`` say
what a row is about; any other column is called ``METRIC KEY=VALUE ...`` and holds printed numbers of that metric.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

import yaml

from pytest_vlmrobust.core.errors import UnknownName

from .publication import PublishedTable, PublishedValue

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
"""What a number may be about."""
_COUNT = "cells"
"""The column that says of how many cells the counts of a row are."""
_FILES = files("pytest_vlmrobust.evaluation.after") / "tables"


@dataclass(frozen=True, slots=True)
class Paper:
    """One paper: its tables, and what its names mean."""

    name: str
    """As commands spell it."""
    title: str
    scale: int
    """100 where fractions are printed in percent, else 1."""
    tables: Mapping[str, PublishedTable]
    notes: tuple[str, ...] = ()
    plain: frozenset[str] = frozenset()
    """Metrics that are printed as they are, whatever ``scale`` is."""
    settings: str = ""
    """The settings that summaries are taken over, by the name of their suite; empty for whatever a metric reads."""
    sample: str = ""
    """How much of each dataset was asked and how it was drawn, as after ``--vlm-sample``; empty where all was."""
    dataset: str = ""
    """The dataset of all numbers that name none."""
    pool: str = ""
    """The models that a number without a model is taken over."""
    pools: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Name of a model, dataset or category to other names of the same."""
    references: Mapping[str, str] = field(default_factory=dict)
    """Dataset to the model whose errors are the unit of its corruption errors."""
    questions: Mapping[str, int] = field(default_factory=dict)
    """Dataset or category to how many questions the published numbers rest on, where that is known."""
    parameters: Mapping[str, float] = field(default_factory=dict)
    """Model to its number of parameters in billions, where slopes over sizes are printed."""

    def table(self, number: str) -> PublishedTable:
        """Returns the table of a number."""
        if number not in self.tables:
            raise UnknownName("table", number, self.tables, where=self.name)
        return self.tables[number]

    def scale_of(self, metric: str) -> int:
        """Returns how many times our unit the printed one of a metric is."""
        return 1 if metric.removesuffix(".macro") in self.plain else self.scale

    def known(self) -> set[str]:
        """Returns the names of models and datasets that numbers are about."""
        own = {
            value.about[key]
            for table in self.tables.values()
            for value in table.values
            for key in ("model", "dataset")
            if key in value.about
        }
        return own.union(*self.pools.values(), {self.dataset} - {""})

    def is_called(self, theirs: str, ours: str) -> bool:
        """Whether a name of ours is one of a name of theirs: case, punctuation and the suffix of tuned models do not matter."""
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
        names={own: tuple(others) for own, others in content.get("names", {}).items()},
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
