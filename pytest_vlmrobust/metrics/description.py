"""What is known about a metric, in words: for the documentation and for the terminal."""

from __future__ import annotations

import inspect
import math
import re
import textwrap
from dataclasses import dataclass

from .families import FamilyProperty
from .record import Metric, Needs

_SECTIONS = ("Args:", "Returns:", "Raises:", "Source:", ">>>")
_FORMULA = "Formula:"
_UNITS = {
    "fraction": "fraction, 0.05 being 5 percentage points",
    "ratio": "ratio, 1.0 being 100 %",
    "correlation": "correlation",
}
_MOVES = {1: "rises with", -1: "falls with", 0: "does not depend on"}


@dataclass(frozen=True, slots=True)
class Description:
    """A metric in words: one sentence, its formula, what to beware of, and its facts with their titles."""

    name: str
    summary: str
    formula: str
    """Empty where the docstring of the function has no paragraph ``Formula: ...``."""
    caveats: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]

    def text(self, width: int = 100) -> str:
        """Returns the description as plain text, no line longer than ``width`` unless a word is."""
        lines = [self.name, "", *textwrap.wrap(self.summary, width), ""]
        if self.formula:
            lines += [*textwrap.wrap(self.formula, width, initial_indent="    ", subsequent_indent="    "), ""]
        for caveat in self.caveats:
            lines += [*textwrap.wrap(caveat, width), ""]
        column = max(len(title) for title, _ in self.facts) + 2
        for title, said in self.facts:
            lines += textwrap.wrap(said, width, initial_indent=f"{title:<{column}}", subsequent_indent=" " * column)
        return "\n".join(lines)


def describe(record: Metric | FamilyProperty) -> Description:
    """Returns the description of a metric, or of a property of families, from its record and the docstrings of its functions.

    >>> from pytest_vlmrobust import metrics
    >>> describe(metrics.get("accuracy_drop")).formula
    'mean(clean - perturbed)'
    """
    paragraphs = _paragraphs(record.function.__doc__)
    sections = ("Formula", *(section.rstrip(":") for section in _SECTIONS))
    formula = next((part.removeprefix(_FORMULA).strip() for part in paragraphs if part.startswith(_FORMULA)), "")
    caveats = [part for part in paragraphs[1:] if not part.startswith(sections)]
    summary = paragraphs[0] if paragraphs else ""
    return Description(record.name, summary, formula.replace("`", ""), tuple(caveats), _stated(record))


def plain(text: str) -> str:
    """Returns docstring text on one line, with names in backticks instead of roles.

    >>> plain("see :func:`pcri` and ``x``")
    'see `pcri` and `x`'
    """
    without_roles = re.sub(r":\w+:`~?([^`]+)`", r"``\1``", text)
    return " ".join(without_roles.replace("``", "`").split())


def number(value: float) -> str:
    """Returns a number in words: no exponent, infinity as a sign."""
    return "undefined" if math.isnan(value) else f"{value:g}".replace("inf", "∞")


def _stated(record: Metric | FamilyProperty) -> tuple[tuple[str, str], ...]:
    facts = _facts(record) if isinstance(record, Metric) else _facts_of_family(record)
    return tuple((title, text) for title, text in facts.items() if text)


def _facts_of_family(record: FamilyProperty) -> dict[str, str]:
    facts = {
        "of": "a family of models of different sizes on a data set",
        "suite": record.suite,
        "reads": "the number of parameters of each model, and the scores of each on the same samples",
    }
    return facts | _common_facts(record)


def _common_facts(record: Metric | FamilyProperty) -> dict[str, str]:
    low, high = (number(end) for end in record.bounds)
    return {
        "value": _section(record, "Returns:"),
        "unit": _UNITS.get(record.unit, record.unit),
        "bounds": f"{low} … {high}",
        "better": "neither" if record.better == "none" else record.better,
        "published": plain(record.reference),
        "defined when": plain(record.validity),
        "interval": _interval(record),
    }


def _facts(record: Metric) -> dict[str, str]:
    return {
        "of": "one setting" if record.scope == "cell" else "all settings of a model on a data set",
        "suite": record.suite or "every",
        "reads": ", ".join(f"`{need.value}`" for need in record.needs),
        **_common_facts(record),
        "taken over": f"{record.coverage.full} {record.coverage.noun}, as published" if record.coverage else "",
        "one better score": _moves(record),
        "perfect model": _claimed(record.perfect),
        "nothing changes": _claimed(record.unchanged),
        "no visual gain": _claimed(record.blind),
    }


def _interval(record: Metric | FamilyProperty) -> str:
    if record.interval is None:
        return "none: a rule judges its value (`judge: point`), which speaks about the samples at hand alone"
    said = (part for part in _paragraphs(record.interval.__doc__) if not part.startswith(_SECTIONS))
    return " ".join(said) or "its own"


def _moves(record: Metric) -> str:
    by_direction: dict[str, list[Needs]] = {}
    for need, direction in sorted(record.directions.items(), key=lambda item: record.needs.index(item[0])):
        by_direction.setdefault(_MOVES[direction], []).append(need)
    parts = [f"{moves} {_listed(needs)}" for moves, needs in by_direction.items()]
    by_reason: dict[str, list[Needs]] = {}
    for need, why in record.not_monotone.items():
        by_reason.setdefault(why, []).append(need)
    parts += [f"moves either way with {_listed(needs)} ({why})" for why, needs in by_reason.items()]
    return "; ".join(parts)


def _listed(needs: list[Needs]) -> str:
    return " and ".join(f"`{need.value}`" for need in needs)


def _claimed(value: float | None) -> str:
    return "" if value is None else number(value)


def _paragraphs(doc: str | None) -> list[str]:
    """Returns the paragraphs of a docstring, each on one line."""
    return [plain(part) for part in inspect.cleandoc(doc or "").split("\n\n") if part.strip()]


def _section(record: Metric | FamilyProperty, header: str) -> str:
    """Returns one section of the docstring of a metric's function, without its header."""
    found = [part for part in _paragraphs(record.function.__doc__) if part.startswith(header)]
    return found[0].removeprefix(header).strip() if found else ""
