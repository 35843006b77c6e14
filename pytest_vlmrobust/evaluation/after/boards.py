"""Boards: from the paired scores of several models to their values, ranks and differences."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.estimate import LEVEL, Estimate
from pytest_vlmrobust.core.fingerprint import SUBSET_SEED, rng_for
from pytest_vlmrobust.core.words import first_few, quantity
from pytest_vlmrobust.metrics.families import SideBySide
from pytest_vlmrobust.metrics.statistics.multiple import Contest, place_intervals, places
from pytest_vlmrobust.metrics.statistics.paired import BoundTest, largest_bounds

from . import standings
from .standings import QUANTITIES, Board, Difference, FamilyDrops, Standing

if TYPE_CHECKING:
    from pytest_vlmrobust.metrics.table import Scores


MEAN_ACCURACY, CLEAN_ACCURACY = standings.MEAN_ACCURACY.name, standings.CLEAN_ACCURACY.name
MEAN_DROP, WORST, ERROR = standings.MEAN_DROP.name, standings.WORST_CASE_DROP.name, standings.MEAN_CORRUPTION_ERROR.name
_TAIL = (1.0 - LEVEL) / 2.0
"""Probability in each tail outside of an interval."""
_NO_REFERENCE = "no reference model was named: --reference MODEL"


@dataclass(frozen=True, slots=True)
class RankingOptions:
    """The options of a ranking."""

    models: tuple[str, ...]
    by: str = MEAN_ACCURACY
    reference: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """The scores of all models on one dataset."""

    dataset: str
    table: SideBySide
    families: Mapping[str, str]
    """The family of each setting of the table."""
    categories: Sequence[str] = ()
    """The category of each sample."""
    no_image: Scores | None = None
    """Scores without the images, shape (M, N); ``None`` if some model was not asked without them."""


@dataclass(frozen=True, slots=True, eq=False)
class _Worst:
    """The drops of one model under the counted settings, and their tests."""

    drops: Mapping[str, float]
    tests: Sequence[BoundTest]

    def estimate(self, n: int) -> Estimate:
        if not self.drops:
            return Estimate(math.nan, n, reason="no setting counts")
        at, value = max(self.drops.items(), key=lambda item: item[1])
        low, high = largest_bounds(self.tests, len(self.drops), _TAIL)
        return Estimate(value, n, max(low, -1.0), min(high, 1.0), LEVEL, reason=f"at {at}")


@dataclass(frozen=True, slots=True, eq=False)
class _BoardData:
    """The data of one board."""

    dataset: str
    samples: int
    settings: int
    contests: Mapping[str, Contest]
    families: Mapping[str, tuple[int, Contest]]
    """Family to its number of settings, and the mean drop under them."""
    worst: Sequence[_Worst]
    """By model."""
    failed: Sequence[int]
    """By model."""
    lacking: Mapping[str, str]
    """Quantity to the reason why it is unknown."""
    notes: tuple[str, ...] = ()
    clean: Sequence[Estimate] = field(default=())
    """By model, with the interval of the metric; if empty, the values of the contest are used."""


def boards(parts: Sequence[Part], options: RankingOptions) -> tuple[Board, ...]:
    """Returns the board over all datasets, if there are several, and the board of each dataset."""
    datasets = [_board_data(part, options) for part in parts]
    every = [_mean_over_datasets(datasets, options), *datasets] if len(datasets) > 1 else datasets
    return tuple(_board(data, options) for data in every)


def _board_data(part: Part, options: RankingOptions) -> _BoardData:
    table = part.table
    settings, samples = table.settings_with_samples(), int(table.complete_samples().sum())
    contests = {CLEAN_ACCURACY: table.clean_accuracy()} if samples else {}
    if settings:
        contests |= {MEAN_ACCURACY: table.mean_accuracy(settings), MEAN_DROP: table.mean_drop(settings)}
    lacking = dict.fromkeys(set(QUANTITIES) - {*contests, WORST}, "no sample counts under any setting")
    if settings and (reason := _no_error_ratio(part, settings, options)):
        lacking[ERROR] = reason
    elif settings:
        contests[ERROR] = table.mean_corruption_error(settings, options.models.index(options.reference))
        lacking.pop(ERROR)
    by_family: dict[str, list[str]] = {}
    for name in settings:
        by_family.setdefault(part.families[name], []).append(name)
    models = range(table.models)
    return _BoardData(
        dataset=part.dataset,
        samples=samples,
        settings=len(settings),
        contests=contests,
        families={name: (len(members), table.mean_drop(members)) for name, members in by_family.items()},
        worst=[_Worst(table.drops(settings, model), table.drop_tests(settings, model)) for model in models],
        failed=table.failed_inferences(),
        lacking=lacking,
        notes=_failures(table, options),
        clean=[metrics.estimate(CLEAN_ACCURACY, table.score_table(model)) for model in models] if samples else (),
    )


def _no_error_ratio(part: Part, settings: Sequence[str], options: RankingOptions) -> str:
    """Returns why there is no mean corruption error, or an empty string."""
    if not options.reference:
        clean = part.table.clean_accuracy().values
        weakest = options.models[int(clean.argmin())]
        return f"{_NO_REFERENCE}. VLM-RobustBench takes the one with the lowest clean accuracy, here {weakest}"
    perfect = part.table.perfect(settings, options.models.index(options.reference))
    return f"the reference model {options.reference} makes no error under {first_few(perfect, 1)}" if perfect else ""


def _failures(table: SideBySide, options: RankingOptions) -> tuple[str, ...]:
    """Returns a note about failed inferences, and the pairs excluded for all models because of them."""
    counts = [(name, count) for name, count in zip(options.models, table.failed_inferences(), strict=True) if count]
    if not counts:
        return ()
    total = table.samples * (1 + len(table.by_setting))
    failures = [f"{count} of {quantity(total, 'inference')} of {name} failed" for name, count in counts]
    lost = sum(int((~table.complete_samples(name)).sum()) for name in ("", *table.by_setting))
    return (
        f"{', '.join(failures)}: {lost} of {total} pairs of a sample and a setting, clean included, are left out for every model",
    )


def _mean_over_datasets(datasets: Sequence[_BoardData], options: RankingOptions) -> _BoardData:
    """Returns the plain mean over datasets: each counts once, whatever its number of samples."""
    known = [name for name in QUANTITIES if all(name in data.contests for data in datasets)]
    lacking = {
        name: next(f"{data.dataset}: {data.lacking[name]}" for data in datasets if name in data.lacking)
        for name in QUANTITIES
        if name not in (*known, WORST)
    }
    names = dict.fromkeys(name for data in datasets for name in data.families)
    models = range(len(options.models))
    return _BoardData(
        dataset="",
        samples=sum(data.samples for data in datasets),
        settings=sum(data.settings for data in datasets),
        contests={name: Contest.mean([data.contests[name] for data in datasets]) for name in known},
        families={name: _mean_family([data.families[name] for data in datasets if name in data.families]) for name in names},
        worst=[_worst_of_all(datasets, model) for model in models],
        failed=[sum(data.failed[model] for data in datasets) for model in models],
        lacking=lacking,
        notes=(f"the plain mean over {len(datasets)} datasets: each counts once, however many samples it has",),
    )


def _mean_family(parts: Sequence[tuple[int, Contest]]) -> tuple[int, Contest]:
    return sum(count for count, _ in parts), Contest.mean([contest for _, contest in parts])


def _worst_of_all(datasets: Sequence[_BoardData], model: int) -> _Worst:
    drops = {f"{setting} on {data.dataset}": drop for data in datasets for setting, drop in data.worst[model].drops.items()}
    return _Worst(drops, [test for data in datasets for test in data.worst[model].tests])


def _board(data: _BoardData, options: RankingOptions) -> Board:
    values = {name: _values(data, name, options) for name in QUANTITIES}
    ranked = data.contests.get(options.by)
    rng = rng_for(SUBSET_SEED, "ranking", options.by, data.dataset)
    between = None if ranked is None else ranked.differences(LEVEL, rng)
    standings = [
        Standing(name, {of: estimates[model] for of, estimates in values.items()}, failed=data.failed[model])
        for model, name in enumerate(options.models)
    ]
    if ranked is not None and between is not None:
        standings = _with_ranks(standings, ranked, between, options)
    reasons = dict.fromkeys(f"{QUANTITIES[name].words} is not given: {reason}" for name, reason in sorted(data.lacking.items()))
    return Board(
        dataset=data.dataset,
        samples=data.samples,
        settings=data.settings,
        standings=tuple(standings),
        differences=() if ranked is None or between is None else _differences(standings, ranked, between, data.samples, options),
        families=_families(data, options),
        notes=(*data.notes, *reasons),
    )


def _values(data: _BoardData, name: str, options: RankingOptions) -> Sequence[Estimate]:
    """Returns a quantity of each model."""
    if name == WORST:
        return [worst.estimate(data.samples) for worst in data.worst]
    if name in data.lacking:
        return [Estimate(math.nan, data.samples, reason=data.lacking[name])] * len(options.models)
    if name == CLEAN_ACCURACY and data.clean:
        return data.clean
    estimates = contest_estimates(data.contests[name], name, data.samples)
    if name == ERROR:
        place = options.models.index(options.reference)
        estimates[place] = Estimate(1.0, data.samples, 1.0, 1.0, LEVEL, reason="the reference model")
    return estimates


def contest_estimates(contest: Contest, name: str, n: int) -> list[Estimate]:
    """Returns a quantity of each model with its own interval."""
    smallest, largest = (0.0, 1.0) if name == MEAN_ACCURACY else metrics.get(name).bounds
    lows, highs = contest.alone.lower(_TAIL).clip(smallest), contest.alone.upper(_TAIL).clip(max=largest)
    ends = zip(contest.values.tolist(), lows.tolist(), highs.tolist(), strict=True)
    return [Estimate(value, n, low, high, LEVEL) for value, low, high in ends]


def _with_ranks(
    standings: Sequence[Standing], contest: Contest, between: NDArray[np.float64], options: RankingOptions
) -> list[Standing]:
    """Returns the standings with their ranks, best first; ties are ordered by name."""
    higher = QUANTITIES[options.by].better == "higher"
    ranks, ends = places(contest.values, higher=higher), place_intervals(between, higher=higher)
    ranked = []
    for model, standing in enumerate(standings):
        alike = [other for other in range(len(standings)) if other != model and not _excludes_zero(between[model, other])]
        names = tuple(options.models[other] for other in alike)
        best, worst = map(int, ends[model])
        ranked.append(Standing(standing.model, standing.values, int(ranks[model]), best, worst, names, standing.failed))
    return sorted(ranked, key=lambda standing: (standing.rank or 0, standing.model))


def _excludes_zero(ends: NDArray[np.float64]) -> bool:
    return bool(ends[0] > 0.0 or ends[1] < 0.0)


def _differences(
    standings: Sequence[Standing], contest: Contest, between: NDArray[np.float64], samples: int, options: RankingOptions
) -> tuple[Difference, ...]:
    order = [options.models.index(standing.model) for standing in standings]
    differences = []
    for first, second in itertools.combinations(order, 2):
        low, high = map(float, between[first, second])
        value = float(contest.values[first] - contest.values[second])
        estimate = Estimate(value, samples, low, high, LEVEL)
        apart = _excludes_zero(between[first, second])
        differences.append(Difference(options.models[first], options.models[second], estimate, apart))
    return tuple(differences)


def _families(data: _BoardData, options: RankingOptions) -> tuple[FamilyDrops, ...]:
    costly = sorted(data.families.items(), key=lambda item: (-float(item[1][1].values.mean()), item[0]))
    return tuple(
        FamilyDrops(name, count, dict(zip(options.models, contest_estimates(contest, MEAN_DROP, data.samples), strict=True)))
        for name, (count, contest) in costly
    )
