"""What every report says alike: which records come first, which number a row shows, and how numbers are spelled."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pytest_vlmrobust.core.ranking import Ranking
from pytest_vlmrobust.core.record import CHECK, Measure, Record
from pytest_vlmrobust.core.repeatability import Repeatability
from pytest_vlmrobust.core.setting import CLEAN_NAME
from pytest_vlmrobust.core.verdict import Decision, Outcome, decide

from .across_models import agreement
from .rerun import Command

SEVERITY = (
    Outcome.FAIL,
    Outcome.ERROR,
    Outcome.INCONCLUSIVE,
    Outcome.NOT_APPLICABLE,
    Outcome.WAIVED,
    Outcome.PASS,
    Outcome.MEASURED,
)
QUIET = (Outcome.PASS, Outcome.MEASURED)
"""Outcomes that need no line of their own when there are many."""


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What is known about a run beside its records."""

    policies: Mapping[str, str] = field(default_factory=dict)
    """Model to the files and the hash of its policy."""
    planned: int = 0
    """Gated tests that the suites hold."""
    selected: int = 0
    """Those of them that were to run."""
    warnings: Sequence[str] = ()
    shortfalls: Sequence[str] = ()
    """What the policy asks of a run and this one lacks, a sentence each: with any, it is not GO."""
    pictures: Path | None = None
    """The folder of thumbnails that examples name; ``None`` where there is none."""
    origins: Mapping[str, object] = field(default_factory=dict)
    """What determined the run as far as it was known when it began; for reports that are made without a manifest."""
    repeatability: Sequence[Repeatability] = ()
    """What was found when some of the answers were asked for again; nothing where none were."""
    command: Command | None = None
    """How pytest was called; ``None`` where nobody knows."""
    kept: str = "results.json"
    """The file that has what is too much for a screen."""

    tests: Sequence[str] = ()
    """Node ids of the tests that were to run; none where nobody knows."""
    ranking: Ranking | None = None
    """The models of the run side by side; ``None`` where there is one model, or nothing to rank by."""

    def lost(self, records: Sequence[Record]) -> list[str]:
        """Returns the node ids of tests that were to run and left no record, of a run that knows its tests."""
        ended = {record.key for record in records}
        return [nodeid for nodeid in self.tests if nodeid not in ended]

    def missing(self, records: Sequence[Record]) -> int:
        """Returns how many tests were to run and left no record."""
        return max(0, self.selected - sum(record.test != CHECK for record in records))

    def decision(self, records: Sequence[Record]) -> Decision:
        """Returns the decision of the run that these are the records of."""
        outcomes = (record.deciding for record in records)
        return decide(outcomes, missing=self.missing(records), shortfalls=len(self.shortfalls))


def selection(records: Sequence[Record], facts: RunFacts) -> list[str]:
    """Returns what limits the evidence: tests not selected, tests that did not end, and what the policy asks for beside."""
    lines = []
    if facts.selected < facts.planned:
        lines.append(f"partial selection: {facts.selected} of {facts.planned} tests; the decision speaks for these only")
    if facts.missing(records):
        lines.append(f"stopped early: {facts.missing(records)} of {facts.selected} selected tests left no verdict")
    return [*lines, *(f"not GO: {shortfall}" for shortfall in facts.shortfalls)]


EXPLAINED = (Outcome.FAIL, Outcome.ERROR, Outcome.INCONCLUSIVE, Outcome.NOT_APPLICABLE)
"""What is never shown without its reason."""


def worst_first(records: Iterable[Record]) -> list[Record]:
    """Returns records by severity of their outcome, then by the size of the drop."""
    return sorted(
        records, key=lambda record: (SEVERITY.index(record.deciding), bool(record.not_asked), -_drop(record), record.id)
    )


def headline(record: Record) -> Measure | None:
    """Returns the measure that a table row shows: the one that decided, else the drop, else the first."""
    deciding = [measure for measure in record.measures if measure.outcome is record.outcome and measure.rule]
    named = {measure.metric: measure for measure in record.measures if not measure.category}
    return next(iter(deciding), None) or named.get("accuracy_drop") or next(iter(record.measures), None)


def row(record: Record) -> tuple[str, str, str, str, str]:
    """Returns metric, value, interval, bound and n of a record's headline; empty where nothing was measured."""
    measure = headline(record)
    if measure is None:
        return "", "", "", "", ""
    interval = "" if math.isnan(measure.low) else f"[{measure.low:.3f}, {measure.high:.3f}]"
    value = "undefined" if math.isnan(measure.value) else f"{measure.value:.3f}"
    metric = f"{measure.metric} ({measure.category})" if measure.category else measure.metric
    return metric, value, interval, measure.threshold, str(measure.n)


def counted(records: Iterable[Record]) -> str:
    """Returns how many records have each outcome, worst first."""
    counts = Counter(record.outcome for record in records)
    return ", ".join(f"{counts[outcome]} {outcome}" for outcome in SEVERITY if counts[outcome])


def noted(records: Iterable[Record], most: int = 8) -> list[str]:
    """Returns the notes of records, a line for each of the first ``most`` and one for the rest, and what holds across models.

    A note that several tests have is said once.
    """
    records = list(records)
    having: dict[str, list[str]] = {}
    for record in sorted(records, key=lambda record: record.setting != CLEAN_NAME):  # what they say explains the others
        for note in record.notes:
            having.setdefault(note, []).append(record.id)
    lines = [f"{ids[0]}{f' and {len(ids) - 1} more' if len(ids) > 1 else ''}: {note}" for note, ids in having.items()]
    more = [f"{len(lines) - most} more notes stand in results.json"] if len(lines) > most else []
    clean = {note for record in records if record.setting == CLEAN_NAME for note in record.notes}
    first = sum(note in clean for note in list(having)[:most])
    return [*lines[:first], *not_asked(records), *lines[first:most], *more, *agreement(records)]


def since_baseline(records: Iterable[Record]) -> list[str]:
    """Returns how many samples changed since the run that this one was compared with; nothing where there was none."""
    cells = [record for record in records if any(measure.metric == "baseline_drop" for measure in record.measures)]
    if not cells:
        return []
    counts = [
        (sum(len(ids) for ids in found), sum(map(bool, found)))
        for found in zip(*((c.broken, c.fixed) for c in cells), strict=True)
    ]
    (broken, breaking), (fixed, fixing) = counts
    said = f"{broken} answers newly broken in {breaking} cells, {fixed} newly fixed in {fixing}, over {len(cells)} cells"
    return [f"since the baseline: {said}"]


def not_asked(records: Iterable[Record]) -> list[str]:
    """Returns, for each task of a model that was not asked about further, how many tests that concerns, and why."""
    found = Counter((record.model, record.dataset, record.not_asked) for record in records if record.not_asked)
    return [f"{model}-{dataset}: {count} tests do not apply: {why}" for (model, dataset, why), count in found.items()]


def because(decision: Decision, records: Iterable[Record], facts: RunFacts | None = None) -> str:
    """Returns the sentence behind a decision."""
    counts = Counter(record.outcome for record in records)
    unmet = facts is not None and facts.shortfalls
    open_points = "GO asks for more than this run has" if unmet else "something is undecided or no rule applied"
    reasons = {
        Decision.GO: f"{counts[Outcome.PASS]} verdicts passed, {counts[Outcome.WAIVED]} are waived, none failed",
        Decision.NO_GO: f"{counts[Outcome.FAIL]} verdicts broke a bound",
        Decision.INCONCLUSIVE: f"nothing was broken, and {open_points}",
        Decision.INCOMPLETE: (
            f"{counts[Outcome.ERROR]} tests could not measure or failed beside the gate, or some did not end: "
            "not the model's fault"
        ),
    }
    return reasons[decision]


def _drop(record: Record) -> float:
    drops = [measure.value for measure in record.measures if measure.metric == "accuracy_drop" and not measure.category]
    return drops[0] if drops and math.isfinite(drops[0]) else -math.inf
