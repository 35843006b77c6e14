"""Noise: what an A/A comparison says, in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pytest_vlmrobust.core.counting import quantity
from pytest_vlmrobust.core.repeatability import Repeatability

from .writing import code, inert


def noise_lines(about: Repeatability) -> list[str]:
    """Returns what is said about the answers that were asked for twice: how many flipped, what follows, and the thresholds."""
    name = f"A/A {about.model}-{about.dataset}:"
    if not about.measured:
        return [f"{name} not measured: {unmeasured(about)}"]
    failed = f", {quantity(about.failed, 'inference')} failed" if about.failed else ""
    share = f"{about.rate:.2%}, 90 % interval {about.low:.2%} to {about.high:.2%}"
    reworded = quantity(about.reworded, "was worded differently", "were worded differently")
    counted = f"{about.flipped} of {quantity(about.repeated, 'answer')} flipped ({share}), {reworded}{failed}"
    moved = ", ".join(f"{metric} {value:.3f} (at most {most:.3f})" for metric, value, most in moves(about))
    return [
        f"{name} {counted}; {quantity(about.cells, 'cell')}, {about.conditions}",
        f"     noise of {quantity(about.samples, 'sample')} between two runs: {moved}",
        *(f"     {sentence}" for sentence in about.beside),
    ]


def moves(about: Repeatability) -> list[tuple[str, float, float]]:
    """Returns each metric with its noise, measured and at most; what moves least comes first, however a file ordered them."""
    found = [(metric, value, about.noise_high[metric]) for metric, value in about.noise.items()]
    return sorted(found, key=lambda move: (move[2], move[0]))


def unmeasured(about: Repeatability) -> str:
    """Returns why nothing is known about the noise; an empty string where something is."""
    if about.measured:
        return ""
    return about.problem or f"no answer could be asked for again ({quantity(about.failed, 'inference')} failed)"


def noise_warnings(found: Iterable[Repeatability]) -> list[str]:
    """Returns, a sentence for each, the rules that the same model may break by answering twice."""
    return [f"{about.model}-{about.dataset}: {sentence}" for about in found for sentence in about.tighter]


def noise_table(found: Sequence[Repeatability]) -> list[str]:
    """Returns the comparisons as lines of Markdown, a row each, and the rules that noise alone may break; nothing without any."""
    if not found:
        return []
    metrics = list(dict.fromkeys(metric for about in found for metric, _, _ in moves(about)))
    header = ["A/A", "asked again", "flipped", "90 % interval", *(f"noise of {metric}" for metric in metrics)]
    lines = [f"| {' | '.join(map(inert, header))} |", f"|---|{'--:|' * (len(header) - 1)}"]
    lines += [f"| {' | '.join(_row(about, metrics))} |" for about in found]
    missing = [f"- {inert(line)}" for about in found if not about.measured for line in noise_lines(about)]
    warned = [f"- warning: {inert(sentence)}" for sentence in noise_warnings(found)]
    return [*lines, *([""] if missing or warned else []), *missing, *warned]


def _row(about: Repeatability, metrics: Iterable[str]) -> list[str]:
    name = code(f"{about.model}-{about.dataset}")
    if not about.measured:
        return [name, "not measured", "", "", *("" for _ in metrics)]
    moved = [f"{about.noise[metric]:.3f}, at most {about.noise_high[metric]:.3f}" for metric in metrics]
    counts = [str(about.repeated), f"{about.flipped} ({about.rate:.2%})"]
    return [name, *counts, f"{about.low:.2%} to {about.high:.2%}", *moved]
