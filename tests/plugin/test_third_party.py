"""Backends of third parties that break their contract: an error in words that names model and method, and never GO."""

from __future__ import annotations

import json
import os
import re
import signal
import time

import pytest

from tests.forked import ForkedPytest

from .conftest import ALONE, WORKERS_IF_SLOW, Project, slow_but_for

HEAD = """
import os, sys, threading, uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from pytest_vlmrobust.backends import backends
from pytest_vlmrobust.backends import Prepared, Traits
from pytest_vlmrobust.backends.scripted import ScriptedBackend


class Plain(ScriptedBackend):
    def __init__(self, ref):
        super().__init__(lambda request: "B" if request.images else "A", version="1", name=ref.name)


class Preparing(Plain):
    lanes = 2

    @property
    def traits(self):
        return Traits(mixes_cells=True, lanes=self.lanes, prepare=self.prepare, infer_prepared=self.infer_prepared)

    def prepare(self, request):
        return Prepared(request)

    def infer_prepared(self, prepared):
        return self.infer([one.request for one in prepared])


backends.add("odd", lambda ref, options: opened(ref), replace=True)


def opened(ref):
    return Odd(ref)


"""
GATE = ("--vlm=m", "--vlm-models=models.yaml", "--vlm-dataset=data.jsonl", "--vlm-thresholds=policy.yaml")
QUIET = ("-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:hypothesispytest", "-p", "no:anyio", "suite")


def member(method: str, body: str, base: str = "Plain") -> str:
    """Returns a class of which one method does something else."""
    return f"class Odd({base}):\n    def {method}(self, *_):\n        {body}\n"


def start(project: Project, backend: str, *arguments: str) -> ForkedPytest:
    project.write("conftest.py", HEAD + backend)
    project.write("models.yaml", "models:\n  m: {backend: odd, path: nothing}\n")
    (project.path / "nothing").mkdir()
    return ForkedPytest([*GATE, *QUIET, *arguments], project.path)


def ended(project: Project, code: int, backend: str, *arguments: str) -> str:
    """Runs a gate with such a backend in a process of its own, to this exit code; returns what it printed, on one line."""
    process = start(project, backend, *arguments)
    output, _ = process.communicate(timeout=180)
    for word in ("INTERNALERROR", "Traceback (most recent", "pytest_vlmrobust/"):
        assert word not in output, output
    assert process.wait() == code, output
    return re.sub(r"(?<=conftest\.py:)\d+", "*", " ".join(output.split()))


EXITS = ["SystemExit(0)", "SystemExit(None)", "KeyboardInterrupt", "GeneratorExit", "pytest.exit.Exception('x', returncode=0)"]


@pytest.mark.parametrize("raised", slow_but_for(EXITS[::2][:2], EXITS))
def test_a_factory_that_ends_the_process_is_a_usage_error(project: Project, raised: str) -> None:
    text = ended(project, 4, f"def opened(ref):\n    raise {raised}\n")
    assert "ERROR: the backend of model 'm' raised " in text
    assert "in its factory. Fix the backend" in text


TWICE = """opened_before = []


def opened(ref):
    opened_before.append(ref)
    if len(opened_before) > 1:
        raise SystemExit
    return Plain(ref)
"""
UNSPEAKABLE = """class Unspeakable(BaseException):
    def __str__(self):
        raise SystemExit(0)


""" + member("infer", "raise Unspeakable")


BREACHES = [
    (member("fingerprint", "raise SystemExit(0)"), "raised SystemExit: 0 (conftest.py:*) in its fingerprint"),
    (member("fingerprint", "return 'abc'"), "broke its contract: fingerprint() returned 'abc' of type str"),
    (member("infer", "raise KeyboardInterrupt"), "raised KeyboardInterrupt (conftest.py:*) in its infer"),
    (member("infer", "pytest.skip('no GPU')"), "raised Skipped: no GPU"),
    (UNSPEAKABLE, "raised an error without a message that can be read (conftest.py:*) in its infer"),
    (member("prepare", "raise GeneratorExit", "Preparing"), "raised GeneratorExit (conftest.py:*) in its prepare"),
    (member("prepare", "return None", "Preparing"), "prepare() returned None of type NoneType"),
    ("class Odd(Preparing):\n    lanes = 10**9\n", "lanes is 1000000000 of type int, expected a whole number of 1 to 4096"),
    (
        "class Odd(Preparing):\n    lanes = property(lambda self: sys.exit())\n",
        "raised SystemExit (conftest.py:*) in its traits",
    ),
    (
        "class Odd(Plain):\n    traits = Traits(mixes_cells='yes')\n",
        "mixes_cells is 'yes' of type str, expected True or False",
    ),
    (TWICE, "raised SystemExit (conftest.py:*) in its factory"),
    (
        "class Odd(Plain):\n    traits = property(lambda self: Traits(check=str))\n",
        "traits with one of 'check' and 'give_up': a backend has both or neither",
    ),
]


@pytest.mark.parametrize("breach", slow_but_for([BREACHES[0], BREACHES[2], *BREACHES[-2:]], BREACHES))
def test_what_breaks_the_contract_is_an_error_of_its_tests(project: Project, breach: tuple[str, str]) -> None:
    backend, said = breach
    text = ended(project, 11, backend)
    assert said in text
    assert "INCOMPLETE" in text


@pytest.mark.slow
def test_workers_say_the_same(project: Project) -> None:
    text = ended(project, 11, member("fingerprint", "raise SystemExit(0)"), "-n2")
    assert "the backend of model 'm' raised SystemExit: 0 (conftest.py:*) in its fingerprint" in text


@pytest.mark.parametrize("workers", [ALONE, WORKERS_IF_SLOW])
def test_a_fingerprint_that_changes_is_no_go(project: Project, workers: tuple[str, ...]) -> None:
    text = ended(project, 11, member("fingerprint", "return {'x': uuid.uuid4().hex}"), *workers)
    assert "the fingerprint of model 'm' changed while it was asked, by 'x'" in text


REMOTE = """class Odd(Plain):
    @property
    def traits(self):
        return Traits(check=self.check, give_up=self.give_up)

    def check(self):
        {check}

    def give_up(self):
        raise SystemExit(0)
"""


@pytest.mark.parametrize(
    ("check", "said"),
    [
        ("raise SystemExit(0)", "raised SystemExit: 0 (conftest.py:*) in its check"),
        ("return 5", "check() returned 5 of type int"),
    ],
)
def test_a_check_that_says_nothing_is_no_proof(project: Project, check: str, said: str) -> None:
    text = ended(project, 11, REMOTE.format(check=check))
    assert said in text


@pytest.mark.parametrize(
    "body", ["return None", "return {'loaded': object()}", "raise SystemExit(0)", "return {'x': 'y' * 10_000_000}"]
)
def test_what_it_says_of_itself_decides_nothing_and_is_replaced_by_why(project: Project, body: str) -> None:
    ended(project, 0, member("describe", body))
    run = project.the_run
    file = run / "manifest.json"
    assert file.stat().st_size < 1_000_000
    assert json.loads(file.read_text())["processes"]["main"]["m"]["problem"].startswith("the backend of model 'm' ")


HANG = "threading.Event().wait()"
POOL = "with ThreadPoolExecutor() as pool:\n            return pool.submit(threading.Event().wait).result()"
"""Python waits for the threads of a pool before it ends."""


@pytest.mark.parametrize(
    ("backend", "said", "code"),
    [
        (f"def opened(ref):\n    {HANG}\n", "m has not been opened for 2 s (--vlm-timeout)", 4),
        (member("fingerprint", HANG), "m has not given its fingerprint for 2 s (--vlm-timeout)", 11),
        (member("prepare", HANG, "Preparing"), "m has not prepared a request for 2 s (--vlm-timeout)", 11),
        (member("prepare", POOL, "Preparing"), "m has not prepared a request for 2 s (--vlm-timeout)", 11),
        (REMOTE.format(check=HANG), "m has not said whether it changed for 2 s (--vlm-timeout)", 11),
        (member("describe", HANG), "GO", 0),
    ],
    ids=["factory", "fingerprint", "prepare", "prepare by a pool", "check", "describe"],
)
def test_what_hangs_ends_no_run_and_keeps_no_process_alive(project: Project, backend: str, said: str, code: int) -> None:
    text = ended(project, code, backend, "--vlm-timeout=2")
    assert said in text


@pytest.mark.slow
def test_workers_leave_what_hangs(project: Project) -> None:
    text = ended(project, 11, member("prepare", POOL, "Preparing"), "--vlm-timeout=2", "-n2")
    assert "m has not prepared a request for 2 s (--vlm-timeout)" in text


def test_ctrl_c_ends_a_run_whose_preparing_threads_hang(project: Project) -> None:
    hanging = f"on = threading.current_thread()\n        open('hangs ' + on.name, 'w').close()\n        {HANG}"
    process = start(project, member("prepare", hanging, "Preparing"))
    latest = time.monotonic() + 120
    while not (project.path / "hangs vlm-views").exists() and time.monotonic() < latest:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 2, output
    assert "INTERNALERROR" not in output
    assert "pytest was interrupted (KeyboardInterrupt)" in output


LATE = """class Odd(Plain):
    pass


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    from pytest_vlmrobust.evaluation.run.evaluator import Evaluator

    def ends(self):
        raise SystemExit(0)

    Evaluator.changes = ends
"""


def test_an_exit_while_a_run_concludes_is_not_exit_code_0(project: Project) -> None:
    text = ended(project, 11, LATE)
    assert "INCOMPLETE: something raised SystemExit before the run was over" in text


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
def test_a_process_that_a_backend_forked_does_not_run_the_gate_once_more(project: Project) -> None:
    text = ended(project, 0, member("infer", "os.fork()\n        return super().infer(*_)"))
    assert text.count("vision-language model robustness") == 1
