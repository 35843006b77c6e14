"""Leases: who works on an answer, how that process shows that it is at work, and when others stop waiting for it.

A process that died is noticed at once by others that see the same process table. Otherwise its lease runs out: leases are short,
and whoever holds one renews it while the model works.
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
"""How long an answer is waited for whose owner gives no sign of life."""
RENEWAL_SECONDS = 10.0
"""How often a lease is renewed, so that at least 50 of its 60 seconds are left.

That much may go wrong before another process takes over a lease that is still in use: a library holds Python's interpreter lock
while it loads weights, the machine swaps, the clock of another machine is ahead. The price is then that both ask the model;
the first answer is kept, and no answer is ever lost or wrong.
"""
NOTICE_SECONDS = 5.0
"""After how long whoever waits says for whom."""

PROC = Path("/proc")
"""Where Linux tells about processes; elsewhere it is absent."""
_ENDED = frozenset("ZXx")
"""States of a process that has ended: a zombie, whose parent has not asked for its exit status, or one that is being removed."""


@dataclass(frozen=True, slots=True)
class Owner:
    """A process, named so that neither its successor under the same number nor one of another machine is taken for it."""

    host: str
    pid: int
    started: str = ""
    """When it started, in clock ticks since the machine did; empty where the system does not tell."""
    system: str = ""
    """The boot of the machine and the process table that ``pid`` belongs to; empty where the system does not tell.

    Containers of one machine share the boot and not the table.
    """

    @classmethod
    def of_this_process(cls) -> Self:
        """Returns this process as an owner."""
        pid = os.getpid()
        _, started = _state_and_start(pid) or ("", "")
        return cls(socket.gethostname(), pid, started, _system())

    @classmethod
    def parse(cls, name: str) -> Self | None:
        """Reads what ``str`` wrote; None for any other name."""
        host, *rest = name.rsplit(":", 3)
        if len(rest) != 3 or not rest[0].isdigit():
            return None
        return cls(host, int(rest[0]), rest[1], rest[2])

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}:{self.started}:{self.system}"

    @property
    def is_gone(self) -> bool:
        """Whether this process is known to have ended; of one in another process table nothing is known."""
        same_table = self.system == _system() and (self.system != "" or self.host == socket.gethostname())
        if not same_table or os.name == "nt":  # on Windows os.kill would end the process
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except OSError:
            pass  # it is there, and belongs to another user
        state, started = _state_and_start(self.pid) or ("", self.started)
        return state in _ENDED or started != self.started


def owner_name() -> str:
    """Returns the name under which this process holds leases."""
    return str(Owner.of_this_process())


def is_gone(owner: str) -> bool:
    """Whether the owner of a lease is known to have ended; False where its name says nothing about a process."""
    found = Owner.parse(owner)
    return found is not None and found.is_gone


def _state_and_start(pid: int) -> tuple[str, str] | None:
    """Returns the state of a process and when it started, or None: fields 3 and 22 of ``/proc/PID/stat``, see proc(5)."""
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
    """Renews the leases of an owner on one thread, as long as its answers are worked on: a thread for each batch costs more."""

    def __init__(self, store: Store, owner: str) -> None:
        self._store, self._owner = store, owner
        self._worked_on: dict[object, Collection[str]] = {}
        self._thread: threading.Thread | None = None
        self._starting, self._closed = threading.Lock(), threading.Event()

    @contextlib.contextmanager
    def during(self, keys: Collection[str]) -> Iterator[None]:
        """Renews the leases on these keys as long as the block runs, however long the model takes for it."""
        work = object()
        self._worked_on[work] = keys
        with self._starting:
            if self._thread is None:
                thread = threading.Thread(target=self._renew, name="vlm-leases", daemon=True)
                thread.start()  # first, for closing must not wait for a thread that Ctrl-C kept from starting
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
    """What a process that waits for answers has seen of the leases on them.

    It goes by its own clock: a lease that does not change for as long as leases run is not renewed, whatever time it is on the
    machine that holds it.
    """

    say: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    _since: dict[tuple[str, float], float] = field(default_factory=dict)
    _began: float | None = None
    _named: set[str] = field(default_factory=set)

    def lapsed(self, leases: Mapping[str, float], answers: int) -> list[str]:
        """Returns the owners whose leases may be taken from them now, and says once of each other one that it is waited for."""
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
    found = Owner.parse(owner)
    return f"process {found.pid} of {found.host}" if found else owner
