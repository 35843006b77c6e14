"""Requirements: what policies ask of a whole run, what the run lacks, and warnings about the policies.

Pure functions from the facts, policies and records of a run to sentences. ``core.decision`` turns verdicts and sentences into GO.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import date
from enum import StrEnum
from functools import cached_property

from pytest_vlmrobust.backends.generation import TEXT_INSTEAD
from pytest_vlmrobust.core.cell import CLEAN_NAME, NO_IMAGE_NAME
from pytest_vlmrobust.core.decision import Allowance, Outcome
from pytest_vlmrobust.core.errors import did_you_mean
from pytest_vlmrobust.core.prediction import ModelRef
from pytest_vlmrobust.core.record import Measure, Record
from pytest_vlmrobust.core.sample import is_slice, kind_of_stratum
from pytest_vlmrobust.core.words import first_few, percent, points, quantity
from pytest_vlmrobust.evaluation.run.plan import families
from pytest_vlmrobust.evaluation.run.results import FEW_LETTERS, MANY
from pytest_vlmrobust.policies import (
    NO_LEVEL,
    BlindModels,
    Condition,
    Coverage,
    Extent,
    MetricKey,
    Policy,
    Rule,
    Scope,
    Tier,
    Waiver,
    intended_name,
    misspellings,
    suites_of,
)
from pytest_vlmrobust.store.spending import budget_lines

from .baseline import ON_COMMON
from .canaries import GAIN, shows_change, why_not_changed
from .loopholes import warnings as loophole_warnings
from .scopes import is_about_originals, is_relative, is_summary, shows_looking

_WAYS_OUT = "add a rule on visual_gain, ask more samples, or allow it with coverage: {blind_models: allow}"
_ALLOW = "look whether images reach it, or allow it with coverage: {blind_models: allow}"
_SERVED = "openai"
"""The backend of models that others serve."""
_SUMMARIES = {"summary metrics": is_summary, "visual_gain": shows_looking}
"""Summaries that GO requires: if rules bound them, at least one such rule must have applied."""
_MOST = 6
"""Names in a sentence."""


def asks_for_all_samples(policies: Iterable[Policy]) -> bool:
    """Whether a policy requires all samples of a dataset, as for a release, unlike a smoke test."""
    return any(policy.coverage.share >= 1.0 for policy in policies)


# What the tests of a run made of one policy.


class WaiverState(StrEnum):
    """The state of a waiver in a run."""

    USED = "used"
    EXPIRED = "expired"
    UNNEEDED = "unneeded"
    """It covers tests of this run, but none needed it."""
    EXCEEDED = "exceeded"
    """It covers tests that are not shown to keep its cap, and no other test needed it."""
    UNMATCHED = "unmatched"
    """It covers no test of this run."""


class Missed(StrEnum):
    """The nearest match of a waiver that applied to no test; its value may be misspelt."""

    CATEGORY = "category"
    """There were tests of its metric, models, data and settings, but not of its categories."""
    SETTING = "setting, family or level"
    """There were tests of its metric, models and data, but not of its settings."""
    ALL = "scope"
    """Its metric was not measured for its models on its data."""


_ADVICE = {
    WaiverState.USED: "waived {used} of {tests} it covers",
    WaiverState.EXPIRED: "expired on {waiver.expires}: renew or remove it",
    WaiverState.EXCEEDED: (
        "has a cap of {waiver.written_cap}, and {exceeded} of {tests} it covers may be beyond it: fix what it covers, use more "
        "questions, or have its owner change the cap"
    ),
    WaiverState.UNNEEDED: "covers {tests}, but was not needed: remove it, or lower its cap",
    WaiverState.UNMATCHED: "covers no test of this run: look for a misspelt {missed}",
}


@dataclass(frozen=True)
class WaiverUse:
    """The use of a waiver in a run; ``matched``, ``used`` and ``exceeded`` count tests."""

    waiver: Waiver
    state: WaiverState
    matched: int
    used: int
    exceeded: int = 0
    missed: Missed | None = None
    """The nearest match of an unmatched waiver."""

    def __str__(self) -> str:
        waiver, advice = self.waiver, _ADVICE[self.state].format(**vars(self), tests=quantity(self.matched, "test"))
        return f"{waiver.source}: waiver {waiver.id} of {waiver.owner} {advice}"


@dataclass(frozen=True, slots=True)
class UnmetRule:
    """A blocking rule that applied to no test of a run that measures its metric, or that left its tests out as idle."""

    rule: Rule
    shortfall: str
    """Why the run is not GO where the policy does not allow it, and what to do."""
    allowed: bool
    idle: bool = False
    """Whether its tests were left out because their settings change no question."""


def unbounded_models(
    policy: Policy, met: Mapping[Rule, Collection[MetricKey]], measured: Collection[MetricKey]
) -> list[UnmetRule]:
    """Returns a blocking rule for each model that it leaves out, where no other blocking rule bounds its metric; one a model.

    A rule may be about a single model, but the others are then not judged as they would be alone. One that an ``unless``
    names is left out on purpose.
    """
    unmet: dict[str, UnmetRule] = {}
    judged = {test.model for tests in met.values() for test in tests}  # another shortfall is about the others
    blocking = {rule: tests for rule, tests in met.items() if tests and rule.treatment.tier is Tier.BLOCK}
    for rule, tests in blocking.items():
        bounded = {test.model for other, alike in blocking.items() if other.metric == rule.metric for test in alike}
        anywhere = replace(rule, where=replace(rule.where, model=()))
        for model in sorted({test.model for test in measured if anywhere.applies(test)} & judged - bounded):
            unmet.setdefault(model, _unbounded(policy.coverage, rule, sorted({test.model for test in tests}), model))
    return list(unmet.values())


def unbounded_models_of_plan(policies: Mapping[str, Policy], planned: Mapping[str, Sequence[MetricKey]]) -> list[str]:
    """Returns a sentence for each model that rules leave out, from the quantities of each model that a run will measure."""
    sentences = []
    for policy in {policy.sha256: policy for policy in policies.values()}.values():
        sharing = [name for name, other in policies.items() if other.sha256 == policy.sha256]  # families have no policy
        tests = [test for name in sharing for test in planned.get(name, ())]
        unmet = unbounded_models(policy, _met(policy.rules, tests), tests)
        sentences += [lack.shortfall for lack in unmet if not lack.allowed]
    return sentences


def _unbounded(coverage: Coverage, rule: Rule, models: Sequence[str], model: str) -> UnmetRule:
    shortfall = (
        f"rule {rule.id} ({rule.source}) applies to {_name_list(models)} alone, and no blocking rule bounds {rule.metric} of "
        f"{model}. GO requires that one does ({coverage.cite('rules', str(coverage.rules))}): add it, run without {model}, or "
        "allow this with coverage: {rules: partial}"
    )
    return UnmetRule(rule, shortfall, allowed=coverage.rules is Extent.PARTIAL)


def _met(rules: Iterable[Rule], tests: Iterable[MetricKey]) -> dict[Rule, set[MetricKey]]:
    """Returns the tests that each rule applies to."""
    by_metric: dict[str, set[MetricKey]] = {}
    for test in tests:
        by_metric.setdefault(test.metric, set()).add(test)
    return {rule: {test for test in by_metric.get(rule.metric, ()) if rule.applies(test)} for rule in rules}


@dataclass(frozen=True)
class PolicyUse:
    """How the rules and the waivers of a policy met the tests that it judged."""

    policy: Policy
    records: Sequence[Record]
    today: date
    idle: Sequence[MetricKey] = ()
    """The metrics of tests that were left out because their settings change no question."""

    @cached_property
    def measured(self) -> list[tuple[Measure, MetricKey]]:
        """Each measure with the test that rules and waivers are matched with.

        Gaps of further groupings of people in the Observatory's sweeps are left out, because they are never judged.
        """
        return [
            (measure, MetricKey(r.model, r.dataset, measure.metric, r.setting or r.split, r.family, r.level, measure.category))
            for r in self.records
            for measure in r.measures
            if not (r.test == "sweep" and r.task and measure.category)
        ]

    @cached_property
    def met(self) -> dict[Rule, set[MetricKey]]:
        """The tests that each rule applied to; with none in a whole run, its scope is probably misspelt."""
        return _met(self.policy.rules, (test for _, test in self.measured))

    @property
    def blocking(self) -> dict[Rule, set[MetricKey]]:
        """The tests that each blocking rule applied to."""
        return {rule: tests for rule, tests in self.met.items() if rule.treatment.tier is Tier.BLOCK}

    @property
    def ungated_data(self) -> list[str]:
        """The datasets that were measured and that no blocking rule is about; none where no dataset is gated at all."""
        gated = {test.dataset for tests in self.blocking.values() for test in tests}
        names = dict.fromkeys(test.dataset for _, test in self.measured)
        return [name for name in names if name not in gated] if gated else []

    @property
    def data_without_losses(self) -> list[str]:
        """The datasets with a blocking rule and with changed images, and no blocking rule about what these cost."""
        gated = {test.dataset for tests in self.blocking.values() for test in tests}
        about = {test.dataset for rule, tests in self.blocking.items() if not is_about_originals(rule) for test in tests}
        changed = {record.dataset for record in self.records if record.setting not in ("", CLEAN_NAME, NO_IMAGE_NAME)}
        return sorted(gated & changed - about)

    def idle_summaries(self, is_summary: Callable[[Rule], bool]) -> list[Rule]:
        """Returns the blocking rules on summary metrics if none of them met a test, else an empty list.

        Whatever else passed, nothing was then decided about all settings together.
        """
        summaries = {rule: tests for rule, tests in self.blocking.items() if is_summary(rule)}
        return [] if any(summaries.values()) else list(summaries)

    def unmet_rules(self, categories: Callable[[], Iterable[str]]) -> list[UnmetRule]:
        """Returns the blocking rules whose metric was measured only outside their scope, and rules whose tests were left out.

        ``categories`` is only called for a rule about one.
        """
        unmet = []
        for rule in (rule for rule, tests in self.blocking.items() if not tests):
            near = {test for _, test in self.measured if test.metric == rule.metric}
            if datasets := sorted({test.dataset for test in self.idle if rule.applies(test)}):
                unmet.append(self._unmet_as_idle(rule, datasets))
            elif near:
                unmet.append(self._unmet(rule, near, sorted({*categories()} - {""}) if rule.where.category else []))
        return unmet

    @property
    def unbounded_models(self) -> list[UnmetRule]:
        """What :func:`unbounded_models` returns of what was measured."""
        return unbounded_models(self.policy, self.met, [test for measure, test in self.measured if math.isfinite(measure.value)])

    def _unmet_as_idle(self, rule: Rule, datasets: Sequence[str]) -> UnmetRule:
        coverage = self.policy.coverage
        shortfall = (
            f"rule {rule.id} ({rule.source}) applied to no test: its settings change no question of {_name_list(datasets)}. GO "
            f"requires that every such rule applies to a test ({coverage.cite('rules', str(coverage.rules))}): use questions "
            "that they change, remove the rule, or allow this with coverage: {rules: partial}"
        )
        return UnmetRule(rule, shortfall, allowed=coverage.rules is Extent.PARTIAL, idle=True)

    def _unmet(self, rule: Rule, near: Iterable[MetricKey], categories: Sequence[str]) -> UnmetRule:
        where, coverage = rule.where, self.policy.coverage
        names = {part.name: sorted({getattr(test, part.name) for test in near} - {""}) for part in fields(where)}
        names["level"] = sorted({test.level or NO_LEVEL for test in near})
        names["category"] = [*categories]
        lacking = [
            _lacking(part, getattr(where, part), known)
            for part, known in names.items()
            if getattr(where, part) and not any(where.admits(part, name) for name in known)
        ]
        lacks = "; ".join(lacking) or _together(rule, near)
        problem = f"rule {rule.id} ({rule.source}) applied to no test, though this run measures {rule.metric}: {lacks}"
        problem += "" if problem.endswith("?") else "."
        # a policy may name models and datasets that a run leaves out: only a misspelt name is a mistake
        misspelt = bool(misspellings(where, {part: names[part] for part in ("model", "dataset")}))
        partial, slices = coverage.rules is Extent.PARTIAL, any(map(is_slice, where.category))
        cited = coverage.cite("rules", str(coverage.rules))
        if partial and slices:
            advice = f"A rule about a slice needs rows of it ({cited} is about other names): ask more samples, or correct it"
        elif partial:
            advice = f"A rule may name what a run leaves out ({cited}), but this name looks misspelt: correct it"
        else:
            advice = (
                f"GO requires that every such rule applies to a test ({cited}): correct it, measure what it asks for, "
                "or allow this with coverage: {rules: partial}"
            )
        return UnmetRule(rule, f"{problem} {advice}", allowed=partial and not misspelt and not slices)

    @cached_property
    def waivers(self) -> list[WaiverUse]:
        """How the tests used each waiver; a partial run leaves waivers unmatched that a whole run would use."""
        return [self._use(waiver) for waiver in self.policy.waivers]

    def _use(self, waiver: Waiver) -> WaiverUse:
        matched = [measure for measure, test in self.measured if waiver.applies(test)]
        used = sum(measure.outcome is Outcome.WAIVED and measure.waiver == waiver.id for measure in matched)
        not_waived = (Outcome.FAIL, Outcome.INCONCLUSIVE)
        exceeded = sum(measure.outcome in not_waived and math.isfinite(measure.value) for measure in matched)
        if waiver.is_expired(self.today):
            state = WaiverState.EXPIRED
        elif used or (exceeded and waiver.latest is not None):  # then the run says that its clock is behind
            state = WaiverState.USED
        elif exceeded:
            state = WaiverState.EXCEEDED
        else:
            state = WaiverState.UNNEEDED if matched else WaiverState.UNMATCHED
        return WaiverUse(waiver, state, len(matched), used, exceeded, None if matched else self._missed(waiver))

    def _missed(self, waiver: Waiver) -> Missed:
        near, where = [test for _, test in self.measured if test.metric == waiver.metric], waiver.where
        if any(replace(where, category=()).matches(test) for test in near):
            return Missed.CATEGORY
        elsewhere = Scope(model=where.model, dataset=where.dataset)
        return Missed.SETTING if any(elsewhere.matches(test) for test in near) else Missed.ALL


def _lacking(part: str, globs: Sequence[str], names: Sequence[str]) -> str:
    """Returns what a rule asks for in one part of its scope, and what the run has."""
    kind = kind_of_stratum(globs[0]) if part == "category" else ""
    if kind:
        names = [name.removeprefix(f"{kind}=") for name in names if kind_of_stratum(name) == kind]
        globs = [glob.removeprefix(f"{kind}=") for glob in globs]
    near = ""
    for glob in globs:
        name = intended_name(glob, names)
        if hint := f" Did you mean {name!r}?" if name else did_you_mean(glob, names):
            near = f".{hint}"
            break
    return f"it asks for {kind or part} {_name_list(map(repr, globs))}, and the run has {_name_list(names)}{near}"


def _together(rule: Rule, near: Iterable[MetricKey]) -> str:
    """Returns why no test is in a scope although each of its parts is met."""
    where = replace(rule.where, category=())
    if not any(where.matches(test) for test in near):
        return "no single test has everything that its scope asks for"
    if rule.where.category and not any(test.category for test in near):
        return f"{rule.metric} is measured on whole datasets, and it asks for a category"
    return "its unless leaves out every test that its where admits"


def _name_list(names: Iterable[str]) -> str:
    return first_few(names, _MOST) or "none"


# The whole run.


@dataclass(frozen=True)
class Requirements:
    """The requirements of policies for a whole run, with its facts and records."""

    policies: Mapping[str, Policy]
    """The policy of each model."""
    models: Mapping[str, ModelRef]
    records: Sequence[Record]
    planned: int
    """Number of gated tests in the collected files."""
    selected: int
    """Number of them that were selected."""
    narrowed: str
    """An option that may leave out an unknown number of tests, such as ``--lf``; empty if there is none."""
    today: date
    """The day on which waivers are checked for expiry."""
    has_baseline: bool
    """Whether an earlier run was named."""
    behind: str = ""
    """The sign that the machine's clock is behind."""
    without_pictures: Sequence[str] = ()
    """The datasets without image digests in the earlier run."""
    compared: Mapping[str, str] = field(default_factory=dict)
    """Each model to the model of the earlier run that it is compared with."""
    samples_asked: Callable[[], Mapping[str, tuple[int, int]]] = dict
    """Returns, for sampled datasets, the number of samples asked and the total."""
    categories: Callable[[], Iterable[str]] = tuple
    """Returns the categories of the samples of the run; only called for rules about categories."""
    idle: Sequence[MetricKey] = ()
    """See :class:`PolicyUse`."""

    @property
    def is_whole(self) -> bool:
        """Whether all gated tests of the collected files were selected."""
        return self.planned == self.selected and not self.narrowed

    @property
    def shortfalls(self) -> list[str]:
        """A sentence for each requirement of the policies that the run does not meet; with any, it is not GO."""
        sentences = []
        for name, policy in self.policies.items():
            sentences += [lack.shortfall for lack in self._coverage[name] if not lack.allowed]
            sentences += [f"{use}, and GO requires that every waiver can apply" for use in self._unmatched_waivers(name)[0]]
            sentences += [_without_baseline(rule) for rule in self._relative_rules(policy) if rule.blocks_where_not_applicable]
        sentences += [
            f"{ref.name} is on a server, where nobody can see which weights answer, and GO requires a declared revision: name "
            f"these weights and this server by openai:{ref.location}@REVISION, or by 'revision' in the models file"
            for ref in self.models.values()
            if ref.backend == _SERVED and not ref.revision
        ]
        sentences += [unmet.shortfall for unmet, _ in self._unmet if not unmet.allowed]
        sentences += self._idle_summaries
        sentences += [lack.shortfall for lack in self._not_shown_to_look if not lack.allowed]
        return list(dict.fromkeys(sentences))

    @property
    def allowances(self) -> list[Allowance]:
        """Shortfalls that the policies of the run allow; every report lists them."""
        lacks = [lack for lacks in self._coverage.values() for lack in lacks] + self._not_shown_to_look
        unmet: dict[tuple[str, bool], list[str]] = {}
        for each, line in self._unmet:
            if each.allowed:
                unmet.setdefault((line, each.idle), []).append(each.rule.id)
        words = "rule applied to no test", "rules applied to no test"
        why = {False: "though what they bound was measured", True: "as their settings change no question"}
        rules = [
            Allowance(f"{quantity(len(ids), *words)}, {why[idle]}: {first_few(ids)}", line) for (line, idle), ids in unmet.items()
        ]
        return list(dict.fromkeys([*(lack.allowance for lack in lacks if lack.allowed), *rules]))

    @property
    def warnings(self) -> list[str]:
        """Warnings about the policies and the models, which do not affect the decision."""
        sentences = [*_stopped_early(self.records), *_few_letters(self.records)]
        datasets = {record.dataset for record in self.records}
        if unknown := ", ".join(name for name in self.without_pictures if name in datasets):
            sentences.append(
                f"the baseline does not say which images of {unknown} it showed (only a clean cell records them): whether they "
                "are the same was not compared. Run the earlier model again with clean tests to record them"
            )
        sentences += [
            f"the baseline has no model of this name: {name} is compared with {earlier}, the only model there"
            for name, earlier in self.compared.items()
            if name != earlier
        ]
        sentences += filter(None, [self.behind])
        sentences += loophole_warnings(self.policies.values(), self.today)
        sentences += [note for record in self.records for note in record.notes if ON_COMMON in note]
        sentences += [
            f"{ref.name} runs Python code that comes with its checkpoint (remote_code: true in the models file): that code could "
            "do whatever this process may, change what is measured included"
            for ref in self.models.values()
            if ref.remote_code
        ]
        unmet = {unmet.rule.source for unmet, _ in self._unmet}
        worth_saying = {WaiverState.EXPIRED, WaiverState.EXCEEDED, *([WaiverState.UNNEEDED] if self._is_over else [])}
        for name, policy in self.policies.items():
            use, relative = self._uses[name], self._relative_rules(policy)
            if policy.judges_values and policy.coverage.tests is Extent.PARTIAL:
                sentences.append(
                    f"the policy of {name} is a smoke test: it judges values, not intervals, and allows GO even when only some "
                    "tests ran. For a release, use another one, such as default"
                )
            sentences += [str(waiver) for waiver in use.waivers if waiver.state in worth_saying]
            if others := self._unmatched_waivers(name)[1]:
                every = quantity(len(policy.waivers), "waiver")
                count = quantity(len(others), f"of {every} covers", f"of {every} cover")
                ids = ", ".join(other.waiver.id for other in others)
                advice = "Remove those that are not meant for models, data or suites that this run leaves out"
                sentences.append(f"{count} no test of {name} in this run: {ids}. {advice}")
            sentences += [_without_baseline(rule) for rule in relative if not rule.blocks_where_not_applicable]
            if not self._is_over:
                continue
            idle = [rule for rule, tests in use.met.items() if not tests and rule not in relative and rule.source not in unmet]
            if idle and not budget_lines(self.records):
                ids = ", ".join(rule.id for rule in idle)
                measured = {measure.metric for measure, _ in use.measured}
                lacking = ", ".join(dict.fromkeys(rule.metric for rule in idle if rule.metric not in measured))
                why = f". Not measured: {lacking}. A suite measures what its vlm_metrics mark names" if lacking else ""
                sentences.append(f"{len(idle)} of {quantity(len(policy.rules), 'rule')} applied to no test of {name}: {ids}{why}")
            sentences += [
                f"{dataset} has no blocking rule: results of {name} there cannot cause a NO-GO. Add a rule, or leave it out "
                "of --vlm-dataset"
                for dataset in use.ungated_data
            ]
            sentences += [
                f"{dataset} has no blocking rule about changed images: what {name} loses there cannot cause a NO-GO. Add a rule "
                "on accuracy_drop"
                for dataset in use.data_without_losses
            ]
        return list(dict.fromkeys(sentences))

    # Parts of these.

    @property
    def _has_ended(self) -> bool:
        """Whether all selected tests left a record. In a stopped run it is unknown which rules the other tests would meet."""
        return sum(record.is_gated for record in self.records) >= self.selected

    @property
    def _is_over(self) -> bool:
        return self.is_whole and self._has_ended

    @cached_property
    def _uses(self) -> dict[str, PolicyUse]:
        """The policy of each model with the records that it judged: of the model, and of families whose largest model it is."""
        judged = {name: {name} for name in self.policies}
        for family, members in families(self.models).items():
            judged.get(members.largest, set()).add(family)
        return {
            name: PolicyUse(policy, [record for record in self.records if record.model in judged[name]], self.today)
            for name, policy in self.policies.items()
        }

    @cached_property
    def _shared_uses(self) -> list[PolicyUse]:
        """Each policy with the records of all models that share it, since a rule may be about a single model."""
        sharing: dict[str, list[PolicyUse]] = {}
        for use in self._uses.values():
            sharing.setdefault(use.policy.sha256, []).append(use)
        return [
            PolicyUse(
                uses[0].policy,
                [record for use in uses for record in use.records],
                self.today,
                [test for test in self.idle if self.policies[test.model].sha256 == uses[0].policy.sha256],
            )
            for uses in sharing.values()
        ]

    @cached_property
    def _coverage(self) -> dict[str, list[Condition]]:
        """Missing measurements of the run, by the model whose policy asks for them."""
        samples, suites = self.samples_asked(), suites_of(record.nodeid for record in self.records)
        return {
            name: policy.coverage.conditions(
                planned=self.planned,
                selected=self.selected,
                narrowed=self.narrowed,
                samples=samples,
                suites=suites,
            )
            for name, policy in self.policies.items()
        }

    @cached_property
    def _unmet(self) -> list[tuple[UnmetRule, str]]:
        """The blocking rules that applied to no test, each with the line that may allow it; none while tests are missing."""
        failed = any(record.outcome is Outcome.ERROR for record in self.records) or budget_lines(self.records)
        if failed or not self._is_over:
            return []  # other reports say why such a run is incomplete
        return [
            (unmet, use.policy.coverage.allowed_by("rules", use.policy.coverage.rules))
            for use in self._shared_uses
            for unmet in [*use.unmet_rules(self.categories), *(lack for lack in use.unbounded_models if not lack.allowed)]
        ]

    @property
    def _idle_summaries(self) -> list[str]:
        """Shortfalls that no policy can allow: no rule on summary metrics, or none on visual gain, met a test."""
        shortfalls: list[str] = []
        if budget_lines(self.records) or not self._has_ended:
            return shortfalls  # missing answers are reported with their reason
        for use in self._shared_uses:
            if not use.records or (use.policy.coverage.tests is Extent.WHOLE and not self.is_whole):
                continue  # nothing was measured, or tests were left out: reported with the missing tests
            for about, counts in _SUMMARIES.items():
                if idle := use.idle_summaries(counts):
                    rules = f"{quantity(len(idle), 'blocking rule')} on {about}"
                    shortfalls.append(
                        f"{rules} ({_name_list(rule.id for rule in idle)}; the first in {idle[0].source}), and none applied to a "
                        "test: GO would say nothing about the model as a whole. Add such a rule without a where, or measure what "
                        "these ask for; coverage: {rules: partial} does not allow this"
                    )
                    break
        return shortfalls

    @cached_property
    def _not_shown_to_look(self) -> list[Condition]:
        """A condition for each model and dataset where nothing shows that the images matter."""
        lacks = []
        for name, policy in self.policies.items():
            coverage = policy.coverage
            allowed = coverage.blind_models is BlindModels.ALLOW
            records = [record for record in self.records if record.model == name and not record.task]  # tasks have other checks
            broken = any(record.deciding is Outcome.FAIL for record in records)  # this model is NO-GO; others may be GO
            for dataset in dict.fromkeys(record.dataset for record in records):
                of_dataset = [record for record in records if record.dataset == dataset]
                why, advice = self._why_blind(of_dataset, policy, broken=broken)
                fact = f"{name} is not shown to look at the images of {dataset}: {why}"
                facts = (fact, "GO requires that images matter", advice)
                if why:
                    lacks.append(coverage.condition("blind_models", coverage.blind_models, *facts, allowed=allowed))
        return lacks

    def _why_blind(self, about: Sequence[Record], policy: Policy, *, broken: bool) -> tuple[str, str]:
        """Returns why nothing shows that images matter to a model on a dataset, and what to do; empty where something does.

        A model that ignores images, or always gives the same answer, loses nothing under any setting. If a blocking rule bounds
        its visual gain, the verdict of that rule holds. A gain by value counts only if other images changed answers; else the
        interval of the gain has to lie above 0. That other images change answers is asked for all the same, beside a test of
        clean, of a model that breaks no bound.
        """
        gain = _visual_gain(about)
        gated = any(record.deciding in (Outcome.PASS, Outcome.WAIVED) for record in about)
        if not gated or (gain is None and not self.is_whole):  # reported with the tests it leaves out
            return "", ""
        looking = {rule.id for rule in policy.rules if rule.treatment.tier is Tier.BLOCK and shows_looking(rule)}
        measured = [measure for record in about for measure in record.measures]
        bounded = any(measure.rule in looking and measure.outcome is not Outcome.MEASURED for measure in measured)
        clean = [record for record in about if record.setting == CLEAN_NAME]
        probed = [measure for record in clean for measure in record.measures]
        if not bounded and (why := _why_no_gain(gain, by_value=policy.judges_values and shows_change(probed))):
            return f"{why}, and no blocking rule bounds its visual_gain", _WAYS_OUT
        if broken:
            return "", ""
        if not bounded and not clean and self.is_whole:
            return "no test has the setting clean, beside which a few questions are asked with the images of others", _ALLOW
        return why_not_changed(probed), _ALLOW

    def _relative_rules(self, policy: Policy) -> list[Rule]:
        """Returns the rules that need an earlier run, if none was named."""
        return [] if self.has_baseline else [rule for rule in policy.rules if is_relative(rule)]

    def _unmatched_waivers(self, name: str) -> tuple[list[WaiverUse], list[WaiverUse]]:
        """Returns the waivers that met no test of a whole run: waivers that can meet none, and ones that other runs need."""
        suites = self.policies[name].coverage.suites
        all_ran = bool(suites) and {*suites} <= suites_of(record.nodeid for record in self.records)
        waivers = self._uses[name].waivers if self._is_over else []
        meaningless = [use for use in waivers if use.missed is Missed.CATEGORY or (use.missed is Missed.SETTING and all_ran)]
        return meaningless, [use for use in waivers if use.state is WaiverState.UNMATCHED and use not in meaningless]


def _visual_gain(records: Iterable[Record]) -> Measure | None:
    """Returns a model's gain from the images of a dataset; ``None`` if the test without images did not run."""
    measured = {
        (record.setting, measure.metric): measure
        for record in records
        if not record.split
        for measure in record.measures
        if not measure.category
    }
    return measured.get(("", "visual_gain")) or measured.get((NO_IMAGE_NAME, GAIN)) or measured.get((CLEAN_NAME, GAIN))


def _why_no_gain(gain: Measure | None, *, by_value: bool) -> str:
    """Returns why a model is not shown to score higher with images than without; empty if it is."""
    if gain is None:
        return "no test has the setting clean or no_image, beside which that is measured"
    if gain.value > 0.0 and (by_value or gain.low > 0.0):  # an interval that is not known shows nothing
        return ""
    if math.isnan(gain.value):
        return f"it is not known what they bring{f': {gain.reason}' if gain.reason else ''}"
    between = "" if math.isnan(gain.low) else f", 90 % interval {points(gain.low)} to {points(gain.high)}"
    return f"with them it scores {points(gain.value)} more than without{between}"


def _few_letters(records: Iterable[Record]) -> list[str]:
    """Returns a warning for each model whose most probable first token is often not a letter, with the number of tests."""
    counts = Counter(record.model for record in records for note in record.notes if f"{FEW_LETTERS}. {TEXT_INSTEAD}" in note)
    return [
        f"{model}: in {quantity(count, 'test')} {percent(MANY, 0)} of the answers or more would not begin with a letter: "
        f"{FEW_LETTERS}; the notes say in how many. {TEXT_INSTEAD}"
        for model, count in counts.items()
    ]


def _stopped_early(records: Iterable[Record]) -> list[str]:
    """Returns a note on how many tests stopped early, and what their values mean."""
    partial = [record for record in records if record.n_samples > record.n_requested]
    if not partial:
        return []
    n_asked, every = sum(record.n_requested for record in partial), sum(record.n_samples for record in partial)
    sentence = (
        f"{quantity(len(partial), 'test')} stopped early (adaptive mode): they used {n_asked:,} of {every:,} answers. Their "
        "verdicts hold at the declared risk; their values come from fewer questions, have no interval and are not a baseline"
    )
    return [sentence]


def _without_baseline(rule: Rule) -> str:
    return (
        f"rule {rule.id} ({rule.source}) is not applicable: {rule.metric} compares with an earlier run, and no baseline was "
        "given. Name one with --vlm-baseline RUN"
        + (", or write on_not_applicable: warn to do without" if rule.blocks_where_not_applicable else "")
    )
