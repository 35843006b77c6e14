"""estimate: applies a registered metric to a table of scores, and returns the value with its interval and validity."""

from __future__ import annotations

import inspect
import math
import re
import textwrap
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust.core.cell import CLEAN_NAME
from pytest_vlmrobust.core.errors import UsageError
from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.core.words import first_few

from .families import FamilyProperty
from .record import REGISTRY, Facts, Metric, names
from .statistics.clusters import one_sided
from .table import BY_LETTER, LABELS, Needs, Scores, ScoreTable, SettingLike, parse_setting

_NAMES = {
    Needs.CLEAN: "clean",
    Needs.NO_IMAGE: "no_image",
    Needs.CLEAN_CONFIDENCES: "clean confidence",
    Needs.REFERENCE_CLEAN: "reference clean",
    Needs.BASELINE_CLEAN: "baseline clean",
    Needs.CHANCES: "chances",
    Needs.CHANCE_LEVELS: "chance_levels",
}
"""Names in messages for needs that are one array of a table."""
_UNMEASURED = [need for need in Needs if need.unmeasured]


def applicable(table: ScoreTable, setting: SettingLike | None = None, suite: str | None = None) -> list[str]:
    """Returns the metrics of one setting, or of the whole sweep, for which a table meets the optional needs.

    Needs are optional if not all datasets or runs have them: see :attr:`Needs.optional`. A gap between positions or groups of
    people is left out unless at least two of them are known. :func:`estimate` reports anything else that is missing.

    Returns names of metrics, in the order of :func:`names`.

    >>> table = ScoreTable([1, 1], {"fog:low": [1, 0]}, positions=["[0,0]", "[0,1]"])
    >>> [name for name in applicable(table, "fog:low", "observatory") if name.endswith("gap")]
    ['position_gap']
    """
    key = None if setting is None else str(parse_setting(setting))
    named = names("sweep" if key is None else "cell", suite)
    return [name for name in named if all(_offers(table, need, key) for need in REGISTRY.get(name).needs if need.optional)]


def labelled_samples(record: Metric, table: ScoreTable) -> int:
    """Returns how many samples have all labels (position, group of people) that a metric compares."""
    labels = [table.argument(need, None) for need in record.needs if need in LABELS]
    return sum(all(row) for row in zip(*labels, strict=True)) if labels else table.samples


def arrays_read(record: Metric, table: ScoreTable, setting: str | None) -> dict[str, Scores]:
    """Returns the arrays that a metric reads, by their names in messages; absent ones are left out."""
    chosen = record.coverage.select(table.by_setting) if record.coverage else tuple(table.by_setting)
    read: dict[str, Scores] = {}
    for need in record.needs:
        read |= _arrays(need, table, setting, chosen)
    return read


def complete_samples(read: dict[str, Scores], samples: int) -> int:
    """Returns how many of ``samples`` have all scores that are read."""
    complete = np.ones(samples, dtype=np.bool_)
    for array in read.values():
        complete &= ~_missing(array)
    return int(complete.sum())


def what_is_missing(record: Metric, table: ScoreTable, setting: str | None, read: dict[str, Scores]) -> str:
    """Returns why the value cannot be computed, or an empty string if nothing is missing."""
    if not table.samples:
        return "no samples"
    absent = next((need.absent for need in record.needs if need.absent and not _has(table, need, setting)), None)
    if absent:
        return f"there are no {absent}"
    for need in (need for need in _UNMEASURED if need in record.needs):
        if lacking := [name for name in table.by_setting if name not in table.argument(need, None)]:
            return f"{need.unmeasured} {first_few(lacking)}"
    gaps = {name: int(_missing(array).sum()) for name, array in read.items()}
    if not any(gaps.values()):
        return ""
    count = table.samples - complete_samples(read, table.samples)
    where = first_few([f"{missing} in {name}" for name, missing in gaps.items() if missing])
    return f"scores of {count} of {table.samples} samples are missing: {where}"


def _arrays(need: Needs, table: ScoreTable, setting: str | None, chosen: tuple[str, ...]) -> dict[str, Scores]:
    if need.of_one_setting:
        values = table.argument(need, setting)
        return {} if values is None else {_name_of(need, str(setting)): values}
    if need.unmeasured:
        others = table.argument(need, setting) or {}
        return {f"{need.prefix} {name}": others[name] for name in chosen if name in others}
    if need in BY_LETTER:
        return {f"{need.value} {letter}": values for letter, values in (table.argument(need, setting) or {}).items()}
    if need in _NAMES:
        single = getattr(table, need.value)
        return {} if single is None else {_NAMES[need]: single}
    rungs = [name for _, name in table.resolutions()] if need in {Needs.ACCURACIES, Needs.RUNGS} else ()
    return {name: table.by_setting[name] for name in (chosen if need is Needs.PERTURBED_BY_SETTING else rungs)}


def _name_of(need: Needs, setting: str) -> str:
    return f"{need.prefix or f'{need.absent} of'} {setting}" if need.absent else setting


def _has(table: ScoreTable, need: Needs, setting: str | None) -> bool:
    argument = table.argument(need, setting)
    return argument is not None and len(argument) > 0


def _offers(table: ScoreTable, need: Needs, setting: str | None) -> bool:
    """Whether a table meets an optional need; labels need at least two different names."""
    argument = table.argument(need, setting)
    return argument is not None and (need not in LABELS or len(set(argument) - {""}) > 1)


def _missing(array: Scores) -> NDArray[np.bool_]:
    """Returns which samples lack a score, shape (N,), for scores of shape (N,) or (N, k)."""
    missing: NDArray[np.bool_] = np.logical_or.reduce(np.isnan(array), axis=tuple(range(1, array.ndim)))
    return missing


# The estimate.


def estimate(
    name: str | Metric, table: ScoreTable, setting: SettingLike | None = None, confidence: float | None = 0.90
) -> Estimate:
    """Computes a registered metric from a table of scores, with its interval, sample size, validity and reason.

    Args:
        name: a registered metric, or a record, which need not be registered.
        table: scores of N samples.
        setting: the setting of the cell for a metric of scope ``"cell"``; None for one of scope ``"sweep"``.
        confidence: two-sided level of the interval in (0, 1): each bound of 0.90 is a one-sided 95 % bound. ``None`` defers the
            interval until ``at`` is called.

    Returns an :class:`Estimate`. ``value`` is NaN, with a ``reason``, if something it needs is missing or it is
    undefined; ``valid`` is False if the metric does not apply to the scores; ``at`` returns the interval at any other level.
    ``reason`` also states the number of settings unless it equals the published number.

    Raises:
        UnknownName: no metric has that name.
        UsageError: a setting for a sweep metric, no setting for a cell metric, a setting that the table lacks, or a metric whose
            function does not return a built-in float.
        ValueError: ``confidence`` outside (0, 1).
    """
    record = name if isinstance(name, Metric) else REGISTRY.get(name)
    if confidence is not None:
        one_sided(confidence)
    key = _checked_setting(record, setting)
    read = arrays_read(record, table, key)
    if missing := what_is_missing(record, table, key, read):
        return Estimate(math.nan, complete_samples(read, table.samples), reason=missing)
    if record.coverage and not record.coverage.count(table.by_setting):
        reason = f"none of the {len(table.by_setting)} settings counts: needs {record.validity}"
        return Estimate.invalid(reason, table.samples)
    refusal = record.gate(table, key) if record.gate else ""
    value = _value(record, table, key)
    undefined = "" if refusal or not math.isnan(value) else f"undefined: needs {record.validity or 'other scores'}"
    note = record.note(table) if record.note else ""

    @cache  # several rules and the report use the same level
    def at(level: float) -> tuple[float, float]:
        return _bounds(record, table, key, level) if math.isfinite(value) else (math.nan, math.nan)

    low, high = (math.nan, math.nan) if confidence is None else at(confidence)
    return Estimate(
        value,
        labelled_samples(record, table),
        low,
        high,
        math.nan if confidence is None or math.isnan(low) else confidence,
        valid=not refusal,
        reason="; ".join(part for part in (refusal, undefined, note, _coverage_note(record, table)) if part),
        groups=0 if table.clusters.independent else table.clusters.count,
        counts_settings=record.counts_settings,
        at=at,
    )


def _checked_setting(record: Metric, setting: SettingLike | None) -> str | None:
    if record.scope == "sweep" and setting is not None:
        raise UsageError(f"{record.name} is a metric of a whole sweep, not of the setting {str(setting)!r}: leave setting out")
    if record.scope == "cell" and setting is None:
        raise UsageError(f"{record.name} is a metric of one setting: pass setting=, for example 'glass_blur:low'")
    return None if setting is None else str(parse_setting(setting))


def _value(record: Metric, table: ScoreTable, setting: str | None) -> float:
    value: object = record.function(*(table.argument(need, setting) for need in record.needs))
    if type(value) is not float:
        raise UsageError(
            f"metric {record.name!r} returned {value!r} of type {type(value).__name__}: expected a built-in float. "
            "Wrap what it returns in float()"
        )
    return value


def _bounds(record: Metric, table: ScoreTable, setting: str | None, confidence: float) -> tuple[float, float]:
    """Returns the interval, clipped to the possible values of the metric; NaN if it has none."""
    if record.interval is None:
        return math.nan, math.nan
    low, high = record.interval(table, setting, confidence)
    smallest, largest = record.bounds
    return min(max(low, smallest), largest), max(min(high, largest), smallest)


def _settings_note(table: ScoreTable) -> str:
    """Returns the number of settings behind a value, for metrics without a published number of settings."""
    if set(table.by_setting) == {CLEAN_NAME}:
        return "on original images"
    return f"over {len(table.by_setting)} setting{'s' if len(table.by_setting) > 1 else ''}"


def _coverage_note(record: Metric, table: ScoreTable) -> str:
    """Returns a note on the published settings that the value covers, or an empty string if it covers exactly those."""
    if Needs.PERTURBED_BY_SETTING not in record.needs:
        return ""
    if record.coverage is None:
        return _settings_note(table)
    count = record.coverage.count(table.by_setting)
    full, noun = record.coverage.full, record.coverage.noun
    if count == full:
        return ""
    return f"over {count} of {full} {noun}" if count < full else f"over {count} {noun}, more than the {full} published ones"


# Text descriptions of metrics, for the documentation and the terminal.


_SECTIONS = ("Args:", "Returns:", "Raises:", "Source:", ">>>")
_FORMULA = "Formula:"
_UNITS = {
    "fraction": "fraction, 0.05 being 5 percentage points",
    "ratio": "ratio, 1.0 being 100 %",
    "correlation": "correlation",
}
_OF = {"cell": "one setting", "sweep": "all settings of a model on a dataset"}
_MOVES = {1: "rises with", -1: "falls with", 0: "does not depend on"}


Described: TypeAlias = Metric | FamilyProperty | Facts
"""The records of quantities that can be described."""


@dataclass(frozen=True, slots=True)
class Description:
    """A metric in words: one sentence, its formula, caveats, and facts with their titles."""

    name: str
    summary: str
    formula: str
    """Empty if the docstring of the function has no paragraph ``Formula: ...``."""
    caveats: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]

    def text(self, width: int = 100) -> str:
        """Returns the description as plain text, no line longer than ``width`` unless a word is."""
        lines = [self.name, "", *textwrap.wrap(self.summary, width), ""]
        if self.formula:
            lines += [*textwrap.wrap(self.formula, width, initial_indent="    ", subsequent_indent="    "), ""]
        for caveat in self.caveats:
            lines += [*textwrap.wrap(caveat, width), ""]
        column = max(len(title) for title, _ in self.facts) + 2
        for title, fact in self.facts:
            lines += textwrap.wrap(fact, width, initial_indent=f"{title:<{column}}", subsequent_indent=" " * column)
        return "\n".join(lines)


def describe(record: Described) -> Description:
    """Returns the description of a quantity from its record, and from the docstrings of its functions, if any.

    >>> from pytest_vlmrobust import metrics
    >>> describe(metrics.get("accuracy_drop")).formula
    'mean(clean - perturbed)'
    """
    paragraphs = _paragraphs(_text_about(record))
    sections = ("Formula", *(section.rstrip(":") for section in _SECTIONS))
    formula = next((part.removeprefix(_FORMULA).strip() for part in paragraphs if part.startswith(_FORMULA)), "")
    caveats = [part for part in paragraphs[1:] if not part.startswith(sections)]
    summary = paragraphs[0] if paragraphs else ""
    facts = _facts(record) if isinstance(record, Metric) else _opening_facts(record) | _common_facts(record)
    titled = tuple((title, text) for title, text in facts.items() if text)
    return Description(record.name, summary, formula.replace("`", ""), tuple(caveats), titled)


def plain(text: str) -> str:
    """Returns docstring text as one line, with names in backticks instead of roles.

    >>> plain("see :func:`pcri` and ``x``")
    'see `pcri` and `x`'
    """
    without_roles = re.sub(r":\w+:`~?([^`]+)`", r"``\1``", text)
    return " ".join(without_roles.replace("``", "`").split())


def number(value: float) -> str:
    """Returns a number as text: no exponent, infinity as a sign."""
    return "undefined" if math.isnan(value) else f"{value:g}".replace("inf", "∞")


def _text_about(record: Described) -> str | None:
    return record.about if isinstance(record, Facts) else record.function.__doc__


def _opening_facts(record: FamilyProperty | Facts) -> dict[str, str]:
    if isinstance(record, Facts):
        return {"of": _OF[record.scope], "suite": record.suite or "every", "reads": record.reads}
    return {
        "of": "a family of models of different sizes on a dataset",
        "suite": record.suite,
        "reads": "the number of parameters of each model, and the scores of each on the same samples",
    }


def _common_facts(record: Described) -> dict[str, str]:
    low, high = (number(end) for end in record.bounds)
    return {
        "value": _section(record, "Returns:"),
        "unit": _UNITS.get(record.unit, record.unit),
        "bounds": f"{low} … {high}",
        "better": "neither" if record.better == "none" else record.better,
        "published": plain(record.reference),
        "defined when": plain(record.validity),
        "when not to use": plain(record.unsuited),
        "interval": _interval(record),
    }


def _facts(record: Metric) -> dict[str, str]:
    return {
        "of": _OF[record.scope],
        "suite": record.suite or "every",
        "reads": ", ".join(f"`{need.value}`" for need in record.needs),
        **_common_facts(record),
        "taken over": f"{record.coverage.full} {record.coverage.noun}, as published" if record.coverage else "",
        "moves": _moves(record),
        "perfect model": _declared_value(record.perfect),
        "nothing changes": _declared_value(record.unchanged),
        "no visual gain": _declared_value(record.blind),
    }


def _interval(record: Described) -> str:
    if not record.interval:
        return "none: a rule judges its value (`judge: point`), which holds for the samples at hand only"
    if isinstance(record.interval, str):
        return record.interval
    sentences = (part for part in _paragraphs(record.interval.__doc__) if not part.startswith(_SECTIONS))
    return " ".join(sentences) or "its own"


def _moves(record: Metric) -> str:
    by_direction: dict[str, list[Needs]] = {}
    for need, direction in sorted(record.directions.items(), key=lambda item: record.needs.index(item[0])):
        by_direction.setdefault(_MOVES[direction], []).append(need)
    parts = [f"{moves} {_list_needs(needs)}" for moves, needs in by_direction.items()]
    by_reason: dict[str, list[Needs]] = {}
    for need, why in record.not_monotone.items():
        by_reason.setdefault(why, []).append(need)
    parts += [f"moves either way with {_list_needs(needs)} ({why})" for why, needs in by_reason.items()]
    return "; ".join(parts)


def _list_needs(needs: list[Needs]) -> str:
    return " and ".join(f"`{need.value}`" for need in needs)


def _declared_value(value: float | None) -> str:
    return "" if value is None else number(value)


def _paragraphs(doc: str | None) -> list[str]:
    return [plain(part) for part in inspect.cleandoc(doc or "").split("\n\n") if part.strip()]


def _section(record: Described, header: str) -> str:
    sections = [part for part in _paragraphs(_text_about(record)) if part.startswith(header)]
    return sections[0].removeprefix(header).strip() if sections else ""
