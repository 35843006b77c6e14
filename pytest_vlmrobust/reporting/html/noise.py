"""Noise: what the answers that were asked for twice say, as the page shows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_vlmrobust.core.counting import quantity
from pytest_vlmrobust.core.repeatability import Repeatability

from ..noise import moves, unmeasured
from .words import number


@dataclass(frozen=True, slots=True)
class Floor:
    """The noise of the answers of one model about one data set, beside the thresholds."""

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


def floors(found: Sequence[Repeatability]) -> list[Floor]:
    """Returns what stands about each comparison, in their order."""
    return [_floor(about) for about in found]


def _floor(about: Repeatability) -> Floor:
    lacking = unmeasured(about)
    if lacking:
        return Floor(about.model, about.dataset, lacking, "", "", (), (), (), ())
    metrics = tuple((name, number(value), number(most)) for name, value, most in moves(about))
    rate, interval = _percent(about.rate), f"{_percent(about.low)} to {_percent(about.high)}"
    return Floor(about.model, about.dataset, "", rate, interval, _facts(about), metrics, about.beside, about.tighter)


def _facts(about: Repeatability) -> tuple[tuple[str, str], ...]:
    """Returns the counts, each with what it counts."""
    facts = {
        "asked again": f"{quantity(about.repeated, 'answer')} from {quantity(about.cells, 'cell')}",
        "scored differently": str(about.flipped),
        "worded differently": str(about.reworded),
        "inferences that failed": str(about.failed) if about.failed else "",
        "the second time": about.conditions,
    }
    return tuple((name, value) for name, value in facts.items() if value)


def _percent(value: float) -> str:
    """Returns a share in percent with two decimals: one answer in thousands is to be seen."""
    return f"{number(100 * value, 2)} %"
