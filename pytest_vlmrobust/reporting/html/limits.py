"""Limits: what a reader has to know before the decision is believed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pytest_vlmrobust.core.comparison import Repeatability
from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.record import FAMILY, Record
from pytest_vlmrobust.core.words import quantity
from pytest_vlmrobust.reporting.comparison import noise_by_metric, noise_lines, why_unmeasured
from pytest_vlmrobust.reporting.wording import RunFacts, not_asked, note_lines, open_rule_lines, selection, warnings_of

from .words import number, share

_MOST = 12


@dataclass(frozen=True, slots=True)
class Limitation:
    """One thing that limits the evidence: a sentence, whether it is grave, and the tests or sentences behind it."""

    text: str
    grave: bool = False
    details: tuple[str, ...] = ()
    more: int = 0
    """Details beyond those given."""


def limits(records: Sequence[Record], facts: RunFacts) -> list[Limitation]:
    """Returns what limits the evidence of a run, grave limits first; never an empty list."""
    sentences = [Limitation(line, grave=True) for line in selection(records, facts)]
    others = [f"{record.id}: {record.reason}" for record in records if record.failed_outside]
    sentences += _count_limit(
        others,
        "non-gate test failed",
        "non-gate tests failed",
        ": the run is not GO, whatever the gate found",
        grave=True,
    )
    sentences += _count_limit(
        open_rule_lines(records, undecided=True),
        "rule is not shown to hold",
        "rules are not shown to hold",
        ": the samples do not decide, and the policy lets that pass",
        grave=True,
    )
    sentences += _answer_limits(records)
    sentences += _not_asked_limits(records)
    sentences += _not_applicable_limits(records)
    sentences += _count_limit(
        open_rule_lines(records, undecided=False),
        "rule did not apply everywhere",
        "rules did not apply everywhere",
        ", and the policy lets that pass",
    )
    sentences += [Limitation(warning) for warning in facts.warnings]
    sentences += _warning_limits(records)
    sentences += _repeat_limits(facts)
    sentences += _ungated_limits(records)
    sentences += _sample_only_limits(records)
    notes = [note for note in note_lines(records, most=_MOST) if note not in not_asked(records)]
    return sentences + _count_limit(notes, "note", "notes", " on what settings could not do, or on what numbers mean")


def _count_limit(details: Sequence[str], singular: str, plural: str, rest: str, *, grave: bool = False) -> list[Limitation]:
    return _detailed_limit(details, f"{quantity(len(details), singular, plural)}{rest}", grave=grave)


def _detailed_limit(details: Sequence[str], text: str, *, grave: bool = False) -> list[Limitation]:
    if not details:
        return []
    return [Limitation(text, grave, tuple(details[:_MOST]), max(0, len(details) - _MOST))]


def _answer_limits(records: Iterable[Record]) -> list[Limitation]:
    """Returns failed and unreadable answers of cells; summary metrics count the same ones again."""
    cells = [record for record in records if record.test == "cell"]
    asked = sum(cell.n_requested for cell in cells)
    failed, unread = sum(cell.n_errors for cell in cells), sum(cell.n_unparsed for cell in cells)
    refused = sum(cell.n_refused for cell in cells)
    sentences = []
    if failed:
        details = [f"{cell.id}: {cell.n_errors} of {cell.n_requested}" for cell in _most(cells, "n_errors")]
        sentences += _detailed_limit(
            details,
            f"{failed} of {quantity(asked, 'inference')} failed ({share(failed / asked)}): these have no score",
            grave=True,
        )
    if unread:
        details = [f"{cell.id}: {cell.n_unparsed} of {cell.n_requested}" for cell in _most(cells, "n_unparsed")]
        sentences += _detailed_limit(
            details, f"no rule could read {unread} of {quantity(asked, 'answer')} ({share(unread / asked)}): these count as wrong"
        )
    if refused:
        details = [f"{cell.id}: {cell.n_refused} of {cell.n_requested}" for cell in _most(cells, "n_refused")]
        sentences += _detailed_limit(
            details,
            f"{refused} of {quantity(asked, 'answer')} were refused ({share(refused / asked)}): these count as wrong",
        )
    if guessed := sum(cell.n_guessed for cell in cells):
        details = [f"{cell.id}: {cell.n_guessed} of {cell.n_requested}" for cell in _most(cells, "n_guessed")]
        sentences += _detailed_limit(
            details, f"no rule could read {quantity(guessed, 'answer')} without the pictures: these count as guesses"
        )
    if cells and not (failed or unread or refused or guessed):
        sentences.append(Limitation(f"none of {quantity(asked, 'inference')} of cells failed, and every answer could be read"))
    return sentences


def _most(cells: Iterable[Record], count: str) -> list[Record]:
    having = [cell for cell in cells if getattr(cell, count)]
    return sorted(having, key=lambda cell: -int(getattr(cell, count)))


def _not_asked_limits(records: Sequence[Record]) -> list[Limitation]:
    total = sum(bool(record.not_asked) for record in records)
    return _detailed_limit(
        not_asked(records),
        f"{quantity(total, 'test was', 'tests were')} not asked: "
        "the model has not been shown to do the task, or cannot be compared",
    )


def _not_applicable_limits(records: Iterable[Record]) -> list[Limitation]:
    details = [
        f"{record.id}: {measure.metric}: {measure.reason}"
        for record in records
        for measure in record.measures
        if measure.outcome is Outcome.NOT_APPLICABLE
    ]
    return _count_limit(
        details,
        "metric of a rule does not apply",
        "metrics of rules do not apply",
        " (NOT_APPLICABLE)",
    )


def _warning_limits(records: Iterable[Record]) -> list[Limitation]:
    details = [f"{record.id}: {sentence}" for record in records for sentence in warnings_of(record)]
    return _count_limit(
        details, "verdict comes with a warning", "verdicts come with a warning", ": from a rule that warns but does not block"
    )


def _repeat_limits(facts: RunFacts) -> list[Limitation]:
    """Returns how many answers flip when they are asked for again; the section on noise says what follows."""
    if not facts.repeatability:
        return [Limitation("how many answers flip when they are asked for again was not measured: --vlm-aa measures it")]
    return [Limitation(noise_lines(repeat)[0]) for repeat in facts.repeatability]


def _ungated_limits(records: Iterable[Record]) -> list[Limitation]:
    having = [record for record in records if record.is_gated]
    free = [record.id for record in having if record.outcome is Outcome.MEASURED]
    families = sum(record.test == FAMILY for record in having if record.outcome is Outcome.MEASURED)
    of_families = f", {families} of them about families of models" if families else ""
    every = quantity(len(having), "test")
    singular = f"of {every} was measured only: no rule of the policy judges it"
    return _count_limit(free, singular, f"of {every} were measured only: no rule of the policy judges them", of_families)


def _sample_only_limits(records: Iterable[Record]) -> list[Limitation]:
    points = [
        f"{record.id}: {measure.metric}" for record in records for measure in record.measures if measure.target == "dataset"
    ]
    return _count_limit(
        points,
        "verdict holds for these samples only",
        "verdicts hold for these samples only",
        ": what was judged is the value, not the interval",
    )


# Answers that were asked for twice.


@dataclass(frozen=True, slots=True)
class Floor:
    """The noise of the answers of one model about one dataset, beside the thresholds."""

    model: str
    dataset: str
    lacking: str
    """Why nothing is known; empty where something is."""
    rate: str
    """The share of answers that flipped."""
    interval: str
    facts: tuple[tuple[str, str], ...]
    """What was asked again, how, and what came back."""
    metrics: tuple[tuple[str, str, str], ...]
    """Metric, noise, and the noise that the sample does not rule out."""
    beside: tuple[str, ...]
    tighter: tuple[str, ...]


def floors(comparisons: Sequence[Repeatability]) -> list[Floor]:
    """Returns the floor of each comparison, in their order."""
    return [_floor(repeat) for repeat in comparisons]


def _floor(repeat: Repeatability) -> Floor:
    lacking = why_unmeasured(repeat)
    if lacking:
        return Floor(repeat.model, repeat.dataset, lacking, "", "", (), (), (), ())
    metrics = tuple((name, number(value), number(most)) for name, value, most in noise_by_metric(repeat))
    rate, interval = _percent(repeat.rate), f"{_percent(repeat.low)} to {_percent(repeat.high)}"
    return Floor(repeat.model, repeat.dataset, "", rate, interval, _facts(repeat), metrics, repeat.beside, repeat.tighter)


def _facts(repeat: Repeatability) -> tuple[tuple[str, str], ...]:
    """Returns the counts, each with what it counts."""
    facts = {
        "asked again": f"{quantity(repeat.repeated, 'answer')} from {quantity(repeat.cells, 'cell')}",
        "scored differently": str(repeat.flipped),
        "worded differently": str(repeat.reworded),
        "inferences that failed": str(repeat.failed) if repeat.failed else "",
        "the second time": repeat.conditions,
    }
    return tuple((name, value) for name, value in facts.items() if value)


def _percent(value: float) -> str:
    """Returns a share in percent with two decimals: one answer in thousands must be visible."""
    return f"{number(100 * value, 2)} %"
