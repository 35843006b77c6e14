"""`vlmrobust view`: which runs it takes, what it says, and how it ends."""

from __future__ import annotations

import http.client
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_vlmrobust import cli
from tests.unit.store.browsed import run

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[3]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns a directory with a store of two runs; commands are called in it."""
    monkeypatch.chdir(tmp_path)
    for name in ("20260101-000000-a", "20260102-000000-b"):
        run(tmp_path / ".vlmrobust" / "runs" / name, {"m": {"clean": "rrrrrr"}})
    return tmp_path


@pytest.fixture
def start(here: Path) -> Iterator[Callable[..., tuple[subprocess.Popen[str], str]]]:
    """Starts the command, and returns it with the line that it says."""
    pytest.importorskip("starlette", reason="the viewer needs starlette and uvicorn")
    pytest.importorskip("uvicorn", reason="the viewer needs starlette and uvicorn")
    started: list[subprocess.Popen[str]] = []

    def begin(*arguments: str) -> tuple[subprocess.Popen[str], str]:
        command = [sys.executable, "-m", "pytest_vlmrobust.cli", "view", "--port", "0", *arguments]
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=here,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
        started.append(process)
        assert process.stdout is not None
        return process, process.stdout.readline()

    yield begin
    for process in started:
        process.terminate()
        process.communicate()


def page(said: str, path: str) -> str:
    match = re.search(r"http://127\.0\.0\.1:(\d+)/ ", said)
    assert match, said
    connection = http.client.HTTPConnection("127.0.0.1", int(match[1]), timeout=60)
    connection.request("GET", path)
    body = connection.getresponse().read().decode()
    connection.close()
    return body


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM])
def test_it_says_where_it_is_and_ends_cleanly(
    start: Callable[..., tuple[subprocess.Popen[str], str]], by: signal.Signals
) -> None:
    process, said = start()
    assert said.startswith("2 runs to see at http://127.0.0.1:")
    assert "20260102-000000-b" in page(said, "/samples")  # the newest one
    assert "20260101-000000-a" not in page(said, "/samples")
    process.send_signal(by)
    out, errors = process.communicate(timeout=60)
    assert (out, errors) == ("", "")
    assert process.returncode == (0 if by == signal.SIGINT else -signal.SIGTERM)


@pytest.mark.parametrize(
    ("places", "shown"),
    [
        (["latest"], ["20260102-000000-b"]),
        (["20260101-000000-a"], ["20260101-000000-a"]),
        ([".vlmrobust/runs/20260101-000000-a", "latest"], ["20260101-000000-a", "20260102-000000-b"]),
        ([".vlmrobust"], ["20260102-000000-b"]),
    ],
)
def test_a_run_is_named_as_everywhere(
    start: Callable[..., tuple[subprocess.Popen[str], str]], places: list[str], shown: list[str]
) -> None:
    _, said = start(*places)
    assert re.findall(r'data-run="([^"]+)"', page(said, "/answers")) == shown


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], "'nowhere': there is no such directory, and .vlmrobust holds no run of this name. Expected"),
        (["./nowhere"], "nowhere: there is no such directory. Expected a run or a store; vlmrobust runs lists"),
        (["."], ".: holds no run. Run pytest --vlm=NAME first"),
        ([".vlmrobust", "latest"], ".vlmrobust: is a store. Name one store alone, or runs"),
    ],
)
@pytest.mark.usefixtures("here")
def test_what_cannot_be_shown_is_said(capsys: pytest.CaptureFixture[str], arguments: list[str], said: str) -> None:
    assert cli.main(["view", *arguments]) == cli.USAGE_ERROR
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("port", ["65536", "-1", "http", "\u0663"])
def test_a_port_is_a_number(capsys: pytest.CaptureFixture[str], port: str) -> None:
    assert cli.main(["view", f"--port={port}"]) == 2
    assert "is not a port" in capsys.readouterr().err


@pytest.mark.usefixtures("here")
def test_without_the_extra_it_says_what_to_install(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert cli.main(["view", "--port", "0"]) == cli.USAGE_ERROR
    captured = capsys.readouterr()
    assert "pip install 'starlette>=" in captured.err
    assert captured.out == ""
