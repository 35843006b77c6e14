"""Gates about servers that take requests and never answer: these end after some time limits, whatever is sent."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from typing import Any

import pytest

pytest.importorskip("openai")

from pytest_vlmrobust.backends.scripted import ScriptedBackend
from tests.model_server import ModelServer, Reply, StuckServer
from tests.small_gate import suite

from .conftest import SAMPLES, Project
from .test_served import good, is_question

SETTINGS = ("grayscale", "flip_v", "invert", "solarize:low", "solarize:mid", "solarize:high", "flip_h", "equalize")
CELLS = len(SETTINGS) + 2


@pytest.fixture
def wide(project: Project) -> Project:
    """A gate of more settings."""
    project.write("suite/test_suite.py", suite(*SETTINGS))
    return project


def run(project: Project, url: str, limit: float, *arguments: str) -> pytest.RunResult:
    entry = {"backend": "openai", "url": url, "model": "m", "revision": "1", "time_limit": limit}
    project.write("models.yaml", json.dumps({"models": {"m": entry}}))
    return project.run("--vlm=m", "--vlm-models=models.yaml", "--vlm-report=out", *arguments, models=())


def decision(project: Project) -> str:
    return str(json.loads((project.path / "out" / "manifest.json").read_text())["decision"])


@pytest.mark.parametrize("shape", ["hang", "drip", "drip_headers"])
def test_a_server_that_never_answers_costs_a_run_three_time_limits(
    wide: Project, shape: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with StuckServer(shape) as server:
        result = run(wide, server.url, 0.4)
    assert result.ret == 11
    assert decision(wide) == "INCOMPLETE"
    assert server.n_requests == 3, "each request waited for one time limit, and none was sent later"
    result.stdout.fnmatch_lines([f"*{server.url} did not answer for 3 time limits of 0.4 s, one after the other. Look at*"])
    result.assert_outcomes(errors=CELLS + 2)
    assert capfd.readouterr().err.count("its tests end now") == 1


@pytest.mark.parametrize(
    ("shape", "words", "most"),
    [
        ("endless_headers", "*no answer for * s ({url}*broke off the connection*Look at the server*", 100),
        ("endless_body", "*no answer for * s ({url}*sent more than 4 MiB in answer to one request*Look at the server*", 100),
        ("redirect", "*{url} redirects more than 5 times. Look at the base URL, and at the server*", 6),
    ],
)
def test_a_server_whose_answers_have_no_end_is_lost_within_a_time_limit(wide: Project, shape: str, words: str, most: int) -> None:
    with StuckServer(shape) as server:
        result = run(wide, server.url, 1.0)
    assert result.ret == 11
    assert decision(wide) == "INCOMPLETE"
    result.stdout.fnmatch_lines([words.format(url=server.url)])
    result.assert_outcomes(errors=CELLS + 2)
    assert server.n_requests <= most


@pytest.mark.parametrize("answered", [2, 25])
def test_a_server_that_hangs_in_the_middle_keeps_what_it_answered(wide: Project, answered: int) -> None:
    counts = Counter[bool]()
    hangs = threading.Event()
    over = threading.Event()

    def hang(body: dict[str, Any]) -> Reply | None:
        counts[hangs.is_set()] += is_question(body)
        if counts[False] > answered:
            hangs.set()
        if hangs.is_set():
            over.wait(60)
        return None

    with ModelServer(ScriptedBackend(good, version="1"), before=hang) as server:
        result = run(wide, server.url, 0.5)
        over.set()
    assert result.ret == 11
    assert decision(wide) == "INCOMPLETE"
    result.stdout.fnmatch_lines(["*did not answer for * time limits of 0.5 s, one after the other*"])
    assert 0 < wide.stored < CELLS * SAMPLES
    assert counts[True] < 30


def test_a_server_that_hangs_for_a_while_loses_nothing(wide: Project) -> None:
    began: list[float] = []

    def pause(body: dict[str, Any]) -> Reply | None:
        if is_question(body):
            began.append(time.monotonic())
            if len(began) > 20:
                time.sleep(max(0.0, began[20] + 1.2 - time.monotonic()))  # more than one time limit, and less than two
        return None

    with ModelServer(ScriptedBackend(good, version="1"), before=pause) as server:
        result = run(wide, server.url, 1.0)
    assert result.ret == 0, result.stdout.str()
    assert wide.stored == CELLS * SAMPLES
