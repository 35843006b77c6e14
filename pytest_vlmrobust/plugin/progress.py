"""How far the gate is: on a terminal a row below pytest's letters that is drawn anew, elsewhere a plain line now and then."""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TextIO

import pytest

from pytest_vlmrobust.core.decision import WORST_FIRST, Outcome
from pytest_vlmrobust.core.words import on_one_line

if TYPE_CHECKING:
    from pytest_vlmrobust.core.record import Record
    from pytest_vlmrobust.evaluation.run.evaluator import Progress

_LIVE_SECONDS = 0.2
_PLAIN_SECONDS = 30.0
_WINDOW_SECONDS = 60.0
"""What the pace is measured over: an adaptive run asks most of its samples in its first tests."""
_BAR = 10
_PLAIN_WIDTH = 160
"""Columns where there is no terminal: a log has no right edge."""
_ERASE = "\x1b[J"
"""Erases what stands behind the cursor and below: the cursor is behind pytest's letters, and the live row below it."""
_ROW_BELOW = "\x1bD\x1b[A\x1b7\r\n"
"""Makes room for a row below the cursor, which scrolls on the last row of the screen, notes the place, and goes down."""
_BACK = "\x1b8"
_RED, _PLAIN = "\x1b[31m", "\x1b[0m"
_BREAK = "\n"


class _Moment(NamedTuple):
    """How much was done at a time of the clock."""

    time: float
    forwards: int
    inferred: int


@dataclass(eq=False)
class ProgressDisplay:
    """Prints to a duplicate of the stderr that pytest's capture does not hold; on a terminal it is a plugin of pytest, too."""

    stream: TextIO
    live: bool
    notices_only: bool = False
    """Whether it shows no progress, as with ``-q`` and on the workers of pytest-xdist, which share one terminal."""
    color: bool = False
    letters: Callable[[], int] = lambda: 0
    """Returns how many columns pytest has written on the current row."""
    tests: int = 0
    """How many tests are to end."""
    done: int = 0
    inferred: int = 0
    forwards: dict[str, int] = field(default_factory=dict)
    """Forward passes that cells need at most, by the ids of their tests; those of cells that ended are taken out."""
    planned: int = 0
    """Their sum at the beginning."""
    _outcomes: dict[str, Record] = field(default_factory=dict)
    _moments: deque[_Moment] = field(default_factory=deque)
    _shown: float = 0.0
    _line: str = ""
    _is_away: bool = False
    _has_asked: bool = False

    def __post_init__(self) -> None:
        self._shown = time.monotonic()
        self._moments.append(_Moment(self._shown, 0, 0))

    @classmethod
    def for_run(cls, config: pytest.Config, *, reports: bool) -> ProgressDisplay | None:
        """Returns the display of a process, or None where nothing should be printed (``--collect-only``).

        Args:
            config: How pytest was called; with ``-q`` only notices are shown. With ``-s`` there is no live row: what tests print
                would stand in it.
            reports: Whether this process reports; the workers of pytest-xdist only show notices.
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
        """Learns where pytest writes its letters: its writer is there only now."""
        writer = session.config.get_terminal_writer()
        self.letters, self.color = lambda: writer.width_of_current_line, writer.hasmarkup

    # What there is to show.

    def plan(self, forwards: Mapping[str, int]) -> None:
        """Notes how many forward passes cells need at most; the first plan stands, for all processes have the same."""
        if not self.planned:
            self.forwards, self.planned = dict(forwards), sum(forwards.values())

    def show_progress(self, progress: Progress) -> None:
        """Shows how far the model is in a cell."""
        inferred = self.inferred + progress.inferred
        if not self._has_asked:  # what its weights took to load says nothing about the pace
            self._has_asked = True
            self._moments = deque([_Moment(time.monotonic(), self._made(inferred), inferred)])
        self._show(f"{progress.cell}  {progress.done}/{progress.total} samples", inferred)

    def show_finished_test(self, record: Record, tests: int) -> None:
        """Counts a test that ended."""
        self.done += record.is_gated
        self.tests = max(tests, self.tests)
        self.inferred += record.n_inferred
        self._outcomes[record.key] = record
        if record.test == "cell":
            self.forwards.pop(record.id, None)
        self._show(f"{record.id}  {record.outcome}", self.inferred, at_once=self.live)

    def notice(self, text: str) -> None:
        """Prints a line that stays: what keeps the run from getting on."""
        self.clear()
        begin = _BREAK if self.letters() or not self.live else ""
        self.stream.write(f"{begin}vlm: {on_one_line(text, None)}\n")
        self.stream.flush()

    def clear(self) -> None:
        """Takes the live row away, so that what pytest prints next stands alone."""
        if self.live and self._line and not self._is_away:
            self.stream.write(_ERASE)
            self.stream.flush()

    def stop(self) -> None:
        """Takes the live row away for good."""
        self.clear()
        self.notices_only, self._line = True, ""

    def close(self) -> None:
        """Gives the stream back."""
        self.stop()
        self.stream.close()

    # The live row leaves the screen to pytest whenever that prints.

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logstart(self) -> Generator[None, object, object]:
        """Makes way for the name of a file, or of a test with ``-v``."""
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

    def _show(self, what: str, inferred: int, *, at_once: bool = False) -> None:
        now = time.monotonic()
        if self.notices_only or (now - self._shown < (_LIVE_SECONDS if self.live else _PLAIN_SECONDS) and not at_once):
            return
        self._shown = now
        forwards = self._made(inferred)
        self._moments.append(_Moment(now, forwards, inferred))
        while len(self._moments) > 2 and now - self._moments[1].time > _WINDOW_SECONDS:
            self._moments.popleft()
        if self.live:
            self.clear()
            self._line = self._text(what, forwards, self._width())
            self._draw()
        else:
            self.stream.write(f"\nvlm: {self._text(what, forwards, _PLAIN_WIDTH)}\n")
            self.stream.flush()

    def _made(self, inferred: int) -> int:
        """Returns how many of the planned forward passes are made, or were not needed."""
        return min(self.planned, max(self.planned - sum(self.forwards.values()), inferred))

    def _draw(self) -> None:
        columns = self._width() + 1
        if not self._line or self._is_away or (self.letters() and self.letters() % columns == 0):
            return  # behind the last column a terminal forgets that it is to go to the next row
        red = self.color and any(record.deciding is Outcome.FAIL for record in self._outcomes.values())
        line = f"{_RED}{self._line}{_PLAIN}" if red else self._line
        self.stream.write(f"{_ROW_BELOW}{line}{_BACK}")
        self.stream.flush()

    def _text(self, what: str, forwards: int, width: int) -> str:
        """Returns the line: as much of what there is to say as the width holds, the bar, verdicts and pace before all else."""
        from rich.cells import cell_len

        tests = f"{self.done}/{self.tests} tests" if self.tests else f"{self.done} tests"
        share = forwards / self.planned if self.planned else self.done / self.tests if self.tests else 0.0
        filled = int(share * _BAR)
        bar = f"[{'#' * filled}{'-' * (_BAR - filled)}] {tests}" if self.live else tests
        made = [f"{_short(forwards)}/{_short(self.planned)} forwards"] if self.planned else []
        rate, *eta = self._pace()
        counts = Counter(record.outcome for record in self._outcomes.values())
        tally = [f"{counts[outcome]} {outcome}" for outcome in WORST_FIRST if counts[outcome]]
        line = ""
        kept: set[str] = set()
        for part in [bar, *tally, *eta, rate, *made, on_one_line(what)]:
            kept.add(part)
            longer = ", ".join(one for one in (bar, *made, rate, *eta, *tally, on_one_line(what)) if one in kept)
            if cell_len(longer) > width:
                kept.discard(part)
            else:
                line = longer
        return line

    def _pace(self) -> list[str]:
        """Returns how many samples are inferred a second, and how long the forward passes that are left will take."""
        first, last = self._moments[0], self._moments[-1]
        elapsed, forwards = last.time - first.time, last.forwards - first.forwards
        rate = f"{(last.inferred - first.inferred) / elapsed:.0f}" if elapsed > 0 else "0"
        pace = [f"{rate} samples/s"]
        if forwards > 0:
            left = round(elapsed / forwards * (self.planned - last.forwards))
            hours, minutes = divmod(left // 60, 60)
            pace.append(f"ETA {hours}:{minutes:02d}:{left % 60:02d}" if hours else f"ETA {minutes}:{left % 60:02d}")
        return pace

    def _width(self) -> int:
        """Returns the columns of the terminal but the last, in which a character may wrap; that of the stream, not of fd 2."""
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
