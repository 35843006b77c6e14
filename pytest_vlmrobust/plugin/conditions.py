"""Conditions: what policies ask of a run as a whole, what it lacks of that, and what it should say about its policies."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from pytest_vlmrobust.core.errors import PolicyError, VlmRobustError

if TYPE_CHECKING:
    from pytest_vlmrobust.core.record import Record
    from pytest_vlmrobust.policies import Policy, Rule, WaiverUse

    from .gate import Gate


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
    return list(dict.fromkeys(found))


def policy_warnings(gate: Gate) -> list[str]:
    """Returns what the run says about its policies and does not hold against it.

    That is waivers that can go, rules about things that do not exist or an earlier run that was not named, an earlier run that
    does not say what it showed, and (in a whole run) rules that met no test.
    """
    from pytest_vlmrobust.policies import WaiverState, unmatched_rules

    found = _pictures_not_compared(gate)
    for name, policy in gate.policies.items():
        found += [*_no_release_decision(name, policy), *_misspelt_rules(gate, policy)]
        uses = _uses(gate, name, policy)
        loud = {WaiverState.EXPIRED} | ({WaiverState.UNNEEDED} if is_whole(gate) else set())
        found += [str(use) for use in uses if use.state in loud]
        found += _lost_waivers(gate, name, policy) if is_whole(gate) else []
        relative = _relative_rules(gate, policy)
        found += [_without_baseline(rule) for rule in relative if not rule.blocks_where_not_applicable]
        idle = unmatched_rules(policy, _own(gate, name)) if is_whole(gate) else ()
        if others := [rule.id for rule in idle if rule not in relative]:
            found.append(f"{len(others)} of {len(policy.rules)} rules met no test of {name}: {', '.join(others)}")
    return list(dict.fromkeys(found))


def is_whole(gate: Gate) -> bool:
    """Whether all the gated tests that the collected files hold were to run."""
    return gate.planned == gate.selected and not gate.narrowed


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
    """Looks whether each waiver names things that exist, now that every file of the user's has been read.

    Raises:
        PolicyError: a waiver whose scope nothing can ever match.
    """
    waivers = [waiver for policy in gate.policies.values() for waiver in policy.waivers]
    if not waivers:
        return
    from pytest_vlmrobust.evaluation.known_names import KnownNames

    known = KnownNames.of(test for planned in gate.plan for test in gate.judged(planned))
    for waiver in waivers:
        if problems := known.unknown_globs(waiver.where):
            raise PolicyError(f"{waiver.source}: waiver {waiver.id} covers nothing: {problems[0]}")


def _no_release_decision(name: str, policy: Policy) -> list[str]:
    """Returns what has to be said of a policy that asks for less than a release does."""
    from pytest_vlmrobust.policies import Extent, Judge, Tier

    blocking = [rule for rule in policy.rules if rule.treatment.tier is Tier.BLOCK]
    by_value = all(rule.treatment.judge is Judge.POINT for rule in blocking)
    if not by_value or policy.coverage.tests is Extent.WHOLE:
        return []
    said = f"the policy of {name} is a smoke test: it judges values and not intervals, and a selection of tests may be GO"
    return [f"{said}. A release needs another one, such as default"]


def _misspelt_rules(gate: Gate, policy: Policy) -> list[str]:
    """Returns what has to be said of rules that gate nothing, because what they name does not exist."""
    from pytest_vlmrobust.evaluation.known_names import KnownNames
    from pytest_vlmrobust.policies import JudgedTest

    ran = (JudgedTest(one.model, one.dataset, "", one.setting, one.family, one.level) for one in gate.records)
    known = KnownNames.of(ran)
    return [
        f"{rule.source}: rule {rule.id} gates nothing there: {sentence}"
        for rule in policy.rules
        for scope in (rule.where, rule.unless)
        for sentence in (known.unknown_globs(scope) if scope else ())
    ]


def _own(gate: Gate, name: str) -> list[Record]:
    """Returns the records that the policy of a model judged: its own, and those of a family of which it is the largest."""
    from pytest_vlmrobust.evaluation.families import families

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
    said = f"{len(lost)} of {len(policy.waivers)} waivers speak about no test of {name} in this run: {', '.join(lost)}"
    return [f"{said}. They are about models, data or suites that it leaves out, or can go"]


def _relative_rules(gate: Gate, policy: Policy) -> list[Rule]:
    """Returns the rules that compare with an earlier run, where none was named."""
    from pytest_vlmrobust.evaluation.policy_files import is_relative

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
