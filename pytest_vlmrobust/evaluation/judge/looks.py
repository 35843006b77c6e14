"""Looks: a test is judged on the samples that were asked about so far, as if there were no others.

Each look spends a part of a rule's risk, and the last one, at all samples, has the rest. The parts add up to the risk, so that it
holds for any interval and whatever the looks have in common. Verdicts that audits reached stand.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from pytest_vlmrobust.core.cell import Cell
from pytest_vlmrobust.core.decision import Outcome, Verdict
from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.core.prediction import ModelRef
from pytest_vlmrobust.core.record import BUDGET_METRICS, Record
from pytest_vlmrobust.core.sample import PictureDigests, Sample
from pytest_vlmrobust.core.words import quantity as counted
from pytest_vlmrobust.evaluation.run.answers import Measured, Thumbnails
from pytest_vlmrobust.evaluation.run.results import CellResult
from pytest_vlmrobust.policies import Bound, JudgedTest, Policy, Rule, Tier, Waiver
from pytest_vlmrobust.policies.judge import early_verdict, judge_rule, verdict_of_part

from .audits import asking_order, judges_value
from .judge import Judge
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
class Prefix:
    """The answers about the first samples in the order in which they are asked: what a look judges."""

    whole: Measured
    share: float
    """The part of each dataset that is asked about."""
    fingerprints: Callable[[str], tuple[str, ...]]
    """Gives what the order of the samples of a dataset is made of."""
    album: Thumbnails
    _samples: dict[str, tuple[Sample, ...]] = field(default_factory=dict)

    @property
    def models(self) -> Mapping[str, ModelRef]:
        """The models by the name that stands in cells."""
        return self.whole.models

    @property
    def inferred(self) -> int:
        """How many answers came from a model so far."""
        return self.whole.inferred

    @property
    def recalled(self) -> int:
        """How many answers came from a store so far."""
        return self.whole.recalled

    def corpus_metric(self, dataset: str) -> str:
        """Returns the name of the metric that is reported for a dataset as a whole."""
        return self.whole.corpus_metric(dataset)

    def pictures(self, dataset: str) -> Mapping[str, PictureDigests]:
        """Returns the digests of pictures by sample id."""
        return self.whole.pictures(dataset)

    def samples(self, dataset: str) -> tuple[Sample, ...]:
        """Returns the samples that are asked about, in the order of the dataset; the same object each time."""
        if dataset not in self._samples:
            everything = self.whole.samples(dataset)
            self._samples[dataset] = tuple(everything[place] for place in self.places(dataset))
        return self._samples[dataset]

    def places(self, dataset: str) -> tuple[int, ...]:
        """Returns the places of the samples of a dataset that are asked about."""
        fingerprints = self.fingerprints(dataset)
        return _first_places(fingerprints, math.ceil(self.share * len(fingerprints) - 1e-9))

    def result(self, cell: Cell, places: Sequence[int] | None = None) -> CellResult:
        """Returns the answers and scores of a cell."""
        chosen = self.places(cell.dataset)
        return self.whole.result(cell, chosen if places is None else [chosen[place] for place in places])


@lru_cache(maxsize=64)
def _first_places(fingerprints: tuple[str, ...], count: int) -> tuple[int, ...]:
    """Returns the places of the samples that are asked first, in the order of the dataset: needed for every cell of a look."""
    return tuple(sorted(asking_order(fingerprints)[:count]))


@dataclass(eq=False)
class Decisions:
    """What is decided about one test so far: a verdict that was reached once stands."""

    judge: Judge
    size: int
    """How many answers the test would ask for."""
    shares: Mapping[int, float]
    """The parts of a rule's risk that looks spend, and that all samples have; empty where no look is taken."""
    asked: int = 0
    decided: dict[tuple[JudgedTest, str], Verdict] = field(default_factory=dict)
    undecided: set[tuple[JudgedTest, str]] = field(default_factory=set)
    """Of rules that block, those that the last look left open."""
    audited: set[tuple[JudgedTest, str]] = field(default_factory=set)
    """Those that an audit decides; looks spend no risk on them."""
    open_looks: bool = False
    """Whether the last look left a rule open that no audit decides."""
    at_look: bool = False
    beyond_budget: bool = False
    """Whether more inferences failed, or more answers were unreadable, than the policy admits; then all samples are judged."""
    planned: frozenset[str] = frozenset()
    """The metrics that blocking rules are about, and that all answers have a value of."""
    unfit: Mapping[tuple[str, str], Estimate] = field(default_factory=dict)
    """By metric and category, those that do not apply, as the answers about all unchanged samples show: nothing changes that."""

    @property
    def whole(self) -> Measured:
        """The answers about all samples, asked for on demand."""
        return self.judge.evaluator

    @property
    def in_words(self) -> str:
        """How much was asked, for reasons."""
        return f"{self.asked:,} of {counted(self.size, 'answer')}"

    @property
    def has_failed(self) -> bool:
        """Whether a rule that blocks is shown to be broken."""
        return any(verdict.outcome is Outcome.FAIL for verdict in self.decided.values())

    def verdicts(self, policy: Policy, test: JudgedTest, estimate: Estimate) -> Mapping[str, Verdict]:
        """Returns the verdicts of those rules that are decided, by rule; at a look, decides those that the estimate can."""
        said = estimate.valid and estimate.finite
        about = alone(test)
        decided = {}
        for rule in policy.rules:
            if not rule.applies(test):
                continue
            key = about, rule.id
            if self.at_look and said and key not in self.decided and key not in self.audited:
                self._look(policy, rule, test, estimate)
            if (unfit := self.unfit.get((test.metric, test.category))) is not None:
                decided[rule.id] = judge_rule(rule, unfit, (), self.judge.today, category=test.category)
            elif key in self.decided and said:
                decided[rule.id] = self.decided[key]
            elif blocks(rule):
                self.undecided.add(key)
        return decided

    def waivers(self, test: JudgedTest) -> list[Waiver]:
        """Returns the waivers about a test that hold today."""
        every = self.judge.policies[test.model].waivers
        return [waiver for waiver in every if waiver.applies(test) and not waiver.is_expired(self.judge.today)]

    def conclude(self, test: JudgedTest, rule: Rule, within: Callable[[Bound], Outcome]) -> None:
        """Writes down what audits show about a rule.

        Args:
            test: what the rule was audited on.
            rule: the rule.
            within: says whether a bound is shown to be kept, or to be broken.
        """
        treatment = rule.treatment
        risk = treatment.alpha_fail if within(rule.bound) is Outcome.FAIL else treatment.alpha_pass
        because = f"shown at a risk of {risk:.3g} by {self.in_words}"
        if verdict := early_verdict(rule, within, self.waivers(test), self.judge.today, because, category=test.category):
            self.decided.setdefault((test, rule.id), verdict)

    def _look(self, policy: Policy, rule: Rule, test: JudgedTest, estimate: Estimate) -> None:
        waivers = [waiver for waiver in policy.waivers if waiver.applies(test)]
        strata = max(test.strata, len(strata_of(self.whole.samples(test.dataset)))) if test.category else 1
        sharing, share = policy.sharing(rule, dataclasses.replace(test, strata=strata)), self.shares[self.asked]
        if judges_value(rule):  # the verdict of all answers errs at no risk, and so nothing is kept for it
            share /= 1.0 - self.shares[self.size]
        today = self.judge.today
        said = verdict_of_part(rule, estimate, waivers, today, sharing, share=share, asked=self.in_words, category=test.category)
        if said is not None:
            self.decided[alone(test), rule.id] = said


def alone(test: JudgedTest) -> JudgedTest:
    """Returns a test as decisions name it: not by how many strata there are, of which a part of the samples may lack some."""
    return dataclasses.replace(test, strata=1)


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


def blocks(rule: Rule) -> bool:
    """Whether a test has to ask until a rule is decided."""
    return rule.treatment.tier is Tier.BLOCK


def strata_of(samples: Sequence[Sample]) -> set[str]:
    """Returns the names of the categories of samples, and of their sub-tasks."""
    return {sample.category for sample in samples if sample.category} | set(strata(samples))


def is_broken(record: Record) -> bool:
    """Whether a rule is broken: further verdicts cannot mend the test."""
    return any(measure.outcome is Outcome.FAIL for measure in record.measures)


def breaks_budget(record: Record) -> bool:
    """Whether more inferences failed, or more answers were unreadable, than the policy admits."""
    return any(measure.metric in BUDGET_METRICS and measure.outcome is not Outcome.MEASURED for measure in record.measures)
