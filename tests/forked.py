"""Processes that run pytest as ``python -m pytest`` does, and start in a tenth of the time.

A new process imports for more than a second before it runs a test. Here one process imports everything once, and each
run is a copy of it: a process with an id, signals, standard streams and an end of its own. So are the workers of xdist.
"""

from __future__ import annotations

import ast
import atexit
import functools
import gc
import importlib.metadata
import os
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import execnet.gateway_io
import pytest

ROOT = Path(__file__).parents[1]
ENDINGS = (signal.SIGHUP, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)
"""Signals that end a process which does not handle them."""
ENVIRONMENT = {**os.environ}
"""What copies are made of starts in it: not in that of the test that happens to be first."""

STANDS_FOR_A_WORKER = """
import os, signal, socket, sys
address, line = sys.argv[1:]
connection = socket.socket(socket.AF_UNIX)
connection.connect(address)
given = repr({"code": line, "directory": os.getcwd(), "environment": dict(os.environ)}).encode() + b"\\n"
socket.send_fds(connection, [given[:1]], [0, 1, 2])
connection.sendall(given[1:])
for descriptor in (0, 1):
    os.close(descriptor)
code = int(connection.makefile().readlines()[1])
if code < 0:
    signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
os._exit(code)
"""
"""The process that xdist starts and may kill: it hands its streams to a copy, and ends as that does. Imports next to nothing."""


class ForkedPytest:
    """A run of pytest in a copy: what tests use of ``subprocess.Popen``.

    Without streams, what it prints is what :meth:`communicate` returns.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        directory: Path,
        *,
        stdout: IO[bytes] | int | None = None,
        stderr: IO[bytes] | int | None = None,
        stdin: int | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.returncode: int | None = None
        with tempfile.TemporaryFile() as file:
            self._output = os.dup(file.fileno())
        self._printed = b""
        streams = [os.open(os.devnull, os.O_RDONLY) if stdin is None else os.dup(stdin)]
        for stream in (stdout, stderr):
            chosen = self._output if stream is None else stream
            streams.append(os.dup(chosen if isinstance(chosen, int) else chosen.fileno()))
        given = {"arguments": [*arguments], "directory": str(directory), "environment": dict(os.environ if env is None else env)}
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._connection.connect(_server())
        content = repr(given).encode() + b"\n"
        socket.send_fds(self._connection, [content[:1]], streams)
        self._connection.sendall(content[1:])
        for descriptor in streams:
            os.close(descriptor)
        self._replies = self._connection.makefile("r")
        self.pid = int(self._replies.readline())

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._connection], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def wait(self, timeout: float = 300) -> int:
        if self.returncode is None:
            if not select.select([self._connection], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("pytest", timeout)
            self.returncode = int(self._replies.readline())
            self._replies.close()
            self._connection.close()
            with os.fdopen(self._output, "rb") as file:
                file.seek(0)
                self._printed = file.read()
        return self.returncode

    def communicate(self, timeout: float = 300) -> tuple[str, None]:
        """Waits for its end, and returns what it printed to both streams."""
        self.wait(timeout)
        return self._printed.decode(), None


def run_forked(pytester: pytest.Pytester, *arguments: str, timeout: float = 300) -> pytest.RunResult:
    """Runs pytest as ``pytester.runpytest_subprocess`` does."""
    begun = time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        folder = tempfile.mkdtemp(prefix="runpytest-", dir=pytester.path)
        ret = ForkedPytest([f"--basetemp={folder}", *arguments], pytester.path, stdout=out, stderr=err).wait(timeout)
        out.seek(0)
        err.seek(0)
        printed, errors = out.read().decode(), err.read().decode()
    print(printed, errors)  # noqa: T201 - as pytester does, for those who read of a failure
    return pytest.RunResult(ret, printed.splitlines(), errors.splitlines(), time.monotonic() - begun)


def fork_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has xdist start its workers as copies."""
    monkeypatch.setattr(execnet.gateway_io, "popen_args", functools.partial(_worker, execnet.gateway_io.popen_args))


def _worker(usual: Any, spec: Any, address: str = "") -> list[str]:
    """Returns the command of a worker; one that names its Python, as by ``--tx=2*popen//python=...``, is started anew."""
    if spec.python:
        return list(usual(spec))
    line = execnet.gateway_io.popen_bootstrapline
    return [sys.executable, "-I", "-S", "-c", STANDS_FOR_A_WORKER, address or _server(), line]


@functools.cache
def _server() -> str:
    """Starts the process that copies are made of, and returns its address. It ends when this one does."""
    address = f"{tempfile.mkdtemp(prefix='forked-')}/socket"
    process = subprocess.Popen(
        [sys.executable, __file__, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, env=ENVIRONMENT
    )
    atexit.register(process.communicate)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return address


def _import_all() -> None:
    """Imports what a gate imports, each plugin of pytest among them, and makes what a process makes once."""
    import cv2  # noqa: F401
    import jinja2  # noqa: F401
    import rich.console
    import rich.table  # noqa: F401
    import scipy.special  # noqa: F401
    import xdist  # noqa: F401
    from PIL import Image

    from pytest_vlmrobust.core import conversion
    from pytest_vlmrobust.core.record import Record
    from pytest_vlmrobust.reporting import html, markdown
    from pytest_vlmrobust.scoring.words import words
    from pytest_vlmrobust.store.run_directory import Docket, Manifest
    from tests.small_gate import import_package

    import_package(".neural")
    Image.init()
    words()
    for kind in (Record, Docket, Manifest):
        conversion._validator(kind)
    for writes in (html.page, markdown):
        environment = writes._environment()
        for name in environment.list_templates(("html", "md")):
            environment.get_template(name)
    for entry in importlib.metadata.entry_points(group="pytest11"):
        entry.load()
    for name in {name.partition(".")[0] for name in sys.modules} - sys.stdlib_module_names:
        sys.modules[name].__doc__ = "PYTEST_DONT_REWRITE"  # it warns of plugins that were imported before it could


def _serve(address: str) -> str:
    """Makes a copy for each connection; returns in the copies alone, as :func:`_begin` does."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(address)
        listener.listen(64)
        print("ready", flush=True)  # noqa: T201
        while True:
            if sys.stdin in select.select([listener, sys.stdin], [], [])[0]:
                shutil.rmtree(Path(address).parent)
                sys.exit()
            connection, _ = listener.accept()
            if not os.fork():
                listener.close()
                return _begin(connection)
            connection.close()


def _begin(connection: socket.socket) -> str:
    """Makes one copy and says its id and how it ended; returns in the copy alone: what it executes, or nothing for pytest."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    content, streams, _, _ = socket.recv_fds(connection, 1, 3)
    with connection.makefile("rb") as file:
        given = ast.literal_eval((content + file.readline()).decode())
    if copy := os.fork():
        for descriptor in (*streams, 0, 1, 2):
            os.close(descriptor)
        connection.sendall(f"{copy}\n".encode())
        ended = os.pidfd_open(copy)
        if ended not in select.select([ended, connection.fileno()], [], [])[0]:  # whoever waited for it is gone
            os.kill(copy, signal.SIGKILL)
        _, status = os.waitpid(copy, 0)
        connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
        os._exit(0)
    connection.close()
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts what runs in the background without it
    for number in ENDINGS:
        signal.signal(number, signal.SIG_DFL)
    sys.stdout.reconfigure(line_buffering=os.isatty(1))  # type: ignore[union-attr]
    os.chdir(given["directory"])
    os.environ.clear()
    os.environ.update(given["environment"])
    time.tzset()
    sys.path[:0] = [given["directory"], *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    sys.argv = ["pytest", *given.get("arguments", ())]
    sys.orig_argv = [sys.executable, "-m", *sys.argv]
    return str(given.get("code", ""))


if __name__ == "__main__":
    sys.path[0] = str(ROOT)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _import_all()
    for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
        del sys.modules[name]
    del sys.path[0]
    gc.collect()
    gc.freeze()
    execnet.gateway_io.popen_args = functools.partial(_worker, execnet.gateway_io.popen_args, address=sys.argv[1])
    if code := _serve(sys.argv[1]):
        exec(code)  # noqa: S102 - what execnet would have Python execute
    else:
        runpy.run_module("pytest", run_name="__main__", alter_sys=True)
