"""How many requests a model answers at a time: a number as it was given, or one that is found by timing the first batches.

With ``auto``, batches grow while larger ones answer more in a second. What is timed are requests of the run, so that nothing is
asked twice. Which requests share a batch then depends on times: that moves logits by rounding in float32, and in half precision
by a few thousandths where rows are padded. What it comes to on a GPU was not measured.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

AUTO = "auto"
START = 16
"""What ``auto`` begins with."""
LARGEST = 128
"""Requests at a time above which ``auto`` does not try: as many answers are lost when the process is killed."""
WORTH = 1.05
"""How many times as much a batch twice as large has to answer in a second: what is gained below that is within the noise."""
TIMED = 2
"""Batches of a size that are timed; the fastest counts, for other programs only make one slower."""
SPARE = 2.0
"""How many times what batches took so far has to be free before they grow to twice the size."""

PROC, CGROUP = Path("/proc"), Path("/sys/fs/cgroup")


class BatchSize:
    """The size of the next batch, and what it rests on."""

    def __init__(self, asked: int | str, has_room: Callable[[], bool], *, largest: int = LARGEST) -> None:
        """Begins with ``asked``, or with ``START`` where that is ``auto``."""
        self.now = START if isinstance(asked, str) else asked
        """How many requests the next batch may have."""
        self._asked = asked
        self._has_room = has_room
        self._largest = largest
        self._seconds: dict[int, list[float]] = {}
        self._is_warm = self._is_partial = False
        self._because = "" if isinstance(asked, str) else "asked for"

    def answered(self, requests: int, seconds: float) -> None:
        """Takes how long a batch of so many requests took; partly filled ones say nothing, nor does the very first."""
        self._is_partial |= requests < self.now
        if self._because or requests != self.now:
            return
        if not self._is_warm:
            self._is_warm = True  # a library sets itself up in its first batch
            return
        timed = self._seconds.setdefault(self.now, [])
        timed.append(seconds / requests)
        if len(timed) >= TIMED:
            self._decide()

    def ran_out_of_memory(self, requests: int) -> None:
        """Halves the size after a batch of so many requests did not fit, for good; a number that was given stays."""
        if isinstance(self._asked, str):
            self.now = max(1, min(self.now, requests // 2))
            self._because = f"{requests} ran out of memory"

    def describe(self) -> dict[str, object]:
        """Returns what the manifest says: what was asked for, what it came to and why, and requests per second by size."""
        pace = {str(size): round(1 / min(seconds), 2) for size, seconds in self._seconds.items()}
        untimed = "no batch was full, so that none was timed" if self._is_partial and not pace else "still timing"
        return {"asked": self._asked, "now": self.now, "because": self._because or untimed, "requests_per_second": pace}

    def _decide(self) -> None:
        before = self._seconds.get(self.now // 2)
        if before is not None and min(before) < WORTH * min(self._seconds[self.now]):
            self._because = f"{self.now} at a time gained less than {WORTH - 1:.0%}"
            self.now //= 2
        elif self.now * 2 > self._largest:
            self._because = "the largest that is tried"
        elif not self._has_room():
            self._because = f"memory for {self.now * 2} at a time is not known to be free"
        else:
            self.now *= 2


def room_for_twice(loaded_bytes: int | None) -> bool:
    """Returns whether ``SPARE`` times what batches needed so far is free; False where the system does not tell."""
    peak, free = _field(PROC / "self/status", "VmHWM"), free_bytes()
    if loaded_bytes is None or peak is None or free is None:
        return False
    return free > SPARE * (peak - loaded_bytes)


def held_bytes() -> int | None:
    """Returns how much memory this process holds; None where the system does not tell."""
    return _field(PROC / "self/status", "VmRSS")


def free_bytes() -> int | None:
    """Returns how much memory this process may still take, of the machine and of its control group; None where nobody tells."""
    machine = _field(PROC / "meminfo", "MemAvailable")
    limit, used = (_number(CGROUP / name) for name in ("memory.max", "memory.current"))
    group = None if limit is None or used is None else limit - used
    known = [amount for amount in (machine, group) if amount is not None]
    return min(known) if known else None


def _field(file: Path, name: str) -> int | None:
    """Returns a field of a file of proc(5) in bytes."""
    try:
        lines = file.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:")), None)


def _number(file: Path) -> int | None:
    """Returns the number in a file; None where there is none, as where it says ``max``."""
    try:
        text = file.read_text(encoding="ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
