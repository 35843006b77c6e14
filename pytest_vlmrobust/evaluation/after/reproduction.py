"""Reproduction: the published numbers of a paper compared with those of runs, from the evidence of the runs alone.

A number that a paper averages over models is the mean over the available ones in the runs. Runs of the same model are averaged
too: RCI is the mean of three. Each of k intervals then holds at 1 - (1 - 0.90) / k, so that they hold jointly and the
interval of the mean, or of a slope, is valid for any dependence between the models.

A published number agrees only if our interval is narrow enough to test it: a wide one contains every number. The limit of its
half-width is ``MULTIPLE`` times the precision of the published number, which papers do not print. If the paper's number of
questions is known, it is the half-width of our interval with that number of questions, because widths shrink with the square
root: a replication with the paper's own questions can then agree, and so can one with a quarter of them. But it is at most the
margin of error of a share over that many questions: a ratio to a small visual gain is noise in the paper too, and an interval
of 40 points tests nothing. Otherwise only the printed digits are known, and the precision is half a unit of the last one.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust import metrics, perturbations
from pytest_vlmrobust.core.cell import BASELINES, CLEAN, NO_IMAGE, Cell, Setting
from pytest_vlmrobust.core.errors import DatasetError, StoreError, UnknownName, UsageError
from pytest_vlmrobust.core.estimate import LEVEL, Estimate
from pytest_vlmrobust.core.words import first_few, quantity
from pytest_vlmrobust.datasets.sampling import BY_ROW
from pytest_vlmrobust.evaluation.judge.baseline import Baseline
from pytest_vlmrobust.evaluation.judge.reads import chance_levels, score_table
from pytest_vlmrobust.evaluation.judge.strata import MACRO, SUB_TASK, macro_estimate, rows_of
from pytest_vlmrobust.metrics.severity import BINARY, spatial_settings
from pytest_vlmrobust.metrics.table import ScoreTable
from pytest_vlmrobust.perturbations.catalog import ROBUSTBENCH
from pytest_vlmrobust.perturbations.registry import REGISTRY

from .measured import font_sizes, measured
from .paired import RunModel, manifest, open_models, paired_table, runs_of
from .published import (
    AGREES,
    COMPATIBLE,
    DECLARED,
    DIFFERS,
    MULTIPLE,
    Paper,
    PublishedTable,
    PublishedValue,
    Reproduced,
    ReproducedTable,
    Reproduction,
    paper,
)


def reproduce(
    name: str,
    number: str = "",
    *,
    runs: Sequence[tuple[str, Path]] = (),
    called: Mapping[str, str] | None = None,
) -> Reproduction:
    """Returns the tables of a paper, with our numbers if runs are given.

    Args:
        name: the short name of the paper.
        number: the number of one table; empty for all.
        runs: name and directory of each; models of a run with a name are called NAME/MODEL.
        called: a model, dataset or category of the runs to its name in the paper, if the names differ.

    Raises:
        UnknownName: no such paper or table, or a name in ``called`` that neither side has.
        UsageError: a directory without evidence, or a duplicate one.
        StoreError: the evidence cannot be read, or its scores are not those of its answers.
    """
    published = paper(name)
    tables = [published.table(number)] if number else list(published.tables.values())
    with open_models(runs) as models:
        opened = runs_of(models)
        _refuse_copies(opened)
        scored = _Runs(published, models, called or {})
        beside = [_Beside(scored).table(table) for table in tables]
        notes = (*published.notes, *scored.notes()) if opened else published.notes
        return Reproduction(name, published.title, tuple(beside), tuple(run.called for run in opened), notes)


def _refuse_copies(runs: Sequence[Baseline]) -> None:
    """Refuses a duplicate run: the same path, or a copy, as shown by its manifest or, without one, by its answers."""
    for place, run in enumerate(runs):
        for other in runs[:place]:
            names = {manifest(copy).get("run", "") for copy in (run, other)}
            proof = "answers" if "" in names else "name"
            if len(names if proof == "name" else {copy.evidence.digest() for copy in (run, other)}) == 1:
                raise UsageError(
                    f"--run: {run.called!r} is the same run as {other.called!r}, by its {proof}. "
                    "A run counts once: a mean over runs needs other ones"
                )


class _AbsentError(Exception):
    """The runs lack the subject of a number; the message names it."""


@dataclass(eq=False)
class _Runs:
    """The runs, by the paper's names for their models and datasets."""

    paper: Paper
    models: Sequence[RunModel]
    called: Mapping[str, str]

    def __post_init__(self) -> None:
        self._scores: dict[tuple[str, str], list[_Scores]] = {}
        self._names = [model.name for model in self.models]
        self._datasets = {dataset for model in self.models for dataset in _datasets(model)}
        theirs = self.paper.known()
        ours = {*self._names, *self._datasets}
        for name, published in self.called.items():
            if self.models and name not in ours:
                raise UnknownName("model or dataset of the runs", name, ours, where="--as")
            if published not in theirs:
                raise UnknownName(f"model or dataset of {self.paper.title}", published, theirs, where="--as")

    def scores(self, model: str, dataset: str) -> list[_Scores]:
        """Returns the scores of a model of the paper on one of its datasets, from each run that has them.

        Raises:
            _AbsentError: no run has them.
        """
        key = (model, dataset)
        if key not in self._scores:
            self._scores[key] = [
                _Scores(self.paper, candidate, name)
                for candidate in self.models
                if self._is(candidate.name, model)
                for name in sorted(_datasets(candidate))
                if not dataset or self._is(name, dataset)
            ]
        if not self._scores[key]:
            have = any(self._is(name, model) for name in self._names)
            raise _AbsentError(f"no run of {model} on {dataset}" if have else f"no run of {model}")
        return self._scores[key]

    def _is(self, ours: str, theirs: str) -> bool:
        return self.called[ours] == theirs if ours in self.called else self.paper.is_called(theirs, ours)

    def notes(self) -> list[str]:
        """Returns a sentence about models and datasets that the paper does not have."""
        known = self.paper.known()
        drawn = {run.called: manifest(run).get("settings", {}).get("vlm_sample") for run in runs_of(self.models)}
        paper = _drawn(self.paper.sample)
        said = [
            f"{where} has {_drawn(spec)}{', as the paper has' if spec == self.paper.sample else f'; the paper has {paper}'}"
            for where, spec in drawn.items()
            if self.paper.sample
        ]
        strange = {
            "models": sorted({name for name in self._names if not any(self._is(name, other) for other in known)}),
            "datasets": sorted(name for name in self._datasets if not any(self._is(name, other) for other in known)),
        }
        return said + [
            f"{what} of the runs that {self.paper.title} does not have: {first_few(names)}. --as OURS=THEIRS says which are meant"
            for what, names in strange.items()
            if names
        ]


def _drawn(spec: str | None) -> str:
    """Describes how the samples of a run were drawn by its ``--vlm-sample``; ``None`` if its manifest lacks the option."""
    if spec is None:
        return "samples that were drawn in a way that its manifest does not say"
    how = "by row" if spec.endswith(BY_ROW) else "by question with all its copies"
    return f"samples drawn {how} (--vlm-sample={spec})" if spec else "all samples"


def _datasets(model: RunModel) -> set[str]:
    return {cell.dataset for cell in model.run.evidence.cells() if cell.model == model.model}


@dataclass(eq=False)
class _Scores:
    """The scores of one model on one dataset of a run."""

    paper: Paper
    model: RunModel
    dataset: str
    missing: dict[str, str] = field(default_factory=dict)
    """Setting to why it does not count."""

    @cached_property
    def samples(self) -> Sequence[Any]:
        return self.model.run.samples(self.dataset)

    def _cells(self) -> list[Cell]:
        cells = self.model.run.evidence.cells()
        return [cell for cell in cells if (cell.model, cell.dataset) == (self.model.model, self.dataset)]

    @cached_property
    def table(self) -> ScoreTable:
        """All complete cells.

        Raises:
            _AbsentError: not all clean images were asked about.
            StoreError: answers cannot be read, or their stored scores differ from recomputed ones.
        """
        known: dict[Setting, NDArray[np.float64]] = {}
        for cell in self._cells():
            try:
                result = self.model.run.checked(cell)
                if result.places is None:
                    known[cell.setting] = result.values
                else:
                    count = f"{len(result.places)} of {quantity(len(self.samples), 'question')}"
                    self.missing[str(cell.setting)] = f"{cell}: the setting changes {count}"
            except StoreError:
                part = self.model.run.evidence.get_cell(cell, whole=False)
                n_asked = len(part.places or ())
                if n_asked == len(self.samples):
                    raise  # an answer was changed, or cannot be read
                self.missing[str(cell.setting)] = f"{cell}: {n_asked} of {quantity(len(self.samples), 'sample')} asked"
        if CLEAN not in known:
            raise _AbsentError(
                f"{self.model.run.called}: {self.missing.get(str(CLEAN), f'{self.dataset} was not asked about clean images')}"
            )
        suite = set(perturbations.names(self.paper.settings)) if self.paper.settings else None
        single = {
            str(setting): scores
            for setting, scores in known.items()
            if setting not in BASELINES and not _is_patches(setting) and (suite is None or str(setting) in suite)
        }
        patches = {str(setting): scores[:, None] for setting, scores in known.items() if _is_patches(setting)}
        return score_table(
            self.samples,
            known[CLEAN],
            by_setting=single,
            no_image=known.get(NO_IMAGE),
            patches_by_setting=patches or None,
            **chance_levels(self.samples),
        )

    def part(self, about: Mapping[str, str]) -> ScoreTable:
        """Returns the scores behind a number: on the samples of a category, under the settings of a level, and so on."""
        table = _under(self.table, partial(_is_about, about))
        if (split := about.get("split")) == str(CLEAN):
            table = dataclasses.replace(table, by_setting={split: table.clean})
        elif split:
            table = _under(table, {*perturbations.names(split)}.__contains__)
        if category := about.get("category"):
            rows = [
                any(self.paper.is_called(category, label) for label in (sample.category, sample.keys.get(SUB_TASK, "")) if label)
                for sample in self.samples
            ]
            if not any(rows):
                raise _AbsentError(f"{self.dataset} has no question of {category}")
            table = rows_of(table, rows)
        return table

    def lacks(self, metric: str, about: Mapping[str, str]) -> bool:
        """Whether the run lacks some of the settings behind a published number."""
        coverage = metrics.get(metric).coverage if metric in metrics.names() else None
        if coverage is None or not self.paper.settings:
            return False
        published = [name for name in perturbations.names(self.paper.settings) if _is_about(about, name)]
        return coverage.count(self.part(about).by_setting) < coverage.count(published)


def _is_about(about: Mapping[str, str], setting: str) -> bool:
    """Whether a setting has the level and the family of a number."""
    info = perturbations.info(setting)
    facts = {"level": info.level or BINARY, "family": info.family}
    return all(about.get(key) in (None, "", value) for key, value in facts.items())


def _is_patches(setting: Setting) -> bool:
    return setting.name in {"patches", "attempts"}


def _under(table: ScoreTable, kept: Callable[[str], bool]) -> ScoreTable:
    return dataclasses.replace(table, by_setting={name: scores for name, scores in table.by_setting.items() if kept(name)})


@dataclass(frozen=True, eq=False)
class _Beside:
    """Compares our numbers with published ones."""

    runs: _Runs

    @property
    def paper(self) -> Paper:
        return self.runs.paper

    def table(self, table: PublishedTable) -> ReproducedTable:
        published = {field.name: getattr(table, field.name) for field in dataclasses.fields(table)}
        values = tuple(self._beside(value) for value in table.values)
        return ReproducedTable(**{**published, "values": values}, scale=self.paper.scale)

    def _beside(self, value: PublishedValue) -> Reproduced:
        scale = self.paper.scale_of(value.metric)
        published = value.number * (scale if value.of else 1)
        try:
            if value.metric in _WORDS and self.runs.models:
                return _WORDS[value.metric](self, value)
            if value.metric in _OF_THIS_PACKAGE:
                return _OF_THIS_PACKAGE[value.metric](self, value)
            if not self.runs.models:
                return _reproduced(value, published)
            ours = self.estimate(value)
        except (_AbsentError, DatasetError) as error:
            return _reproduced(value, published, reason=str(error))
        if math.isnan(ours.value):
            return _reproduced(value, published, reason=ours.reason or "undefined")
        low, high = scale * ours.low, scale * ours.high
        return self.compared(value, published, dataclasses.replace(ours, value=scale * ours.value, low=low, high=high, at=None))

    def compared(self, value: PublishedValue, published: float, ours: Estimate) -> Reproduced:
        if math.isnan(published):
            return _reproduced(value, published, ours)
        half_width, limit = (ours.high - ours.low) / 2, MULTIPLE * self._precision(value, ours)
        agreement = AGREES if half_width <= limit else COMPATIBLE
        if math.isnan(ours.low):
            agreement, limit = "", math.nan
        elif not ours.low <= published <= ours.high:
            agreement = DIFFERS
        return _reproduced(value, published, ours, agreement=agreement, limit=limit)

    def _precision(self, value: PublishedValue, ours: Estimate) -> float:
        """Returns the precision of a published number in its unit, as the docstring of the module explains."""
        scale = self.paper.scale_of(value.metric)
        questions = self.paper.questions.get(value.about.get("category") or value.about.get("dataset", ""))
        if questions is None:
            return (scale if value.of else 1) * value.precision
        margin = scale * NormalDist().inv_cdf((1.0 + LEVEL) / 2) * 0.5 / math.sqrt(questions)
        return min((ours.high - ours.low) / 2 * math.sqrt(ours.n / questions), margin)

    def models(self, value: PublishedValue) -> tuple[list[str], dict[str, list[_Scores]]]:
        """Returns the models behind a number, and the scores of those in the runs.

        Raises:
            _AbsentError: the runs have none of them.
        """
        chosen = value.about.get("model")
        pool = value.about.get("pool") or self.paper.pool
        wanted = [chosen] if chosen else list(self.paper.pools[pool])
        measured, absent = {}, []
        for model in wanted:
            try:
                measured[model] = self.runs.scores(model, value.about.get("dataset", ""))
            except _AbsentError as error:
                absent.append(str(error))
        if not measured:
            raise _AbsentError(absent[0] if len(absent) == 1 else f"no run of any of {first_few(wanted, 3)}")
        return wanted, measured

    def estimate(self, value: PublishedValue) -> Estimate:
        if value.metric == "people":
            raise _AbsentError("answers of people, which no run measures")
        wanted, measured = self.models(value)
        if value.metric in ("size_slope", "r_squared"):
            return self._slope(value, measured)
        if value.metric == "flip_ratio":
            return self._flip_ratio(value)
        if value.metric == "tail_share" and len(measured) > 1:
            return _pooled_tail_share([scores.part(value.about) for runs in measured.values() for scores in runs])
        means = {model: self._mean([self._of_one(value, scores) for scores in runs], "runs") for model, runs in measured.items()}
        if "model" in value.about:
            return means[value.about["model"]]
        of = f"{len(measured)} of {quantity(len(wanted), 'model')}"
        return self._mean([*means.values()], of)

    def _mean(self, estimates: Sequence[Estimate], of: str) -> Estimate:
        if len(estimates) == 1 and of == "runs":
            return estimates[0]
        weights = [1.0 / len(estimates)] * len(estimates)
        return self._sum(estimates, weights, f"mean of {len(estimates)} runs" if of == "runs" else f"over {of}")

    def _sum(self, estimates: Sequence[Estimate], weights: Sequence[float], reason: str) -> Estimate:
        """Returns a weighted sum of estimates, with an interval that holds for any dependence between them."""
        value = math.fsum(weight * estimate.value for weight, estimate in zip(weights, estimates, strict=True))
        reasons = dict.fromkeys(estimate.reason for estimate in estimates if estimate.reason)
        why = "; ".join([reason, *reasons])

        def at(confidence: float) -> tuple[float, float]:
            corrected = 1.0 - (1.0 - confidence) / len(estimates)
            ends = [estimate.interval(corrected) for estimate in estimates]
            low = math.fsum(weight * (low if weight > 0 else high) for weight, (low, high) in zip(weights, ends, strict=True))
            high = math.fsum(weight * (high if weight > 0 else low) for weight, (low, high) in zip(weights, ends, strict=True))
            return low, high

        low, high = at(LEVEL)
        level = math.nan if math.isnan(low) else LEVEL
        return Estimate(value, min(estimate.n for estimate in estimates), low, high, level, reason=why, at=at)

    def _of_one(self, value: PublishedValue, scores: _Scores) -> Estimate:
        """Returns a number of one model in one run."""
        table, setting = scores.part(value.about), value.about.get("setting")
        estimate = self._of_table(value, table, setting, scores)
        if scores.lacks(value.metric, value.about):  # an interval of other settings cannot show agreement or difference
            estimate = dataclasses.replace(estimate, low=math.nan, high=math.nan, confidence=math.nan, at=_unknown)
        lost = [name for name in scores.missing if Setting.parse(name) not in BASELINES]
        if setting is None and lost:
            note = f"{quantity(len(lost), 'cell')} not asked in full"
            estimate = dataclasses.replace(estimate, reason="; ".join(part for part in (estimate.reason, note) if part))
        return estimate

    def _of_table(self, value: PublishedValue, table: ScoreTable, setting: str | None, scores: _Scores) -> Estimate:
        if setting is not None and setting not in {*table.by_setting, *(table.patches_by_setting or {})}:
            reason = scores.missing.get(setting) or f"{scores.model.run.called} did not ask {scores.dataset} under {setting}"
            return Estimate(math.nan, 0, reason=reason)
        if value.metric.endswith(MACRO):
            return _of_mean_curve(value.metric.removesuffix(MACRO), table, setting, scores)
        if formula := _OF_A_TABLE.get(value.metric):
            return formula(table, value.about)
        if value.metric == "mean_corruption_error":
            table = dataclasses.replace(table, reference_by_setting=self._reference(value, table, scores))
        estimate = metrics.estimate(value.metric, table, setting)
        return estimate if estimate.valid else dataclasses.replace(estimate, value=math.nan)

    def _reference(self, value: PublishedValue, table: ScoreTable, scores: _Scores) -> dict[str, Any]:
        """Returns the scores of the reference model on the samples of another model, in their order."""
        name = self.paper.references[value.about["dataset"]]
        try:
            (reference, *_) = self.runs.scores(name, value.about["dataset"])
        except _AbsentError as error:
            raise _AbsentError(f"{error}, the reference model") from error
        settings = [Setting.parse(name) for name in reference.part(value.about).by_setting if name in table.by_setting]
        return {n: of[1] for n, of in paired_table([scores.model, reference.model], scores.dataset, settings).by_setting.items()}

    def _flip_ratio(self, value: PublishedValue) -> Estimate:
        """Returns the ratio of mean flips; over models the ratio of their means, as in table 22 of VLM-RobustBench."""
        harmful, helpful = (
            self.estimate(dataclasses.replace(value, metric=f"mean_{sign}_flip_rate")) for sign in ("harmful", "helpful")
        )
        if not helpful.value > 0.0:
            return Estimate(math.nan, helpful.n, reason=helpful.reason or "no answer turns right")
        return Estimate(harmful.value / helpful.value, helpful.n, reason=harmful.reason)

    def _slope(self, value: PublishedValue, measured: Mapping[str, Sequence[_Scores]]) -> Estimate:
        models = [model for model in measured if model in self.paper.parameters]
        sizes = [self.paper.parameters[model] for model in models]
        if len(models) < 2:
            raise _AbsentError(f"a slope needs two sizes, and the runs have {', '.join(models)}")
        drop = dataclasses.replace(value, metric="mean_drop")
        drops = [self._mean([self._of_one(drop, scores) for scores in measured[model]], "runs") for model in models]
        if value.metric == "size_slope":
            return self._sum(drops, metrics.size_weights(sizes).tolist(), f"over {', '.join(models)}")
        trend = metrics.size_trend(sizes, [estimate.value for estimate in drops])
        return Estimate(trend.r_squared, drops[0].n, reason=f"over {', '.join(models)}")


def _reproduced(value: PublishedValue, published: float, ours: Estimate | None = None, word: str = "", **more: Any) -> Reproduced:
    return Reproduced(value.metric, value.about, value.printed, value.of, published, ours, word, **more)


def _of_mean_curve(metric: str, table: ScoreTable, setting: str | None, scores: _Scores) -> Estimate:
    """Returns a number of the mean over categories, or of all samples if they do not have several categories."""
    categories = [sample.category for sample in scores.samples]
    if len({*categories}) < 2 or "" in categories:
        estimate = metrics.estimate(metric, table, setting)
        return dataclasses.replace(
            estimate, reason="; ".join(part for part in (estimate.reason, "samples are of one category") if part)
        )
    if setting is None:
        return macro_estimate(metric, table, scores.samples) or Estimate(math.nan, 0, reason="no resolution was asked")
    (value,) = metrics.macro_accuracies(table.scores(setting)[:, None], categories)
    return Estimate(float(value), table.samples, reason=f"mean of {len({*categories})} categories")


# Numbers of one score table that are not registered metrics.


def _drops(table: ScoreTable) -> dict[str, float]:
    return {name: float((table.clean - scores).mean()) for name, scores in table.by_setting.items()}


def _tier_share(table: ScoreTable, about: Mapping[str, str]) -> Estimate:
    drops = _drops(table)
    share = getattr(metrics.tier_shares([*drops.values()]), about["tier"])
    return Estimate(share, table.samples, reason=f"of {quantity(len(drops), 'setting')}")


def _tier_count(table: ScoreTable, about: Mapping[str, str]) -> Estimate:
    """Returns the share of cells in a tier, positive ones counted as benign."""
    share = _tier_share(table, about)
    gains = _tier_share(table, {"tier": "positive"}).value if about["tier"] == "benign" else 0.0
    return dataclasses.replace(share, value=share.value + gains)


def _lost_share(table: ScoreTable, about: Mapping[str, str]) -> Estimate:
    """Returns the share of right answers on clean images that turn wrong."""
    right = table.clean == 1.0
    if not right.any():
        return Estimate(math.nan, table.samples, reason="no answer is right on clean images")
    return metrics.estimate("harmful_flip_rate", rows_of(table, right), about["setting"])


def _unknown(_confidence: float) -> tuple[float, float]:
    return math.nan, math.nan


_OF_A_TABLE: Mapping[str, Callable[[ScoreTable, Mapping[str, str]], Estimate]] = {
    "tier_share": _tier_share,
    "tier_count": _tier_count,
    "lost_share": _lost_share,
}


def _pooled_tail_share(tables: Iterable[ScoreTable]) -> Estimate:
    """Returns the share of the catastrophic cells of all models that move or resample pixels."""
    tails = [name for table in tables for name, drop in _drops(table).items() if metrics.robustness_tier(drop) == "catastrophic"]
    if not tails:
        return Estimate(math.nan, 0, reason="no setting costs more than 10 pp")
    spatial = spatial_settings(tails)
    return Estimate(
        len(spatial) / len(tails), len(tails), reason=f"{len(spatial)} of {quantity(len(tails), 'catastrophic cell')}"
    )


# Words, and numbers that follow from the catalogue alone.


def _tier(beside: _Beside, value: PublishedValue) -> Reproduced:
    """Returns the tier of our drop. It agrees if the whole interval of the drop is in the published tier."""
    drop = beside.estimate(dataclasses.replace(value, metric="accuracy_drop"))
    if math.isnan(drop.value):
        raise _AbsentError(drop.reason)
    agreement = ""
    if not math.isnan(drop.low):
        low, high = (metrics.TIERS.index(metrics.robustness_tier(end)) for end in (drop.low, drop.high))
        inside = low <= metrics.TIERS.index(value.printed) <= high
        agreement = (AGREES if low == high else COMPATIBLE) if inside else DIFFERS
    return _reproduced(value, math.nan, drop, metrics.robustness_tier(drop.value), agreement=agreement)


def _worst_setting(beside: _Beside, value: PublishedValue) -> Reproduced:
    _, measured = beside.models(value)
    (scores, *_) = measured[value.about["model"]]
    table = scores.part(value.about)
    drops = _drops(table)
    if not drops or any(map(math.isnan, drops.values())):
        raise _AbsentError("inferences failed" if drops else "no perturbation was asked in full")
    worst = max(drops, key=drops.__getitem__)
    return _reproduced(value, math.nan, Estimate(drops[worst], table.samples), worst)


_WORDS: Mapping[str, Callable[[_Beside, PublishedValue], Reproduced]] = {
    "robustness_tier": _tier,
    "worst_case_setting": _worst_setting,
}


def _count_of_family(beside: _Beside, value: PublishedValue) -> Reproduced:
    count = float(sum(REGISTRY.get(name).family == value.about["family"] for name in ROBUSTBENCH))
    return beside.compared(value, value.number, Estimate(count, 0, count, count, reason="of this package"))


def _parameter(beside: _Beside, value: PublishedValue) -> Reproduced:
    """Returns a parameter of a perturbation as measured in pixels, or else as declared."""
    perturbation, level = value.about["perturbation"], value.about["level"]
    if sizes := font_sizes(perturbation, level):
        word = "; ".join(f"{size} at {picture}" for picture, size in sizes.items())
        off = max(abs(size - value.number) for size in sizes.values())
        ours = Estimate(max(sizes.values()), 0, reason="letters grow with images of more than 640 x 480 pixels")
        return _reproduced(value, value.number, ours, word, agreement=AGREES if off <= 1 else DIFFERS)
    if (seen := measured(perturbation, level)) is not None:
        return beside.compared(value, value.number, seen)
    declared = float(REGISTRY.get(perturbation).parameters(level)[value.about["parameter"]])
    return _reproduced(value, value.number, Estimate(declared, 0), agreement=DECLARED)


_OF_THIS_PACKAGE: Mapping[str, Callable[[_Beside, PublishedValue], Reproduced]] = {
    "perturbation_parameter": _parameter,
    "number_of_perturbations": _count_of_family,
}


def parse_names(pairs: Sequence[str]) -> dict[str, str]:
    """Returns the paper's names for our models and datasets from ``OURS=THEIRS``."""
    names: dict[str, str] = {}
    for pair in pairs:
        ours, equals, theirs = pair.partition("=")
        if not (ours and equals and theirs) or ours in names:
            raise UsageError(f"--as {pair!r}: expected OURS=THEIRS, each of ours once, such as --as tiny=Qwen3-VL-4B")
        names[ours] = theirs
    return names
