"""How a run used its policy, from its records: waivers that can be removed, rules that applied to no test, and misspelt names."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import date
from enum import StrEnum

from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.errors import did_you_mean
from pytest_vlmrobust.core.record import Measure, Record
from pytest_vlmrobust.core.sample import is_slice, kind_of_stratum
from pytest_vlmrobust.core.words import first_few, quantity

from .budgets import Coverage, Extent
from .policy import Policy
from .rules import NO_LEVEL, MetricKey, Rule, Scope, Tier, Waiver


class WaiverState(StrEnum):
    """What became of a waiver in a run."""

    USED = "used"
    EXPIRED = "expired"
    UNNEEDED = "unneeded"
    """It covers tests of this run, and none of them needed it."""
    EXCEEDED = "exceeded"
    """It covers tests that are not shown to keep its cap, and none of the others needed it."""
    UNMATCHED = "unmatched"
    """It covers no test of this run."""


class Missed(StrEnum):
    """What a waiver that applied to no test came near to."""

    CATEGORY = "category"
    """Tests of its metric, models, data and settings were there, and none of its categories."""
    SETTING = "setting"
    """Tests of its metric, models and data were there, and none of its settings."""
    ALL = "all"
    """Its metric was not measured for its models on its data."""


_ADVICE = {
    WaiverState.USED: "waived {used} of the {matched} tests it covers",
    WaiverState.EXPIRED: "expired on {expires}: renew or remove it",
    WaiverState.EXCEEDED: (
        "has a cap of {cap:g}, and {exceeded} of the {matched} tests it covers may be beyond it: fix what it covers, use "
        "more questions, or have its owner change the cap"
    ),
    WaiverState.UNNEEDED: "was not needed by the {matched} tests it covers: remove it, or lower its cap",
    WaiverState.UNMATCHED: "covers no test of this run: look for a misspelt {missed}",
}


_MISSPELT = {Missed.CATEGORY: "category", Missed.SETTING: "setting, family or level", Missed.ALL: "scope", None: ""}


@dataclass(frozen=True, slots=True)
class WaiverUse:
    """A waiver and what a run made of it; ``matched``, ``used`` and ``exceeded`` count tests."""

    waiver: Waiver
    state: WaiverState
    matched: int
    used: int
    exceeded: int = 0
    missed: Missed | None = None
    """Of an unmatched one, what it came near to."""

    def __str__(self) -> str:
        waiver = self.waiver
        advice = _ADVICE[self.state].format(
            used=self.used,
            matched=self.matched,
            exceeded=self.exceeded,
            cap=waiver.cap,
            expires=waiver.expires.isoformat(),
            missed=_MISSPELT[self.missed],
        )
        return f"{waiver.source}: waiver {waiver.id} of {waiver.owner} {advice}"


def waiver_report(policy: Policy, records: Iterable[Record], *, today: date) -> tuple[WaiverUse, ...]:
    """Returns, for each waiver of the policy, what these records made of it.

    A run over a selection of tests leaves waivers unmatched that a whole run would use: the caller knows which it was.
    """
    measured = measured_tests(records)
    return tuple(_use(waiver, measured, today) for waiver in policy.waivers)


def unmatched_rules(policy: Policy, records: Iterable[Record]) -> tuple[Rule, ...]:
    """Returns the rules that applied to no test of these records; in a whole run, a sign of a misspelt scope."""
    tests = [test for _, test in measured_tests(records)]
    return tuple(rule for rule in policy.rules if not any(rule.applies(test) for test in tests))


def measured_tests(records: Iterable[Record]) -> list[tuple[Measure, MetricKey]]:
    """Returns each measure with the test that rules and waivers are matched with.

    Gaps in further groupings of people, of sweeps of the Observatory's tasks, are left out: they are never judged.
    """
    return [
        (
            measure,
            MetricKey(
                record.model,
                record.dataset,
                measure.metric,
                record.setting or record.split,
                record.family,
                record.level,
                measure.category,
            ),
        )
        for record in records
        for measure in record.measures
        if not (record.test == "sweep" and record.task and measure.category)
    ]


def _use(waiver: Waiver, measured: list[tuple[Measure, MetricKey]], today: date) -> WaiverUse:
    matched = [measure for measure, test in measured if waiver.applies(test)]
    used = sum(measure.outcome is Outcome.WAIVED and measure.waiver == waiver.id for measure in matched)
    not_waived = (Outcome.FAIL, Outcome.INCONCLUSIVE)
    exceeded = sum(measure.outcome in not_waived and math.isfinite(measure.value) for measure in matched)
    missed = None if matched else _classify_miss(waiver, [test for _, test in measured])
    return WaiverUse(waiver, _state(waiver, len(matched), used, exceeded, today), len(matched), used, exceeded, missed)


def _classify_miss(waiver: Waiver, tests: list[MetricKey]) -> Missed:
    near = [test for test in tests if test.metric == waiver.metric]
    if any(replace(waiver.where, category=()).matches(test) for test in near):
        return Missed.CATEGORY
    elsewhere = Scope(model=waiver.where.model, dataset=waiver.where.dataset)
    return Missed.SETTING if any(elsewhere.matches(test) for test in near) else Missed.ALL


def _state(waiver: Waiver, matched: int, used: int, exceeded: int, today: date) -> WaiverState:
    if waiver.is_expired(today):
        return WaiverState.EXPIRED
    if used or (exceeded and waiver.latest is not None):  # of which the run says that its clock is behind
        return WaiverState.USED
    if exceeded:
        return WaiverState.EXCEEDED
    return WaiverState.UNNEEDED if matched else WaiverState.UNMATCHED


# Unmet rules: blocking rules on a metric that the run measures, with no test in their scope. Usually a name is misspelt.


_MOST = 6
"""Names in a sentence."""
_CHECKED_NAMES = ("model", "dataset")
"""A policy may name models and datasets that a run leaves out: only a misspelt name is a mistake."""


@dataclass(frozen=True, slots=True)
class UnmetRule:
    """A blocking rule that no test of a run is in the scope of, though the run measures its metric."""

    rule: Rule
    lacks: str
    """What the rule asks for, and what the run has."""
    misspelt: bool
    """Whether it misspells the name of a model or a dataset of the run."""

    def is_allowed(self, coverage: Coverage) -> bool:
        """Whether a policy lets the run be GO all the same."""
        slices = any(map(is_slice, self.rule.where.category))
        return coverage.rules is Extent.PARTIAL and not self.misspelt and not slices

    def shortfall(self, coverage: Coverage) -> str:
        """Returns why the run is not GO where the policy does not allow it, and what to do."""
        rule = self.rule
        problem = f"rule {rule.id} ({rule.source}) applied to no test, though this run measures {rule.metric}: {self.lacks}"
        problem += "" if problem.endswith("?") else "."
        asked = coverage.cite("rules", str(coverage.rules))
        if coverage.rules is Extent.PARTIAL and any(map(is_slice, rule.where.category)):
            return (
                f"{problem} A rule about a slice needs rows of it ({asked} is about other names): ask more samples, or correct it"
            )
        if coverage.rules is Extent.PARTIAL:
            return f"{problem} A rule may name what a run leaves out ({asked}), but this name looks misspelt: correct it"
        return (
            f"{problem} GO requires that every such rule applies to a test ({asked}): correct it, measure what it asks for, "
            "or allow this with coverage: {rules: partial}"
        )


def unmet_rules(rules: Iterable[Rule], records: Iterable[Record], categories: Callable[[], Iterable[str]]) -> list[UnmetRule]:
    """Returns the blocking rules whose metric was measured, and never in their scope.

    ``records`` are of the models that the policy judges; ``categories`` is only called for a rule about one.
    """
    tests = {test for _, test in measured_tests(records)}
    blocking = [rule for rule in rules if rule.treatment.tier is Tier.BLOCK]
    unmet = []
    for rule in blocking:
        near = [test for test in tests if test.metric == rule.metric]
        if near and not any(rule.applies(test) for test in near):
            unmet.append(_unmet(rule, near, sorted({*categories()} - {""}) if rule.where.category else []))
    return unmet


def idle_summaries(rules: Iterable[Rule], records: Iterable[Record], is_summary: Callable[[Rule], bool]) -> list[Rule]:
    """Returns the blocking rules on summary metrics where not one of them met a test; nothing where one did, or there is none.

    ``is_summary`` says which rules count. Whatever else passed, nothing was then decided about all settings together.
    """
    summaries = [rule for rule in rules if rule.treatment.tier is Tier.BLOCK and is_summary(rule)]
    tests = {test for _, test in measured_tests(records)}
    return [] if any(rule.applies(test) for rule in summaries for test in tests) else summaries


def idle_summaries_shortfall(idle: Sequence[Rule], about: str) -> str:
    """Returns why a run in which these rules applied to no test is not GO, and what to do; ``about`` names what they bound."""
    first = f"the first in {idle[0].source}"
    names = _name_list(rule.id for rule in idle)
    return (
        f"{quantity(len(idle), 'blocking rule')} on {about} ({names}; {first}), and none applied to a test: "
        "GO would say nothing about the model as a whole. Add such a rule without a where, or measure what these ask for; "
        "coverage: {rules: partial} does not allow this"
    )


def ungated_data(rules: Sequence[Rule], records: Iterable[Record]) -> list[str]:
    """Returns the datasets that were measured and that no blocking rule is about; none where no dataset is gated at all."""
    gated: dict[str, bool] = {}
    for _, test in measured_tests(records):
        bound = any(rule.applies(test) for rule in rules if rule.treatment.tier is Tier.BLOCK)
        gated[test.dataset] = gated.get(test.dataset, False) or bound
    return [name for name, is_gated in gated.items() if not is_gated] if any(gated.values()) else []


def _unmet(rule: Rule, near: Sequence[MetricKey], categories: Sequence[str]) -> UnmetRule:
    lacking: list[str] = []
    for part in fields(rule.where):
        globs = getattr(rule.where, part.name)
        names = categories if part.name == "category" else sorted({_field_name(test, part.name) for test in near} - {""})
        if globs and not any(rule.where.admits(part.name, name) for name in names):
            kind = kind_of_stratum(globs[0]) if part.name == "category" else ""
            if kind:
                names = [name.removeprefix(f"{kind}=") for name in names if kind_of_stratum(name) == kind]
                globs = [glob.removeprefix(f"{kind}=") for glob in globs]
            asked = f"it asks for {kind or part.name} {_name_list(map(repr, globs))}"
            lacking.append(f"{asked}, and the run has {_name_list(names)}{_near(globs, names)}")
    named = misspellings(rule.where, {field: {_field_name(test, field) for test in near} for field in _CHECKED_NAMES})
    return UnmetRule(rule, "; ".join(lacking) or _together(rule, near), bool(named))


def _together(rule: Rule, near: Sequence[MetricKey]) -> str:
    """Returns why no test is in a scope although each of its parts is met."""
    where = replace(rule.where, category=())
    if not any(where.matches(test) for test in near):
        return "no single test has everything that its scope asks for"
    if rule.where.category and not any(test.category for test in near):
        return f"{rule.metric} is measured on whole datasets, and it asks for a category"
    return "its unless leaves out every test that its where admits"


def _field_name(test: MetricKey, field: str) -> str:
    name: str = getattr(test, field)
    return name or (NO_LEVEL if field == "level" else "")


def _name_list(names: Iterable[str]) -> str:
    return first_few(names, _MOST) or "none"


def _near(globs: Iterable[str], names: Sequence[str]) -> str:
    for glob in globs:
        if name := intended_name(glob, names):
            return f". Did you mean {name!r}?"
        if hint := did_you_mean(glob, names):
            return f".{hint}"
    return ""


# Misspellings: globs that are meant to be an existing name.


_TOKEN = re.compile(r"[a-z]+|[0-9]+|[^a-z0-9]+")
_SHORTEST = 2
"""Letters of a word that may be misspelt: ``a`` and ``ab`` are two names."""


@dataclass(frozen=True, slots=True)
class Misspelling:
    """A glob of a scope that matches no name, and differs from one by a typing error."""

    field: str
    glob: str
    name: str


def misspellings(scope: Scope, names: Mapping[str, Collection[str]]) -> list[Misspelling]:
    """Returns the globs that match no name and misspell a name that no other glob of their field matches.

    ``names`` holds the existing names by field, such as ``dataset``; other fields are not checked.
    """
    misspelt = []
    for field, known in names.items():
        unmatched = [name for name in known if not scope.admits(field, name)]
        for glob in getattr(scope, field):
            matched = any(Scope(**{field: (glob,)}).admits(field, name) for name in known)
            if not matched and (name := intended_name(glob, unmatched)):
                misspelt.append(Misspelling(field, glob, name))
    return misspelt


def intended_name(glob: str, names: Iterable[str]) -> str:
    """Returns the first of ``names`` that ``glob`` misspells; an empty string where there is none.

    A misspelling has another case, another separator, one letter too few or too many in one word, or two neighbouring letters
    swapped. A different letter or number makes another name: the English and the Chinese half of a benchmark differ so, and two
    sizes of a model. Globs are only checked where their one wildcard is a ``*`` at the end.

    >>> intended_name("qwn", ["tiny", "qwen"]), intended_name("MMStar*", ["mmstar_val"]), intended_name("bench_cn", ["bench_en"])
    ('qwen', 'mmstar_val', '')
    """
    stem, open_end = glob.removesuffix("*"), glob.endswith("*")
    if any(sign in stem for sign in "*?["):
        return ""
    return next((name for name in names if any(_is_misspelling(stem, part) for part in _beginnings(stem, name, open_end))), "")


def _beginnings(stem: str, name: str, open_end: bool) -> list[str]:
    """Returns what a stem may stand for: the name, or before a ``*`` each beginning of it of about that length."""
    if not open_end:
        return [name]
    parts = (name[:length] for length in range(max(0, len(stem) - 1), len(stem) + 2))
    return [part for part in parts if part and stem and part[-1].casefold() == stem[-1].casefold()]


def _is_misspelling(written: str, name: str) -> bool:
    if written == name:
        return False
    written_tokens, name_tokens = _tokens(written), _tokens(name)
    if written_tokens == name_tokens or "".join(written_tokens) == "".join(name_tokens):
        return True
    differing = [(a, b) for a, b in zip(written_tokens, name_tokens, strict=False) if a != b]
    return len(written_tokens) == len(name_tokens) and len(differing) == 1 and _is_one_edit(*differing[0])


def _tokens(name: str) -> list[str]:
    """Returns the words and numbers of a name."""
    return [token for token in _TOKEN.findall(name.casefold()) if token.isalnum()]


def _is_one_edit(word: str, other: str) -> bool:
    """Whether two words differ by a letter that one has and the other lacks, or by two neighbours that are swapped."""
    short, long = sorted((word, other), key=len)
    if not (word.isalpha() and other.isalpha()) or len(short) < _SHORTEST:
        return False
    if len(long) == len(short) + 1:
        return any(long[:place] + long[place + 1 :] == short for place in range(len(long)))
    swaps = (word[:place] + word[place + 1] + word[place] + word[place + 2 :] for place in range(len(word) - 1))
    return other in swaps
