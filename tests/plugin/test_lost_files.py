"""A run whose journal, evidence or store is deleted, cut or exchanged meanwhile is INCOMPLETE and says which file it was."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from xml.etree import ElementTree

import pytest

from pytest_vlmrobust.plugin.results import Results

from .conftest import WORKERS_IF_SLOW, Project, decision_cases, ends, make_project, slow_but_for

DAMAGE = """
import os, shutil, sqlite3
from pathlib import Path

import pytest


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item):
    if "flip_v" not in item.nodeid:
        return
    store = Path(__file__).parent / ".vlmrobust"
    run = max((store / "runs").iterdir())
    {damage}
"""
DAMAGES = {
    "the store": ("shutil.rmtree(store)", "records.jsonl: was deleted or moved away during the run"),
    "the runs": ("shutil.rmtree(store / 'runs')", "records.jsonl: was deleted or moved away during the run"),
    "answers": (
        "(store / 'predictions.sqlite').unlink()",
        ".vlmrobust/predictions.sqlite: was deleted or moved away during the run",
    ),
    "answers replaced": (
        "shutil.copy(store / 'predictions.sqlite', store / 'x'); os.replace(store / 'x', store / 'predictions.sqlite')",
        ".vlmrobust/predictions.sqlite: was replaced by another file during the run",
    ),
    "answers cut": (
        "os.truncate(store / 'predictions.sqlite', 0); os.truncate(store / 'predictions.sqlite-wal', 0)",
        ".vlmrobust/predictions.sqlite",
    ),
    "answers emptied": (
        "c = sqlite3.connect(store / 'predictions.sqlite'); c.execute('delete from predictions'); c.commit(); c.close()",
        "that this run put there",
    ),
    "answers changed": (
        (
            "c = sqlite3.connect(store / 'predictions.sqlite'); "
            "c.execute('update predictions set answer = (select answer from predictions limit 1)'); c.commit(); c.close()"
        ),
        "that this run used changed there meanwhile. The file is damaged: move it away",
    ),
    "evidence": ("(run / 'predictions.sqlite').unlink()", "/predictions.sqlite: was deleted or moved away during the run"),
    "evidence changed": (
        "c = sqlite3.connect(run / 'predictions.sqlite'); c.execute('update answers set value = 0.5'); c.commit(); c.close()",
        "which this run put there",
    ),
    "journal": ("(run / 'records.jsonl').unlink()", "records.jsonl: was deleted or moved away during the run"),
    "journal cut": ("os.truncate(run / 'records.jsonl', 10)", "records.jsonl: its records are not the ones"),
    "docket": ("(run / 'docket.json').unlink()", "docket.json: was deleted or moved away during the run"),
    "docket changed": (
        "os.truncate(run / 'docket.json', os.path.getsize(run / 'docket.json') - 1)",
        "docket.json: is not what this run wrote",
    ),
    "policy": (
        "[path.write_text('version: 1') for path in (run / 'policies').iterdir()]",
        "the run applied policy.yaml with the SHA-256",
    ),
}


QUICK = ("the store", "answers replaced", "answers changed", "evidence changed", "journal cut", "docket changed")


@pytest.mark.parametrize("what", slow_but_for(QUICK, DAMAGES))
def test_a_run_that_lost_what_it_wrote_is_incomplete(project: Project, what: str) -> None:
    damage, said = DAMAGES[what]
    project.write("conftest.py", DAMAGE.format(damage=damage))
    result = ends(project.run("-p", "no:cacheprovider"), 11)
    text = " ".join(result.stdout.str().split())
    assert said in text
    assert "INTERNALERROR" not in text
    assert project.decision == "INCOMPLETE"


@pytest.mark.parametrize("arguments", [WORKERS_IF_SLOW])
@pytest.mark.parametrize(
    "what", ["the store", "answers replaced", "answers changed", "evidence", "evidence changed", "docket changed"]
)
def test_workers_tell_of_it_as_well(pytester: pytest.Pytester, arguments: tuple[str, ...], what: str) -> None:
    project = make_project(pytester, arguments)
    project.write("conftest.py", DAMAGE.format(damage=DAMAGES[what][0]))
    assert project.run("-p", "no:cacheprovider").ret == 11


def test_a_run_that_kept_everything_is_go(project: Project) -> None:
    project.write("conftest.py", DAMAGE.format(damage="pass"))
    assert project.run().ret == 0
    assert project.run("--vlm-offline").ret == 0  # recalls everything; nothing is written to the store


DELETING = """
from pathlib import Path

from pytest_vlmrobust.backends import backends
from pytest_vlmrobust.backends.scripted import ScriptedBackend


def deleting(ref, options):
    def script(request):
        if request.setting == "flip_v":
            (Path(__file__).parent / ".vlmrobust" / "predictions.sqlite").unlink(missing_ok=True)
        return "B"

    return ScriptedBackend(script, version="deletes", name=ref.name)


backends.add("deleting", deleting, replace=True)
"""


def test_a_store_that_was_lost_is_not_filled(project: Project) -> None:
    project.write("conftest.py", DELETING)
    project.write("models.yaml", "models:\n  deleting-model: {backend: deleting, path: models.yaml}\n")
    (project.path / "nothing").mkdir()
    given = ["--vlm=deleting-model", "--vlm-models=models.yaml", "--vlm-dataset=data.jsonl", "--vlm-thresholds=policy.yaml"]
    result = ends(project.pytester.runpytest(*given, "--vlm-fill", "suite", "-p", "no:randomly"), 11)
    assert ".vlmrobust/predictions.sqlite: was deleted or moved away during the run" in " ".join(result.stdout.str().split())


@pytest.mark.parametrize("arguments", [pytest.param((), id="one process"), WORKERS_IF_SLOW])
def test_a_run_whose_pictures_are_exchanged_meanwhile_is_incomplete(
    pytester: pytest.Pytester, arguments: tuple[str, ...]
) -> None:
    """Clean and perturbed answers would be about two sets of pictures."""
    project = make_project(pytester, arguments)
    exchange = (
        "from PIL import Image; "
        "[Image.new('RGB', (32, 24)).save(path) for path in (Path(__file__).parent / 'pictures').glob('*.png')]"
    )
    project.write("conftest.py", DAMAGE.replace("flip_v", "clean").format(damage=exchange))
    result = ends(project.run("-p", "no:cacheprovider"), 11)
    assert "changed while" in " ".join(result.stdout.str().split())


# After the decision: until pytest ends, a GO is taken back that rests on files which are no longer there.


HEAD = """
import os, shutil, sqlite3, sys
from pathlib import Path

import pytest

here = Path(__file__).parent
store = here / ".vlmrobust"


def damage():
    if "PYTEST_XDIST_WORKER" not in os.environ:
        run = max((store / "runs").iterdir())
        {damage}

"""
WHEN = {
    "pytest_sessionfinish": "def pytest_sessionfinish():\n    damage()\n",
    "pytest_terminal_summary": "def pytest_terminal_summary():\n    damage()\n",
    "pytest_unconfigure": "@pytest.hookimpl(trylast=True)\ndef pytest_unconfigure():\n    damage()\n",
    "a wrapper": "@pytest.hookimpl(wrapper=True, tryfirst=True)\ndef pytest_unconfigure():\n    yield\n    damage()\n",
    "a cleanup": "def pytest_configure(config):\n    config.add_cleanup(damage)\n",
}
LATE_DAMAGES = {
    **DAMAGES,
    "manifest": ("(run / 'manifest.json').unlink()", "manifest.json: was deleted or moved away during the run"),
    "manifest changed": ("os.truncate(run / 'manifest.json', 9)", "manifest.json: is not what this run wrote"),
    "what it spent": ("os.truncate(run / 'spending.tsv', 1)", "spending.tsv: is not what this run wrote"),
    "docket not read": ("(run / 'docket.json').write_text('{')", "docket.json: is not what this run wrote"),
    "report": ("shutil.rmtree(here / 'out')", "out/results.json: was deleted or moved away during the run"),
    "page changed": ("(here / 'out' / 'report.html').write_text('GO')", "out/report.html: is not what this run wrote"),
    "its evidence": ("(here / 'out' / 'predictions.sqlite').unlink()", "out/predictions.sqlite: was deleted or moved away"),
    "JUnit": ("(here / 'junit.xml').unlink()", "junit.xml: expected what pytest wrote there: No such file or directory"),
    "JUnit emptied": ("(here / 'junit.xml').write_text('')", "junit.xml: expected what pytest wrote there: no XML"),
    "JUnit is a folder": ("(here / 'junit.xml').unlink(); (here / 'junit.xml').mkdir()", "junit.xml: expected what pytest wrote"),
    "JUnit of another run": (
        "f = here / 'junit.xml'; f.write_text(f.read_text().replace(run.name, 'other'))",
        "junit.xml: is of another run",
    ),
    **{
        f"{name} is a pipe": (f"({path}).unlink(); os.mkfifo({path})", expected)
        for name, path, expected in (
            ("manifest", "run / 'manifest.json'", "manifest.json: was replaced by another file during the run"),
            ("page", "here / 'out' / 'report.html'", "out/report.html: was replaced by another file during the run"),
            ("JUnit", "here / 'junit.xml'", "junit.xml: was replaced by a pipe or a device"),
        )
        if hasattr(os, "mkfifo")
    },
    "manifest without end": (
        "(run / 'manifest.json').unlink(); (run / 'manifest.json').symlink_to('/dev/zero')",
        "manifest.json: was replaced by another file during the run",
    ),
    "the next baseline": ("shutil.rmtree(here / 'base')", "base/predictions.sqlite: was deleted or moved away during the run"),
}
FILES = ("--vlm-report=out", "--junitxml=$HERE/junit.xml")
QUICK_LATE = (
    *QUICK,
    "manifest",
    "manifest is a pipe",
    "JUnit is a pipe",
    "docket not read",
    "page changed",
    "JUnit",
    "JUnit of another run",
)


@pytest.fixture(autouse=True)
def by_hand(monkeypatch: pytest.MonkeyPatch, pytester: pytest.Pytester) -> None:
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)  # where these tests are shared out themselves
    monkeypatch.setenv("HERE", str(pytester.path))


def said_in_files(project: Project) -> set[str]:
    """Returns every decision that stands in a file of the run."""
    files = [*project.path.glob(".vlmrobust/runs/*/manifest.json"), *project.path.glob("out/*s*.json")]
    decisions = {json.loads(file.read_text()).get("decision", "none") for file in files}
    if (project.path / "junit.xml").is_file() and (project.path / "junit.xml").stat().st_size:
        suite = ElementTree.parse(project.path / "junit.xml").getroot()[0]
        decisions |= {
            str(entry.get("value")) for entry in suite.findall("properties/property") if entry.get("name") == "vlm.verdict"
        }
        decisions |= set(decision_cases(project.path / "junit.xml").values())
    return decisions


def run_to_the_end(project: Project, *more: str) -> tuple[pytest.RunResult, str]:
    """Runs the gate, and returns the result with the line that takes the GO back, which is printed once."""
    result = project.run("-p", "no:cacheprovider", *FILES, *more)
    said = [line for line in (*result.outlines, *result.errlines) if line.startswith(("vlm: INCOMPLETE: ", "vlm: NO-GO: "))]
    assert "Traceback" not in result.stdout.str() + result.stderr.str()
    assert len(said) <= 1
    return result, "".join(said)


@pytest.mark.parametrize("when", WHEN)
def test_a_go_whose_evidence_is_deleted_afterwards_is_taken_back(any_project: Project, when: str) -> None:
    any_project.write("conftest.py", HEAD.format(damage="shutil.rmtree(store)") + WHEN[when])
    result, said = run_to_the_end(any_project)
    assert result.ret == 11
    result.stdout.fnmatch_lines(["GO *", "vlm: INCOMPLETE: GO is taken back: *"])
    assert "records.jsonl: was deleted or moved away during the run; " in said
    assert said.count("Run it again: ") == 1
    assert said_in_files(any_project) == {"INCOMPLETE"}


def test_options_that_a_hook_changes_do_not_hide_it(project: Project) -> None:
    hide = "def pytest_unconfigure(config):\n    damage()\n    config.option.collectonly, config.option.vlm = True, []\n"
    project.write("conftest.py", HEAD.format(damage="shutil.rmtree(store)") + hide)
    assert run_to_the_end(project)[0].ret == 11


@pytest.mark.parametrize("what", slow_but_for(QUICK_LATE, LATE_DAMAGES))
def test_each_file_is_looked_at_once_more(project: Project, what: str) -> None:
    damage, expected = LATE_DAMAGES[what]
    project.write("conftest.py", HEAD.format(damage=damage) + WHEN["pytest_unconfigure"])
    result, said = run_to_the_end(project, *(("--vlm-baseline=base", "--vlm-update-baseline") if "baseline" in what else ()))
    assert result.ret == 11
    assert expected in said
    assert said_in_files(project) == {"INCOMPLETE"}


def test_the_copy_of_a_baseline_is_looked_at_as_well(project: Project) -> None:
    assert project.run("--vlm-report=base").ret == 0
    damage = "[path.unlink() for path in (store / 'runs').glob('*/baseline/predictions.sqlite')]"
    project.write("conftest.py", HEAD.format(damage=damage) + WHEN["pytest_unconfigure"])
    result, said = run_to_the_end(project, "--vlm-baseline=base")
    assert result.ret == 11
    assert "baseline/predictions.sqlite: was deleted" in said


@pytest.mark.parametrize("what", slow_but_for(["evidence changed"], ["evidence changed", "page changed", "JUnit"]))
def test_what_workers_wrote_is_looked_at_as_well(pytester: pytest.Pytester, what: str) -> None:
    project = make_project(pytester, ("-n2",))
    project.write("conftest.py", HEAD.format(damage=LATE_DAMAGES[what][0]) + WHEN["pytest_unconfigure"])
    result, _ = run_to_the_end(project)
    assert result.ret == 11
    assert said_in_files(project) == {"INCOMPLETE"}


def test_a_report_that_is_written_before_something_is_lost_says_so(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    def lose(*_: object) -> None:
        raise FileNotFoundError(2, "No such file or directory", "manifest.json")

    monkeypatch.setattr(Results, "keep_sums", lose)
    result, _ = run_to_the_end(project)
    assert result.ret == 11
    assert said_in_files(project) == {"INCOMPLETE"}


def test_files_that_are_only_touched_are_still_there(project: Project) -> None:
    touch = "[(os.utime(path), path.chmod(0o600)) for path in [*(here / 'out').iterdir(), here / 'junit.xml'] if path.is_file()]"
    project.write("conftest.py", HEAD.format(damage=touch) + WHEN["pytest_unconfigure"])
    result, said = run_to_the_end(project)
    assert (result.ret, said) == (0, "")
    assert said_in_files(project) == {"GO"}


def test_properties_that_somebody_takes_out_of_junit_are_no_loss(project: Project) -> None:
    damage = "import re; f = here / 'junit.xml'; f.write_text(re.sub('<properties>.*?</properties>', '', f.read_text()))"
    project.write("conftest.py", HEAD.format(damage=damage) + WHEN["pytest_unconfigure"])
    assert run_to_the_end(project)[0].ret == 0


def test_large_files_are_known_by_size_and_time(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    from pytest_vlmrobust.store import run_directory

    monkeypatch.setattr(run_directory, "_QUICK_TO_READ", 0)
    assert run_to_the_end(project)[0].ret == 0
    project.write("conftest.py", HEAD.format(damage=LATE_DAMAGES["page changed"][0]) + WHEN["pytest_unconfigure"])
    assert "out/report.html: is not what this run wrote" in run_to_the_end(project)[1]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes by name")
def test_junit_may_go_into_a_pipe(project: Project) -> None:
    pipe, read = project.path / "pipe", list[str]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(Path(pipe).read_text()), daemon=True)
    reader.start()
    assert project.run(f"--junitxml={pipe}").ret == 0
    reader.join(60)
    assert "vlm.verdict" in read[0]
    assert pipe.is_fifo()


@pytest.mark.parametrize("file", ["/dev/full", "/proc/nowhere/junit.xml"])
def test_junit_that_cannot_be_written_takes_a_go_back(project: Project, file: str) -> None:
    result = ends(project.run(f"--junitxml={file}", "--vlm-report=out"), 11)
    assert f"vlm: INCOMPLETE: GO is taken back: --junitxml {file}: cannot be written: " in result.stdout.str()
    assert "Traceback" not in result.stdout.str() + result.stderr.str()
    assert said_in_files(project) == {"INCOMPLETE"}


def test_junit_that_is_written_to_a_pipe_or_a_device_is_not_read(project: Project) -> None:
    assert project.run("--junitxml=/dev/null").ret == 0


# Exit code 0 is of a GO alone.


ZEROS = {
    "another exit code": "@pytest.hookimpl(trylast=True)\ndef pytest_sessionfinish(session):\n    session.exitstatus = 0\n",
    "pytest.exit": "def pytest_terminal_summary():\n    pytest.exit('enough', returncode=0)\n",
    "sys.exit": "def pytest_unconfigure():\n    sys.exit(0)\n",
}
SKIPPED = {
    "an exception before": "@pytest.hookimpl(tryfirst=True)\ndef pytest_sessionfinish():\n    pytest.exit('x', returncode=0)\n",
    "unregistered": (
        "@pytest.hookimpl(trylast=True)\ndef pytest_runtest_teardown(item):\n"
        "    if 'invert' in item.nodeid:\n        item.config.pluginmanager.unregister(name='vlmrobust')\n"
    ),
}
FORGOTTEN = """
from pytest_vlmrobust.plugin.run import RUN

def pytest_unconfigure(config):
    del config.stash[RUN]
"""
DECIDED_NO_GO = "vlm: NO-GO: pytest was about to end with exit code 0, and the gate decided NO-GO. Find "
UNDECIDED = "vlm: INCOMPLETE: pytest was about to end with exit code 0, and the gate decided nothing: "


@pytest.mark.parametrize("how", ZEROS)
def test_a_no_go_keeps_its_exit_code(any_project: Project, how: str) -> None:
    project = any_project
    project.script({"setting": "invert", "answer": "A"})
    project.write("conftest.py", HEAD.format(damage="pass") + ZEROS[how])
    result, said = run_to_the_end(project)
    assert result.ret == 1
    assert said.startswith(DECIDED_NO_GO)


@pytest.mark.parametrize("how", ["pytest.exit", "sys.exit"])
def test_a_go_that_something_cuts_short_is_taken_back(project: Project, how: str) -> None:
    project.write("conftest.py", HEAD.format(damage="pass") + ZEROS[how])
    result, said = run_to_the_end(project)
    assert result.ret == 11
    assert "GO is taken back: " in said
    assert said_in_files(project) == {"INCOMPLETE"}


@pytest.mark.parametrize("how", SKIPPED)
def test_a_gate_that_decided_nothing_does_not_end_with_0(project: Project, how: str) -> None:
    project.write("conftest.py", HEAD.format(damage="pass") + SKIPPED[how])
    result, said = run_to_the_end(project)
    assert result.ret == 11
    assert said.startswith(UNDECIDED)
    assert "GO" not in said_in_files(project)


@pytest.mark.parametrize("how", ["def pytest_cmdline_main():\n    return 0\n", FORGOTTEN])
def test_a_gate_that_pytest_knows_nothing_of_does_not_end_with_0(project: Project, how: str) -> None:
    project.write("conftest.py", HEAD.format(damage="pass") + how)
    result, said = run_to_the_end(project)
    assert result.ret == 11
    assert said == "vlm: INCOMPLETE: --vlm names a model, and something ended pytest before it was asked"


def test_an_error_of_a_hook_takes_a_go_back_and_stands(project: Project) -> None:
    project.write("conftest.py", "def pytest_unconfigure():\n    raise RuntimeError('my own')\n")
    result = ends(
        project.run(subprocess=True), 1, "vlm: INCOMPLETE: GO is taken back: pytest was ended by RuntimeError (my own) after *"
    )
    result.stderr.fnmatch_lines(["RuntimeError: my own"])
    assert said_in_files(project) == {"INCOMPLETE"}


def test_exit_code_0_of_what_is_no_gate_stands(project: Project) -> None:
    project.write("conftest.py", HEAD.format(damage="pass") + ZEROS["another exit code"])
    project.write("suite/test_suite.py", "def test_plain():\n    pass\n")
    for arguments in ((), ("--vlm=scripted:model.yaml", "--collect-only"), ("--vlm=scripted:model.yaml", "--markers")):
        result = ends(project.pytester.runpytest(*arguments, "suite", "-p", "no:randomly"), 0)
        assert "INCOMPLETE" not in result.stdout.str() + result.stderr.str()
