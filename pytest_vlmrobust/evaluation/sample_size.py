"""Sample size: which rules the samples of a run cannot decide, told before anything is inferred."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache

from pytest_vlmrobust.core.counting import quantity
from pytest_vlmrobust.metrics.statistics.power import minimum_detectable_drop, samples_needed, undecided_zone
from pytest_vlmrobust.policies import Judge, JudgedTest, Policy, Rule, Tier

LARGEST = {"worst_case_drop": "", "worst_at_low": "low"}
"""The largest of the drops of several settings: metric to the level of those, empty for any."""
DROPS = frozenset({"accuracy_drop", "label_preserving_drop", *LARGEST})
"""Drops of paired scores, or the largest of several: their spread is known before anything is measured."""
HELPFUL_FLIPS = 0.015
"""The share of answers that a perturbation turns right by luck, as in published runs: it spreads the drop of a model that loses
nothing."""
POWER = 0.8
"""How likely a model that loses nothing should be to pass a rule in all of its tests."""


def undecidable(policy: Policy, tests: Iterable[JudgedTest], sizes: Mapping[str, int]) -> list[str]:
    """Returns, a sentence for each, the rules that a model which loses nothing would too often not be shown to keep.

    Args:
        policy: the policy of one model.
        tests: what is planned for that model.
        sizes: data set to its number of independent samples.
    """
    planned = list(tests)
    return [
        sentence
        for rule in policy.rules
        if _is_shown_by_samples(rule)
        for dataset in dict.fromkeys(test.dataset for test in planned if rule.bounds(test) and test.dataset in sizes)
        if (sentence := _too_few(rule, dataset, sizes[dataset], _drops(rule, dataset, planned)))
    ]


def _is_shown_by_samples(rule: Rule) -> bool:
    judged = rule.treatment.judge is Judge.INTERVAL and rule.treatment.tier is Tier.BLOCK
    return judged and rule.metric in DROPS and rule.bound.high <= 1.0 - 2.0 * HELPFUL_FLIPS


def _drops(rule: Rule, dataset: str, planned: Iterable[JudgedTest]) -> int:
    """Returns how many drops have to be shown to be small before the rule holds in all its tests on one data set."""
    tests = {test for test in planned if test.dataset == dataset}
    if rule.metric not in LARGEST:
        return sum(map(rule.bounds, tests))
    level = LARGEST[rule.metric]
    return max(len({test.setting for test in tests if test.family and level in ("", test.level)}), 1)


def _too_few(rule: Rule, dataset: str, n: int, drops: int) -> str:
    bound, alpha = rule.bound.high, rule.treatment.alpha_pass
    power = POWER ** (1.0 / drops)  # of each drop, so that all are shown as often as POWER says, if their flips are independent
    if undecided_zone(n, bound, HELPFUL_FLIPS, alpha=alpha, power=power).passes <= bound:
        return ""
    needed = samples_needed(0.0, bound, HELPFUL_FLIPS, alpha=alpha, power=power) if bound > 0.0 else None
    enough = f"about {quantity(needed, 'sample')} would do" if needed else "no number of samples would do: allow a margin"
    smallest = minimum_detectable_drop(n, HELPFUL_FLIPS, rule.treatment.alpha_fail, POWER)
    them = f"it under all {drops} settings" if drops > 1 else "it"
    return (
        f"{dataset}: {n} independent samples hardly decide rule {rule.id} ({rule.metric} <= {rule.bound}, {rule.source}): "
        f"a model that loses nothing would pass {them} with a probability below {POWER:.0%}; {enough}. "
        f"The smallest drop that {quantity(n, 'sample shows', 'samples show')} is {smallest:.3f}"
    )


AVERAGES = frozenset({"mean_drop", "mean_harmful_flip_rate", "mean_relative_corruption_error", "mean_baseline_drop"})
"""Averages over all settings that are 0, or the rate of lucky flips, for a model that loses nothing: their width is simulated."""
_DRAWS = 15


def undecidable_averages(policy: Policy, n: int) -> list[tuple[Rule, str]]:
    """Returns the blocking rules on averages over settings that a model which loses nothing is too seldom shown to keep."""
    found = []
    for rule in policy.rules:
        treatment = rule.treatment
        judged = treatment.judge is Judge.INTERVAL and treatment.tier is Tier.BLOCK
        if not judged or rule.metric not in AVERAGES:
            continue
        reached = _upper_end(rule.metric, n, treatment.alpha_pass)
        if reached > rule.bound.high:
            shown = (
                f"of a model that loses nothing, they would show {rule.metric} <= {reached:.3f} with a probability of {POWER:.0%}"
            )
            about = f"{rule.id} ({rule.metric} <= {rule.bound}, {rule.source})"
            found.append((rule, f"{n} independent samples hardly decide rule {about}: {shown}, and no less"))
    return found


@cache
def _upper_end(metric: str, n: int, alpha: float) -> float:
    """Returns what the upper end of a metric stays below in 80 % of simulated runs of a model that loses nothing."""
    import numpy as np

    from pytest_vlmrobust import metrics

    from .profiles import nothing_lost

    profile, rng = nothing_lost(churn=0.0), np.random.default_rng(0)
    tables = (profile.draw(n, ("corruptions",), rng)["corruptions"] for _ in range(_DRAWS))
    ends = [metrics.estimate(metric, table, confidence=1.0 - 2.0 * alpha).high for table in tables]
    return float(np.quantile(ends, POWER))
