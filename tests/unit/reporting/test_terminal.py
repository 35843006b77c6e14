from __future__ import annotations

import dataclasses
import re
from itertools import pairwise
from typing import Any

import pytest

from pytest_vlmrobust.core.comparison import Repeatability
from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.record import Measure, Record
from pytest_vlmrobust.reporting import Command, RunFacts, render_terminal

from .conftest import record

PAGE = """\
verdict  test                 metric          value    90 % interval  bound    n
FAIL     m-d-fog:high         accuracy_drop   0.300   [0.250, 0.350]    0.2  100
ERROR    m-d-snow:high
PASS     m-d-fog:low          accuracy_drop   0.100   [0.050, 0.150]    0.2  100
FAIL m-d-fog:high: accuracy_drop 0.300
ERROR m-d-snow:high: the model does not load
warning p.yaml:9: waiver W1 of jo expired on 2026-01-01: renew or remove it
1 FAIL, 1 ERROR, 1 PASS
120 inferences; 80 answers came from the store
policy of m: p.yaml 0123456789ab
partial selection: 3 of 8 tests; the decision covers these only
NO-GO  1 verdict broke a bound
"""


def render(*records: Record, facts: RunFacts | None = None, width: int = 100, color: bool = False) -> str:
    return render_terminal(records, facts or RunFacts(), width=width, color=color)


def test_the_page() -> None:
    facts = RunFacts(
        policies={"m": "p.yaml 0123456789ab"},
        planned=8,
        selected=3,
        warnings=["p.yaml:9: waiver W1 of jo expired on 2026-01-01: renew or remove it"],
    )
    failed: dict[str, Any] = {"measures": (), "n_inferred": 0, "n_recalled": 0, "reason": "the model does not load"}
    text = render(
        record("m-d-fog:low"),
        record("m-d-snow:high", Outcome.ERROR, **failed),
        record("m-d-fog:high", Outcome.FAIL, 0.3),
        facts=facts,
    )
    assert spaces_alike(text) == spaces_alike(PAGE)


def spaces_alike(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def test_the_decision_stands_last() -> None:
    assert render(record("a")).rstrip().splitlines()[-1] == "GO  1 verdict passed, 0 are waived, none failed"


def test_nothing_but_text_without_colour() -> None:
    assert "\x1b" not in render(record("a", Outcome.FAIL))
    assert "\x1b[1;31mNO-GO\x1b[0m" in render(record("a", Outcome.FAIL), color=True)


@pytest.mark.parametrize("text", ["[red]", "[/]", "[bold]x[/bold]", "a\\[b]", ":smile: and :warning:", "[link=https://x]y"])
@pytest.mark.parametrize("color", [False, True])
def test_markup_of_others_is_shown_and_not_obeyed(text: str, color: bool) -> None:
    measure = Measure(f"mine{text}", 0.1, threshold=text, outcome=Outcome.FAIL, rule="r")
    page = render(
        record(f"m-{text}", Outcome.FAIL, reason=f"because {text}", measures=(measure,)),
        facts=RunFacts(policies={f"m{text}": f"p {text}"}, warnings=[f"warned {text}"]),
        width=300,
        color=color,
    )
    plain = re.sub(r"\x1b\[[0-9;]*m", "", page)
    for shown in (f"m-{text}", f"because {text}", f"mine{text}", f"warned {text}", f"policy of m{text}: p {text}"):
        assert shown in plain


def test_reasons_are_never_cut_or_wrapped() -> None:
    reason = "word " * 60 + "end"
    assert reason in render(record("a", Outcome.FAIL, reason=reason), width=80)


def test_ids_are_whole_where_the_reason_stands_whatever_the_width() -> None:
    name = "some-long-model-name-some-long-dataset-name-random_occlusion:high"
    assert f"FAIL {name}: " in render(record(name, Outcome.FAIL), width=40)


LONG = "tiny-faces_160.matching-identity_accuracy-observatory_ood"


@pytest.mark.parametrize(("width", "lines"), [(80, 2), (120, 1), (160, 1)])
@pytest.mark.parametrize("color", [False, True])
def test_no_name_is_torn_whatever_the_width(width: int, lines: int, *, color: bool) -> None:
    text = re.sub(r"\x1b\[[0-9;]*m", "", render(record(LONG, Outcome.WAIVED), width=width, color=color))
    first, second = next((one, two) for one, two in pairwise(text.splitlines()) if one.startswith("WAIVED"))
    assert first.split()[:2] == ["WAIVED", LONG]
    assert (second if lines == 2 else first).endswith("accuracy_drop  0.100  [0.050, 0.150]    0.2  100")
    assert max(map(len, text.splitlines())) <= width


def test_names_of_several_lengths_stand_in_columns() -> None:
    text = render(record("a"), record("größer", Outcome.WAIVED, 0.25), width=100)
    (header, wide, narrow) = text.splitlines()[:3]
    assert len({header.index("metric"), wide.index("accuracy_drop"), narrow.index("accuracy_drop")}) == 1


def test_of_nothing_there_is_no_table() -> None:
    assert "verdict" not in render().splitlines()[0]
    assert render().startswith("0 inferences")


def test_what_is_wrong_comes_before_what_passes_which_is_cut() -> None:
    loud = [record(f"wrong-{i}", Outcome.FAIL) for i in range(20)]
    quiet = [record(f"fine-{i}") for i in range(20)]
    text = render(*loud, *quiet)
    assert all(f"wrong-{i}" in text for i in range(20))
    assert "fine-" not in text
    assert "… and 20 more that pass, are measured only or do not apply" in text
    calm = render(*quiet)
    assert calm.count("fine-") == 12
    assert "… and 8 more that pass, are measured only or do not apply" in calm


def test_of_hundreds_the_worst_are_shown_and_the_rest_is_counted_and_has_a_place() -> None:
    failed = [record(f"f-{i:03}", Outcome.FAIL, i / 1000, reason=f"drop {i}") for i in range(300)]
    broken = [record(f"e-{i:03}", Outcome.ERROR, reason="the model does not load") for i in range(100)]
    text = render(*failed, *broken, facts=RunFacts(kept="runs/x/records.jsonl"))
    lines = text.splitlines()
    assert len(lines) < 70
    assert lines[1].split()[:2] == ["FAIL", "f-299"]
    assert "… and 260 FAIL, 100 ERROR more; all rows are in runs/x/records.jsonl" in lines
    assert "… and 290 more reasons of FAIL; all of them are in runs/x/records.jsonl" in lines
    assert "ERROR e-000 and 99 more: the model does not load" in lines
    assert "300 FAIL, 100 ERROR" in lines


COMMAND = Command(("--vlm=tiny", "--vlm-dataset=my data.jsonl"), ("suites",))


def test_each_breach_has_the_command_that_runs_it_again() -> None:
    node = "suites/test_corruptions.py::test_cell[tiny-d-fog:mid]"
    loud = [record("a", Outcome.FAIL, nodeid=node), record("b", Outcome.FAIL), record("c", Outcome.INCONCLUSIVE, nodeid="x::y")]
    lines = render(*loud, facts=RunFacts(command=COMMAND)).splitlines()
    assert lines[lines.index("FAIL a: accuracy_drop 0.100") + 1] == (
        f"     pytest --vlm=tiny '--vlm-dataset=my data.jsonl' '{node}'"
    )
    assert "all 2 FAIL again: pytest --vlm=tiny '--vlm-dataset=my data.jsonl' --vlm-rerun=failed suites" in lines
    assert not any("x::y" in line for line in lines)  # what is undecided is so again


def test_one_breach_alone_needs_no_second_command() -> None:
    assert "--vlm-rerun" not in render(record("a", Outcome.FAIL), facts=RunFacts(command=COMMAND))


def test_the_noise_stands_beside_the_thresholds() -> None:
    about = Repeatability("m", "d", 200, 2, 3, 1, 6, 128, 0.01, 0.002, 0.03, {"accuracy_drop": 0.02}, {"accuracy_drop": 0.04})
    about = dataclasses.replace(about, conditions="another order", beside=("rule x: accuracy_drop bounded by 0.05",))
    text = render(record("a"), facts=RunFacts(repeatability=[about, Repeatability("m", "e", problem="the model is lost")]))
    assert (
        "A/A m-d: 2 of 200 answers flipped (1.00%, 90 % interval 0.20% to 3.00%), 3 were worded differently, "
        "1 inference failed; 6 cells, another order\n"
        "     noise of 128 samples between two runs: accuracy_drop 0.020 (at most 0.040)\n"
        "     rule x: accuracy_drop bounded by 0.05\n"
        "A/A m-e: not measured: the model is lost\n"
    ) in text


def test_a_whole_selection_says_nothing_of_parts() -> None:
    assert "partial" not in render(record("a"), facts=RunFacts(planned=1, selected=1))


@pytest.mark.parametrize(
    ("outcome", "explained"), [(Outcome.INCONCLUSIVE, True), (Outcome.WAIVED, False), (Outcome.NOT_APPLICABLE, True)]
)
def test_what_needs_a_decision_is_explained(outcome: Outcome, explained: bool) -> None:
    assert (f"{outcome} a: why" in render(record("a", outcome, reason="why"))) == explained


HOSTILE = "\x1b[2J ]]> [/x] \x00 down\nsecond \u202e line \ud800"
SPELLED = r"\x1b[2J ]]> [/x] \x00 down second \u202e line \ud800"


def test_nothing_that_models_or_data_hold_reaches_the_terminal_raw() -> None:
    facts = RunFacts(policies={"m": HOSTILE}, warnings=[HOSTILE], shortfalls=[HOSTILE], command=Command((HOSTILE,), ("suites",)))
    measured = Measure("accuracy_drop", 0.3, category=HOSTILE, rule="r", outcome=Outcome.FAIL)
    broken = record(f"m-d-{HOSTILE}", Outcome.FAIL, reason=HOSTILE, notes=(HOSTILE,), measures=(measured,), nodeid="t.py::t")
    text = render(broken, record("m-d-other", Outcome.ERROR, reason=HOSTILE, measures=()), facts=facts)
    assert all(char.isprintable() for char in text.replace("\n", ""))
    assert text.count(SPELLED) == 10
    assert "second" not in {line.split(" ")[0] for line in text.splitlines()}


def test_a_reason_of_a_million_characters_is_cut() -> None:
    text = render(record("m-d-x", Outcome.FAIL, reason="x" * 1_000_000))
    assert len(text) < 5000
    assert "more characters)" in text
