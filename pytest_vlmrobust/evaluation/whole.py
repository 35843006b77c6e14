"""Whole: the number that a benchmark publishes, where it is no mean of scores: F1, CIDEr, accuracies over groups of questions."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pytest_vlmrobust.core.cell import CLEAN, NO_IMAGE, Cell
from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.core.prediction import Prediction, Score
from pytest_vlmrobust.core.words import quantity
from pytest_vlmrobust.metrics import best_patches
from pytest_vlmrobust.metrics.table import ScoreTable
from pytest_vlmrobust.metrics.validity import whole_is_above_chance
from pytest_vlmrobust.scoring import CorpusScore, Sums, corpus_score, corpus_sums

from .cell_result import CellResult
from .floor import floor
from .measured import Measured, chances
from .whole_intervals import Bounds, bounds_of_drop, bounds_of_index, bounds_of_value

CORPUS_SCORE = "corpus_score"
CORPUS_DROP = "corpus_drop"
CORPUS_PCRI = "corpus_pcri"
MEAN = "accuracy"
"""The corpus metric that is a mean of scores: the metrics of cells say it already."""


def whole_estimates(measured: Measured, cell: Cell, result: CellResult, confidence: float = 0.90) -> list[tuple[str, Estimate]]:
    """Returns what the data set's own metric says of a cell: its value and parts, the drop from clean, and for patches PCRI.

    Nothing where that metric is a mean of scores. Of several views the best one of each sample is taken, the first of equals;
    where an answer is missing, which one that is is unknown. Parts have no interval, nor has a metric of which the sums that it
    is a function of are not known.
    """
    name = measured.corpus_metric(cell.dataset)
    if name == MEAN:
        return []
    own = _Whole.of(name, result)
    bounds = bounds_of_value(own.sums, result.samples) if own.sums else None
    found = [(CORPUS_SCORE, own.estimate(own.score.value, bounds, confidence))]
    found += [(f"{CORPUS_SCORE}.{part}", own.estimate(value, None, confidence)) for part, value in own.score.parts.items()]
    if cell.setting in (CLEAN, NO_IMAGE):
        return found
    clean = _Whole.of(name, measured.result(Cell(cell.model, cell.dataset, CLEAN)))
    bounds = bounds_of_drop(clean.sums, own.sums, result.samples) if clean.sums and own.sums else None
    found.append((CORPUS_DROP, own.estimate(clean.score.value - own.score.value, bounds, confidence)))
    if result.views > 1:
        ratio = 1.0 - own.score.value / clean.score.value if clean.score.value > 0.0 else math.nan
        bounds = bounds_of_index(clean.sums, own.sums, result.samples) if clean.sums and own.sums else None
        index = own.estimate(ratio, bounds, confidence)
        unfit = _unfit(measured.result(Cell(cell.model, cell.dataset, CLEAN)))
        found.append((CORPUS_PCRI, Estimate(math.nan, index.n, valid=False, reason=unfit) if unfit else index))
    return found


def _unfit(clean: CellResult) -> str:
    """Returns why the whole pictures are no basis for PCRI, by the rule for means of scores; an empty string if they are one."""
    kept = [number for number, value in enumerate(clean.values) if math.isfinite(value)]
    samples = [clean.samples[number] for number in kept]
    groups = [sample.group or sample.id for sample in samples]
    unseen = floor(samples)
    table = ScoreTable(
        clean=clean.values[kept], groups=groups, chances=chances(samples), floors=unseen.scores, floor_note=unseen.note
    )
    return whole_is_above_chance(table, None) if kept else ""


@dataclass(frozen=True, slots=True)
class _Whole:
    """The corpus metric of one cell, and the sums that it is a function of, where they are known."""

    name: str
    score: CorpusScore
    sums: Sums | None

    @classmethod
    def of(cls, name: str, result: CellResult) -> _Whole:
        if result.views > 1 and result.count("error"):
            failed = result.count("error")
            return cls(name, CorpusScore(math.nan, {}, len(result.scores) - failed, failed), None)
        predictions, scores = _answers(result)
        chosen = result.samples, predictions, scores
        return cls(name, corpus_score(name, *chosen), corpus_sums(name, *chosen))

    def estimate(self, value: float, bounds: Bounds | None, confidence: float) -> Estimate:
        missing = f"; {quantity(self.score.n_failed, 'inference')} failed" if self.score.n_failed else ""
        reason = f"{self.name} of the whole data set{missing}"
        if bounds is None or not math.isfinite(value):
            return Estimate(value, self.score.n, reason=reason)
        low, high = bounds(confidence)
        known = math.nan if math.isnan(low) else confidence
        return Estimate(value, self.score.n, low, high, known, reason=reason, at=bounds)


def _answers(result: CellResult) -> tuple[tuple[Prediction, ...], tuple[Score, ...]]:
    """Returns the answer to each sample: of several views the best one's, the first of equals."""
    if result.views == 1:
        return result.predictions, result.scores
    chosen = [sample * result.views + view for sample, view in enumerate(best_patches(result.attempts))]
    return tuple(result.predictions[index] for index in chosen), tuple(result.scores[index] for index in chosen)
