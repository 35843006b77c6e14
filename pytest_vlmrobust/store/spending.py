"""Spending: what the answers of a run took in tokens, and what they cost where prices are declared."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from pytest_vlmrobust.core.prediction import ModelRef
from pytest_vlmrobust.core.record import Record
from pytest_vlmrobust.core.words import on_one_line, quantity

BUDGET_SPENT = "budget spent: "
"""How the reason of a test begins that lacks answers because the run may ask nothing more."""


@dataclass(frozen=True, slots=True)
class Spending:
    """What the answers that a model gave in one run took; answers from the store took nothing."""

    model: str
    """The model by its short name."""
    answers: int = 0
    """Answers that it gave, also those that no test needed in the end."""
    prompt_tokens: int = 0
    """Tokens of their prompts, those of images included, as the backend or the server counted them."""
    completion_tokens: int = 0
    """Tokens of the answers; one of an answer by letters in this process."""
    uncounted: int = 0
    """Answers among them of which nobody said how many tokens they took."""
    cost: float = math.nan
    """What the counted tokens cost, in ``currency``; ``null`` where the models file declares no prices."""
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
        """Returns it with what it cost at the prices of a model."""
        cost = ref.cost(self.prompt_tokens, self.completion_tokens)
        return replace(self, cost=cost, currency=ref.currency)

    def __str__(self) -> str:
        counted = f"{self.prompt_tokens:,} prompt and {self.completion_tokens:,} completion tokens"
        counted = counted if self.answers > self.uncounted else "tokens not known"
        part = f", without {self.uncounted:,} that say nothing of tokens" if 0 < self.uncounted < self.answers else ""
        cost = "" if math.isnan(self.cost) else f", {self.cost:,.4g} {self.currency}"
        return on_one_line(f"{self.model}: {quantity(self.answers, 'new answer')}{part}: {counted}{cost}")


def budget_lines(records: Iterable[Record]) -> list[str]:
    """Returns, as a sentence, how many tests lack answers because a budget was spent; nothing where none does."""
    records = [record for record in records if record.is_gated]
    cut = [record for record in records if record.reason.startswith(BUDGET_SPENT)]
    if not cut:
        return []
    spent = cut[0].reason.partition(";")[0]
    lacking = f"{len(cut)} of {quantity(len(records), 'test')} {'lacks' if len(cut) == 1 else 'lack'} answers"
    return [f"{spent}; {lacking} and {'is' if len(cut) == 1 else 'are'} undecided"]
