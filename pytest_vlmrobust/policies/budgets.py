"""Budgets and Coverage: how many answers may fail, be unreadable or be refused, and how much a run must measure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import PurePosixPath
from types import MappingProxyType

from pytest_vlmrobust.core.decision import Allowance, Outcome, Verdict
from pytest_vlmrobust.core.errors import did_you_mean
from pytest_vlmrobust.core.estimate import ROUNDING
from pytest_vlmrobust.core.words import plain_decimal, quantity

from .rules import Bound, JudgedBy, OnInconclusive, Rule, Treatment, decimals_needed

BUILT_IN = "built-in default"
BUDGET_KEYS = ("max_error_rate", "max_unparsed_rate", "max_refusal_rate")
COVERAGE_KEYS = ("tests", "samples", "suites", "rules", "blind_models")


@dataclass(frozen=True, slots=True)
class Budgets:
    """Three shares in [0, 1]; ``sources`` gives the location of each (``file:line``), ``risks`` its error risks.

    If no file sets a budget, an undecided share does not block; reports say that it is not shown.

    Errors, refusals, unreadable answers and wrong answers differ: a failed inference says nothing about the
    model; a refused or unreadable answer counts as wrong and is also counted separately; wrong answers are what the
    metrics measure.
    """

    max_error_rate: float = 0.0
    """Failed inferences, as a share of all."""
    max_unparsed_rate: float = 0.05
    """Unreadable answers, as a share of all answers with images."""
    max_refusal_rate: float = 0.05
    """Answers refused by the model or a filter, as a share of all answers with images."""
    sources: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    risks: Mapping[str, Treatment] = field(default_factory=lambda: MappingProxyType({}))
    """By budget: the defaults of its file, with its ``alpha_pass`` and ``alpha_fail``."""

    def rule(self, metric: str, judge: JudgedBy = JudgedBy.INTERVAL) -> Rule:
        """Returns a budget as a rule on ``error_rate``, ``unparsed_rate`` or ``refusal_rate``.

        A budget of 0 is exact: a single answer breaks it.
        """
        key = f"max_{metric}"
        share = getattr(self, key)
        risks = self.risks.get(key, Treatment())
        treatment = Treatment(
            judge=judge if share > 0.0 else JudgedBy.POINT, alpha_pass=risks.alpha_pass, alpha_fail=risks.alpha_fail
        )
        return Rule(key, metric, Bound(high=share, unit="%"), self.sources.get(key, BUILT_IN), treatment=treatment)

    def rule_about(self, metric: str, share: float, judge: JudgedBy) -> Rule:
        """Returns a budget as a rule on a share that was measured: within a built-in budget, it need not be shown to hold."""
        rule = self.rule(metric, judge)
        if rule.id in self.sources or not rule.bound.admits(share):
            return rule
        return replace(rule, treatment=replace(rule.treatment, on_inconclusive=OnInconclusive.WARN))

    def judge_failures(self, *, n_requested: int, n_errors: int) -> list[Verdict]:
        """Returns measures that say why a test has too few answers: none was needed, none came, or one failed where none may.

        Raises ValueError for contradictory counts.
        """
        if not 0 <= n_errors <= n_requested:
            raise ValueError(f"{n_errors} errors of {n_requested} requested answers: expected 0 <= errors <= requested")
        if n_requested == 0:
            return [Verdict(Outcome.INCONCLUSIVE, "no sample was asked: nothing was measured")]
        if n_errors == n_requested:
            return [Verdict(Outcome.ERROR, f"no sample was scored: all {n_errors} inferences failed")]
        rule, rate = self.rule("error_rate"), n_errors / n_requested
        if rule.treatment.judge is JudgedBy.INTERVAL or rule.bound.admits(rate):
            return []
        shown = rule.bound.shown(rate, decimals_needed(rate, 0.0))
        reason = f"error_rate {shown} > 0 % (rule {rule.id}, {rule.source}): {n_errors} of {n_requested} inferences failed"
        return [
            Verdict(
                Outcome.ERROR, reason, rule.metric, rule.id, rule.source, rule.bound.condition, rule.bound.unit, rule.bound.ends
            )
        ]


# Coverage: how much a run must measure to be GO.


class Extent(StrEnum):
    """How much must be measured."""

    WHOLE = "whole"
    PARTIAL = "partial"


class BlindModels(StrEnum):
    """Whether a model may be GO although no blocking rule and no measurement shows that it looks at the images."""

    REFUSE = "refuse"
    ALLOW = "allow"


@dataclass(frozen=True, slots=True)
class Condition:
    """Something that GO requires unless the policy allows otherwise, and that a run did not do or show."""

    shortfall: str
    """The sentence if it is not allowed: the fact, what GO requires, the line, and what to do."""
    allowance: Allowance
    allowed: bool


@dataclass(frozen=True, slots=True)
class Coverage:
    """What a run must measure for GO; with less it is INCONCLUSIVE, although a breach is still NO-GO.

    ``sources`` gives the location of each key (``file:line``).
    """

    tests: Extent = Extent.WHOLE
    """Of the gated tests that the collected files hold."""
    share: float = 1.0
    """The required share of the samples of each dataset, in [0, 1]."""
    samples: int = 0
    """The required samples of each dataset, if it has that many."""
    suites: tuple[str, ...] = ()
    """Test files that must run, by name: ``corruptions`` is ``test_corruptions.py``."""
    rules: Extent = Extent.WHOLE
    """Of the blocking rules on metrics that the run measures: all of them have to meet a test."""
    blind_models: BlindModels = BlindModels.REFUSE
    """Whether a model may be GO that is not shown to answer better with images than without, if that was measured."""
    sources: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def counts_samples(self) -> bool:
        """Whether a number or share of samples is required."""
        return self.share > 0.0 or self.samples > 0

    def conditions(
        self, *, planned: int, selected: int, narrowed: str, samples: Mapping[str, tuple[int, int]], suites: Collection[str]
    ) -> list[Condition]:
        """Returns what was not measured, allowed or not.

        ``planned`` counts the gated tests in the collected files, ``selected`` those to run. ``narrowed`` is an option that may
        leave out uncounted tests, such as ``--lf``. ``samples`` gives, by dataset, how many were asked and how many
        exist; complete datasets may be missing.
        """
        return [
            *self._of_tests(planned, selected, narrowed),
            *self._of_samples(samples),
            *(self._of_suite(name, suites) for name in self.suites if name not in suites),
        ]

    def condition(self, key: str, value: str, fact: str, requires: str, advice: str, *, allowed: bool) -> Condition:
        """Returns a condition for a key of this coverage.

        ``fact`` is what the run did not do, ``requires`` what GO requires if that is not allowed, and ``advice`` what to do
        then.
        """
        shortfall = f"{fact}, and {requires} ({self.cite(key, value)}): {advice}"
        return Condition(shortfall, Allowance(fact, self.allowed_by(key, value)), allowed)

    def _of_tests(self, planned: int, selected: int, narrowed: str) -> list[Condition]:
        if not (selected < planned or narrowed):
            return []
        left_out = f"{planned - selected} of {quantity(planned, 'test')} were not selected" if selected < planned else ""
        unknown = f"{narrowed} may leave out files" if narrowed else ""
        fact = " and ".join(filter(None, (left_out, unknown)))
        advice = "run without -k, -m, --lf, --vlm-rerun and test ids, or allow it with coverage: {tests: partial}"
        return [self.condition("tests", self.tests, fact, "GO requires all", advice, allowed=self.tests is Extent.PARTIAL)]

    def _of_samples(self, samples: Mapping[str, tuple[int, int]]) -> list[Condition]:
        needed = {name: self._samples_needed(total) for name, (_, total) in samples.items()}
        return [
            self.condition(
                "samples",
                self.samples_in_words,
                f"{n_asked} of {quantity(total, 'sample')} of {name} were asked",
                f"GO requires {needed[name]}",
                f"run with a larger --vlm-sample or without it, or allow it with coverage: {{samples: {n_asked}}}",
                allowed=n_asked >= needed[name],
            )
            for name, (n_asked, total) in samples.items()
            if n_asked < total
        ]

    @property
    def samples_in_words(self) -> str:
        """The requirement for samples, as written in a thresholds file."""
        share = {1.0: str(Extent.WHOLE), 0.0: str(Extent.PARTIAL)}.get(self.share) or f"{plain_decimal(100 * self.share)}%"
        return str(self.samples) if self.samples else share

    def _samples_needed(self, total: int) -> int:
        # 20 % of 12 samples are 2: the sampler rounds down, and that is enough
        return max(min(self.samples, total), int(self.share * total + ROUNDING))

    def _of_suite(self, name: str, suites: Collection[str]) -> Condition:
        fact = f"no gated test of test_{name}.py ran (ran: {', '.join(sorted(suites)) or 'none'})"
        advice = f"collect it too, or take {name!r} off coverage: {{suites: [...]}}"
        return self.condition("suites", name, fact, "GO requires it", advice, allowed=False)

    def uncollected(self, suites: Collection[str]) -> list[str]:
        """Returns a sentence for each suite that must run and was not collected: the run cannot be GO."""
        return [
            f"no gated test of test_{name}.py was collected, so this run is not GO ({self.cite('suites', name)})."
            f"{did_you_mean(name, suites) or ' Collect it too'}"
            for name in self.suites
            if name not in suites
        ]

    def allowed_by(self, key: str, value: str) -> str:
        """Returns the location and value of a requirement, as reports cite an allowance."""
        return f"{self.sources.get(key, BUILT_IN)}, coverage {key}: {value}"

    def cite(self, key: str, value: str) -> str:
        """Returns a requirement and its location for messages."""
        return f"coverage {key}: {value}, {self.sources.get(key, BUILT_IN)}"


def suites_of(nodeids: Iterable[str]) -> set[str]:
    """Returns the names of test files by node ids of their tests: ``corruptions`` for ``suites/test_corruptions.py``."""
    return {PurePosixPath(nodeid.partition("::")[0]).stem.removeprefix("test_") for nodeid in nodeids if nodeid}
