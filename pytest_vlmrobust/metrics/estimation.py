"""estimate: a registered metric applied to a table of scores, with everything known about the value."""

from __future__ import annotations

import math

from pytest_vlmrobust.core.cell import CLEAN_NAME
from pytest_vlmrobust.core.errors import UsageError
from pytest_vlmrobust.core.estimate import Estimate

from .completeness import arrays_read, complete_samples, labelled_samples, what_is_missing
from .record import Metric, Needs
from .registry import REGISTRY
from .scores import SettingLike, parsed
from .statistics.quantiles import one_sided
from .table import ScoreTable


def estimate(name: str | Metric, table: ScoreTable, setting: SettingLike | None = None, confidence: float = 0.90) -> Estimate:
    """Computes a registered metric from a table of scores, with its interval, sample size, validity and reason.

    Args:
        name: a registered metric, or the record of one that need not be.
        table: scores of N samples.
        setting: the setting of the cell for a metric of scope ``"cell"``; None for one of scope ``"sweep"``.
        confidence: two-sided level of the interval in (0, 1): each bound of 0.90 is a one-sided 95 % bound.

    Returns:
        An :class:`Estimate`. ``value`` is NaN, and ``reason`` says why, when something it needs is missing or it is undefined;
        ``valid`` is False when the metric does not apply to such scores; ``at`` gives the interval at any other level. ``reason``
        also says over how many settings the value
        was taken whenever these are not all of the published ones.

    Raises:
        UnknownName: no metric has that name.
        UsageError: a setting for a sweep metric, none for a cell metric, one that the table lacks, or a metric whose function
            does not return a built-in float.
        ValueError: ``confidence`` outside (0, 1).
    """
    record = name if isinstance(name, Metric) else REGISTRY.get(name)
    one_sided(confidence)
    key = _checked_setting(record, setting)
    read = arrays_read(record, table, key)
    if missing := what_is_missing(record, table, key, read):
        return Estimate(math.nan, complete_samples(read, table.samples), reason=missing)
    if record.coverage and not record.coverage.count(table.by_setting):
        reason = f"none of the {len(table.by_setting)} settings counts: needs {record.validity}"
        return Estimate(math.nan, table.samples, valid=False, reason=reason)
    refusal = record.gate(table, key) if record.gate else ""
    value = _value(record, table, key)
    undefined = "" if refusal or not math.isnan(value) else f"undefined: needs {record.validity or 'other scores'}"
    note = record.note(table) if record.note else ""

    def at(level: float) -> tuple[float, float]:
        return _bounds(record, table, key, level) if math.isfinite(value) else (math.nan, math.nan)

    low, high = at(confidence)
    return Estimate(
        value,
        labelled_samples(record, table),
        low,
        high,
        math.nan if math.isnan(low) else confidence,
        valid=not refusal,
        reason="; ".join(part for part in (refusal, undefined, note, _covered(record, table)) if part),
        counts_settings=record.counts_settings,
        at=at,
    )


def _checked_setting(record: Metric, setting: SettingLike | None) -> str | None:
    if record.scope == "sweep" and setting is not None:
        raise UsageError(f"{record.name} is a metric of a whole sweep, not of the setting {str(setting)!r}: leave setting out")
    if record.scope == "cell" and setting is None:
        raise UsageError(f"{record.name} is a metric of one setting: pass setting=, for example 'glass_blur:low'")
    return None if setting is None else str(parsed(setting))


def _value(record: Metric, table: ScoreTable, setting: str | None) -> float:
    value: object = record.function(*(table.argument(need, setting) for need in record.needs))
    if type(value) is not float:
        raise UsageError(
            f"metric {record.name!r} returned {value!r} of type {type(value).__name__}: expected a built-in float. "
            "Wrap what it returns in float()"
        )
    return value


def _bounds(record: Metric, table: ScoreTable, setting: str | None, confidence: float) -> tuple[float, float]:
    """Returns the interval, cut to the possible values of the metric; NaN when it has none."""
    if record.interval is None:
        return math.nan, math.nan
    low, high = record.interval(table, setting, confidence)
    smallest, largest = record.bounds
    return min(max(low, smallest), largest), max(min(high, largest), smallest)


def _counted(table: ScoreTable) -> str:
    """Returns over how many settings a value was taken of which no full number is published."""
    if set(table.by_setting) == {CLEAN_NAME}:
        return "on original pictures"
    return f"over {len(table.by_setting)} setting{'s' if len(table.by_setting) > 1 else ''}"


def _covered(record: Metric, table: ScoreTable) -> str:
    """Returns over how much of the published quantity the value was taken, or an empty string when over exactly that."""
    if Needs.PERTURBED_BY_SETTING not in record.needs:
        return ""
    if record.coverage is None:
        return _counted(table)
    count = record.coverage.count(table.by_setting)
    full, noun = record.coverage.full, record.coverage.noun
    if count == full:
        return ""
    return f"over {count} of {full} {noun}" if count < full else f"over {count} {noun}, more than the {full} published ones"
