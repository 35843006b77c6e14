"""Analyses: what the papers compute from several models, on the samples and settings common to all of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.cell import CLEAN, Cell, Setting
from pytest_vlmrobust.core.errors import StoreError, UsageError
from pytest_vlmrobust.core.estimate import LEVEL, Estimate
from pytest_vlmrobust.core.fingerprint import canonical_json
from pytest_vlmrobust.core.prediction import ModelRef
from pytest_vlmrobust.core.words import first_few
from pytest_vlmrobust.evaluation.judge.reads import chance_levels, score_table
from pytest_vlmrobust.evaluation.run.plan import DIRECT, families, family_name
from pytest_vlmrobust.evaluation.run.results import OUTCOMES, CellResult, outcome_of_chain, positions
from pytest_vlmrobust.metrics.severity import ALL
from pytest_vlmrobust.metrics.statistics.paired import interval_of
from pytest_vlmrobust.metrics.table import five_numbers

from .boards import Part, RankingOptions, contest_estimates
from .standings import (
    CATEGORY_DROPS,
    CHAIN_LENGTHS,
    CLEAN_ACCURACY,
    CORRUPTION_ERRORS,
    EFFECTS,
    MEAN_CORRUPTION_ERROR,
    MEAN_DROP,
    MOST_HARMFUL,
    PATCH_BOXES,
    PATCH_TASKS,
    PROMPT_MODES,
    RCI_BANDS,
    RCI_CORRELATIONS,
    SIZE_TREND,
    TIERS,
    TOP_RCE,
    ModelAnalysis,
)

if TYPE_CHECKING:
    from pytest_vlmrobust.metrics.statistics.means import BoundedMeanTest
    from pytest_vlmrobust.store import Evidence


ALL_TASKS = "all tasks"
"""The subject of a row over all datasets."""
ALL_MODELS = "all models"
"""The subject of a row over all models."""


def analyses(part: Part, options: RankingOptions, refs: Mapping[str, ModelRef]) -> tuple[ModelAnalysis, ...]:
    """Returns the analyses of one dataset."""
    settings = part.table.settings_with_samples()
    if not settings:
        return ()
    pools = _pools(options, refs)
    return (
        *_corruption_errors(part, settings, options),
        *_tiers(part, settings, pools),
        *_effects(part, settings, options, pools),
        *_category_drops(part, options),
        *_size_trends(part, settings, options, refs),
        *_prompt_modes(part, settings, options, refs, pools),
    )


_Pools = Mapping[str, Sequence[int]]
"""Name to the positions of its models: a single model, several of one family asked in the same way, or all models."""


def _pools(options: RankingOptions, refs: Mapping[str, ModelRef]) -> _Pools:
    by_family: dict[str, list[int]] = {}
    for place, model in enumerate(options.models):
        if model in refs and refs[model].family:
            by_family.setdefault(family_name(refs[model]), []).append(place)
    several = {f"{name} ({len(places)} models)": places for name, places in by_family.items() if len(places) > 1}
    singles = {model: [place] for place, model in enumerate(options.models)}
    return {**singles, **several, ALL_MODELS: _different(options, refs)}


def _different(options: RankingOptions, refs: Mapping[str, ModelRef]) -> list[int]:
    """Returns the positions of the models; a model asked in several ways counts once."""
    again = {second for _, second in mode_pairs(refs)}
    return [place for place, model in enumerate(options.models) if model not in again]


def _weights(places: Sequence[int], options: RankingOptions) -> NDArray[np.float64]:
    """Returns the weights of a mean over some models."""
    weights = np.zeros(len(options.models))
    weights[list(places)] = 1.0 / len(places)
    return weights


def _corruption_errors(part: Part, settings: Sequence[str], options: RankingOptions) -> Iterable[ModelAnalysis]:
    """Yields the mean corruption error of each family of perturbations (VLM-RobustBench table 28)."""
    if not options.reference:
        return
    reference, n = options.models.index(options.reference), _samples(part)
    for family in dict.fromkeys(part.families[name] for name in settings):
        names = [name for name in settings if part.families[name] == family]
        if perfect := part.table.perfect(names, reference):
            reason = f"{options.reference} makes no error under {first_few(perfect)}"
            values = [Estimate(math.nan, n, reason=reason)] * len(options.models)
        else:
            contest = part.table.mean_corruption_error(names, reference)
            values = contest_estimates(contest, MEAN_CORRUPTION_ERROR.name, n)
            values[reference] = Estimate(1.0, n, 1.0, 1.0, LEVEL, reason="the reference model")
        yield ModelAnalysis(CORRUPTION_ERRORS, family, dict(zip(options.models, values, strict=True)))


def _tiers(part: Part, settings: Sequence[str], pools: _Pools) -> Iterable[ModelAnalysis]:
    """Yields the shares of settings by tier and level, of each pool (VLM-RobustBench tables 11, 18 and 19)."""
    for name, places in pools.items():
        for level, counted in _by_level(settings).items():
            yield ModelAnalysis(TIERS, name, _tier_shares(part, counted, places), level)


def _tier_shares(part: Part, settings: Sequence[str], places: Sequence[int]) -> dict[str, Estimate]:
    drops = [drop for place in places for drop in part.table.drops(settings, place).values()]
    return {tier: Estimate(share, len(drops)) for tier, share in metrics.tier_shares(drops)._asdict().items()}


def _by_level(settings: Sequence[str]) -> dict[str, tuple[str, ...]]:
    return metrics.by_level({name: Setting.parse(name).level or "" for name in settings})


_DROP, _RCE = "accuracy_drop", "relative_corruption_error"
_TOP = 6
"""The number of settings with the largest RCE that are named, as in table 5."""


def _effects(part: Part, settings: Sequence[str], options: RankingOptions, pools: _Pools) -> Iterable[ModelAnalysis]:
    """Yields the costs of levels and settings for each pool (VLM-RobustBench figure 2 and tables 5, 12, 15 to 17 and 20 to 23).

    Drops have intervals; all other numbers are plain means over the models.
    """
    costs = {setting: [_costs(part, setting, place) for place in range(len(options.models))] for setting in settings}
    levels = _by_level(settings)

    def mean(places: Sequence[int], counted: Sequence[str]) -> dict[str, Estimate]:
        cells = [costs[setting][place] for place in places for setting in counted]
        why = {name: next((cell[name].reason for cell in cells if math.isnan(cell[name].value)), "") for name in metrics.EFFECTS}
        means = metrics.mean_effects([{name: cost.value for name, cost in cell.items()} for cell in cells])
        values = {name: Estimate(value, _samples(part), reason=why.get(name, "")) for name, value in means.items()}
        return values | {_DROP: _estimate(part.table.weighted_drop(_weights(places, options), counted), part)}

    for name, places in pools.items():
        for level, counted in levels.items():
            yield ModelAnalysis(EFFECTS, name, mean(places, counted), level)
    by_setting = {setting: {name: mean(places, [setting]) for name, places in pools.items()} for setting in settings}
    for level, counted in levels.items():
        analysis, effect = (TOP_RCE, _RCE) if level == ALL else (MOST_HARMFUL, _DROP)
        rows = {setting: {name: effects[effect] for name, effects in by_setting[setting].items()} for setting in counted}
        known = [setting for setting, row in rows.items() if not math.isnan(row[ALL_MODELS].value)]
        known.sort(key=lambda setting: -rows[setting][ALL_MODELS].value)
        for setting in known[:_TOP] if level == ALL else known:
            yield ModelAnalysis(analysis, setting, rows[setting], level)


def _costs(part: Part, setting: str, place: int) -> dict[str, Estimate]:
    """Returns the cost of a setting for one model, over the samples that count for all models."""
    table = part.table.score_table(place, setting, part.no_image)
    costs = {name: metrics.estimate(name, table, setting, None) for name in metrics.EFFECTS}
    costs = {name: cost if cost.valid else replace(cost, value=math.nan) for name, cost in costs.items()}
    return {**costs, "clean_accuracy": Estimate(float(table.clean.mean()), table.samples)}


def _category_drops(part: Part, options: RankingOptions) -> Iterable[ModelAnalysis]:
    """Yields the mean drop of each category of questions, largest on average first (VLM-RobustBench A.2)."""
    rows = []
    names = sorted({*part.categories} - {""})
    for category in names if len(names) > 1 else ():
        table = part.table.of_samples(np.array([label == category for label in part.categories]))
        if settings := table.settings_with_samples():
            n = int(table.complete_samples().sum())
            values = contest_estimates(table.mean_drop(settings), MEAN_DROP.name, n)
            rows.append(ModelAnalysis(CATEGORY_DROPS, category, dict(zip(options.models, values, strict=True))))
    return sorted(rows, key=lambda row: -sum(value.value for value in row.values.values()))


def _size_trends(
    part: Part, settings: Sequence[str], options: RankingOptions, refs: Mapping[str, ModelRef]
) -> Iterable[ModelAnalysis]:
    """Yields the slope of the mean drop per tenfold size of each family of models (VLM-RobustBench A.3)."""
    try:
        known = families(refs)
    except UsageError:  # a family with the name of a model of another run is named in that run
        return
    values = part.table.mean_drop(settings).values
    for name, family in known.items():
        places = [options.models.index(member) for member in family.members]
        trend = metrics.size_trend(family.parameters, values[places].tolist())
        weights = np.zeros(len(options.models))
        weights[places] = metrics.size_weights(family.parameters)
        slope = _estimate(part.table.weighted_drop(weights, settings), part)
        sizes = zip(family.members, family.parameters, strict=True)
        note = ", ".join(f"{member} ({size:g} B)" for member, size in sizes)
        yield ModelAnalysis(SIZE_TREND, name, {"slope": slope, "r_squared": Estimate(trend.r_squared, len(places))}, note=note)


def _prompt_modes(
    part: Part, settings: Sequence[str], options: RankingOptions, refs: Mapping[str, ModelRef], pools: _Pools
) -> Iterable[ModelAnalysis]:
    """Yields accuracy, mean drop and tiers of models that are asked in several ways, and the changes paired by sample.

    Source: VLM-RobustBench A.4 (table 10) and A.5 (table 11, over the models of a family).
    """

    def values(weights: NDArray[np.float64]) -> dict[str, Estimate]:
        return {
            CLEAN_ACCURACY.name: _estimate(part.table.weighted_accuracy(weights), part),
            MEAN_DROP.name: _estimate(part.table.weighted_drop(weights, settings), part),
        }

    several = {options.models.index(name) for pair in mode_pairs(refs) for name in pair}
    for name, places in pools.items():
        if name != ALL_MODELS and several.issuperset(places):
            row = values(_weights(places, options)) | _tier_shares(part, settings, places)
            yield ModelAnalysis(PROMPT_MODES, name, row, note=refs[options.models[places[0]]].prompt_mode)
    for first, second in mode_pairs(refs):
        change = _weights([options.models.index(second)], options) - _weights([options.models.index(first)], options)
        note = f"{refs[second].prompt_mode} minus {refs[first].prompt_mode}"
        yield ModelAnalysis(PROMPT_MODES, f"{second} minus {first}", values(change), note=note)


def mode_pairs(refs: Mapping[str, ModelRef]) -> list[tuple[str, str]]:
    """Returns pairs of entries that are the same model asked in two ways; the direct mode comes first, or else the first entry.

    Models are the same if they have the same family and size, or, if unknown, the same location and revision; and the
    same adapter, quantisation and deployment.
    """
    same: dict[tuple[object, ...], list[str]] = {}
    for name, ref in refs.items():
        sized = ref.family and ref.parameters_billion is not None
        key = (ref.family, ref.parameters_billion) if sized else (ref.backend, ref.location, ref.revision)
        same.setdefault((*key, ref.adapter, ref.quantization, canonical_json(ref.deployment)), []).append(name)
    pairs = []
    for names in same.values():
        ordered = sorted(names, key=lambda name: refs[name].prompt_mode != DIRECT)
        pairs += [pair for pair in itertools.combinations(ordered, 2) if len({refs[name].prompt_mode for name in pair}) > 1]
    return pairs


def _estimate(test: BoundedMeanTest, part: Part) -> Estimate:
    low, high = interval_of(test, LEVEL)
    return Estimate(float(test.means[0]), _samples(part), low, high, LEVEL)


def _samples(part: Part) -> int:
    return int(part.table.complete_samples().sum())


# Length of the chain of thought, by outcome.


@dataclass(frozen=True, slots=True)
class Chains:
    """The answers of one cell: the score and the number of words of thinking of each sample."""

    scores: Sequence[float]
    words: Sequence[int]


def chain_lengths(pair: tuple[str, str], cells: Sequence[tuple[Setting, Chains, Chains]]) -> Iterable[ModelAnalysis]:
    """Yields the lengths of chains of thought by outcome (The Perceptual Observatory, figure 7)."""
    plain, thinking = pair
    for split, perturbed in (("clean", False), ("perturbed", True)):
        words: dict[str, list[int]] = {outcome: [] for outcome in OUTCOMES.values()}
        for setting, before, after in cells:
            if (setting != CLEAN) == perturbed:
                for first, second, length in zip(before.scores, after.scores, after.words, strict=True):
                    if outcome := outcome_of_chain(first, second):
                        words[outcome].append(length)
        for outcome, lengths in words.items():
            quarters = np.quantile(lengths, (0.25, 0.5, 0.75)).tolist() if lengths else [math.nan] * 3
            names = ("lower_quartile", "median", "upper_quartile")
            values = {"answers": Estimate(float(len(lengths)), len(lengths))}
            values |= {name: Estimate(value, len(lengths)) for name, value in zip(names, quarters, strict=True)}
            yield ModelAnalysis(CHAIN_LENGTHS, f"{thinking} after {plain}", values, f"{outcome}, {split}", "words of thinking")


# PCRI by task, over datasets.


_PATCHES = "patches"


@dataclass(frozen=True, slots=True)
class PatchIndex:
    """PCRI of one model on one dataset and grid; ``value`` is NaN with a reason if it does not apply."""

    model: str
    dataset: str
    task: str
    grid: int
    estimate: Estimate
    contributions: tuple[float, ...] = ()
    """The share of each patch in the right answers, row by row; empty if some patch was not asked about."""


def patch_indices(evidence: Evidence, model: str, name: str) -> Iterable[PatchIndex]:
    """Yields PCRI of a model on each dataset and grid of a run, or the reason why it is unknown."""
    for cell in evidence.cells():
        if cell.model != model or cell.setting.name != _PATCHES or not (cell.setting.level or "").isdecimal():
            continue
        samples = evidence.samples(cell.dataset)
        contributions: tuple[float, ...] = ()
        tasks = sorted({sample.task for sample in samples})
        try:
            clean = evidence.get_scores(Cell(model, cell.dataset, CLEAN))
            stored = evidence.get_cell(cell)
        except StoreError as error:  # only a part of the samples was asked, or no clean images
            index = Estimate(math.nan, 0, reason=str(error))
        else:
            result = CellResult.of(cell, samples, stored.answers, views=stored.views, places=None, notes={})
            patches = {str(cell.setting): result.values[:, None]}
            table = score_table(samples, np.array(clean), patches_by_setting=patches, **chance_levels(samples))
            index = metrics.estimate("pcri", table, setting=str(cell.setting))
            if not index.valid:
                index = Estimate(math.nan, index.n, reason=index.reason)
            contributions = positions(result)
        yield PatchIndex(name, cell.dataset, ", ".join(tasks), int(cell.setting.level or 0), index, contributions)


def patch_analyses(indices: Sequence[PatchIndex]) -> tuple[ModelAnalysis, ...]:
    """Returns the plain mean of PCRI over all datasets and over the datasets of each task, and its change (PCRI figures 2 to 7).

    A dataset counts for a model if its index is known on the coarsest and the finest grid; others are listed. The mean has no
    interval, because a few datasets are not a sample of a task.
    """
    rows = []
    for task, model in dict.fromkeys((task, index.model) for index in indices for task in (ALL_TASKS, index.task)):
        of_model = [index for index in indices if index.model == model and task in (ALL_TASKS, index.task)]
        grids = sorted({index.grid for index in of_model})
        known = {(index.dataset, index.grid): index.estimate.value for index in of_model if not math.isnan(index.estimate.value)}
        datasets = list(dict.fromkeys(index.dataset for index in of_model))
        counted = [name for name in datasets if {(name, grid) for grid in grids} <= known.keys()]
        means = {grid: _mean([known[name, grid] for name in counted]) for grid in grids}
        values = {f"{grid} x {grid}": Estimate(means[grid], len(counted)) for grid in grids}
        if len(grids) > 1:
            change = metrics.relative_index_change(means[grids[0]], means[grids[-1]])
            values["relative_change"] = Estimate(change, len(counted))
        lacking = {index.dataset: index.estimate.reason for index in of_model if math.isnan(index.estimate.value)}
        named = [f"{name} ({reason or 'not asked on every grid'})" for name, reason in lacking.items()]
        note = f"of {', '.join(counted) or 'no dataset'}" + (f"; lacks {first_few(named)}" if named else "")
        rows.append(ModelAnalysis(PATCH_TASKS, model, values, task, note))
    return tuple(rows)


def rci_analyses(indices: Sequence[PatchIndex]) -> tuple[ModelAnalysis, ...]:
    """Returns the RCI of each dataset with its bands, and the correlations between models, by grid.

    The band of a dataset is based on the mean over the models with a known index (RCI section 3.2); the note lists the others.
    The correlation of two models is over the datasets
    for which both have an index (section 4.2.1 and figure 2).
    """
    rows = []
    for grid in sorted({index.grid for index in indices}):
        by_dataset: dict[str, dict[str, Estimate]] = {}
        for index in indices:
            if index.grid == grid:
                by_dataset.setdefault(index.dataset, {})[index.model] = index.estimate
        undefined = {name: {m: rci for m, rci in rcis.items() if math.isnan(rci.value)} for name, rcis in by_dataset.items()}
        means = {
            name: _mean([rci.value for model, rci in rcis.items() if model not in undefined[name]])
            for name, rcis in by_dataset.items()
        }
        known = {name: mean for name, mean in means.items() if not math.isnan(mean)}
        by_percentile, of = metrics.percentile_bands(known), f"{grid} x {grid}"
        for name, rcis in by_dataset.items():
            band = metrics.rci_band(means[name]) if name in known else "no band"
            among = by_percentile.get(name, f"needs {len(metrics.RCI_BANDS)} datasets" if name in known else "no band")
            mean = {ALL_MODELS: Estimate(means[name], len(rcis) - len(undefined[name]))}
            without = first_few([f"{model} ({rci.reason or 'no index'})" for model, rci in undefined[name].items()])
            note = f"{band}; by percentile: {among}" + (f"; without {without}" if without else "")
            rows.append(ModelAnalysis(RCI_BANDS, name, rcis | mean, of, note))
        models = dict.fromkeys(index.model for index in indices)
        for pair in itertools.combinations(models, 2):
            both = [{name: rcis[model].value for name, rcis in by_dataset.items()} for model in pair]
            shared = [name for name in by_dataset if not any(math.isnan(series[name]) for series in both)]
            corr = metrics.rci_correlation(*({name: series[name] for name in shared} for series in both))
            values = {"pearson": Estimate(corr.pearson, corr.datasets), "spearman": Estimate(corr.spearman, corr.datasets)}
            if len(shared) > 1:
                rows.append(ModelAnalysis(RCI_CORRELATIONS, " and ".join(pair), values, of, f"over {len(shared)} datasets"))
    return tuple(rows)


def patch_boxes(indices: Sequence[PatchIndex]) -> tuple[ModelAnalysis, ...]:
    """Returns how the contribution of each patch is spread over models and datasets (RCI figures 4 and 6)."""
    rows = []
    for grid in sorted({index.grid for index in indices}):
        known = [index.contributions for index in indices if index.grid == grid and index.contributions]
        shares = np.array([contributions for contributions in known if not any(map(math.isnan, contributions))])
        for place in range(grid**2 if len(shares) > 1 else 0):
            values = {name: Estimate(value, len(shares)) for name, value in five_numbers(shares[:, place]).items()}
            rows.append(ModelAnalysis(PATCH_BOXES, f"{grid} x {grid}", values, f"patch {place + 1}"))
    return tuple(rows)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan
