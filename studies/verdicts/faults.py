"""How often models with known faults pass the rules that are about them, with the fault just beyond the bound.

    python studies/verdicts/faults.py  # five minutes of a core; writes the rows of ``faults`` into table.json

The five faults are those that options, wording, typographic attacks and confidence are about. The bounds are those of the shipped
policies. A PASS is wrong if the model is a hair worse than the bound, and a FAIL if it is a hair better. ``beyond`` is a model
with twice the fault, and ``sound`` is one without it. Answers are simulated; no model is run.
"""

from __future__ import annotations

import json
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.metrics import ScoreTable

Array = NDArray[np.float64]
Generator = np.random.Generator

FROZEN = Path(__file__).parent / "table.json"
RUNS = 400
SIZES = (150, 600)
HAIR = 1e-9
WORDINGS = 16


@dataclass(frozen=True)
class FaultRow:
    """How often the rule on one fault was judged how; shares of runs."""

    fault: str
    metric: str
    bound: float
    n: int
    wrong_pass: float
    """PASS of a model on the bound."""
    wrong_fail: float
    beyond: float
    """FAIL of a model with twice the fault."""
    sound: float
    """PASS of a model without it."""
    runs: int


def _drop(rng: Generator, n: int, lost: float) -> tuple[Array, Array]:
    """Returns scores before and after, by which a share is lost; as many turn right as turn wrong beside that."""
    before = (rng.random(n) < 0.85).astype(float)
    turns = rng.random(n)
    after = np.where(before > 0.0, turns >= (lost + 0.0128) / 0.85, turns < 0.0128 / 0.15)
    return before, after.astype(float)


def letter_bias(rng: Generator, n: int, size: float) -> Estimate:
    """A share of the questions is answered by A in each of four orders: three quarters of it is pull."""
    follows = rng.random(n) < size / 0.75
    chosen = {letter: np.where(follows, float(letter == "A"), 0.25) for letter in "ABCD"}
    right = dict.fromkeys("ABCD", np.full(n, 0.25))
    return metrics.estimate("letter_pull", ScoreTable(np.ones(n), {}, chosen_by_letter=chosen, right_by_letter=right))


def format_fragility(rng: Generator, n: int, size: float) -> Estimate:
    """One wording of sixteen loses answers, and the others lose none; the best of them is the deployed one."""
    clean, worst = _drop(rng, n, size)
    others = {f"wording{place}:low": clean for place in range(WORDINGS - 1)}
    return metrics.estimate("wording_range", ScoreTable(clean, {"wording:high": worst, **others}))


def typographic(rng: Generator, n: int, size: float) -> Estimate:
    """A wrong word costs answers that a nonsense word in its place does not."""
    nonsense, wrong = _drop(rng, n, size)
    return metrics.estimate("accuracy_drop", ScoreTable(nonsense, {"fog:low": wrong}), setting="fog:low")


def overconfidence(rng: Generator, n: int, size: float) -> Estimate:
    """Under blur the letters are as sure as before, and the accuracy is lower by the same for all answers."""
    sure = rng.beta(8.0, 2.0, n).clip(size, 1.0) if size else rng.beta(8.0, 2.0, n)
    scores = (rng.random(n) < sure - size).astype(float)
    table = ScoreTable(np.ones(n), {"fog:mid": scores}, confidences={"fog:mid": sure, "clean": sure})
    return metrics.estimate("expected_calibration_error", table, setting="fog:mid")


def deafness(rng: Generator, n: int, size: float) -> Estimate:
    """Part of the negated questions is guessed at; three quarters have four options, and the others two."""
    guess = np.where(rng.random(n) < 0.75, 0.75, 0.5)
    scores = (rng.random(n) < 1.0 - size * (1.0 - guess)).astype(float)
    table = ScoreTable(np.ones(n), {"fog:low": scores}, no_image=guess)
    return metrics.estimate("relative_corruption_error", table, setting="fog:low")


FAULTS: dict[str, tuple[Callable[[Generator, int, float], Estimate], str, float]] = {
    "letter bias": (letter_bias, "letter_pull", 0.15),
    "format fragility": (format_fragility, "wording_range", 0.15),
    "believes written words": (typographic, "typographic_word_drop", 0.05),
    "overconfident under blur": (overconfidence, "expected_calibration_error", 0.2),
    "deaf to NOT": (deafness, "directional_sensitivity", 0.5),
}
"""What draws a model with a fault of some size, the metric of the rule, and the size at its bound. The loss of sensitivity is one
less the sensitivity, so that 0.5 is its bound too."""


def rows(runs: int = RUNS, sizes: Sequence[int] = SIZES) -> Iterator[FaultRow]:
    """Yields a row for each fault and number of questions."""
    for name, (draw, metric, bound) in FAULTS.items():
        for n in sizes:
            rng = np.random.default_rng(zlib.crc32(f"{name} {n}".encode()))
            at = [draw(rng, n, bound) for _ in range(runs)]
            beyond, sound = ([draw(rng, n, size) for _ in range(runs // 5)] for size in (min(2.0 * bound, 1.0), 0.0))
            yield FaultRow(
                *(name, metric, bound, n),
                wrong_pass=_share([each.high < bound - HAIR for each in at]),
                wrong_fail=_share([each.low > bound + HAIR for each in at]),
                beyond=_share([each.low > bound for each in beyond]),
                sound=_share([each.high <= bound for each in sound]),
                runs=runs,
            )


def _share(flags: list[bool]) -> float:
    return round(sum(flags) / len(flags), 4)


def main() -> int:
    """Prints all rows, and freezes them."""
    frozen_rows = []
    for row in rows():
        print(row, flush=True)
        frozen_rows.append(asdict(row))
    frozen = json.loads(FROZEN.read_text(encoding="utf-8"))
    frozen["faults"] = {"made": datetime.now(UTC).date().isoformat(), "rows": frozen_rows}
    FROZEN.write_text(json.dumps(frozen, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
