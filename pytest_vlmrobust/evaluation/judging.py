"""Judging: from the answers of a cell or a sweep to a Record with its verdict."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

from pytest_vlmrobust import metrics, perturbations
from pytest_vlmrobust.core.cell import Cell, SweepMetric
from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.core.record import Measure, Record
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.core.setting import CLEAN, NO_IMAGE, Setting
from pytest_vlmrobust.core.verdict import Outcome, Verdict
from pytest_vlmrobust.metrics.table import ScoreTable
from pytest_vlmrobust.policies import JudgedTest, Policy
from pytest_vlmrobust.policies.policy import WORST_FIRST

from .evaluator import CellResult, Evaluator, chances
from .rungs import LADDER_FAMILY, collapsed_rungs, received
from .whole import whole_estimates

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_SUITES = {"patches": "patches", "ladder": "resolution"}
"""Family to the suite whose metrics its cells are measured by; the corruptions' for all others."""
LABEL_PRESERVING_DROP = "label_preserving_drop"
_WORST = 5


def judged_tests(planned: Cell | SweepMetric) -> list[JudgedTest]:
    """Returns what a planned test will be judged by, a line for each metric; strata of the data set are not known yet."""
    if isinstance(planned, SweepMetric):
        return [JudgedTest(planned.model, planned.dataset, planned.metric)]
    family, level = _family_and_level(planned.setting)
    return [
        JudgedTest(planned.model, planned.dataset, name, str(planned.setting), family, level)
        for name in (*_cell_metrics(planned.setting), LABEL_PRESERVING_DROP)
    ]


def _family_and_level(setting: Setting) -> tuple[str, str]:
    if setting in (CLEAN, NO_IMAGE):
        return "", ""
    about = perturbations.info(str(setting))
    return about.family, about.level or ""


def _cell_metrics(setting: Setting) -> list[str]:
    if setting in (CLEAN, NO_IMAGE):
        return ["accuracy"]
    suite = _SUITES.get(_family_and_level(setting)[0], "corruptions")
    named = metrics.names(scope="cell", suite=suite)
    return [name for name in named if not any(need.optional for need in metrics.get(name).needs)]


@dataclass(frozen=True, slots=True)
class Judge:
    """Judges what an evaluator measures, by the policy of each model.

    ``reference`` names the model whose errors normalise the mean corruption error; ``None`` is the same model without images.
    """

    evaluator: Evaluator
    policies: Mapping[str, Policy]
    today: date
    reference: str | None = None
    confidence: float = 0.90

    def cell(self, cell: Cell) -> Record:
        """Evaluates a cell and judges it.

        Raises:
            InfrastructureError: nothing could be measured.
        """
        before = self.evaluator.inferred, self.evaluator.recalled
        result = self.evaluator.result(cell)
        table = self._cell_table(cell, result)
        family, level = _family_and_level(cell.setting)
        measures = [
            self._measure(cell.model, JudgedTest(cell.model, cell.dataset, name, str(cell.setting), family, level), estimate)
            for name, estimate in [
                *self._cell_estimates(cell.setting, table, result.samples),
                *whole_estimates(self.evaluator, cell, result),
            ]
        ]
        measures += self._category_measures(cell, table, result, family, level)
        measures += self._budget_measures(cell.model, result)
        worst = _worst(measures)
        return Record(
            test="cell",
            id=str(cell),
            model=cell.model,
            dataset=cell.dataset,
            setting=str(cell.setting),
            family=family,
            level=level,
            outcome=worst.outcome,
            reason=worst.reason,
            n=result.n_requested - result.count("error"),
            n_requested=result.n_requested,
            n_unparsed=result.count("unparsed"),
            n_errors=result.count("error"),
            n_inferred=self.evaluator.inferred - before[0],
            n_recalled=self.evaluator.recalled - before[1],
            seconds=result.seconds,
            measures=tuple(measures),
            categories=_by_category(result),
            worst=self._newly_wrong(cell, result),
            positions=metrics.patch_contribution(result.by_view) if result.views > 1 else (),
            received=received(result) if family == LADDER_FAMILY else "",
            notes=(*_noted(result), *_bands(measures, cell.setting)),
            policy_sha256=self.policies[cell.model].sha256,
        )

    def sweep(self, sweep: SweepMetric, settings: Sequence[Setting]) -> Record:
        """Computes a summary metric over ``settings`` and judges it; evaluates whatever it needs.

        Raises:
            InfrastructureError: a cell that it needs could not be measured.
        """
        before = self.evaluator.inferred, self.evaluator.recalled
        needs = set(metrics.get(sweep.metric).needs)
        baselines_suffice = needs <= {metrics.Needs.CLEAN, metrics.Needs.NO_IMAGE}
        perturbed = [] if baselines_suffice else [setting for setting in settings if setting not in (CLEAN, NO_IMAGE)]
        table = self.evaluator.table(sweep.model, sweep.dataset, perturbed, reference=self.reference)
        estimate = metrics.estimate(sweep.metric, table, confidence=self.confidence)
        measure = self._measure(sweep.model, JudgedTest(sweep.model, sweep.dataset, sweep.metric), estimate)
        results = [self.evaluator.result(Cell(sweep.model, sweep.dataset, s)) for s in (CLEAN, NO_IMAGE, *perturbed)]
        measures = [measure, *self._budget_measures(sweep.model, *results)]
        worst = _worst(measures)
        return Record(
            test="sweep",
            id=str(sweep),
            model=sweep.model,
            dataset=sweep.dataset,
            metric=sweep.metric,
            outcome=worst.outcome,
            reason=worst.reason or estimate.reason,
            n=estimate.n,
            n_requested=len(self.evaluator.samples(sweep.dataset)),
            n_unparsed=sum(result.count("unparsed") for result in results),
            n_errors=sum(result.count("error") for result in results),
            n_inferred=self.evaluator.inferred - before[0],
            n_recalled=self.evaluator.recalled - before[1],
            measures=tuple(measures),
            notes=collapsed_rungs(results),
            policy_sha256=self.policies[sweep.model].sha256,
        )

    def _cell_table(self, cell: Cell, result: CellResult) -> ScoreTable:
        own = result.values
        clean = own if cell.setting == CLEAN else self.evaluator.result(Cell(cell.model, cell.dataset, CLEAN)).values
        blind = own if cell.setting == NO_IMAGE else self.evaluator.result(Cell(cell.model, cell.dataset, NO_IMAGE)).values
        return ScoreTable(
            clean=clean,
            by_setting={str(cell.setting): own},
            no_image=blind,
            groups=[s.group or s.id for s in result.samples],
            patches_by_setting={str(cell.setting): result.by_view} if result.views > 1 else None,
            chances=chances(result.samples),
        )

    def _cell_estimates(self, setting: Setting, table: ScoreTable, samples: Sequence[Sample]) -> list[tuple[str, Estimate]]:
        found = [
            (name, metrics.estimate(name, table, setting=str(setting), confidence=self.confidence))
            for name in _cell_metrics(setting)
        ]
        kept = _label_preserving(setting, samples)
        if not all(kept):
            found.append((LABEL_PRESERVING_DROP, self._preserved(table, str(setting), kept)))
        return found

    def _preserved(self, table: ScoreTable, setting: str, kept: Sequence[bool]) -> Estimate:
        """Returns the drop over the samples whose answer the setting leaves right."""
        if not any(kept):
            return Estimate(float("nan"), 0, valid=False, reason="the setting changes the answer of every sample")
        part = _part(table, setting, kept)
        return metrics.estimate("accuracy_drop", part, setting=setting, confidence=self.confidence)

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
            for name, estimate in self._cell_estimates(cell.setting, _part(table, setting, chosen), samples):
                test = JudgedTest(cell.model, cell.dataset, name, setting, family, level, category, len(categories))
                if any(rule.applies(test) for rule in policy.rules):
                    found.append(dataclasses.replace(self._measure(cell.model, test, estimate), category=category))
        return found

    def _measure(self, model: str, test: JudgedTest, estimate: Estimate) -> Measure:
        measure = self.policies[model].measure(test, estimate, today=self.today)
        undefined = float("nan")  # a number that does not apply is not shown as one
        return measure if estimate.valid else dataclasses.replace(measure, value=undefined, low=undefined, high=undefined)

    def _budget_measures(self, model: str, *results: CellResult) -> list[Measure]:
        """Judges failed and unreadable answers; a kept budget says nothing."""
        asked = sum(result.n_requested for result in results)
        failed = sum(result.count("error") for result in results)
        unread = sum(result.count("unparsed") for result in results)
        verdicts = self.policies[model].budgets.judge(
            n_requested=asked, n_scored=asked - failed, n_errors=failed, n_unparsed=unread
        )
        shares = {"error_rate": (failed, asked), "unparsed_rate": (unread, asked - failed)}
        return [_budget_measure(verdict, *shares.get(verdict.metric, (0, 0)), _commonest_error(results)) for verdict in verdicts]

    def _newly_wrong(self, cell: Cell, result: CellResult) -> tuple[str, ...]:
        if cell.setting == CLEAN:
            return ()
        clean = self.evaluator.result(Cell(cell.model, cell.dataset, CLEAN)).values
        lost = [sample.id for sample, before, after in zip(result.samples, clean, result.values, strict=True) if after < before]
        return tuple(lost[:_WORST])


def _worst(measures: Sequence[Measure]) -> Measure:
    return min(measures, key=lambda measure: WORST_FIRST.index(measure.outcome))


def _commonest_error(results: Sequence[CellResult]) -> str:
    """Returns why inferences failed: the reason given most often, empty when none failed."""
    reasons = Counter(score.rule for result in results for score in result.scores if score.state == "error")
    return reasons.most_common(1)[0][0] if reasons else ""


def _budget_measure(verdict: Verdict, part: int, whole: int, error: str) -> Measure:
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


def _bands(measures: Sequence[Measure], setting: Setting) -> tuple[str, ...]:
    """Returns the band of the Region Comprehension Index, where there is one."""
    known = [one.value for one in measures if one.metric == "rci" and not one.category and not math.isnan(one.value)]
    return tuple(f"{setting}: an RCI of {value:.3f} is {metrics.rci_band(value)}" for value in known)


def _noted(result: CellResult) -> tuple[str, ...]:
    """Returns what the setting could not do, step by step: to how many samples, and to which one for example."""
    by_step: dict[str, list[tuple[str, str]]] = {}
    for sample, notes in result.notes.items():
        for note in notes:
            by_step.setdefault(note.partition(": ")[0], []).append((sample, note))
    return tuple(
        f"{len(found)} of {len(result.samples)} samples, such as {found[0][0]}: {found[0][1]}" for found in by_step.values()
    )


def _by_category(result: CellResult) -> dict[str, float]:
    import numpy as np

    names = np.array([sample.category for sample in result.samples])
    return {str(name): float(result.values[names == name].mean()) for name in dict.fromkeys(names.tolist())}


def _label_preserving(setting: Setting, samples: Sequence[Sample]) -> list[bool]:
    """Returns, for each sample, whether the setting leaves its answer right."""
    if setting in (CLEAN, NO_IMAGE):
        return [True] * len(samples)
    changes = {str(setting), *(step.name for step in setting.steps), *perturbations.info(str(setting)).label_changing}
    return [not (sample.changed_by & changes) for sample in samples]


def _part(table: ScoreTable, setting: str, kept: Sequence[bool]) -> ScoreTable:
    import numpy as np

    chosen: NDArray[np.bool_] = np.array(kept, bool)
    return ScoreTable(
        clean=table.clean[chosen],
        by_setting={setting: table.scores(setting)[chosen]},
        no_image=None if table.no_image is None else table.no_image[chosen],
        groups=None if table.groups is None else [group for group, keep in zip(table.groups, kept, strict=True) if keep],
        patches_by_setting={name: values[chosen] for name, values in (table.patches_by_setting or {}).items()},
        chances=None if table.chances is None else table.chances[chosen],
    )
