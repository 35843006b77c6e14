"""Policy: the rules, waivers, budgets and coverage of a run, and the replacements by later thresholds files."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import date
from functools import cached_property
from typing import Any

from pytest_vlmrobust.core.cell import NO_IMAGE_NAME
from pytest_vlmrobust.core.decision import NOT_SHOWN, WARNING, WORST_FIRST, Outcome, Verdict
from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.core.fingerprint import fingerprint
from pytest_vlmrobust.core.record import Measure
from pytest_vlmrobust.core.sample import kind_of_stratum

from .budgets import BUDGET_KEYS, BUILT_IN, COVERAGE_KEYS, BlindModels, Budgets, Coverage, Extent
from .judge import judge_rule, outcome_of, undecided
from .rules import ALPHA, JudgedBy, MetricKey, Mode, Purpose, Rule, Scope, Tier, Waiver

BUDGET_CELLS, BUDGET_DATASETS = "budgets of cells", "budgets of datasets"
"""How many cells, and how many datasets, of a run share the risk of a budget: keys of ``Policy.shared_by``."""


@dataclass(frozen=True, slots=True)
class PolicyFile:
    """A thresholds file: its name in messages, and the SHA-256 of its bytes."""

    name: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Replacement:
    """A replacement by a later file: of a rule or waiver with the same id, or a key of budgets or coverage."""

    before: str
    """The replaced item in messages: ``rule drop of a.yaml:7``, ``budget max_error_rate (built-in default)``."""
    source: str
    """``file:line`` of the replacement."""
    changes: tuple[str, ...]
    """The changes that can alter a verdict, a sentence each; empty if both mean the same."""
    only_tightens: bool
    """Whether only a bound changes, and the new bound is within the old one."""

    @classmethod
    def of_rule(cls, before: Rule, after: Rule) -> Replacement:
        """Returns the changes by a later rule."""
        bound, others = tuple(_bound_changes(before, after)), tuple(_other_changes(before, after))
        tightens = before.metric == after.metric and before.bound.holds(after.bound) and not others
        return cls(f"rule {before.id} of {before.source}", after.source, bound + others, tightens)

    @classmethod
    def of_waiver(cls, before: Waiver, after: Waiver) -> Replacement:
        """Returns the changes by a later waiver."""
        changes = tuple(_waiver_changes(before, after))
        return cls(f"waiver {before.id} of {before.source}", after.source, changes, not changes)

    @classmethod
    def of_budgets(cls, before: Budgets, after: Budgets) -> list[Replacement]:
        """Returns the changes to the budgets by a later file."""
        replacements = []
        for key in _keys_said_again(before.sources, after.sources):
            old, new = getattr(before, key), getattr(after, key)
            change = _becomes(_percent(old), _percent(new), tighter=new <= old, looser=new >= old)
            metric = key.removeprefix("max_")
            risks = tuple(_other_changes(before.rule(metric), after.rule(metric)))
            name, tightens = f"budget {key} {_origin(before.sources, key)}", new <= old and not risks
            replacements.append(cls(name, after.sources[key], change + risks, tightens))
        return replacements

    @classmethod
    def of_coverage(cls, before: Coverage, after: Coverage) -> list[Replacement]:
        """Returns the changes to the coverage by a later file."""
        replacements = []
        for key in _keys_said_again(before.sources, after.sources):
            tighter, looser = _asks_as_much(after, before, key), _asks_as_much(before, after, key)
            change = _becomes(_coverage_in_words(before, key), _coverage_in_words(after, key), tighter=tighter, looser=looser)
            replacements.append(cls(f"coverage {key} {_origin(before.sources, key)}", after.sources[key], change, tighter))
        return replacements

    def __str__(self) -> str:
        return f"{self.before} is replaced by {self.source}: {'; '.join(self.changes) or 'nothing changes'}"


@dataclass(frozen=True)
class Policy:
    """What is acceptable. Without rules everything is measured and nothing is gated."""

    rules: tuple[Rule, ...] = ()
    waivers: tuple[Waiver, ...] = ()
    budgets: Budgets = field(default_factory=Budgets)
    files: tuple[PolicyFile, ...] = ()
    shared_by: Mapping[str, int] = field(default_factory=dict)
    """By rule id: the number of tests of the run that share it; 1 for other rules. Also ``BUDGET_CELLS``
    and ``BUDGET_DATASETS``, which cannot be rule ids."""
    coverage: Coverage = field(default_factory=Coverage)
    contents: tuple[bytes, ...] = field(default=(), repr=False, compare=False)
    """The bytes of each of ``files``."""
    mode: Mode = Mode.FULL
    """How much a run asks; a command line may say otherwise."""
    purpose: Purpose = Purpose.RELEASE
    """The purpose of a GO: only one for a release supports a release, and reports say so."""
    replaced: tuple[Replacement, ...] = field(default=(), compare=False)
    """Replacements by later files: rules and waivers in reading order, then budgets and coverage."""

    def for_tests(self, tests: Iterable[MetricKey]) -> Policy:
        """Returns the policy as it holds for a run of these tests, which share the risk of its rules.

        Pass only tests of this policy's model: each model has its own decision, and so its own risk of error. A test that two
        suites plan counts once: both measure the same.
        """
        known = set(tests)
        shared = {rule.id: sum(rule.bounds(test) for test in known) for rule in self.rules}
        shared[BUDGET_CELLS] = len({(test.dataset, test.setting) for test in known if test.setting not in ("", NO_IMAGE_NAME)})
        shared[BUDGET_DATASETS] = len({test.dataset for test in known})
        return replace(self, shared_by=shared)

    def as_of(self, latest: date) -> Policy:
        """Returns the policy for a run with files from this date, even if its clock is behind."""
        return replace(self, waivers=tuple(replace(w, latest=latest if w.is_expired(latest) else None) for w in self.waivers))

    @property
    def judges_values(self) -> bool:
        """Whether every blocking rule judges the value, so that only the given samples matter."""
        return all(rule.treatment.judge is JudgedBy.POINT for rule in self.rules if rule.treatment.tier is Tier.BLOCK)

    @property
    def risk(self) -> float | None:
        """The largest declared risk of a wrong PASS of a blocking rule; ``None`` if one of them judges the value."""
        blocking = [rule.treatment for rule in self.rules if rule.treatment.tier is Tier.BLOCK]
        if not blocking or any(treatment.judge is JudgedBy.POINT for treatment in blocking):
            return None
        return max(treatment.alpha_pass for treatment in blocking)

    @cached_property
    def sha256(self) -> str:
        """The SHA-256 of the policy's meaning: everything that can change a verdict, and the owners of waivers.

        Comments, reasons, line numbers, file names, the order of rules and the spelling of numbers do not change it; a loosened
        bound does. The bytes of each file are in :attr:`files`.
        """
        return fingerprint(
            {
                "budgets": {name: _budget_content(self.budgets, name) for name in BUDGET_KEYS},
                "coverage": _coverage_content(self.coverage),
                **({} if self.mode is Mode.FULL else {"mode": self.mode}),
                **({} if self.purpose is Purpose.RELEASE else {"purpose": self.purpose}),
                "rules": [_rule_content(rule) for rule in sorted(self.rules, key=lambda rule: rule.id)],
                "waivers": [_waiver_content(waiver) for waiver in sorted(self.waivers, key=lambda waiver: waiver.id)],
            }
        )

    def judge(
        self, test: MetricKey, estimate: Estimate, *, today: date, decided: Mapping[str, Verdict] | None = None
    ) -> tuple[Verdict, ...]:
        """Returns one verdict for each rule that applies, the worst first; never empty.

        ``decided`` gives the verdicts of a test that stopped early, by rule: the estimate is then not judged, and a rule
        without a verdict is undecided.

        Every rule that applies is judged and the worst verdict counts, so no rule can loosen another. Without a rule, the
        only verdict is MEASURED with an empty ``rule``. Rules of tier ``warn`` always give MEASURED.
        """
        waivers = [waiver for waiver in self.waivers if waiver.applies(test)]
        verdicts = [
            judge_rule(rule, estimate, waivers, today, self.sharing(rule, test), category=test.category)
            if decided is None
            else decided.get(rule.id) or undecided(rule)
            for rule in self.rules
            if rule.applies(test)
        ]
        if not verdicts:
            because = f"; {estimate.reason}" if estimate.reason else ""
            return (Verdict(Outcome.MEASURED, f"no rule applies to {test.metric} here{because}", test.metric),)
        return tuple(sorted(verdicts, key=_rank))

    def outcome(self, rule: Rule, test: MetricKey, estimate: Estimate, *, today: date) -> Outcome:
        """Returns the outcome of :meth:`judge` for a rule that applies to the test, without its sentence."""
        waivers = [waiver for waiver in self.waivers if waiver.applies(test)]
        return outcome_of(rule, estimate, waivers, today, self.sharing(rule, test))

    def sharing(self, rule: Rule, test: MetricKey) -> int:
        """Returns how many tests of the run share the risk of a rule, strata counted; columns have equal parts of it."""
        columns = {kind_of_stratum(glob) for glob in rule.where.category}
        return max(1, self.shared_by.get(rule.id, 1)) * test.strata * max(1, len(columns))

    def sharing_budget(self, of: str) -> int:
        """Returns how many tests share the risk of a budget: half is for its cells, half for its datasets.

        ``of`` is ``BUDGET_CELLS`` or ``BUDGET_DATASETS``.
        """
        return 2 * max(1, self.shared_by.get(of, 1))

    def measure(
        self, test: MetricKey, estimate: Estimate, *, today: date, decided: Mapping[str, Verdict] | None = None
    ) -> Measure:
        """Returns the estimate with its worst verdict as one line of a record.

        Its reason includes warnings of other rules, and rules that are not shown to hold.
        """
        verdicts = self.judge(test, estimate, today=today, decided=decided)
        worst, *others = verdicts
        reasons = [worst.reason, *(verdict.reason for verdict in others if verdict.reason.startswith(_SPEAKS_UP))]
        return Measure.judged(
            worst,
            estimate.value,
            metric=test.metric,
            low=estimate.low,
            high=estimate.high,
            n=estimate.n,
            reason="; ".join(reasons),
            groups=estimate.groups,
            not_shown=tuple(verdict.not_shown for verdict in verdicts if verdict.not_shown),
        )


_SPEAKS_UP = (WARNING, NOT_SHOWN)


def _rank(verdict: Verdict) -> tuple[int, bool]:
    return WORST_FIRST.index(verdict.outcome), not verdict.reason.startswith(_SPEAKS_UP)


def _coverage_content(coverage: Coverage) -> dict[str, Any]:
    return {
        "tests": coverage.tests,
        "share": coverage.share,
        "samples": coverage.samples,
        "suites": sorted(coverage.suites),
        "rules": coverage.rules,
        **({} if coverage.blind_models is BlindModels.REFUSE else {"blind_models": coverage.blind_models}),
    }


def _budget_content(budgets: Budgets, name: str) -> float | list[float | bool]:
    """Returns the content of a budget; only the share if no file sets it."""
    treatment = budgets.rule(name.removeprefix("max_")).treatment
    share: float = getattr(budgets, name)
    if name not in budgets.sources and treatment.alpha_pass == treatment.alpha_fail == ALPHA:
        return share
    return [share, name in budgets.sources, treatment.alpha_pass, treatment.alpha_fail]


def _rule_content(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.id,
        "metric": rule.metric,
        "bound": [end if math.isfinite(end) else None for end in (rule.bound.low, rule.bound.high)],
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


def _scope_content(scope: Scope) -> dict[str, list[str]]:
    return {name: sorted(globs) for name, globs in asdict(scope).items() if globs}


# Replacements in words.


def _bound_changes(before: Rule, after: Rule) -> Iterator[str]:
    if before.metric != after.metric:
        yield f"{before.metric} {before.bound.condition} becomes {after.metric} {after.bound.condition} (another metric)"
    elif before.bound != after.bound:
        how = "tighter" if before.bound.holds(after.bound) else "looser" if after.bound.holds(before.bound) else "another range"
        yield f"{before.metric} {before.bound.condition} becomes {after.bound.condition} ({how})"


def _other_changes(before: Rule, after: Rule) -> Iterator[str]:
    yield from _change("where", _describe_scope(before.where), _describe_scope(after.where))
    yield from _change("unless", _describe_scope(before.unless), _describe_scope(after.unless))
    for part in fields(before.treatment):
        yield from _change(part.name, getattr(before.treatment, part.name), getattr(after.treatment, part.name))


def _waiver_changes(before: Waiver, after: Waiver) -> Iterator[str]:
    yield from _change("metric", before.metric, after.metric)
    yield from _change("where", _describe_scope(before.where), _describe_scope(after.where))
    yield from _change("cap", before.written_cap, after.written_cap)
    yield from _change("expires", before.expires.isoformat(), after.expires.isoformat())


def _change(name: str, before: object, after: object) -> Iterator[str]:
    if before != after:
        yield f"{name}: {before} becomes {after}"


def _describe_scope(scope: Scope | None) -> str:
    """Returns a scope as in a thresholds file; ``nothing`` without a scope, ``everything`` for an empty one."""
    if scope is None:
        return "nothing"
    parts = [f"{part.name}: [{', '.join(globs)}]" for part in fields(scope) if (globs := getattr(scope, part.name))]
    return f"{{{', '.join(parts)}}}" if parts else "everything"


def _keys_said_again(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Returns the keys that the later file sets again; both arguments map keys to locations."""
    return [key for key, source in after.items() if before.get(key) != source]


def _origin(sources: Mapping[str, str], key: str) -> str:
    return f"of {sources[key]}" if key in sources else f"({BUILT_IN})"


def _becomes(before: str, after: str, *, tighter: bool, looser: bool) -> tuple[str, ...]:
    if before == after:
        return ()
    how = "tighter" if tighter else "looser" if looser else "neither tighter nor looser"
    return (f"{before} becomes {after} ({how})",)


def _percent(share: float) -> str:
    return f"{100 * share:g}%"


def _coverage_in_words(coverage: Coverage, key: str) -> str:
    """Returns a key of a coverage as a thresholds file spells it."""
    if key == "suites":
        return f"[{', '.join(coverage.suites)}]"
    if key == "samples":
        return coverage.samples_in_words
    return str(getattr(coverage, key))


def _asks_as_much(coverage: Coverage, other: Coverage, key: str) -> bool:
    """Whether every run that meets ``coverage`` also meets ``other``."""
    if key == "suites":
        return set(coverage.suites) >= set(other.suites)
    if key == "samples":
        return coverage.share >= 1.0 or (coverage.share >= other.share and coverage.samples >= other.samples)
    return getattr(coverage, key) in {Extent.WHOLE, BlindModels.REFUSE, getattr(other, key)}


# The policy in a manifest: files, rules, waivers, and replacements.


def policy_content(policy: Policy) -> dict[str, object]:
    """Returns the files, rules and waivers of a policy with their reasons, and the replacements by later files."""
    replaced = [str(replacement) for replacement in policy.replaced if not replacement.only_tightens]
    return {
        **({"replaced": replaced} if replaced else {}),
        **({} if policy.purpose is Purpose.RELEASE else {"purpose": str(policy.purpose)}),
        "sha256": policy.sha256,
        "files": [asdict(file) for file in policy.files],
        "coverage": {key: _coverage_in_words(policy.coverage, key) for key in COVERAGE_KEYS},
        "budgets": {key: _percent(getattr(policy.budgets, key)) for key in BUDGET_KEYS},
        "rules": [_rule(rule) for rule in policy.rules],
        "waivers": [_waiver(waiver) for waiver in policy.waivers],
    }


def _rule(rule: Rule) -> dict[str, object]:
    content = {"id": rule.id, "metric": rule.metric, "bound": rule.bound.condition, "source": rule.source}
    unless = _scope(rule.unless) if rule.unless else {}
    return {**content, "where": _scope(rule.where), "unless": unless, "reason": rule.reason, "evidence": rule.evidence}


def _waiver(waiver: Waiver) -> dict[str, object]:
    content = {"id": waiver.id, "owner": waiver.owner, "reason": waiver.reason, "ticket": waiver.ticket, "metric": waiver.metric}
    more = {
        "where": _scope(waiver.where),
        "cap": waiver.written_cap,
        "expires": waiver.expires.isoformat(),
        "source": waiver.source,
    }
    return {**content, **more}


def _scope(scope: Scope) -> Mapping[str, Any]:
    return {name: list(globs) for name, globs in asdict(scope).items() if globs}
