"""Judging: from the answers of a cell or a sweep to a Record with its verdict."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING, Any

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
from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.core.record import FAMILY, Measure, Record
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.core.words import on_one_line
from pytest_vlmrobust.evaluation.run.data import TaskData
from pytest_vlmrobust.evaluation.run.evidence import examples
from pytest_vlmrobust.evaluation.run.resolutions import LADDER_FAMILY, collapsed_rungs, received, same_pictures
from pytest_vlmrobust.evaluation.run.results import (
    CellResult,
    best_is_enough,
    positions,
    reads_blind,
    said_of_guesses,
    savings,
    undefined,
)
from pytest_vlmrobust.metrics.completeness import arrays_read
from pytest_vlmrobust.metrics.table import ScoreTable
from pytest_vlmrobust.policies import JudgedTest, Policy

from . import observatory
from .answers import Measured, chances, score_table
from .baseline import Baseline, baseline_estimates, baseline_scores, changed, not_compared
from .corpus import whole_estimates
from .families import MACRO, SUITE, Family, estimates_by_stratum, macro_estimate, rows_of, twin
from .floor import floor
from .measurements import (
    LABEL_PRESERVING_DROP,
    Asked,
    bands,
    blind_unparsed,
    budget_measures,
    by_category,
    cell_metrics,
    decisive,
    family_and_level,
    gain_estimates,
    judged_tests,
    label_preserving,
    noted,
    unreadable_estimates,
)
from .required_cells import WITHOUT_SETTINGS, attempts_of, told_apart

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


_WORST = 5


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
    data: TaskData | None = None
    """Which data sets tasks make of collections, where the run has any."""
    families: Mapping[str, Family] = field(default_factory=dict)
    baseline: Baseline | None = None
    """An earlier run that cells are compared with."""
    attempts: bool = False
    """Whether patches are compared with as many attempts at the whole picture also where no rule asks for it."""

    def cell(self, cell: Cell) -> Record:
        """Evaluates a cell and judges it.

        Raises:
            InfrastructureError: nothing could be measured.
        """
        before = self._counts()
        family, level = family_and_level(cell.setting)
        about: dict[str, Any] = {"test": "cell", "setting": str(cell.setting), "family": family, "level": level}
        refusal = self._not_shown(cell.model, cell.dataset)
        if self._lacking(cell.dataset) or (refusal and cell.setting not in (CLEAN, NO_IMAGE)):
            estimate = Estimate(float("nan"), 0, valid=False, reason=refusal)
            asked = Asked.of(self.evaluator, cell.dataset, self._tasks.get(cell.dataset, ""))
            named = judged_tests(cell, asked, baseline=self.baseline is not None)
            measures = [self._measure(cell.model, test, estimate) for test in named] + self._baseline_failures(cell)
            return self._record(cell, measures, (), before, not_asked=refusal, **about)
        result = self.evaluator.result(cell)
        attempts = self._attempts(cell)
        measures = self._measures(cell, result, family, level)
        budgets, answered = self.policies[cell.model].budgets, [result, *attempts]
        measures += [*budget_measures(budgets, answered, excused=refusal), *blind_unparsed(result)]
        since = changed(self.baseline, cell, self.evaluator, result.values) if self.baseline else None
        return self._record(
            cell,
            measures,
            [result],
            before,
            broken=since.broken if since else (),
            fixed=since.fixed if since else (),
            n=result.n_requested - result.count("error"),
            seconds=result.seconds,
            categories=by_category(result),
            worst=self._newly_wrong(cell, result),
            positions=positions(result),
            received=received(result) if LADDER_FAMILY in family.split("+") else "",
            notes=(
                *noted(result),
                *bands(measures, cell.setting),
                *savings(result),
                *(told_apart(one) for one in attempts),
                *self._task_notes(result),
                *self._guess_notes(cell, measures),
            ),
            examples=examples(self._clean(cell), result, self.evaluator.album),
            **about,
        )

    def sweep(self, sweep: SweepMetric, settings: Sequence[Setting]) -> Record:
        """Computes a summary metric over ``settings`` and judges it; evaluates whatever it needs.

        Raises:
            InfrastructureError: a cell that it needs could not be measured.
        """
        before = self._counts()
        if lacking := self._lacking(sweep.dataset):
            return self._unasked("sweep", sweep, lacking)
        needs = set(metrics.get(sweep.metric).needs)
        baselines_suffice = needs <= WITHOUT_SETTINGS
        perturbed = [] if baselines_suffice else [s for s in settings if s not in (CLEAN, NO_IMAGE) or sweep.split]
        refusal = "" if all(s in (CLEAN, NO_IMAGE) for s in perturbed) else self._not_shown(sweep.model, sweep.dataset)
        asked = [] if refusal else perturbed
        if refusal:
            n = len(self.evaluator.samples(sweep.dataset))
            estimate, more = Estimate(float("nan"), n, valid=False, reason=refusal), []
            said: tuple[str, ...] = ()
            used: Sequence[Setting] = (CLEAN, NO_IMAGE)
        else:
            table = self._sweep_table(sweep, needs, asked)
            used = self._read(sweep, table, asked)
            refusal = observatory.not_offered(sweep.metric, table) or self._flat(sweep, used)
            estimate = metrics.estimate(sweep.metric, table, confidence=self.confidence)
            unfit = refusal or not_compared(sweep.metric, table)
            estimate = dataclasses.replace(estimate, valid=False, reason=unfit) if unfit else estimate
            more = [] if unfit else self._by_stratum(sweep, table)
            said = observatory.compared(sweep.metric, table)
        results = [self.evaluator.result(Cell(sweep.model, sweep.dataset, setting)) for setting in used]
        by_stratum = {one.category: one.value for one in more if one.category}
        notes = (*collapsed_rungs(results), *said, *said_of_guesses(results))
        return self._summary(
            "sweep", sweep, estimate, results, before, more=more, notes=notes, not_asked=refusal, categories=by_stratum
        )

    def family(self, about: FamilyMetric, settings: Sequence[Setting]) -> Record:
        """Computes a property of a family of models over ``settings`` and judges it by the policy of the largest one.

        Raises:
            InfrastructureError: a cell that it needs could not be measured.
        """
        before = self._counts()
        if lacking := self._lacking(about.dataset):
            return self._unasked(FAMILY, about, lacking)
        family = self.families[about.family]
        refusals = [self._not_shown(name, about.dataset) for name in family.members]
        asked = observatory.BASELINES if all(refusals) else settings
        results = [[self.evaluator.result(Cell(name, about.dataset, s)) for s in asked] for name in family.members]
        every = [result for own in results for result in own]
        groups = [sample.group or sample.id for sample in self.evaluator.samples(about.dataset)]
        if all(refusals):
            refusal = f"no model of the family is shown to do the task, not even {family.largest}: {refusals[-1]}"
            nothing = Estimate(float("nan"), len(groups), valid=False, reason=refusal)
            return self._summary(FAMILY, about, nothing, every, before, not_asked=refusal)
        scores = observatory.means([[result.values for result in own] for own in results])
        estimate = metrics.FAMILY_METRICS[about.metric].estimate(family.parameters, scores, groups, self.confidence)
        said = (observatory.members_note(about, family, scores),)
        return self._summary(FAMILY, about, estimate, every, before, notes=said)

    def _unasked(self, test: str, about: SweepMetric | FamilyMetric, why: str) -> Record:
        """Returns the record of a summary metric over a data set of which nothing is asked."""
        nothing = Estimate(float("nan"), 0, valid=False, reason=why)
        measure = self._measure(about.model, JudgedTest(about.model, about.dataset, about.metric, about.split), nothing)
        facts = {"test": test, "metric": about.metric, "split": about.split, "not_asked": why}
        return self._record(about, [measure], (), self._counts(), **facts)

    def _summary(
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
        judged = JudgedTest(about.model, about.dataset, about.metric, about.split)
        members = self.families[about.family].members if isinstance(about, FamilyMetric) else (about.model,)
        excused = next(filter(None, (self._not_shown(name, about.dataset) for name in members)), "")
        budgets = budget_measures(self.policies[about.model].budgets, results, excused=excused)
        measures = [self._measure(about.model, judged, estimate), *more, *budgets]
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
        inferred, recalled = self._counts()
        return Record(
            id=str(about),
            model=about.model,
            dataset=about.dataset,
            task=self._tasks.get(about.dataset, ""),
            outcome=Outcome.NOT_APPLICABLE if unasked else verdict.outcome,
            reason=on_one_line(verdict.reason if verdict.rule or failed else facts.get("not_asked") or verdict.reason),
            n_requested=sum(result.n_requested for result in results),
            n_unparsed=sum(result.n_unparsed for result in results),
            n_guessed=sum(result.n_guessed for result in results),
            n_errors=sum(result.count("error") for result in results),
            n_inferred=inferred - before[0],
            n_recalled=recalled - before[1],
            measures=tuple(measures),
            policy_sha256=self.policies[about.model].sha256,
            **facts,
        )

    def _counts(self) -> tuple[int, int]:
        return self.evaluator.inferred, self.evaluator.recalled

    def _measures(self, cell: Cell, result: CellResult, family: str, level: str) -> list[Measure]:
        table = self._cell_table(cell, result)
        estimates = [
            *self._cell_estimates(cell, table, result.samples),
            *whole_estimates(self.evaluator, cell, result, self.confidence),
            *gain_estimates(self.evaluator, result, self.confidence),
            *unreadable_estimates(self._clean(cell), result, self.confidence),
            *(observatory.extra_estimates(result) if self._is_task(cell.dataset) else ()),
            *(baseline_estimates(self.baseline, cell, table, self.evaluator, self.confidence) if self.baseline else ()),
        ]
        tests = [JudgedTest(cell.model, cell.dataset, name, str(cell.setting), family, level) for name, _ in estimates]
        measures = [self._measure(cell.model, test, estimate) for test, (_, estimate) in zip(tests, estimates, strict=True)]
        return measures + self._category_measures(cell, table, result, family, level)

    @property
    def _tasks(self) -> Mapping[str, str]:
        return {} if self.data is None else self.data.tasks

    def _is_task(self, dataset: str) -> bool:
        return dataset in self._tasks

    def _lacking(self, dataset: str) -> str:
        """Returns what a collection lacks, so that a task asks nothing of it."""
        return "" if self.data is None else self.data.lacking(dataset)

    def _not_shown(self, model: str, dataset: str) -> str:
        """Returns why a model is not shown to do a task on the pictures as they are: then nothing is asked of changed ones."""
        if not self._is_task(dataset):
            return ""
        return self._lacking(dataset) or observatory.not_shown(self.evaluator, model, dataset)

    def _baseline_failures(self, cell: Cell) -> list[Measure]:
        """Returns the broken budget of failed inferences on original pictures, or without any, on which what a task loses rests.

        Nothing is said about the model then: to blame is whatever made its inferences fail.
        """
        settings = () if self._lacking(cell.dataset) else observatory.BASELINES
        for result in (self.evaluator.result(Cell(cell.model, cell.dataset, setting)) for setting in settings):
            broken = budget_measures(self.policies[cell.model].budgets, [result])
            if failed := [one for one in broken if one.outcome is Outcome.ERROR]:
                return [dataclasses.replace(one, reason=f"{result.cell}: {one.reason}") for one in failed]
        return []

    def _task_notes(self, result: CellResult) -> tuple[str, ...]:
        if not self._is_task(result.cell.dataset):
            return ()
        model = result.cell.model
        return observatory.notes(model, self.evaluator.models[model].box_convention, result)

    def _guess_notes(self, cell: Cell, measures: Sequence[Measure]) -> tuple[str, ...]:
        """Returns how many answers without the pictures are guesses, where something of a cell is compared with them."""
        if cell.setting != NO_IMAGE and not reads_blind([measure.metric for measure in measures]):
            return ()
        return said_of_guesses([self.evaluator.result(Cell(cell.model, cell.dataset, NO_IMAGE))])

    def _read(self, sweep: SweepMetric, table: ScoreTable, asked: Sequence[Setting]) -> list[Setting]:
        """Returns the settings under which a model gave the answers that a summary metric of it is computed from."""
        metric = metrics.get(sweep.metric)
        read = set(arrays_read(metric, table, None))
        if self._is_task(sweep.dataset):  # whether it is done at all comes first
            read |= {CLEAN_NAME, NO_IMAGE_NAME}
        if metrics.Needs.REFERENCE_BY_SETTING in metric.needs and self.reference is None:
            read.add(NO_IMAGE_NAME)
        return [setting for setting in dict.fromkeys((CLEAN, NO_IMAGE, *asked)) if str(setting) in read]

    def _sweep_table(self, sweep: SweepMetric, needs: set[metrics.Needs], settings: Sequence[Setting]) -> ScoreTable:
        """Returns the scores that a summary metric is computed from, with those of a companion where it needs one."""
        table = score_table(self.evaluator, sweep.model, sweep.dataset, settings, reference=self.reference)
        added: dict[str, Any] = observatory.labels(self.evaluator.samples(sweep.dataset)) if self._is_task(sweep.dataset) else {}
        asked = dict.fromkeys((CLEAN, *settings))
        if metrics.Needs.UNHINTED_BY_SETTING in needs and self.data is not None:
            added["unhinted_by_setting"] = self._values(sweep.model, self.data.unhinted(sweep.dataset), asked)
        if metrics.Needs.BASE_BY_SETTING in needs:
            added["base_by_setting"] = self._values(twin(self.evaluator.models, sweep.model), sweep.dataset, asked)
        if metrics.Needs.BASELINE_BY_SETTING in needs and self.baseline is not None:
            scores = baseline_scores(self.baseline, sweep.model, sweep.dataset, self.evaluator, table)
            added["baseline_by_setting"] = scores
        if metrics.Needs.FLOORS in needs:
            added |= _floors(self.evaluator.samples(sweep.dataset))
        return dataclasses.replace(table, **added)

    def _flat(self, sweep: SweepMetric, used: Sequence[Setting]) -> str:
        """Returns why a curve over resolutions is none: its rungs showed one and the same picture of each sample."""
        if metrics.get(sweep.metric).suite != SUITE:
            return ""
        return same_pictures([self.evaluator.result(Cell(sweep.model, sweep.dataset, setting)) for setting in used])

    def _values(self, model: str, dataset: str, settings: Iterable[Setting]) -> dict[str, NDArray[np.float64]]:
        return {str(setting): self.evaluator.result(Cell(model, dataset, setting)).values for setting in settings}

    def _cell_table(self, cell: Cell, result: CellResult) -> ScoreTable:
        own = result.values
        clean = own if cell.setting == CLEAN else self._clean(cell).values
        blind = own if cell.setting == NO_IMAGE else self.evaluator.result(Cell(cell.model, cell.dataset, NO_IMAGE)).values
        more: dict[str, Any] = observatory.labels(result.samples) if self._is_task(cell.dataset) else {}
        if result.views > 1:
            more |= {"patches_by_setting": {str(cell.setting): result.attempts}, **_floors(result.samples)}
        for tried in self._attempts(cell):
            more["whole_attempts"] = tried.attempts
        return ScoreTable(
            clean=clean,
            by_setting={str(cell.setting): own},
            no_image=blind,
            groups=[s.group or s.id for s in result.samples],
            chances=chances(result.samples),
            **more,
        )

    def _attempts(self, cell: Cell) -> list[CellResult]:
        """Returns the attempts at the whole picture that a cell of patches is compared with, where any are asked for."""
        if self._is_task(cell.dataset):
            return []
        tried = attempts_of(cell, self.policies[cell.model], always=self.attempts)
        return [] if tried is None else [self.evaluator.result(tried)]

    def _cell_estimates(self, cell: Cell, table: ScoreTable, samples: Sequence[Sample]) -> list[tuple[str, Estimate]]:
        cut = self.evaluator.result(cell).n_unasked > 0
        found = [
            (
                name,
                undefined(len(samples))
                if cut and not best_is_enough(name)
                else metrics.estimate(name, table, setting=str(cell.setting), confidence=self.confidence),
            )
            for name in self._cell_metrics(cell, table)
        ]
        kept = label_preserving(cell.setting, samples)
        if not all(kept):
            found.append((LABEL_PRESERVING_DROP, self._preserved(table, str(cell.setting), kept)))
        return found

    def _cell_metrics(self, cell: Cell, table: ScoreTable) -> list[str]:
        """Returns the metrics of a cell; gaps between positions or people only where there are several."""
        task = self._tasks.get(cell.dataset, "")
        named = cell_metrics(cell.setting, task, attempts=table.whole_attempts is not None)
        if not self._is_task(cell.dataset):
            return named
        there = metrics.applicable(table, str(cell.setting), observatory.SUITE)
        return [name for name in named if name in there]

    def _by_stratum(self, sweep: SweepMetric, table: ScoreTable) -> list[Measure]:
        """Judges a metric of the curve over resolutions by category and sub-task, and on the mean curve of the categories."""
        if metrics.get(sweep.metric).suite != SUITE:
            return []
        samples = self.evaluator.samples(sweep.dataset)
        test = JudgedTest(sweep.model, sweep.dataset, sweep.metric)
        macro = macro_estimate(sweep.metric, table, samples)
        found = [self._measure(sweep.model, dataclasses.replace(test, metric=sweep.metric + MACRO), macro)] if macro else []
        parts = estimates_by_stratum(sweep.metric, table, samples, self.confidence)
        for name, estimate in parts.items():
            measure = self._measure(sweep.model, dataclasses.replace(test, category=name, strata=len(parts)), estimate)
            found.append(dataclasses.replace(measure, category=name))
        return found

    def _preserved(self, table: ScoreTable, setting: str, kept: Sequence[bool]) -> Estimate:
        """Returns the drop over the samples whose answer the setting leaves right."""
        if not any(kept):
            return Estimate(float("nan"), 0, valid=False, reason="the setting changes the answer of every sample")
        kept_ones = rows_of(table, kept)
        return metrics.estimate("accuracy_drop", kept_ones, setting=setting, confidence=self.confidence)

    def _category_measures(self, cell: Cell, table: ScoreTable, result: CellResult, family: str, level: str) -> list[Measure]:
        """Judges single categories where the policy has a rule about one."""
        policy = self.policies[cell.model]
        setting = str(cell.setting)
        by_category = any(rule.where.category for rule in policy.rules)
        categories = sorted({sample.category for sample in result.samples} - {""}) if by_category else []
        found = []
        for category in categories:
            chosen = [sample.category == category for sample in result.samples]
            samples = [sample for sample in result.samples if sample.category == category]
            part = rows_of(table, chosen)
            part = part if part.floors is None else dataclasses.replace(part, **_floors(samples))
            for name, estimate in self._cell_estimates(cell, part, samples):
                test = JudgedTest(cell.model, cell.dataset, name, setting, family, level, category, len(categories))
                if any(rule.applies(test) for rule in policy.rules):
                    found.append(dataclasses.replace(self._measure(cell.model, test, estimate), category=category))
        return found

    def _measure(self, model: str, test: JudgedTest, estimate: Estimate) -> Measure:
        measure = self.policies[model].measure(test, estimate, today=self.today)
        if measure.outcome is Outcome.PASS and self._is_task(test.dataset) and (why := observatory.unseen(self.evaluator, test)):
            return self._measure(model, test, dataclasses.replace(estimate, valid=False, reason=why))
        undefined = float("nan")  # a number that does not apply is not shown as one
        return measure if estimate.valid else dataclasses.replace(measure, value=undefined, low=undefined, high=undefined)

    def _clean(self, cell: Cell) -> CellResult:
        return self.evaluator.result(Cell(cell.model, cell.dataset, CLEAN))

    def _newly_wrong(self, cell: Cell, result: CellResult) -> tuple[str, ...]:
        if cell.setting == CLEAN:
            return ()
        clean = self._clean(cell).values
        lost = [sample.id for sample, before, after in zip(result.samples, clean, result.values, strict=True) if after < before]
        return tuple(lost[:_WORST])


def _floors(samples: Sequence[Sample]) -> dict[str, Any]:
    """Returns what samples give without looking, as fields of a table of scores."""
    found = floor(samples)
    return {"floors": found.scores, "floor_note": found.note}
