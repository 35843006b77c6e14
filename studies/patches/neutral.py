"""How often rules on indices of patches judge models rightly whose need of context is known.

    python studies/patches/neutral.py             # the table, 500 runs a row
    python studies/patches/neutral.py --runs 40   # a quick one

Each run draws the answers of a scripted model to the whole picture, to as many attempts at it, and to n x n patches, and judges
the index by its own interval at a one-sided risk of 5 %, as a gate does. ``independent`` models are right on every view by an own
coin; ``steady`` ones are right on the same samples in every view; the ``guesser`` guesses; those that ``know`` a share of the
answers do so from any view, and guess the others anew; ``distracted`` ones know 60 % from the whole, however shifted, and 95 %
from some patch; the one that ``needs the whole`` knows 80 % from it and 50 % from the best patch. The ``unshaken`` one guesses
anew for each patch and sticks to its guess when the picture is shifted.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust import metrics
from pytest_vlmrobust.metrics.table import ScoreTable

Scores = NDArray[np.float64]
Drawn = tuple[Scores, Scores]
"""Attempts at the whole picture, the first one being the clean answer, and at patches: each of shape (N, m)."""
SIZES = (324, 853)
CONFIDENCE = 0.90
RULES = {"pcri": -0.10, "pcri_excess": -0.10, "pcri_matched": -0.10}
"""Metric to the lowest value that its rule admits."""


class Model(NamedTuple):
    """A model whose need of context is known, and what its questions are."""

    name: str
    options: float
    draw: Callable[[np.random.Generator, int, int], Drawn]


def independent(p: float) -> Callable[[np.random.Generator, int, int], Drawn]:
    """Returns a model that is right on each view with probability ``p``."""
    return lambda rng, n, m: ((rng.random((n, m)) < p).astype(float), (rng.random((n, m)) < p).astype(float))


def steady(p: float) -> Callable[[np.random.Generator, int, int], Drawn]:
    """Returns a model that is right on the same samples in each view."""

    def draw(rng: np.random.Generator, n: int, m: int) -> Drawn:
        right = np.repeat((rng.random((n, 1)) < p).astype(float), m, axis=1)
        return right, right

    return draw


def knows(share: float, options: float) -> Callable[[np.random.Generator, int, int], Drawn]:
    """Returns a model that knows a share of the answers from any view and guesses the others anew for each."""

    def draw(rng: np.random.Generator, n: int, m: int) -> Drawn:
        known = rng.random((n, 1)) < share
        whole, patches = (known | (rng.random((n, m)) < 1.0 / options) for _ in range(2))
        return whole.astype(float), patches.astype(float)

    return draw


def apart(whole: float, patch: float) -> Callable[[np.random.Generator, int, int], Drawn]:
    """Returns a model that knows one share of the answers from the whole, however shifted, and another from some patch."""

    def draw(rng: np.random.Generator, n: int, m: int) -> Drawn:
        order = rng.random((n, 1))
        right = np.zeros((n, m))
        right[np.arange(n), rng.integers(0, m, n)] = order[:, 0] < patch
        return np.repeat((order < whole).astype(float), m, axis=1), right

    return draw


def unshaken(share: float, options: float) -> Callable[[np.random.Generator, int, int], Drawn]:
    """Returns a model that knows a share, guesses the others anew for each patch, and sticks to its guess when shifted."""

    def draw(rng: np.random.Generator, n: int, m: int) -> Drawn:
        whole, patches = knows(share, options)(rng, n, m)
        return np.repeat(whole[:, :1], m, axis=1), patches

    return draw


MODELS = (
    *(Model(f"independent p={p}", math.inf, independent(p)) for p in (0.3, 0.36, 0.5, 0.7, 0.9)),
    *(Model(f"steady p={p}", 4, steady(p)) for p in (0.5, 0.8)),
    *(Model(f"knows {share:.0%}, {k} options", k, knows(share, k)) for share, k in ((0.2, 4), (0.6, 4), (0.4, 2))),
    Model("guesser, 4 options", 4, knows(0.0, 4)),
    *(Model(f"distracted, {k} options", k, apart(0.6, 0.95)) for k in (2, 4)),
    Model("needs the whole, 4 options", 4, apart(0.8, 0.5)),
    Model("unshaken, knows 60%, 4 options", 4, unshaken(0.6, 4)),
)


class Shares(NamedTuple):
    """How often a rule ended how, of all runs."""

    passed: float
    failed: float
    undecided: float
    not_applicable: float


def shares(model: Model, metric: str, size: int, grid: int, runs: int) -> Shares:
    """Returns how often the rule on a metric ends how for a model."""
    rng = np.random.default_rng([size, grid, sum(map(ord, model.name))])
    counts = {"passed": 0, "failed": 0, "undecided": 0, "not_applicable": 0}
    for _ in range(runs):
        whole, patches = model.draw(rng, size, grid * grid)
        setting = f"patches:{grid}"
        table = ScoreTable(
            clean=whole[:, 0],
            by_setting={setting: patches.max(axis=1)},
            patches_by_setting={setting: patches},
            whole_attempts=whole,
            chance=1.0 / model.options,
        )
        estimate = metrics.estimate(metric, table, setting=setting, confidence=CONFIDENCE)
        bound = RULES[metric]
        outcome = "passed" if estimate.low >= bound else "failed" if estimate.high < bound else "undecided"
        counts[outcome if estimate.valid else "not_applicable"] += 1
    return Shares(**{name: count / runs for name, count in counts.items()})


def rows(runs: int) -> Iterator[str]:
    """Yields the lines of the table."""
    yield "| model | n | grid | metric | bound | PASS | FAIL | INCONCLUSIVE | NOT_APPLICABLE |"
    yield "|---|--:|--:|---|--:|--:|--:|--:|--:|"
    for model in MODELS:
        for size in SIZES:
            for grid in (2, 3):
                for metric, bound in RULES.items():
                    cells = " | ".join(f"{share:.3f}" for share in shares(model, metric, size, grid, runs))
                    yield f"| {model.name} | {size} | {grid} x {grid} | `{metric}` | {bound} | {cells} |"


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=500, help="runs a row; a share of .9 has a standard error of .013 at 500")
    for row in rows(parser.parse_args().runs):
        print(row, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
