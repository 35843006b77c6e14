"""Command lines that run tests again, and what is kept of them with a run."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from pytest_vlmrobust.core.conversion import to_plain
from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.reporting import Command
from pytest_vlmrobust.reporting.explanation import explain

from .conftest import record

COMMAND = Command(("--vlm=my model", "-p", "no:x"), ("suites", "more"), Path("gate"), Path("gate/suites"))
NODE = 'suites/test_a.py::test_cell[m-d-it\'s $HOME `x` "q":mid]'


def test_every_word_reaches_the_shell_as_it_was() -> None:
    words = shlex.split(COMMAND.for_test(NODE))
    assert words == ["pytest", "--vlm=my model", "-p", "no:x", NODE.removeprefix("suites/")]


def test_of_a_test_without_a_node_id_there_is_none() -> None:
    assert COMMAND.for_test("") == ""


def test_the_whole_run_with_more_options() -> None:
    assert COMMAND.whole() == "pytest '--vlm=my model' -p no:x suites more"
    assert COMMAND.whole("--vlm-aa") == "pytest '--vlm=my model' -p no:x --vlm-aa suites more"
    assert COMMAND.several("errors") == "pytest '--vlm=my model' -p no:x --vlm-rerun=errors suites more"


def test_it_is_kept_with_the_run() -> None:
    assert Command.read(json.loads(json.dumps(to_plain(COMMAND)))) == COMMAND
    assert Command.read(to_plain(Command())) == Command()


@pytest.mark.cases(
    "odd", [None, 3, "pytest", [], {}, {**to_plain(COMMAND), "paths": 3}, {**to_plain(COMMAND), "root": None}, {"options": []}]
)
def test_anything_else_is_none(odd: object) -> None:
    assert Command.read(odd) is None


def test_the_failure_message_ends_with_the_command() -> None:
    broken = record("m-d-fog:mid", Outcome.FAIL, nodeid=NODE)
    assert explain(broken, COMMAND.for_test(NODE)).splitlines()[-1] == f"    {'again':<28} {COMMAND.for_test(NODE)}"
    assert "again" not in explain(broken)
    assert "-k" not in explain(broken)


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ({"n": 60, "n_requested": 120}, "120: 120 read, 0 unparsed, 0 errors"),
        ({"n": 55, "n_requested": 60, "n_unparsed": 3, "n_errors": 1}, "60: 56 read, 3 unparsed, 1 error"),
        ({"n": 60, "n_requested": 60, "n_refused": 4}, "60: 56 read, 0 unparsed, 0 errors, 4 refused"),
        ({"n": 60, "n_requested": 60, "n_guessed": 2}, "60: 58 read, 0 unparsed, 0 errors, 2 guesses"),
    ],
)
def test_what_became_of_the_answers_adds_up(counts: dict[str, Any], said: str) -> None:
    """A sweep rests on the answers of several cells: fewer samples are scored than answers were read."""
    assert f"    {'answers':<28} {said}" in explain(record("m-d-visual_gain", test="sweep", **counts)).splitlines()


@pytest.mark.cases(
    ("words", "positional", "options"),
    [
        (["--vlm=tiny", "suites"], ["suites"], ["--vlm=tiny"]),
        (["--vlm", "tiny", "suites", "-q"], ["suites"], ["--vlm", "tiny", "-q"]),
        (["-k", "fog or snow", "-n", "4", "-n4", "-kfog", "--dist=load", "-m", "x", "a", "b"], ["a", "b"], []),
        (["--lf", "-x", "--vlm-plan", "--vlm-rerun=failed", "--vlm-rerun", "errors", "--vlm-aa"], [], []),
        (["--vlm-report=out", "--junitxml", "j.xml", "--vlm-update-baseline", "--vlm-baseline=b"], [], ["--vlm-baseline=b"]),
        (
            ["-p", "no:randomly", "-o", "vlm_seed=3", "--vlm-dataset=my data"],
            [],
            "-p;no:randomly;-o;vlm_seed=3;--vlm-dataset=my data",
        ),
        (["-vv", "-rA", "--maxfail=1", "--maxfail", "2"], [], ["-vv", "-rA"]),
        (
            ["-qsl", "-pno:x", "-cpytest.ini", "--tb=no", "-W", "error", "--vlm-models", "m.yaml"],
            [],
            "-qsl;-pno:x;-cpytest.ini;--tb=no;-W;error;--vlm-models;m.yaml",
        ),
        (["--rp-api-key=SECRET", "--tr-password", "SECRET", "suites", "-q"], ["suites"], "--rp-api-key=...;--tr-password;...;-q"),
        (
            ["-o", "rp_api_key=SECRET", "-orp_key=SECRET", "--override-ini=addopts=SECRET"],
            [],
            "-o;rp_api_key=...;-orp_key=...;--override-ini=addopts=...",
        ),
        (
            ["-o", "vlm_seed=3", "-ovlm=tiny", "--override-ini=vlm_store=a=b"],
            [],
            "-o;vlm_seed=3;-ovlm=tiny;--override-ini=vlm_store=a=b",
        ),
        (
            ["-XSECRET", "-X", "SECRET", "--vlmSECRET=SECRET", "--key", "SECRET", "SECRET"],
            [],
            "-X...;-X;...;--vlmSECRET=...;--key;...;...",
        ),
        (["--flag", "--other", "--vlm", "tiny"], [], "--flag;--other;--vlm;tiny"),
    ],
)
def test_what_is_kept(words: list[str], positional: list[str], options: list[str] | str) -> None:
    kept = options.split(";") if isinstance(options, str) else options
    command = Command.of(words, positional, Path("/a"), Path("/a/b"))
    assert command == Command(tuple(kept), tuple(positional), Path(), Path("b"))
