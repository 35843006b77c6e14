"""Score: a prediction against its target."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .printing import on_one_line, without_halves

_LONGEST_REASON = 500
"""Characters of why an inference failed: the prediction has the whole text, and each report repeats this."""


@dataclass(frozen=True, slots=True)
class Score:
    """A value in [0, 1], or NaN for unscored, and the name of the rule that read the answer.

    Three things are never mixed up: a wrong answer (``value`` 0, ``state`` ``"scored"``), text without a readable answer
    (``value`` 0, ``state`` ``"unparsed"``: the model was asked and gave no answer), and an inference that failed
    (``value`` NaN, ``state`` ``"error"``: nothing is known). A view that was not asked about has the state ``"unasked"`` and NaN.

    Halves of surrogate pairs, which models write and stores cannot, are spelled out in ``rule`` and ``answer``.
    """

    value: float
    rule: str
    answer: str | None = None
    state: str = "scored"

    def __post_init__(self) -> None:
        object.__setattr__(self, "rule", without_halves(self.rule))
        object.__setattr__(self, "answer", None if self.answer is None else without_halves(self.answer))

    @classmethod
    def unparsed(cls, rule: str = "none") -> Score:
        """Returns the score of a text in which no rule found an answer: it counts as wrong, and is counted apart."""
        return cls(0.0, rule, None, "unparsed")

    @classmethod
    def unscored(cls, reason: str) -> Score:
        """Returns the NaN score of an inference that failed; its rule is the reason, printable, on one line and not too long."""
        return cls(math.nan, on_one_line(reason, _LONGEST_REASON), None, "error")
