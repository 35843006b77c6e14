"""Judging: from the answers of a cell or a sweep to a Record with its verdict."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any, Protocol

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.cell import (
    CLEAN,
    CLEAN_NAME,
    NO_IMAGE,
    NO_IMAGE_NAME,
    Cell,
    FamilyMetric,
    Planned,
    Setting,
    SweepMetric,
)
from pytest_vlmrobust.core.decision import NOT_SHOWN, WARNING, WORST_FIRST, Outcome, Verdict
from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.core.record import FAMILY, Measure, Record
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.core.words import on_one_line
from pytest_vlmrobust.core.words import quantity as counted
from pytest_vlmrobust.evaluation.judge.strata import SUITE
from pytest_vlmrobust.evaluation.run.answers import Measured
from pytest_vlmrobust.evaluation.run.chains import chains_by_change, chains_by_outcome
from pytest_vlmrobust.evaluation.run.data import StoredTasks, TaskData
from pytest_vlmrobust.evaluation.run.evidence import examples
from pytest_vlmrobust.evaluation.run.families import DIRECT, Family
from pytest_vlmrobust.evaluation.run.resolutions import LADDER_FAMILY, collapsed_rungs, received, same_pictures
from pytest_vlmrobust.evaluation.run.results import (
    CellResult,
    positions,
    reads_blind,
    said_of_guesses,
    said_of_letters,
    savings,
)
from pytest_vlmrobust.metrics.completeness import arrays_read
from pytest_vlmrobust.metrics.table import ScoreTable
from pytest_vlmrobust.policies import JudgedTest, Policy

from . import canaries, observatory
from .baseline import (
    Baseline,
    answered_by,
    baseline_scores,
    changed_samples,
    refuse_unlike_answers,
    why_not_compared,
)
from .budgets import blind_unparsed, budget_measures, failure_measures
from .context import (
    Asked,
    CellScores,
    FamilyScores,
    PlannedTest,
    SweepScores,
)
from .measurements import applying, estimate_all, judged_test, judged_tests, with_kept_labels
from .reads import (
    BASELINES,
    Reads,
    attempts_of,
    family_and_level,
    groups_of,
    reads_of,
    small_categories,
    sweep_table,
    why_no_categories,
)
from .strata import estimates_by_stratum, rows_of

_WORST = 5
LADDER_METRIC = "absolute_continuous_error"
"""Beside which it is said, once for a dataset, where the resolution does not reach a model: it is small then."""


class EarlyVerdicts(Protocol):
    """The verdicts so far of a test of which a part of the samples was asked about."""

    @property
    def whole(self) -> Measured:
        """The answers about all samples, asked for on demand."""
        ...

    def verdicts(self, policy: Policy, test: JudgedTest, estimate: Estimate) -> Mapping[str, Verdict]:
        """Returns the verdicts of those rules that are decided, by rule."""
        ...


@dataclass(frozen=True, slots=True)
class Judge:
    """Judges what an evaluator measures, by the policy of each model.

    ``reference`` names the model whose errors normalise the mean corruption error; ``None`` is the same model without images.
    """

    evaluator: Measured
    policies: Mapping[str, Policy]
    today: date
    reference: str | None = None
    confidence: float = 0.90
    data: TaskData = field(default_factory=StoredTasks)
    """The datasets that tasks make of collections."""
    families: Mapping[str, Family] = field(default_factory=dict)
    baseline: Baseline | None = None
    """The earlier run that cells are compared with."""
    attempts: bool = False
    """Whether patches are compared with as many attempts at the whole picture even if no rule asks for it."""
    early: EarlyVerdicts | None = None
    """What decides where ``evaluator`` has a part of the samples; ``None`` where it has all of them."""
    refusals: dict[tuple[str, str], str] = field(default_factory=dict, repr=False, compare=False)
    """By model and dataset, why a task is not shown to be done: told once."""

    def cell(self, cell: Cell) -> Record:
        """Evaluates a cell and judges it.

        Raises:
            InfrastructureError: nothing could be measured.
        """
        before = self.counts()
        family, level = family_and_level(cell.setting)
        about: dict[str, Any] = {"test": "cell", "setting": str(cell.setting), "family": family, "level": level}
        refusal = self.why_task_not_shown(cell.model, cell.dataset)
        if self.why_nothing_asked(cell.dataset) or (refusal and cell.setting not in (CLEAN, NO_IMAGE)):
            return self._record(cell, self._refused_measures(cell, refusal), (), before, not_asked=refusal, **about)
        scores = self._cell_scores(cell)
        result, attempts = scores.result, [] if scores.tried is None else [scores.tried]
        measures = [*self._judge_estimates(scores.test, estimate_all(scores.test, scores)), *self._category_measures(scores)]
        measures += budget_measures(self.policies[cell.model], [result, *attempts], self.today, excused=refusal)
        measures += [*blind_unparsed(result), *self._canaries(scores)]
        since = changed_samples(self.baseline, cell, self.evaluator, result.values) if self.baseline else None
        return self._record(
            cell,
            measures,
            [result],
            before,
            broken=since.broken if since else (),
            fixed=since.fixed if since else (),
            n=result.n_requested - result.count("error"),
            seconds=result.seconds,
            categories=mean_by_category(result),
            chains={} if self.evaluator.models[cell.model].prompt_mode == DIRECT else chains_by_outcome(result),
            worst=_newly_wrong(scores),
            positions=positions(result),
            received=received(result) if LADDER_FAMILY in family.split("+") else "",
            notes=(
                *undone_steps(result),
                *rci_bands(measures, cell.setting),
                *savings(result),
                *said_of_letters(result),
                *(attempts_note(tried) for tried in attempts),
                *self._task_notes(result),
                *self._guess_notes(cell, measures),
                *(self.baseline.left_out(cell.dataset, self.evaluator) if self.baseline and self.baseline.has_cell(cell) else ()),
            ),
            examples=examples(scores.clean, result, self.evaluator.album),
            **about,
        )

    def sweep(self, sweep: SweepMetric, settings: Sequence[Setting]) -> Record:
        """Computes a summary metric over ``settings`` and judges it; evaluates whatever it needs.

        Raises:
            InfrastructureError: a cell that it needs could not be measured.
        """
        before = self.counts()
        if lacking := self.why_nothing_asked(sweep.dataset):
            return self._unasked_record("sweep", sweep, lacking)
        people = observatory.groupings(self.evaluator.samples(sweep.dataset)) if self._is_task(sweep.dataset) else {}
        needs = set(metrics.get(sweep.metric).needs)
        reads = reads_of(sweep, settings, self.evaluator.models, self.data, self.reference)
        refusal = "" if set(reads.settings) <= {*BASELINES} else self.why_sweep_not_asked(sweep)
        if refusal:
            n = len(self.evaluator.samples(sweep.dataset))
            estimate, more = Estimate(float("nan"), n, valid=False, reason=refusal), []
            gaps: tuple[str, ...] = ()
            read: list[str] = []
            by_grouping = observatory.grouping_measures(sweep.metric, people, None, None, refusal)
            scores = None
            used: Sequence[Setting] = BASELINES
        else:
            table = self._sweep_table(reads, needs)
            used = self._settings_read(sweep, reads, table)
            table, samples, read = self._on_common(sweep.dataset, needs, table)
            read.append(small_categories(needs, self._whole.samples(sweep.dataset)))
            about = metrics.get(sweep.metric)
            if about.label_preserving:
                table, samples, changed = with_kept_labels(table, samples)
                read += [changed, about.note(table) if about.note and table.samples else ""]
            refusal = observatory.why_not_offered(sweep.metric, table) or self._why_flat(sweep, used)
            refusal = refusal or ("" if table.samples else "the settings change the answer of every sample")
            scores = SweepScores(table, samples, self.confidence, intervals=self.early is None)
            test = PlannedTest(sweep, Asked(self.tasks.get(sweep.dataset, ""), samples=scores.samples))
            estimates = estimate_all(test, scores)
            estimate = estimates.pop(sweep.metric)
            unfit = refusal or why_not_compared(sweep.metric, table)
            estimate = dataclasses.replace(estimate, valid=False, reason=unfit) if unfit else estimate
            more = [] if unfit else [*self._judge_estimates(test, estimates), *self._stratum_measures(test, scores)]
            read = [] if unfit else read
            by_grouping = observatory.grouping_measures(sweep.metric, people, table, scores.level)
            gaps = observatory.compared_means(sweep.metric, table)
            gaps += observatory.grouping_notes(people, table) if by_grouping else ()
        results = [self.evaluator.result(Cell(sweep.model, sweep.dataset, setting)) for setting in used]
        by_stratum = {measure.category: measure.value for measure in more if measure.category}
        notes = (*collapsed_rungs(results), *gaps, *filter(None, read), *said_of_guesses(results))
        more = [*more, *by_grouping]
        if sweep.metric == LADDER_METRIC and not self._is_task(sweep.dataset):
            more += canaries.warnings_about_rungs(sweep.model, results)
        changes = {} if refusal else self._chains_by_change(reads)
        facts = {"notes": notes, "not_asked": refusal, "categories": by_stratum, "chains": changes}
        if scores is not None and self._is_task(sweep.dataset) and not refusal and self.early is None:
            facts["parts"] = observatory.parts(sweep.metric, scores.table, results, people)
        return self.summary("sweep", sweep, estimate, results, before, more=more, **facts)

    def _chains_by_change(self, reads: Reads) -> dict[str, float]:
        """Returns the lengths of chains of thought by what they change, where a model is compared with itself without them."""
        base = {cell.setting: cell for cell in reads.by_need.get(metrics.Needs.BASE_BY_SETTING, ())}
        if not base or self.early is not None:
            return {}
        thinking = [cell for cell in reads.by_need[metrics.Needs.PERTURBED_BY_SETTING] if cell.setting != NO_IMAGE]
        before, after = (
            [self.evaluator.result(cell) for cell in cells] for cells in ([base[cell.setting] for cell in thinking], thinking)
        )
        return chains_by_change(before, after)

    def family(self, about: FamilyMetric, settings: Sequence[Setting]) -> Record:
        """Computes a property of a family of models over ``settings`` and judges it by the policy of the largest one.

        Raises:
            InfrastructureError: a cell that it needs could not be measured.
        """
        before = self.counts()
        if lacking := self.why_nothing_asked(about.dataset):
            return self._unasked_record(FAMILY, about, lacking)
        family = self.families[about.family]
        self._refuse_unlike_answers(family.members, about.dataset)
        refusals = [self.why_task_not_shown(name, about.dataset) for name in family.members]
        asked = BASELINES if all(refusals) else settings
        results = [[self.evaluator.result(Cell(name, about.dataset, s)) for s in asked] for name in family.members]
        every = [result for own in results for result in own]
        groups = groups_of(self.evaluator.samples(about.dataset))
        if all(refusals):
            refusal = f"no model of the family is shown to do the task, not even {family.largest}: {refusals[-1]}"
            nothing = Estimate(float("nan"), len(groups), valid=False, reason=refusal)
            return self.summary(FAMILY, about, nothing, every, before, not_asked=refusal)
        scores = observatory.means([[result.values for result in own] for own in results])
        test = PlannedTest(about, Asked(self.tasks.get(about.dataset, "")))
        estimate = estimate_all(test, FamilyScores(family.parameters, scores, groups, self.confidence))[about.metric]
        notes = (observatory.members_note(about, family, scores),)
        return self.summary(FAMILY, about, estimate, every, before, notes=notes)

    def _unasked_record(self, test: str, about: SweepMetric | FamilyMetric, why: str) -> Record:
        """Returns the record of a summary metric over a dataset that asks nothing."""
        nothing = Estimate(float("nan"), 0, valid=False, reason=why)
        measure = self._measure(about.model, JudgedTest(about.model, about.dataset, about.metric, about.split), nothing)
        facts = {"test": test, "metric": about.metric, "split": about.split, "not_asked": why}
        return self._record(about, [measure], (), self.counts(), **facts)

    def summary(
        self,
        test: str,
        about: SweepMetric | FamilyMetric,
        estimate: Estimate,
        results: Sequence[CellResult],
        before: tuple[int, int],
        *,
        more: Sequence[Measure] = (),
        **facts: Any,
    ) -> Record:
        """Returns the record of a summary metric: its estimate judged, with the failed inferences that it rests on."""
        judged = JudgedTest(about.model, about.dataset, about.metric, about.split)
        failures = failure_measures(self.policies[about.model].budgets, results)
        measures = [self._measure(about.model, judged, estimate), *more, *failures]
        record = self._record(
            about, measures, results, before, test=test, metric=about.metric, split=about.split, n=estimate.n, **facts
        )
        return dataclasses.replace(record, reason=record.reason or estimate.reason)

    def _record(
        self, about: Planned, measures: Sequence[Measure], results: Sequence[CellResult], before: tuple[int, int], **facts: Any
    ) -> Record:
        """Returns the record of a test: what was measured, the worst verdict, and how many answers it took."""
        verdict = decisive(measures)
        unasked = facts.get("not_asked") and verdict.outcome is Outcome.MEASURED
        failed = verdict.outcome is Outcome.ERROR
        inferred, recalled = self.counts()
        return Record(
            id=str(about),
            model=about.model,
            dataset=about.dataset,
            task=self.tasks.get(about.dataset, ""),
            outcome=Outcome.NOT_APPLICABLE if unasked else verdict.outcome,
            reason=on_one_line(verdict.reason if verdict.rule or failed else facts.get("not_asked") or verdict.reason),
            n_requested=sum(result.n_requested for result in results),
            n_unparsed=sum(result.n_unparsed for result in results),
            n_refused=sum(result.n_refused for result in results),
            n_guessed=sum(result.n_guessed for result in results),
            n_errors=sum(result.count("error") for result in results),
            n_inferred=inferred - before[0],
            n_recalled=recalled - before[1],
            measures=tuple(measures),
            policy_sha256=self.policies[about.model].sha256,
            **facts,
        )

    def counts(self) -> tuple[int, int]:
        """Returns how many answers came from a model so far, and how many from a store."""
        return self.evaluator.inferred, self.evaluator.recalled

    def _cell_scores(self, cell: Cell) -> CellScores:
        """Returns the scores of a cell, with those of the attempts that it is compared with, if any."""
        result = self.evaluator.result(cell)
        task = self.tasks.get(cell.dataset, "")
        tried = None if task else attempts_of(cell, self.policies[cell.model], always=self.attempts)
        attempts = None if tried is None else self.evaluator.result(tried)
        asked = Asked(task, self.evaluator.corpus_metric(cell.dataset), result.samples)
        test = PlannedTest(cell, asked, baseline=self.baseline is not None, attempts=attempts is not None)
        return CellScores(self.evaluator, test, result, self.confidence, attempts, self.baseline, intervals=self.early is None)

    def _canaries(self, scores: CellScores) -> list[Measure]:
        """Returns what says whether a model looks at its pictures; tasks, which have floors, are left out."""
        if self._is_task(scores.cell.dataset):
            return []
        if scores.cell.setting not in (CLEAN, NO_IMAGE) or not any(sample.images for sample in scores.samples):
            return []
        gain = canaries.gain_over_blind(scores.table, self.confidence)
        if scores.cell.setting == CLEAN:
            return [gain, *canaries.measures_beside_clean(self.evaluator, scores.result)]
        return [gain, *canaries.warnings_beside(scores.result, scores.clean)]

    def _judge_estimates(self, test: PlannedTest, estimates: Mapping[str, Estimate]) -> list[Measure]:
        """Judges the estimates of a test."""
        return [self._measure(test.planned.model, judged_test(test, name), estimate) for name, estimate in estimates.items()]

    def _category_measures(self, scores: CellScores) -> list[Measure]:
        """Judges the categories of a cell that a rule of the policy is about."""
        policy = self.policies[scores.cell.model]
        ruled = any(rule.where.category for rule in policy.rules)
        categories = sorted({sample.category for sample in scores.samples} - {""}) if ruled else []
        measures = []
        for category in categories:
            part = scores.category(category)
            for quantity in applying(part.test):
                test = judged_test(part.test, quantity.name, category, len(categories))
                if not quantity.by_category or not any(rule.applies(test) for rule in policy.rules):
                    continue
                if (estimate := quantity.estimate(part)) is not None:
                    measure = self._measure(scores.cell.model, test, estimate)
                    measures.append(dataclasses.replace(measure, category=category))
        return measures

    def _refused_measures(self, cell: Cell, why: str) -> list[Measure]:
        """Returns the measures of a cell that is not asked, because the model is not shown to do its task."""
        asked = Asked.of(self.evaluator, cell.dataset, self.tasks.get(cell.dataset, ""))
        tests = judged_tests(cell, asked, baseline=self.baseline is not None)
        estimate = Estimate(float("nan"), 0, valid=False, reason=why)
        return [self._measure(cell.model, test, estimate) for test in tests] + self._baseline_failures(cell)

    @property
    def tasks(self) -> Mapping[str, str]:
        """What is asked in each dataset that a task makes of a collection, by its name."""
        return self.data.tasks

    def _is_task(self, dataset: str) -> bool:
        return dataset in self.tasks

    def why_nothing_asked(self, dataset: str) -> str:
        """Returns what a collection lacks, so that a task asks nothing of it."""
        return self.data.lacking(dataset)

    def why_task_not_shown(self, model: str, dataset: str) -> str:
        """Returns why a model is not shown to do a task on unchanged pictures; it is then not asked about changed ones."""
        if not self._is_task(dataset):
            return ""
        if (model, dataset) not in self.refusals:
            why = self.why_nothing_asked(dataset) or observatory.why_task_not_shown(self._whole, model, dataset)
            self.refusals[model, dataset] = why
        return self.refusals[model, dataset]

    def why_sweep_not_asked(self, sweep: SweepMetric) -> str:
        """Returns why a summary metric is not asked about: its task is not shown to be done, or it has nothing to compare."""
        why = self.why_task_not_shown(sweep.model, sweep.dataset)
        return why or why_no_categories(metrics.get(sweep.metric).needs, self._whole.samples(sweep.dataset))

    @property
    def _whole(self) -> Measured:
        return self.early.whole if self.early else self.evaluator

    def _baseline_failures(self, cell: Cell) -> list[Measure]:
        """Returns the broken budget of failed inferences on original pictures, or without any.

        Whether the model does the task is then unknown: its inferences failed.
        """
        settings = () if self.why_nothing_asked(cell.dataset) else BASELINES
        for result in (self.evaluator.result(Cell(cell.model, cell.dataset, setting)) for setting in settings):
            broken = failure_measures(self.policies[cell.model].budgets, [result])
            if failed := [measure for measure in broken if measure.outcome is Outcome.ERROR]:
                return [dataclasses.replace(measure, reason=f"{result.cell}: {measure.reason}") for measure in failed]
        return []

    def _task_notes(self, result: CellResult) -> tuple[str, ...]:
        if not self._is_task(result.cell.dataset):
            return ()
        model = result.cell.model
        return observatory.notes(model, self.evaluator.models[model].box_convention, result)

    def _guess_notes(self, cell: Cell, measures: Sequence[Measure]) -> tuple[str, ...]:
        """Returns how many answers without pictures count as guesses, if a measure of the cell compares with them."""
        if cell.setting != NO_IMAGE and not reads_blind([measure.metric for measure in measures]):
            return ()
        return said_of_guesses([self.evaluator.result(Cell(cell.model, cell.dataset, NO_IMAGE))])

    def _settings_read(self, sweep: SweepMetric, reads: Reads, table: ScoreTable) -> list[Setting]:
        """Returns the settings whose answers a summary metric is computed from."""
        metric = metrics.get(sweep.metric)
        read = set(arrays_read(metric, table, None))
        if self._is_task(sweep.dataset):  # whether it is done at all comes first
            read |= {CLEAN_NAME, NO_IMAGE_NAME}
        if metrics.Needs.REFERENCE_BY_SETTING in metric.needs and self.reference is None:
            read.add(NO_IMAGE_NAME)
        return [setting for setting in dict.fromkeys((*BASELINES, *reads.settings)) if str(setting) in read]

    def _sweep_table(self, reads: Reads, needs: set[metrics.Needs]) -> ScoreTable:
        """Returns the scores that a summary metric is computed from; refuses models that answered otherwise."""
        sweep = reads.planned
        table = sweep_table(
            reads, self.evaluator, is_task=self._is_task(sweep.dataset), everything=self._whole.samples(sweep.dataset)
        )
        for need in (metrics.Needs.BASE_BY_SETTING, metrics.Needs.REFERENCE_BY_SETTING):
            if others := reads.by_need.get(need):
                self._refuse_unlike_answers((sweep.model, others[0].model), sweep.dataset)
        if metrics.Needs.BASELINE_BY_SETTING in needs and self.baseline is not None:
            if reads.settings:  # one cell says it for all: a model answers by one method
                result = self.evaluator.result(Cell(sweep.model, sweep.dataset, reads.settings[0]))
                self.baseline.refuse_answers(result.cell, answered_by(result.samples, result.predictions, result.views))
            scores = baseline_scores(self.baseline, sweep.model, sweep.dataset, self.evaluator, table)
            table = dataclasses.replace(table, baseline_by_setting=scores)
        return table

    def _on_common(
        self, dataset: str, needs: set[metrics.Needs], table: ScoreTable
    ) -> tuple[ScoreTable, Sequence[Sample], list[str]]:
        """Returns the scores and samples that a summary metric is about, and what a comparison with the baseline leaves out."""
        samples = self.evaluator.samples(dataset)
        if metrics.Needs.BASELINE_BY_SETTING not in needs or self.baseline is None:
            return table, samples, []
        kept = self.baseline.kept(dataset, self.evaluator)
        both = [sample for sample, own in zip(samples, kept, strict=True) if own]
        return rows_of(table, kept), both, [*self.baseline.left_out(dataset, self.evaluator)]

    def _refuse_unlike_answers(self, models: Iterable[str], dataset: str) -> None:
        """Refuses to compare models that did not all answer by one method, letters or text.

        Raises:
            DatasetError: they did not.
        """
        clean = {name: self.evaluator.result(Cell(name, dataset, CLEAN)) for name in models}
        ways = {name: answered_by(one.samples, one.predictions, one.views) for name, one in clean.items()}
        refuse_unlike_answers(ways, dataset)

    def _why_flat(self, sweep: SweepMetric, used: Sequence[Setting]) -> str:
        """Returns why a curve over resolutions is invalid: all its rungs showed the same picture of each sample."""
        if metrics.get(sweep.metric).suite != SUITE:
            return ""
        return same_pictures([self.evaluator.result(Cell(sweep.model, sweep.dataset, setting)) for setting in used])

    def _stratum_measures(self, test: PlannedTest, scores: SweepScores) -> list[Measure]:
        """Judges a summary metric of the curve over resolutions for each category and sub-task."""
        measures = []
        for quantity in (quantity for quantity in applying(test) if quantity.by_category):
            by_stratum = estimates_by_stratum(quantity.name, scores.table, scores.samples, self.confidence)
            for name, estimate in by_stratum.items():
                judged = judged_test(test, quantity.name, name, len(by_stratum))
                measures.append(dataclasses.replace(self._measure(test.planned.model, judged, estimate), category=name))
        return measures

    def _measure(self, model: str, test: JudgedTest, estimate: Estimate) -> Measure:
        policy = self.policies[model]
        decided = self.early.verdicts(policy, test, estimate) if self.early else None
        measure = policy.measure(test, estimate, today=self.today, decided=decided)
        if (
            measure.outcome is Outcome.PASS
            and self._is_task(test.dataset)
            and (why := observatory.why_pictures_not_needed(self._whole, test))
        ):
            return self._measure(model, test, dataclasses.replace(estimate, valid=False, reason=why))
        undefined = float("nan")  # a number that does not apply is not shown as one, nor an interval that ignores an early stop
        measure = dataclasses.replace(measure, low=undefined, high=undefined) if self.early else measure
        return measure if estimate.valid else dataclasses.replace(measure, value=undefined, low=undefined, high=undefined)


def attempts_note(result: CellResult) -> str:
    """Returns a note on how many samples are right in some attempts and wrong in others."""
    count = len(result.samples)
    if result.n_unasked:
        return f"{result.cell.setting}: attempts after a right one were not asked for, so it is unknown how much they vary"
    if result.count("error"):
        return ""
    scores = result.by_view
    varied = int((scores.max(axis=1) != scores.min(axis=1)).sum())
    note = f"{result.cell.setting}: the score of {varied} of {count} samples differs between attempts at the whole picture"
    if varied:
        return note
    return f"{note}: pcri_matched equals pcri here, and may be below 0 only because answers to patches differ by luck"


def _newly_wrong(scores: CellScores) -> tuple[str, ...]:
    """Returns some samples that score less than on clean pictures."""
    if scores.cell.setting == CLEAN:
        return ()
    before, after = scores.clean.values, scores.result.values
    lost = [sample.id for sample, was, now in zip(scores.samples, before, after, strict=True) if now < was]
    return tuple(lost[:_WORST])


def decisive(measures: Sequence[Measure]) -> Measure:
    """Returns the measure with the worst outcome, the first of equals.

    Of those that are only measured, one that a rule warns of comes first, and one that no rule is about last.
    """
    return min(measures, key=_rank)


def _rank(measure: Measure) -> tuple[int, bool, bool]:
    only_measured = measure.outcome is Outcome.MEASURED
    unwarned = only_measured and not measure.reason.startswith((WARNING, NOT_SHOWN))
    return WORST_FIRST.index(measure.outcome), unwarned, only_measured and not measure.rule


def rci_bands(measures: Sequence[Measure], setting: Setting) -> tuple[str, ...]:
    """Returns the band of the Region Comprehension Index, if it was measured."""
    known = [
        measure.value
        for measure in measures
        if measure.metric == "rci" and not measure.category and not math.isnan(measure.value)
    ]
    return tuple(f"{setting}: an RCI of {value:.3f} is {metrics.rci_band(value)}" for value in known)


def undone_steps(result: CellResult) -> tuple[str, ...]:
    """Returns for each step that could not be applied: to how many samples, with an example."""
    by_step: dict[str, list[tuple[str, str]]] = {}
    for sample, notes in result.notes.items():
        for note in notes:
            by_step.setdefault(note.partition(": ")[0], []).append((sample, note))
    return tuple(
        f"{len(affected)} of {counted(len(result.samples), 'sample')}, such as {affected[0][0]}: {affected[0][1]}"
        for affected in by_step.values()
    )


def mean_by_category(result: CellResult) -> dict[str, float]:
    """Returns the mean score of each stratum, NaN where a score is missing."""
    import numpy as np

    names = np.array([sample.category for sample in result.samples])
    return {str(name): float(result.values[names == name].mean()) for name in dict.fromkeys(names.tolist())}
