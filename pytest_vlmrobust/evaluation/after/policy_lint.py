"""Lint: parts of a valid policy that are probably mistakes, such as rules that gate nothing and unneeded waivers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import date, timedelta
from itertools import combinations

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.cell import CLEAN_NAME
from pytest_vlmrobust.core.words import number
from pytest_vlmrobust.evaluation.judge.context import OBSERVATORY
from pytest_vlmrobust.evaluation.judge.loopholes import Finding, loopholes
from pytest_vlmrobust.evaluation.judge.scopes import (
    ANY,
    KnownNames,
    could_need,
    idle_cap,
    is_about_originals,
    is_listed,
    is_relative,
    known_tests,
    meets,
    shipped_tests,
    shows_looking,
)
from pytest_vlmrobust.evaluation.power.sample_size import sentences, undecidable
from pytest_vlmrobust.policies import MetricKey, Policy, Rule, Scope, Tier, Waiver
from pytest_vlmrobust.policies.budgets import BUILT_IN

SOON = timedelta(days=30)
"""How long before its last day a waiver is reported."""


def lint(
    policy: Policy,
    *,
    today: date,
    samples: int | None = None,
    images: int | None = None,
    options: float | None = None,
    clean: float | None = None,
) -> list[Finding]:
    """Returns the probable mistakes in a policy, including the :func:`loopholes` that a gate refuses or warns about.

    With ``samples`` questions in a dataset of the run, about ``images`` images or each about its own, also the rules that these
    hardly decide. With the number of ``options`` per question, 2 for yes/no and infinite for open ones, and the accuracy on
    ``clean`` images, also the rules that no outcome could break there.
    """
    known = KnownNames.of()
    at_hand = metrics.Circumstances(options=options, clean=clean)
    findings = [finding for rule in policy.rules for finding in _unmet(rule, known)]
    findings += loopholes(policy, today=today, at_hand=at_hand)
    findings += idle_rules(policy.rules)
    findings += [
        Finding(change.source, f"{change}. Check whether that is intended")
        for change in policy.replaced
        if not change.only_tightens
    ]
    findings += [finding for waiver in policy.waivers for finding in _waiver(waiver, policy.rules, known, today)]
    return findings + (too_tight_for(policy, samples, today, images) if samples else [])


def lacks_basics(policy: Policy) -> list[Finding]:
    """Returns a finding each if no rule on all data checks that a model looks at the images, or clean accuracy, or none changes.

    A policy may cover only named models, if all its blocking rules name the same ones: no other model is GO by it. One whose
    blocking rules all compare with an earlier run, such as ``parity``, does not judge how good a model is and needs neither.
    """
    blocking = [rule for rule in policy.rules if rule.treatment.tier is Tier.BLOCK]
    if blocking and all(map(is_relative, blocking)):
        return []
    models = {rule.where.model for rule in blocking}
    everywhere = [
        rule
        for rule in blocking
        if not (rule.where.dataset or rule.where.category or rule.unless) and (not rule.where.model or len(models) == 1)
    ]
    source = policy.files[-1].name if policy.files else BUILT_IN
    gaps = []
    if not any(shows_looking(rule) or (_is_of_tasks(rule) and rule.blocks_where_not_applicable) for rule in everywhere):
        text = "no blocking rule on all data asks for visual_gain: a model that answers without looking may be GO"
        gaps.append(f"{text}. Add {{metric: visual_gain, min: 7pp}} without a where, or a bound of your own")
    if not any(_is_about_clean(rule) for rule in everywhere):
        text = (
            "no blocking rule on all data asks for clean accuracy: a model that is wrong everywhere loses nothing, and may be GO"
        )
        gaps.append(f"{text}. Add {{metric: accuracy_above_chance, min: 5pp}} without a where, or a bound of your own")
    if all(map(is_about_originals, blocking)):
        text = "no blocking rule is about changed images: a model that loses everything under some setting may be GO"
        gaps.append(f"{text}. Add {{metric: worst_case_drop, max: 40pp}}, or a bound of your own")
    return [Finding(source, sentence) for sentence in gaps] if blocking else []


def _is_of_tasks(rule: Rule) -> bool:
    """Whether a rule bounds an Observatory metric, which is not applicable unless the model is shown to do the task."""
    return rule.metric in metrics.names(suite=OBSERVATORY) and metrics.get(rule.metric).suite == OBSERVATORY


def _is_about_clean(rule: Rule) -> bool:
    """Whether a rule requires accuracy on clean images, or over all image sizes."""
    if rule.metric in {"accuracy", "identity_accuracy"}:
        return any(Scope(setting=(glob,)).admits("setting", CLEAN_NAME) for glob in rule.where.setting or ("*",))
    return rule.metric in {"clean_accuracy", "accuracy_above_chance", "resolution_accuracy"}


def idle_rules(rules: Iterable[Rule]) -> list[Finding]:
    """Returns the rules that never decide, because another rule with the same scope and treatment is at least as tight."""
    findings = []
    for first, second in combinations(rules, 2):
        if (first.metric, first.where, first.unless, first.treatment) != (
            second.metric,
            second.where,
            second.unless,
            second.treatment,
        ):
            continue
        for looser, tighter in ((first, second), (second, first)):
            if looser.bound.holds(tighter.bound):
                never = f"rule {looser.id} ({looser.metric} {looser.bound.condition}) never decides"
                text = f"{never}: rule {tighter.id} ({tighter.source})"
                findings.append(Finding(looser.source, f"{text} asks as much or more of the same tests. Remove one of them"))
                break
    return findings


def too_tight_for(policy: Policy, samples: int, today: date, images: int | None = None) -> list[Finding]:
    """Returns the rules that this number of questions, about as many images unless given, hardly decides, on any dataset."""
    tests = sorted(shipped_tests(), key=str)
    questions = dict.fromkeys((test.dataset for test in tests), samples)
    sizes = dict.fromkeys(questions, images or samples)
    anywhere = replace(policy, rules=tuple(_anywhere(rule, tests) for rule in policy.rules))
    few = undecidable(anywhere, tests, sizes, today=today, questions=questions)
    named = [replace(too_few, dataset=too_few.dataset.removeprefix(ANY).removeprefix(".")) for too_few in few]
    return [Finding(source, sentence) for source, sentence in sentences(named)]


def tighter_than_noise(rules: Iterable[Rule], noise: Mapping[str, float]) -> list[Finding]:
    """Returns the rules that a model could break by answering the same samples twice.

    Considers only metrics with a known value if nothing changed, such as drops, for which it is 0. ``noise`` is by metric the
    change of its value between two such runs, in its own unit.
    """
    findings = []
    for rule in rules:
        unchanged = metrics.get(rule.metric).unchanged if rule.metric in metrics.names() else None
        change = noise.get(rule.metric)
        if unchanged is None or change is None or all(rule.bound.admits(unchanged + side * change) for side in (-1, 1)):
            continue
        measured = number(change, rule.bound.unit)
        text = f"rule {rule.id} ({rule.metric} {rule.bound.condition}) is tighter than the noise of {measured} that was measured"
        findings.append(
            Finding(rule.source, f"{text}: the same model may break it by chance. Loosen it, or make inference repeatable")
        )
    return findings


def _unmet(rule: Rule, known: KnownNames) -> Iterator[Finding]:
    unknown = [*known.unknown_globs(rule.where), *(known.unknown_globs(rule.unless) if rule.unless else ())]
    yield from (Finding(rule.source, f"rule {rule.id}: {sentence} A gate refuses it") for sentence in unknown)
    measured = [test for test in known_tests() if test.metric == rule.metric]
    if unknown:
        return
    if not measured:
        if rule.metric in metrics.names(scope="sweep"):
            text = f"no shipped suite measures {rule.metric}: name it in vlm_metrics of a suite of your own"
            yield Finding(rule.source, f"rule {rule.id} meets no test: {text}")
    elif not any(meets(rule.where, rule.unless, test) for test in measured) and is_listed(rule.where):
        text = f"{rule.metric} is measured nowhere that its scope admits. See vlmrobust explain {rule.metric}"
        yield Finding(rule.source, f"rule {rule.id} meets no test: {text}")


def _waiver(waiver: Waiver, rules: Iterable[Rule], known: KnownNames, today: date) -> Iterator[Finding]:
    named = f"waiver {waiver.id} of {waiver.owner}"
    yield from (
        Finding(waiver.source, f"{named}: {sentence} A gate refuses it") for sentence in known.unknown_globs(waiver.where)
    )
    if waiver.is_expired(today):
        yield Finding(waiver.source, f"{named} expired on {waiver.expires}, so that breaches fail again: renew or remove it")
    elif waiver.expires - today <= SOON:
        days = (waiver.expires - today).days
        yield Finding(waiver.source, f"{named} expires on {waiver.expires}, in {days} days: fix what it covers, or renew it")
    if idle := idle_cap(waiver, rules):
        yield Finding(waiver.source, idle, refused=True)
    if not any(could_need(rule, waiver) for rule in rules):
        yield Finding(waiver.source, f"{named} covers nothing: no rule that blocks is about {waiver.metric} there. Remove it")


def _anywhere(rule: Rule, tests: Iterable[MetricKey]) -> Rule:
    """Returns a rule for every model, and for all data unless it is about tasks, whose names are the same in every collection."""
    unless = rule.unless if rule.unless and not (rule.unless.model or rule.unless.dataset) else None
    of_tasks = replace(rule, where=replace(rule.where, model=()), unless=unless)
    return of_tasks if any(map(of_tasks.bounds, tests)) else replace(of_tasks, where=replace(of_tasks.where, dataset=()))
