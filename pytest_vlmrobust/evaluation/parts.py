"""Parts of a record: what follows from measures and results alone."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from pytest_vlmrobust import metrics, perturbations
from pytest_vlmrobust.core.cell import CLEAN, NO_IMAGE, Setting
from pytest_vlmrobust.core.record import Measure
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.core.verdict import WARNING, Outcome, Verdict
from pytest_vlmrobust.core.words import quantity
from pytest_vlmrobust.policies import Budgets
from pytest_vlmrobust.policies.policy import WORST_FIRST

from .cell_result import CellResult
from .guesses import BLIND_UNPARSED, said_of_guesses


def decisive(measures: Sequence[Measure]) -> Measure:
    """Returns the measure with the worst outcome, the first of equals.

    Of those that are only measured, one that a rule warns of comes first, and one that no rule is about last.
    """
    return min(measures, key=_rank)


def _rank(measure: Measure) -> tuple[int, bool, bool]:
    only_measured = measure.outcome is Outcome.MEASURED
    unwarned = only_measured and not measure.reason.startswith(WARNING)
    return WORST_FIRST.index(measure.outcome), unwarned, only_measured and not measure.rule


def commonest_error(results: Sequence[CellResult]) -> str:
    """Returns why inferences failed: the reason given most often, empty when none failed."""
    reasons = Counter(score.rule for result in results for score in result.scores if score.state == "error")
    return reasons.most_common(1)[0][0] if reasons else ""


def budget_measure(verdict: Verdict, part: int, whole: int, error: str) -> Measure:
    """Returns a broken budget as a measure: ``part`` of ``whole`` answers, and the commonest error where there is one."""
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
    """Judges failed and unreadable answers; a kept budget says nothing.

    That an answer without the pictures cannot be read is no fault of a model: those are no part of the budget. Neither are
    answers about patches after a right one, which nothing but the map of positions rests on.

    Args:
        budgets: of a policy.
        results: the cells that something is computed from.
        excused: of a task that the model is not shown to do, that it is not: that answers cannot be read is part of it.
    """
    seen = [result for result in results if result.cell.setting != NO_IMAGE]
    asked, failed = sum(result.n_requested for result in results), _failed(results)
    texts, unread = (sum(counts) for counts in zip(*(result.texts for result in seen), strict=True)) if seen else (0, 0)
    verdicts = budgets.judge(n_requested=asked, n_scored=asked - failed, n_errors=failed, n_unparsed=0)
    if texts:
        verdicts += budgets.judge(n_requested=texts, n_scored=texts, n_errors=0, n_unparsed=unread)
    shares = {"error_rate": (failed, asked), "unparsed_rate": (unread, texts)}
    found = [budget_measure(verdict, *shares.get(verdict.metric, (0, 0)), commonest_error(results)) for verdict in verdicts]
    return [part_of_not_doing(one, excused) if excused and one.metric == "unparsed_rate" else one for one in found]


def _failed(results: Sequence[CellResult]) -> int:
    return sum(result.count("error") for result in results)


def blind_unparsed(result: CellResult) -> list[Measure]:
    """Returns the share of answers without the pictures that count as guesses, because they cannot be read; nothing for none."""
    if not result.n_guessed:
        return []
    (reason,) = said_of_guesses([result])
    texts = result.n_requested - result.count("error")
    return [Measure(BLIND_UNPARSED, result.n_guessed / texts, n=texts, reason=reason)]


def part_of_not_doing(measure: Measure, why: str) -> Measure:
    """Returns a broken budget of unreadable answers as what it is for a task that is not done at all: part of not doing it."""
    return replace(measure, outcome=Outcome.MEASURED, rule="", threshold="", reason=f"{measure.reason}; {why}")


def bands(measures: Sequence[Measure], setting: Setting) -> tuple[str, ...]:
    """Returns the band of the Region Comprehension Index, where there is one."""
    known = [one.value for one in measures if one.metric == "rci" and not one.category and not math.isnan(one.value)]
    return tuple(f"{setting}: an RCI of {value:.3f} is {metrics.rci_band(value)}" for value in known)


def noted(result: CellResult) -> tuple[str, ...]:
    """Returns what the setting could not do, step by step: to how many samples, and to which one for example."""
    by_step: dict[str, list[tuple[str, str]]] = {}
    for sample, notes in result.notes.items():
        for note in notes:
            by_step.setdefault(note.partition(": ")[0], []).append((sample, note))
    return tuple(
        f"{len(found)} of {quantity(len(result.samples), 'sample')}, such as {found[0][0]}: {found[0][1]}"
        for found in by_step.values()
    )


def by_category(result: CellResult) -> dict[str, float]:
    """Returns the mean score of each stratum, NaN where a score is missing."""
    import numpy as np

    names = np.array([sample.category for sample in result.samples])
    return {str(name): float(result.values[names == name].mean()) for name in dict.fromkeys(names.tolist())}


def label_preserving(setting: Setting, samples: Sequence[Sample]) -> list[bool]:
    """Returns, for each sample, whether the setting leaves its answer right."""
    if setting in (CLEAN, NO_IMAGE):
        return [True] * len(samples)
    changes = {str(setting), *(step.name for step in setting.steps), *perturbations.info(str(setting)).label_changing}
    return [not (sample.changed_by & changes) for sample in samples]
