"""What a person sees while a gate runs: on terminals of two sizes, in a pipe, and with workers."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pytest_vlmrobust.core.cell import CLEAN, Cell
from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.record import Record
from pytest_vlmrobust.evaluation.run.evaluator import Progress
from pytest_vlmrobust.plugin import progress
from pytest_vlmrobust.plugin.progress import ProgressDisplay

from .conftest import POLICY, SAMPLES, SUITE, UNUSED, Project

pyte = pytest.importorskip("pyte")
OPTIONS = ("--vlm=scripted:model.yaml", "--vlm-dataset=data.jsonl", "--vlm-thresholds=policy.yaml", "-p", "no:randomly", *UNUSED)
TESTS = 6 + 2


@dataclass(frozen=True)
class Live:
    """The live row of a screen: what it says, its place, and its colour."""

    text: str
    row: int
    color: str


class Terminal:
    """A terminal of some size that a gate runs in, and every screen that a person may have seen."""

    def __init__(self, columns: int, rows: int) -> None:
        self.columns, self.rows = columns, rows
        self.screen = pyte.HistoryScreen(columns, rows, history=10_000)
        self.lives: list[Live] = []

    def run(self, directory: Path, *arguments: str) -> int:
        """Runs pytest in the terminal and returns its exit code."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", self.rows, self.columns, 0, 0))
        environment = {
            name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "CI", "NO_COLOR", "PY_COLORS")
        }
        command = [sys.executable, "-m", "pytest", *OPTIONS, *arguments, "suite"]
        streams: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), theirs)
        with subprocess.Popen(command, cwd=directory, env={**environment, "TERM": "xterm-256color"}, **streams) as running:
            os.close(theirs)
            outputs = list(_chunks(ours))
        os.close(ours)
        stream = pyte.ByteStream(self.screen)
        for output in outputs:
            stream.feed(output)
            self._look()
        return running.returncode

    @property
    def text(self) -> list[str]:
        """Every row that the terminal ever held, scrolled away or not."""
        history = ["".join(row[column].data for column in sorted(row)).rstrip() for row in self.screen.history.top]
        return history + self.display

    @property
    def display(self) -> list[str]:
        """The rows of the screen as it is."""
        return [row.rstrip() for row in self.screen.display]

    def _look(self) -> None:
        rows = self.display
        for number, row in enumerate(rows):
            if re.match(r"\[[#-]{10}\] \d+", row):
                self.lives.append(Live(row, number, self.screen.buffer[number][0].fg))
                assert not any(rows[number + 1 :]), "nothing stands below the live row, also no part of it"
                assert number, "it has a row of its own, below that of the letters"
                assert len(row) < self.columns


def _chunks(descriptor: int) -> Iterator[bytes]:
    """Yields output in parts that end where a program may have been interrupted: behind each control sequence that goes back."""
    rest = b""
    while True:
        try:
            read = os.read(descriptor, 65536)
        except OSError:  # Linux says so where the other end is closed
            break
        if not read:
            break
        *whole, rest = (rest + read).split(b"\x1b8")
        yield from (part + b"\x1b8" for part in whole)
    yield rest


def letters(rows: list[str]) -> str:
    """Returns the letters of the tests, over all rows that they took."""
    return "".join(
        re.sub(r"^suite/\S+ |\[ *\d+%\]", "", row).strip() for row in rows if re.match(r"(suite/\S+ |)[.FxsE]+( |$)", row)
    )


SIZES = pytest.mark.parametrize(("columns", "rows"), [(80, 24), (120, 40)])


@SIZES
def test_the_live_row_leaves_the_letters_alone(project: Project, columns: int, rows: int) -> None:
    project.write("suite/test_suite.py", SUITE.replace('"solarize:low")', '"solarize:low", "robustbench")'))
    project.script({"setting": "invert", "answer": "A"})
    terminal = Terminal(columns, rows)
    assert terminal.run(project.path) == 1
    found = letters(terminal.text)
    assert len(found) > 100
    assert set(found) == {".", "F"}
    assert not any(re.match(r"\[[#-]{10}\]", row) for row in terminal.text), "nothing of it is left"
    said = [live.text for live in terminal.lives]
    assert len(set(said)) > 50
    assert f"/{len(found)} tests" in said[-1]
    assert any(re.search(r"/1\.\dk forwards, \d+ samples/s, ETA \d+:\d\d, ", text) for text in said)


WAIVER = """
waivers:
  - {id: W-1, owner: jo, reason: known, expires: 2099-12-31, metric: accuracy_drop, where: {setting: flip_v}, cap: 100pp}
"""


@SIZES
def test_it_is_red_from_the_first_breach_that_no_waiver_covers(project: Project, columns: int, rows: int) -> None:
    project.write("policy.yaml", POLICY + WAIVER)
    project.script({"setting": "flip_v", "answer": "A"}, {"setting": "invert", "answer": "A"})
    terminal = Terminal(columns, rows)
    assert terminal.run(project.path) == 1
    said = [live.text for live in terminal.lives]
    red = [live.color == "red" for live in terminal.lives]
    assert red == ["FAIL" in text for text in said]
    first = red.index(True)
    assert all(red[first:]), "it stays red"
    assert "1 WAIVED" in said[first - 1], "a breach that is waived leaves it as it was"
    assert int(re.findall(r"(\d+)/", said[first])[0]) < TESTS, "the run goes on, and who looks at it knows already"


@SIZES
def test_it_is_never_red_where_waivers_cover_all(project: Project, columns: int, rows: int) -> None:
    project.write(
        "policy.yaml",
        POLICY
        + WAIVER
        + WAIVER.partition("waivers:\n")[2]
        .replace("W-1", "W-2")
        .replace("accuracy_drop, where: {setting: flip_v}", "worst_case_drop, where: {dataset: data}"),
    )
    project.script({"setting": "flip_v", "answer": "A"})
    terminal = Terminal(columns, rows)
    assert terminal.run(project.path) == 0
    assert "2 WAIVED" in terminal.lives[-1].text
    assert {live.color for live in terminal.lives} == {"default"}


@SIZES
def test_a_go_is_one_screen_whose_last_words_are_the_decision_and_where_it_is_kept(
    project: Project, columns: int, rows: int
) -> None:
    terminal = Terminal(columns, rows)
    assert terminal.run(project.path, "--vlm-report=report") == 0
    last = terminal.display
    (title,) = [number for number, row in enumerate(last) if "vision-language model robustness" in row]
    (decision,) = [number for number, row in enumerate(last) if row.startswith("GO  ")]
    assert last[title + 1].startswith("model on data: clean 100.0 %")
    assert last[decision + 1].startswith("report report/report.html, run .vlmrobust/runs/")
    assert last[decision + 2].startswith("policy of model: policy.yaml ")
    assert letters(terminal.text) == "." * TESTS


def test_letters_of_long_ids_are_whole_with_v(project: Project) -> None:
    terminal = Terminal(80, 24)
    assert terminal.run(project.path, "-v") == 0
    assert len(re.findall(r"test_suite\.py::test_\w+\[[\w:-]+\] PASSED +\[ *\d+%\]", " ".join(terminal.text))) == TESTS


def test_without_the_terminal_plugin_of_pytest_there_is_no_live_row(project: Project) -> None:
    terminal = Terminal(80, 24)
    assert terminal.run(project.path, "-p", "no:terminal") == 0
    assert not terminal.lives
    assert not any(terminal.text)


@pytest.mark.slow
@SIZES
def test_the_live_row_with_workers(project: Project, columns: int, rows: int) -> None:
    project.script({"setting": "invert", "answer": "A"})
    terminal = Terminal(columns, rows)
    assert terminal.run(project.path, "-n2") == 1
    assert sorted(letters(terminal.text)) == sorted("FF" + "." * (TESTS - 2))
    assert f"{TESTS}/{TESTS} tests, {6 * SAMPLES}/{6 * SAMPLES} forwards" in terminal.lives[-1].text


@pytest.mark.parametrize("arguments", [(), pytest.param(("-n2",), marks=pytest.mark.slow)])
def test_in_a_pipe_there_are_no_control_characters(project: Project, arguments: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "pytest", *OPTIONS, *arguments, "suite"]
    done = subprocess.run(command, cwd=project.path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert all(char.isprintable() for char in done.stdout.replace("\n", ""))
    assert "forwards" not in done.stdout, "it was over before a first line was due"


# The same without a run.


class Clock:
    """A clock that the test sets."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


def ended(setting: str, outcome: Outcome = Outcome.PASS, inferred: int = 100) -> Record:
    return Record("cell", f"m-d-{setting}", "m", "d", setting, outcome=outcome, n_inferred=inferred, nodeid=f"t[{setting}]")


def planned(stream: io.StringIO, clock: Clock, **options: Any) -> ProgressDisplay:
    display = ProgressDisplay(stream, **{"live": False, **options})
    display.plan({"m-d-clean": 100, "m-d-fog:low": 100, "m-d-patches:3": 800})
    return display


def test_a_log_has_a_line_now_and_then(clock: Clock) -> None:
    stream = io.StringIO()
    display = planned(stream, clock)
    for second in range(0, 100, 10):
        clock.now = second
        display.show_progress(Progress(Cell("m", "d", CLEAN), second, 100, second))
    said = [line for line in stream.getvalue().splitlines() if line]
    assert said == [
        "vlm: 0 tests, 30/1.0k forwards, 1 samples/s, ETA 16:10, m-d-clean  30/100 samples",
        "vlm: 0 tests, 60/1.0k forwards, 1 samples/s, ETA 15:40, m-d-clean  60/100 samples",
        "vlm: 0 tests, 90/1.0k forwards, 1 samples/s, ETA 15:10, m-d-clean  90/100 samples",
    ]


def test_the_time_left_is_that_of_the_forward_passes_that_are_left_and_not_of_the_tests(clock: Clock) -> None:
    stream = io.StringIO()
    display = planned(stream, clock)
    clock.now = 50.0
    display.show_finished_test(ended("clean"), 3)
    assert "1/3 tests, 100/1.0k forwards, 2 samples/s, ETA 7:30, 1 PASS" in stream.getvalue()


def test_the_pace_is_the_recent_one(clock: Clock) -> None:
    stream = io.StringIO()
    display = planned(stream, clock)
    clock.now = 250.0  # until then it loaded its weights
    display.show_progress(Progress(Cell("m", "d", CLEAN), 10, 100, 10))
    clock.now = 300.0
    display.show_finished_test(ended("clean"), 3)
    assert "1/3 tests, 100/1.0k forwards, 2 samples/s, ETA 8:20" in stream.getvalue()
    clock.now = 400.0
    display.show_finished_test(ended("fog:low", inferred=4), 3)  # the test stopped early, and its other samples are not asked
    last = stream.getvalue().splitlines()[-1]
    assert "2/3 tests, 200/1.0k forwards, 0 samples/s, ETA 13:20" in last


def test_a_test_that_ran_again_is_tallied_once(clock: Clock) -> None:
    stream = io.StringIO()
    display = planned(stream, clock)
    display.show_finished_test(ended("clean", Outcome.ERROR), 3)
    clock.now = 40.0
    display.show_finished_test(ended("clean", Outcome.FAIL), 3)
    assert "1 FAIL" in stream.getvalue()
    assert "ERROR" not in stream.getvalue()


def test_a_notice_stands_on_a_line_of_its_own_and_is_printable(clock: Clock) -> None:
    stream = io.StringIO()
    planned(stream, clock, notices_only=True).notice("gw0: waiting\x1b[2J\nfor a lease")
    assert stream.getvalue() == "\nvlm: gw0: waiting\\x1b[2J for a lease\n"
