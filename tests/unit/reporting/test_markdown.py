from __future__ import annotations

import dataclasses
import doctest
import math
import re
from collections.abc import Callable

import pytest

from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.record import Measure, Record
from pytest_vlmrobust.reporting import RunFacts, RunView, markdown
from pytest_vlmrobust.reporting.markdown import code, inert, model_card, questions

from .conftest import record

ORIGINS = {
    "version": "0.1.0",
    "run": "r1",
    "date": "2026-06-01",
    "models": {"m": {"location": "owner/name", "revision": "abc", "prompt_mode": "direct"}},
}


def test_it_says_what_was_gated_decided_and_left_out(stored: Callable[..., None]) -> None:
    fog = dataclasses.replace(record("m-d-fog:high", Outcome.FAIL, 0.3), setting="fog:high", policy_sha256="c0ffee", n_unparsed=4)
    mild = dataclasses.replace(record("m-d-fog:low"), setting="fog:low", n_requested=12, n_samples=100)
    worst = dataclasses.replace(
        record("m-d-worst", Outcome.WAIVED, reason="waived by W1"),
        test="sweep",
        metric="worst_case_drop",
        measures=(Measure("worst_case_drop", 0.3, 0.1, 0.4, 100, "0.2", Outcome.WAIVED),),
    )
    stored(model_card(RunView([mild, fog, worst], dataclasses.replace(RunFacts(planned=4, selected=3), origins=ORIGINS))))


def test_it_maps_evidence_to_what_reviewers_ask_for_and_says_what_is_missing() -> None:
    clean = dataclasses.replace(record("m-d-clean"), setting="clean")
    fog = dataclasses.replace(record("m-d-fog:low", Outcome.FAIL), setting="fog:low")
    gap = Measure("group_gap", 0.1, n=9, outcome=Outcome.PASS, rule="groups", bound="0.2")
    people = dataclasses.replace(record("m-d-blur:low"), setting="blur:low", measures=(gap,))

    def evidence(*records: Record, **origins: object) -> dict[str, str]:
        section = (
            model_card(RunView(records, RunFacts(origins=origins)))
            .partition("### Evidence for reviewers")[2]
            .partition("### Limits")[0]
        )
        assert "no statement that a requirement is met" in section
        rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")][1:]
        return {question: answer for question, by, answer in rows if by}

    full = evidence(clean, fog, people, **ORIGINS, datasets={"d": "c0ffee"})
    assert (
        full["resilience to errors, faults and inconsistencies of the environment"] == "2 perturbed settings, each with its loss"
    )
    assert full["performance for groups of persons"] == "group_gap"
    assert full["test data and their main characteristics"] == "digests of d in manifest.json"
    assert full["changes since the version before"] == "none in this run"
    assert full["limitations, and what was accepted by whom"].startswith("1 test broken")
    summed = dataclasses.replace(people, setting="", measures=(dataclasses.replace(gap, metric="clean_accuracy"),))
    levels = "levels of accuracy, and the metrics they are in"
    assert full[levels] == evidence(summed)[levels] == "accuracy on clean images with its interval, on d"
    assert evidence(people)[levels] == "none in this run"
    attacked = evidence(dataclasses.replace(people, measures=(dataclasses.replace(gap, metric="attack_rate"),)))
    assert attacked["resilience to attacks"] == "attack_rate"
    empty = evidence()
    assert {answer.partition(":")[0] for answer in empty.values()} == {"none in this run", "none"}
    assert full.keys() == empty.keys() == {question.text for question in questions()}


def test_a_run_of_nothing_says_so() -> None:
    text = model_card(RunView([], RunFacts()))
    assert "**INCONCLUSIVE**" in text
    assert "- Data: none; 0 perturbed settings" in text


def test_names_are_no_markup() -> None:
    text = model_card(RunView([dataclasses.replace(record("x"), model="<script>|\n# x")], RunFacts()))
    assert "<script>" not in text
    assert "\n# x" not in text


BUDGET = Measure("unparsed_rate", 0.3, n=100, bound="<= 5 %", unit="%", outcome=Outcome.FAIL, rule="max_unparsed_rate")


def test_a_row_has_the_verdict_of_its_test_and_the_measure_behind_it() -> None:
    kept = Measure("mean_drop", 0.1, 0.05, 0.15, 100, "0.2", Outcome.PASS, rule="mean")
    budget = record("m-d-mean_drop", Outcome.FAIL, test="sweep", metric="mean_drop", measures=(kept, BUDGET))
    part = Measure("accuracy", 0.2, 0.1, 0.3, 20, "0.6", Outcome.FAIL, rule="counting", category="count")
    clean = record("m-d-clean", Outcome.FAIL, setting="clean", measures=(Measure("accuracy", 0.9, 0.8, 1.0, 100), part))
    lost = record("m-d-worst", Outcome.ERROR, test="sweep", metric="worst_case_drop", measures=())
    text = model_card(RunView([budget, clean, lost], RunFacts(origins=ORIGINS)))
    for line in (
        "| d | mean_drop | 0.100 | [0.050, 0.150] | 100 | FAIL | unparsed_rate 30.0 %, bound &lt;= 5 % |",
        "| d | accuracy (clean) | 0.900 | [0.800, 1.000] | 100 | FAIL | accuracy (count) 0.200, bound 0.6 |",
        "| d | worst_case_drop | undefined |  | 0 | ERROR |  |",
    ):
        assert f"{line}\n" in text


def test_every_broken_rule_and_budget_is_listed() -> None:
    drops = [record(f"m-d-fog:{number}", Outcome.FAIL, 0.3) for number in range(7)]
    both = dataclasses.replace(drops[0], measures=(*drops[0].measures, BUDGET))
    part = record(
        "m-d-x",
        Outcome.WAIVED,
        measures=(Measure("accuracy", 0.2, bound="0.6", outcome=Outcome.WAIVED, rule="r", category="c"),),
    )
    unscored = record("m-d-y", Outcome.ERROR, setting="snow:low", measures=(Measure("", math.nan, outcome=Outcome.ERROR),))
    text = model_card(RunView([both, *drops[1:], part, unscored, record("m-d-z")], RunFacts(origins=ORIGINS)))
    assert text[text.index("Broken rules") :].splitlines()[2:7] == [
        "- FAIL: accuracy_drop, drop, bound 0.2: m-d-fog:0, m-d-fog:1, m-d-fog:2, m-d-fog:3, m-d-fog:4 and 2 more",
        "- FAIL: unparsed_rate, max_unparsed_rate, bound &lt;= 5 %: m-d-fog:0",
        "- WAIVED: accuracy, r, bound 0.6: m-d-x (c)",
        "- ERROR: answers: m-d-y",
        "",
    ]
    assert "(snow:low)" not in text
    assert "Broken rules" not in model_card(RunView([record("m-d-z")], RunFacts(origins=ORIGINS)))


def test_what_was_not_asked_is_counted_and_no_number() -> None:
    undefined = (Measure("mean_drop", math.nan, n=96),)
    unasked = record(
        "m-d-mean_drop", Outcome.NOT_APPLICABLE, test="sweep", metric="mean_drop", measures=undefined, not_asked="no"
    )
    text = model_card(RunView([unasked, dataclasses.replace(unasked, id="again")], RunFacts(origins=ORIGINS)))
    assert "- m-d: 2 tests do not apply: no\n" in text
    assert "| d | mean_drop" not in text
    ruled = dataclasses.replace(undefined[0], outcome=Outcome.NOT_APPLICABLE, rule="mean", bound="0.1")
    text = model_card(RunView([dataclasses.replace(unasked, measures=(ruled,))], RunFacts(origins=ORIGINS)))
    assert "| d | mean_drop | undefined |  | 96 | NOT_APPLICABLE | mean_drop undefined, bound 0.1 |\n" in text


@pytest.mark.cases(
    ("text", "shown"),
    [
        ("<script>alert(1)</script>", "&lt;script>alert(1)&lt;/script>"),
        ("[x](http://evil)", "&#91;x&#93;(http://evil)"),
        ("![i](http://evil/p.png)", "!&#91;i&#93;(http://evil/p.png)"),
        ("[1, 2](http://evil)", "&#91;1, 2&#93;(http://evil)"),
        ("0.3 [-0.050, 0.300] > 0.2", "0.3 [-0.050, 0.300] > 0.2"),
        ("ping @everyone, jane@example.org", "ping @&#8203;everyone, jane@example.org"),
        ("\x1b[31m \u202eabc", "\\x1b&#91;31m \\u202eabc"),
        ("\\[x](y)", "&#92;&#91;x&#93;(y)"),
        ("&lt;i&gt; a & b", "&amp;lt;i&amp;gt; a & b"),
        ("# big", "&#35; big"),
        ("1. one", "&#49;&#46; one"),
        (
            "**b** _i_ snake_case ~~s~~ `c` $m$",
            "&#42;&#42;b&#42;&#42; &#95;i&#95; snake_case &#126;&#126;s&#126;&#126; &#96;c&#96; &#36;m&#36;",
        ),
        ("a|b\nc", "a\\|b c"),
        ("-0.1..0.3", "-0.1..0.3"),
    ],
)
def test_nothing_is_obeyed(text: str, shown: str) -> None:
    assert inert(text) == shown


@pytest.mark.cases("text", ["a", "`a`", "a``b`c", "`", "<b>|@x"])
def test_code_ends_where_it_should(text: str) -> None:
    shown = code(text)
    fence = re.match("`+", shown)
    assert fence is not None
    inside = shown[len(fence[0]) : -len(fence[0])]
    assert fence[0] not in inside.strip()
    assert inside.strip(" ").replace("\\|", "|") == text
    assert inside[0] != "`" != inside[-1]


def test_the_examples() -> None:
    assert doctest.testmod(markdown).failed == 0
