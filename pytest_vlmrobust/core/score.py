"""Score: a prediction against its target."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Score:
    """A value in [0, 1], or NaN for unscored, and the name of the rule that read the answer.

    Three things are never mixed up: a wrong answer (``value`` 0, ``state`` ``"scored"``), text without a readable answer
    (``value`` 0, ``state`` ``"unparsed"``: the model was asked and gave no answer), and an inference that failed
    (``value`` NaN, ``state`` ``"error"``: nothing is known). A view that was not asked about has the state ``"unasked"`` and NaN.
    """

    value: float
    rule: str
    answer: str | None = None
    state: str = "scored"

    @classmethod
    def unparsed(cls, rule: str = "none") -> Score:
        """Returns the score of a text in which no rule found an answer: it counts as wrong, and is counted apart."""
        return cls(0.0, rule, None, "unparsed")

    @classmethod
    def unscored(cls, reason: str) -> Score:
        """Returns the NaN score of an inference that failed."""
        return cls(math.nan, reason, None, "error")
