"""The papers' analyses over all cells of a run, computed from its records.

A cell counts if all its questions were asked and no inference failed. Other cells are listed as missing with a reason, and never
counted as zero.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.cell import CLEAN_NAME, NO_IMAGE_NAME
from pytest_vlmrobust.core.record import Record
from pytest_vlmrobust.core.words import quantity
from pytest_vlmrobust.evaluation.run.results import CHAIN_BINS
from pytest_vlmrobust.metrics.severity import ALL
from pytest_vlmrobust.metrics.table import FIVE_NUMBERS

from .standings import CATEGORY_DROPS, CHAIN_LENGTHS, EFFECTS, MOST_HARMFUL, TIERS

LINEAR_TREND, PATCH_CHANGE, GROUP_GAPS = "linear_trend", "patch_change", "group_gaps"
ATTRIBUTES, POSITION_GAPS = "attributes", "position_gaps"
EARLY = "stopped early"
_EXPERIMENTS = {"ladder", "patches", "attempts", "preprocessing"}
"""Families whose settings do not measure the cost of a perturbation."""


@dataclass(frozen=True, slots=True)
class Analysis:
    """One row of an analysis: numbers of a paper over many cells of a model on a dataset."""

    name: str
    """The name of the analysis; the constants are above."""
    model: str
    """The model by its short name; empty for all models together."""
    dataset: str
    """The dataset by its short name."""
    part: str
    """The level, setting, category, grids, group or outcome of the row, or ``all``."""
    values: dict[str, float] = field(default_factory=dict)
    """Name to number; ``null`` if undefined, as without any complete cell."""
    cells: int = 0
    """Complete cells behind the numbers, without baselines; for ``group_gaps``, ``attributes`` and ``position_gaps`` the
    questions."""
    missing: dict[str, str] = field(default_factory=dict)
    """Settings of missing cells, with the reason: the test stopped early, calls failed, or the model was not called."""


class _Cells(NamedTuple):
    """The records of the cells of one model on one dataset that count, and why the others do not."""

    complete: dict[str, Record]
    missing: dict[str, str]

    def only(self, settings: Iterable[str]) -> _Cells:
        chosen = set(settings)
        complete = {name: record for name, record in self.complete.items() if name in chosen}
        return _Cells(complete, {name: reason for name, reason in self.missing.items() if name in chosen})


def analyses(records: Iterable[Record]) -> tuple[Analysis, ...]:
    """Returns the analyses of a run, by model and dataset, in the order of their first finished tests."""
    records, by_sweep = tuple(records), dict[tuple[str, str], list[Record]]()
    for record in records:
        if record.test == "cell" and not record.task:
            by_sweep.setdefault((record.model, record.dataset), []).append(record)
    rows: list[Analysis] = []
    for compute in (_tiers, _effects, _most_harmful, _category_drops, _linear_trends, _patch_changes):
        for (model, dataset), cells in by_sweep.items():
            rows += compute(model, dataset, cells)
        if compute is _linear_trends:
            rows += _pooled_trends(by_sweep)
    of_people = (
        *_group_gaps(records),
        *_in_parts(ATTRIBUTES, "identity_accuracy", records),
        *_in_parts(POSITION_GAPS, "split_position_gap", records),
    )
    return (*rows, *of_people, *_chain_lengths(records))


def _split(records: Iterable[Record], metric: str) -> _Cells:
    """Returns the complete cells that have a metric, and the reasons why others do not count."""
    cells = _Cells({}, {})
    for record in records:
        if reason := _gap(record, metric):
            cells.missing[record.setting] = reason
        else:
            cells.complete[record.setting] = record
    return cells


def _gap(record: Record, metric: str) -> str:
    """Returns why a cell does not count, or an empty string."""
    if why := _incomplete(record):
        return why
    measure = record.measure_of(metric)
    if measure is None or math.isnan(measure.value):
        return (measure.reason if measure else record.reason) or f"{metric} is unknown"
    low, high = metrics.get(metric).bounds
    return "" if low <= measure.value <= high else f"{metric} is {measure.value}, expected {low:g} to {high:g}"


def _incomplete(record: Record) -> str:
    """Returns why a cell lacks answers, or an empty string."""
    if record.not_asked:
        return f"not asked: {record.not_asked}"
    if record.n_samples:
        return f"{EARLY}: {record.n_requested} of {record.n_samples} answers"
    return f"{record.n_errors} of {quantity(record.n_requested, 'inference')} failed" if record.n_errors else ""


def _value(record: Record, metric: str) -> float:
    measure = record.measure_of(metric)
    return math.nan if measure is None else measure.value


def _perturbed(records: Iterable[Record]) -> list[Record]:
    """Returns the cells of settings that perturb an image for its own sake."""
    return [
        record
        for record in records
        if record.setting not in (CLEAN_NAME, NO_IMAGE_NAME) and not _EXPERIMENTS.intersection(record.family.split("+"))
    ]


def _tiers(model: str, dataset: str, records: Sequence[Record]) -> Iterable[Analysis]:
    """Yields the shares of settings by tier, for each level and for all (VLM-RobustBench tables 18 and 19)."""
    perturbed = _perturbed(records)
    cells = _split(perturbed, "accuracy_drop")
    for level, settings in metrics.by_level({record.setting: record.level for record in perturbed}).items():
        part = cells.only(settings)
        shares = metrics.tier_shares([_value(record, "accuracy_drop") for record in part.complete.values()])
        yield Analysis(TIERS, model, dataset, level, shares._asdict(), len(part.complete), part.missing)


def _effects(model: str, dataset: str, records: Sequence[Record]) -> Iterable[Analysis]:
    """Yields mean drop, RCE and flips of each level and of all settings (VLM-RobustBench tables 20 to 23)."""
    perturbed = _perturbed(records)
    cells, costs = _split(perturbed, "accuracy_drop"), _costs(records)
    for level, settings in metrics.by_level({record.setting: record.level for record in perturbed}).items():
        part = cells.only(settings)
        values = metrics.mean_effects([costs(record) for record in part.complete.values()])
        yield Analysis(EFFECTS, model, dataset, level, values, len(part.complete), part.missing)


def _most_harmful(model: str, dataset: str, records: Sequence[Record]) -> Iterable[Analysis]:
    """Yields the cost of each setting, largest drop of each level first (VLM-RobustBench tables 5, 7, 13, 21, 24 and 25)."""
    perturbed = _perturbed(records)
    cells, costs = _split(perturbed, "accuracy_drop"), _costs(records)
    levels = metrics.by_level({record.setting: record.level for record in perturbed})
    for settings in [settings for level, settings in levels.items() if level != ALL]:
        part = cells.only(settings)
        for record in sorted(part.complete.values(), key=lambda record: -_value(record, "accuracy_drop")):
            yield Analysis(MOST_HARMFUL, model, dataset, record.setting, metrics.mean_effects([costs(record)]), 1)
        for setting, reason in part.missing.items():
            yield Analysis(MOST_HARMFUL, model, dataset, setting, metrics.mean_effects([]), 0, {setting: reason})


def _costs(records: Sequence[Record]) -> Callable[[Record], dict[str, float]]:
    """Returns a function from a cell to the costs that ``mean_effects`` averages."""
    clean = _split([record for record in records if record.setting == CLEAN_NAME], "accuracy").complete
    accuracy = _value(clean[CLEAN_NAME], "accuracy") if clean else math.nan
    return lambda record: {**{name: _value(record, name) for name in metrics.EFFECTS}, "clean_accuracy": accuracy}


def _category_drops(model: str, dataset: str, records: Sequence[Record]) -> Iterable[Analysis]:
    """Yields the mean drop of each category of questions, the largest first (VLM-RobustBench appendix A.2)."""
    clean = _split([record for record in records if record.setting == CLEAN_NAME], "accuracy")
    cells = _split(_perturbed(records), "accuracy")
    names = {name for record in (*clean.complete.values(), *cells.complete.values()) for name in record.categories}
    if len(names) < 2 or not cells.complete:
        return
    missing = {**clean.missing, **cells.missing}
    if not clean.complete:
        missing.setdefault(CLEAN_NAME, "no record")
    before = clean.complete[CLEAN_NAME].categories if clean.complete else dict.fromkeys(sorted(names), math.nan)
    drops = metrics.category_sensitivity(before, {name: record.categories for name, record in cells.complete.items()})
    for category, drop in drops.items():
        yield Analysis(CATEGORY_DROPS, model, dataset, category, {"mean_drop": drop}, len(cells.complete), missing)


_RUNG = "resolution"
_Points = dict[str, list[tuple[float, float]]]
"""Category, or ``all``, to pairs of a long edge in pixels and an accuracy."""


def _linear_trends(model: str, dataset: str, records: Sequence[Record]) -> Iterable[Analysis]:
    """Yields the regression line of each category of questions over the resolutions (Res-Bench figure 3)."""
    cells = _rungs(records)
    for part, points in _points(cells).items():
        yield Analysis(LINEAR_TREND, model, dataset, part, _line(points), len(points), cells.missing)


def _pooled_trends(by_sweep: Mapping[tuple[str, str], Sequence[Record]]) -> Iterable[Analysis]:
    """Yields the regression lines through the points of all models, as in the paper, if there are several models."""
    pooled: dict[str, dict[str, _Cells]] = {}
    for (model, dataset), records in by_sweep.items():
        if (cells := _rungs(records)).complete:
            pooled.setdefault(dataset, {})[model] = cells
    for dataset, by_model in pooled.items():
        every: _Points = {}
        for cells in by_model.values():
            for part, points in _points(cells).items():
                every.setdefault(part, []).extend(points)
        missing = {f"{setting} of {model}": why for model, cells in by_model.items() for setting, why in cells.missing.items()}
        for part, points in every.items() if len(by_model) > 1 else ():
            yield Analysis(LINEAR_TREND, "", dataset, part, _line(points), len(points), missing)


def _rungs(records: Iterable[Record]) -> _Cells:
    return _split(
        [record for record in records if record.setting.partition(":")[0] == _RUNG and _is_size(record.level)], "accuracy"
    )


def _is_size(level: str) -> bool:
    """Whether a level is a number of pixels or patches; an edited record may hold any text."""
    return level.isdecimal() and len(level) < 7 and int(level) > 0


def _points(cells: _Cells) -> _Points:
    points: _Points = {}
    for record in sorted(cells.complete.values(), key=lambda record: int(record.level)):
        named = {name: value for name, value in record.categories.items() if 0.0 <= value <= 1.0}
        named = named if len(record.categories) > 1 else {}
        for part, accuracy in {**named, ALL: _value(record, "accuracy")}.items():
            points.setdefault(part, []).append((float(record.level), accuracy))
    return points


def _line(points: Sequence[tuple[float, float]]) -> dict[str, float]:
    edges, accuracies = [edge for edge, _ in points], [accuracy for _, accuracy in points]
    line = metrics.linear_trend(edges, accuracies)
    doubling = metrics.resolution_slope(edges, accuracies)
    return {"slope_per_pixel": line.slope, "intercept": line.intercept, "slope_per_doubling": doubling}


def _patch_changes(model: str, dataset: str, records: Sequence[Record]) -> Iterable[Analysis]:
    """Yields PCRI of the coarsest and the finest grid, and its relative change (PCRI figure 7)."""
    grids = {record.setting: int(record.level) for record in records if record.family == "patches" and _is_size(record.level)}
    cells = _split([record for record in records if record.setting in grids], "pcri")
    if len(grids) < 2:
        return
    coarse, fine = (end(grids, key=grids.__getitem__) for end in (min, max))
    ends = [_value(cells.complete[name], "pcri") if name in cells.complete else math.nan for name in (coarse, fine)]
    values = {"pcri_coarse": ends[0], "pcri_fine": ends[1], "relative_change": metrics.relative_index_change(*ends)}
    yield Analysis(PATCH_CHANGE, model, dataset, f"{grids[coarse]} to {grids[fine]}", values, len(cells.complete), cells.missing)


_GAP = "split_group_gap"


def _group_gaps(records: Iterable[Record]) -> Iterable[Analysis]:
    """Yields the gap between people in each grouping, the group means and, for two groups, the signed gap (section 3.3).

    With several groupings, the intervals hold jointly at 90 %.
    """
    for record in records:
        gaps = [measure for measure in record.measures if measure.metric == _GAP]
        for measure in [measure for measure in gaps if measure.category] or gaps:
            known = not _unknown(record) and math.isfinite(measure.value)
            grouping = measure.category or "group"
            gap = {"gap": measure.value, "low": measure.low, "high": measure.high}
            values = gap | _in_order(record.parts.get(grouping, {})) if known else {}
            missing = {} if known else {record.split: _unknown(record) or measure.reason or f"{_GAP} is unknown"}
            part = f"{grouping}, {record.split}"
            yield Analysis(GROUP_GAPS, record.model, record.dataset, part, values, measure.n if known else 0, missing)


def _unknown(record: Record) -> str:
    """Returns why a sweep of the Observatory has no parts, or an empty string."""
    return record.not_asked or (f"{EARLY}: {record.n_requested} of {record.n_samples} answers" if record.n_samples else "")


def _in_order(numbers: Mapping[str, float]) -> dict[str, float]:
    """Returns the numbers of a part without its count of samples, in the order of columns."""
    known = ("signed_gap", "mean_overlap", *FIVE_NUMBERS, "accuracy")
    order = [*(name for name in known if name in numbers), *sorted(numbers.keys() - {*known, "samples"})]
    return {name: numbers[name] for name in order}


def _in_parts(name: str, metric: str, records: Iterable[Record]) -> Iterable[Analysis]:
    """Yields the numbers of a sweep by attribute or by group of people (The Perceptual Observatory, figures 5 and 6)."""
    for record in records:
        if (record.test, record.metric) != ("sweep", metric) or not record.task:
            continue
        for part, numbers in sorted(record.parts.items()):
            n = int(numbers.get("samples", 0))
            yield Analysis(name, record.model, record.dataset, f"{part}, {record.split}", _in_order(numbers), n)
        if (why := _unknown(record)) and (name != ATTRIBUTES or "guided" in record.task):
            yield Analysis(name, record.model, record.dataset, record.split, missing={record.split: why})


def _chain_lengths(records: Sequence[Record]) -> Iterable[Analysis]:
    """Yields the distribution of chain-of-thought lengths in words, by outcome (The Perceptual Observatory, figure 7).

    For each reasoning model its cells, clean and perturbed; and if its counterpart without thinking is in the run, what its
    chains change, for each split of ``thinking_gain``.
    """
    by_part: dict[tuple[str, str, str], list[Record]] = {}
    reasons = {(record.model, record.dataset) for record in records if record.chains and record.test == "cell"}
    cells = [record for record in records if record.test == "cell" and (record.model, record.dataset) in reasons]
    for record in cells:
        if record.setting == CLEAN_NAME:
            by_part.setdefault((record.model, record.dataset, CLEAN_NAME), []).append(record)
    for record in _perturbed(cells):
        by_part.setdefault((record.model, record.dataset, "perturbed"), []).append(record)
    for record in records:
        if record.chains and record.test == "sweep":
            by_part.setdefault((record.model, record.dataset, record.split or "perturbed"), []).append(record)
    for (model, dataset, pictures), group in by_part.items():
        missing = {record.setting or record.id: why for record in group if (why := _incomplete(record))}
        counts: dict[str, Counter[str]] = {}
        for record in group:
            for name, count in () if _incomplete(record) else record.chains.items():
                outcome, _, words = name.partition(", ")
                counts.setdefault(outcome, Counter())[words] += int(count)
        for outcome, by_words in counts.items():
            values = {"answers": float(by_words.total())} | {words: float(by_words[words]) for words in CHAIN_BINS}
            part = f"{outcome}, {pictures}"
            yield Analysis(CHAIN_LENGTHS, model, dataset, part, values, len(group) - len(missing), missing)
