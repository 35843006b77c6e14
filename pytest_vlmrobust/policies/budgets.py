"""Budgets: how many inferences may fail and how many answers may be unreadable before a result says nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from pytest_vlmrobust.core.verdict import Outcome, Verdict

from .bound import Bound, decimals_needed

BUILT_IN = "built-in default"


@dataclass(frozen=True, slots=True)
class Budgets:
    """Two shares in [0, 1]; ``sources`` says by name where each was set (``file:line``).

    Errors, unparsed answers and wrong answers are three different things: an inference that failed says nothing about
    the model, an unreadable answer counts as wrong and is counted apart, and a wrong answer is what the metrics are about.
    """

    max_error_rate: float = 0.0
    """Failed inferences per sample asked."""
    max_unparsed_rate: float = 0.05
    """Answers that no rule could read, per sample scored."""
    sources: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def judge(self, *, n_requested: int, n_scored: int, n_errors: int, n_unparsed: int) -> list[Verdict]:
        """Returns what breaks a budget; an empty list when nothing does, because a kept budget has gated nothing.

        Args:
            n_requested: Samples asked. A run that stops early passes those asked until then: a sample that was asked and is
                neither scored nor an error has gone missing, and counts as an error.
            n_scored: Samples with a score, the unparsed ones (score 0) included.
            n_errors: Samples whose inference failed.
            n_unparsed: Samples scored 0 because no answer could be read.

        Raises:
            ValueError: counts that contradict each other.
        """
        _check_counts(n_requested, n_scored, n_errors, n_unparsed)
        if n_requested == 0:
            return [Verdict(Outcome.INCONCLUSIVE, "no sample was asked: nothing was measured")]
        n_missing = n_requested - n_scored - n_errors
        if n_scored == 0:
            return [
                Verdict(Outcome.ERROR, f"no sample was scored: of {n_requested}, {n_errors} failed and {n_missing} went missing")
            ]
        return [*self._judge_errors(n_requested, n_errors, n_missing), *self._judge_unparsed(n_scored, n_unparsed)]

    def _judge_errors(self, n_requested: int, n_errors: int, n_missing: int) -> list[Verdict]:
        n_lost = n_errors + n_missing
        rate = n_lost / n_requested
        if Bound(high=self.max_error_rate).admits(rate):
            return []
        counted = f"{n_lost} of {n_requested} inferences without an answer ({n_errors} failed, {n_missing} missing)"
        return [self._broken(Outcome.ERROR, "error_rate", rate, self.max_error_rate, counted)]

    def _judge_unparsed(self, n_scored: int, n_unparsed: int) -> list[Verdict]:
        rate = n_unparsed / n_scored
        if Bound(high=self.max_unparsed_rate).admits(rate):
            return []
        counted = f"no answer could be read in {n_unparsed} of {n_scored} texts"
        return [self._broken(Outcome.FAIL, "unparsed_rate", rate, self.max_unparsed_rate, counted)]

    def _broken(self, outcome: Outcome, metric: str, rate: float, budget: float, counted: str) -> Verdict:
        rule = f"max_{metric}"
        source = self.sources.get(rule, BUILT_IN)
        digits = decimals_needed(rate, budget)
        reason = f"{metric} {rate:.{digits}f} > {budget:.{digits}f} (budget {rule}, {source}): {counted}"
        return Verdict(outcome, reason, metric, rule, source, str(Bound(high=budget)))


def _check_counts(n_requested: int, n_scored: int, n_errors: int, n_unparsed: int) -> None:
    if min(n_requested, n_scored, n_errors, n_unparsed) < 0 or n_scored + n_errors > n_requested or n_unparsed > n_scored:
        raise ValueError(
            f"counts contradict each other: {n_requested} requested, {n_scored} scored ({n_unparsed} of them unparsed), "
            f"{n_errors} errors. Expected scored + errors <= requested, and unparsed <= scored"
        )
