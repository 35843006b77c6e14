"""A run in Markdown: the summary, and the section for a model card; and how all reports write Markdown."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import quote

import yaml
from jinja2 import Environment
from markupsafe import Markup

from pytest_vlmrobust.core.cell import CLEAN_NAME, NO_IMAGE_NAME
from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.record import BY_VALUE, Measure
from pytest_vlmrobust.core.words import first_few, on_one_line, percent, quantity
from pytest_vlmrobust.store.repeatability import Repeatability

from .explanation import ViewedTest
from .facts import noise_by_metric, noise_lines, noise_warnings
from .view import NO_VERDICT, RunView
from .writing import template_environment

SUMMARY, MODEL_CARD = "summary.md", "model_card.md"
_MOST = 40
"""Tests in the table of a summary."""
_HARDEST = 5
SHORT = 300
"""The most characters of a name or reason in little room."""
_BREACHES = (Outcome.FAIL, Outcome.ERROR, Outcome.WAIVED)
_OBEYED = re.compile(
    r"""(?P<interval>\[-?\d[\d.]*,[ ]-?\d[\d.]*\](?![\[(:]))  # an interval, unless it could be the name of a link
    |^(?:[#>+=-]+|\d+[.)])(?=\s|$)  # a heading, a quotation, or an item of a list
    |\\(?=[!-/:-@\[-`{-~]|$)  # a backslash that would mark what follows
    |&(?=[\#\w])|[|<`*\[\]~$]
    |(?<!\w)_|_(?!\w)
    |(?<!\w)@(?=\w)""",
    re.VERBOSE,
)
_NAMED = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}


def summary(view: RunView) -> str:
    """Returns the decision, the counts, the limits of the evidence, and a table of the tests, worst first."""
    rows = [(_verdict(test), code(test.record.id), *test.row) for test in view.tests[:_MOST]]
    repeats = view.facts.repeatability
    metrics = list(dict.fromkeys(metric for repeat in repeats for metric, _, _ in noise_by_metric(repeat)))
    unmeasured = [line for repeat in repeats if not repeat.measured for line in noise_lines(repeat)]
    return render(
        SUMMARY,
        view=view,
        rows=rows,
        most=_MOST,
        no_verdict=NO_VERDICT,
        noise_header=["A/A", "asked again", "flipped", "90 % interval", *(f"noise of {metric}" for metric in metrics)],
        noise_rows=[_noise_row(repeat, metrics) for repeat in repeats],
        noise_notes=[*unmeasured, *(f"warning: {sentence}" for sentence in noise_warnings(repeats))],
    )


def model_card(view: RunView) -> str:
    """Returns the subject, the decision, key numbers with intervals, evidence for reviewers, and limits."""
    names = dict.fromkeys([*(record.model for record in view.records if record.model), *view.several])
    return render(
        MODEL_CARD,
        view=view,
        settings=len({record.setting for record in view.records} - {"", CLEAN_NAME, NO_IMAGE_NAME}),
        models=[_model(view, name) for name in names],
        evidence=[(ask.text, ask.sources, ask.evidence(view)) for ask in questions()],
        caveat=CAVEAT,
    )


def _verdict(test: ViewedTest) -> str:
    if test.record.outcome is Outcome.MEASURED:
        return NO_VERDICT if test.record.is_gated else "not shown"
    return str(test.record.outcome)


def _noise_row(repeat: Repeatability, metrics: Sequence[str]) -> list[str]:
    name = code(f"{repeat.model}-{repeat.dataset}")
    if not repeat.measured:
        return [name, "not measured", "", "", *("" for _ in metrics)]
    noise = {metric: f"{value}, at most {most}" for metric, value, most in noise_by_metric(repeat)}
    flips = [f"{repeat.flipped} ({percent(repeat.rate, 2)})", f"{percent(repeat.low, 2)} to {percent(repeat.high, 2)}"]
    return [name, str(repeat.repeated), *flips, *(noise.get(metric, "") for metric in metrics)]


def _model(view: RunView, name: str) -> Mapping[str, Any]:
    """Returns the card's content for a model, with tests in order of their ends."""
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
    """Returns the value of a summary metric, or the accuracy of a cell with clean images or without images."""
    record = test.record
    metric = record.metric or ("accuracy" if record.setting in (CLEAN_NAME, NO_IMAGE_NAME) else "")
    if not metric or (record.deciding is Outcome.MEASURED and record.not_asked):
        return None
    return record.measure_of(metric) or (Measure(metric, math.nan) if record.outcome in _BREACHES else None)


def _hardest(tests: Sequence[ViewedTest]) -> list[tuple[str, ...]]:
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
    """Returns the deciding measure with its bound; empty without a rule."""
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


# Questions of reviewers, and the evidence for each in a run. It never claims compliance.


ABSENT = "none in this run"
CAVEAT = "The texts of these laws and standards were not at hand when this table was written: check a number before you cite it."
_GROUPS = {"group_gap", "split_group_gap"}
_BASELINE = {"baseline_drop", "mean_baseline_drop", "drop_increase", "baseline_flip_rate"}
_ATTACKS = {"attack_rate", "text_preference", "typographic_word_drop"}
_OPEN = (Outcome.FAIL, Outcome.INCONCLUSIVE, Outcome.WAIVED, Outcome.ERROR)


@dataclass(frozen=True, slots=True)
class Question:
    """A question of reviewers."""

    text: str
    ai_act: str
    """Articles of Regulation (EU) 2024/1689; empty if none."""
    nist: str
    """Subcategories of MEASURE in NIST AI 100-1; empty if none."""
    iso: str
    """Clause or control of annex A in ISO/IEC 42001:2023; empty if none."""
    where: str
    """The files of a report with the evidence, and what they lack."""
    evidence_name: str
    """The evidence of a run, by its name in :data:`_EVIDENCE`."""

    @property
    def sources(self) -> str:
        """The regulations and standards that ask this."""
        named = (("EU AI Act", self.ai_act), ("NIST AI RMF MEASURE", self.nist), ("ISO/IEC 42001", self.iso))
        return "; ".join(f"{name} {places}" for name, places in named if places)

    def evidence(self, view: RunView) -> str:
        """Returns the evidence of a run."""
        return _EVIDENCE[self.evidence_name](view) or ABSENT


@cache
def questions() -> tuple[Question, ...]:
    """Returns the questions that the gate has evidence for; other questions of these texts need other evidence."""
    return tuple(Question(**entry) for entry in yaml.safe_load(files(__package__).joinpath("reviewers.yaml").read_text("utf-8")))


def _accuracy(view: RunView) -> str:
    data = sorted({r.dataset for r in view.records if r.measure_of("clean_accuracy") or (r.setting == CLEAN_NAME and r.measures)})
    return f"accuracy on clean images with its interval, on {first_few(data)}" if data else ""


def _robustness(view: RunView) -> str:
    settings = {record.setting for record in view.records if record.test == "cell" and record.measures}
    perturbed = settings - {CLEAN_NAME, NO_IMAGE_NAME, ""}
    return f"{quantity(len(perturbed), 'perturbed setting')}, each with its loss" if perturbed else ""


def _data(view: RunView) -> str:
    data = view.facts.origins.get("datasets")
    return f"digests of {first_few(sorted(data))} in manifest.json" if isinstance(data, Mapping) and data else ""


def _rules(view: RunView) -> str:
    rules = {rule.id: bool(rule.reason) for policy in view.policies for rule in policy.rules}
    with_reason = f"{sum(rules.values())} with a reason"
    return f"{quantity(len(rules), 'rule')}, {with_reason}, in the policy whose SHA-256 stands above" if rules else ""


def _measured(view: RunView, names: set[str]) -> str:
    measures = [measure for record in view.records for measure in record.measures]
    return ", ".join(sorted({measure.metric for measure in measures if measure.metric in names and measure.n}))


def _limits(view: RunView) -> str:
    count = sum(record.outcome in _OPEN for record in view.records)
    return f"{quantity(count, 'test')} broken, undecided or waived, and the limits below" if view.records else ""


def _logs(view: RunView) -> str:
    run = view.subject.run if view.records else ""
    return run and f"run {run}: results.json, and every answer in predictions.sqlite; dated, and not signed"


_EVIDENCE: Mapping[str, Callable[[RunView], str]] = {
    "accuracy": _accuracy,
    "robustness": _robustness,
    "data": _data,
    "rules": _rules,
    "groups": lambda view: _measured(view, _GROUPS),
    "changes": lambda view: _measured(view, _BASELINE),
    "limits": _limits,
    "logs": _logs,
    "attacks": lambda view: _measured(view, _ATTACKS) or "none: this gate tests no attacks",
}


# How Markdown is written: every value that a template prints is escaped.


def render(template: str, **content: Any) -> str:
    """Renders a template of this package."""
    return _environment().get_template(template).render(content).rstrip("\n") + "\n"


@cache
def _environment() -> Environment:
    environment = template_environment(__package__, inert)
    environment.filters |= {"code": code, "short": lambda text: on_one_line(str(text), SHORT), "address": _address}
    environment.globals |= {"quantity": quantity, "table": _table}
    return environment


def _table(header: Sequence[str], rows: Iterable[Sequence[object]], left: Collection[int] = (0,)) -> Markup:
    """Returns a table; the columns of text are left-aligned."""
    signs = ["---" if place in left else "--:" for place in range(len(header))]
    head, *body = (f"| {' | '.join(map(inert, row))} |" for row in (header, *rows))
    return Markup("\n".join([head, f"|{'|'.join(signs)}|", *body]))  # noqa: S704 - escaped


def _address(url: str) -> Markup:
    return Markup(quote(url, safe="%/:?#@!$&'()*+,;=~-._"))  # noqa: S704 - quoted


def inert(value: object) -> Markup:
    r"""Returns text on one line that contains no Markdown, HTML, mention or end of a cell.

    Invisible characters are escaped; markup becomes character references, which Markdown displays but never
    interprets. Intervals stay, because two numbers in brackets mean nothing in Markdown. So does text marked as safe.

    >>> print(inert("a|b\nc <i>"), inert("[x](http://y) in [0.1, 0.2]"), inert("@all"))
    a\|b c &lt;i> &#91;x&#93;(http://y) in [0.1, 0.2] @&#8203;all
    """
    safe = value if isinstance(value, Markup) else _OBEYED.sub(_escape_match, on_one_line(str(value)))
    return Markup(safe)  # noqa: S704 - escaped


def code(text: str) -> Markup:
    r"""Returns text as Markdown code, between more backticks than it contains in a row.

    >>> print(code("a|b"), code("a`b"))
    `a\|b` ``a`b``
    """
    shown = on_one_line(text).replace("|", "\\|")
    fence = "`" * (1 + max(map(len, re.findall("`+", shown)), default=0))
    blank = " " if shown.startswith("`") or shown.endswith("`") else ""
    return Markup(f"{fence}{blank}{shown}{blank}{fence}")  # noqa: S704 - nothing in it is interpreted


def _escape_match(match: re.Match[str]) -> str:
    text = match[0]
    if match["interval"]:
        return text
    if text == "|":
        return "\\|"
    if text == "@":
        return "@&#8203;"  # GitHub finds mentions in rendered text, so a zero-width blank separates the sign from the name
    return "".join(_NAMED.get(char, f"&#{ord(char)};") for char in text)
