"""Noise: what answers that were asked for twice say, beside the thresholds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_vlmrobust.core.repeatability import Repeatability
from pytest_vlmrobust.core.words import quantity
from pytest_vlmrobust.reporting.comparison import noise_by_metric, why_unmeasured

from .words import number


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
    return f"{number(value, '%', 2)}"
