"""Looks: interim analyses that judge a test on the samples so far, as if there were no others.

Each look spends a part of a rule's risk, and the last look, at all samples, has the rest. The parts add up to the risk, so it
holds for any interval and any dependence between looks. Verdicts of audits are final.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from pytest_vlmrobust.core.estimate import ROUNDING
from pytest_vlmrobust.core.sample import Sample, kind_of_stratum
from pytest_vlmrobust.evaluation.run.answers import PartOfAnswers
from pytest_vlmrobust.policies import Policy, Rule, Tier

from .audits import asking_order
from .strata import strata

FIRST_LOOK = 24
"""Samples at the first look; each further look has twice as many."""
LAST_LOOK = 0.6
"""The share of the samples after which no look comes but that at all of them, which would have little risk left."""


def look_sizes(size: int) -> tuple[int, ...]:
    """Returns the sample counts of the looks before the last one.

    >>> look_sizes(20), look_sizes(128), look_sizes(869)
    ((), (24, 48), (24, 48, 96, 192, 384))
    """
    doubled = (FIRST_LOOK * 2**power for power in range(32))
    return tuple(look for look in doubled if look <= LAST_LOOK * size)


def risk_shares(size: int) -> dict[int, float]:
    """Returns the part of a rule's risk for each look, by its number of samples; cumulatively the square of the share of samples.

    Equal parts would leave less for the last look, where most close verdicts are decided; O'Brien-Fleming bounds leave more,
    but need more samples for clear cases. ``studies/verdicts/README.md`` compares them.

    Source: K. Kim and D. DeMets, Biometrika 74 (1987) 149-154: spending functions that are powers of the share; here of 2.

    >>> risk_shares(96)
    {24: 0.0625, 48: 0.1875, 96: 0.75}
    """
    looks = (*look_sizes(size), size)
    return {look: (look / size) ** 2 - (before / size) ** 2 for before, look in zip((0, *looks), looks, strict=False)}


@dataclass(eq=False)
class PartialAnswers(PartOfAnswers):
    """The answers to the first samples in their random order, for a look."""

    share: float
    """The share of each dataset that is used."""
    fingerprints: Callable[[str], tuple[str, ...]]
    """Returns the fingerprints that decide the order of a dataset's samples."""

    def places(self, dataset: str) -> tuple[int, ...]:
        """Returns the positions of the samples of a dataset that are used."""
        fingerprints = self.fingerprints(dataset)
        return first_places(fingerprints, math.ceil(self.share * len(fingerprints) - ROUNDING))


@lru_cache(maxsize=64)
def first_places(fingerprints: tuple[str, ...], count: int) -> tuple[int, ...]:
    """Returns the positions of the first samples in the random order, sorted by position."""
    return tuple(sorted(asking_order(fingerprints)[:count]))


def with_risk(policy: Policy, share: float) -> Policy:
    """Returns a policy whose rules may spend a part of their risks."""
    rules = [
        dataclasses.replace(
            rule,
            treatment=dataclasses.replace(
                rule.treatment, alpha_pass=rule.treatment.alpha_pass * share, alpha_fail=rule.treatment.alpha_fail * share
            ),
        )
        for rule in policy.rules
    ]
    return dataclasses.replace(policy, rules=tuple(rules))


def is_blocking(rule: Rule) -> bool:
    """Whether a test must continue until this rule is decided."""
    return rule.treatment.tier is Tier.BLOCK


def strata_of(samples: Sequence[Sample], kind: str | None = None) -> set[str]:
    """Returns the names of the categories, sub-tasks and slices of samples, or of one kind of them."""
    names = {name for sample in samples for name in sample.strata} | set(strata(samples))
    return names if kind is None else {name for name in names if kind_of_stratum(name) == kind}
