"""Noise: the result of repeated answers (A/A) compared with the thresholds."""

from __future__ import annotations

from collections.abc import Iterable

from pytest_vlmrobust.core.words import quantity
from pytest_vlmrobust.store.repeatability import Repeatability


def noise_lines(repeat: Repeatability) -> list[str]:
    """Returns the lines about repeated answers: flips, noise, and thresholds."""
    name = f"A/A {repeat.model}-{repeat.dataset}:"
    if not repeat.measured:
        return [f"{name} not measured: {why_unmeasured(repeat)}"]
    failed = f", {quantity(repeat.failed, 'inference')} failed" if repeat.failed else ""
    share = f"{repeat.rate:.2%}, 90 % interval {repeat.low:.2%} to {repeat.high:.2%}"
    reworded = quantity(repeat.reworded, "was worded differently", "were worded differently")
    counted = f"{repeat.flipped} of {quantity(repeat.repeated, 'answer')} flipped ({share}), {reworded}{failed}"
    noise = ", ".join(f"{metric} {value:.3f} (at most {most:.3f})" for metric, value, most in noise_by_metric(repeat))
    return [
        f"{name} {counted}; {quantity(repeat.cells, 'cell')}, {repeat.conditions}",
        f"     noise of {quantity(repeat.samples, 'sample')} between two runs: {noise}",
        *(f"     {sentence}" for sentence in repeat.beside),
    ]


def noise_by_metric(repeat: Repeatability) -> list[tuple[str, float, float]]:
    """Returns each metric with its measured and largest noise, smallest first."""
    moves = [(metric, value, repeat.noise_high[metric]) for metric, value in repeat.noise.items()]
    return sorted(moves, key=lambda move: (move[2], move[0]))


def why_unmeasured(repeat: Repeatability) -> str:
    """Returns why the noise is unknown; empty if it is known."""
    if repeat.measured:
        return ""
    return repeat.problem or f"no answer could be asked for again ({quantity(repeat.failed, 'inference')} failed)"


def noise_warnings(comparisons: Iterable[Repeatability]) -> list[str]:
    """Returns, a sentence for each, the rules that the same model may break by answering twice."""
    return [f"{repeat.model}-{repeat.dataset}: {sentence}" for repeat in comparisons for sentence in repeat.tighter]
