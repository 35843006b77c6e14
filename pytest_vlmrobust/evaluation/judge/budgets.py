"""Budgets: how many failed, unreadable and refused answers a policy allows.

A share is judged like every other metric: by its interval, clustered by source image, at the
risks of a rule. The share of a model on a dataset over all its cells decides: :func:`budget_records`. A single cell breaks
a budget only if that is shown at its part of the risk: in its test (:func:`budget_measures`), or, if only tests of other cells
read it, with the share over all cells.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust.core.cell import NO_IMAGE, Cell
from pytest_vlmrobust.core.decision import WORST_FIRST, Outcome, Verdict
from pytest_vlmrobust.core.estimate import LEVEL, Estimate
from pytest_vlmrobust.core.prediction import LETTER_LOGITS, REFUSALS
from pytest_vlmrobust.core.record import BUDGET, MOST_OFTEN, Measure, Record
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.core.words import on_one_line
from pytest_vlmrobust.evaluation.run.results import BLIND_UNPARSED, UNASKED_STATE, CellResult, counts_for_budgets, said_of_guesses
from pytest_vlmrobust.policies import BUDGET_CELLS, BUDGET_DATASETS, Budgets, JudgedBy, Policy
from pytest_vlmrobust.policies.judge import judge_rule
from pytest_vlmrobust.store import Evidence, StoredScores

from .reads import groups_of

if TYPE_CHECKING:
    from pytest_vlmrobust.metrics.statistics.clusters import Clusters

_COUNTED = {
    "error_rate": "{part:,} of {whole:,} inferences failed",
    "unparsed_rate": "no answer could be read in {part:,} of {whole:,} texts",
    "refusal_rate": "{part:,} of {whole:,} answers were refused by the model or a filter",
}


# Answers as budgets count them.


@dataclass(frozen=True, slots=True, eq=False)
class _Answers:
    """Answers of one or more cells; each array has one entry per answer."""

    samples: NDArray[np.intp]
    """The sample of each, by its place in the dataset."""
    failed: NDArray[np.bool_]
    texts: NDArray[np.bool_]
    """Which of them say whether the model can be read."""
    refused: NDArray[np.bool_]
    unparsed: NDArray[np.bool_]
    rules: NDArray[np.str_]
    """How each was read, or why it was not."""

    @classmethod
    def of(cls, cells: Iterable[StoredScores]) -> _Answers:
        """Returns the answers of some cells; an answer shared by several cells with equal images counts once.

        Unreadable answers to questions without images do not count, because declining to answer is right.
        """
        seen: set[tuple[int, str]] = set()
        columns: list[list[NDArray[np.generic]]] = [[] for _ in range(6)]
        for scores in cells:
            fresh = np.ones(len(scores.places), bool)
            for index, about in enumerate(zip(scores.places, scores.keys, strict=True)):
                fresh[index] = about not in seen and scores.states[index] != UNASKED_STATE
                if scores.keys[index]:
                    seen.add(about)
            states, rules = np.array(scores.states, np.str_), np.array(scores.rules, np.str_)
            texts = counts_for_budgets(scores.views, np.array(scores.values), scores.states) & (scores.cell.setting != NO_IMAGE)
            unread, refusals = texts & (states == "unparsed"), np.isin(rules, REFUSALS)
            parts = (
                np.array(scores.places, np.intp),
                states == "error",
                texts,
                unread & refusals,
                unread & ~refusals,
                rules,
            )
            for column, part in zip(columns, parts, strict=True):
                column.append(part[fresh])
        samples, *flags, rules = (np.concatenate(column) for column in columns)
        failed, texts, refused, unparsed = (flag.astype(bool) for flag in flags)
        return cls(samples.astype(np.intp), failed, texts, refused, unparsed, rules.astype(np.str_))

    @property
    def unread_rules(self) -> Counter[str]:
        """How many unreadable answers each rule left."""
        return Counter(self.rules[self.unparsed].tolist())

    def share(self, metric: str, clusters: Clusters) -> _Share | None:
        """Returns the share that a budget limits; ``None`` if no answer can be of that kind."""
        flags = {"error_rate": self.failed, "unparsed_rate": self.unparsed, "refusal_rate": self.refused}[metric]
        counted = slice(None) if metric == "error_rate" else self.texts
        flags, samples = flags[counted], self.samples[counted]
        if not flags.size or (metric != "error_rate" and not flags.any() and (self.rules[counted] == LETTER_LOGITS).all()):
            return None
        return _Share(metric, flags, samples, clusters.within(samples))


@dataclass(frozen=True, slots=True, eq=False)
class _Share:
    """A share of answers."""

    metric: str
    flags: NDArray[np.bool_]
    samples: NDArray[np.intp]
    clusters: Clusters

    @property
    def counted(self) -> str:
        """The count behind the share, in words."""
        return _COUNTED[self.metric].format(part=int(self.flags.sum()), whole=self.flags.size)

    @property
    def estimate(self) -> Estimate:
        """The share with its interval; the size of it is the number of samples, which further samples add to."""
        from pytest_vlmrobust.metrics.statistics.means import judged_proportion_interval

        outcomes = self.flags.astype(np.float64)

        @cache
        def at(level: float) -> tuple[float, float]:
            return judged_proportion_interval(outcomes, self.clusters, level)

        n = len(np.unique(self.samples))
        groups = self.clusters.count if self.clusters.count < n else 0
        return Estimate(float(outcomes.mean()), n, *at(LEVEL), LEVEL, groups=groups, at=at)

    def judge(self, budgets: Budgets, by: JudgedBy, today: date, tests: int) -> tuple[Estimate, Verdict]:
        """Judges the share by its budget; ``tests`` tests share the risk."""
        estimate = self.estimate
        rule = budgets.rule_about(self.metric, estimate.value, by)
        verdict = judge_rule(rule, estimate, (), today, tests)
        failed = verdict.outcome is Outcome.FAIL and self.metric == "error_rate"
        outcome = Outcome.ERROR if failed else verdict.outcome  # an inference that failed says nothing about the model
        open_rule = verdict.not_shown and replace(verdict.not_shown, reason=f"{verdict.not_shown.reason}: {self.counted}")
        return estimate, replace(verdict, outcome=outcome, reason=f"{verdict.reason}: {self.counted}", not_shown=open_rule)


def _measure(verdict: Verdict, estimate: Estimate) -> Measure:
    interval = {} if verdict.target == JudgedBy.POINT.target else {"low": estimate.low, "high": estimate.high}
    return Measure.judged(verdict, estimate.value, n=estimate.n, groups=estimate.groups, **interval)


def _clusters(samples: Sequence[Sample]) -> Clusters:
    from pytest_vlmrobust.metrics.statistics.clusters import Clusters

    return Clusters.of(groups_of(samples), len(samples))


# One test.


def commonest_error(results: Sequence[CellResult]) -> str:
    """Returns the most common reason why inferences failed; empty if none failed."""
    reasons = Counter(score.rule for result in results for score in result.scores if score.state == "error")
    return reasons.most_common(1)[0][0] if reasons else ""


_ADVICE = {
    "unfinished_thinking": "The text ended while the model was thinking. Raise max_new_tokens in the models file",
    "truncated": "The text was cut off before its answer. Raise max_new_tokens in the models file",
    "too_long": "The model does not stop. Set max_new_tokens in the models file, and look at its stop tokens",
    "empty": "The model wrote nothing. Look at its chat template and its stop tokens",
    "only_reasoning": "The server puts the text into its field for reasoning, which is not read. Start it without its reasoning "
    "parser, or turn thinking off",
    "no_letter": "The server lists none of the letters. Ask by text: --vlm-answer=text",
    "ambiguous": "The text names several answers. If one of them stands in a thinking mark that is not known, report the mark; "
    "else use a prompt that asks for the {letter}",
    "none": "If the text has a thinking mark that is not known, report the mark; else use a prompt that asks for the {letter}",
    "cut": "The texts stop in the middle of a sentence. Raise max_new_tokens in the models file",
}
"""Advice for answers that a rule could not read."""
_LONGEST_EXAMPLE = 160
_LONG = 200
"""Characters from which a text that ends without a full stop was probably cut off."""


def why_unread(results: Sequence[CellResult]) -> str:
    """Returns the rule that left most answers of a test unread, an example, and what to do."""
    unread = [
        (score.rule, prediction.text)
        for result in results
        for score, prediction in zip(result.scores, result.predictions, strict=True)
        if score.state == "unparsed" and score.rule not in REFUSALS
    ]
    rule, count = Counter(rule for rule, _ in unread).most_common(1)[0]
    texts = [text for cause, text in unread if cause == rule]
    example = min(texts, key=lambda text: (len(text), text))
    cut = 2 * sum(len(text) >= _LONG and text.rstrip()[-1:].isalnum() for text in texts) > len(texts)
    cause = "cut" if cut and rule in ("none", "ambiguous") else rule
    advice = _advice(cause, (sample for result in results for sample in result.samples))
    shown = f", such as {on_one_line(example, _LONGEST_EXAMPLE)!r}" if example.strip() else ""
    return f"{MOST_OFTEN}{_in_words(rule)}, {count} of {len(unread)}{shown}. {advice}"


def _in_words(rule: str) -> str:
    """Returns how the reason of a budget names what left answers unread; the name ``none`` alone would say nothing."""
    return f"no rule found an answer in the text ({rule!r})" if rule == "none" else f"{rule!r}"


def _advice(rule: str, samples: Iterable[Sample]) -> str:
    """Returns advice for answers that a rule could not read; only questions with options are answered by letters."""
    letter = "letter alone, or --vlm-answer=letters" if any(sample.options for sample in samples) else "answer alone"
    return _ADVICE.get(rule, _ADVICE["none"]).format(letter=letter)


def failure_measures(budgets: Budgets, results: Sequence[CellResult]) -> list[Measure]:
    """Returns measures that say why a test has too few answers: none was needed, none came, or one failed where none may."""
    requested, failed = sum(result.n_requested for result in results), sum(result.count("error") for result in results)
    verdicts = budgets.judge_failures(n_requested=requested, n_errors=failed)
    error = commonest_error(results)
    because = f"; most often: {error}" if error else ""
    return [
        Measure.judged(
            verdict,
            failed / requested if verdict.metric else float("nan"),
            n=requested if verdict.metric else 0,
            reason=verdict.reason + because,
        )
        for verdict in verdicts
    ]


def budget_measures(policy: Policy, results: Sequence[CellResult], today: date, *, excused: str = "") -> list[Measure]:
    """Judges the failed, unreadable and refused answers of a cell; only a budget that is shown to be broken has a measure.

    ``results`` are the cell and the attempts that it is compared with. ``excused`` says why the model is not shown to do its
    task: unreadable answers are then part of not doing it. Answers about patches after a right one do not count.
    """
    measures = failure_measures(policy.budgets, results)
    if measures and measures[0].metric != "error_rate":
        return measures
    answers, clusters = _Answers.of(map(_scores, results)), _clusters(results[0].samples)
    for share in filter(None, (answers.share(metric, clusters) for metric in _metrics(policy.budgets))):
        estimate, verdict = share.judge(policy.budgets, JudgedBy.INTERVAL, today, policy.sharing_budget(BUDGET_CELLS))
        if verdict.outcome not in (Outcome.FAIL, Outcome.ERROR):
            continue
        measure = _measure(verdict, estimate)
        if excused and verdict.outcome is Outcome.FAIL:  # the model is not shown to do the task at all
            measure = replace(measure, outcome=Outcome.MEASURED, rule="", bound="", reason=f"{measure.reason}; {excused}")
        if share.metric == "unparsed_rate":
            measure = replace(measure, reason=f"{measure.reason}; {why_unread(results)}")
        error = commonest_error(results) if verdict.outcome is Outcome.ERROR else ""
        measures.append(replace(measure, reason=f"{measure.reason}; most often: {error}") if error else measure)
    return measures


def too_many_unread(policy: Policy, results: Sequence[CellResult], today: date) -> str:
    """Returns that more of these answers were unreadable, or refused, than the policy lets a test have; else an empty text."""
    if not any(result.count("unparsed") for result in results):
        return ""
    return next((measure.reason for measure in budget_measures(policy, results, today) if measure.outcome is Outcome.FAIL), "")


def _scores(result: CellResult) -> StoredScores:
    return StoredScores(
        result.cell,
        result.views,
        tuple(place for place in range(len(result.samples)) for _ in range(result.views)),
        result.keys or ("",) * len(result.scores),
        tuple(score.value for score in result.scores),
        tuple(score.state for score in result.scores),
        tuple(score.rule for score in result.scores),
    )


def blind_unparsed(result: CellResult) -> list[Measure]:
    """Returns the share of unreadable answers without images, which count as guesses; empty if all are readable."""
    if not result.n_guessed:
        return []
    (reason,) = said_of_guesses([result])
    texts = result.n_requested - result.count("error")
    return [Measure(BLIND_UNPARSED, result.n_guessed / texts, n=texts, unit="%", reason=reason)]


# All answers of a model about a dataset.


def budget_records(
    evidence: Evidence,
    policies: Mapping[str, Policy],
    datasets: Collection[str],
    today: date,
    why_task_not_shown: Callable[[str, str], str],
    *,
    tested: Collection[Cell],
) -> list[Record]:
    """Judges the budgets over all cells of each model on each dataset, and in each cell that is not tested by itself.

    Kept budgets have no record.
    """
    cells: dict[tuple[str, str], list[StoredScores]] = {}
    records = []
    for cell in evidence.cells():
        if cell.model in policies and cell.dataset in datasets:
            cells.setdefault((cell.model, cell.dataset), []).append(evidence.cell_scores(cell))
    for (model, dataset), scores in cells.items():
        policy = policies[model]
        answers, clusters = _Answers.of(scores), _clusters(evidence.samples(dataset))
        untested = [each for each in scores if each.cell not in tested]
        tests = policy.sharing_budget(BUDGET_DATASETS) * (2 if untested else 1)
        measures = _dataset_measures(policy, answers, clusters, today, tests)
        measures += _untested_measures(policy, untested, clusters, today, tests)
        if measures and any(measure.metric != "error_rate" for measure in measures) and why_task_not_shown(model, dataset):
            measures = [measure for measure in measures if measure.metric == "error_rate"]  # it is part of not doing the task
        if not measures:
            continue
        unread = answers.unread_rules.most_common(1)
        if unread and measures[0].metric == "unparsed_rate":
            ((rule, count),) = unread
            advice = _advice(rule, evidence.samples(dataset))
            measures[0] = replace(
                measures[0], reason=f"{measures[0].reason}; {MOST_OFTEN}{_in_words(rule)}, {count} of them. {advice}"
            )
        worst = min(measures, key=lambda measure: WORST_FIRST.index(measure.outcome))
        record = Record(
            test=BUDGET,
            id=f"{model}-{dataset}",
            model=model,
            dataset=dataset,
            outcome=worst.outcome,
            reason=worst.reason,
            n=int((~answers.failed).sum()),
            n_requested=answers.failed.size,
            n_unparsed=int(answers.unparsed.sum()),
            n_refused=int(answers.refused.sum()),
            n_errors=int(answers.failed.sum()),
            measures=tuple(measures),
            policy_sha256=policy.sha256,
        )
        records.append(record)
    return records


def _dataset_measures(policy: Policy, answers: _Answers, clusters: Clusters, today: date, tests: int) -> list[Measure]:
    """Returns the budgets that are not shown to be kept; that no failed answer is allowed, each test says itself."""
    budgets, by = policy.budgets, JudgedBy.POINT if policy.judges_values else JudgedBy.INTERVAL
    shares = filter(None, (answers.share(metric, clusters) for metric in _metrics(budgets)))
    judged = [share.judge(budgets, by, today, tests) for share in shares]
    # An undecided built-in budget is reported, but not in every small run whose answers were all read.
    said = [verdict.outcome is not Outcome.MEASURED or estimate.value > 0.0 for estimate, verdict in judged]
    kept = [pair for pair, is_said in zip(judged, said, strict=True) if is_said and pair[1].outcome is not Outcome.PASS]
    return [_measure(verdict, estimate) for estimate, verdict in kept]


def _untested_measures(
    policy: Policy, cells: Sequence[StoredScores], clusters: Clusters, today: date, tests: int
) -> list[Measure]:
    """Returns the budgets that are shown to be broken in cells without a test of their own, each by its worst cell."""
    worst: dict[str, Measure] = {}
    for scores in cells:
        if {"unparsed", "error"}.isdisjoint(scores.states):
            continue
        answers = _Answers.of([scores])
        for share in filter(None, (answers.share(metric, clusters) for metric in _metrics(policy.budgets))):
            estimate, verdict = share.judge(policy.budgets, JudgedBy.INTERVAL, today, tests * len(cells))
            if verdict.outcome not in (Outcome.FAIL, Outcome.ERROR):
                continue
            if share.metric not in worst or estimate.value > worst[share.metric].value:
                measure = _measure(verdict, estimate)
                worst[share.metric] = replace(measure, reason=f"{scores.cell.setting}: {measure.reason}")
    return [*worst.values()]


def _metrics(budgets: Budgets) -> list[str]:
    """Returns what the budgets limit; that no inference may fail, each test says itself."""
    return ["unparsed_rate", "refusal_rate", *(["error_rate"] if budgets.max_error_rate > 0.0 else [])]
