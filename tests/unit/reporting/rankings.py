"""A ranking with something in every part of its page."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.evaluation.after.standings import QUANTITIES, Board, Difference, FamilyDrops, Ranking, Standing


def about(value: float, reason: str = "") -> Estimate:
    return Estimate(value, 40, value - 0.05, value + 0.05, 0.9, reason=reason)


def standing(model: str, rank: int, ends: tuple[int, int], not_apart: tuple[str, ...] = (), value: float = 0.8) -> Standing:
    values = {name: about(value) for name in QUANTITIES}
    values["worst_case_drop"] = about(0.4, "at fog:high")
    values["mean_corruption_error"] = Estimate(math.nan, 40, reason="no reference model was named")
    return Standing(model, values, rank, *ends, not_apart)


def board(dataset: str = "shapes", names: tuple[str, str, str] = ("ann", "bob", "cy")) -> Board:
    first, second, third = names
    standings = (
        standing(first, 1, (1, 2), (second,), 0.82),
        standing(second, 2, (1, 2), (first,), 0.8),
        standing(third, 3, (3, 3), (), 0.4),
    )
    pairs = (
        Difference(first, second, Estimate(0.02, 40, -0.03, 0.07, 0.9), apart=False),
        Difference(first, third, Estimate(0.42, 40, 0.3, 0.54, 0.9), apart=True),
        Difference(second, third, Estimate(0.4, 40, 0.28, 0.52, 0.9), apart=True),
    )
    weather = FamilyDrops("weather", 3, {first: about(0.12), second: about(-0.02), third: about(0.55)})
    return Board(dataset, 40, 4, standings, pairs, (weather,), ("mCE is not given: no reference model was named",))


def ranking(*boards: Board, **changes: Any) -> Ranking:
    basis = Ranking(("runs/one",), ("ann", "bob", "cy"), "mean_accuracy", "", boards or (board(),), ("fog:low does not count",))
    return dataclasses.replace(basis, **changes)


def unranked() -> Board:
    """Returns a board of which nothing is known."""
    unknown = {name: Estimate(math.nan, 0, reason="no sample counts") for name in QUANTITIES}
    return Board("shapes", 0, 0, (Standing("ann", unknown), Standing("bob", unknown)), notes=("nothing is given",))
