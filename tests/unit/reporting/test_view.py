"""What people and programs read of eight stored runs, as text.

``tests/golden/reports/RUN`` holds what each run left (``records.jsonl``, ``manifest.json``, ``docket.json``) and what is written
of it. A change of a report shows as a difference of these files, which is reviewed. To rewrite them:

    VLMROBUST_REWRITE_SNAPSHOTS=1 pytest tests/unit/reporting/test_view.py
"""

from __future__ import annotations

import dataclasses
import html
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_vlmrobust.core.decision import Decision, Outcome
from pytest_vlmrobust.core.record import Example, Measure, Record, Reply
from pytest_vlmrobust.reporting import view
from pytest_vlmrobust.reporting.comparison import Against, render_comment
from pytest_vlmrobust.reporting.explanation import explain
from pytest_vlmrobust.reporting.exports.sarif import sarif
from pytest_vlmrobust.reporting.facts import RunFacts, policy_replacements
from pytest_vlmrobust.reporting.files import UNREADABLE, RunFiles, read_run
from pytest_vlmrobust.reporting.html import render_html
from pytest_vlmrobust.reporting.html.words import visible_text
from pytest_vlmrobust.reporting.junit import junit_xml
from pytest_vlmrobust.reporting.markdown import inert, model_card, summary
from pytest_vlmrobust.reporting.results import cells_csv, results
from pytest_vlmrobust.reporting.terminal import render_terminal
from pytest_vlmrobust.reporting.view import RunView, WorstQuestion
from pytest_vlmrobust.reporting.writing import json_text

from .conftest import STORED, compare, open_record, record
from .pages import example, page_text, patched

NAMES = ("go", "waived", "allowed", "no-go", "shortfall", "incomplete", "three-models", "hostile")


def run_of(name: str) -> RunFiles:
    """Returns a stored run, as if it stood in ``runs`` with its answers."""
    run = read_run(STORED / name)
    warnings = [warning for warning in run.facts.warnings if warning != UNREADABLE]
    facts = dataclasses.replace(run.facts, directory=f"runs/{name}", pictures=None, warnings=warnings)
    return dataclasses.replace(run, facts=facts, damage="")


def comment(run: RunFiles) -> str:
    against = Against("run go", run_of("go")) if run.directory.name != "go" else Against("the last GO", problem="there is none")
    return render_comment(run, against, name="gate", links={})


def results_without_records(run: RunFiles) -> str:
    content = results(run)
    return json_text({**content, "records": [record["key"] for record in content["records"]]})


OUTPUTS: dict[str, Callable[[RunFiles], str]] = {
    "page.txt": lambda run: page_text(render_html(run)),
    "summary.md": summary,
    "model_card.md": model_card,
    "terminal.txt": lambda run: render_terminal(run, width=120, color=False),
    "comment.md": comment,
    "junit.xml": lambda run: junit_xml(run).replace("><", ">\n<"),
    "failures.txt": lambda run: "\n".join(f"{record.id}\n{explain(record)}" for record in run.records) + "\n",
    "results.json": results_without_records,
    "cells.csv": cells_csv,
    "gate.sarif": lambda run: json_text(sarif(run)),
}


@pytest.mark.cases("name", NAMES)
def test_outputs_are_the_stored_ones(name: str) -> None:
    run = run_of(name)
    compare({STORED / name / file: write(run) for file, write in OUTPUTS.items()})


def test_writers_read_the_view_and_not_records() -> None:
    imported = re.compile(r"core\.record import [^)]*?\bRecord\b")
    reading = {path.name for path in Path(view.__file__).parent.rglob("*.py") if imported.search(path.read_text("utf-8"))}
    derive, write_them_as_they_are = {"explanation.py", "subject.py", "sweeps.py", "view.py"}, {"junit.py", "results.py"}
    assert reading == derive | write_them_as_they_are


def markdown_limits(text: str) -> list[str]:
    """Returns the items below the heading Limits, without their details."""
    return [line[2:] for line in text.partition("# Limits\n")[2].splitlines() if line.startswith("- ")]


@pytest.mark.cases("name", NAMES)
def test_limits_are_the_same_wherever_they_are_listed(name: str) -> None:
    run = run_of(name)
    texts = [limit.text for limit in run.limits]
    shown = list(map(inert, texts))
    assert markdown_limits(summary(run)) == shown
    assert markdown_limits(model_card(run)) == shown
    (listed,) = re.findall(r'<ul class="limits">(.*?)\n  </ul>', render_html(run), re.DOTALL)
    items = [re.findall(r"<summary>(.*?)</summary>|<p>(.*?)</p>", item) for item in listed.split("\n    <li")[1:]]
    on_page = [html.unescape(next(filter(None, match[0]))) for match in items]
    assert [line for line in on_page if "thumbnails are not on this page" not in line] == list(map(visible_text, texts))


def test_what_a_policy_allows_is_in_every_report() -> None:
    run = run_of("allowed")
    for file in ("page.txt", "summary.md", "model_card.md", "terminal.txt", "comment.md", "junit.xml", "results.json"):
        text = OUTPUTS[file](run)
        assert "30 of 128" in text, file
        assert "not shown to look" in text, file
        assert "allowed by p.yaml:2, coverage samples: partial" in text or file == "results.json", file


def test_a_go_that_supports_no_release_says_so_in_every_report() -> None:
    run = run_of("go")
    (name, policy), *_ = run.manifest["policies"].items()
    manifest = {**run.manifest, "policies": {name: {**policy, "purpose": "demonstration"}}}
    run = dataclasses.replace(run, manifest=manifest, facts=dataclasses.replace(run.facts, origins=manifest))
    for file in ("page.txt", "summary.md", "model_card.md", "terminal.txt", "comment.md", "results.json", "gate.sarif"):
        assert "GO (demonstration)" in OUTPUTS[file](run), file
    assert 'name="vlm.purpose" value="demonstration"' in OUTPUTS["junit.xml"](run)
    assert "this GO supports no release" in OUTPUTS["page.txt"](run)
    assert run.decision == "GO"


# What is said of records.


def agreement(records: list[Record]) -> list[str]:
    return RunView(records, RunFacts()).notes()


def row_of(about: Record) -> tuple[str, ...]:
    (test,) = RunView([about], RunFacts()).tests
    return test.row


def test_the_worst_comes_first_then_the_largest_drop_then_the_name() -> None:
    records = [
        record("b", Outcome.PASS, 0.1),
        record("a", Outcome.PASS, 0.1),
        record("c", Outcome.PASS, 0.15),
        record("e", Outcome.FAIL, 0.3),
        record("f", Outcome.FAIL, 0.4),
        record("n", Outcome.FAIL, math.nan),
        record("w", Outcome.WAIVED, 0.9),
        record("x", Outcome.ERROR, measures=()),
    ]
    assert [test.record.id for test in RunView(records, RunFacts()).tests] == ["f", "e", "n", "x", "w", "c", "a", "b"]


def test_the_headline_is_what_decided() -> None:
    drop = Measure("accuracy_drop", 0.1, outcome=Outcome.PASS, rule="drop")
    flips = Measure("harmful_flip_rate", 0.3, outcome=Outcome.FAIL, rule="flips")
    assert record("a", Outcome.FAIL, measures=(drop, flips)).headline is flips


def test_without_a_decision_the_headline_is_the_drop_of_the_whole_data_set() -> None:
    accuracy, drop = Measure("accuracy", 0.9), Measure("accuracy_drop", 0.1)
    part = Measure("accuracy_drop", 0.7, category="odd")
    assert record("a", Outcome.MEASURED, measures=(accuracy, drop, part)).headline is drop
    assert record("a", Outcome.MEASURED, measures=(accuracy,)).headline is accuracy
    assert record("a", Outcome.ERROR, measures=()).headline is None


@pytest.mark.parametrize(
    ("measure", "shown"),
    [
        (Measure("pcri", 0.1234, -0.05, 0.3, 7, "0.2"), ("pcri", "0.123", "[-0.050, 0.300]", "0.2", "7")),
        (
            Measure(
                "drop",
                0.44,
                0.3,
                0.5,
                60,
                "<= 15 pp",
                unit="pp",
                target="population",
                decisive_low=0.25,
                decisive_high=0.6,
                groups=9,
            ),
            ("drop", "44.0 pp", "[25.0, 60.0]", "<= 15 pp", "60 (9 images)"),
        ),
        (Measure("pcri", math.nan, n=0, bound="0.2"), ("pcri", "undefined", "", "0.2", "0")),
        (Measure("accuracy_drop", 0.5, n=3, unit="pp", category="odd"), ("accuracy_drop (odd)", "50.0 pp", "", "", "3")),
    ],
)
def test_a_row(measure: Measure, shown: tuple[str, ...]) -> None:
    assert row_of(record("a", measures=(measure,))) == shown


def test_a_row_of_nothing_is_empty_and_no_zero() -> None:
    assert row_of(record("a", Outcome.ERROR, measures=())) == ("", "", "", "", "")


def test_the_worst_questions_are_different_and_from_the_worst_tests() -> None:
    def questions(*records: Record) -> list[tuple[str, str]]:
        return [(question.record.id, question.example.sample) for question in RunView(records, RunFacts()).worst_questions()]

    def samples(*names: str) -> dict[str, Any]:
        return {"examples": tuple(example(sample=name) for name in names)}

    worst = record("m-d-a", Outcome.FAIL, 0.5, **samples("1", "2", "3"))
    assert questions(worst, record("m-d-b", Outcome.FAIL, 0.4, **samples("1", "4"))) == [("m-d-a", "1"), ("m-d-a", "2")]
    assert questions(worst, record("m-d-b", Outcome.FAIL, 0.6, **samples("5"))) == [("m-d-b", "5"), ("m-d-a", "1")]
    passed = record("m-d-c", **samples("6"))
    assert questions(passed, record("m-d-mean", Outcome.FAIL)) == [("m-d-c", "6")]  # a sweep has no examples
    assert questions(passed, record("n-d-mean", Outcome.FAIL, model="n")) == []
    assert questions(passed) == []
    assert questions(record("m-d-patches:2", Outcome.FAIL, examples=(patched(),))) == []


def test_an_answer_is_worded_by_the_options_that_it_was_given() -> None:
    replies = (Reply("clean", "B", "B", option="cat"), Reply("option_order:1", "B", "B"))
    moved = Example("q1", "newly_wrong", "Which?", {"A": "cat", "B": "dog"}, "A", replies=replies)
    assert [said for _, said, _ in WorstQuestion(record("m-d-a"), moved).answers] == ["B cat", "B dog"]


def test_graded_answers_show_their_scores_and_no_mark() -> None:
    graded = example(replies=(Reply("clean", "cat", "cat", value=0.9), Reply("fog:high", "car", "car", value=0.6)))
    page = render_html(RunView([record("m-d-a", Outcome.FAIL, 0.5, examples=(graded,))], RunFacts()))
    marks = re.findall(r'class="answer c-\w+" dir="auto"><span aria-hidden="true">([^<]*)<', page)
    assert marks == ["0.90", "0.60"]


def test_counts_stand_worst_first() -> None:
    records = [record("a"), record("b", Outcome.FAIL), record("c"), record("d", Outcome.ERROR)]
    assert RunView(records, RunFacts()).counts == "1 FAIL, 1 ERROR, 2 PASS"
    assert RunView([], RunFacts()).counts == ""


@pytest.mark.parametrize(
    ("outcomes", "sentence"),
    [
        ("PASS PASS WAIVED", "2 verdicts passed, 1 waived, none failed"),
        ("PASS FAIL ERROR", "1 verdict broke a bound"),
        ("MEASURED", "no failures, but no rule applied"),
        ("PASS ERROR WAIVED", "1 test ended in an error: this says nothing about the model"),
    ],
)
def test_the_sentence_behind_a_decision(outcomes: str, sentence: str) -> None:
    records = [record(f"t{number}", Outcome(name)) for number, name in enumerate(outcomes.split())]
    assert RunView(records, RunFacts()).sentence == sentence


def test_what_the_policy_asks_for_beside_holds_a_decision_back() -> None:
    records = [record("a"), record("b")]
    facts = RunFacts(planned=2, selected=2, shortfalls=["no gated test of test_patches.py ran"])
    assert RunFacts(planned=2, selected=2).decision(records) is Decision.GO
    assert facts.decision(records) is Decision.INCONCLUSIVE
    assert RunView(records, facts).sentence == "no failures, but the run lacks what the policy requires for GO"
    assert RunView(records, facts).grave == ["not GO: no gated test of test_patches.py ran"]
    assert facts.decision([*records, record("c", Outcome.FAIL)]) is Decision.NO_GO
    assert facts.decision(records[:1]) is Decision.INCOMPLETE


def test_notes_name_their_test_and_the_rest_is_counted() -> None:
    records = [record(f"cell-{number}", notes=(f"{number} of 9 samples: too small", "the same")) for number in range(1, 10)]
    assert RunView(records, RunFacts()).notes(3) == [
        f"{records[0].id}: 1 of 9 samples: too small",
        f"{records[0].id} and 8 more: the same",
        f"{records[1].id}: 2 of 9 samples: too small",
        "7 more notes are in results.json",
    ]
    assert RunView([record("quiet")], RunFacts()).notes() == []


def test_what_is_said_of_original_pictures_comes_before_what_it_explains() -> None:
    """A wrong convention of boxes is why a task does not apply."""
    records = [
        record("dropped", setting="fog:low", notes=("too small",)),
        record("unasked", Outcome.NOT_APPLICABLE, not_asked="cannot do the task"),
        *(record(f"other-{number}", setting="fog:low", notes=(f"note {number}",)) for number in range(9)),
        record("original", Outcome.MEASURED, setting="clean", notes=("boxes fit 'thousandths' better",)),
    ]
    assert RunView(records, RunFacts()).notes(8)[:3] == [
        "original: boxes fit 'thousandths' better",
        "m-d: 1 test does not apply: cannot do the task",
        "dropped: too small",
    ]
    assert len(RunView(records, RunFacts()).notes(8)) == 1 + 8 + 1


def test_everything_that_holds_a_decision_back_is_said() -> None:
    records = [record("a"), record("b", Outcome.INCONCLUSIVE), *(record(name, Outcome.NOT_APPLICABLE) for name in "cd")]
    facts = RunFacts(planned=4, selected=4, shortfalls=["no gated test of test_patches.py ran"], models=["m", "n"])
    said = "no failures, but 1 test is undecided, 2 tests do not apply, the run lacks what the policy requires for GO"
    assert RunView(records, facts).sentence == f"{said} and no rule judged n"
    assert RunView(records[:2], RunFacts()).sentence == "no failures, but 1 test is undecided"


def test_an_error_without_a_number_is_named() -> None:
    judged = Measure("accuracy_drop", math.nan, outcome=Outcome.INCONCLUSIVE, rule="drop", bound="0.05")
    nothing = Measure("", math.nan, outcome=Outcome.ERROR, reason="no sample was scored")
    assert row_of(record("a", Outcome.ERROR, measures=(judged, nothing))) == ("answers", "undefined", "", "", "0")


BROKEN = "accuracy 0.500 < 0.900 (rule r, p.yaml:3)"
OPEN = "harmful_flip_rate 0.300, too few questions to tell if <= 0.200 (rule f, p.yaml:4)"


def test_what_only_warns_is_said_whatever_the_verdict_but_not_where_nothing_was_asked() -> None:
    passed = Measure(
        "accuracy_drop", 0.1, outcome=Outcome.PASS, reason=f"kept (rule d, p.yaml:2); warning: {BROKEN}; warning: {OPEN}"
    )
    alone = Measure("accuracy", 0.5, reason=f"warning: {BROKEN}")
    useless = Measure("baseline_drop", math.nan, reason="warning: baseline_drop does not apply: none (rule b, p.yaml:5)")
    quiet = record("q", Outcome.NOT_APPLICABLE, measures=(useless,), not_asked="the task is not done")
    records = [record("a", measures=(useless, passed)), quiet, record("b", Outcome.MEASURED, measures=(alone,)), record("c")]
    assert RunView(records, RunFacts()).warnings == [
        f"a: {BROKEN}",
        f"a: {OPEN}",
        f"b: {BROKEN}",
        "a: baseline_drop does not apply: none (rule b, p.yaml:5)",
    ]


def test_what_passed_is_not_all_where_a_rule_warns() -> None:
    alone = Measure("accuracy", 0.5, reason=f"warning: {BROKEN}")
    records = [record("a"), record("b", Outcome.MEASURED, measures=(alone, alone))]
    assert RunView(records, RunFacts()).sentence == "1 verdict passed, none failed; 2 warnings"


def test_a_go_ends_with_the_rules_that_it_does_not_show() -> None:
    records = [record("a"), open_record("b", "gap", 0.2), open_record("c", "gap", 0.6), open_record("d", "boxes", 0.4)]
    assert RunView(records, RunFacts()).sentence == "4 verdicts passed, none failed; 2 rules are not shown to hold"
    records += [open_record("e", "groups", math.nan, Outcome.NOT_APPLICABLE)]
    assert RunView(records, RunFacts()).sentence == (
        "5 verdicts passed, none failed; 1 rule did not apply everywhere; 2 rules are not shown to hold"
    )
    view = RunView(records, RunFacts())
    assert view.open_rule_lines(undecided=True) == ["c and 1 more test: why gap", "d: why boxes"]
    assert view.open_rule_lines(undecided=False) == ["e: why groups"]
    assert "not shown" not in RunView([*records, record("f", Outcome.FAIL)], RunFacts()).sentence
    assert "not shown" not in RunView(records[:1], RunFacts()).sentence


def test_what_is_not_shown_is_no_warning() -> None:
    both = Measure(
        "accuracy_drop", 0.1, reason=f"kept (rule d, p.yaml:2); not shown: {OPEN}; warning: {BROKEN}; not shown: {OPEN}"
    )
    assert RunView([record("a", measures=(both,))], RunFacts()).warnings == [f"a: {BROKEN}"]


def test_a_go_says_how_many_verdicts_hold_for_these_samples_only() -> None:
    point = Measure("accuracy_drop", 0.1, bound="0.2", outcome=Outcome.PASS, rule="r", target="dataset")
    by_value = record("a", measures=(point,))
    waived = record("b", Outcome.WAIVED)
    assert RunView([by_value], RunFacts()).sentence == "1 verdict passed, none failed; all judged by value"
    assert RunView([by_value, waived, record("c")], RunFacts()).sentence == (
        "2 verdicts passed, 1 waived, none failed; 1 judged by value"
    )


@pytest.mark.parametrize("odd", [{}, {"policies": 3}, {"policies": {"m": 3}}, {"policies": {"m": {"replaced": 3}}}])
def test_a_manifest_that_does_not_say_what_is_replaced_is_survived(odd: dict[str, object]) -> None:
    assert policy_replacements(odd) == []


def test_what_later_files_replace_is_said_model_by_model() -> None:
    origins = {"policies": {"m": {"replaced": ["a is replaced", "b is replaced"]}, "n": {}}}
    assert policy_replacements(origins) == ["policy of m: a is replaced", "policy of m: b is replaced"]


@pytest.mark.parametrize(("target", "judged"), [("population", "interval"), ("dataset", "value")])
def test_every_report_says_what_was_judged(target: str, judged: str) -> None:
    """An interval of [0, 1] beside a breach by value would look as if it had decided."""
    rate = Measure("severe_failure_rate", 0.2, 0.0, 1.0, 100, "0.17", Outcome.FAIL, "broken", "severe", "p.yaml:4", target=target)
    about = Record("sweep", "m-d-severe_failure_rate", "m", "d", metric=rate.metric, outcome=Outcome.FAIL, measures=(rate,))
    facts = RunFacts(planned=1, selected=1)
    reports = {
        "terminal": render_terminal(RunView([about], facts), width=200, color=False),
        "summary": summary(RunView([about], facts)),
        "model card": model_card(RunView([about], facts)),
        "message": explain(about),
        "page": render_html(RunView([about], facts)).replace("\N{EN DASH}", "-"),
    }
    for name, text in reports.items():
        assert ("[0.000, 1.000]" in text) is (judged == "interval"), name
        assert ("by value" in text.replace('"by_value":"judged by value"', "")) is (judged == "value"), name
    assert (rate.judge, rate.beside) == (judged, "[0.000, 1.000]" if judged == "interval" else "judged by value")
    assert cells_csv(RunView([about], RunFacts())).splitlines()[1].endswith(f",{judged},0,")
    assert Measure("accuracy", 0.5).judge == ""


def cell(model: str, dataset: str, value: float, setting: str = "patches:2") -> Record:
    return Record(
        "cell", f"{model}-{dataset}-{setting}", model, dataset, setting, measures=(Measure("pcri", 9.0), Measure("rci", value))
    )


ALIKE = [
    cell("a", "x", -0.2),
    cell("a", "y", 0.0),
    cell("a", "z", 0.3),
    cell("b", "x", -0.3),
    cell("b", "y", 0.1),
    cell("b", "z", 0.2),
]


def test_each_pair_of_models_is_compared_over_the_data_sets_that_both_have() -> None:
    assert agreement(ALIKE) == ["RCI of patches:2 over 3 datasets, a against b: correlation 0.90, of ranks 1.00"]
    assert agreement([*ALIKE, cell("c", "x", 0.0), cell("a", "w", 0.5)]) == agreement(ALIKE)
    grids = [*ALIKE, *(cell(record.model, record.dataset, 0.1, "patches:3") for record in ALIKE)]
    assert agreement(grids)[1].endswith(
        "RCI of patches:3 over 3 datasets, a against b: correlation undefined, one side is constant"
    )


def test_an_index_that_does_not_apply_is_left_out() -> None:
    assert agreement([*ALIKE[:4], cell("b", "y", math.nan)]) == []


def test_it_stands_after_the_notes() -> None:
    assert RunView([*ALIKE, record("x", notes=("n",))], RunFacts()).notes() == ["x: n", *agreement(ALIKE)]
    assert agreement(ALIKE[:3]) == []
