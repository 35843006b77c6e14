"""How far the gate is: one line that rewrites itself on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TextIO

import pytest

if TYPE_CHECKING:
    from pytest_vlmrobust.core.record import Record
    from pytest_vlmrobust.evaluation.evaluator import Progress

_LIVE_SECONDS = 0.2
_PLAIN_SECONDS = 30.0
_CLEAR = "\r\x1b[2K"


@dataclass
class ProgressDisplay:
    """Prints to the real stderr, which pytest's capture does not hold."""

    stream: TextIO
    live: bool
    total: int = 0
    done: int = 0
    inferred: int = 0
    began: float = field(default_factory=time.monotonic)
    _shown: float = field(default_factory=time.monotonic)
    _before: int = 0

    @classmethod
    def for_run(cls, config: pytest.Config) -> ProgressDisplay | None:
        """Returns the display of a run, or None where nothing should be printed (``-q``, ``--collect-only``)."""
        if config.get_verbosity() < 0 or config.option.collectonly:
            return None
        stream = os.fdopen(os.dup(2), "w", buffering=1, encoding="utf-8", errors="replace")
        return cls(stream, live=stream.isatty() and os.environ.get("TERM") != "dumb")

    def progressed(self, progress: Progress) -> None:
        """Shows how far the model is in a cell."""
        inferred = self.inferred + progress.inferred
        self._print(f"{progress.cell}  {progress.done}/{progress.total} samples", inferred)

    def finished(self, record: Record, total: int) -> None:
        """Counts a test that ended."""
        self.done += 1
        self.total = max(total, self.total)
        self.inferred += record.n_inferred
        self._print(f"{record.id}  {record.outcome}", self.inferred)

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
        if now - self._shown < (_LIVE_SECONDS if self.live else _PLAIN_SECONDS):
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
