"""Unmet rules: bounds on what a run measures whose scope none of its tests is in, as where a name is misspelt. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace

from pytest_vlmrobust.core.counting import quantity
from pytest_vlmrobust.core.errors import did_you_mean
from pytest_vlmrobust.core.record import Record

from .coverage import Coverage, Extent
from .rules import NO_LEVEL, JudgedTest, Rule, Tier
from .slips import meant, slips
from .usage import judged

_MOST = 6
"""Names in a sentence."""
_SLIPPERY = ("model", "dataset")
"""Names that a policy may know and a run leave out, so that only a slip tells a mistake."""


@dataclass(frozen=True, slots=True)
class Unmet:
    """A blocking rule that no test of a run is in the scope of, though the run measures its metric."""

    rule: Rule
    lacks: str
    """What the rule asks for, and what the run has."""
    slip: bool
    """Whether it names a model or a data set that is nearly called like one of the run."""

    def shortfall(self, coverage: Coverage) -> str:
        """Returns why the run is not GO, and what to do; an empty string where the policy allows it."""
        if coverage.rules is Extent.PARTIAL and not self.slip:
            return ""
        rule = self.rule
        said = f"rule {rule.id} ({rule.source}) met no test, though this run measures {rule.metric}: {self.lacks}"
        said += "" if said.endswith("?") else "."
        asked = coverage.cite("rules", str(coverage.rules))
        if coverage.rules is Extent.PARTIAL:
            return (
                f"{said} A rule may be about what a run leaves out ({asked}), and not nearly about what it has: correct the name"
            )
        return (
            f"{said} GO asks that every such rule has a say ({asked}): correct it, measure what it asks for, or allow it with "
            "coverage: {rules: partial}"
        )


def unmet_rules(rules: Iterable[Rule], records: Iterable[Record], categories: Callable[[], Iterable[str]]) -> list[Unmet]:
    """Returns the blocking rules whose metric was measured, and never in their scope.

    Args:
        rules: of a policy.
        records: what was measured for the models that it judges.
        categories: returns those of the data sets of the run; only called for a rule about one.
    """
    tests = {test for _, test in judged(records)}
    blocking = [rule for rule in rules if rule.treatment.tier is Tier.BLOCK]
    found = []
    for rule in blocking:
        near = [test for test in tests if test.metric == rule.metric]
        if near and not any(rule.applies(test) for test in near):
            found.append(_unmet(rule, near, sorted({*categories()} - {""}) if rule.where.category else []))
    return found


def idle_summaries(rules: Iterable[Rule], records: Iterable[Record], is_summary: Callable[[Rule], bool]) -> list[Rule]:
    """Returns the blocking rules on summary metrics where not one of them met a test; nothing where one did, or there is none.

    ``is_summary`` says which rules count. Whatever else passed, nothing was then decided about all settings together.
    """
    summaries = [rule for rule in rules if rule.treatment.tier is Tier.BLOCK and is_summary(rule)]
    tests = {test for _, test in judged(records)}
    return [] if any(rule.applies(test) for rule in summaries for test in tests) else summaries


def idle_summaries_shortfall(idle: Sequence[Rule], about: str) -> str:
    """Returns why a run in which these rules met no test is not GO, and what to do; ``about`` names what they bound."""
    first = f"the first in {idle[0].source}"
    return (
        f"{quantity(len(idle), 'blocking rule')} on {about} ({_listed(rule.id for rule in idle)}; {first}), and none met a test: "
        "GO would say nothing about the model as a whole. Add such a rule without a where, or measure what these ask for; "
        "coverage: {rules: partial} does not allow this"
    )


def ungated_data(rules: Sequence[Rule], records: Iterable[Record]) -> list[str]:
    """Returns the data sets that were measured and that no blocking rule is about; none where no data set is gated at all."""
    gated: dict[str, bool] = {}
    for _, test in judged(records):
        bound = any(rule.applies(test) for rule in rules if rule.treatment.tier is Tier.BLOCK)
        gated[test.dataset] = gated.get(test.dataset, False) or bound
    return [name for name, is_gated in gated.items() if not is_gated] if any(gated.values()) else []


def _unmet(rule: Rule, near: Sequence[JudgedTest], categories: Sequence[str]) -> Unmet:
    lacking: list[str] = []
    for part in fields(rule.where):
        globs = getattr(rule.where, part.name)
        names = categories if part.name == "category" else sorted({_named(test, part.name) for test in near} - {""})
        if globs and not any(rule.where.admits(part.name, name) for name in names):
            asked = f"it asks for {part.name} {_listed(map(repr, globs))}"
            lacking.append(f"{asked}, and the run has {_listed(names)}{_near(globs, names)}")
    named = slips(rule.where, {field: {_named(test, field) for test in near} for field in _SLIPPERY})
    return Unmet(rule, "; ".join(lacking) or _together(rule, near), bool(named))


def _together(rule: Rule, near: Sequence[JudgedTest]) -> str:
    """Returns why no test is in a scope of which each part is met."""
    where = replace(rule.where, category=())
    if not any(where.matches(test) for test in near):
        return "no test has all together that its scope asks for"
    if rule.where.category and not any(test.category for test in near):
        return f"{rule.metric} is measured on whole data sets, and it asks for a category"
    return "its unless leaves out every test that its where admits"


def _named(test: JudgedTest, field: str) -> str:
    name: str = getattr(test, field)
    return name or (NO_LEVEL if field == "level" else "")


def _listed(names: Iterable[str]) -> str:
    shown = list(names)
    rest = len(shown) - _MOST
    return (", ".join(shown[:_MOST]) or "none") + (f" and {rest} more" if rest > 0 else "")


def _near(globs: Iterable[str], names: Sequence[str]) -> str:
    for glob in globs:
        if name := meant(glob, names):
            return f". Did you mean {name!r}?"
        if said := did_you_mean(glob, names):
            return f".{said}"
    return ""
