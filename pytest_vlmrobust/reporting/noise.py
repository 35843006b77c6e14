"""Noise: what an A/A comparison says, in words."""

from __future__ import annotations

from pytest_vlmrobust.core.repeatability import Repeatability


def noise_lines(about: Repeatability) -> list[str]:
    """Returns what is said about the answers that were asked for twice: how many flipped, what follows, and the thresholds."""
    name = f"A/A {about.model}-{about.dataset}:"
    if about.problem:
        return [f"{name} not measured: {about.problem}"]
    if not about.repeated:
        return [f"{name} not measured: no answer could be asked for again ({about.failed} inferences failed)"]
    failed = f", {about.failed} inferences failed" if about.failed else ""
    share = f"{about.rate:.2%}, 90 % interval {about.low:.2%} to {about.high:.2%}"
    counted = f"{about.flipped} of {about.repeated} answers flipped ({share}), {about.reworded} were worded differently{failed}"
    moves = ", ".join(f"{metric} {value:.3f} (at most {about.noise_high[metric]:.3f})" for metric, value in about.noise.items())
    return [
        f"{name} {counted}; {about.cells} cells, {about.conditions}",
        f"     noise of {about.samples} samples between two runs: {moves}",
        *(f"     {sentence}" for sentence in about.beside),
    ]
