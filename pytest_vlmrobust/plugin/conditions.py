"""Conditions: what policies ask of a run as a whole, what it lacks of that, and what it should say about its policies."""

from __future__ import annotations

import contextlib
import warnings
from typing import TYPE_CHECKING

from pytest_vlmrobust.core.errors import PolicyError, VlmRobustError
from pytest_vlmrobust.core.words import quantity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_vlmrobust.core.record import Record
    from pytest_vlmrobust.policies import Policy, Rule, Scope, WaiverUse

    from .gate import Gate

_REGISTER = " One of your own is known once a conftest.py that is collected registers it"


def shortfalls(gate: Gate) -> list[str]:
    """Returns, a sentence for each, what the policies ask of the run and it lacks: with any, it is not GO."""
    from pytest_vlmrobust.policies import suites_of

    suites = suites_of(gate.records)
    found = [
        sentence
        for name, policy in gate.policies.items()
        for sentence in (
            *policy.coverage.shortfalls(
                planned=gate.planned,
                selected=gate.selected,
                narrowed=gate.narrowed,
                samples=gate.samples_asked if policy.coverage.counts_samples else {},
                suites=suites,
            ),
            *(f"{use}, and GO asks for waivers that mean something" for use in _meaningless_waivers(gate, name, policy)),
            *(_without_baseline(rule) for rule in _relative_rules(gate, policy) if rule.blocks_where_not_applicable),
        )
    ]
    found += _unmet_rules(gate).values()
    found += _idle_summaries(gate)
    return list(dict.fromkeys(found))


def policy_warnings(gate: Gate) -> list[str]:
    """Returns what the run says about its policies and does not hold against it.

    That is waivers that can go or do not reach, rules about an earlier run that was not named, an earlier run that does not say
    what it showed, and (in a whole run) rules that met no test, and data that no rule gates.
    """
    from pytest_vlmrobust.policies import WaiverState, unmatched_rules

    found = _pictures_not_compared(gate)
    said = _unmet_rules(gate)
    for name, policy in gate.policies.items():
        found += _no_release_decision(name, policy)
        uses = _uses(gate, name, policy)
        loud = {WaiverState.EXPIRED, WaiverState.EXCEEDED} | ({WaiverState.UNNEEDED} if is_whole(gate) else set())
        found += [str(use) for use in uses if use.state in loud]
        found += _lost_waivers(gate, name, policy) if is_whole(gate) else []
        relative = _relative_rules(gate, policy)
        found += [_without_baseline(rule) for rule in relative if not rule.blocks_where_not_applicable]
        idle = unmatched_rules(policy, _own(gate, name)) if is_whole(gate) else ()
        if others := [rule.id for rule in idle if rule not in relative and rule.source not in said]:
            found.append(f"{len(others)} of {quantity(len(policy.rules), 'rule')} met no test of {name}: {', '.join(others)}")
        found += _ungated_data(gate, name, policy) if is_whole(gate) else []
    return list(dict.fromkeys(found))


def is_whole(gate: Gate) -> bool:
    """Whether all the gated tests that the collected files hold were to run."""
    return gate.planned == gate.selected and not gate.narrowed


def asks_for_all_samples(gate: Gate) -> bool:
    """Whether a policy asks for all the samples of a data set, as a release does and a smoke test does not."""
    return any(policy.coverage.share >= 1.0 for policy in gate.policies.values())


def samples_asked(gate: Gate) -> dict[str, tuple[int, int]]:
    """Returns, for each data set of which only some samples were asked, how many, and how many it has."""
    from pytest_vlmrobust.datasets import sampling
    from pytest_vlmrobust.datasets.files import DatasetWarning

    found = {}
    for name in dict.fromkeys(record.dataset for record in gate.records if record.dataset):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DatasetWarning)  # the evaluation said the same when it read them
                subset = sampling.chosen(gate.data.open(name), gate.settings.vlm_sample)
        except VlmRobustError:
            continue  # the tests that needed it have said why
        if isinstance(subset, sampling.Subset):
            found[name] = len(subset), subset.available
    return found


def refuse_unknown_scopes(gate: Gate) -> None:
    """Looks whether each rule and waiver names things that exist, now that every file of the user's has been read.

    Raises:
        PolicyError: a scope names what nothing can ever match, or nearly what a model or a data set of the run is called.
    """
    from pytest_vlmrobust.evaluation.judge.scopes import KnownNames

    known = KnownNames.of(test for planned in gate.plan for test in gate.judged(planned))
    for policy in gate.policies.values():
        for scope, does in _scopes(policy):
            if problems := known.unknown_globs(scope):
                raise PolicyError(f"{does}: {problems[0]}{_REGISTER}")
            _refuse_slips(gate, scope, does)


def _scopes(policy: Policy) -> Iterator[tuple[Scope, str]]:
    """Yields each scope of a policy with what it fails to do where one of its names means nothing."""
    for rule in policy.rules:
        yield rule.where, f"{rule.source}: rule {rule.id} gates nothing there"
        if rule.unless:
            yield rule.unless, f"{rule.source}: rule {rule.id} excludes nothing there"
    for waiver in policy.waivers:
        yield waiver.where, f"{waiver.source}: waiver {waiver.id} covers nothing"


def _refuse_slips(gate: Gate, scope: Scope, does: str) -> None:
    """Looks whether a scope is meant for a model or a data set of the run that it misspells.

    Raises:
        PolicyError: it is. Other names that the run lacks may be about what it leaves out: policies are shared.
    """
    from pytest_vlmrobust.backends.resolve import names as shipped_models
    from pytest_vlmrobust.datasets import names as shipped_datasets
    from pytest_vlmrobust.policies import misspellings

    here = {"model": {*gate.models, *(one.model for one in gate.plan)}, "dataset": {one.dataset for one in gate.plan}}
    elsewhere = {"model": {*shipped_models()}, "dataset": {*shipped_datasets(), *gate.data.factories}}
    for misspelt in misspellings(scope, here):
        if misspelt.glob not in elsewhere[misspelt.field]:
            raise PolicyError(
                f"{does}: this run has no {misspelt.field} {misspelt.glob!r}. Did you mean {misspelt.name!r}? "
                "If it is another one, leave it out of the policy of this run"
            )


def _no_release_decision(name: str, policy: Policy) -> list[str]:
    """Returns what has to be said of a policy that asks for less than a release does."""
    from pytest_vlmrobust.policies import Extent, Judge, Tier

    blocking = [rule for rule in policy.rules if rule.treatment.tier is Tier.BLOCK]
    by_value = all(rule.treatment.judge is Judge.POINT for rule in blocking)
    if not by_value or policy.coverage.tests is Extent.WHOLE:
        return []
    said = f"the policy of {name} is a smoke test: it judges values and not intervals, and a selection of tests may be GO"
    return [f"{said}. A release needs another one, such as default"]


def _unmet_rules(gate: Gate) -> dict[str, str]:
    """Returns, by ``file:line``, why blocking rules on what was measured have no say; nothing while tests are lacking.

    Models that share a policy are looked at together: a rule may be about one of them.
    """
    from pytest_vlmrobust.policies import unmet_rules

    if not _is_complete(gate):
        return {}
    found = {}
    for policy, own in _by_policy(gate):
        unmet = unmet_rules(policy.rules, own, lambda: _categories(gate))
        found.update({one.rule.source: said for one in unmet if (said := one.shortfall(policy.coverage))})
    return found


def _by_policy(gate: Gate) -> Iterator[tuple[Policy, list[Record]]]:
    """Yields each policy with the records of all models that share it."""
    sharing: dict[str, list[str]] = {}
    for name, policy in gate.policies.items():
        sharing.setdefault(policy.sha256, []).append(name)
    for names in sharing.values():
        yield gate.policies[names[0]], [record for name in names for record in _own(gate, name)]


def _idle_summaries(gate: Gate) -> list[str]:
    """Returns what a run cannot be GO for, whatever its policy allows: none of the rules that see the whole met a test.

    That is asked of all rules on summary metrics together, and of those on visual gain, without which no other number counts.
    """
    from pytest_vlmrobust.evaluation.judge.scopes import is_summary, shows_looking
    from pytest_vlmrobust.policies import Extent, idle_summaries, idle_summaries_shortfall

    found = []
    for policy, own in _by_policy(gate):
        if not own or (policy.coverage.tests is Extent.WHOLE and not is_whole(gate)):
            continue  # nothing was measured, or tests were left out: that is said, with the tests that are lacking
        for about, counts in {"summary metrics": is_summary, "visual_gain": shows_looking}.items():
            if idle := idle_summaries(policy.rules, own, counts):
                found.append(idle_summaries_shortfall(idle, about))
                break
    return found


def _is_complete(gate: Gate) -> bool:
    """Whether all tests were to run, and did without an error: what a run lacks otherwise is said, and why."""
    from pytest_vlmrobust.core.verdict import Outcome

    failed = any(record.outcome is Outcome.ERROR for record in gate.records)
    return is_whole(gate) and not failed and len(gate.records) >= gate.selected


def _categories(gate: Gate) -> set[str]:
    """Returns the categories of the samples of the run's data sets."""
    from pytest_vlmrobust.datasets.files import DatasetWarning

    found = set()
    for name in dict.fromkeys(record.dataset for record in gate.records if record.dataset):
        with warnings.catch_warnings(), contextlib.suppress(VlmRobustError):  # the tests that needed it have said why
            warnings.simplefilter("ignore", DatasetWarning)  # the evaluation said the same when it read them
            found |= {sample.category for sample in gate.data.open(name).samples()}
    return found


def _ungated_data(gate: Gate, name: str, policy: Policy) -> list[str]:
    """Returns which data of a model nobody gates, where others are gated."""
    from pytest_vlmrobust.policies import ungated_data

    return [
        f"no blocking rule is about {dataset}, and others of {name} are gated: whatever it answers there, the run may be GO. "
        "Add a rule about it, or leave it out of --vlm-dataset"
        for dataset in ungated_data(policy.rules, _own(gate, name))
    ]


def _own(gate: Gate, name: str) -> list[Record]:
    """Returns the records that the policy of a model judged: its own, and those of a family of which it is the largest."""
    from pytest_vlmrobust.evaluation.judge.families import families

    judged = {name, *(family for family, members in families(gate.models).items() if members.largest == name)}
    return [record for record in gate.records if record.model in judged]


def _uses(gate: Gate, name: str, policy: Policy) -> tuple[WaiverUse, ...]:
    from pytest_vlmrobust.policies import waiver_report

    return waiver_report(policy, _own(gate, name), today=gate.today)


def _meaningless_waivers(gate: Gate, name: str, policy: Policy) -> list[WaiverUse]:
    """Returns the waivers that met no test of a whole run and cannot be about what the run leaves out."""
    return [use for use in _uses(gate, name, policy) if _is_meaningless(gate, use, policy)] if is_whole(gate) else []


def _is_meaningless(gate: Gate, use: WaiverUse, policy: Policy) -> bool:
    from pytest_vlmrobust.policies import Missed, suites_of

    named = policy.coverage.suites
    all_ran = bool(named) and set(named) <= suites_of(gate.records)
    return use.missed is Missed.CATEGORY or (use.missed is Missed.SETTING and all_ran)


def _lost_waivers(gate: Gate, name: str, policy: Policy) -> list[str]:
    from pytest_vlmrobust.policies import WaiverState

    unmatched = [use for use in _uses(gate, name, policy) if use.state is WaiverState.UNMATCHED]
    lost = [use.waiver.id for use in unmatched if not _is_meaningless(gate, use, policy)]
    if not lost:
        return []
    every = quantity(len(policy.waivers), "waiver")
    found = quantity(len(lost), f"of {every} speaks", f"of {every} speak")
    said = f"{found} about no test of {name} in this run: {', '.join(lost)}"
    return [f"{said}. They are about models, data or suites that it leaves out, or can go"]


def _relative_rules(gate: Gate, policy: Policy) -> list[Rule]:
    """Returns the rules that compare with an earlier run, where none was named."""
    from pytest_vlmrobust.evaluation.judge.scopes import is_relative

    if gate.settings.vlm_baseline:
        return []
    return [rule for rule in policy.rules if is_relative(rule)]


def _pictures_not_compared(gate: Gate) -> list[str]:
    """Returns that nobody knows whether the earlier run was about the same pictures, where it does not say."""
    asked = {record.dataset for record in gate.records}
    names = [name for name in gate.baseline.without_pictures if name in asked] if gate.baseline else []
    if not names:
        return []
    said = f"the baseline does not say which pictures of {', '.join(names)} it showed (an older release, or no clean cell)"
    return [f"{said}: whether they are the same was not compared. Run the earlier model again with this release to have it"]


def _without_baseline(rule: Rule) -> str:
    return (
        f"rule {rule.id} ({rule.source}) is not applicable: {rule.metric} compares with an earlier run, and no baseline was "
        "given. Name one with --vlm-baseline RUN"
        + (", or write on_not_applicable: warn to do without" if rule.blocks_where_not_applicable else "")
    )
