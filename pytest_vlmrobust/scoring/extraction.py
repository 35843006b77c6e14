"""What a rule may say about a text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar


@dataclass(frozen=True, slots=True)
class Extraction:
    """The answer read from a text, and the name of the rule that read it.

    ``answer`` is None when the text was not read; ``rule`` then says why: ``empty``, ``unfinished_thinking`` (cut off before
    the answer began), ``truncated`` (cut off in the middle of an object in JSON), ``refusal``, ``ambiguous`` (more than one
    answer) or ``none``.
    """

    answer: str | None
    rule: str


class Stop(Enum):
    """A rule's finding that the text has no single answer: no later rule is asked."""

    AMBIGUOUS = "ambiguous"
    TRUNCATED = "truncated"
    REFUSAL = "refusal"
    NONE = "none"


Outcome = str | Stop | None
"""An answer, a reason to stop, or None: this rule has nothing to say."""

T = TypeVar("T")
Ladder = Mapping[str, Callable[[T], Outcome]]
"""Rules by name, the most certain first; what each one reads is its docstring."""


def climb(ladder: Ladder[T], reading: T) -> Extraction:
    """Returns what the first rule that has something to say says."""
    for name, rule in ladder.items():
        outcome = rule(reading)
        if isinstance(outcome, Stop):
            return Extraction(None, outcome.value)
        if outcome is not None:
            return Extraction(outcome, name)
    return Extraction(None, Stop.NONE.value)


def agreed(answers: set[str]) -> Outcome:
    """Returns the answer when there is exactly one, nothing for none, and a stop for several."""
    if len(answers) > 1:
        return Stop.AMBIGUOUS
    return next(iter(answers), None)
