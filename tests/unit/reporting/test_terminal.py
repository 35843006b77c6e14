from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.cells import cell_len

from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.errors import PolicyError
from pytest_vlmrobust.core.record import Measure, Record
from pytest_vlmrobust.evaluation.judge.scopes import known_metrics
from pytest_vlmrobust.metrics.record import AMBIGUOUS
from pytest_vlmrobust.policies import MetricKey, load_policy
from pytest_vlmrobust.reporting import Command, RunFacts, RunView, render_terminal
from pytest_vlmrobust.store.repeatability import Repeatability
from pytest_vlmrobust.store.spending import Spending

from .conftest import open_record, record


def render(*records: Record, facts: RunFacts | None = None, width: int = 100, color: bool = False) -> str:
    return render_terminal(RunView(records, facts or RunFacts()), width=width, color=color)


def test_the_page(stored: Callable[..., None]) -> None:
    facts = RunFacts(
        policies={"m": "p.yaml 0123456789ab"},
        planned=8,
        selected=3,
        warnings=["p.yaml:9: waiver W1 of jo expired on 2026-01-01: renew or remove it"],
        directory=".vlmrobust/runs/1",
        report="out/report.html",
        spending=(Spending("m", 100), Spending("n", 10, failed=10)),
    )
    failed: dict[str, Any] = {"measures": (), "n_inferred": 0, "n_recalled": 0, "reason": "the model does not load"}
    stored(
        render(
            record("m-d-fog:low"),
            record("m-d-snow:high", Outcome.ERROR, **failed),
            record("m-d-fog:high", Outcome.FAIL, 0.3),
            facts=facts,
        )
    )


def test_the_decision_stands_last_before_where_its_evidence_is(stored: Callable[..., None]) -> None:
    facts = RunFacts(policies={"m": "p.yaml 01"}, directory="runs/1")
    stored(render(record("a")), render(record("a"), facts=facts))


def test_nothing_but_text_without_colour() -> None:
    assert "\x1b" not in render(record("a", Outcome.FAIL))
    assert "\x1b[1;31mNO-GO\x1b[0m" in render(record("a", Outcome.FAIL), color=True)


@pytest.mark.cases("text", ["[red]", "[/]", "[bold]x[/bold]", "a\\[b]", ":smile: and :warning:", "[link=https://x]y"])
@pytest.mark.cases("color", [False, True])
def test_markup_of_others_is_shown_and_not_obeyed(text: str, color: bool) -> None:
    measure = Measure(f"mine{text}", 0.1, bound=text, outcome=Outcome.FAIL, rule="r")
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


def test_on_a_terminal_sentences_break_between_words() -> None:
    reason = "word " * 60 + "end"
    text = render(
        record("m-d-fog:high", Outcome.FAIL, reason=reason), facts=RunFacts(shortfalls=["more " * 30]), width=80, color=True
    )
    first, *rows = re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()
    assert first.startswith("FAIL m-d-fog:high: word word ")
    broken = [row for row in rows if "word" in row or "more" in row]
    assert len(broken) > 4
    assert {word for row in broken for word in row.split()} <= {"word", "end", "more", "not", "GO:"}
    assert max(map(len, [first, *broken])) <= 80


def test_a_reason_that_names_its_rule_has_the_numbers_and_they_stand_once(stored: Callable[..., None]) -> None:
    measure = Measure("accuracy_drop", 0.3, 0.2, 0.4, 100, "0.2", Outcome.FAIL, "broken", "drop", "p.yaml:4", ends=(0.2,))
    reason = "accuracy_drop 0.300 [0.210, 0.390] > 0.200, risk split over 9 tests (rule drop, p.yaml:4)"
    stored(render(record("m-d-fog:high", Outcome.FAIL, reason=reason, measures=(measure,))))


def test_ids_are_whole_where_the_reason_stands_whatever_the_width() -> None:
    name = "some-long-model-name-some-long-dataset-name-random_occlusion:high"
    assert f"FAIL {name}: " in render(record(name, Outcome.FAIL), width=40)


def cell(setting: str, metric: str, value: float, **changes: Any) -> Record:
    measure = Measure(metric, value, value - 0.04, value + 0.04)
    return record(f"m-d-{setting}", Outcome.MEASURED, setting=setting, measures=(measure,), **changes)


def summary(metric: str, value: float, **changes: Any) -> Record:
    return record(f"m-d-{metric}", test="sweep", metric=metric, measures=(Measure(metric, value),), **changes)


MEASURED = (
    cell("clean", "accuracy", 0.9),
    cell("no_image", "accuracy", 0.25),
    cell("fog:low", "accuracy_drop", 0.1),
    cell("fog:high", "accuracy_drop", 0.6),
    summary("mean_drop", 0.35),
    summary("worst_case_drop", 0.6),
    summary("mean_relative_corruption_error", math.nan),
    summary("severe_failure_rate", 0.5),
    cell("patches:2", "pcri", 0.125, family="patches", level="2"),
    cell("patches:3", "pcri", -0.06, family="patches", level="3"),
    summary("absolute_continuous_error", 0.0625),
)


def test_what_was_measured_comes_first_and_no_line_breaks_within_a_number(stored: Callable[..., None]) -> None:
    facts = RunFacts(spending=(Spending("m", 660, uncounted=660),))
    stored(render(*MEASURED, facts=facts, width=80), render(*MEASURED, width=120))


def test_the_worst_setting_is_known_where_no_test_asks_for_the_metric_of_all(stored: Callable[..., None]) -> None:
    cells = [record for record in MEASURED if record.test == "cell"]
    more = cell("patches:4", "accuracy_drop", 0.8, family="patches", level="4")
    blind = Measure("accuracy", 0.25), Measure("accuracy_drop", 0.7)
    cells[1] = replace(cells[1], measures=blind)
    stored(render(*cells, more, width=100), render(*cells[:3]))  # one setting is no worst


def test_numbers_of_a_part_of_the_samples_say_so(stored: Callable[..., None]) -> None:
    noted = "largest drop in what was asked: 0.500 at snow:mid"
    stored(render(summary("worst_case_drop", 0.5, n_samples=128, n_requested=16, notes=(noted,))))


def task(name: str, split: str, value: float, **changes: Any) -> Record:
    about = {"dataset": f"faces.{name}", "task": name, "split": split, "metric": "identity_accuracy"}
    return record(f"m-{name}-{split}", test="sweep", measures=(Measure("identity_accuracy", value),), **{**about, **changes})


def test_tasks_of_a_collection_share_a_headline(stored: Callable[..., None]) -> None:
    tasks = [
        task("matching", split, value) for split, value in {"observatory_ood": 0.3, "clean": 0.96, "observatory_id": 0.8}.items()
    ]
    unasked = task("pointing", "observatory_id", math.nan, not_asked="not shown", outcome=Outcome.NOT_APPLICABLE)
    stored(render(*tasks, task("pointing", "clean", 0.25), unasked, width=120))


def test_of_many_models_each_has_a_line_and_the_rest_is_counted(stored: Callable[..., None]) -> None:
    many = [replace(record, model=f"m{number:02}", id=f"{number}{record.id}") for number in range(12) for record in MEASURED]
    stored(render(*many, facts=RunFacts(report="out/report.html"), width=80))


def origins(count: int) -> dict[str, Any]:
    waivers = [
        {"id": f"W{n}", "owner": "jo@example.org", "expires": "2030-01-31", "reason": "because " * 20} for n in range(count)
    ]
    return {"date": "2026-11-23", "policies": {"m": {"waivers": waivers}}}


def waived(number: int) -> Record:
    measure = Measure("accuracy_drop", 0.3, outcome=Outcome.WAIVED, waiver=f"W{number}", rule="r", bound="0.2")
    return record(f"m-d-s{number}", Outcome.WAIVED, measures=(measure,))


def test_a_waiver_has_a_line_with_its_owner_and_last_day(stored: Callable[..., None]) -> None:
    stored(render(waived(2), replace(waived(2), id="other"), waived(1), facts=RunFacts(origins=origins(3)), width=80))


def test_many_waivers_stand_below_who_answers_for_them_and_the_rest_is_counted(stored: Callable[..., None]) -> None:
    about = origins(45)
    about["policies"]["m"]["waivers"][0]["expires"] = "2031-01-31"
    stored(render(*map(waived, range(45)), facts=RunFacts(origins=about, directory=".vlmrobust/runs/1"), width=100))


def test_no_row_of_waivers_is_wider_than_the_terminal(stored: Callable[..., None]) -> None:
    texts = []
    for owner in ("品質保証", "the team that answers for " * 5):
        facts = RunFacts(origins=(about := origins(6)))
        for waiver in about["policies"]["m"]["waivers"]:
            waiver["owner"] = owner
        texts += [render(*map(waived, range(6)), facts=facts, width=80), render(waived(1), facts=facts, width=80)]
    stored(*texts)
    assert max(cell_len(line) for text in texts for line in text.splitlines() if line.startswith("waived")) <= 80


def test_a_go_fits_on_a_screen_of_80_by_24() -> None:
    noted = [replace(record, notes=(f"note of {record.id} " * 5,)) for record in MEASURED]
    two = [replace(record, model=model, id=f"{model}{record.id}") for model in ("m", "other") for record in noted]
    facts = RunFacts(
        policies={"m": "p.yaml 01", "other": "p.yaml 01"},
        warnings=["a warning " * 10],
        origins=origins(30),
        directory=f".vlmrobust/runs/{'1' * 24}",
        report="report/report.html",
    )
    text = render(*two, *(waived(number) for number in range(30)), facts=facts, width=80)
    assert "GO WITH WAIVERS  " in text
    rows = [row for line in text.splitlines() for row in range(-(-len(line) // 80) or 1)]
    assert len(rows) <= 21
    assert "1 warning and 11 notes: see report/report.html" in text


def test_rules_that_are_not_shown_to_hold_have_a_row_each_and_the_rest_is_counted(stored: Callable[..., None]) -> None:
    facts = RunFacts(report="r.html")
    few = render(open_record("b", "gap", 0.2), open_record("c", "gap", 0.6, drop=0.16), facts=facts, width=80)
    many = [open_record(f"r{number}", f"rule-{number} {'x' * 90}", number / 10) for number in range(9)]
    full = [replace(record, model=model, id=f"{model}{record.id}") for model in ("m", "other") for record in MEASURED]
    crowded = render(*full, *many, *map(waived, range(30)), facts=replace(facts, origins=origins(30)), width=80)
    stored(few, render(*many, facts=facts, width=80), crowded)
    assert len(crowded.splitlines()) <= 21


def test_rows_that_a_terminal_wraps_count_where_a_go_has_to_fit() -> None:
    noted = [record("a", notes=("a note",))]
    facts = RunFacts(policies={"m": f"{'p' * 30} 01"}, directory=f"runs/{'r' * 30}")
    assert "note a: a note" in render(*noted, facts=facts, width=80)
    long = replace(facts, directory=f"runs/{'r' * 800}", policies={"m": f"{'p' * 700} 01"})
    for color in (False, True):
        text = render(*noted, facts=long, width=80, color=color)
        assert "GO" in text
        assert "1 note" in text
        assert "a: a note" not in text


def test_what_is_wrong_stands_in_full_worst_first_and_the_rest_is_counted_and_has_a_place(stored: Callable[..., None]) -> None:
    failed = [record(f"f-{i:03}", Outcome.FAIL, i / 1000, reason=f"drop {i}") for i in range(300)]
    broken = [record(f"e-{i:03}", Outcome.ERROR, reason="the model does not load") for i in range(100)]
    text = render(*failed, *broken, record("fine"), facts=RunFacts(directory="runs/x"))
    stored(text)
    assert len(text.splitlines()) < 24


def test_six_failures_fit_on_a_screen_and_v_says_more(stored: Callable[..., None]) -> None:
    reason = "accuracy_drop 0.445 [0.307, 0.590] > 0.150, risk split over 9 tests (rule drop, release.yaml:13)"
    measure = Measure(
        "accuracy_drop", 0.445, 0.3, 0.6, 100, "0.15", Outcome.FAIL, "broken", "drop", "release.yaml:13", ends=(0.15,)
    )
    failed = [record(f"model-shapes-blur_{i}:high", Outcome.FAIL, reason=reason, measures=(measure,)) for i in range(6)]
    facts = RunFacts(directory=".vlmrobust/runs/20261127-012342-895f067e", report="report/report.html", policies={"m": "p 01"})
    page = render(*failed, facts=facts, width=80)
    assert len(page.splitlines()) <= 20
    full = render_terminal(RunView(failed, facts), width=80, color=False, full=True)
    stored(page, render(failed[0], facts=facts, width=80), full)
    assert "\n: see" not in render_terminal(RunView(failed, facts), width=80, color=False, rows=5)  # nothing was counted


def pasted(page: str) -> str:
    """Returns the lines of a stub as a terminal gives them to who copies them."""
    _, _, below = page.partition("thresholds file:\n")
    stub = re.match(r"  - \{(?:.*\n)+?.*\}\}\n", below)
    assert stub is not None
    return stub[0]


@pytest.mark.parametrize("width", [80, 120])
def test_a_stub_of_a_waiver_has_lines_that_no_terminal_breaks(width: int) -> None:
    about = {"model": "qwen2-vl-2b", "dataset": "MMBench_DEV_EN", "setting": "gaussian_blur:high"}
    broken = record("qwen2-vl-2b-MMBench_DEV_EN-gaussian_blur:high", Outcome.FAIL, 0.3, **about)
    stub = pasted(render(broken, facts=RunFacts(origins=origins(0)), width=width))
    assert max(map(cell_len, stub.splitlines())) <= width
    both = f"waivers:\n  - {{id: W-1}}\n{stub}{stub}  - {{id: W-2}}\n"  # beside others, indented as on our pages
    first, stated, *_ = yaml.safe_load(both)["waivers"]
    assert (first["id"], stated["where"], stated["cap"]) == ("W-1", about, 0.35)


def test_a_stub_of_a_waiver_covers_the_breach_once_somebody_signs_it(tmp_path: Path) -> None:
    measure = Measure("accuracy_drop", 0.301, 0.2, 0.402, 100, "0.2", Outcome.FAIL, "broken", "drop", "p.yaml:4", ends=(0.2,))
    broken = record("m-d-fog:high", Outcome.FAIL, setting="fog:high", measures=(measure,))
    text = render(broken, facts=RunFacts(origins=origins(0)))
    stub = pasted(text)
    rules = "version: 1\nrules:\n  - {id: drop, metric: accuracy_drop, max: 20pp}\nwaivers:\n"
    file = tmp_path / "policy.yaml"
    file.write_text(f"{rules}{stub}")
    with pytest.raises(PolicyError, match="owner"):
        load_policy([file], known_metrics=known_metrics(), ambiguous=AMBIGUOUS)
    file.write_text(f"{rules}{stub.replace('owner: ', 'owner: jo').replace('reason: ', 'reason: known')}")
    (waiver,) = load_policy([file], known_metrics=known_metrics(), ambiguous=AMBIGUOUS).waivers
    assert (waiver.id, waiver.cap, str(waiver.expires)) == ("W-m-d-fog-high", 0.41, "2027-02-21")
    assert waiver.applies(MetricKey("m", "d", "accuracy_drop", "fog:high", "weather", "high"))
    assert not waiver.applies(MetricKey("m", "d", "accuracy_drop", "fog:mid", "weather", "mid"))


@pytest.mark.parametrize(
    ("value", "high", "target", "cap"),
    [
        (1.0, math.nan, "population", 1.0),
        (0.999, math.nan, "population", 1.0),
        (0.304, math.nan, "population", 0.31),
        (0.304, 0.52, "population", 0.52),
        (0.304, 0.52, "dataset", 0.31),  # the value is judged: a cap beyond the interval would cover what nobody saw
    ],
)
def test_the_cap_of_a_stub_is_one_that_a_policy_accepts(
    tmp_path: Path, value: float, high: float, target: str, cap: float
) -> None:
    measure = Measure(
        "accuracy_drop",
        value,
        high=high,
        target=target,
        bound="0.2",
        ends=(0.2,),
        outcome=Outcome.FAIL,
        rule="drop",
        source="p.yaml:4",
    )
    text = render(
        record("m-d-fog:high", Outcome.FAIL, setting="fog:high", measures=(measure,)), facts=RunFacts(origins=origins(0))
    )
    signed = pasted(text).replace("owner: ", "owner: jo").replace("reason: ", "reason: known")
    file = tmp_path / "policy.yaml"
    file.write_text(f"version: 1\nrules:\n  - {{id: drop, metric: accuracy_drop, max: 20pp}}\nwaivers:\n{signed}")
    (waiver,) = load_policy([file], known_metrics=known_metrics(), ambiguous=AMBIGUOUS).waivers
    assert waiver.cap == cap


def test_a_test_that_stopped_early_has_no_stub() -> None:
    """Its value comes from a part of the samples, so that nobody knows what cap would hold."""
    measure = Measure("accuracy_drop", 0.4, bound="0.2", ends=(0.2,), outcome=Outcome.FAIL, rule="drop", source="p.yaml:4")
    broken = replace(record("a", Outcome.FAIL, measures=(measure,)), n_requested=24, n_samples=128)
    text = render(broken, facts=RunFacts(origins=origins(0)))
    assert "To waive it, first ask all questions with --vlm-mode=full: these show what cap would hold" in text
    assert "cap: " not in text


@pytest.mark.parametrize("metric", ["visual_gain", "clean_accuracy", "accuracy_above_chance"])
def test_nobody_is_helped_to_waive_that_a_model_looks(metric: str) -> None:
    broken = Measure(metric, 0.1, 0.05, 0.15, 100, "0.3", Outcome.FAIL, "broken", "looks", "p.yaml:4", ends=(0.3,))
    assert "waive it" not in render(record("a", Outcome.FAIL, measures=(broken,)))
    assert "waive it" in render(record("a", Outcome.FAIL, measures=(dataclasses.replace(broken, metric="accuracy_drop"),)))


def test_what_broke_a_budget_has_no_stub() -> None:
    broken = Measure("unparsed_rate", 0.3, bound="0.05", ends=(0.05,), outcome=Outcome.FAIL, rule="max_unparsed_rate")
    assert "waive it" not in render(record("a", Outcome.FAIL, measures=(broken,)))


COMMAND = Command(("--vlm=tiny", "--vlm-dataset=my data.jsonl"), ("suites",))


def test_each_breach_has_the_command_that_runs_it_again(stored: Callable[..., None]) -> None:
    """But for what is undecided, which is so again."""
    node = "suites/test_corruptions.py::test_cell[tiny-d-fog:mid]"
    loud = [record("a", Outcome.FAIL, nodeid=node), record("b", Outcome.FAIL), record("c", Outcome.INCONCLUSIVE, nodeid="x::y")]
    stored(render(*loud, facts=RunFacts(command=COMMAND)))


def test_one_breach_alone_needs_no_second_command() -> None:
    assert "--vlm-rerun" not in render(record("a", Outcome.FAIL), facts=RunFacts(command=COMMAND))


def test_the_noise_stands_beside_the_thresholds(stored: Callable[..., None]) -> None:
    about = Repeatability("m", "d", 200, 2, 3, 1, 6, 128, 0.01, 0.002, 0.03, {"accuracy_drop": 0.02}, {"accuracy_drop": 0.04})
    about = dataclasses.replace(about, conditions="another order", beside=("rule x: accuracy_drop bounded by 0.05",))
    stored(render(record("a"), facts=RunFacts(repeatability=[about, Repeatability("m", "e", problem="the model is lost")])))


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
    assert text.count(SPELLED) == 9
    assert "second" not in {line.split(" ")[0] for line in text.splitlines()}


def test_a_reason_of_a_million_characters_is_cut() -> None:
    text = render(record("m-d-x", Outcome.FAIL, reason="x" * 1_000_000))
    assert len(text) < 5000
    assert "more characters)" in text


def test_the_decision_of_the_run_is_not_that_of_its_last_model(stored: Callable[..., None]) -> None:
    stored(render(record("a", Outcome.FAIL, model="m"), record("b", model="other"), facts=RunFacts(models=("m", "other"))))


def test_key_numbers_judged_by_value_are_marked_and_the_mark_is_explained(stored: Callable[..., None]) -> None:
    judged = Measure("accuracy", 0.9, outcome=Outcome.PASS, rule="r", target="dataset")
    stored(render(record("m-d-clean", setting="clean")), render(record("m-d-clean", setting="clean", measures=(judged,))))
