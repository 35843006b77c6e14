"""P-values: how strong the evidence against a bound is, for one metric, and for listing the settings that break it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from pytest_vlmrobust.core.errors import UsageError, did_you_mean
from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.core.words import first_few

from .estimation import estimate
from .scores import Scores, SettingLike
from .statistics.clusters import one_sided
from .statistics.multiple import benjamini_hochberg, holm, max_t_lower
from .statistics.paired import drop_test
from .table import ScoreTable

Claim: TypeAlias = Literal[">", ">=", "<", "<="]
"""What is to be shown: where the true value lies as seen from a bound."""

SMALLEST = 1e-12
"""P-values are told apart down to here; a smaller one is returned as this."""

_HOLDS: dict[str, Callable[[Estimate, float], bool]] = {
    ">": lambda found, bound: found.low > bound + _TOLERANCE,
    ">=": lambda found, bound: found.low >= bound - _TOLERANCE,
    "<": lambda found, bound: found.high < bound - _TOLERANCE,
    "<=": lambda found, bound: found.high <= bound + _TOLERANCE,
}
_TOLERANCE = 1e-9
_HALVINGS = 40
_ADJUSTMENTS = {"holm": holm, "benjamini_hochberg": benjamini_hochberg}


def p_value(name: str, table: ScoreTable, claim: Claim, bound: float, setting: SettingLike | None = None) -> float:
    """Returns the p-value that a registered metric's true value lies where ``claim`` says, for any metric with an interval.

    It is the smallest error probability at which the metric's own one-sided bound shows the claim, found by bisection: so it
    holds for a largest drop and for a count of settings as for a mean, and says the same as the interval at every level. To judge
    at one level no p-value is needed: ask :func:`estimate` for ``confidence=1 - 2 * alpha``.

    Args:
        name: a registered metric.
        table: scores of N samples.
        claim: ``">"``, ``">="``, ``"<"`` or ``"<="``: the true value compared with ``bound``.
        bound: what the value is compared with.
        setting: the setting of the cell for a metric of scope ``"cell"``; None for one of scope ``"sweep"``.

    Returns:
        At least 1e-12; 1.0 when no error probability below one half shows it. NaN when the metric is undefined, does not apply
        or has no interval.

    Raises:
        UnknownName: no metric has that name.
        UsageError: another claim, or what :func:`estimate` refuses.
    """
    if claim not in _HOLDS:
        raise UsageError(f"claim is {claim!r}: expected one of {', '.join(_HOLDS)}")

    def shown(tail: float) -> bool:
        return _HOLDS[claim](estimate(name, table, setting, 1.0 - 2.0 * tail), bound)

    first = estimate(name, table, setting)
    if not first.valid or math.isnan(first.low):
        return math.nan
    low, high = math.log(SMALLEST), math.log(0.499)
    if not shown(math.exp(high)):
        return 1.0
    if shown(SMALLEST):
        return SMALLEST
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        low, high = (low, middle) if shown(math.exp(middle)) else (middle, high)
    return math.exp(high)


class SettingEvidence(NamedTuple):
    """The drop under one setting, and the p-value that it exceeds a bound: alone, and adjusted for all settings listed."""

    setting: str
    drop: float
    p_value: float
    adjusted: float


def drops_above(table: ScoreTable, bound: float, method: str = "holm") -> tuple[SettingEvidence, ...]:
    """Tests for each setting whether its drop exceeds ``bound``, for a list of settings that are shown to fail.

    The gate on the largest drop needs no such list: this one says which settings to repair, without a false entry with
    probability 1 - alpha (``"holm"``), or with a share alpha of false ones on average (``"benjamini_hochberg"``). Holm lists a
    setting exactly when the lower bound of ``worst_case_drop`` exceeds ``bound``.

    Args:
        table: scores of N samples under m settings.
        bound: a drop, a fraction in (-1, 1).
        method: ``"holm"`` or ``"benjamini_hochberg"``.

    Returns:
        One entry for each setting, the smallest p-value first; list those whose ``adjusted`` is at most alpha.

    Raises:
        UsageError: another method, a bound outside (-1, 1), no samples, or missing scores.
    """
    if method not in _ADJUSTMENTS:
        raise UsageError(
            f"unknown method {method!r}.{did_you_mean(method, _ADJUSTMENTS)} Expected one of {', '.join(_ADJUSTMENTS)}"
        )
    if not -1.0 < bound < 1.0:
        raise UsageError(f"the bound is {bound!r}: expected a fraction between -1 and 1, so 5 percentage points are 0.05")
    matrix, settings = _complete(table), tuple(table.by_setting)
    if not settings:
        return ()
    alone = drop_test(table.clean, matrix, table.clusters).p_above(bound)
    adjusted = _ADJUSTMENTS[method](alone)
    losses = (table.clean[:, None] - matrix).mean(axis=0)
    found = [SettingEvidence(name, *map(float, row)) for name, *row in zip(settings, losses, alone, adjusted, strict=True)]
    return tuple(sorted(found, key=lambda entry: (entry.p_value, -entry.drop)))


def worst_case_lower_bound(table: ScoreTable, rng: np.random.Generator, confidence: float = 0.90) -> float:
    """Bounds the largest drop from below by max-t: resampling in the place of Bonferroni's correction.

    An alternative to the lower end of ``worst_case_drop`` for settings that move together; usually close to it. It rests on
    a normal approximation far in the tail, which is doubtful where flips are rare.

    Args:
        table: scores of N samples under at least one setting.
        rng: draws the resamples; the same generator state gives the same bound.
        confidence: two-sided level in (0, 1): 0.90 for a one-sided 95 % bound.

    Returns:
        A fraction in [-1, 1].

    Raises:
        UsageError: no samples, no settings, or missing scores.
        ValueError: ``confidence`` outside (0, 1).

    Source: J. P. Romano and M. Wolf, Econometrica 73 (2005) 1237-1282 (single step).
    """
    tail, matrix = one_sided(confidence), _complete(table)
    if not matrix.shape[1]:
        raise UsageError("the largest drop cannot be bounded: there are no scores under any setting")
    return max(max_t_lower(table.clean[:, None] - matrix, table.clusters, tail, rng), -1.0)


def _complete(table: ScoreTable) -> Scores:
    """Returns the scores under all settings, shape (N, m), when none is missing.

    Raises:
        UsageError: no samples, or missing scores.
    """
    lacking = [name for name, scores in {"clean": table.clean, **table.by_setting}.items() if np.isnan(scores).any()]
    if lacking or not table.samples:
        raise UsageError(f"the drops cannot be tested: {'missing scores in ' + first_few(lacking) if lacking else 'no samples'}")
    return table.matrix()
