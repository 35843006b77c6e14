"""A gate that is stopped in the middle loses at most one batch, and goes on where it was."""

from __future__ import annotations

import itertools
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest

from pytest_vlmrobust.core.decision import ENDINGS
from tests.forked import ForkedPytest

from .conftest import SAMPLES, Project, slow_but_for

CELLS = 6
SLOW_BACKEND = """
import itertools
import time
from pathlib import Path

from pytest_vlmrobust.backends import backends
from pytest_vlmrobust.backends.scripted import ScriptedBackend


def slow(ref, options):
    answered = itertools.count()

    def script(request):
        if next(answered) >= 20 and Path("slow").exists():
            time.sleep(0.5)
        return "B" if request.images else "A"

    return ScriptedBackend(script, version="slow", name=ref.name)


backends.add("slow", slow, replace=True)
"""
MODELS = "models:\n  slow-model: {backend: slow, path: models.yaml}\n"


GATE = ("--vlm=slow-model", "--vlm-models=models.yaml", "--vlm-dataset=data.jsonl", "--vlm-thresholds=policy.yaml")
ARGUMENTS = (*GATE, "--vlm-batch-size=2", "-p", "no:cacheprovider", "suite")


def start(project: Project, *arguments: str) -> ForkedPytest:
    return ForkedPytest([*ARGUMENTS, *arguments], project.path)


def finished(code: int, project: Project, *arguments: str) -> str:
    """Runs the gate to its end, and returns what it printed."""
    process = start(project, *arguments)
    output, _ = process.communicate(timeout=90)
    assert process.returncode == code, output
    return output


def stop_in_the_middle(project: Project, how: signal.Signals, *arguments: str) -> tuple[int, str]:
    slow = project.write("slow", "from some answer on")
    process = start(project, *arguments)
    deadline = time.monotonic() + 60
    while project.stored < 2 * SAMPLES + 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.1)  # into the next batch, whose lease is held
    process.send_signal(how)
    output, _ = process.communicate(timeout=60)
    slow.unlink()
    return process.wait(), output


@pytest.fixture
def slow_project(project: Project) -> Project:
    project.write("conftest.py", SLOW_BACKEND)
    project.write("models.yaml", MODELS)
    (project.path / "nothing").mkdir()
    return project


def test_ctrl_c_keeps_what_was_answered_and_the_next_run_does_the_rest(slow_project: Project) -> None:
    code, output = stop_in_the_middle(slow_project, signal.SIGINT)
    kept = slow_project.stored
    assert code == 2, output
    assert "INTERNALERROR" not in output
    assert "stopped early" in output
    assert "\nGO " not in output
    assert 2 * SAMPLES <= kept < CELLS * SAMPLES
    output = finished(0, slow_project)
    assert f"{CELLS * SAMPLES - kept} inferences" in output


@pytest.mark.parametrize(
    "how",
    [pytest.param(signal.Signals[name], marks=() if name == "SIGTERM" else pytest.mark.slow, id=name) for name in ENDINGS],
)
def test_a_signal_that_ends_it_leaves_a_decision_and_junit(slow_project: Project, how: signal.Signals) -> None:
    code, output = stop_in_the_middle(slow_project, how, "--junitxml=junit.xml", "--vlm-report=out")
    assert code == 2, output
    assert "INTERNALERROR" not in output
    assert f"pytest was interrupted (by {how.name})" in output
    assert slow_project.decision == "INCOMPLETE"
    for file in ("junit.xml", "out/junit.xml"):
        suite = ElementTree.parse(slow_project.path / file).getroot()[0]
        assert {entry.get("value") for entry in suite.findall("properties/property") if entry.get("name") == "vlm.verdict"} == {
            "INCOMPLETE"
        }


def test_a_fill_that_is_interrupted_says_how_many_answers_it_has(slow_project: Project) -> None:
    code, output = stop_in_the_middle(slow_project, signal.SIGTERM, "--vlm-fill")
    assert code == 2, output
    kept = slow_project.stored
    assert kept > 2 * SAMPLES
    assert f"pytest was interrupted (by SIGTERM): the store has {kept} answers. The next start with this store" in output
    assert "nothing was measured" not in output
    process = start(slow_project, "--vlm-fill")
    output, _ = process.communicate(timeout=90)
    match = re.search(r"(\d+) answers, (\d+) of them inferred, 0 are missing", output)
    assert match, output
    assert int(match[1]) - int(match[2]) == kept


def test_a_signal_that_is_ignored_stays_ignored(slow_project: Project) -> None:
    slow_project.write("nohup.py", "import signal\n\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)\n")
    slow_project.write("suite/test_last.py", "import os, signal\n\ndef test_it():\n    os.kill(os.getpid(), signal.SIGHUP)\n")
    finished(0, slow_project, "-p", "nohup")


HANDLERS = """
import faulthandler, signal

# Of this thread alone: to walk the stacks of threads that run may crash the interpreter.
faulthandler.register(signal.SIGUSR1, open("tracebacks", "w"), all_threads=False)
came = []
signal.signal(signal.SIGUSR2, lambda number, _frame: came.append(number))


def pytest_configure():
    signal.signal(signal.SIGXCPU, lambda number, _frame: came.append(number))


def pytest_runtest_teardown():
    for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU):
        signal.raise_signal(number)


def pytest_unconfigure():
    signal.raise_signal(signal.SIGXCPU)
    assert set(came) == {signal.SIGUSR2, signal.SIGXCPU}
"""


def test_signals_that_somebody_handles_are_left_to_them(slow_project: Project) -> None:
    slow_project.write("conftest.py", SLOW_BACKEND)
    slow_project.write("suite/conftest.py", HANDLERS)
    output = finished(0, slow_project)
    assert "test_suite.py" in output
    assert (slow_project.path / "tracebacks").read_text().count("in pytest_runtest_teardown") == CELLS + 2


def test_a_process_that_spends_too_much_cpu_time_ends_in_order_though_it_is_told_again(slow_project: Project) -> None:
    again = "import signal\n\n\ndef pytest_keyboard_interrupt():\n    signal.raise_signal(signal.SIGXCPU)\n"
    slow_project.write("suite/conftest.py", again)
    code, output = stop_in_the_middle(slow_project, signal.SIGXCPU)
    assert code == 2, output
    assert "pytest was interrupted (by SIGXCPU)" in output
    assert slow_project.decision == "INCOMPLETE"


def test_ctrl_c_in_the_first_test_says_so_and_not_that_no_test_ran(slow_project: Project) -> None:
    first = "import os, signal\n\n\ndef pytest_runtest_setup():\n    os.kill(os.getpid(), signal.SIGINT)\n"
    slow_project.write("suite/conftest.py", first)
    output = finished(2, slow_project)
    assert "INCOMPLETE: pytest was interrupted (KeyboardInterrupt), before any verdict" in output
    assert "nothing was measured" not in output
    assert slow_project.decision == "INCOMPLETE"


def test_what_an_interrupted_run_waits_for_is_said_before_pytest_shows_where_it_was(project: Project) -> None:
    """Pytest writes down every argument of every call for that, the whole data among them: seconds on a busy machine."""
    conftest = "import pytest\n\n@pytest.hookimpl(trylast=True)\ndef pytest_collection_finish(session):\n"
    hook = "session.config.hook.pytest_keyboard_interrupt.get_hookimpls()"
    project.write("conftest.py", f"{conftest}    print('ORDER', *[one.plugin_name for one in reversed({hook})])\n")
    order = re.findall(r"ORDER (.*)", project.run("-s").stdout.str())[0].split()
    assert order.index("vlmrobust-collector") < order.index("terminalreporter")


@pytest.mark.parametrize("how", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_signal_that_comes_while_the_run_concludes_does_not_break_into_it(slow_project: Project, how: signal.Signals) -> None:
    hook = "@pytest.hookimpl(tryfirst=True)\ndef pytest_terminal_summary():\n"
    late = f"import os\n\nimport pytest\n\n\n{hook}    os.kill(os.getpid(), {how:d})\n"
    slow_project.write("suite/conftest.py", late)
    output = finished(0, slow_project)
    assert "\nGO " in output
    assert "KeyboardInterrupt" not in output


@pytest.mark.parametrize("when", ["pytest_runtest_teardown", "pytest_collection_finish"])
def test_a_model_cannot_end_it_with_exit_code_0(slow_project: Project, when: str) -> None:
    slow_project.write("suite/conftest.py", f"import os\n\n\ndef {when}():\n    os.fork() or os._exit(0)\n    os._exit(0)\n")
    output = finished(11, slow_project)
    assert output.count("INCOMPLETE: something called os._exit(0) before the run was over") == 1


LATE = """
import atexit, os, signal

import pytest


def hit():
    os.kill(os.getpid(), signal.{name})


def pytest_configure(config):
    if {when!r} == "behind its cleanup":
        atexit.register(hit)
    elif {when!r} == "among its cleanup":
        config.add_cleanup(hit)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config):
    if {when!r} == "before its cleanup":
        hit()
"""


WHENS = ("before its cleanup", "among its cleanup", "behind its cleanup")
SIGNALS = ("SIGTERM", "SIGHUP", "SIGINT")
LATE_SIGNALS = [*itertools.product(WHENS, SIGNALS, ("B", "A"))]
IN_TURN = {*zip(WHENS, SIGNALS, "BBB", strict=True), *zip(WHENS, SIGNALS[1:] + SIGNALS[:1], "AAA", strict=True)}
"""For each verdict every moment and every signal once."""


@pytest.mark.parametrize("late", slow_but_for(IN_TURN, LATE_SIGNALS), ids="-".join)
def test_a_signal_behind_the_last_line_makes_no_other_verdict(slow_project: Project, late: tuple[str, str, str]) -> None:
    """The decision is said and written by then: the process ends with it, or by the signal."""
    when, name, answer = late
    code = 0 if answer == "B" else 1
    backend = SLOW_BACKEND.replace('"B" if', f"{answer!r} if")
    slow_project.write("conftest.py", backend + LATE.format(when=when, name=name))
    process = start(slow_project)
    output, _ = process.communicate(timeout=60)
    assert process.returncode in (code, -signal.Signals[name])
    decided = "GO" if code == 0 else "NO-GO"
    assert f"\n{decided} " in output
    assert "INTERNALERROR" not in output
    assert slow_project.decision == decided


def test_kill_9_keeps_what_was_answered_and_the_records_of_what_ended(slow_project: Project) -> None:
    code, _ = stop_in_the_middle(slow_project, signal.SIGKILL)
    kept = slow_project.stored
    assert code == -signal.SIGKILL
    run = slow_project.the_run
    rebuilt = subprocess.run(
        [sys.executable, "-m", "pytest_vlmrobust.cli", "report", str(run)],
        cwd=slow_project.path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert rebuilt.returncode == 11, rebuilt.stderr
    assert Path(run / "summary.md").read_text().startswith("# INCOMPLETE")
    output = finished(0, slow_project)
    # the lease of the dead process on the batch in hand is not waited for
    assert f"{CELLS * SAMPLES - kept} inferences" in output


HANGING = """
import time

from pytest_vlmrobust.backends import Traits, backends
from pytest_vlmrobust.backends.scripted import ScriptedBackend


def hanging(ref, options):
    def script(request):
        if request.setting == "flip_v":
            time.sleep(3600)
        return "B" if request.images else "A"

    backend = ScriptedBackend(script, version="hangs", name=ref.name)
    backend.traits = Traits()
    backend.close = lambda: time.sleep(3600)
    return backend


backends.add("hanging", hanging, replace=True)
"""


def test_a_model_that_hangs_is_an_error_of_its_tests_and_ends_no_run(project: Project) -> None:
    project.write("conftest.py", HANGING)
    project.write("models.yaml", "models:\n  slow-model: {backend: hanging, path: models.yaml}\n")
    (project.path / "nothing").mkdir()
    output = finished(11, project, "--vlm-timeout=1", "--vlm-report=out")
    text = " ".join(output.split())
    assert "slow-model has not answered a batch of 2 requests for 1 s (--vlm-timeout), and is dropped" in text
    assert "slow-model was dropped: it did not answer within --vlm-timeout=1 before" in text
    assert "INCOMPLETE" in text
    assert (project.path / "out" / "junit.xml").is_file()


NO_FILES = """
import os, resource

import pytest


@pytest.hookimpl(tryfirst=True)
def {when}():
    try:
        lowest = os.dup(0)
    except OSError:  # the limit holds already
        return
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, lowest))
"""


@pytest.mark.parametrize(("name", "code"), [("vlm-lane", 11), ("another", 0)])
def test_a_thread_that_hangs_in_a_backend_does_not_change_the_exit_code(name: str, code: int) -> None:
    program = f"""
import atexit, threading, time
from pytest_vlmrobust.plugin import session
atexit.register(session._leave)
session._left_with.append(11)
threading.Thread(target=time.sleep, args=(600,), name="{name}", daemon=True).start()
print("the last line")
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (code, "the last line\n", "")


@pytest.mark.parametrize("when", ["pytest_runtest_logstart", "pytest_sessionfinish"])
def test_a_process_that_may_open_no_more_files_ends_in_words(slow_project: Project, when: str) -> None:
    slow_project.write("conftest.py", SLOW_BACKEND + NO_FILES.format(when=when))
    output = finished(11, slow_project)
    assert "oo many" in output
    assert "Traceback" not in output
    assert "INTERNALERROR" not in output
