"""Policy: the rules, waivers, budgets and required coverage of one run, and the judging of an estimate by them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from typing import Any

from pytest_vlmrobust.core.decision import WARNING, WORST_FIRST, Outcome, Verdict
from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.core.fingerprint import fingerprint
from pytest_vlmrobust.core.record import Measure

from .budgets import Budgets, Coverage
from .judge import judge_rule, outcome_of
from .replacement import Replacement
from .rules import Bound, JudgedTest, Rule, Scope, Waiver


@dataclass(frozen=True, slots=True)
class PolicyFile:
    """A thresholds file as it was read: its name as shown in messages, and the SHA-256 of its bytes."""

    name: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Policy:
    """What is acceptable. Without any rule everything is measured and nothing is gated."""

    rules: tuple[Rule, ...] = ()
    waivers: tuple[Waiver, ...] = ()
    budgets: Budgets = field(default_factory=Budgets)
    files: tuple[PolicyFile, ...] = ()
    shared_by: Mapping[str, int] = field(default_factory=dict)
    """Rule id to how many tests of the run it bounds; one where nothing is said."""
    coverage: Coverage = field(default_factory=Coverage)
    contents: tuple[bytes, ...] = field(default=(), repr=False, compare=False)
    """The bytes of each of ``files``."""
    replaced: tuple[Replacement, ...] = field(default=(), compare=False)
    """What later files put in the place of earlier ones: rules and waivers as they were read, then budgets and coverage."""

    def planned(self, tests: Iterable[JudgedTest]) -> Policy:
        """Returns the policy as it holds for a run of these tests, which share the risk of its rules.

        Only tests of this policy's model belong here: each model has a decision of its own to err about. A test that is planned
        twice, by two suites, is one: it measures and concludes the same.
        """
        known = set(tests)
        shared = {rule.id: sum(rule.bounds(test) for test in known) for rule in self.rules}
        return replace(self, shared_by=shared)

    @property
    def sha256(self) -> str:
        """The SHA-256 of what the policy means: everything that can change a verdict, and who answers for a waiver.

        Comments, reasons, line numbers, file names, the order of rules and the spelling of numbers do not change it; a loosened
        bound does. The bytes of each file are in :attr:`files`.
        """
        return fingerprint(
            {
                "budgets": {"max_error_rate": self.budgets.max_error_rate, "max_unparsed_rate": self.budgets.max_unparsed_rate},
                "coverage": _coverage_content(self.coverage),
                "rules": [_rule_content(rule) for rule in sorted(self.rules, key=lambda rule: rule.id)],
                "waivers": [_waiver_content(waiver) for waiver in sorted(self.waivers, key=lambda waiver: waiver.id)],
            }
        )

    def judge(self, test: JudgedTest, estimate: Estimate, *, today: date) -> tuple[Verdict, ...]:
        """Returns one verdict for each rule that applies, the worst first; never empty.

        Every rule that applies has a say and the worst verdict holds, so no rule can loosen another. When none applies, the
        single verdict is MEASURED with an empty ``rule``. Rules of tier ``warn`` give MEASURED whatever they find.
        """
        waivers = [waiver for waiver in self.waivers if waiver.applies(test)]
        verdicts = [
            judge_rule(rule, estimate, waivers, today, self._sharing(rule, test), category=test.category)
            for rule in self.rules
            if rule.applies(test)
        ]
        if not verdicts:
            said = f"; {estimate.reason}" if estimate.reason else ""
            return (Verdict(Outcome.MEASURED, f"no rule applies to {test.metric} here{said}", test.metric),)
        return tuple(sorted(verdicts, key=_rank))

    def outcome(self, rule: Rule, test: JudgedTest, estimate: Estimate, *, today: date) -> Outcome:
        """Returns what one rule that applies to a test concludes, as :meth:`judge` does, and no sentence about it."""
        waivers = [waiver for waiver in self.waivers if waiver.applies(test)]
        return outcome_of(rule, estimate, waivers, today, self._sharing(rule, test))

    def _sharing(self, rule: Rule, test: JudgedTest) -> int:
        """Returns how many tests of the run share the risk of a rule, strata counted."""
        return max(1, self.shared_by.get(rule.id, 1)) * test.strata

    def measure(self, test: JudgedTest, estimate: Estimate, *, today: date) -> Measure:
        """Returns the estimate with its worst verdict as one line of a record; warnings of other rules join its reason."""
        worst, *others = self.judge(test, estimate, today=today)
        said = [worst.reason, *(verdict.reason for verdict in others if verdict.reason.startswith(WARNING))]
        return Measure(
            metric=test.metric,
            value=estimate.value,
            low=estimate.low,
            high=estimate.high,
            n=estimate.n,
            threshold=worst.threshold,
            outcome=worst.outcome,
            reason="; ".join(said),
            rule=worst.rule,
            source=worst.source,
            waiver=worst.waiver,
            target=worst.target,
            samples_needed=worst.samples_needed,
            samples_needed_least=worst.samples_needed_least,
        )


def _rank(verdict: Verdict) -> tuple[int, bool]:
    return WORST_FIRST.index(verdict.outcome), not verdict.reason.startswith(WARNING)


def _coverage_content(coverage: Coverage) -> dict[str, Any]:
    return {
        "tests": coverage.tests,
        "share": coverage.share,
        "samples": coverage.samples,
        "suites": sorted(coverage.suites),
        "rules": coverage.rules,
    }


def _rule_content(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.id,
        "metric": rule.metric,
        "bound": _bound_content(rule.bound),
        "where": _scope_content(rule.where),
        "unless": None if rule.unless is None else _scope_content(rule.unless),
        "treatment": asdict(rule.treatment),
    }


def _waiver_content(waiver: Waiver) -> dict[str, Any]:
    return {
        "id": waiver.id,
        "metric": waiver.metric,
        "where": _scope_content(waiver.where),
        "cap": waiver.cap,
        "expires": waiver.expires.isoformat(),
        "owner": waiver.owner,
        "ticket": waiver.ticket,
    }


def _bound_content(bound: Bound) -> list[float | None]:
    return [end if math.isfinite(end) else None for end in (bound.low, bound.high)]


def _scope_content(scope: Scope) -> dict[str, list[str]]:
    return {name: sorted(globs) for name, globs in asdict(scope).items() if globs}


# Content: a policy as a manifest holds it: its files, its rules and waivers, and what later ones replace.


def policy_content(policy: Policy) -> dict[str, object]:
    """Returns the files, rules and waivers of a policy with their reasons, and what later files change of earlier ones."""
    replaced = [str(one) for one in policy.replaced if not one.only_tightens]
    return {
        **({"replaced": replaced} if replaced else {}),
        "sha256": policy.sha256,
        "files": [dataclasses.asdict(file) for file in policy.files],
        "rules": [_rule(rule) for rule in policy.rules],
        "waivers": [_waiver(waiver) for waiver in policy.waivers],
    }


def _rule(rule: Rule) -> dict[str, object]:
    said = {"id": rule.id, "metric": rule.metric, "bound": str(rule.bound), "source": rule.source}
    unless = _scope(rule.unless) if rule.unless else {}
    return {**said, "where": _scope(rule.where), "unless": unless, "reason": rule.reason, "evidence": rule.evidence}


def _waiver(waiver: Waiver) -> dict[str, object]:
    said = {"id": waiver.id, "owner": waiver.owner, "reason": waiver.reason, "ticket": waiver.ticket, "metric": waiver.metric}
    more = {"where": _scope(waiver.where), "cap": waiver.cap, "expires": waiver.expires.isoformat(), "source": waiver.source}
    return {**said, **more}


def _scope(scope: Scope) -> Mapping[str, Any]:
    return {name: list(globs) for name, globs in dataclasses.asdict(scope).items() if globs}
