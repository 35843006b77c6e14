"""What a gated test says in JUnit: names and plain decimal strings."""

from __future__ import annotations

import math

import pytest

from pytest_vlmrobust.core.record import Record


def properties(record: Record) -> list[tuple[str, str]]:
    """Returns the properties of one test case; numbers that are undefined are left out, never written as NaN."""
    found = {
        "vlm.cell": record.id,
        "vlm.model": record.model,
        "vlm.dataset": record.dataset,
        "vlm.setting": record.setting,
        "vlm.family": record.family,
        "vlm.level": record.level,
        "vlm.task": record.task,
        "vlm.split": record.split,
        "vlm.verdict": str(record.outcome),
        "vlm.n": str(record.n),
        "vlm.n_requested": str(record.n_requested),
        "vlm.policy_sha256": record.policy_sha256,
    }
    if record.n_requested:
        found["vlm.unparsed_rate"] = decimal(record.n_unparsed / record.n_requested)
        found["vlm.error_rate"] = decimal(record.n_errors / record.n_requested)
    for measure in record.measures:
        name = f"vlm.metric.{measure.metric}" + (f".{measure.category}" if measure.category else "")
        numbers = {name: measure.value, f"{name}.low": measure.low, f"{name}.high": measure.high}
        found.update({key: decimal(value) for key, value in numbers.items() if math.isfinite(value)})
        if measure.threshold:
            found[f"{name}.threshold"] = measure.threshold
        if measure.waiver:
            found["vlm.waiver"] = measure.waiver
    return [(name, value) for name, value in found.items() if value]


def decimal(value: float) -> str:
    """Returns a plain decimal without exponent, six digits after the point at most.

    >>> decimal(0.1234567), decimal(3.0), decimal(0.00001)
    ('0.123457', '3', '0.00001')
    """
    return f"{value:.6f}".rstrip("0").rstrip(".")


def add_suite_properties(config: pytest.Config, facts: dict[str, str]) -> None:
    """Writes properties on the suite element; pytest's own fixture for it is lost under xdist (pytest issue 7767)."""
    for plugin in config.pluginmanager.get_plugins():
        add = getattr(plugin, "add_global_property", None)
        if callable(add):
            for name, value in facts.items():
                add(name, value)
