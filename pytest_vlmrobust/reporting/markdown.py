"""A run in Markdown: the summary, and the section for a model card. The templates escape every value that they print."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from pytest_vlmrobust.core.cell import CLEAN_NAME, NO_IMAGE_NAME
from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.record import BY_VALUE, Measure
from pytest_vlmrobust.core.words import first_few, quantity

from .comparison import noise_table
from .reviewers import CAVEAT, questions
from .view import NO_VERDICT, RunView, ViewedTest
from .writing import code, inert, markdown_table

SUMMARY, MODEL_CARD = "summary.md", "model_card.md"
_MOST = 40
"""Tests in the table of a summary."""
_HARDEST = 5
_BREACHES = (Outcome.FAIL, Outcome.ERROR, Outcome.WAIVED)


def summary(view: RunView) -> str:
    """Returns the decision, the counts, what limits the evidence, and a table of the tests, worst first."""
    rows = [(_verdict(test), _code(test.record.id), *test.row) for test in view.tests[:_MOST]]
    noise = Markup("\n".join(noise_table(view.facts.repeatability)))  # noqa: S704 - escaped
    return _render(SUMMARY, view=view, rows=rows, most=_MOST, no_verdict=NO_VERDICT, noise=noise)


def model_card(view: RunView) -> str:
    """Returns what was gated and decided, the key numbers with their intervals, evidence for reviewers, and limits."""
    names = dict.fromkeys([*(record.model for record in view.records if record.model), *view.several])
    return _render(
        MODEL_CARD,
        view=view,
        settings=len({record.setting for record in view.records} - {"", CLEAN_NAME, NO_IMAGE_NAME}),
        models=[_model(view, name) for name in names],
        evidence=[(ask.text, ask.sources, ask.evidence(view)) for ask in questions()],
        caveat=CAVEAT,
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader(__package__),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_inert,
    )
    environment.filters["code"] = _code
    environment.globals |= {"quantity": quantity, "table": _table}
    return environment


def _render(name: str, **about: Any) -> str:
    return _environment().get_template(name).render(about)


def _code(text: object) -> Markup:
    return Markup(code(str(text)))  # noqa: S704 - escaped


def _inert(value: object) -> Markup:
    return value if isinstance(value, Markup) else Markup(inert(str(value)))  # noqa: S704 - escaped


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], left: Collection[int]) -> Markup:
    cells = [list(map(_inert, row)) for row in rows]
    return Markup("\n".join(markdown_table(header, cells, left)))  # noqa: S704 - escaped


def _verdict(test: ViewedTest) -> str:
    return NO_VERDICT if test.record.outcome is Outcome.MEASURED else str(test.record.outcome)


def _model(view: RunView, name: str) -> Mapping[str, Any]:
    """Returns what the card says of one model: tests in the order in which they ended."""
    tests = {test.record.key: test for test in view.tests if test.record.model == name}
    ended = [tests[record.key] for record in view.records if record.key in tests]
    return {
        "name": name,
        "word": view.several[name].word if name in view.several else "",
        "numbers": [_row(test, _called(test, measure), measure) for test in ended if (measure := _number(test)) is not None],
        "not_asked": RunView([test.record for test in ended], view.facts).not_asked,
        "broken": _broken(ended),
        "hardest": _hardest(ended),
    }


def _number(test: ViewedTest) -> Measure | None:
    """Returns the number of a summary metric, or of a cell the accuracy on images as they are, or without any."""
    record = test.record
    metric = record.metric or ("accuracy" if record.setting in (CLEAN_NAME, NO_IMAGE_NAME) else "")
    if not metric or (record.deciding is Outcome.MEASURED and record.not_asked):
        return None
    return record.measure_of(metric) or (Measure(metric, math.nan) if record.outcome in _BREACHES else None)


def _hardest(tests: Sequence[ViewedTest]) -> list[tuple[str, ...]]:
    """Returns the settings under which most is lost."""
    drops = [
        (test, drop)
        for test in tests
        if test.record.test == "cell" and (drop := test.record.measure_of("accuracy_drop")) and math.isfinite(drop.value)
    ]
    worst = sorted(drops, key=lambda pair: (-pair[1].value, pair[0].record.id))[:_HARDEST]
    return [_row(test, test.record.setting, drop) for test, drop in worst]


def _row(test: ViewedTest, name: str, measure: Measure) -> tuple[str, ...]:
    verdict = str(test.record.outcome)
    return test.record.dataset, name, measure.shown, measure.beside, test.answers(measure), verdict, _decided_by(test)


def _called(test: ViewedTest, measure: Measure) -> str:
    where = test.record.setting or test.record.split
    return f"{measure.metric} ({where})" if where else measure.metric


def _decided_by(test: ViewedTest) -> str:
    """Returns the measure that a verdict comes from, with its bound; empty where no rule judged."""
    measure = test.measure
    if measure is None or test.record.outcome is Outcome.MEASURED or measure.outcome is not test.record.outcome:
        return ""
    name, value, _, bound, _ = test.row
    text = f"{name} {value}, bound {bound}" if bound else f"{name} {value}"
    return f"{text}, {BY_VALUE}" if measure.judge == "value" else text


def _broken(tests: Sequence[ViewedTest]) -> list[tuple[str, str]]:
    """Returns every rule and budget that was broken, each with the tests that broke it."""
    having: dict[str, dict[str, None]] = {}
    for test in tests:
        record = test.record
        breaches = [measure for measure in record.measures if measure.outcome in _BREACHES]
        if record.outcome in _BREACHES and not breaches:
            breaches = [Measure("", math.nan, outcome=record.outcome)]
        for measure in breaches:
            bound = f", {measure.rule}, bound {measure.bound}" if measure.rule else ""
            breach = f"{measure.outcome}: {replace(measure, category='').called}{bound}"
            having.setdefault(breach, {})[f"{record.id} ({measure.category})" if measure.category else record.id] = None
    return [(breach, first_few(ids, _HARDEST)) for breach, ids in having.items()]
