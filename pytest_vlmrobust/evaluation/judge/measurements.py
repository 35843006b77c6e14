"""Measurements: by which metrics a test is judged, and how those are measured that no score table gives."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_vlmrobust import metrics, perturbations
from pytest_vlmrobust.core.cell import CLEAN, NO_IMAGE, Cell, Planned, Setting
from pytest_vlmrobust.core.errors import VlmRobustError
from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.core.prediction import LETTER_LOGITS
from pytest_vlmrobust.core.record import Measure
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.core.verdict import WARNING, Outcome, Verdict
from pytest_vlmrobust.core.words import quantity
from pytest_vlmrobust.evaluation.run.resolutions import PREPROCESSING, is_preprocessed
from pytest_vlmrobust.evaluation.run.results import BLIND_UNPARSED, CellResult, said_of_guesses
from pytest_vlmrobust.evaluation.run.views import view_count
from pytest_vlmrobust.evaluation.tasks.dataset import GRIDS
from pytest_vlmrobust.metrics.table import ScoreTable
from pytest_vlmrobust.policies import Budgets, JudgedTest
from pytest_vlmrobust.policies.policy import WORST_FIRST

from . import observatory
from .answers import Measured
from .corpus import CORPUS_DROP, CORPUS_PCRI, CORPUS_SCORE, MEAN
from .families import MACRO, SUITE, has_macro

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


# Parts of a record: what follows from measures and results alone.


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


# Judged: by which metrics a planned test will be judged, known before anything is measured.


OBSERVATORY = "observatory"
"""The suite whose metrics cells of tasks are measured by."""
BASELINE = "baseline"
"""The suite whose metrics compare a cell with an earlier run."""
_SUITES = {"patches": "patches", "attempts": "attempts", "ladder": "resolution", PREPROCESSING: "resolution"}
"""Family of the last step of a setting to the suite whose metrics its cells are measured by; the corruptions' for all others."""
UNPARSED_INCREASE = "unparsed_increase"
LABEL_PRESERVING_DROP = "label_preserving_drop"
PREPROCESSING_GAIN = "preprocessing_gain"


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """What is known of a dataset before a model answers: it says which metrics its tests have.

    Where ``corpus_metric`` or ``samples`` is ``None`` nobody has looked yet, and everything is named that may be measured.
    """

    task: str = ""
    """Of a dataset that a task makes of a collection, what is asked in it; empty for plain questions."""
    corpus_metric: str | None = None
    """The metric that is published for the dataset as a whole."""
    samples: Sequence[Sample] | None = None

    @classmethod
    def of(cls, measured: Measured, dataset: str, task: str = "") -> Asked:
        """Looks at a dataset; one that cannot be read stays unknown: the tests that need it say why."""
        try:
            return cls(task, measured.corpus_metric(dataset), measured.samples(dataset))
        except (VlmRobustError, Warning):
            return cls(task)


def judged_tests(
    planned: Planned, asked: Asked | None = None, *, baseline: bool = False, attempts: bool = False
) -> list[JudgedTest]:
    """Returns what a planned test will be judged by, a line for each metric; categories of the dataset are counted elsewhere.

    That is what :class:`~.judging.Judge` measures and rules may bound. Two metrics are named that answers may leave out:
    ``unparsed_increase`` is measured of written text and not of scored letters, and ``grid_distance`` of wrong answers.

    Args:
        planned: of one model.
        asked: what is known of its dataset.
        baseline: whether cells are compared with an earlier run.
        attempts: whether cells of patches are compared with as many attempts at the whole picture.
    """
    asked = asked or Asked()
    if not isinstance(planned, Cell):
        names = [planned.metric, *_macro(planned.metric, asked)]
        return [JudgedTest(planned.model, planned.dataset, name, planned.split) for name in names]
    family, level = family_and_level(planned.setting)
    names = _of_scores(planned.setting, asked, attempts=attempts)
    names += [*_of_corpus(planned.setting, asked), *_beside_scores(planned.setting, asked)]
    names += baseline_metrics(planned.setting) if baseline else []
    return [JudgedTest(planned.model, planned.dataset, name, str(planned.setting), family, level) for name in names]


def _of_scores(setting: Setting, asked: Asked, *, attempts: bool) -> list[str]:
    """Returns the metrics of a cell that are computed from scores, with those that ask for part of the samples."""
    names = cell_metrics(setting, asked.task, attempts=attempts)
    if asked.task and asked.samples is not None:
        names = observatory.offered(names, asked.samples, str(setting))
    changes = setting not in (CLEAN, NO_IMAGE) and (asked.samples is None or not all(label_preserving(setting, asked.samples)))
    names += [LABEL_PRESERVING_DROP] if changes else []
    names += [PREPROCESSING_GAIN] if is_preprocessed(setting) else []
    return names


def _of_corpus(setting: Setting, asked: Asked) -> list[str]:
    """Returns what is measured where a dataset publishes another number than the mean of scores."""
    if asked.corpus_metric == MEAN:
        return []
    perturbed = setting not in (CLEAN, NO_IMAGE)
    return [CORPUS_SCORE, *([CORPUS_DROP] if perturbed else []), *([CORPUS_PCRI] if view_count(setting) > 1 else [])]


def _beside_scores(setting: Setting, asked: Asked) -> list[str]:
    """Returns what is counted beside scores: unreadable answers, and what the Observatory says of cells and boxes."""
    text = setting not in (CLEAN, NO_IMAGE) and view_count(setting) == 1
    return [*([UNPARSED_INCREASE] if text else []), *observatory.extra_metrics(setting, asked.task, asked.samples)]


def _macro(metric: str, asked: Asked) -> list[str]:
    """Returns the metric on the mean curve of the categories, where a summary metric of a curve has one."""
    if metric not in metrics.names() or metrics.get(metric).suite != SUITE:
        return []
    categories = None if asked.samples is None else {sample.category for sample in asked.samples}
    some = categories is None or (len(categories) > 1 and "" not in categories)
    return [metric + MACRO] if some and has_macro(metrics.get(metric)) else []


def baseline_metrics(setting: Setting) -> list[str]:
    """Returns the metrics that compare a cell with an earlier run; without a setting there is no drop that could increase."""
    found = (metrics.get(name) for name in metrics.names(scope="cell"))
    own = [metric for metric in found if metric.suite == BASELINE]
    return [metric.name for metric in own if setting != CLEAN or metrics.Needs.BASELINE_CLEAN not in metric.needs]


def family_and_level(setting: Setting) -> tuple[str, str]:
    """Returns the family of a setting and its level; empty where it has none."""
    if setting in (CLEAN, NO_IMAGE):
        return "", ""
    about = perturbations.info(str(setting))
    return about.family, about.level or ""


def cell_metrics(setting: Setting, task: str, *, attempts: bool = False) -> list[str]:
    """Returns the metrics that a cell is measured by; ``task`` is empty for plain questions."""
    if setting in (CLEAN, NO_IMAGE):
        return ["accuracy"]
    if task:
        return [name for name in metrics.names(scope="cell", suite=OBSERVATORY) if _may_have(metrics.get(name), task)]
    suite = _SUITES.get(family_and_level(setting)[0].rpartition("+")[2], "corruptions")
    offered = {metrics.Needs.WHOLE_ATTEMPTS} if attempts else set()
    named = metrics.names(scope="cell", suite=suite)
    return [name for name in named if {need for need in metrics.get(name).needs if need.optional} <= offered]


def _may_have(metric: metrics.Metric, task: str) -> bool:
    """Whether a task may have all that is optional for a metric: groups of people where they are known, cells of a grid."""
    offered = {metrics.Needs.PEOPLE} | ({metrics.Needs.POSITIONS} if task in GRIDS else set())
    return {need for need in metric.needs if need.optional} <= offered


# Unreadable: how many more answers cannot be read under a setting than on clean pictures.


def unreadable_estimates(clean: CellResult, result: CellResult, confidence: float) -> list[tuple[str, Estimate]]:
    """Returns the share of unreadable answers minus that on clean pictures, paired by sample.

    Nothing for a cell of several views, for clean pictures and none, and where no text was read: letters scored by their
    probability can always be read.
    """
    if result.views > 1 or result.cell.setting in (CLEAN, NO_IMAGE):
        return []
    written = any(prediction.method != LETTER_LOGITS for prediction in (*clean.predictions, *result.predictions))
    if not written:
        return []
    setting = str(result.cell.setting)
    table = ScoreTable(
        clean=_readable(clean), by_setting={setting: _readable(result)}, groups=[s.group or s.id for s in result.samples]
    )
    return [(UNPARSED_INCREASE, metrics.estimate("accuracy_drop", table, setting=setting, confidence=confidence))]


def _readable(result: CellResult) -> NDArray[np.float64]:
    """Returns 1 for each answer that could be read and 0 for one that could not, shape (N,); NaN where there is none."""
    import numpy as np

    values = {"unparsed": 0.0, "error": np.nan}
    return np.array([values.get(score.state, 1.0) for score in result.scores], float)


# Gains: what a small picture gains when it is padded or enlarged before a model sees it (Res-Bench, Table 3).


def gain_estimates(measured: Measured, result: CellResult, confidence: float) -> list[tuple[str, Estimate]]:
    """Returns what a preprocessed rung gains over the same rung as it is, paired by sample; nothing for any other setting.

    Raises:
        InfrastructureError: the rung could not be measured.
    """
    cell = result.cell
    if not is_preprocessed(cell.setting):
        return []
    rung = Setting(cell.setting.steps[:1])
    before = measured.result(Cell(cell.model, cell.dataset, rung)).values
    return [
        (
            PREPROCESSING_GAIN,
            _gain(result.values, before, [sample.group or sample.id for sample in result.samples], str(rung), confidence),
        )
    ]


def _gain(after: NDArray[np.float64], before: NDArray[np.float64], groups: list[str], rung: str, confidence: float) -> Estimate:
    value = float((after - before).mean())
    missing = "" if math.isfinite(value) else "; scores are missing"

    def at(level: float) -> tuple[float, float]:
        return metrics.gain_interval(after, before, level, groups)

    return Estimate(value, len(after), *at(confidence), confidence, reason=f"against {rung} as it is{missing}", at=at)
