"""A gate whose process may open few files, or has no standard streams, says so or ends as any other."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.forked import ForkedPytest, run_forked

from .conftest import ALONE, UNUSED, WORKERS_IF_SLOW, Project, ends, slow_but_for

WRONG = {"setting": "invert", "answer": "A"}
GATE = (*UNUSED, "-p", "no:cacheprovider", "suite", "--vlm-report=out")


def run(code: int, project: Project, how: str) -> subprocess.CompletedProcess[str]:
    """Runs the gate from a shell that does something first, to this exit code."""
    command = ["sh", "-c", how, "sh", sys.executable, "-m", "pytest", *GATE]
    done = subprocess.run(command, cwd=project.path, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done


@pytest.fixture
def gate(project: Project) -> Project:
    project.script()
    settings = {"vlm": "scripted:model.yaml", "vlm_dataset": "data.jsonl", "vlm_thresholds": "policy.yaml"}
    project.write("pytest.ini", "[pytest]\n" + "".join(f"{name} = {value}\n" for name, value in settings.items()))
    return project


@pytest.mark.parametrize("allowed", slow_but_for([6, 13, 63], [6, 8, 9, 12, 13, 24, 63]))
def test_a_process_that_may_open_few_files_is_refused_in_words(gate: Project, allowed: int) -> None:
    """Below about ten pytest itself could not say so: its output is captured into files."""
    done = run(4, gate, f'ulimit -n {allowed}; exec "$@"')
    said = f"ERROR: this process may open {allowed} files, and a run needs 64. Raise the limit (ulimit -n 1024)"
    assert done.stderr.strip() == said
    assert not (gate.path / ".vlmrobust").exists()


def test_few_files_are_enough_for_tests_that_are_no_gate(gate: Project) -> None:
    gate.write("pytest.ini", "[pytest]\n")
    gate.write("suite/test_suite.py", "def test_plain():\n    pass\n")
    run(0, gate, 'ulimit -n 32; exec "$@"')


@pytest.mark.parametrize("closed", slow_but_for([">&-", "<&- >&- 2>&-"], [">&-", "2>&-", "<&- >&- 2>&-"]))
@pytest.mark.parametrize("decision", ["GO", pytest.param("NO-GO", marks=pytest.mark.slow)])
def test_closed_streams_change_no_decision(gate: Project, closed: str, decision: str) -> None:
    """Without the plugin pytest ends with 1 then, as it does for a model that fails."""
    if decision == "NO-GO":
        gate.script(WRONG)
    run({"GO": 0, "NO-GO": 1}[decision], gate, f'exec "$@" {closed}')
    assert gate.results("out")["decision"] == decision


def test_junit_among_what_pytest_prints_is_not_read(gate: Project) -> None:
    with (gate.path / "log").open("wb") as log:
        code = ForkedPytest([*GATE, "--junitxml=log"], gate.path, stdout=log).wait()
    assert code == 0, (gate.path / "log").read_text(errors="replace")
    assert gate.results("out")["decision"] == "GO"


def codes_of(gate: Project, arguments: tuple[str, ...] = ()) -> dict[str, tuple[int, str]]:
    """Returns exit code and standard error of a gate whose standard output is full, and of one that nobody reads."""
    read, unread = os.pipe()
    os.close(read)
    codes = {}
    for name, descriptor in {"full": os.open("/dev/full", os.O_WRONLY), "unread": unread}.items():
        with (gate.path / "errors").open("wb") as errors:
            code = ForkedPytest([*GATE, *arguments], gate.path, stdout=descriptor, stderr=errors).wait()
        codes[name] = code, (gate.path / "errors").read_text()
        os.close(descriptor)
    return codes


@pytest.mark.parametrize("arguments", [ALONE, WORKERS_IF_SLOW])
def test_a_page_that_could_not_be_printed_is_not_go(gate: Project, arguments: tuple[str, ...]) -> None:
    for code, said in codes_of(gate, arguments).values():
        assert code == 11, said
        assert "standard output could not be written (" in said
        assert len(said.splitlines()) == 1
        for file in (*gate.path.glob(".vlmrobust/runs/*/manifest.json"), *gate.path.glob("out/results.json")):
            assert json.loads(file.read_text())["decision"] == "INCOMPLETE"


FILL = "import os\n\ndef pytest_sessionfinish():\n    os.dup2(os.open('/dev/full', os.O_WRONLY), 1)\n"


def test_a_no_go_whose_page_could_not_be_printed_stays_one(gate: Project) -> None:
    gate.script(WRONG)
    gate.write("conftest.py", FILL)
    (said,) = ends(run_forked(gate.pytester, *GATE), 1).errlines
    assert said.startswith("vlm: NO-GO: standard output could not be written (")


def test_a_go_whose_page_alone_could_not_be_printed_is_taken_back(gate: Project) -> None:
    gate.write("conftest.py", FILL)
    (said,) = ends(run_forked(gate.pytester, *GATE), 11).errlines
    assert said.startswith("vlm: INCOMPLETE: GO is taken back: standard output could not be written (")
    for file in (*gate.path.glob(".vlmrobust/runs/*/manifest.json"), gate.path / "out" / "results.json"):
        assert json.loads(file.read_text())["decision"] == "INCOMPLETE"
