"""Words of the page: marks of verdicts, numbers, and escaped text."""

from __future__ import annotations

from typing import NamedTuple

from pytest_vlmrobust.core import words
from pytest_vlmrobust.core.decision import Decision, Outcome
from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.core.record import Measure
from pytest_vlmrobust.core.words import LONGEST, printable
from pytest_vlmrobust.reporting.view import MEANINGS, NO_VERDICT, SIGNS, WITH_WAIVERS

_MINUS, _TO = "\N{MINUS SIGN}", " \N{EN DASH} "


class Mark(NamedTuple):
    """How a verdict or a decision is distinguished without colour: a sign, and the CSS class of its colour."""

    sign: str
    css: str
    meaning: str


MARKS = {
    Outcome.FAIL: Mark("✕", "fail", "broke its bound"),
    Outcome.ERROR: Mark("!", "error", "could not be measured, or is a non-gate test that failed"),
    Outcome.INCONCLUSIVE: Mark("?", "open", "the evidence does not decide"),
    Outcome.NOT_APPLICABLE: Mark("∅", "na", "the metric does not apply here"),
    Outcome.WAIVED: Mark("⚑", "waived", "breaks its bound, or may break it, and a waiver covers it"),
    Outcome.PASS: Mark("✓", "pass", "keeps its bound"),
    Outcome.MEASURED: Mark(NO_VERDICT, "measured", "measured, and no rule judges it"),
}
_COLOURS = {Decision.GO: "pass", Decision.NO_GO: "fail", Decision.INCONCLUSIVE: "open", Decision.INCOMPLETE: "error"}
DECISIONS = {decision: Mark(SIGNS[decision], css, MEANINGS[decision]) for decision, css in _COLOURS.items()}


def decision_mark(decision: Decision, word: str) -> Mark:
    """Returns how a decision is shown by its word; a GO with waivers, or for no release, looks different from a plain one."""
    mark = DECISIONS[decision]
    sign = MARKS[Outcome.WAIVED].sign if word.startswith(WITH_WAIVERS) else mark.sign
    return mark if word == decision else mark._replace(sign=sign, css=MARKS[Outcome.WAIVED].css)


def visible_text(text: str) -> str:
    """Returns a text as the page shows it: cut, with line breaks and tabs kept and other invisible characters spelled out."""
    return printable(text, LONGEST, kept="\n\t")


def number(value: float, unit: str = "", digits: int | None = None) -> str:
    """Returns a number with a true minus sign; ``undefined`` for NaN.

    >>> number(0.1234), number(0.445, "pp"), number(float("nan"))
    ('0.123', '44.5 pp', 'undefined')
    """
    return words.number(value, unit, digits).replace("-", _MINUS)


def interval(measure: Measure | Estimate, unit: str = "") -> str:
    """Returns the interval of a measure, or the words for a value judged without one; empty if neither."""
    text = measure.beside if isinstance(measure, Measure) else words.interval(measure.low, measure.high, unit)
    return text.replace("-", _MINUS)


def usual_interval(measure: Measure) -> str:
    """Returns the 90 % interval, even if another one decided: only 90 % intervals are comparable between runs."""
    return words.interval(measure.low, measure.high, measure.unit).replace("-", _MINUS)


def points(value: float) -> str:
    """Returns a fraction in percentage points, one decimal.

    >>> points(0.594), points(-0.0001)
    ('59.4', '0.0')
    """
    return number(100 * value, digits=1)


def share(value: float) -> str:
    """Returns a fraction in percent, one decimal."""
    return number(value, "%")


def bound_text(bound: str) -> str:
    """Returns a bound as written by its author, ``in -0.1..0.3``, for display."""
    return bound.replace("-", _MINUS).replace("..", _TO)
