"""``--vlm-rerun``, and the commands that a report gives to run tests again."""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from pytest_vlmrobust.cli import main

from .conftest import UNUSED, Project, ends

TESTS = 8
BROKEN = ({"setting": "invert", "answer": "A"}, {"setting": "flip_v", "answer": "A"})


def commands(result: pytest.RunResult) -> list[list[str]]:
    """Returns the commands that the table at the end gives."""
    table = itertools.dropwhile(lambda line: "vision-language model robustness" not in line, result.outlines)
    return [shlex.split(line.rpartition("failures: ")[2]) for line in table if "pytest --vlm" in line]


def header(result: pytest.RunResult) -> str:
    return next(line for line in result.outlines if line.startswith("vlm: --vlm-rerun"))


def test_only_what_failed_runs_again_and_is_not_go_by_itself(any_project: Project) -> None:
    any_project.script(*BROKEN)
    assert any_project.run().ret == 1
    deselected = 0 if "-n2" in any_project.arguments else TESTS - 3
    again = ends(any_project.run("--vlm-rerun=failed"), 1, "only 3 of 8 tests ran*", "NO-GO*")
    again.assert_outcomes(failed=3, deselected=deselected)
    assert header(again).startswith("vlm: --vlm-rerun failed: 3 tests to run again of run 2")
    assert header(again).endswith("(3 FAIL, 2 not judged, 3 PASS)")
    any_project.script()
    mended = ends(any_project.run("--vlm-rerun=failed"), 10, "not GO: 5 of 8 tests were not selected*")
    mended.assert_outcomes(passed=3, deselected=deselected)
    named = [json.loads((run / "manifest.json").read_text())["repeats"] for run in run_directories(any_project)]
    whole = next(run.name for run, name in zip(run_directories(any_project), named, strict=True) if not name)
    assert sorted(named) == ["", whole, whole]


def test_nothing_to_run_again_is_said_and_is_five(any_project: Project) -> None:
    assert any_project.run().ret == 0
    ends(any_project.run("--vlm-rerun=failed"), 5, "--vlm-rerun failed: nothing to run again of run *(2 not judged, 6 PASS)*")


def test_errors_are_not_failures(project: Project) -> None:
    project.script({"setting": "invert", "sample": "q1", "error": "down"}, {"setting": "flip_v", "answer": "A"})
    project.run()
    project.run("--vlm-rerun=errors").assert_outcomes(errors=2, deselected=TESTS - 2)


def test_what_is_undecided(project: Project) -> None:
    project.write("policy.yaml", (project.path / "policy.yaml").read_text().replace("point", "interval"))
    first = ends(project.run(), 10)
    count = first.parseoutcomes()["failed"]
    again = project.run("--vlm-rerun=inconclusive")
    assert again.parseoutcomes()["failed"] == count


def test_it_is_about_the_last_run_of_these_models(project: Project) -> None:
    project.script({"setting": "invert", "answer": "A"}, name="other")
    project.run(models=("other",))
    project.run(models=("model",))
    again = project.run("--vlm-rerun=failed", models=("other",))
    again.assert_outcomes(failed=2, deselected=TESTS - 2)


def test_without_an_earlier_run_and_with_other_words_it_is_refused(project: Project) -> None:
    result = project.run("--vlm-rerun=failed")
    ends(result, 4, "ERROR: --vlm-rerun failed: *.vlmrobust has no earlier run about model. Run once without*")
    result = project.run("--vlm-rerun=fail")
    ends(result, 4, "*--vlm-rerun 'fail': expected one of failed, errors, inconclusive. Did you mean 'failed'?")


def run_directories(project: Project) -> list[Path]:
    return sorted((project.path / ".vlmrobust" / "runs").iterdir(), key=lambda path: path.stat().st_ctime_ns)


DOWN = tuple({"setting": name, "error": "down"} for name in ("clean", "grayscale", "solarize:low"))


def test_a_failure_is_not_forgotten_when_something_else_ran_again(any_project: Project) -> None:
    any_project.script({"setting": "invert", "answer": "A"}, {"setting": "solarize:low", "error": "down"})
    any_project.run("-k", "test_cell")
    again = any_project.run("-k", "test_cell", "--vlm-rerun=errors")
    again.assert_outcomes(errors=1, deselected=0 if "-n2" in any_project.arguments else TESTS - 1)
    failed = any_project.run("-k", "test_cell", "--vlm-rerun=failed")
    failed.assert_outcomes(failed=1, deselected=0 if "-n2" in any_project.arguments else TESTS - 1)
    assert re.search(r"1 test to run again of run \S+ and 1 rerun of it \(1 ERROR, 1 FAIL, .*\)$", header(failed))


def test_what_was_mended_since_does_not_run_again(project: Project) -> None:
    project.script(*BROKEN)
    project.run()
    project.script(BROKEN[0])  # flip_v is repaired
    project.run("--vlm-rerun=failed").assert_outcomes(failed=2, passed=1, deselected=TESTS - 3)
    project.run("--vlm-rerun=failed").assert_outcomes(failed=2, deselected=TESTS - 2)
    project.script()
    project.run("--vlm-rerun=failed").assert_outcomes(passed=2, deselected=TESTS - 2)
    assert project.run("--vlm-rerun=failed").ret == 5
    project.run().assert_outcomes(passed=TESTS)
    assert "reruns" not in header(project.run("--vlm-rerun=failed"))


def test_reruns_of_a_run_that_was_deleted_still_count(project: Project) -> None:
    project.script(*BROKEN)
    project.run()
    (first,) = run_directories(project)
    project.run("--vlm-rerun=failed")
    shutil.rmtree(first)
    project.run("--vlm-rerun=failed").assert_outcomes(failed=3, deselected=TESTS - 3)


def test_tests_that_left_no_verdict_are_errors(any_project: Project) -> None:
    """A run that was killed, or stopped, owes the verdicts of the tests that it did not come to."""
    any_project.script(*BROKEN)
    any_project.run()
    (run,) = run_directories(any_project)
    journal = run / "records.jsonl"
    kept = [line for line in journal.read_text().splitlines(keepends=True) if '"setting": "clean"' in line or "grayscale" in line]
    journal.write_text("".join(kept[:2]))
    again = any_project.run("--vlm-rerun=errors")
    again.assert_outcomes(passed=3, failed=3, deselected=0 if "-n2" in any_project.arguments else 2)
    assert "6 tests to run again" in header(again)
    assert header(again).endswith("6 without a verdict)")
    assert any_project.run("--vlm-rerun=errors").ret == 5


def test_a_run_that_was_stopped_at_a_failure(project: Project) -> None:
    project.script(*BROKEN)
    stopped = project.run("-x")
    left = TESTS - sum(stopped.parseoutcomes().get(name, 0) for name in ("passed", "failed"))
    again = project.run("--vlm-rerun=errors")
    assert f"{left} tests to run again" in header(again)


def test_a_run_that_was_killed_in_its_first_test_is_the_last_one(project: Project) -> None:
    project.run()
    project.write(
        "conftest.py",
        """
import os
import pytest

@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    if os.environ.get("DIE"):
        os._exit(9)
    return (yield)
""",
    )
    os.environ["DIE"] = "1"
    try:
        assert project.run(subprocess=True).ret == 9
    finally:
        del os.environ["DIE"]
    again = project.run("--vlm-rerun=errors")
    assert f"{TESTS} tests to run again" in header(again)
    again.assert_outcomes(passed=TESTS)


def test_a_file_that_could_not_be_collected_runs_again(any_project: Project) -> None:
    project = any_project
    project.write("suite/test_broken.py", "import no_such_module_at_all\n")
    project.run("--continue-on-collection-errors")
    project.write("suite/test_broken.py", "def test_mended():\n    pass\ndef test_two():\n    assert 0\n")
    again = project.run("--vlm-rerun=errors")
    again.assert_outcomes(passed=1, failed=1, deselected=0 if "-n2" in project.arguments else TESTS)


def test_the_command_of_a_breach_runs_that_test_alone(any_project: Project) -> None:
    any_project.script({"setting": "invert", "answer": "A"})
    first = any_project.run("-k", "invert or worst")
    every = commands(first)
    assert [words[-1] for words in every] == [
        "suite/test_suite.py::test_cell[model-data-invert]",
        "suite/test_suite.py::test_sweep[model-data-worst_case_drop]",
        "suite",
    ]
    assert every[0][:-1] == [
        "pytest",
        "--vlm=scripted:model.yaml",
        "--vlm-dataset=data.jsonl",
        "--vlm-thresholds=policy.yaml",
        "-p",
        "no:randomly",
        *UNUSED,
    ]
    alone = any_project.pytester.runpytest(*every[0][1:])
    alone.assert_outcomes(failed=1)
    assert alone.ret == 1


def test_the_command_of_all_breaches_runs_them_all_and_k_narrows_it_further(project: Project) -> None:
    project.script(*BROKEN)
    (last,) = [words for words in commands(project.run()) if "--vlm-rerun=failed" in words]
    project.pytester.runpytest(*last[1:]).assert_outcomes(failed=3, deselected=TESTS - 3)
    project.run("--vlm-rerun=failed", "-k", "invert").assert_outcomes(failed=1, deselected=TESTS - 1)


def test_from_another_directory_the_command_still_finds_its_test(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.script({"setting": "invert", "answer": "A"})
    project.write("pytest.ini", "[pytest]\n")
    monkeypatch.chdir(project.path / "suite")
    given = ("--vlm=scripted:../model.yaml", "--vlm-dataset=../data.jsonl", "--vlm-thresholds=../policy.yaml")
    first = project.pytester.runpytest(*given, "test_suite.py", "-k", "invert")
    (words,) = commands(first)
    assert words[-1] == "test_suite.py::test_cell[model-data-invert]"
    project.pytester.runpytest(*words[1:]).assert_outcomes(failed=1)


def in_messages(text: str) -> list[str]:
    return re.findall(r"^ +again +(pytest .*)$", text, re.MULTILINE)


def test_failure_message_terminal_page_and_junit_give_the_same_command(any_project: Project) -> None:
    any_project.script({"setting": "invert", "answer": "A"})
    first = any_project.run("-v", "--vlm-report=out", "--junitxml=junit.xml", "-k", "invert or worst")
    every = {shlex.join(words) for words in commands(first) if "::" in words[-1]}
    assert len(every) == 2
    assert set(in_messages(first.stdout.str())) == every
    for file in ("junit.xml", "out/junit.xml"):
        failures = ET.parse(any_project.path / file).getroot().findall(".//failure")
        assert {command for failure in failures for command in in_messages(str(failure.text))} == every
        assert all("\n" not in str(failure.get("message")) for failure in failures)
    run = any_project.the_run
    main(["report", str(run), "--out", str(any_project.path / "again")])
    for name in ("out", "again"):
        page = (any_project.path / name / "report.html").read_text(encoding="utf-8")
        (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
        assert {test["command"] for test in json.loads(data)["tests"]} >= every


def test_a_breach_is_explained_once_where_pytest_shortens_nothing(any_project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    any_project.script({"setting": "invert", "answer": "A"})
    result = any_project.run("-v", "-k", "invert")
    assert len(in_messages(result.stdout.str())) == 1
    result.stdout.fnmatch_lines(
        ["FAILED suite/test_suite.py::test_cell?model-data-invert? - *accuracy_drop 100.0 pp > 20 pp (rule drop, policy.yaml:5)"]
    )


SHELL = shutil.which("bash") or ""


@pytest.mark.skipif(not SHELL, reason="needs bash")
def test_pasted_into_a_shell_the_command_runs_that_test_alone(project: Project) -> None:
    """With everything in it that a shell could take for something else."""
    name = "it's $HOME (1)"
    (project.path / "data.jsonl").rename(project.path / f"{name}.jsonl")
    project.script({"setting": "invert", "answer": "A"}, {"setting": "solarize:low", "answer": "A"})
    arguments = ["--vlm=scripted:model.yaml", f"--vlm-dataset={name}.jsonl", "--vlm-thresholds=policy.yaml", "-p", "no:randomly"]
    first = project.pytester.runpytest(*arguments, "-v", "suite", "-k", "solarize")
    (command,) = in_messages(first.stdout.str())
    assert "[" in command
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "200"}
    done = subprocess.run([SHELL, "-c", command], cwd=project.path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "collected 1 item" in done.stdout
    assert in_messages(done.stdout) == [command]


OTHER_PLUGIN = """
def pytest_addoption(parser):
    parser.addoption("--rp-api-key")
    parser.addini("rp_api_key", "a key")
"""


def test_values_of_options_of_other_plugins_are_in_nothing_that_a_run_writes(project: Project) -> None:
    key = "S3CR3T-of-another-plugin"
    project.write("conftest.py", OTHER_PLUGIN)
    project.script({"setting": "invert", "answer": "A"})
    given = (
        f"--rp-api-key={key}",
        "--rp-api-key",
        key,
        "-o",
        f"rp_api_key={key}",
        f"--override-ini=rp_api_key={key}",
    )
    result = ends(
        project.run(*given, "--vlm-report=out", "--junitxml=j.xml"),
        1,
        "*pytest --vlm=scripted:model.yaml *--rp-api-key=... --rp-api-key ... -o rp_api_key=... --override-ini=rp_api_key=... *",
    )
    assert key not in result.stdout.str() + result.stderr.str()
    assert not [path for path in project.path.rglob("*") if path.is_file() and key.encode() in path.read_bytes()]
