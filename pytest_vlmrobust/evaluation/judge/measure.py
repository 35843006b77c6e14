"""Measuring: from the answers of a test to its estimates and the notes of its record.

This module knows no bounds of rules and no verdicts.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.cell import (
    BASELINES,
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
from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.core.record import FAMILY, Measure, Record
from pytest_vlmrobust.core.sample import strata_by_kind
from pytest_vlmrobust.core.words import quantity as counted
from pytest_vlmrobust.evaluation.run.answers import Answers, AnswersOfChanged
from pytest_vlmrobust.evaluation.run.data import StoredTasks, TaskData
from pytest_vlmrobust.evaluation.run.evidence import examples
from pytest_vlmrobust.evaluation.run.plan import DIRECT, Family
from pytest_vlmrobust.evaluation.run.resolutions import LADDER_FAMILY, collapsed_rungs, received, same_pictures
from pytest_vlmrobust.evaluation.run.results import (
    CellResult,
    chains_by_change,
    chains_by_outcome,
    positions,
    reads_blind,
    said_of_guesses,
    said_of_letters,
    savings,
)
from pytest_vlmrobust.metrics.estimation import arrays_read
from pytest_vlmrobust.metrics.table import OF_ANSWERS, ScoreTable
from pytest_vlmrobust.policies import MetricKey, Rule

from . import canaries, observatory
from .baseline import Baseline, answered_by, baseline_scores, changed_samples, refuse_unlike_answers, why_not_compared
from .budgets import blind_unparsed
from .cell_quantities import with_choices, with_kept_labels, with_letters
from .context import OPTIONS, WORDING, CellScores, DatasetFacts, FamilyScores, PlannedTest, SweepScores
from .measurements import applying, estimate_all, metric_key, metric_keys, summary_key
from .reads import AttemptsOf, Reads, family_and_level, groups_of, reads_of, small_categories, sweep_table, why_no_categories
from .strata import SUITE, estimates_by_stratum, rows_of

_WORST = 5
LADDER_METRIC = "absolute_continuous_error"
"""The metric that carries the warning, once per dataset, that the resolution does not reach a model."""


@dataclass(frozen=True, slots=True)
class Sources:
    """The data of a run's tests: the answers, and what they are compared with."""

    answers: Answers
    """Answers to all samples or a part of them."""
    reference: str | None = None
    """The model whose errors normalise the mean corruption error; ``None``: the same model without images."""
    data: TaskData = field(default_factory=StoredTasks)
    families: Mapping[str, Family] = field(default_factory=dict)
    baseline: Baseline | None = None
    """The earlier run that cells are compared with."""
    attempts_of: AttemptsOf = lambda _cell: None
    rules_of_strata: Callable[[str], Sequence[Rule]] = lambda _model: ()
    """The rules for a model that are about categories or slices; others are not estimated."""
    names: frozenset[str] | None = None
    """The quantities to measure; ``None`` for all. A summary metric is always measured."""
    all_answers: Answers | None = None
    """The answers to all samples, if ``answers`` has only a part."""
    refusals: dict[tuple[str, str], str] = field(default_factory=dict, repr=False, compare=False)
    """By model and dataset, why a task is not shown to be done."""
    fingerprints: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict, repr=False, compare=False)
    """By model and dataset: the fingerprints that decide the order of samples."""
    of_all: Sources | None = None
    """The sources of all questions, if these have only the questions that the settings of a test change."""

    @property
    def is_part(self) -> bool:
        """Whether only a part of the samples is measured; its intervals would ignore the early stop."""
        return self.all_answers is not None

    @property
    def is_look(self) -> bool:
        """Whether a look measures, after which the test may go on: it needs no facts for a record."""
        return self.names is not None

    @property
    def everything(self) -> Answers:
        """The answers to all samples."""
        return self.all_answers or self.answers

    def part(self, answers: Answers, names: frozenset[str] | None = None) -> Sources:
        """Returns a copy with answers to a part of the samples, for the quantities ``names``."""
        return dataclasses.replace(self, answers=answers, all_answers=self.everything, names=names)

    def of_changed(self, reads: Reads) -> Sources:
        """Returns these sources for the questions that the settings of a test change; the other questions stay as they are.

        With several settings each must change a question. For metrics of options and wordings one setting is enough, because
        they read only the settings that change a question.
        """
        cells = [reads.planned] if reads.by_need and isinstance(reads.planned, Cell) else reads.of_settings
        by_setting = {cell.setting: self.answers.changed(cell.dataset, cell.setting) for cell in cells}
        changed = [set(places) for places in by_setting.values() if places is not None]
        if not changed or min(map(len, changed)) == len(self.answers.samples(reads.planned.dataset)):
            return self
        kept = set.union(*changed) if _reads_any_change(reads.planned) else set.intersection(*changed)
        answers = AnswersOfChanged(self.answers, tuple(sorted(kept)))
        return dataclasses.replace(self, answers=answers, fingerprints={}, of_all=self)

    def said_of_changed(self, about: Planned) -> tuple[str, ...]:
        """Returns how many questions of how many a test is about, where its settings leave some as they are."""
        if self.of_all is None:
            return ()
        kept, count = (len(sources.everything.samples(about.dataset)) for sources in (self, self.of_all))
        if kept == count:
            return ()
        settings = str(about.setting) if isinstance(about, Cell) else "a setting" if _reads_any_change(about) else "every setting"
        return (f"{kept} of {count} questions are changed by {settings}; the others do not count",)

    def task(self, dataset: str) -> str:
        """Returns the task that made a dataset of a collection; empty for plain questions."""
        return self.data.tasks.get(dataset, "")

    def facts(self, dataset: str) -> DatasetFacts:
        """Returns what is known about a dataset before a model answers."""
        return DatasetFacts.of(self.answers, dataset, self.task(dataset))

    def reads_of(self, planned: Planned, settings: Sequence[Setting] = ()) -> Reads:
        """Returns the cells that a test reads."""
        return reads_of(planned, settings, self.answers.models, self.data, self.reference, self.attempts_of)

    def why_task_not_shown(self, model: str, dataset: str) -> str:
        """Returns why a model is not shown to do a task on clean images; perturbed images are then skipped."""
        if not self.task(dataset):
            return ""
        if self.of_all is not None:
            return self.of_all.why_task_not_shown(model, dataset)
        if (model, dataset) not in self.refusals:
            why = self.data.lacking(dataset) or observatory.why_task_not_shown(self.everything, model, dataset)
            self.refusals[model, dataset] = why
        return self.refusals[model, dataset]


@dataclass(frozen=True, slots=True, eq=False)
class Measurement:
    """The measurement of a test."""

    planned: Planned
    estimates: Sequence[tuple[MetricKey, Estimate]]
    """The estimate of each quantity that a rule may bound; of a summary metric its own first."""
    draft: Record
    """The record without verdicts; no rule is about its measures."""
    results: Sequence[CellResult] = ()
    """The answers that budgets count: all answers of the test, and for a cell the attempts that it is compared with."""
    earlier: Sequence[CellResult] = ()
    """The answers of the earlier run that it is compared with."""
    earlier_clean: Sequence[CellResult] = ()
    """The clean answers of that run, which only metrics of its drop read."""
    clean: CellResult | None = None
    """The clean answers that categories are compared with; ``None`` if no rule is about categories."""
    excused: str = ""
    """Why unreadable answers break no budget: the model is not shown to do the task."""
    why_not_passed: str = ""
    """Why keeping a bound shows nothing, because the images are not needed."""
    few_compared: str = ""
    """That the earlier run has few of the questions: they alone do not stand for all."""


def _reads_any_change(about: Planned) -> bool:
    return isinstance(about, SweepMetric) and metrics.get(about.metric).suite in (OPTIONS, WORDING)


# Tests without inferences.


def why_not_asked(reads: Reads, sources: Sources) -> str:
    """Returns why a test is not asked about: its task asks nothing or is not shown to be done, or there is nothing to compare."""
    planned, members = reads.planned, [reads.planned.model]
    if not reads.by_need:
        return sources.data.lacking(planned.dataset)
    if not sources.answers.samples(planned.dataset):
        return "no question is changed by the settings of the test"
    if isinstance(planned, FamilyMetric):
        members = [*sources.families[planned.family].members]
        _refuse_unlike_models(sources, members, planned.dataset)
    elif planned.setting in BASELINES if isinstance(planned, Cell) else not reads.of_settings:
        return ""
    refusals = [sources.why_task_not_shown(name, planned.dataset) for name in members]
    if isinstance(planned, FamilyMetric) and all(refusals):
        return f"no model of the family is shown to do the task, not even {members[-1]}: {refusals[-1]}"
    if isinstance(planned, SweepMetric) and not refusals[0]:
        return why_no_categories(metrics.get(planned.metric).needs, sources.everything.samples(planned.dataset))
    return refusals[0] if all(refusals) else ""


def refused(reads: Reads, sources: Sources, why: str) -> Measurement:
    """Returns the measurement of a test that is not run: invalid estimates with the reason."""
    planned, lacking = reads.planned, not reads.by_need
    models = sources.families[planned.family].members if isinstance(planned, FamilyMetric) else [planned.model]
    cells = [] if lacking else [Cell(model, planned.dataset, setting) for model in models for setting in BASELINES]
    baselines = [sources.answers.result(cell) for cell in cells]
    if isinstance(planned, Cell):
        tests = metric_keys(planned, sources.facts(planned.dataset), baseline=sources.baseline is not None)
        draft = dataclasses.replace(_draft(planned, []), not_asked=why)
        return Measurement(planned, [(test, Estimate.invalid(why)) for test in tests], draft, baselines)
    nothing = Estimate.invalid(why, 0 if lacking else len(sources.answers.samples(planned.dataset)))
    draft = dataclasses.replace(_draft(planned, baselines), n=nothing.n, not_asked=why)
    if isinstance(planned, SweepMetric) and not lacking:
        by_grouping = observatory.grouping_measures(planned.metric, _people(sources, planned.dataset), None, None, why)
        notes = (*collapsed_rungs(baselines), *said_of_guesses(baselines))
        draft = dataclasses.replace(draft, notes=notes, measures=tuple(by_grouping))
    return Measurement(planned, [(summary_key(planned), nothing)], draft, baselines)


def _draft(planned: Planned, results: Sequence[CellResult]) -> Record:
    """Returns the record of a test with what its answers are and nothing measured."""
    draft = Record(
        "cell" if isinstance(planned, Cell) else FAMILY if isinstance(planned, FamilyMetric) else "sweep",
        str(planned),
        planned.model,
        planned.dataset,
        n_requested=sum(result.n_requested for result in results),
        n_unparsed=sum(result.n_unparsed for result in results),
        n_refused=sum(result.n_refused for result in results),
        n_guessed=sum(result.n_guessed for result in results),
        n_errors=sum(result.count("error") for result in results),
    )
    if not isinstance(planned, Cell):
        return dataclasses.replace(draft, metric=planned.metric, split=planned.split)
    family, level = family_and_level(planned.setting)
    return dataclasses.replace(draft, setting=str(planned.setting), family=family, level=level)


def _people(sources: Sources, dataset: str) -> dict[str, list[str]]:
    return observatory.groupings(sources.answers.samples(dataset)) if sources.task(dataset) else {}


# Tests that run.


def measure(reads: Reads, sources: Sources) -> Measurement:
    """Measures a test; evaluates the cells it reads."""
    if isinstance(reads.planned, Cell):
        return _measure_cell(sources.answers.result(reads.planned), reads, sources)
    if isinstance(reads.planned, FamilyMetric):
        return _measure_family(reads.planned, reads, sources)
    return _measure_sweep(reads.planned, reads, sources)


def _measure_cell(result: CellResult, reads: Reads, sources: Sources) -> Measurement:
    cell, answers, baseline = result.cell, sources.answers, sources.baseline
    model = answers.models[cell.model]
    tried = [answers.result(attempt) for attempt in reads.by_need.get(metrics.Needs.WHOLE_ATTEMPTS, ())]
    facts = DatasetFacts(sources.task(cell.dataset), answers.corpus_metric(cell.dataset), result.samples)
    test = PlannedTest(cell, facts, baseline=baseline is not None, attempts=bool(tried))
    attempts = tried[0] if tried else None
    scores = CellScores(answers, test, result, attempts, baseline, intervals=not sources.is_part)
    estimates = [(metric_key(test, name), estimate) for name, estimate in estimate_all(test, scores, sources.names).items()]
    by_category = _by_category(scores, sources)
    estimates += by_category
    draft = _draft(cell, [result])
    if not sources.is_look:
        beside = [*blind_unparsed(result), *_canaries(scores, sources)]
        since = changed_samples(baseline, cell, answers, result.values) if baseline else None
        named = [judged.metric for judged, _ in estimates] + [measure.metric for measure in beside]
        draft = dataclasses.replace(
            draft,
            measures=tuple(beside),
            broken=since.broken if since else (),
            fixed=since.fixed if since else (),
            n=result.n_requested - result.count("error"),
            seconds=result.seconds,
            categories=mean_by_category(result),
            chains={} if model.prompt_mode == DIRECT else chains_by_outcome(result),
            worst=_newly_wrong(scores),
            positions=positions(result),
            received=received(result) if LADDER_FAMILY in draft.family.split("+") else "",
            notes=(
                *sources.said_of_changed(cell),
                *undone_steps(result),
                *rci_bands(estimates, cell.setting),
                *savings(result),
                *said_of_letters(result),
                *map(attempts_note, tried),
                *(observatory.notes(cell.model, model.box_convention, result) if facts.task else ()),
                *(said_of_guesses([scores.under(NO_IMAGE)]) if cell.setting == NO_IMAGE or reads_blind(named) else ()),
                *(baseline.left_out(cell.dataset, answers) if baseline and baseline.has_cell(cell) else ()),
            ),
            examples=tuple(examples(scores.clean, result, answers.thumbnails)),
        )
    excused = sources.why_task_not_shown(cell.model, cell.dataset)
    return Measurement(
        cell,
        estimates,
        draft,
        [result, *tried],
        baseline.earlier([cell]) if baseline else (),
        baseline.earlier([Cell(cell.model, cell.dataset, CLEAN)]) if baseline else (),
        scores.clean if by_category else None,
        excused,
        why_not_passed=_why_not_passed(cell, str(cell.setting), sources),
        few_compared=_few_compared(cell.dataset, sources) if baseline and baseline.has_cell(cell) else "",
    )


def _by_category(scores: CellScores, sources: Sources) -> list[tuple[MetricKey, Estimate]]:
    """Returns the estimates of the categories and slices of a cell that a rule is about."""
    if not (rules := sources.rules_of_strata(scores.cell.model)):
        return []
    estimates: list[tuple[MetricKey, Estimate]] = []
    alike = strata_by_kind(scores.samples).values()
    named = {entry.name for entry in applying(scores.test) if entry.by_category} & {rule.metric for rule in rules}
    for stratum, count in [(name, len(names)) for names in alike for name in names]:
        tests = {name: metric_key(scores.test, name, stratum, count) for name in named}
        if ruled := {name: test for name, test in tests.items() if any(rule.applies(test) for rule in rules)}:
            part = scores.stratum(stratum)
            estimated = [entry for entry in applying(part.test) if entry.name in ruled]
            estimates += [(ruled[entry.name], estimate) for entry in estimated if (estimate := entry.estimate(part)) is not None]
    return estimates


def _measure_sweep(sweep: SweepMetric, reads: Reads, sources: Sources) -> Measurement:
    answers, metric, is_task = sources.answers, metrics.get(sweep.metric), bool(sources.task(sweep.dataset))
    people = _people(sources, sweep.dataset)
    table = _sweep_table(sweep, reads, sources)
    used = [Cell(sweep.model, sweep.dataset, setting) for setting in _settings_read(sweep, reads, table, sources)]
    table, samples, notes = _on_common(sweep.dataset, metric, table, sources)
    notes += [*sources.said_of_changed(sweep), small_categories(metric.needs, sources.everything.samples(sweep.dataset))]
    if metric.label_preserving:
        table, samples, changed = with_kept_labels(table, samples)
        notes += [changed, metric.note(table) if metric.note and table.samples else ""]
    if metric.suite == OPTIONS:
        table, samples, without = with_choices(table, samples)
        notes.append(without)
    if metrics.Needs.CHOSEN_BY_LETTER in metric.needs:
        table, samples, without = with_letters(table, samples)
        notes.append(without)
    flat = same_pictures([answers.result(cell) for cell in used]) if metric.suite == SUITE else ""
    refusal = observatory.why_not_offered(sweep.metric, table) or flat
    none = "no question has options" if metric.suite == OPTIONS else "the settings change the answer of every sample"
    refusal = refusal or ("" if table.samples else none)
    invalid = refusal or why_not_compared(sweep.metric, table)

    scores = SweepScores(table, samples, intervals=not sources.is_part)
    test = PlannedTest(sweep, DatasetFacts(sources.task(sweep.dataset), samples=samples))
    names = None if sources.names is None else {*sources.names, sweep.metric}
    estimates = estimate_all(test, scores, names)
    summary = estimates.pop(sweep.metric)
    if metric.suite == WORDING and not invalid:
        places = {str(read.setting): answers.changed(read.dataset, read.setting) for read in reads.of_settings}
        summary = _largest_of_parts(summary, metric, table, places)
    summary = dataclasses.replace(summary, valid=False, reason=invalid) if invalid else summary
    further = [] if invalid else [(metric_key(test, name), estimate) for name, estimate in estimates.items()]
    further += [] if invalid else _by_stratum(test, scores)
    results = [answers.result(cell) for cell in used]
    is_compared = metrics.Needs.BASELINE_BY_SETTING in metric.needs
    earlier = sources.baseline.earlier(reads.compared) if sources.baseline and is_compared else []
    draft = dataclasses.replace(_draft(sweep, results), n=summary.n, not_asked=refusal)
    if not sources.is_look:
        by_grouping = observatory.grouping_measures(sweep.metric, people, table, scores.level)
        gaps = observatory.compared_means(sweep.metric, table)
        gaps += observatory.grouping_notes(people, table) if by_grouping else ()
        said = () if invalid else filter(None, notes)
        on_ladder = sweep.metric == LADDER_METRIC and not is_task
        parted = is_task and not refusal and not sources.is_part
        warnings = canaries.warnings_about_rungs(sweep.model, results) if on_ladder else ()
        draft = dataclasses.replace(
            draft,
            measures=(*by_grouping, *warnings),
            notes=(*collapsed_rungs(results), *gaps, *said, *said_of_guesses(results)),
            categories={judged.category: _valid_value(estimate) for judged, estimate in further if judged.category},
            chains={} if refusal else _chains_by_change(reads, sources),
            parts=observatory.parts(sweep.metric, table, results, people) if parted else {},
        )
    return Measurement(
        sweep,
        [(summary_key(sweep), summary), *further],
        draft,
        results,
        earlier,
        why_not_passed=_why_not_passed(sweep, sweep.split, sources),
        few_compared=_few_compared(sweep.dataset, sources) if earlier else "",
    )


def _largest_of_parts(
    whole: Estimate, metric: metrics.Metric, table: ScoreTable, changed: Mapping[str, Sequence[int] | None]
) -> Estimate:
    """Returns a metric over the questions that a wording changes, and the wordings that change all of these; the largest one.

    What a wording does to a few questions would hardly show over all. Each part that exceeds no bound shows that the largest
    does not (intersection-union); from below each has its part of the risk (Bonferroni).
    """
    rows = {name: frozenset(range(table.samples) if places is None else places) for name, places in changed.items()}
    if set(rows.values()) == {frozenset(range(table.samples))}:
        return whole
    parts = []
    for kept in dict.fromkeys(rows.values()):
        those = {name: scores for name, scores in table.by_setting.items() if rows[name] >= kept}
        part = dataclasses.replace(table, by_setting=those)
        parts.append(metrics.estimate(metric.name, rows_of(part, [row in kept for row in range(table.samples)]), confidence=None))

    def at(level: float) -> tuple[float, float]:
        corrected = 1.0 - (1.0 - level) / len(parts)
        return max(part.interval(corrected)[0] for part in parts), max(part.interval(level)[1] for part in parts)

    largest = max(parts, key=lambda part: (part.value, -part.n))
    unknown = next((part for part in parts if not part.finite), largest)  # a part of the samples may lack some
    low, high = at(whole.confidence) if unknown is largest and not math.isnan(whole.confidence) else (math.nan, math.nan)
    return dataclasses.replace(unknown, low=low, high=high, confidence=whole.confidence, at=at)


def summary(
    sweep: SweepMetric, estimate: Estimate, results: Sequence[CellResult], notes: tuple[str, ...], sources: Sources
) -> Measurement:
    """Returns the measurement of a summary metric that is estimated from parts of its cells."""
    return Measurement(
        sweep,
        [(summary_key(sweep), estimate)],
        dataclasses.replace(_draft(sweep, results), n=estimate.n, notes=(*notes, *sources.said_of_changed(sweep))),
        results,
        why_not_passed=_why_not_passed(sweep, sweep.split, sources),
    )


def _sweep_table(sweep: SweepMetric, reads: Reads, sources: Sources) -> ScoreTable:
    """Returns the scores that a summary metric is computed from; refuses models that answered otherwise."""
    answers, baseline = sources.answers, sources.baseline
    everything = sources.everything.samples(sweep.dataset)
    table = sweep_table(reads, answers, is_task=bool(sources.task(sweep.dataset)), everything=everything)
    for need in (metrics.Needs.BASE_BY_SETTING, metrics.Needs.REFERENCE_BY_SETTING):
        if others := reads.by_need.get(need):
            _refuse_unlike_models(sources, (sweep.model, others[0].model), sweep.dataset)
    if metrics.Needs.BASELINE_BY_SETTING not in metrics.get(sweep.metric).needs or baseline is None:
        return table
    if reads.settings:  # any cell will do: a model answers by one method
        result = answers.result(Cell(sweep.model, sweep.dataset, reads.settings[0]))
        baseline.refuse_answers(result.cell, answered_by(result))
    earlier = baseline_scores(baseline, sweep.model, sweep.dataset, answers, table)
    return dataclasses.replace(table, baseline_by_setting=earlier)


def _settings_read(sweep: SweepMetric, reads: Reads, table: ScoreTable, sources: Sources) -> list[Setting]:
    """Returns the settings whose answers a summary metric is computed from."""
    metric = metrics.get(sweep.metric)
    read = set(arrays_read(metric, table, None))
    if sources.task(sweep.dataset):  # whether it is done at all comes first
        read |= {CLEAN_NAME, NO_IMAGE_NAME}
    if metrics.Needs.REFERENCE_BY_SETTING in metric.needs and sources.reference is None:
        read.add(NO_IMAGE_NAME)
    if OF_ANSWERS & {*metric.needs}:
        read |= {CLEAN_NAME, *table.by_setting}
    return [setting for setting in dict.fromkeys((*BASELINES, *reads.settings)) if str(setting) in read]


def _on_common(
    dataset: str, metric: metrics.Metric, table: ScoreTable, sources: Sources
) -> tuple[ScoreTable, list[Any], list[str]]:
    """Returns the scores and samples of a summary metric, and what the comparison with the baseline leaves out."""
    samples, baseline = [*sources.answers.samples(dataset)], sources.baseline
    if metrics.Needs.BASELINE_BY_SETTING not in metric.needs or baseline is None:
        return table, samples, []
    kept = baseline.kept(dataset, sources.answers)
    both = [sample for sample, is_kept in zip(samples, kept, strict=True) if is_kept]
    return rows_of(table, kept), both, [*baseline.left_out(dataset, sources.answers)]


def _few_compared(dataset: str, sources: Sources) -> str:
    """Returns that the earlier run has less than half of the questions, or an empty text."""
    kept = sources.baseline.kept(dataset, sources.answers) if sources.baseline else []
    few = 2 * sum(kept) < len(kept)
    return f"the baseline has only {sum(kept)} of {counted(len(kept), 'question')} of {dataset}" if few else ""


def _by_stratum(test: PlannedTest, scores: SweepScores) -> list[tuple[MetricKey, Estimate]]:
    """Returns a summary metric of the curve over resolutions for each category and sub-task."""
    estimates = []
    for quantity in (quantity for quantity in applying(test) if quantity.by_category):
        by_stratum = estimates_by_stratum(quantity.name, scores.table, scores.samples)
        strata = len(by_stratum)
        estimates += [(metric_key(test, quantity.name, name, strata), estimate) for name, estimate in by_stratum.items()]
    return estimates


def _chains_by_change(reads: Reads, sources: Sources) -> dict[str, float]:
    """Returns the lengths of chains of thought by their effect, if a model is compared with itself without them."""
    base = {cell.setting: cell for cell in reads.by_need.get(metrics.Needs.BASE_BY_SETTING, ())}
    if not base or sources.is_part:
        return {}
    thinking = [cell for cell in reads.by_need[metrics.Needs.PERTURBED_BY_SETTING] if cell.setting != NO_IMAGE]
    direct = [base[cell.setting] for cell in thinking]
    before, after = ([sources.answers.result(cell) for cell in cells] for cells in (direct, thinking))
    return chains_by_change(before, after)


def _measure_family(planned: FamilyMetric, reads: Reads, sources: Sources) -> Measurement:
    answers, family = sources.answers, sources.families[planned.family]
    every = [answers.result(cell) for cell in reads.by_need[metrics.Needs.PERTURBED_BY_SETTING]]
    by_member = [[result.values for result in every if result.cell.model == name] for name in family.members]
    scores = observatory.means(by_member)
    test = PlannedTest(planned, DatasetFacts(sources.task(planned.dataset)))
    groups = groups_of(answers.samples(planned.dataset))
    estimate = estimate_all(test, FamilyScores(family.parameters, scores, groups))[planned.metric]
    notes = (*sources.said_of_changed(planned), observatory.members_note(planned, family, scores))
    return Measurement(
        planned,
        [(summary_key(planned), estimate)],
        dataclasses.replace(_draft(planned, every), n=estimate.n, notes=notes),
        every,
    )


def _refuse_unlike_models(sources: Sources, models: Iterable[str], dataset: str) -> None:
    """Refuses to compare models that answered by different methods."""
    clean = {name: sources.answers.result(Cell(name, dataset, CLEAN)) for name in models}
    ways = {name: answered_by(result) for name, result in clean.items()}
    refuse_unlike_answers(ways, dataset)


def _why_not_passed(planned: Cell | SweepMetric, setting: str, sources: Sources) -> str:
    if not sources.task(planned.dataset):
        return ""
    return observatory.why_pictures_not_needed(sources.everything, planned.model, planned.dataset, setting)


# Notes of a record.


def _canaries(scores: CellScores, sources: Sources) -> list[Measure]:
    """Returns the signs of whether a model looks at its images; tasks are left out because they have checks of their own."""
    if sources.task(scores.cell.dataset):
        return []
    if scores.cell.setting not in BASELINES or not any(sample.images for sample in scores.samples):
        return []
    gain = canaries.gain_over_blind(scores.table)
    if scores.cell.setting == CLEAN:
        return [gain, *canaries.measures_beside_clean(sources.answers, scores.result)]
    return [gain, *canaries.warnings_beside(scores.result, scores.clean)]


def attempts_note(result: CellResult) -> str:
    """Returns a note on how many samples are right in some attempts and wrong in others."""
    count = len(result.samples)
    if result.n_unasked:
        return f"{result.cell.setting}: attempts after a right one were not asked for, so it is unknown how much they vary"
    if result.count("error"):
        return ""
    scores = result.by_view
    varied = int((scores.max(axis=1) != scores.min(axis=1)).sum())
    note = f"{result.cell.setting}: the score of {varied} of {count} samples differs between attempts at the whole image"
    if varied:
        return note
    return f"{note}: pcri_matched equals pcri here, and may be below 0 only because answers to patches differ by luck"


def _newly_wrong(scores: CellScores) -> tuple[str, ...]:
    """Returns some samples that score less than on clean images."""
    before, after = scores.clean.values, scores.result.values
    lost = [sample.id for sample, was, now in zip(scores.samples, before, after, strict=True) if now < was]
    return tuple(lost[:_WORST])


def _valid_value(estimate: Estimate) -> float:
    return estimate.value if estimate.valid else math.nan


def rci_bands(estimates: Iterable[tuple[MetricKey, Estimate]], setting: Setting) -> tuple[str, ...]:
    """Returns the band of the Region Comprehension Index, if it was measured."""
    values = [_valid_value(estimate) for test, estimate in estimates if test.metric == "rci" and not test.category]
    return tuple(f"{setting}: an RCI of {value:.3f} is {metrics.rci_band(value)}" for value in values if not math.isnan(value))


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


MOST_SLICES = 50
"""The number of slices of a metadata column in reports; rules may use any slice."""


def mean_by_category(result: CellResult) -> dict[str, float]:
    """Returns the mean score of each category and of each slice of columns with few values; NaN for a missing score."""
    alike = strata_by_kind(result.samples)
    slices = {name for kind, names in alike.items() if kind and len(names) <= MOST_SLICES for name in names}
    members: dict[str, list[int]] = {}
    for place, sample in enumerate(result.samples):
        for name in (*([] if slices and "" not in alike else [sample.category]), *(n for n in sample.strata if n in slices)):
            members.setdefault(name, []).append(place)
    return {name: float(result.values[places].mean()) for name, places in members.items()}
