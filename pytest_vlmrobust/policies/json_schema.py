"""The JSON Schema of thresholds files, built from the keys and choices of the reader."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pytest_vlmrobust.core.cell import LEVELS
from pytest_vlmrobust.core.sample import META
from pytest_vlmrobust.files.document import ID_PATTERN

from .budgets import BUDGET_KEYS, COVERAGE_KEYS, BlindModels, Extent
from .load import (
    BOUND_KEYS,
    RULE_KEYS,
    RULE_REQUIRED,
    SCOPE_KEYS,
    TOP_KEYS,
    TREATMENT_CHOICES,
    TREATMENT_KEYS,
    VERSION,
    WAIVER_KEYS,
    WAIVER_REQUIRED,
    MetricFacts,
)
from .rules import FRACTION, NO_LEVEL, Mode, Purpose

FILE = "thresholds.schema.json"
"""Its file name, next to the shipped thresholds files."""

_TEXT = {"type": "string", "minLength": 1}
_ID = {"type": "string", "pattern": f"^{ID_PATTERN}$"}
_WRITTEN = {"type": "string", "pattern": r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?\s*(pp|%)?\s*$"}
_QUANTITY = {"anyOf": [{"type": "number"}, _WRITTEN], "description": "5pp, 5% and 0.05 are the same number"}
_SHARE = {"anyOf": [{"type": "number", "minimum": 0, "maximum": 1}, _WRITTEN], "description": "a share of samples, such as 5%"}
_PART = {"anyOf": [{"type": "number", "minimum": -1, "maximum": 1}, {"type": "string"}]}
"""A quantity of a fraction: beyond 1 it needs its unit, ``5pp``."""
_RISK = {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 0.5, "description": "one-sided, such as 0.05"}


def thresholds_schema(metrics: Mapping[str, MetricFacts]) -> dict[str, Any]:
    """Returns the schema in draft 7, which editors support best.

    It accepts everything that the reader accepts, and refuses what the reader refuses unless that depends on other values, such
    as a bound on the wrong side of its metric or out of its range. Known metrics are offered with their units; others are
    accepted, because users can add metrics.
    """
    measured = {name: facts for name, facts in metrics.items() if not facts.unmeasured}
    values, units = _values(measured), _units(measured)
    definitions = {
        "scope": _mapping(SCOPE_KEYS, values, minProperties=1, patternProperties={f"^{re.escape(META)}.": _globs()}),
        "rule": {**_mapping(RULE_KEYS, values, RULE_REQUIRED), "oneOf": [{"required": [key]} for key in BOUND_KEYS], **units},
        "waiver": {**_mapping(WAIVER_KEYS, values, WAIVER_REQUIRED), **units},
    }
    top = {
        "version": {"const": VERSION},
        "mode": _choice(Mode),
        "purpose": _choice(Purpose),
        "defaults": _mapping(TREATMENT_KEYS, values),
        "budgets": _mapping(BUDGET_KEYS, values),
        "coverage": _mapping(COVERAGE_KEYS, values),
        "rules": {"type": "array", "items": {"$ref": "#/definitions/rule"}},
        "waivers": {"type": "array", "items": {"$ref": "#/definitions/waiver"}},
    }
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Thresholds of pytest-vlmrobust",
        **_mapping(TOP_KEYS, top, ("version",)),
        "definitions": definitions,
    }


def _units(metrics: Mapping[str, MetricFacts]) -> dict[str, Any]:
    """Returns the condition that plain numbers for fractions lie between -1 and 1."""
    fractions = sorted(name for name, facts in metrics.items() if facts.unit == FRACTION)
    bounds = {**dict.fromkeys(("max", "min", "cap"), _PART), "within": {"type": "array", "items": _PART}}
    return {"if": {"properties": {"metric": {"enum": fractions}}}, "then": {"properties": bounds}}


def _values(metrics: Iterable[str]) -> dict[str, Any]:
    """Returns the schema of each key below the top level."""
    return {
        "id": _ID,
        "metric": {"anyOf": [{"enum": sorted(metrics)}, _TEXT], "description": "vlmrobust explain lists them"},
        "where": {"$ref": "#/definitions/scope"},
        "unless": {"$ref": "#/definitions/scope"},
        "max": _QUANTITY,
        "min": _QUANTITY,
        "within": {"type": "array", "items": _QUANTITY, "minItems": 2, "maxItems": 2, "description": "[low, high]"},
        "cap": _QUANTITY,
        **{key: _choice(kind) for key, kind in TREATMENT_CHOICES.items()},
        **dict.fromkeys(("alpha_pass", "alpha_fail"), _RISK),
        **dict.fromkeys(("reason", "source", "owner", "ticket"), _TEXT),
        "expires": {"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}$", "description": "the last day, such as 2027-06-30"},
        **dict.fromkeys(BUDGET_KEYS, _SHARE),
        "tests": _choice(Extent),
        "rules": _choice(Extent),
        "blind_models": _choice(BlindModels),
        "samples": {
            "anyOf": [
                _choice(Extent),
                {"type": "integer", "minimum": 1},
                {"type": "string", "pattern": r"^\s*(\d+\.?\d*|\.\d+)\s*%\s*$"},
            ],
            "description": "of each dataset: whole, partial, 20% or 500",
        },
        "suites": {"type": "array", "items": _ID, "description": "test files without test_ and .py, such as corruptions"},
        **dict.fromkeys(("model", "dataset", "setting", "family", "category"), _globs()),
        "level": _globs([*LEVELS, NO_LEVEL]),
    }


def _choice(kind: Iterable[str]) -> dict[str, Any]:
    return {"enum": [str(option) for option in kind]}


def _globs(offered: Sequence[str] = ()) -> dict[str, Any]:
    glob: dict[str, Any] = {"anyOf": [{"enum": list(offered)}, _TEXT]} if offered else _TEXT
    return {"anyOf": [glob, {"type": "array", "items": glob, "minItems": 1}], "description": "a glob, or a list of globs"}


def _mapping(keys: Iterable[str], values: Mapping[str, Any], required: Sequence[str] = (), **more: Any) -> dict[str, Any]:
    needed = {"required": list(required)} if required else {}
    return {"type": "object", "additionalProperties": False, **needed, "properties": {key: values[key] for key in keys}, **more}
