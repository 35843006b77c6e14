"""Turns a gate into one number: the largest sum of (reference - outcome) over the samples of a cell that passes.

The clean and the no-image run are known before any perturbed answer is, so drop, relative drop, RCE, accuracy and
PCRI gates all ask whether a sum of N differences, each known up to one answer, exceeds a known limit. Ratios disappear.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pytest_vlmrobust.metrics.scores import ROUNDING, Scores, as_scores, pair_scores
from pytest_vlmrobust.metrics.statistics.proportions import is_binary

Array = NDArray[np.float64]


class UndefinedGate(ValueError):
    """A gate on a ratio whose denominator is not positive: there is no number to judge."""


@dataclass(frozen=True, slots=True, eq=False)
class Contrast:
    """The same gate as a claim about a distribution: the mean of ``offset - outcome`` is at most ``bound``."""

    offset: Array
    """Known part of each sample's difference, shape (N,)."""
    bound: float
    low: float
    """Smallest offset that any sample of the distribution can have."""
    high: float
    """Largest offset that any sample of the distribution can have."""


@dataclass(frozen=True, slots=True, eq=False)
class Limit:
    """A gate on one cell: it passes when the sum of ``reference - outcome`` over the members is at most ``most``.

    ``most`` is an integer for 0/1 scores. For graded scores it carries the margin of rounding, within which a sum still passes.
    """

    reference: Array
    """Known score of each sample, shape (N,), in [0, 1]."""
    member: NDArray[np.bool_]
    """Which samples count, shape (N,); the others need no inference."""
    most: float
    """Largest sum that passes (K). A value within 1e-9 above its bound passes, as in full runs."""
    step: float
    """The smallest sum that fails is ``most + step``: 1 for 0/1 scores; 0 for graded ones, where it is only known to be above."""
    complement: bool = False
    """Whether reference and outcome both stand for 1 - score: the gate bounds the drop from below."""
    contrast: Contrast | None = None
    """The gate as a claim about a distribution; ``None`` where none is offered."""

    @property
    def size(self) -> int:
        """How many samples count."""
        return int(self.member.sum())


def max_drop(clean: ArrayLike, most: float, *, graded: bool = False) -> Limit:
    """Returns the limit of "the accuracy drop is at most ``most``": K = floor(t N).

    Args:
        clean: clean scores, shape (N,), each in [0, 1], none missing.
        most: a fraction, usually in [0, 1].
        graded: whether outcomes may lie between 0 and 1; K is then t N itself.

    Raises:
        ValueError: a missing or graded clean score that is not allowed, no samples, or a bound that is not a finite number.

    >>> max_drop([1, 1, 1, 0] * 25, 0.07).most
    7.0
    """
    before = _reference(clean, "clean", graded)
    return _limit(before, _finite(most, "most") * before.size, before.size, graded, Contrast(before, most, 0.0, 1.0))


def max_relative_drop(clean: ArrayLike, most: float, *, graded: bool = False) -> Limit:
    """Returns the limit of "the drop is at most the share ``most`` of the clean accuracy": K = floor(rho C).

    What exceeds it is a violation of the severe-failure rule, whose comparison is strict. Like there, a model without a right
    clean answer loses nothing and passes.

    Args:
        clean: clean scores, shape (N,), each in [0, 1], none missing.
        most: a share of the clean accuracy, such as 0.10.
        graded: whether outcomes may lie between 0 and 1.

    Raises:
        ValueError: what :func:`max_drop` refuses.
    """
    before = _reference(clean, "clean", graded)
    kept = 1.0 - _finite(most, "most")
    contrast = Contrast(kept * before, 0.0, min(0.0, kept), max(0.0, kept))
    right = float(before.sum())
    return _limit(before, most * right, right, graded, contrast)


def min_relative_drop(clean: ArrayLike, least: float, *, graded: bool = False) -> Limit:
    """Returns the limit of "the drop is at least the share ``least`` of the clean accuracy", on complemented scores.

    Args:
        clean: clean scores, shape (N,), each in [0, 1], none missing.
        least: a share of the clean accuracy; negative where a gain is tolerated.
        graded: whether outcomes may lie between 0 and 1.

    Raises:
        ValueError: what :func:`max_drop` refuses.
    """
    before = _reference(clean, "clean", graded)
    kept = 1.0 - _finite(least, "least")
    contrast = Contrast(1.0 - kept * before, 0.0, min(1.0, 1.0 - kept), max(1.0, 1.0 - kept))
    right = float(before.sum())
    return _limit(1.0 - before, -least * right, right, graded, contrast, complement=True)


def max_relative_corruption_error(clean: ArrayLike, no_image: ArrayLike, most: float, *, graded: bool = False) -> Limit:
    """Returns the limit of "the drop is at most ``most`` times the visual gain": K = floor(c (C - I)).

    Args:
        clean: clean scores, shape (N,), each in [0, 1], none missing.
        no_image: scores of the same samples without their images, shape (N,).
        most: a ratio; at 1 all visual benefit may go.
        graded: whether outcomes may lie between 0 and 1.

    Raises:
        UndefinedGate: the visual gain is not positive.
        ValueError: unequal lengths, or what :func:`max_drop` refuses.

    Source: VLM-RobustBench section 3.1, equation 3.
    """
    before, blind = pair_scores(clean=clean, no_image=no_image)
    before, blind = _reference(before, "clean", graded), _reference(blind, "no_image", graded)
    gain = float((before - blind).sum())
    if not gain > ROUNDING:
        raise UndefinedGate(
            f"relative corruption error: the clean scores sum to {before.sum():g} and those without images to {blind.sum():g}, "
            "so there is no visual gain to lose a share of. Gate on the accuracy drop instead"
        )
    share = _finite(most, "most")
    corners = (0.0, 1.0 - share, share, 1.0)
    contrast = Contrast((1.0 - share) * before + share * blind, 0.0, min(corners), max(corners))
    return _limit(before, share * gain, gain, graded, contrast)


def min_accuracy(clean: ArrayLike, least: float, *, graded: bool = False) -> Limit:
    """Returns the limit of "the perturbed accuracy is at least ``least``": K = C - ceil(a N).

    Args:
        clean: clean scores, shape (N,), each in [0, 1], none missing; they only steady the evidence.
        least: a fraction in [0, 1].
        graded: whether outcomes may lie between 0 and 1.

    Raises:
        ValueError: what :func:`max_drop` refuses.

    >>> min_accuracy([1, 1, 1, 0] * 25, 0.7).most
    5.0
    """
    before = _reference(clean, "clean", graded)
    level = _finite(least, "least")
    contrast = Contrast(np.full(before.shape, level), 0.0, level, level)
    return _limit(before, float(before.sum()) - level * before.size, before.size, graded, contrast)


def max_harmful_flip_rate(clean: ArrayLike, most: float, *, graded: bool = False) -> Limit:
    """Returns the limit of "at most the share ``most`` of all samples turns from right to wrong": K = floor(f N).

    Only samples that are right when clean count, so only they need inference. No claim about a distribution is offered.

    Args:
        clean: clean scores, shape (N,), each 0 or 1.
        most: a share of all N samples.
        graded: whether outcomes may lie between 0 and 1; the clean scores may not.

    Raises:
        ValueError: a graded clean score, or what :func:`max_drop` refuses.
    """
    before = _reference(clean, "clean", graded=False)
    amount = _finite(most, "most") * before.size
    return Limit(before, before > 0.0, _largest_sum(amount, before.size, graded), 0.0 if graded else 1.0)


def contrast_of(limit: Limit) -> Contrast:
    """Returns the gate as a claim about a distribution.

    Raises:
        ValueError: none is offered for this gate.
    """
    if limit.contrast is None:
        raise ValueError("harmful flips: no sequential claim about a distribution is offered. Use target 'dataset' or 'exact'")
    return limit.contrast


def _limit(
    reference: Scores, amount: float, whole: float, graded: bool, contrast: Contrast, *, complement: bool = False
) -> Limit:
    everyone = np.ones(reference.shape, dtype=np.bool_)
    return Limit(reference, everyone, _largest_sum(amount, whole, graded), 0.0 if graded else 1.0, complement, contrast)


def _largest_sum(amount: float, whole: float, graded: bool) -> float:
    """Returns the largest sum that is within rounding of the bound: as a share of ``whole``, which is what a policy compares."""
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
