from __future__ import annotations

import math

import pytest

from pytest_vlmrobust.core.decision import Decision, Outcome
from pytest_vlmrobust.core.record import Measure, Record
from pytest_vlmrobust.reporting.explanation import explain
from pytest_vlmrobust.reporting.files import summary
from pytest_vlmrobust.reporting.html import render_html
from pytest_vlmrobust.reporting.model_card import model_card
from pytest_vlmrobust.reporting.results import cells_csv
from pytest_vlmrobust.reporting.terminal import render_terminal
from pytest_vlmrobust.reporting.view import decision_sentence, view
from pytest_vlmrobust.reporting.wording import (
    RunFacts,
    agreement,
    headline,
    note_lines,
    open_rule_sentences,
    outcome_counts,
    policy_replacements,
    row,
    warning_lines,
    worst_first,
)

from .conftest import open_record, record


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
    assert [one.id for one in worst_first(records)] == ["f", "e", "n", "x", "w", "c", "a", "b"]


def test_the_headline_is_what_decided() -> None:
    drop = Measure("accuracy_drop", 0.1, outcome=Outcome.PASS, rule="drop")
    flips = Measure("harmful_flip_rate", 0.3, outcome=Outcome.FAIL, rule="flips")
    assert headline(record("a", Outcome.FAIL, measures=(drop, flips))) is flips


def test_without_a_decision_the_headline_is_the_drop_of_the_whole_data_set() -> None:
    accuracy, drop = Measure("accuracy", 0.9), Measure("accuracy_drop", 0.1)
    part = Measure("accuracy_drop", 0.7, category="odd")
    assert headline(record("a", Outcome.MEASURED, measures=(accuracy, drop, part))) is drop
    assert headline(record("a", Outcome.MEASURED, measures=(accuracy,))) is accuracy
    assert headline(record("a", Outcome.ERROR, measures=())) is None


@pytest.mark.parametrize(
    ("measure", "shown"),
    [
        (Measure("pcri", 0.1234, -0.05, 0.3, 7, "0.2"), ("pcri", "0.123", "[-0.050, 0.300]", "0.2", "7")),
        (Measure("pcri", math.nan, n=0, threshold="0.2"), ("pcri", "undefined", "", "0.2", "0")),
        (Measure("accuracy_drop", 0.5, n=3, category="odd"), ("accuracy_drop (odd)", "0.500", "", "", "3")),
    ],
)
def test_a_row(measure: Measure, shown: tuple[str, ...]) -> None:
    assert row(record("a", measures=(measure,)), {}) == shown


def test_a_row_of_nothing_is_empty_and_no_zero() -> None:
    assert row(record("a", Outcome.ERROR, measures=()), {}) == ("", "", "", "", "")


def test_counts_stand_worst_first() -> None:
    records = [record("a"), record("b", Outcome.FAIL), record("c"), record("d", Outcome.ERROR)]
    assert outcome_counts(records) == "1 FAIL, 1 ERROR, 2 PASS"
    assert outcome_counts([]) == ""


@pytest.mark.parametrize(
    ("decision", "sentence"),
    [
        (Decision.GO, "2 verdicts passed, 1 is waived, none failed"),
        (Decision.NO_GO, "0 verdicts broke a bound"),
        (Decision.INCONCLUSIVE, "no failures, but no rule applied"),
        (Decision.INCOMPLETE, "1 test ended in an error: this says nothing about the model"),
    ],
)
def test_the_sentence_behind_a_decision(decision: Decision, sentence: str) -> None:
    records: list[Record] = [record("a"), record("b"), record("c", Outcome.WAIVED), record("d", Outcome.ERROR)]
    assert decision_sentence(decision, records, RunFacts()) == sentence


def test_what_the_policy_asks_for_beside_holds_a_decision_back() -> None:
    records = [record("a"), record("b")]
    facts = RunFacts(planned=2, selected=2, shortfalls=["no gated test of test_patches.py ran"])
    assert RunFacts(planned=2, selected=2).decision(records) is Decision.GO
    assert facts.decision(records) is Decision.INCONCLUSIVE
    assert (
        decision_sentence(Decision.INCONCLUSIVE, records, facts)
        == "no failures, but the run lacks what the policy requires for GO"
    )
    assert view(records, facts).grave == ["not GO: no gated test of test_patches.py ran"]
    assert facts.decision([*records, record("c", Outcome.FAIL)]) is Decision.NO_GO
    assert facts.decision(records[:1]) is Decision.INCOMPLETE


def test_notes_name_their_test_and_the_rest_is_counted() -> None:
    records = [record(f"cell-{number}", notes=(f"{number} of 9 samples: too small", "the same")) for number in range(1, 10)]
    assert note_lines(records, most=3) == [
        f"{records[0].id}: 1 of 9 samples: too small",
        f"{records[0].id} and 8 more: the same",
        f"{records[1].id}: 2 of 9 samples: too small",
        "7 more notes are in results.json",
    ]
    assert note_lines([record("quiet")]) == []


def test_what_is_said_of_original_pictures_comes_before_what_it_explains() -> None:
    """A wrong convention of boxes is why a task does not apply."""
    records = [
        record("dropped", setting="fog:low", notes=("too small",)),
        record("unasked", Outcome.NOT_APPLICABLE, not_asked="not shown to do the task"),
        *(record(f"other-{number}", setting="fog:low", notes=(f"note {number}",)) for number in range(9)),
        record("original", Outcome.MEASURED, setting="clean", notes=("boxes fit 'thousandths' better",)),
    ]
    assert note_lines(records)[:3] == [
        "original: boxes fit 'thousandths' better",
        "m-d: 1 test does not apply: not shown to do the task",
        "dropped: too small",
    ]
    assert len(note_lines(records)) == 1 + 8 + 1


def test_everything_that_holds_a_decision_back_is_said() -> None:
    records = [record("a"), record("b", Outcome.INCONCLUSIVE), *(record(name, Outcome.NOT_APPLICABLE) for name in "cd")]
    facts = RunFacts(planned=4, selected=4, shortfalls=["no gated test of test_patches.py ran"], models=["m", "n"])
    said = "no failures, but 1 test is undecided, 2 tests do not apply, the run lacks what the policy requires for GO"
    assert decision_sentence(Decision.INCONCLUSIVE, records, facts) == f"{said} and no rule judged n"
    assert decision_sentence(Decision.INCONCLUSIVE, records[:2], RunFacts()) == "no failures, but 1 test is undecided"


def test_an_error_without_a_number_is_named() -> None:
    judged = Measure("accuracy_drop", math.nan, outcome=Outcome.INCONCLUSIVE, rule="drop", threshold="0.05")
    nothing = Measure("", math.nan, outcome=Outcome.ERROR, reason="no sample was scored")
    assert row(record("a", Outcome.ERROR, measures=(judged, nothing)), {}) == ("answers", "undefined", "", "", "0")


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
    assert warning_lines(records) == [
        f"a: {BROKEN}",
        f"a: {OPEN}",
        f"b: {BROKEN}",
        "a: baseline_drop does not apply: none (rule b, p.yaml:5)",
    ]
    assert warning_lines(records[2:3] * 10)[7:] == [f"b: {BROKEN}", "2 more warnings are in results.json"]


def test_what_passed_is_not_all_where_a_rule_warns() -> None:
    alone = Measure("accuracy", 0.5, reason=f"warning: {BROKEN}")
    records = [record("a"), record("b", Outcome.MEASURED, measures=(alone, alone))]
    assert decision_sentence(Decision.GO, records, RunFacts()) == "1 verdict passed, none failed; 2 warnings"


def test_a_go_ends_with_the_rules_that_it_does_not_show() -> None:
    records = [record("a"), open_record("b", "gap", 0.2), open_record("c", "gap", 0.6), open_record("d", "boxes", 0.4)]
    assert decision_sentence(Decision.GO, records, RunFacts()) == "4 verdicts passed, none failed; 2 rules are not shown to hold"
    records += [open_record("e", "groups", math.nan, Outcome.NOT_APPLICABLE)]
    assert decision_sentence(Decision.GO, records, RunFacts()) == (
        "5 verdicts passed, none failed; 1 rule did not apply everywhere; 2 rules are not shown to hold"
    )
    assert open_rule_sentences(records) == [
        "not shown: c and 1 more test: why gap",
        "not shown: d: why boxes",
        "did not apply: e: why groups",
    ]
    assert "not shown" not in decision_sentence(Decision.NO_GO, records, RunFacts())
    assert "not shown" not in decision_sentence(Decision.GO, records[:1], RunFacts())


def test_what_is_not_shown_is_no_warning() -> None:
    both = Measure(
        "accuracy_drop", 0.1, reason=f"kept (rule d, p.yaml:2); not shown: {OPEN}; warning: {BROKEN}; not shown: {OPEN}"
    )
    assert warning_lines([record("a", measures=(both,))]) == [f"a: {BROKEN}"]


def test_a_go_says_how_many_verdicts_hold_for_these_samples_only() -> None:
    point = Measure("accuracy_drop", 0.1, threshold="0.2", outcome=Outcome.PASS, rule="r", target="dataset")
    by_value = record("a", measures=(point,))
    waived = record("b", Outcome.WAIVED)
    assert decision_sentence(Decision.GO, [by_value], RunFacts()) == "1 verdict passed, none failed; all judged by value"
    assert decision_sentence(Decision.GO, [by_value, waived, record("c")], RunFacts()) == (
        "2 verdicts passed, 1 is waived, none failed; 1 judged by value"
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
    one = Measure("severe_failure_rate", 0.2, 0.0, 1.0, 100, "0.17", Outcome.FAIL, "broken", "severe", "p.yaml:4", target=target)
    about = Record("sweep", "m-d-severe_failure_rate", "m", "d", metric=one.metric, outcome=Outcome.FAIL, measures=(one,))
    facts = RunFacts(planned=1, selected=1)
    reports = {
        "terminal": render_terminal([about], facts, width=200, color=False),
        "summary": summary([about], facts),
        "model card": model_card([about], facts, {}),
        "message": explain(about),
        "page": render_html([about], facts, {}).replace("\N{EN DASH}", "-"),
    }
    for name, text in reports.items():
        assert ("[0.000, 1.000]" in text) is (judged == "interval"), name
        assert ("by value" in text.replace('"by_value":"judged by value"', "")) is (judged == "value"), name
    assert (one.judge, one.beside("[0, 1]")) == (judged, "[0, 1]" if judged == "interval" else "judged by value")
    assert cells_csv([about]).splitlines()[1].endswith(f",{judged},0,")
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
    assert note_lines(ALIKE) == agreement(ALIKE)
    assert note_lines(ALIKE[:3]) == []
