"""A gate small enough to be killed many times: forty answers of a scripted model, in processes that are forked, not started.

A trial's process has everything imported when it begins, so that it takes a second, and most of that is the gate's own work.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from pathlib import Path

from pytest_vlmrobust.evaluation.run.clock import utc_today
from tests import small_gate

SETTINGS = ("grayscale", "flip_v", "invert")
CONFTEST = """
import os
import time

from pytest_vlmrobust.backends import backends
from pytest_vlmrobust.backends.scripted import ScriptedBackend


def slow(ref, options):
    def script(request):
        time.sleep(float(os.environ.get("GATE_SECONDS", "0")))
        number = int(request.sample_id[1:])
        lost = request.setting == "invert" and number in LOST
        right = "AB"[number % 2]
        return right if request.images and not lost else "A"

    return ScriptedBackend(script, version="slow", name=ref.name)


backends.add("slow", slow, replace=True)
LOST = {lost}
"""
WAIVERS = """waivers:
  - {{id: W1, owner: jo, reason: known, expires: {day}, metric: accuracy_drop, where: {{setting: invert}}, cap: 99%}}
  - {{id: W2, owner: jo, reason: known, expires: {day}, metric: worst_case_drop, where: {{model: m}}, cap: 99%}}
"""
"""Waivers that cover what a model that is not good enough breaks, and that ended ``EXPIRED`` days ago: a clock that is set back
by more would make it GO."""
EXPIRED = 2
SAMPLES = 8
LOST = {"GO": (1,), "NO-GO": (1, 3, 5)}
"""Which samples the model loses when inverted: one of eight is within the bound of 30 pp, three are not."""
ARGUMENTS = (
    "--vlm=m",
    "--vlm-models=models.yaml",
    "--vlm-dataset=data.jsonl",
    "--vlm-thresholds=policy.yaml",
    "--vlm-batch-size=2",
    "-p",
    "no:cacheprovider",
    "-p",
    "pytest_vlmrobust.plugin",
    "-q",
    "suite",
)


def write(directory: Path, verdict: str = "GO") -> Path:
    """Writes a gate whose model is, or is not, good enough."""
    files = {
        "suite/test_suite.py": small_gate.suite(*SETTINGS),
        "policy.yaml": small_gate.policy(30) + WAIVERS.format(day=utc_today() - timedelta(days=EXPIRED)),
        "conftest.py": CONFTEST.replace("LOST = {lost}", f"LOST = {LOST[verdict]}"),
        "models.yaml": "models:\n  m: {backend: slow, path: models.yaml}\n",
        "pytest.ini": "[pytest]\n",
    }
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (directory / "nothing").mkdir()
    small_gate.write_questions(directory, ["AB"[number % 2] for number in range(SAMPLES)])
    return directory


@dataclass
class Process:
    """A gate that runs in a process of its own, with everything that it starts in one group."""

    pid: int
    output: bytearray = field(default_factory=bytearray)
    reader: threading.Thread | None = None

    def read(self, pipe: int) -> None:
        """Takes what it prints, until nobody can print any more; no limit on files applies to a pipe."""

        def take() -> None:
            with os.fdopen(pipe, "rb", buffering=0) as stream:
                while content := stream.read(65536):
                    self.output += content

        self.reader = threading.Thread(target=take, daemon=True)
        self.reader.start()

    def wait(self, seconds: float = 120.0) -> int:
        """Returns the exit code, negative for a signal.

        Raises:
            TimeoutError: it does not end; it is killed then, with what it started.
        """
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                if self.reader is not None:
                    self.reader.join(5.0)  # a worker that outlives it may hold the pipe
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.01)
        os.killpg(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        raise TimeoutError(f"it did not end within {seconds:g} s: {self.text[-2000:]}")

    @property
    def text(self) -> str:
        """What it printed."""
        return bytes(self.output).decode("utf-8", "replace")


def start(
    directory: Path, *arguments: str, before: Callable[[], object] = lambda: None, environment: Sequence[tuple[str, str]] = ()
) -> Process:
    """Forks a process that runs the gate of a directory.

    Args:
        directory: where a gate was written.
        arguments: further ones for pytest.
        before: called in the new process before pytest is.
        environment: variables of it.
    """
    load()
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            os.setsid()
            os.chdir(directory)
            os.close(reading)
            for number in (1, 2):
                os.dup2(writing, number)
            os.close(writing)
            os.environ.update({"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **dict(environment)})
            for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(name, signal.default_int_handler if name == signal.SIGINT else signal.SIG_DFL)
            before()
            code = _pytest([*ARGUMENTS, *arguments])
        finally:
            os._exit(code)
    os.close(writing)
    process = Process(pid)
    process.read(reading)
    return process


def start_python(directory: Path, *arguments: str, environment: Sequence[tuple[str, str]] = ()) -> Process:
    """Starts the gate of a directory as a user does, in a Python of its own: it ends as Python ends, and variables reach it."""
    here = str(Path(__file__).resolve().parents[2])
    variables = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": here, **dict(environment)}
    command = [sys.executable, "-m", "pytest", *ARGUMENTS, *arguments]
    return start(directory, before=lambda: os.execve(sys.executable, command, variables))  # noqa: S606 - no shell is needed


def serve(port: int, verdict: str) -> int:
    """Forks a server of the gate's model that listens on a port, and returns its process id."""
    import numpy as np

    from pytest_vlmrobust.backends.scripted import ScriptedBackend
    from pytest_vlmrobust.core.prediction import Request
    from tests.model_server import ModelServer

    def answer(request: Request) -> str:
        """Tells from the pixels whether a picture was inverted: a server knows no settings."""
        time.sleep(0.02)
        number = int(request.text.partition("Number ")[2].partition("?")[0] or 0)
        if not request.images:
            return "A"
        inverted = np.array_equal(255 - request.images[0], small_gate.picture(number))
        return "A" if inverted and number in LOST[verdict] else "AB"[number % 2]

    ready, ready_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            server = ModelServer(ScriptedBackend(answer, version="1"))
            server.port = port
            server.start()
            os.write(ready_end, b"x")
            signal.pause()
        finally:
            os._exit(1)
    os.close(ready_end)
    os.read(ready, 1)  # it listens, or has ended
    os.close(ready)
    return pid


def _pytest(arguments: Sequence[str]) -> int:
    import pytest

    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)
    code = int(pytest.main(list(arguments)))
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    return code


@cache
def load() -> None:
    """Imports what a gate uses, so that no process that is forked from this one has to."""
    import cv2  # noqa: F401
    import scipy.special  # noqa: F401

    small_gate.import_package(".neural", ".html")


def run(directory: Path, *arguments: str) -> tuple[int, str]:
    """Runs the gate to its end; returns exit code and output."""
    process = start(directory, *arguments)
    return process.wait(), process.text
