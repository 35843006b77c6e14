"""Judging an estimate by a rule: the outcome, the sentence that explains it, and how many samples would decide."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import date
from typing import NamedTuple

from pytest_vlmrobust.core.decision import NOT_SHOWN, WARNING, NotShown, Outcome, Verdict
from pytest_vlmrobust.core.estimate import ROUNDING, Estimate
from pytest_vlmrobust.core.words import interval, number, question_count
from pytest_vlmrobust.policies.rules import (
    Bound,
    JudgedBy,
    Multiplicity,
    OnInconclusive,
    OnNotApplicable,
    Rule,
    Tier,
    Waiver,
    decimals_needed,
)


@dataclass(frozen=True, slots=True)
class JudgedEstimate:
    """An estimate with the two intervals that a rule compares with its bound: ``passing`` for PASS, ``failing`` for FAIL.

    An interval contains its value, so one of the two decides; the other is computed only for display.
    """

    rule: Rule
    estimate: Estimate
    tests: int
    category: str = ""
    """The stratum that the estimate is about; empty for the whole dataset."""

    @classmethod
    def of(cls, rule: Rule, estimate: Estimate, tests: int, category: str = "") -> JudgedEstimate:
        """Returns an estimate for a rule that ``tests`` tests of the run share."""
        treatment = rule.treatment
        shares = treatment.judge is JudgedBy.INTERVAL and treatment.multiplicity is Multiplicity.BONFERRONI
        return cls(rule, estimate, tests if shares else 1, category)

    @property
    def passing(self) -> tuple[float, float]:
        """The interval that must keep the bound for PASS."""
        return self._interval(self.rule.treatment.alpha_pass)

    @property
    def failing(self) -> tuple[float, float]:
        """The interval that must lie beyond the bound for FAIL."""
        return self._interval(_risk_of_failing(self.rule, self.tests))

    @property
    def decisive(self) -> tuple[float, float]:
        """The deciding interval."""
        return self.passing if self._inside else self.failing

    @property
    def called(self) -> str:
        """The metric for a reader, with the category that it is about."""
        return f"{self.rule.metric} ({self.category})" if self.category else self.rule.metric

    @property
    def outcome(self) -> Outcome:
        """The outcome, if nothing is missing."""
        if self._inside:
            return Outcome.PASS if all(map(self.rule.bound.admits, self.passing)) else Outcome.INCONCLUSIVE
        return Outcome.FAIL if self._beyond(self.failing) else Outcome.INCONCLUSIVE

    @property
    def telling(self) -> tuple[tuple[float, float], str]:
        """The interval that explains the outcome, and its risk: that for FAIL also if only it leaves the bound undecided."""
        if self._inside or not (self._beyond(self.passing) or self._beyond(self.failing)):
            return self.passing, ""
        return self.failing, f", risk split over {self.tests} tests" if self.tests > 1 else ""

    @property
    def _inside(self) -> bool:
        return self.rule.bound.admits(self.estimate.value)

    def _interval(self, risk: float) -> tuple[float, float]:
        if self.rule.treatment.judge is JudgedBy.POINT:
            return self.estimate.value, self.estimate.value
        return self.estimate.interval(1.0 - 2.0 * risk)

    def _beyond(self, interval: tuple[float, float]) -> bool:
        return self.rule.bound.is_exceeded_by(interval[0]) or self.rule.bound.is_undercut_by(interval[1])


def _risk_of_failing(rule: Rule, tests: int) -> float:
    """Returns the one-sided risk of FAIL for each of ``tests`` tests; a range has two ends."""
    return rule.treatment.alpha_fail / (len(rule.bound.ends) * tests)


def judge_rule(
    rule: Rule, estimate: Estimate, waivers: Iterable[Waiver], today: date, tests: int = 1, *, category: str = ""
) -> Verdict:
    """Returns the verdict of a rule that applies; ``waivers`` are those for the same test.

    ``tests`` is the number of tests of the run that share the rule, and ``category`` the stratum of the estimate. A value that is
    not finite, has no samples, or lacks the interval that the rule needs never passes and cannot be waived. A measured value that
    breaks the bound, or does not decide it, is waived if its interval for PASS keeps a cap.
    """
    judged = JudgedEstimate.of(rule, estimate, tests, category)
    outcome, reason, measured = _assess(judged)
    if rule.treatment.tier is Tier.WARN:
        return _verdict(rule, Outcome.MEASURED, reason if outcome is Outcome.PASS else WARNING + reason, judged)
    verdict = _verdict(rule, outcome, reason, judged if measured else None)
    if outcome is Outcome.INCONCLUSIVE and measured:
        needed = _samples_needed(judged)
        verdict = replace(
            verdict,
            reason=f"{reason}; {_samples_in_words(needed, estimate)}",
            samples_needed=needed.most,
            samples_needed_least=needed.least,
        )
    if _only_warns(rule, outcome):
        return _not_shown(rule, verdict)
    if outcome is Outcome.FAIL or (outcome is Outcome.INCONCLUSIVE and measured):
        return _waive(judged, verdict, waivers, today)
    return verdict


def _not_shown(rule: Rule, verdict: Verdict) -> Verdict:
    """Returns MEASURED for a blocking rule that lets an undecided verdict pass, with the details."""
    open_rule = NotShown(
        rule=rule.id,
        outcome=verdict.outcome,
        bound=rule.bound.condition,
        reason=verdict.reason,
        source=rule.source,
        low=verdict.low,
        high=verdict.high,
        beyond=_share_beyond(rule.bound, verdict.low, verdict.high),
        samples_needed=verdict.samples_needed,
        samples_needed_least=verdict.samples_needed_least,
    )
    reason = NOT_SHOWN + verdict.reason
    return replace(_verdict(rule, Outcome.MEASURED, reason), low=verdict.low, high=verdict.high, not_shown=open_rule)


def _share_beyond(bound: Bound, low: float, high: float) -> float:
    """Returns the share of an interval that lies beyond a bound; NaN without an interval."""
    inside = min(high, bound.high) - max(low, bound.low)
    return 1.0 - max(0.0, inside) / (high - low) if high > low else math.nan


def outcome_of(rule: Rule, estimate: Estimate, waivers: Iterable[Waiver], today: date, tests: int = 1) -> Outcome:
    """Returns the outcome of :func:`judge_rule` without its sentence, much faster."""
    judged = JudgedEstimate.of(rule, estimate, tests)
    outcome, _, measured = _assess(judged)
    if _only_warns(rule, outcome):
        return Outcome.MEASURED
    waivable = outcome is Outcome.FAIL or (outcome is Outcome.INCONCLUSIVE and measured)
    holding = [waiver for waiver in waivers if waivable and not _why_not_waived(waiver, judged, today)]
    if any(waiver.latest is None for waiver in holding):
        return Outcome.WAIVED
    return Outcome.INCONCLUSIVE if holding else outcome


# Tests that stop early: the verdict of part of the samples, at part of the declared risk.


def verdict_of_part(
    rule: Rule,
    estimate: Estimate,
    waivers: Iterable[Waiver],
    today: date,
    tests: int,
    *,
    share: float,
    progress: str,
    category: str = "",
) -> Verdict | None:
    """Returns the verdict that the answers so far decide, or ``None`` if more answers may change it.

    The interval is judged even if the rule judges values: the samples so far are a random part of the dataset, so its
    value lies in an interval for the population at least as surely as the population value does.

    Once the bound is shown to be broken, the cap of a waiver is judged. ``tests`` is the number of tests of the
    run that share the rule, ``share`` the part of its risks for this look, and ``progress`` the number of answers for the
    reason: ``24 of 128 answers``. An empty category is the whole dataset.
    """
    treatment = rule.treatment
    spent = replace(
        treatment, judge=JudgedBy.INTERVAL, alpha_pass=treatment.alpha_pass * share, alpha_fail=treatment.alpha_fail * share
    )

    def within(bound: Bound) -> Outcome:
        judged = JudgedEstimate.of(replace(rule, bound=bound, treatment=spent), estimate, tests)
        return judged.outcome if estimate.valid and not _missing(judged) else Outcome.INCONCLUSIVE

    because = f"shown by {progress}, {number(estimate.value, rule.bound.unit)} in them"
    return early_verdict(rule, within, waivers, today, because, category=category)


def early_verdict(
    rule: Rule,
    within: Callable[[Bound], Outcome],
    waivers: Iterable[Waiver],
    today: date,
    because: str,
    *,
    category: str = "",
) -> Verdict | None:
    """Returns the verdict from what is shown about the bound of a rule and the caps of waivers.

    ``within`` says whether a bound is shown to be kept or broken, and ``because`` why. Expired waivers are ignored.
    An empty category is the whole dataset.
    """
    called = f"{rule.metric} ({category})" if category else rule.metric
    kept = within(rule.bound)
    if kept is Outcome.PASS:
        outcome = Outcome.MEASURED if rule.treatment.tier is Tier.WARN else Outcome.PASS
        return _verdict(rule, outcome, f"{called} {rule.bound.condition}: {because} {_cite(rule)}")
    if kept is Outcome.INCONCLUSIVE:  # all answers may still keep the bound, and then no waiver is needed
        return None
    if rule.treatment.tier is Tier.WARN:
        reason = f"{WARNING}{called} is not {rule.bound.condition}: {because} {_cite(rule)}"
        return _verdict(rule, Outcome.MEASURED, reason)
    caps = [(waiver, waiver.bound_of(rule.bound)) for waiver in _certain_first(waivers) if not waiver.is_expired(today)]
    shown = [within(cap) for _, cap in caps]
    if Outcome.PASS in shown:
        waiver, cap = caps[shown.index(Outcome.PASS)]
        reason = f"{called} is not {rule.bound.condition}, but {cap.condition}: {because} {_cite(rule)}"
        return _waived(_verdict(rule, Outcome.FAIL, reason), waiver)
    if Outcome.INCONCLUSIVE in shown:
        return None
    beyond = " nor within the cap of a waiver" if caps else ""
    return _verdict(rule, Outcome.FAIL, f"{called} is not {rule.bound.condition}{beyond}: {because} {_cite(rule)}")


def undecided(rule: Rule) -> Verdict:
    """Returns the verdict of a rule on a test that stopped for another reason before it was decided."""
    reason = f"{rule.metric} was not judged: the test stopped before that {_cite(rule)}"
    if rule.treatment.tier is Tier.WARN:
        return _verdict(rule, Outcome.MEASURED, reason)
    verdict = _verdict(rule, Outcome.INCONCLUSIVE, reason)
    return _not_shown(rule, verdict) if _only_warns(rule, Outcome.INCONCLUSIVE) else verdict


def _verdict(rule: Rule, outcome: Outcome, reason: str, judged: JudgedEstimate | None = None) -> Verdict:
    judge = rule.treatment.judge
    compared = judged is not None and judge is JudgedBy.INTERVAL
    low, high = judged.telling[0] if judged and compared else (math.nan, math.nan)
    about = rule.metric, rule.id, rule.source, rule.bound.condition, rule.bound.unit, rule.bound.ends
    return Verdict(outcome, reason, *about, target=judge.target, low=low, high=high)


def _only_warns(rule: Rule, outcome: Outcome) -> bool:
    treatment = rule.treatment
    return (
        treatment.tier is Tier.WARN
        or (outcome is Outcome.INCONCLUSIVE and treatment.on_inconclusive is OnInconclusive.WARN)
        or (outcome is Outcome.NOT_APPLICABLE and treatment.on_not_applicable is OnNotApplicable.WARN)
    )


def _assess(judged: JudgedEstimate) -> tuple[Outcome, str, bool]:
    """Returns the outcome, its reason, and whether there was a measurement."""
    rule, estimate = judged.rule, judged.estimate
    if not estimate.valid:
        why = estimate.reason or "no reason given"
        return Outcome.NOT_APPLICABLE, f"{judged.called} does not apply: {why} {_cite(rule)}", False
    missing = _missing(judged)
    if missing:
        because = f": {estimate.reason}" if estimate.reason else ""
        return Outcome.INCONCLUSIVE, f"{judged.called} {missing}{because} {_cite(rule)}", False
    return judged.outcome, f"{judged.called} {_comparison(judged)} {_cite(rule)}", True


def _missing(judged: JudgedEstimate) -> str:
    """Returns what the estimate lacks for this rule, or an empty text."""
    estimate = judged.estimate
    if estimate.n <= 0:
        return "rests on no sample"
    if not estimate.finite:
        return "is undefined"
    low, high = judged.decisive
    if math.isnan(low) or math.isnan(high):
        need = "and the rule judges the interval: more samples, or judge: point to judge the value"
        return f"{number(estimate.value, judged.rule.bound.unit)} has no interval, {need}"
    return f"has the impossible interval [{low:g}, {high:g}]" if low > high else ""


def _comparison(judged: JudgedEstimate) -> str:
    """Returns ``12.4 pp > 5 pp``, or with ``judge: interval`` ``12.4 pp [9.1, 15.6] > 5 pp``."""
    bound, outcome = judged.rule.bound, judged.outcome
    (low, high), among = judged.telling
    decisive = low if bound.is_exceeded_by(low) else high
    digits = decimals_needed(decisive, *bound.ends)
    measured = bound.shown(judged.estimate.value, digits)
    if judged.rule.treatment.judge is JudgedBy.INTERVAL:
        measured += f" {interval(low, high, bound.unit, bound.decimals(digits))}"
    if outcome is Outcome.FAIL:
        return f"{measured} {bound.missed(decisive, digits)}{among}"
    doubt = ", too few questions to tell if" if outcome is Outcome.INCONCLUSIVE else ""
    return f"{measured}{doubt} {bound.asks(digits)}{among}"


_HARDLY_HELPS = 20
"""Data so many times as large, and larger than the next number, are hardly collected to decide one bound."""
_HARDLY_FOUND = 10_000


def _samples_in_words(needed: SamplesNeeded, estimate: Estimate) -> str:
    """Returns ``about 900 questions would decide it if this value is the true one``: in nine of ten cases."""
    if needed.most is None:
        return f"questions needed: {needed.reason}"
    images = _rounded_up(-(-needed.most * estimate.groups // estimate.n))
    would = f"about {question_count(_rounded_up(needed.most), images)} would decide it if this value is the true one"
    if needed.most <= max(_HARDLY_HELPS * estimate.n, _HARDLY_FOUND):
        return would
    return f"{would}: it lies almost on the bound, so more questions hardly help. Improve the model, or change the bound"


def _rounded_up(count: int) -> int:
    """Returns a number rounded up to two digits, because one value does not give more precision."""
    unit: int = 10 ** max(len(str(count)) - 2, 0)
    return -(-count // unit) * unit


def _samples_needed(judged: JudgedEstimate) -> SamplesNeeded:
    """Returns about how many samples would make this value pass, or fail if it is beyond the bound."""
    rule, estimate = judged.rule, judged.estimate
    inside = rule.bound.admits(estimate.value)
    low, high = judged.passing if inside else judged.failing
    risk = rule.treatment.alpha_pass if inside else _risk_of_failing(rule, judged.tests)
    seen = replace(estimate, low=low, high=high, confidence=1.0 - 2.0 * risk)
    return samples_to_decide(seen, *rule.bound.ends)


def _cite(rule: Rule) -> str:
    return f"(rule {rule.id}, {rule.source})"


def _waive(judged: JudgedEstimate, verdict: Verdict, waivers: Iterable[Waiver], today: date) -> Verdict:
    """Returns the verdict of a bound that is not shown to be kept, or WAIVED if a waiver holds."""
    refused = []
    for waiver in _certain_first(waivers):
        why_not = _why_not_waived(waiver, judged, today)
        if not why_not:
            return _waived(verdict, waiver)
        refused.append(f"; waiver {waiver.id} of {waiver.owner} {why_not} ({waiver.source})")
    return replace(verdict, reason=verdict.reason + "".join(refused))


def _certain_first(waivers: Iterable[Waiver]) -> list[Waiver]:
    """Returns waivers that certainly hold before those that may have expired."""
    return sorted(waivers, key=lambda waiver: waiver.latest is not None)


def _waived(verdict: Verdict, waiver: Waiver) -> Verdict:
    """Returns WAIVED with the facts about the bound, or INCONCLUSIVE if the waiver may have expired."""
    state = "broken" if verdict.outcome is Outcome.FAIL else "undecided with all samples"
    ticket = f", {waiver.ticket}" if waiver.ticket else ""
    signature = f"{waiver.id} (owner {waiver.owner}{ticket}, until {waiver.expires.isoformat()})"
    if waiver.latest is not None:
        unknown = f"it is not known whether {signature} still holds: the clock of the run is behind {waiver.latest.isoformat()}"
        return replace(verdict, outcome=Outcome.INCONCLUSIVE, reason=f"the bound is {state}: {verdict.reason}; {unknown}")
    reason = f"the bound is {state}: {verdict.reason}; waived by {signature}: {waiver.reason}"
    return replace(verdict, outcome=Outcome.WAIVED, reason=reason, waiver=waiver.id)


def _why_not_waived(waiver: Waiver, judged: JudgedEstimate, today: date) -> str:
    """Returns why a waiver does not hold; empty if the interval, or the judged value, keeps its cap."""
    if waiver.is_expired(today):
        return f"expired on {waiver.expires.isoformat()}"
    cap = waiver.bound_of(judged.rule.bound)
    beyond = [end for end in judged.passing if not cap.admits(end)]
    if not beyond:
        return ""
    by_value = judged.rule.treatment.judge is JudgedBy.POINT
    limit = cap.nearest_end(beyond[0])
    digits = decimals_needed(beyond[0], limit)
    claim = "it is" if by_value else "its interval reaches"
    return f"covers it only up to {cap.written(limit, digits)}, and {claim} {cap.shown(beyond[0], digits)}"


class SamplesNeeded(NamedTuple):
    """How many samples in total would decide a bound; both counts are None if unknown, and ``reason`` says why."""

    least: int | None
    """Samples that decide the bound in half of all cases, if the measured value is the true one."""
    most: int | None
    """Samples that decide it in nine of ten cases."""
    reason: str = ""


EVEN, NEARLY_SURE = 0.5, 0.9
"""How probably the two counts of samples decide."""
PRACTICAL = 1_000_000
"""The largest practical number of samples."""


def samples_to_decide(estimate: Estimate, *ends: float) -> SamplesNeeded:
    """Returns about how many samples move the interval away from the ends of a bound, if the measured value is the true one.

    With the scores available, its ends at several levels show how the interval shrinks: with z the normal quantile of
    one tail, the distance from the value to the end is about ``a + b z + c z^2``. The part in z is chance: it shrinks
    with the square root of the sample size. The constant part, such as the extra sample of a guarded mean, and the part
    in z^2, such as the bound of an event that never occurred, shrink with the sample size itself. The part in z^2 is
    negative at the end towards rarer events, such as the lower end of a small share. A sample size decides with a given
    probability when that distance plus ``z_power`` standard errors of the value fit between the value and the bound.
    Without scores all of it counts as chance: ``n * ((z + z_power) / z)^2 * (half-width / distance to the bound)^2``, the usual
    calculation for means. For the largest drop the counts are a little low, because the largest of noisy drops is too high.
    Inside two ends the interval must keep both, outside only leave the nearer end; ends are finite and ascend. The counts decide
    with probability .5 and .9, and are at least ``estimate.n``. They are None with a reason without a finite value, interval or
    sample, for a share of settings, and for a value so near the bound that more than a million samples are needed.

    >>> samples_to_decide(Estimate(0.03, 869, 0.015, 0.055, 0.90), 0.05)[:2]
    (1358, 4298)
    """
    if not ends or not all(map(math.isfinite, ends)):
        raise ValueError(f"the ends of the bound are {ends}: expected at least one, each a finite number")
    missing = _unknown_spread(estimate)
    if missing:
        return SamplesNeeded(None, None, missing)
    inside = min(ends) < estimate.value < max(ends)
    wanted = ends if inside else (min(ends, key=lambda end: abs(end - estimate.value)),)
    answers = [_samples_to_leave(estimate, end) for end in wanted]
    return max(answers, key=lambda answer: math.inf if answer.most is None else answer.most)


def _unknown_spread(estimate: Estimate) -> str:
    if estimate.n <= 0:
        return "there is no sample"
    if not estimate.finite:
        return "the value is undefined"
    if estimate.counts_settings:
        return "not known for a share of settings, which noise carries across its line"
    known = not any(map(math.isnan, (estimate.low, estimate.high, estimate.confidence)))
    return "" if known else "there is no interval"


def _samples_to_leave(estimate: Estimate, end: float) -> SamplesNeeded:
    from statistics import NormalDist

    distance = abs(end - estimate.value)
    half = estimate.high - estimate.value if estimate.value < end else estimate.value - estimate.low
    if distance <= ROUNDING:
        return SamplesNeeded(None, None, "the value lies on the bound, which no number of questions decides")
    if math.isinf(half):
        return SamplesNeeded(None, None, "the interval has no end towards the bound")
    if half <= distance:
        return SamplesNeeded(estimate.n, estimate.n)
    normal = NormalDist()
    tail = normal.inv_cdf((1.0 + estimate.confidence) / 2.0)
    fixed, chance, square = _parts(estimate, end, tail, half)
    spread = math.sqrt(max(chance * chance - fixed * fixed, 0.0))

    def too_wide(ratio: float, luck: float) -> bool:
        """Whether interval and luck, in standard errors, reach the bound with ``ratio`` times as many samples."""
        wide = math.sqrt(spread**2 / ratio + (min(fixed, chance) / ratio) ** 2)
        return (fixed + square * tail**2) / ratio + tail * wide + luck * spread / math.sqrt(ratio) > distance

    def enough(power: float) -> int:
        luck, low, high = normal.inv_cdf(power), 1.0, 2.0
        while too_wide(high, luck):
            low, high = high, 2.0 * high
        for _ in range(60):
            middle = (low + high) / 2.0
            low, high = (middle, high) if too_wide(middle, luck) else (low, middle)
        return math.ceil(estimate.n * high - ROUNDING)

    least, most = enough(EVEN), enough(NEARLY_SURE)
    if most > PRACTICAL:
        return SamplesNeeded(None, None, "the value is at the bound: no practical number of questions decides it")
    return SamplesNeeded(least, most)


def _parts(estimate: Estimate, end: float, tail: float, half: float) -> tuple[float, float, float]:
    """Returns a, b and c of the half-width ``a + b z + c z^2``; only c may be negative, and only b is not 0 without scores."""
    from statistics import NormalDist

    def distance(quantile: float) -> float:
        low, high = estimate.at(2.0 * NormalDist().cdf(quantile) - 1.0) if estimate.at else (math.nan, math.nan)
        return high - estimate.value if estimate.value < end else estimate.value - low

    first, second = distance(tail / 2.0), distance(tail / 4.0)
    if not (math.isfinite(first) and math.isfinite(second)) or not 0.0 < second < first < half:
        return 0.0, half / tail, 0.0
    quarter = tail / 4.0
    slope, steeper = (first - second) / quarter, (half - first) / (2.0 * quarter)
    square = (steeper - slope) / (3.0 * quarter)
    chance = slope - 3.0 * square * quarter
    fixed = half - chance * tail - square * tail**2
    if fixed < 0.0:
        fixed, chance = 0.0, half / tail - square * tail
    if chance < -ROUNDING:  # an exact interval has steps between these levels: chance is what shows at the lower ones
        fixed, chance = max(first - slope * tail / 2.0, 0.0), slope
        square = (half - fixed - chance * tail) / tail**2
    widens = chance + 2.0 * square * tail > 0.0
    return (fixed, chance, square) if widens else (0.0, half / tail, 0.0)
