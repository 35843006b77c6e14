from __future__ import annotations

import re
from typing import Any

import pytest

from pytest_vlmrobust.core.record import Measure, Record
from pytest_vlmrobust.core.verdict import Outcome
from pytest_vlmrobust.reporting import RunFacts, render_terminal

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
partial selection: 3 of 8 tests; the decision speaks for these only
NO-GO  1 verdicts broke a bound
"""


def render(*records: Record, facts: RunFacts | None = None, width: int = 100, color: bool = False) -> str:
    return render_terminal(records, facts or RunFacts(), width=width, color=color)


def test_the_page() -> None:
    facts = RunFacts({"m": "p.yaml 0123456789ab"}, 8, 3, ["p.yaml:9: waiver W1 of jo expired on 2026-01-01: renew or remove it"])
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
    assert render(record("a")).rstrip().splitlines()[-1] == "GO  1 verdicts passed, 0 are waived, none failed"


def test_nothing_but_text_without_colour() -> None:
    assert "\x1b" not in render(record("a", Outcome.FAIL))
    assert "\x1b[1;31mNO-GO\x1b[0m" in render(record("a", Outcome.FAIL), color=True)


@pytest.mark.parametrize("text", ["[red]", "[/]", "[bold]x[/bold]", "a\\[b]", ":smile: and :warning:", "[link=https://x]y"])
@pytest.mark.parametrize("color", [False, True])
def test_markup_of_others_is_shown_and_not_obeyed(text: str, color: bool) -> None:
    measure = Measure(f"mine{text}", 0.1, threshold=text, outcome=Outcome.FAIL, rule="r")
    page = render(
        record(f"m-{text}", Outcome.FAIL, reason=f"because {text}", measures=(measure,)),
        facts=RunFacts({f"m{text}": f"p {text}"}, warnings=[f"warned {text}"]),
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


def test_on_a_narrow_terminal_names_take_two_lines_and_numbers_stay_whole() -> None:
    name = "qwen2.5-vl-7b-MMBench_DEV_EN-perspective_transform:high"
    text = render(record(name, Outcome.WAIVED), width=80)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80
    row = next(line for line in text.splitlines() if line.startswith("WAIVED"))
    assert row.endswith("0.100  [0.050, 0.150]    0.2  100")


def test_what_is_wrong_is_always_shown_and_what_passes_is_cut() -> None:
    loud = [record(f"wrong-{i}", Outcome.FAIL) for i in range(20)]
    quiet = [record(f"fine-{i}") for i in range(20)]
    text = render(*loud, *quiet)
    assert all(f"wrong-{i}" in text for i in range(20))
    assert "fine-" not in text
    assert "… and 20 more that pass or are measured only" in text
    calm = render(*quiet)
    assert calm.count("fine-") == 12
    assert "… and 8 more that pass or are measured only" in calm


def test_a_whole_selection_says_nothing_of_parts() -> None:
    assert "partial" not in render(record("a"), facts=RunFacts(planned=1, selected=1))


@pytest.mark.parametrize(
    ("outcome", "explained"), [(Outcome.INCONCLUSIVE, True), (Outcome.WAIVED, False), (Outcome.NOT_APPLICABLE, True)]
)
def test_what_needs_a_decision_is_explained(outcome: Outcome, explained: bool) -> None:
    assert (f"{outcome} a: why" in render(record("a", outcome, reason="why"))) == explained
