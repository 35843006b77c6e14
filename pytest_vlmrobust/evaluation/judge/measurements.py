"""Measurements: the one list of quantities that rules may bound, with when each applies and how it is estimated.

Planning, sharing of risk, judging, policies, ``vlmrobust explain`` and the documentation all read this list. A quantity that is a
formula over scores is registered in :mod:`pytest_vlmrobust.metrics` and stands here by its suite; any other has its entry below.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust import metrics, perturbations, scoring
from pytest_vlmrobust.core.cell import CLEAN, NO_IMAGE, Cell, FamilyMetric, Planned, Setting, SweepMetric
from pytest_vlmrobust.core.errors import UnknownName
from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.core.prediction import LETTER_LOGITS, Prediction, Score
from pytest_vlmrobust.core.registry import RegistryState
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.core.words import quantity as quantity_of
from pytest_vlmrobust.evaluation.judge.strata import MACRO, SUITE
from pytest_vlmrobust.evaluation.run.resolutions import PREPROCESSING, is_preprocessed
from pytest_vlmrobust.evaluation.run.results import CellResult, best_is_enough, undefined
from pytest_vlmrobust.metrics.estimation import Described, describe
from pytest_vlmrobust.metrics.families import FamilyProperty
from pytest_vlmrobust.metrics.record import Facts, Metric
from pytest_vlmrobust.metrics.registry import AMBIGUOUS, REGISTRY, ambiguous_message
from pytest_vlmrobust.metrics.table import CONFIDENCE, Needs, ScoreTable
from pytest_vlmrobust.perturbations.typographic import NOTE, WRONG
from pytest_vlmrobust.policies import MetricFacts, MetricKey

from . import corpus, directional, observatory
from .context import CellScores, DatasetFacts, FamilyScores, PlannedTest, SweepScores
from .reads import control_of, score_table
from .strata import has_macro, macro_estimate, rows_of

OBSERVATORY = observatory.SUITE
"""The suite of the metrics for cells of tasks."""
BASELINE = "baseline"
"""The suite whose metrics compare with an earlier run."""
CORRUPTIONS, OPTIONS = "corruptions", "options"
_SUITES = {
    "patches": "patches",
    "attempts": "attempts",
    "ladder": "resolution",
    PREPROCESSING: "resolution",
    "directional": "wording",
}
"""Family of the last step of a setting to the suite of metrics for its cells; corruptions for all others."""
_WITHOUT_COMPARISON = "accuracy"
"""The only metric of cells on clean images or without images, which have nothing to compare with."""
UNPARSED_INCREASE = "unparsed_increase"
REFUSED_SHARE = "refused_share"
ANSWER_CHANGE_RATE = "answer_change_rate"
YES_RATE_SHIFT = "yes_rate_shift"
LABEL_PRESERVING_DROP = "label_preserving_drop"
PREPROCESSING_GAIN = "preprocessing_gain"


@dataclass(frozen=True, slots=True)
class Quantity:
    """One quantity that a rule may bound."""

    facts: Described
    """What it is."""
    applies: Callable[[PlannedTest], bool]
    """Whether a test is judged by it, known before a model answers."""
    estimate: Callable[[Any], Estimate | None]
    """Estimates it from :class:`CellScores`, :class:`SweepScores` or :class:`FamilyScores`; ``None`` as ``left_out`` says."""
    left_out: str = ""
    """When it is not measured although it was planned; empty if it always is."""
    by_category: bool = False
    """Whether it is also taken over the samples of each category."""
    parts: Callable[[Any], Mapping[str, Estimate]] | None = None
    """Estimates its parts, which no rule may bound, by full name: ``corpus_score.recall``."""

    @property
    def name(self) -> str:
        """Its name in policies and reports."""
        return self.facts.name

    @property
    def scope(self) -> str:
        """``"cell"``, ``"sweep"`` or ``"family"``: what a test that it judges is about."""
        return "family" if isinstance(self.facts, FamilyProperty) else self.facts.scope

    @property
    def compares_with_earlier_run(self) -> bool:
        """Whether it needs an earlier run."""
        return self.facts.suite == BASELINE

    @property
    def policy_facts(self) -> MetricFacts:
        """What rules on it are checked against."""
        return MetricFacts(
            self.facts.unit,
            self.facts.better,
            "cell" if self.scope == "cell" else "sweep",
            bool(self.facts.interval),
            split=self.facts.suite in (OBSERVATORY, BASELINE),
            bounds=self.facts.bounds,
        )


def quantities() -> Mapping[str, Quantity]:
    """Returns every quantity that a rule may bound, by name, in the order in which records list them."""
    return _quantities(REGISTRY.state)


@lru_cache(maxsize=4)
def _quantities(_state: RegistryState) -> Mapping[str, Quantity]:
    records = [metrics.get(name) for name in metrics.names()]
    of_scores = [_of_metric(record) for record in records]
    listed = [
        *(each for each in of_scores if not each.compares_with_earlier_run),
        *BESIDE_SCORES,
        *(each for each in of_scores if each.compares_with_earlier_run),
        *(_of_mean_curve(record) for record in records if record.suite == SUITE and has_macro(record)),
        *(_of_family(record) for record in metrics.FAMILY_METRICS.values()),
    ]
    return MappingProxyType({each.name: each for each in listed})


def quantity(name: str) -> Quantity:
    """Returns the quantity called ``name``."""
    known = quantities()
    if name in known:
        return known[name]
    if name in AMBIGUOUS:
        raise UnknownName("metric", name, AMBIGUOUS[name], more=ambiguous_message(name))
    raise UnknownName("metric", name, known)


def applying(test: PlannedTest) -> list[Quantity]:
    """Returns the quantities that a test is judged by."""
    return [each for each in quantities().values() if each.applies(test)]


def estimate_all(
    test: PlannedTest, scores: CellScores | SweepScores | FamilyScores, names: Collection[str] | None = None
) -> dict[str, Estimate]:
    """Estimates the quantities that a test is judged by, and their parts, by name.

    With ``names`` only those, and whatever has parts, which a rule may name.
    """
    estimates = {}
    for each in (each for each in applying(test) if names is None or each.name in names or each.parts):
        if (estimate := each.estimate(scores)) is not None:
            estimates[each.name] = estimate
        estimates |= each.parts(scores) if each.parts else {}
    return estimates


def metric_keys(
    planned: Planned, facts: DatasetFacts | None = None, *, baseline: bool = False, attempts: bool = False
) -> list[MetricKey]:
    """Returns one MetricKey for each quantity that a planned test will be judged by, without categories."""
    test = PlannedTest(planned, facts or DatasetFacts(), baseline, attempts)
    return [metric_key(test, each.name) for each in applying(test)]


def metric_key(test: PlannedTest, metric: str, category: str = "", strata: int = 1) -> MetricKey:
    """Returns the MetricKey of one quantity of a test, or of one of its categories."""
    setting = str(test.setting) if isinstance(test.planned, Cell) else test.planned.split
    return MetricKey(test.planned.model, test.planned.dataset, metric, setting, *test.family_and_level, category, strata)


# Quantities that are formulas over scores: the registered metrics, and properties of families.


def _of_metric(metric: Metric) -> Quantity:
    applies = partial(_measures_cell, metric) if metric.scope == "cell" else partial(_is_summarised_by, metric.name)
    estimate = _of_table if metric.scope == "sweep" else _since_baseline if metric.suite == BASELINE else _of_cell
    taken_by_category = metric.suite == SUITE if metric.scope == "sweep" else metric.suite != BASELINE
    return Quantity(metric, applies, partial(estimate, metric.name), by_category=taken_by_category)


def _is_summarised_by(metric: str, test: PlannedTest) -> bool:
    return isinstance(test.planned, SweepMetric) and test.planned.metric == metric


def _measures_cell(metric: Metric, test: PlannedTest) -> bool:
    if test.setting is None:
        return False
    if metric.suite == BASELINE:  # clean images have no drop that could increase
        return test.baseline and (test.setting != CLEAN or Needs.BASELINE_CLEAN not in metric.needs)
    if not test.perturbed:
        judges_clean = test.setting == CLEAN and set(metric.needs) == {Needs.PERTURBED, Needs.CONFIDENCES}
        return metric.name == _WITHOUT_COMPARISON or (judges_clean and metric.suite == _suite(test) and _is_offered(metric, test))
    return metric.suite in ("", _suite(test)) and _is_offered(metric, test)


def _suite(test: PlannedTest) -> str:
    """Returns the suite of the metrics for a cell."""
    return OBSERVATORY if test.dataset_facts.task else _SUITES.get(test.family_and_level[0].rpartition("+")[2], CORRUPTIONS)


def _is_offered(metric: Metric, test: PlannedTest) -> bool:
    return {need for need in metric.needs if need.optional} <= test.offered


def _of_cell(name: str, scores: CellScores) -> Estimate:
    if scores.result.n_unasked and not best_is_enough(name):
        return undefined(len(scores.samples))
    if CONFIDENCE & {*metrics.get(name).needs}:
        return _of_letters(name, scores)
    return metrics.estimate(name, scores.table, setting=scores.setting, confidence=scores.level)


def _of_letters(name: str, scores: CellScores) -> Estimate:
    """Estimates a metric of confidence over the questions that letters may answer."""
    table = scores.table_of_letters
    unknown = sum(
        int((np.isnan(confidences) & ~np.isnan(table.scores(setting))).sum())
        for setting, confidences in (table.confidences or {}).items()
        if setting == scores.setting or Needs.CLEAN_CONFIDENCES in metrics.get(name).needs
    )
    if unknown:
        reason = f"{quantity_of(unknown, 'answer')} came without probabilities of letters"
        return Estimate(math.nan, 0, valid=False, reason=reason)
    estimate = metrics.estimate(name, table, setting=scores.setting, confidence=scores.level)
    left = len(scores.samples) - table.samples
    return (
        replace(estimate, reason=estimate.reason or f"without {quantity_of(left, 'question')} without letters")
        if left
        else estimate
    )


def _since_baseline(name: str, scores: CellScores) -> Estimate:
    if scores.not_compared:
        return Estimate(math.nan, 0, valid=False, reason=scores.not_compared)
    return metrics.estimate(name, scores.table_with_baseline, setting=scores.setting, confidence=scores.level)


def _of_table(name: str, scores: SweepScores) -> Estimate:
    return metrics.estimate(name, scores.table, confidence=scores.level)


def _of_family(record: FamilyProperty) -> Quantity:
    def applies(test: PlannedTest) -> bool:
        return isinstance(test.planned, FamilyMetric) and test.planned.metric == record.name

    def estimate(scores: FamilyScores) -> Estimate:
        return record.estimate(scores.parameters, scores.scores, scores.groups, scores.confidence)

    return Quantity(record, applies, estimate)


def _of_mean_curve(metric: Metric) -> Quantity:
    """Returns a curve metric as a quantity on the mean curve of the categories."""

    def applies(test: PlannedTest) -> bool:
        several = test.categories is None or (len(test.categories) > 1 and "" not in test.categories)
        return several and _is_summarised_by(metric.name, test)

    def estimate(scores: SweepScores) -> Estimate | None:
        return macro_estimate(metric.name, scores.table, scores.samples)

    return Quantity(_mean_curve_facts(metric), applies, estimate, left_out="where all resolutions show the same pictures")


@lru_cache
def _mean_curve_facts(metric: Metric) -> Facts:
    return Facts(
        name=metric.name + MACRO,
        about=f"``{metric.name}`` on the mean curve of the categories, each of which counts the same.\n\n"
        "Categories with many questions and with few then weigh alike, as in Res-Bench's overall numbers.\n\n"
        f"Formula: ``{describe(metric).formula}; each accuracy is the mean of those of the categories``\n\n"
        f"Returns:\n    As ``{metric.name}``.",
        reads="`resolutions`, the scores of each category at each of them",
        unit=metric.unit,
        better=metric.better,
        bounds=metric.bounds,
        scope="sweep",
        suite=metric.suite,
        reference=metric.reference,
        validity="; ".join(part for part in (metric.validity, "at least two categories, and every sample in one") if part),
        unsuited=f"What is said of ``{metric.name}`` holds here, too. A category of few questions weighs as much as one of many, "
        "with all its noise, and there is no interval: compare it with the overall numbers of Res-Bench only.",
    )


# Quantities that need more than a table of scores.


def label_preserving(setting: Setting, samples: Sequence[Sample]) -> list[bool]:
    """Returns, for each sample, whether the setting leaves its answer right."""
    if setting in (CLEAN, NO_IMAGE):
        return [True] * len(samples)
    changes = {str(setting), *(step.name for step in setting.steps), *perturbations.info(str(setting)).label_changing}
    return [not (sample.changed_by & changes) for sample in samples]


def with_choices(table: ScoreTable, samples: Sequence[Sample]) -> tuple[ScoreTable, list[Sample], str]:
    """Returns the scores of the questions that have options, their samples, and what was left out.

    Others are asked alike in every order, and would pass for right in all of them.
    """
    kept = [bool(sample.options) for sample in samples]
    said = "" if all(kept) else f"left out {len(kept) - sum(kept)} of {len(kept)} questions, which have no options"
    return rows_of(table, kept), [sample for sample, has in zip(samples, kept, strict=True) if has], said


def with_kept_labels(table: ScoreTable, samples: Sequence[Sample]) -> tuple[ScoreTable, list[Sample], str]:
    """Returns the scores, without those of answers that a setting changes, their samples, and what was left out.

    In their place stands the sample's mean over the other settings, which leaves its mean over the settings that keep its answer.
    A sample whose answer every setting changes is left out.
    """
    kept = np.array([label_preserving(Setting.parse(name), samples) for name in table.by_setting]).T
    if not kept.size or kept.all():
        return table, list(samples), ""
    scores = table.matrix()
    rows: NDArray[np.bool_] = kept.sum(axis=1) > 0
    means = np.where(kept, scores, 0.0).sum(axis=1) / np.maximum(kept.sum(axis=1), 1)
    scores = np.where(kept | np.isnan(scores), scores, means[:, None])  # a failed inference stays one
    changed = replace(table, by_setting=dict(zip(table.by_setting, scores.T, strict=True)))
    said = f"left out {int((~kept).sum())} of {kept.size} answers that a setting changes"
    if not rows.all():
        said += f", all of them for {int((~rows).sum())} of {len(rows)} samples"
    return rows_of(changed, rows), [sample for sample, row in zip(samples, rows, strict=True) if row], said


def _may_change_labels(test: PlannedTest) -> bool:
    if test.setting is None or not test.perturbed:
        return False
    return test.dataset_facts.samples is None or not all(label_preserving(test.setting, test.dataset_facts.samples))


def label_preserving_drop(scores: CellScores) -> Estimate:
    """Estimates the accuracy drop over the samples whose answer the setting leaves right."""
    kept = label_preserving(scores.cell.setting, scores.samples)
    if not any(kept):
        return Estimate(math.nan, 0, valid=False, reason="the setting changes the answer of every sample")
    table = rows_of(scores.table, kept)
    return metrics.estimate("accuracy_drop", table, setting=scores.setting, confidence=scores.level)


def unparsed_increase(scores: CellScores) -> Estimate | None:
    """Estimates the share of unreadable answers minus that on clean images, paired by sample.

    ``None`` where no text was read: letters that are scored by their probability can always be read.
    """
    predictions = (*scores.clean.predictions, *scores.result.predictions)
    if all(prediction.method == LETTER_LOGITS for prediction in predictions):
        return None
    readable = {scores.setting: _readable(scores.result)}
    table = score_table(scores.samples, _readable(scores.clean), by_setting=readable)
    return metrics.estimate("accuracy_drop", table, setting=scores.setting, confidence=scores.level)


def refused_share(scores: CellScores) -> Estimate | None:
    """Estimates the share of answers that were refused; ``None`` where no text was read."""
    if all(prediction.method == LETTER_LOGITS for prediction in scores.result.predictions):
        return None
    return _share(scores, [score.is_refusal for score in scores.result.scores], scores.result.values)


def answer_change_rate(scores: CellScores) -> Estimate:
    """Estimates the share of answers that differ from those on clean images."""
    changed = [now != before for before, now in zip(scores.clean.read, scores.result.read, strict=True)]
    return _share(scores, changed, scores.result.values + scores.clean.values)


def _share(scores: CellScores, outcomes: Sequence[bool], known: NDArray[np.float64]) -> Estimate:
    """Estimates the share of outcomes; those are missing that are not ``known``."""
    values = np.where(np.isnan(known), np.nan, np.array(outcomes, float))
    table = score_table(scores.samples, values, by_setting={scores.setting: values})
    return metrics.estimate("accuracy", table, setting=scores.setting, confidence=scores.level)


def yes_rate_shift(scores: CellScores) -> Estimate:
    """Estimates how much more often yes/no questions are answered with yes than on clean images, paired by sample."""
    asked = [sample.task == "yes_no" for sample in scores.samples]
    now, before = (
        np.array(
            [np.nan if score.state == "error" else (score.answer or "").casefold() == "yes" for score in result.scores], float
        )[asked]
        for result in (scores.result, scores.clean)
    )
    samples = [sample for sample, chosen in zip(scores.samples, asked, strict=True) if chosen]
    table = score_table(samples, now, by_setting={scores.setting: before})
    return metrics.estimate("accuracy_drop", table, setting=scores.setting, confidence=scores.level)


def _asks_yes_or_no(test: PlannedTest) -> bool:
    known = test.dataset_facts.samples
    return _is_corrupted(test) and (known is None or any(sample.task == "yes_no" for sample in known))


def _is_corrupted(test: PlannedTest) -> bool:
    return test.perturbed and test.views == 1 and _suite(test) == CORRUPTIONS


def _is_directional(test: PlannedTest) -> bool:
    return test.perturbed and "meaning" in perturbations.info(str(test.setting)).label_changing


def _readable(result: CellResult) -> NDArray[np.float64]:
    """Returns 1 for each readable answer and 0 for each unreadable answer, shape (N,); NaN for missing answers."""
    values = {"unparsed": 0.0, "error": np.nan}
    return np.array([values.get(score.state, 1.0) for score in result.scores], float)


def preprocessing_gain(scores: CellScores) -> Estimate:
    """Estimates what a preprocessed image gains over the same small image as it is (Res-Bench, Table 3)."""
    rung = Setting(scores.cell.setting.steps[:1])
    before, after = scores.under(rung).values, scores.result.values
    value = float((after - before).mean())
    missing = "" if math.isfinite(value) else "; scores are missing"

    def at(level: float) -> tuple[float, float]:
        return metrics.gain_interval(after, before, level, scores.groups)

    reason = f"against {rung} as it is{missing}"
    level = scores.level
    low, high = (math.nan, math.nan) if level is None else at(level)
    return Estimate(value, len(after), low, high, math.nan if level is None else level, reason=reason, at=at)


# Attacks: a wrong option that stands on the image, or in a note beside it.


ATTACK_RATE, WORD_DROP, TEXT_PREFERENCE = "attack_rate", "typographic_word_drop", "text_preference"
NORMALISED_ACCURACY = "normalised_accuracy"


def _names(test: PlannedTest, *names: str) -> bool:
    return test.setting is not None and any(step.name in names for step in test.setting.steps)


def _estimate_share(scores: CellScores, flags: Sequence[bool | None], none: str) -> Estimate:
    """Estimates a share of samples by their flags; those without one are left out.

    A failed inference is a missing score.
    """
    kept = [flag is not None for flag in flags]
    if not any(kept):
        return Estimate(math.nan, 0, valid=False, reason=none)
    failed = [score.state == "error" for score in scores.result.scores]
    values = np.array([np.nan if lost else float(bool(flag)) for flag, lost in zip(flags, failed, strict=True)])
    table = score_table(scores.samples, values, by_setting={scores.setting: values})
    return metrics.estimate("accuracy", rows_of(table, kept), setting=scores.setting, confidence=scores.level)


def attack_rate(scores: CellScores) -> Estimate:
    """Estimates the share of attacked samples that are answered as the attack wants."""
    result = scores.result
    each = zip(result.samples, result.predictions, result.scores, strict=True)
    flags = [_gives_in(*answered) if answered[0].target_of_attack else None for answered in each]
    return _estimate_share(scores, flags, "no question has a wrong answer that an attack wants")


def _gives_in(sample: Sample, prediction: Prediction, score: Score) -> bool:
    if sample.task != "open":
        return score.answer == sample.target_of_attack
    return scoring.score(replace(sample, target=sample.target_of_attack), prediction).value == 1


def _is_attacked(test: PlannedTest) -> bool:
    if test.setting is None or test.views > 1:
        return False
    samples = test.dataset_facts.samples
    return samples is None or _names(test, WRONG, NOTE) or any(sample.target_of_attack for sample in samples)


def text_preference(scores: CellScores) -> Estimate:
    """Estimates, of the answers that follow either the note or the image, the share that follows the note."""
    flags: list[bool | None] = []
    each = zip(
        scores.result.samples, scores.clean.scores, scores.result.scores, scores.clean.read, scores.result.read, strict=True
    )
    for sample, clean, score, before, after in each:
        wanted = sample.original_letters.get(sample.target_of_attack, sample.target_of_attack)
        differ = wanted and clean.answer is not None and before != wanted
        flags.append(after == wanted if differ and (score.state == "error" or after in {before, wanted}) else None)
    return _estimate_share(scores, flags, "no answer follows the note or the picture where the two differ")


def normalised_accuracy(scores: CellScores) -> Estimate:
    """Estimates the accuracy with a note as a share of that without it, over the questions that have a note."""
    kept = [bool(sample.target_of_attack) for sample in scores.result.samples]
    if not any(kept):
        return Estimate(math.nan, 0, valid=False, reason="no question has a wrong option that can be written")
    nothing = np.zeros(len(kept))
    table = score_table(scores.samples, scores.clean.values, by_setting={scores.setting: scores.result.values}, no_image=nothing)
    lost = metrics.estimate("relative_corruption_error", rows_of(table, kept), setting=scores.setting, confidence=scores.level)
    return lost.complement()


def typographic_word_drop(scores: CellScores) -> Estimate:
    """Estimates how much more accuracy a wrong word costs than a word without meaning in the same place."""
    kept = [bool(sample.target_of_attack) for sample in scores.result.samples]
    if not any(kept):
        return Estimate(math.nan, 0, valid=False, reason="no question has a wrong option that can be written")
    table = score_table(
        scores.samples,
        scores.under(control_of(scores.cell.setting) or CLEAN).values,
        by_setting={scores.setting: scores.result.values},
    )
    return metrics.estimate("accuracy_drop", rows_of(table, kept), setting=scores.setting, confidence=scores.level)


def _has_own_metric(test: PlannedTest) -> bool:
    """Whether a dataset publishes another number than the mean of scores, or may do so."""
    return test.setting is not None and test.dataset_facts.corpus_metric != corpus.MEAN


_CORPUS_INTERVAL = (
    "Guarded jackknife over source images, clean and perturbed answers together; none for a metric of a benchmark that is no "
    "known function of sums over samples."
)
_CORPUS_SOURCE = "the publication of the benchmark, see the corpus metrics"

BESIDE_SCORES = (
    Quantity(
        Facts(
            name=LABEL_PRESERVING_DROP,
            about="""The accuracy drop over the samples whose answer the setting leaves right.

            A mirrored picture may turn "left" into "right". Samples whose right answer changes are left out. It is measured where
            a dataset says that some answers change.

            Formula: ``mean(clean - perturbed) over samples whose answer is right under the setting``

            Returns:
                A fraction in [-1, 1]; NaN for a missing score, and where the setting changes every answer.""",
            reads="`clean`, `perturbed`, and which perturbations change the right answer of a sample",
            better="lower",
            bounds=(-1.0, 1.0),
            reference="VLM-RobustBench section 3.1, equation 1, over part of the samples (our companion)",
            validity="a sample whose answer stays right",
            unsuited="It is only as good as the dataset's marks: where a right answer changes without a mark, a model that "
            "follows the picture is charged with a loss. Its samples differ between settings; rank "
            "those that change no answers by `accuracy_drop`.",
            interval="That of `accuracy_drop`.",
        ),
        _may_change_labels,
        label_preserving_drop,
        by_category=True,
    ),
    Quantity(
        Facts(
            name=corpus.CORPUS_SCORE,
            about="""The dataset's own metric (F1, CIDEr, accuracy over groups of questions), where that is no mean of scores.

            Its parts, such as ``corpus_score.recall``, are in records; no rule may bound them.

            Formula: ``the dataset's metric of all its answers``

            Returns:
                In the unit of the benchmark; NaN where an answer is missing.""",
            reads="the answers of all samples together",
            unit="benchmark's own",
            better="higher",
            reference=_CORPUS_SOURCE,
            validity="the dataset names a metric of its own",
            unsuited="It has the scale of its benchmark: neither values nor bounds carry over to another dataset. Where it "
            "has no interval, bound `accuracy`, the mean of the samples' own scores.",
            interval=_CORPUS_INTERVAL,
        ),
        _has_own_metric,
        corpus.score_estimate,
        parts=corpus.part_estimates,
    ),
    Quantity(
        Facts(
            name=corpus.CORPUS_DROP,
            about="""What the dataset's own metric loses from clean images to a setting, where that is no mean of scores.

            Formula: ``corpus_score(clean) - corpus_score(perturbed)``

            Returns:
                In the unit of the benchmark; NaN where an answer is missing.""",
            reads="the answers of all samples together, clean and perturbed",
            unit="benchmark's own",
            better="lower",
            reference=_CORPUS_SOURCE,
            validity="the dataset names a metric of its own",
            unsuited="It cannot be compared between benchmarks, each of which has a scale of its own, and does not show "
            "which samples lost. Use `accuracy_drop`, the loss of the mean score, and `harmful_flip_rate` for both.",
            interval=_CORPUS_INTERVAL,
        ),
        lambda test: _has_own_metric(test) and test.perturbed,
        corpus.drop_estimate,
    ),
    Quantity(
        Facts(
            name=corpus.CORPUS_PCRI,
            about="""One less the ratio of the dataset's own metric of the best patches to that of whole images.

            Formula: ``1 - corpus_score(best patch of each sample) / corpus_score(clean)``

            Returns:
                At most 1; NaN where an answer is missing, and where the metric of whole images is 0.""",
            reads="the answers of all samples together, about whole images and about patches",
            unit="ratio",
            bounds=(-math.inf, 1.0),
            suite="patches",
            reference="PCRI section 3, equation 1, of the metric that the benchmark publishes",
            validity="the dataset names a metric of its own; "
            "the full-image score is at least chance + max(1 pp, 2 standard errors)",
            unsuited="It has the luck of raw `pcri`: the best of several patches counts, and the whole picture has one "
            "attempt. A corpus metric has no corrected form; bound `pcri_matched`, which reads the samples' own "
            "scores.",
            interval=_CORPUS_INTERVAL,
        ),
        lambda test: _has_own_metric(test) and test.views > 1,
        corpus.index_estimate,
    ),
    Quantity(
        Facts(
            name=PREPROCESSING_GAIN,
            about="""What a small image gains when it is padded or enlarged before the model sees it.

            It is paired by sample with the same image at the same resolution, not preprocessed.

            Formula: ``mean(preprocessed - as it is)``

            Returns:
                A fraction in [-1, 1]; NaN for a missing score.""",
            reads="`perturbed`, and the scores at the same resolution without preprocessing",
            better="higher",
            bounds=(-1.0, 1.0),
            suite="resolution",
            reference="Res-Bench table 3",
            unsuited="It is a gain over the same small picture, and may leave most of what its size costs. Use "
            "`accuracy_drop` for the rest, against the picture in full size.",
            interval="That of a gain: the score interval of paired 0/1 scores, guarded Student's t for graded ones.",
        ),
        lambda test: test.setting is not None and is_preprocessed(test.setting),
        preprocessing_gain,
    ),
    Quantity(
        Facts(
            name=ATTACK_RATE,
            about="""The share of attacked questions that are answered as the attack wants.

            A wrong option stands on the image or in a note, or the data name the answer that an attack or a prior wants
            (``target_of_attack``). Unreadable answers do not count as taken in.

            Formula: ``mean(answer is the attack's) over questions that are attacked``

            Returns:
                A fraction in [0, 1]; NaN where an inference failed.""",
            reads="the answers, and the answer that each attack wants",
            better="lower",
            bounds=(0.0, 1.0),
            reference="SCAM (2025), share of attack wins; VLMs are Biased (2025), bias ratio",
            validity="a question is attacked",
            unsuited="A model that is wrong anyway says the attack's option by chance. Judge "
            "`typographic_word_drop` beside it, which compares with a word without meaning.",
            interval="That of `accuracy`.",
        ),
        _is_attacked,
        attack_rate,
        by_category=True,
    ),
    Quantity(
        Facts(
            name=WORD_DROP,
            about="""How much more accuracy a wrong option on the image costs than a word without meaning in its place.

            What the rectangle hides costs both alike; what is left is the meaning of the word.

            Formula: ``mean(score with the nonsense word - score with the wrong option)``

            Returns:
                A fraction in [-1, 1]; NaN for a missing score.""",
            reads="`perturbed`, and the scores under `typographic_nonsense` at the same level",
            better="lower",
            bounds=(-1.0, 1.0),
            reference="after SCAM (arXiv 2504.04893), with a nonsense word as the control (ours)",
            validity="a question is attacked",
            unsuited="It counts lost answers only: one that was wrong and now says the option does not show. Use "
            "`attack_rate` for that.",
            interval="That of `accuracy_drop`.",
        ),
        lambda test: _names(test, WRONG),
        typographic_word_drop,
    ),
    Quantity(
        Facts(
            name=TEXT_PREFERENCE,
            about="""Of the answers that follow either a note or the image, the share that follows the note.

            Questions count where the answer to the picture alone differs from the note.

            Formula: ``n(answer of the note) / n(answer of the note, or the one without it)``

            Returns:
                A fraction in [0, 1]; NaN where an inference failed.""",
            reads="the answers with and without the note, and its option",
            better="lower",
            bounds=(0.0, 1.0),
            reference="Words or Vision (arXiv 2503.02199), text preference ratio",
            validity="an answer follows the note or the image, where the two differ",
            unsuited="It leaves out answers that follow neither. Use `normalised_accuracy` for what the note costs in all.",
            interval="That of `accuracy`.",
        ),
        lambda test: _names(test, NOTE),
        text_preference,
    ),
    Quantity(
        Facts(
            name=NORMALISED_ACCURACY,
            about="""The accuracy with a misleading note as a share of the accuracy without it.

            Formula: ``mean(score with the note) / mean(clean score) over questions that have a note``

            Returns:
                A ratio of at least 0, 1 where the note costs nothing; NaN for a missing score.""",
            reads="`clean` and `perturbed`, of the questions that have a note",
            unit="ratio",
            better="higher",
            bounds=(0.0, math.inf),
            reference="Words or Vision (arXiv 2503.02199), normalised accuracy",
            validity="a question has a note, and the clean accuracy is above max(1 pp, 2 standard errors)",
            unsuited="Guessing is right in part of the questions, so a model that always follows the note is not alone at 0. Use "
            "`text_preference` for answers that follow the note.",
            interval="That of `relative_corruption_error`, with 0 in the place of answers without the image, from 1 down.",
        ),
        lambda test: _names(test, NOTE),
        normalised_accuracy,
    ),
    Quantity(
        Facts(
            name=directional.ACCURACY,
            about="""The share of questions that are right after a setting made them ask for something else.

            Questions that the setting cannot change with certainty are left out.

            Formula: ``mean(score under the setting) over questions that it changes``

            Returns:
                A fraction in [0, 1]; NaN where an inference failed.""",
            reads="`perturbed`, and which questions the setting changes",
            better="higher",
            bounds=(0.0, 1.0),
            suite="wording",
            reference="PARC (arXiv 2506.14808), accuracy under semantic variations",
            validity="the setting changes a question",
            unsuited="Guessing is right in half of the yes/no questions, and a negated choice of four has three right answers. "
            "Use `directional_sensitivity` for models that ignore the change.",
            interval="That of `accuracy`.",
        ),
        _is_directional,
        directional.directional_accuracy,
    ),
    Quantity(
        Facts(
            name=directional.SENSITIVITY,
            about="""How far answers follow a setting that makes questions ask for something else: 0 for a guess, 1 at best.

            Questions that were right count. With the word NOT among four options, three are right, and a guess is right in 75 %.
            So shares are taken between a guess and always right. A model that does not notice the change answers as before,
            and is below 0: at -3 where a guess gets 75 %.

            Formula: ``mean(score - guess) / mean(1 - guess) over changed questions with a clean score of at least 0.5``

            Returns:
                A fraction of at most 1, negative below a guess; NaN where an inference failed.""",
            reads="`clean`, `perturbed`, which questions the setting changes, and the score of a guess at each",
            better="higher",
            bounds=(-math.inf, 1.0),
            suite="wording",
            reference="after PARC (arXiv 2506.14808), consistency under semantic variations, corrected for guessing (ours)",
            validity="the setting changes a question that was right before",
            unsuited="It leaves out questions that were wrong before. Use `directional_accuracy` for all.",
            interval="That of `relative_corruption_error`, with guesses in the place of answers without the image, from 1 down.",
        ),
        _is_directional,
        directional.directional_sensitivity,
    ),
    Quantity(
        Facts(
            name=UNPARSED_INCREASE,
            about="""How many more answers cannot be read under a setting than on clean images; of written answers alone.

            Letters that are scored by their probability can always be read.

            Formula: ``share of unreadable answers under the setting - share on clean images``

            Returns:
                A fraction in [-1, 1]; NaN where an inference failed.""",
            reads="which answers could be read, clean and perturbed",
            better="lower",
            bounds=(-1.0, 1.0),
            reference="our companion of the accuracy drop: errors of reading apart from wrong answers",
            validity="answers are written text",
            unsuited="It does not say whether answers are right: a model that always answers in the requested form, and "
            "wrongly, has 0. Use `accuracy_drop` for right answers that are lost.",
            interval="That of `accuracy_drop`.",
        ),
        lambda test: test.perturbed and test.views == 1,
        unparsed_increase,
        left_out="where every answer is a letter that was scored by its probability",
    ),
    Quantity(
        Facts(
            name=REFUSED_SHARE,
            about="""The share of answers that the model, or a filter, refused to give under a setting.

            The budget `max_refusal_rate` is about all answers of a model on a dataset, and this about one setting.

            Formula: ``refused answers / answers``

            Returns:
                A fraction in [0, 1]; NaN where an inference failed.""",
            reads="which answers were refused",
            better="lower",
            bounds=(0.0, 1.0),
            suite=CORRUPTIONS,
            reference="after ReliableVQA (Whitehead et al. 2022, abstention), as models refuse by themselves (our companion)",
            validity="answers are written text",
            unsuited="To refuse a picture that shows nothing is right. Use `unparsed_increase` for all answers that cannot be "
            "read.",
            interval="That of `accuracy`.",
        ),
        _is_corrupted,
        refused_share,
        left_out="where every answer is a letter that was scored by its probability",
    ),
    Quantity(
        Facts(
            name=ANSWER_CHANGE_RATE,
            about="""The share of answers that differ from the model's own answers on clean images.

            Wrong answers that turn into other wrong ones count, too. It reads no targets. Answers that cannot be read are
            compared by their text.

            Formula: ``mean(answer under the setting != answer on clean images)``

            Returns:
                A fraction in [0, 1]; NaN where an inference failed.""",
            reads="the answers, clean and perturbed",
            better="lower",
            bounds=(0.0, 1.0),
            suite=CORRUPTIONS,
            reference="after ImageNet-P (Hendrycks and Dietterich 2019, flip probability) and R-Bench (relative robustness)",
            unsuited="Sampled answers change without any perturbation, and free texts in words that mean the same. Where "
            "targets are known, `harmful_flip_rate` says which changes cost something.",
            interval="That of `accuracy`.",
        ),
        _is_corrupted,
        answer_change_rate,
    ),
    Quantity(
        Facts(
            name=YES_RATE_SHIFT,
            about="""How much more often yes/no questions are answered with yes than on clean images.

            Above 0 the model sees more objects than before, below 0 fewer. It reads no targets.

            Formula: ``share of yes under the setting - share of yes on clean images``

            Returns:
                A fraction in [-1, 1]; NaN where an inference failed.""",
            reads="the answers to yes/no questions, clean and perturbed",
            bounds=(-1.0, 1.0),
            suite=CORRUPTIONS,
            reference="POPE (Li et al. 2023, ratio of yes), from clean to perturbed images (our companion)",
            validity="the dataset has yes/no questions",
            unsuited="As many answers may turn from yes to no as the other way, and it is 0. Use `answer_change_rate` for all "
            "changes.",
            interval="That of `accuracy_drop`.",
        ),
        _asks_yes_or_no,
        yes_rate_shift,
    ),
    Quantity(
        Facts(
            name=observatory.COVERAGE,
            about="""The share of the boxes asked for that an answer gives, right or wrong, on images under one setting.

            Formula: ``mean over samples of (boxes given / boxes asked for)``

            Returns:
                A fraction in [0, 1]; NaN where an answer is missing.""",
            reads="the answers",
            better="higher",
            bounds=(0.0, 1.0),
            suite=OBSERVATORY,
            reference="our companion of the overlap of boxes (The Perceptual Observatory section 3.3)",
            validity="a task that asks for boxes",
            unsuited="It counts boxes and not how well they fit: a model that always answers with the whole picture has 1. "
            "Use `accuracy`, which is the mean overlap in a task that asks for boxes.",
            interval="Wilson's or the exact interval when each sample gives all or none, otherwise guarded Student's t.",
        ),
        observatory.asks_for_boxes,
        observatory.coverage_estimate,
    ),
    Quantity(
        Facts(
            name=observatory.FIXATION,
            about="""The share of images for which a model names the same cell of a grid wherever they stand.

            An item with an unreadable answer does not count as fixated.

            Formula: ``share of the items whose placements all get one and the same readable answer``

            Returns:
                A fraction in [0, 1]; NaN where no item is asked about in two places.""",
            reads="the answers to all placements of each item",
            better="lower",
            bounds=(0.0, 1.0),
            suite=OBSERVATORY,
            reference="The Perceptual Observatory, published evaluation code (fixation rate)",
            validity="a task that asks for a cell of a grid",
            unsuited="One other answer is enough for an item not to count, so that a strong preference for a cell may not "
            "show. Use `position_gap` for what the position costs.",
            interval="Wilson's interval over items.",
        ),
        observatory.asks_for_grid_cells,
        observatory.fixation_estimate,
    ),
    Quantity(
        Facts(
            name=observatory.DISTANCE,
            about="""How many cells a wrong answer is away from the target in a grid.

            Formula: ``mean over wrong answers of the number of rows and columns to the target``

            Returns:
                In cells, at least 1.""",
            reads="the answers and targets",
            unit="cells",
            better="lower",
            bounds=(0.0, math.inf),
            suite=OBSERVATORY,
            reference="The Perceptual Observatory, published evaluation code (Manhattan error)",
            validity="a task that asks for a cell of a grid, and an answer that can be read and is wrong",
            unsuited="It leaves out right and unreadable answers, so that it falls when a model errs more often, if only by "
            "one cell. Use `accuracy` for how often it is right.",
            interval="Fieller's interval: how many answers are wrong is uncertain, too.",
        ),
        observatory.asks_for_grid_cells,
        observatory.distance_estimate,
        left_out="where no answer that can be read is wrong",
    ),
)
"""Every quantity that needs more than a table of scores."""
