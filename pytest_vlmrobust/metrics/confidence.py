"""Metrics of confidence: whether the probability of an answer says how often it is right.

The confidence of an answer is the probability of the chosen letter among the letters of its question. Answers of equal confidence
count in any order: each has the mean score of them all.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pytest_vlmrobust.core.estimate import ROUNDING

from .accuracy import Bounds
from .record import metric, of_loss, of_mean
from .statistics.clusters import Clusters, one_sided
from .statistics.curves import StepTest
from .statistics.means import BoundedMeanTest, Ends
from .statistics.paired import interval_of, mean_interval
from .table import Needs, Scores, ScoreTable, mean, pair_scores

BINS = 10
"""Bins of the calibration error: each has the same number of answers, or one more."""
PRECISION = 0.9
"""Share of right answers that accepted answers must have."""
FURTHER = 3.0
"""Effect of one more wrong answer on N times the area: ln 20, if it is among the most confident twentieth.

In simulated runs of 30 to 400 answers the upper end then errs in at most 7 % instead of 5 %. With that of the most confident
answer, ln N, the interval of 128 answers would be 50 % wider and never err.
"""
ENOUGH = 90
"""Fewest answers in the first tenth that is tested: four of them may be wrong.

A larger tenth is tested only if all smaller ones were shown, so none is shown wrongly more often than declared, provided that
the precision falls with coverage.
"""
_SIDES: tuple[Literal["left"], Literal["right"]] = ("left", "right")
_EITHER_WAY = "its answer may be right or wrong"
_CALIBRATION = {
    Needs.PERTURBED: "it closes the gap of answers that are too confident, and widens that of others",
    Needs.CONFIDENCES: _EITHER_WAY,
}
_CALIBRATION_OF_BOTH = {
    **_CALIBRATION,
    Needs.CLEAN: _CALIBRATION[Needs.PERTURBED],
    Needs.CLEAN_CONFIDENCES: _EITHER_WAY,
}

letters_metric = partial(
    metric,
    suite="corruptions",
    better="lower",
    perfect=0.0,
    bounds=(0.0, 1.0),
    validity="every answer has probabilities of letters",
)
change_metric = partial(letters_metric, bounds=(-1.0, 1.0), unchanged=0.0)


def _judged(table: ScoreTable, setting: str | None) -> tuple[Scores, Scores]:
    return table.required(Needs.PERTURBED, setting), table.required(Needs.CONFIDENCES, setting)


def _clean(table: ScoreTable) -> tuple[Scores, Scores]:
    return table.clean, table.required(Needs.CLEAN_CONFIDENCES)


def _paired(*arrays: ArrayLike) -> tuple[Scores, ...]:
    """Returns clean and perturbed scores, then clean and perturbed confidences, checked to belong together."""
    names = ("clean", "perturbed", "clean_confidences", "confidences")
    return pair_scores(**dict(zip(names, arrays, strict=True)))


def _tied(confidences: Scores) -> Scores:
    """Returns the confidences, made equal if they differ only by rounding: each becomes the largest of those close to it."""
    order = np.argsort(-confidences, kind="stable")
    falling = confidences[order]
    first = np.concatenate([[True], falling[:-1] - falling[1:] > ROUNDING])[: len(falling)]
    tied = np.empty_like(falling)
    tied[order] = falling[np.maximum.accumulate(np.where(first, np.arange(len(falling)), 0))]
    return tied


def _ranks(confidences: Scores) -> tuple[Scores, Scores]:
    """Returns for each answer how many are more confident, and how many are at least as confident, each of shape (N,)."""
    confidences = _tied(confidences)
    ascending = np.sort(-confidences)
    before, until = (np.searchsorted(ascending, -confidences, side=side).astype(np.float64) for side in _SIDES)
    return before, until


# Calibration


def _gaps(scores: Scores, confidences: Scores) -> Scores:
    """Returns each answer's part of the gap of each bin, shape (N, BINS); their means add up to the gaps of the bins."""
    count = len(scores)
    edges = np.array([bin_ * (count // BINS) + min(bin_, count % BINS) for bin_ in range(BINS + 1)], dtype=np.float64)
    first, last = (count - rank[:, None] for rank in reversed(_ranks(confidences)))
    shares = (np.minimum(last, edges[1:]) - np.maximum(first, edges[:-1])).clip(min=0.0) / (last - first)
    gaps: Scores = shares * (confidences - scores)[:, None]
    return gaps


_SIGNS = 2.0 * ((np.arange(2**BINS)[:, None] >> np.arange(BINS)) & 1) - 1.0


def calibration_bounds(scores: Scores, confidences: Scores, clusters: Clusters, confidence: float) -> Bounds:
    """Bounds the calibration error, which noise makes too large."""
    gaps, tail = _gaps(scores, confidences), one_sided(confidence)
    curve = np.concatenate([np.zeros((len(gaps), 1)), gaps.cumsum(axis=1)], axis=1)  # the gaps are its steps
    low = StepTest.of(curve, clusters).lower_with_one_more(tail)
    if clusters.count < 2:
        return 0.0, 1.0
    variances = ((_SIGNS @ clusters.covariance(gaps)) * _SIGNS).sum(axis=1).clip(min=0.0)
    df, ends = clusters.degrees_of_freedom, Ends(-1.0, 1.0)
    above = BoundedMeanTest.from_variances(_SIGNS @ gaps.mean(axis=0), variances, clusters.effective, df, ends)
    value = float(np.abs(gaps.mean(axis=0)).sum())
    return min(max(low, 0.0), value), max(min(float(above.upper(tail).max()), 1.0), value)


def expected_calibration_error_interval(table: ScoreTable, setting: str | None, confidence: float) -> Bounds:
    """Bounds the error above by all signed sums of gaps, below by gaps whose sign is shown and by their sum.

    Noise makes the value too high, but not the lower bound. Each end is guarded by one more answer against it.
    """
    return calibration_bounds(*_judged(table, setting), table.clusters, confidence)


@letters_metric(
    reference="Naeini et al. 2015, with bins of equal mass (Nixon et al. 2019)",
    unsuited="Noise makes it larger, most of all with few answers: a calibrated model has about 0.08 on 128 and 0.03 on 869. "
    "Judge it by its interval, or use `brier_score`, which noise does not raise.",
    interval=expected_calibration_error_interval,
    not_monotone=_CALIBRATION,
)
def expected_calibration_error(perturbed: ArrayLike, confidences: ArrayLike) -> float:
    """Expected calibration error (ECE): how far the confidence of answers is from how often they are right.

    Answers are sorted by confidence into 10 bins of equal size.

    Formula: ``sum over bins b of n_b / N * |mean(confidences in b) - mean(perturbed in b)|``

    Returns: A fraction in [0, 1]; NaN for no scores or a missing one.

    >>> round(expected_calibration_error([1, 1, 1, 0], [0.9, 0.9, 0.9, 0.5]), 3)
    0.2
    """
    scores, certain = pair_scores(perturbed=perturbed, confidences=confidences)
    return _calibration(scores, certain)


def calibration_error_increase_interval(table: ScoreTable, setting: str | None, confidence: float) -> Bounds:
    """Bounds both errors like `expected_calibration_error`, each at half of the risk, and takes their difference."""
    half = (1.0 + confidence) / 2.0
    before, after = (calibration_bounds(*part, table.clusters, half) for part in (_clean(table), _judged(table, setting)))
    return after[0] - before[1], after[1] - before[0]


@change_metric(
    reference="after Ovadia et al. 2019 (calibration under shift), by the error of Naeini et al. 2015 (our companion)",
    unsuited="Both errors are bounded apart, so that some hundred answers are needed to show a small increase. "
    "`brier_score_increase` is paired and needs fewer.",
    interval=calibration_error_increase_interval,
    not_monotone=_CALIBRATION_OF_BOTH,
)
def calibration_error_increase(
    clean: ArrayLike, perturbed: ArrayLike, clean_confidences: ArrayLike, confidences: ArrayLike
) -> float:
    """How much larger the calibration error is than on clean images.

    Formula: ``expected_calibration_error(perturbed, confidences) - expected_calibration_error(clean, clean_confidences)``

    Returns: A fraction in [-1, 1]; NaN for no scores or a missing one.
    """
    before, after, sure, sure_after = _paired(clean, perturbed, clean_confidences, confidences)
    return _calibration(after, sure_after) - _calibration(before, sure)


def _calibration(scores: Scores, confidences: Scores) -> float:
    if not scores.size or np.isnan(scores + confidences).any():
        return math.nan
    return float(np.abs(_gaps(scores, confidences).mean(axis=0)).sum())


# Brier score


@letters_metric(
    reference="Brier 1950, of the chosen letter alone",
    unsuited="A model that is often wrong, and knows it, has a high score, too. Use `expected_calibration_error` for "
    "calibration alone.",
    interval=of_mean(lambda *where: _squares(*_judged(*where))),
    not_monotone=_CALIBRATION,
)
def brier_score(perturbed: ArrayLike, confidences: ArrayLike) -> float:
    """Brier score: mean squared difference of an answer's confidence and its score.

    It covers one event, "the chosen letter is right". Brier's original sum over all letters is larger.

    Formula: ``mean((confidences - perturbed)^2)``

    Returns: A fraction in [0, 1]; NaN for no scores or a missing one.

    >>> brier_score([1, 0], [1.0, 0.5])
    0.125
    """
    return mean(_squares(*pair_scores(perturbed=perturbed, confidences=confidences)))


@change_metric(
    reference="after Ovadia et al. 2019 (Brier score under shift)",
    unsuited="It rises with lost answers also where the confidence falls with them. Use `calibration_error_increase` for "
    "confidence that does not follow.",
    interval=of_loss(lambda table, _: 1.0 - _squares(*_clean(table)), lambda *where: 1.0 - _squares(*_judged(*where))),
    not_monotone=_CALIBRATION_OF_BOTH,
)
def brier_score_increase(clean: ArrayLike, perturbed: ArrayLike, clean_confidences: ArrayLike, confidences: ArrayLike) -> float:
    """How much higher the Brier score is than on clean images.

    Formula: ``mean((confidences - perturbed)^2 - (clean_confidences - clean)^2)``

    Returns: A fraction in [-1, 1]; NaN for no scores or a missing one.
    """
    before, after, sure, sure_after = _paired(clean, perturbed, clean_confidences, confidences)
    return mean(_squares(after, sure_after) - _squares(before, sure))


def _squares(scores: Scores, confidences: Scores) -> Scores:
    squares: Scores = (confidences - scores) ** 2
    return squares


# Risk and coverage


def _area(scores: Scores, confidences: Scores) -> tuple[float, Scores, Ends]:
    """Returns the area under the risk-coverage curve, the pseudo-values of the answers, and those of one more answer.

    Pseudo-values are those of the jackknife. The additional answer is among the most confident, and right or wrong.
    """
    count = len(scores)
    order = np.argsort(-confidences, kind="stable")
    first, last = (rank.astype(np.intp) for rank in _ranks(confidences))
    losses = 1.0 - scores
    sums = np.concatenate([[0.0], losses[order].cumsum()])
    shared = ((sums[last] - sums[first]) / (last - first))[order]  # equal confidence: the mean of all of them
    places = np.arange(1, count + 1)
    weights = (1.0 / places)[::-1].cumsum()[::-1]
    later = np.concatenate([[0.0], shared[1:] / places[:-1]])
    later = later[::-1].cumsum()[::-1] - later  # change of all answers behind each one that move up

    def averaged(values: Scores) -> Scores:
        totals = np.concatenate([[0.0], values.cumsum()])
        means: Scores = (totals[last] - totals[first]) / (last - first)
        return means

    pseudo = losses * averaged(weights) + (losses.sum() - losses) / count - averaged(later)
    moved = float((shared * (1.0 / (count + 1) - 1.0 / places)).sum())
    return (
        float((shared * weights).sum() / count),
        pseudo,
        Ends(moved, moved + min(float(weights[0]) + 1.0 / (count + 1), FURTHER)),
    )


def _area_interval(value: float, pseudo: Scores, ends: Ends, clusters: Clusters, confidence: float) -> Bounds:
    variances = clusters.variances(pseudo[:, None])
    means, df = np.array([value]), clusters.degrees_of_freedom
    return interval_of(BoundedMeanTest.from_variances(means, variances, clusters.effective, df, ends), confidence)


def area_under_risk_coverage_interval(table: ScoreTable, setting: str | None, confidence: float) -> Bounds:
    """Bounds the area by the jackknife over source images, guarded by one more answer among the most confident."""
    return _area_interval(*_area(*_judged(table, setting)), table.clusters, confidence)


@letters_metric(
    reference="Geifman, Uziel and El-Yaniv 2019 (AURC)",
    unsuited="It falls with the share of wrong answers as well as with how they are ranked. Use `coverage_at_90_precision` "
    "for what a user may rely on.",
    interval=area_under_risk_coverage_interval,
    monotone={Needs.PERTURBED: -1},
    not_monotone={Needs.CONFIDENCES: _EITHER_WAY},
)
def area_under_risk_coverage(perturbed: ArrayLike, confidences: ArrayLike) -> float:
    """Area under the risk-coverage curve (AURC): mean share of wrong answers among the k most confident, over all k.

    Formula: ``mean over k = 1..N of mean(1 - perturbed among the k most confident)``

    Returns: A fraction in [0, 1], 0 for no wrong answer; NaN for no scores or a missing one.

    >>> area_under_risk_coverage([1, 0], [0.9, 0.6])
    0.25
    """
    return _finite_area(*pair_scores(perturbed=perturbed, confidences=confidences))


def risk_coverage_increase_interval(table: ScoreTable, setting: str | None, confidence: float) -> Bounds:
    """Bounds the increase, paired by sample, by the jackknife over source images with the guard of the area."""
    (before, pseudo, least), (after, pseudo_after, most) = _area(*_clean(table)), _area(*_judged(table, setting))
    ends = Ends(most.smallest - least.largest, most.largest - least.smallest)
    return _area_interval(after - before, pseudo_after - pseudo, ends, table.clusters, confidence)


@change_metric(
    reference="after Geifman, Uziel and El-Yaniv 2019 (AURC), from clean to perturbed images (our companion)",
    unsuited="Lost answers raise it also where the confidence falls with them. Use `accuracy_drop` beside it, or "
    "`calibration_error_increase`.",
    interval=risk_coverage_increase_interval,
    monotone={Needs.CLEAN: 1, Needs.PERTURBED: -1},
    not_monotone={Needs.CONFIDENCES: _EITHER_WAY, Needs.CLEAN_CONFIDENCES: _EITHER_WAY},
)
def risk_coverage_increase(clean: ArrayLike, perturbed: ArrayLike, clean_confidences: ArrayLike, confidences: ArrayLike) -> float:
    """How much larger the area under the risk-coverage curve is than on clean images.

    Formula: ``area_under_risk_coverage(perturbed, confidences) - area_under_risk_coverage(clean, clean_confidences)``

    Returns: A fraction in [-1, 1]; NaN for no scores or a missing one.
    """
    before, after, sure, sure_after = _paired(clean, perturbed, clean_confidences, confidences)
    return _finite_area(after, sure_after) - _finite_area(before, sure)


def _finite_area(scores: Scores, confidences: Scores) -> float:
    if not scores.size or np.isnan(scores + confidences).any():
        return math.nan
    return _area(scores, confidences)[0]


# Coverage at a precision


def _coverage(scores: Scores, confidences: Scores) -> float:
    """Returns the largest share of most confident answers that keeps the precision; equal confidences are kept together."""
    if not scores.size or np.isnan(scores + confidences).any():
        return math.nan
    confidences = _tied(confidences)
    order = np.argsort(-confidences, kind="stable")
    last = np.append(np.diff(confidences[order]) != 0.0, True)
    places = np.arange(1, len(scores) + 1)
    kept = places[last & (scores[order].cumsum() >= PRECISION * places - ROUNDING)]
    return float(kept.max() / len(scores)) if kept.size else 0.0


def _tenths(confidences: Scores) -> Iterator[NDArray[np.intp]]:
    """Yields for each tenth the rows of accepted answers, including all that are as confident as its last one."""
    confidences = _tied(confidences)
    falling = -np.sort(-confidences)
    for tenth in range(1, 11):
        yield np.flatnonzero(confidences >= falling[max(round(tenth * len(falling) / 10), 1) - 1])


def coverage_at_90_precision_interval(table: ScoreTable, setting: str | None, confidence: float) -> Bounds:
    """Bounds the coverage by Clopper and Pearson's bounds of the precision at each tenth of the answers.

    The lower end bounds the share of answers as confident as the largest tenth up to which the precision is shown, starting at
    the first tenth with 90 answers: other samples have another share above that confidence. The upper
    end bounds the share of answers more confident than the first tenth from which on the precision is shown to be missed.
    """
    scores, confidences = _judged(table, setting)
    shown, high, tied = 0.0, 1.0, _tied(confidences)
    tenths = [(rows, table.clusters.within(rows)) for rows in _tenths(confidences)]

    def share(accepted: NDArray[np.bool_]) -> Bounds:
        return mean_interval(accepted.astype(float), table.clusters, confidence)

    for rows, clusters in [tenth for tenth in tenths if tenth[1].effective >= ENOUGH] or tenths[-1:]:
        if mean_interval(scores[rows], clusters, confidence)[0] < PRECISION:
            break
        shown = share(tied >= tied[rows].min())[0] if len(rows) < len(tied) else 1.0
    for rows, clusters in reversed(tenths):
        if mean_interval(scores[rows], clusters, confidence)[1] >= PRECISION:
            break
        high = share(tied > tied[rows].min())[1]
    return shown, max(high, _coverage(scores, confidences))


coverage_metric = partial(letters_metric, better="higher", perfect=1.0)


@coverage_metric(
    reference="El-Yaniv and Wiener 2010 (selective classification), ReliableVQA (Whitehead et al. 2022, coverage at risk)",
    unsuited="Its value is the best of many shares and flatters. Judge it by its interval, whose lower end is shown; "
    "`area_under_risk_coverage` needs no precision.",
    interval=coverage_at_90_precision_interval,
    monotone={Needs.PERTURBED: 1},
    not_monotone={Needs.CONFIDENCES: _EITHER_WAY},
)
def coverage_at_90_precision(perturbed: ArrayLike, confidences: ArrayLike) -> float:
    """Largest share of most confident answers with at least 90 % right.

    Formula: ``max k / N with mean(perturbed among the k most confident) >= 0.9``

    Returns: A fraction in [0, 1]; NaN for no scores or a missing one.

    >>> coverage_at_90_precision([1, 1, 0, 1], [0.9, 0.8, 0.6, 0.5])
    0.5
    """
    return _coverage(*pair_scores(perturbed=perturbed, confidences=confidences))


@change_metric(
    reference="after ReliableVQA (Whitehead et al. 2022, coverage at risk), from clean to perturbed images (our companion)",
    unsuited="It has no interval: one more wrong answer among the most confident may move it by half of all answers. Bound "
    "`coverage_at_90_precision` itself, whose lower end is shown.",
    monotone={Needs.CLEAN: 1, Needs.PERTURBED: -1},
    not_monotone={Needs.CONFIDENCES: _EITHER_WAY, Needs.CLEAN_CONFIDENCES: _EITHER_WAY},
)
def coverage_at_90_precision_drop(
    clean: ArrayLike, perturbed: ArrayLike, clean_confidences: ArrayLike, confidences: ArrayLike
) -> float:
    """How much smaller the coverage at 90 % precision is than on clean images.

    Formula: ``coverage_at_90_precision(clean, clean_confidences) - coverage_at_90_precision(perturbed, confidences)``

    Returns: A fraction in [-1, 1]; NaN for no scores or a missing one.
    """
    before, after, sure, sure_after = _paired(clean, perturbed, clean_confidences, confidences)
    return _coverage(before, sure) - _coverage(after, sure_after)
