"""One rule against one estimate: what is concluded, and the sentence that says why."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import date

from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.core.verdict import Outcome, Verdict

from .bound import Bound, decimals_needed
from .rules import Judge, OnInconclusive, OnNotApplicable, Rule, Tier, Waiver

WARNING = "warning: "
"""How the reason of a verdict begins that speaks up and does not block."""


def judge_rule(rule: Rule, estimate: Estimate, waivers: Iterable[Waiver], today: date) -> Verdict:
    """Returns the verdict of one rule that applies; ``waivers`` are those that speak about the same test.

    A value that is not finite, rests on no sample, or lacks the interval that the rule asks for never passes. Only a breach
    can be waived: what is undecided stays undecided.
    """
    outcome, reason = _assess(rule, estimate)
    if _only_warns(rule, outcome):
        return _verdict(rule, Outcome.MEASURED, reason if outcome is Outcome.PASS else WARNING + reason)
    if outcome is Outcome.FAIL:
        return _waive(rule, estimate, reason, waivers, today)
    return _verdict(rule, outcome, reason)


def _verdict(rule: Rule, outcome: Outcome, reason: str, waiver: str = "") -> Verdict:
    return Verdict(outcome, reason, rule.metric, rule.id, rule.source, str(rule.bound), waiver)


def _only_warns(rule: Rule, outcome: Outcome) -> bool:
    treatment = rule.treatment
    return (
        treatment.tier is Tier.WARN
        or (outcome is Outcome.INCONCLUSIVE and treatment.on_inconclusive is OnInconclusive.WARN)
        or (outcome is Outcome.NOT_APPLICABLE and treatment.on_not_applicable is OnNotApplicable.WARN)
    )


def _assess(rule: Rule, estimate: Estimate) -> tuple[Outcome, str]:
    if not estimate.valid:
        return Outcome.NOT_APPLICABLE, f"{rule.metric} does not apply: {estimate.reason or 'no reason given'} {_cite(rule)}"
    missing = _missing(rule, estimate)
    if missing:
        because = f": {estimate.reason}" if estimate.reason else ""
        return Outcome.INCONCLUSIVE, f"{rule.metric} {missing}{because} {_cite(rule)}"
    outcome = (
        _compare_point(rule.bound, estimate) if rule.treatment.judge is Judge.POINT else _compare_interval(rule.bound, estimate)
    )
    return outcome, f"{rule.metric} {_comparison(rule, estimate, outcome)} {_cite(rule)}"


def _missing(rule: Rule, estimate: Estimate) -> str:
    """Returns what the estimate lacks for this rule to be judged, or an empty string."""
    if estimate.n <= 0:
        return "rests on no sample"
    if not estimate.finite:
        return "is undefined"
    if rule.treatment.judge is Judge.POINT:
        return ""
    if math.isnan(estimate.low) or math.isnan(estimate.high):
        return f"{estimate.value:.3f} has no interval, and the rule judges the interval"
    return f"has the impossible interval [{estimate.low:g}, {estimate.high:g}]" if estimate.low > estimate.high else ""


def _compare_point(bound: Bound, estimate: Estimate) -> Outcome:
    return Outcome.PASS if bound.admits(estimate.value) else Outcome.FAIL


def _compare_interval(bound: Bound, estimate: Estimate) -> Outcome:
    if bound.admits(estimate.low) and bound.admits(estimate.high):
        return Outcome.PASS
    if bound.exceeded(estimate.low) or bound.undercut(estimate.high):
        return Outcome.FAIL
    return Outcome.INCONCLUSIVE


def _comparison(rule: Rule, estimate: Estimate, outcome: Outcome) -> str:
    """Returns ``0.124 > 0.050``, or with ``judge: interval`` ``0.124 [0.091, 0.156] > 0.050``."""
    decisive = _decisive(rule, estimate)
    digits = decimals_needed(decisive, *rule.bound.ends)
    measured = f"{estimate.value:.{digits}f}"
    if rule.treatment.judge is Judge.INTERVAL:
        measured += f" [{estimate.low:.{digits}f}, {estimate.high:.{digits}f}]"
    if outcome is Outcome.FAIL:
        return f"{measured} {'>' if rule.bound.exceeded(decisive) else '<'} {rule.bound.nearest_end(decisive):.{digits}f}"
    doubt = "does not decide " if outcome is Outcome.INCONCLUSIVE else ""
    return f"{measured} {doubt}{_inequality(rule.bound, digits)}"


def _decisive(rule: Rule, estimate: Estimate) -> float:
    """Returns the number that breaks the bound if any does: the value, or the interval's end nearest to the bound."""
    if rule.treatment.judge is Judge.POINT:
        return estimate.value
    return estimate.low if rule.bound.exceeded(estimate.low) else estimate.high


def _inequality(bound: Bound, digits: int) -> str:
    if math.isinf(bound.low):
        return f"<= {bound.high:.{digits}f}"
    if math.isinf(bound.high):
        return f">= {bound.low:.{digits}f}"
    return f"in [{bound.low:.{digits}f}, {bound.high:.{digits}f}]"


def _cite(rule: Rule) -> str:
    return f"(rule {rule.id}, {rule.source})"


def _waive(rule: Rule, estimate: Estimate, reason: str, waivers: Iterable[Waiver], today: date) -> Verdict:
    refused = []
    for waiver in waivers:
        why_not = _why_not_waived(waiver, rule.bound, estimate.value, today)
        if not why_not:
            text = f"{reason}; waived by {_signature(waiver)}: {waiver.reason}"
            return _verdict(rule, Outcome.WAIVED, text, waiver.id)
        refused.append(f"; waiver {waiver.id} of {waiver.owner} {why_not} ({waiver.source})")
    return _verdict(rule, Outcome.FAIL, reason + "".join(refused))


def _signature(waiver: Waiver) -> str:
    ticket = f", {waiver.ticket}" if waiver.ticket else ""
    return f"{waiver.id} (owner {waiver.owner}{ticket}, until {waiver.expires.isoformat()})"


def _why_not_waived(waiver: Waiver, bound: Bound, value: float, today: date) -> str:
    if waiver.expired(today):
        return f"expired on {waiver.expires.isoformat()}"
    capped = Bound(low=waiver.cap) if bound.nearest_end(value) == bound.low else Bound(high=waiver.cap)
    if capped.admits(value):
        return ""
    digits = decimals_needed(value, waiver.cap)
    return f"covers it only up to {waiver.cap:.{digits}f}, and it is {value:.{digits}f}"
