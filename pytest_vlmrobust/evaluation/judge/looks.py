"""Looks: a test is judged on the samples that were asked about so far, as if there were no others.

Each look spends a part of a rule's risk, and the last one, at all samples, has the rest. The parts add up to the risk, so that it
holds for any interval and whatever the looks have in common. Verdicts that audits reached stand.
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
    """Returns after how many samples rules are looked at before all of them are asked about.

    >>> look_sizes(20), look_sizes(128), look_sizes(869)
    ((), (24, 48), (24, 48, 96, 192, 384))
    """
    doubled = (FIRST_LOOK * 2**power for power in range(32))
    return tuple(look for look in doubled if look <= LAST_LOOK * size)


def risk_shares(size: int) -> dict[int, float]:
    """Returns which part of a rule's risk each look has, by its number of samples: together the square of their share.

    Equal parts would leave less for all samples, where most close verdicts fall; the bounds of O'Brien and Fleming leave more,
    and ask longer about what is plain. ``studies/verdicts/README.md`` says how much.

    Source: K. Kim and D. DeMets, Biometrika 74 (1987) 149-154: spending functions that are powers of the share; here of 2.

    >>> risk_shares(96)
    {24: 0.0625, 48: 0.1875, 96: 0.75}
    """
    looks = (*look_sizes(size), size)
    return {look: (look / size) ** 2 - (before / size) ** 2 for before, look in zip((0, *looks), looks, strict=False)}


@dataclass(eq=False)
class PartialAnswers(PartOfAnswers):
    """The answers about the first samples in the order in which they are asked: what a look judges."""

    share: float
    """The part of each dataset that is asked about."""
    fingerprints: Callable[[str], tuple[str, ...]]
    """Gives what the order of the samples of a dataset is made of."""

    def places(self, dataset: str) -> tuple[int, ...]:
        """Returns the places of the samples of a dataset that are asked about."""
        fingerprints = self.fingerprints(dataset)
        return first_places(fingerprints, math.ceil(self.share * len(fingerprints) - ROUNDING))


@lru_cache(maxsize=64)
def first_places(fingerprints: tuple[str, ...], count: int) -> tuple[int, ...]:
    """Returns the places of the samples that are asked first, in the order of the dataset: needed for every cell of a look."""
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
    """Whether a test has to ask until a rule is decided."""
    return rule.treatment.tier is Tier.BLOCK


def strata_of(samples: Sequence[Sample], kind: str | None = None) -> set[str]:
    """Returns the names of the categories of samples, of their sub-tasks and slices; of one kind of them, where it is given."""
    names = {name for sample in samples for name in sample.strata} | set(strata(samples))
    return names if kind is None else {name for name in names if kind_of_stratum(name) == kind}
