"""Budgets: how many failed and unreadable answers of a test a policy allows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from pytest_vlmrobust.core.cell import NO_IMAGE
from pytest_vlmrobust.core.decision import Outcome, Verdict
from pytest_vlmrobust.core.record import Measure
from pytest_vlmrobust.evaluation.run.results import BLIND_UNPARSED, CellResult, said_of_guesses
from pytest_vlmrobust.policies import Budgets


def commonest_error(results: Sequence[CellResult]) -> str:
    """Returns why inferences failed: the reason given most often, empty when none failed."""
    reasons = Counter(score.rule for result in results for score in result.scores if score.state == "error")
    return reasons.most_common(1)[0][0] if reasons else ""


def budget_measure(verdict: Verdict, part: int, whole: int, error: str) -> Measure:
    """Returns a broken budget as a measure: ``part`` of ``whole`` answers, and the commonest error, if any."""
    because = f"; most often: {error}" if verdict.outcome is Outcome.ERROR and error else ""
    return Measure(
        verdict.metric,
        part / whole if whole else float("nan"),
        n=whole,
        threshold=verdict.threshold,
        outcome=verdict.outcome,
        reason=verdict.reason + because,
        rule=verdict.rule,
        source=verdict.source,
    )


def budget_measures(budgets: Budgets, results: Sequence[CellResult], *, excused: str = "") -> list[Measure]:
    """Judges failed and unreadable answers; a budget that is kept has no measure.

    Unreadable answers to questions without their pictures do not count: refusing to answer them is right. Answers about patches
    after a right one do not count either: only the map of positions is computed from them.

    Args:
        budgets: of a policy.
        results: the cells that something is computed from.
        excused: why the model is not shown to do its task, where that is so: unreadable answers are then part of not doing it.
    """
    seen = [result for result in results if result.cell.setting != NO_IMAGE]
    asked, failed = sum(result.n_requested for result in results), _error_count(results)
    texts, unread = (sum(counts) for counts in zip(*(result.texts for result in seen), strict=True)) if seen else (0, 0)
    verdicts = budgets.judge(n_requested=asked, n_scored=asked - failed, n_errors=failed, n_unparsed=0)
    if texts:
        verdicts += budgets.judge(n_requested=texts, n_scored=texts, n_errors=0, n_unparsed=unread)
    shares = {"error_rate": (failed, asked), "unparsed_rate": (unread, texts)}
    measures = [budget_measure(verdict, *shares.get(verdict.metric, (0, 0)), commonest_error(results)) for verdict in verdicts]
    return [excused_measure(each, excused) if excused and each.metric == "unparsed_rate" else each for each in measures]


def _error_count(results: Sequence[CellResult]) -> int:
    return sum(result.count("error") for result in results)


def blind_unparsed(result: CellResult) -> list[Measure]:
    """Returns the share of unreadable answers without pictures, which count as guesses; empty if there are none."""
    if not result.n_guessed:
        return []
    (reason,) = said_of_guesses([result])
    texts = result.n_requested - result.count("error")
    return [Measure(BLIND_UNPARSED, result.n_guessed / texts, n=texts, reason=reason)]


def excused_measure(measure: Measure, why: str) -> Measure:
    """Returns a broken budget of unreadable answers as a mere measurement: the model is not shown to do the task at all."""
    return replace(measure, outcome=Outcome.MEASURED, rule="", threshold="", reason=f"{measure.reason}; {why}")
