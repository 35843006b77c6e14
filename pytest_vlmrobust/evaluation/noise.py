"""Noise beside thresholds: which rules of a policy an A/A comparison is about, and which of them it could break by itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from pytest_vlmrobust.core.comparison import Repeatability
from pytest_vlmrobust.core.record import Record
from pytest_vlmrobust.policies import JudgedTest, Rule

from .policy_lint import tighter_than_noise


def set_beside(about: Repeatability, rules: Iterable[Rule], records: Iterable[Record]) -> Repeatability:
    """Returns a comparison with what it says about rules; one that measured nothing is returned as it is.

    Args:
        about: answers that were asked for twice.
        rules: of a policy.
        records: of the run that the answers are from.
    """
    if not about.measured:
        return about
    compared = [rule for rule in rules_about(about, rules, records) if rule.metric in about.noise]
    tighter = tuple(map(str, tighter_than_noise(compared, about.noise)))
    return replace(about, beside=tuple(_beside(rule, about) for rule in compared), tighter=tighter)


def not_compared(found: Sequence[Repeatability], rules: Sequence[Rule], records: Sequence[Record]) -> list[str]:
    """Returns, a sentence for each reason, how many rules the comparisons of a run say nothing about."""
    known = list(dict.fromkeys(metric for about in found for metric in about.noise))
    if not known:
        return []
    met = {rule.id for about in found for rule in rules_about(about, rules, records)}
    apart = [rule.id for rule in rules if rule.metric in known and rule.id not in met]
    others = sum(rule.metric not in known for rule in rules)
    said = f"{', '.join(apart)}: not compared with that noise, as the run measured nothing on a whole data set that they bound"
    more = f"{others} of {len(rules)} rules are about other metrics than {', '.join(known)}, whose noise is not known"
    return [*([said] if apart else []), *([more] if others else [])]


def rules_about(about: Repeatability, rules: Iterable[Rule], records: Iterable[Record]) -> list[Rule]:
    """Returns the rules that bound what was measured for a model on a whole data set.

    The noise on a category, which has fewer samples, is another one and not known: rules about categories are left out.
    """
    tests = [
        JudgedTest(one.model, one.dataset, measure.metric, one.setting or one.split, one.family, one.level)
        for one in records
        if (one.model, one.dataset) == (about.model, about.dataset)
        for measure in one.measures
        if not measure.category
    ]
    return [rule for rule in rules if any(rule.applies(test) for test in tests)]


def _beside(rule: Rule, about: Repeatability) -> str:
    measured, most = about.noise[rule.metric], about.noise_high[rule.metric]
    return f"rule {rule.id}: {rule.metric} bounded by {rule.bound}, noise {measured:.3f} (at most {most:.3f})"
