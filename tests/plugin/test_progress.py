"""What a person sees while a gate runs: on terminals of two sizes, in a pipe, and with workers."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
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
from tests.forked import ForkedPytest
from tests.small_gate import suite, write_questions

from .conftest import ALONE, POLICY, SAMPLES, SUITE, UNUSED, WORKERS_IF_SLOW, Project

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

    def run(self, directory: Path, *arguments: str, **more: str) -> int:
        """Runs pytest in the terminal, with more environment variables, and returns its exit code."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", self.rows, self.columns, 0, 0))
        environment = {
            name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "CI", "NO_COLOR", "PY_COLORS")
        }
        streams: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), theirs)
        variables = {**environment, "TERM": "xterm-256color", **more}
        running = ForkedPytest([*OPTIONS, *arguments, "suite"], directory, env=variables, **streams)
        os.close(theirs)
        outputs = list(_chunks(ours))
        running.communicate()
        os.close(ours)
        stream = pyte.ByteStream(self.screen)
        for output in outputs:
            stream.feed(output)
            self._look()
        return running.wait()

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


SIZES = pytest.mark.parametrize(("columns", "rows"), [(80, 24), pytest.param(120, 40, marks=pytest.mark.slow)])


@SIZES
def test_the_live_row_leaves_the_letters_alone(project: Project, columns: int, rows: int) -> None:
    project.write("suite/test_suite.py", SUITE.replace('"solarize:low")', '"solarize:low", "robustbench")'))
    write_questions(project.path, "BB")
    project.script({"setting": "invert", "answer": "A"})
    terminal = Terminal(columns, rows)
    assert terminal.run(project.path) == 1
    written = letters(terminal.text)
    assert len(written) > 100
    assert set(written) == {".", "F"}
    assert not any(re.match(r"\[[#-]{10}\]", row) for row in terminal.text), "nothing of it is left"
    said = [live.text for live in terminal.lives]
    assert len(set(said)) > 50
    assert f"/{len(written)} tests" in said[-1]
    assert any(re.search(r"/2\d\d answers, \d+ answers/s, ETA \d+:\d\d, ", text) for text in said)


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
    assert last[decision + 1].startswith("report report/report.html (vlmrobust open), run 20")
    assert last[decision - 1].startswith("policy of model: policy.yaml ")
    assert letters(terminal.text) == "." * TESTS


@pytest.mark.parametrize("color", [{}, {"NO_COLOR": "1"}], ids=["color", "no-color"])
def test_six_failures_are_a_sentence_each_on_one_screen(project: Project, color: dict[str, str]) -> None:
    names = ("grayscale", "flip_v", "invert", "solarize:low", "fog:low")
    project.write("suite/test_suite.py", suite(*names))
    Terminal(80, 24).run(project.path)  # so that the next is the second gate on these questions
    project.script(*({"setting": name, "answer": "A"} for name in names))
    terminal = Terminal(80, 24)
    assert terminal.run(project.path, "--vlm-report=report", **color) == 1
    last = terminal.display
    (gate,) = [number for number, row in enumerate(last) if row.startswith("model-data: gate 2 on these ")]
    assert any(row.startswith("NO-GO  ") for row in last[gate + 1 : gate + 3]), "it takes two rows at most"
    assert any("vision-language model robustness" in row for row in last)
    assert sum(row.startswith("FAIL model-data-") for row in last) >= 3, "each takes two rows here, and the rerun four"
    assert not any(re.search("= (FAILURES|short test summary info) =", row) for row in terminal.text)
    assert any(row.startswith("NO-GO  6 verdicts broke a bound") for row in last)
    assert " 6 failed, " in next(row for row in reversed(last) if row)


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
    assert f"{TESTS}/{TESTS} tests, {6 * SAMPLES}/{6 * SAMPLES} answers" in terminal.lives[-1].text


@pytest.mark.parametrize("arguments", [ALONE, WORKERS_IF_SLOW])
def test_in_a_pipe_there_are_no_control_characters(project: Project, arguments: tuple[str, ...]) -> None:
    done = ForkedPytest([*OPTIONS, *arguments, "suite"], project.path)
    output, _ = done.communicate()
    assert done.returncode == 0, output
    assert all(char.isprintable() for char in output.replace("\n", ""))
    assert "answers/s" not in output, "it was over before a first line was due"


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


def ended(setting: str, outcome: Outcome = Outcome.PASS) -> Record:
    return Record("cell", f"m-d-{setting}", "m", "d", setting, outcome=outcome, nodeid=f"t[{setting}]")


class Model:
    """What a run knows of the answers of its models."""

    answers = 0


def planned(stream: io.StringIO, clock: Clock, model: Model | None = None, **options: Any) -> ProgressDisplay:
    display = ProgressDisplay(stream, **{"live": False, "answers": lambda: model.answers if model else 0, **options})
    display.plan({"m-d-clean": 100, "m-d-fog:low": 100, "m-d-patches:3": 800}, 3)
    return display


def lines(stream: io.StringIO) -> list[str]:
    return [line for line in stream.getvalue().splitlines() if line]


def test_a_log_has_a_line_now_and_then(clock: Clock) -> None:
    stream, model = io.StringIO(), Model()
    display = planned(stream, clock, model)
    for second in range(0, 100, 10):
        clock.now, model.answers = second, second
        display.show_progress(Progress(Cell("m", "d", CLEAN), second, 100))
    assert lines(stream) == [
        "vlm: 0/3 tests, 30/1.0k answers, 1 answers/s, ETA 16:10, m-d-clean  30/100 samples",
        "vlm: 0/3 tests, 60/1.0k answers, 1 answers/s, ETA 15:40, m-d-clean  60/100 samples",
        "vlm: 0/3 tests, 90/1.0k answers, 1 answers/s, ETA 15:10, m-d-clean  90/100 samples",
    ]


def test_the_time_left_is_that_of_the_answers_that_are_left_and_not_of_the_tests(clock: Clock) -> None:
    stream, model = io.StringIO(), Model()
    display = planned(stream, clock, model)
    clock.now, model.answers = 50.0, 100
    display.show_finished_test(ended("clean"))
    assert "1/3 tests, 100/1.0k answers, 2 answers/s, ETA 7:30, 1 PASS" in stream.getvalue()


def test_loading_is_not_part_of_the_pace_and_a_test_that_stops_early_leaves_less_to_do(clock: Clock) -> None:
    stream, model = io.StringIO(), Model()
    display = planned(stream, clock, model)
    clock.now, model.answers = 250.0, 10  # until then it loaded its weights
    display.show_progress(Progress(Cell("m", "d", CLEAN), 10, 100))
    clock.now, model.answers = 300.0, 110
    display.show_finished_test(ended("clean"))
    assert "1/3 tests, 110/1.0k answers, 2 answers/s, ETA 7:25" in stream.getvalue()
    clock.now, model.answers = 350.0, 114
    display.show_finished_test(ended("fog:low"))  # its other samples are not asked
    assert "2/3 tests, 200/1.0k answers, 1 answers/s, ETA 7:" in lines(stream)[-1]


def test_whatever_tests_and_cells_do_numbers_never_fall_and_the_pace_is_never_negative(clock: Clock) -> None:
    """Probes of a cell are asked in its test, and a test asks for several cells: neither has a count of its own."""
    stream, model = io.StringIO(), Model()
    display = planned(stream, clock, model, live=True)
    shown: list[tuple[int, int]] = []
    for step in range(400):
        clock.now += 1.7
        model.answers += (step * 7919) % 5
        if step % 50 == 49:
            display.show_finished_test(ended("clean" if step < 100 else "fog:low"))
        else:
            display.show_progress(Progress(Cell("m", "d", CLEAN), step % 13, 13))
        (pace,) = re.findall(r"(-?\d+) answers/s", stream.getvalue().rpartition("\r\n")[2])
        shown.append((display._settled, int(pace)))
    settled = [count for count, _ in shown]
    assert settled == sorted(settled)
    assert min(pace for _, pace in shown) >= 0
    assert {pace for _, pace in shown[20:]} == {1}, "two answers in 1.7 s, smoothed"


def test_a_pause_of_a_minute_does_not_make_hours_of_minutes(clock: Clock) -> None:
    stream, model = io.StringIO(), Model()
    display = planned(stream, clock, model)
    for _ in range(12):
        display.show_progress(Progress(Cell("m", "d", CLEAN), 1, 100))
        clock.now += 31
        model.answers += 31
    clock.now += 60
    display.show_progress(Progress(Cell("m", "d", CLEAN), 1, 100))
    times = [re.findall(r"ETA (\d+):(\d\d)", line)[0] for line in lines(stream)]
    assert [int(minutes) for minutes, _ in times[-2:]] == [10, 15]


def test_a_run_that_only_fills_its_store_shows_how_much_is_left(clock: Clock) -> None:
    stream, model = io.StringIO(), Model()
    display = ProgressDisplay(stream, live=False, answers=lambda: model.answers)
    display.plan({"m-d-clean": 60, "m-d-again": 40, "m-d-fog:low": 100})
    clock.now, model.answers = 40.0, 40
    display.show_filled("m-d-clean")
    clock.now, model.answers = 80.0, 80
    display.show_filled("m-d-again")
    assert lines(stream) == [
        "vlm: 60/200 answers, 1 answers/s, ETA 1:33, m-d-clean",
        "vlm: 100/200 answers, 1 answers/s, ETA 1:25, m-d-again",
    ]
    row = ProgressDisplay(live := io.StringIO(), live=True, answers=lambda: model.answers)
    row.plan({"m-d-clean": 60, "m-d-again": 40, "m-d-fog:low": 100})
    clock.now = 120.0
    row.show_filled("m-d-clean")
    assert "[####------] 80/200 answers, " in live.getvalue()


def test_a_test_that_ran_again_is_tallied_once(clock: Clock) -> None:
    stream = io.StringIO()
    display = planned(stream, clock)
    display.show_finished_test(ended("clean", Outcome.ERROR))
    clock.now = 40.0
    display.show_finished_test(ended("clean", Outcome.FAIL))
    assert "1 FAIL" in stream.getvalue()
    assert "ERROR" not in stream.getvalue()


def test_a_notice_stands_on_a_line_of_its_own_and_is_printable(clock: Clock) -> None:
    stream = io.StringIO()
    planned(stream, clock, notices_only=True).notice("gw0: waiting\x1b[2J\nfor a lease")
    assert stream.getvalue() == "\nvlm: gw0: waiting\\x1b[2J for a lease\n"
