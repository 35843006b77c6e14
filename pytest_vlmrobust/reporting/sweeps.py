"""Sweeps: one model on one dataset, as all reports show it: its key numbers, its card, and what is drawn of it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from pytest_vlmrobust.core.cell import CLEAN_NAME, LEVELS, NO_IMAGE_NAME
from pytest_vlmrobust.core.decision import WORST_FIRST, Outcome
from pytest_vlmrobust.core.estimate import ROUNDING
from pytest_vlmrobust.core.record import (
    BUDGET_METRICS,
    BY_VALUE_MARK,
    FAMILY,
    LARGEST_DROP,
    PARTIAL,
    PARTIAL_MARK,
    Measure,
    Record,
)
from pytest_vlmrobust.core.words import interval, number

LADDER, PATCHES = "ladder", "patches"
_OTHER_SUITES = (PATCHES, LADDER, "directional")
"""Families of settings whose drops are no loss under a corruption."""
_DROP = "accuracy_drop"
_BASELINES = {CLEAN_NAME: "accuracy on the images as they are", NO_IMAGE_NAME: "accuracy without images"}
_OTHER = "no level"
"""The column of settings without one of the three levels."""
_OF_SPLIT = {CLEAN_NAME: "", "observatory_id": "augmented", "observatory_ood": "illusions"}


def outcome_counts(records: Iterable[Record]) -> list[tuple[Outcome, int]]:
    """Returns the number of verdicts per outcome, worst first, without zeros; a budget that is let pass has none."""
    counts = Counter(record.outcome for record in records if record.is_gated or record.outcome is not Outcome.MEASURED)
    return [(outcome, counts[outcome]) for outcome in WORST_FIRST if counts[outcome]]


class Line(NamedTuple):
    """A line of a card or a chart: a measure and its test."""

    name: str
    measure: Measure
    record: Record

    @property
    def part(self) -> str:
        """The mark of a test that stopped early; empty for others."""
        return PARTIAL_MARK if self.record.n_samples else ""

    @property
    def by_value(self) -> bool:
        """Whether the verdict is by value."""
        return self.measure.judge == "value"


@dataclass(frozen=True, slots=True)
class Sweep:
    """Everything about a model on a dataset."""

    number: int
    model: str
    dataset: str
    task: str = ""
    cells: list[Record] = field(default_factory=list)
    summaries: list[Record] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Its heading."""
        return f"{self.model} on {self.dataset}"

    @property
    def anchor(self) -> str:
        """The id of its part of the page."""
        return f"sweep-{self.number}"

    @property
    def records(self) -> list[Record]:
        """Its cells and its summary metrics."""
        return [*self.cells, *self.summaries]

    @property
    def outcomes(self) -> list[tuple[Outcome, int]]:
        """How many of its tests have each verdict, worst first."""
        return outcome_counts(self.records)

    @property
    def not_asked(self) -> Counter[str]:
        """Why tests were not asked about, with their number."""
        return Counter(record.not_asked for record in self.records if record.not_asked)

    @property
    def asked_summaries(self) -> list[Record]:
        """The summary metrics that were measured or judged."""
        return [record for record in self.summaries if record.deciding is not Outcome.MEASURED or not record.not_asked]

    @property
    def card(self) -> tuple[list[CardLine], list[CardLine]]:
        """The lines of its card: baselines, broken budgets and judged metrics; and summary metrics without a rule."""
        lines = [line for record in self.asked_summaries for line in _summary_lines(record)]
        judged = [line for line in lines if line.outcome is not Outcome.MEASURED]
        return [*self.baselines, *self._budgets, *judged], [line for line in lines if line not in judged]

    @property
    def baselines(self) -> list[CardLine]:
        """The accuracy with clean images and without images, if measured."""
        cells = {record.setting: record for record in reversed(self.cells)}
        named = [(words, cells[setting]) for setting, words in _BASELINES.items() if setting in cells]
        return [CardLine(words, record.measure_of("accuracy"), record) for words, record in named]

    @property
    def _budgets(self) -> list[CardLine]:
        """The first test that broke each budget; later tests count the same answers again."""
        broken = [(record, measure) for record in self.records for measure in record.measures if measure.metric in BUDGET_METRICS]
        first = {measure.metric: (record, measure) for record, measure in reversed(broken)}
        return [CardLine(f"{name}, {test.setting or test.metric}", budget, test) for name, (test, budget) in first.items()]

    # What is drawn of it.

    @property
    def overview(self) -> Overview | None:
        """Its drops by family and level; ``None`` without perturbed cells other than rungs and patches."""
        by_family: dict[str, list[Record]] = {}
        for record in self.cells:
            if _is_mapped(record):
                by_family.setdefault(record.family, []).append(record)
        families = [_family(name, cells) for name, cells in by_family.items()]
        columns = [column for column in (*LEVELS, _OTHER) if any(family.spots(column) for family in families)]
        return Overview(columns, families) if families else None

    @property
    def drops(self) -> list[Line]:
        """The settings that may be ranked with others, by their drop, the largest first."""
        lines = [line for line in self._lines(_DROP) if _is_ranked(line.record)]
        return sorted(lines, key=lambda line: (-line.measure.value, line.record.id))

    @property
    def flips(self) -> list[tuple[Line, Measure]]:
        """How many answers each setting turned wrong, most first, and how many right."""
        helpful = {line.record.key: line.measure for line in self._lines("helpful_flip_rate")}
        harmful = [line for line in self._lines("harmful_flip_rate") if _is_ranked(line.record) and line.record.key in helpful]
        ordered = sorted(harmful, key=lambda line: (-line.measure.value, line.record.id))
        return [(line, helpful[line.record.key]) for line in ordered]

    @property
    def rungs(self) -> list[Line]:
        """The accuracy at each rung of the ladder of resolutions, smallest images first."""
        lines = [line for line in self._lines("accuracy") if line.record.family == LADDER and line.record.level.isdecimal()]
        return sorted(lines, key=lambda line: int(line.record.level))

    @property
    def merged_sizes(self) -> set[str]:
        """The sizes at which several rungs reached the model alike."""
        received = (line.record.received for line in self.rungs)
        counts = Counter(size for size in received if size and " more" not in size)
        return {size for size, count in counts.items() if count > 1}

    @property
    def positions(self) -> list[Positions]:
        """The share of right answers from each grid position, for each complete grid of patches."""
        maps = []
        for record in self.cells:
            side = math.isqrt(len(record.positions))
            if side and side * side == len(record.positions):
                maps.append(Positions(record, [record.positions[row * side : (row + 1) * side] for row in range(side)]))
        return maps

    def _lines(self, metric: str) -> list[Line]:
        """Returns the cells with a finite value of a metric, named by their setting."""
        lines = (Line(record.setting, measure, record) for record in self.cells if (measure := record.measure_of(metric)))
        return [line for line in lines if math.isfinite(line.measure.value)]

    def measured(self, metrics: Collection[str]) -> list[Line]:
        """Returns the measures of summary metrics over the whole dataset, named by their split."""
        return [
            Line(record.split, measure, record)
            for record in self.summaries
            for measure in record.measures
            if measure.metric in metrics and not measure.category
        ]


class CardLine(NamedTuple):
    """A line of a card; its measure is ``None`` if the test has none."""

    name: str
    measure: Measure | None
    record: Record

    @property
    def outcome(self) -> Outcome:
        """The verdict of the measure, else of the test."""
        return self.measure.outcome if self.measure else self.record.outcome


def sweeps(records: Iterable[Record]) -> list[Sweep]:
    """Returns the sweeps of a run in the order in which their first test ended."""
    by_key: dict[tuple[str, str], Sweep] = {}
    for record in records:
        if not record.is_gated or record.test == FAMILY:
            continue
        key = record.model, record.dataset
        sweep = by_key.setdefault(key, Sweep(len(by_key) + 1, *key, record.task))
        (sweep.cells if record.test == "cell" else sweep.summaries).append(record)
    return list(by_key.values())


def _summary_lines(record: Record) -> Sequence[CardLine]:
    """Returns the lines of a summary metric about the whole dataset, at least one."""
    whole = [measure for measure in record.measures if not measure.category and measure.metric not in BUDGET_METRICS]
    where = f", {record.split}" if record.split else ""
    lines = [CardLine(f"{measure.metric}{where}", measure, record) for measure in whole]
    return lines or [CardLine(f"{record.metric}{where}", record.headline, record)]


def _is_mapped(record: Record) -> bool:
    """Whether a cell belongs in the map: a measured perturbation that is neither a rung nor a grid of patches."""
    measured = bool(record.family) and not record.not_asked
    return measured and record.family not in (LADDER, PATCHES) and record.measure_of(_DROP) is not None


def _is_ranked(record: Record) -> bool:
    """Whether a setting may be ranked with others. Settings that first shrink images are a separate experiment."""
    return _is_mapped(record) and LADDER not in record.family.split("+")


# The map of drops by family and level, and the grid of patches.


@dataclass(frozen=True, slots=True)
class FamilyMap:
    """The perturbations of a family against levels, with the mean drop of each level."""

    name: str
    columns: list[str]
    rows: dict[str, list[Line | None]]
    """The settings of each perturbation by column; ``None`` for a level that did not run."""

    def spots(self, column: str) -> list[Line]:
        """Returns the settings in a level's column, or those without such a level for ``no level``."""
        chosen = [at for at, name in enumerate(self.columns) if (name if name in LEVELS else _OTHER) == column]
        return [spot for spots in self.rows.values() for at in chosen if (spot := spots[at]) is not None]

    def mean(self, column: str) -> float:
        """Returns the mean drop of a column; NaN if unknown."""
        drops = [drop for spot in self.spots(column) if math.isfinite(drop := spot.measure.value)]
        return sum(drops) / len(drops) if drops else math.nan

    def worst(self, column: str) -> Line | None:
        """Returns the setting of a column that loses most."""
        pairs = [(-math.inf if math.isnan(spot.measure.value) else spot.measure.value, spot) for spot in self.spots(column)]
        return max(pairs, key=lambda pair: pair[0], default=(0.0, None))[1]


@dataclass(frozen=True, slots=True)
class Overview:
    """Families against levels, a line per family."""

    columns: list[str]
    families: list[FamilyMap]

    @property
    def has_partial(self) -> bool:
        """Whether a test of it stopped early."""
        return any(spot.record.n_samples for spot in self._spots())

    @property
    def has_by_value(self) -> bool:
        """Whether any of its verdicts is by value."""
        return any(spot.by_value for spot in self._spots())

    def _spots(self) -> Iterator[Line]:
        return (spot for family in self.families for spots in family.rows.values() for spot in spots if spot is not None)

    def outcomes(self, family: FamilyMap, column: str) -> list[tuple[Outcome, int]]:
        """Returns how many settings of a family and level have each verdict, worst first."""
        return outcome_counts(spot.record for spot in family.spots(column))


@dataclass(frozen=True, slots=True)
class Positions:
    """The share of right answers from each position of a grid, row by row."""

    record: Record
    rows: list[tuple[float, ...]]


def _family(name: str, cells: Sequence[Record]) -> FamilyMap:
    by_name: dict[str, dict[str, Line]] = {}
    for record in cells:
        bare, column = _place(record)
        if drop := record.measure_of(_DROP):
            by_name.setdefault(bare, {})[column] = Line(record.setting, drop, record)
    columns = _sort_columns({column for spots in by_name.values() for column in spots})
    return FamilyMap(name, columns, {bare: [spots.get(column) for column in columns] for bare, spots in by_name.items()})


def _place(record: Record) -> tuple[str, str]:
    """Returns row and column of a setting; for a composed setting, the last step's parameter is the column."""
    bare, colon, level = record.setting.rpartition(":")
    if colon and "+" not in level and record.level in ("", level):
        return bare, level
    return record.setting, _OTHER


def _sort_columns(columns: Collection[str]) -> list[str]:
    order = {level: index for index, level in enumerate(LEVELS)}
    numeric = {column: int(column) for column in columns if column.isdecimal()}
    return sorted(columns, key=lambda column: (order.get(column, len(order)), column == _OTHER, numeric.get(column, 0), column))


# Key numbers, for the end page and the list of runs.


@dataclass(frozen=True, slots=True)
class Number:
    """A key number: its name and text."""

    name: str
    text: str
    interval: str = ""
    """Its interval, in the unit of ``text``; empty if none."""
    aside: str = ""
    """Its addition in brackets: the setting of the worst drop."""
    by_value: bool = False
    """Whether its verdict is by value, shown by a mark."""

    @property
    def marked(self) -> str:
        """Its text, with a mark if its verdict is by value; :func:`legend` explains marks."""
        return f"{self.text}{BY_VALUE_MARK}" if self.by_value else self.text

    def shown(self, *, intervals: bool) -> str:
        """Returns it for display, with its interval if requested."""
        parts = [self.name, self.marked, self.interval if intervals else "", f"({self.aside})" if self.aside else ""]
        return " ".join(filter(None, parts))


@dataclass(slots=True)
class Headline:
    """The key measurements of a model on a dataset or a collection of identities."""

    model: str
    dataset: str
    records: list[Record] = field(default_factory=list)

    @property
    def numbers(self) -> list[Number]:
        """Its key numbers, in the order of the suites; unmeasured ones are left out."""
        resolutions = self._summary("ACE", "absolute_continuous_error", "")
        return [*self._corruptions(), *self._patches(), *resolutions, *self._tasks()]

    def _corruptions(self) -> Iterable[Number]:
        cells = {record.setting: record for record in self.records if record.test == "cell" and not record.task}
        for setting, name in ((CLEAN_NAME, "clean"), (NO_IMAGE_NAME, "blind")):
            if setting in cells:
                yield from _number(name, cells[setting], "accuracy", "%")
            elif setting == CLEAN_NAME:
                yield from self._summary(name, "clean_accuracy", "%")
        yield from self._summary("mean drop", "mean_drop", "pp")
        yield from self._worst(cells.values())
        yield from self._summary("mRCE", "mean_relative_corruption_error", "")
        severe = self._summary("severe", "severe_failure_rate", "%")
        # few samples overstate a share of cells
        yield from (entry for entry in severe if not entry.text.startswith(PARTIAL_MARK))

    def _worst(self, cells: Iterable[Record]) -> Iterable[Number]:
        """Yields the worst drop if it has a verdict or uses all answers: the largest drop of 133 small samples is too high."""
        judged = [record for record in self.records if record.metric == "worst_case_drop" and not record.task]
        if not any(record.n_samples and record.outcome is Outcome.MEASURED for record in judged):
            yield from list(self._summary("worst", "worst_case_drop", "pp", cells)) or _worst_of(cells)

    def _patches(self) -> Iterable[Number]:
        grids = [record for record in self.records if record.family == PATCHES and record.level]
        numbers = [(record.level, entry) for record in grids for entry in _number("", record, "pcri", "")]
        for place, (level, entry) in enumerate(numbers):
            yield replace(entry, name=f"{'' if place else 'PCRI '}{level}x{level}")

    def _tasks(self) -> Iterable[Number]:
        """Yields the score of each task of the Observatory on originals, augmentations and illusions."""
        scores = [record for record in self.records if record.metric == "identity_accuracy"]
        unasked = list(dict.fromkeys(record.task for record in scores if record.not_asked))
        for task in dict.fromkeys(record.task for record in scores):
            by_split = {record.split: record for record in scores if record.task == task and task not in unasked}
            for place, split in enumerate(sorted(by_split, key=lambda split: [*_OF_SPLIT, split].index(split))):
                name = _OF_SPLIT.get(split, split)
                yield from _number(f"{'' if place else f'{task} '}{name}".strip(), by_split[split], "identity_accuracy", "%")
        if unasked:
            yield Number("cannot do:", f"{', '.join(unasked)} (skipped)")

    def _summary(self, name: str, metric: str, unit: str, cells: Iterable[Record] = ()) -> Iterable[Number]:
        """Yields a summary metric over all settings, with the setting of its value if in ``cells``."""
        for record in [record for record in self.records if record.metric == metric and not record.task][:1]:
            yield from _number(name, record, metric, unit, cells)


def headlines(records: Iterable[Record]) -> list[Headline]:
    """Returns the headlines of a run with numbers, in the order of their first results."""
    by_key: dict[tuple[str, str], Headline] = {}
    for record in records:
        if not record.is_gated or record.test == FAMILY or not record.model:
            continue
        key = record.model, record.dataset.removesuffix(f".{record.task}")
        by_key.setdefault(key, Headline(*key)).records.append(record)
    return [headline for headline in by_key.values() if headline.numbers]


def legend(numbers: Iterable[Number]) -> str:
    """Returns the legend of the marks of these numbers; empty without marks."""
    shown = list(numbers)
    marks = {
        f"{PARTIAL_MARK} {PARTIAL}": any(entry.text.startswith(PARTIAL_MARK) for entry in shown),
        f"{BY_VALUE_MARK} no confidence interval used": any(entry.by_value for entry in shown),
    }
    return "  ".join(line for line, needed in marks.items() if needed)


def _number(name: str, record: Record, metric: str, unit: str, cells: Iterable[Record] = ()) -> Iterable[Number]:
    measure = record.measure_of(metric)
    if measure is None:
        return
    part = PARTIAL_MARK if record.n_samples else ""
    if not math.isfinite(measure.value):
        yield Number(name, f"{part}undefined")
        return
    unit = measure.unit or unit
    digits = None if unit else 2
    ends = "" if measure.judge == "value" else interval(*measure.interval, unit, digits)
    noted = next((note.rpartition(" at ")[2] for note in record.notes if note.startswith(LARGEST_DROP)), "")
    aside = noted or _setting_of(measure.value, cells)
    yield Number(name, f"{part}{number(measure.value, unit, digits)}", ends, aside, measure.judge == "value")


def _worst_of(cells: Iterable[Record]) -> Iterable[Number]:
    """Yields the largest drop of several cells, if no test measured the summary metric."""
    drops = [
        (measure.value, cell)
        for cell in cells
        if cell.setting not in (CLEAN_NAME, NO_IMAGE_NAME) and cell.family not in _OTHER_SUITES
        if (measure := cell.measure_of(_DROP)) is not None and math.isfinite(measure.value)
    ]
    if len(drops) > 1:
        _, cell = max(drops, key=lambda drop: drop[0])
        for entry in _number("worst", cell, _DROP, "pp"):
            yield replace(entry, aside=cell.setting)


def _setting_of(drop: float, cells: Iterable[Record]) -> str:
    """Returns the setting whose cell has this drop; empty if none, for example if a summary uses other answers."""
    drops = ((cell.setting, cell.measure_of(_DROP)) for cell in cells)
    return next((setting for setting, measure in drops if measure is not None and abs(measure.value - drop) < ROUNDING), "")
