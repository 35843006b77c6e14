from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import fields
from datetime import date
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import PIL.Image
import pytest
import yaml

from pytest_vlmrobust import perturbations
from pytest_vlmrobust.backends.resolve import resolve
from pytest_vlmrobust.cli import TRACEBACK, USAGE_ERROR, main
from pytest_vlmrobust.commands import runs
from pytest_vlmrobust.commands.arguments import UNREAD, say
from pytest_vlmrobust.core.cell import CLEAN, Cell
from pytest_vlmrobust.core.conversion import to_plain
from pytest_vlmrobust.core.decision import Decision, Outcome
from pytest_vlmrobust.core.errors import ModelError
from pytest_vlmrobust.core.prediction import Prediction, Score
from pytest_vlmrobust.core.record import Measure, Record
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.evaluation.judge.measurements import quantities
from pytest_vlmrobust.plugin.options import Settings
from pytest_vlmrobust.shipped import shipped
from pytest_vlmrobust.store import Answer, Evidence, Journal, StoredCell, write_manifest
from pytest_vlmrobust.store.repeatability import Repeatability
from pytest_vlmrobust.store.run_directory import write_docket
from tests.command_lines import every_command, read

Captured = pytest.CaptureFixture[str]
POLICY = """\
version: 1
rules:
  - {id: low, metric: accuracy_drop, where: {level: low}, max: 5pp}
  - {id: worst, metric: worst_case_drop, max: 20pp}
waivers:
  - {id: W1, owner: jo, reason: known, expires: 2027-01-01, metric: accuracy_drop, where: {setting: fog}, cap: 9pp}
"""
SOON = str(date.today().year + 2)  # noqa: DTZ011 - waivers expire by local date


@pytest.fixture(autouse=True)
def no_step_summary(monkeypatch: pytest.MonkeyPatch) -> None:
    """These reports belong on no page of the job that runs these tests."""
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)


def files(directory: Path) -> list[str]:
    return sorted(path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file())


def test_a_closed_standard_error_leaves_the_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    assert main(["comment", "nothing"]) == USAGE_ERROR


def test_a_closed_standard_output_is_an_error(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    for command in (["list", "models"], ["check", "default"], ["explain", "pcri"], ["export", "sarif", "--help"]):
        assert main(command) == USAGE_ERROR
        assert capsys.readouterr().err == "vlmrobust: standard output: it is closed\n"


@pytest.mark.parametrize("command", [["list", "models"], ["check", "default"], ["explain", "pcri"], ["-h"], ["runs", "--help"]])
def test_output_that_nobody_reads_on_ends_a_command_quietly(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        with pytest.raises(SystemExit) as ended:
            main(command)
        stream.write("what was left")  # which goes nowhere
    assert ended.value.code == UNREAD
    assert not capsys.readouterr().err


@pytest.mark.parametrize(("arguments", "code"), [(["comment", "nothing"], USAGE_ERROR), (["nothing"], 2)])
def test_errors_that_nobody_reads_leave_the_exit_code(arguments: list[str], code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Mock(write=Mock(side_effect=BrokenPipeError), isatty=lambda: False))
    assert main(arguments) == code


def test_init_copies_the_suites_and_thresholds(tmp_path: Path, capsys: Captured) -> None:
    assert main(["init", str(tmp_path / "gate")]) == 0
    expected = [f"{folder}/{file.name}" for folder in ("suites", "thresholds") for file in sorted(shipped(folder).glob("*.*"))]
    assert files(tmp_path / "gate") == expected
    assert "suites/test_corruptions.py" in expected
    said = capsys.readouterr().out.splitlines()
    assert said[: len(expected)] == [str(tmp_path / "gate" / name) for name in expected]
    assert said[-8:-6] == ["Next:", f"  cd {tmp_path / 'gate'}"]
    assert [line.split()[0] for line in said[-6:]] == ["#", "pytest"] * 3
    assert max(map(len, said[-6:])) <= 80
    for name in expected:
        assert (tmp_path / "gate" / name).read_bytes() == (shipped("suites").parent / name).read_bytes()


def test_init_goes_into_the_current_directory_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init"]) == 0
    assert (tmp_path / "suites" / "test_corruptions.py").is_file()


def test_init_again_changes_nothing(tmp_path: Path) -> None:
    assert main(["init", str(tmp_path)]) == 0
    before = files(tmp_path)
    assert main(["init", str(tmp_path)]) == 0
    assert files(tmp_path) == before


def test_init_overwrites_nothing_that_somebody_changed(tmp_path: Path, capsys: Captured) -> None:
    main(["init", str(tmp_path)])
    mine = tmp_path / "thresholds" / "default.yaml"
    mine.write_text("version: 1\n")
    (tmp_path / "suites" / "test_corruptions.py").unlink()
    assert main(["init", str(tmp_path)]) == 4
    assert capsys.readouterr().err == f"vlmrobust: {mine} differs from what init would write; --force overwrites it\n"
    assert mine.read_text() == "version: 1\n"
    assert not (tmp_path / "suites" / "test_corruptions.py").exists()  # all of it or nothing
    assert main(["init", "--force", str(tmp_path)]) == 0
    assert mine.read_bytes() == (shipped("thresholds") / "default.yaml").read_bytes()


def test_what_the_file_system_refuses_is_one_line(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "file").write_text("")
    assert main(["init", str(tmp_path / "file")]) == 4
    said = capsys.readouterr().err
    assert said.startswith("vlmrobust: ")
    assert "Not a directory" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("models", ["tiny", "qwen2-vl-2b"]),
        ("datasets", ["shapes", "words"]),
        ("metrics", [*quantities()]),
        ("settings", perturbations.names("all")),
    ],
)
def test_list(kind: str, names: list[str], capsys: Captured) -> None:
    assert main(["list", kind]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert set(names) <= ({line.partition(" ")[0] for line in lines} if kind == "models" else set(lines))


def test_list_says_what_a_model_needs(capsys: Captured) -> None:
    assert main(["list", "models"]) == 0
    lines = {line.split(" ")[0]: re.split(" {2,}", line) for line in capsys.readouterr().out.splitlines()}
    hub_id = "Qwen/Qwen3-VL-30B-A3B-Thinking"
    assert lines["qwen3-vl-30b-a3b-thinking"] == ["qwen3-vl-30b-a3b-thinking", hub_id, "60 / 120", "thinking", "not run here"]
    assert lines["molmo2-8b"][2:4] == ["16 / 32", "[torchvision]"]
    assert lines["kimi-vl-a3b"][3] == "[openai], a server: brings code"
    assert lines["gpt-4o"][1:3] == ["not known", "[openai], a server: API of its makers"]
    assert lines["tiny"][-1] == "comes with pytest-vlmrobust"
    assert "arithmetic" in " ".join(lines["weights"])


def test_check_says_what_a_policy_holds(tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("policy.yaml").write_text(POLICY)
    assert main(["check", "policy.yaml"]) == 0
    counts, first, _, *table = capsys.readouterr().out.splitlines()
    assert counts == "2 rules, 1 waiver"
    assert re.fullmatch("sha256 [0-9a-f]{64}", first)
    assert table[1].split() == ["low", "accuracy_drop", "low", "<=", "5", "pp", "interval", "3"]
    Path("policy.yaml").write_text(f"# a comment\n{POLICY}")
    main(["check", "policy.yaml"])
    assert capsys.readouterr().out.splitlines()[1] == first
    Path("policy.yaml").write_text(POLICY.replace("5pp", "6pp"))
    main(["check", "policy.yaml"])
    assert capsys.readouterr().out.splitlines()[1] != first


def basics(folder: Path) -> str:
    """Writes the rules that every policy should have, and returns their file."""
    file = folder / "basics.yaml"
    looks = "{id: looks, metric: visual_gain, min: 7pp, judge: point}"
    right = "{id: right, metric: clean_accuracy, min: 40%, judge: point}"
    file.write_text(f"version: 1\nrules:\n  - {looks}\n  - {right}\n")
    return str(file)


def test_check_warns_of_a_policy_that_asks_for_neither_looking_nor_being_right(tmp_path: Path, capsys: Captured) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("version: 1\nrules:\n  - {id: kept, metric: accuracy_drop, max: 50pp}\n")
    assert main(["check", "--strict", str(policy)]) == 1
    said = capsys.readouterr().out
    assert (
        "policy.yaml: no blocking rule on all data asks for visual_gain: a model that answers without looking may be GO" in said
    )
    assert (
        "policy.yaml: no blocking rule on all data asks for clean accuracy: a model that is wrong everywhere loses nothing"
        in said
    )
    assert main(["check", "--strict", str(policy), basics(tmp_path)]) == 0
    assert "no blocking rule" not in capsys.readouterr().out
    for hole in ("where: {dataset: a}, ", "tier: warn, ", "unless: {model: m}, ", "where: {model: m}, "):
        text = Path(basics(tmp_path)).read_text().replace("judge: point", f"{hole}judge: point")
        policy.with_name("holes.yaml").write_text(text)
        main(["check", str(policy), str(policy.with_name("holes.yaml"))])
        assert capsys.readouterr().out.count("no blocking rule on all data") == 2, hole


def test_check_warns_of_a_policy_that_says_nothing_of_changed_images(tmp_path: Path, capsys: Captured) -> None:
    clean = Path(basics(tmp_path)).read_text()
    policy = tmp_path / "policy.yaml"
    for more, warned in (
        ("", True),
        ("  - {id: clean-cell, metric: accuracy, where: {setting: clean}, min: 50%}\n", True),
        ("  - {id: drops, metric: accuracy_drop, max: 50pp}\n", False),
    ):
        policy.write_text(clean + more)
        main(["check", str(policy)])
        said = "no blocking rule is about changed images: a model that loses everything under some setting may be GO. Add {metric"
        assert (said in capsys.readouterr().out) == warned, more


def test_a_policy_about_one_model_alone_has_its_basics_where_they_are_about_that_model(tmp_path: Path, capsys: Captured) -> None:
    text = Path(basics(tmp_path)).read_text().replace("judge: point", "where: {model: tiny}, judge: point")
    policy = tmp_path / "policy.yaml"
    policy.write_text(f"{text}  - {{id: kept, metric: accuracy_drop, max: 50pp, where: {{model: tiny, dataset: a}}}}\n")
    main(["check", str(policy)])
    assert "no blocking rule" not in capsys.readouterr().out
    policy.write_text(f"{text}  - {{id: kept, metric: accuracy_drop, max: 50pp, where: {{model: other}}}}\n")
    main(["check", str(policy)])
    assert capsys.readouterr().out.count("no blocking rule on all data") == 2


def test_check_warns_and_is_strict_when_told(tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("policy.yaml").write_text(POLICY.replace("setting: fog", "setting: fogg").replace("2027", SOON))
    assert main(["check", "policy.yaml"]) == 0
    out = capsys.readouterr().out
    assert "warning: policy.yaml:6: waiver W1 of jo: setting 'fogg' matches no setting that is known. Did you mean 'fog'?" in out
    assert main(["check", "--strict", "policy.yaml"]) == 1
    Path("policy.yaml").write_text(POLICY.replace("2027", SOON))
    assert main(["check", "--strict", "policy.yaml", basics(tmp_path)]) == 0
    capsys.readouterr()
    assert main(["check", "--strict", "policy.yaml", basics(tmp_path), "--samples", "100"]) == 1
    assert "warning: policy.yaml:3: with 100 questions even a model that loses nothing" in capsys.readouterr().out
    main(["check", "policy.yaml", "--samples", "100", "--images", "20"])
    assert "warning: policy.yaml:3: with 100 questions (20 images) even" in capsys.readouterr().out
    assert main(["check", "policy.yaml", "--samples", "100", "--images", "101"]) == 4


def test_check_says_which_rules_need_an_earlier_run(tmp_path: Path, capsys: Captured) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("version: 1\nrules:\n  - {id: kept, metric: baseline_drop, max: 2pp}\n")
    assert main(["check", "--strict", str(policy), basics(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "note: kept: compared with an earlier run, and not applicable without --vlm-baseline RUN" in said


NOISY = Repeatability("m", "d", 200, 20, 20, 0, 2, 100, 0.1, 0.07, 0.14, {"accuracy_drop": 0.0877}, {"accuracy_drop": 0.104})


def asked_twice(run: Path, *repeatability: Repeatability, **more: object) -> str:
    """Writes a run with A/A comparisons, and returns its directory."""
    write_manifest(run, {"planned": 1, "selected": 1, "repeatability": to_plain(repeatability), **more})
    with Journal(run) as journal:
        for level in ("low", "high"):
            measures = (Measure("accuracy_drop", 0.1), Measure("accuracy", 0.8))
            journal.append(
                Record(
                    "cell",
                    f"m-d-fog:{level}",
                    "m",
                    "d",
                    f"fog:{level}",
                    "weather",
                    level,
                    outcome=Outcome.PASS,
                    measures=measures,
                )
            )
    return str(run)


def test_check_sets_rules_beside_the_noise(tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rules = POLICY.replace("2027", SOON).replace(
        "waivers:", "  - {id: else, metric: accuracy_drop, where: {model: n}, max: 1pp}\nwaivers:"
    )
    Path("policy.yaml").write_text(rules)
    run = asked_twice(tmp_path / "run", NOISY)
    assert main(["check", "policy.yaml", "--noise", run]) == 0
    out = capsys.readouterr().out.splitlines()
    assert (
        "A/A m-d: 20 of 200 answers flipped (10.00 %, 90 % interval 7.00 % to 14.00 %), 20 were worded differently; 2 cells, "
        in out
    )
    assert "     rule low: accuracy_drop <= 5 pp, noise 8.8 pp (at most 10.4 pp)" in out
    assert "note: else: not compared with that noise, as the run measured nothing on a whole dataset that they bound" in out
    assert "note: 1 of 3 rules are about other metrics than accuracy_drop, whose noise is not known" in out
    warnings = [line for line in out if line.startswith("warning") and "no blocking rule" not in line]
    (warning,) = warnings
    assert warning.startswith("warning: m-d: policy.yaml:3: rule low (accuracy_drop <= 5 pp) is tighter than the noise of 8.8 pp")
    assert main(["check", "policy.yaml", basics(tmp_path), "--noise", run, "--strict"]) == 1
    Path("policy.yaml").write_text(rules.replace("5pp", "9pp"))
    assert main(["check", "policy.yaml", basics(tmp_path), "--noise", run, "--strict"]) == 0


def test_check_says_that_the_noise_was_not_measured(tmp_path: Path, capsys: Captured) -> None:
    run = asked_twice(tmp_path / "run", Repeatability("m", "d", problem="the model is lost"))
    assert main(["check", "default", "--noise", run]) == 0
    assert "warning: A/A m-d: not measured: the model is lost" in capsys.readouterr().out.splitlines()
    assert main(["check", "default", "--noise", run, "--strict"]) == 1
    run = asked_twice(tmp_path / "other", Repeatability("m", "d", failed=200), NOISY)
    assert main(["check", "robustbench", "--noise", run, "--strict"]) == 1
    said = capsys.readouterr().out
    assert "warning: A/A m-d: not measured: no answer could be asked for again (200 inferences failed)" in said


@pytest.mark.parametrize(
    ("more", "command"),
    [
        ({}, "pytest --vlm=... --vlm-aa ..."),
        (
            {"command": {"options": ["--vlm=m", "--vlm-store=a b"], "paths": ["suites"], "root": ".", "here": "."}},
            "pytest --vlm=m '--vlm-store=a b' --vlm-aa suites",
        ),
    ],
)
def test_check_says_how_to_measure_the_noise(more: dict[str, object], command: str, tmp_path: Path, capsys: Captured) -> None:
    run = asked_twice(tmp_path / "run", **more)
    assert main(["check", "default", "--noise", run]) == 4
    said = capsys.readouterr()
    assert not said.out
    assert said.err.startswith(f"vlmrobust: --noise {run}: the run has no A/A measurement: its questions were asked once")
    assert said.err.endswith(f"Make a run that has one: {command}\n")


def test_check_wants_the_noise_of_a_run(tmp_path: Path, capsys: Captured) -> None:
    assert main(["check", "default", "--noise", str(tmp_path / "none")]) == 4
    assert f"{tmp_path / 'none'}" in capsys.readouterr().err


@pytest.mark.parametrize("samples", ["0", "-3", "many", "2.5"])
def test_check_refuses_what_is_no_number_of_samples(samples: str, capsys: Captured) -> None:
    assert main(["check", "default", f"--samples={samples}"]) == 2
    assert f"'{samples}' is not a number of samples. Expected 1 or more" in capsys.readouterr().err


def test_power_refuses_a_seed_that_is_none(capsys: Captured) -> None:
    assert main(["power", "default", "--seed", "-1"]) == 2
    assert "'-1' is not a seed. Expected a whole number, 0 or more" in capsys.readouterr().err


def test_check_refuses_a_blocking_bound_that_nothing_could_break(tmp_path: Path, capsys: Captured) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("version: 1\nrules:\n  - {id: a, metric: pcri_excess, min: -0.1}\n", encoding="utf-8")
    assert main(["check", str(policy)]) == 0
    assert main(["check", str(policy), "--options", "open", "--accuracy", "60%"]) == 0
    capsys.readouterr()
    assert main(["check", str(policy), "--options", "2"]) == 4
    assert "policy.yaml:3: rule a (pcri_excess >= -0.1) can never fail at patches:3 among 2 options" in capsys.readouterr().err


@pytest.mark.parametrize("policy", ["pcri", "rci", "strict"])
def test_check_notes_that_a_model_is_too_good_to_break_a_shipped_rule(policy: str, capsys: Captured) -> None:
    assert main(["check", policy, "--accuracy", ".95"]) == 0
    (note,) = [line for line in capsys.readouterr().out.splitlines() if "cannot break" in line]
    assert note.startswith("note: ")
    assert "(pcri_matched >= -0.1) at patches:2 at a clean accuracy of 0.95" in note


def test_check_warns_of_every_suite_and_names_what_it_cannot_tell(tmp_path: Path, capsys: Captured) -> None:
    policy_file = tmp_path / "own.yaml"
    policy_file.write_text("version: 1\nrules:\n  - {id: kept, metric: corpus_drop, max: 0.05}\n", encoding="utf-8")
    assert main(["check", "resbench", str(policy_file), "--samples", "100"]) == 0
    out = capsys.readouterr().out
    assert "note: not checked at this size: kept (corpus_drop)" in out
    assert f"`vlmrobust power resbench {policy_file} --samples 100` simulates them" in out
    assert "rule no-step-down (largest_downward_step <= 6 pp" in out
    assert main(["check", "pcri", "--samples", "30"]) == 0
    assert "rule context-helps (pcri_matched >= -0.1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("--options=1", "'1' is not a number of options. Expected 2 or more, or open"),
        ("--options=many", "'many' is not a number of options"),
        ("--accuracy=0", "'0': expected an accuracy above 0 and at most 1, such as 0.8 or 80%"),
        ("--accuracy=80", "'80': expected an accuracy above 0 and at most 1"),
        ("--accuracy=high", "'high': expected an accuracy above 0"),
    ],
)
def test_check_refuses_other_circumstances(argument: str, said: str, capsys: Captured) -> None:
    assert main(["check", "default", argument]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("name", [file.stem for file in sorted(shipped("thresholds").glob("*.yaml"))])
def test_the_shipped_policies_are_fine(name: str, capsys: Captured) -> None:
    assert main(["check", name, "--strict"]) == 0
    assert "rules" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (("accuracy_drop, where: {level: low}", "acuracy_drop"), ["policy.yaml:3", "Did you mean 'accuracy_drop'?"]),
        (("max: 5pp", "maxx: 5pp"), ["policy.yaml:3", "maxx"]),
        (("metric: worst_case_drop", "metric: rce"), ["policy.yaml:4", "relative_corruption_error"]),
    ],
)
def test_check_refuses_a_bad_policy(
    wrong: tuple[str, str], words: list[str], tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("policy.yaml").write_text(POLICY.replace(*wrong))
    assert main(["check", str(tmp_path / "policy.yaml")]) == 4
    said = capsys.readouterr()
    assert not said.out
    assert said.err.startswith("vlmrobust: policy.yaml:")
    for word in words:
        assert word in said.err


def test_check_refuses_what_is_not_there(capsys: Captured) -> None:
    assert main(["check", "defualt"]) == 4
    assert "Did you mean 'default'?" in capsys.readouterr().err


def test_a_report_again_keeps_what_its_policy_asked_for(tmp_path: Path, capsys: Captured) -> None:
    write_manifest(tmp_path, {"run": "x", "planned": 2, "selected": 1, "shortfalls": ["1 of 2 tests were not selected"]})
    with Journal(tmp_path) as journal:
        journal.append(Record("cell", "m-d-clean", "m", "d", outcome=Outcome.PASS))
    assert main(["report", str(tmp_path)]) == 10
    assert capsys.readouterr().out.startswith("INCONCLUSIVE: 1 of 1 tests")
    assert "**not GO: 1 of 2 tests were not selected**" in (tmp_path / "summary.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("outcome", "code", "decision"), [(Outcome.PASS, 0, "GO"), (Outcome.FAIL, 1, "NO-GO"), (Outcome.ERROR, 11, "INCOMPLETE")]
)
def test_report_of_a_run(tmp_path: Path, capsys: Captured, outcome: Outcome, code: int, decision: str) -> None:
    run = tmp_path / "runs" / "20260101-120000-7"
    write_manifest(run, {"run": run.name, "planned": 2, "selected": 2})
    with Journal(run) as journal:
        journal.append(Record("cell", "m-d-fog:low", "m", "d", outcome=outcome))
        journal.append(Record("cell", "m-d-clean", "m", "d", outcome=Outcome.PASS))
    assert main(["report", str(run)]) == code
    assert capsys.readouterr().out == f"{decision}: 2 of 2 tests, {run / 'report.html'}\n"
    assert json.loads((run / "results.json").read_text())["decision"] == decision


def test_report_of_a_killed_run_leaves_out_the_torn_line(tmp_path: Path, capsys: Captured) -> None:
    write_manifest(tmp_path, {"run": "x", "planned": 2, "selected": 2})
    with Journal(tmp_path) as journal:
        journal.append(Record("cell", "m-d-clean", "m", "d", outcome=Outcome.PASS))
    with (tmp_path / "records.jsonl").open("ab") as stream:
        stream.write(b'{"test": "ce')
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "out")]) == 11
    assert capsys.readouterr().out.startswith("INCOMPLETE: 1 of 2 tests")
    written = ["cells.csv", "junit.xml", "manifest.json", "model_card.md", "records.jsonl", "report.html", "results.json"]
    written = [".vlmrobust.lock", *written, "summary.md"]
    assert files(tmp_path / "out") == written
    assert files(tmp_path) == sorted(["manifest.json", "records.jsonl", *(f"out/{name}" for name in written)])


def test_report_of_no_run(tmp_path: Path, capsys: Captured) -> None:
    assert main(["report", str(tmp_path / "nowhere")]) == 4
    assert "records.jsonl: cannot read the journal: No such file or directory" in capsys.readouterr().err


def finished(run: Path, text: str = "B") -> Path:
    """Leaves what a run does that measured one cell, but for its docket."""
    write_manifest(run, {"run": run.name, "planned": 2, "selected": 2})
    with Journal(run) as journal:
        journal.append(
            Record("cell", "m-d-clean", "m", "d", outcome=Outcome.PASS, nodeid="suite/test_a.py::test_cell[m-d-clean]")
        )
    with Evidence.open(run) as evidence:
        evidence.put_samples("d", "x", [Sample("s", (), "?", "B", "choice", {"A": "a", "B": "b"})])
        answer = Answer("k", Prediction(text, "generate"), Score(float(text == "B"), "letter", text))
        evidence.put_cells([StoredCell(Cell("m", "d", CLEAN), 1, (answer,))])
    return run


def test_junit_of_a_killed_run(tmp_path: Path, capsys: Captured) -> None:
    run = finished(tmp_path / "runs" / "r1")
    write_docket(run, {"tests": [{"nodeid": f"suite/test_a.py::test_cell[{name}]"} for name in ("m-d-clean", "m-d-fog:low")]}, [])
    assert main(["junit", str(run), "--out", str(tmp_path / "new" / "j.xml")]) == 0
    assert capsys.readouterr().out == f"INCOMPLETE: 1 test, 1 without a verdict, {tmp_path / 'new' / 'j.xml'}\n"
    text = (tmp_path / "new" / "j.xml").read_text()
    assert '<testcase classname="suite.test_a" name="test_cell[m-d-fog:low]" time="0.000"><error' in text.replace(
        "<properties />", ""
    )
    assert main(["junit", str(run)]) == 0
    assert (run / "junit.xml").read_text() == text


def test_damaged_answers_are_said_where_reports_are_written(tmp_path: Path, capsys: Captured) -> None:
    run = finished(tmp_path / "r1")
    answers = run / "predictions.sqlite"
    for content in (answers.read_bytes()[:5000], b"x" * 5000):
        answers.write_bytes(content)
        for command, file in (("report", "report.html"), ("junit", "junit.xml")):
            assert main([command, str(run)]) in (0, 11)
            said = " ".join(capsys.readouterr().err.split())
            assert said.startswith(f"vlmrobust: {answers}: "), said
            assert (run / file).is_file()
        assert "the answers of the run cannot be read" in (run / "report.html").read_text(encoding="utf-8")


def test_compare_says_what_broke(tmp_path: Path, capsys: Captured) -> None:
    before, after = finished(tmp_path / "a"), finished(tmp_path / "b", "A")
    assert main(["compare", str(before), str(after), "--out", str(tmp_path / "out"), "--model", "m"]) == 0
    assert "m-d-clean  1  100.0 %  0.0 %" in capsys.readouterr().out
    comparison = json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert comparison["cells"][0]["broken"] == ["s"]
    assert files(tmp_path / "out") == ["comparison.json", "comparison.md"]


def test_rank_puts_models_side_by_side(tmp_path: Path, capsys: Captured) -> None:
    good, bad = finished(tmp_path / "a"), finished(tmp_path / "b", "A")
    again = [f"good={good}", f"bad={bad}", "--by", "clean_accuracy"]
    assert main(["rank", *again, "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    assert said.index("good/m") < said.index("bad/m")
    assert "d: 1 sample, 0 perturbed settings" in said
    assert files(tmp_path / "out") == ["models.html", "models.json", "models.md"]
    assert json.loads((tmp_path / "out" / "models.json").read_text())["models"] == ["good/m", "bad/m"]


def test_a_directory_is_what_it_is_whatever_its_name(tmp_path: Path, capsys: Captured) -> None:
    finished(tmp_path / "x=y")
    assert main(["rank", str(tmp_path / "x=y")]) == 4
    assert "a ranking needs two models or more, found m" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["rank", "a", "a"], "the model 'm' is in 'a' and in 'a'"),
        (["rank", "a", "./nowhere"], "'nowhere' holds no predictions.sqlite"),
        (["rank", "x=a", "y=a"], "no cell was measured for all of x/m, y/m"),
        (["rank", "x=a", "y=a", "--reference", "z"], "--reference: unknown reference model 'z'"),
        (["compare", "a", "./nowhere"], "'nowhere' holds no predictions.sqlite"),
        (["compare", "a", "a", "--model", "n"], "--model: unknown model 'n'"),
        (["junit", "./nowhere"], "records.jsonl: cannot read the journal"),
        (["bundle", "nowhere"], "'nowhere': there is no such directory"),
        (["bundle", "./nowhere"], "records.jsonl: cannot read the journal"),
        (["bundle", "a"], "docket.json: cannot be read: No such file or directory"),
        (["verify", "nowhere.zip"], "nowhere.zip: cannot be read: No such file or directory. Expected a ZIP file"),
        (["verify", "a/records.jsonl"], "Expected a ZIP file that vlmrobust bundle wrote"),
    ],
)
def test_what_cannot_be_read_is_one_line_and_four(
    arguments: list[str], words: str, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    finished(tmp_path / "a")
    assert main(arguments) == 4
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert words in said.err


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    path = tmp_path / "photo.png"
    PIL.Image.linear_gradient("L").resize((96, 64)).save(path)
    return path


def test_show_writes_a_page_and_says_what_it_holds(picture: Path, capsys: Captured) -> None:
    out = picture.with_name("gallery.html")
    options = ["--set", "patches", "--setting", "fog:mid+flip_h", "--setting", "flip_v", "--seed", "7", "--tile", "80"]
    assert main(["show", str(picture), "--out", str(out), *options]) == 0
    said = capsys.readouterr()
    shown = len(perturbations.names("patches")) + 2
    assert re.fullmatch(rf"{re.escape(str(out))}: {shown} settings in \d+\.\d s\n", said.out)
    assert not said.err
    assert files(picture.parent) == sorted([picture.name, out.name])


def test_show_shows_the_sets_of_the_papers_by_default(picture: Path, capsys: Captured) -> None:
    out = picture.with_name("x.html")
    assert main(["show", str(picture), "--out", str(out), "--tile", "64"]) == 0
    sets = ("robustbench", "patches", "resolution", "observatory_id", "observatory_ood")
    expected = {setting for name in sets for setting in perturbations.names(name)}
    assert f": {len(expected)} settings in " in capsys.readouterr().out
    text = re.sub("<wbr>", "", out.read_text(encoding="utf-8"))
    assert all(f"<b>{setting}</b>" in text for setting in expected)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["absent.png", "--out", "x.html"], "absent.png: no such file"),
        ([".", "--out", "x.html"], ".: a directory"),
        (["photo.png", "--out", "x.pdf"], "x.pdf: no format is called '.pdf'. Expected a name that ends in .html"),
        (["photo.png", "--out", "no/x.html"], "no/x.html: cannot be written: No such file or directory"),
        (["photo.png", "--out", "x.html", "--set", "robustbnch"], "Did you mean 'robustbench'?"),
        (["photo.png", "--out", "x.html", "--setting", "glas_blur:low"], "Did you mean 'glass_blur'?"),
        (["photo.png"], "--out is missing"),
        (["photo.png", "--out", "x.html", "--setting", "negation"], "vlmrobust show questions.jsonl --setting negation"),
        (["photo.png", "--out", "x.html", "--tile", "4000"], "tile: got 4000. Expected a width of 64 to 400 pixels"),
    ],
)
def test_show_refuses_in_one_line(
    arguments: list[str], words: str, picture: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(picture.parent)
    assert main(["show", *arguments]) == 4
    said = capsys.readouterr()
    assert not said.out
    assert said.err.startswith("vlmrobust: ")
    assert words in said.err
    assert said.err.count("\n") == 1
    assert files(picture.parent) == [picture.name]


def test_show_prints_a_question_before_and_after(capsys: Captured) -> None:
    settings = ["option_order:1", "note_wrong+fog:mid", "negation"]
    assert main(["show", "shapes", *(f"--setting={setting}" for setting in settings)]) == 0
    said = capsys.readouterr().out
    order, note, negation = re.findall(r"--- \S+, ([^c]\S+): (.*?)(?=---|\Z)", said, re.DOTALL)
    clean = said.partition("--- ")[2].partition("--- ")[0]
    assert [order[0], note[0], negation[0]] == settings
    before, after = (re.findall(r"[A-D]\. (.+)", text) for text in (clean, order[1]))
    assert sorted(before) == sorted(after)
    assert before != after
    assert said.count("A note attached") == note[1].count("A note attached") == 1
    assert " NOT a right answer " in negation[1]


def test_show_says_where_a_setting_changes_no_question(tmp_path: Path, capsys: Captured) -> None:
    PIL.Image.new("RGB", (32, 32)).save(tmp_path / "a.png")
    line = '{"id": "a", "image": "a.png", "question": "What?", "answer": "cat"}'
    (tmp_path / "open.jsonl").write_text(line, encoding="utf-8")
    assert main(["show", str(tmp_path / "open.jsonl"), "--setting=option_order:1"]) == 0
    assert "option_order:1 changes none of the 1 question of" in capsys.readouterr().out


@pytest.mark.parametrize(("program", "command"), [pytest.param(*each, id=each[0]) for each in every_command()])
def test_every_command_says_what_it_is_for_with_examples_that_it_takes(
    program: str, command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    for run in ("last-release", ".vlmrobust/runs/20270101-000000-00000000"):
        finished(tmp_path / run)
    assert re.fullmatch(r"[A-Z].*\.", command.help)
    raw, title, *examples = (line.strip() for line in command.epilog.split("\n"))
    assert (raw, title) == ("\b", "Examples:")
    for example in examples:
        assert shlex.split(example)[0] == "vlmrobust"
        read(shlex.split(example)[1:])
        assert example.startswith(program), example
    assert main([*program.split()[1:], "--help"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert max(map(len, shown[: -len(examples)])) <= 80
    assert [line.strip() for line in shown[-len(examples) :]] == examples


def test_alone_it_shows_its_help(capsys: Captured) -> None:
    assert main([]) == 4
    assert "Open a report in the browser" in capsys.readouterr().err


def test_a_flag_with_a_value_is_answered_with_the_usage(capsys: Captured) -> None:
    assert main(["check", "--strict=1"]) == 2
    usage, said = capsys.readouterr().err.splitlines()
    assert usage == "Usage: vlmrobust check [OPTIONS] POLICY..."
    assert said == "vlmrobust: Option '--strict' does not take a value."


def test_a_misspelt_option_is_answered_by_its_command(tmp_path: Path, capsys: Captured) -> None:
    assert main(["report", str(tmp_path), "--otu", "x"]) == 2
    usage, said = capsys.readouterr().err.splitlines()
    assert usage == "Usage: vlmrobust report [OPTIONS] RUN"
    assert said == "vlmrobust: No such option: --otu. Did you mean '--out'?"


@pytest.mark.parametrize(("written", "meant"), [("lates", "latest"), ("20270101-000000-0000abce", "20270101-000000-0000abcd")])
def test_a_misspelt_run_is_answered_with_the_nearest(
    written: str, meant: str, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    finished(tmp_path / ".vlmrobust/runs/20270101-000000-0000abcd")
    for command in (["report"], ["junit"], ["bundle"], ["rank"], ["view"], ["export", "sarif"], ["compare", "latest"]):
        assert main([*command, written]) == 4
        said = capsys.readouterr().err
        assert f"there is no such directory, and .vlmrobust holds no run of this name. Did you mean {meant!r}?" in said


@pytest.mark.parametrize("arguments", [["gate"], ["list", "models", "more"], ["list", "papers"], ["check"]])
def test_what_is_no_command_is_refused(arguments: list[str], capsys: Captured) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith("Usage: vlmrobust")


def test_help_names_every_command(capsys: Captured) -> None:
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    for command in ("init", "list", "check", "report", "junit", "compare", "rank", "bundle", "verify", "show"):
        assert command in text


def test_help_lists_what_most_people_need_apart(capsys: Captured) -> None:
    assert main(["--help"]) == 0
    basic, _, advanced = capsys.readouterr().out.partition("\nAdvanced commands:\n")
    listed = [
        re.findall(r"^  ([a-z-]+)  ", part.partition("\nCommands:\n")[2] or part, re.MULTILINE) for part in (basic, advanced)
    ]
    assert {"init", "open", "check"} <= set(listed[0])
    assert len(listed[0]) <= 12
    assert {"merge", "submit", "junit"} <= set(listed[1])


def test_explain_says_all_about_a_metric(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "70")
    assert main(["explain", "relative_corruption_error"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("relative_corruption_error\n\nShare of the visual gain that a perturbation destroys: ")
    assert "\n    mean(clean - perturbed) / mean(clean - no_image)\n" in said
    assert "\nbetter           lower\n" in said
    assert "\nwhen not to use  Where `visual_gain` is small, " in said
    assert max(map(len, said.splitlines())) <= 70


def test_explain_without_a_name_lists_all(capsys: Captured) -> None:
    assert main(["explain"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == sorted(quantities())
    assert "Mean score." in {" ".join(line.split()[1:]) for line in lines if line.split()[0] == "accuracy"}


def test_explain_offers_the_nearest_name(capsys: Captured) -> None:
    assert main(["explain", "worst_case_dorp"]) == 4
    assert capsys.readouterr().err.startswith(
        "vlmrobust: unknown metric 'worst_case_dorp'. Did you mean 'worst_case_drop'? Known: "
    )


def test_explain_refuses_what_two_papers_use(capsys: Captured) -> None:
    assert main(["explain", "rce"]) == 4
    said = capsys.readouterr().err
    assert (
        "'rce' is ambiguous: write 'relative_corruption_error' (VLM-RobustBench) or 'relative_continuous_error' (Res-Bench)"
        in said
    )


def test_what_a_message_quotes_is_never_obeyed(capsys: Captured) -> None:
    assert main(["report", "\x1b[2J\u202eabsent"]) == 4
    assert r"\x1b[2J\u202eabsent" in capsys.readouterr().err


def test_what_is_said_is_printable(capsys: Captured) -> None:
    say("one\ntwo \x1b[2J\udcff")
    assert capsys.readouterr().out == "one\ntwo \\x1b[2J\\udcff\n"


def test_ctrl_c_ends_a_command_without_a_traceback(tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_vlmrobust.reporting.files.read_run", Mock(side_effect=KeyboardInterrupt))
    assert main(["report", str(tmp_path)]) == 130
    assert capsys.readouterr().err == "vlmrobust: stopped by Ctrl-C\n"


def test_an_error_that_nobody_expected_is_exit_code_4_in_one_line(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_path: Path) -> None:
        raise LookupError("first\nsecond")

    monkeypatch.setattr("pytest_vlmrobust.reporting.files.read_run", fail)
    assert main(["report", str(tmp_path)]) == 4
    said = capsys.readouterr().err
    assert said.startswith("vlmrobust: this should not happen: LookupError: first second; set VLMROBUST_TRACEBACK=1 to see where")
    assert said.count("\n") == 1
    monkeypatch.setenv("VLMROBUST_TRACEBACK", "1")
    with pytest.raises(LookupError):
        main(["report", str(tmp_path)])


@pytest.mark.parametrize(
    ("service", "file", "gate"),
    [
        ("github", ".github/workflows/vlm-gate.yml", ".github/actions/vlm-gate/action.yml"),
        ("gitlab", ".gitlab-ci.yml", ".gitlab/vlm-gate.yml"),
        ("jenkins", "Jenkinsfile", "vlmGate.groovy"),
    ],
)
def test_init_writes_a_recipe_and_says_what_comes_next(
    service: str, file: str, gate: str, tmp_path: Path, capsys: Captured
) -> None:
    assert main(["init", str(tmp_path / "gate"), "--ci", service]) == 0
    said = capsys.readouterr().out.splitlines()
    assert {str(tmp_path / "gate" / file), str(tmp_path / "gate" / gate)} <= set(said)
    assert said[-10] == "Next:"
    assert said[-8].startswith(f"  # {file} fails until its package says where")
    recipe = (tmp_path / "gate" / file).read_text()
    text = (tmp_path / "gate" / gate).read_text()
    assert ".vlmrobust" in text
    known = {f"--{field.name.replace('_', '-')}" for field in fields(Settings)}
    assert set(re.findall(r"--vlm[a-z-]*", "\n".join([text, *said]))) <= known
    if service != "jenkins":
        assert yaml.safe_load(recipe)


def kept_run(store: Path, name: str, decision: Decision = Decision.GO) -> Path:
    directory = store / "runs" / name
    outcome = Outcome.PASS if decision is Decision.GO else Outcome.FAIL
    measures = (Measure("accuracy", 0.9, 0.8, 0.95, outcome=outcome, rule="r"),)
    with Journal(directory) as journal:
        about: dict[str, Any] = {"outcome": outcome, "measures": measures, "nodeid": "t.py::t[m-d-clean]"}
        journal.append(Record("cell", "m-d-clean", "m", "d", "clean", **about))
    write_manifest(directory, {"run": name, "date": "2026-11-23", "models": {"m": {}}, "planned": 1, "selected": 1})
    return directory


def test_runs_are_listed_newest_first(tmp_path: Path, capsys: Captured) -> None:
    kept_run(tmp_path, "20261121-000000-a")
    kept_run(tmp_path, "20261123-000000-c", Decision.NO_GO)
    (tmp_path / "runs" / "20261122-000000-b").mkdir()
    (tmp_path / "runs" / "20261122-000000-b" / "records.jsonl").write_text("")
    assert main(["runs", "--store", str(tmp_path)]) == 0
    shown = capsys.readouterr()
    header, newest, unreadable, oldest = (line.split() for line in shown.out.splitlines())
    assert header[:5] == ["run", "date", "decision", "model", "data"]
    assert newest == ["20261123-000000-c", "2026-11-23", "NO-GO", "m", "d", "1", "of", "1", "90.0", "%"]
    assert unreadable == ["20261122-000000-b", "cannot", "be", "read"]
    assert "cannot read the manifest" in shown.err
    assert oldest[:3] == ["20261121-000000-a", "2026-11-23", "GO"]
    assert main(["runs", "--store", str(tmp_path), "--last", "1"]) == 0
    assert "… and 2 older runs: --last 3 lists all" in capsys.readouterr().out


def test_names_of_runs_are_whole_on_a_narrow_terminal(tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "20261121-000000-0123abcd"
    kept_run(tmp_path, name)
    monkeypatch.setattr(runs, "in_color", lambda: True)
    monkeypatch.setattr(runs, "width", lambda: 80)
    assert main(["runs", "--store", str(tmp_path)]) == 0
    header, row = capsys.readouterr().out.splitlines()
    assert "decision" in header
    assert "date" not in header
    assert row.startswith(f"{name}  GO ")


def test_a_list_of_runs_has_whole_lines_and_the_marks_of_the_page(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = kept_run(tmp_path, "20261121-000000-0123abcd")
    judged: dict[str, Any] = {"outcome": Outcome.INCONCLUSIVE, "rule": "r", "target": "dataset"}
    with Journal(directory) as journal:
        for metric in ("mean_drop", "worst_case_drop"):
            measure = Measure(metric, 0.2, 0.1, 0.3, **judged)
            about: dict[str, Any] = {"outcome": Outcome.INCONCLUSIVE, "measures": (measure,), "n_samples": 5}
            journal.append(Record("sweep", f"m-d-{metric}", "m", "d", metric=metric, nodeid=f"t.py::t[{metric}]", **about))
    monkeypatch.setattr(runs, "in_color", lambda: True)
    shown = {}
    for columns in (81, 80, 66, 160):
        monkeypatch.setattr(runs, "width", lambda columns=columns: columns)
        assert main(["runs", "--store", str(tmp_path)]) == 0
        header, row, legend = (re.sub("\x1b.*?m", "", line) for line in capsys.readouterr().out.splitlines())
        shown[columns] = header.split(), row.split()
        assert legend == "~ stopped early  * no confidence interval used"
    assert shown[81][0] == ["run", "decision", "model", "data", "clean", "mean", "drop", "worst"]
    assert shown[81][1][1:] == ["INCONCLUSIVE", "m", "d", "90.0", "%", "~20.0", "pp*", "~20.0", "pp*"]
    assert shown[80][0] == shown[81][0][:-1]
    assert shown[66][0] == ["run", "decision", "model", "data", "mean", "drop"]
    assert shown[160][0][:3] == ["run", "date", "decision"]


def test_without_a_run_there_is_nothing_to_list(tmp_path: Path, capsys: Captured) -> None:
    for command in ("runs", "history"):
        assert main([command, "--store", str(tmp_path)]) == 4
        assert "holds no run. Run pytest --vlm=NAME first" in capsys.readouterr().err
        assert main([command, "--store", str(tmp_path / "nowhere")]) == 4
        assert "nowhere: there is no such directory. Run pytest --vlm=NAME first" in capsys.readouterr().err


def test_latest_is_the_newest_run_of_the_store_here(tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["junit", "latest"]) == 4
    assert "latest: .vlmrobust holds no run here" in capsys.readouterr().err
    kept_run(Path(".vlmrobust"), "20261121-000000-a")
    newest = kept_run(Path(".vlmrobust"), "20261123-000000-c")
    assert main(["junit", "latest"]) == 0
    assert (newest / "junit.xml").is_file()
    Path("latest").mkdir()
    assert main(["junit", "latest"]) == 4, "a directory of that name is meant"


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("ver", ["verify"]),
        ("export sa", ["sarif"]),
        ("list m", ["metrics", "models"]),
        ("rank --b", ["--by"]),
        ("compare --samples ", ["common"]),
    ],
)
def test_a_shell_completes_commands_options_and_choices(
    typed: str, completed: list[str], capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = f"vlmrobust {typed}"
    monkeypatch.setenv("_VLMROBUST_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(words.count(" ")))
    with pytest.raises(SystemExit, match="0"):
        main()
    assert capsys.readouterr().out.split() == completed


def test_a_variable_of_completion_alone_is_named(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_VLMROBUST_COMPLETE", "complete_bash")
    monkeypatch.delenv("COMP_WORDS", raising=False)
    assert main(["list", "metrics"]) == 4
    assert "_VLMROBUST_COMPLETE is set, and COMP_WORDS is not" in capsys.readouterr().err


@pytest.mark.parametrize("variable", [("TERM", "xterm"), ("TERM", "dumb"), ("NO_COLOR", "1")])
def test_a_table_is_bold_only_where_the_terminal_shows_it(
    variable: tuple[str, str], tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept_run(tmp_path, "20261121-000000-0123abcd")
    monkeypatch.setattr("pytest_vlmrobust.commands.arguments._on_terminal", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv(*variable)
    assert main(["runs", "--store", str(tmp_path)]) == 0
    assert ("\x1b[" in capsys.readouterr().out) is (variable == ("TERM", "xterm"))


@pytest.mark.parametrize("text", ["[0]", "[/red]", "[bold]x"])
def test_markup_in_what_is_typed_is_shown_as_it_is(text: str, capsys: Captured) -> None:
    assert main(["list", text]) == 2
    assert f"vlmrobust: Invalid value for 'kind': '{text}' is not one of 'datasets', " in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--out", "--model", "m"], ["--out", "--"], ["--model", "--out=x"]])
def test_an_option_is_no_value_of_another(arguments: list[str], capsys: Captured) -> None:
    assert main(["export", "nel", "run", *arguments]) == 2
    assert f"Option '{arguments[0]}' requires an argument" in capsys.readouterr().err


@pytest.mark.process
@pytest.mark.parametrize("arguments", [["--help"], ["compare", "--help"], ["nothing"]])
def test_help_loads_no_large_library(arguments: list[str]) -> None:
    script = "import sys; from pytest_vlmrobust.cli import main; main(sys.argv[1:]); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True)
    assert not {"numpy", "torch", "pytest", "pydantic", "rich", "yaml"} & set(done.stderr.split())


def test_history_draws_a_metric_over_the_runs(tmp_path: Path, capsys: Captured) -> None:
    for name in ("20261121-000000-a", "20261123-000000-c"):
        kept_run(tmp_path, name)
    assert main(["history", "--store", str(tmp_path), "--metric", "accuracy"]) == 0
    title, newest, oldest, scale, conclusion = capsys.readouterr().out.splitlines()
    assert title == "m-d-clean: accuracy"
    assert conclusion.startswith("no change is shown in 2 runs")
    assert main(["history", "--store", str(tmp_path), "--metric", "accuracy", "--out", str(tmp_path / "new" / "h.html")]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(tmp_path / "new" / "h.html")
    assert "20261121-000000-a" in (tmp_path / "new" / "h.html").read_text(encoding="utf-8")
    assert newest.startswith("20261123-000000-c  GO  0.900 [0.800, 0.950]  |---")
    assert oldest.startswith("20261121-000000-a")
    assert scale.split() == ["0.800", "0.950"]
    assert main(["history", "--store", str(tmp_path)]) == 4
    assert "no run of it measured mean_drop" in capsys.readouterr().err
    assert main(["history", "--store", str(tmp_path), "--metric", "accuracy", "--setting", "fog:low"]) == 4
    assert "accuracy over several settings or under fog:low, the value of --setting" in capsys.readouterr().err
    assert main(["history", "--store", str(tmp_path), "--metric", "accuracy", "--setting", "fgo:low"]) == 4
    assert "under fgo:low, the value of --setting. Did you mean 'fog:low'?" in capsys.readouterr().err
    assert main(["history", "--store", str(tmp_path), "--metric", "acuracy"]) == 4
    assert "Did you mean 'accuracy'?" in capsys.readouterr().err


def test_every_command_that_reads_runs_has_limits() -> None:
    reads = {name.partition(" ")[0] for name in arguments_that_are_runs()} - {"open"}  # which a browser reads
    limited = {program.split()[1] for program, command in every_command() if "limits" in vars(command.callback or main)}
    assert limited == reads | {"verify", "merge", "runs", "history"}


def arguments_that_are_runs() -> dict[str, Any]:
    """Returns every argument of every command, and of the commands below it, that is a run."""
    return {
        f"{program.removeprefix('vlmrobust ')} {argument.opts[0]}": argument
        for program, command in every_command()
        for argument in command.params
        if "RUN" in str(argument.metavar) or argument.help.startswith(("a run", "the earlier run", "the later run"))
    }


def test_latest_and_names_of_runs_are_taken_wherever_a_run_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    older = kept_run(Path(".vlmrobust"), "20261121-000000-a")
    newest = kept_run(Path(".vlmrobust"), "20261123-000000-c")
    arguments = arguments_that_are_runs()
    commands = {name.split()[0] for name in arguments}
    assert {"report", "junit", "compare", "comment", "rank", "export", "bundle", "check", "reproduce", "power"} <= commands
    assert {name for name in arguments if name.startswith("export")} == {
        f"export {each} run" for each in ("mlflow", "wandb", "inspect", "nel", "sarif")
    }
    for name, argument in arguments.items():
        if name.startswith("power"):  # takes profiles as well: see the tests of power
            continue
        reader = argument.type_descriptor.parameter_info.parser
        assert callable(reader), name
        for text, run in (("latest", newest), (older.name, older), (str(older), older)):
            named = reader(text)
            assert (named[-1] if isinstance(named, tuple) else named) == run, name


def test_a_name_that_no_run_has_is_said_to_hold_none(tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    kept_run(Path(".vlmrobust"), "20261121-000000-a")
    assert main(["junit", "20261121-000000-b"]) == 4
    assert "20261121-000000-b" in capsys.readouterr().err


@pytest.mark.parametrize(("arguments", "name"), [(["explian"], "explain"), (["init", "--ci", "jenkin"], "jenkins")])
def test_a_misspelt_name_draws_the_nearest(arguments: list[str], name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert f"Did you mean '{name}'?" in capsys.readouterr().err


def test_a_misspelt_file_is_answered_with_the_nearest(tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("release.yaml", "my_questions.jsonl"):
        Path(name).touch()
    assert main(["check", "relase.yaml"]) == 4
    assert "no shipped policy of that name. Did you mean 'release.yaml'?" in capsys.readouterr().err
    assert main(["data", "my_question.jsonl"]) == 4
    assert "dataset 'my_question.jsonl' was not found. Did you mean 'my_questions.jsonl'?" in capsys.readouterr().err
    with pytest.raises(ModelError, match=r"Did you mean 'release\.yaml'\?"):
        resolve("scripted:relase.yaml")


@pytest.mark.parametrize(
    "words", [["runs", "--store"], ["report"], ["compare", "latest"], ["verify"], ["check"], ["data"], ["view"], ["rank"]]
)
@pytest.mark.parametrize("path", ["x" * 300, "~nobody-has-this-name/x", ""])
def test_a_path_that_this_machine_cannot_have_is_a_mistake(
    words: list[str], path: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(TRACEBACK, "1")
    assert main([*words, path]) == USAGE_ERROR
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "[Errno" not in said
