"""How far the gate is: on a terminal a row below pytest's letters that is drawn anew, elsewhere a plain line now and then."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TextIO

import pytest

from pytest_vlmrobust.core.decision import WORST_FIRST, Outcome
from pytest_vlmrobust.core.errors import StoreError
from pytest_vlmrobust.core.words import on_one_line

if TYPE_CHECKING:
    from pytest_vlmrobust.core.record import Record
    from pytest_vlmrobust.evaluation.run.evaluator import Progress

_LIVE_SECONDS = 0.2
_PLAIN_SECONDS = 30.0
_PACE_SECONDS, _PACE_SHARE = 60.0, 0.5
"""How far back the pace looks: a minute, later half of the run. Adaptive runs get most of their answers early."""
_BAR = 10
_PLAIN_WIDTH = 160
"""Columns without a terminal."""
_ERASE = "\x1b[J"
"""Erases everything after and below the cursor: the cursor is after pytest's letters, and the live row is below."""
_ROW_BELOW = "\x1bD\x1b[A\x1b7\r\n"
"""Makes room for a row below the cursor (scrolling if needed), saves the position, and moves down."""
_BACK = "\x1b8"
_RED, _PLAIN = "\x1b[31m", "\x1b[0m"
_BREAK = "\n"


@dataclass(eq=False)
class _Pace:
    """How much is done in a second: a mean in which older seconds count for less and less."""

    started: float
    count: int
    time: float = field(init=False)
    _done: float = 0.0
    _seconds: float = 0.0

    def __post_init__(self) -> None:
        self.time = self.started

    def update(self, now: float, count: int) -> None:
        """Notes how much was done by now."""
        if (elapsed := now - self.time) > 0:
            memory = max(_PACE_SECONDS, _PACE_SHARE * (now - self.started))
            kept = math.exp(-elapsed / memory)
            self._seconds = self._seconds * kept + elapsed
            self._done = self._done * kept + count - self.count
            self.time, self.count = now, count

    @property
    def per_second(self) -> float:
        """Answers per second; 0 if not known yet."""
        return self._done / self._seconds if self._seconds else 0.0


@dataclass(eq=False)
class ProgressDisplay:
    """Prints to a duplicate of the stderr that pytest's capture does not hold; on a terminal it is a plugin of pytest, too."""

    stream: TextIO
    live: bool
    notices_only: bool = False
    """Whether only notices are shown, as with ``-q`` and on pytest-xdist workers, which share a terminal."""
    color: bool = False
    letters: Callable[[], int] = lambda: 0
    """Returns how many columns pytest has written on the current row."""
    answers: Callable[[], int] = lambda: 0
    """Returns how many answers the models of this run gave so far, in all of its processes."""
    tests: int = 0
    """How many tests are to end; 0 in a run that judges nothing."""
    done: int = 0
    pending: dict[str, int] = field(default_factory=dict)
    """Answers that cells need at most, by the ids of their tests, without the cells that ended."""
    planned: int = 0
    """Their sum at the beginning."""
    _answered: int = 0
    _outcomes: dict[str, Record] = field(default_factory=dict)
    _shown: float = 0.0
    _line: str = ""
    _is_away: bool = False
    _has_begun: bool = False

    def __post_init__(self) -> None:
        self._shown = time.monotonic()
        self._start(self._shown)

    def _start(self, now: float) -> None:
        """Starts measuring the pace of answers and of answers no longer needed."""
        self._pace, self._progress = _Pace(now, self._answered), _Pace(now, self._settled)

    @classmethod
    def for_run(cls, config: pytest.Config, *, reports: bool) -> ProgressDisplay | None:
        """Returns the display of a process, or None where nothing should be printed (``--collect-only``).

        With ``-q``, and on pytest-xdist workers, only notices are shown. With ``-s`` there is no live row, because output of
        tests would mix with it.
        """
        if config.option.collectonly:
            return None
        stream = os.fdopen(os.dup(2), "w", buffering=1, encoding="utf-8", errors="replace")
        quiet = not reports or config.get_verbosity() < 0
        terminal = stream.isatty() and os.environ.get("TERM") != "dumb" and config.getoption("capture") != "no"
        terminal = terminal and config.pluginmanager.has_plugin("terminal")  # with -p no:terminal there are no letters
        display = cls(stream, live=not quiet and terminal, notices_only=quiet)
        if display.live:
            config.pluginmanager.register(display, "vlmrobust-live-row")
        return display

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Gets pytest's terminal writer, which does not exist earlier."""
        writer = session.config.get_terminal_writer()
        self.letters, self.color = lambda: writer.width_of_current_line, writer.hasmarkup

    # Events.

    def plan(self, answers: Mapping[str, int], tests: int = 0) -> None:
        """Notes how many answers cells need at most, and how many tests there are; all processes have the same first plan."""
        self.tests = max(tests, self.tests)
        if not self.planned:
            self.pending, self.planned = dict(answers), sum(answers.values())

    def show_progress(self, progress: Progress) -> None:
        """Shows how far the model is in a cell."""
        if not self._has_begun:  # loading weights says nothing about the pace
            self._has_begun = True
            self._count()
            self._start(time.monotonic())
        self._show(f"{progress.cell}  {progress.done}/{progress.total} samples")

    def show_finished_test(self, record: Record) -> None:
        """Counts a test that ended."""
        self.done += record.is_gated
        self._outcomes[record.key] = record
        if record.test == "cell":
            self.pending.pop(record.id, None)
        self._show(f"{record.id}  {record.outcome}", at_once=self.live)

    def show_filled(self, cell: str) -> None:
        """Counts a cell whose answers are in the store, in a run that judges nothing."""
        self.pending.pop(cell, None)
        self._show(cell)

    def notice(self, text: str) -> None:
        """Prints a permanent line about a delay of the run."""
        self.clear()
        begin = _BREAK if self.letters() or not self.live else ""
        self.stream.write(f"{begin}vlm: {on_one_line(text, None)}\n")
        self.stream.flush()

    def clear(self) -> None:
        """Removes the live row before pytest prints."""
        if self.live and self._line and not self._is_away:
            self.stream.write(_ERASE)
            self.stream.flush()

    def stop(self) -> None:
        """Takes the live row away for good."""
        self.clear()
        self.notices_only, self._line = True, ""

    def close(self) -> None:
        """Restores the stream."""
        self.stop()
        self.stream.close()

    # The live row leaves the screen to pytest whenever that prints.

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logstart(self) -> Generator[None, object, object]:
        """Clears the row for the name of a file, or of a test with ``-v``."""
        with self._away():
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logreport(self) -> Generator[None, object, object]:
        """Makes way for a letter."""
        with self._away():
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logfinish(self) -> Generator[None, object, object]:
        """Makes way for the share of tests that are done, at the end of a row."""
        with self._away():
            return (yield)

    @contextlib.contextmanager
    def _away(self) -> Iterator[None]:
        """Takes the live row away, and draws it below wherever pytest's cursor is then."""
        self.clear()
        self._is_away = True
        try:
            yield
        finally:
            self._is_away = False
            self._draw()

    # Drawing it.

    def _show(self, what: str, *, at_once: bool = False) -> None:
        now = time.monotonic()
        if self.notices_only or (now - self._shown < (_LIVE_SECONDS if self.live else _PLAIN_SECONDS) and not at_once):
            return
        self._shown = now
        self._count()
        self._pace.update(now, self._answered)
        self._progress.update(now, self._settled)
        if self.live:
            self.clear()
            self._line = self._text(what, self._width())
            self._draw()
        else:
            self.stream.write(f"\nvlm: {self._text(what, _PLAIN_WIDTH)}\n")
            self.stream.flush()

    def _count(self) -> None:
        with contextlib.suppress(StoreError):  # the run itself reads it, and ends with this error
            self._answered = self.answers()

    @property
    def _settled(self) -> int:
        """The planned answers that exist or are no longer needed."""
        return min(self.planned, max(self.planned - sum(self.pending.values()), self._answered))

    def _draw(self) -> None:
        columns = self._width() + 1
        if not self._line or self._is_away or (self.letters() and self.letters() % columns == 0):
            return  # after the last column a terminal may not move to the next row
        red = self.color and any(record.deciding is Outcome.FAIL for record in self._outcomes.values())
        line = f"{_RED}{self._line}{_PLAIN}" if red else self._line
        self.stream.write(f"{_ROW_BELOW}{line}{_BACK}")
        self.stream.flush()

    def _text(self, what: str, width: int) -> str:
        """Returns the row, as much as fits into the width; the bar, verdicts and pace come first."""
        from rich.cells import cell_len

        settled = self._settled
        tests = [f"{self.done}/{self.tests} tests"] if self.tests else []
        share = settled / self.planned if self.planned else self.done / self.tests if self.tests else 0.0
        filled = int(share * _BAR)
        answers = [f"{_short(settled)}/{_short(self.planned)} answers"] if self.planned else []
        bar = [" ".join([f"[{'#' * filled}{'-' * (_BAR - filled)}]", *(tests or answers)])] if self.live else tests
        answers = answers if tests or not self.live else []
        rate, eta = f"{self._pace.per_second:.0f} answers/s", self._eta()
        counts = Counter(record.outcome for record in self._outcomes.values())
        tally = [f"{counts[outcome]} {outcome.counted}" for outcome in WORST_FIRST if counts[outcome]]
        line = ""
        kept: set[str] = set()
        for part in [*bar, *tally, *eta, rate, *answers, on_one_line(what)]:
            kept.add(part)
            longer = ", ".join(part for part in (*bar, *answers, rate, *eta, *tally, on_one_line(what)) if part in kept)
            if cell_len(longer) > width:
                kept.discard(part)
            else:
                line = longer
        return line

    def _eta(self) -> list[str]:
        """Returns the remaining time for planned answers; empty without a pace."""
        if not (pace := self._progress.per_second):
            return []
        left = round((self.planned - self._settled) / pace)
        hours, minutes = divmod(left // 60, 60)
        return [f"ETA {hours}:{minutes:02d}:{left % 60:02d}" if hours else f"ETA {minutes}:{left % 60:02d}"]

    def _width(self) -> int:
        """Returns the columns of the stream's terminal without the last, where a character may wrap."""
        try:
            return max(20, os.get_terminal_size(self.stream.fileno()).columns - 1)
        except OSError:
            return 79


def _short(count: int) -> str:
    """Returns a count in at most four characters.

    >>> [_short(count) for count in (0, 999, 1_234, 52_096, 4_100_000)]
    ['0', '999', '1.2k', '52k', '4.1M']
    """
    for unit, name in ((1_000_000, "M"), (1_000, "k")):
        if count >= unit:
            return f"{count / unit:.1f}{name}" if count < 10 * unit else f"{count // unit}{name}"
    return str(count)
