"""Sequential audits: the verdict of all N answers, from a part of them, at a declared risk.

A limit turns a rule into one number: the largest passing sum of (reference - score) over the samples of a cell. The clean and
the no-image run are known before any perturbed answer, so drop, relative drop, RCE, accuracy and PCRI all have one. An audit
bets, answer by answer, that this sum is within its limit, and that it is not.

Source: I. Waudby-Smith and A. Ramdas, "Estimating means of bounded random variables by betting", J. R. Statist. Soc. B 86 (2024),
for means of a finite list sampled without replacement; used like risk-limiting audits (RiLACS, SHANGRLA), with the clean
answers instead of the machine count. By Ville's inequality a capital rarely exceeds 1/alpha under the null, so it may
be checked at any time. The control variate is ours: the mean of the remaining clean answers is known exactly.

Functions that return limits take the scores of the clean run, and of the run without images: arrays of shape (N,) in [0, 1]. They
raise ValueError for a missing score, for no samples, for a bound that is not a finite number, and for scores other than 0 and 1
unless ``graded``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pytest_vlmrobust.core.estimate import ROUNDING
from pytest_vlmrobust.core.fingerprint import derive_seed

from .statistics.means import is_binary
from .table import Scores, as_scores, pair_scores

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Limit:
    """A gate on one cell: it passes when the sum of ``reference - outcome`` over the members is at most ``most``.

    ``most`` is an integer for 0/1 scores. For graded scores it includes the rounding margin within which a sum still passes.
    """

    reference: Array
    """Known score of each sample, shape (N,), in [0, 1]."""
    member: NDArray[np.bool_]
    """Which samples count, shape (N,); the others need no inference."""
    most: float
    """Largest sum that passes (K). A value within 1e-9 above its bound passes, as in full runs."""
    step: float
    """The smallest failing sum is ``most + step``: 1 for 0/1 scores; 0 for graded ones, for any sum above ``most``."""
    complement: bool = False
    """Whether reference and outcome are both 1 - score: the gate bounds the drop from below."""

    @property
    def size(self) -> int:
        """How many samples count."""
        return int(self.member.sum())

    @property
    def right(self) -> float:
        """The sum of their references."""
        return float(self.reference[self.member].sum())

    @property
    def range(self) -> tuple[float, float]:
        """The smallest and the largest of their references."""
        known = self.reference[self.member]
        return (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)


def max_drop(clean: ArrayLike, most: float, *, graded: bool = False) -> Limit:
    """Returns the limit of "the accuracy drop is at most ``most``": K = floor(t N).

    >>> max_drop([1, 1, 1, 0] * 25, 0.07).most
    7.0
    """
    before = _reference(clean, "clean", graded)
    return _limit(before, _finite(most, "most") * before.size, before.size, graded)


def max_relative_drop(clean: ArrayLike, most: float, *, graded: bool = False) -> Limit:
    """Returns the limit of "the drop is at most the share ``most`` of the clean accuracy": K = floor(rho C).

    A larger drop violates the severe-failure rule, which compares strictly. As there, a model without a right
    clean answer loses nothing and passes.
    """
    before = _reference(clean, "clean", graded)
    right = float(before.sum())
    return _limit(before, _finite(most, "most") * right, right, graded)


def min_relative_drop(clean: ArrayLike, least: float, *, graded: bool = False) -> Limit:
    """Returns the limit of "the drop is at least the share ``least`` of the clean accuracy", on complemented scores."""
    before = _reference(clean, "clean", graded)
    right = float(before.sum())
    return _limit(1.0 - before, -_finite(least, "least") * right, right, graded, complement=True)


def max_relative_corruption_error(clean: ArrayLike, no_image: ArrayLike, most: float, *, graded: bool = False) -> Limit:
    """Returns the limit of "the drop is at most ``most`` times the visual gain": K = floor(c (C - I)).

    Source: VLM-RobustBench section 3.1, equation 3.
    """
    before, blind = pair_scores(clean=clean, no_image=no_image)
    before, blind = _reference(before, "clean", graded), _reference(blind, "no_image", graded)
    gain = float((before - blind).sum())
    if not gain > ROUNDING:
        raise ValueError(
            f"relative corruption error: the clean scores sum to {before.sum():g} and those without images to {blind.sum():g}, "
            "so there is no visual gain to lose a share of. Gate on the accuracy drop instead"
        )
    share = _finite(most, "most")
    return _limit(before, share * gain, gain, graded)


def min_accuracy(clean: ArrayLike, least: float, *, graded: bool = False) -> Limit:
    """Returns the limit of "the perturbed accuracy is at least ``least``": K = C - ceil(a N).

    >>> min_accuracy([1, 1, 1, 0] * 25, 0.7).most
    5.0
    """
    before = _reference(clean, "clean", graded)
    level = _finite(least, "least")
    return _limit(before, float(before.sum()) - level * before.size, before.size, graded)


def max_harmful_flip_rate(clean: ArrayLike, most: float, *, graded: bool = False) -> Limit:
    """Returns the limit of "at most the share ``most`` of all samples turns from right to wrong": K = floor(f N).

    Only samples that are right when clean count, so only they need inference.
    """
    before = _reference(clean, "clean", graded=False)
    amount = _finite(most, "most") * before.size
    return Limit(before, before > 0.0, _largest_sum(amount, before.size, graded), 0.0 if graded else 1.0)


def _limit(reference: Scores, amount: float, whole: float, graded: bool, *, complement: bool = False) -> Limit:
    everyone = np.ones(reference.shape, dtype=np.bool_)
    return Limit(reference, everyone, _largest_sum(amount, whole, graded), 0.0 if graded else 1.0, complement)


def _largest_sum(amount: float, whole: float, graded: bool) -> float:
    """Returns the largest sum within rounding of the bound, as a share of ``whole``, because a policy compares shares."""
    # 0.07 * 100 is 7.000000000000001, 0.29 * 100 is 28.999999999999996, and 15 of 324 may be written as 0.046296296
    rounded = amount + ROUNDING * max(whole, 1.0)
    return rounded if graded else float(math.floor(rounded))


def _reference(values: ArrayLike, name: str, graded: bool) -> Scores:
    """Returns complete scores, checked to be 0 or 1 unless ``graded``."""
    scores = as_scores(values, name)
    if not scores.size:
        raise ValueError(f"{name}: there are no samples, so there is nothing to judge")
    if np.isnan(scores).any():
        raise ValueError(
            f"{name}[{int(np.isnan(scores).argmax())}] is missing: a sequential gate needs this run complete. Finish it first"
        )
    if not graded and not is_binary(scores):
        position = int(((scores > 0.0) & (scores < 1.0)).argmax())
        raise ValueError(
            f"{name}[{position}] is {float(scores[position])!r}: expected 0 or 1. Graded scores need graded=True, "
            "and are not offered for harmful flips"
        )
    return scores


def _finite(value: float, name: str) -> float:
    if not math.isfinite(value):
        raise ValueError(f"{name} is {value!r}: a gate needs a finite bound")
    return value


# Audits of cells: bets that a limit is kept, and that it is broken.


STAKES = np.array([0.02, 0.05, 0.1, 0.18, 0.28, 0.4, 0.52, 0.65, 0.78, 0.9, 0.98])
"""Stakes as fractions of the largest one without ruin; each starts with an equal share of the capital."""
_NARROWEST = 1e-9
_RUIN = -1.0 + 1e-12


class Sums(NamedTuple):
    """Sums over the answers of a cell so far; a missing answer counts as wrong for PASS, and as right for FAIL."""

    right: Array
    """Of the references."""
    wrong: Array
    """Of 1 - reference."""
    harmful_most: Array
    """Sums of the losses, missing answers counted as wrong."""
    helpful_least: Array
    harmful_least: Array
    """Sums of the losses, missing answers counted as right."""
    helpful_most: Array

    @property
    def most(self) -> Array:
        """The sum of reference - score if every missing answer is wrong."""
        return self.harmful_most - self.helpful_least

    @property
    def least(self) -> Array:
        """The sum of reference - score if every missing answer is right."""
        return self.harmful_least - self.helpful_most


class Audit:
    """Evidence, for each of m cells and each limit, that all N answers keep the limit, and that they break it.

    It may be checked at any time: if a claim is wrong, its e-value ever exceeds 1 / alpha with probability at most alpha.
    It says nothing about other samples. A missing answer (NaN) counts as wrong where PASS is weighed, and as right for FAIL.
    The cells share one random order.
    """

    def __init__(self, limits: Sequence[Limit], order: Sequence[int], cells: int = 1) -> None:
        """Prepares an audit without answers; each cell is judged by all limits."""
        self.limits, self._order = tuple(limits), np.array(order, np.intp)
        self.n_asked = [0] * cells
        """How many answers it has seen of each cell."""
        self._used = np.zeros((cells, len(limits)), np.intp)
        self._sums = np.zeros((cells, len(limits), len(Sums._fields)))
        self._capital = np.zeros((cells, len(limits), 2, STAKES.size))

    def upcoming(self, total: int, cell: int = 0) -> list[int]:
        """Returns the positions of the samples to ask next, up to a total of ``total``."""
        places: list[int] = self._order[self.n_asked[cell] : total].tolist()
        return places

    def advance(self, cell: int, scores: ArrayLike) -> None:
        """Takes the scores of the next samples of a cell into account, in their order."""
        values = np.asarray(scores, np.float64)
        places = self._order[self.n_asked[cell] : self.n_asked[cell] + values.size]
        self.n_asked[cell] += values.size
        for number, limit in enumerate(self.limits):
            counts = limit.member[places]
            self._bet(limit, (cell, number), limit.reference[places[counts]], values[counts])

    def evidence(self) -> Array:
        """Returns logarithms of e-values, shape (2, cells, limits): for PASS, then for FAIL; infinite if one is certain."""
        peak = self._capital.max(axis=-1)
        logs = np.moveaxis(peak + np.log(np.exp(self._capital - peak[..., None]).mean(axis=-1)), -1, 0)
        sums = Sums(*np.moveaxis(self._sums, -1, 0))
        right, size, most = np.array([(limit.right, limit.size, limit.most) for limit in self.limits]).T
        passes = sums.most + (right - sums.right) <= most  # later answers cannot break it: each adds at most its reference
        fails = sums.least - (size - right - sums.wrong) > most
        sure = np.stack(
            [np.where(passes, np.inf, np.where(fails, -np.inf, 0.0)), np.where(fails, np.inf, np.where(passes, -np.inf, 0.0))]
        )
        return np.where(sure == 0.0, logs, sure)

    def _bet(self, limit: Limit, at: tuple[int, int], reference: Array, scores: Array) -> None:
        """Updates the capital of one cell and limit; each bet depends only on the earlier draws."""
        scores = 1.0 - scores if limit.complement else scores
        missing = np.isnan(scores)
        wrong, right = np.where(missing, 0.0, scores), np.where(missing, 1.0, scores)
        steps = (
            reference,
            1.0 - reference,
            *(np.maximum(x, 0.0) for x in (reference - wrong, wrong - reference, reference - right, right - reference)),
        )
        sums = np.cumsum(np.column_stack([self._sums[at], np.stack(steps)]), axis=1)
        before, left = Sums(*sums[:, :-1]), limit.size - self._used[at] - np.arange(scores.size)
        expected = (limit.right - before.right) / left
        slope = (before.harmful_least + 0.5) / (before.right + 10.0) + (before.helpful_least + 0.5) / (before.wrong + 20.0)
        low, high, adjusted = (value - slope * (value - expected) for value in (*limit.range, reference))
        keeping = _growth(adjusted - wrong, (limit.most + limit.step - before.most) / left, np.maximum(low, high))
        breaking = _growth(right - adjusted, (before.least - limit.most) / left, 1.0 - np.minimum(low, high))
        # one draw after another, so that any split into batches gives the same bits
        capital = np.cumsum(np.concatenate([self._capital[at][:, None], np.stack([keeping, breaking])], axis=1), axis=1)
        self._sums[at], self._capital[at] = sums[:, -1], capital[:, -1]
        self._used[at] += scores.size


def _growth(values: Array, mean: Array, ceiling: Array) -> Array:
    """Returns the log growth of each stake on a bet against "the next value averages at least ``mean``", shape (draws, stakes).

    If the null is impossible (``mean`` above ``ceiling``) the capital explodes; if it is certain the capital only falls.
    """
    stakes = STAKES / np.maximum(ceiling - mean, _NARROWEST)[:, None]
    growth: Array = np.log1p(np.maximum(-stakes * (values - mean)[:, None], _RUIN))
    return growth


# The order of a sweep: of its pairs of a setting and a sample, and the settings to ask first.


def pair_order(settings: Sequence[str], names: Sequence[str]) -> list[int]:
    """Returns the order of all pairs of a setting and a sample; pair ``p`` is ``divmod(p, len(names))``.

    The order of two pairs follows from the names of their settings and samples alone: neither other positions nor further
    settings or samples change it.
    """
    ranks = [derive_seed(0, "order of an audit", setting, name) for setting in settings for name in names]
    order: list[int] = np.argsort(np.array(ranks, np.uint64), kind="stable").tolist()
    return order


PRIOR_WORST = (
    *("upsample:high", "elastic_transform:high", "zoom_blur:mid", "zoom_blur:high"),
    *("glass_blur:low", "solarize:high", "flip_v", "invert"),
)
"""Settings that cost most in published sweeps (VLM-RobustBench), asked first to find failures."""


def prior_weights(settings: Sequence[str], worst: Iterable[str] = PRIOR_WORST) -> NDArray[np.float64]:
    """Returns weights that sum to 1: half for the settings among ``worst``, half for all; equal if none is among them.

    They must be fixed before the run. Bad weights cost inferences, but not validity.

    Returns an array of shape (m,), each positive.

    >>> prior_weights(["flip_v", "fog:low"]).tolist()
    [0.75, 0.25]
    """
    wanted = set(worst)
    expected = np.array([setting in wanted for setting in settings])
    everywhere = np.full(len(settings), 1.0 / len(settings))
    return (expected / expected.sum() + everywhere) / 2.0 if expected.any() else everywhere
