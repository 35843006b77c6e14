"""Conditions for GO: what policies require of a run as a whole, what of it the run lacks, and warnings about the policies.

Pure: facts of the run, its policies and its records give sentences. ``core.decision`` turns verdicts and sentences into GO.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date

from pytest_vlmrobust.backends.generation import TEXT_INSTEAD
from pytest_vlmrobust.backends.resolve import names as shipped_models
from pytest_vlmrobust.core.cell import CLEAN_NAME, NO_IMAGE_NAME, Planned
from pytest_vlmrobust.core.decision import Allowance, Outcome
from pytest_vlmrobust.core.errors import PolicyError, did_you_mean
from pytest_vlmrobust.core.prediction import ModelRef
from pytest_vlmrobust.core.record import Measure, Record
from pytest_vlmrobust.core.sample import kind_of_stratum
from pytest_vlmrobust.core.spending import budget_lines
from pytest_vlmrobust.core.words import first_few, points, quantity
from pytest_vlmrobust.datasets import names as shipped_datasets
from pytest_vlmrobust.evaluation.judge.baseline import ON_COMMON
from pytest_vlmrobust.evaluation.run.families import families
from pytest_vlmrobust.evaluation.run.results import FEW_LETTERS, MANY
from pytest_vlmrobust.policies import (
    BlindModels,
    Condition,
    Coverage,
    Extent,
    MetricKey,
    Missed,
    Policy,
    Rule,
    Scope,
    Tier,
    UnmetRule,
    WaiverState,
    WaiverUse,
    idle_summaries,
    idle_summaries_shortfall,
    misspellings,
    suites_of,
    ungated_data,
    unmatched_rules,
    unmet_rules,
    waiver_report,
)

from .canaries import GAIN, shows_change, why_not_changed
from .loopholes import loopholes
from .loopholes import warnings as loophole_warnings
from .scopes import KnownNames, idle_cap, is_relative, is_summary, shows_looking

_WAYS_OUT = "add a rule on visual_gain, ask more samples, or allow it with coverage: {blind_models: allow}"
_ALLOW = "look whether images reach it, or allow it with coverage: {blind_models: allow}"
_REGISTER = " One of your own is known once a conftest.py that is collected registers it"
_SERVED = "openai"
"""The backend of models that others serve."""
_SUMMARIES = {"summary metrics": is_summary, "visual_gain": shows_looking}
"""Summaries without which a run is never GO, if rules bound them and none of these met a test."""


def asks_for_all_samples(policies: Iterable[Policy]) -> bool:
    """Whether a policy requires all samples of a dataset, as for a release, unlike a smoke test."""
    return any(policy.coverage.share >= 1.0 for policy in policies)


@dataclass(frozen=True)
class Conditions:
    """What policies require of a run as a whole, and the facts of the run; methods take the records."""

    policies: Mapping[str, Policy]
    """The policy of each model."""
    models: Mapping[str, ModelRef]
    planned: int
    """Number of gated tests in the collected files."""
    selected: int
    """Number of them that were selected."""
    narrowed: str
    """An option that may leave out an unknown number of tests, such as ``--lf``; empty if there is none."""
    today: date
    """The day on which waivers are checked for expiry."""
    has_baseline: bool
    behind: str = ""
    """What says that the clock of the machine is behind."""
    """Whether an earlier run was named."""
    without_pictures: Sequence[str] = ()
    """The datasets without image digests in the earlier run."""
    compared: Mapping[str, str] = field(default_factory=dict)
    """Each model to the model of the earlier run that it is compared with."""
    samples_asked: Callable[[], Mapping[str, tuple[int, int]]] = dict
    """Returns, for sampled datasets, the number of samples asked and the total."""
    categories: Callable[[], Iterable[str]] = tuple
    """Returns the categories of the samples of the run; only called for rules about categories."""

    @property
    def is_whole(self) -> bool:
        """Whether all gated tests of the collected files were selected."""
        return self.planned == self.selected and not self.narrowed

    def _has_ended(self, records: Iterable[Record]) -> bool:
        """Whether all selected tests left a record: nobody knows what the other tests of a run that was stopped would meet."""
        return sum(record.is_gated for record in records) >= self.selected

    def shortfalls(self, records: Sequence[Record]) -> list[str]:
        """Returns a sentence for each requirement of the policies that the run does not meet; with any, it is not GO."""
        shortfalls = []
        for name, policy in self.policies.items():
            shortfalls += [lack.shortfall for lack in self._coverage(policy, records) if not lack.allowed]
            shortfalls += [
                f"{use}, and GO requires that every waiver can apply" for use in self._meaningless(name, policy, records)
            ]
            shortfalls += [_without_baseline(rule) for rule in self._relative_rules(policy) if rule.blocks_where_not_applicable]
        shortfalls += [_undeclared(ref) for ref in self.models.values() if ref.backend == _SERVED and not ref.revision]
        shortfalls += [unmet.shortfall(coverage) for coverage, unmet in self._unmet(records) if not unmet.is_allowed(coverage)]
        shortfalls += self._idle_summaries(records)
        shortfalls += [lack.shortfall for lack in self._not_shown_to_look(records) if not lack.allowed]
        return list(dict.fromkeys(shortfalls))

    def allowances(self, records: Sequence[Record]) -> list[Allowance]:
        """Returns what the run did not do or show and its policies let pass: every report says so."""
        lacks = [lack for policy in self.policies.values() for lack in self._coverage(policy, records)]
        lacks += self._not_shown_to_look(records)
        return list(dict.fromkeys([*(lack.allowance for lack in lacks if lack.allowed), *self._allowed_unmet(records)]))

    def _coverage(self, policy: Policy, records: Sequence[Record]) -> list[Condition]:
        """Returns what the run did not measure, and whether a policy allows it."""
        return policy.coverage.conditions(
            planned=self.planned,
            selected=self.selected,
            narrowed=self.narrowed,
            samples=self.samples_asked(),
            suites=suites_of(records),
        )

    def warnings(self, records: Sequence[Record]) -> list[str]:
        """Returns warnings about the policies and the models, which do not affect the decision.

        They are about loopholes, code of a checkpoint that was allowed to run, letters that are no answers, unneeded or
        insufficient waivers, rules that need a baseline when there is none, a baseline of another model or without image
        digests, and (in a whole run) rules that applied to no test and data that no rule gates.
        """
        warnings = [*_stopped_early(records), *_few_letters(records), *self._pictures_not_compared(records)]
        warnings += [
            f"the baseline has no model of this name: {name} is compared with {earlier}, the only model there"
            for name, earlier in self.compared.items()
            if name != earlier
        ]
        warnings += filter(None, [self.behind])
        warnings += loophole_warnings(self.policies.values(), self.today)
        warnings += [note for record in records for note in record.notes if ON_COMMON in note]
        warnings += [_ran_code(ref) for ref in self.models.values() if ref.remote_code]
        unmet, whole = {one.rule.source for _, one in self._unmet(records)}, self.is_whole and self._has_ended(records)
        worth_saying = {WaiverState.EXPIRED, WaiverState.EXCEEDED, *([WaiverState.UNNEEDED] if whole else [])}
        for name, policy in self.policies.items():
            relative = self._relative_rules(policy)
            warnings += _smoke_test(name, policy)
            warnings += [str(use) for use in self._uses(name, policy, records) if use.state in worth_saying]
            warnings += self._unmatched_waivers(name, policy, records)
            warnings += [_without_baseline(rule) for rule in relative if not rule.blocks_where_not_applicable]
            idle = unmatched_rules(policy, self._own(name, records)) if whole and not budget_lines(records) else ()
            if others := [rule.id for rule in idle if rule not in relative and rule.source not in unmet]:
                warnings.append(
                    f"{len(others)} of {quantity(len(policy.rules), 'rule')} applied to no test of {name}: {', '.join(others)}"
                )
            warnings += self._ungated_data(name, policy, records)
        return list(dict.fromkeys(warnings))

    def _own(self, name: str, records: Iterable[Record]) -> list[Record]:
        """Returns the records that the policy of a model judged: its own, and those of families whose largest model it is."""
        judged = {name, *(family for family, members in families(self.models).items() if members.largest == name)}
        return [record for record in records if record.model in judged]

    def _by_policy(self, records: Sequence[Record]) -> Iterator[tuple[Policy, list[Record]]]:
        """Yields each policy with the records of all models that share it."""
        sharing: dict[str, list[str]] = {}
        for name, policy in self.policies.items():
            sharing.setdefault(policy.sha256, []).append(name)
        for names in sharing.values():
            yield self.policies[names[0]], [record for name in names for record in self._own(name, records)]

    # Rules.

    def _unmet(self, records: Sequence[Record]) -> list[tuple[Coverage, UnmetRule]]:
        """Returns the blocking rules that applied to no test, each with the coverage of its policy; none while tests are missing.

        Models that share a policy are checked together, since a rule may be about a single model.
        """
        failed = any(record.outcome is Outcome.ERROR for record in records) or budget_lines(records)
        if not self.is_whole or failed or not self._has_ended(records):
            return []  # what such a run lacks is reported with its reason
        return [
            (policy.coverage, unmet)
            for policy, own in self._by_policy(records)
            for unmet in unmet_rules(policy.rules, own, self.categories)
        ]

    def _allowed_unmet(self, records: Sequence[Record]) -> list[Allowance]:
        """Returns an allowance for each line of a policy that lets rules apply to no test."""
        idle: dict[str, list[str]] = {}
        for coverage, unmet in self._unmet(records):
            if unmet.is_allowed(coverage):
                idle.setdefault(coverage.allowed_by("rules", coverage.rules), []).append(unmet.rule.id)
        words = "rule applied to no test", "rules applied to no test"
        return [
            Allowance(f"{quantity(len(ids), *words)}, though what they bound was measured: {first_few(ids)}", line)
            for line, ids in idle.items()
        ]

    def _idle_summaries(self, records: Sequence[Record]) -> list[str]:
        """Returns shortfalls that no policy can allow: no rule on summary metrics, or none on visual gain, met a test."""
        shortfalls: list[str] = []
        if budget_lines(records) or not self._has_ended(records):
            return shortfalls  # what was not asked is reported with its reason
        for policy, own in self._by_policy(records):
            if not own or (policy.coverage.tests is Extent.WHOLE and not self.is_whole):
                continue  # nothing was measured, or tests were left out: that is reported with the tests that are lacking
            for about, counts in _SUMMARIES.items():
                if idle := idle_summaries(policy.rules, own, counts):
                    shortfalls.append(idle_summaries_shortfall(idle, about))
                    break
        return shortfalls

    def _not_shown_to_look(self, records: Sequence[Record]) -> list[Condition]:
        """Returns a condition for each model and dataset where nothing shows that the images matter.

        A model that does not look, or that always says the same, loses nothing under any setting. Where a blocking rule bounds
        its visual gain, the verdict of that rule holds. A gain by value, which may be luck, shows something only beside answers
        that other images change: of too few questions, sampled answers and one image for all, it has to be sure. That other
        images change answers is asked for all the same, beside a test of clean, of a model that breaks no bound.
        """
        lacks = []
        for name, policy in self.policies.items():
            coverage = policy.coverage
            blocking = [rule for rule in policy.rules if rule.treatment.tier is Tier.BLOCK]
            looking = {rule.id for rule in blocking if shows_looking(rule)}
            by_value = policy.judges_values
            own = [record for record in records if record.model == name and not record.task]  # tasks have floors of their own
            broken = any(record.deciding is Outcome.FAIL for record in own)  # so that it is NO-GO, and other models may be GO
            for dataset in dict.fromkeys(record.dataset for record in own):
                about = [record for record in own if record.dataset == dataset]
                gated = any(record.deciding in (Outcome.PASS, Outcome.WAIVED) for record in about)
                bounded = any(measure.rule in looking for record in about for measure in record.measures)
                gain = _visual_gain(about)
                if not gated or (gain is None and not self.is_whole):  # which is reported with what it leaves out
                    continue
                clean = [record for record in about if record.setting == CLEAN_NAME]
                changes = shows_change(measure for record in clean for measure in record.measures)
                without = "" if bounded else _why_no_gain(gain, by_value=by_value and changes)
                changed = "" if broken else self._why_not_changed(clean, needed=not bounded)
                why = f"{without}, no blocking rule bounds its visual_gain" if without else changed
                if why:
                    fact = f"{name} is not shown to look at the images of {dataset}: {why}"
                    advice = _WAYS_OUT if without else _ALLOW
                    allowed = coverage.blind_models is BlindModels.ALLOW
                    lacks.append(
                        coverage.condition(
                            "blind_models",
                            coverage.blind_models,
                            fact,
                            "GO requires that images matter",
                            advice,
                            allowed=allowed,
                        )
                    )
        return lacks

    def _why_not_changed(self, clean: Sequence[Record], *, needed: bool) -> str:
        """Returns why nothing shows that other images change the answers to a dataset; empty where something does."""
        if needed and not clean and self.is_whole:
            return "no test has the setting clean, beside which a few questions are asked with the images of others"
        return why_not_changed(measure for record in clean for measure in record.measures)

    def _relative_rules(self, policy: Policy) -> list[Rule]:
        """Returns the rules that need an earlier run, if none was named."""
        return [] if self.has_baseline else [rule for rule in policy.rules if is_relative(rule)]

    def _ungated_data(self, name: str, policy: Policy, records: Sequence[Record]) -> list[str]:
        """Returns the data of a model that no rule gates in a whole run, if other data are gated."""
        names = ungated_data(policy.rules, self._own(name, records)) if self.is_whole and self._has_ended(records) else []
        return [
            f"no blocking rule is about {dataset}, though other data of {name} are gated: the run may be GO whatever it "
            "answers there. Add a rule about it, or leave it out of --vlm-dataset"
            for dataset in names
        ]

    def _pictures_not_compared(self, records: Iterable[Record]) -> list[str]:
        """Returns a warning if the earlier run does not say which images it showed."""
        asked = {record.dataset for record in records}
        names = [name for name in self.without_pictures if name in asked]
        if not names:
            return []
        unknown = f"the baseline does not say which images of {', '.join(names)} it showed (only a clean cell records them)"
        advice = "Run the earlier model again with clean tests to record them"
        return [f"{unknown}: whether they are the same was not compared. {advice}"]

    # Waivers.

    def _uses(self, name: str, policy: Policy, records: Iterable[Record]) -> tuple[WaiverUse, ...]:
        return waiver_report(policy, self._own(name, records), today=self.today)

    def _meaningless(self, name: str, policy: Policy, records: Sequence[Record]) -> list[WaiverUse]:
        """Returns the waivers that applied to no test of a whole run and match nothing that the run leaves out."""
        uses = self._uses(name, policy, records) if self.is_whole and self._has_ended(records) else ()
        return [use for use in uses if _is_meaningless(use, policy, records)]

    def _unmatched_waivers(self, name: str, policy: Policy, records: Sequence[Record]) -> list[str]:
        """Returns the waivers that applied to no test of a whole run but may match what it leaves out."""
        uses = self._uses(name, policy, records) if self.is_whole and self._has_ended(records) else ()
        unmatched = [use for use in uses if use.state is WaiverState.UNMATCHED and not _is_meaningless(use, policy, records)]
        if not unmatched:
            return []
        every = quantity(len(policy.waivers), "waiver")
        count = quantity(len(unmatched), f"of {every} covers", f"of {every} cover")
        sentence = f"{count} no test of {name} in this run: {', '.join(use.waiver.id for use in unmatched)}"
        return [f"{sentence}. Remove those that are not meant for models, data or suites that this run leaves out"]


def _visual_gain(records: Iterable[Record]) -> Measure | None:
    """Returns what the images of a dataset bring to a model, by the same questions; ``None`` where they were never withheld."""
    measured = {
        (record.setting, measure.metric): measure
        for record in records
        if not record.split
        for measure in record.measures
        if not measure.category
    }
    return measured.get(("", "visual_gain")) or measured.get((NO_IMAGE_NAME, GAIN)) or measured.get((CLEAN_NAME, GAIN))


def _why_no_gain(gain: Measure | None, *, by_value: bool) -> str:
    """Returns why nothing shows that a model scores more with the images of a dataset than without; empty where it does."""
    if gain is None:
        return "no test has the setting clean or no_image, beside which that is measured"
    if gain.value > 0.0 and (by_value or gain.low > 0.0):  # an interval that is not known shows nothing
        return ""
    if math.isnan(gain.value):
        return f"it is not known what they bring{f': {gain.reason}' if gain.reason else ''}"
    between = "" if math.isnan(gain.low) else f", 90 % interval {points(gain.low)} to {points(gain.high)}"
    return f"with them it scores {points(gain.value)} more than without{between}"


def _is_meaningless(use: WaiverUse, policy: Policy, records: Iterable[Record]) -> bool:
    required = policy.coverage.suites
    all_ran = bool(required) and set(required) <= suites_of(records)
    return use.missed is Missed.CATEGORY or (use.missed is Missed.SETTING and all_ran)


def _few_letters(records: Iterable[Record]) -> list[str]:
    """Returns, for each model whose answers by letters would often begin with something else, in how many tests."""
    counts = Counter(record.model for record in records for note in record.notes if f"{FEW_LETTERS}. {TEXT_INSTEAD}" in note)
    return [
        f"{model}: in {quantity(count, 'test')} {MANY:.0%} of the answers or more would not begin with a letter: {FEW_LETTERS}; "
        f"the notes say in how many. {TEXT_INSTEAD}"
        for model, count in counts.items()
    ]


def _stopped_early(records: Iterable[Record]) -> list[str]:
    """Returns how many tests asked a part of their samples, and what their values are worth."""
    partial = [record for record in records if record.n_samples > record.n_requested]
    if not partial:
        return []
    asked, every = sum(record.n_requested for record in partial), sum(record.n_samples for record in partial)
    return [
        (
            f"{quantity(len(partial), 'test')} stopped early (adaptive mode): they used {asked:,} of {every:,} answers. Their "
            "verdicts hold at the declared risk; their values come from a part of the samples, have no interval and are not a "
            "baseline"
        )
    ]


def _smoke_test(name: str, policy: Policy) -> list[str]:
    """Returns a warning about a policy that requires less than a release does."""
    if not policy.judges_values or policy.coverage.tests is Extent.WHOLE:
        return []
    weak = f"the policy of {name} is a smoke test: it judges values, not intervals, and allows GO even when only some tests ran"
    return [f"{weak}. For a release, use another one, such as default"]


def _ran_code(ref: ModelRef) -> str:
    return (
        f"{ref.name} runs Python code that comes with its checkpoint (remote_code: true in the models file): that code could do "
        "whatever this process may, change what is measured included"
    )


def _undeclared(ref: ModelRef) -> str:
    return (
        f"{ref.name} is on a server, where nobody can see which weights answer, and GO requires a declared revision: name these "
        f"weights and this server by openai:{ref.location}@REVISION, or by 'revision' in the models file"
    )


def _without_baseline(rule: Rule) -> str:
    return (
        f"rule {rule.id} ({rule.source}) is not applicable: {rule.metric} compares with an earlier run, and no baseline was "
        "given. Name one with --vlm-baseline RUN"
        + (", or write on_not_applicable: warn to do without" if rule.blocks_where_not_applicable else "")
    )


# Before anything is asked: names in policies that mean nothing.


def refuse_unknown_scopes(
    policies: Iterable[Policy],
    plan: Sequence[Planned],
    tests: Iterable[MetricKey],
    *,
    models: Iterable[str],
    datasets: Iterable[str],
) -> None:
    """Looks whether each rule and waiver names things that exist, now that every file of the user's has been read."""
    known = KnownNames.of(tests)
    present = {"model": {*models, *(planned.model for planned in plan)}, "dataset": {planned.dataset for planned in plan}}
    elsewhere = {"model": {*shipped_models()}, "dataset": {*shipped_datasets(), *datasets}}
    for policy in policies:
        for scope, effect in _scopes(policy):
            if problems := known.unknown_globs(scope):
                raise PolicyError(f"{effect}: {problems[0]}{_REGISTER}")
            _refuse_misspelt(scope, effect, present, elsewhere)


def refuse_empty_slices(
    policies: Iterable[Policy], tests: Sequence[MetricKey], strata: Callable[[Iterable[str]], Iterable[str]]
) -> None:
    """Looks whether the data of a run have rows in each slice of metadata that a rule or a waiver is about."""
    for policy in policies:
        for scope, effect in _scopes(policy):
            kind = kind_of_stratum(scope.category[0]) if scope.category else ""
            about = sorted({test.dataset for test in tests if replace(scope, category=()).matches(test)}) if kind else []
            if not about:
                continue
            names = sorted(strata(about))
            values = [name.removeprefix(f"{kind}=") for name in names if kind_of_stratum(name) == kind]
            for glob in scope.category:
                if any(Scope(category=(glob,)).admits("category", name) for name in names):
                    continue
                wanted = glob.removeprefix(f"{kind}=")
                columns = sorted({kind_of_stratum(name) for name in names} - {""})
                has = f"{kind} is {first_few(values, 10)}" if values else f"metadata columns: {first_few(columns, 10) or 'none'}"
                near = did_you_mean(wanted, values) if values else did_you_mean(kind, columns)
                raise PolicyError(
                    f"{effect}: no row of {first_few(about, 5)} has {kind} {wanted!r}.{near} In the data, {has}. "
                    "Correct the name, or leave it out of the policy of this run"
                )


def refuse_loopholes(policies: Iterable[Policy], today: date) -> None:
    """Looks whether each rule that blocks can fail, and each waiver can cover a breach, as ``vlmrobust check`` does."""
    policies = list(policies)
    refused = [str(found) for policy in policies for found in loopholes(policy, today=today) if found.refused]
    for policy in policies:
        idle = {waiver: idle_cap(waiver, policy.rules) for waiver in policy.waivers}
        refused += [f"{waiver.source}: {sentence}" for waiver, sentence in idle.items() if sentence]
    if refused:
        raise PolicyError("\n".join(dict.fromkeys(refused)))


def _scopes(policy: Policy) -> Iterator[tuple[Scope, str]]:
    """Yields each scope of a policy with the effect of a misspelt name in it."""
    for rule in policy.rules:
        yield rule.where, f"{rule.source}: rule {rule.id} gates nothing there"
        if rule.unless:
            yield rule.unless, f"{rule.source}: rule {rule.id} excludes nothing there"
    for waiver in policy.waivers:
        yield waiver.where, f"{waiver.source}: waiver {waiver.id} covers nothing"


def _refuse_misspelt(scope: Scope, effect: str, present: Mapping[str, set[str]], elsewhere: Mapping[str, set[str]]) -> None:
    """Looks whether a scope is meant for a model or a dataset of the run that it misspells."""
    for misspelling in misspellings(scope, present):
        if misspelling.glob not in elsewhere[misspelling.field]:
            raise PolicyError(
                f"{effect}: this run has no {misspelling.field} {misspelling.glob!r}. Did you mean "
                f"{misspelling.name!r}? If it is another one, leave it out of the policy of this run"
            )
