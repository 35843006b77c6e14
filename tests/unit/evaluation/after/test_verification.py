"""Every verdict can be had again from the evidence, and whatever was changed is found and named."""

from __future__ import annotations

import dataclasses
import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_vlmrobust.core.cell import Cell, Setting, SweepMetric
from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.errors import StoreError
from pytest_vlmrobust.core.prediction import Request
from pytest_vlmrobust.core.record import CHECK, Measure, Record
from pytest_vlmrobust.evaluation.after.verification import Verification, differences, verify
from pytest_vlmrobust.evaluation.judge.judge import Judge
from pytest_vlmrobust.evaluation.judge.judge_inputs import JudgeInputs
from pytest_vlmrobust.evaluation.judge.scopes import known_metrics
from pytest_vlmrobust.evaluation.run.selection import SelectedTest
from pytest_vlmrobust.policies import load_policy
from pytest_vlmrobust.store import Journal, read_journal
from tests.unit.evaluation.conftest import TODAY, World, cell, sweep_of

POLICY = """
version: 1
defaults: {judge: point}
budgets: {max_unparsed_rate: 50%}
rules:
  - {id: drop, metric: accuracy_drop, max: 20pp}
  - {id: worst, metric: worst_case_drop, max: 20pp}
waivers:
  - {id: W1, owner: jo, reason: known, expires: 2026-07-01, metric: accuracy_drop, where: {setting: flip_h}, cap: 60pp}
"""
SETTINGS = tuple(Setting.parse(name) for name in ("flip_h", "flip_v", "patches:2"))
TESTS = (
    *(SelectedTest(f"suite.py::test_cell[{name}]", cell(name)) for name in ("clean", "no_image", *map(str, SETTINGS))),
    SelectedTest("suite.py::test_sweep[worst]", sweep_of("worst_case_drop"), ("flip_h", "flip_v")),
)


def answer(request: Request) -> str:
    """Wrong without a picture, about half of all samples upside down, and once unreadable."""
    number = int(request.sample_id[1:])
    if request.setting == "flip_v" and number == 5:
        return "I would rather not say."
    wrong = not request.images or (request.setting in ("flip_h", "flip_v") and number < 3)
    return "A" if wrong else "B"


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run: evidence, docket, policies and records, made without pytest."""
    directory = tmp_path_factory.mktemp("world")
    world = World(directory)
    world.model.answer = answer
    (directory / "policy.yaml").write_text(POLICY, encoding="utf-8")
    policy = load_policy([directory / "policy.yaml"], known_metrics=known_metrics(), root=directory)
    judge = Judge(world.witnessed("run"), {"model": policy}, TODAY)
    JudgeInputs(TODAY, world.refs, judge.policies, TESTS).write(directory / "run")
    with Journal(directory / "run") as journal:
        for test in TESTS:
            journal.append(dataclasses.replace(judged(judge, test), nodeid=test.nodeid))
    world.kept[-1].copy_to(directory / "settled")
    world.close()
    for name in ("docket.json", "records.jsonl"):
        shutil.copy(directory / "run" / name, directory / "settled" / name)
    shutil.copytree(directory / "run" / "policies", directory / "settled" / "policies")
    return directory / "settled"


def judged(judge: Judge, test: SelectedTest) -> Record:
    if isinstance(test.about, Cell):
        return judge.run(test.about)
    assert isinstance(test.about, SweepMetric)
    return judge.run(test.about, test.settings)


@pytest.fixture
def run(original: Path, tmp_path: Path) -> Path:
    return shutil.copytree(original, tmp_path / "run")


def verified(run: Path, change: Callable[[Record], Record | None] = lambda record: record, unrecorded: int = 0) -> Verification:
    records = [kept for record in read_journal(run) if (kept := change(record)) is not None]
    return verify(run, records, unrecorded=unrecorded)


def tampered(run: Path, change: str, setting: str, condition: str, *values: object) -> None:
    """Changes the answers of a cell: ``change`` is what comes before ``where``."""
    where = "where cell = (select id from cells where setting = ?)"
    connection = sqlite3.connect(run / "predictions.sqlite", isolation_level=None)
    assert connection.execute(f"{change} {where} and {condition}", (*values, setting)).rowcount > 0
    connection.close()


def prediction(run: Path, setting: str, place: int) -> str:
    connection = sqlite3.connect(run / "predictions.sqlite")
    query = "select prediction from answers where cell = (select id from cells where setting = ?) and place = ?"
    (text,) = connection.execute(query, (setting, place)).fetchone()
    connection.close()
    return str(text)


def test_an_untouched_run_agrees(run: Path) -> None:
    verification = verified(run)
    assert (verification.differences, verification.notes) == ((), ())
    assert (verification.answers, verification.records) == (6 * 4 + 6 * 4, len(TESTS))
    outcomes = [record.outcome for record in read_journal(run)]
    assert {Outcome.FAIL, Outcome.WAIVED, Outcome.PASS} <= set(outcomes)


def test_it_needs_no_pictures_and_no_model(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pytest_vlmrobust.backends import scripted
    from pytest_vlmrobust.evaluation.run.views import ViewMaker

    def refused(*_: object, **__: object) -> None:
        raise AssertionError("a verification asks nobody")

    monkeypatch.setattr(scripted.ScriptedBackend, "infer", refused)
    monkeypatch.setattr(ViewMaker, "view", refused)
    assert not verified(run).differences


def test_a_changed_score_is_found_with_its_sample(run: Path) -> None:
    tampered(run, "update answers set value = 1.0, answer = 'B'", "flip_v", "place = 0")
    (said,) = verified(run).differences
    assert said == ("model-data-flip_v, sample 'q0': stored 1 (scored, letter, 'B'), scored again 0 (scored, letter, 'A')")


def test_a_changed_prediction_is_found_with_its_sample_and_its_tests(run: Path) -> None:
    changed = {**json.loads(prediction(run, "flip_v", 0)), "text": "B"}
    tampered(run, "update answers set prediction = ?", "flip_v", "place = 0", json.dumps(changed))
    said = "\n".join(verified(run).differences)
    assert "model-data-flip_v, sample 'q0': stored 0 (scored, letter, 'A'), scored again 1" in said
    assert "suite.py::test_cell[flip_v]: measures.accuracy_drop.value is 0.6666" in said
    assert "suite.py::test_sweep[worst]: measures.worst_case_drop.value is 0.6666" in said
    assert "suite.py::test_cell[flip_h]" not in said


def test_prediction_and_score_changed_together_are_found_by_the_records(run: Path) -> None:
    right = prediction(run, "flip_v", 3)
    tampered(run, "update answers set prediction = ?, value = 1, answer = 'B'", "flip_v", "place < 3", right)
    said = verified(run).differences
    assert not any("scored again" in sentence for sentence in said)
    assert any(
        sentence.startswith('suite.py::test_cell[flip_v]: outcome is "FAIL", and computed again "PASS"') for sentence in said
    )


def test_a_view_that_was_not_asked_about_needs_a_right_one_before_it(run: Path) -> None:
    unasked = json.dumps({"text": "", "method": "unasked", "finish_reason": "stop", "logprobs": {}, "details": {}})
    tampered(run, "update answers set prediction = ?, value = null, state = 'unasked'", "patches:2", "place = 0", unasked)
    said = "\n".join(verified(run).differences)
    assert "model-data-patches:2, sample 'q0': stored nan (unasked" in said
    assert "not asked, and no earlier view was right" in said


def test_a_loosened_policy_is_found_by_its_bytes_its_meaning_and_its_verdicts(run: Path) -> None:
    (file,) = (run / "policies").iterdir()
    file.write_text(file.read_text().replace("metric: accuracy_drop, max: 20pp", "metric: accuracy_drop, max: 90pp"))
    said = "\n".join(verified(run).differences)
    assert f"policies/{file.name} has the SHA-256 " in said
    assert "policy of model: the files mean " in said
    assert "suite.py::test_cell[flip_v]: policy_sha256 is" in said
    assert 'suite.py::test_cell[flip_v]: outcome is "FAIL", and computed again "PASS"' in said


def test_a_comment_in_a_policy_changes_bytes_and_nothing_else(run: Path) -> None:
    (file,) = (run / "policies").iterdir()
    file.write_text(file.read_text() + "# looks innocent\n")
    (said,) = verified(run).differences
    assert said.startswith(f"policies/{file.name} has the SHA-256 ")


def test_a_policy_that_is_gone_is_named(run: Path) -> None:
    (file,) = (run / "policies").iterdir()
    file.unlink()
    with pytest.raises(StoreError, match="cannot read a policy of the run: No such file"):
        verified(run)


def test_a_policy_that_the_run_did_not_apply_is_named(run: Path) -> None:
    (run / "policies" / "0-strict.yaml").write_text("version: 1")
    assert verified(run).differences == ("policies/0-strict.yaml is no policy that the run applied",)


def test_waivers_are_judged_on_the_day_of_the_run(run: Path) -> None:
    docket = json.loads((run / "docket.json").read_text())
    (run / "docket.json").write_text(json.dumps({**docket, "date": "2026-07-02"}))
    said = verified(run).differences
    assert any(
        sentence.startswith('suite.py::test_cell[flip_h]: outcome is "WAIVED", and computed again "FAIL"') for sentence in said
    )


def test_a_deleted_record_is_named(run: Path) -> None:
    verification = verified(run, lambda record: None if "flip_v" in record.nodeid else record)
    assert verification.differences == ("suite.py::test_cell[flip_v]: its record is missing",)


def test_of_a_run_that_was_killed_missing_records_are_no_difference(run: Path) -> None:
    verification = verified(run, lambda record: None if "flip_v" in record.nodeid else record, unrecorded=1)
    assert (verification.differences, verification.notes) == ((), ("suite.py::test_cell[flip_v]: the run left no verdict",))


def test_an_added_record_is_named(run: Path) -> None:
    records = [*read_journal(run), Record("cell", "x", "model", "data", outcome=Outcome.PASS, nodeid="suite.py::test_cell[x]")]
    assert verify(run, records).differences == ("suite.py::test_cell[x]: a record of a test that the run did not plan",)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda r: dataclasses.replace(r, outcome=Outcome.PASS), 'outcome is "PASS", and computed again "FAIL"'),
        (
            lambda r: dataclasses.replace(
                r, measures=(dataclasses.replace(r.measures[0], value=r.measures[0].value + 1e-9), *r.measures[1:])
            ),
            "measures.accuracy.value is ",
        ),
        (lambda r: dataclasses.replace(r, measures=r.measures[1:]), "measures.accuracy is null"),
        (lambda r: dataclasses.replace(r, n_unparsed=0), "n_unparsed is 0, and computed again 1"),
        (lambda r: dataclasses.replace(r, worst=()), "worst is []"),
        (lambda r: dataclasses.replace(r, reason="fine"), 'reason is "fine"'),
    ],
    ids=["verdict", "number", "measure", "count", "samples", "reason"],
)
def test_a_changed_record_is_found_with_what_was_changed(run: Path, change: Callable[[Record], Record], words: str) -> None:
    said = verified(run, lambda record: change(record) if "flip_v" in record.nodeid else record).differences
    assert all(sentence.startswith("suite.py::test_cell[flip_v]: ") for sentence in said)
    assert any(words in sentence for sentence in said)


def test_rounding_and_circumstances_are_no_difference(run: Path) -> None:
    def other(record: Record) -> Record:
        first = dataclasses.replace(record.measures[0], value=record.measures[0].value + 1e-14)
        return dataclasses.replace(record, measures=(first, *record.measures[1:]), seconds=99.0, n_inferred=7, n_recalled=1)

    assert not verified(run, other).differences


def test_what_was_never_measured_is_said_and_not_compared(run: Path) -> None:
    failed = Record(
        "cell", "x", "model", "data", outcome=Outcome.ERROR, reason="out of memory", nodeid="suite.py::test_cell[flip_v]"
    )
    beside = Record(CHECK, "t", "", "", outcome=Outcome.ERROR, reason="a non-gate test failed", nodeid="t")
    records = [failed if record.nodeid == failed.nodeid else record for record in read_journal(run)]
    verification = verify(run, [*records, beside])
    assert (verification.differences, verification.records) == ((), len(TESTS) - 1)
    assert verification.notes == (
        "t: not computed again: a non-gate test failed",
        "suite.py::test_cell[flip_v]: not computed again because nothing was measured: out of memory",
    )


def test_answers_that_are_gone_cannot_be_read(run: Path) -> None:
    tampered(run, "delete from answers", "flip_v", "place = 5")
    with pytest.raises(StoreError, match="model-data-flip_v has 5 answers, expected 6: 1 for each of 6 samples"):
        verified(run)


@pytest.mark.parametrize("content", ["", "[]", '{"docket_version": 9}', '{"docket_version": 1}'])
def test_what_is_no_docket_is_refused(run: Path, content: str) -> None:
    (run / "docket.json").write_text(content)
    with pytest.raises(StoreError, match=r"docket\.json"):
        verified(run)


def test_what_is_said_of_many_tests_is_said_once(run: Path) -> None:
    verification = verified(run, lambda record: record if record.setting == "clean" else None, unrecorded=len(TESTS) - 1)
    first = "test_cell[no_image], suite.py::test_cell[flip_h], suite.py::test_cell[flip_v], suite.py::test_cell[patches:2]"
    assert verification.notes == (f"5 tests: the run left no verdict: suite.py::{first}, suite.py::test_sweep[worst]",)


def test_a_test_that_is_planned_twice_is_refused(run: Path) -> None:
    """Else each would be judged again, as often as somebody who made up a bundle likes."""
    docket = json.loads((run / "docket.json").read_text())
    docket["tests"] += docket["tests"]
    (run / "docket.json").write_text(json.dumps(docket))
    with pytest.raises(StoreError, match=r"docket\.json: is not what a run wrote: .*test_cell\[clean\].* planned more than once"):
        verified(run)


@pytest.mark.study
def test_no_measure_of_a_record_hides_another(run: Path) -> None:
    """One is called as another one is that comes after two of its name; and many of one name take no longer than others."""
    record = next(record for record in read_journal(run) if record.setting == "clean")
    first = dataclasses.replace(record.measures[0], metric="x")
    named = dataclasses.replace(first, metric="x #2", value=0.25)
    more = dataclasses.replace(record, measures=(named, *[first] * 20_000))
    sentences = differences(dataclasses.replace(more, measures=(*more.measures, first)), more)
    assert len(sentences) == 1
    assert sentences[0].startswith("measures.x #20002 is ")
    assert differences(more, dataclasses.replace(more, measures=more.measures[1:]))


def test_why_questions_were_not_asked_once_more_is_known_to_the_run_alone() -> None:
    def probed(n: int, reason: str) -> Record:
        measure = Measure("same_when_exchanged_rate", float("nan"), n=n, reason=reason)
        return Record("cell", "model-data-clean", "model", "data", measures=(measure,))

    short = probed(0, "not probed: a few questions could not be asked once more")
    now = probed(0, "not probed: a few questions could not be asked once more: the run has no answers of it")
    assert differences(short, now) == []
    assert len(differences(short, probed(3, now.measures[0].reason))) == 1
    assert len(differences(probed(0, "warning: it answers all the same"), now)) == 1
