"""The JSON Schema of thresholds files, built from the values that the reader reads."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pytest_vlmrobust.core.sample import META
from pytest_vlmrobust.files.values import list_of, mapping

from . import load
from .load import MetricFacts
from .rules import FRACTION

FILE = "thresholds.schema.json"
"""Its file name, next to the shipped thresholds files."""

_PART = {"anyOf": [{"type": "number", "minimum": -1, "maximum": 1}, {"type": "string"}]}
"""A quantity of a fraction: beyond 1 it needs its unit, ``5pp``."""


def thresholds_schema(metrics: Mapping[str, MetricFacts]) -> dict[str, Any]:
    """Returns the schema in draft 7, which editors support best.

    It accepts everything that the reader accepts, and refuses what the reader refuses unless that depends on other values, such
    as a bound on the wrong side of its metric or out of its range. Known metrics are offered with their units; others are
    accepted, because users can add metrics.
    """
    values, units = load.Reader(metrics).values(), _units(metrics)
    bounds = [{"required": [key]} for key in load.BOUND_KEYS]
    properties = {
        "version": {"const": load.VERSION},
        **{key: value.schema for key, value in load.CHOICES.items()},
        "defaults": mapping(load.TREATMENT),
        "budgets": mapping(load.BUDGETS),
        "coverage": mapping(load.COVERAGE),
        "rules": list_of({"$ref": "#/definitions/rule"}),
        "waivers": list_of({"$ref": "#/definitions/waiver"}),
    }
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Thresholds of pytest-vlmrobust",
        "type": "object",
        "additionalProperties": False,
        "required": ["version"],
        "properties": properties,
        "definitions": {
            "scope": mapping(load.SCOPE, minProperties=1, patternProperties={f"^{re.escape(META)}.": load.GLOBS.schema}),
            "rule": mapping({key: values[key] for key in load.RULE_KEYS}, load.RULE_REQUIRED, oneOf=bounds, **units),
            "waiver": mapping({key: values[key] for key in load.WAIVER_KEYS}, load.WAIVER_REQUIRED, **units),
        },
    }


def _units(metrics: Mapping[str, MetricFacts]) -> dict[str, Any]:
    """Returns the condition that plain numbers for fractions lie between -1 and 1."""
    fractions = sorted(name for name, facts in metrics.items() if facts.unit == FRACTION and not facts.unmeasured)
    bounds = {**dict.fromkeys(("max", "min", "cap"), _PART), "within": list_of(_PART)}
    return {"if": {"properties": {"metric": {"enum": fractions}}}, "then": {"properties": bounds}}
