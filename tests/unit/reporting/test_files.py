from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest

from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.errors import StoreError
from pytest_vlmrobust.core.record import SCHEMA_VERSION, Measure, Record
from pytest_vlmrobust.reporting import RunFacts, RunView, write_report
from pytest_vlmrobust.reporting.files import REPORT, WRITERS, add_step_summary, annotation_lines, read_run
from pytest_vlmrobust.reporting.html import render_html
from pytest_vlmrobust.reporting.markdown import summary
from pytest_vlmrobust.store import Evidence, Journal, write_manifest

from .conftest import record

NOTHING = RunFacts()


def strict(text: str) -> Any:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_results_hold_every_field_of_every_record(tmp_path: Path) -> None:
    written = write_report(tmp_path, RunView([record("a"), record("b", Outcome.FAIL)], NOTHING), {})
    assert sorted(written) == sorted(tmp_path.iterdir())
    results = strict((tmp_path / "results.json").read_text(encoding="utf-8"))
    keys = "schema decision word planned selected missing shortfalls allowances stopped decisions not_shown "
    assert " ".join(results) == f"{keys}repeatability spending analyses records"
    assert results["schema"] == SCHEMA_VERSION == 1
    assert results["decision"] == "NO-GO"
    every = {"key", *(field.name for field in dataclasses.fields(Record))}
    for written in results["records"]:
        assert set(written) == every
        assert set(written["measures"][0]) == {field.name for field in dataclasses.fields(Measure)}
    stopped = json.loads(
        dataclasses.replace(record("a"), n_samples=128, chains={"right, to 31": 3.0}, parts={"mouth": {"samples": 9.0}}).to_json()
    )
    assert {"key", *stopped} == every
    assert [Record.from_json(json.dumps(entry)) for entry in results["records"]] == [record("a"), record("b", Outcome.FAIL)]


def test_undefined_is_null(tmp_path: Path) -> None:
    write_report(tmp_path, RunView([record("a", drop=math.nan)], NOTHING), {})
    (written,) = strict((tmp_path / "results.json").read_text(encoding="utf-8"))["records"]
    assert written["measures"][0]["value"] is None


def test_a_report_of_nothing_is_not_go(tmp_path: Path) -> None:
    write_report(tmp_path, RunView([], NOTHING), {})
    assert strict((tmp_path / "results.json").read_text(encoding="utf-8"))["decision"] == "INCONCLUSIVE"
    assert (tmp_path / "summary.md").read_text(encoding="utf-8").startswith("# INCONCLUSIVE\n")


def test_the_manifest_is_written_as_given(tmp_path: Path) -> None:
    write_report(tmp_path / "new" / "directory", RunView([], NOTHING), {"größe": 1})
    manifest = strict((tmp_path / "new" / "directory" / "manifest.json").read_text(encoding="utf-8"))
    assert manifest == {"größe": 1, "manifest_version": 1}


def test_only_the_files_of_a_report_are_left(tmp_path: Path) -> None:
    for _ in range(2):
        write_report(tmp_path, RunView([record("a")], NOTHING), {})
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("cells.csv", "junit.xml", "manifest.json", "model_card.md", "report.html", "results.json", "summary.md")
    ]


def test_a_report_is_what_its_directory_gives_in_whatever_order_models_were_named(tmp_path: Path) -> None:
    records = [record("a", Outcome.MEASURED), record("b")]
    with Journal(tmp_path) as journal:
        for each in records:
            journal.append(each)
    facts = RunFacts(planned=2, selected=2, models=("small", "large"))
    Evidence.open(tmp_path).close()
    write_report(tmp_path, RunView(records, facts), {"planned": 2, "selected": 2, "models": {"small": {}, "large": {}}})
    run = read_run(tmp_path)
    assert "no rule judged large" in (tmp_path / "summary.md").read_text()
    for name, text in {**WRITERS, REPORT: render_html}.items():
        assert (tmp_path / name).read_text() == text(run), name


def test_a_file_that_cannot_be_finished_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_report(tmp_path, RunView([record("a")], NOTHING), {})
    before = (tmp_path / "results.json").read_bytes()

    def full(path: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device", str(path), str(target))

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        write_report(tmp_path, RunView([record("b")], NOTHING), {})
    assert (tmp_path / "results.json").read_bytes() == before
    assert not list(tmp_path.glob(".results.json*"))


def test_what_is_not_passed_comes_with_its_reason() -> None:
    why = "does not decide; about 97 to 310 questions would decide it"
    undecided = dataclasses.replace(record("m-d-fog:mid", Outcome.INCONCLUSIVE), reason=why)
    lines = summary(RunView([record("m-d-fog:low"), undecided], NOTHING)).splitlines()
    assert f"- INCONCLUSIVE `m-d-fog:mid`: {why}" in lines


def test_names_cannot_break_the_table() -> None:
    (line,) = [line for line in summary(RunView([record("a|b\nc\rd")], NOTHING)).splitlines() if line.startswith("| PASS")]
    assert line.startswith("| PASS | `a\\|b c d` | accuracy_drop |")


def test_long_runs_are_cut_and_say_so() -> None:
    text = summary(RunView([record(f"test-{i:03}") for i in range(45)], NOTHING))
    assert text.count("| PASS |") == 40
    assert "\n5 more tests are in results.json.\n" in text
    assert "more tests" not in summary(RunView([record("a")], NOTHING))


def test_a_run_that_was_stopped_is_incomplete_and_says_so(tmp_path: Path) -> None:
    write_report(tmp_path, RunView([record("a")], RunFacts(planned=5, selected=3)), {})
    results = strict((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert (results["decision"], results["missing"]) == ("INCOMPLETE", 2)
    text = (tmp_path / "summary.md").read_text(encoding="utf-8")
    assert text.startswith("# INCOMPLETE")
    assert "stopped early: 2 of 3 selected tests left no verdict" in text
    assert "only 3 of 5 tests ran" in text


def test_nothing_in_the_summary_is_obeyed_by_a_terminal() -> None:
    hostile = "\x1b[2J \u202e \ud800"
    text = summary(RunView([record("m-d-x", Outcome.FAIL, reason=f"{hostile}\n{'x' * 1_000_000}", notes=(hostile,))], NOTHING))
    assert r"\x1b&#91;2J \u202e \ud800 xxx" in text
    assert all(char.isprintable() for char in text.replace("\n", ""))
    assert len(text) < 5000


HOSTILE = "<img src=x onerror=alert(1)> [x](http://evil) ![i](http://evil) @everyone"


def test_nothing_in_the_summary_is_obeyed_by_markdown() -> None:
    changes: dict[str, Any] = {"model": HOSTILE, "reason": HOSTILE, "notes": (HOSTILE,)}
    part = Measure("accuracy", 0.1, outcome=Outcome.FAIL, rule="r", category=HOSTILE)
    failed = record("m-d-x", Outcome.FAIL, measures=(part,), **changes)
    text = summary(RunView([failed, record("m-d-y")], RunFacts(stopped=HOSTILE, planned=2, selected=2)))
    for markup in ("<img", "[x](", "![", "@everyone"):
        assert markup not in text
    assert text.count("&lt;img") == 7


def test_it_is_added_below_what_is_there(tmp_path: Path) -> None:
    page = tmp_path / "summary"
    page.write_text("before\n")
    assert add_step_summary("# GO\n", {"GITHUB_STEP_SUMMARY": str(page)}) == ""
    assert page.read_text() == "before\n# GO\n\n"


def test_elsewhere_nothing_happens() -> None:
    assert add_step_summary("# GO\n", {}) == ""


def test_what_cannot_be_written_is_said_and_no_error(tmp_path: Path) -> None:
    said = add_step_summary("# GO\n", {"GITHUB_STEP_SUMMARY": str(tmp_path / "absent" / "x")})
    assert said.startswith("$GITHUB_STEP_SUMMARY ")
    assert said.endswith("the summary could not be added: No such file or directory")


def test_github_shows_the_decision_and_the_worst_tests_beside_their_rules() -> None:
    broken = [
        record(f"f-{i}", Outcome.FAIL, i / 100, reason=f"accuracy_drop 30 %\nand more (rule drop, my thresholds/a,b.yaml:{i})")
        for i in range(20)
    ]
    lines = annotation_lines(
        RunView([*broken, record("open", Outcome.INCONCLUSIVE, reason="undecided")], RunFacts()), {"GITHUB_ACTIONS": "true"}
    )
    assert lines[0] == "::error title=NO-GO::20 verdicts broke a bound"
    assert lines[1] == (
        "::error file=my thresholds/a%2Cb.yaml,line=19,title=FAIL f-19::"
        "accuracy_drop 30 %25 and more (rule drop, my thresholds/a,b.yaml:19)"
    )
    assert sum(line.startswith("::error") for line in lines) == 10
    assert lines[-1] == "::warning title=INCONCLUSIVE open::undecided"
    assert all("\n" not in line for line in lines)
    assert annotation_lines(RunView([record("a")], RunFacts()), {"GITHUB_ACTIONS": "true"}) == [
        "::notice title=GO::1 verdict passed, none failed"
    ]
    assert annotation_lines(RunView(broken, RunFacts()), {}) == []
    for outcome, start in (
        (Outcome.INCONCLUSIVE, "::warning title=INCONCLUSIVE::"),
        (Outcome.ERROR, "::error title=INCOMPLETE::"),
    ):
        first, *_ = annotation_lines(RunView([record("a", outcome)], RunFacts()), {"GITHUB_ACTIONS": "true"})
        assert first.startswith(start)


def test_the_summary_names_commit_and_job() -> None:
    facts = RunFacts(origins={"commit": "0123abcd", "ci": {"GITHUB_RUN_ID": "77"}})
    assert "Made from commit `0123abcd`, GITHUB_RUN_ID `77`.\n" in summary(RunView([record("a")], facts))
    assert "Made from" not in summary(RunView([record("a")], RunFacts()))


@pytest.mark.parametrize("evidence", ["", "whole", "broken"])
def test_a_model_without_a_revision_is_named_by_its_weights_where_the_evidence_tells(tmp_path: Path, evidence: str) -> None:
    write_manifest(tmp_path, {"run": "r1", "planned": 1, "selected": 1, "models": {"m": {"location": "/opt/m", "revision": ""}}})
    with Journal(tmp_path) as journal:
        journal.append(record("m-d-x"))
    if evidence:
        with Evidence.open(tmp_path) as opened:
            opened.put_model("m", {"weights": {"sha256": "d90cf1babcfd" + "0" * 52}})
    if evidence == "broken":
        (tmp_path / "predictions.sqlite").write_bytes(b"no database")
    run = read_run(tmp_path)
    known = "weights d90cf1babcfd" if evidence == "whole" else "revision not recorded"
    assert f"- model: m ({known})\n" in summary(run)
    assert "fingerprint" not in run.manifest["models"]["m"]  # what the run wrote is compared as it is


def test_a_manifest_with_an_unknown_key_inside_or_without_its_plan_is_refused(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        journal.append(record("a"))
    spent = {"m": {"model": "m", "answers": 3, "anwsers": 1}}
    write_manifest(tmp_path, {"planned": 1, "selected": 1, "spending": spent})
    with pytest.raises(StoreError, match=r"spending\['m'\] of the manifest has the unknown key 'anwsers'. Did you"):
        read_run(tmp_path)
    write_manifest(tmp_path, {"selected": 1})
    with pytest.raises(StoreError, match=r"manifest\.json: lacks 'planned'\. Expected the JSON file that a run wrote"):
        read_run(tmp_path)
