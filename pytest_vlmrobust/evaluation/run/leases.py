"""Leases: which process works on an answer, how it shows that it is alive, and when others stop waiting.

Processes with the same process table notice a dead process at once. Otherwise its lease expires: leases are short,
and their owner renews them while the model works.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from pytest_vlmrobust.core.errors import StoreError
from pytest_vlmrobust.core.words import quantity
from pytest_vlmrobust.store import Store

LEASE_SECONDS = 60.0
"""How long others wait for an answer without a sign of life from its owner."""
RENEWAL_SECONDS = 10.0
"""How often a lease is renewed, so that at least 50 of its 60 seconds remain.

This leaves room for delays before another process takes over a lease in use: a library holds the interpreter lock
while loading weights, the machine swaps, the clock of another machine is ahead. In the worst case both ask the model;
the first answer is kept, and no answer is lost or wrong.
"""
NOTICE_SECONDS = 5.0
"""Seconds of waiting before the user is told."""

PROC = Path("/proc")
"""Linux's process information."""
_ENDED = frozenset("ZXx")
"""States of an ended process: a zombie, or one being removed."""


@dataclass(frozen=True, slots=True)
class Owner:
    """A process, named so that it cannot be confused with a later process of the same number or with one on another machine."""

    host: str
    pid: int
    started: str = ""
    """Its start in clock ticks since boot; empty if unknown."""
    system: str = ""
    """The boot id and the process table of ``pid``; empty if unknown.

    Containers of a machine share the boot but not the table.
    """

    @classmethod
    def of_this_process(cls) -> Self:
        """Returns this process as an owner."""
        pid = os.getpid()
        _, started = _state_and_start(pid) or ("", "")
        return cls(socket.gethostname(), pid, started, _system())

    @classmethod
    def parse(cls, name: str) -> Self | None:
        """Parses the output of ``str``; None for other names."""
        host, *rest = name.rsplit(":", 3)
        if len(rest) != 3 or not rest[0].isdigit():
            return None
        return cls(host, int(rest[0]), rest[1], rest[2])

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}:{self.started}:{self.system}"

    @property
    def is_gone(self) -> bool:
        """Whether this process is known to have ended; False for another process table."""
        same_table = self.system == _system() and (self.system != "" or self.host == socket.gethostname())
        if not same_table or os.name == "nt":  # on Windows os.kill would end the process
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except OSError:
            pass  # it exists and belongs to another user
        state, started = _state_and_start(self.pid) or ("", self.started)
        return state in _ENDED or started != self.started


def owner_name() -> str:
    """Returns the name under which this process holds leases."""
    return str(Owner.of_this_process())


def is_gone(owner: str) -> bool:
    """Whether the owner of a lease is known to have ended; False if its name is no process."""
    process = Owner.parse(owner)
    return process is not None and process.is_gone


def _state_and_start(pid: int) -> tuple[str, str] | None:
    """Returns the state and start of a process, or None: fields 3 and 22 of ``/proc/PID/stat``, see proc(5)."""
    try:
        text = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the second field is the command, which may hold spaces and brackets
    return fields[0], fields[19]


def _system() -> str:
    try:
        boot = (PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        table = str((PROC / "self/ns/pid").readlink())  # such as pid:[4026531836]
    except OSError:
        return ""
    return f"{boot}.{''.join(filter(str.isdigit, table))}"


class Renewal:
    """Renews the leases of an owner on a single thread while its answers are in work; a thread per batch would cost more."""

    def __init__(self, store: Store, owner: str) -> None:
        self._store, self._owner = store, owner
        self._worked_on: dict[object, Collection[str]] = {}
        self._thread: threading.Thread | None = None
        self._starting, self._closed = threading.Lock(), threading.Event()

    @contextlib.contextmanager
    def during(self, keys: Collection[str]) -> Iterator[None]:
        """Renews the leases on these keys while the block runs."""
        work = object()
        self._worked_on[work] = keys
        with self._starting:
            if self._thread is None:
                thread = threading.Thread(target=self._renew, name="vlm-leases", daemon=True)
                thread.start()  # first, because closing must not wait for a thread that Ctrl-C kept from starting
                self._thread = thread
        try:
            yield
        finally:
            del self._worked_on[work]

    def close(self) -> None:
        """Stops the thread."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join()

    def _renew(self) -> None:
        while not self._closed.wait(RENEWAL_SECONDS):
            for keys in list(self._worked_on.values()):
                with contextlib.suppress(StoreError):  # the batch meets the same failure when it is stored, and says so
                    self._store.renew(keys, self._owner, LEASE_SECONDS)


@dataclass
class Wait:
    """The leases seen by a process that waits for answers.

    It uses only the local clock: a lease that does not change for its duration is not being renewed, whatever the time on the
    owner's machine.
    """

    say: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    _since: dict[tuple[str, float], float] = field(default_factory=dict)
    _began: float | None = None
    _named: set[str] = field(default_factory=set)

    def lapsed(self, leases: Mapping[str, float], answers: int) -> list[str]:
        """Returns the owners whose leases may be taken over, and tells the user once about each other owner."""
        now = self.clock()
        self._began = now if self._began is None else self._began
        self._since = {lease: self._since.get(lease, now) for lease in leases.items()}
        gone = [owner for (owner, _), since in self._since.items() if is_gone(owner) or now - since >= LEASE_SECONDS]
        waiting = leases.keys() - gone - self._named
        if waiting and now - self._began >= NOTICE_SECONDS:
            self._named |= waiting
            self.say(
                f"waiting for {quantity(answers, 'answer')} that {', '.join(map(_described, sorted(waiting)))} is working on; "
                f"taken over {LEASE_SECONDS:g} s after its last sign of life"
            )
        return gone


def _described(owner: str) -> str:
    process = Owner.parse(owner)
    return f"process {process.pid} of {process.host}" if process else owner
