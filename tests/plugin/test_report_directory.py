"""A report directory belongs to the run that writes it: whatever ends a run, nothing there is of an earlier one."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_vlmrobust.reporting.directory import NAMES, ReportDirectory

from .conftest import Project, ends, slow_but_for

KEPT = ("notes.txt", ".vlm", "report.html.bak", "runs/old/manifest.json")
"""Files of the user's."""
KILL = "import os, signal\ndef test_zzz(): os.kill(os.getpid(), signal.{})"
SPIN = """
import resource, time
def test_zzz():
    used = int(time.process_time()) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (used, used))
    while True: pass
"""
SMALL = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (10240, 10240))"
OLD = '{"decision": "GO", "manifest_version": 1, "report": true, "run": "20260101-000000-old"}'
DEATHS: dict[str, tuple[int, dict[str, str], list[str]]] = {
    "killed": (-9, {"suite/test_zzz.py": KILL.format("SIGKILL")}, []),
    "terminated": (2, {"suite/test_zzz.py": KILL.format("SIGTERM")}, []),
    "out of processor time": (-9, {"suite/test_zzz.py": SPIN}, []),
    "disk full": (11, {"conftest.py": SMALL}, []),
    "no go": (1, {"model.yaml": json.dumps({"default": "A"})}, []),
    "misspelt policy": (4, {}, ["--vlm-thresholds=polcy.yaml"]),
    "malformed policy": (4, {"policy.yaml": "version: 1\nrules: ["}, []),
    "misspelt dataset": (4, {}, ["--vlm-dataset=daat.jsonl"]),
    "model file gone": (4, {}, ["--vlm=scripted:gone.yaml"]),
    "store unwritable": (11, {}, ["--vlm-store=policy.yaml"]),
    "nothing selected": (5, {}, ["-k", "nothing"]),
    "collection error": (2, {"suite/test_zzz.py": "import nothing_of_the_name"}, []),
    "conftest error": (4, {"conftest.py": "import nothing_of_the_name"}, []),
    "unknown option": (4, {}, ["--vlm-moed=full"]),
    "bad value": (4, {}, ["--vlm-mode=fast"]),
    "plan": (5, {}, ["--vlm-plan"]),
    "set-up plan": (5, {}, ["--setup-plan"]),
}
IN_PROCESS = frozenset(
    {"no go", "misspelt policy", "malformed policy", "misspelt dataset", "model file gone", "store unwritable"}
)


@pytest.fixture(autouse=True)
def no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gates in tests are no workers, also where one of xdist runs these tests."""
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)


@pytest.fixture
def reported(project: Project) -> Project:
    """A gate whose report directory holds the files of an earlier GO, and files of the user's."""
    for name in (*NAMES, "manifest.json", *KEPT):
        project.write(f"out/{name}", OLD)
    return project


def left(project: Project) -> set[str]:
    """Returns the names of the report's files, none of which is of the earlier run; those of the user's are as they were."""
    assert all((project.path / "out" / name).read_text() == OLD for name in KEPT)
    names = {name for name in (*NAMES, "manifest.json") if (project.path / "out" / name).exists()}
    for name in names:
        content = (project.path / "out" / name).read_bytes()
        assert content != OLD.encode(), name
        assert b"<title>GO" not in content
        assert b"# GO" not in content
        assert b'"decision": "GO"' not in content
    return names


@pytest.mark.parametrize("death", slow_but_for(IN_PROCESS | {"killed", "terminated", "disk full"}, DEATHS))
def test_whatever_ends_a_run_no_file_says_go(reported: Project, death: str) -> None:
    code, files, options = DEATHS[death]
    for name, text in files.items():
        reported.write(name, text)
    result = reported.run("--vlm-report=out", *options, subprocess=death not in IN_PROCESS)
    assert result.ret in (code, -24 if code == -9 else code), result.stdout.str() + result.stderr.str()
    names = left(reported)
    assert "manifest.json" in names
    if code in (1, 2) and death != "collection error":
        assert names >= {"results.json", "report.html", "summary.md", "junit.xml", "predictions.sqlite"}
    else:
        decision = json.loads((reported.path / "out" / "manifest.json").read_text())["decision"]
        assert decision == "INCOMPLETE"


def test_the_report_of_a_go_replaces_an_earlier_one_as_a_whole(any_project: Project) -> None:
    project = any_project
    project.script({"setting": "invert", "answer": "A"})
    assert project.run("--vlm-report=out").ret == 1
    project.script()
    assert project.run("--vlm-report=out").ret == 0
    assert "owner" not in json.loads((project.path / "out" / "manifest.json").read_text())
    names = {path.name for path in (project.path / "out").iterdir()}
    assert names == {"manifest.json", *NAMES, "policies", ".vlmrobust.lock"} - {"models.html", "models.md", "models.json"}


@pytest.mark.parametrize("option", ["--co", "--fixtures", "--markers", "--version", "--help"])
def test_what_only_lists_leaves_the_report_alone(reported: Project, option: str) -> None:
    assert reported.run("--vlm-report=out", option).ret == 0
    assert (reported.path / "out" / "results.json").read_text() == OLD


def test_a_second_run_is_refused_while_the_first_writes_there_and_a_dead_one_blocks_nobody(project: Project) -> None:
    script = f"""
import sys, time
from pathlib import Path
from pytest_vlmrobust.reporting.directory import ReportDirectory
claimed = ReportDirectory.claim(Path({str(project.path / "out")!r}), "20260101-000000-first")
print("claimed", flush=True)
sys.stdin.read()
"""
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "claimed\n"
        result = ends(project.run("--vlm-report=out"), 4)
        text = result.stdout.str() + result.stderr.str()
        assert f"process {first.pid} on " in text
        assert "(run 20260101-000000-first, since 2" in text
        assert json.loads((project.path / "out" / "manifest.json").read_text())["run"] == "20260101-000000-first"
        first.send_signal(signal.SIGKILL)
        first.wait()
    assert project.run("--vlm-report=out").ret == 0
    assert project.run("--vlm-report=out").ret == 0  # nothing holds it when a run is over


@pytest.mark.parametrize(
    ("options", "kept", "said"),
    [
        (["--vlm-store=out"], "predictions.sqlite", "is the directory of --vlm-store"),
        (["--vlm-baseline=out"], "results.json", "would replace --vlm-baseline"),
        ([], "docket.json", "an earlier run keeps its evidence there"),
        (
            [],
            "predictions.sqlite",
            "predictions.sqlite there would be replaced, and no manifest.json says that a report left it there",
        ),
        ([], "junit.xml", "junit.xml there would be replaced"),
        ([], "models.json", "models.json there would be replaced"),
        (["--junitxml=out/junit.xml"], "mine.txt", "writes its own junit.xml there. Name another file"),
    ],
)
def test_what_is_no_place_for_a_report_is_left_as_it_is(project: Project, options: list[str], kept: str, said: str) -> None:
    file = project.write(f"out/{kept}", "kept")
    result = ends(project.run("--vlm-report=out", *options), 4)
    assert said in result.stdout.str() + result.stderr.str()
    assert file.read_text() == "kept"


def test_a_report_that_cannot_be_written_whole_is_none_if_it_says_go(tmp_path: Path) -> None:
    directory = ReportDirectory.claim(tmp_path / "out", "run")

    def write(folder: Path) -> list[Path]:
        (folder / "summary.md").write_text("# GO")
        raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        directory.put(write, as_far_as_written=False)
    assert {path.name for path in directory.path.iterdir()} == {"manifest.json", ".vlmrobust.lock"}
    with pytest.raises(OSError, match="no room"):
        directory.put(write, as_far_as_written=True)
    assert (directory.path / "summary.md").exists()
    directory.release()
    ReportDirectory.claim(tmp_path / "out", "next").release()
    assert {path.name for path in directory.path.iterdir()} == {"manifest.json", ".vlmrobust.lock"}
