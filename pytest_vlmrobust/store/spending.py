"""Spending: the tokens of a run's answers, and their cost if prices are declared."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from pytest_vlmrobust.core.prediction import ModelRef
from pytest_vlmrobust.core.record import Record
from pytest_vlmrobust.core.words import on_one_line, quantity

BUDGET_SPENT = "budget spent: "
"""Prefix of the reason of a test that lacks answers because the budget of the run is spent."""


@dataclass(frozen=True, slots=True)
class Spending:
    """The tokens of a model's new answers in a run; cached answers are free."""

    model: str
    """The model by its short name."""
    answers: int = 0
    """New answers, including those that no test needed in the end."""
    prompt_tokens: int = 0
    """Prompt tokens, images included, as counted by the backend or server."""
    completion_tokens: int = 0
    """Answer tokens; 1 for an answer by letters in this process."""
    uncounted: int = 0
    """Answers without token counts."""
    cost: float = math.nan
    """Cost of the counted tokens in ``currency``; ``null`` without declared prices."""
    currency: str = ""
    """The currency of the prices that the models file declares."""
    failed: int = 0
    """Requests that it failed to answer."""

    @property
    def inferences(self) -> int:
        """How often the model was run: answers and failures."""
        return self.answers + self.failed

    @property
    def tokens(self) -> int:
        """All tokens that were counted."""
        return self.prompt_tokens + self.completion_tokens

    def plus(self, other: Spending) -> Spending:
        """Returns both together, without a cost."""
        return Spending(
            self.model,
            self.answers + other.answers,
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.uncounted + other.uncounted,
            failed=self.failed + other.failed,
        )

    def priced(self, ref: ModelRef) -> Spending:
        """Returns a copy with the cost at a model's prices."""
        cost = ref.cost(self.prompt_tokens, self.completion_tokens)
        return replace(self, cost=cost, currency=ref.currency)

    def __str__(self) -> str:
        counted = f"{self.prompt_tokens:,} prompt and {self.completion_tokens:,} completion tokens"
        counted = counted if self.answers > self.uncounted else "tokens not known"
        part = f", without {self.uncounted:,} that say nothing of tokens" if 0 < self.uncounted < self.answers else ""
        cost = "" if math.isnan(self.cost) else f", {self.cost:,.4g} {self.currency}"
        return on_one_line(f"{self.model}: {quantity(self.answers, 'new answer')}{part}: {counted}{cost}")


def budget_lines(records: Iterable[Record]) -> list[str]:
    """Returns a sentence with the number of tests that lack answers because a budget was spent; empty if none."""
    records = [record for record in records if record.is_gated]
    cut = [record for record in records if record.reason.startswith(BUDGET_SPENT)]
    if not cut:
        return []
    spent = cut[0].reason.partition(";")[0]
    lacking = f"{len(cut)} of {quantity(len(records), 'test')} {'lacks' if len(cut) == 1 else 'lack'} answers"
    return [f"{spent}; {lacking} and {'is' if len(cut) == 1 else 'are'} undecided"]
