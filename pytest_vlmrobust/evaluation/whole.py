"""Whole: the number that a benchmark publishes, where it is no mean of scores: F1, CIDEr, accuracies over groups of questions."""

from __future__ import annotations

import math

from pytest_vlmrobust.core.cell import Cell
from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.core.setting import CLEAN, NO_IMAGE
from pytest_vlmrobust.datasets import corpus_metric
from pytest_vlmrobust.metrics import best_patches
from pytest_vlmrobust.scoring import CorpusScore, corpus_score

from .evaluator import CellResult, Evaluator

CORPUS_SCORE = "corpus_score"
CORPUS_DROP = "corpus_drop"
CORPUS_PCRI = "corpus_pcri"
MEAN = "accuracy"
"""The corpus metric that is a mean of scores: the metrics of cells say it already."""


def whole_estimates(evaluator: Evaluator, cell: Cell, result: CellResult) -> list[tuple[str, Estimate]]:
    """Returns what the data set's own metric says of a cell: its value and parts, the drop from clean, and for patches PCRI.

    Nothing where that metric is a mean of scores. Of several views the best one of each sample is taken, the first of equals;
    where an answer is missing, which one that is is unknown. The values have no interval.
    """
    name = corpus_metric(evaluator.dataset(cell.dataset))
    if name == MEAN:
        return []
    own = _score(name, result)
    found = [(CORPUS_SCORE, _estimate(own.value, own, name))]
    found += [(f"{CORPUS_SCORE}.{part}", _estimate(value, own, name)) for part, value in own.parts.items()]
    if cell.setting in (CLEAN, NO_IMAGE):
        return found
    clean = _score(name, evaluator.result(Cell(cell.model, cell.dataset, CLEAN)))
    found.append((CORPUS_DROP, _estimate(clean.value - own.value, own, name)))
    if result.views > 1:
        ratio = 1.0 - own.value / clean.value if clean.value > 0.0 else math.nan
        found.append((CORPUS_PCRI, _estimate(ratio, own, name)))
    return found


def _score(name: str, result: CellResult) -> CorpusScore:
    if result.views == 1:
        return corpus_score(name, result.samples, result.predictions, result.scores)
    if result.count("error"):
        return CorpusScore(math.nan, {}, len(result.scores) - result.count("error"), result.count("error"))
    chosen = [sample * result.views + view for sample, view in enumerate(best_patches(result.by_view))]
    predictions = [result.predictions[index] for index in chosen]
    return corpus_score(name, result.samples, predictions, [result.scores[index] for index in chosen])


def _estimate(value: float, of: CorpusScore, name: str) -> Estimate:
    missing = f"; {of.n_failed} inferences failed" if of.n_failed else ""
    return Estimate(value, of.n, valid=True, reason=f"{name} of the whole data set{missing}")
