"""Measurements: the list of all quantities that rules may bound, when each applies and how it is estimated.

Planning, sharing of risk, judging, policies, ``vlmrobust explain`` and the documentation all read this list. A quantity that is a
formula over scores is registered in :mod:`pytest_vlmrobust.metrics` and listed here by its suite. Any other is decorated where it
is computed, and listed below.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from types import MappingProxyType

import numpy as np

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.cell import CLEAN, Cell, FamilyMetric, Planned, SweepMetric
from pytest_vlmrobust.core.errors import UnknownName
from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.core.registry import RegistryState
from pytest_vlmrobust.core.words import quantity as quantity_of
from pytest_vlmrobust.evaluation.judge.strata import MACRO, SUITE
from pytest_vlmrobust.evaluation.run.results import best_is_enough, undefined
from pytest_vlmrobust.metrics.estimation import describe
from pytest_vlmrobust.metrics.families import FamilyProperty
from pytest_vlmrobust.metrics.record import AMBIGUOUS, REGISTRY, Facts, Metric, ambiguous_message
from pytest_vlmrobust.metrics.table import CONFIDENCE, Needs
from pytest_vlmrobust.policies import MetricKey

from . import cell_quantities, corpus, observatory
from .context import BASELINE, CellScores, DatasetFacts, FamilyScores, PlannedTest, Quantity, SweepScores
from .strata import has_macro, macro_estimate

_WITHOUT_COMPARISON = "accuracy"
"""The only metric of cells on clean images or without images, which have nothing to compare with."""


def quantities() -> Mapping[str, Quantity]:
    """Returns every quantity that a rule may bound, by name, in the order in which records list them."""
    return _quantities(REGISTRY.state)


@lru_cache(maxsize=4)
def _quantities(_state: RegistryState) -> Mapping[str, Quantity]:
    records = [metrics.get(name) for name in metrics.names()]
    of_scores = [_of_metric(record) for record in records]
    listed = [
        *(entry for entry in of_scores if not entry.compares_with_earlier_run),
        *BESIDE_SCORES,
        *(entry for entry in of_scores if entry.compares_with_earlier_run),
        *(_of_mean_curve(record) for record in records if record.suite == SUITE and has_macro(record)),
        *(_of_family(record) for record in metrics.FAMILY_METRICS.values()),
    ]
    return MappingProxyType({entry.name: entry for entry in listed})


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
    return [entry for entry in quantities().values() if entry.applies(test)]


def estimate_all(
    test: PlannedTest, scores: CellScores | SweepScores | FamilyScores, names: Collection[str] | None = None
) -> dict[str, Estimate]:
    """Estimates the quantities of a test and their parts, by name.

    With ``names`` only these, and quantities with parts, because a rule may name a part.
    """
    estimates = {}
    for entry in (entry for entry in applying(test) if names is None or entry.name in names or entry.parts):
        if (estimate := entry.estimate(scores)) is not None:
            estimates[entry.name] = estimate
        estimates |= entry.parts(scores) if entry.parts else {}
    return estimates


def metric_keys(
    planned: Planned, facts: DatasetFacts | None = None, *, baseline: bool = False, attempts: bool = False
) -> list[MetricKey]:
    """Returns a MetricKey for each quantity of a planned test, without categories."""
    test = PlannedTest(planned, facts or DatasetFacts(), baseline, attempts)
    return [metric_key(test, entry.name) for entry in applying(test)]


def metric_key(test: PlannedTest, metric: str, category: str = "", strata: int = 1) -> MetricKey:
    """Returns the MetricKey of one quantity of a test, or of one of its categories."""
    setting = str(test.setting) if isinstance(test.planned, Cell) else test.planned.split
    return MetricKey(test.planned.model, test.planned.dataset, metric, setting, *test.family_and_level, category, strata)


def summary_key(planned: SweepMetric | FamilyMetric) -> MetricKey:
    """Returns the MetricKey of a summary metric, or of a property of a family."""
    return metric_key(PlannedTest(planned), planned.metric)


# Quantities that are formulas over scores: the registered metrics, and properties of families.


def _of_metric(metric: Metric) -> Quantity:
    optional = frozenset(need for need in metric.needs if need.optional)
    is_of_cell = metric.scope == "cell"
    applies = partial(_measures_cell, metric, optional) if is_of_cell else partial(_is_summarised_by, metric.name)
    estimate = _of_table if metric.scope == "sweep" else _since_baseline if metric.suite == BASELINE else _of_cell
    taken_by_category = metric.suite == SUITE if metric.scope == "sweep" else metric.suite != BASELINE
    return Quantity(metric, applies, partial(estimate, metric.name), by_category=taken_by_category)


def _is_summarised_by(metric: str, test: PlannedTest) -> bool:
    return isinstance(test.planned, SweepMetric) and test.planned.metric == metric


def _measures_cell(metric: Metric, optional: frozenset[Needs], test: PlannedTest) -> bool:
    if test.setting is None:
        return False
    if metric.suite == BASELINE:  # clean images have no drop that could increase
        return test.baseline and (test.setting != CLEAN or Needs.BASELINE_CLEAN not in metric.needs)
    if not test.perturbed:
        judges_clean = test.setting == CLEAN and set(metric.needs) == {Needs.PERTURBED, Needs.CONFIDENCES}
        return metric.name == _WITHOUT_COMPARISON or (judges_clean and metric.suite == test.suite and optional <= test.offered)
    return metric.suite in ("", test.suite) and optional <= test.offered


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
        return Estimate.invalid(reason)
    estimate = metrics.estimate(name, table, setting=scores.setting, confidence=scores.level)
    left = len(scores.samples) - table.samples
    return (
        replace(estimate, reason=estimate.reason or f"without {quantity_of(left, 'question')} without letters")
        if left
        else estimate
    )


def _since_baseline(name: str, scores: CellScores) -> Estimate:
    if scores.not_compared:
        return Estimate.invalid(scores.not_compared)
    return metrics.estimate(name, scores.table_with_baseline, setting=scores.setting, confidence=scores.level)


def _of_table(name: str, scores: SweepScores) -> Estimate:
    return metrics.estimate(name, scores.table, confidence=scores.level)


def _of_family(record: FamilyProperty) -> Quantity:
    def applies(test: PlannedTest) -> bool:
        return isinstance(test.planned, FamilyMetric) and test.planned.metric == record.name

    def estimate(scores: FamilyScores) -> Estimate:
        return record.estimate(scores.parameters, scores.scores, scores.groups)

    return Quantity(record, applies, estimate)


def _of_mean_curve(metric: Metric) -> Quantity:
    """Returns a curve metric as a quantity on the mean curve of the categories."""

    def applies(test: PlannedTest) -> bool:
        several = test.categories is None or (len(test.categories) > 1 and "" not in test.categories)
        return several and _is_summarised_by(metric.name, test)

    def estimate(scores: SweepScores) -> Estimate | None:
        return macro_estimate(metric.name, scores.table, scores.samples)

    return Quantity(_mean_curve_facts(metric), applies, estimate, left_out="where all resolutions show the same images")


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


BESIDE_SCORES = (
    cell_quantities.label_preserving_drop,
    corpus.corpus_score,
    corpus.corpus_drop,
    corpus.corpus_pcri,
    cell_quantities.preprocessing_gain,
    cell_quantities.attack_rate,
    cell_quantities.typographic_word_drop,
    cell_quantities.text_preference,
    cell_quantities.normalised_accuracy,
    cell_quantities.directional_accuracy,
    cell_quantities.directional_sensitivity,
    cell_quantities.unparsed_increase,
    cell_quantities.refused_share,
    cell_quantities.answer_change_rate,
    cell_quantities.yes_rate_shift,
    observatory.box_coverage,
    observatory.fixation_rate,
    observatory.grid_distance,
)
"""Every quantity that needs more than a table of scores."""
