"""How far the gate is: one line that rewrites itself on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TextIO

import pytest

if TYPE_CHECKING:
    from pytest_vlmrobust.core.record import Record
    from pytest_vlmrobust.evaluation.run.evaluator import Progress

_LIVE_SECONDS = 0.2
_PLAIN_SECONDS = 30.0
_CLEAR = "\r\x1b[2K"
_BREAK = "\n"


@dataclass
class ProgressDisplay:
    """Prints to the real stderr, which pytest's capture does not hold."""

    stream: TextIO
    live: bool
    notices_only: bool = False
    """Whether it shows no progress, as with ``-q`` and on the workers of pytest-xdist, which share one terminal."""
    total: int = 0
    done: int = 0
    inferred: int = 0
    began: float = field(default_factory=time.monotonic)
    _shown: float = field(default_factory=time.monotonic)

    @classmethod
    def for_run(cls, config: pytest.Config, *, reports: bool) -> ProgressDisplay | None:
        """Returns the display of a process, or None where nothing should be printed (``--collect-only``).

        Args:
            config: How pytest was called; with ``-q`` only notices are shown.
            reports: Whether this process reports; the workers of pytest-xdist only show notices.
        """
        if config.option.collectonly:
            return None
        stream = os.fdopen(os.dup(2), "w", buffering=1, encoding="utf-8", errors="replace")
        quiet = not reports or config.get_verbosity() < 0
        return cls(stream, live=not quiet and stream.isatty() and os.environ.get("TERM") != "dumb", notices_only=quiet)

    def show_progress(self, progress: Progress) -> None:
        """Shows how far the model is in a cell."""
        inferred = self.inferred + progress.inferred
        self._print(f"{progress.cell}  {progress.done}/{progress.total} samples", inferred)

    def show_finished_test(self, record: Record, total: int) -> None:
        """Counts a test that ended."""
        self.done += 1
        self.total = max(total, self.total)
        self.inferred += record.n_inferred
        self._print(f"{record.id}  {record.outcome}", self.inferred)

    def notice(self, text: str) -> None:
        """Prints a line that stays: what keeps the run from getting on."""
        self.stream.write(f"{_CLEAR if self.live else _BREAK}vlm: {text}\n")
        self.stream.flush()

    def clear(self) -> None:
        """Takes the line away, so that what pytest prints next stands alone."""
        if self.live:
            self.stream.write(_CLEAR)
            self.stream.flush()

    def close(self) -> None:
        """Gives the stream back."""
        self.clear()
        self.stream.close()

    def _print(self, what: str, inferred: int) -> None:
        now = time.monotonic()
        if self.notices_only or now - self._shown < (_LIVE_SECONDS if self.live else _PLAIN_SECONDS):
            return
        self._shown = now
        line = f"vlm: {self._position()}  {what}  {self._pace(now, inferred)}"
        self.stream.write(f"{_CLEAR}{line[: _width()]}" if self.live else f"\n{line}\n")
        self.stream.flush()

    def _position(self) -> str:
        return f"test {min(self.done + 1, self.total)} of {self.total}" if self.total else f"test {self.done + 1}"

    def _pace(self, now: float, inferred: int) -> str:
        elapsed = now - self.began
        rate = f"{inferred / elapsed:.0f} samples/s" if elapsed > 0 else ""
        if not self.total or not self.done:
            return rate
        left = elapsed / self.done * (self.total - self.done)
        return f"{rate}  ETA {int(left // 60)}:{int(left % 60):02d}"


def _width() -> int:
    try:
        return os.get_terminal_size(2).columns - 1
    except OSError:
        return 119
