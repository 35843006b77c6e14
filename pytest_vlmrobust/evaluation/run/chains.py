"""Chains of thought: their length in words, and the outcomes for each length."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from pytest_vlmrobust.core.prediction import Prediction
from pytest_vlmrobust.scoring.text import after_thinking

from .results import CellResult

CHAIN_BINS = {
    "to 31": 31,
    "32 to 63": 63,
    "64 to 127": 127,
    "128 to 255": 255,
    "256 to 511": 511,
    "512 to 1023": 1023,
    "1024 to 2047": 2047,
    "from 2048": math.inf,
}
"""Length classes of chains of thought in words, each with its upper limit."""
RIGHT, WRONG, UNREAD = "right", "wrong", "unread"
OUTCOMES = {(False, True): "fixes", (False, False): "does not fix", (True, False): "breaks", (True, True): "keeps"}
"""The effect of a chain of thought, by whether the sample is right without and with it."""
_MOST_WRONG = 0.5
"""A graded score above this is right."""


def words_of_thinking(text: str) -> int:
    """Returns the number of words before the answer: those inside marked reasoning, else all words."""
    after = after_thinking(text)
    return len(text.split()) - (len(after.split()) if after is not None and after != text else 0)


def outcome_of_chain(before: float, after: float) -> str:
    """Returns the effect of a chain of thought on a sample by its scores without and with it; empty if one is unknown."""
    return "" if math.isnan(before + after) else OUTCOMES[before > _MOST_WRONG, after > _MOST_WRONG]


def chains_by_outcome(result: CellResult) -> dict[str, float]:
    """Returns the number of answers of a cell by length of their chain and by whether they are right, wrong or unread.

    Failed inferences are left out; a sample with several views has no single chain.
    """
    if result.views > 1:
        return {}
    outcomes = [
        UNREAD if score.state == "unparsed" else "" if score.state != "scored" else RIGHT if score.value > _MOST_WRONG else WRONG
        for score in result.scores
    ]
    return _counted(outcomes, result.predictions)


def chains_by_change(before: Sequence[CellResult], after: Sequence[CellResult]) -> dict[str, float]:
    """Returns the number of answers by length of their chain and by its effect compared with the same model without chains.

    A sample with several views has no single chain.
    """
    found: Counter[str] = Counter()
    for plain, thinking in zip(before, after, strict=True):
        if thinking.views > 1:
            continue
        outcomes = [outcome_of_chain(*pair) for pair in zip(plain.values.tolist(), thinking.values.tolist(), strict=True)]
        found.update(_counted(outcomes, thinking.predictions))
    return dict(found)


def _counted(outcomes: Iterable[str], predictions: Iterable[Prediction]) -> dict[str, float]:
    pairs = [(one, words_of_thinking(said.text)) for one, said in zip(outcomes, predictions, strict=True) if one]
    counts = Counter(f"{outcome}, {_bin_of(length)}" for outcome, length in pairs)
    return {name: float(count) for name, count in sorted(counts.items())}


def _bin_of(length: int) -> str:
    return next(name for name, most in CHAIN_BINS.items() if length <= most)
