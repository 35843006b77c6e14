"""Thresholds files to Policy: the schema, checked line by line."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Protocol, TypeVar

from pytest_vlmrobust.core.errors import PolicyError, UnknownName, did_you_mean
from pytest_vlmrobust.core.setting import LEVELS

from .bound import Bound, parse_quantity
from .budgets import Budgets
from .document import Entry, parse_document, read_bytes
from .policy import Policy, PolicyFile
from .rules import NO_LEVEL, Judge, OnInconclusive, OnNotApplicable, Rule, Scope, Tier, Waiver

VERSION = 1

_TOP_KEYS = ("version", "defaults", "budgets", "rules", "waivers")
_TREATMENT_KEYS = ("judge", "tier", "on_inconclusive", "on_not_applicable")
_BOUND_KEYS = ("max", "min", "within")
_RULE_KEYS = ("id", "metric", "where", "unless", *_BOUND_KEYS, *_TREATMENT_KEYS, "reason", "source")
_WAIVER_KEYS = ("id", "metric", "where", "cap", "owner", "reason", "ticket", "expires")
_BUDGET_KEYS = ("max_error_rate", "max_unparsed_rate")
_SCOPE_KEYS = tuple(part.name for part in dataclasses.fields(Scope))
_CELL_SCOPE_KEYS = ("setting", "family", "level")
_ADVISED = {"lower": "max", "higher": "min"}


class MetricFacts(Protocol):
    """What a thresholds file is checked against; any record of a metric with these attributes will do."""

    @property
    def unit(self) -> str:
        """``"fraction"``, or another unit."""
        ...

    @property
    def better(self) -> str:
        """``"lower"``, ``"higher"`` or ``"none"``."""
        ...

    @property
    def scope(self) -> str:
        """``"cell"`` or ``"sweep"``."""
        ...


@dataclass(frozen=True, slots=True)
class _Unspecified:
    """Facts of a metric about which only the name is known: nothing is refused on their account."""

    unit: str = ""
    better: str = ""
    scope: str = ""


@dataclass(slots=True)
class _Draft:
    """What the files read until now amount to; rules and waivers by id."""

    rules: dict[str, Rule] = field(default_factory=dict)
    waivers: dict[str, Waiver] = field(default_factory=dict)
    treatment: dict[str, Judge | Tier | OnInconclusive | OnNotApplicable] = field(default_factory=dict)
    own_treatment: dict[str, dict[str, Judge | Tier | OnInconclusive | OnNotApplicable]] = field(default_factory=dict)
    budgets: dict[str, float] = field(default_factory=dict)
    budget_sources: dict[str, str] = field(default_factory=dict)
